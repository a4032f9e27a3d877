//! What the log of a cluster costs: batches of changes over NATS JetStream, beside the same bytes
//! over a TCP connection, which keeps nothing.
//!
//! ```text
//!   owner ─ batch, expected sequence ─▶ nats-server ─ kept ─▶ heard by a node
//!                                          └ with three: by two more
//!   owner ─ batch ─▶ TCP ─▶ a byte back
//! ```
//!
//! A partition has one batch under way at a time, as its owner does. Latency is that of one
//! partition; rates and times of CPUs are those of [`PARTITIONS`] at once.

#[cfg(feature = "services")]
mod measure;
#[cfg(feature = "services")]
mod servers;
#[cfg(feature = "services")]
mod transport;

use crate::prelude::*;
#[cfg(feature = "services")]
use measure::run;

pub const SB_LOG: Experiment = Experiment {
    name: "sb-log",
    title: "Batches of changes over JetStream and over TCP",
    source: "ScaleBricks, section 4.4.3; goals of this project",
    run,
};

/// Partitions whose batches are under way at once.
#[cfg(feature = "services")]
const PARTITIONS: usize = 16;

#[cfg(not(feature = "services"))]
fn run(_: &mut Context<'_>) -> Result<Record, LabError> {
    Err(LabError::failed("this binary has no JetStream: build it with `--features cluster`"))
}
