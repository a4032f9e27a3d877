//! Indexes from a key to an item.

mod c;
mod databases;
mod maps;

use clap::ValueEnum;

pub use c::{Bplus, Hash, Lmdb, Masstree};
pub use databases::Redb;
pub use maps::{Art, Ordered, Ours, Skip};

use crate::Failed;
use crate::item::Item;

/// Takes the address of a node, its bytes and its level: 0 for leaves.
pub type Visit<'a> = &'a mut dyn FnMut(u64, u64, u32);

/// An index.
pub trait Index {
    /// Inserts a new key.
    ///
    /// # Errors
    /// The key is there already, or memory is missing.
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed>;

    /// Finds the item of a key.
    fn find(&mut self, key: u64) -> Option<Item>;

    /// Ends the building phase: from here on each insert is visible at once.
    ///
    /// # Errors
    /// What was inserted cannot be kept.
    fn ready(&mut self) -> Result<(), Failed> {
        Ok(())
    }

    /// Returns the levels of a tree or the items of the longest chain, where the index knows.
    fn depth(&self) -> Option<u64> {
        None
    }

    /// Visits all nodes, where the index knows them.
    fn nodes(&self, _visit: Visit<'_>) {}
}

/// Names of the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// LMDB with 512-byte pages, integer keys, one read transaction
    Lmdb,
    /// Chained hash table with 2^21 buckets (--buckets), items linked through themselves
    Hash,
    /// B+ tree, fanout 20, each node a separate block: as in figure 1
    Bplus,
    /// std's BTreeMap
    Btreemap,
    /// B+ tree of Masstree's node width and version checks: one layer
    Masstree,
    /// crossbeam's SkipMap
    Skipmap,
    /// redb in memory, one read transaction
    Redb,
    /// congee, an adaptive radix tree
    Congee,
    /// Overbank's Tree
    Tree,
}
