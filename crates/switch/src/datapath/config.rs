//! What a datapath is made of, and what it counts.

use crate::drop::DropReason;
use crate::megaflow::{MegaflowCounters, SizeError};
use crate::ports::SwitchPort;
use overbank::cache::{self, Design};
use overbank::isa::Isa;

/// Megaflow capacity up to which 16-bit values in tier 1 are enough.
pub const MEGAFLOWS_16_BIT: usize = 1 << 16;

/// What a datapath is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The signature cache; `None` sends every packet to tier 2.
    pub cache: Option<CacheConfig>,
    /// Most megaflows.
    pub megaflows: usize,
    /// The ports that exist.
    pub ports: Vec<SwitchPort>,
    /// Varies hash functions and random evictions.
    pub seed: u64,
}

/// What tier 1 is made of.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Geometry and policy.
    pub design: Design,
    /// Slots.
    pub entries: usize,
    /// Instruction set; `None` takes the best that the machine has, or what `OVERBANK_SIMD` says.
    pub isa: Option<Isa>,
}

/// Why a datapath cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The signature cache cannot be made.
    #[error("signature cache: {0}")]
    Cache(cache::Error),
    /// The megaflow cache cannot be made.
    #[error("megaflow cache: {0}")]
    Megaflows(SizeError),
}

/// What the datapath did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub packets: u64,
    /// Packets looked up in tier 1, hits, and matches that verification refused.
    pub microflow: cache::Counters,
    /// Tier 2.
    pub megaflow: MegaflowCounters,
    /// Packets that went to the classifier.
    pub classifier_lookups: u64,
    /// Signatures that tier 1 found of megaflows that are stale; they are among those that
    /// verification refused.
    pub stale_signatures: u64,
    /// Packets of controllers, which are not among `packets`; nor are their drops counted here.
    pub packet_outs: u64,
    /// Frames that left by no port and went to no controller, by [`DropReason::index`].
    pub drops: [u64; DropReason::COUNT],
}

impl Counters {
    /// Share of the packets looked up in tier 1 that were found there, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.microflow.hits, self.microflow.lookups)
    }

    /// Subtables searched per lookup in tier 2.
    pub fn subtables_per_lookup(&self) -> f64 {
        ratio(self.megaflow.subtables_searched, self.megaflow.lookups)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
