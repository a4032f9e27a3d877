//! The status document as `overbank top` and the totals read it, whatever the engine is: numbers that
//! an engine does not have are 0. It is written by [`super::document`]; the fields are described in
//! `docs/switch-status.md`.

use overbank_stations::MacTotals;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch/1";

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // docs/switch-status.md; as in `PortTotals`.
pub struct PortStatus {
    pub number: u32,
    pub name: String,
    pub detail: String,
    pub link_up: bool,
    pub received: u64,
    pub received_bytes: u64,
    pub forwarded: u64,
    pub to_controller: u64,
    pub controller_copies: u64,
    pub dropped: BTreeMap<String, u64>,
    pub missed: u64,
    pub errors: u64,
    pub outputs: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub queued: u64,
    pub not_sent: BTreeMap<String, u64>,
    /// Whether both accounts close.
    pub closes: bool,
}

/// One worker, or all of them together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // docs/switch-status.md; as in `WorkerTotals`.
pub struct WorkerStatus {
    pub version: u64,
    pub packets: u64,
    pub microflow_lookups: u64,
    pub microflow_hits: u64,
    pub megaflow_lookups: u64,
    pub megaflow_hits: u64,
    pub megaflow_subtables: u64,
    pub megaflow_evictions: u64,
    pub megaflow_expirations: u64,
    pub megaflows: u64,
    pub classifier_lookups: u64,
    pub bursts: u64,
    pub rounds: u64,
    pub waits: u64,
    pub packet_outs: u64,
    pub packet_ins: u64,
    pub flooded: u64,
    pub learn_limited: u64,
    pub learn_queue_full: u64,
    pub snapshots: u64,
    /// Of the measured time with packets: the datapath's own share, without receiving, copying out
    /// and system calls; absent when nothing was measured.
    pub datapath_share: Option<f64>,
    /// Cycles a packet of the datapath itself, receiving, copying out, flushing.
    pub cycles_per_packet: Option<[f64; 4]>,
}

/// Rules, learnt addresses and controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // docs/switch-status.md.
pub struct ControlStatus {
    pub version: u64,
    pub rules: usize,
    pub rules_max: usize,
    pub rules_refused: u64,
    pub rules_expired: u64,
    pub reloads: u64,
    pub snapshots_published: u64,
    pub controllers: usize,
    pub packets_lost: u64,
    pub events_lost: u64,
    pub stations: usize,
    pub stations_static: usize,
    pub stations_max: usize,
    pub stations_bytes: usize,
    pub stations_pages: String,
    pub macs: MacTotals,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// What the OpenFlow sessions counted; empty without `--openflow`.
    pub openflow: BTreeMap<String, u64>,
    /// Connections for metrics that found all seats taken and waited.
    pub metrics_waited: u64,
    /// Connections to the status socket that found all seats taken and waited.
    pub status_waited: u64,
    /// Whether all accounts of all ports close.
    pub closes: bool,
}
