//! Metrics and status over HTTP, on loopback unless told otherwise.
//!
//! `GET /metrics` is the text format of Prometheus (OpenMetrics); `GET /status` is the document of
//! [`crate::status`]. Both are made of one reading of the counters when they are asked for; between
//! requests nothing is spent. The metrics are described in `docs/metrics.md`.

use crate::control::ControlSnapshot;
use crate::guests::{IDLE_MAX, Seated};
use crate::status::{PortStatus, Status, WorkerStatus};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Gives the status now.
pub type Source = Arc<dyn Fn() -> Status + Send + Sync>;

/// Content type of the text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// A counter or gauge: name, what it is, one number for each set of labels.
struct Family {
    name: &'static str,
    help: &'static str,
    gauge: bool,
    values: Vec<(Labels, f64)>,
}

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for family in families(&self.0) {
            let kind = if family.gauge { MetricType::Gauge } else { MetricType::Counter };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.values {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let labels = labels.as_slice();
                if labels.is_empty() {
                    // There is one of it.
                    put(family.gauge, *value, metric)?;
                    break;
                }
                put(family.gauge, *value, metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn put(gauge: bool, value: f64, encoder: MetricEncoder<'_>) -> Result<(), Error> {
    if gauge {
        return ConstGauge::new(value).encode(encoder);
    }
    // Exact up to 2^53, which no counter of ours reaches.
    ConstCounter::new(value as u64).encode(encoder)
}

/// A value as it stands between quotes, which the encoder does not see to.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn port_labels(port: &PortStatus) -> Labels {
    vec![("port", port.number.to_string()), ("name", escaped(&port.name))]
}

/// One number of each port.
fn of_ports(
    status: &Status,
    name: &'static str,
    help: &'static str,
    value: impl Fn(&PortStatus) -> u64,
) -> Family {
    let values = status.ports.iter().map(|port| (port_labels(port), value(port) as f64));
    Family { name, help, gauge: false, values: values.collect() }
}

/// One number of each port and reason.
fn of_reasons<'a>(
    status: &'a Status,
    name: &'static str,
    help: &'static str,
    value: impl Fn(&'a PortStatus) -> &'a std::collections::BTreeMap<String, u64>,
) -> Family {
    let values = status.ports.iter().flat_map(|port| {
        value(port).iter().map(|(reason, n)| {
            let mut labels = port_labels(port);
            labels.push(("reason", reason.clone()));
            (labels, *n as f64)
        })
    });
    Family { name, help, gauge: false, values: values.collect() }
}

/// One number of each worker.
fn of_workers(
    status: &Status,
    name: &'static str,
    help: &'static str,
    gauge: bool,
    value: impl Fn(&WorkerStatus) -> f64,
) -> Family {
    let values = status.workers.iter().enumerate();
    let values = values.map(|(i, worker)| (vec![("worker", i.to_string())], value(worker)));
    Family { name, help, gauge, values: values.collect() }
}

fn one(name: &'static str, help: &'static str, gauge: bool, value: f64) -> Family {
    Family { name, help, gauge, values: vec![(Vec::new(), value)] }
}

/// Lookups and hits of each worker in each tier.
fn tiers(status: &Status) -> [Family; 2] {
    let of = |value: fn(&WorkerStatus) -> [u64; 3]| -> Vec<(Labels, f64)> {
        let workers = status.workers.iter().enumerate();
        let tier = |i: usize, n: usize| {
            let tier = ["microflow", "megaflow", "classifier"][n];
            vec![("worker", i.to_string()), ("tier", tier.to_owned())]
        };
        workers.flat_map(|(i, w)| (0..3).map(move |n| (tier(i, n), value(w)[n] as f64))).collect()
    };
    let lookups = of(|w| [w.microflow_lookups, w.megaflow_lookups, w.classifier_lookups]);
    let hits = of(|w| [w.microflow_hits, w.megaflow_hits, w.classifier_lookups]);
    let family = |name, help, values| Family { name, help, gauge: false, values };
    [
        family("overbank_tier_lookups", "Packets looked up in a tier", lookups),
        family("overbank_tier_hits", "Packets that the tier decided", hits),
    ]
}

/// Everything; the list that `docs/metrics.md` explains.
fn families(status: &Status) -> Vec<Family> {
    let s = status;
    let c = &status.control;
    let mut all = vec![
        one("overbank_uptime_seconds", "Time since the start", true, s.uptime_ms as f64 / 1e3),
        of_ports(s, "overbank_port_received_packets", "Frames that came in", |p| p.received),
        of_ports(s, "overbank_port_received_bytes", "Bytes that came in", |p| p.received_bytes),
        of_ports(
            s,
            "overbank_port_forwarded_packets",
            "Frames of this ingress port that left by a port",
            |p| p.forwarded,
        ),
        of_ports(
            s,
            "overbank_port_to_controller_packets",
            "Frames of this ingress port that went to the controllers only",
            |p| p.to_controller,
        ),
        of_ports(
            s,
            "overbank_port_controller_copies",
            "Copies for the controllers of frames that also left by a port",
            |p| p.controller_copies,
        ),
        of_reasons(
            s,
            "overbank_port_dropped_packets",
            "Frames of this ingress port that went nowhere",
            |p| &p.dropped,
        ),
        of_ports(
            s,
            "overbank_port_missed_packets",
            "Frames lost before the switch saw them",
            |p| p.missed,
        ),
        of_ports(s, "overbank_port_receive_errors", "Frames that arrived unusable", |p| p.errors),
        of_ports(
            s,
            "overbank_port_output_packets",
            "Frames that were to leave by this port",
            |p| p.outputs,
        ),
        of_ports(s, "overbank_port_sent_packets", "Frames handed to the outside", |p| p.sent),
        of_ports(s, "overbank_port_sent_bytes", "Bytes handed to the outside", |p| p.sent_bytes),
        of_reasons(
            s,
            "overbank_port_not_sent_packets",
            "Frames that were to leave and did not",
            |p| &p.not_sent,
        ),
    ];
    let up = s.ports.iter().map(|p| (port_labels(p), f64::from(u8::from(p.link_up)))).collect();
    all.push(Family {
        name: "overbank_port_up",
        help: "Whether frames can pass",
        gauge: true,
        values: up,
    });
    all.extend(tiers(s));
    all.extend([
        of_workers(s, "overbank_megaflows", "Megaflows there are", true, |w| w.megaflows as f64),
        of_workers(
            s,
            "overbank_megaflow_evictions",
            "Megaflows that made room for new ones",
            false,
            |w| w.megaflow_evictions as f64,
        ),
        of_workers(
            s,
            "overbank_megaflow_expirations",
            "Megaflows removed because they were idle",
            false,
            |w| w.megaflow_expirations as f64,
        ),
        of_workers(s, "overbank_worker_bursts", "Bursts of frames processed", false, |w| {
            w.bursts as f64
        }),
        of_workers(s, "overbank_worker_waits", "Times a worker waited for frames", false, |w| {
            w.waits as f64
        }),
        of_workers(
            s,
            "overbank_worker_version",
            "Version of the rules that the worker runs on",
            true,
            |w| w.version as f64,
        ),
        of_workers(
            s,
            "overbank_worker_datapath_share",
            "Share of the datapath in the measured time with packets",
            true,
            |w| w.datapath_share.unwrap_or(0.0),
        ),
        of_workers(s, "overbank_packet_ins", "Packets queued for the controllers", false, |w| {
            w.packet_ins as f64
        }),
        of_workers(s, "overbank_packet_outs", "Packets of controllers sent", false, |w| {
            w.packet_outs as f64
        }),
        of_workers(s, "overbank_flooded_packets", "Frames sent to all ports", false, |w| {
            w.flooded as f64
        }),
        of_workers(
            s,
            "overbank_learn_limited",
            "Stations not reported: too many at a time behind their port",
            false,
            |w| w.learn_limited as f64,
        ),
        of_workers(
            s,
            "overbank_learn_queue_full",
            "Stations not reported: too many reports waited",
            false,
            |w| w.learn_queue_full as f64,
        ),
        one("overbank_rules", "Rules there are", true, c.rules as f64),
        one("overbank_rules_limit", "Most rules", true, c.rules_max as f64),
        one(
            "overbank_rules_refused",
            "Rules refused because the tables were full",
            false,
            c.rules_refused as f64,
        ),
        one(
            "overbank_rules_expired",
            "Rules that ended by themselves",
            false,
            c.rules_expired as f64,
        ),
        one(
            "overbank_rules_version",
            "Version of the rules published last",
            true,
            c.version as f64,
        ),
        one(
            "overbank_rules_reloads",
            "Times the file of rules was read again",
            false,
            c.reloads as f64,
        ),
        one("overbank_controllers", "Controllers that are connected", true, c.controllers as f64),
        one(
            "overbank_controller_packets_lost",
            "Packets for controllers that none of them took",
            false,
            c.packets_lost as f64,
        ),
        one(
            "overbank_controller_events_lost",
            "Events that a controller had no room for",
            false,
            c.events_lost as f64,
        ),
        one("overbank_stations", "Addresses known, static ones too", true, c.stations as f64),
        one("overbank_stations_static", "Static addresses", true, c.stations_static as f64),
        one("overbank_stations_limit", "Most learnt addresses", true, c.stations_max as f64),
        one("overbank_stations_bytes", "Size of their table", true, c.stations_bytes as f64),
        one("overbank_stations_learned", "Stations that were new", false, c.macs.learned as f64),
        one(
            "overbank_stations_moved",
            "Stations that moved to another port",
            false,
            c.macs.moved as f64,
        ),
        one(
            "overbank_stations_aged",
            "Stations forgotten because they were silent",
            false,
            c.macs.aged as f64,
        ),
        one(
            "overbank_stations_refreshed",
            "Stations heard of again after an eighth of the ageing time",
            false,
            c.macs.refreshed as f64,
        ),
        one(
            "overbank_stations_flushed",
            "Stations forgotten because their port went",
            false,
            c.macs.flushed as f64,
        ),
        one(
            "overbank_stations_evicted",
            "Stations that made room for new ones",
            false,
            c.macs.evicted as f64,
        ),
        one(
            "overbank_stations_refused",
            "New stations for which there was no room",
            false,
            c.macs.refused as f64,
        ),
        one(
            "overbank_metrics_connections_waited",
            "Connections for metrics that found all seats taken",
            false,
            s.metrics_waited as f64,
        ),
        one(
            "overbank_status_connections_waited",
            "Connections to the status socket that found all seats taken",
            false,
            s.status_waited as f64,
        ),
    ]);
    // Each a family of its own: a family is a counter or a gauge, and some go down.
    let kinds = ControlSnapshot::FAMILIES.iter();
    all.extend(kinds.filter_map(|kind| {
        let number = *s.openflow.get(kind.name)?;
        Some(one(kind.metric, kind.help.trim(), kind.gauge, number as f64))
    }));
    all
}

/// The metrics as text.
pub fn text(status: Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    // Into a string; nothing to fail.
    let _ = encode(&mut text, &registry);
    text
}

/// Serves both documents until `stop`, to so many `connections` at one time; `waited` counts those
/// that had to wait.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    connections: usize,
    waited: Arc<AtomicU64>,
    source: Source,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let status = source.clone();
    let metrics = move || async move { ([(header::CONTENT_TYPE, OPEN_METRICS)], text(source())) };
    let status = move || async move { json(&status()) };
    let router = Router::new().route("/metrics", get(metrics)).route("/status", get(status));
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let listener = Seated::new(listener, connections, IDLE_MAX, waited);
    axum::serve(listener, router).with_graceful_shutdown(stopped).await
}

fn json(status: &Status) -> Response {
    match serde_json::to_string(status) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_and_its_labels() {
        let mut status =
            Status { uptime_ms: 1500, metrics_waited: 6, status_waited: 7, ..Status::default() };
        status.ports.push(PortStatus {
            number: 3,
            name: "ve\"th".to_owned(),
            received: 7,
            dropped: [("no_rule".to_owned(), 2)].into(),
            ..PortStatus::default()
        });
        status.workers.push(WorkerStatus { microflow_hits: 5, ..WorkerStatus::default() });
        status.openflow.insert("flow_mods".to_owned(), 4);
        status.openflow.insert("connections".to_owned(), 2);
        let text = text(status);
        for line in [
            "overbank_uptime_seconds 1.5",
            r#"overbank_port_received_packets_total{port="3",name="ve\"th"} 7"#,
            r#"overbank_port_dropped_packets_total{port="3",name="ve\"th",reason="no_rule"} 2"#,
            r#"overbank_tier_hits_total{worker="0",tier="microflow"} 5"#,
            "# TYPE overbank_openflow_flow_mods counter",
            "overbank_openflow_flow_mods_total 4",
            "# TYPE overbank_openflow_connections gauge",
            "overbank_openflow_connections 2.0",
            "overbank_metrics_connections_waited_total 6",
            "overbank_status_connections_waited_total 7",
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }

    /// Every family stands in the documentation, and the other way round.
    #[test]
    fn the_documentation_has_them_all() {
        let documented = include_str!("../../../docs/metrics.md");
        let mut status = Status::default();
        let counted = ControlSnapshot::default();
        status.openflow = counted.named().map(|(name, n)| (name.to_owned(), n)).collect();
        for family in families(&status) {
            assert!(documented.contains(&format!("`{}", family.name)), "{}", family.name);
        }
        for name in documented.split('`').filter(|word| word.starts_with("overbank_")) {
            let name = name.trim_end_matches("_total");
            assert!(families(&status).iter().any(|f| f.name == name), "{name}");
        }
    }
}
