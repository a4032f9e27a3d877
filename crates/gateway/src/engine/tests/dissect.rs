//! tshark dissects all that the gateway sends, and must find no fault in it.

use super::frames::*;
use super::*;
use overbank_testing::capture::{self, FAULTS, tshark};

/// Ports that tshark takes for no protocol.
const PORTS: [u16; 2] = [5000, 5001];

impl Events {
    /// The frames that left.
    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(|event| match event {
            Event::Frame(_, Verdict::Sent(_, frame)) | Event::Made(_, frame) => Some(&frame[..]),
            Event::Frame(..) => None,
        })
    }
}

/// Returns the terminal's address of the host's family.
fn terminal(session: &Session, host: IpAddr) -> Option<IpAddr> {
    match host {
        IpAddr::V4(_) => session.ipv4.map(IpAddr::V4),
        IpAddr::V6(_) => session.ipv6.map(|prefix| prefix.address().into()),
    }
}

/// Packets of each session both ways: that pass, that expire, and that are too big.
fn of_sessions(rig: &mut Rig, events: &mut Events) {
    for session in &all_sessions()[..4] {
        for host in ["192.0.2.80", "2001:db8:80::80"].map(ip) {
            let Some(terminal) = terminal(session, host) else { continue };
            rig.now_ms += 1000;
            for (ttl, len) in [(64, 100), (64, 101), (1, 100), (64, 1500)] {
                let up = packet(terminal, host, ttl, PORTS, len);
                for container in [false, true] {
                    events.0.extend(rig.burst(0, &[&g_pdu(session, container, &up)]));
                }
                let down = packet(host, terminal, ttl, PORTS, len);
                events.0.extend(rig.burst(1, &[&frame(N6_MAC, ROUTER_MAC, &down)]));
            }
        }
    }
}

/// Messages about paths and tunnels, over both families and from two ports.
fn of_paths(rig: &mut Rig, events: &mut Events) {
    let inner = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, PORTS, 100);
    let messages = [
        gtpu(2, 1, 0, &[0x12, 0x34, 0, 0], &[]),
        gtpu(0, 255, 77, &[], &inner),
        // An extension header whose comprehension is required.
        gtpu(4, 255, 1, &[0, 0, 0, 0xc1, 1, 0, 0, 0], &inner),
    ];
    let peers = [("198.51.100.", "192.0.2.1", 34), ("2001:db8:7::", "2001:db8::1", 54)];
    for (net, n3, udp) in peers {
        for (host, port) in [(1, 2152u16), (2, 40_000)] {
            rig.now_ms += 1000;
            for message in &messages {
                let mut frame = to_n3(ip(&format!("{net}{host}")), ip(n3), message);
                frame[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
                events.0.extend(rig.burst(0, &[&frame]));
            }
        }
        let path = Path { n3: ip(n3), peer: ip(&format!("{net}1")) };
        let Path { n3, peer } = path;
        rig.gateway.perform(Order::EndMarker { n3, peer, teid: 0x1001 }, events);
        rig.gateway.perform(Order::Echo { path, sequence: 0x1234 }, events);
    }
}

#[test]
fn tshark_finds_no_fault_in_what_is_sent() {
    let (mut rig, mut events) = (Rig::new(view()), Events::default());
    of_sessions(&mut rig, &mut events);
    of_paths(&mut rig, &mut events);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sent.pcap");
    capture::write(&path, events.sent()).expect("written");
    // It notes the low TTL of a packet that is quoted because of it.
    let notes = [
        format!("({FAULTS}) && !(icmp.type == 11)"),
        "_ws.malformed || _ws.expert.severity > 0x400000".to_owned(),
        "_ws.expert && icmp.type == 11 && !(ip.ttl == 1)".to_owned(),
    ];
    for filter in notes {
        assert_eq!(tshark(&path, &filter, &[]), [""; 0], "{filter}");
    }
    // Each is what the gateway says that it sent.
    let count = |filter: &str| tshark(&path, filter, &["frame.number"]).len() as u64;
    let totals = rig.totals();
    let errors = "(icmp.type == 3 || icmp.type == 11 || icmpv6.type == 2 || icmpv6.type == 3)";
    let to_terminals = count(&format!("gtp && {errors}"));
    assert_eq!(count("gtp.message == 0xff"), totals.downlink + to_terminals);
    assert_eq!(count(errors), totals.icmp_errors);
    // Six terminals' addresses, two errors each way, of which those upwards come twice.
    assert_eq!((totals.icmp_errors, to_terminals), (6 * 6, 6 * 4));
    assert_eq!((totals.uplink, totals.downlink), (6 * 4, 6 * 2));
    assert_eq!((count("gtp.message == 2"), totals.echo_answered), (4, 4));
    assert_eq!((count("gtp.message == 0x1a"), totals.error_indications), (4, 4));
    assert_eq!((count("gtp.message == 0x1f"), totals.extensions_notified), (4, 4));
    assert_eq!(count("gtp.ext_hdr.udp_port == 40000"), 2);
    assert_eq!((count("gtp.message == 0xfe"), totals.end_markers), (2, 2));
    assert_eq!(
        count("!gtp && udp.port == 5000"),
        totals.uplink + totals.icmp_errors - to_terminals
    );
    // Sessions with a QFI have a PDU Session Container.
    let qfi = "gtp.ext_hdr.pdu_ses_con.qos_flow_id == 9";
    assert_eq!(count(&format!("{qfi} && gtp.message == 0xff")), 4 * (2 + 4));
}
