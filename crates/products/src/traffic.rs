//! What went in, for records and in words. docs/advise-json.md and docs/replay-json.md say what
//! each field means.

use overbank_kit::report::count;
use serde::Serialize;

/// Where traffic is from. A field that a command does not have is not in its JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrafficSource {
    Capture {
        file: String,
        frames: u64,
        skipped: u64,
        /// Frames too short to have a flow; `advise` only.
        #[serde(skip_serializing_if = "Option::is_none")]
        broken: Option<u64>,
    },
    Live {
        interface: String,
        seconds: f64,
        frames: u64,
        missed: u64,
        broken: u64,
        memory_full: bool,
    },
    BuiltIn {
        flows: u32,
        theta: f64,
        /// Destination classes; `replay` only, as `alpha`.
        #[serde(skip_serializing_if = "Option::is_none")]
        classes: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        alpha: Option<f64>,
    },
}

impl TrafficSource {
    pub fn drawn(flows: u32, theta: f64) -> TrafficSource {
        TrafficSource::BuiltIn { flows, theta, classes: None, alpha: None }
    }
}

impl std::fmt::Display for TrafficSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TrafficSource::Capture { file, frames, .. } => {
                write!(f, "{file}, {} frames", count(*frames))
            }
            TrafficSource::Live { interface, seconds, frames, memory_full, .. } => {
                let early =
                    if *memory_full { ", ended early: no memory for more (--memory)" } else { "" };
                write!(f, "{interface}, {seconds} s live, {} frames{early}", count(*frames))
            }
            TrafficSource::BuiltIn { flows, theta, alpha, .. } => {
                write!(f, "{} flows, ", count(u64::from(*flows)))?;
                match *theta {
                    0.0 => write!(f, "uniform")?,
                    theta => write!(f, "Zipf θ = {theta}")?,
                }
                alpha.map_or(Ok(()), |alpha| write!(f, ", α = {alpha:.2}"))
            }
        }
    }
}
