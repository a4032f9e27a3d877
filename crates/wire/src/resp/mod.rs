//! RESP, the protocol of Redis: where requests and replies end, and what a request's arguments are.

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
