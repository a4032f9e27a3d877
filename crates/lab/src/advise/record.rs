//! The advice as a record: what `--format json` prints and the page is made of.

use super::profile::Profile;
use overbank::cache::{Design, PolicyKind};
use serde::Serialize;

/// Name and version of the JSON document.
pub const SCHEMA: &str = "overbank-advise/1";

/// What traffic costs, in nanoseconds a packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// A packet that the cache knows.
    pub hit_ns: f64,
    /// What a packet costs more that it does not know.
    pub miss_ns: f64,
    /// What a hit costs more with any policy but random eviction.
    pub promote_ns: f64,
    /// What a lookup costs more in cuckoo-lite, whose second bucket lies elsewhere.
    pub second_line_ns: f64,
}

impl Default for Costs {
    /// As measured by `overbank replay` (docs/results.md): 22 ns a hit and 75 ns a miss with a
    /// million flows, 2 to 3 ns for PBLRU, 1 ns for cuckoo-lite.
    fn default() -> Self {
        Costs { hit_ns: 22.0, miss_ns: 53.0, promote_ns: 2.5, second_line_ns: 1.0 }
    }
}

impl Costs {
    /// Estimated time a packet.
    pub fn estimate(&self, design: Design, hit_rate: f64) -> f64 {
        let policy = if design.policy() == PolicyKind::Random { 0.0 } else { self.promote_ns };
        let far = design.geometry().name().starts_with("cuckoo");
        let far = if far { self.second_line_ns } else { 0.0 };
        self.hit_ns + policy * hit_rate + far + (1.0 - hit_rate) * self.miss_ns
    }
}

/// Where the traffic is from.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrafficSource {
    /// A capture.
    Capture {
        /// Its file name.
        file: String,
        /// Ethernet frames.
        frames: u64,
        /// Packets left out because they are not Ethernet.
        skipped: u64,
        /// Frames too short to have a flow.
        broken: u64,
    },
    /// A live sample.
    Live {
        /// Network interface.
        interface: String,
        /// Seconds listened.
        seconds: f64,
        /// Frames taken.
        frames: u64,
        /// Frames that the kernel had to drop.
        missed: u64,
        /// Frames too short to have a flow.
        broken: u64,
    },
    /// Drawn from a law.
    BuiltIn {
        /// Flows.
        flows: u32,
        /// Zipf skew; 0 is uniform.
        theta: f64,
    },
}

/// Everything found out.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of Overbank.
    pub version: &'static str,
    /// What was looked at.
    pub traffic: TrafficSource,
    /// What it is like.
    pub profile: Profile,
    /// What a packet is taken to cost.
    pub costs: Costs,
    /// Seed of evictions.
    pub seed: u64,
    /// Every design at every size.
    pub cells: Vec<Cell>,
    /// What to configure.
    pub recommendation: Recommendation,
    /// Where and why the model is off.
    pub model: ModelReview,
}

/// A design at a size.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Its name.
    pub design: String,
    /// Slots.
    pub entries: usize,
    /// Bytes, with 16-bit values.
    pub table_bytes: usize,
    /// Flows over slots.
    pub alpha: f64,
    /// Hit rate by the model, 0 to 1; `null` where there is none (policies other than random
    /// eviction, `blp-4-4`).
    pub predicted: Option<f64>,
    /// Hit rate of the real table, 0 to 1.
    pub measured: f64,
    /// Estimated nanoseconds a packet.
    pub ns_per_packet: f64,
}

/// What to configure.
#[derive(Clone, Debug, Serialize)]
pub struct Recommendation {
    /// The design.
    pub design: String,
    /// Slots.
    pub entries: usize,
    /// Bytes.
    pub table_bytes: usize,
    /// Hit rate of the real table.
    pub hit_rate: f64,
    /// Estimated nanoseconds a packet.
    pub ns_per_packet: f64,
    /// Why, in a sentence.
    pub reason: String,
}

/// The model beside the tables.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReview {
    /// Cells with a prediction.
    pub cells: usize,
    /// Those of them within one point.
    pub within_a_point: usize,
    /// The cell that is farthest off.
    pub worst: Option<Departure>,
    /// What is the matter, in sentences.
    pub notes: Vec<String>,
}

/// A cell that departs from the model.
#[derive(Clone, Debug, Serialize)]
pub struct Departure {
    /// Its design.
    pub design: String,
    /// Its slots.
    pub entries: usize,
    /// Hit rate by the model.
    pub predicted: f64,
    /// Hit rate measured.
    pub measured: f64,
    /// Hit rate measured with the same packets in random order (traces only).
    pub shuffled: Option<f64>,
}
