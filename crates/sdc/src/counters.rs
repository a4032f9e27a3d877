//! What a machine has counted since it was built or last restarted.

use serde::{Deserialize, Serialize};

/// Events by kind and by cause.
///
/// `l1`, `l2` and `llc` count the program's accesses alone; walks of the page table are counted by
/// `walk`, writebacks by `writebacks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Lines touched by loads and stores.
    pub accesses: u64,
    /// Those of them that write.
    pub stores: u64,
    /// Zero where the machine has no L1.
    pub l1: HitMiss,
    pub l2: HitMiss,
    pub llc: HitMiss,
    /// Each one a walk.
    pub tlb_misses: u64,
    pub walk: Walk,
    /// Reads of a line, by programs and by walks.
    pub dram: Rows,
    pub writebacks: Writebacks,
    /// Cycles given to [`Machine::work`](crate::Machine::work).
    pub work: u64,
    pub sdc: SdcCounters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitMiss {
    pub hits: u64,
    pub misses: u64,
}

/// Accesses to entries of the page table, by where they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    pub l2: u64,
    pub llc: u64,
    pub dram: u64,
}

/// Reads of DRAM by the state of the bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    pub hits: u64,
    pub closed: u64,
    pub conflicts: u64,
}

impl Rows {
    /// Returns the reads of any outcome.
    pub fn reads(&self) -> u64 {
        self.hits + self.closed + self.conflicts
    }
}

/// Modified lines that were evicted, by the level that evicted them; the LLC's go to DRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writebacks {
    pub l1: u64,
    pub l2: u64,
    pub llc: u64,
}

/// What SDC did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdcCounters {
    pub lookups: u64,
    /// Lookups that returned a value, right or wrong.
    pub hits: u64,
    /// Hits that the program reported as another key's
    /// ([`Machine::false_hit`](crate::Machine::false_hit)).
    pub false_hits: u64,
    pub inserts: u64,
    pub invalidations: u64,
    /// Operations with a process number or a value length that SDC has not; they do nothing.
    pub refused: u64,
    /// `compared[f]`: lookups that compared the sub-tags of f values (for `sdc13`'s formula).
    pub compared: [u64; 9],
    /// Values put into an invalid slot of the family.
    pub placed_free: u64,
    /// Values for which a line of the set joined the family.
    pub placed_line: u64,
    /// Values put where CLOCK found room.
    pub placed_clock: u64,
    /// Ordinary lines that gave way to a line of SDC.
    pub lines_taken: u64,
    pub evicted: Evicted,
}

/// Values that left SDC, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Replaced by CLOCK.
    pub clock: u64,
    /// Its line was replaced: by an ordinary line, or by one of another family.
    pub line: u64,
    /// A longer value of which CLOCK replaced a part.
    pub overwritten: u64,
    /// Cleared by an insert of an equal sub-tag: an older value of the same key, or another key's.
    pub equal: u64,
    /// Cleared by an invalidation.
    pub invalidated: u64,
}

impl SdcCounters {
    /// Returns the operations that take time.
    pub fn operations(&self) -> u64 {
        self.lookups + self.inserts + self.invalidations
    }
}
