//! What a machine is built of: sizes, latencies, options; and which shapes cannot be built.
//!
//! ```text
//! core ─ TLB ─ L1 ─ [L2] ─ LLC (with SDC) ─ DRAM        a line is 64 bytes everywhere
//! ```
//!
//! Latencies add up, as in gem5's classic caches: a load from the LLC takes L1's cycles, L2's where
//! there is one, and the LLC's. An SDC operation goes to the LLC directly and takes
//! [`SdcShape::cycles`] in all (paper, table 2).

use serde::{Deserialize, Serialize};

/// Bytes of a cache line.
pub const LINE: u64 = 64;
/// Most bytes of one cache.
pub const BYTES_MAX: u64 = 1 << 30;
/// Most ways of a cache or a TLB.
pub const WAYS_MAX: u32 = 1024;
/// Most ways of a last-level cache with SDC.
pub const SDC_WAYS_MAX: u32 = 64;
/// Most bits of a slot's sub-tag.
pub const SUB_TAG_MAX: u32 = 8;

/// A machine to be built by [`Machine::new`](crate::Machine::new).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The first-level data cache. Without it the LLC is the first level (for `sdc1`).
    pub l1: Option<Level>,
    /// A second level between L1 and the LLC.
    pub l2: Option<Level>,
    /// The last-level cache, in which SDC lives.
    pub llc: Level,
    /// `None`: a regular machine.
    pub sdc: Option<SdcShape>,
    /// Translations and walks.
    pub tlb: TlbShape,
    /// Banks, rows and their latencies.
    pub dram: DramShape,
    /// Cycles a nanosecond.
    pub ghz: f64,
    /// Cycles of computing an access, besides its latency: from callgrind's count of instructions
    /// of the same code.
    pub base_cycles: f64,
    /// Which misses wait together.
    pub overlap: OverlapShape,
    /// Counts accesses to each 8-byte slot of each line of the first level
    /// ([`Machine::heat`](crate::Machine::heat)). Slower.
    pub heat: bool,
    /// Seed of the program that runs here, for its record. The machine draws no random numbers.
    pub seed: u64,
}

/// A set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// 64 × ways × a power of two.
    pub bytes: u64,
    /// Lines of a set: 1 to 1024.
    pub ways: u32,
    /// Cycles that a lookup here adds.
    pub cycles: u32,
}

/// The software defined cache (paper, §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdcShape {
    /// Bits of a slot's sub-tag, family segment included: 0 to 8.
    pub sub_tag_bits: u32,
    /// Most lines of a family: 1, 2, 4 or 8.
    pub family: u32,
    /// Bits of a process number: 0 to 8.
    pub process_bits: u32,
    /// Slots a line: 8; or 1, where each value takes a whole line (the third machine of `sdc8`).
    pub slots: u32,
    /// Cycles of an operation: 22 of the LLC, 5 of hashing, 2 more (table 2).
    pub cycles: u32,
}

/// Translations of pages, and the walk after a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbShape {
    /// Ways × a power of two.
    pub entries: u32,
    /// As many as `entries`: fully associative.
    pub ways: u32,
    /// 4 KiB or 2 MiB, for example.
    pub page_bytes: u64,
    /// Levels of the page table, each an access below L1: 0 to 5.
    pub walk_levels: u32,
}

/// Memory behind the LLC; rows stay open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DramShape {
    /// A power of two, at most 4096.
    pub banks: u32,
    /// A power of two, 64 to 1 MiB.
    pub row_bytes: u64,
    /// The bank's open row is the wanted one.
    pub hit_ns: f64,
    /// The bank has no open row.
    pub closed_ns: f64,
    /// The bank has another row open.
    pub conflict_ns: f64,
}

/// Which misses wait together in [`Mode::Overlap`](crate::Mode::Overlap).
///
/// The machine sees addresses and no dependences. A pointer is followed out of the object that
/// holds it, while the lines of one object can be fetched together. So a miss joins the misses
/// before it if it is near them in time *and* in place: the group then waits for its longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlapShape {
    /// Most misses of a group.
    pub misses: u32,
    /// Accesses after a group's first miss within which others may join.
    pub window: u32,
    /// Most lines between a miss and the group's previous one; `u64::MAX`: any.
    pub reach_lines: u64,
}

impl Shape {
    /// Returns the paper's regular machine (§3.1, table 2; TLB and DRAM as gem5 has them).
    pub fn paper() -> Shape {
        Shape {
            l1: Some(Level { bytes: 32 << 10, ways: 8, cycles: 3 }),
            l2: None,
            llc: Level { bytes: 3 << 20, ways: 12, cycles: 22 },
            sdc: None,
            tlb: TlbShape { entries: 64, ways: 64, page_bytes: 4 << 10, walk_levels: 4 },
            dram: DramShape::ddr3(),
            ghz: 2.5,
            base_cycles: 1.0,
            overlap: OverlapShape { misses: 4, window: 32, reach_lines: 8 },
            heat: false,
            seed: 1,
        }
    }

    /// Returns the paper's machine with SDC: families of 4, sub-tags of 5 bits.
    ///
    /// Table 2 has sub-tags of 3 bits at family 4; by figure 11 it is 3 at family 1 and one more at
    /// each doubling.
    pub fn paper_sdc() -> Shape {
        Shape { sdc: Some(SdcShape::paper()), ..Shape::paper() }
    }

    /// Returns a machine of today: 1 MiB of L2, 32 MiB of LLC, DDR5, huge pages.
    pub fn modern() -> Shape {
        Shape {
            l1: Some(Level { bytes: 32 << 10, ways: 8, cycles: 4 }),
            l2: Some(Level { bytes: 1 << 20, ways: 16, cycles: 10 }),
            llc: Level { bytes: 32 << 20, ways: 16, cycles: 36 },
            tlb: TlbShape { entries: 2048, ways: 16, page_bytes: 2 << 20, walk_levels: 3 },
            dram: DramShape::ddr5(),
            ghz: 4.0,
            ..Shape::paper()
        }
    }

    /// Returns the machine of today with SDC; an operation takes the way through L1, L2 and LLC
    /// and the paper's 7 cycles more.
    pub fn modern_sdc() -> Shape {
        Shape { sdc: Some(SdcShape { cycles: 57, ..SdcShape::paper() }), ..Shape::modern() }
    }
}

impl SdcShape {
    /// Returns the paper's: families of 4, sub-tags of 5 bits, 8 processes, 29 cycles.
    pub fn paper() -> SdcShape {
        SdcShape { sub_tag_bits: 5, family: 4, process_bits: 3, slots: 8, cycles: 29 }
    }
}

impl DramShape {
    /// Returns DDR3-1600, 8 banks of 8 KiB rows.
    ///
    /// As gem5 counts: 20 ns on the way, 13.75 each to precharge, to activate and to read, 5 for
    /// the burst.
    pub fn ddr3() -> DramShape {
        DramShape { banks: 8, row_bytes: 8 << 10, hit_ns: 39.0, closed_ns: 52.5, conflict_ns: 66.0 }
    }

    /// Returns DDR5-4800 (CL 40), 32 banks of 8 KiB rows: by the same sum, 20 ns on the way, 16.67
    /// each to precharge, to activate and to read, 3.33 for the burst.
    pub fn ddr5() -> DramShape {
        DramShape {
            banks: 32,
            row_bytes: 8 << 10,
            hit_ns: 40.0,
            closed_ns: 56.7,
            conflict_ns: 73.3,
        }
    }
}

/// Why a shape cannot be built; the message says what would be right.
#[allow(missing_docs)] // Each one's message says it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    #[error("{level}: {bytes} bytes, {ways} ways: bytes must be 64 x ways x a power of two")]
    Sets { level: &'static str, bytes: u64, ways: u32 },
    #[error("{level}: {bytes} bytes: must be at most {BYTES_MAX}")]
    Bytes { level: &'static str, bytes: u64 },
    #[error("{level}: {ways} ways: must be between 1 and {WAYS_MAX}")]
    Ways { level: &'static str, ways: u32 },
    #[error("l2 without l1: give an l1, or leave the l2 out")]
    NoL1,
    #[error("sdc: {0} ways of the llc: must be at most {SDC_WAYS_MAX}")]
    SdcWays(u32),
    #[error(
        "sdc: family of {family} lines: must be 1, 2, 4 or 8 and at most the llc's {ways} ways"
    )]
    Family { family: u32, ways: u32 },
    #[error("sdc: sub-tag of {0} bits: must be between 0 and {SUB_TAG_MAX}")]
    SubTag(u32),
    #[error("sdc: process number of {0} bits: must be between 0 and 8")]
    Process(u32),
    #[error("sdc: {0} slots a line: must be 8, or 1 (a value takes a whole line)")]
    Slots(u32),
    #[error("tlb: {entries} entries, {ways} ways: entries must be ways x a power of two")]
    TlbSets { entries: u32, ways: u32 },
    #[error("tlb: pages of {0} bytes: must be a power of two between 4096 and 1 GiB")]
    Page(u64),
    #[error("tlb: a walk of {0} levels: must be between 0 and 5")]
    Walk(u32),
    #[error("dram: {0} banks: must be a power of two between 1 and 4096")]
    Banks(u32),
    #[error("dram: rows of {0} bytes: must be a power of two between 64 and 1 MiB")]
    Row(u64),
    #[error("{name}: {value}: must be a number above zero and at most 1000")]
    Positive { name: &'static str, value: f64 },
    #[error("{name}: {value}: must be a number between 0 and 1000000")]
    Number { name: &'static str, value: f64 },
    #[error("overlap: {0} misses at once: must be at least 1")]
    Overlap(u32),
}

impl Level {
    pub(crate) fn check(&self, level: &'static str) -> Result<(), Refused> {
        let Level { bytes, ways, .. } = *self;
        if !(1..=WAYS_MAX).contains(&ways) {
            return Err(Refused::Ways { level, ways });
        }
        if bytes > BYTES_MAX {
            return Err(Refused::Bytes { level, bytes });
        }
        let set = LINE * u64::from(ways);
        if !bytes.is_multiple_of(set) || !(bytes / set).is_power_of_two() {
            return Err(Refused::Sets { level, bytes, ways });
        }
        Ok(())
    }

    /// Returns the number of sets of a level that can be built.
    pub fn sets(&self) -> usize {
        (self.bytes / LINE / u64::from(self.ways.max(1))) as usize
    }
}

impl Shape {
    /// Fails with the first field that cannot be built.
    pub fn check(&self) -> Result<(), Refused> {
        if let Some(l1) = &self.l1 {
            l1.check("l1")?;
        }
        if let Some(l2) = &self.l2 {
            l2.check("l2")?;
            if self.l1.is_none() {
                return Err(Refused::NoL1);
            }
        }
        self.llc.check("llc")?;
        if let Some(sdc) = &self.sdc {
            sdc.check(self.llc.ways)?;
        }
        self.tlb.check()?;
        self.dram.check()?;
        if !(self.ghz > 0.0 && self.ghz <= 1000.0) {
            return Err(Refused::Positive { name: "ghz", value: self.ghz });
        }
        number("base_cycles", self.base_cycles)?;
        if self.overlap.misses == 0 {
            return Err(Refused::Overlap(0));
        }
        Ok(())
    }
}

impl SdcShape {
    pub(crate) fn check(&self, ways: u32) -> Result<(), Refused> {
        if ways > SDC_WAYS_MAX {
            return Err(Refused::SdcWays(ways));
        }
        if !matches!(self.family, 1 | 2 | 4 | 8) || self.family > ways {
            return Err(Refused::Family { family: self.family, ways });
        }
        if self.sub_tag_bits > SUB_TAG_MAX {
            return Err(Refused::SubTag(self.sub_tag_bits));
        }
        if self.process_bits > 8 {
            return Err(Refused::Process(self.process_bits));
        }
        if !matches!(self.slots, 1 | 8) {
            return Err(Refused::Slots(self.slots));
        }
        Ok(())
    }
}

impl TlbShape {
    fn check(&self) -> Result<(), Refused> {
        let TlbShape { entries, ways, page_bytes, walk_levels } = *self;
        if !(1..=WAYS_MAX).contains(&ways) {
            return Err(Refused::Ways { level: "tlb", ways });
        }
        let sets = entries / ways;
        if sets * ways != entries || !sets.is_power_of_two() || entries > 1 << 20 {
            return Err(Refused::TlbSets { entries, ways });
        }
        if !page_bytes.is_power_of_two() || !(4096..=1 << 30).contains(&page_bytes) {
            return Err(Refused::Page(page_bytes));
        }
        if walk_levels > 5 {
            return Err(Refused::Walk(walk_levels));
        }
        Ok(())
    }
}

impl DramShape {
    fn check(&self) -> Result<(), Refused> {
        if !self.banks.is_power_of_two() || self.banks > 4096 {
            return Err(Refused::Banks(self.banks));
        }
        if !self.row_bytes.is_power_of_two() || !(64..=1 << 20).contains(&self.row_bytes) {
            return Err(Refused::Row(self.row_bytes));
        }
        number("dram.hit_ns", self.hit_ns)?;
        number("dram.closed_ns", self.closed_ns)?;
        number("dram.conflict_ns", self.conflict_ns)
    }
}

fn number(name: &'static str, value: f64) -> Result<(), Refused> {
    if (0.0..=1e6).contains(&value) { Ok(()) } else { Err(Refused::Number { name, value }) }
}
