//! Sessions beside a naive twin of a few maps, and under workers.

use super::keys::{of_ipv4, of_tunnel};
use super::*;
use crate::prefix::Prefix;
use crate::session::tests::session;
use crate::session::{Gate, Prefix64};
use crate::slab::Direction;
use proptest::prelude::*;
use std::collections::HashMap as Map;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn addresses() -> Addresses {
    let prefix = |text: &str| Prefix::parse(text).expect("a prefix");
    Addresses {
        n3: [[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()].into(),
        pools: [prefix("10.45.0.0/16"), prefix("2001:db8:45::/48")].into_iter().collect(),
        ..Default::default()
    }
}

fn sessions(max: usize) -> (Sessions, SessionReader) {
    let (sessions, mut readers) = Sessions::new(max, addresses(), 1, 7).expect("memory");
    (sessions, readers.remove(0))
}

/// What a worker finds for a key: all of the session that it can see.
fn seen(reader: &mut SessionReader, addresses: &Addresses, key: Key) -> Option<Seen> {
    reader.enter();
    let (wide, six) = match key {
        Key::Tunnel(n3, teid) => (vec![of_tunnel(addresses.n3_number(n3)?, teid)], vec![]),
        Key::Ipv4(address) => (vec![of_ipv4(address)], vec![]),
        Key::Ipv6(prefix) => (vec![], vec![prefix.0]),
    };
    let (of_wide, of_six) = reader.look_up::<1>(&wide, &six);
    let value = of_wide.get(0).or(of_six.get(0));
    let seen = value.map(|value| {
        let entry = reader.entry(value).expect("a slot");
        let gate = Gate::of(entry.is_open(Direction::Up), entry.is_open(Direction::Down));
        Seen { id: entry.id(), peer: entry.peer(), teid: entry.peer_teid(), gate, qfi: entry.qfi() }
    });
    reader.leave();
    seen
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    id: u64,
    peer: IpAddr,
    teid: u32,
    gate: Gate,
    qfi: Option<u8>,
}

fn shown(session: &Session) -> Seen {
    let &Session { id, peer, peer_teid, gate, qfi, .. } = session;
    Seen { id, peer, teid: peer_teid, gate, qfi }
}

/// The naive twin.
#[derive(Default)]
struct Twin {
    sessions: Map<u64, (Session, Origin)>,
    resting: Map<Key, (u64, u64)>,
}

impl Twin {
    fn owner(&self, key: Key) -> Option<u64> {
        let mut all = self.sessions.values();
        all.find(|(session, _)| session.keys().any(|k| k == key)).map(|(session, _)| session.id)
    }

    fn may_have(&self, session: &Session, now_ms: u64) -> bool {
        session.check().is_ok()
            && addresses().n3.contains(&session.n3)
            && session.keys().all(|key| {
                let rests = self.resting.get(&key);
                self.owner(key).is_none_or(|owner| owner == session.id)
                    && rests.is_none_or(|(owner, until)| *owner == session.id || *until <= now_ms)
            })
    }

    fn put(&mut self, session: Session, origin: Origin, now_ms: u64) {
        let before = self.sessions.insert(session.id, (session, origin));
        let freed = before.into_iter().flat_map(|(before, _)| before.keys());
        for key in freed.filter(|key| !session.keys().any(|new| new == *key)) {
            self.resting.insert(key, (session.id, now_ms + REST_MS));
        }
        for key in session.keys() {
            self.resting.remove(&key);
        }
    }

    fn remove(&mut self, id: u64, now_ms: u64) -> bool {
        let Some((session, _)) = self.sessions.remove(&id) else { return false };
        for key in session.keys() {
            self.resting.insert(key, (id, now_ms + REST_MS));
        }
        true
    }

    fn import(&mut self, list: &[(usize, Session)], max: usize, now_ms: u64) -> bool {
        let mut keys = std::collections::HashSet::new();
        let mut ids = std::collections::HashSet::new();
        let requests: Vec<u64> = self
            .sessions
            .values()
            .filter(|(_, o)| *o == Origin::Request)
            .map(|(s, _)| s.id)
            .collect();
        let fits = list.iter().all(|(_, s)| {
            ids.insert(s.id)
                && !requests.contains(&s.id)
                && self.may_have(s, now_ms)
                && s.keys().all(|key| keys.insert(key))
        });
        if !fits || ids.len() + requests.len() > max {
            return false;
        }
        let gone: Vec<u64> = self
            .sessions
            .keys()
            .copied()
            .filter(|id| !requests.contains(id) && !ids.contains(id))
            .collect();
        for id in gone {
            self.remove(id, now_ms);
        }
        for (_, session) in list {
            self.put(*session, Origin::File, now_ms);
        }
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Session, Origin),
    Change(Session, Origin),
    Remove(u64),
    Import(Vec<Session>),
    Wait(u64),
}

/// Sessions that often share ids, TEIDs and addresses; a few are invalid.
fn any_session() -> impl Strategy<Value = Session> {
    let keys = (1u64..8, 0u32..8, prop::option::of(0u8..8), prop::option::of(0u64..8), 0u8..8);
    (keys, 0usize..4, 1u32..5, prop::option::of(0u8..66)).prop_map(
        |((id, teid, ipv4, ipv6, n3), gate, peer_teid, qfi)| Session {
            id,
            n3: match n3 {
                0 => [192, 0, 2, 9].into(),
                1 | 2 => "2001:db8::1".parse().unwrap(),
                _ => [192, 0, 2, 1].into(),
            },
            peer: match n3 {
                1 => "2001:db8::7".parse().unwrap(),
                _ => [198, 51, 100, 7].into(),
            },
            teid,
            peer_teid,
            qfi,
            ipv4: ipv4.map(|n| [10, 45, 0, n].into()),
            ipv6: ipv6.map(|n| Prefix64(0x2001_0db8_0045_0000 | n)),
            gate: Gate::ALL[gate].0,
            ..session(1)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let origin = || prop_oneof![Just(Origin::File), Just(Origin::Request)];
    let list = prop::collection::vec(any_session(), 0..4);
    prop_oneof![
        8 => (any_session(), origin()).prop_map(|(session, origin)| Step::Add(session, origin)),
        4 => (any_session(), origin()).prop_map(|(session, origin)| Step::Change(session, origin)),
        4 => (1u64..8).prop_map(Step::Remove),
        3 => list.prop_map(Step::Import),
        3 => (1u64..40_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_few_maps(steps in prop::collection::vec(step(), 1..80)) {
        const MAX: usize = 5;
        let (mut sessions, mut reader) = sessions(MAX);
        let (mut twin, mut now_ms) = (Twin::default(), 0);
        for step in steps {
            match step {
                Step::Add(session, origin) => {
                    let fits = twin.may_have(&session, now_ms)
                        && !twin.sessions.contains_key(&session.id) && twin.sessions.len() < MAX;
                    let done = sessions.add(session, origin, now_ms);
                    prop_assert_eq!(done.is_ok(), fits, "{:?}", done);
                    if fits {
                        twin.put(session, origin, now_ms);
                    }
                }
                Step::Change(session, origin) => {
                    let fits = twin.may_have(&session, now_ms)
                        && twin.sessions.contains_key(&session.id);
                    let done = sessions.change(session, origin, now_ms);
                    prop_assert_eq!(done.is_ok(), fits, "{:?}", done);
                    if fits {
                        twin.put(session, origin, now_ms);
                    }
                }
                Step::Remove(id) => {
                    let done = sessions.remove(id, now_ms);
                    prop_assert_eq!(done.is_ok(), twin.remove(id, now_ms));
                }
                Step::Import(list) => {
                    let list: Vec<_> = (2..).zip(list).collect();
                    let done = sessions.import(&list, Import::FILE, now_ms);
                    prop_assert_eq!(done.is_ok(), twin.import(&list, MAX, now_ms), "{:?}", done);
                }
                Step::Wait(ms) => {
                    now_ms += ms;
                    sessions.tick(now_ms);
                    twin.resting.retain(|_, (_, until)| *until > now_ms);
                }
            }
            prop_assert_eq!(sessions.len(), twin.sessions.len());
            prop_assert_eq!(sessions.totals().resting as usize, twin.resting.len());
            let addresses = addresses();
            let tunnels = addresses.n3.iter().flat_map(|n3| (0..8).map(|t| Key::Tunnel(*n3, t)));
            let v4 = (0..8).map(|n| Key::Ipv4([10, 45, 0, n].into()));
            let v6 = (0..8).map(|n| Key::Ipv6(Prefix64(0x2001_0db8_0045_0000 | n)));
            for key in tunnels.chain(v4).chain(v6) {
                let owner = twin.owner(key);
                let expected = owner.map(|id| shown(&twin.sessions[&id].0));
                prop_assert_eq!(seen(&mut reader, &addresses, key), expected, "{}", key);
                prop_assert_eq!(sessions.owner_of(key), owner);
            }
            for (session, origin) in twin.sessions.values() {
                let listed = sessions.get(session.id).expect("it exists");
                prop_assert_eq!((listed.session, listed.origin), (*session, *origin));
            }
        }
    }
}

#[test]
fn errors_name_the_key_and_both_sessions() {
    let (mut sessions, _reader) = sessions(2);
    sessions.add(session(1), Origin::File, 0).expect("free");
    let refused = |sessions: &mut Sessions, session: Session, now_ms, what: &str| {
        let error = sessions.add(session, Origin::File, now_ms).expect_err(what).to_string();
        assert_eq!(error, what);
    };
    let s = &mut sessions;
    let taken = "TEID 0x1 at 192.0.2.1 belongs to session 1; session 2 needs another";
    refused(s, Session { teid: 1, ..session(2) }, 0, taken);
    let taken = "address 10.45.0.1 belongs to session 1; session 2 needs another";
    refused(s, Session { ipv4: session(1).ipv4, ..session(2) }, 0, taken);
    let taken = "prefix 2001:db8:45:1::/64 belongs to session 1; session 2 needs another";
    refused(s, Session { ipv6: session(1).ipv6, ..session(2) }, 0, taken);
    refused(s, session(1), 0, "session 1 exists already; change it, or use another id");
    let foreign =
        "n3: 192.0.2.9 is not an N3 address of this gateway; it has 192.0.2.1, 2001:db8::1";
    refused(s, Session { n3: [192, 0, 2, 9].into(), ..session(2) }, 0, foreign);
    let outside = "address 10.46.0.1 is in no UE pool; pools: 10.45.0.0/16, 2001:db8:45::/48";
    refused(s, Session { ipv4: Some([10, 46, 0, 1].into()), ..session(2) }, 0, outside);
    s.add(session(2), Origin::File, 0).expect("free");
    refused(s, session(3), 0, "2 sessions exist, as many as max-sessions allows");
    s.remove(1, 1000).expect("it exists");
    let rests = "TEID 0x1 at 192.0.2.1 was freed by session 1 and rests for 60 s more; session 3 \
                 can have it then, or another now";
    refused(s, Session { id: 3, ..session(1) }, 1500, rests);
    refused(s, Session { id: 3, ..session(1) }, 60_999, &rests.replace("60 s", "1 s"));
    s.add(Session { id: 3, ..session(1) }, Origin::File, 61_000).expect("rested");
    s.remove(2, 61_000).expect("it exists");
    s.add(session(2), Origin::File, 61_000).expect("its own");
    assert_eq!(s.remove(9, 0).expect_err("none"), SessionError::Unknown(9));
    let t = s.totals();
    assert_eq!((t.sessions, t.added, t.removed, t.refused), (2, 4, 2, 9));
}

#[test]
fn a_cluster_may_give_a_few_more_than_the_limit() {
    let (mut sessions, _reader) = sessions(2);
    let beyond = 2 + surplus(2) as u16;
    for nth in 1..=beyond {
        sessions.install(session(nth), Origin::Cluster, None, 0).expect("room");
    }
    let full = sessions.install(session(beyond + 1), Origin::Cluster, None, 0);
    assert_eq!(full, Err(SessionError::Full(2 + surplus(2))));
    assert_eq!(sessions.add(session(beyond + 1), Origin::Request, 0), Err(SessionError::Full(2)));
}

#[test]
fn rests_are_bounded() {
    let (mut sessions, _reader) = sessions(1);
    for n in 1..=1000 {
        sessions.add(session(n), Origin::Request, 0).expect("free");
        sessions.remove(u64::from(n), 0).expect("it exists");
        assert!(sessions.rests.len() <= RESTING_PER_SESSION + RESTING_MIN);
    }
    let totals = sessions.totals();
    assert_eq!(totals.resting + totals.rests_cut, 3000);
    assert!(totals.rests_cut > 0);
    sessions.tick(REST_MS);
    assert_eq!((sessions.totals().resting, sessions.rests.len()), (0, 0));
}

#[test]
fn an_import_is_all_or_nothing() {
    let (mut sessions, _reader) = sessions(4);
    sessions.add(session(9), Origin::Request, 0).expect("free");
    let list: Vec<(usize, Session)> = (2..).zip([session(1), session(2), session(3)]).collect();
    let done = sessions.import(&list, Import::FILE, 0).expect("valid");
    assert_eq!(done, Imported { added: 3, ..Imported::default() });
    let closed = Session { gate: Gate::Closed, ..session(2) };
    let wrong = [
        (2, closed),
        (3, Session { id: 9, ..session(7) }),
        (4, Session { teid: 2, ..session(8) }),
        (5, Session { id: 2, ..session(6) }),
        (6, Session { ipv4: session(3).ipv4, ..session(5) }),
    ];
    let refusals = sessions.import(&wrong, Import::FILE, 0).expect_err("wrong");
    let refusals: Vec<(usize, &str)> = refusals.iter().map(|r| (r.line, &*r.what)).collect();
    let expected = [
        (3, "session 9 is of a request: change or remove it by request"),
        (4, "TEID 0x2 at 192.0.2.1 belongs to session 2; session 8 needs another"),
        (5, "id 2 is also that of line 2"),
        (6, "address 10.45.0.3 belongs to session 3; session 5 needs another"),
    ];
    assert_eq!(refusals, expected);
    assert_eq!(sessions.get(2).map(|listed| listed.session), Some(session(2)), "unchanged");
    let five: Vec<(usize, Session)> = (2..).zip((1..=4).map(session)).collect();
    let refusals = sessions.import(&five, Import::FILE, 0).expect_err("too many");
    assert_eq!(refusals, [Refusal { line: 5, what: "5 sessions exceed max-sessions 4".into() }]);
    let done = sessions.import(&[(2, closed), (3, session(3))], Import::FILE, 0).expect("valid");
    assert_eq!(done, Imported { added: 0, changed: 1, removed: 1, kept: 1 });
    assert!(sessions.get(9).is_some() && sessions.get(1).is_none());
}

#[test]
fn pools_that_leave_sessions_outside_are_refused() {
    let (mut sessions, _reader) = sessions(4);
    sessions.add(session(1), Origin::File, 0).expect("free");
    let six = Prefix::parse("2001:db8:45::/48").expect("a prefix");
    let outside = sessions.reload([six].into_iter().collect(), None, 0).expect_err("outside");
    let expected = "session 1: address 10.45.0.1 is in no UE pool; pools: 2001:db8:45::/48";
    assert_eq!(outside, [Refusal { line: 0, what: expected.to_owned() }]);
    // The file no longer has it, so that it does not matter.
    let only_six = Session { ipv4: None, ..session(3) };
    let list = [(2, Session { id: 0, ..only_six })];
    sessions.reload([six].into_iter().collect(), Some(&list), 0).expect_err("the list is wrong");
    assert_eq!(sessions.addresses(), &addresses());
    let done = sessions.reload([six].into_iter().collect(), Some(&[(2, only_six)]), 0);
    assert_eq!(done, Ok(Imported { added: 1, removed: 1, ..Imported::default() }));
    let four = Prefix::parse("10.0.0.0/8").expect("a prefix");
    sessions.reload([six, four].into_iter().collect(), None, 0).expect("all are inside");
    let far = Session { ipv4: Some([10, 99, 0, 1].into()), ..session(2) };
    sessions.add(far, Origin::File, 0).expect("inside now");
}

#[test]
fn counts_belong_to_the_session() {
    let (mut sessions, mut reader) = sessions(1);
    let mut use_it = |n: u64| {
        reader.enter();
        let value = reader.look_up::<1>(&[of_tunnel(0, 1)], &[]).0.get(0).expect("it exists");
        (0..n).for_each(|_| reader.tally().passed(value, Direction::Up, 100));
        reader.tally().dropped(value, Direction::Up);
        reader.leave();
    };
    // Enough sessions for each slot to be used twice.
    for round in 1..150u64 {
        sessions.add(session(1), Origin::File, 0).expect("its own");
        use_it(round);
        sessions.change(Session { qfi: None, ..session(1) }, Origin::File, 0).expect("exists");
        use_it(1);
        let uplink = sessions.remove(1, 0).expect("it exists").counts.uplink;
        let expected = (round + 1, 100 * (round + 1), 2);
        assert_eq!((uplink.packets, uplink.bytes, uplink.dropped), expected);
    }
}

/// What a worker found stays as it was until its burst ends.
#[test]
fn what_a_burst_found_is_not_given_out_again() {
    let (mut sessions, mut reader) = sessions(2);
    sessions.add(session(1), Origin::File, 0).expect("free");
    sessions.add(session(2), Origin::File, 0).expect("free");
    reader.enter();
    let (found, _) = reader.look_up::<2>(&[of_tunnel(0, 1), of_tunnel(0, 2)], &[]);
    let values = [0, 1].map(|key| found.get(key).expect("it exists"));
    sessions.remove(1, 0).expect("it exists");
    // More sessions than there are slots.
    for n in 3..70 {
        sessions.add(session(n), Origin::File, 0).ok();
        sessions.remove(u64::from(n), 0).ok();
    }
    assert_eq!(sessions.add(session(99), Origin::File, 0), Err(SessionError::Busy));
    let changed = |qfi| Session { qfi: Some(qfi), ..session(2) };
    sessions.change(changed(1), Origin::File, 0).expect("the other copy is free");
    assert_eq!(sessions.change(changed(2), Origin::File, 0), Err(SessionError::Busy));
    let [first, second] = values.map(|value| reader.entry(value).expect("a slot"));
    assert_eq!((first.id(), first.qfi(), second.id(), second.qfi()), (1, Some(9), 2, Some(9)));
    reader.leave();
    sessions.change(changed(2), Origin::File, 0).expect("the burst is over");
    sessions.add(session(99), Origin::File, 0).expect("the burst is over");
    let key = session(2).keys().next().expect("a TEID");
    assert_eq!(seen(&mut reader, &addresses(), key).and_then(|seen| seen.qfi), Some(2));
}

/// Two workers look sessions up while they are added, changed and removed: what a key leads to is
/// always a session that had this key, whole.
#[test]
fn workers_see_whole_sessions_of_their_keys() {
    let (mut sessions, readers) = Sessions::new(16, addresses(), 2, 7).expect("memory");
    let stop = AtomicBool::new(false);
    // State `k` of session `id` has the peer's TEID 1000 × id + k, and QFI k.
    let state = |id: u64, k: u32| Session {
        id,
        peer_teid: 1000 * id as u32 + k,
        qfi: Some(k as u8),
        ..session(id as u16 % 16)
    };
    std::thread::scope(|scope| {
        for mut reader in readers {
            let stop = &stop;
            scope.spawn(move || {
                let keys: Vec<u64> = (1..16).map(|teid| of_tunnel(0, teid)).collect();
                while !stop.load(Ordering::Relaxed) {
                    reader.enter();
                    let (found, _) = reader.look_up::<15>(&keys, &[]);
                    for (index, teid) in (1..16u64).enumerate() {
                        let Some(value) = found.get(index) else { continue };
                        for _ in 0..3 {
                            let entry = reader.entry(value).expect("a slot");
                            assert_eq!(entry.id() % 16, teid, "a session with this TEID");
                            let k = u32::from(entry.qfi().expect("given"));
                            assert_eq!(entry.peer_teid(), 1000 * entry.id() as u32 + k);
                        }
                        reader.tally().passed(value, Direction::Up, 1);
                    }
                    reader.leave();
                }
            });
        }
        let mut now_ms = 0;
        for round in 0..2000u64 {
            let id = 1 + round % 15 + 16 * (round / 15 % 4);
            let (add, k) = (state(id, 0), round as u32 % 60);
            if sessions.owner_of(session(id as u16 % 16).keys().next().expect("a TEID")).is_none() {
                now_ms += REST_MS;
                sessions.tick(now_ms);
                sessions.add(add, Origin::File, now_ms).expect("rested");
            }
            sessions.change(state(id, k), Origin::File, now_ms).ok();
            if round % 3 == 0 {
                sessions.remove(id, now_ms).ok();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(sessions.totals().changed > 100, "{:?}", sessions.totals());
}
