//! RESP, the protocol of Redis: where requests and replies end, and what a request's arguments are.
//!
//! ```text
//!  request  *2\r\n $3\r\nGET\r\n $1\r\nk\r\n   or a line: GET k\r\n
//!  reply    +OK\r\n  -ERR x\r\n  :1\r\n  $1\r\nv\r\n  *1\r\n:1\r\n  RESP3: _ , # ! = ( % ~ | >
//! ```
//!
//! [`Requests`] scans what a client sends, [`Replies`] what a server sends; both resume in the
//! middle of anything (see [`scan`](crate::scan)). [`tree`] reads a whole reply, [`to_resp2`]
//! translates one, [`command`] and the others write.
//!
//! - Requests are accepted and refused as Redis 7.0 does it, with its words ([`RequestError`]).
//! - Any bytes are scanned or refused. Nothing panics. A scanner allocates room for arguments as
//!   they come, up to [`ARGS_MAX`], and keeps it.
//! - [`Replies`] holds no content: 0.5 KiB, whatever is sent.
//!
//! Cost: each byte of a line is read once; the content of a bulk string is skipped.

mod inline;
mod replies;
mod requests;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use inline::split;
pub use replies::{HEAD_MAX, Replies, ReplyError};
pub use requests::{ARG_MAX, ARGS_MAX, Limits, RequestError, Requests};
pub use value::{ELEMENTS_MAX, Null, Value, to_resp2, tree};
pub use write::{array, bulk, command, error, integer, simple};

use std::ops::Range;

/// Views one request: its bytes, and where its arguments lie in them.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    bytes: &'a [u8],
    args: &'a [Range<usize>],
}

impl<'a> Request<'a> {
    /// Returns the request with these arguments, of which each range lies in `bytes`.
    pub fn new(bytes: &'a [u8], args: &'a [Range<usize>]) -> Request<'a> {
        Request { bytes, args }
    }

    /// Returns the number of arguments; the name of the command is the first.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Returns whether there is no argument: such a request is no command, and gets no reply.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// Returns an argument, or nothing behind the last.
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.args.get(index)?.clone())
    }

    /// Returns the arguments in order.
    pub fn args(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.args.iter().map(move |range| bytes.get(range.clone()).unwrap_or_default())
    }
}

/// Reads a number as strictly as Redis' `string2ll`: no sign but `-`, no zero in front.
fn number(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        b"0" if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < 20 => {}
        _ => return None,
    }
    let sum = digits.iter().try_fold(0u64, |sum, digit| {
        digit.is_ascii_digit().then(|| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })?;
    if negative { 0i64.checked_sub_unsigned(sum) } else { i64::try_from(sum).ok() }
}
