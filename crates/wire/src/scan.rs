//! What the scanners of streams return: [`resp`](crate::resp) and [`memcached`](crate::memcached).
//!
//! The contract of a scanner of requests:
//! - The caller appends what arrives to a buffer that begins with the current request, and calls
//!   `scan` with all of it. The scanner resumes where it stopped: each byte is read once.
//! - [`Scan::Whole`]: the request is the first `len` bytes. The caller drains them and scans again.
//! - [`Scan::Partial`]: the caller reads more. If its buffer is full, or if it does not wait, it
//!   calls `take`, forwards and drains the [`Part`] and scans on: the request is *streamed*.
//! - [`Scan::Full`]: the scanner holds as many arguments as it may. The caller calls `take`.
//! - A buffer of [`BUFFER_MIN`] bytes is never stuck: if it is full and partial, `take` drains.
//! - After an error, the connection is lost: the next call returns the same error.

/// Least size of the caller's buffer of requests.
pub const BUFFER_MIN: usize = LINE_MAX + 1;
/// Longest line of a request: Redis' `PROTO_INLINE_MAX_SIZE`.
pub const LINE_MAX: usize = 64 * 1024;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The request is the first `len` bytes, or its rest if it is streamed.
    Whole { len: usize },
    /// More bytes are needed.
    Partial,
    /// More arguments are here than the scanner holds: `take` them.
    Full,
}

/// The start of a request that is longer than a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes to forward and to drain; 0 if the scanner has to see more first.
    pub len: usize,
    /// The argument that is too long to hold and begins in these bytes, if one does. Its content is
    /// skipped.
    pub long: Option<usize>,
}

/// A step through a stream of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes that belong to the current reply.
    pub len: usize,
    /// Whether the reply ends with them.
    pub end: bool,
}
