//! What the lookup table says of a cached key.

use crate::slots::{Item, Place};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where the value lies: its first pass.
    pub place: Place,
    /// Number of the key's status and counter.
    pub item: Item,
    /// The port towards the key's server: updates come from there alone.
    pub port: u16,
}

impl Entry {
    /// Returns the table's word: port, item, index, stages and units, from the lowest bits on.
    pub const fn pack(self) -> u64 {
        let Entry { place: Place { index, stages, units }, item, port } = self;
        let place = index as u64 | (stages as u64) << 16 | (units as u64) << 24;
        port as u64 | (item as u64) << 16 | place << 32
    }

    /// Returns what a word says.
    pub const fn unpack(word: u64) -> Entry {
        let (index, stages, units) = ((word >> 32) as u16, (word >> 48) as u8, (word >> 56) as u8);
        let place = Place { index, stages, units };
        Entry { place, item: (word >> 16) as u16, port: word as u16 }
    }
}
