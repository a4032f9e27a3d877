//! Time: cycles of a run in three ways of counting, all from the same events.

use serde::{Deserialize, Serialize};

/// How misses wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Each miss waits alone.
    Blocking,
    /// Neighbouring misses wait together ([`OverlapShape`](crate::OverlapShape)).
    Overlap,
    /// Blocking, and [`DRAIN_CYCLES`] for each SDC operation.
    AsEvaluated,
}

/// Cycles that gem5's drained pipeline adds to an SDC operation in the published figures: about 50,
/// of which the authors deduct 10 (paper, §3.1).
pub const DRAIN_CYCLES: u64 = 40;

/// Cycles of a run by mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub blocking: f64,
    pub overlap: f64,
    pub as_evaluated: f64,
}
