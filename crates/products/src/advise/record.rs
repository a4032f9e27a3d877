//! The advice as a record: what `--format json` prints and the page is made of. docs/advise-json.md
//! says what each field means.

use super::profile::Profile;
use crate::TrafficSource;
use overbank::cache::{Design, HalfBubble, PolicyKind};
use serde::Serialize;

pub const SCHEMA: &str = "overbank-advise/1";

/// What traffic costs, in nanoseconds a packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// A packet that the cache knows.
    pub hit_ns: f64,
    /// What a packet costs more that it does not know.
    pub miss_ns: f64,
    /// What a hit costs more with PBLRU.
    pub promote_ns: f64,
    /// What a hit costs more with bubble LRU and DC-Bubble.
    pub bubble_ns: f64,
    /// What a hit costs more with half-bubble, where that orders: in a full table, with skew.
    pub half_bubble_ns: f64,
    /// What a lookup costs more in cuckoo-lite without much room, which reads a second line
    /// elsewhere.
    pub second_line_ns: f64,
    /// Whether the costs of policies and of the second line were measured here, at the start.
    pub calibrated: bool,
}

impl Default for Costs {
    /// As measured on 2026-11-21 on an AMD EPYC with AVX-512: a hit and a miss by `overbank replay`
    /// with a million flows (docs/results.md), the others by the lab's grid in 4 MiB.
    fn default() -> Self {
        Costs {
            hit_ns: 22.0,
            miss_ns: 53.0,
            promote_ns: 1.6,
            bubble_ns: 4.0,
            half_bubble_ns: 1.4,
            second_line_ns: 0.6,
            calibrated: false,
        }
    }
}

/// How a table ended up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    pub hit_rate: f64,
    /// Entries over slots.
    pub full: f64,
    /// Whether all flows are about as popular.
    pub even: bool,
}

impl Costs {
    pub fn estimate(&self, design: Design, state: State) -> f64 {
        let State { hit_rate, full, even } = state;
        let room = 1.0 - 1.0 / HalfBubble::ROOM as f64;
        let nearly_all = 1.0 - 1.0 / HalfBubble::MISSES as f64;
        let promotion = match design.policy() {
            PolicyKind::Random => 0.0,
            PolicyKind::HalfBubble if full < room || even || hit_rate > nearly_all => 0.0,
            PolicyKind::HalfBubble => self.half_bubble_ns,
            PolicyKind::Pblru { .. } => self.promote_ns,
            PolicyKind::Bubble | PolicyKind::DcBubble => self.bubble_ns,
        };
        let fifths = design.geometry().home_first_fifths();
        let two_lines = fifths > 0 && full * 5.0 > fifths as f64;
        let second = if two_lines { self.second_line_ns } else { 0.0 };
        self.hit_ns + promotion * hit_rate + second + (1.0 - hit_rate) * self.miss_ns
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    pub schema: &'static str,
    pub version: &'static str,
    pub traffic: TrafficSource,
    pub profile: Profile,
    pub costs: Costs,
    /// Seed of drawn flows, of their hashes and of evictions.
    pub seed: u64,
    pub cells: Vec<Cell>,
    pub recommendation: Recommendation,
    pub model: ModelReview,
    /// Ended early: designs and sizes are missing.
    pub interrupted: bool,
}

/// A design at a size.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub design: String,
    pub entries: usize,
    /// Bytes, with 16-bit values.
    pub table_bytes: usize,
    pub alpha: f64,
    /// Hit rate by the model, 0 to 1; `null` where there is none: policies other than random
    /// eviction, unless all flows are as popular. Even then none for those that promote on each hit
    /// in tables with several buckets a key, where α is near 1.
    pub predicted: Option<f64>,
    /// How far `measured` may be from `predicted` by luck: three standard
    /// deviations of the luck that one set of keys has in a table of this size, at least 0.01.
    pub tolerance: f64,
    /// Hit rate of the real table, 0 to 1.
    pub measured: f64,
    /// Estimated nanoseconds a packet: of a cell that was tried by its trial, of others by
    /// [`Costs`].
    pub ns_per_packet: f64,
    /// Nanoseconds of a lookup of the table alone if it was tried, else `null`.
    pub lookup_ns: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Recommendation {
    pub design: String,
    pub entries: usize,
    pub table_bytes: usize,
    pub hit_rate: f64,
    pub ns_per_packet: f64,
    pub reason: String,
}

/// The model beside the tables.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReview {
    pub cells: usize,
    pub within_a_point: usize,
    /// Those within [`Cell::tolerance`]: a point, or in small tables what luck may do.
    pub within_tolerance: usize,
    pub worst: Option<Departure>,
    pub notes: Vec<String>,
}

/// A cell that departs from the model.
#[derive(Clone, Debug, Serialize)]
pub struct Departure {
    pub design: String,
    pub entries: usize,
    pub predicted: f64,
    pub measured: f64,
    /// Hit rate measured with the same packets in random order (traces only).
    pub shuffled: Option<f64>,
}
