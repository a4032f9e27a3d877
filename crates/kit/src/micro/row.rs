//! What was measured: rows of designs in a cell, their rounds, and the spread of these.

use super::gather::Footing;
use super::{Cell, SLOT_BYTES};
use crate::spread::Spread;
use overbank::cache::Design;
use overbank::memory::HugePages;

/// How one burst after the other is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each by itself, as the papers do it: `probe_batch`.
    Alone,
    /// Each asks for the lines of the next one meanwhile: `probe_batch_ahead`.
    Ahead,
}

impl Way {
    pub const ALL: [Way; 2] = [Way::Alone, Way::Ahead];
}

/// Converts nanoseconds a key to millions of keys a second.
pub(super) fn rate(ns: f64) -> f64 {
    1000.0 / ns
}

/// What a design did in a round; the units are those of [`Row`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    pub probe_ns: f64,
    pub lookup_ns: f64,
    pub whole_ns: f64,
    pub throughput: f64,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub design: Design,
    pub way: Way,
    /// Verified hits per lookup in the measured window.
    pub hit_rate: f64,
    /// Nanoseconds per key of the batched probe alone.
    pub probe_ns: Spread,
    /// Nanoseconds per key of probe, verification and commit.
    pub lookup_ns: Spread,
    /// Nanoseconds per key of all that and the insertion of what missed.
    pub whole_ns: Spread,
    /// Millions of keys a second if each miss costs the penalty on top.
    pub throughput: Spread,
    pub trial: f64,
    pub huge_pages: HugePages,
    /// The same figures round by round, to compare with others of the same rounds.
    pub rounds: Vec<Round>,
}

impl Row {
    pub fn new(design: Design, hit_rate: f64, rounds: Vec<Round>) -> Row {
        let spread = |figure: fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
        Row {
            design,
            way: Way::Alone,
            hit_rate,
            probe_ns: spread(|round| round.probe_ns),
            lookup_ns: spread(|round| round.lookup_ns),
            whole_ns: spread(|round| round.whole_ns),
            throughput: spread(|round| round.throughput),
            trial: 0.0,
            huge_pages: HugePages::Unknown,
            rounds,
        }
    }

    /// Names its design, and its way if that is not the papers'.
    pub fn name(&self) -> String {
        match self.way {
            Way::Alone => self.design.to_string(),
            Way::Ahead => format!("{}, ahead", self.design),
        }
    }

    /// Returns a figure as a multiple of another row's in the same round, over the rounds.
    pub fn to(&self, other: &Row, figure: fn(&Round) -> f64) -> Spread {
        Spread::of_ratios(self.rounds.iter().map(figure), other.rounds.iter().map(figure))
    }
}

#[derive(Clone, Debug)]
pub struct Measured {
    pub cell: Cell,
    /// One row per design, in the order in which they were asked for; bursts alone.
    pub rows: Vec<Row>,
    /// The same tables in the same rounds, each burst asking for the next; empty if the plan leaves
    /// it out.
    pub ahead: Vec<Row>,
    /// Nanoseconds per key of the gather kernel, on the same keys and as much memory; the cheaper
    /// way where both were measured.
    pub floor_ns: Spread,
    pub floor_rounds: Vec<f64>,
    pub floor_pages: HugePages,
    /// Draws per flow before the measurement.
    pub warmed: f64,
}

impl Measured {
    /// Returns the row of a design, bursts alone.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.row_of(name, Way::Alone)
    }

    pub fn row_of(&self, name: &str, way: Way) -> Option<&Row> {
        self.rows_of(way).iter().find(|row| row.design.to_string() == name)
    }

    pub fn rows_of(&self, way: Way) -> &[Row] {
        match way {
            Way::Alone => &self.rows,
            Way::Ahead => &self.ahead,
        }
    }

    /// Returns the pages of a row's table and of the gather kernel's memory.
    pub(super) fn footing(&self, row: &Row) -> Footing {
        let bytes = self.cell.entries.saturating_mul(SLOT_BYTES);
        Footing { table: row.huge_pages, floor: self.floor_pages, bytes }
    }

    /// Returns whether the gather kernel is a floor of a row's table: see [`Footing`].
    pub fn has_floor(&self, row: &Row) -> bool {
        self.footing(row).is_alike()
    }

    /// Returns the nanoseconds of a row as a multiple of the gather kernel's in the same round,
    /// over the rounds; `None` where that is no floor.
    pub fn to_floor(&self, row: &Row, ns: fn(&Round) -> f64) -> Option<Spread> {
        let floor = self.floor_rounds.iter().copied();
        self.has_floor(row).then(|| Spread::of_ratios(row.rounds.iter().map(ns), floor))
    }
}
