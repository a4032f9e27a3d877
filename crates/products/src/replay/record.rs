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
    pub digest: String,
    pub digest_packets: u64,
    pub designs: Vec<DesignRecord>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub entries: usize,
    pub megaflows: usize,
    pub seed: u64,
    pub loop_packets: u64,
    pub warmup_loops: u64,
    pub loops: u64,
    pub seconds: Option<f64>,
    pub rounds: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct DesignRecord {
    pub design: String,
    pub mpps: Option<f64>,
    pub mpps_min: Option<f64>,
    pub mpps_max: Option<f64>,
    pub ns_per_packet: Option<f64>,
    /// The same of each round; not in the JSON.
    #[serde(skip)]
    pub rounds_ns: Vec<f64>,
    pub ns_hit: Option<f64>,
    pub ns_miss: Option<f64>,
    pub ns_lookup: Option<f64>,
    pub hit_rate: f64,
    pub digest: String,
    pub table_bytes: usize,
    pub huge_pages: String,
    pub slots: usize,
    pub instruction_set: String,
    #[serde(flatten)]
    pub totals: Totals,
    pub first_pass: Totals,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    pub packets: u64,
    pub microflow: Microflow,
    pub megaflow: Megaflow,
    pub classifier_lookups: u64,
    pub drops: BTreeMap<&'static str, u64>,
    pub ports: Vec<PortTally>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Microflow {
    pub lookups: u64,
    pub hits: u64,
    pub false_positives: u64,
    pub inserts: u64,
    pub replacements: u64,
    pub evictions: u64,
    pub occupied: usize,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Megaflow {
    pub lookups: u64,
    pub hits: u64,
    pub subtables_searched: u64,
    pub subtables_per_lookup: f64,
    pub megaflows: usize,
    pub masks: usize,
    pub installs: u64,
    pub evictions: u64,
    pub expirations: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortTally {
    pub port: u32,
    pub packets: u64,
    pub bytes: u64,
}

impl Totals {
    /// Copies a datapath's counters. `occupied`, `megaflows` and `masks` are its state at the end.
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
