//! The rack against what is known of it.

use super::super::law::Law;
use super::super::popularity::Popularity;
use super::*;

fn plan(servers: u16, items: usize) -> Plan {
    Plan::of(Placement { servers, seed: 1 }, 1e7, items)
}

fn load(theta: f64, rate: f64) -> Load {
    let law = Law::new(100_000, theta).unwrap();
    let ranks = Popularity::new(law.keys);
    Load { law, ranks, rate, writes: 0.0, write_law: None, value_len: 128 }
}

#[test]
fn an_idle_rack_has_the_delays_that_were_put_in() {
    let mut rack = Rack::new(plan(4, 100)).unwrap();
    rack.fill().unwrap();
    let run = rack.measure(&load(0.9, 1e5), 0, 10_000_000);
    let Outcome { sent, hits, misses, ref times, .. } = run.outcome;
    assert_eq!((hits + misses, run.loss()), (sent, 0.0));
    assert!(hits > sent / 10 && misses > sent / 10, "{hits} of {sent}");
    let fast = times.iter().filter(|&&ns| ns == 7000).count() as u64;
    let slow = times.iter().filter(|&&ns| (15_000..15_300).contains(&ns)).count() as u64;
    assert_eq!(fast, hits);
    assert!(slow > misses * 95 / 100, "{slow} of {misses}");
}

#[test]
fn the_switch_answers_what_the_law_gives_it() {
    let mut rack = Rack::new(plan(8, 1000)).unwrap();
    rack.fill().unwrap();
    let load = load(0.99, 2e7);
    let run = rack.measure(&load, 0, 20_000_000);
    let share = run.outcome.hits as f64 / run.outcome.sent as f64;
    assert!((share - load.law.head(1000)).abs() < 0.01, "{share} {}", load.law.head(1000));
}

#[test]
fn a_rack_without_a_cache_saturates_where_its_fullest_server_does() {
    for seed in [1, 2] {
        let plan = Plan { placement: Placement { servers: 8, seed }, seed, ..plan(8, 0) };
        let load = load(0.95, 1e7);
        let ideal = plan.rate / fullest(&plan.placement.loads(&load.law, 0));
        let mut rack = Rack::new(plan).unwrap();
        let span = (0.7 * ideal, 1.3 * ideal);
        let (found, run) = rack.saturate(&load, span, (200_000, 4_000_000), (0.01, 1.005));
        assert!((found / ideal - 1.0).abs() < 0.03, "{found} {ideal}");
        assert_eq!(run.outcome.hits, 0);
    }
}

#[test]
fn faults_lose_and_delay_what_they_are_said_to() {
    let faults = Faults { lost: 0.1, twice: 0.05, late: 0.2, late_ns: 5000 };
    let mut rack = Rack::new(Plan { faults, ..plan(4, 0) }).unwrap();
    let run = rack.measure(&load(0.9, 1e6), 0, 50_000_000);
    let Outcome { sent, misses, ref times, .. } = run.outcome;
    let answered = misses as f64 / sent as f64;
    // Four ways, each of which loses; a request or an answer may come twice.
    assert!((0.66..0.80).contains(&answered), "{answered}");
    let late = times.iter().filter(|&&ns| ns > 15_300).count() as f64 / times.len() as f64;
    assert!((0.5..0.8).contains(&late), "{late}");
    assert!(times.iter().all(|&ns| ns < 45_000));
}

#[test]
fn without_updates_a_written_key_is_invalid_until_it_is_brought_again() {
    let invalid = |around_ns: Option<u64>| {
        let plan = Plan { around_ns, watched: 50, ..plan(4, 50) };
        let mut rack = Rack::new(plan).unwrap();
        rack.fill().unwrap();
        let run = rack.measure(&Load { writes: 0.2, ..load(0.99, 1e6) }, 0, 10_000_000);
        assert_eq!((run.outcome.stale, rack.wrong()), (0, 0));
        run.invalid
    };
    let [updated, often, never] = [None, Some(50_000), Some(u64::MAX / 2)].map(invalid);
    assert!(updated < often && often < never, "{updated} {often} {never}");
    assert!(updated < 0.3 && never > 0.8, "{updated} {never}");
}

/// With updates that are late, the paper's protocol gives old values back; the judge sees it.
#[test]
fn histories_of_the_papers_protocol_have_no_order() {
    let wrong = |protocol: Protocol| {
        let faults = Faults { late: 0.3, late_ns: 10_000, ..Faults::default() };
        let plan = Plan { protocol, faults, watched: 20, ..plan(4, 20) };
        let mut rack = Rack::new(plan).unwrap();
        rack.fill().unwrap();
        rack.measure(&Load { writes: 0.1, ..load(0.99, 1e7) }, 0, 10_000_000);
        rack.wrong()
    };
    assert_eq!(wrong(Protocol::Stamps), 0);
    assert!(wrong(Protocol::Paper) > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut rack = Rack::new(plan(4, 50)).unwrap();
        rack.fill().unwrap();
        let load = Load { writes: 0.2, ..load(0.99, 2e7) };
        let run = rack.measure(&load, 0, 2_000_000);
        (run.outcome.hits, run.outcome.misses, run.outcome.written, run.outcome.times)
    };
    let (first, second) = (run(), run());
    assert!(first.2 > 1000);
    assert!(first == second);
}
