//! Maps in Rust: BTreeMap, SkipMap, congee, Overbank's Tree.

use std::collections::BTreeMap;

use congee::{Congee, DefaultAllocator};
use crossbeam_skiplist::SkipMap;
use overbank::lookaside::{Hints, Tree};

use super::Index;
use crate::Failed;
use crate::item::Item;

/// std's BTreeMap.
#[derive(Default)]
pub struct Ordered(BTreeMap<u64, u64>);

impl Index for Ordered {
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
        self.0.insert(key, item.address());
        Ok(())
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Item> {
        Item::at(*self.0.get(&key)?)
    }
}

/// crossbeam's SkipMap.
#[derive(Default)]
pub struct Skip(SkipMap<u64, u64>);

impl Index for Skip {
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
        self.0.insert(key, item.address());
        Ok(())
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Item> {
        Item::at(*self.0.get(&key)?.value())
    }
}

/// congee. Each operation pins an epoch, as its documentation shows.
pub struct Art(Congee<usize, usize>);

impl Default for Art {
    fn default() -> Self {
        Self(Congee::new(DefaultAllocator {}))
    }
}

impl Index for Art {
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
        let done = self.0.insert(key as usize, item.address() as usize, &self.0.pin());
        done.map(drop).map_err(|_| Failed::new("congee", "the system is out of memory"))
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Item> {
        Item::at(self.0.get(&(key as usize), &self.0.pin())? as u64)
    }
}

/// Overbank's Tree, with hints or without.
pub struct Ours(Tree<u64, u64>);

impl Ours {
    /// Bytes of a hint.
    const HINT: usize = 6;

    /// Allocates a tree for `items`, and hints of this many bytes.
    ///
    /// # Errors
    /// They cannot have their size, or the system is out of memory.
    pub fn new(items: usize, hints_bytes: Option<usize>) -> Result<Self, Failed> {
        let hints = hints_bytes.map(|bytes| Hints::entries(bytes / Self::HINT));
        let tree = Tree::with_capacity(items, hints);
        tree.map(Self).map_err(|error| Failed::new("tree", error))
    }
}

impl Index for Ours {
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
        let done = self.0.insert(key, item.address());
        done.map(drop).map_err(|error| Failed::new("tree", error))
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Item> {
        Item::at(self.0.get(&key)?)
    }
}
