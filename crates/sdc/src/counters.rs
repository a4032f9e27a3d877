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
    /// Zero where the machine has no L2.
    pub l2: HitMiss,
    /// What L1 and L2 missed; all accesses where the machine has neither.
    pub llc: HitMiss,
    /// Each one a walk.
    pub tlb_misses: u64,
    /// Entries of the page table that walks read.
    pub walk: Walk,
    /// Reads of a line, by programs and by walks.
    pub dram: Rows,
    /// Modified lines that left a level.
    pub writebacks: Writebacks,
    /// Cycles given to [`Machine::work`](crate::Machine::work).
    pub work: u64,
    /// All zero where the machine has no SDC.
    pub sdc: SdcCounters,
}

/// The program's accesses to a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitMiss {
    /// Lines that were there.
    pub hits: u64,
    /// Lines that were not.
    pub misses: u64,
}

/// Accesses to entries of the page table, by where they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walk {
    /// Found in the L2.
    pub l2: u64,
    /// Found in the LLC.
    pub llc: u64,
    /// Found in neither.
    pub dram: u64,
}

/// Reads of DRAM by the state of the bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// The wanted row was open.
    pub hits: u64,
    /// No row was open.
    pub closed: u64,
    /// Another row was open.
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
    /// From L1 to the level below.
    pub l1: u64,
    /// From L2 to the LLC.
    pub l2: u64,
    /// From the LLC to DRAM, also where a line of SDC takes the place.
    pub llc: u64,
}

/// What SDC did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdcCounters {
    /// Lookups, hits or not.
    pub lookups: u64,
    /// Lookups that returned a value, right or wrong.
    pub hits: u64,
    /// Hits that the program reported as another key's
    /// ([`Machine::false_hit`](crate::Machine::false_hit)).
    pub false_hits: u64,
    /// Inserts: each one places a value.
    pub inserts: u64,
    /// Invalidations, whether there was a value or not.
    pub invalidations: u64,
    /// Operations with a process number or a value length that SDC has not; they do nothing.
    pub refused: u64,
    /// `compared[f]`: lookups that compared the sub-tags of f values.
    pub compared: [u64; 9],
    /// The same of lookups that met no value of their key: misses and false hits. Each compared
    /// value is another key's, so this is what a formula of false hits starts from.
    pub compared_others: [u64; 9],
    /// Values put into an invalid slot of the family.
    pub placed_free: u64,
    /// Values for which a line of the set joined the family.
    pub placed_line: u64,
    /// Values put where CLOCK found room.
    pub placed_clock: u64,
    /// Ordinary lines that gave way to a line of SDC.
    pub lines_taken: u64,
    /// Inserts that cleared another key's value, whose sub-tag was equal.
    pub thrown_out: u64,
    /// Those of them where that value's insert had cleared one of this key: the two evict each
    /// other.
    pub thrown_back: u64,
    /// `thrown_back_compared[f]`: of these, those whose false hit had compared f values. Its
    /// sub-tag was equal for certain.
    pub thrown_back_compared: [u64; 9],
    /// Values that left, by cause.
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
    /// Cleared by an insert of an equal sub-tag: an older value of the same key, or another key's
    /// ([`SdcCounters::thrown_out`]).
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
