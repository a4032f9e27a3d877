//! The slots of a cache: the memory and the kernels that read it.
//!
//! Single slots are accessed through ordinary checked slices; only the kernels use raw pointers.
//! [`Table::new`] establishes their preconditions.

#![allow(unsafe_code)] // The calls of the probe kernels.

use core::marker::PhantomData;

use super::config::{BUCKETS_MAX, Config, Size};
use super::error::CacheError;
use super::geometry::Geometry;
use super::layout::Layout;
use super::probes::Probes;
use super::simd::{Kernels, Scan, View};
use crate::hash::Hash64;
use crate::isa::Isa;
use crate::memory::{HugePages, Memory};

/// Place of a slot: its bucket (buffer buckets follow the others) and its number in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) bucket: usize,
    pub(crate) index: usize,
}

/// Contents of a slot; the fingerprint 0 means empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<V> {
    pub(crate) fingerprint: u16,
    pub(crate) value: V,
}

pub struct Table<G, L> {
    memory: Memory,
    buckets: usize,
    /// Occupied slots, buffer buckets included. Maintained by [`FlowCache`](super::FlowCache).
    pub(crate) len: usize,
    kernels: Kernels,
    isa: Isa,
    far: bool,
    types: PhantomData<(G, L)>,
}

impl<G, L> Clone for Table<G, L> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), types: PhantomData, ..*self }
    }
}

impl<G: Geometry, L: Layout> Table<G, L> {
    const STRIDE: usize = G::SLOTS * L::SLOT_BYTES;

    pub(crate) fn new(config: &Config) -> Result<Self, CacheError> {
        let buckets = match config.size {
            Size::Buckets(0) | Size::Entries(0) => return Err(CacheError::Empty),
            Size::Buckets(buckets) => buckets,
            Size::Entries(entries) => entries.div_ceil(G::SLOTS).max(G::BUCKETS_MIN),
        };
        if buckets < G::BUCKETS_MIN {
            let geometry = G::KIND.name();
            return Err(CacheError::TooFewBuckets { geometry, buckets, min: G::BUCKETS_MIN });
        }
        if buckets > BUCKETS_MAX {
            return Err(CacheError::TooManyBuckets { buckets, max: BUCKETS_MAX });
        }
        let bytes = (buckets + G::BUFFER_BUCKETS)
            .checked_mul(Self::STRIDE)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(CacheError::SizeOverflow { buckets, bucket_bytes: Self::STRIDE })?;
        let isa = Isa::choose(config.isa)?;
        let far = config.prefetch.is_far(bytes);
        let kernels = Kernels::of::<G, L>(isa, far)?;
        let memory = Memory::zeroed(bytes)?;
        Ok(Self { memory, buckets, len: 0, kernels, isa, far, types: PhantomData })
    }

    /// Returns the number of home buckets, without buffer buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// Returns the slots of the home buckets, which policies count with.
    #[inline(always)]
    pub(crate) fn home_slots(&self) -> usize {
        self.buckets * G::SLOTS
    }

    /// Returns the number of slots, those of buffer buckets included.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.buckets_with_buffer() * G::SLOTS
    }

    pub(crate) fn buckets_with_buffer(&self) -> usize {
        self.buckets + G::BUFFER_BUCKETS
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    pub(crate) fn prefetches_far(&self) -> bool {
        self.far
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        self.memory.huge_pages()
    }

    #[inline(always)]
    fn view(&self) -> View {
        View { base: self.memory.as_ptr(), buckets: self.buckets }
    }

    /// Returns whether a probe reads second buckets only if the first have no match.
    #[inline(always)]
    fn roomy(&self) -> bool {
        G::KIND.home_first_fifths() > 0
            && self.len * 5 <= self.home_slots() * G::KIND.home_first_fifths()
    }

    #[inline(always)]
    pub(crate) fn probe(&self, hashes: &[Hash64], next: Option<&[Hash64]>, out: &mut Probes) {
        let probe = if self.roomy() { self.kernels.probe_home_first } else { self.kernels.probe };
        // SAFETY: `new` allocated (buckets + BUFFER_BUCKETS) × STRIDE bytes for this G and L, with
        // at least BUCKETS_MIN buckets, and `Kernels::of` gave kernels for this G and L only
        // because the CPU has the instruction set.
        unsafe { probe(self.view(), hashes, next, out) }
    }

    #[inline(always)]
    pub(crate) fn scan(&self, hash: Hash64) -> Scan {
        // SAFETY: as in `probe`.
        unsafe { (self.kernels.scan)(self.view(), hash) }
    }

    /// Returns the place of a hash's candidate slot; numbers past the last one wrap.
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: Hash64, slot: usize) -> Place {
        let slot = slot & (G::CANDIDATES - 1);
        Place { bucket: G::bucket(hash, self.buckets, slot / G::SLOTS), index: slot % G::SLOTS }
    }

    #[inline(always)]
    fn fingerprint_offset(slot: Place) -> usize {
        slot.bucket * Self::STRIDE + slot.index * 2
    }

    #[inline(always)]
    fn value_offset(slot: Place) -> usize {
        slot.bucket * Self::STRIDE + G::SLOTS * 2 + slot.index * L::VALUE_BYTES
    }

    #[inline(always)]
    pub(crate) fn fingerprint(&self, slot: Place) -> u16 {
        let at = Self::fingerprint_offset(slot);
        let bytes = &self.memory.bytes()[at..at + 2];
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    #[inline(always)]
    pub(crate) fn value(&self, slot: Place) -> L::Value {
        let at = Self::value_offset(slot);
        L::load(&self.memory.bytes()[at..at + L::VALUE_BYTES])
    }

    #[inline(always)]
    pub(crate) fn entry(&self, slot: Place) -> Entry<L::Value> {
        Entry { fingerprint: self.fingerprint(slot), value: self.value(slot) }
    }

    #[inline(always)]
    pub(crate) fn set_fingerprint(&mut self, slot: Place, fingerprint: u16) {
        let at = Self::fingerprint_offset(slot);
        self.memory.bytes_mut()[at..at + 2].copy_from_slice(&fingerprint.to_le_bytes());
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, slot: Place, entry: Entry<L::Value>) {
        self.set_fingerprint(slot, entry.fingerprint);
        let at = Self::value_offset(slot);
        L::store(entry.value, &mut self.memory.bytes_mut()[at..at + L::VALUE_BYTES]);
    }

    /// Bubbles: swaps the entry with the one of the next higher priority in its bucket, if the slot
    /// still holds `fingerprint` and is not the first.
    #[inline(always)]
    pub(crate) fn promote(&mut self, slot: Place, fingerprint: u16) {
        if slot.index == 0 {
            return;
        }
        // Neighbours in memory: one load, one rotation and one store swap both fingerprints, and
        // the same again both values.
        let above = Place { index: slot.index - 1, ..slot };
        let at = Self::fingerprint_offset(above);
        let Some(pair) = self.memory.bytes_mut()[at..].first_chunk_mut::<4>() else { return };
        let both = u32::from_le_bytes(*pair);
        if (both >> 16) as u16 != fingerprint {
            return;
        }
        *pair = both.rotate_left(16).to_le_bytes();
        let at = Self::value_offset(above);
        L::exchange(&mut self.memory.bytes_mut()[at..at + 2 * L::VALUE_BYTES]);
    }

    /// Empties all slots.
    pub(crate) fn clear(&mut self) {
        self.memory.bytes_mut().fill(0);
    }
}
