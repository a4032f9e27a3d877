//! What happens in a second: the difference of two status documents.

use crate::switch::status::{PortStatus, Status, WorkerStatus};
use serde::Serialize;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-switch-rates/1";

/// One port; all in packets, bytes or frames a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // As in `PortStatus`.
pub struct PortRates {
    pub number: u32,
    pub name: String,
    pub link_up: bool,
    pub received: f64,
    pub received_bytes: f64,
    pub forwarded: f64,
    pub to_controller: f64,
    pub dropped: f64,
    pub missed: f64,
    pub sent: f64,
    pub sent_bytes: f64,
    pub not_sent: f64,
}

/// One worker, or all of them together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerRates {
    /// Packets a second through the datapath.
    pub packets: f64,
    /// Of those, decided by tier 1.
    pub microflow: f64,
    /// Of those, decided by tier 2.
    pub megaflow: f64,
    /// Of those, decided by tier 3.
    pub classifier: f64,
    /// Of those, sent to all ports.
    pub flooded: f64,
    /// Reports of stations a second that were not made: too many, or the queue was full.
    pub not_learned: f64,
    /// Packets of a burst.
    pub burst: f64,
    /// Megaflows there are.
    pub megaflows: u64,
    /// Share of the datapath in the measured time with packets, since the start.
    pub datapath_share: Option<f64>,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Time between the two documents.
    pub interval_ms: u64,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// What decides where frames go: `openflow` or `l2`.
    pub mode: String,
    /// By port.
    pub ports: Vec<PortRates>,
    /// By worker.
    pub workers: Vec<WorkerRates>,
    /// All workers together.
    pub total: WorkerRates,
    /// Rules there are.
    pub rules: usize,
    /// Controllers that are connected.
    pub controllers: usize,
    /// Addresses known.
    pub stations: usize,
    /// Stations a second that were new.
    pub learned: f64,
    /// Whether the accounts of all ports close.
    pub closes: bool,
}

impl Rates {
    /// From `old` to `new`; `None` if they are not of the same run, or of the same moment.
    pub fn between(old: &Status, new: &Status) -> Option<Rates> {
        let interval_ms = new.uptime_ms.checked_sub(old.uptime_ms).filter(|ms| *ms > 0)?;
        if old.datapath_id != new.datapath_id || old.ports.len() != new.ports.len() {
            return None;
        }
        let per_s = |old: u64, new: u64| new.saturating_sub(old) as f64 * 1e3 / interval_ms as f64;
        let sum = |of: &std::collections::BTreeMap<String, u64>| of.values().sum();
        let port = |(old, new): (&PortStatus, &PortStatus)| PortRates {
            number: new.number,
            name: new.name.clone(),
            link_up: new.link_up,
            received: per_s(old.received, new.received),
            received_bytes: per_s(old.received_bytes, new.received_bytes),
            forwarded: per_s(old.forwarded, new.forwarded),
            to_controller: per_s(old.to_controller, new.to_controller),
            dropped: per_s(sum(&old.dropped), sum(&new.dropped)),
            missed: per_s(old.missed, new.missed),
            sent: per_s(old.sent, new.sent),
            sent_bytes: per_s(old.sent_bytes, new.sent_bytes),
            not_sent: per_s(sum(&old.not_sent), sum(&new.not_sent)),
        };
        let worker = |old: &WorkerStatus, new: &WorkerStatus| {
            let packets = per_s(old.packets, new.packets);
            let bursts = per_s(old.bursts, new.bursts);
            WorkerRates {
                packets,
                microflow: per_s(old.microflow_hits, new.microflow_hits),
                megaflow: per_s(old.megaflow_hits, new.megaflow_hits),
                classifier: per_s(old.classifier_lookups, new.classifier_lookups),
                flooded: per_s(old.flooded, new.flooded),
                not_learned: per_s(
                    old.learn_limited + old.learn_queue_full,
                    new.learn_limited + new.learn_queue_full,
                ),
                burst: if bursts > 0.0 { packets / bursts } else { 0.0 },
                megaflows: new.megaflows,
                datapath_share: new.datapath_share,
            }
        };
        Some(Rates {
            schema: SCHEMA,
            interval_ms,
            uptime_ms: new.uptime_ms,
            mode: new.mode.clone(),
            ports: old.ports.iter().zip(&new.ports).map(port).collect(),
            workers: old.workers.iter().zip(&new.workers).map(|(o, n)| worker(o, n)).collect(),
            total: worker(&old.total, &new.total),
            rules: new.control.rules,
            controllers: new.control.controllers,
            stations: new.control.stations,
            learned: per_s(old.control.macs.learned, new.control.macs.learned),
            closes: new.closes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_over_time() {
        let port = |received, dropped| PortStatus {
            received,
            dropped: [("no_rule".to_owned(), dropped)].into(),
            ..PortStatus::default()
        };
        let worker = |packets, bursts| WorkerStatus { packets, bursts, ..Default::default() };
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
        assert_eq!((rates.ports[0].received, rates.ports[0].dropped), (20.0, 6.0));
        assert_eq!((rates.total.packets, rates.total.burst), (80.0, 8.0));
        assert!(Rates::between(&new, &old).is_none() && Rates::between(&new, &new).is_none());
    }
}
