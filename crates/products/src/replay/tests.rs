//! Whole replays, small ones: against the clock, against each other, and what is said of them.

use super::*;
use overbank_kit::traffic::Traffic;
use overbank_kit::workload::FlowStream;
use overbank_ports::memory::FrameStore;
use overbank_switch::datapath::Counters;
use overbank_switch::drop::DropReason;
use overbank_switch::parse::parse_rules;
use std::collections::BTreeMap;

fn plan(length: Length) -> Plan {
    Plan {
        contestants: ["none", "set-4", "blp-2-16"].map(|name| name.parse().expect("known")).into(),
        entries: 512,
        megaflows: 64,
        ports: (1..8).collect(),
        seed: 1,
        isa: None,
        warmup_loops: 1,
        length,
        rounds: 1,
        pinned_core: None,
    }
}

/// Gives `work` built-in traffic of a thousand flows, and tables of its rules.
fn built_in<T>(work: impl FnOnce(&Source<'_>, &Tables) -> T) -> T {
    let stream = &FlowStream::uniform(1000, 1).expect("flows");
    let traffic = Traffic::default();
    work(&Source::BuiltIn { stream, traffic }, &tables(&traffic.rules()))
}

fn tables(rules: &str) -> Tables {
    Tables::new(parse_rules(rules).expect("rules")).expect("tables")
}

fn record() -> TrafficSource {
    TrafficSource::BuiltIn { flows: 1000, theta: 0.0, classes: Some(20), alpha: Some(2.0) }
}

pub(super) fn replay(length: Length) -> Replay {
    let (plan, stop) = (plan(length), AtomicBool::new(false));
    let replay =
        built_in(|source, tables| run(&plan, source, tables, record(), None, &stop, &mut |_| {}));
    replay.expect("all designs agree")
}

/// In the same time the designs get through different numbers of packets, and each of them through
/// more than a round of a replay by loops would have: their chunks must line up all the same.
#[test]
fn designs_that_were_given_the_same_time_are_comparable() {
    let mut seconds = 0.5;
    loop {
        let replay = replay(Length::Seconds(seconds));
        let far = replay.designs.iter().all(|d| d.totals.packets > ROUND_PACKETS);
        if far && replay.digest_packets > 3 * ROUND_PACKETS {
            return;
        }
        // As long as the machine needs for them.
        seconds *= 4.0;
        assert!(seconds < 100.0, "{} packets", replay.digest_packets);
    }
}

#[test]
fn loops_are_counted() {
    let replay = replay(Length::Loops(3));
    assert!(replay.designs.iter().all(|d| d.totals.packets == 3000));
    assert_eq!(replay.digest_packets, 1000 + 3000 + 3000);
    // Lookups alone are timed on the side, where there is a tier 1.
    for design in &replay.designs {
        assert_eq!(design.ns_lookup.is_some_and(|ns| ns > 0.0), design.design != "none");
    }
}

/// A design that does something else with the frames is found out at its first pass, before any
/// time goes into measuring it.
#[test]
fn designs_that_disagree_end_the_replay() {
    let (plan, wrong) = (plan(Length::Loops(1)), tables("actions=drop"));
    let stop = AtomicBool::new(false);
    let mut phases = Vec::new();
    let mut progress = |p: Progress| phases.push(p.phase);
    let end = built_in(|source, right| {
        let mut make = |contestant: Contestant| {
            let odd = contestant.to_string() == "set-4";
            runner(&plan, contestant, source, if odd { &wrong } else { right })
        };
        race(&plan, source, record(), &mut make, None, &stop, &mut progress)
    });
    let error = end.expect_err("they disagree");
    let ReplayError::Disagreement { design, reference, first, last } = &error else {
        panic!("{error}")
    };
    assert_eq!((design.as_str(), reference.as_str(), *first, *last), ("set-4", "none", 0, 999));
    assert!(error.to_string().contains("set-4 forwarded packets 0 to 999 differently from none"));
    assert!(phases.iter().all(|phase| *phase == PHASE_FIRST), "{phases:?}");
}

#[test]
fn rates_are_those_of_the_median_the_slowest_and_the_fastest_round() {
    let (plan, set_4) = (plan(Length::Auto), "set-4".parse().expect("known"));
    let rates = |ns: &[f64]| {
        built_in(|source, tables| {
            let mut runner = runner(&plan, set_4, source, tables).expect("sizes");
            runner.rounds_ns = ns.to_vec();
            let d = describe(&runner, Totals::default(), "");
            [d.mpps_min, d.mpps, d.mpps_max, d.ns_per_packet]
        })
    };
    assert_eq!(rates(&[]), [None; 4]);
    assert_eq!(rates(&[20.0]), [50.0, 50.0, 50.0, 20.0].map(Some));
    assert_eq!(rates(&[100.0, 10.0, 20.0]), [10.0, 50.0, 100.0, 20.0].map(Some));
    assert_eq!(rates(&[100.0, 10.0, 20.0, 30.0]), [10.0, 40.0, 100.0, 25.0].map(Some));
}

/// Replays a capture of two flows, `gap_ns` apart, three times: megaflows that went before the
/// second and before the third time.
fn expirations(gap_ns: u64) -> [u64; 2] {
    let mut store = FrameStore::new();
    let traffic = Traffic::default();
    for flow in [0, 1] {
        let mut frame = [0; overbank_kit::traffic::FRAME_LEN];
        traffic.write_frame(flow, &mut frame);
        store.push(&frame, 0, u64::from(flow) * gap_ns).expect("room");
    }
    let mut plan = plan(Length::Loops(1));
    plan.warmup_loops = 2;
    let source = Source::Capture(&store);
    let stop = AtomicBool::new(false);
    let tables = tables(&traffic.rules());
    let replay = run(&plan, &source, &tables, record(), None, &stop, &mut |_| {}).expect("alike");
    let first = &replay.designs[0];
    assert_eq!(first.first_pass.megaflow.installs, 2 + first.first_pass.megaflow.expirations);
    [first.first_pass.megaflow.expirations, first.totals.megaflow.expirations]
}

/// By the capture's clock, of which a loop takes up where the last one ended.
#[test]
fn idle_megaflows_are_swept() {
    assert_eq!(expirations(9_000_000_000), [0, 0]);
    assert_eq!(expirations(11_000_000_000), [2, 2]);
}

#[test]
fn a_drop_that_happened_once_is_told() {
    let mut counters = Counters::default();
    counters.drops[DropReason::NoRule.index()] = 1;
    let totals = Totals::new(&counters, 0, 0, 0, &BTreeMap::new());
    assert_eq!(totals.drops, BTreeMap::from([(DropReason::NoRule.name(), 1)]));
    let json = serde_json::to_value(&totals).expect("JSON");
    assert_eq!(json["drops"], serde_json::json!({ "no_rule": 1 }));
}
