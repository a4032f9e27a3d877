//! The controller's side of the device: which keys are cached, and where.
//!
//! An item and its place go to another key only after a *grace*: workers may be in a burst whose
//! lookups found the key that had them. [`Table::resting`] says how many wait, and
//! [`Table::settle`] gives them free once all workers have begun another burst, or have none.

use super::arrays::{Arrays, Status};
use crate::entry::Entry;
use crate::slots::{Item, SlotError, Slots};
use overbank::fib::{self, Full, Reader, Writer};
use overbank_wire::netcache::Key;
use std::collections::VecDeque;
use std::sync::Arc;
use thiserror::Error;

/// Sizes of the device; the paper's by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Keys that can be cached, 1 to 65,536.
    pub items: usize,
    /// Logarithm of the indexes of the value memory, 16 at most.
    pub indexes_log2: u32,
    /// Passes of a value, 1 to [`PASSES_MAX`](crate::slots::PASSES_MAX): 128 bytes for each.
    pub passes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { items: 1 << 16, indexes_log2: 16, passes: 1 }
    }
}

/// A key that is cached now. It is not valid before its server's first update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    pub entry: Entry,
    /// Number of the installation in this run of the device, from 1 on.
    pub install: u32,
}

/// Why a key cannot be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// It is.
    #[error("the key is cached")]
    Present,
    /// All items have keys, or rest.
    #[error("all {0} items have keys")]
    Items(usize),
    /// Its value has no place.
    #[error(transparent)]
    Slots(#[from] SlotError),
    /// The lookup table has no slot for it.
    #[error(transparent)]
    Lookup(#[from] Full),
    /// All numbers of installations are used: another run has to begin.
    #[error("{} keys have been installed in this run of the device: begin another one", u32::MAX)]
    Numbers,
}

/// See the module.
pub struct Table {
    lookup: Writer<Key, u64>,
    arrays: Arc<Arrays>,
    slots: Slots,
    /// The key that each item had last.
    keys: Box<[Key]>,
    free: Vec<Item>,
    resting: VecDeque<Item>,
    /// The last number of an installation.
    install: u32,
}

impl Table {
    /// Returns an empty device in its run number `boot`.
    ///
    /// # Errors
    /// There is no memory for the lookup table.
    pub fn new(config: Config, boot: u32) -> Result<Table, fib::FibError> {
        let items = config.items.clamp(1, 1 << 16);
        let indexes_log2 = config.indexes_log2.min(16);
        let arrays = Arrays::new(items, 1 << indexes_log2);
        arrays.begin(boot);
        Ok(Table {
            lookup: Writer::new(&fib::Config::entries(items))?,
            arrays: Arc::new(arrays),
            slots: Slots::new(indexes_log2, config.passes),
            keys: vec![0; items].into(),
            free: (0..items).rev().map(|item| item as Item).collect(),
            resting: VecDeque::new(),
            install: 0,
        })
    }

    /// Returns what a worker looks keys up in.
    pub fn reader(&self) -> Reader<Key, u64> {
        self.lookup.reader()
    }

    /// Returns the arrays, for a worker.
    pub fn arrays(&self) -> Arc<Arrays> {
        self.arrays.clone()
    }

    /// Returns the entry of a cached key.
    pub fn entry(&self, key: Key) -> Option<Entry> {
        self.lookup.get(key).map(Entry::unpack)
    }

    /// Returns how many keys can be cached.
    pub fn items(&self) -> usize {
        self.keys.len()
    }

    /// Returns the bytes of the longest value that may be cached.
    pub fn value_max(&self) -> usize {
        self.slots.value_max()
    }

    /// Returns how many units of the value memory are free.
    pub fn free_units(&self) -> u32 {
        self.slots.free_units()
    }

    /// Returns the cached key that has an item.
    pub fn key(&self, item: Item) -> Option<Key> {
        let key = *self.keys.get(usize::from(item))?;
        self.entry(key).filter(|entry| entry.item == item).map(|_| key)
    }

    /// Returns the status of a cached key.
    pub fn status(&self, key: Key) -> Option<Status> {
        self.entry(key).map(|entry| self.arrays.status(entry.item))
    }

    /// Returns all cached keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Entry)> + '_ {
        self.lookup.iter().map(|(key, word)| (key, Entry::unpack(word)))
    }

    /// Returns how many keys are cached.
    pub fn len(&self) -> usize {
        self.lookup.len()
    }

    /// Returns whether no key is cached.
    pub fn is_empty(&self) -> bool {
        self.lookup.is_empty()
    }

    /// Caches a key whose server is at this port, with room for a value of this length.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn install(&mut self, key: Key, port: u16, bytes: usize) -> Result<Installed, TableError> {
        if self.lookup.get(key).is_some() {
            return Err(TableError::Present);
        }
        let install = self.install.checked_add(1).ok_or(TableError::Numbers)?;
        let item = *self.free.last().ok_or(TableError::Items(self.keys.len()))?;
        let place = self.slots.insert(item, bytes)?;
        let entry = Entry { place, item, port };
        // No worker finds the item yet.
        for (place, next) in self.slots.passes(item).zip(self.slots.passes(item).skip(1)) {
            self.arrays.go_on(place, next);
        }
        self.arrays.install(item, install);
        if let Err(full) = self.lookup.insert(key, entry.pack()) {
            self.arrays.install(item, 0);
            self.slots.remove(item);
            return Err(full.into());
        }
        self.taken(key, install);
        Ok(Installed { entry, install })
    }

    /// Caches a key no more: from now on no get is answered and no update stored. Returns the
    /// number of its installation.
    pub fn evict(&mut self, key: Key) -> Option<u32> {
        let Entry { item, .. } = self.entry(key)?;
        let install = self.arrays.status(item).install();
        self.arrays.install(item, 0);
        self.lookup.remove(key);
        self.resting.push_back(item);
        Some(install)
    }

    /// Returns how many items rest.
    pub fn resting(&self) -> usize {
        self.resting.len()
    }

    /// Gives the first `count` items free that rest: no worker is in a burst that began before they
    /// were evicted.
    pub fn settle(&mut self, count: usize) {
        for item in self.resting.drain(..count.min(self.resting.len())) {
            self.slots.remove(item);
            self.free.push(item);
        }
    }

    /// Installs a cached key anew, at another place, so that a value of this length comes nearer to
    /// one. Its units are free once its former item has settled. Returns `None`, without a change,
    /// if there is room, no move helps, or items rest: they may make room.
    pub fn repack(&mut self, bytes: usize) -> Option<(Key, Installed)> {
        let (&item, install) = (self.free.last()?, self.install.checked_add(1)?);
        if !self.resting.is_empty() {
            return None;
        }
        let moved = self.slots.repack(bytes, item)?;
        let key = self.keys[usize::from(moved.from)];
        let entry = Entry { place: moved.place, item, ..self.entry(key)? };
        self.arrays.install(moved.from, 0);
        self.arrays.install(item, install);
        self.lookup.update(key, entry.pack());
        self.resting.push_back(moved.from);
        self.taken(key, install);
        Some((key, Installed { entry, install }))
    }

    /// The last free item is a key's now.
    fn taken(&mut self, key: Key, install: u32) {
        if let Some(item) = self.free.pop() {
            self.keys[usize::from(item)] = key;
        }
        self.install = install;
    }

    /// Begins another run of an empty device.
    ///
    /// # Errors
    /// How many keys are cached, or rest.
    pub fn begin(&mut self, boot: u32) -> Result<(), usize> {
        match self.lookup.len() + self.resting.len() {
            0 => {
                self.arrays.begin(boot);
                self.install = 0;
                Ok(())
            }
            left => Err(left),
        }
    }

    /// Returns each array's name and its bits in a switch, in the order of the stages.
    pub fn resources(&self) -> Vec<(&'static str, u64)> {
        // A key, and what the table says of it: 56 bits.
        let lookup = ("lookup", (128 + 56) * self.keys.len() as u64);
        [lookup].into_iter().chain(self.arrays.resources()).collect()
    }
}
