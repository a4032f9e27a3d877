//! What is explored, and what is found without one part of the protocol.
//!
//! A test goes as far as its budget, the shortest orders first; where all states were seen, it says
//! so.

use super::{Broken, Budget, KEYS, Protocol, Step, Way};
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
/// With little else, so that all states can be seen.
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
    /// Whether these are all.
    all: bool,
}

/// Explores at most `OVERBANK_PROTOCOL_STEPS` steps, the shortest orders first.
fn explore(writes: &[(Op, Key)], way: Way, budget: Budget, broken: Broken) -> Explored {
    let asked = std::env::var("OVERBANK_PROTOCOL_STEPS").ok();
    let steps_max = asked.map_or(1_000_000, |text| text.parse().expect("a number"));
    let start = Instant::now();
    let checker = Protocol { writes: writes.to_vec(), way, budget, broken }
        .checker()
        .threads(2)
        .target_state_count(steps_max)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter().next();
    let found = found.map(|(what, path)| (what, path.into_actions().iter().map(shown).collect()));
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    let all = steps < steps_max && found.is_none();
    eprintln!(
        "{broken:?}, {writes:?} {way:?}, {budget:?}: {} {states} states, {steps} steps, {:.1} s",
        if all { "all" } else { "the first" },
        start.elapsed().as_secs_f32()
    );
    Explored { found, states, all }
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

/// Returns whether all states were seen.
fn holds(writes: &[(Op, Key)], way: Way, budget: Budget) -> bool {
    let Explored { found, states, all } = explore(writes, way, budget, Broken::Nothing);
    assert!(found.is_none(), "{writes:?} {way:?} {budget:?}: {found:#?}");
    assert!(all || states > 100_000, "{states} states");
    all
}

#[test]
fn writes_come_in_any_order_and_by_any_way() {
    assert!(holds(&[A, A], Way::Both, CALM));
    assert!(holds(&[A, DELETE_A], Way::Both, CALM));
}

#[test]
fn a_key_is_evicted_and_installed_again() {
    holds(&[A], Way::Around, Budget { writes: 1, ..EVICTED });
    holds(&[A], Way::Through, EVICTED);
}

#[test]
fn a_device_begins_anew() {
    holds(&[A], Way::Through, Budget { writes: 1, ..REBOOTED });
    holds(&[A], Way::Through, REBOOTED);
}

#[test]
fn an_agent_begins_anew() {
    holds(&[A], Way::Around, Budget { writes: 1, ..CRASHED });
    holds(&[A], Way::Through, CRASHED);
}

#[test]
fn an_item_goes_to_another_key() {
    holds(&[A, B], Way::Through, Budget { writes: 1, ..SHARED });
    holds(&[A, B], Way::Through, SHARED);
}

#[test]
fn writes_wait_for_a_fence_together() {
    assert!(holds(&[A, A, DELETE_A], Way::Around, CALM));
}

#[test]
fn a_request_comes_a_window_late() {
    assert!(holds(&[A], Way::Through, NEXT));
}

#[test]
fn a_count_of_writes_comes_to_its_end() {
    holds(&[A], Way::Through, FULL);
    holds(&[A], Way::Through, Budget { evictions: 1, installs: 2, ..FULL });
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
    ];
    for (broken, writes, way, budget) in cases {
        let Explored { found, states, .. } = explore(writes, way, budget, broken);
        assert!(found.is_some(), "{broken:?} is not missed in {states} states");
    }
}
