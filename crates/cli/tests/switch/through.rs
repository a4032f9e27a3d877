//! Programs that talk through the switch, as it learns by rules.

use crate::net::Net;
use crate::process::{Running, must, overbank, totals, wait};

fn through_it(kind: &str, tag: &str) {
    let Some(net) = Net::new(tag, 2) else { return };
    let mut command = overbank();
    command.args(["switch", "--metrics", "off", "--format", "json", "--workers", "2"]);
    command.args(["--fail-mode", "standalone"]);
    for host in [1, 2] {
        command.arg("--port").arg(format!("{host}={kind}:{}", net.near(host)));
    }
    let mut running = Running::start(&mut command);
    wait("a ping", || net.pings(1, 2));
    net.transfers();
    // A port is pulled out and plugged in again; the switch goes on.
    net.unplug(2);
    running.expect("the interface is gone");
    assert!(!net.pings(1, 2));
    net.plug(2);
    // The new interface has another address than the one that the neighbour remembers.
    must(&format!("ip -n {} neighbour flush all", net.space(1)));
    running.expect("opened again");
    wait("a ping again", || net.pings(1, 2));
    let totals = totals(&running.end("TERM"));
    assert!(totals["ports"][0]["sent_bytes"].as_u64() > Some(8_000_000), "{totals:#}");
    assert!(totals["control"]["macs"]["learned"].as_u64() > Some(1));
}

#[test]
fn hosts_talk_through_packet_sockets() {
    through_it("afpacket", "p");
}

#[test]
fn hosts_talk_through_af_xdp() {
    through_it("afxdp", "x");
}
