//! Settings of the gateway: errors with their places, and the documents made of the tables.

use super::*;
use overbank_declare::counters::{Labelled, gauges_reference, reference};
use overbank_declare::document;
use overbank_declare::settings::text;
use overbank_gateway::cluster::{CLUSTER_GAUGES, ClusterTotals};
use overbank_gateway::journal::JournalTotals;
use overbank_gateway::peers::PeerTotals;
use overbank_gateway::sessions::SessionTotals;
use overbank_gateway::{DropReason, GAUGES, GatewayTotals};
use std::sync::Arc;

const WHOLE: &str = r#"
port = ["n3=memory:flows=8,size=64", "n6=tap:tap7"]
n3-address = ["192.0.2.1", "2001:db8::1"]
ue-pool = ["10.45.0.0/16", "2001:db8:45::/48"]
next-hop = ["n3=198.51.100.0/24@02:00:00:00:00:13", "n6=default@02:00:00:00:00:16"]
n6-address = "203.0.113.2"
n3-mtu = 1600
"#;

fn config(text: &str) -> Result<Config, Problems> {
    let mut source = Source::new(&SECTIONS);
    source.text(&Arc::from("gw.toml"), text);
    Config::new(source, &[0, 1], Purpose::Check)
}

#[test]
fn a_whole_configuration() {
    let Config { setup, ports, .. } = config(WHOLE).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((ports[0].number, ports[1].number, ports.len()), (1, 2, 2));
    let tunable = setup.tunable;
    assert_eq!((tunable.mtu, tunable.routes[0].len()), ([Some(1600), None], 1));
    assert_eq!(tunable.routes[1].len(), 2, "default of both families");
    let from = (tunable.from.v4.map(|a| a.to_string()), tunable.from.v6.map(|a| a.to_string()));
    assert_eq!(from, (Some("203.0.113.2".to_owned()), Some("2001:db8::1".to_owned())));
}

#[test]
fn terminals_reach_no_address_of_control() {
    let pfcp = if cfg!(feature = "pfcp") { "pfcp = \"10.0.0.5:8805\"\n" } else { "" };
    let text = format!("{WHOLE}{pfcp}metrics = \"10.0.0.6:9273\"\nprotect = \"10.99.0.0/16\"");
    let Config { setup, .. } = config(&text).unwrap_or_else(|e| panic!("{e}"));
    let protects = |address: [u8; 4]| setup.tunable.protected.contain(address.into());
    assert_eq!(protects([10, 0, 0, 5]), cfg!(feature = "pfcp"));
    assert!(protects([10, 0, 0, 6]) && protects([10, 99, 7, 7]));
    assert!(!protects([10, 0, 0, 7]));
}

#[test]
fn every_problem_has_its_place_and_its_remedy() {
    for (change, problems) in [
        (
            "port = []",
            &[
                "port: no port n3; configure one, such as n3=afpacket:eth1",
                "port: no port n6; configure one, such as n6=afpacket:eth1",
            ][..],
        ),
        (r#"port = ["n3=tap:a", "n4=tap:b"]"#, &["gw.toml:2: port: \"n4\": must be one of n3, n6"]),
        (
            r#"port = ["n3=tap:a", "n6=tap:a"]"#,
            &["gw.toml:2: port: interface a is already a port; N3 and N6 need one each"],
        ),
        (r#"n3-address = "0.0.0.0""#, &["gw.toml:3: n3-address: \"0.0.0.0\": must be the IP"]),
        (
            r#"ue-pool = ["192.0.2.0/24", "2001:db8:45::/72"]"#,
            &[
                "gw.toml:4: ue-pool: 192.0.2.0/24 contains the N3 address 192.0.2.1",
                "gw.toml:4: ue-pool: 2001:db8:45::/72: must be a /64 or shorter",
            ],
        ),
        (
            r#"next-hop = ["n3=default", "n6=10.0.0.0/8@01:00:00:00:00:01"]"#,
            &[
                "gw.toml:5: next-hop: \"n3=default\": must be ROLE=PREFIX@MAC, such as n6=",
                "gw.toml:5: next-hop: \"n6=10.0.0.0/8@01:00:00:00:00:01\": must be ROLE=PREFIX@MAC",
            ],
        ),
        ("n3-mtu = 1279", &["gw.toml:7: n3-mtu: \"1279\": must be a number from 1280 to 65535"]),
    ] {
        let name = change.split(' ').next().unwrap_or_default();
        let line =
            |line: &str| if line.starts_with(name) { change.to_owned() } else { line.into() };
        let text: Vec<String> = WHOLE.lines().map(line).collect();
        let found = config(&text.join("\n")).err().map_or(String::new(), |e| e.to_string());
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(found.len(), problems.len(), "{change}: {found:#?}");
        for (found, wanted) in found.iter().zip(problems) {
            assert!(found.starts_with(wanted), "{found}\n{wanted}");
        }
    }
}

#[cfg(feature = "cluster")]
#[test]
fn terminals_do_not_reach_the_services_of_a_cluster() {
    let ports = r#"port = ["n3=tap:a", "n6=tap:b", "fabric=tap:c"]"#;
    let whole: Vec<&str> = WHOLE.lines().filter(|line| !line.starts_with("port")).collect();
    let services = "etcd = [\"http://10.0.0.1:2379\", \"https://[fd00::2]:2379\", \"http://etcd\"]\n\
                    nats = [\"nats://10.0.0.3\", \"tls://nats.example:4222\"]";
    let config = config(&format!("{ports}\n{}\nnode = 1\n{services}", whole.join("\n")));
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    let protects =
        |text: &str| config.setup.tunable.protected.contain(text.parse().expect("an address"));
    assert!(["10.0.0.1", "fd00::2", "10.0.0.3"].into_iter().all(protects));
    assert!(!protects("10.0.0.2"));
}

#[test]
fn peers_are_checked_with_the_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("peers");
    let node = |number: u8, more: &str| {
        let ports = r#"port = ["n3=tap:a", "n6=tap:b", "fabric=tap:c"]"#;
        let whole: Vec<&str> = WHOLE.lines().filter(|line| !line.starts_with("port")).collect();
        let path = path.display();
        config(&format!(
            "{ports}\n{}\nnode = {number}\npeers = \"{path}\"\n{more}",
            whole.join("\n")
        ))
    };
    let problems = |found: Result<Config, Problems>| {
        let problems = found.err().map_or(String::new(), |problems| problems.to_string());
        problems.replace(&path.display().to_string(), "PEERS")
    };
    assert!(problems(node(0, "")).contains("PEERS: cannot read the peers"));
    std::fs::write(&path, "0 10.0.0.1:7700\n1 10.0.0.2\n").expect("written");
    let config = node(1, "").unwrap_or_else(|problems| panic!("{problems}"));
    assert!(config.setup.tunable.protected.contain([10, 0, 0, 1].into()));
    let cluster = config.cluster.expect("a cluster");
    assert!(matches!(cluster.place, Place::Peers(peers) if peers.first().0.0 == 0));
    assert!(problems(node(2, "")).contains("PEERS: no line for node 2; must have one for each"));
    let beyond = problems(node(2, "max-nodes = 2"));
    assert!(beyond.contains(": node: 2: must be below max-nodes (2)"), "{beyond}");
    let both = problems(node(1, "etcd = \"http://10.0.0.1:2379\"\nreplicas = 3"));
    assert_eq!(both.matches("it is of etcd and NATS, which a cluster of peers has not").count(), 2);
    let lines: String = (0..30).map(|_| "0 nowhere\n").collect();
    std::fs::write(&path, lines).expect("written");
    let many = problems(node(0, ""));
    assert!(many.contains("PEERS: line 20: \"0 nowhere\": must be NODE ADDRESS:PORT"), "{many}");
    assert!(many.contains("PEERS: 10 further errors") && !many.contains("line 21"), "{many}");
    let alone = WHOLE.to_owned() + "peers = \"/etc/overbank/peers\"";
    let alone = problems(super::tests::config(&alone));
    assert!(alone.contains("it is of a cluster: give the node's number, too"), "{alone}");
}

/// Settings that are not commented out in `packaging/gateway.toml`.
const ACTIVE: [&str; 4] = ["port", "n3-address", "ue-pool", "control"];

#[test]
fn the_packaged_configuration_is_right() {
    let text = text::example("gateway", &SECTIONS, &ACTIVE);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/gateway.toml");
    document::whole(path, &text).unwrap_or_else(|error| panic!("{error}"));
    let Config { ports, control, .. } = config(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((ports.len(), control.0.is_some()), (2, true));
}

#[test]
fn the_documents_are_made_of_the_tables() {
    let path = |name| format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let current = |name: &str, text: &str| {
        document::part(path("gateway.md"), name, text).unwrap_or_else(|error| panic!("{error}"));
    };
    let settings = text::reference(&GatewaySettings::SECTION);
    current("settings", &settings);
    current("reasons", &overbank_reasons::reference::<DropReason>());
    let tables = [
        Labelled::of::<GatewayTotals>(&["worker"]),
        Labelled::of::<SessionTotals>(&[]),
        Labelled::of::<PeerTotals>(&[]),
    ];
    let journal = reference(Labelled::of::<JournalTotals>(&[]));
    let counted: String = tables.into_iter().map(reference).collect();
    let head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
    current("metrics", &format!("{head}{}{counted}", gauges_reference(&GAUGES)));
    current("journal-metrics", &format!("{head}{journal}"));
    let cluster = reference(Labelled::of::<ClusterTotals>(&[]));
    current("cluster-metrics", &format!("{head}{}{cluster}", gauges_reference(&CLUSTER_GAUGES)));
    #[cfg(feature = "pfcp")]
    {
        let n4 = reference(Labelled::of::<overbank_n4::N4Totals>(&[]));
        current("n4-metrics", &format!("{head}{n4}"));
    }
}
