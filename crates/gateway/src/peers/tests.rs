use super::*;
use overbank::random::Pcg32;
use proptest::prelude::*;
use std::collections::HashMap;

const ASKER: Asker = Asker { seed: Seed(7), me: NodeId(3) };
const MINUTE: u64 = 60_000;

fn path(n: u32) -> Path {
    Path { n3: [192, 0, 2, 1].into(), peer: (0xc633_0000 + n).to_be_bytes().into() }
}

fn asked(peers: &mut Peers, now_ms: u64) -> Vec<(Path, u16)> {
    let mut sent = Vec::new();
    peers.tick(ASKER, now_ms, |path, sequence| {
        sent.push((path, sequence));
        true
    });
    sent
}

fn of(state: State, peers: &Peers) -> usize {
    peers.page(None, 1000, 0).iter().filter(|shown| shown.state == state).count()
}

#[test]
fn a_peer_is_asked_five_times_and_is_down() {
    let mut peers = Peers::default();
    peers.join(path(1));
    assert_eq!(asked(&mut peers, 0), [], "no interval");
    peers.set_interval(MINUTE);
    assert_eq!(asked(&mut peers, 20), [], "it is new");
    let (start, mut requests) = (20 + MINUTE, Vec::new());
    for now_ms in (40..start + 4 * T3_MS + MINUTE).step_by(20) {
        requests.extend(asked(&mut peers, now_ms).into_iter().map(|(_, s)| (now_ms, s)));
        assert_eq!(of(State::Down, &peers), usize::from(now_ms >= start + 15_000));
    }
    let first = requests[0].1;
    let expected: Vec<_> = (0..5).map(|nth| (start + nth * T3_MS, first)).collect();
    assert_eq!(requests, expected, "a repeated request has its number");
    assert_eq!(peers.events().0, [Event::Down(path(1))]);
    // An interval after the last request, not after the first one.
    let start = start + 4 * T3_MS + MINUTE;
    let next = asked(&mut peers, start);
    assert_ne!(next[0].1, first);
    peers.answer(ASKER, path(1), first, Some(0), start + 10);
    assert_eq!(of(State::Up, &peers), 0, "an old response");
    peers.answer(ASKER, path(1), next[0].1, Some(0), start + 20);
    peers.answer(ASKER, path(1), next[0].1, Some(0), start + 20);
    let totals = peers.totals();
    assert_eq!((totals.peers_up, totals.peers_down, totals.went_down), (1, 0, 1));
    assert_eq!((totals.responses, totals.stray_responses), (1, 2));
    assert_eq!(peers.events().0, [Event::Up(path(1))]);
    assert_eq!(asked(&mut peers, start + MINUTE - 1), []);
    assert_eq!(asked(&mut peers, start + MINUTE).len(), 1);
}

#[test]
fn a_restart_counter_that_changes_is_a_restart() {
    let mut peers = Peers::default();
    peers.set_interval(MINUTE);
    peers.join(path(1));
    asked(&mut peers, 0);
    for (round, recovery) in [(0, Some(4)), (1, Some(4)), (2, None), (3, Some(5)), (4, Some(5))] {
        let now_ms = (round + 1) * MINUTE;
        let (_, sequence) = asked(&mut peers, now_ms)[0];
        peers.answer(ASKER, path(1), sequence, recovery, now_ms);
    }
    assert_eq!((peers.totals().restarts, peers.totals().went_down), (1, 0));
    assert_eq!(peers.events().0, [Event::Restarted(path(1))]);
    assert_eq!(peers.page(None, 9, 5 * MINUTE)[0].restarts, 1);
    peers.set_interval(0);
    assert_eq!((peers.totals().peers_up, of(State::Unknown, &peers)), (0, 1));
    peers.set_interval(MINUTE);
    assert_eq!(asked(&mut peers, 9 * MINUTE), []);
    assert_eq!(asked(&mut peers, 10 * MINUTE).len(), 1);
}

#[test]
fn requests_are_paced_and_paths_are_bounded() {
    let mut peers = Peers::default();
    peers.set_interval(MINUTE);
    let all = ASKED_MAX as u32 + 10;
    (0..all).for_each(|n| peers.join(path(n)));
    assert_eq!((peers.totals().paths, peers.totals().peers_unasked), (all.into(), 10));
    // Seen as new, as many at a time.
    let begun = (ASKED_MAX / REQUESTS_A_TICK) as u64;
    (0..begun).for_each(|now_ms| assert_eq!(asked(&mut peers, now_ms), []));
    let (mut ticks, mut seen) = (MINUTE + begun, std::collections::HashSet::new());
    while seen.len() < ASKED_MAX {
        let sent = asked(&mut peers, ticks);
        assert!(sent.len() <= REQUESTS_A_TICK);
        for (path, sequence) in sent {
            peers.answer(ASKER, path, sequence, None, ticks);
            seen.insert(path);
        }
        ticks += 1;
    }
    assert_eq!(ticks, MINUTE + 2 * begun);
    assert_eq!(peers.totals().peers_up, ASKED_MAX as u64);
    (0..all).for_each(|n| peers.leave(path(n)));
    assert_eq!(peers.totals().paths + peers.totals().peers_up, 0);
    // A full queue: nothing is lost.
    peers.join(path(1));
    asked(&mut peers, ticks);
    peers.tick(ASKER, ticks + MINUTE, |_, _| false);
    assert_eq!(asked(&mut peers, ticks + MINUTE).len(), 1);
}

#[test]
fn a_sequence_number_says_whose_it_is() {
    let mut invented = 0;
    let mut random = Pcg32::new(1, 2);
    for n in 0..2000 {
        let asker = Asker { me: NodeId((n % 32) as u8), ..ASKER };
        let six = Path { n3: "2001:db8::1".parse().unwrap(), peer: [n as u8; 16].into() };
        for path in [path(n), six] {
            let sequence = asker.sequence(path, n as u8);
            assert_eq!(ASKER.of(path, sequence), Some(asker.me));
            invented += u32::from(ASKER.of(path, random.draw() as u16).is_some());
        }
    }
    assert!((10..60).contains(&invented), "1 of 128: {invented} of 4000");
}

/// The naive twin: a list of peers, each looked at in each millisecond.
#[derive(Default)]
struct Naive(HashMap<Path, Asked>);

#[derive(Clone, Copy, Default)]
struct Asked {
    sessions: u32,
    asked_ms: Option<u64>,
    requests: u64,
    waits: bool,
    state: State,
}

impl Naive {
    fn tick(&mut self, now_ms: u64) -> Vec<Path> {
        let mut sent = Vec::new();
        for (path, asked) in &mut self.0 {
            // A new one is as one that has just answered.
            let since = now_ms - *asked.asked_ms.get_or_insert(now_ms);
            if asked.waits && since >= T3_MS && asked.requests == 5 {
                (asked.waits, asked.state) = (false, State::Down);
            } else if asked.waits && since >= T3_MS {
                (asked.requests, asked.asked_ms) = (asked.requests + 1, Some(now_ms));
                sent.push(*path);
            } else if !asked.waits && since >= MINUTE {
                (asked.requests, asked.asked_ms, asked.waits) = (1, Some(now_ms), true);
                sent.push(*path);
            }
        }
        sent.sort();
        sent
    }
}

proptest! {
    #[test]
    fn peers_are_as_their_naive_twin_has_them(
        joins in prop::collection::vec((0u32..8, 0u64..200, any::<bool>()), 1..60),
        answers in prop::collection::vec(any::<bool>(), 1..50),
    ) {
        let (mut peers, mut naive) = (Peers::default(), Naive::default());
        peers.set_interval(MINUTE);
        let (mut last, mut answers) = (HashMap::new(), answers.into_iter().cycle());
        for now_ms in (0..200_000u64).step_by(1000) {
            for (n, _, joins) in joins.iter().copied().filter(|(_, at, _)| *at * 1000 == now_ms) {
                let path = path(n);
                let sessions = naive.0.get(&path).map_or(0, |asked| asked.sessions);
                if joins {
                    peers.join(path);
                    naive.0.entry(path).or_default().sessions += 1;
                } else if sessions > 0 {
                    peers.leave(path);
                    naive.0.entry(path).and_modify(|asked| asked.sessions -= 1);
                    naive.0.retain(|_, asked| asked.sessions > 0);
                }
            }
            let mut sent = asked(&mut peers, now_ms);
            sent.sort();
            last.extend(sent.iter().copied());
            let theirs = naive.tick(now_ms);
            prop_assert_eq!(sent.iter().map(|(path, _)| *path).collect::<Vec<_>>(), theirs);
            for (path, _) in sent {
                if answers.next() == Some(true) {
                    peers.answer(ASKER, path, last[&path], None, now_ms);
                    let asked = naive.0.get_mut(&path).expect("it was asked");
                    (asked.waits, asked.state) = (false, State::Up);
                }
            }
            let shown = peers.page(None, 100, now_ms);
            prop_assert_eq!(shown.len(), naive.0.len());
            for shown in shown {
                let asked = naive.0[&shown.path];
                prop_assert_eq!((shown.state, shown.sessions), (asked.state, asked.sessions));
            }
            let count =
                |state| naive.0.values().filter(|asked| asked.state == state).count() as u64;
            let totals = peers.totals();
            let counted = [totals.peers_up, totals.peers_down];
            prop_assert_eq!(counted, [State::Up, State::Down].map(count));
        }
    }
}
