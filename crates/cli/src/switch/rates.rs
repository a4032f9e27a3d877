//! Computes rates: the difference of two status documents.
//!
//! The tables of counters declare which are rates, and their names (`rate`).

pub mod gateway;

use crate::switch::status::{GATEWAY_SCHEMA, PortStatus, Status, WorkerStatus};
use gateway::GatewayRates;
use overbank_declare::counters::{Counters, Rates as Counted};
use overbank_runtime::PortTotals;
use serde::Serialize;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch-rates/1";
/// The mode whose rates of messages are among those of workers.
pub const NETCACHE: &str = "netcache";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortRates {
    /// OpenFlow number.
    pub number: u32,
    /// Interface, or the kind of a port without one.
    pub name: String,
    /// Whether frames can pass.
    pub link_up: bool,
    /// Frames and bytes a second.
    #[serde(flatten)]
    pub rates: Counted,
}

/// One worker, or all together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerRates {
    /// Packets a second, by tier.
    #[serde(flatten)]
    pub rates: Counted,
    /// Those of the gateway's engine; part of [`GatewayRates`] for all workers.
    #[serde(skip)]
    pub gateway: Counted,
    /// Packets per burst.
    pub burst: f64,
    /// Share of the datapath in the measured time with packets, since the start.
    pub datapath_share: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    pub schema: &'static str,
    /// Time between the two documents.
    pub interval_ms: u64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Mode: `openflow`, `l2`, `netcache` or `gateway`.
    pub mode: String,
    pub ports: Vec<PortRates>,
    pub workers: Vec<WorkerRates>,
    /// All workers together.
    pub total: WorkerRates,
    /// Rules.
    pub rules: u64,
    /// Connected controllers.
    pub controllers: u64,
    /// Known MAC addresses.
    pub stations: u64,
    /// New MAC addresses a second.
    pub learned: f64,
    /// Those of the gateway alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRates>,
    /// Whether the accounts of all ports close.
    pub closes: bool,
}

impl Rates {
    /// Returns the rates from `old` to `new`; `None` if they are of different runs or the same
    /// moment.
    pub fn between(old: &Status, new: &Status) -> Option<Rates> {
        let interval_ms = new.uptime_ms.checked_sub(old.uptime_ms).filter(|ms| *ms > 0)?;
        if old.datapath_id != new.datapath_id || old.ports.len() != new.ports.len() {
            return None;
        }
        let ports = old.ports.iter().zip(&new.ports);
        let workers = old.workers.iter().zip(&new.workers);
        let macs = |of: &Status| of.control.stations.macs;
        Some(Rates {
            schema: SCHEMA,
            interval_ms,
            uptime_ms: new.uptime_ms,
            mode: new.mode.clone(),
            ports: ports.map(|(old, new)| port(old, new, interval_ms)).collect(),
            workers: workers.map(|of| worker(&new.mode, of, interval_ms)).collect(),
            total: worker(&new.mode, (&old.total, &new.total), interval_ms),
            rules: new.control.totals.rules,
            controllers: new.control.totals.controllers,
            stations: new.control.stations.totals.stations,
            learned: Counted::between(&macs(old), &macs(new), interval_ms).get("learned"),
            gateway: (new.schema == GATEWAY_SCHEMA)
                .then(|| GatewayRates::between(old, new, interval_ms)),
            closes: new.closes,
        })
    }
}

fn port(old: &PortStatus, new: &PortStatus, interval_ms: u64) -> PortRates {
    let mut rates = Counted::between(&old.totals, &new.totals, interval_ms);
    // The reasons are the engine's; the rate is their sum.
    let dropped = |of: &PortStatus| of.dropped.values().sum::<u64>();
    let frames = dropped(new).saturating_sub(dropped(old));
    rates.put("dropped", frames as f64 * 1e3 / interval_ms as f64);
    PortRates { number: new.number, name: new.name.clone(), link_up: new.link_up, rates }
}

fn worker(mode: &str, (old, new): (&WorkerStatus, &WorkerStatus), interval_ms: u64) -> WorkerRates {
    let mut rates = Counted::between(&old.worker, &new.worker, interval_ms);
    if mode == NETCACHE {
        rates.extend(Counted::between(&old.device, &new.device, interval_ms));
    }
    rates.extend(Counted::between(&old.engine, &new.engine, interval_ms));
    let packets = new.worker.packets.saturating_sub(old.worker.packets);
    let bursts = new.worker.bursts.saturating_sub(old.worker.bursts);
    let burst = if bursts > 0 { packets as f64 / bursts as f64 } else { 0.0 };
    let gateway = Counted::between(&old.gateway, &new.gateway, interval_ms);
    WorkerRates { rates, gateway, burst, datapath_share: new.datapath_share }
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Head, short enough for 80 columns.
    pub head: &'static str,
    /// Rate.
    pub rate: &'static str,
    /// Value of one count: 8 bits for a byte.
    pub scale: f64,
}

/// Returns the columns of the table of ports, from the tables of counters.
pub fn columns() -> Vec<Column> {
    let counted = PortTotals::TABLE.iter().filter_map(|counter| {
        let scale = if counter.unit == "bytes" { 8.0 } else { 1.0 };
        Some(Column { head: counter.column?, rate: counter.rate?, scale })
    });
    let mut columns: Vec<Column> = counted.collect();
    columns.push(Column { head: "dropped/s", rate: "dropped", scale: 1.0 });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_runtime::WorkerTotals;

    #[test]
    fn differences_over_time() {
        let port = |received, dropped| PortStatus {
            totals: PortTotals { received, ..PortTotals::default() },
            dropped: [("no_rule".to_owned(), dropped)].into(),
            ..PortStatus::default()
        };
        let worker = |packets, bursts| WorkerStatus {
            worker: WorkerTotals { packets, bursts, ..WorkerTotals::default() },
            ..WorkerStatus::default()
        };
        let old = Status {
            uptime_ms: 1000,
            ports: vec![port(10, 1)],
            total: worker(100, 10),
            ..Status::default()
        };
        let new = Status {
            uptime_ms: 1500,
            ports: vec![port(20, 4)],
            total: worker(140, 15),
            ..Status::default()
        };
        let rates = Rates::between(&old, &new).expect("half a second");
        let of = |name| rates.ports[0].rates.get(name);
        assert_eq!((of("received"), of("dropped")), (20.0, 6.0));
        assert_eq!((rates.total.rates.get("packets"), rates.total.burst), (80.0, 8.0));
        assert!(Rates::between(&new, &old).is_none() && Rates::between(&new, &new).is_none());
    }

    /// Scripts may read these fields of `docs/switch-status.md`.
    #[test]
    fn the_document_has_the_fields_that_it_always_had() {
        let status = |uptime_ms| Status {
            uptime_ms,
            ports: vec![PortStatus::default()],
            workers: vec![WorkerStatus::default()],
            ..Status::default()
        };
        let rates = Rates::between(&status(0), &status(1)).expect("a millisecond");
        let document = serde_json::to_value(&rates).expect("a document");
        let (port, worker) = (&document["ports"][0], &document["workers"][0]);
        for field in "number name link_up received received_bytes forwarded to_controller dropped \
                      missed sent sent_bytes not_sent"
            .split_whitespace()
        {
            assert!(port.get(field).is_some(), "{field}: {port}");
        }
        for field in "packets microflow megaflow classifier flooded not_learned burst megaflows \
                      datapath_share"
            .split_whitespace()
        {
            assert!(worker.get(field).is_some(), "{field}: {worker}");
        }
        assert!(worker["megaflows"].is_u64(), "a gauge is a whole number");
        for field in
            "schema interval_ms uptime_ms mode total rules controllers stations learned closes"
                .split_whitespace()
        {
            assert!(document.get(field).is_some(), "{field}: {document}");
        }
    }
}
