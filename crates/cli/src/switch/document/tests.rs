use super::*;
use overbank_bridge::{BridgeTotals, DropReason as BridgeDrop};
use overbank_declare::counters::{
    Counter, Labelled, Shown, fields_reference, gauges_reference, reference,
};
use overbank_declare::document;
use overbank_device::{DeviceTotals, DropReason as DeviceDrop, KvTotals};
use overbank_ofctl::RuleTotals;
use overbank_ofctl::rules::ControlTotals;
use overbank_runtime::status::GAUGES;
use overbank_runtime::status::PublisherTotals;
use overbank_runtime::totals::PortDrop;
use overbank_runtime::{DropCounts, NotSent, PortTotals, WorkerTotals};
use overbank_service::endpoints::EndpointTotals;
use overbank_stations::{MacTotals, StationTotals};
use overbank_switch::drop::DropReason as RuleDrop;

/// Metrics that dashboards may read: name, kind, labels.
const METRICS: &str = "\
overbank_uptime_seconds gauge
overbank_port_received_packets_total counter port,name
overbank_port_received_bytes_total counter port,name
overbank_port_forwarded_packets_total counter port,name
overbank_port_to_controller_packets_total counter port,name
overbank_port_controller_copies_total counter port,name
overbank_port_dropped_packets_total counter port,name,reason
overbank_port_missed_packets_total counter port,name
overbank_port_receive_errors_total counter port,name
overbank_port_output_packets_total counter port,name
overbank_port_sent_packets_total counter port,name
overbank_port_sent_bytes_total counter port,name
overbank_port_not_sent_packets_total counter port,name,reason
overbank_port_up gauge port,name
overbank_tier_lookups_total counter worker,tier
overbank_tier_hits_total counter worker,tier
overbank_megaflows gauge worker
overbank_megaflow_evictions_total counter worker
overbank_megaflow_expirations_total counter worker
overbank_worker_bursts_total counter worker
overbank_worker_waits_total counter worker
overbank_worker_version gauge worker
overbank_worker_datapath_share gauge worker
overbank_packet_ins_total counter worker
overbank_packet_outs_total counter worker
overbank_flooded_packets_total counter worker
overbank_learn_limited_total counter worker
overbank_learn_queue_full_total counter worker
overbank_rules gauge
overbank_rules_limit gauge
overbank_rules_refused_total counter
overbank_rules_expired_total counter
overbank_rules_version gauge
overbank_rules_reloads_total counter
overbank_controllers gauge
overbank_controller_packets_lost_total counter
overbank_controller_events_lost_total counter
overbank_stations gauge
overbank_stations_static gauge
overbank_stations_limit gauge
overbank_stations_bytes gauge
overbank_stations_learned_total counter
overbank_stations_moved_total counter
overbank_stations_aged_total counter
overbank_stations_refreshed_total counter
overbank_stations_flushed_total counter
overbank_stations_evicted_total counter
overbank_stations_refused_total counter
overbank_metrics_connections_waited_total counter
overbank_status_connections_waited_total counter
overbank_openflow_connections gauge
overbank_openflow_connections_opened_total counter
overbank_openflow_connections_refused_total counter
overbank_openflow_connections_displaced_total counter
overbank_openflow_connects_failed_total counter
overbank_openflow_hellos_missed_total counter
overbank_openflow_sessions_opened_total counter
overbank_openflow_sessions_broken_total counter
overbank_openflow_echoes_missed_total counter
overbank_openflow_sessions_stalled_total counter
overbank_openflow_sessions_held_total counter
overbank_openflow_messages_in_total counter
overbank_openflow_messages_out_total counter
overbank_openflow_errors_sent_total counter
overbank_openflow_errors_received_total counter
overbank_openflow_flow_mods_total counter
overbank_openflow_bundles_refused_total counter
overbank_openflow_bundle_messages_refused_total counter
overbank_openflow_packet_ins_sent_total counter
overbank_openflow_packet_ins_dropped_total counter
overbank_openflow_events_dropped_total counter
overbank_openflow_packet_outs_total counter
overbank_openflow_packet_outs_waited_total counter
overbank_openflow_packet_outs_dropped_total counter
overbank_openflow_buffers_in_use gauge
overbank_openflow_buffers_full_total counter
overbank_openflow_bytes_queued gauge
overbank_openflow_bytes_queued_most gauge
";

/// Fields of the status document that scripts may read.
const PORT: &str = "number name detail link_up received received_bytes forwarded to_controller \
    controller_copies dropped missed errors outputs sent sent_bytes queued not_sent closes";
const WORKER: &str = "version packets microflow_lookups microflow_hits megaflow_lookups megaflow_hits \
    megaflow_subtables megaflow_evictions megaflow_expirations megaflows classifier_lookups \
    bursts rounds waits packet_outs packet_ins flooded learn_limited learn_queue_full \
    snapshots datapath_share cycles_per_packet";
const CONTROL: &str = "version rules rules_max rules_refused rules_expired reloads snapshots_published \
    controllers packets_lost events_lost stations stations_static stations_max \
    stations_bytes stations_pages macs";
const MACS: &str = "learned moved refreshed aged flushed evicted refused";

/// Tables of the rule switch and the labels of their numbers, in the order of the reference.
const TABLES: [Labelled; 10] = [
    Labelled::of::<PortTotals>(&["port", "name"]),
    Labelled::of::<DropCounts<RuleDrop>>(&["port", "name"]),
    Labelled::of::<RuleTotals>(&["worker"]),
    Labelled::of::<WorkerTotals>(&["worker"]),
    Labelled::of::<PublisherTotals>(&[]),
    Labelled::of::<ControlTotals>(&[]),
    Labelled::of::<StationTotals>(&[]),
    Labelled::of::<MacTotals>(&[]),
    Labelled::of::<EndpointTotals>(&[]),
    Labelled::of::<ControlCounts>(&[]),
];

/// Those that only mode `netcache` has.
fn cache_metrics() -> String {
    let own = |c: &&Counter| !BridgeTotals::TABLE.iter().any(|known| known.name == c.name);
    let engine: Vec<Counter> = DeviceTotals::TABLE.iter().filter(own).copied().collect();
    let engine = Labelled { table: engine.leak(), ..Labelled::of::<DeviceTotals>(&["worker"]) };
    let counted: String =
        [engine, Labelled::of::<KvTotals>(&[])].into_iter().map(reference).collect();
    format!("| metric | kind | labels | meaning |\n|---|---|---|---|\n{counted}")
}

fn metrics() -> String {
    let counted: String = TABLES.into_iter().map(reference).collect();
    format!(
        "| metric | kind | labels | meaning |\n|---|---|---|---|\n{}{counted}",
        gauges_reference(&GAUGES)
    )
}

fn current(path: &str, name: &str, text: &str) {
    let path = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
    document::part(path, name, text).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_metric_keeps_its_name_its_kind_and_its_labels() {
    let text = metrics();
    let mut known: Vec<&str> = METRICS.lines().collect();
    known.sort_unstable();
    let mut rows: Vec<String> = Vec::new();
    for row in text.lines().skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let (name, labels) = (cells[0].replace('`', ""), cells[2].replace(['`', ' '], ""));
        rows.push(format!("{name} {} {labels}", cells[1]).trim_end().to_owned());
    }
    rows.sort_unstable();
    assert_eq!(rows, known);
}

#[test]
fn the_ethernet_switch_has_no_metrics_of_its_own() {
    let names = |table: &'static [Counter]| table.iter().flat_map(|c| c.metrics).map(|m| m.name);
    for name in names(BridgeTotals::TABLE) {
        assert!(names(RuleTotals::TABLE).any(|known| known == name), "{name}");
    }
}

#[test]
fn the_status_document_keeps_its_fields() {
    let fields = |tables: &[&'static [Counter]], others: &str| -> Vec<String> {
        let shown = tables.iter().flat_map(|table| *table).filter(|c| c.shown != Shown::Nowhere);
        let others = others.split_whitespace().map(str::to_owned);
        let mut fields: Vec<String> = shown.map(|c| c.name.to_owned()).chain(others).collect();
        fields.sort_unstable();
        fields
    };
    let wanted = |text: &str| -> Vec<String> {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    let port = [PortTotals::TABLE, DropCounts::<RuleDrop>::TABLE];
    assert_eq!(fields(&port, "number name detail link_up closes"), wanted(PORT));
    let worker = [WorkerTotals::TABLE, RuleTotals::TABLE];
    assert_eq!(fields(&worker, "datapath_share cycles_per_packet"), wanted(WORKER));
    let control = [PublisherTotals::TABLE, ControlTotals::TABLE, StationTotals::TABLE];
    assert_eq!(fields(&control, "stations_pages macs"), wanted(CONTROL));
    assert_eq!(fields(&[MacTotals::TABLE], ""), wanted(MACS));
}

#[test]
fn the_documents_are_made_of_the_tables() {
    current("metrics.md", "metrics", &metrics());
    current("metrics.md", "reasons of ports", &overbank_reasons::reference::<PortDrop>());
    current("metrics.md", "reasons of openflow", &overbank_reasons::reference::<RuleDrop>());
    current("metrics.md", "reasons of l2", &overbank_reasons::reference::<BridgeDrop>());
    current("metrics.md", "metrics of netcache", &cache_metrics());
    current("metrics.md", "reasons of netcache", &overbank_reasons::reference::<DeviceDrop>());
    current("metrics.md", "reasons of not sent", &overbank_reasons::reference::<NotSent>());
    let fields = |tables: &[&'static [Counter]]| -> String {
        let rows: String = tables.iter().map(|table| fields_reference(table)).collect();
        format!("| field | unit | meaning |\n|---|---|---|\n{rows}")
    };
    let port = [PortTotals::TABLE, DropCounts::<RuleDrop>::TABLE];
    current("switch-status.md", "fields of a port", &fields(&port));
    let worker = [WorkerTotals::TABLE, RuleTotals::TABLE];
    current("switch-status.md", "fields of a worker", &fields(&worker));
    let control = [PublisherTotals::TABLE, ControlTotals::TABLE, StationTotals::TABLE];
    current("switch-status.md", "fields of control", &fields(&control));
    current("switch-status.md", "fields of macs", &fields(&[MacTotals::TABLE]));
    current("switch-status.md", "fields of kv", &fields(&[KvTotals::TABLE]));
}
