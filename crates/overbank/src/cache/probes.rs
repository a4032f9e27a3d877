//! Result of a batched probe.

/// Most keys of one probe.
pub const BURST: usize = 32;

/// In a list for `commit_hits`: the key is not in the cache.
pub const MISS: u8 = u8::MAX;

/// Matches found for each key of a burst: hints, to be verified by the caller.
///
/// Allocated once and used for many probes. A probe overwrites the first [`Probes::len`] entries of
/// the arrays and leaves the others unchanged.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Probes {
    /// One bit per candidate slot of the key whose fingerprint matches. Almost always at most one
    /// bit; a miss shows a bit with a probability of about candidates / 65536.
    ///
    /// In cuckoo-lite with room (up to 2, 3 and 4 fifths full with 4, 8 and 16 slots), a second
    /// bucket is read only if the first has no match. Rarely, another key in the first bucket has
    /// the same fingerprint as an entry in the second; the probe then reports a miss.
    /// [`FlowCache::lookup`](super::FlowCache::lookup) and `lookup_batch` read both.
    pub mask: [u32; BURST],
    /// The value in the first matching slot. Without a match it is some value of the bucket,
    /// without meaning.
    pub value: [u32; BURST],
    /// Bit i: key i has a match (`mask[i] != 0`).
    pub matched: u32,
    /// Number of keys of this probe.
    pub len: usize,
}

impl Probes {
    /// Returns an empty result.
    pub const fn new() -> Self {
        Self { mask: [0; BURST], value: [0; BURST], matched: 0, len: 0 }
    }

    /// Iterates over the matching candidate slots of key `i`, first to last; empty if `i` is out of
    /// range.
    #[inline]
    pub fn slots(&self, i: usize) -> Slots {
        Slots { mask: self.mask.get(i).copied().unwrap_or(0) }
    }
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

/// Iterates over the numbers of a mask's bits, lowest first.
#[derive(Clone, Debug)]
pub struct Slots {
    mask: u32,
}

impl Slots {
    /// Returns an iterator over the bits of `mask`.
    pub(crate) const fn of(mask: u32) -> Self {
        Self { mask }
    }
}

impl Iterator for Slots {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.mask == 0 {
            return None;
        }
        let slot = self.mask.trailing_zeros() as u8;
        self.mask &= self.mask - 1;
        Some(slot)
    }
}
