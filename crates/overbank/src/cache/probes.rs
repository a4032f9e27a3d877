//! The answer of a batched probe.

/// The most keys of one probe.
pub const BURST: usize = 32;

/// In a list of verdicts for `commit_hits`: this key is not in the cache.
pub const MISS: u8 = u8::MAX;

/// What a probe found for each key of a burst: hints, to be verified by the caller.
///
/// Made once and used for many probes; a probe overwrites the first [`Probes::len`] entries of the
/// arrays and leaves the others as they were.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Probes {
    /// One bit per candidate slot of the key whose fingerprint matches. Almost always no bit or
    /// one; a miss shows a bit with a probability of about candidates / 65536.
    ///
    /// In cuckoo-lite that has room (2, 3 and 4 fifths full with 4, 8 and 16 slots), a second
    /// bucket is looked at only if the first has no match. A key whose entry lies in its second
    /// bucket while another key's lies, with the same fingerprint, in its first (one in thousands
    /// of the few in second buckets) is then taken for a miss;
    /// [`FlowCache::lookup`](super::FlowCache::lookup) and `lookup_batch` look at both.
    pub mask: [u32; BURST],
    /// The value in the first matching slot. Without a match it is some value of the bucket and
    /// means nothing.
    pub value: [u32; BURST],
    /// Bit i: key i has a match (`mask[i] != 0`).
    pub matched: u32,
    /// Keys of this probe.
    pub len: usize,
}

impl Probes {
    /// An answer to no question.
    pub const fn new() -> Self {
        Self { mask: [0; BURST], value: [0; BURST], matched: 0, len: 0 }
    }

    /// The matching candidate slots of key `i`, first to last; none when `i` is out of range.
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

/// The numbers of the bits of a mask, lowest first.
#[derive(Clone, Debug)]
pub struct Slots {
    mask: u32,
}

impl Slots {
    /// Over the bits of `mask`.
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
