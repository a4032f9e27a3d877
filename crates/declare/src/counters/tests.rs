use super::*;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;

overbank_reasons::reasons! {
    enum Reason {
        NoRule = "no_rule", "No rule matched";
        Full = "full", "The queue was full";
    }
}

crate::counters! {
    struct Port: "ob_port_" {
        received:        counter packets "Frames received" as "received_packets" rate top "in/s";
        received_bytes:  counter bytes   "Bytes received";
        dropped[Reason]: counter packets "Frames dropped" as "dropped_packets" rate "lost";
        missed:          counter packets "Frames missed" rate "lost";
        queued:          gauge   packets "Frames that wait" in status rate;
        cycles:          counter cycles  "Cycles" in none;
    }
}

crate::counters! {
    struct Tiers: "ob_" {
        version: oldest versions "Version in use" as "worker_version";
        longest: peak packets "Longest burst";
        first_hits: counter packets "Packets that the tier decided" as "tier_hits" {tier = "first"};
        last: counter packets "Packets looked up"
            as "tier_lookups" {tier = "last"}, "tier_hits" {tier = "last"};
    }
}

crate::counters! {
    struct Sessions, shared SharedSessions: "ob_openflow_" {
        connections: gauge connections "Connections that stand now";
        refused[Reason]: counter connections "Connections refused";
    }
}

fn port() -> Port {
    Port { received: 1, received_bytes: 2, dropped: [0, 3], missed: 4, queued: 5, cycles: 6 }
}

#[test]
fn words_survive_a_round_trip() {
    assert_eq!((Port::WORDS, Port::TABLE.len()), (7, 6));
    assert_eq!(port().words(), [1, 2, 0, 3, 4, 5, 6]);
    assert_eq!(Port::from_words(&port().words()), port());
    assert_eq!(Port::from_words(&[9]), Port { received: 9, ..Port::default() });
}

#[test]
fn sums_are_of_every_number_by_its_kind() {
    let mut sum = port();
    sum.add(&port());
    assert_eq!(sum.words(), [2, 4, 0, 6, 8, 10, 12]);
    let all = [3, 2, 4].map(|n| Tiers { version: n, longest: n, first_hits: n, last: n });
    let sum = Tiers::sum(&all);
    assert_eq!(sum, Tiers { version: 2, longest: 4, first_hits: 9, last: 9 });
    assert_eq!(Tiers::sum(&[]), Tiers::default());
}

#[test]
fn a_document_has_what_is_shown_and_is_read_back() {
    let text = serde_json::to_string(&port()).expect("an object");
    let wanted = r#"{"received":1,"received_bytes":2,"dropped":{"full":3},"missed":4,"queued":5}"#;
    assert_eq!(text, wanted);
    let read: Port = serde_json::from_str(&text).expect("counters");
    assert_eq!(read, Port { cycles: 0, ..port() });
    let read: Port = serde_json::from_str(r#"{"received":7,"later":[1]}"#).expect("counters");
    assert_eq!(read, Port { received: 7, ..Port::default() });
    for wrong in ["7", r#"{"received":"x"}"#, r#"{"received":-1}"#, r#"{"dropped":{"full":{}}}"#] {
        assert!(serde_json::from_str::<Port>(wrong).is_err(), "{wrong}");
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Document {
    name: String,
    #[serde(flatten)]
    port: Port,
    #[serde(flatten)]
    tiers: Tiers,
}

#[test]
fn several_tables_can_share_an_object() {
    let tiers = Tiers { version: 8, ..Tiers::default() };
    let document = Document { name: "eth1".to_owned(), port: port(), tiers };
    let text = serde_json::to_string(&document).expect("an object");
    assert!(text.starts_with(r#"{"name":"eth1","received":1,"#), "{text}");
    let read: Document = serde_json::from_str(&text).expect("the same");
    assert_eq!(read, Document { port: Port { cycles: 0, ..port() }, ..document });
}

#[test]
fn metrics_have_names_labels_and_reasons() {
    let mut exposition = Exposition::new();
    let uptime = Gauge { name: "ob_uptime_seconds", help: "Time since the start", labels: &[] };
    exposition.gauge(&uptime, &[], 1.5);
    exposition.add(&[("port", "3"), ("name", "ve\"th")], &port());
    exposition.add(&[("port", "4")], &Port::default());
    exposition.add(&[("worker", "0")], &Tiers { last: 9, first_hits: 5, ..Tiers::default() });
    exposition.announce::<Sessions>();
    let wanted = r#"# HELP ob_uptime_seconds Time since the start
# TYPE ob_uptime_seconds gauge
ob_uptime_seconds 1.5
# HELP ob_port_received_packets Frames received
# TYPE ob_port_received_packets counter
ob_port_received_packets_total{port="3",name="ve\"th"} 1
ob_port_received_packets_total{port="4"} 0
# HELP ob_port_received_bytes Bytes received
# TYPE ob_port_received_bytes counter
ob_port_received_bytes_total{port="3",name="ve\"th"} 2
ob_port_received_bytes_total{port="4"} 0
# HELP ob_port_dropped_packets Frames dropped
# TYPE ob_port_dropped_packets counter
ob_port_dropped_packets_total{port="3",name="ve\"th",reason="full"} 3
# HELP ob_port_missed Frames missed
# TYPE ob_port_missed counter
ob_port_missed_total{port="3",name="ve\"th"} 4
ob_port_missed_total{port="4"} 0
# HELP ob_worker_version Version in use
# TYPE ob_worker_version gauge
ob_worker_version{worker="0"} 0.0
# HELP ob_longest Longest burst
# TYPE ob_longest gauge
ob_longest{worker="0"} 0.0
# HELP ob_tier_hits Packets that the tier decided
# TYPE ob_tier_hits counter
ob_tier_hits_total{worker="0",tier="first"} 5
ob_tier_hits_total{worker="0",tier="last"} 9
# HELP ob_tier_lookups Packets looked up
# TYPE ob_tier_lookups counter
ob_tier_lookups_total{worker="0",tier="last"} 9
# HELP ob_openflow_connections Connections that stand now
# TYPE ob_openflow_connections gauge
# HELP ob_openflow_refused Connections refused
# TYPE ob_openflow_refused counter
# EOF
"#;
    assert_eq!(exposition.text(), wanted);
}

#[test]
fn rates_are_differences_and_gauges_as_they_are() {
    let new = Port { received: 11, dropped: [1, 4], missed: 5, queued: 2, ..port() };
    let rates = Rates::between(&port(), &new, 500);
    let pairs: Vec<_> = rates.iter().collect();
    assert_eq!(pairs, [("received", 20.0), ("lost", 6.0), ("queued", 2.0)]);
    assert_eq!((Port::TABLE[0].column, Port::TABLE[1].column), (Some("in/s"), None));
    assert_eq!((rates.get("lost"), rates.get("none")), (6.0, 0.0));
    // A restarted service counts from 0.
    assert_eq!(Rates::between(&new, &port(), 500).get("received"), 0.0);
    let text = serde_json::to_string(&rates).expect("an object");
    assert_eq!(text, r#"{"received":20.0,"lost":6.0,"queued":2}"#);
}

#[test]
fn threads_count_together() {
    let shared = SharedSessions::default();
    shared.connections.fetch_add(2, Relaxed);
    shared.refused[Reason::Full.index()].fetch_add(3, Relaxed);
    assert_eq!(shared.snapshot(), Sessions { connections: 2, refused: [0, 3] });
}

#[test]
fn the_reference_is_made_of_the_table() {
    let wanted = "\
| `ob_port_received_packets_total` | counter | `port` | Frames received |
| `ob_port_received_bytes_total` | counter | `port` | Bytes received |
| `ob_port_dropped_packets_total` | counter | `port`, `reason` | Frames dropped |
| `ob_port_missed_total` | counter | `port` | Frames missed |
";
    assert_eq!(reference(Labelled::of::<Port>(&["port"])), wanted);
    let wanted = "\
| `ob_worker_version` | gauge | `worker` | Version in use |
| `ob_longest` | gauge | `worker` | Longest burst |
| `ob_tier_hits_total` | counter | `worker`, `tier` | Packets that the tier decided: `first`, `last` |
| `ob_tier_lookups_total` | counter | `worker`, `tier` | Packets looked up: `last` |
";
    assert_eq!(reference(Labelled::of::<Tiers>(&["worker"])), wanted);
    let wanted = "\
| `received` | packets | Frames received |
| `received_bytes` | bytes | Bytes received |
| `dropped` | packets | Frames dropped, by reason |
| `missed` | packets | Frames missed |
| `queued` | packets | Frames that wait |
";
    assert_eq!(fields_reference(Port::TABLE), wanted);
}
