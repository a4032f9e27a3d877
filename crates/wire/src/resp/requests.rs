//! Requests of clients: multibulk and inline.
//!
//! What Redis does not check is not checked: the byte after the `\r` of a length, and the two after
//! an argument. As there, a NUL hides the end of its line: the line grows until it is refused.
//!
//! Memory: 16 bytes for each argument held, and the text of an inline command.

use super::{Request, inline, number, write};
use crate::scan::{LINE_MAX, Part, Scan};
use memchr::memchr2;
use std::ops::Range;
use thiserror::Error;

/// Longest argument that a streamed request hands out whole.
pub const ARG_MAX: usize = 32 * 1024;
/// Most arguments held at a time.
pub const ARGS_MAX: usize = 1024;

/// Most bytes of an unescaped inline command that are kept for the next one.
const KEPT: usize = 4096;

/// What a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument: Redis' `proto-max-bulk-len`.
    pub bulk_len_max: u64,
    /// Whether a client has to log in first: 10 arguments of 16 KiB at most.
    pub unauthenticated: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bulk_len_max: 512 << 20, unauthenticated: false }
    }
}

/// Why Redis closes the connection after a request. Displays as what it says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("ERR Protocol error: too big inline request")]
    InlineTooBig,
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("ERR Protocol error: too big mbulk count string")]
    CountTooBig,
    #[error("ERR Protocol error: invalid multibulk length")]
    Count,
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    #[error("ERR Protocol error: too big bulk count string")]
    BulkTooBig,
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*.0))]
    Kind(u8),
    #[error("ERR Protocol error: invalid bulk length")]
    Bulk,
    #[error("ERR Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulk,
}

impl RequestError {
    /// Appends the reply that Redis sends before it closes the connection.
    pub fn reply(self, out: &mut Vec<u8>) {
        match self {
            RequestError::Kind(byte) => {
                out.extend_from_slice(b"-ERR Protocol error: expected '$', got '");
                out.push(if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
                out.extend_from_slice(b"'\r\n");
            }
            other => write::error(&other.to_string(), out),
        }
    }
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug)]
enum At {
    Start,
    Inline,
    Count,
    /// A line with the length of an argument.
    Length,
    /// An argument of this length.
    Content(u64),
    /// The rest of an argument that `take` has begun.
    Skip(u64),
}

/// An incremental scanner of requests: see [`scan`](crate::scan).
#[derive(Clone, Debug)]
pub struct Requests {
    limits: Limits,
    at: At,
    /// Where the line or argument begins that is being read.
    pos: usize,
    /// Where the search for the end of the line goes on.
    pub(super) searched: usize,
    /// Arguments that have not ended.
    left: u64,
    /// Index of the first argument held, and of the next one to come.
    first: usize,
    next: usize,
    args: Vec<Range<usize>>,
    /// Arguments of an inline command, unescaped.
    unescaped: Vec<u8>,
    is_inline: bool,
    /// Whether the arguments held were handed out, and the next call drops them.
    handed: bool,
}

impl Requests {
    /// Returns a scanner at the start of a connection.
    pub fn new(limits: Limits) -> Requests {
        Requests {
            limits,
            at: At::Start,
            pos: 0,
            searched: 0,
            left: 0,
            first: 0,
            next: 0,
            args: Vec::new(),
            unescaped: Vec::new(),
            is_inline: false,
            handed: false,
        }
    }

    /// Changes the limits, from the next line on: the client has logged in.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the arguments that the last `scan` or `take` handed out, of `bytes` that it had.
    /// A request without arguments gets no reply.
    pub fn request<'a>(&'a self, bytes: &'a [u8]) -> Request<'a> {
        Request::new(if self.is_inline { &self.unescaped } else { bytes }, &self.args)
    }

    /// Returns where those arguments are: in the bytes, or in the text of an inline command, which
    /// only [`Requests::request`] returns.
    pub fn args(&self) -> &[Range<usize>] {
        &self.args
    }

    /// Returns the index of the first of those arguments in the request. It is 0 unless the request
    /// is streamed.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Returns whether the last request was an inline command.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// Scans on; `bytes` begins with the current request, or its part that was not taken.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scan, RequestError> {
        self.drop_handed();
        if bytes.len() < self.searched {
            return Ok(Scan::Partial);
        }
        loop {
            match self.at {
                At::Start => match bytes.first() {
                    None => return Ok(Scan::Partial),
                    Some(b'*') => (self.at, self.is_inline) = (At::Count, false),
                    Some(_) => (self.at, self.is_inline) = (At::Inline, true),
                },
                At::Inline => {
                    let Some(end) = self.line(bytes, b'\n', RequestError::InlineTooBig)? else {
                        return Ok(Scan::Partial);
                    };
                    let line = &bytes[..end];
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    self.unescaped.clear();
                    self.args.clear();
                    if !inline::split(line, &mut self.unescaped, &mut self.args) {
                        return Err(RequestError::Quotes);
                    }
                    return Ok(self.whole(end + 1));
                }
                At::Count => {
                    let Some(end) = self.header(bytes, RequestError::CountTooBig)? else {
                        return Ok(Scan::Partial);
                    };
                    let count = number(&bytes[1..end]).filter(|&n| n <= i64::from(i32::MAX));
                    let count = count.ok_or(RequestError::Count)?;
                    if count > 10 && self.limits.unauthenticated {
                        return Err(RequestError::UnauthenticatedCount);
                    }
                    let Some(count) = u64::try_from(count).ok().filter(|&count| count > 0) else {
                        return Ok(self.whole(end + 2));
                    };
                    self.left = count;
                    self.go(At::Length, end + 2);
                }
                At::Length => {
                    if self.args.len() >= ARGS_MAX {
                        return Ok(Scan::Full);
                    }
                    let Some(end) = self.header(bytes, RequestError::BulkTooBig)? else {
                        return Ok(Scan::Partial);
                    };
                    if bytes[self.pos] != b'$' {
                        return Err(RequestError::Kind(bytes[self.pos]));
                    }
                    let len = number(&bytes[self.pos + 1..end]).and_then(|n| u64::try_from(n).ok());
                    let len = len.filter(|&len| len <= self.limits.bulk_len_max);
                    let len = len.ok_or(RequestError::Bulk)?;
                    if len > 16384 && self.limits.unauthenticated {
                        return Err(RequestError::UnauthenticatedBulk);
                    }
                    self.go(At::Content(len), end + 2);
                }
                At::Content(len) => {
                    if bytes.len() as u64 - (self.pos as u64) < len + 2 {
                        return Ok(Scan::Partial);
                    }
                    let end = self.pos + len as usize;
                    self.args.push(self.pos..end);
                    self.next += 1;
                    if let Some(whole) = self.argument_ended(end + 2) {
                        return Ok(whole);
                    }
                }
                At::Skip(left) => {
                    let here = (bytes.len() - self.pos) as u64;
                    if here < left {
                        self.go(At::Skip(left - here), bytes.len());
                        return Ok(Scan::Partial);
                    }
                    if let Some(whole) = self.argument_ended(self.pos + left as usize) {
                        return Ok(whole);
                    }
                }
            }
        }
    }

    /// Hands out what is here of a request that is partial, or whose arguments are too many to
    /// hold: whole arguments, and the start of one longer than [`ARG_MAX`]. Shorter ones stay in
    /// the buffer until they are whole. `bytes` are those of the last `scan`.
    pub fn take(&mut self, bytes: &[u8]) -> Part {
        self.drop_handed();
        if bytes.len() < self.searched {
            return Part { len: 0, long: None };
        }
        let (mut len, mut long) = (self.pos, None);
        match self.at {
            At::Content(content) if content > ARG_MAX as u64 => {
                let here = (bytes.len() - self.pos) as u64;
                let left = (content + 2).saturating_sub(here);
                len = self.pos + (content + 2 - left) as usize;
                self.at = At::Skip(left);
                long = Some(self.next);
                self.next += 1;
            }
            _ => self.searched = self.searched.saturating_sub(len),
        }
        self.pos = 0;
        self.handed = true;
        Part { len, long }
    }

    fn drop_handed(&mut self) {
        if std::mem::take(&mut self.handed) {
            self.args.clear();
            self.args.shrink_to(ARGS_MAX);
            self.unescaped.clear();
            self.unescaped.shrink_to(KEPT);
            self.first = self.next;
        }
    }

    fn go(&mut self, at: At, pos: usize) {
        (self.at, self.pos, self.searched) = (at, pos, pos);
    }

    fn argument_ended(&mut self, end: usize) -> Option<Scan> {
        self.left -= 1;
        if self.left == 0 {
            return Some(self.whole(end));
        }
        self.go(At::Length, end);
        None
    }

    fn whole(&mut self, len: usize) -> Scan {
        self.go(At::Start, 0);
        self.next = 0;
        self.handed = true;
        Scan::Whole { len }
    }

    /// Returns where the line with a count or a length ends, once the byte after `\r` is here.
    fn header(&mut self, bytes: &[u8], big: RequestError) -> Result<Option<usize>, RequestError> {
        Ok(self.line(bytes, b'\r', big)?.filter(|end| end + 2 <= bytes.len()))
    }

    /// Returns where the next `end` is, if no NUL is before it.
    fn line(
        &mut self,
        bytes: &[u8],
        end: u8,
        big: RequestError,
    ) -> Result<Option<usize>, RequestError> {
        let most = self.pos + LINE_MAX + 1;
        let rest = &bytes[self.searched..bytes.len().min(most)];
        let found = match self.at {
            At::Inline => memchr2(end, 0, rest),
            _ => rest.iter().position(|&byte| byte == end || byte == 0),
        };
        self.searched += found.unwrap_or(rest.len());
        let is_end = found.is_some() && bytes[self.searched] == end;
        if !is_end && bytes.len() >= most {
            return Err(big);
        }
        Ok(is_end.then_some(self.searched))
    }
}
