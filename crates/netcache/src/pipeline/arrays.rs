//! The registers of the device, shared by its workers.
//!
//! In a switch, a packet has an array for itself while it is at the array's stage, and packets pass
//! all stages in one order. Here, workers pass at the same time. What a pass sees of an item is the
//! same as if it were alone, by these words:
//!
//! ```text
//!   status, by item   install, 32 bits │ writes, 31 bits │ valid
//!   length, by item   busy │ absent │ bytes, 11 bits
//!   next, by index    index, 16 bits │ stages, 8 bits: where the next pass of a long value goes
//!   value, by index   8 × 16 bytes
//! ```
//!
//! - A **write** passes: one atomic change of the status counts it and clears `valid`.
//! - An **update** claims the length (`busy`), looks at the status once more, stores the value,
//!   sets `valid` if the status is still the one of its stamp, and gives the length back. One that
//!   finds the item busy is dropped, as packets are; servers repeat updates.
//! - A **get** loads a valid status, length and value, and the status again. If that has changed,
//!   the get goes on as for an item that is not valid. In a switch, where a long value takes more
//!   passes, each of them looks at the status first; here, the look at the end is enough.
//!
//! **Why a get is right.** All that a get returns was stored by updates, each the only one at the
//! time. Assume that an update stored some of it after the one that made the status valid which the
//! get saw. That later update saw a status that is not valid, with another count of writes, before
//! its first store, and a release fence is between the two. The get's acquire fence is after its
//! load of what was stored. So the get's second load sees that status or a later one. Counts of
//! writes grow, so it is not the first one. Hence all that it returns is of one update, and its
//! instant is that of the second load: no write had passed by then.
//!
//! The controller takes an item from a key by clearing its status, then the key from the lookup
//! table; it gives the item to another key only once no worker is in a burst that began before
//! ([`Table`](super::Table)). `next` is the controller's, too, and changes while the item rests.

use crate::slots::{Item, PASS, Place, STAGES, UNIT};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use overbank::prefetch::prefetch;
use overbank_wire::netcache::Stamp;

/// Writes at which the count of an item stops: it is never valid again, and is to be installed
/// anew.
pub const WRITES_MAX: u32 = (1 << 31) - 1;

/// Words of a unit.
const UNIT_WORDS: usize = UNIT / 8;

const VALID: u64 = 1;
const BUSY: u32 = 1 << 31;
const ABSENT: u32 = 1 << 16;

/// The status of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u64);

impl Status {
    const fn new(install: u32, writes: u32, valid: bool) -> Status {
        Status((install as u64) << 32 | (writes as u64) << 1 | valid as u64)
    }

    /// Returns that of an installation which has had this many writes.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) const fn of(install: u32, writes: u32) -> Status {
        Status::new(install, writes, false)
    }

    /// Returns the number of the installation; 0 if the item has no key any more.
    pub const fn install(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns how many writes have passed since.
    pub const fn writes(self) -> u32 {
        self.0 as u32 >> 1
    }

    /// Returns whether the value may be handed out.
    pub const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Returns the stamp of what passes now.
    pub const fn stamp(self, boot: u32) -> Stamp {
        Stamp { boot, install: self.install(), writes: self.writes() }
    }
}

/// A value as its server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Length {
    /// Bytes, [`VALUE_MAX`](crate::slots::VALUE_MAX) at most.
    pub bytes: u16,
    /// The key has no value: it was deleted.
    pub absent: bool,
}

impl Length {
    const fn pack(self) -> u32 {
        self.bytes as u32 | if self.absent { ABSENT } else { 0 }
    }

    const fn unpack(word: u32) -> Length {
        Length { bytes: word as u16, absent: word & ABSENT != 0 }
    }
}

/// The units of an index, in all stages: two lines.
#[repr(align(128))]
struct Units([[AtomicU64; UNIT_WORDS]; STAGES]);

/// See the module.
pub struct Arrays {
    boot: AtomicU32,
    status: Box<[AtomicU64]>,
    lengths: Box<[AtomicU32]>,
    next: Box<[AtomicU32]>,
    values: Box<[Units]>,
}

impl Arrays {
    /// Returns arrays for this many items and indexes, none of which has a key.
    pub fn new(items: usize, indexes: usize) -> Arrays {
        let units = || Units(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))));
        Arrays {
            boot: AtomicU32::new(0),
            status: (0..items).map(|_| AtomicU64::new(0)).collect(),
            lengths: (0..items).map(|_| AtomicU32::new(0)).collect(),
            next: (0..indexes).map(|_| AtomicU32::new(0)).collect(),
            values: (0..indexes).map(|_| units()).collect(),
        }
    }

    /// Returns each array's name, and its bits in a switch.
    pub fn resources(&self) -> [(&'static str, u64); 4] {
        [
            ("status", 64 * self.status.len() as u64),
            ("length", 12 * self.lengths.len() as u64),
            ("next", 24 * self.next.len() as u64),
            ("value", (8 * UNIT * STAGES * self.values.len()) as u64),
        ]
    }

    /// Sets all of an item, for the model of the protocol.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn set(&self, item: Item, status: Status, length: Length) {
        self.status[usize::from(item)].store(status.0, Ordering::Relaxed);
        self.lengths[usize::from(item)].store(length.pack(), Ordering::Relaxed);
    }

    /// Returns the number of the device's run.
    #[inline(always)]
    pub(super) fn boot(&self) -> u32 {
        self.boot.load(Ordering::Relaxed)
    }

    /// Begins another run, all items being without keys.
    pub(super) fn begin(&self, boot: u32) {
        self.boot.store(boot, Ordering::Release);
    }

    /// Returns the status of an item.
    #[inline(always)]
    pub(super) fn status(&self, item: Item) -> Status {
        Status(self.status[usize::from(item)].load(Ordering::Acquire))
    }

    /// Counts a write of the item's key and makes it invalid; returns its status since.
    #[inline(always)]
    pub(super) fn write(&self, item: Item) -> Status {
        let word = &self.status[usize::from(item)];
        let mut before = Status(word.load(Ordering::Relaxed));
        loop {
            let writes = (before.writes() + 1).min(WRITES_MAX);
            let after = Status::new(before.install(), writes, false);
            // A get that sees a later value is to see this, too.
            match word.compare_exchange_weak(before.0, after.0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return after,
                Err(now) => before = Status(now),
            }
        }
    }

    /// Gives an item to an installation, which is not valid yet; 0: takes it from its key. Only the
    /// controller does this.
    pub(super) fn install(&self, item: Item, install: u32) {
        let status = Status::new(install, 0, false);
        // After all writes that workers have counted.
        self.status[usize::from(item)].swap(status.0, Ordering::AcqRel);
    }

    /// Sets where the pass after that of a place goes, whose item no worker finds. Only the
    /// controller does this.
    pub(super) fn go_on(&self, place: Place, next: Place) {
        let word = u32::from(next.stages) << 16 | u32::from(next.index);
        self.next[usize::from(place.index)].store(word, Ordering::Relaxed);
    }

    /// Returns where the pass after that of a place goes; `None` if it is the last one.
    #[inline(always)]
    pub(super) fn next(&self, place: Place) -> Option<Place> {
        if !place.goes_on() {
            return None;
        }
        let word = self.next[usize::from(place.index)].load(Ordering::Relaxed);
        let next = Place {
            index: word as u16,
            stages: (word >> 16) as u8,
            units: place.units - STAGES as u8,
        };
        self.prefetch_values(next);
        Some(next)
    }

    /// Returns the length of an item's value.
    #[inline(always)]
    pub(super) fn length(&self, item: Item) -> Length {
        Length::unpack(self.lengths[usize::from(item)].load(Ordering::Relaxed))
    }

    /// Claims an item for an update that has seen this status; `None` if another update has it, or
    /// the status has changed.
    #[inline(always)]
    pub(super) fn claim(&self, item: Item, seen: Status, length: Length) -> Option<Claim<'_>> {
        let word = &self.lengths[usize::from(item)];
        let before = word.load(Ordering::Relaxed);
        if before & BUSY != 0 {
            return None;
        }
        let busy = before | BUSY;
        word.compare_exchange(before, busy, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let mut claim = Claim { arrays: self, item, seen, length: before };
        // The update before may have made it valid, or a write has passed.
        if self.status(item) != seen {
            return None;
        }
        // A get that sees what is stored from here on sees the status that was loaded above.
        fence(Ordering::Release);
        claim.length = length.pack();
        word.store(claim.length | BUSY, Ordering::Relaxed);
        Some(claim)
    }

    /// Stores a value in the units of its place.
    #[inline(always)]
    pub(super) fn store(&self, place: Place, value: &[u8]) {
        let units = &self.values[usize::from(place.index)].0;
        for (unit, bytes) in stages(place).zip(value.chunks(UNIT)) {
            let mut whole = [0; UNIT];
            whole[..bytes.len()].copy_from_slice(bytes);
            let whole = u128::from_le_bytes(whole);
            units[unit][0].store(whole as u64, Ordering::Relaxed);
            units[unit][1].store((whole >> 64) as u64, Ordering::Relaxed);
        }
    }

    /// Loads the units of a place, one after the other, into `room`.
    #[inline(always)]
    pub(super) fn load(&self, place: Place, room: &mut [u8; PASS]) {
        let units = &self.values[usize::from(place.index)].0;
        let rooms = &mut room.as_chunks_mut::<UNIT>().0[..];
        let load = |unit: &[AtomicU64; UNIT_WORDS], bytes: &mut [u8; UNIT]| {
            let [low, high] = [0, 1].map(|at| unit[at].load(Ordering::Relaxed));
            *bytes = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        };
        if place.stages == u8::MAX {
            units.iter().zip(rooms).for_each(|(unit, bytes)| load(unit, bytes));
        } else {
            stages(place).zip(rooms).for_each(|(at, bytes)| load(&units[at], bytes));
        }
    }

    /// Whether an item still has the status that a get has seen, after all its other loads.
    #[inline(always)]
    pub(super) fn still(&self, item: Item, seen: Status) -> bool {
        fence(Ordering::Acquire);
        self.status[usize::from(item)].load(Ordering::Relaxed) == seen.0
    }

    /// Starts loading an item and an index into the cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, item: Item, place: Place) {
        prefetch(&self.status[usize::from(item)]);
        prefetch(&self.lengths[usize::from(item)]);
        self.prefetch_values(place);
        if place.goes_on() {
            prefetch(&self.next[usize::from(place.index)]);
        }
    }

    #[inline(always)]
    fn prefetch_values(&self, place: Place) {
        let units = &self.values[usize::from(place.index)].0;
        prefetch(&units[0]);
        prefetch(&units[STAGES / 2]);
    }
}

/// The stages of a place, lowest first.
#[inline(always)]
fn stages(place: Place) -> impl Iterator<Item = usize> {
    let mut left = place.stages;
    std::iter::from_fn(move || {
        let stage = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (stage < STAGES).then_some(stage)
    })
}

/// An item that one update has for itself until this is dropped.
pub(super) struct Claim<'a> {
    arrays: &'a Arrays,
    item: Item,
    seen: Status,
    /// The length without `busy`.
    length: u32,
}

impl Claim<'_> {
    /// Whether no write has passed since.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        self.arrays.status(self.item) == self.seen
    }

    /// Makes the item valid, all of its value being stored; returns false, without a change, if
    /// another write has passed.
    #[inline(always)]
    pub(super) fn publish(self) -> bool {
        let word = &self.arrays.status[usize::from(self.item)];
        let valid = self.seen.0 | VALID;
        // Pairs with the get's first load: it sees length and value.
        word.compare_exchange(self.seen.0, valid, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Claim<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let word = &self.arrays.lengths[usize::from(self.item)];
        word.store(self.length, Ordering::Release);
    }
}
