//! What went in, for records and in words.

use overbank_kit::report::count;
use serde::Serialize;

/// Where traffic is from. A field that a command does not have is not in its JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrafficSource {
    Capture {
        file: String,
        /// Ethernet frames.
        frames: u64,
        /// Packets left out because they are not Ethernet.
        skipped: u64,
        /// Frames too short to have a flow; `advise` only.
        #[serde(skip_serializing_if = "Option::is_none")]
        broken: Option<u64>,
    },
    Live {
        interface: String,
        seconds: f64,
        frames: u64,
        /// Frames that the kernel had to drop.
        missed: u64,
        /// Frames too short to have a flow.
        broken: u64,
        /// Ended early, because there was no memory left for more.
        memory_full: bool,
    },
    BuiltIn {
        flows: u32,
        /// Zipf skew; 0 is uniform.
        theta: f64,
        /// Destination classes; `replay` only, as `alpha`.
        #[serde(skip_serializing_if = "Option::is_none")]
        classes: Option<u32>,
        /// Flows over cache entries: the paper's oversubscription factor.
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
