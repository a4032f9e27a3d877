//! Floods: five times as much garbage changes nothing for the packets of sessions.

use super::frames::*;
use super::*;
use crate::teid::{Secret, TeidCheck};

/// Frames of garbage beside one of a session.
const GARBAGE: usize = 6;
const ROUNDS: usize = 2_000;

fn peer_of(round: usize) -> IpAddr {
    [198, 51, 100, (round % 256) as u8].into()
}

#[test]
fn garbage_costs_valid_packets_nothing() {
    let mut view = view();
    let n3 = view.addresses.n3.clone();
    view.addresses.teids = TeidCheck::new(Some(Secret::new([9; 16])), &n3);
    let check = view.addresses.teids.clone();
    let (mut sessions, mut readers) =
        Sessions::new(100, view.addresses.clone(), 1, 3).expect("memory");
    let given = Session { teid: check.teid(0, 1) ^ 1 << 24, ..all_sessions()[0] };
    let refused = sessions.add(given, Origin::File, 0);
    assert_eq!(refused, Err(crate::sessions::SessionError::Unchecked(given.teid)));
    let session = Session { teid: check.teid(0, 1), ..given };
    sessions.add(session, Origin::File, 0).expect("a TEID with its check");
    let (roles, answers) = (Roles { n3: 0, n6: 1 }, Arc::new(Answers::new(5)));
    let gateway = Gateway::new(readers.remove(0), Arc::new(view), roles, answers);
    let mut rig = Rig { sessions, gateway, now_ms: 0 };

    let inner = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [1, 2], 100);
    let valid = g_pdu(&session, true, &inner);
    let expected = rig.burst(0, &[&valid]);
    let [Event::Frame(0, sent @ Verdict::Sent(1, _))] = &expected[..] else {
        panic!("{expected:?}");
    };
    let (mut received, mut dropped, mut counts) = (1, 0, HashMap::new());
    for round in 0..ROUNDS {
        // A second in all: the bounds of answers hold for this long.
        rig.now_ms = (round * 1000 / ROUNDS) as u64;
        let random = overbank::hash::mix(round as u64) as u32;
        let forged = to_n3(peer_of(round), session.n3, &gtpu(0, 255, random, &[], &inner));
        let echo = to_n3(peer_of(0), session.n3, &gtpu(2, 1, 0, &[0, 1, 0, 0], &[]));
        let indication = [&[16, 0, 0, 0, 9, 133, 0, 4][..], &[198, 51, 100, 7]].concat();
        let indication = gtpu(2, 26, 0, &[0, 1, 0, 0], &indication);
        let indication = to_n3(peer_of(7), session.n3, &indication);
        let crafted = to_n3(peer_of(9), session.n3, &gtpu(4, 255, 1, &[0, 0, 0, 0x85, 0], &inner));
        let foreign = to_n3(peer_of(9), ip("192.0.2.99"), &gtpu(0, 255, 1, &[], &inner));
        let unknown = [0, 0, 0, 0xc7, 1, 0, 0, 0];
        let unknown =
            to_n3(peer_of(round), session.n3, &gtpu(4, 255, session.teid, &unknown, &inner));
        let garbage: [_; GARBAGE] = [forged, echo, indication, crafted, foreign, unknown];
        let mut frames: Vec<&[u8]> = garbage.iter().map(Vec::as_slice).collect();
        let place = round % (GARBAGE + 1);
        frames.insert(place, &valid);
        received += frames.len();
        for event in rig.burst(0, &frames) {
            match event {
                Event::Frame(index, verdict) if index == place => assert_eq!(verdict, *sent),
                Event::Frame(_, Verdict::Sent(port, _)) => assert_eq!(port, 0, "an Echo Response"),
                Event::Frame(_, Verdict::Denied(denied)) => {
                    dropped += 1;
                    *counts.entry(denied).or_insert(0) += 1;
                }
                Event::Frame(_, Verdict::Refused) => dropped += 1,
                Event::Made(..) => {}
            }
        }
    }
    let totals = rig.totals();
    assert_eq!(totals.uplink as usize, ROUNDS + 1, "no packet of the session is lost");
    assert_eq!(received, totals.uplink as usize + totals.echo_answered as usize + dropped);
    assert!(totals.echo_answered <= 201, "{} echoes", totals.echo_answered);
    assert!(totals.error_indications <= 101, "{}", totals.error_indications);
    assert!((1..=101).contains(&totals.extensions_notified), "{}", totals.extensions_notified);
    assert_eq!(totals.extensions_notified + totals.extensions_limited, ROUNDS as u64);
    // Of random TEIDs, 1 in 256 reaches the tables.
    let (forged, unknown) = (counts[&Denied::ForgedTeid], counts[&Denied::UnknownTeid]);
    assert_eq!(forged + unknown, ROUNDS);
    assert!((1..=24).contains(&unknown), "{unknown} of {ROUNDS}");
}

#[test]
fn answers_are_as_many_as_the_settings_allow_now() {
    let mut rig = Rig::new(View { limits: AnswerLimits::new(10, 1, 1), ..view() });
    let n3 = all_sessions()[0].n3;
    let echo = to_n3(peer_of(0), n3, &gtpu(2, 1, 0, &[0, 1, 0, 0], &[]));
    let frames = vec![&echo[..]; 100];
    rig.burst(0, &frames);
    assert_eq!(rig.totals().echo_answered, 5, "half of a second's at once");
    rig.now_ms += 10_000;
    let more = View { limits: AnswerLimits::new(40, 1, 1), ..view() };
    rig.gateway.take_over(&Arc::default(), &Arc::new(more), rig.now_ms);
    rig.burst(0, &frames);
    assert_eq!(rig.totals().echo_answered, 5 + 20);
}
