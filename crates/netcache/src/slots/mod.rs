//! Where the values of cached keys lie (section 4.4.2, algorithm 2 and figure 6).
//!
//! The value memory is eight arrays, one for each stage of the pipeline, with the same indexes. A
//! value has one index, and a unit of 16 bytes in as many of the arrays as it needs:
//!
//! ```text
//!             stage 0  1  2  3  4  5  6  7
//!   index 0         A  A  B  B  B  .  .  .    A: index 0, stages 0 and 1 (32 bytes)
//!   index 1         C  C  C  C  C  C  C  C    C: index 1, all stages (128 bytes)
//!   index 2         .  .  D  .  .  .  .  .    D: index 2, stage 2 (16 bytes)
//! ```
//!
//! First fit: the lowest index with enough free units, and of these the first ones.
//!
//! # Errors of the paper's listing
//! - `n ← value_size / 16` forgets the last, partly filled unit: it must be rounded up.
//! - EVICT leaves the key in its map. A second one frees units that others have by then, and the
//!   key cannot be inserted again.
//! - INSERT looks at all indexes in turn. Here, there is a set of indexes for each number of free
//!   units, and the first one of a set is found with four loads.
//!
//! # Repacking
//! Free units that are spread over indexes are of no use to a long value. [`Slots::repack`] says
//! which value to move so that they come together: the shortest one of an index with many free
//! units, to the index in which it leaves the fewest. Each move brings the sum of the squares of
//! free units up, so moves end. They may end before the value fits: values of five units leave
//! three in each index for good.
//!
//! Memory for 2^16 indexes: 2.4 MiB.

mod index_set;
#[cfg(test)]
mod tests;

use index_set::IndexSet;
use thiserror::Error;

/// Stages of the pipeline that have a value's units.
pub const STAGES: usize = 8;
/// Bytes of a unit.
pub const UNIT: usize = 16;
/// Bytes of the longest value.
pub const VALUE_MAX: usize = STAGES * UNIT;

/// A cached key, by the number of its counter and status.
pub type Item = u16;

/// No item.
const NONE: u32 = u32::MAX;
/// Indexes of a number of free units that a repacking looks at.
const CANDIDATES: usize = 64;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The index, in all stages.
    pub index: u16,
    /// The stages: bit n for stage n. Never 0.
    pub stages: u8,
}

impl Place {
    /// Returns how many units it has.
    pub const fn units(self) -> u32 {
        self.stages.count_ones()
    }
}

/// A value that is to be moved: to another item with another place, so that packets which have
/// found the first ones are no danger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: Item,
    pub to: Item,
    pub place: Place,
}

/// Why a value has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SlotError {
    /// No index has as many free units.
    #[error("no index has {units} free units; {free} are free in all")]
    Full {
        /// Units that the value needs.
        units: u32,
        /// Free units of all indexes.
        free: u32,
    },
    /// The value has more bytes than a place.
    #[error("a value of {bytes} bytes: must have at most {VALUE_MAX}")]
    TooLong {
        /// Bytes of the value.
        bytes: usize,
    },
    /// The item has a place already.
    #[error("item {0} has a place")]
    Placed(Item),
}

/// Returns how many units a value of this length needs; one for an empty one, so that it may grow.
pub const fn units_of(bytes: usize) -> usize {
    let units = bytes.div_ceil(UNIT);
    if units == 0 { 1 } else { units }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Slots {
    /// The place of each item; `stages` is 0 if it has none.
    places: Box<[Place]>,
    /// The item of each unit, by index and stage.
    holders: Box<[[u32; STAGES]]>,
    /// Free units: bit n of an index for stage n.
    free: Box<[u8]>,
    /// Indexes with exactly n free units.
    with_free: [IndexSet; STAGES + 1],
    free_units: u32,
}

impl Slots {
    /// Returns a memory without values, of 2^`indexes_log2` indexes; 16 at most, and more is taken
    /// as 16.
    pub fn new(indexes_log2: u32) -> Slots {
        let indexes = 1usize << indexes_log2.min(16);
        let none = Place { index: 0, stages: 0 };
        Slots {
            places: vec![none; 1 << 16].into(),
            holders: vec![[NONE; STAGES]; indexes].into(),
            free: vec![u8::MAX; indexes].into(),
            with_free: std::array::from_fn(|free| {
                let indexes = 0..indexes as u32;
                indexes.filter(|_| free == STAGES).map(|index| index as u16).collect()
            }),
            free_units: (indexes * STAGES) as u32,
        }
    }

    /// Returns how many units are free.
    pub fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Returns where an item's value lies.
    pub fn place(&self, item: Item) -> Option<Place> {
        Some(self.places[usize::from(item)]).filter(|place| place.stages != 0)
    }

    /// Returns the items that have units of an index, in their order.
    pub fn items(&self, index: u16) -> impl Iterator<Item = Item> {
        let holders = self.holders.get(usize::from(index)).copied().unwrap_or([NONE; STAGES]);
        let first = move |at: usize| !holders[..at].contains(&holders[at]);
        let items = (0..STAGES).filter(move |&at| holders[at] != NONE && first(at));
        items.map(move |at| holders[at] as Item)
    }

    /// Gives an item a place for a value of this length.
    ///
    /// # Errors
    /// Nothing has changed. After [`SlotError::Full`], [`Slots::repack`] may make room.
    pub fn insert(&mut self, item: Item, bytes: usize) -> Result<Place, SlotError> {
        if self.place(item).is_some() {
            return Err(SlotError::Placed(item));
        }
        if bytes > VALUE_MAX {
            return Err(SlotError::TooLong { bytes });
        }
        let units = units_of(bytes);
        let Some(index) = self.first_fit(units) else {
            return Err(SlotError::Full { units: units as u32, free: self.free_units });
        };
        Ok(self.take(item, index, units as u32))
    }

    /// Takes an item's place from it; returns it.
    pub fn remove(&mut self, item: Item) -> Option<Place> {
        let place = self.place(item)?;
        self.places[usize::from(item)].stages = 0;
        self.set_free(place.index, self.free[usize::from(place.index)] | place.stages);
        for holder in self.stages(place) {
            *holder = NONE;
        }
        Some(place)
    }

    /// Gives the item `to` a place for the value of another one, which the caller removes once
    /// nothing uses it: a value of this length comes nearer to a place then. Returns `None`,
    /// without a change, if there is room already, no move helps, or `to` has a place.
    pub fn repack(&mut self, bytes: usize, to: Item) -> Option<Move> {
        let units = units_of(bytes.min(VALUE_MAX));
        if self.first_fit(units).is_some() || self.place(to).is_some() {
            return None;
        }
        let (from, index) = self.best_move(units)?;
        Some(Move { from, to, place: self.take(to, index, self.units(from)) })
    }

    /// Returns the lowest index with that many free units.
    fn first_fit(&self, units: usize) -> Option<u16> {
        self.with_free[units..].iter().filter_map(IndexSet::first).min()
    }

    /// Returns the item to move, and the index to move it to.
    fn best_move(&self, units: usize) -> Option<(Item, u16)> {
        for free in (1..units).rev() {
            for index in self.with_free[free].iter().take(CANDIDATES) {
                let mut items: Vec<(u32, Item)> = Vec::with_capacity(STAGES);
                items.extend(self.items(index).map(|item| (self.units(item), item)));
                items.sort_by_key(|item| item.0);
                for (len, item) in items {
                    let len = len as usize;
                    // Into the fullest one; more free units than would come together are none won.
                    let to = (len..free + len).filter_map(|left| self.with_free.get(left));
                    let mut to = to.filter_map(|set| set.iter().find(|&to| to != index));
                    if let Some(to) = to.next() {
                        return Some((item, to));
                    }
                }
            }
        }
        None
    }

    fn units(&self, item: Item) -> u32 {
        self.places[usize::from(item)].units()
    }

    fn take(&mut self, item: Item, index: u16, units: u32) -> Place {
        let free = self.free[usize::from(index)];
        let mut left = free;
        for _ in 0..units {
            left &= left.wrapping_sub(1);
        }
        let place = Place { index, stages: free & !left };
        self.set_free(index, left);
        self.places[usize::from(item)] = place;
        for holder in self.stages(place) {
            *holder = u32::from(item);
        }
        place
    }

    /// Returns the units of a place.
    fn stages(&mut self, place: Place) -> impl Iterator<Item = &mut u32> {
        let units = self.holders[usize::from(place.index)].iter_mut().enumerate();
        units.filter(move |(stage, _)| place.stages >> stage & 1 == 1).map(|(_, unit)| unit)
    }

    fn set_free(&mut self, index: u16, free: u8) {
        let before = std::mem::replace(&mut self.free[usize::from(index)], free).count_ones();
        let now = free.count_ones();
        self.free_units = self.free_units + now - before;
        self.with_free[before as usize].remove(index);
        self.with_free[now as usize].insert(index);
    }
}
