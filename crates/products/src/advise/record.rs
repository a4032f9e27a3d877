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
    pub hit_ns: f64,
    pub miss_ns: f64,
    pub promote_ns: f64,
    pub bubble_ns: f64,
    pub half_bubble_ns: f64,
    pub second_line_ns: f64,
    pub calibrated: bool,
}

impl Default for Costs {
    /// Returns costs from docs/results.md: a hit and a miss by `overbank replay`
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
            // Bubble, DC-Bubble: each hit.
            _ => self.bubble_ns,
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
    pub seed: u64,
    pub cells: Vec<Cell>,
    pub recommendation: Recommendation,
    pub model: ModelReview,
    pub interrupted: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub design: String,
    pub entries: usize,
    pub table_bytes: usize,
    pub alpha: f64,
    pub predicted: Option<f64>,
    pub tolerance: f64,
    pub measured: f64,
    pub ns_per_packet: f64,
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

#[derive(Clone, Debug, Serialize)]
pub struct ModelReview {
    pub cells: usize,
    pub within_a_point: usize,
    pub within_tolerance: usize,
    pub worst: Option<Departure>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Departure {
    pub design: String,
    pub entries: usize,
    pub predicted: f64,
    pub measured: f64,
    pub shuffled: Option<f64>,
}
