//! The core's half: which keys have slots, what fills them, what ends that.

use super::filled::{Entry, Filled};
use super::shared::{Closing, Counts, Shared, Slot};
use super::state::State;
use super::sync::{AtomicU32, Flaw, Ordering, has};
use overbank::fib::Writer;
use std::collections::VecDeque;
use std::sync::Arc;
use thiserror::Error;

/// A slot of a key. After the key's eviction it names the slot's next key, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub(super) u32);

/// A fill that has begun: the key's state from before its request to the origin.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    slot: SlotId,
    state: State,
    gate: State,
}

impl Ticket {
    /// Returns the slot to be filled.
    pub const fn slot(self) -> SlotId {
        self.slot
    }

    /// [`Core::push`] was called for a change that the origin made before the fill reads: the fill
    /// sees that change, and stands.
    pub const fn sees_push(&mut self) {
        self.state = self.state.next();
    }
}

/// Why a fill is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refused {
    /// The key was written, pushed or evicted since the fill began.
    #[error("the key has changed since the fill began")]
    Changed,
    /// The replies are of another key than the slot's.
    #[error("the replies are of another key")]
    OtherKey,
    /// The bytes exceed what may be cached: evict first.
    #[error("no room for the replies: evict another key first")]
    Full,
}

/// The key of a slot.
struct Owner {
    hash: u128,
    key: Box<[u8]>,
    /// Workers whose bucket has not been seen at 0 since the promotion, one bit each.
    unseen: u64,
    /// Bytes of its entry.
    bytes: usize,
    /// What the workers' counters of its hits added up to.
    hits: u32,
    /// Its word when its writes were last counted.
    counted: State,
}

/// The core's half of the cache.
pub struct Core {
    shared: Arc<Shared>,
    table: Writer<u128, u64>,
    owners: Box<[Option<Owner>]>,
    free: VecDeque<u32>,
    bytes: usize,
    bytes_max: usize,
}

impl Core {
    pub(super) fn new(shared: Arc<Shared>, table: Writer<u128, u64>, bytes_max: usize) -> Core {
        let slots = shared.slots.len();
        Core {
            shared,
            table,
            owners: (0..slots).map(|_| None).collect(),
            free: (0..slots).map(|slot| slot as u32).collect(),
            bytes: 0,
            bytes_max,
        }
    }

    fn owner(&self, slot: SlotId) -> Option<(&Owner, &Slot)> {
        let index = slot.0 as usize;
        Some((self.owners.get(index)?.as_ref()?, self.shared.slots.get(index)?))
    }

    /// Returns the sum of the workers' counters of a slot's hits. Wraps at 2³².
    pub fn hits_so_far(&self, slot: SlotId) -> u32 {
        let of = |counts: &Counts| {
            counts.hits.get(slot.0 as usize).map_or(0, |hits| hits.load(Ordering::Relaxed))
        };
        self.shared.counts.iter().map(of).fold(0, u32::wrapping_add)
    }

    /// Gives a key a slot; `None` if its hash has one, or no slot is free, or the table is full. It
    /// may be filled once [`Core::is_quiet`].
    pub fn promote(&mut self, hash: u128, key: &[u8]) -> Option<SlotId> {
        if self.table.get(hash).is_some() {
            return None;
        }
        // Those with writes of their last key in flight could not be filled yet.
        let is_idle = |&slot: &u32| {
            let slot = self.shared.slots.get(slot as usize);
            slot.is_some_and(|slot| slot.word.load().in_flight() == 0)
        };
        let at = self.free.iter().position(is_idle)?;
        let slot = *self.free.get(at)?;
        self.table.insert(hash, slot.into()).ok()?;
        self.free.swap_remove_front(at);
        let hits = self.hits_so_far(SlotId(slot));
        let unseen = u64::MAX >> (u64::BITS as usize - self.shared.counts.len());
        let counted = self.shared.slots.get(slot as usize)?.word.load();
        let owner = Owner { hash, key: key.into(), unseen, bytes: 0, hits, counted };
        *self.owners.get_mut(slot as usize)? = Some(owner);
        Some(SlotId(slot))
    }

    /// Returns whether each write that passed before the promotion has ended. Polls the workers.
    pub fn is_quiet(&mut self, slot: SlotId) -> bool {
        let Some(owner) = self.owners.get_mut(slot.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        for (number, counts) in self.shared.counts.iter().enumerate() {
            if owner.unseen >> number & 1 == 0 {
                continue;
            }
            let poll = |bucket: &AtomicU32| {
                // A change, so that it is before or after each of the worker's.
                let zero = has(Flaw::PollLoads) && bucket.load(Ordering::Acquire) == 0
                    || !has(Flaw::PollLoads) && bucket.fetch_add(0, Ordering::AcqRel) == 0;
                zero || has(Flaw::BucketIgnored)
            };
            if counts.bucket(Counts::bucket_of(owner.hash)).is_some_and(poll) {
                owner.unseen &= !(1 << number);
            }
        }
        owner.unseen == 0
    }

    /// Returns whether no write of a slot's key is in flight.
    pub fn is_idle(&self, slot: SlotId) -> bool {
        self.owner(slot).is_some_and(|(_, place)| place.word.load().in_flight() == 0)
    }

    /// Begins a fill, before its request is queued; `None` while the slot is not quiet, a write of
    /// its key is in flight, or it has no key.
    pub fn begin_fill(&mut self, slot: SlotId) -> Option<Ticket> {
        if !self.is_quiet(slot) {
            return None;
        }
        let state = self.owner(slot)?.1.word.load();
        let gate = self.shared.global.gate.load();
        (state.in_flight() == 0 || has(Flaw::CountIgnored)).then_some(Ticket { slot, state, gate })
    }

    /// Serves replies from now on, unless the key has changed since the fill began.
    ///
    /// # Errors
    /// The replies are dropped; those from before stay.
    pub fn accept(&mut self, ticket: Ticket, filled: Filled) -> Result<(), Refused> {
        let Ticket { slot, mut state, gate } = ticket;
        let (owner, place) = self.owner(slot).ok_or(Refused::Changed)?;
        if has(Flaw::LateFill) {
            state = place.word.load();
        }
        let now = (place.word.load(), self.shared.global.gate.load());
        if now.0 != state || !now.1.same_epoch(gate) {
            return Err(Refused::Changed);
        }
        if *owner.key != *filled.key() {
            return Err(Refused::OtherKey);
        }
        let bytes = filled.bytes();
        let others = self.bytes.saturating_sub(owner.bytes);
        if bytes > self.bytes_max.saturating_sub(others) {
            return Err(Refused::Full);
        }
        self.replace(slot, bytes, Some(Arc::new(Entry { state, gate, filled })));
        Ok(())
    }

    /// Replaces what a slot points to.
    fn replace(&mut self, slot: SlotId, bytes: usize, entry: Option<Arc<Entry>>) {
        let index = slot.0 as usize;
        let owner = self.owners.get_mut(index).and_then(Option::as_mut);
        let (Some(owner), Some(place)) = (owner, self.shared.slots.get(index)) else { return };
        self.bytes = self.bytes.saturating_sub(owner.bytes).saturating_add(bytes);
        owner.bytes = bytes;
        place.entry.store(entry);
    }

    /// Ends a slot's entry and each fill that has begun.
    fn invalidate(&mut self, slot: SlotId) {
        if let Some((_, place)) = self.owner(slot) {
            place.word.push();
            self.replace(slot, 0, None);
        }
    }

    /// The origin says that a key has changed. Returns its slot, if it has one.
    pub fn push(&mut self, hash: u128) -> Option<SlotId> {
        let slot = self.slot(hash)?;
        self.invalidate(slot);
        Some(slot)
    }

    /// Drops all replies at once, and each fill that has begun; the keys keep their slots. For a
    /// push without a key, a flush, a lost connection, any doubt.
    pub fn push_all(&mut self) {
        self.shared.global.gate.push();
        for slot in 0..self.owners.len() {
            let slot = SlotId(slot as u32);
            if self.owner(slot).is_some_and(|(owner, _)| owner.bytes > 0) {
                self.replace(slot, 0, None);
            }
        }
    }

    /// Takes the slot from its key. Returns whether it had one.
    pub fn evict(&mut self, slot: SlotId) -> bool {
        let Some((owner, _)) = self.owner(slot) else { return false };
        self.table.remove(owner.hash);
        if has(Flaw::SilentEviction) {
            self.replace(slot, 0, None);
        } else {
            self.invalidate(slot);
        }
        if let Some(owner) = self.owners.get_mut(slot.0 as usize) {
            *owner = None;
        }
        self.free.push_back(slot.0);
        true
    }

    /// Returns the hits of a key since the last call, or since its promotion. Wraps at 2³².
    pub fn hits(&mut self, slot: SlotId) -> u32 {
        let now = self.hits_so_far(slot);
        let owner = self.owners.get_mut(slot.0 as usize).and_then(Option::as_mut);
        owner.map_or(0, |owner| now.wrapping_sub(std::mem::replace(&mut owner.hits, now)))
    }

    /// Returns the writes of a key since the last call, where nothing is pushed: two events each.
    pub fn writes(&mut self, slot: SlotId) -> u64 {
        let Some(now) = self.owner(slot).map(|(_, place)| place.word.load()) else { return 0 };
        let owner = self.owners.get_mut(slot.0 as usize).and_then(Option::as_mut);
        owner.map_or(0, |owner| now.events_since(std::mem::replace(&mut owner.counted, now)) / 2)
    }

    /// Returns whether a slot's replies are served, as far as its key's state and the last
    /// [`Core::push_all`] decide; without them, the slot needs a fill.
    pub fn is_fresh(&self, slot: SlotId) -> bool {
        let gate = self.shared.global.gate.load();
        self.owner(slot).is_some_and(|(_, place)| {
            let state = place.word.load();
            let is_it = |entry: &Entry| entry.state == state && entry.gate.same_epoch(gate);
            place.entry.with(|entry| entry.is_some_and(is_it))
        })
    }

    pub(super) fn with_filled<R>(
        &self,
        slot: SlotId,
        then: impl FnOnce(Option<&Filled>) -> R,
    ) -> R {
        match self.owner(slot) {
            Some((_, place)) => place.entry.with(|entry| then(entry.map(|entry| &entry.filled))),
            None => then(None),
        }
    }

    /// Allows hits before `until`, in monotonic nanoseconds. All pushes that the lease rests on
    /// come first.
    pub fn set_lease(&mut self, until: u64) {
        self.shared.global.lease.store(until, Ordering::Release);
    }

    /// Ends a closing, once what it changed is pushed, or all is dropped.
    pub fn reopen(&mut self, closing: Closing) {
        let Closing(()) = closing;
        self.shared.global.gate.reopen();
    }

    /// Returns whether no closing is left.
    pub fn is_open(&self) -> bool {
        self.shared.global.gate.load().in_flight() == 0
    }

    /// Returns the slot of a hash.
    pub fn slot(&self, hash: u128) -> Option<SlotId> {
        self.table.get(hash).and_then(|slot| u32::try_from(slot).ok()).map(SlotId)
    }

    /// Returns the key of a slot.
    pub fn key(&self, slot: SlotId) -> Option<&[u8]> {
        self.owner(slot).map(|(owner, _)| &*owner.key)
    }

    /// Returns the hash of a slot's key.
    pub fn hash(&self, slot: SlotId) -> Option<u128> {
        self.owner(slot).map(|(owner, _)| owner.hash)
    }

    /// Iterates over the slots that have keys.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        let owners = self.owners.iter().enumerate();
        owners.filter(|(_, owner)| owner.is_some()).map(|(slot, _)| SlotId(slot as u32))
    }

    /// Returns the number of keys that have slots.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether no key has a slot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
