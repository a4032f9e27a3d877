//! Clusters in one process under traffic: each packet is accounted for.

use super::*;
use crate::reason::DropReason;
use overbank::random::Pcg32;
use overbank_reasons::Reasons as _;

const SESSIONS: u32 = 600;
/// Packets of a step of 10 ms.
const PACKETS: u32 = 40;

/// A cluster, its terminals, and the packets that no node took.
struct Rig {
    local: Local,
    population: Population,
    random: Pcg32,
    turned_away: u64,
}

impl Rig {
    fn new(nodes: u8) -> Rig {
        let population = Population::new(SESSIONS);
        let mut local = Local::new(population.plan(nodes, 7)).expect("memory");
        population.place(&mut local).expect("they fit");
        assert_eq!(local.serving(), SESSIONS as usize);
        local.watch();
        Rig { local, population, random: Pcg32::new(1, 1), turned_away: 0 }
    }

    /// Sends packets of numbers up to `most` in at ready nodes, also between the steps of a beat;
    /// `each` looks on.
    fn run(&mut self, steps: u32, most: u32, mut each: impl FnMut(&Local)) {
        for _ in 0..steps {
            self.local.begin(self.local.now_us() + 10_000);
            let mut left = PACKETS;
            while self.local.step() {
                if left > PACKETS / 2 {
                    left -= 1;
                    self.packet(most);
                }
                each(&self.local);
            }
            (0..left).for_each(|_| self.packet(most));
            assert!(self.local.closes());
            let exits = Exits { right: self.local.total().handled(), misrouted: 0 };
            assert_eq!(self.local.exits(), exits);
        }
    }

    fn packet(&mut self, most: u32) {
        let number = 1 + self.random.below(most);
        let role = if self.random.below(2) == 0 { Role::N3 } else { Role::N6 };
        let mut burst = Burst::default();
        self.population.packet(number, role, &mut burst);
        let nodes = 0..self.local.nodes();
        let ready: Vec<u8> = nodes.filter(|node| self.local.is_ready(*node)).collect();
        match ready.get(self.random.below(ready.len().max(1) as u32) as usize) {
            Some(node) => self.local.send(*node, role, &burst),
            None => self.turned_away += 1,
        }
    }

    fn dropped(&self, name: &str) -> u64 {
        let dropped = self.local.total().dropped.into_iter().enumerate();
        dropped.filter(|(at, _)| DropReason::name_at(*at) == name).map(|(_, count)| count).sum()
    }

    /// Packets that came in and were not handled.
    fn missing(&self) -> u64 {
        let total = self.local.total();
        total.received - total.handled()
    }
}

#[test]
fn every_node_takes_the_packets_of_all() {
    let mut rig = Rig::new(4);
    rig.run(50, SESSIONS, |_| {});
    let total = rig.local.total();
    assert_eq!((total.received, rig.missing(), rig.turned_away), (50 * 40, 0, 0));
    assert!(total.totals.uplink > 800 && total.totals.downlink > 800);
    // Three of four sessions are elsewhere.
    let forwarded = total.totals.fabric_sent;
    assert!((1300..1700).contains(&forwarded), "{forwarded}");
    let table = rig.local.status(0).table_bytes;
    assert!((100..200_000).contains(&table), "{table}");
}

#[test]
fn packets_of_no_session_are_dropped_by_name() {
    let mut rig = Rig::new(3);
    rig.run(50, 2 * SESSIONS, |_| {});
    let unknown = rig.dropped("unknown_teid") + rig.dropped("unknown_ue");
    // The table answers anything for an unknown key: also a node that is no member.
    let nowhere = rig.dropped("no_such_node");
    assert_eq!(unknown + nowhere, rig.missing());
    assert!((600..1000).contains(&unknown) && (100..400).contains(&nowhere), "{unknown} {nowhere}");
}

#[test]
fn moves_lose_no_packet() {
    let mut rig = Rig::new(4);
    for node in [2, 0, 3] {
        assert_eq!(rig.local.move_to(node, 200), 200);
        // Steps at which a session has gone and the tables do not say so yet.
        let mut between = 0;
        rig.run(60, SESSIONS, |local| {
            let installed = |node| local.status(node).serving + local.status(node).moving;
            between += u32::from((0..4).map(installed).sum::<usize>() > SESSIONS as usize);
        });
        assert!(between > 0, "packets came in during the moves");
    }
    let moves = rig.local.moves();
    assert_eq!((moves.asked, moves.done, moves.refused), (600, 600, 0));
    assert_eq!((rig.missing(), rig.local.serving()), (0, SESSIONS as usize));
    assert!(rig.local.status(3).serving >= 200);
}

#[test]
fn a_drained_node_leaves_without_a_loss() {
    let mut rig = Rig::new(4);
    assert!(rig.local.drain(1));
    rig.run(300, SESSIONS, |_| {});
    let status = rig.local.status(1);
    assert_eq!((status.state, status.serving, status.moving), (NodeState::Left, 0, 0));
    assert_eq!((rig.missing(), rig.local.serving()), (0, SESSIONS as usize));
    assert!(!rig.local.drain(1), "it is no member any more");
    assert!(rig.local.start(1).expect("memory"));
    rig.run(100, SESSIONS, |_| {});
    assert_eq!((rig.local.status(1).state, rig.missing()), (NodeState::Live, 0));
}

#[test]
fn the_sessions_of_a_dead_node_are_taken_over() {
    let mut rig = Rig::new(4);
    assert!(rig.local.kill(2) && !rig.local.kill(2));
    let gone = SESSIONS as usize - rig.local.serving();
    assert!(gone > 50, "{gone}");
    // Less than its lease.
    rig.run(200, SESSIONS, |_| {});
    assert!(rig.local.has_lease(2));
    assert!(rig.local.lost() > 1000, "{} packets to the dead node", rig.local.lost());
    assert_eq!(rig.local.lost(), rig.missing());
    rig.run(200, SESSIONS, |_| {});
    assert_eq!((rig.local.serving(), rig.local.has_lease(2)), (SESSIONS as usize, false));
    let lost = rig.missing();
    rig.run(50, SESSIONS, |_| {});
    assert_eq!(rig.missing(), lost, "no more is lost");
    assert!(rig.local.start(2).expect("memory") && !rig.local.start(2).expect("memory"));
    rig.run(100, SESSIONS, |_| {});
    assert_eq!((rig.local.status(2).state, rig.missing()), (NodeState::Live, lost));
    let status = rig.local.status(2);
    assert!(status.ready && status.serving == 0 && status.partitions > 0, "{status:?}");
}

#[test]
fn no_peer_is_told_that_its_session_is_gone_while_nodes_come_and_go() {
    let mut rig = Rig::new(4);
    let totals = |rig: &Rig| rig.local.total().totals;
    // Half of the packets are of no session.
    rig.run(600, 2 * SESSIONS, |_| {});
    assert!(totals(&rig).error_indications > 0, "{:?}", totals(&rig));
    rig.local.kill(2);
    while rig.local.cluster().members == 4 {
        rig.run(1, 2 * SESSIONS, |_| {});
    }
    // All nodes know it within a beat, and a lease has 3 s.
    rig.run(10, 2 * SESSIONS, |_| {});
    let before = totals(&rig);
    rig.run(200, 2 * SESSIONS, |_| {});
    let after = totals(&rig);
    assert_eq!(before.error_indications, after.error_indications);
    assert!(after.error_indications_held > before.error_indications_held + 100);
    rig.run(200, 2 * SESSIONS, |_| {});
    assert!(totals(&rig).error_indications > after.error_indications);
}

#[test]
fn the_last_node_may_die_and_come_back() {
    let mut rig = Rig::new(1);
    rig.local.kill(0);
    rig.run(10, SESSIONS, |_| {});
    assert_eq!((rig.turned_away, rig.local.total().received), (400, 0));
    rig.local.start(0).expect("memory");
    rig.run(600, SESSIONS, |_| {});
    assert_eq!((rig.local.status(0).state, rig.local.serving()), (NodeState::Live, 600));
    // It is live once it has placed the sessions of its earlier run.
    assert_eq!(rig.missing(), 0);
}

#[test]
fn a_node_that_is_cut_off_stops_before_its_sessions_are_taken() {
    let mut rig = Rig::new(4);
    let home = rig.local.status(2).serving;
    rig.local.connect(2, Links::Cut);
    let mut fenced_at = None;
    for beat in 0..400 {
        let before = rig.local.account(2);
        // Packets come in at the node although it is not ready.
        let mut burst = Burst::default();
        (1..=SESSIONS).for_each(|n| rig.population.packet(n, Role::N6, &mut burst));
        rig.local.send(2, Role::N6, &burst);
        let handled = rig.local.account(2).handled() - before.handled();
        let fenced = rig.dropped("fenced");
        match fenced_at {
            None => assert!(handled == home as u64 || fenced > 0, "{handled}"),
            Some(_) => assert_eq!(handled, 0),
        }
        fenced_at = fenced_at.or((fenced > 0).then_some(beat));
        let taken = rig.local.serving() - rig.local.status(2).serving > SESSIONS as usize - home;
        assert!(!taken || fenced_at.is_some(), "its sessions are handled twice");
        rig.run(1, SESSIONS, |_| {});
    }
    let fenced_at = fenced_at.expect("its lease ends");
    assert!((200..300).contains(&fenced_at), "{fenced_at}");
    assert!(rig.local.lost() > 1000 && rig.local.closes());
    rig.local.connect(2, Links::Whole);
    rig.run(100, SESSIONS, |_| {});
    let missing = rig.missing();
    rig.run(50, SESSIONS, |_| {});
    assert_eq!((rig.local.status(2).state, rig.missing()), (NodeState::Live, missing));
    assert_eq!(rig.local.serving(), SESSIONS as usize);
}

/// A check that cannot fail shows nothing.
#[test]
fn a_wrong_exit_is_seen() {
    let mut rig = Rig::new(3);
    let mut home = 0;
    for node in 0..3 {
        let left = |number| Some(vec![(node, number)]);
        let before = rig.local.exits();
        rig.local.left = left(Some(1));
        rig.local.check();
        home += rig.local.exits().right - before.right;
        for wrong in [None, Some(SESSIONS + 1)] {
            let before = rig.local.exits().misrouted;
            rig.local.left = left(wrong);
            rig.local.check();
            assert_eq!(rig.local.exits().misrouted, before + 1);
        }
    }
    assert_eq!((home, rig.local.exits()), (1, Exits { right: 1, misrouted: 8 }));
}

#[test]
fn a_frame_names_its_terminal_once() {
    let mut burst = Burst::default();
    let mut population = Population::new(9);
    population.packet(7, Role::N3, &mut burst);
    let frame = burst.iter().next().expect("one").to_vec();
    // As it comes in at N3, its terminal is the inner source; as it leaves there, the destination.
    assert_eq!(population::terminal(Role::N3, &frame, &[]), None);
    let mut burst = Burst::default();
    population.packet(7, Role::N6, &mut burst);
    let mut frame = burst.iter().next().expect("one").to_vec();
    assert_eq!(population::terminal(Role::N6, &frame, &[]), None);
    let inner = frame.len() - 128;
    frame.copy_within(inner + 16..inner + 20, inner + 12);
    assert_eq!(population::terminal(Role::N6, &frame[..20], &frame[20..]), Some(7));
    frame[inner + 31] ^= 1;
    assert_eq!(population::terminal(Role::N6, &frame, &[]), None);
    assert_eq!(population::terminal(Role::N6, &[0; 10], &[0; 900]), None);
}

/// Gives a frame another source, with its checksum.
fn from_source(frame: &mut [u8], source: [u8; 4]) {
    frame[24..26].fill(0);
    frame[26..30].copy_from_slice(&source);
    let words = frame[14..34].chunks_exact(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
}

impl Rig {
    /// Returns a cluster whose members have not changed for a lease.
    fn settled(nodes: u8) -> Rig {
        let mut rig = Rig::new(nodes);
        (0..100).for_each(|_| rig.local.advance(rig.local.now_us() + BEAT_US));
        rig
    }

    /// Sends packets in at node 0, a millisecond at a time: 40 of sessions, and 200 of none from
    /// this source. Returns how many of each were forwarded, and how many valid ones were lost.
    fn flood(&mut self, ms: u64, source: Option<[u8; 4]>) -> [u64; 3] {
        let before = (self.local.total(), self.local.account(0));
        for _ in 0..ms {
            self.local.advance(self.local.now_us() + 1000);
            for role in [Role::N3, Role::N6] {
                let mut burst = Burst::default();
                for nth in 0..120 {
                    let mut one = Burst::default();
                    let valid = nth % 6 == 0;
                    let random = self.random.below(SESSIONS);
                    let none = self.random.below(1 << 20);
                    let number = if valid { 1 + random } else { 1 + SESSIONS + none };
                    self.population.packet(number, role, &mut one);
                    let mut frame = one.iter().next().expect("one").to_vec();
                    if let (false, Some(source)) = (valid, source) {
                        from_source(&mut frame, source);
                    }
                    burst.push(&frame, &[]);
                }
                self.local.send(0, role, &burst);
            }
        }
        assert!(self.local.closes());
        let (now, here) = (self.local.total(), self.local.account(0));
        let handled = now.handled() - before.0.handled();
        let handled_there = handled - (here.handled() - before.1.handled());
        let sent = here.totals.fabric_sent - before.1.totals.fabric_sent;
        [handled_there, sent - handled_there, 40 * ms - handled]
    }
}

#[test]
fn packets_of_no_session_take_their_share_of_the_fabric() {
    let mut rig = Rig::settled(4);
    let first = rig.flood(150, Some([192, 0, 2, 200]));
    assert!(first[1] > 10_000, "nothing is known of the source at first: {first:?}");
    let then = rig.flood(500, Some([192, 0, 2, 200]));
    assert_eq!(first[2] + then[2], 0, "no packet of another source is lost");
    assert!(then[1] * 9 <= then[0], "{then:?}");
    assert!(rig.dropped("unknown_share") > 60_000);
    let total = rig.local.total();
    let notes = (total.totals.notes_sent, total.totals.notes_received);
    assert!(
        notes.0 == notes.1 && notes.0 == rig.dropped("fabric_note") && notes.0 > 0,
        "{notes:?}"
    );
    assert!(notes.0 <= first[1] + then[1], "no more notes than packets: {notes:?}");
    let exits = Exits { right: total.handled(), misrouted: 0 };
    assert_eq!(rig.local.exits(), exits);
}

#[test]
fn valid_packets_among_those_of_no_session_come_through() {
    let mut rig = Rig::settled(4);
    // The source of the valid ones: their keys are proven one after the other.
    rig.flood(2000, None);
    let then = rig.flood(500, None);
    assert!(then[2] < 40 * 500 / 10, "{then:?}");
    assert!(then[1] * 7 < then[0], "{then:?}");
}
