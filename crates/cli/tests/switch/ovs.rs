//! Open vSwitch as a base station of `overbank gateway`: a `gtpu` port of its userspace datapath.
//!
//! ```text
//!   namespace 1                                              4            2
//!   br0 (10.45.0.2) ══ gtpu0 ══ br-phy (10.79.1.1) ── eth0 ── gateway ── 10.79.2.1
//! ```
//!
//! Both directions have plain headers of 8 bytes: Open vSwitch 3.1 skips no extension header. It
//! also looks for the inner version 8 bytes too far, where IPv4 has its TTL
//! (`netdev_gtpu_pop_header` adds the UDP header's length twice), and takes only packets whose TTL
//! is 64 to 79 or 96 to 111: hence the TTL of the host.

use crate::gateway::{HEADER, Site};
use crate::net::Serving;
use crate::process::{Running, must, sh, totals_of, wait};
use std::fs;
use std::path::Path;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// TEIDs of the tunnel: the gateway's end and the base station's.
const TEIDS: [u32; 2] = [0x101, 0x2001];

/// A database and a switch in a folder; no service of the machine is touched.
struct Ovs<'a> {
    folder: &'a Path,
    _processes: [Serving; 2],
}

impl Ovs<'_> {
    fn start<'a>(site: &Site, folder: &'a Path) -> Ovs<'a> {
        let at = |name: &str| folder.join(name).display().to_string();
        must(&format!("ovsdb-tool create {} {SCHEMA}", at("conf.db")));
        let run = |program: &str, control: &str| {
            let names = ["RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"];
            let folders: String =
                names.map(|name| format!("OVS_{name}={} ", folder.display())).concat();
            let command = format!("env {folders}{program} --no-chdir --unixctl={}", at(control));
            let serving = site.net.start(1, &command, &folder.join("log"));
            wait(program, || folder.join(control).exists());
            serving
        };
        let database = format!("ovsdb-server {} --remote=punix:{}", at("conf.db"), at("db.sock"));
        let database = run(&database, "database.ctl");
        must(&format!("ovs-vsctl --db=unix:{} --no-wait init", at("db.sock")));
        let switch = format!("ovs-vswitchd unix:{} --disable-system", at("db.sock"));
        let switch = run(&switch, "switch.ctl");
        Ovs { folder, _processes: [database, switch] }
    }

    fn vsctl(&self, command: &str) -> String {
        let socket = self.folder.join("db.sock");
        must(&format!("ovs-vsctl --db=unix:{} --timeout=20 {command}", socket.display()))
    }

    fn add_flow(&self, flow: &str) {
        let socket = self.folder.join("br0.mgmt");
        must(&format!("ovs-ofctl -O OpenFlow13 add-flow unix:{} {flow}", socket.display()));
    }

    /// Packets of the rules: into the tunnel, and out of it.
    fn packets(&self) -> [u64; 2] {
        let socket = self.folder.join("br0.mgmt");
        let text = must(&format!("ovs-ofctl dump-flows unix:{}", socket.display()));
        ["in_port=LOCAL", "in_port=10"].map(|rule| {
            let line = text.lines().find(|line| line.contains(rule)).expect("the rule");
            let rest = line.split_once("n_packets=").expect("its packets").1;
            rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
        })
    }
}

/// Joins the terminal's side to the tunnel.
fn set_up(site: &Site, ovs: &Ovs<'_>) {
    let (net, [up, down]) = (&site.net, TEIDS);
    let ip = |arguments: &str| must(&format!("ip -n {} {arguments}", net.space(1)));
    ip("address flush dev eth0");
    net.must(1, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    let bridge = "datapath_type=netdev fail-mode=secure";
    ovs.vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy eth0");
    ovs.vsctl(&format!("add-br br0 -- set bridge br0 {bridge}"));
    ovs.vsctl(
        "add-port br0 gtpu0 -- set interface gtpu0 type=gtpu ofport_request=10 options:key=flow \
         options:remote_ip=10.79.1.9",
    );
    ip("address add 10.79.1.1/24 dev br-phy");
    ip("link set br-phy up");
    // The terminal: what it sends has room for the tunnel, and its checksums are written.
    ip("address add 10.45.0.2/24 dev br0");
    ip("link set br0 mtu 1400 up");
    net.must(1, "ethtool -K br0 tx off");
    net.must(2, "ethtool -K eth0 tx off");
    // 64 behind the gateway.
    net.must(2, "sysctl -qw net.ipv4.ip_default_ttl=65");
    ip("neighbour add 10.45.0.1 lladdr 02:00:00:00:00:99 dev br0");
    ip("route add 10.79.2.0/24 via 10.45.0.1 dev br0");
    let gateway = net.must(4, "cat /sys/class/net/p1/address");
    let control = ovs.folder.join("switch.ctl");
    must(&format!(
        "ovs-appctl -t {} tnl/arp/set br-phy 10.79.1.9 {}",
        control.display(),
        gateway.trim()
    ));
    let mac = net.must(1, "cat /sys/class/net/br0/address");
    ovs.add_flow(&format!("in_port=LOCAL,ip,actions='set_field:{up}->tun_id,output:10'"));
    let to_terminal = format!("'set_field:{}->eth_dst,LOCAL'", mac.trim());
    ovs.add_flow(&format!("in_port=10,tun_id={down},ip,actions={to_terminal}"));
}

#[test]
fn a_terminal_behind_open_vswitch_talks_through_the_gateway() {
    let Some(site) = Site::new("gv") else { return };
    let there = sh("ovs-vswitchd --version && ovs-ofctl --version").status.success();
    if !overbank_testing::needs("openvswitch-switch", there) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let ovs = Ovs::start(&site, folder.path());
    set_up(&site, &ovs);
    let sessions = folder.path().join("s.csv");
    let [up, down] = TEIDS;
    let line = format!("1,10.79.1.9,{up},10.79.1.1,{down},,10.45.0.2");
    fs::write(&sessions, format!("{HEADER}\n{line}\n")).expect("written");
    let running = Running::start(site.gateway("afxdp").arg("--sessions").arg(&sessions));
    let ping = |count: u32, len: u32| {
        let space = site.net.space(1);
        sh(&format!("ip netns exec {space} ping -i 0.2 -c {count} -W 1 -s {len} 10.79.2.1"))
    };
    // Next hops of all are found on the way.
    wait("an answer", || ping(1, 10).status.success());
    for len in [0, 1300] {
        let output = ping(5, len);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
    // A packet of TCP is in a tunnel both ways, too.
    site.net.transfers_from("10.79.2.1");
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    let total = |name: &str| totals["total"][name].as_u64().expect("a number");
    // Open vSwitch counts with a delay, and its receive queue may overflow.
    let received = totals["ports"][0]["received"].as_u64().expect("a number");
    wait("all that it sent", || ovs.packets()[0] == received);
    let taken = ovs.packets()[1];
    assert!((8_000_000 / 1500..=total("downlink")).contains(&taken), "{taken}: {totals:#}");
    assert_eq!(total("error_indications"), 0, "{totals:#}");
    let dropped = totals["ports"][0]["dropped"].as_object().expect("by reason");
    let known = dropped.keys().all(|reason| reason == "no_next_hop");
    assert!(known, "only until the neighbour is known: {dropped:?}");
    assert!(total("uplink_bytes") > 8_000 && total("downlink_bytes") > 8_000_000, "{totals:#}");
}
