//! Reads the status document of any engine; a number that an engine does not have is 0. The tables
//! of counters declare its content and [`super::document`] writes it. `docs/switch-status.md`
//! describes its fields.

use overbank_device::{DeviceTotals, KvTotals};
use overbank_gateway::GatewayTotals;
use overbank_gateway::cluster::ClusterTotals;
use overbank_gateway::sessions::SessionTotals;
use overbank_ofctl::RuleTotals;
use overbank_ofctl::rules::ControlTotals;
use overbank_runtime::{NotSent, PortTotals, WorkerTotals};
use overbank_stations::StationsStatus;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch/1";
/// That of the gateway.
pub const GATEWAY_SCHEMA: &str = "overbank-gateway/1";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PortStatus {
    /// OpenFlow number.
    pub number: u32,
    /// Interface, or the kind of a port without one.
    pub name: String,
    /// Whether frames can pass.
    pub link_up: bool,
    /// Counts by fate of the frames.
    #[serde(flatten)]
    pub totals: PortTotals,
    /// Dropped frames by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl PortStatus {
    /// Returns the frames to be sent that were not, by reason, without zeros.
    pub fn not_sent(&self) -> BTreeMap<String, u64> {
        let all =
            NotSent::ALL.into_iter().map(|reason| (reason, self.totals.not_sent[reason.index()]));
        all.filter(|(_, n)| *n != 0).map(|(reason, n)| (reason.name().to_owned(), n)).collect()
    }
}

/// One worker, or all together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// The worker's counts.
    #[serde(flatten)]
    pub worker: WorkerTotals,
    /// The engine's counts; the Ethernet switch has a part of these.
    #[serde(flatten)]
    pub engine: RuleTotals,
    /// Those of the gateway.
    #[serde(flatten)]
    pub gateway: GatewayTotals,
    /// Those of the key-value cache.
    #[serde(flatten)]
    pub device: DeviceTotals,
    /// Share of the engine in the measured time with packets; absent if nothing was measured.
    pub datapath_share: Option<f64>,
}

/// Rules, learned addresses and controllers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControlStatus {
    /// Rules and controllers.
    #[serde(flatten)]
    pub totals: ControlTotals,
    /// Learned addresses.
    #[serde(flatten)]
    pub stations: StationsStatus,
    /// The key-value cache.
    pub kv: KvTotals,
    /// Sessions of the gateway, and their limit.
    #[serde(flatten)]
    pub sessions: SessionTotals,
    pub sessions_max: u64,
    /// The gateway's cluster.
    pub cluster: Option<ClusterStatus>,
}

/// The cluster as a node knows it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    pub node: u8,
    pub state: Option<String>,
    /// Why it takes no packets from outside.
    pub unready: Option<String>,
    #[serde(flatten, deserialize_with = "overbank_declare::counters::deserialize")]
    pub totals: ClusterTotals,
    pub members: Vec<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Mode: `openflow`, `l2` or `netcache`.
    pub mode: String,
    /// Identity towards controllers, 16 hexadecimal digits.
    pub datapath_id: String,
    /// Ports; the last, with number 4294967293 (`CONTROLLER`), counts frames of controllers.
    pub ports: Vec<PortStatus>,
    pub workers: Vec<WorkerStatus>,
    /// All workers together.
    pub total: WorkerStatus,
    /// Rules, learned addresses, controllers.
    pub control: ControlStatus,
    /// Counts of the gateway's N4.
    pub n4: Option<BTreeMap<String, u64>>,
    /// Whether all accounts of all ports close.
    pub closes: bool,
}
