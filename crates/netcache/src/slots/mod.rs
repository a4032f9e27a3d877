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
//! # Longer values (section 5)
//! A packet passes the stages again for each 128 bytes. Such a value has a whole index for each
//! pass but the last one, and for that one what is left, by first fit. [`Place::units`] counts the
//! units of this pass and of those after it; an array says where the next pass goes:
//!
//! ```text
//!   place of E: index 3, all stages, 19 units ─▶ index 4, all stages, 11 ─▶ index 2, 3 stages, 3
//! ```
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
//! three in each index for good. Values of several passes stay where they are.
//!
//! Memory for 2^16 indexes: 2.7 MiB.

mod index_set;
#[cfg(test)]
mod tests;

use index_set::IndexSet;
use thiserror::Error;

/// Stages of the pipeline that have a value's units.
pub const STAGES: usize = 8;
/// Bytes of a unit.
pub const UNIT: usize = 16;
/// Bytes of a value in one pass.
pub const PASS: usize = STAGES * UNIT;
/// Passes of a value at most.
pub const PASSES_MAX: usize = 11;
/// Bytes of the longest value.
pub const VALUE_MAX: usize = PASSES_MAX * PASS;

const _: () = assert!(VALUE_MAX == overbank_wire::netcache::VALUE_MAX);

/// A cached key, by the number of its counter and status.
pub type Item = u16;

/// No item.
const NONE: u32 = u32::MAX;
/// Indexes of a number of free units that a repacking looks at.
const CANDIDATES: usize = 64;

/// Where a value lies, as a pass finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The index, in all stages.
    pub index: u16,
    /// The stages: bit n for stage n. Never 0.
    pub stages: u8,
    /// Units of this pass and of those after it, 88 at most.
    pub units: u8,
}

impl Place {
    /// No place.
    const NONE: Place = Place { index: 0, stages: 0, units: 0 };

    /// Returns whether another pass follows.
    pub const fn goes_on(self) -> bool {
        self.units as usize > STAGES
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
    /// No index has as many free units, or too few indexes have.
    #[error("no place has {units} free units; {free} are free in all")]
    Full {
        /// Units that the value needs.
        units: u32,
        /// Free units of all indexes.
        free: u32,
    },
    /// The value has more bytes than a place.
    #[error("a value of {bytes} bytes: must have at most {most}")]
    TooLong {
        /// Bytes of the value.
        bytes: usize,
        /// Bytes of all passes.
        most: usize,
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

/// Returns how many passes a value of this length takes.
pub const fn passes_of(bytes: usize) -> usize {
    units_of(bytes).div_ceil(STAGES)
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Slots {
    passes: usize,
    /// The place of each item; [`Place::NONE`] if it has none.
    places: Box<[Place]>,
    /// By index: where the next pass goes, if all units are of one item and there is one.
    next: Box<[Place]>,
    /// The item of each unit, by index and stage.
    holders: Box<[[u32; STAGES]]>,
    /// Free units: bit n of an index for stage n.
    free: Box<[u8]>,
    /// Indexes with exactly n free units.
    with_free: [IndexSet; STAGES + 1],
    free_units: u32,
}

impl Slots {
    /// Returns a memory without values, of 2^`indexes_log2` indexes (16 at most), for values of up
    /// to `passes` ([`PASSES_MAX`] and the indexes at most). What is more is taken as that.
    pub fn new(indexes_log2: u32, passes: usize) -> Slots {
        let indexes = 1usize << indexes_log2.min(16);
        Slots {
            passes: passes.clamp(1, PASSES_MAX).min(indexes),
            places: vec![Place::NONE; 1 << 16].into(),
            next: vec![Place::NONE; indexes].into(),
            holders: vec![[NONE; STAGES]; indexes].into(),
            free: vec![u8::MAX; indexes].into(),
            with_free: std::array::from_fn(|free| {
                let indexes = 0..indexes as u32;
                indexes.filter(|_| free == STAGES).map(|index| index as u16).collect()
            }),
            free_units: (indexes * STAGES) as u32,
        }
    }

    /// Returns the bytes of the longest value that may have a place.
    pub fn value_max(&self) -> usize {
        self.passes * PASS
    }

    /// Returns how many units are free.
    pub fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Returns where an item's value lies: its first pass.
    pub fn place(&self, item: Item) -> Option<Place> {
        Some(self.places[usize::from(item)]).filter(|place| *place != Place::NONE)
    }

    /// Returns where it lies, pass by pass.
    pub fn passes(&self, item: Item) -> impl Iterator<Item = Place> {
        let next = |place: &Place| place.goes_on().then(|| self.next[usize::from(place.index)]);
        std::iter::successors(self.place(item), next)
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
        if bytes > self.value_max() {
            return Err(SlotError::TooLong { bytes, most: self.value_max() });
        }
        let units = units_of(bytes);
        let full = SlotError::Full { units: units as u32, free: self.free_units };
        if self.lacks(units).is_some() {
            return Err(full);
        }
        let (mut left, mut before) = (units, None);
        while left > 0 {
            let here = left.min(STAGES);
            let place = self.take(item, self.first_fit(here).ok_or(full)?, here, left);
            match before {
                None => self.places[usize::from(item)] = place,
                Some(before) => self.next[usize::from(before)] = place,
            }
            (left, before) = (left - here, Some(place.index));
        }
        Ok(self.places[usize::from(item)])
    }

    /// Takes an item's place from it; returns its first pass.
    pub fn remove(&mut self, item: Item) -> Option<Place> {
        let first = self.place(item)?;
        let passes: Vec<Place> = self.passes(item).collect();
        for place in passes {
            self.set_free(place.index, self.free[usize::from(place.index)] | place.stages);
            for holder in self.stages(place) {
                *holder = NONE;
            }
        }
        self.places[usize::from(item)] = Place::NONE;
        Some(first)
    }

    /// Gives the item `to` a place for the value of another one, which the caller removes once
    /// nothing uses it: a value of this length comes nearer to a place then. Returns `None`,
    /// without a change, if there is room already, no move helps, or `to` has a place.
    pub fn repack(&mut self, bytes: usize, to: Item) -> Option<Move> {
        let lacks = self.lacks(units_of(bytes.min(self.value_max())))?;
        if self.place(to).is_some() {
            return None;
        }
        let (from, index) = self.best_move(lacks)?;
        let units = usize::from(self.places[usize::from(from)].units);
        let place = self.take(to, index, units, units);
        self.places[usize::from(to)] = place;
        Some(Move { from, to, place })
    }

    /// Returns how many free units of one index a value of this many units lacks; `None` if there
    /// is room for it.
    fn lacks(&self, units: usize) -> Option<usize> {
        let (whole, last) = ((units - 1) / STAGES, (units - 1) % STAGES + 1);
        let free = self.with_free[STAGES].iter().take(whole + 1).count();
        match free.checked_sub(whole) {
            None => Some(STAGES),
            Some(0) if self.with_free[last..STAGES].iter().all(|set| set.first().is_none()) => {
                Some(last)
            }
            Some(_) => None,
        }
    }

    /// Returns the lowest index with that many free units.
    fn first_fit(&self, units: usize) -> Option<u16> {
        self.with_free[units..].iter().filter_map(IndexSet::first).min()
    }

    /// Returns the item to move, and the index to move it to.
    fn best_move(&self, units: usize) -> Option<(Item, u16)> {
        for free in (1..units).rev() {
            for index in self.with_free[free].iter().take(CANDIDATES) {
                let mut items: Vec<(usize, Item)> = Vec::with_capacity(STAGES);
                let of = |item: Item| self.places[usize::from(item)];
                let items_here = self.items(index).filter(|item| !of(*item).goes_on());
                items.extend(items_here.map(|item| (of(item).units.into(), item)));
                items.sort_by_key(|item| item.0);
                for (len, item) in items {
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

    /// Takes the first `here` free units of an index for an item that lacks `left`.
    fn take(&mut self, item: Item, index: u16, here: usize, left: usize) -> Place {
        let free = self.free[usize::from(index)];
        let mut rest = free;
        for _ in 0..here {
            rest &= rest.wrapping_sub(1);
        }
        let place = Place { index, stages: free & !rest, units: left as u8 };
        self.set_free(index, rest);
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
