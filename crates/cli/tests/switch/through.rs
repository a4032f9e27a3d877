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
    running.expect("is open again");
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

/// An AF_XDP port takes its frames before a sample sees them: `advise` says so.
#[test]
fn a_sample_of_an_af_xdp_port_says_why_it_sees_nothing() {
    let Some(net) = Net::new("a", 2) else { return };
    let mut command = overbank();
    command.args(["switch", "--metrics", "off", "--format", "json", "--fail-mode", "standalone"]);
    for host in [1, 2] {
        command.arg("--port").arg(format!("{host}=afxdp:{}", net.near(host)));
    }
    let running = Running::start(&mut command);
    wait("a ping", || net.pings(1, 2));
    let mut sample = overbank();
    sample.args(["advise", "--no-calibration", "--seconds", "1", "--interface", &net.near(1)]);
    let output = sample.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    for part in [&*net.near(1), "no frame arrived", "XDP program", "AF_PACKET port"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    running.end("TERM");
}
