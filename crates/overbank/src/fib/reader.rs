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
/// buckets; how it agrees with the writer is on the page of the [module](super).
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

    /// The key's value. One indirect call; [`Reader::lookup_batch`] overlaps the waits for memory.
    #[inline]
    pub fn lookup(&self, key: K) -> Option<V> {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.one)(&self.table.view(), key) }
    }

    /// Looks up a burst of 1 to [`BURST_MAX`] keys. Bit `i` of the answer says whether key `i` has
    /// an entry; its value is then in `values[i]`, which is zero otherwise. Each key is looked up
    /// by itself: the burst is no snapshot.
    ///
    /// Keys past the 64th, or without a place in `values`, are not looked at.
    #[inline]
    pub fn lookup_batch(&self, keys: &[K], values: &mut [V]) -> u64 {
        // SAFETY: the view is of this table, and the kernels were made for its types.
        unsafe { (self.table.kernels.batch)(&self.table.view(), keys, values, None) }
    }

    /// [`Reader::lookup_batch`] for one burst after the other: meanwhile asks for the home lines of
    /// the `next` burst, of which no more than [`BURST_MAX`] keys count. A burst alone waits for
    /// memory at its begin and at its end; this fills the first wait. ([`Reader::lookup_all`] fills
    /// both, for those who have all keys at once.)
    ///
    /// Expects that `keys` were `next` in the call before, or were given to [`Reader::prefetch`]:
    /// it does not ask for their home lines again. Where they were not, the answer is the same and
    /// comes late.
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

    /// Looks up any number of keys, the fastest way where there are many: burst follows burst
    /// inside, and memory is waited for at the begin and at the end only.
    ///
    /// Bit `i % 64` of `hits[i / 64]` becomes whether key `i` has an entry; its value is then in
    /// `values[i]`, which is zero otherwise. Each key is looked up by itself: a list is no
    /// snapshot, and the instants of its keys are in no order.
    ///
    /// Keys without a place in `values` or `hits` are not looked at; words of `hits` that no key
    /// belongs to stay as they are.
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

    /// Asks for the home lines of keys that will be looked up soon: by [`Reader::lookup`], or as
    /// the first burst of [`Reader::lookup_batch_ahead`].
    #[inline]
    pub fn prefetch(&self, keys: &[K]) {
        for &key in keys {
            self.table.prefetch(self.table.candidates(key).home);
        }
    }

    /// The floor of lookups, for experiments: reads one line of the table for each hash and
    /// compares nothing. In bursts of `burst`, 1 to [`BURST_MAX`]: all lines of one are asked for
    /// before its first is read, or, with `ahead`, while those of the burst before it are. Returns
    /// a checksum, so that the reads are not optimised away.
    #[inline(never)]
    pub fn touch(&self, burst: usize, ahead: bool, hashes: &[u64]) -> u64 {
        self.table.touch(burst.clamp(1, BURST_MAX), ahead, hashes)
    }

    /// Lines that the lookup of this key would read if it were absent, for experiments.
    pub fn lines_if_absent(&self, key: K) -> usize {
        let candidates = self.table.candidates(key);
        let marked = self.table.seen_header(candidates.home).marked(candidates.second);
        super::bucket::Bucket::<K, V>::LINES * (1 + usize::from(marked))
    }

    /// Entries, at some time not long ago.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots of the table.
    pub fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Bytes of memory that the table's buckets take.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The pages that the table lies on. Reads a file of the kernel: not for the packet path.
    pub fn huge_pages(&self) -> HugePages {
        self.table.huge_pages()
    }

    /// Whether lookups prefetch into the second-level cache and no further.
    pub fn prefetches_far(&self) -> bool {
        self.table.far
    }

    /// The instruction set of the lookups.
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
