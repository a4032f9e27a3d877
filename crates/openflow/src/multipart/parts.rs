//! A long reply, split into messages.

use super::{FLOW, FlowStats, MORE, REPLY};
use crate::bytes::Put;
use crate::error::EncodeError;
use crate::header::{HEADER_LEN, Header, MESSAGE_LEN_MAX};
use crate::version::Version;

/// Header and multipart header.
const HEAD_LEN: usize = HEADER_LEN + 8;

/// The messages of a reply being written.
pub(super) struct Parts<'a> {
    out: &'a mut Vec<u8>,
    head: Header,
    kind: u16,
    /// Where the current message starts.
    start: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn begin(version: Version, xid: u32, kind: u16, out: &'a mut Vec<u8>) -> Self {
        let head = Header { version: version.wire(), kind: REPLY, length: 0, xid };
        let mut parts = Parts { start: out.len(), out, head, kind };
        parts.open();
        parts
    }

    fn open(&mut self) {
        self.start = self.out.len();
        self.out.put(&self.head.to_bytes());
        self.out.put_u16(self.kind);
        self.out.zeros(HEAD_LEN - HEADER_LEN - 2);
    }

    fn close(&mut self, more: bool) -> Result<(), EncodeError> {
        self.out.close(self.start, self.start + 2)?;
        let flags = if more { MORE } else { 0 };
        self.out[self.start + 10..self.start + 12].copy_from_slice(&flags.to_be_bytes());
        Ok(())
    }

    /// Adds an entry; starts a new message if the current one would become too long.
    pub(super) fn entry(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let at = self.out.len();
        write(self.out)?;
        if self.out.len() - self.start <= MESSAGE_LEN_MAX {
            return Ok(());
        }
        let entry = self.out.split_off(at);
        if HEAD_LEN + entry.len() > MESSAGE_LEN_MAX {
            return Err(EncodeError::TooLong { len: HEAD_LEN + entry.len() });
        }
        self.close(true)?;
        self.open();
        self.out.put(&entry);
        Ok(())
    }

    pub(super) fn finish(mut self, more: bool) -> Result<(), EncodeError> {
        self.close(more)
    }
}

/// Writes the reply to a [`Request::Flow`](super::Request::Flow) while the caller finds its flows,
/// without a list of all of them.
pub struct FlowReplies<'a> {
    parts: Parts<'a>,
    version: Version,
}

impl<'a> FlowReplies<'a> {
    /// Begins a reply at the end of `out`.
    pub fn begin(version: Version, xid: u32, out: &'a mut Vec<u8>) -> FlowReplies<'a> {
        FlowReplies { parts: Parts::begin(version, xid, FLOW, out), version }
    }

    /// Adds a flow. Leaves no trace of one that cannot be written.
    pub fn push(&mut self, flow: &FlowStats) -> Result<(), EncodeError> {
        let at = self.parts.out.len();
        let version = self.version;
        let pushed = self.parts.entry(|out| flow.encode(version, out));
        if pushed.is_err() {
            self.parts.out.truncate(at);
        }
        pushed
    }

    /// Ends the reply.
    pub fn finish(self) -> Result<(), EncodeError> {
        self.parts.finish(false)
    }
}
