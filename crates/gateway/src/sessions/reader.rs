//! A worker's view of the sessions.

use super::keys::Readers;
use crate::slab::{Entry, Slab, Tally};
use overbank_handover::grace::Visitor;
use std::sync::Arc;

/// Reads sessions and counts their packets; one for each worker.
pub struct SessionReader {
    readers: Readers,
    slab: Arc<Slab>,
    tally: Arc<Tally>,
    visitor: Visitor,
}

/// The answers to the keys of a burst.
#[derive(Clone, Copy, Debug)]
pub struct Found<const N: usize> {
    hits: u64,
    values: [u32; N],
}

impl<const N: usize> Found<N> {
    pub(crate) const NONE: Found<N> = Found { hits: 0, values: [0; N] };

    /// Notes what key `index` leads to.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, value: u32) {
        if let Some(place) = self.values.get_mut(index) {
            *place = value;
            self.hits |= 1 << index;
        }
    }

    /// Returns what key `index` leads to.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u32> {
        let hit = self.hits >> index & 1 == 1;
        self.values.get(index).copied().filter(|_| hit)
    }
}

impl SessionReader {
    pub(super) fn new(
        readers: Readers,
        slab: Arc<Slab>,
        tally: Arc<Tally>,
        visitor: Visitor,
    ) -> SessionReader {
        SessionReader { readers, slab, tally, visitor }
    }

    /// Begins a burst: from now on, what is found stays valid.
    #[inline]
    pub fn enter(&mut self) {
        self.visitor.enter();
    }

    /// Ends the burst: what was found is no longer valid.
    #[inline]
    pub fn leave(&mut self) {
        self.visitor.leave();
    }

    /// Looks up tunnels and IPv4 addresses ([`super::keys`]), and IPv6 prefixes; at most 64 each.
    /// Prefetches the sessions that are found, and their counts.
    #[inline]
    pub(crate) fn look_up<const N: usize>(
        &self,
        wide: &[u64],
        six: &[u64],
    ) -> (Found<N>, Found<N>) {
        let (mut of_wide, mut of_six) = (Found::NONE, Found::NONE);
        if !wide.is_empty() {
            of_wide.hits = self.readers.wide.lookup_batch(wide, &mut of_wide.values);
        }
        if !six.is_empty() {
            of_six.hits = self.readers.six.lookup_batch(six, &mut of_six.values);
        }
        for found in [&of_wide, &of_six] {
            let mut hits = found.hits;
            while hits != 0 {
                if let Some(&value) = found.values.get(hits.trailing_zeros() as usize) {
                    self.slab.prefetch(value);
                    self.tally.prefetch(value);
                }
                hits &= hits - 1;
            }
        }
        (of_wide, of_six)
    }

    /// Returns the session that a key led to.
    #[inline]
    pub fn entry(&self, value: u32) -> Option<Entry<'_>> {
        self.slab.entry(value)
    }

    /// Returns this worker's counts.
    #[inline]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}
