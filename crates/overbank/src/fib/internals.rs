//! Hooks for experiments and tests (feature `internals`): what a table hides, and what it does only
//! now and then.

use alloc::vec::Vec;

use super::bucket::{Bucket, CLASSES};
use super::key::{Key, Value};
use super::reader::Reader;
use super::table::BURST_MAX;
use super::writer::Writer;

impl<K: Key, V: Value> Writer<K, V> {
    /// Recounts the [stuck markers](Writer::stuck_markers) and returns how many are right now.
    /// Reads the whole table and allocates: for quiet hours, after the table's contents changed a
    /// thousand times over.
    pub fn recount(&mut self) -> usize {
        let mut counts: Vec<((u32, u32), u64)> = self.stuck().map(|marker| (marker, 0)).collect();
        for bucket in 0..self.table.buckets {
            let header = self.table.header(bucket);
            for slot in (0..Bucket::<K, V>::SLOTS).filter(|&slot| header.has(slot)) {
                let candidates = self.table.candidates(self.table.key(bucket, slot));
                let marker = (candidates.home, candidates.second % CLASSES);
                if bucket == candidates.second
                    && let Ok(at) = counts.binary_search_by_key(&marker, |count| count.0)
                {
                    counts[at].1 += 1;
                }
            }
        }
        for &((bucket, class), count) in &counts {
            self.table.correct(bucket, class, count);
        }
        counts.len() - self.stuck_markers()
    }

    /// Moves up to `moves` random entries to their other bucket, if that has room. Changes nothing
    /// that a reader may see; for tests and experiments beside readers.
    pub fn shuffle(&mut self, moves: usize) {
        for _ in 0..moves {
            let bucket = self.pcg.below(self.table.buckets);
            let slot = self.pcg.below(Bucket::<K, V>::SLOTS as u32) as usize;
            if !self.table.header(bucket).has(slot) {
                continue;
            }
            let candidates = self.table.candidates(self.table.key(bucket, slot));
            if let Some(free) = self.table.free_slot(candidates.other(bucket)) {
                self.stats.second = self.table.displace(bucket, slot, free, self.stats.second);
                self.stats.displaced += 1;
            }
        }
    }

    /// Moves a key to its other bucket, if the key is present and that bucket has room. Changes
    /// nothing that a reader may see.
    pub fn flip(&mut self, key: K) -> bool {
        let candidates = self.table.candidates(key);
        let Some((bucket, slot)) = self.find(candidates, key) else { return false };
        let Some(free) = self.table.free_slot(candidates.other(bucket)) else { return false };
        self.stats.second = self.table.displace(bucket, slot, free, self.stats.second);
        self.stats.displaced += 1;
        true
    }
}

impl<K: Key, V: Value> Reader<K, V> {
    /// Measures the floor of lookups, for experiments: reads one line of the table for each hash
    /// and compares nothing. It works in bursts of `burst`, 1 to [`BURST_MAX`]. All lines of a
    /// burst are prefetched before its first is read, or, with `ahead`, while the previous burst is
    /// read. Returns a checksum, so that the reads are not optimised away.
    #[inline(never)]
    pub fn touch(&self, burst: usize, ahead: bool, hashes: &[u64]) -> u64 {
        self.table.touch(burst.clamp(1, BURST_MAX), ahead, hashes)
    }

    /// Returns the number of lines that the lookup of this key would read if it were absent, for
    /// experiments.
    pub fn lines_if_absent(&self, key: K) -> usize {
        let candidates = self.table.candidates(key);
        let marked = self.table.seen_header(candidates.home).marked(candidates.second);
        super::bucket::Bucket::<K, V>::LINES * (1 + usize::from(marked))
    }
}
