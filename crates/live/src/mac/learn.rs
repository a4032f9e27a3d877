//! What a worker reports of the stations that it sees.

use super::table::{Key, MacTable};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Reports that wait for the core, at most, for each worker.
pub const QUEUE_MAX: usize = 1024;
/// Stations whose last report a worker remembers.
const RECENT: usize = 256;
/// A station is not reported again for so long: the core may not have come to it yet.
const QUIET_MS: u32 = 20;

/// A station was seen behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// VLAN, 0 without a tag.
    pub vlan: u16,
    /// Its address.
    pub mac: [u8; 6],
    /// Its port.
    pub port: u32,
}

/// One worker's view of the table.
pub struct Learner {
    table: Arc<MacTable>,
    queue: Arc<ArrayQueue<Sighting>>,
    recent: Box<[(u64, u32, u32); RECENT]>,
    per_s: u32,
    left: u32,
    second: u32,
    /// Reports that were not made: too many, or the queue was full.
    suppressed: u64,
}

impl Learner {
    /// A view of `table`, and the queue of its reports.
    pub fn new(table: Arc<MacTable>, per_s: u32) -> (Learner, Arc<ArrayQueue<Sighting>>) {
        let queue = Arc::new(ArrayQueue::new(QUEUE_MAX));
        let recent = Box::new([(0, 0, 0); RECENT]);
        let learner = Learner {
            table,
            queue: queue.clone(),
            recent,
            per_s,
            left: per_s,
            second: 0,
            suppressed: 0,
        };
        (learner, queue)
    }

    /// A frame from `mac` came in on `port`. Returns whether something was reported.
    #[inline]
    pub fn saw(&mut self, vlan: u16, mac: [u8; 6], port: u32, now_ms: u32) -> bool {
        if mac[0] & 1 != 0 {
            return false;
        }
        let key = Key::new(vlan, mac);
        if self.table.refresh(key, port, now_ms / 1000) {
            return false;
        }
        self.report(key, Sighting { vlan, mac, port }, now_ms)
    }

    #[cold]
    fn report(&mut self, key: Key, sighting: Sighting, now_ms: u32) -> bool {
        let recent = &mut self.recent[key.hash(0) as usize % RECENT];
        let known = recent.0 == key.0 && recent.1 == sighting.port;
        if known && now_ms.wrapping_sub(recent.2) < QUIET_MS {
            return false;
        }
        if self.second != now_ms / 1000 {
            (self.second, self.left) = (now_ms / 1000, self.per_s);
        }
        if self.left == 0 || self.queue.push(sighting).is_err() {
            self.suppressed += 1;
            return false;
        }
        self.left -= 1;
        *recent = (key.0, sighting.port, now_ms);
        true
    }

    /// The port behind which a station is.
    #[inline]
    pub fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<u32> {
        self.table.lookup(vlan, mac)
    }

    /// Reports that were not made.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}
