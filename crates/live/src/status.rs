//! The state of a switch as a document: for `overbank top`, for scripts, for the totals at the end.
//!
//! One JSON object (`schema` is [`SCHEMA`]). Over the status socket it comes as one line each time
//! that a line, of whatever content, is sent. The numbers only grow; rates are differences of two
//! documents over the difference of their `uptime_ms`. The fields are described in
//! `docs/switch-status.md`.

use crate::core::{Handle, PortDesc};
use crate::l2::Counters;
use crate::totals::{NOT_SENT_NAMES, PortTotals, WorkerTotals, drop_name};
use overbank::memory::HugePages;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch/1";

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub flooded: u64,
    #[serde(default)]
    pub learn_limited: u64,
    #[serde(default)]
    pub learn_queue_full: u64,
    pub snapshots: u64,
    /// Of the measured time with packets: the datapath's own share, without receiving, copying out
    /// and system calls; absent when nothing was measured.
    pub datapath_share: Option<f64>,
    /// Cycles a packet of the datapath itself, receiving, copying out, flushing.
    pub cycles_per_packet: Option<[f64; 4]>,
}

impl From<&WorkerTotals> for WorkerStatus {
    fn from(t: &WorkerTotals) -> WorkerStatus {
        let parts = [t.cycles_datapath, t.cycles_receive, t.cycles_send, t.cycles_flush];
        let sum: u64 = parts.iter().sum();
        let measured = t.sampled_packets > 0 && sum > 0;
        WorkerStatus {
            version: t.version,
            packets: t.packets,
            microflow_lookups: t.microflow_lookups,
            microflow_hits: t.microflow_hits,
            megaflow_lookups: t.megaflow_lookups,
            megaflow_hits: t.megaflow_hits,
            megaflow_subtables: t.megaflow_subtables,
            megaflow_evictions: t.megaflow_evictions,
            megaflow_expirations: t.megaflow_expirations,
            megaflows: t.megaflows,
            classifier_lookups: t.classifier_lookups,
            bursts: t.bursts,
            rounds: t.rounds,
            waits: t.waits,
            packet_outs: t.packet_outs,
            packet_ins: t.packet_ins,
            flooded: t.flooded,
            learn_limited: t.learn_limited,
            learn_queue_full: t.learn_queue_full,
            snapshots: t.snapshots,
            datapath_share: measured.then(|| t.cycles_datapath as f64 / sum as f64),
            cycles_per_packet: measured
                .then(|| parts.map(|cycles| cycles as f64 / t.sampled_packets as f64)),
        }
    }
}

/// Pages by the names of the setting `mac-pages`.
fn pages_name(pages: HugePages) -> &'static str {
    match pages {
        HugePages::No => "small",
        HugePages::Partly { .. } => "partly",
        HugePages::Yes => "huge",
        HugePages::Gigabyte => "1g",
        _ => "unknown",
    }
}

/// Rules, learnt addresses and controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub stations_static: usize,
    #[serde(default)]
    pub stations_max: usize,
    #[serde(default)]
    pub stations_bytes: usize,
    #[serde(default)]
    pub stations_pages: String,
    pub macs: Counters,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// What decides where frames go: `openflow` or `l2`.
    #[serde(default)]
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
    #[serde(default)]
    pub openflow: BTreeMap<String, u64>,
    /// Connections for metrics that found all seats taken and waited.
    #[serde(default)]
    pub metrics_waited: u64,
    /// Connections to the status socket that found all seats taken and waited.
    #[serde(default)]
    pub status_waited: u64,
    /// Whether all accounts of all ports close.
    pub closes: bool,
}

fn port_status(desc: &PortDesc, t: &PortTotals) -> PortStatus {
    let named = |i: usize, n: u64| (drop_name(i).to_owned(), n);
    let dropped = t.dropped.iter().enumerate().filter(|(_, n)| **n != 0);
    let not_sent = NOT_SENT_NAMES.iter().zip(t.not_sent).filter(|(_, n)| *n != 0);
    PortStatus {
        number: desc.number,
        name: desc.name.clone(),
        detail: desc.detail.clone(),
        link_up: desc.link_up,
        received: t.received,
        received_bytes: t.received_bytes,
        forwarded: t.forwarded,
        to_controller: t.to_controller,
        controller_copies: t.controller_copies,
        dropped: dropped.map(|(i, n)| named(i, *n)).collect(),
        missed: t.missed,
        errors: t.errors,
        outputs: t.outputs,
        sent: t.sent,
        sent_bytes: t.sent_bytes,
        queued: t.queued,
        not_sent: not_sent.map(|(name, n)| ((*name).to_owned(), n)).collect(),
        closes: t.closes(),
    }
}

impl Status {
    /// What is there now.
    pub fn new(handle: &Handle) -> Status {
        let core = handle.lock();
        let workers = core.worker_totals();
        let mut descs = core.ports();
        descs.push(PortDesc {
            number: overbank_switch::ports::PORT_CONTROLLER,
            name: "controllers".to_owned(),
            mac: [0; 6],
            mtu: 0,
            link_up: core.controllers() > 0,
            config: Default::default(),
            detail: String::new(),
        });
        let totals = core.totals();
        let control = ControlStatus {
            version: core.version(),
            rules: core.tables().len(),
            rules_max: core.rules_max(),
            rules_refused: totals.table_full,
            rules_expired: totals.expired,
            reloads: totals.reloads,
            snapshots_published: totals.published,
            controllers: core.controllers(),
            packets_lost: totals.packets_lost,
            events_lost: totals.events_lost,
            stations: core.stations().len(),
            stations_static: core.stations().fixed(),
            stations_max: core.stations().limits().entries_max,
            stations_bytes: core.stations().bytes(),
            stations_pages: pages_name(core.stations().pages()).to_owned(),
            macs: core.stations().counters(),
        };
        let (uptime_ms, id, mode) = (core.now_ms(), core.datapath_id(), core.mode());
        drop(core);
        let mut sums = vec![PortTotals::default(); descs.len()];
        let mut total = WorkerTotals { version: u64::MAX, ..WorkerTotals::default() };
        for (worker, ports) in &workers {
            total.add(worker);
            sums.iter_mut().zip(ports).for_each(|(sum, port)| sum.add(port));
        }
        let ports: Vec<PortStatus> =
            descs.iter().zip(&sums).map(|(desc, totals)| port_status(desc, totals)).collect();
        Status {
            schema: SCHEMA.to_owned(),
            uptime_ms,
            mode: mode.name().to_owned(),
            datapath_id: format!("{id:016x}"),
            closes: ports.iter().all(|port| port.closes),
            ports,
            workers: workers.iter().map(|(worker, _)| worker.into()).collect(),
            total: (&total).into(),
            control,
            openflow: BTreeMap::new(),
            metrics_waited: 0,
            status_waited: 0,
        }
    }
}
