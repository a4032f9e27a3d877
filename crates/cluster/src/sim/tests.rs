//! Seeds of the simulator.

use super::*;
use crate::table::{Dense, Map};
use crate::{Mechanisms, Settings};

fn seeds(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn without_faults_nothing_is_lost() {
    let plan = Plan { faults: Faults::NONE, ..Plan::small() };
    let outcome = run::<Dense>(plan, 1);
    assert_eq!(outcome.violation, None, "{outcome:?}");
    assert!(outcome.moves > 50 && outcome.answered[0] > 80, "{outcome:?}");
    eprintln!("{outcome:?}");
}

/// `OVERBANK_SIM_SEEDS` sets their number (`cargo xtask test sim-full`).
#[test]
fn seeds_keep_the_guarantees() {
    let from = seeds("OVERBANK_SIM_SEED", 0);
    for seed in from..from + seeds("OVERBANK_SIM_SEEDS", 200) {
        let outcome = run::<Map>(Plan::small(), seed);
        assert_eq!(outcome.violation, None, "OVERBANK_SIM_SEED={seed}: {outcome:?}");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    let first = run::<Map>(Plan::small(), 7);
    assert_eq!(first, run::<Map>(Plan::small(), 7));
    assert_eq!(first, run::<Dense>(Plan::small(), 7), "whatever the table");
    assert_ne!(first, run::<Map>(Plan::small(), 8));
}

#[test]
fn each_mechanism_is_needed() {
    let all = Mechanisms::default();
    let without = [
        ("epochs", Mechanisms { epochs: false, ..all }),
        ("stubs", Mechanisms { stubs: false, ..all }),
        ("fencing", Mechanisms { fencing: false, ..all }),
        ("gaps", Mechanisms { gaps: false, ..all }),
    ];
    for (name, mechanisms) in without {
        let small = Plan::small();
        let plan = Plan { settings: Settings { mechanisms, ..small.settings }, ..small };
        let found = (0..200).find_map(|seed| run::<Map>(plan, seed).violation);
        eprintln!("without {name}: {found:?}");
        assert!(found.is_some(), "without {name}, no guarantee fails");
    }
}
