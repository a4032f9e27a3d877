//! What the lookup table says of a cached key.

use crate::slots::{Item, Place};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where the value lies.
    pub place: Place,
    /// Number of the key's status and counter.
    pub item: Item,
    /// The port towards the key's server: updates come from there alone.
    pub port: u16,
}

impl Entry {
    /// Returns the table's word: port, item, index and stages, from the lowest bits on.
    pub const fn pack(self) -> u64 {
        let Entry { place: Place { index, stages }, item, port } = self;
        port as u64 | (item as u64) << 16 | (index as u64) << 32 | (stages as u64) << 48
    }

    /// Returns what a word says.
    pub const fn unpack(word: u64) -> Entry {
        let place = Place { index: (word >> 32) as u16, stages: (word >> 48) as u8 };
        Entry { place, item: (word >> 16) as u16, port: word as u16 }
    }
}
