//! The stages, in the order in which a packet passes them. Each has one array.
//!
//! A handle is a stage ahead of the packet. Access takes the handle and returns that of the next
//! stage, so that a second access to an array in one pass does not compile, nor one to an array
//! that the packet has passed:
//!
//! ```compile_fail,E0382
//! # use overbank_netcache::pipeline::AtStatus;
//! fn twice(at: AtStatus<'_>) {
//!     let (first, _) = at.read();
//!     let (second, _) = at.read(); // `at` was moved
//! }
//! ```
//!
//! ```
//! # use overbank_netcache::pipeline::AtStatus;
//! fn once(at: AtStatus<'_>) -> bool {
//!     let (status, at) = at.read();
//!     let (length, _) = at.read();
//!     status.is_valid() && length.bytes > 0
//! }
//! ```
//!
//! After its last stage, a packet may pass again, for the next 128 bytes of a long value (section
//! 5: recirculation). It begins with the status again, and goes on if that is the one that it saw.
//!
//! An access is at the item, or the index, that the lookup table has said: a program has no say in
//! it, and cannot go through an array.

use super::arrays::{Arrays, Claim, Length, Status};
use crate::entry::Entry;
use crate::slots::PASS;

/// What a pass is at.
#[derive(Clone, Copy)]
struct Pass<'a> {
    arrays: &'a Arrays,
    entry: Entry,
}

/// Ahead: the status of the key.
pub struct AtStatus<'a>(Pass<'a>);

/// Ahead: the length of its value.
pub struct AtLength<'a>(Pass<'a>, Status);

/// Ahead: its value, for a get.
pub struct AtValue<'a>(Pass<'a>, Status);

/// Ahead: its value, for an update.
pub struct AtUpdate<'a>(Pass<'a>, Claim<'a>);

impl<'a> AtStatus<'a> {
    #[inline(always)]
    pub(super) fn begin(arrays: &'a Arrays, entry: Entry) -> AtStatus<'a> {
        AtStatus(Pass { arrays, entry })
    }

    /// Reads it.
    #[inline(always)]
    pub fn read(self) -> (Status, AtLength<'a>) {
        let status = self.0.arrays.status(self.0.entry.item);
        (status, AtLength(self.0, status))
    }

    /// Counts a write and makes the key invalid.
    #[inline(always)]
    pub fn write(self) -> Status {
        self.0.arrays.write(self.0.entry.item)
    }
}

impl<'a> AtLength<'a> {
    /// Reads it.
    #[inline(always)]
    pub fn read(self) -> (Length, AtValue<'a>) {
        (self.0.arrays.length(self.0.entry.item), AtValue(self.0, self.1))
    }

    /// Sets it, for an update that alone may; `None` if another one does, or the status has
    /// changed since it was read.
    #[inline(always)]
    pub fn set(self, length: Length) -> Option<AtUpdate<'a>> {
        let claim = self.0.arrays.claim(self.0.entry.item, self.1, length)?;
        Some(AtUpdate(self.0, claim))
    }
}

impl<'a> AtValue<'a> {
    /// Reads this pass's units from all stages, and begins the next pass; `None` if there is none,
    /// or the status is another one by now.
    #[inline(always)]
    pub fn pass(self, room: &mut [u8; PASS]) -> Option<AtValue<'a>> {
        let Pass { arrays, entry } = self.0;
        let next = arrays.next(entry.place)?;
        arrays.load(entry.place, room);
        let again = AtStatus::begin(arrays, Entry { place: next, ..entry });
        let (status, at) = again.read();
        (status == self.1).then(|| at.read().1)
    }

    /// Reads the last pass's units from all stages; returns whether the status is still the one
    /// that was read. If not, what was read is of no use.
    #[inline(always)]
    pub fn read(self, room: &mut [u8; PASS]) -> bool {
        let Pass { arrays, entry } = self.0;
        arrays.load(entry.place, room);
        arrays.still(entry.item, self.1)
    }
}

impl<'a> AtUpdate<'a> {
    /// Writes this pass's units in all stages, and begins the next pass; `None` if there is none,
    /// or a write has passed.
    #[inline(always)]
    pub fn pass(self, value: &[u8]) -> Option<AtUpdate<'a>> {
        let AtUpdate(Pass { arrays, entry }, claim) = self;
        let next = arrays.next(entry.place)?;
        arrays.store(entry.place, value);
        let again = Pass { arrays, entry: Entry { place: next, ..entry } };
        claim.holds().then_some(AtUpdate(again, claim))
    }

    /// Writes the last pass's units in all stages and makes the key valid; returns false if a
    /// write has passed since the status was read.
    #[inline(always)]
    pub fn write(self, value: &[u8]) -> bool {
        self.0.arrays.store(self.0.entry.place, value);
        self.1.publish()
    }
}
