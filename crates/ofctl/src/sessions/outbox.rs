//! What waits to be sent to a controller: encoded messages, in order, with their number of bytes
//! counted.
//!
//! Memory: what waits, at most twice over while a part of it has been sent. Panics: none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use overbank_openflow::{EncodeError, Message, Version};

use super::counters::{ControlCounters, count, uncount};

/// Sent bytes stay in front until they reach this number, or are all.
const SENT_KEPT: usize = 64 * 1024;

/// The bytes.
pub(super) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    counters: Arc<ControlCounters>,
}

impl Outbox {
    pub fn new(counters: Arc<ControlCounters>) -> Outbox {
        Outbox { bytes: Vec::new(), sent: 0, counters }
    }

    /// Adds a message.
    pub fn push(
        &mut self,
        message: &Message,
        version: Version,
        xid: u32,
    ) -> Result<(), EncodeError> {
        let before = self.bytes.len();
        message.encode(version, xid, &mut self.bytes)?;
        let more = (self.bytes.len() - before) as u64;
        let waiting = self.counters.bytes_queued.fetch_add(more, Relaxed) + more;
        self.counters.bytes_queued_most.fetch_max(waiting, Relaxed);
        count(&self.counters.messages_out, 1);
        Ok(())
    }

    /// Returns the bytes to send.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Returns how many bytes are to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Notes that the first `bytes` of them were sent.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len());
        self.sent += bytes;
        uncount(&self.counters.bytes_queued, bytes as u64);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(SENT_KEPT);
            self.sent = 0;
        } else if self.sent > SENT_KEPT && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        uncount(&self.counters.bytes_queued, self.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_come_out_in_order() {
        let counters = Arc::new(ControlCounters::default());
        let mut outbox = Outbox::new(counters.clone());
        let (mut all, mut got) = (Vec::new(), Vec::new());
        for i in 0..2000u32 {
            let message = Message::EchoRequest(vec![i as u8; (i % 300) as usize]);
            message.encode(Version::V13, i, &mut all).expect("it fits");
            outbox.push(&message, Version::V13, i).expect("it fits");
            let take = (i as usize * 37 % 400).min(outbox.len());
            got.extend_from_slice(&outbox.pending()[..take]);
            outbox.advance(take);
            assert_eq!(counters.snapshot().bytes_queued, outbox.len() as u64);
        }
        got.extend_from_slice(outbox.pending());
        assert!(got == all && outbox.len() > 0);
        drop(outbox);
        assert_eq!(counters.snapshot().bytes_queued, 0);
    }
}
