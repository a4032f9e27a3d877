//! Replies of servers. The first word of a reply says how it ends, whatever was asked.
//!
//! ```text
//!  VALUE k 0 1 [cas]\r\n v\r\n … END\r\n    STAT, ITEM, PREFIX … END    key=…\n … END    mg … EN
//!  VA 1 [flags]\r\n v\r\n                    any other line
//!  0x81 | opcode | key length (2) | …         binary; statistics end with one that has no key
//! ```

use super::{HEADER_LEN, words};
use crate::line::Line;
use crate::proto::{be16, be32};
use crate::scan::Step;
use thiserror::Error;

/// Bytes of the first line, or of the header, that [`Replies::head`] keeps.
pub const HEAD_MAX: usize = 64;

/// Longest line with a length.
const HELD: usize = 512;
/// Longest line.
const LINE_MAX: u64 = 64 * 1024;
const MAGIC: u8 = 0x81;
const STATISTICS: u8 = 0x10;

/// Why bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    #[error("line of a reply is longer than it may be")]
    Line,
    #[error("length of a value is missing, malformed or too large")]
    Length,
    #[error("value is not followed by a line end")]
    ValueEnd,
    #[error("list of values, statistics or keys is not continued and does not end")]
    List,
    #[error("key and extras of a binary reply are longer than its body")]
    Header,
}

/// A list that lines follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Values,
    Statistics,
    Keys,
}

impl List {
    /// Returns the list that a line begins or continues.
    fn of(line: &[u8]) -> Option<List> {
        let begins = |with: &[u8]| line.starts_with(with);
        if begins(b"VALUE ") {
            Some(List::Values)
        } else if begins(b"STAT ") || begins(b"ITEM ") || begins(b"PREFIX ") {
            Some(List::Statistics)
        } else if begins(b"key=") || begins(b"mg ") {
            Some(List::Keys)
        } else {
            None
        }
    }
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug)]
enum At {
    Start,
    Line,
    /// This many bytes of a value, its line end included.
    Value(u64),
    /// This many bytes of a header are here.
    Header(usize),
    /// This many bytes of a binary body.
    Body(u64),
}

/// An incremental scanner of replies.
#[derive(Clone, Debug)]
pub struct Replies {
    at: At,
    line: Line<HELD>,
    list: Option<List>,
    /// Whether the reply goes on behind the current value or body.
    more: bool,
    header: [u8; HEADER_LEN],
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
            at: At::Start,
            line: Line::new(),
            list: None,
            more: false,
            header: [0; HEADER_LEN],
            head: [0; HEAD_MAX],
            head_len: 0,
            ended: false,
        }
    }

    /// Returns the start of the first line of the current reply, without its line end, or its first
    /// header. It is empty until that has ended, and stays until the next reply begins.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Returns whether the scanner is between two replies.
    pub fn is_idle(&self) -> bool {
        matches!(self.at, At::Start) && !self.more && self.list.is_none()
    }

    /// Scans up to the end of the current reply, or all bytes. The next call gets what follows.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Step, ReplyError> {
        if !bytes.is_empty() && std::mem::take(&mut self.ended) {
            self.head_len = 0;
        }
        let mut len = 0;
        while let Some((&byte, _)) = bytes[len..].split_first() {
            let rest = &bytes[len..];
            let end = match self.at {
                At::Start if self.list.is_none() && (byte == MAGIC || self.more) => {
                    self.at = At::Header(0);
                    false
                }
                At::Start => {
                    self.at = At::Line;
                    false
                }
                At::Line => {
                    let Some(line) = self.line.feed(rest, true) else {
                        if self.line.len() >= LINE_MAX {
                            return Err(ReplyError::Line);
                        }
                        return Ok(Step { len: bytes.len(), end: false });
                    };
                    if line.len > LINE_MAX {
                        return Err(ReplyError::Line);
                    }
                    len += line.used;
                    let list = List::of(line.head);
                    if self.list.is_none() {
                        self.head_len = line.head.len().min(HEAD_MAX);
                        self.head[..self.head_len].copy_from_slice(&line.head[..self.head_len]);
                    } else if list != self.list && !(list.is_none() && ends_list(line.head)) {
                        return Err(ReplyError::List);
                    }
                    let value = value_len(line.head, line.len)?;
                    self.list = list;
                    self.at = value.map_or(At::Start, At::Value);
                    list.is_none() && value.is_none()
                }
                At::Value(left) => {
                    let used = left.min(rest.len() as u64);
                    for (from_end, byte) in [(2, b'\r'), (1, b'\n')] {
                        let at = left.checked_sub(from_end).filter(|&at| at < used);
                        if at.is_some_and(|at| rest[at as usize] != byte) {
                            return Err(ReplyError::ValueEnd);
                        }
                    }
                    len += used as usize;
                    self.at = if used == left { At::Start } else { At::Value(left - used) };
                    used == left && self.list.is_none()
                }
                At::Header(have) => {
                    let used = rest.len().min(HEADER_LEN - have);
                    self.header[have..have + used].copy_from_slice(&rest[..used]);
                    len += used;
                    self.at = At::Header(have + used);
                    have + used == HEADER_LEN && self.header_ended()?
                }
                At::Body(left) => {
                    let used = left.min(rest.len() as u64);
                    len += used as usize;
                    self.at = if used == left { At::Start } else { At::Body(left - used) };
                    used == left && !self.more
                }
            };
            if end {
                self.ended = true;
                return Ok(Step { len, end });
            }
        }
        Ok(Step { len, end: false })
    }

    /// Returns whether the reply ends with its header.
    fn header_ended(&mut self) -> Result<bool, ReplyError> {
        let header = &self.header;
        let (key, extras) = (u32::from(be16(header, 2)), u32::from(header[4]));
        let body = be32(header, 8);
        // In the middle of statistics, another reply cannot begin.
        if header[0] != MAGIC || key + extras > body {
            return Err(ReplyError::Header);
        }
        if !self.more {
            self.head_len = HEADER_LEN;
            self.head[..HEADER_LEN].copy_from_slice(header);
        }
        self.more = header[1] == STATISTICS && key > 0;
        self.at = if body == 0 { At::Start } else { At::Body(body.into()) };
        Ok(body == 0 && !self.more)
    }
}

/// Returns whether a line ends a list.
fn ends_list(line: &[u8]) -> bool {
    matches!(line, b"END" | b"EN")
        || matches!(words(line).next(), Some(b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR"))
}

/// Returns the length of the value that follows a line, with its line end.
fn value_len(head: &[u8], line_len: u64) -> Result<Option<u64>, ReplyError> {
    let at = match head {
        [b'V', b'A', b'L', b'U', b'E', b' ', ..] => 3,
        [b'V', b'A', b' ', ..] => 1,
        _ => return Ok(None),
    };
    if line_len > HELD as u64 {
        return Err(ReplyError::Line);
    }
    let digits = words(head).nth(at).filter(|word| word.iter().all(u8::is_ascii_digit));
    let text = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    let len: u32 = text.and_then(|text| text.parse().ok()).ok_or(ReplyError::Length)?;
    Ok(Some(u64::from(len) + 2))
}
