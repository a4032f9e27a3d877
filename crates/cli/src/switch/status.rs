//! The status document as `overbank top` and the totals read it, whatever the engine is: a number that
//! an engine does not have is 0. The tables of counters say what is in it; it is written by
//! [`super::document`], and its fields are described in `docs/switch-status.md`.

use overbank_ofctl::RuleTotals;
use overbank_ofctl::rules::ControlTotals;
use overbank_runtime::{NotSent, PortTotals, WorkerTotals};
use overbank_stations::StationsStatus;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch/1";

/// One port.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PortStatus {
    /// OpenFlow number.
    pub number: u32,
    /// Interface, or kind where there is none.
    pub name: String,
    /// Whether frames can pass.
    pub link_up: bool,
    /// What became of its frames.
    #[serde(flatten)]
    pub totals: PortTotals,
    /// Those that went nowhere, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl PortStatus {
    /// Returns the frames that were to leave and did not, by reason, without zeros.
    pub fn not_sent(&self) -> BTreeMap<String, u64> {
        let all =
            NotSent::ALL.into_iter().map(|reason| (reason, self.totals.not_sent[reason.index()]));
        all.filter(|(_, n)| *n != 0).map(|(reason, n)| (reason.name().to_owned(), n)).collect()
    }
}

/// One worker, or all of them together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// What it counted of itself.
    #[serde(flatten)]
    pub worker: WorkerTotals,
    /// What its engine counted; the Ethernet switch counts a part of this.
    #[serde(flatten)]
    pub engine: RuleTotals,
    /// Of the measured time with packets, the engine's own share; absent when nothing was measured.
    pub datapath_share: Option<f64>,
}

/// Rules, learnt addresses and controllers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControlStatus {
    /// Rules and controllers.
    #[serde(flatten)]
    pub totals: ControlTotals,
    /// Learnt addresses.
    #[serde(flatten)]
    pub stations: StationsStatus,
}

/// The document.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// What decides where frames go: `openflow` or `l2`.
    pub mode: String,
    /// Identity towards controllers, 16 hexadecimal digits.
    pub datapath_id: String,
    /// The ports, and last, with number 4294967293 (`CONTROLLER`), what controllers sent.
    pub ports: Vec<PortStatus>,
    /// The workers.
    pub workers: Vec<WorkerStatus>,
    /// All workers together.
    pub total: WorkerStatus,
    /// Rules, learnt addresses, controllers.
    pub control: ControlStatus,
    /// Whether all accounts of all ports close.
    pub closes: bool,
}
