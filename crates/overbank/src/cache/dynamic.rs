//! A cache whose design is chosen at run time.

use alloc::boxed::Box;

use super::counters::Counters;
use super::design::{Design, LayoutKind};
use super::error::ValueTooWide;
use super::flow::{FlowCache, Inserted, Swept};
use super::geometry::{Fingerprint, Geometry};
use super::layout::Layout;
use super::policy::Policy;
use super::probes::{Hits, Probes, Slot, Slots};
use crate::hash::Hash64;
use crate::isa::Isa;
use crate::memory::HugePages;

/// The methods of every [`FlowCache`], without its type parameters; documented there. Made by
/// [`Design::build`].
///
/// Meant to be called per burst: [`probe_batch`](Self::probe_batch), [`Probes::resolve`], then
/// [`commit`](Self::commit). Only the caches of this crate implement it.
pub trait DynCache: sealed::Sealed + Send + Sync {
    /// Returns geometry and policy.
    fn design(&self) -> Design;
    /// Returns the widths of a slot's fields.
    fn layout(&self) -> LayoutKind;
    /// Returns the instruction set of the probes.
    fn isa(&self) -> Isa;
    /// See [`FlowCache::prefetches_far`].
    fn prefetches_far(&self) -> bool;
    /// See [`FlowCache::probe_batch`].
    fn probe_batch(&self, hashes: &[Hash64], out: &mut Probes);
    /// See [`FlowCache::probe_batch_ahead`].
    fn probe_batch_ahead(&self, hashes: &[Hash64], next: &[Hash64], out: &mut Probes);
    /// See [`FlowCache::candidate`].
    fn candidate(&self, hash: Hash64, slot: Slot) -> u32;
    /// See [`FlowCache::matches`].
    fn matches(&self, hash: Hash64) -> Slots;
    /// See [`FlowCache::commit`].
    fn commit(&mut self, hashes: &[Hash64], hits: &Hits<'_>);
    /// See [`FlowCache::lookup`].
    fn lookup(&mut self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
    /// See [`FlowCache::get`].
    fn get(&self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
    /// See [`FlowCache::iter`].
    fn for_each(&self, each: &mut dyn FnMut(Fingerprint, u32));
    /// See [`FlowCache::insert`]; fails if the layout cannot hold the value.
    fn insert(&mut self, hash: Hash64, value: u32) -> Result<Inserted, ValueTooWide>;
    /// See [`FlowCache::remove`].
    fn remove(&mut self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32>;
    /// See [`FlowCache::retain`].
    fn retain(&mut self, keep: &mut dyn FnMut(Fingerprint, u32) -> bool) -> usize;
    /// See [`FlowCache::sweep`].
    fn sweep(
        &mut self,
        start: usize,
        buckets: usize,
        keep: &mut dyn FnMut(Fingerprint, u32) -> bool,
    ) -> Swept;
    /// Removes all entries and hands each out; see [`FlowCache::drain`].
    fn drain(&mut self, each: &mut dyn FnMut(Fingerprint, u32));
    /// See [`FlowCache::clear`].
    fn clear(&mut self);
    /// Copies the cache, as its [`Clone`] does.
    fn boxed(&self) -> Box<dyn DynCache>;
    /// See [`FlowCache::len`].
    fn len(&self) -> usize;
    /// See [`FlowCache::is_empty`].
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// See [`FlowCache::capacity`].
    fn capacity(&self) -> usize;
    /// See [`FlowCache::buckets`].
    fn buckets(&self) -> usize;
    /// See [`FlowCache::candidates`].
    fn candidates(&self) -> usize;
    /// See [`FlowCache::peek`].
    #[cfg(any(test, feature = "internals"))]
    fn peek(&self, bucket: usize, slot: usize) -> Option<(Fingerprint, u32)>;
    /// See [`FlowCache::memory_bytes`].
    fn memory_bytes(&self) -> usize;
    /// See [`FlowCache::huge_pages`].
    fn huge_pages(&self) -> HugePages;
    /// See [`FlowCache::counters`].
    fn counters(&self) -> &Counters;
    /// See [`FlowCache::reset_counters`].
    fn reset_counters(&mut self);
}

impl Clone for Box<dyn DynCache> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

mod sealed {
    pub trait Sealed {}
}

impl<G: Geometry, P: Policy<G>, L: Layout> sealed::Sealed for FlowCache<G, P, L> {}

impl<G: Geometry, P: Policy<G>, L: Layout> DynCache for FlowCache<G, P, L> {
    fn design(&self) -> Design {
        self.design()
    }

    fn layout(&self) -> LayoutKind {
        L::KIND
    }

    fn isa(&self) -> Isa {
        self.isa()
    }

    fn prefetches_far(&self) -> bool {
        self.prefetches_far()
    }

    fn probe_batch(&self, hashes: &[Hash64], out: &mut Probes) {
        self.probe_batch(hashes, out);
    }

    fn probe_batch_ahead(&self, hashes: &[Hash64], next: &[Hash64], out: &mut Probes) {
        self.probe_batch_ahead(hashes, next, out);
    }

    fn candidate(&self, hash: Hash64, slot: Slot) -> u32 {
        self.candidate(hash, slot)
    }

    fn matches(&self, hash: Hash64) -> Slots {
        self.matches(hash)
    }

    fn commit(&mut self, hashes: &[Hash64], hits: &Hits<'_>) {
        self.commit(hashes, hits);
    }

    fn lookup(&mut self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.lookup(hash, verify)
    }

    fn get(&self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.get(hash, verify)
    }

    fn for_each(&self, each: &mut dyn FnMut(Fingerprint, u32)) {
        self.iter().for_each(|(fingerprint, value)| each(fingerprint, value));
    }

    fn insert(&mut self, hash: Hash64, value: u32) -> Result<Inserted, ValueTooWide> {
        let bits = 8 * L::VALUE_BYTES as u32;
        let value = L::Value::try_from(value).map_err(|_| ValueTooWide { value, bits })?;
        Ok(self.insert(hash, value))
    }

    fn remove(&mut self, hash: Hash64, verify: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        self.remove(hash, verify)
    }

    fn retain(&mut self, keep: &mut dyn FnMut(Fingerprint, u32) -> bool) -> usize {
        self.retain(keep)
    }

    fn sweep(
        &mut self,
        start: usize,
        buckets: usize,
        keep: &mut dyn FnMut(Fingerprint, u32) -> bool,
    ) -> Swept {
        self.sweep(start, buckets, keep)
    }

    fn drain(&mut self, each: &mut dyn FnMut(Fingerprint, u32)) {
        self.drain().for_each(|(fingerprint, value)| each(fingerprint, value));
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn boxed(&self) -> Box<dyn DynCache> {
        Box::new(self.clone())
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }

    fn buckets(&self) -> usize {
        self.buckets()
    }

    fn candidates(&self) -> usize {
        G::CANDIDATES
    }

    #[cfg(any(test, feature = "internals"))]
    fn peek(&self, bucket: usize, slot: usize) -> Option<(Fingerprint, u32)> {
        self.peek(bucket, slot)
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn huge_pages(&self) -> HugePages {
        self.huge_pages()
    }

    fn counters(&self) -> &Counters {
        self.counters()
    }

    fn reset_counters(&mut self) {
        self.reset_counters();
    }
}
