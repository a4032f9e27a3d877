//! Replays against the clock.

use super::*;
use crate::traffic::Traffic;
use crate::workload::FlowStream;
use overbank_switch::parse::parse_rules;

fn replay(length: Length) -> Replay {
    let traffic = Traffic::default();
    let stream = FlowStream::uniform(1000, 1).expect("flows");
    let source = Source::BuiltIn { stream: &stream, traffic };
    let tables = Tables::new(parse_rules(&traffic.rules()).expect("rules")).expect("tables");
    let plan = Plan {
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
    };
    let record = TrafficRecord::BuiltIn { flows: 1000, theta: 0.0, classes: 20, alpha: 2.0 };
    let stop = AtomicBool::new(false);
    run(&plan, &source, &tables, record, None, &stop, &mut |_| {}).expect("all designs agree")
}

/// In the same time the designs get through different numbers of packets, and each of them through
/// more than a round of a replay by loops would have: their chunks must line up all the same.
#[test]
fn designs_that_were_given_the_same_time_are_comparable() {
    let replay = replay(Length::Seconds(0.5));
    assert!(replay.digest_packets > 3 * ROUND_PACKETS, "{}", replay.digest_packets);
    assert!(replay.designs.iter().all(|d| d.totals.packets > ROUND_PACKETS));
}

#[test]
fn loops_are_counted() {
    let replay = replay(Length::Loops(3));
    assert!(replay.designs.iter().all(|d| d.totals.packets == 3000));
    assert_eq!(replay.digest_packets, 1000 + 3000 + 3000);
}
