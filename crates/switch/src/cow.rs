//! A vector and a hash table whose clones share parts until one of them changes.
//!
//! ```text
//!  Parts      [ Arc block 0                              | Arc block 1 … ]   16 groups in a block
//!               [ Arc group 0           | Arc group 1 … ]                    16 parts in a group
//!                 [ Arc part 0 | … 15 ]   [ 16 | … ]
//!  CowVec     a part: a chunk of N elements
//!  CowTable   a part: a shard; [ 0 | 1 | 0 | 2 ] says which, by bits of the hash
//!             extendible hashing: a full shard is split, and that list doubles if the shard stands
//!             in it only once
//! ```
//!
//! The control plane changes its copy of the rules and gives clones to the workers. The first
//! clone copies the list of blocks, and the first change after it the blocks, groups and parts that
//! it touches. Later changes, until the next clone, touch what is already unshared. With 100,000
//! elements there are some ten blocks; a part has some tens of elements. Both are small because a
//! controller that waits for a barrier after each rule pays for them with each rule: two atomic
//! operations for each part, group and block that a copy shares.
//!
//! Cost of a read: three or four more loads than the plain structure. A table's lists never shrink.
//! Elements with equal bits 32 to 47 of the hash stay in one shard, whatever its size. Panics:
//! [`CowVec`] on an index out of bounds, as a slice does.
//!
//! Persistent trees (the crates `im` and `rpds`) need several loads for each read, and a classifier
//! lookup makes dozens of reads.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use arrayvec::ArrayVec;
use hashbrown::HashTable;

/// Capacity of a new chunk.
const CHUNK_FIRST: usize = 8;
/// Number of elements above which a shard is split.
const SHARD_MAX: usize = 128;
/// Most bits of the hash that choose a shard.
const DEPTH_MAX: u32 = 16;

/// Parts in a group, and groups in a block.
const GROUP: usize = 16;

type Group<T> = Arc<ArrayVec<T, GROUP>>;

/// Values in groups that clones share.
#[derive(Clone, Debug)]
struct Groups<T>(Vec<Group<T>>);

impl<T: Clone> Groups<T> {
    fn len(&self) -> usize {
        // All groups but the last are full.
        self.0.last().map_or(0, |last| (self.0.len() - 1) * GROUP + last.len())
    }

    /// Returns a value's place, in a group that is not shared.
    fn place(&mut self, at: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.0[at / GROUP])[at % GROUP]
    }

    fn push(&mut self, value: T) {
        match self.0.last_mut().filter(|last| !last.is_full()) {
            Some(last) => Arc::make_mut(last).push(value),
            None => self.0.push(Arc::new(ArrayVec::from_iter([value]))),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|group| group.iter())
    }
}

impl<T> Index<usize> for Groups<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.0[at / GROUP][at % GROUP]
    }
}

/// Parts, in groups, in blocks of groups; clones share all three.
#[derive(Debug)]
struct Parts<P: ?Sized>(Groups<Group<Arc<P>>>);

impl<P: ?Sized> Clone for Parts<P> {
    fn clone(&self) -> Self {
        Parts(self.0.clone())
    }
}

impl<P: ?Sized> Parts<P> {
    const fn new() -> Parts<P> {
        Parts(Groups(Vec::new()))
    }

    fn len(&self) -> usize {
        let groups = self.0.len();
        // All groups but the last are full.
        groups.checked_sub(1).map_or(0, |last| last * GROUP + self.0[last].len())
    }

    /// Returns the place of a part, in a group that is not shared. The part may be.
    fn place(&mut self, at: usize) -> &mut Arc<P> {
        &mut Arc::make_mut(self.0.place(at / GROUP))[at % GROUP]
    }

    fn push(&mut self, part: Arc<P>) {
        let at = self.len();
        if at.is_multiple_of(GROUP) {
            self.0.push(Arc::new(ArrayVec::from_iter([part])));
        } else {
            Arc::make_mut(self.0.place(at / GROUP)).push(part);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<P>> {
        self.0.iter().flat_map(|group| group.iter())
    }
}

impl<P: ?Sized> Index<usize> for Parts<P> {
    type Output = P;

    #[inline]
    fn index(&self, at: usize) -> &P {
        &self.0[at / GROUP][at % GROUP]
    }
}

/// A vector in chunks of up to `N` elements, all but the last of them full.
#[derive(Clone, Debug)]
pub(crate) struct CowVec<T, const N: usize> {
    chunks: Parts<[T]>,
    len: usize,
}

impl<T, const N: usize> Default for CowVec<T, N> {
    fn default() -> Self {
        CowVec { chunks: Parts::new(), len: 0 }
    }
}

impl<T: Clone + Default, const N: usize> CowVec<T, N> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) {
        let (chunk, at) = (self.len / N, self.len % N);
        let old = if chunk < self.chunks.len() { &self.chunks[chunk] } else { &[] };
        if at >= old.len() {
            let longer = (2 * old.len()).clamp(CHUNK_FIRST.min(N), N);
            let fill = std::iter::repeat_with(T::default).take(longer - old.len());
            let new: Arc<[T]> = old.iter().cloned().chain(fill).collect();
            if chunk < self.chunks.len() {
                *self.chunks.place(chunk) = new;
            } else {
                self.chunks.push(new);
            }
        }
        let at = self.len;
        self.len += 1;
        self[at] = value;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).take(self.len)
    }
}

impl<T, const N: usize> Index<usize> for CowVec<T, N> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / N][at % N]
    }
}

impl<T: Clone, const N: usize> IndexMut<usize> for CowVec<T, N> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut Arc::make_mut(self.chunks.place(at / N))[at % N]
    }
}

/// An element that knows its hash.
pub(crate) trait Hashed: Copy {
    fn hash(&self) -> u64;
}

#[derive(Clone, Debug)]
struct Shard<T> {
    /// Number of hash bits that all its elements share.
    depth: u32,
    table: HashTable<T>,
}

/// A hash table in shards. The caller compares elements.
#[derive(Clone, Debug)]
pub(crate) struct CowTable<T> {
    /// Shard for each value of the lowest bits of [`window`]; empty, or a power of two long.
    directory: Arc<[u32]>,
    shards: Parts<Shard<T>>,
}

impl<T> Default for CowTable<T> {
    fn default() -> Self {
        CowTable { directory: Arc::new([]), shards: Parts::new() }
    }
}

/// Returns the bits that choose a shard; hashbrown uses the lowest and the highest ones.
#[inline]
fn window(hash: u64) -> usize {
    // Bits outside the window are dropped.
    (hash >> 32) as usize
}

impl<T: Hashed> CowTable<T> {
    /// Returns the number of the shard of a hash; `None` if the table is empty.
    #[inline]
    fn shard(&self, hash: u64) -> Option<usize> {
        // In an empty directory every index is out of bounds.
        let at = window(hash) & self.directory.len().wrapping_sub(1);
        self.directory.get(at).map(|&shard| shard as usize)
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.shards[self.shard(hash)?].table.find(hash, is)
    }

    /// Returns the shard of a hash, unshared.
    fn own(&mut self, hash: u64) -> Option<&mut Shard<T>> {
        let shard = self.shard(hash)?;
        Some(Arc::make_mut(self.shards.place(shard)))
    }

    /// Changes an element that is present; its hash must stay the same.
    pub(crate) fn update(
        &mut self,
        hash: u64,
        mut is: impl FnMut(&T) -> bool,
        change: impl FnOnce(&mut T),
    ) -> bool {
        // Look first: a copy in vain would unshare the part.
        if self.find(hash, &mut is).is_none() {
            return false;
        }
        if let Some(found) = self.own(hash).and_then(|shard| shard.table.find_mut(hash, is)) {
            change(found);
        }
        true
    }

    /// Adds an element that is not present.
    pub(crate) fn insert_unique(&mut self, value: T) {
        let hash = value.hash();
        if self.directory.is_empty() {
            self.directory = Arc::new([0]);
            self.shards.push(Arc::new(Shard { depth: 0, table: HashTable::new() }));
        }
        while self.shard(hash).is_some_and(|s| self.shards[s].table.len() >= SHARD_MAX) {
            if !self.split(hash) {
                break;
            }
        }
        if let Some(shard) = self.own(hash) {
            shard.table.insert_unique(hash, value, Hashed::hash);
        }
    }

    /// Removes an element that is present.
    pub(crate) fn remove(&mut self, hash: u64, mut is: impl FnMut(&T) -> bool) {
        if self.find(hash, &mut is).is_none() {
            return;
        }
        let shard = self.own(hash);
        if let Some(Ok(found)) = shard.map(|shard| shard.table.find_entry(hash, is)) {
            found.remove();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().flat_map(|shard| shard.table.iter())
    }

    /// Splits the shard of a hash in two by its next bit; returns false if no bit is left.
    fn split(&mut self, hash: u64) -> bool {
        let Some(old) = self.shard(hash) else { return false };
        let depth = self.shards[old].depth;
        // Shards are fewer than elements, which are fewer than 2^32.
        let Ok(new) = u32::try_from(self.shards.len()) else { return false };
        if depth >= DEPTH_MAX {
            return false;
        }
        if 1 << depth == self.directory.len() {
            self.directory = self.directory.repeat(2).into();
        }
        let mut halves = [HashTable::new(), HashTable::new()];
        for &value in &self.shards[old].table {
            let hash = value.hash();
            halves[window(hash) >> depth & 1].insert_unique(hash, value, Hashed::hash);
        }
        let [zero, one] = halves.map(|table| Arc::new(Shard { depth: depth + 1, table }));
        *self.shards.place(old) = zero;
        self.shards.push(one);
        let step = 1 << depth;
        let directory = Arc::make_mut(&mut self.directory);
        let places = (window(hash) & (step - 1)..directory.len()).step_by(step);
        for at in places.filter(|at| at >> depth & 1 == 1) {
            directory[at] = new;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Item(u64, u32);

    impl Hashed for Item {
        fn hash(&self) -> u64 {
            self.0
        }
    }

    fn spread(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn sorted(table: &CowTable<Item>) -> Vec<(u64, u32)> {
        let mut all: Vec<(u64, u32)> = table.iter().map(|item| (item.0, item.1)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_chunk_grows_to_its_size_and_a_clone_keeps_what_it_had() {
        let mut vec: CowVec<u32, 16> = CowVec::default();
        (0..100).for_each(|n| vec.push(n));
        let old = vec.clone();
        vec[17] = 7;
        vec.push(100);
        assert!(old.iter().copied().eq(0..100));
        assert_eq!((vec.len(), vec[17], vec[16], vec[100]), (101, 7, 16, 100));
        let shared = old.chunks.iter().zip(vec.chunks.iter()).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(shared.count(), 5, "all but the two that were written to");
    }

    #[test]
    fn a_change_copies_one_shard() {
        let mut table = CowTable::default();
        (0..100_000).for_each(|n| table.insert_unique(Item(spread(n), 0)));
        assert!(table.shards.iter().all(|shard| shard.table.len() <= SHARD_MAX));
        assert!(table.shards.len() < 2400 && table.directory.len() <= 4096);
        let old = table.clone();
        assert!(table.update(spread(7), |_| true, |item| item.1 = 1));
        let changed =
            old.shards.iter().zip(table.shards.iter()).filter(|(a, b)| !Arc::ptr_eq(a, b));
        assert_eq!(changed.count(), 1);
        let groups = old.shards.0.iter().zip(table.shards.0.iter());
        assert_eq!(groups.filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 1);
        let blocks = old.shards.0.0.iter().zip(&table.shards.0.0);
        assert_eq!(blocks.filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 1);
        assert!(!table.update(1, |_| false, |_| ()));
        assert_eq!(table.iter().count(), 100_000);
    }

    #[test]
    fn equal_hashes_stay_together() {
        let mut table = CowTable::default();
        (0..3000).for_each(|n| table.insert_unique(Item(5 << 32, n)));
        assert!(table.directory.len() <= 1 << DEPTH_MAX);
        assert!((0..3000).all(|n| table.find(5 << 32, |item| item.1 == n).is_some()));
    }

    proptest! {
        /// Elements come and go while clones are taken; each clone stays what it was.
        #[test]
        fn a_table_is_a_map_and_its_clones_stand_still(
            ops in prop::collection::vec((0u64..3000, 0..20u8), 1..4000),
        ) {
            let (mut table, mut map) = (CowTable::default(), HashMap::new());
            let mut clones = Vec::new();
            for (at, (key, what)) in ops.into_iter().enumerate() {
                let hash = spread(key);
                match what {
                    0..14 => match map.insert(hash, at as u32) {
                        None => table.insert_unique(Item(hash, at as u32)),
                        Some(_) => prop_assert!(
                            table.update(hash, |i| i.0 == hash, |i| i.1 = at as u32)
                        ),
                    },
                    14..19 => {
                        map.remove(&hash);
                        table.remove(hash, |item| item.0 == hash);
                    }
                    _ => clones.push((table.clone(), sorted(&table))),
                }
                let found = table.find(hash, |item| item.0 == hash).map(|item| item.1);
                prop_assert_eq!(found, map.get(&hash).copied());
            }
            let mut all: Vec<(u64, u32)> = map.into_iter().collect();
            all.sort_unstable();
            prop_assert_eq!(sorted(&table), all);
            for (clone, was) in clones {
                prop_assert_eq!(sorted(&clone), was);
            }
        }
    }
}
