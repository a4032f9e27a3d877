//! The counters of a cache.

/// Event counts since construction or the last reset. They wrap after 2⁶⁴ events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys looked up and reported, by `lookup`, `lookup_batch` and `commit`.
    pub lookups: u64,
    /// Lookups with a verified match.
    pub hits: u64,
    /// Fingerprint matches that verification refused.
    pub false_positives: u64,
    /// Insertions of any outcome.
    pub inserts: u64,
    /// Insertions that replaced an entry with the same fingerprint.
    pub replacements: u64,
    /// Insertions that evicted another entry.
    pub evictions: u64,
    /// Entries removed by `remove`, `retain`, `sweep` and `clear`.
    pub removals: u64,
}

impl Counters {
    /// Returns the number of lookups without a verified match.
    pub fn misses(&self) -> u64 {
        self.lookups.wrapping_sub(self.hits)
    }

    /// Returns hits per lookup, 0 to 1; 0 before the first one.
    pub fn hit_rate(&self) -> f64 {
        if self.lookups == 0 { 0.0 } else { self.hits as f64 / self.lookups as f64 }
    }
}
