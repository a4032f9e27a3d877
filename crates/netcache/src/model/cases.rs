//! What is explored, all states of it, and what is found without one part of the protocol.

use super::{Broken, Budget, KEYS, Protocol, Rested, Step, Way};
use overbank_wire::netcache::{Key, Message, Op};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

const A: (Op, Key) = (Op::Put, KEYS[0]);
const B: (Op, Key) = (Op::Put, KEYS[1]);
const DELETE_A: (Op, Key) = (Op::Delete, KEYS[0]);

const CALM: Budget = Budget {
    installs: 1,
    evictions: 0,
    reboots: 0,
    crashes: 0,
    slow: 0,
    full: false,
    next: false,
    writes: 3,
};
const TWICE: Budget = Budget { installs: 2, writes: 2, ..CALM };
const EVICTED: Budget = Budget { evictions: 1, ..TWICE };
const REBOOTED: Budget = Budget { reboots: 1, ..TWICE };
const CRASHED: Budget = Budget { crashes: 1, ..TWICE };
/// The item goes from key to key while a worker is in a burst.
const SHARED: Budget = Budget { slow: 1, ..EVICTED };
/// A client's second request is a window later.
const NEXT: Budget = Budget { next: true, ..CALM };
const FULL: Budget = Budget { full: true, writes: 2, ..CALM };

/// What came of an exploration.
struct Explored {
    /// The property that does not hold, and the steps to it.
    found: Option<(&'static str, Vec<String>)>,
    states: usize,
}

/// Explores the shortest orders first.
fn explore(protocol: Protocol) -> Explored {
    let start = Instant::now();
    let said = format!(
        "{:?}, {:?} {:?}, {:?}",
        protocol.broken, protocol.writes, protocol.way, protocol.budget
    );
    let checker = protocol.checker().threads(2).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    let found = found.map(|(what, path)| (what, path.into_actions().iter().map(shown).collect()));
    let states = checker.unique_state_count();
    eprintln!("{said}: {states} states, {:.1} s", start.elapsed().as_secs_f32());
    Explored { found, states }
}

fn shown(step: &Step) -> String {
    match step {
        Step::Arrives(to, letter) | Step::Begins(to, letter) => {
            let verb = if matches!(step, Step::Arrives(..)) { "arrives" } else { "begins" };
            format!("{verb} at {to:?}: {:?}", Message::parse(letter).expect("ours"))
        }
        other => format!("{other:?}"),
    }
}

fn protocol(writes: &[(Op, Key)], way: Way, budget: Budget) -> Protocol {
    Protocol {
        writes: writes.to_vec(),
        way,
        budget,
        broken: Broken::Nothing,
        tidy: true,
        rested: Rested::default(),
    }
}

/// Sees all states; returns how many there are.
fn holds(writes: &[(Op, Key)], way: Way, budget: Budget) -> usize {
    let Explored { found, states } = explore(protocol(writes, way, budget));
    assert!(found.is_none(), "{writes:?} {way:?} {budget:?}: {found:#?}");
    states
}

/// Two writes of a key, and one of each of two, while this happens.
fn pairs_hold(budget: Budget) {
    holds(&[A, DELETE_A], Way::Through, budget);
    holds(&[A, B], Way::Through, budget);
    holds(&[A], Way::Both, budget);
}

#[test]
fn writes_come_in_any_order_and_by_any_way() {
    holds(&[A, A], Way::Both, CALM);
    holds(&[A, DELETE_A], Way::Both, CALM);
}

#[test]
fn a_key_is_evicted_and_installed_again() {
    pairs_hold(EVICTED);
}

#[test]
fn a_device_begins_anew() {
    pairs_hold(REBOOTED);
}

#[test]
fn an_agent_begins_anew() {
    pairs_hold(CRASHED);
}

#[test]
fn an_item_goes_to_another_key_while_a_worker_has_it() {
    holds(&[A], Way::Through, SHARED);
    holds(&[A, B], Way::Through, Budget { writes: 1, ..SHARED });
}

#[test]
fn writes_wait_for_a_fence_together() {
    holds(&[A, A, DELETE_A], Way::Around, CALM);
}

#[test]
fn a_request_comes_a_window_late() {
    holds(&[A], Way::Through, NEXT);
}

#[test]
fn a_count_of_writes_comes_to_its_end() {
    pairs_hold(FULL);
    holds(&[A], Way::Through, Budget { evictions: 1, installs: 2, ..FULL });
}

/// Nothing is hidden by taking states for one: the same holds where all others can be seen, too,
/// and what is broken is found.
#[test]
fn fewer_states_tell_the_same() {
    let each = Protocol { tidy: false, ..protocol(&[A, DELETE_A], Way::Both, CALM) };
    let Explored { found, states } = explore(each);
    assert!(found.is_none(), "{found:#?}");
    let fewer = holds(&[A, DELETE_A], Way::Both, CALM);
    assert!(fewer * 10 < states, "{fewer} of {states}");
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    let cases = [
        (Broken::Stamps, &[A, A][..], Way::Both, CALM),
        (Broken::Fences, &[A, A], Way::Both, CALM),
        (Broken::Held, &[A, DELETE_A], Way::Around, CALM),
        (Broken::Windows, &[A], Way::Both, CALM),
        (Broken::Forgets, &[A], Way::Through, NEXT),
        (Broken::Early, &[A], Way::Through, NEXT),
        (Broken::Installs, &[A, A], Way::Through, EVICTED),
        (Broken::Grace, &[A, B], Way::Through, SHARED),
        (Broken::Cleared, &[A, B], Way::Through, EVICTED),
        (Broken::Wraps, &[A], Way::Through, FULL),
        (Broken::Resumes, &[A, A], Way::Through, CRASHED),
        (Broken::Runs, &[A, A], Way::Through, CRASHED),
        (Broken::Numbers, &[A], Way::Around, Budget { writes: 1, ..CRASHED }),
        (Broken::Boots, &[A], Way::Through, REBOOTED),
        (Broken::Adopts, &[A], Way::Through, CALM),
        (Broken::Repeats, &[A], Way::Around, CALM),
        (Broken::Counts, &[A], Way::Through, FULL),
    ];
    for (broken, writes, way, budget) in cases {
        // These two take an answer to another run for one to theirs: fewer states have none.
        let tidy = !matches!(broken, Broken::Runs | Broken::Numbers);
        let explored = explore(Protocol { broken, tidy, ..protocol(writes, way, budget) });
        assert!(explored.found.is_some(), "{broken:?} is not missed in {} states", explored.states);
    }
}
