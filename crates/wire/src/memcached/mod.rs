//! The protocol of memcached: where requests and replies end, and which keys a request names.
//!
//! ```text
//!  text    get k1 k2\r\n          set k 0 0 1 [noreply]\r\n v\r\n
//!  meta    mg k v q\r\n           ms k 1 T0\r\n v\r\n
//!  binary  |0x80|opcode|key length|extras length| 3 |body length| 12 | extras, key, value
//! ```
//!
//! [`Requests`] scans what a client sends, [`Replies`] what a server sends; both resume in the
//! middle of anything (see [`scan`](crate::scan)). The first byte of a connection decides whether
//! its requests are binary. [`Verb`] says what a request does, in all three.
//!
//! - A request ends where memcached 1.6 ends it. A storage command that memcached refuses without
//!   reading its data has none here, either: what follows is the next request, as there.
//! - Two things are refused that memcached accepts: a NUL in a line, and a line over 64 KiB that is
//!   no list of keys.
//! - Any bytes are scanned or refused. Nothing panics. A scanner allocates room for keys as they
//!   come, up to [`KEYS_MAX`], and keeps it.
//! - Values are skipped, whatever their length.

mod key;
mod replies;
mod requests;
mod storage;
#[cfg(test)]
mod tests;
mod verb;

pub use key::{Flags, decode_key, encode_key};
pub use replies::{HEAD_MAX, Replies, ReplyError};
pub use requests::{Expect, KEYS_MAX, Protocol, RequestError, Requests};
pub use verb::Verb;

/// Longest key; a longer one is refused by the server.
pub const KEY_MAX: usize = 250;
/// Length of the header of a binary request or reply.
pub const HEADER_LEN: usize = 24;

/// Returns the words of a line; only spaces are between them.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}
