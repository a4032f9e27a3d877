//! What a cache has seen.

/// Counts since construction or the last reset. They wrap around after 2⁶⁴ events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys looked up and reported: `lookup`, `lookup_batch` and `commit_hits`.
    pub lookups: u64,
    /// Of these, keys whose match held.
    pub hits: u64,
    /// Fingerprint matches that the verification refused.
    pub false_positives: u64,
    /// Insertions of any outcome.
    pub inserts: u64,
    /// Insertions that replaced an entry with the same fingerprint.
    pub replacements: u64,
    /// Insertions that drove another entry out.
    pub evictions: u64,
    /// Entries taken out by `remove`, `retain`, `sweep` and `clear`.
    pub removals: u64,
}

impl Counters {
    /// Lookups that found nothing.
    pub fn misses(&self) -> u64 {
        self.lookups.wrapping_sub(self.hits)
    }

    /// Hits per lookup, 0 before the first one.
    pub fn hit_rate(&self) -> f64 {
        if self.lookups == 0 { 0.0 } else { self.hits as f64 / self.lookups as f64 }
    }
}
