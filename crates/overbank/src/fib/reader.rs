//! Lookups.

#![allow(unsafe_code)] // The calls across the SIMD seam.

use super::key::{Key, Value};
use super::table::{BURST_MAX, Table};
use crate::isa::Isa;
use crate::memory::HugePages;
use crate::sync::Arc;

/// Reads a table while its [`Writer`](super::Writer) writes. Cheap to clone, one for each thread.
///
/// A lookup never waits, takes no lock and writes nothing that others read. It reads one or two
/// buckets; the [module](super) describes its consistency with the writer.
pub struct Reader<K, V> {
    pub(super) table: Arc<Table<K, V>>,
}

impl<K, V> Clone for Reader<K, V> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

impl<K: Key, V: Value> Reader<K, V> {
    pub(super) fn new(table: Arc<Table<K, V>>) -> Self {
        Self { table }
    }

    /// Returns the key's value. Costs one indirect call; [`Reader::lookup_batch`] overlaps the
    /// waits for memory.
    #[inline]
    pub fn lookup(&self, key: K) -> Option<V> {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.one)(&self.table.view(), key) }
    }

    /// Looks up a burst of 1 to [`BURST_MAX`] keys. Bit `i` of the result says whether key `i` has
    /// an entry; `values[i]` is then its value, and zero otherwise. Each key is looked up
    /// separately: the burst is no snapshot.
    ///
    /// Ignores keys past the 64th or without a place in `values`.
    #[inline]
    pub fn lookup_batch(&self, keys: &[K], values: &mut [V]) -> u64 {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.batch)(&self.table.view(), keys, values, None) }
    }

    /// Looks up a burst and meanwhile prefetches the home lines of the `next` one, at most
    /// [`BURST_MAX`] keys. A single burst waits for memory at its begin and at its end; this hides
    /// the first wait. ([`Reader::lookup_all`] hides both, for a caller with all keys at once.)
    ///
    /// Expects that `keys` were `next` in the previous call, or were given to [`Reader::prefetch`],
    /// and does not prefetch their home lines again. Otherwise the result is the same, but slower.
    ///
    /// ```
    /// use overbank::fib::{Config, Writer};
    ///
    /// let mut writer = Writer::<u64, u32>::new(&Config::entries(1000))?;
    /// writer.insert(70, 7)?;
    /// let reader = writer.reader();
    ///
    /// let keys: Vec<u64> = (0..100).collect();
    /// let mut upcoming = keys.chunks(32);
    /// reader.prefetch(upcoming.next().unwrap_or_default());
    /// let (mut values, mut hits) = ([0; 32], 0);
    /// for burst in keys.chunks(32) {
    ///     let next = upcoming.next().unwrap_or_default();
    ///     hits += reader.lookup_batch_ahead(burst, &mut values, next).count_ones();
    /// }
    /// assert_eq!(hits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn lookup_batch_ahead(&self, keys: &[K], values: &mut [V], next: &[K]) -> u64 {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.batch)(&self.table.view(), keys, values, Some(next)) }
    }

    /// Looks up any number of keys, the fastest way for many: bursts overlap inside, and only the
    /// first and the last one wait for memory.
    ///
    /// Bit `i % 64` of `hits[i / 64]` says whether key `i` has an entry; `values[i]` is then its
    /// value, and zero otherwise. Each key is looked up separately: a list is no snapshot, and the
    /// instants of its keys are in no order.
    ///
    /// Ignores keys without a place in `values` or `hits`; words of `hits` without keys stay
    /// unchanged.
    ///
    /// ```
    /// use overbank::fib::{Config, Writer};
    ///
    /// let mut writer = Writer::<u64, u32>::new(&Config::entries(1000))?;
    /// writer.insert(70, 7)?;
    /// let keys: Vec<u64> = (0..100).collect();
    /// let (mut values, mut hits) = ([0; 100], [0; 2]);
    /// writer.reader().lookup_all(&keys, &mut values, &mut hits);
    /// assert_eq!((hits, values[70]), ([0, 1 << 6], 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn lookup_all(&self, keys: &[K], values: &mut [V], hits: &mut [u64]) {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.all)(&self.table.view(), keys, values, hits) }
    }

    /// Prefetches the home lines of keys for a later [`Reader::lookup`], or for the first burst of
    /// [`Reader::lookup_batch_ahead`].
    #[inline]
    pub fn prefetch(&self, keys: &[K]) {
        for &key in keys {
            self.table.prefetch(self.table.candidates(key).home);
        }
    }

    /// Returns the number of entries at some recent instant.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the table had no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Returns the bytes of the table's buckets.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the pages that the table lies on. Reads a file of the kernel: not for the packet
    /// path.
    pub fn huge_pages(&self) -> HugePages {
        self.table.huge_pages()
    }

    /// Returns whether lookups prefetch only into the second-level cache.
    pub fn prefetches_far(&self) -> bool {
        self.table.far
    }

    /// Returns the instruction set of the lookups.
    pub fn isa(&self) -> Isa {
        self.table.isa
    }
}

const _: () = assert!(BURST_MAX == u64::BITS as usize);

impl<K: Key, V: Value> core::fmt::Debug for Reader<K, V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reader").field("len", &self.len()).field("slots", &self.slots()).finish()
    }
}
