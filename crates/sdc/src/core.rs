//! Time: cycles of a run in three ways of counting, all from the same events.
//!
//! ```text
//! blocking      accesses × (base + L1's cycles) + waits of misses + SDC operations + work
//! overlap       blocking − what misses of one group waited at the same time
//! as evaluated  blocking + 40 cycles an SDC operation
//! ```
//!
//! A wait is a whole number of 1/1024 cycles, so that sums are exact.

use serde::{Deserialize, Serialize};

use crate::{Counters, Shape, dram::Row, shape::OverlapShape};

/// How misses wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Each miss waits alone.
    Blocking,
    /// Neighbouring misses wait together ([`OverlapShape`]).
    Overlap,
    /// Blocking, and [`DRAIN_CYCLES`] for each SDC operation.
    AsEvaluated,
}

/// Cycles that gem5's drained pipeline adds to an SDC operation in the published figures: about 50,
/// of which the authors deduct 10 (paper, §3.1).
pub const DRAIN_CYCLES: u64 = 40;

/// Instructions that the paper's out-of-order core is assumed to complete a cycle beside an access,
/// whose cycles are L1's: [`Shape::base_cycles`] is (instructions an access − 1) / this.
pub const INSTRUCTIONS_A_CYCLE: f64 = 4.0;

/// Cycles of a run by mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// By [`Mode::Blocking`].
    pub blocking: f64,
    /// By [`Mode::Overlap`].
    pub overlap: f64,
    /// By [`Mode::AsEvaluated`].
    pub as_evaluated: f64,
}

/// Parts of a cycle in which waits are counted.
const PARTS: f64 = 1024.0;

/// Waits of a machine's parts, in 1/1024 cycles.
pub(crate) struct Latencies {
    pub l2: u64,
    pub llc: u64,
    row_hit: u64,
    row_closed: u64,
    row_conflict: u64,
}

impl Latencies {
    pub fn new(shape: &Shape) -> Latencies {
        let cycles = |n: f64| (n * PARTS).round() as u64;
        Latencies {
            l2: cycles(shape.l2.map_or(0.0, |l2| l2.cycles.into())),
            llc: cycles(shape.llc.cycles.into()),
            row_hit: cycles(shape.dram.hit_ns * shape.ghz),
            row_closed: cycles(shape.dram.closed_ns * shape.ghz),
            row_conflict: cycles(shape.dram.conflict_ns * shape.ghz),
        }
    }

    #[inline]
    pub fn row(&self, row: Row) -> u64 {
        match row {
            Row::Hit => self.row_hit,
            Row::Closed => self.row_closed,
            Row::Conflict => self.row_conflict,
        }
    }
}

/// Sums of waits, and the group of misses that others may still join.
#[derive(Default)]
pub(crate) struct Waits {
    waited: u64,
    hidden: u64,
    /// Misses that may still join.
    room: u32,
    /// Last access within the group's window.
    until: u64,
    /// Line of the group's last miss.
    line: u64,
    longest: u64,
}

impl Waits {
    /// Adds the wait of a miss, in 1/1024 cycles. `access` is its number in the run.
    #[inline]
    pub fn miss(&mut self, rule: &OverlapShape, access: u64, line: u64, wait: u64) {
        self.waited = self.waited.saturating_add(wait);
        let near = line.abs_diff(self.line) <= rule.reach_lines;
        self.line = line;
        if self.room > 0 && access <= self.until && near {
            self.room -= 1;
            self.hidden = self.hidden.saturating_add(wait.min(self.longest));
            self.longest = self.longest.max(wait);
        } else {
            self.room = rule.misses - 1;
            self.until = access + u64::from(rule.window);
            self.longest = wait;
        }
    }

    /// Ends the group: what follows depends on a result.
    pub fn end_group(&mut self) {
        self.room = 0;
    }

    /// Returns the cycles of a run that counted `counters`.
    pub fn times(&self, shape: &Shape, counters: &Counters) -> Times {
        let (l1, sdc) = (shape.l1.map_or(0, |l1| l1.cycles), shape.sdc.map_or(0, |sdc| sdc.cycles));
        let operations = counters.sdc.operations();
        let blocking = counters.accesses as f64 * (shape.base_cycles + f64::from(l1))
            + self.waited as f64 / PARTS
            + operations as f64 * f64::from(sdc)
            + counters.work as f64;
        Times {
            blocking,
            overlap: blocking - self.hidden as f64 / PARTS,
            as_evaluated: blocking + (operations * DRAIN_CYCLES) as f64,
        }
    }
}
