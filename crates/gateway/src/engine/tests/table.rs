//! Bad inputs that gateways of others fell over, and the limits of answers: description, frame in,
//! verdict, counter that moved.

mod gtpu;
mod n3;
mod n6;

use super::frames::{frame, g_pdu, gtpu, packet, to_n3};
use super::*;
use overbank_reasons::Reasons;

/// Collects what happened, by name: a reason, or `n3` and `n6` for what was sent.
#[derive(Default)]
struct Names {
    fates: Vec<&'static str>,
    made: Vec<Vec<u8>>,
}

impl Sink for Names {
    fn output(&mut self, _: usize, port: u16, _: &[u8]) {
        self.fates.push(["n3", "n6"][usize::from(port)]);
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], _: &[u8]) {
        self.output(index, port, head);
    }

    fn drop(&mut self, _: usize, reason: DropReason) {
        self.fates.push(DropReason::name_at(reason.index()));
    }

    fn originate(&mut self, _: u16, bytes: &[u8]) {
        self.made.push(bytes.to_vec());
    }
}

impl Rig {
    fn name(&mut self, port: u16, frame: &[u8]) -> (&'static str, usize) {
        let mut names = Names::default();
        self.gateway.forward(&[frame], port, self.now_ms, &mut names);
        assert_eq!(names.fates.len(), 1);
        (names.fates[0], names.made.len())
    }
}

fn of(id: usize) -> Session {
    all_sessions()[id - 1]
}

fn v4(src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    packet(src.into(), dst.into(), 64, [1000, 53], 100)
}

/// A packet of the terminal of session 1.
fn inner() -> Vec<u8> {
    v4([10, 45, 0, 1], [192, 0, 2, 80])
}

fn six() -> Vec<u8> {
    packet(ip("2001:db8:45:1::5"), ip("2001:db8:80::80"), 64, [1, 2], 100)
}

fn message(flags: u8, kind: u8, teid: u32, optional: &[u8], body: &[u8]) -> Vec<u8> {
    to_n3(of(1).peer, of(1).n3, &gtpu(flags, kind, teid, optional, body))
}

fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    bytes
}

/// A row of a table: whose complaint it is (an issue of open5gs, or of the project named), what is
/// sent, what becomes of it, and the counter that moves.
type Row = (&'static str, &'static str, Vec<u8>, &'static str, Counted);
type Counted = Option<fn(&GatewayTotals) -> u64>;

const NONE: Counted = None;
const UP: Counted = Some(|totals| totals.uplink);
const DOWN: Counted = Some(|totals| totals.downlink);
const ECHO: Counted = Some(|totals| totals.echo_answered);
const INDICATION: Counted = Some(|totals| totals.error_indications);
const NOTICE: Counted = Some(|totals| totals.extensions_notified);
const ICMP: Counted = Some(|totals| totals.icmp_errors);

/// Checks each row with a new gateway, so that no limit of answers plays a part.
fn check_rows(port: u16, rows: &[Row]) {
    for (source, description, frame, verdict, counter) in rows {
        let mut rig = Rig::new(view());
        let (name, made) = rig.name(port, frame);
        assert_eq!(name, *verdict, "{source}: {description}");
        let totals = rig.totals();
        assert_eq!(counter.map_or(1, |counter| counter(&totals)), 1, "{source}: {description}");
        let answers = totals.error_indications + totals.extensions_notified + totals.icmp_errors;
        assert_eq!(made as u64, answers, "{source}: {description}");
        let moved = totals.uplink + totals.downlink + totals.echo_answered + answers;
        assert_eq!(moved, u64::from(counter.is_some()), "{source}: {description}");
        // A valid packet passes as if nothing had been there.
        let passed = rig.name(0, &g_pdu(&of(2), false, &v4([10, 45, 0, 2], [192, 0, 2, 80])));
        assert_eq!(passed, ("n6", 0), "after {source}: {description}");
    }
}

/// Makes the checksum of the outer IPv4 header right.
fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let sum = etherparse::checksum::u32_16bit_word::add_slice(0, &frame[14..34]);
    let sum = etherparse::checksum::u32_16bit_word::ones_complement(sum);
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// A packet inside the tunnel of session 1.
fn tunnelled(packet: &[u8]) -> Vec<u8> {
    g_pdu(&of(1), true, packet)
}

/// A packet of the terminal of session 1 to an address of its family.
fn to(dst: &str) -> Vec<u8> {
    let src = if dst.contains(':') { "2001:db8:45:1::5" } else { "10.45.0.1" };
    tunnelled(&packet(ip(src), ip(dst), 64, [1000, 53], 100))
}

/// Of Error Indications, only a peer's about its own tunnel is passed on to the control plane, and
/// no flood of them grows anything.
#[test]
fn error_indications_are_believed_of_their_peers_alone() {
    let mut rig = Rig::new(view());
    let about = |peer: u8, sender: u8| {
        let elements = [16, 0, 0, 0x10, 1, 133, 0, 4, 198, 51, 100, peer];
        let message = gtpu(2, 26, 0, &[0; 4], &elements);
        to_n3([198, 51, 100, sender].into(), of(1).n3, &message)
    };
    assert_eq!(rig.name(0, &about(7, 8)), ("error_indication", 0));
    assert_eq!(rig.gateway.view.lost.take(), None);
    assert_eq!(rig.name(0, &about(7, 7)), ("error_indication", 0));
    assert_eq!(rig.gateway.view.lost.take(), Some((of(1).peer, 0x1001)));
    for _ in 0..10_000 {
        rig.name(0, &about(7, 7));
    }
    let kept = std::iter::from_fn(|| rig.gateway.view.lost.take()).count();
    assert!((1..=256).contains(&kept), "{kept}");
    assert_eq!(rig.name(0, &tunnelled(&inner())), ("n6", 0));
}

/// Changes a value in passing.
trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for Vec<u8> {}

#[test]
fn answers_are_bounded() {
    let mut rig = Rig::new(view());
    let unknown = |peer: u16| {
        let [a, b] = peer.to_be_bytes();
        g_pdu(&Session { peer: [198, 51, a, b].into(), teid: 77, ..of(1) }, true, &inner())
    };
    let (mut indications, mut of_one, mut echoes) = (Vec::new(), 0, 0);
    for now_ms in 0..3000u64 {
        rig.now_ms = now_ms;
        of_one += rig.name(0, &unknown(7)).1;
        for peer in 0..3 {
            let (name, made) = rig.name(0, &unknown(1000 + (now_ms as u16 % 1000) * 3 + peer));
            assert_eq!(name, "unknown_teid");
            indications.extend((0..made).map(|_| now_ms));
        }
        let echo = message(2, 1, 0, &[0, 1, 0, 0], &[]);
        echoes += u64::from(rig.name(0, &echo).0 == "n3");
    }
    // The peer may share its place with another one.
    assert!((1..=3).contains(&of_one), "{of_one}");
    for start in 0..2000 {
        let within = indications.iter().filter(|at| (start..start + 1000).contains(*at)).count();
        assert!(within <= 100, "{within} in the second from {start} ms");
    }
    assert!(indications.len() > 150, "{}", indications.len());
    assert!((100..=250).contains(&echoes), "{echoes}");
    let totals = rig.totals();
    assert_eq!(totals.echo_answered, echoes);
    let all = totals.error_indications + totals.error_indications_limited;
    assert_eq!(all, 4 * 3000);
}

#[test]
fn a_peer_outside_the_list_gets_no_answer() {
    let peers = [prefix("198.51.100.0/29")].into_iter().collect();
    let mut rig = Rig::new(View { peers, ..view() });
    let echo = |peer: &str| to_n3(ip(peer), of(1).n3, &gtpu(2, 1, 0, &[0, 1, 0, 0], &[]));
    assert_eq!(rig.name(0, &echo("198.51.100.7")), ("n3", 0));
    assert_eq!(rig.name(0, &echo("198.51.100.8")), ("foreign_peer", 0));
    assert_eq!(rig.name(0, &g_pdu(&of(1), true, &inner())), ("n6", 0));
}

#[test]
fn messages_are_sent_on_request() {
    let mut rig = Rig::new(view());
    let mut names = Names::default();
    let (n3, peer) = (of(1).n3, of(1).peer);
    rig.gateway.perform(Order::EndMarker { n3, peer, teid: 0x1001 }, &mut names);
    assert_eq!(names.made[0][42..], [0x30, 254, 0, 0, 0, 0, 0x10, 1]);
    let path = Path { n3, peer };
    rig.gateway.perform(Order::Echo { path, sequence: 0x1234 }, &mut names);
    assert_eq!(names.made[1][42..], [0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0]);
    // Without a next hop, a message is lost, and counted.
    let lost = of(8).peer;
    rig.gateway.perform(Order::EndMarker { n3, peer: lost, teid: 0x1001 }, &mut names);
    rig.gateway.perform(Order::Echo { path: Path { n3, peer: lost }, sequence: 1 }, &mut names);
    let totals = rig.totals();
    assert_eq!((names.made.len(), totals.unsent), (2, 2));
    assert_eq!((totals.end_markers, totals.echo_requests), (1, 1));
}

#[test]
fn an_echo_response_is_taken_if_it_was_asked_for() {
    let mut rig = Rig::new(view());
    let path = Path { n3: of(1).n3, peer: of(1).peer };
    let asker = rig.gateway.view.asker();
    let mut sequence = 0;
    rig.sessions.peers_mut().set_interval(60_000);
    rig.sessions.peers_mut().tick(asker, 0, |_, _| panic!("all are new"));
    rig.sessions.peers_mut().tick(asker, 60_000, |asked, with| {
        sequence = if asked == path { with } else { sequence };
        true
    });
    let response = |sequence: u16, recovery: &[u8]| {
        let [high, low] = sequence.to_be_bytes();
        to_n3(path.peer, path.n3, &gtpu(2, 2, 0, &[high, low, 0, 0], recovery))
    };
    assert_eq!(rig.name(0, &response(sequence, &[14, 7])), ("echo_response", 0));
    let taken = EchoResponse { path, sequence, recovery: Some(7) };
    assert_eq!(rig.gateway.view.echoes.take(), Some(taken));
    for stray in [sequence ^ 1, sequence ^ 1 << 7, sequence ^ 1 << 11] {
        assert_eq!(rig.name(0, &response(stray, &[14, 7])), ("echo_stray", 0));
    }
    assert_eq!(rig.gateway.view.echoes.take(), None);
}

#[test]
fn a_session_counts_its_packets() {
    let mut rig = Rig::new(view());
    let up = g_pdu(&of(7), true, &v4([10, 45, 0, 7], [192, 0, 2, 80]));
    let sent = (0..2000).filter(|_| rig.name(0, &up).0 == "n6").count() as u64;
    // 100 ms of a megabyte a second, in packets of 100 bytes, and the one that goes beyond.
    assert_eq!(sent, 1001);
    let counts = rig.sessions.get(7).expect("it exists").counts;
    let uplink = counts.uplink;
    assert_eq!((uplink.packets, uplink.bytes, uplink.dropped), (sent, 100 * sent, 2000 - sent));
    assert_eq!(counts.downlink.packets, 0);
    // The other direction has a rate beside it.
    let down = frame(N6_MAC, ROUTER_MAC, &v4([192, 0, 2, 80], [10, 45, 0, 7]));
    assert_eq!((0..2000).filter(|_| rig.name(1, &down).0 == "n3").count(), 1001);
}
