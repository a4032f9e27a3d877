//! The record of a replay: what `--format json` prints and the report is made of.
//! docs/replay-json.md says what each field means.
//!
//! Rates are of the measured rounds; `first_pass` is what happened before, from cold caches on.

use crate::TrafficSource;
use overbank_kit::machine::Machine;
use overbank_switch::datapath::Counters;
use overbank_switch::drop::DropReason;
use serde::Serialize;
use std::collections::BTreeMap;

pub const SCHEMA: &str = "overbank-replay/1";

#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    pub schema: &'static str,
    pub version: &'static str,
    pub machine: Machine,
    pub traffic: TrafficSource,
    pub rules: usize,
    pub settings: Settings,
    pub interrupted: bool,
    /// Digest of (packet index, verdict, output bytes), the same for all designs, as hexadecimal.
    pub digest: String,
    pub digest_packets: u64,
    /// One entry per design, in the order asked for.
    pub designs: Vec<DesignRecord>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Slots asked for in tier 1.
    pub entries: usize,
    pub megaflows: usize,
    pub seed: u64,
    pub loop_packets: u64,
    pub warmup_loops: u64,
    /// Loops of one measured round, unless `seconds` is given.
    pub loops: u64,
    /// Seconds of measurement per design, all rounds together.
    pub seconds: Option<f64>,
    pub rounds: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct DesignRecord {
    pub design: String,
    /// Million packets a second: median of the rounds; `null` if it was not measured.
    pub mpps: Option<f64>,
    pub mpps_min: Option<f64>,
    pub mpps_max: Option<f64>,
    pub ns_per_packet: Option<f64>,
    /// The same of each round; not in the JSON.
    #[serde(skip)]
    pub rounds_ns: Vec<f64>,
    /// Nanoseconds of a packet that tier 1 knows (a line through the medians of bursts).
    pub ns_hit: Option<f64>,
    /// Nanoseconds of a packet that it does not know.
    pub ns_miss: Option<f64>,
    /// Nanoseconds of a lookup in tier 1 alone, in bursts, without the check of what it found.
    pub ns_lookup: Option<f64>,
    /// Hits over lookups in tier 1, 0 to 1, in the measured rounds.
    pub hit_rate: f64,
    /// As in the record of the replay; equal for all designs.
    pub digest: String,
    pub table_bytes: usize,
    /// Whether those lie on 2 MiB pages: "yes", "no", "partly (N MiB)" or "unknown".
    pub huge_pages: String,
    pub slots: usize,
    pub instruction_set: String,
    /// The measured rounds.
    #[serde(flatten)]
    pub totals: Totals,
    /// The time before, from cold caches on.
    pub first_pass: Totals,
}

/// Counters of some stretch of traffic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    pub packets: u64,
    pub microflow: Microflow,
    pub megaflow: Megaflow,
    /// Tier 3: packets that went to the classifier.
    pub classifier_lookups: u64,
    /// Frames that left by no port, by reason; only reasons that occurred.
    pub drops: BTreeMap<&'static str, u64>,
    pub ports: Vec<PortTally>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Microflow {
    pub lookups: u64,
    /// Packets found, after verification.
    pub hits: u64,
    /// Signatures that matched and did not belong to the packet.
    pub false_positives: u64,
    pub inserts: u64,
    /// Those that took the place of an equal fingerprint.
    pub replacements: u64,
    /// Those that took the place of another one.
    pub evictions: u64,
    /// Slots in use at the end.
    pub occupied: usize,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Megaflow {
    pub lookups: u64,
    pub hits: u64,
    /// Subtables searched, all lookups together.
    pub subtables_searched: u64,
    pub subtables_per_lookup: f64,
    /// Megaflows at the end.
    pub megaflows: usize,
    pub masks: usize,
    pub installs: u64,
    /// Megaflows that made room for others.
    pub evictions: u64,
    /// Megaflows removed because they were idle.
    pub expirations: u64,
}

/// What left by one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortTally {
    pub port: u32,
    pub packets: u64,
    /// Bytes, without the frame check sequence.
    pub bytes: u64,
}

impl Totals {
    /// From a datapath's counters. `occupied`, `megaflows` and `masks` are its state at the end.
    pub fn new(
        counters: &Counters,
        occupied: usize,
        megaflows: usize,
        masks: usize,
        ports: &BTreeMap<u32, PortTally>,
    ) -> Totals {
        let (micro, mega) = (&counters.microflow, &counters.megaflow);
        let drops = DropReason::ALL.iter().map(|r| (r.name(), counters.drops[r.index()]));
        Totals {
            packets: counters.packets,
            microflow: Microflow {
                lookups: micro.lookups,
                hits: micro.hits,
                false_positives: micro.false_positives,
                inserts: micro.inserts,
                replacements: micro.replacements,
                evictions: micro.evictions,
                occupied,
            },
            megaflow: Megaflow {
                lookups: mega.lookups,
                hits: mega.hits,
                subtables_searched: mega.subtables_searched,
                subtables_per_lookup: counters.subtables_per_lookup(),
                megaflows,
                masks,
                installs: mega.installs,
                evictions: mega.evictions,
                expirations: mega.expirations,
            },
            classifier_lookups: counters.classifier_lookups,
            drops: drops.filter(|(_, n)| *n > 0).collect(),
            ports: ports.values().copied().collect(),
        }
    }

    pub fn hit_rate(&self) -> f64 {
        match self.microflow.lookups {
            0 => 0.0,
            lookups => self.microflow.hits as f64 / lookups as f64,
        }
    }
}
