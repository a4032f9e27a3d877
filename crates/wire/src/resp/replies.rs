//! Replies of servers, RESP2 and RESP3, of any size and without their content.
//!
//! ```text
//!  attribute* value     |1\r\n+ttl\r\n:9\r\n  belongs to the value that follows, anywhere
//!  *? … .\r\n           aggregates without a count: array, map, set
//!  $?\r\n ;2\r\nab\r\n ;0\r\n  strings in pieces
//! ```
//!
//! A reply is refused where its line ends, or where the line is longer than it may be. Of a line,
//! the first [`HEAD_MAX`] bytes are checked.

use super::number;
use crate::line::Line;
use crate::scan::Step;
use thiserror::Error;

/// Bytes of the first line that [`Replies::head`] keeps, and longest line with a count or a length.
pub const HEAD_MAX: usize = 64;
/// Longest line of text, in bytes: as long as a bulk string.
const TEXT_MAX: u64 = 512 << 20;
/// Longest bulk string.
const BULK_MAX: i64 = 1 << 40;
/// Most elements of an aggregate, of which a map has two for each pair.
const COUNT_MAX: i64 = i32::MAX as i64;
/// Most aggregates inside one another.
pub(super) const NESTED_MAX: usize = 32;

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    #[error("byte {0:#04x} at the start of a reply; must be the sign of a type")]
    Kind(u8),
    #[error("length, count, number or boolean of a reply is malformed or too large")]
    Number,
    #[error("line of a reply is longer than it may be")]
    Line,
    #[error("bulk string of a reply is not followed by a line end")]
    BulkEnd,
    #[error("reply is nested deeper than 32 levels")]
    Nested,
    #[error("push or end of an aggregate where a value must be")]
    Place,
    #[error("reply has more elements than {} or is cut short", super::ELEMENTS_MAX)]
    Unfinished,
}

/// What a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The line is the value.
    Line,
    /// This many bytes follow, and a line end.
    Bulk(u64),
    /// Pieces of a string follow.
    Pieces,
    /// This many values follow.
    Open(u32),
    /// Values follow up to an end.
    OpenEnded,
    /// Ends an aggregate without a count.
    End,
}

impl Head {
    /// Reads a line, or its first bytes.
    pub(super) fn parse(line: &[u8]) -> Result<Head, ReplyError> {
        let Some((&kind, rest)) = line.split_first() else { return Err(ReplyError::Kind(b'\r')) };
        let count = |factor: i64| match number(rest) {
            Some(n) if (0..=COUNT_MAX / factor).contains(&n) => Ok(Head::Open((n * factor) as u32)),
            _ => Err(ReplyError::Number),
        };
        let right = match (kind, rest) {
            (b'+' | b'-', _) | (b'$' | b'*', b"-1") => true,
            (b':', _) => number(rest.strip_prefix(b"+").unwrap_or(rest)).is_some(),
            (b'_', _) => rest.is_empty(),
            (b'#', _) => matches!(rest, b"t" | b"f"),
            (b',' | b'(', _) => {
                !rest.is_empty() && rest.iter().all(|byte| b"0123456789+-.eEinfa".contains(byte))
            }
            (b'$', b"?") => return Ok(Head::Pieces),
            (b'*' | b'~' | b'%', b"?") => return Ok(Head::OpenEnded),
            (b'$' | b'!' | b'=', _) => {
                // A verbatim string begins with its format and a colon.
                let least = if kind == b'=' { 4 } else { 0 };
                let len = number(rest).filter(|len| (least..=BULK_MAX).contains(len));
                return len.map(|len| Head::Bulk(len as u64)).ok_or(ReplyError::Number);
            }
            (b'*' | b'~' | b'>', _) => return count(1),
            (b'%' | b'|', _) => return count(2),
            (b'.', b"") => return Ok(Head::End),
            _ => return Err(ReplyError::Kind(kind)),
        };
        if right { Ok(Head::Line) } else { Err(ReplyError::Number) }
    }
}

/// Reads the length of a piece of a string.
pub(super) fn piece(line: &[u8]) -> Result<u64, ReplyError> {
    let len = line.strip_prefix(b";").and_then(number).filter(|len| (0..=BULK_MAX).contains(len));
    len.map(|len| len as u64).ok_or(ReplyError::Number)
}

/// Returns the length, with its end, that a line of this kind may have.
pub(super) fn line_max(kind: u8) -> u64 {
    if matches!(kind, b'+' | b'-' | b',' | b'(') { TEXT_MAX } else { HEAD_MAX as u64 }
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// A line with a value or the start of one.
    Value,
    /// A line with the length of a piece of a string.
    Piece,
    /// This many bytes of a bulk string, its end included.
    Bulk(u64),
    /// This many bytes of a piece.
    InPiece(u64),
}

/// An aggregate that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    kind: u8,
    /// Whether an end stands for a count.
    endless: bool,
    /// Values that have not ended; without a count, those that have, modulo 2.
    left: u32,
}

/// An incremental scanner of replies.
#[derive(Clone, Debug)]
pub struct Replies {
    at: At,
    line: Line<HEAD_MAX>,
    open: [Open; NESTED_MAX],
    depth: usize,
    /// Whether an attribute has ended and its value must follow.
    attributed: bool,
    head: [u8; HEAD_MAX],
    head_len: usize,
    ended: bool,
}

impl Default for Replies {
    fn default() -> Replies {
        Replies::new()
    }
}

impl Replies {
    /// Returns a scanner at the start of a connection.
    pub const fn new() -> Replies {
        Replies {
            at: At::Value,
            line: Line::new(),
            open: [Open { kind: 0, endless: false, left: 0 }; NESTED_MAX],
            depth: 0,
            attributed: false,
            head: [0; HEAD_MAX],
            head_len: 0,
            ended: false,
        }
    }

    /// Returns the start of the first line of the current reply, without its attributes and its
    /// line end. It is empty until that line has ended, and stays until the next reply begins.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Returns the sign of the type of the current reply, once its first line has ended.
    pub fn kind(&self) -> Option<u8> {
        self.head().first().copied()
    }

    /// Returns whether the current reply is a push, which answers no request.
    pub fn is_push(&self) -> bool {
        self.kind() == Some(b'>')
    }

    /// Returns whether the scanner is between two replies.
    pub fn is_idle(&self) -> bool {
        self.depth == 0 && matches!(self.at, At::Value) && self.line.len() == 0 && !self.attributed
    }

    /// Scans up to the end of the current reply, or all bytes. The next call gets what follows.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Step, ReplyError> {
        if !bytes.is_empty() && std::mem::take(&mut self.ended) {
            self.head_len = 0;
        }
        let mut len = 0;
        while len < bytes.len() {
            let rest = &bytes[len..];
            match self.at {
                At::Bulk(left) | At::InPiece(left) => {
                    let used = left.min(rest.len() as u64);
                    for (from_end, byte) in [(2, b'\r'), (1, b'\n')] {
                        let at = left.checked_sub(from_end).filter(|&at| at < used);
                        if at.is_some_and(|at| rest[at as usize] != byte) {
                            return Err(ReplyError::BulkEnd);
                        }
                    }
                    len += used as usize;
                    let (left, in_piece) = (left - used, matches!(self.at, At::InPiece(_)));
                    self.at = match (left, in_piece) {
                        (0, true) => At::Piece,
                        (0, false) => At::Value,
                        (left, true) => At::InPiece(left),
                        (left, false) => At::Bulk(left),
                    };
                    if left == 0 && !in_piece && self.value_ended() {
                        return Ok(self.end(len));
                    }
                }
                At::Value | At::Piece => {
                    let Some(line) = self.line.feed(rest, false) else {
                        let max = self.line.first().map_or(0, line_max);
                        if self.line.len() >= max {
                            return Err(ReplyError::Line);
                        }
                        return Ok(Step { len: bytes.len(), end: false });
                    };
                    if line.head.first().is_some_and(|&kind| line.len > line_max(kind)) {
                        return Err(ReplyError::Line);
                    }
                    len += line.used;
                    if matches!(self.at, At::Piece) {
                        let piece = piece(line.head)?;
                        self.at = At::InPiece(piece + 2);
                        if piece == 0 {
                            self.at = At::Value;
                            if self.value_ended() {
                                return Ok(self.end(len));
                            }
                        }
                        continue;
                    }
                    let head = Head::parse(line.head)?;
                    let kind = line.head[0];
                    if self.depth == 0 && kind != b'|' {
                        self.head_len = line.head.len();
                        self.head[..self.head_len].copy_from_slice(line.head);
                    }
                    if self.value(kind, head)? {
                        return Ok(self.end(len));
                    }
                }
            }
        }
        Ok(Step { len, end: false })
    }

    /// Begins a value, and returns whether the reply ends with it.
    fn value(&mut self, kind: u8, head: Head) -> Result<bool, ReplyError> {
        let attributed = std::mem::take(&mut self.attributed);
        if kind == b'>' && self.depth > 0 {
            return Err(ReplyError::Place);
        }
        match head {
            Head::Line => return Ok(self.value_ended()),
            Head::Bulk(len) => self.at = At::Bulk(len + 2),
            Head::Pieces => self.at = At::Piece,
            Head::Open(_) | Head::OpenEnded if self.depth == NESTED_MAX => {
                return Err(ReplyError::Nested);
            }
            Head::Open(0) if kind == b'|' => self.attributed = true,
            Head::Open(0) => return Ok(self.value_ended()),
            Head::Open(left) => self.push(Open { kind, endless: false, left }),
            Head::OpenEnded => self.push(Open { kind, endless: true, left: 0 }),
            Head::End => {
                let top = self.depth.checked_sub(1).map(|top| self.open[top]);
                let Some(Open { endless: true, kind, left }) = top else {
                    return Err(ReplyError::Place);
                };
                if attributed || kind == b'%' && left == 1 {
                    return Err(ReplyError::Place);
                }
                self.depth -= 1;
                return Ok(self.value_ended());
            }
        }
        Ok(false)
    }

    fn push(&mut self, open: Open) {
        self.open[self.depth] = open;
        self.depth += 1;
    }

    /// Counts a value that has ended, and returns whether the reply ends with it.
    fn value_ended(&mut self) -> bool {
        while let Some(top) = self.depth.checked_sub(1) {
            let open = &mut self.open[top];
            if open.endless {
                open.left ^= 1;
                return false;
            }
            open.left -= 1;
            if open.left > 0 {
                return false;
            }
            self.depth = top;
            if open.kind == b'|' {
                self.attributed = true;
                return false;
            }
        }
        true
    }

    fn end(&mut self, len: usize) -> Step {
        self.ended = true;
        Step { len, end: true }
    }
}
