use super::*;
use overbank::memory::Pages;
use overbank_declare::document;
use overbank_declare::settings::{Off, text};
use overbank_ofctl::rules::FailMode;
use overbank_ofctl::sessions::ControlOptions;
use overbank_service::options::{LogFormat, LogLevel};
use overbank_stations::Limits;
use overbank_switch::view::{Fragments, View};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const CORES: [usize; 4] = [1, 0, 2, 8];

fn check(text: &str) -> Result<Config, Problems> {
    let mut source = Source::new(&SECTIONS);
    source.text(&Arc::from("ob.toml"), text);
    Config::new(source, &CORES)
}

fn names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().flat_map(|section| section.settings).map(|setting| setting.name)
}

const WHOLE: &str = r#"
port = ["1=memory:flows=8,size=64", "2=tap:tap7"]
mode = "openflow"
rules = "rules.txt"
openflow = ["ptcp:6653", "tcp:10.0.0.1"]
workers = 2
cores = [0, 1]
cache = "blp-2-16"
entries = 4096
megaflows = 1000
megaflow-idle = 2.5
max-rules = 100
fragments = "nx-match"
vlan-limit = 1
mac-entries = 50
mac-pages = "1g"
mac-age = 60
mac-rate = 10
mac-queue = 9
mac-static = ["02:00:00:00:00:0a@7=2", "02:00:00:00:00:0A=1"]
isolated = []
controller-queue = 16
controller-connections = 5
controller-hello = 2
controller-probe = "off"
controller-stall = 1.5
controller-bytes = 100000
controller-packets = 11
controller-packet-outs = 12
controller-buffers = 1000
controller-events = 7
controller-bundles = 3
controller-bundle-messages = 13
fail-mode = "standalone"
metrics = "off"
metrics-connections = 9
status-socket = "/run/ob.sock"
status-connections = 3
log = "debug"
log-format = "json"
datapath-id = "00:00:00:00:00:00:00:2a"
duration = 1
poll = "busy"
keep-privileges = true
"#;

/// The settings that mode openflow refuses, with those that they need.
const CACHE: &str = r#"
port = ["1=memory:", "2=memory:", "3=memory:"]
mode = "netcache"
isolated = [1]
kv-address = "02:00:00:00:00:fe, 10.0.0.254, fd00::fe"
kv-port = 9000
kv-servers = [2, 3]
kv-items = 1000
kv-index-bits = 10
kv-passes = 11
kv-threshold = 7
kv-sample-bits = 3
kv-queue = 5
kv-protocol = "paper"
kv-state = "/var/lib/overbank/kv"
"#;

#[test]
fn every_setting_can_be_in_the_file() {
    assert_eq!(names().count(), 54);
    for name in names() {
        let line = format!("\n{name} = ");
        assert!(WHOLE.contains(&line) || CACHE.contains(&line), "{name}");
    }
    let config = check(WHOLE).expect("all of it is right");
    assert_eq!(config.ports.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(config.rules.rules.as_deref(), Some(Path::new("rules.txt")));
    assert_eq!(config.targets.len(), 2);
    assert_eq!((config.run.workers, &config.run.cores[..]), (2, &[0, 1][..]));
    assert_eq!((config.run.orders, config.run.busy_poll), (12, true));
    assert_eq!(config.rules.cache.0.expect("named").to_string(), "blp-2-16");
    assert_eq!((config.rules.entries, config.rules.megaflows), (4096, 1000));
    assert_eq!(config.rules.megaflow_idle, Duration::from_millis(2500));
    assert_eq!(config.rules.max_rules, 100);
    let view = View { fragments: Fragments::NxMatch, vlan_limit: 1 };
    assert_eq!(config.rules.view(), view);
    let pages = Pages::Gigabyte { required: true };
    let limits = Limits { entries_max: 50, pages, age_s: 60, learn_per_s: 10, queue: 9 };
    assert_eq!((config.mac, config.switch.mode), (limits, Mode::OpenFlow));
    let statics: Vec<String> =
        config.statics.iter().map(|(key, port)| format!("{key}={port}")).collect();
    assert_eq!(statics, ["02:00:00:00:00:0a@7=2", "02:00:00:00:00:0a@0=1"]);
    assert!(config.isolated.is_empty() && config.device.is_none());
    assert_eq!(config.controllers.controller_queue, 16);
    let options = config.controllers.options();
    assert_eq!((options.connections, options.buffers), (5, 1000));
    assert_eq!((options.events, options.bundles), (7, 3));
    assert_eq!(options.handshake, Duration::from_secs(2));
    assert_eq!(options.stall, Duration::from_millis(1500));
    assert_eq!((options.probe, options.reply_bytes), (Duration::ZERO, 100_000));
    assert_eq!((options.packet_ins, options.bundle_messages), (11, 13));
    assert_eq!(options.buffer_bytes, 4_096_000);
    assert_eq!(config.controllers.fail_mode, FailMode::Standalone);
    let service = &config.service;
    assert_eq!((service.metrics, service.metrics_connections), (Off(None), 9));
    assert_eq!(service.status_socket.0.as_deref(), Some(Path::new("/run/ob.sock")));
    assert_eq!(service.status_connections, 3);
    assert_eq!((service.log, service.log_format), (LogLevel::Debug, LogFormat::Json));
    assert_eq!(service.duration, Some(Duration::from_secs(1)));
    assert!(service.keep_privileges && config.metrics_required);
    assert_eq!(config.switch.datapath_id, Some(DatapathId(42)));
}

#[test]
fn only_the_ports_are_needed() {
    let config = check("port = \"1=memory:\"").expect("one text is a list of one");
    assert_eq!((config.run.workers, config.switch.mode), (1, Mode::OpenFlow));
    assert_eq!(config.mac, Limits::default());
    assert_eq!(config.rules.cache.0.expect("the default").to_string(), "cuckoo-2-16+half-bubble");
    assert_eq!(config.service.metrics.0, "127.0.0.1:9273".parse().ok());
    let (options, default) = (config.controllers.options(), ControlOptions::default());
    // Two ways to the same numbers; each has its own counters.
    let without =
        |of: &ControlOptions| ControlOptions { counters: Default::default(), ..of.clone() };
    assert_eq!(format!("{:?}", without(&options)), format!("{:?}", without(&default)));
    assert_eq!((options.connections, options.events, options.bundles), (16, 4096, 8));
    assert_eq!((config.run.orders, config.run.busy_poll), (256, false));
    assert_eq!(config.controllers.fail_mode, FailMode::Secure);
    let service = &config.service;
    assert_eq!((service.metrics_connections, service.status_connections), (64, 16));
    assert!(service.status_socket.0.is_none() && !service.keep_privileges);
    assert!(!config.metrics_required);
}

#[test]
fn an_ethernet_switch_needs_no_more_than_its_mode() {
    let text =
        "port = [\"1=memory:\", \"2=memory:\", \"3=memory:\"]\nmode = \"l2\"\nisolated = \"1, 3\"
                mac-static = \"02:00:00:00:00:01=2\"\nmac-entries = 2500000000\nmac-pages = \"small\"";
    let config = check(text).expect("right");
    assert_eq!((config.switch.mode, &config.isolated[..]), (Mode::L2, &[1, 3][..]));
    assert_eq!((config.statics.len(), config.mac.entries_max), (1, 2_500_000_000));
    assert_eq!(config.mac.pages, Pages::Small);
}

#[test]
fn a_cache_needs_no_more_than_its_mode_and_its_address() {
    let config = check(CACHE).expect("right");
    assert_eq!((config.switch.mode, &config.isolated[..]), (Mode::NetCache, &[1][..]));
    let DeviceConfig { address, servers, settings } = config.device.expect("in its mode");
    let ips = (address.ip4.map(|ip| ip.to_string()), address.ip6.map(|ip| ip.to_string()));
    assert_eq!(ips, (Some("10.0.0.254".to_owned()), Some("fd00::fe".to_owned())));
    assert_eq!((address.mac, servers), ([2, 0, 0, 0, 0, 0xfe], vec![2, 3]));
    assert_eq!((settings.kv_port, settings.kv_items, settings.kv_index_bits), (9000, 1000, 10));
    assert_eq!(settings.kv_passes, 11);
    assert_eq!((settings.kv_threshold, settings.kv_sample_bits, settings.kv_queue), (7, 3, 5));
    assert_eq!(settings.kv_state.as_deref(), Some(Path::new("/var/lib/overbank/kv")));
    let short = "port = [\"1=memory:\", \"2=memory:\"]\nmode = \"netcache\"\n\
                 kv-address = \"02:00:00:00:00:fe,10.0.0.254\"";
    let config = check(short).expect("right");
    let DeviceConfig { servers, settings, .. } = config.device.expect("in its mode");
    assert_eq!((servers, settings.kv_port, settings.kv_items), (vec![1, 2], 8779, 65_536));
}

#[test]
fn flags_override_the_file() {
    let mut source = Source::new(&SECTIONS);
    source.text(&Arc::from("ob.toml"), WHOLE);
    source.flag("port", ["7=memory:"]);
    source.flag("workers", Some(3));
    source.flag("cores", ["0,1,0"]);
    source.flag("mac-static", ["02:00:00:00:00:0b=7"]);
    source.flag("rules", None::<&str>);
    let config = Config::new(source, &[0, 1]).expect("right");
    assert_eq!(config.ports.len(), 1);
    assert_eq!((config.ports[0].number, config.run.workers), (7, 3));
    assert_eq!(config.run.cores, [0, 1, 0]);
    assert!(config.rules.rules.is_some(), "no flag is no change");
}

/// Description, file, and the errors in order.
const WRONG: &[(&str, &str, &[&str])] = &[
    ("no port", "", &["port: no port; configure at least one"]),
    ("an empty list", "port = []", &["port: no port; configure at least one"]),
    (
        "an unknown key",
        "port = [\"1=memory:\"]\n\nwokers = 2",
        &["ob.toml:3: wokers: unknown setting; known: mode, datapath-id, port"],
    ),
    (
        "all at once, each with its line",
        "port = [\n \"1=memory:\",\n \"1=memory:\",\n \"memory:\",\n \"0=memory:\",\n \"3=what:x\"]\n\
         workers = 0\ncache = \"set-5\"\nlog = \"loud\"\nmac-age = \"old\"",
        &[
            "ob.toml:3: port: port number 1 is already in use, at ob.toml:2",
            "ob.toml:4: port: \"memory:\": must be NUMBER=KIND:",
            "ob.toml:5: port: \"0\": must be a port number from 1 to",
            "ob.toml:6: port: ",
            "ob.toml:7: workers: \"0\": must be a number from 1 to 64",
            "ob.toml:8: cache: ",
            "ob.toml:9: log: \"loud\": must be one of off, error",
            "ob.toml:10: mac-age: \"old\": must be a number from 1 to",
        ],
    ),
    (
        "one interface for two ports",
        "port = [\"1=tap:a\",\n\"2=afpacket:a\"]",
        &["ob.toml:2: port: interface a is already a port, at ob.toml:1: port"],
    ),
    ("broken TOML", "port = [\"1=memory:\"]\nworkers = = 2", &["ob.toml:2: not TOML: "]),
    (
        "a table",
        "port = [\"1=memory:\"]\n[workers]\nn = 1",
        &["ob.toml:2: workers: a table does not fit here"],
    ),
    (
        "a list where one value is needed",
        "port = [\"1=memory:\"]\nworkers = [1, 2]",
        &["ob.toml:2: workers: 2 values; must be one: a number from 1 to 64"],
    ),
    (
        "cores that do not fit the workers",
        "port = [\"1=memory:\"]\nworkers = 2\ncores = [1]",
        &["ob.toml:3: cores: 1 cores for 2 workers"],
    ),
    (
        "cores that are not there",
        "port = [\"1=memory:\"]\nworkers = 3\ncores = [0, 99,\n3]",
        &[
            "ob.toml:3: cores: core 99 is unavailable: this process may use cores 0-2, 8",
            "ob.toml:4: cores: core 3 is unavailable: this process may use cores 0-2, 8",
        ],
    ),
    (
        "bounds of sessions and connections",
        "port = [\"1=memory:\"]\ncontroller-connections = 0\ncontroller-buffers = 4097\n\
         controller-events = 0\ncontroller-bundles = \"many\"\nmetrics-connections = 257",
        &[
            "ob.toml:2: controller-connections: \"0\": must be a number from 1 to 256",
            "ob.toml:3: controller-buffers: \"4097\": must be a number from 0 to 4096",
            "ob.toml:4: controller-events: \"0\": must be a number from 1 to 65536",
            "ob.toml:5: controller-bundles: \"many\": must be a number from 1 to 1024",
            "ob.toml:6: metrics-connections: \"257\": must be a number from 1 to 256",
        ],
    ),
    (
        "bounds of what waits and of times",
        "port = [\"1=memory:\"]\ncontroller-hello = \"off\"\ncontroller-probe = 0\n\
         controller-stall = -1\ncontroller-bytes = 1024\ncontroller-packets = 0\n\
         controller-packet-outs = 65537\ncontroller-bundle-messages = 0\nstatus-connections = 65",
        &[
            "ob.toml:2: controller-hello: \"off\": must be a number of seconds from 0.001",
            "ob.toml:3: controller-probe: \"0\": must be a number of seconds from 0.001",
            "ob.toml:4: controller-stall: \"-1\": must be a number of seconds from 0.001",
            "ob.toml:5: controller-bytes: \"1024\": must be a number from 65536 to 67108864",
            "ob.toml:6: controller-packets: \"0\": must be a number from 1 to 65536",
            "ob.toml:7: controller-packet-outs: \"65537\": must be a number from 1 to 65536",
            "ob.toml:8: controller-bundle-messages: \"0\": must be a number from 1 to 1000000",
            "ob.toml:9: status-connections: \"65\": must be a number from 1 to 64",
        ],
    ),
    (
        "addresses",
        "port = [\"1=memory:\"]\nmetrics = \"9273\"\nopenflow = \"ssl:1.2.3.4\"\ndatapath-id = \"x\"",
        &[
            "ob.toml:2: metrics: \"9273\": must be ADDRESS:PORT",
            "ob.toml:3: openflow: \"ssl:1.2.3.4\": connections with TLS",
            "ob.toml:4: datapath-id: \"x\": must be a number of 1 to 16 hexadecimal digits",
        ],
    ),
    (
        "rules and controllers in the Ethernet switch",
        "port = [\"1=memory:\"]\nmode = \"l2\"\nfail-mode = \"standalone\"\n\
         openflow = \"ptcp:\"\ncontroller-queue = 3\nmegaflows = 4\nmac-age = 9",
        &[
            "ob.toml:3: fail-mode: not a setting of mode l2; remove it or use mode openflow",
            "ob.toml:4: openflow: not a setting of mode l2; remove it or use mode openflow",
            "ob.toml:5: controller-queue: not a setting of mode l2; remove it or use mode openflow",
            "ob.toml:6: megaflows: not a setting of mode l2; remove it or use mode openflow",
        ],
    ),
    (
        "isolated ports without the Ethernet switch",
        "port = [\"1=memory:\"]\nisolated = 1\nmode = \"L2\"",
        &[
            "ob.toml:2: isolated: not a setting of mode openflow; remove it or use mode l2 or netcache",
            "ob.toml:3: mode: \"L2\": must be one of openflow, l2, netcache",
        ],
    ),
    (
        "a cache without its address",
        "port = [\"1=memory:\"]\nmode = \"netcache\"\nrules = \"rules.txt\"\nkv-servers = 2",
        &[
            "ob.toml:3: rules: not a setting of mode netcache; remove it or use mode openflow",
            "ob.toml:4: kv-servers: port 2 is not configured; configured: 1",
            "kv-address: must be given in mode netcache, such as 02:00:00:00:00:fe,10.0.0.254",
        ],
    ),
    (
        "a cache whose settings are wrong",
        "port = [\"1=memory:\"]\nmode = \"netcache\"\nkv-address = \"10.0.0.254\"\n\
         kv-items = 65537\nkv-port = 0",
        &[
            "ob.toml:3: kv-address: \"10.0.0.254\": must be MAC,IP[,IP], such as 02:",
            "ob.toml:4: kv-items: \"65537\": must be a number from 1 to 65536",
            "ob.toml:5: kv-port: \"0\": must be a number from 1 to 65535",
        ],
    ),
    (
        "a cache whose address is a station's",
        "port = [\"1=memory:\"]\nmode = \"netcache\"\n\
         kv-address = \"02:00:00:00:00:fe,10.0.0.254\"\nmac-static = \"02:00:00:00:00:fe=1\"",
        &["mac-static: 02:00:00:00:00:fe@0 is the device's address (kv-address); remove it"],
    ),
    (
        "a cache in the Ethernet switch",
        "port = [\"1=memory:\"]\nmode = \"l2\"\nkv-items = 3",
        &["ob.toml:3: kv-items: not a setting of mode l2; remove it or use mode netcache"],
    ),
    (
        "stations and ports that are not there",
        "port = [\"1=memory:\",\"3=memory:\"]\nmode = \"l2\"\nisolated = [3, 2,\n\"1,x\"]\n\
         mac-static = [\n\"02:00:00:00:00:01@4096=1\",\n\"01:00:00:00:00:01=1\",\n\
         \"02:00:00:00:00:01=2\",\n\"2:0:0:0:0:1=1\",\n\"02:00:00:00:00:01\",\n\
         \"02:00:00:00:00:0a=1\",\n\"02:00:00:00:00:0A@0=3\"]\nmac-queue = 0",
        &[
            "ob.toml:3: isolated: port 2 is not configured; configured: 1, 3",
            "ob.toml:4: isolated: \"x\": must be a number from 1 to",
            "ob.toml:6: mac-static: \"4096\": must be a number from 0 to 4095",
            "ob.toml:7: mac-static: 01:00:00:00:00:01: must be a unicast MAC address",
            "ob.toml:8: mac-static: port 2 is not configured; configured: 1, 3",
            "ob.toml:9: mac-static: \"2:0:0:0:0:1=1\": must be MAC[@VLAN]=PORT",
            "ob.toml:10: mac-static: \"02:00:00:00:00:01\": must be MAC[@VLAN]=PORT",
            "ob.toml:12: mac-static: 02:00:00:00:00:0a@0 is given already, at ob.toml:11",
            "ob.toml:13: mac-queue: \"0\": must be a number from 1 to",
        ],
    ),
    (
        "numbers with a sign",
        "port = [\"+1=memory:\",\n\"2=memory:\"]\nworkers = \"+1\"\ncores = \"+0\"\n\
         mac-static = [\n\"02:00:00:00:00:01=+2\",\n\"02:00:00:00:00:01@+7=2\"]",
        &[
            "ob.toml:1: port: \"+1\": must be a port number from 1 to",
            "ob.toml:3: workers: \"+1\": must be a number from 1 to 64",
            "ob.toml:4: cores: \"+0\": must be a number from 0 to 4095",
            "ob.toml:6: mac-static: \"+2\": must be a number from 1 to",
            "ob.toml:7: mac-static: \"+7\": must be a number from 0 to 4095",
        ],
    ),
    (
        "unknown pages",
        "port = [\"1=memory:\"]\nmac-pages = \"2g\"",
        &["ob.toml:2: mac-pages: \"2g\": must be one of huge, 1g, small"],
    ),
    (
        "one place for OpenFlow twice",
        "port = [\"1=memory:\"]\nopenflow = [\n\"ptcp:6653\",\n\"ptcp:6653:127.0.0.1\"]",
        &["ob.toml:4: openflow: ptcp:6653:127.0.0.1 is given already, at ob.toml:3: openflow"],
    ),
];

#[test]
fn every_problem_is_reported_with_its_location() {
    for (about, text, wanted) in WRONG {
        let problems = check(text).err().unwrap_or_else(|| panic!("{about}: accepted"));
        let lines: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), wanted.len(), "{about}: {lines:#?}");
        for (line, wanted) in lines.iter().zip(*wanted) {
            assert!(line.starts_with(wanted), "{about}: {line} instead of {wanted}");
            assert!(!line.contains('\n'), "{about}: {line}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let mut source = Source::new(&SECTIONS);
    source.flag("port", ["1=memory:"]);
    source.file(Path::new("/nowhere/ob.toml"));
    let problems = Config::new(source, &CORES).expect_err("no such file").to_string();
    assert!(problems.starts_with("/nowhere/ob.toml: cannot be read: "), "{problems}");
    assert_eq!(problems.lines().count(), 1, "{problems}");
}

/// Settings that are not commented out in `packaging/switch.toml`.
const ACTIVE: [&str; 2] = ["port", "openflow"];

fn repository(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn documents_are_made_of_the_tables() {
    let text = text::example("switch", &SECTIONS, &ACTIVE);
    document::whole(repository("packaging/switch.toml"), &text).unwrap_or_else(|e| panic!("{e}"));
    let mut reference = String::new();
    for section in &SECTIONS {
        let rows = text::reference(section);
        reference.push_str(&format!("### {}\n{rows}\n", section.title));
    }
    document::part(repository("docs/switch.md"), "settings", &reference)
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_packaged_configuration_is_right() {
    let text = std::fs::read_to_string(repository("packaging/switch.toml")).expect("it is there");
    let config = check(&text).expect("right");
    assert_eq!((config.ports.len(), config.targets.len()), (2, 1));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,200}", at in 0usize..600, junk in "[\\[\\]{}=\",.0-9a-z\n#']{0,12}") {
        let _ = check(&text);
        let at = at.min(WHOLE.len());
        let _ = check(&format!("{}{junk}{}", &WHOLE[..at], &WHOLE[at..]));
    }
}
