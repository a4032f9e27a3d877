//! A worker's half: marks of writes, and hits.

use super::core::SlotId;
use super::filled::{Query, Variant};
use super::shared::{Closing, Counts, Shared};
use super::sync::{Flaw, Ordering, has};
use overbank::fib::Reader;
use std::sync::Arc;

/// A write in flight. Given back once, to the worker that returned it.
#[must_use = "the key is not served until it is given to `Worker::end_write`"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    slot: Option<u32>,
    bucket: u16,
}

#[cfg(test)]
impl Mark {
    /// Returns whether the key was in the table.
    pub const fn is_cached(self) -> bool {
        self.slot.is_some()
    }
}

/// Why a request is not a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// The gate is closed.
    Closed,
    /// The lease has run out.
    Lease,
    /// The key is not promoted.
    Absent,
    /// Writes of the key are in flight.
    InFlight,
    /// The key has no replies, or none since it changed.
    Stale,
    /// Its replies have expired.
    Expired,
    /// It has replies, but not to this request; or the hash is of another key.
    Other,
}

/// A worker's half of the cache.
pub struct Worker {
    shared: Arc<Shared>,
    table: Reader<u128, u64>,
    number: usize,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, table: Reader<u128, u64>, number: usize) -> Worker {
        Worker { shared, table, number }
    }

    fn change_bucket(&self, bucket: u16, by: u32) {
        let counts = self.shared.counts.get(self.number);
        if let Some(bucket) = counts.and_then(|counts| counts.bucket(bucket)) {
            bucket.fetch_add(by, Ordering::AcqRel);
        }
    }

    fn slot(&self, hash: u128) -> Option<u32> {
        self.table.lookup(hash).and_then(|slot| u32::try_from(slot).ok())
    }

    /// Marks a write before its bytes are queued: no fill from before its reply is ever served.
    pub fn begin_write(&mut self, hash: u128) -> Mark {
        let bucket = Counts::bucket_of(hash);
        // Before the look-up: the promotion race.
        self.change_bucket(bucket, 1);
        let slot = self.slot(hash);
        if let Some(slot) = slot.and_then(|slot| self.shared.slots.get(slot as usize)) {
            slot.word.begin();
        }
        Mark { slot, bucket }
    }

    /// Ends a write whose reply came. A second time for one mark lets stale replies be served.
    /// Returns the slot of the key if it may be filled again.
    pub fn end_write(&mut self, mark: Mark) -> Option<SlotId> {
        let place = |slot: &u32| Some(self.shared.slots.get(*slot as usize)?.word.end());
        let state = mark.slot.as_ref().and_then(place);
        self.change_bucket(mark.bucket, u32::MAX);
        let is_idle = state.is_some_and(|state| state.in_flight() == 0);
        mark.slot.filter(|_| is_idle).map(SlotId)
    }

    /// Calls `then` with the reply to a request, and counts the hit.
    ///
    /// # Errors
    /// The request is to be forwarded.
    #[inline]
    pub fn hit<R>(
        &mut self,
        query: &Query<'_>,
        now: u64,
        then: impl FnOnce(&Variant) -> R,
    ) -> Result<R, Miss> {
        let Shared { global, slots, counts } = &*self.shared;
        // First: what closings have changed is pushed before they end.
        let gate = global.gate.load();
        if gate.in_flight() > 0 && !has(Flaw::GateIgnored) && !has(Flaw::GateLast) {
            return Err(Miss::Closed);
        }
        if now >= global.lease.load(Ordering::Acquire) {
            return Err(Miss::Lease);
        }
        let number = self.table.lookup(query.hash).ok_or(Miss::Absent)? as usize;
        let slot = slots.get(number).ok_or(Miss::Absent)?;
        let reply = slot.entry.with(|entry| {
            // After the entry: its value was right up to here.
            let state = slot.word.load();
            if state.in_flight() > 0 && !has(Flaw::CountIgnored) {
                return Err(Miss::InFlight);
            }
            let entry = entry.ok_or(Miss::Stale)?;
            let is_current = entry.state.same_epoch(state) || has(Flaw::EpochIgnored);
            if !is_current || !entry.gate.same_epoch(gate) {
                return Err(Miss::Stale);
            }
            if now >= entry.filled.expires_at() {
                return Err(Miss::Expired);
            }
            if has(Flaw::GateLast) && global.gate.load().in_flight() > 0 {
                return Err(Miss::Closed);
            }
            entry.filled.find(query).map(then).ok_or(Miss::Other)
        })?;
        if let Some(hits) = counts.get(self.number).and_then(|counts| counts.hits.get(number)) {
            hits.store(hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        Ok(reply)
    }

    /// Returns whether a command that may change any key is on its way.
    pub fn is_closed(&self) -> bool {
        self.shared.global.gate.load().in_flight() > 0
    }

    /// Closes the gate, before the bytes of a command are queued that may change any key.
    pub fn close(&mut self) -> Closing {
        self.shared.close()
    }
}
