//! The real `ovs-ofctl`, under each version that it shares with the switch.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::bench::{Bench, PATIENCE, frame, patient, quiet, wait};

const VERSIONS: [&str; 3] = ["OpenFlow13", "OpenFlow14", "OpenFlow15"];

/// A switch, and the tool that talks to it.
struct Ofctl {
    bench: Bench,
    target: String,
    folder: TempDir,
}

impl Ofctl {
    /// Returns `None` where the test is skipped because the tool is missing.
    fn new(rules: &str) -> Option<Ofctl> {
        let there = Command::new("ovs-ofctl").arg("--version").output().is_ok();
        if !overbank_testing::needs("ovs-ofctl", there) {
            return None;
        }
        let bench = Bench::with(rules, &vec![quiet(); 3], patient(), vec![]);
        let target = format!("tcp:127.0.0.1:{}", bench.address.port());
        Some(Ofctl { bench, target, folder: tempfile::tempdir().expect("a folder") })
    }

    fn command(&self, version: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", version, "--timeout=60"]);
        command.env("OVS_RUNDIR", self.folder.path()).stdin(Stdio::null());
        // The first word that is no option is the command; the switch comes after it.
        let at = words.iter().position(|word| !word.starts_with('-')).expect("a command");
        command.args(&words[..=at]).arg(&self.target).args(&words[at + 1..]);
        command
    }

    /// Its output; it has to succeed.
    fn run(&self, version: &str, words: &[&str]) -> String {
        let output = self.command(version, words).output().expect("it runs");
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{version} {words:?}: {out}{err}");
        assert!(!out.contains("OFPT_ERROR") && err.is_empty(), "{version} {words:?}: {out}{err}");
        out
    }

    /// What it prints about an error.
    fn refused(&self, version: &str, words: &[&str]) -> String {
        let output = self.command(version, words).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// The rules that it shows, without counters and times.
    fn flows(&self, version: &str) -> Vec<String> {
        let dump = self.run(version, &["--no-stats", "--sort", "dump-flows"]);
        dump.lines().map(|line| line.trim().to_owned()).collect()
    }
}

/// As one may write it, and as it comes back.
const RULES: [(&str, &str); 15] = [
    (
        "priority=50,in_port=1,dl_src=02:00:00:00:00:01/ff:ff:ff:00:00:00,actions=resubmit(,1),normal",
        "priority=50,in_port=1,dl_src=02:00:00:00:00:00/ff:ff:ff:00:00:00 actions=resubmit(,1),NORMAL",
    ),
    (
        "priority=51,dl_vlan=7,dl_vlan_pcp=3,actions=pop_vlan,output:2",
        "priority=51,dl_vlan=7,dl_vlan_pcp=3 actions=pop_vlan,output:2",
    ),
    (
        "priority=52,vlan_tci=0x0000/0x1fff,actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:3",
        "priority=52,vlan_tci=0x0000/0x1fff actions=push_vlan:0x8100,set_field:4103->vlan_vid,output:3",
    ),
    (
        "priority=53,arp,arp_op=2,arp_tpa=10.0.0.0/8,actions=flood",
        "priority=53,arp,arp_tpa=10.0.0.0/8,arp_op=2 actions=FLOOD",
    ),
    (
        "priority=54,ip,nw_tos=184,nw_ttl=64,actions=mod_nw_tos:32,mod_nw_ttl:9,in_port",
        "priority=54,ip,nw_tos=184,nw_ttl=64 actions=set_field:8->ip_dscp,mod_nw_ttl:9,IN_PORT",
    ),
    (
        "priority=55,tcp6,ipv6_dst=fe80::/10,tcp_flags=+syn-ack,actions=all",
        "priority=55,tcp6,ipv6_dst=fe80::/10,tcp_flags=+syn-ack actions=ALL",
    ),
    (
        "priority=56,udp,nw_src=10.0.0.0/255.0.255.0,actions=set_field:10.1.0.0/16->ip_dst,controller:128",
        "priority=56,udp,nw_src=10.0.0.0/255.0.255.0 actions=set_field:10.1.0.0/16->ip_dst,CONTROLLER:128",
    ),
    (
        "priority=57,icmp6,icmp_type=135,nd_target=fe80::1,actions=set_field:02:00:00:00:00:07->nd_sll,local",
        "priority=57,icmp6,icmp_type=135,nd_target=fe80::1 actions=set_field:02:00:00:00:00:07->nd_sll,LOCAL",
    ),
    ("priority=58,ip,nw_frag=later,actions=drop", "priority=58,ip,nw_frag=later actions=drop"),
    ("priority=59,mpls,actions=controller(max_len=77)", "priority=59,mpls actions=CONTROLLER:77"),
    (
        "priority=60,sctp,tp_src=1,actions=mod_tp_dst:5,resubmit:3",
        "priority=60,sctp,tp_src=1 actions=set_field:5->sctp_dst,resubmit:3",
    ),
    (
        "priority=61,dl_type=0x88cc,actions=mod_vlan_vid:9,output:1",
        "priority=61,dl_type=0x88cc actions=push_vlan:0x8100,set_field:4105->vlan_vid,output:1",
    ),
    (
        "priority=62,ip,idle_timeout=90,hard_timeout=120,actions=dec_ttl,output:1",
        "idle_timeout=90, hard_timeout=120, priority=62,ip actions=dec_ttl,output:1",
    ),
    (
        "table=1,cookie=0x55,actions=write_actions(output:2,set_field:02:00:00:00:00:03->eth_dst),goto_table:2",
        "cookie=0x55, table=1, actions=write_actions(output:2,set_field:02:00:00:00:00:03->eth_dst),goto_table:2",
    ),
    (
        "table=2,send_flow_rem,check_overlap,reset_counts,no_packet_counts,no_byte_counts,actions=clear_actions,goto_table:9",
        "table=2, send_flow_rem check_overlap reset_counts no_packet_counts no_byte_counts actions=clear_actions,goto_table:9",
    ),
];

#[test]
fn rules_are_shown_as_they_were_added() {
    let Some(ofctl) = Ofctl::new("") else { return };
    let file = ofctl.folder.path().join("rules");
    let text: Vec<&str> = RULES.iter().map(|rule| rule.0).collect();
    std::fs::write(&file, text.join("\n")).expect("a file");
    let file = file.to_str().expect("a path");
    let wanted: Vec<&str> = RULES.iter().map(|rule| rule.1).collect();
    for version in VERSIONS {
        ofctl.run(version, &["add-flows", file]);
        assert_eq!(ofctl.flows(version), wanted, "{version}");
        let sum = ofctl.run(version, &["dump-aggregate"]);
        assert!(sum.ends_with("packet_count=0 byte_count=0 flow_count=15\n"), "{sum}");
        ofctl.run(version, &["del-flows"]);
        assert!(ofctl.flows(version).is_empty());
        // All together, in a bundle (1.3 has none).
        if version != "OpenFlow13" {
            ofctl.run(version, &["--bundle", "add-flows", file]);
            assert_eq!(ofctl.flows(version), wanted, "{version}");
            ofctl.run(version, &["--bundle", "del-flows"]);
            assert!(ofctl.flows(version).is_empty());
        }
    }
}

#[test]
fn rules_are_modified_and_deleted() {
    let Some(ofctl) = Ofctl::new("") else { return };
    for version in VERSIONS {
        let run = |words: &[&str]| ofctl.run(version, words);
        run(&["add-flow", "priority=1,cookie=7,tcp,tp_dst=80,actions=output:1"]);
        run(&["add-flow", "priority=2,tcp,actions=output:1"]);
        run(&["add-flow", "priority=3,udp,actions=output:1"]);
        run(&["mod-flows", "tcp,actions=output:2"]);
        let of = |tcp80: &str, tcp: &str| {
            vec![
                "priority=3,udp actions=output:1".to_owned(),
                format!("priority=2,tcp actions={tcp}"),
                format!("cookie=0x7, priority=1,tcp,tp_dst=80 actions={tcp80}"),
            ]
        };
        let shown = || {
            let mut flows = ofctl.flows(version);
            flows.sort_by_key(|flow| !flow.contains("udp") as u8 + flow.contains("cookie") as u8);
            flows
        };
        assert_eq!(shown(), of("output:2", "output:2"), "{version}");
        run(&["--strict", "mod-flows", "priority=2,tcp,actions=drop"]);
        assert_eq!(shown(), of("output:2", "drop"));
        run(&["--strict", "mod-flows", "priority=9,tcp,actions=output:3"]);
        run(&["mod-flows", "cookie=7/-1,actions=output:3"]);
        assert_eq!(shown(), of("output:3", "drop"), "{version}");
        run(&["--strict", "del-flows", "priority=9,tcp"]);
        assert_eq!(shown().len(), 3);
        run(&["--strict", "del-flows", "priority=2,tcp"]);
        run(&["del-flows", "out_port=1"]);
        assert_eq!(ofctl.flows(version), of("output:3", "")[2..], "{version}");
        run(&["del-flows", "cookie=7/-1"]);
        assert!(ofctl.flows(version).is_empty());
    }
}

#[test]
fn the_switch_its_ports_and_tables_are_shown() {
    let Some(ofctl) = Ofctl::new("") else { return };
    for version in VERSIONS {
        let run = |words: &[&str]| ofctl.run(version, words);
        let show = run(&["show"]);
        for part in [
            "dpid:0000000000000001\nn_tables:255, n_buffers:256",
            "FLOW_STATS TABLE_STATS PORT_STATS",
            " 1(memory1): addr:",
            " 3(memory3): addr:",
            "frags=normal miss_send_len=128",
        ] {
            assert!(show.contains(part), "{part}: {show}");
        }
        let desc = run(&["dump-desc"]);
        assert!(desc.contains("Manufacturer: Overbank\n"), "{desc}");
        assert!(run(&["dump-ports"]).contains("3 ports\n"));
        let one = run(&["dump-ports", "2"]);
        assert!(one.contains("1 ports\n  port  2: rx pkts="), "{one}");
        assert!(run(&["dump-ports-desc"]).contains(" 2(memory2): addr:"));
        let tables = run(&["dump-tables"]);
        assert!(tables.contains("tables 1...254: ditto"), "{tables}");
        let features = run(&["dump-table-features"]);
        assert!(features.contains("  table 254 (\"table254\"):\n"), "{features}");
        assert!(features.contains("tcp_{src,dst,flags}"), "{features}");
        for words in ["dump-groups", "dump-group-features", "dump-meters", "meter-features"] {
            run(&[words]);
        }
        assert!(run(&["queue-stats"]).contains("0 queues"));
        if version != "OpenFlow13" {
            assert!(run(&["dump-table-desc"]).contains("table 254"));
        }
        run(&["probe"]);
        assert_eq!(run(&["ping", "1000"]).lines().count(), 10);
        for frags in ["drop", "nx-match", "normal"] {
            run(&["set-frags", frags]);
            assert_eq!(run(&["get-frags"]), format!("{frags}\n"));
        }
        let refused = ofctl.refused(version, &["set-frags", "reassemble"]);
        assert!(refused.contains("OFPSCFC_BAD_FLAGS"), "{refused}");
    }
}

#[test]
fn ports_are_set() {
    let Some(ofctl) = Ofctl::new("") else { return };
    for version in VERSIONS {
        let shown = || {
            let text = ofctl.run(version, &["dump-ports-desc", "memory2"]);
            let at = text.find("2(memory2)").expect("the port");
            let config = text[at..].lines().nth(1).expect("its config").trim().to_owned();
            let state = text[at..].lines().nth(2).expect("its state").trim();
            let wanted = if config.contains("PORT_DOWN") { "LINK_DOWN" } else { "LIVE" };
            assert_eq!(state.trim_start_matches("state:").trim(), wanted, "{text}");
            config.trim_start_matches("config:").trim().to_owned()
        };
        for (action, config) in [
            ("down", "PORT_DOWN"),
            ("no-receive", "PORT_DOWN NO_RECV"),
            ("up", "NO_RECV"),
            ("receive", "0"),
            ("no-forward", "NO_FWD"),
            ("no-packet-in", "NO_FWD NO_PACKET_IN"),
            ("forward", "NO_PACKET_IN"),
            ("packet-in", "0"),
        ] {
            ofctl.run(version, &["mod-port", "memory2", action]);
            assert_eq!(shown(), config, "{version} {action}");
        }
    }
}

#[test]
fn packets_are_sent_and_counted() {
    let rules = "priority=7,in_port=1,actions=output:3\npriority=1,actions=drop";
    let Some(ofctl) = Ofctl::new(rules) else { return };
    let bytes = frame(1, 2, b"sent by hand");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut passed = 0;
    for version in VERSIONS {
        let out = |in_port: &str, actions: &str| {
            let line = format!("in_port={in_port},packet={hex},actions={actions}");
            ofctl.run(version, &["packet-out", &line]);
        };
        out("controller", "output:2");
        assert_eq!(ofctl.bench.sent(2, 1), std::slice::from_ref(&bytes));
        out("1", "table");
        assert_eq!(ofctl.bench.sent(3, 1), std::slice::from_ref(&bytes));
        ofctl.bench.ports[0].inject(&bytes);
        assert_eq!(ofctl.bench.sent(3, 1), std::slice::from_ref(&bytes));
        passed += 2;
        assert!(ofctl.bench.handle().barrier_blocking(PATIENCE));
        let flows = ofctl.run(version, &["dump-flows", "in_port=1"]);
        let wanted = format!("n_packets={passed}, n_bytes={}, ", passed * bytes.len());
        assert!(flows.contains(&wanted), "{wanted}: {flows}");
    }
}

#[test]
fn invalid_values_are_refused_by_name() {
    let Some(ofctl) = Ofctl::new("") else { return };
    for version in VERSIONS {
        for (words, code) in [
            (["add-flow", "metadata=1,actions=drop"], "OFPBMC_BAD_FIELD"),
            (["add-flow", "actions=group:1"], "OFPBAC_BAD_OUT_GROUP"),
            (["add-flow", "actions=set_queue:1,output:1"], "OFPBAC_BAD_QUEUE"),
            (["add-flow", "table=3,actions=write_metadata:5"], "OFPBIC_UNSUP_INST"),
            (["add-flow", "actions=learn(table=1)"], "OFPBAC_BAD_VENDOR_TYPE"),
            (["add-group", "group_id=1,type=all,bucket=output:1"], "OFPGMFC_OUT_OF_GROUPS"),
            (["add-meter", "meter=1,kbps,band=type=drop,rate=1"], "OFPMMFC_OUT_OF_METERS"),
        ] {
            let refused = ofctl.refused(version, &words);
            assert!(refused.contains(code), "{version} {words:?}: {refused}");
        }
        ofctl.run(version, &["add-flow", "priority=5,tcp,actions=drop"]);
        let overlap = ["add-flow", "priority=5,ip,nw_src=10.0.0.1,check_overlap,actions=drop"];
        let refused = ofctl.refused(version, &overlap);
        assert!(refused.contains("OFPFMFC_OVERLAP"), "{refused}");
        assert_eq!(ofctl.flows(version), ["priority=5,tcp actions=drop"]);
    }
    let refused = ofctl.refused("OpenFlow14", &["mod-table", "0", "evict"]);
    assert!(refused.contains("OFPTMFC_BAD_CONFIG"), "{refused}");
}

/// Ended when it goes out of scope.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ovs-ofctl monitor`, which runs until it is stopped.
struct Monitor {
    running: Running,
    path: PathBuf,
}

impl Monitor {
    fn start(ofctl: &Ofctl, version: &str, word: &str) -> Monitor {
        let path = ofctl.folder.path().join("seen");
        let file = || File::options().create(true).append(true).open(&path).expect("a file");
        let mut command = ofctl.command(version, &["monitor", word]);
        let child = command.stdout(file()).stderr(file()).spawn().expect("it runs");
        Monitor { running: Running(child), path }
    }

    fn has_seen(&self, what: &str) -> bool {
        std::fs::read_to_string(&self.path).expect("the file").contains(what)
    }

    fn sees(&self, what: &str) {
        wait(what, || self.has_seen(what));
    }
}

#[test]
fn a_monitor_sees_packets_rules_that_go_and_ports_that_change() {
    for version in VERSIONS {
        let Some(ofctl) = Ofctl::new("actions=controller:60") else { return };
        let monitor = Monitor::start(&ofctl, version, "65534");
        // While it sets itself up it passes over packets.
        wait("a packet-in", || {
            ofctl.bench.ports[1].inject(&frame(1, 2, &[7; 100]));
            monitor.has_seen("OFPT_PACKET_IN")
        });
        for what in ["in_port=2", "total_len=142", "data_len=60"] {
            monitor.sees(what);
        }
        ofctl.run(version, &["add-flow", "cookie=0x77,udp,send_flow_rem,actions=drop"]);
        ofctl.run(version, &["del-flows", "udp"]);
        monitor.sees("OFPT_FLOW_REMOVED");
        monitor.sees("cookie:0x77");
        ofctl.run(version, &["mod-port", "3", "no-forward"]);
        monitor.sees("OFPT_PORT_STATUS");
        monitor.sees("MOD: 3(memory3)");
        drop(monitor.running);
    }
}

#[test]
fn news_of_flows_are_refused() {
    for (version, code) in [("OpenFlow13", "OFPBRC_BAD_VENDOR"), ("OpenFlow14", "OFPBRC_BAD_STAT")]
    {
        let Some(ofctl) = Ofctl::new("") else { return };
        Monitor::start(&ofctl, version, "watch:").sees(code);
    }
}
