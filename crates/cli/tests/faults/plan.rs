//! Which cases happen, and in which order: those of the matrix, or random ones for a while.

use crate::faults::{FAULTS, Fault};
use crate::scene::NODES;
use crate::work::{WORK, Work};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest fault of a random case.
const SHORTEST: Duration = Duration::from_secs(2);
/// By how much a node may grow over a soak once it has seen a case, in KiB.
const GROWTH_MAX: u64 = 32 << 10;

/// A fault at a node while the cluster works.
#[derive(Clone, Copy)]
pub struct Case {
    pub fault: &'static Fault,
    pub work: Work,
    /// The node that it happens to, and that drains if one does; `None`: the one that speaks PFCP.
    pub victim: Option<usize>,
    pub lasts: Duration,
}

impl Case {
    fn of(fault: &'static Fault, work: Work) -> Case {
        let victim = match work {
            Work::Draining => Some(NODES - 1),
            Work::Pfcp => None,
            _ => Some(0),
        };
        Case { fault, work, victim, lasts: fault.lasts }
    }

    pub fn name(&self) -> String {
        let Case { fault, work, victim, lasts } = self;
        let node = victim.map_or("the speaker".to_owned(), |victim| format!("node {victim}"));
        format!("{}:{} at {node} for {} s", fault.name, work.name(), lasts.as_secs())
    }
}

/// Reads cases as FAULT:WORK, parted by commas.
fn read(asked: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for case in asked.split(',') {
        let (fault, work) = case.split_once(':').unwrap_or((case, "all"));
        let before = cases.len();
        let faults = FAULTS.iter().filter(|known| fault == "all" || fault == known.name);
        for fault in faults {
            let works = WORK.into_iter().filter(|known| work == "all" || work == known.name());
            cases.extend(works.map(|work| Case::of(fault, work)));
        }
        let faults: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
        let works = WORK.map(Work::name);
        assert!(cases.len() > before, "no case {case:?}; faults: {faults:?}; work: {works:?}");
    }
    cases
}

/// Cases to come.
pub enum Plan {
    Listed(std::vec::IntoIter<Case>),
    /// Until then, of these, at random.
    Soak {
        until: Instant,
        of: Vec<Case>,
        random: Pcg64,
    },
}

impl Plan {
    /// Plans by the variables of the environment; `short` without them.
    pub fn new(short: &str) -> Plan {
        let variable = |name: &str| std::env::var(format!("OVERBANK_FAULTS{name}")).ok();
        let number = |name: &str| variable(name).map(|text| text.parse().expect("a number"));
        let asked = variable("");
        let Some(seconds) = number("_SECONDS") else {
            return Plan::Listed(read(asked.as_deref().unwrap_or(short)).into_iter());
        };
        let seed: u64 = number("_SEED").unwrap_or(1);
        let until = Instant::now() + Duration::from_secs(seconds);
        let of = read(asked.as_deref().unwrap_or("all"));
        Plan::Soak { until, of, random: Pcg64::seed_from_u64(seed) }
    }
}

impl Iterator for Plan {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        match self {
            Plan::Listed(cases) => cases.next(),
            Plan::Soak { until, .. } if Instant::now() >= *until => None,
            Plan::Soak { of, random, .. } => {
                let case = of[random.random_range(0..of.len())];
                let longest = case.lasts.as_secs();
                let lasts = random.random_range(SHORTEST.as_secs()..=longest);
                let victim = Some(random.random_range(0..NODES));
                Some(Case { victim, lasts: Duration::from_secs(lasts), ..case })
            }
        }
    }
}

/// Memory of the processes of nodes, after cases.
#[derive(Default)]
pub struct Memory {
    /// By process: after how many cases it was seen, its first memory since then, the last one.
    seen: HashMap<u32, (u32, u64, u64)>,
}

impl Memory {
    /// Notes what nodes have after a case; returns the most.
    pub fn note(&mut self, now: Vec<(u32, u64)>) -> u64 {
        let most = now.iter().map(|(_, kib)| *kib).max().unwrap_or(0);
        for (pid, kib) in now {
            let (cases, first, last) = self.seen.entry(pid).or_insert((0, kib, kib));
            // Its caches and queues are full after a few.
            if *cases < 3 {
                *first = (*first).max(kib);
            }
            (*cases, *last) = (*cases + 1, kib);
        }
        most
    }

    /// Returns the processes that have grown too much, and by how much.
    pub fn grown(&self) -> Vec<String> {
        let grown = self.seen.iter().filter_map(|(pid, (cases, first, last))| {
            let by = last.saturating_sub(*first);
            let text = format!("process {pid} has grown by {by} KiB over {cases} cases");
            (by > GROWTH_MAX).then_some(text)
        });
        grown.collect()
    }
}

#[test]
fn a_seed_repeats_its_cases_and_growth_is_seen() {
    let names = |seed| {
        let until = Instant::now() + Duration::from_secs(3600);
        let of = read("all");
        let plan = Plan::Soak { until, of, random: Pcg64::seed_from_u64(seed) };
        plan.take(20).map(|case| case.name()).collect::<Vec<_>>()
    };
    assert_eq!(names(7), names(7));
    assert_ne!(names(7), names(8));
    let mut memory = Memory::default();
    for kib in [20_000, 50_000, 40_000, 45_000, 50_000 + GROWTH_MAX] {
        assert_eq!(memory.note(vec![(1, kib), (2, 10)]), kib);
        assert!(memory.grown().is_empty());
    }
    memory.note(vec![(1, 50_001 + GROWTH_MAX)]);
    assert_eq!(memory.grown(), ["process 1 has grown by 32769 KiB over 6 cases"]);
}
