//! The micro-benchmark: a table alone, with a miss penalty that is added, not lived through.
//!
//! Section 7.3 of *Fast Software Cache Design for Network Appliances* measures each design outside
//! of the switch: lookup cost, hit rate, and the throughput that follows when a miss costs 1000
//! cycles. [`measure`] does that for one [`Cell`] (size, α, θ) and any number of designs.
//!
//! ```text
//!  warm-up                                        not measured
//!  ┌ round ───────────────────────────────────────────────────────────────────┐
//!  │ new keys, pre-generated; then for each design in turn (see below):       │
//!  │   lead-in      brings the table back into the caches; not timed          │
//!  │   whole        probe, verify, commit, insert what missed      → whole_ns │
//!  │   lookup       probe, verify, commit; inserts untimed         → lookup_ns│
//!  │   probe        the batched probe alone                        → probe_ns │
//!  │ and at last the gather kernel on the same keys                → floor    │
//!  └──────────────────────────────────────────────────────────────────────────┘
//!  throughput = 1 / (whole_ns + share of misses × penalty)
//! ```
//!
//! Where the plan wants it, each part comes twice, with separate keys: bursts alone, and each burst
//! asking for the lines of the next one ([`Way`]). Both use the same tables, so their hit rate is
//! one.
//!
//! Rounds of a *trial* may come first. They are like the others, and none of the figures is from
//! them: a design chosen by the trial is judged by the rounds after it.
//!
//! All designs see the same keys in the same order, in bursts of 32. Keys are drawn and never
//! repeat as a sequence. The time of a round's part is the median over stretches of 4096 keys, so
//! that an interruption is not taken for a cost; figures are medians of rounds in which all designs
//! take turns, with their range. Each round begins with the design after the one that began the
//! round before, so that none always follows the same one. A machine may be slower in one round
//! than in the next: two designs are compared round by round ([`Row::to`]), never median with
//! median.
//!
//! *Warm-up.* First each flow once, in an order that says nothing of its popularity, so that no
//! table waits for flows that never came and none begins with an order that its policy did not
//! make; then as many draws per flow as the [`Plan`] says, within its bound. With skew and α ≥ 2
//! the draws alone fill the table. Hit rates are of the measured window: [`Measured::warmed`] says
//! how many draws per flow went before it. Three draws per flow after the start, with α = 1.5 and θ
//! = 0.99, random eviction is within about a point of where it stays, and designs that promote
//! three to four points below; without skew all are there. A longer warm-up is a number in the
//! plan.

mod cell;
pub mod gather;
pub mod keys;
mod loops;
pub mod made_up;
mod row;
pub mod sequence;
pub mod tsc;
mod warm;

pub use cell::{Cell, SLOT_BYTES, size_name};
pub use loops::ns_per_key;
pub use row::{Measured, Round, Row, Way};

use std::hint::black_box;
use std::ops::Range;

use crate::experiment::{Context, LabError};
use crate::rounds::turns;
use crate::spread::Spread;
use crate::workload::{FlowStream, shuffled};
pub use gather::Gather;
use gather::refusal;
use keys::Keys;
use loops::{Lane, Times, lookups, probes, run};
use overbank::cache::{BURST, Config, Design};
use overbank::hash::Hash64;
use overbank::memory::HugePages;
use row::rate;
use warm::warm;

pub const PENALTY_CYCLES: f64 = 1000.0;

/// The designs of figures 8 and 9: first those of the paper, then the ones that go beyond it.
pub const DESIGNS: &[&str] = &[
    "set-4",
    "set-8",
    "cuckoo-2-4",
    "blp-2-4",
    "blp-2-4+pblru",
    "set-4+dc-bubble",
    "set-8+dc-bubble",
    "set-16",
    "cuckoo-2-8",
    "cuckoo-2-16",
    "cuckoo-2-16+half-bubble",
    "blp-2-16",
    "blp-2-16+pblru",
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Draws per flow before anything is measured.
    pub warm_per_flow: f64,
    /// But no more keys than this; the flows that are shown first count, but are not cut.
    pub warm_max: u64,
    /// Keys of each timed part of a round (rounded up to whole bursts).
    pub keys: usize,
    pub trial: usize,
    pub rounds: usize,
    pub penalty_cycles: f64,
    /// Whether each table is also looked up ahead ([`Way::Ahead`]).
    pub ahead: bool,
}

impl Plan {
    /// Draws before the measurement, for `flows` flows, if `first` keys went before.
    fn warm_draws(&self, flows: u32, first: u32) -> u64 {
        let left = self.warm_max.saturating_sub(u64::from(first));
        ((f64::from(flows) * self.warm_per_flow) as u64).min(left)
    }
}

/// Measures `designs` in `cell`. `step` is called now and then with the share done and may end it.
pub fn measure(
    cell: Cell,
    designs: &[Design],
    plan: &Plan,
    cycles_per_ns: f64,
    seed: u64,
    step: &mut dyn FnMut(f64) -> Result<(), LabError>,
) -> Result<Measured, LabError> {
    let failed = |error: String| LabError::Failed(format!("{}: {error}", cell.size()));
    let flows = cell.flows();
    let mut stream =
        FlowStream::zipf(flows, cell.theta, seed).map_err(|e| failed(e.to_string()))?;
    let gather = Gather::new(cell.entries.saturating_mul(SLOT_BYTES))
        .ok_or_else(|| failed("not enough memory for the gather kernel".to_owned()))?;
    let mut lanes = Vec::with_capacity(designs.len());
    for design in designs {
        let cache = design
            .build(&Config::entries(cell.entries).seed(seed))
            .map_err(|e| failed(format!("{design}: {e}")))?;
        lanes.push(Lane::new(cache));
    }

    let first = cell.first_sights();
    let draws = plan.warm_draws(flows, first);
    let part = f64::from(first) / (f64::from(first) + draws as f64).max(1.0);
    let order = shuffled((0..first).collect(), seed);
    let shown = |keys: &mut Keys, part: Range<usize>| keys.set(order[part].iter().copied());
    warm(&mut lanes, (order.len(), seed), shown, |done| step(0.8 * part * done))?;
    let drawn = |keys: &mut Keys, part: Range<usize>| keys.draw(&mut stream, part.len());
    let drawing = |done: f64| step(0.8 * (part + (1.0 - part) * done));
    warm(&mut lanes, (draws as usize, seed), drawn, drawing)?;
    lanes.iter_mut().for_each(|lane| lane.cache.reset_counters());

    let count = plan.keys.next_multiple_of(BURST).max(BURST);
    let ways = if plan.ahead { &Way::ALL[..] } else { &Way::ALL[..1] };
    let mut lead_in = Keys::seeded(seed);
    let mut parts = [[(); 3]; 2].map(|way| way.map(|()| Keys::seeded(seed)));
    let mut floor = Vec::new();
    let penalty_ns = plan.penalty_cycles / cycles_per_ns;
    let rounds = plan.trial + plan.rounds.max(1);
    for round in 0..rounds {
        step(0.8 + 0.2 * round as f64 / rounds as f64)?;
        if round == plan.trial {
            lanes.iter_mut().for_each(|lane| lane.end_trial(penalty_ns));
            floor.clear();
        }
        lead_in.draw(&mut stream, lead_in_keys(cell.entries, count));
        let drawn = parts.iter_mut().take(ways.len()).flatten();
        drawn.for_each(|keys| keys.draw(&mut stream, count));
        for turn in turns(round, lanes.len()) {
            let lane = &mut lanes[turn];
            let cache = &mut *lane.cache;
            run(cache, Way::Ahead, &lead_in.hashes, &lead_in.values);
            // Neither way is always the second.
            for &way in turns(round, ways.len()).map(|turn| &ways[turn]) {
                let [whole, lookup, probe] = &parts[way as usize];
                let times = &mut lane.times[way as usize];
                times
                    .whole
                    .push(ns_per_key(whole, |hashes, values| run(cache, way, hashes, values)));
                times.lookup.push(lookups(cache, way, &lookup.hashes, &lookup.values));
                let alone =
                    |hashes: &[Hash64], _: &[u16]| _ = black_box(probes(cache, way, hashes));
                times.probe.push(ns_per_key(probe, alone));
            }
        }
        for before in [&lead_in, &parts[0][0], &parts[0][1]] {
            black_box(gather.touch(BURST, Way::Alone, &before.hashes));
        }
        let touched = ways.iter().map(|&way| {
            let keys = &parts[way as usize][2];
            ns_per_key(keys, |hashes, _| _ = black_box(gather.touch(BURST, way, hashes)))
        });
        floor.push(touched.fold(f64::MAX, f64::min));
    }

    let row = |design: Design, lane: &Lane, way: Way| {
        let hit_rate = lane.cache.counters().hit_rate();
        let misses_ns = (1.0 - hit_rate) * penalty_ns;
        let Times { probe, lookup, whole, trial } = &lane.times[way as usize];
        let rounds = probe.iter().zip(lookup).zip(whole);
        let rounds = rounds.map(|((&probe_ns, &lookup_ns), &whole_ns)| {
            let throughput = rate(whole_ns + misses_ns);
            Round { probe_ns, lookup_ns, whole_ns, throughput }
        });
        let row = Row::new(design, hit_rate, rounds.collect());
        Row { way, trial: *trial, huge_pages: lane.cache.huge_pages(), ..row }
    };
    let rows =
        |way| lanes.iter().zip(designs).map(|(lane, &design)| row(design, lane, way)).collect();
    Ok(Measured {
        cell,
        rows: rows(Way::Alone),
        ahead: if plan.ahead { rows(Way::Ahead) } else { Vec::new() },
        floor_ns: Spread::of(floor.iter().copied()),
        floor_rounds: floor,
        floor_pages: gather.huge_pages(),
        warmed: draws as f64 / f64::from(flows),
    })
}

/// Returns the keys before the clock runs: the other tables, or other programs, had the caches
/// before. Twice a timed part, and in tables that a last-level cache may hold as many as bring
/// nearly all lines back (a geometry of two lines a key would otherwise bring back more of them
/// than one of one line, and seem the faster one).
fn lead_in_keys(entries: usize, count: usize) -> usize {
    const LEAD_IN_MAX: usize = 1 << 21;
    let lines = entries.saturating_mul(SLOT_BYTES) / 64;
    lines.saturating_mul(4).min(LEAD_IN_MAX).max(2 * count).next_multiple_of(BURST)
}

/// Returns a line for a record's settings: which tables did not lie on huge pages.
pub fn pages(all: &[Measured]) -> (String, String) {
    let rows = all.iter().flat_map(|m| m.rows.iter().map(move |row| (m, row)));
    let small = rows.filter(|(_, row)| row.huge_pages != HugePages::Yes);
    let names = small.map(|(m, r)| format!("{} of {}: {}", r.design, m.cell.size(), r.huge_pages));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    let value =
        if names.is_empty() { "all".to_owned() } else { format!("all but {}", names.join(", ")) };
    ("tables on 2 MiB pages".to_owned(), value)
}

/// Returns a line for a record's notes: of which tables the gather kernel is no floor; `None` if it
/// is one of all.
pub fn without_floor(all: &[Measured]) -> Option<String> {
    let unlike = all.iter().filter_map(|m| {
        let rows: Vec<_> = m.rows.iter().filter(|row| !m.has_floor(row)).collect();
        let names = match rows.len() {
            0 => return None,
            count if count == m.rows.len() => "every table".to_owned(),
            _ => rows.iter().map(|row| row.design.to_string()).collect::<Vec<_>>().join(", "),
        };
        let Cell { alpha, theta, .. } = m.cell;
        let footing = m.footing(rows[0]);
        Some(format!("{names} of {}, α {alpha}, θ {theta} ({footing})", m.cell.size()))
    });
    refusal(&unlike.collect::<Vec<_>>())
}

pub fn design(name: &str) -> Result<Design, LabError> {
    name.parse().map_err(|error| LabError::Failed(format!("{name}: {error}")))
}

pub fn designs(names: &[&str]) -> Result<Vec<Design>, LabError> {
    names.iter().map(|name| design(name)).collect()
}

/// Measures each of `cells`, with the progress of `context` between the shares `from` and
/// `to`.
pub fn measure_all(
    context: &mut Context<'_>,
    (from, to): (f64, f64),
    cells: &[Cell],
    designs: impl Fn(&Cell) -> Result<Vec<Design>, LabError>,
    plan: impl Fn(&Cell) -> Plan,
    cycles_per_ns: f64,
) -> Result<Vec<Measured>, LabError> {
    // Large cells take longer: progress by flows.
    let work: f64 = cells.iter().map(|cell| f64::from(cell.flows())).sum();
    let seed = context.seed;
    let mut before = from;
    let mut all = Vec::with_capacity(cells.len());
    for cell in cells {
        let what = format!("{}, α {}, θ {}", cell.size(), cell.alpha, cell.theta);
        let share = (to - from) * f64::from(cell.flows()) / work;
        let mut step = |done: f64| context.step(&what, before + done * share);
        let designs = designs(cell)?;
        all.push(measure(*cell, &designs, &plan(cell), cycles_per_ns, seed, &mut step)?);
        before += share;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::made_up;
    use crate::models;

    const PLAN: Plan = Plan {
        warm_per_flow: 20.0,
        warm_max: u64::MAX,
        keys: 1 << 14,
        trial: 0,
        rounds: 3,
        penalty_cycles: PENALTY_CYCLES,
        ahead: false,
    };

    fn designs(names: &[&str]) -> Vec<Design> {
        super::designs(names).unwrap()
    }

    fn rates(cell: Cell, names: &[&str], seed: u64) -> Vec<f64> {
        let measured = measure(cell, &designs(names), &PLAN, 2.5, seed, &mut |_| Ok(())).unwrap();
        measured.rows.iter().map(|row| row.hit_rate).collect()
    }

    #[test]
    fn hit_rates_are_those_of_the_models() {
        let cell = Cell { entries: 1 << 14, alpha: 0.95, theta: 0.0 };
        let rates = rates(cell, &["set-4", "set-8", "blp-2-4"], 1);
        let models = [4, 8].map(|m| models::set_assoc(m, 0.95));
        let models = [models[0], models[1], models::blp(2, 4, 0.95)];
        for (rate, model) in rates.iter().zip(models) {
            assert!((rate - model).abs() < 0.015, "{rate} for {model}");
        }
    }

    /// The start favours none: at first too few of the popular flows are there, and after three
    /// draws per flow random eviction is near where it stays.
    #[test]
    fn a_short_warm_up_is_near_the_end() {
        let cell = Cell { entries: 1 << 14, alpha: 1.5, theta: 0.99 };
        let designs = designs(&["set-4", "set-8", "blp-2-4", "cuckoo-2-4"]);
        let after = |warm_per_flow| {
            let plan = Plan { warm_per_flow, keys: 1 << 11, ..PLAN };
            measure(cell, &designs, &plan, 2.5, 1, &mut |_| Ok(())).unwrap().rows
        };
        let (start, short, long) = (after(0.0), after(3.0), after(100.0));
        for ((start, short), long) in start.iter().zip(&short).zip(&long) {
            let below = [start, short].map(|row| long.hit_rate - row.hit_rate);
            assert!(below[0] > 0.02 && below[1].abs() < 0.02, "{}: {below:?}", long.design);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_hits() {
        let cell = Cell { entries: 1 << 10, alpha: 2.0, theta: 0.99 };
        let names = ["blp-2-16+pblru", "set-8+dc-bubble"];
        assert_eq!(rates(cell, &names, 5), rates(cell, &names, 5));
        assert_ne!(rates(cell, &names, 5), rates(cell, &names, 6));
    }

    #[test]
    fn a_trial_is_no_part_of_the_figures() {
        // With skew and α ≥ 2 no flow is shown first.
        let cell = Cell { entries: 1 << 10, alpha: 2.0, theta: 0.8 };
        let designs = designs(&["set-4", "cuckoo-2-16"]);
        let measured = |trial| {
            // Cold tables: the first round has more misses than those after it.
            let plan = Plan { warm_per_flow: 0.0, keys: 256, trial, rounds: 1, ..PLAN };
            measure(cell, &designs, &plan, 2.5, 1, &mut |_| Ok(())).unwrap().rows
        };
        for (alone, after) in measured(0).iter().zip(&measured(2)) {
            assert_eq!(alone.trial, 0.0);
            assert!(after.trial > 0.0);
            assert!(alone.hit_rate < after.hit_rate, "{} {}", alone.hit_rate, after.hit_rate);
            assert_eq!(after.throughput.low, after.throughput.high, "one round");
        }
    }

    #[test]
    fn a_floor_is_one_of_tables_on_the_same_pages() {
        let cell = Cell { entries: 1 << 20, alpha: 0.5, theta: 0.0 };
        let rows = [("set-4", (0.9, 6.0, 1.0)), ("set-8", (0.9, 8.0, 1.0))];
        let mut m = made_up::measured(cell, 4.0, &rows);
        let probe = |m: &Measured, row: &Row| m.to_floor(row, |r| r.probe_ns).map(|x| x.median);
        assert_eq!(probe(&m, &m.rows[1]), Some(2.0));
        assert_eq!(without_floor(&[m.clone()]), None);
        m.rows[1].huge_pages = HugePages::No;
        assert_eq!(m.rows.iter().map(|row| probe(&m, row)).collect::<Vec<_>>(), [Some(1.5), None]);
        let line = without_floor(&[m.clone()]).unwrap();
        let end = ": set-8 of 4 MiB, α 0.5, θ 0 (huge pages: no, the kernel's: yes).";
        assert!(line.ends_with(end), "{line}");
        m.rows[1].huge_pages = HugePages::Yes;
        m.floor_pages = HugePages::Partly { bytes: 2 << 20 };
        let line = without_floor(&[m]).unwrap();
        assert!(line.contains(": every table of 4 MiB"), "{line}");
    }

    /// What is measured says what its memory lies on: both are too small for huge pages here.
    #[test]
    fn small_tables_and_their_floor_are_alike() {
        let cell = Cell { entries: 1 << 10, alpha: 0.5, theta: 0.0 };
        let designs = designs(&["set-4"]);
        let m = measure(cell, &designs, &PLAN, 2.5, 1, &mut |_| Ok(())).unwrap();
        assert_eq!((m.rows[0].huge_pages, m.floor_pages), (HugePages::No, HugePages::No));
        assert!(m.to_floor(&m.rows[0], |round| round.probe_ns).is_some());
    }

    /// What is measured has the rounds, and its figures are theirs.
    #[test]
    fn rows_keep_their_rounds() {
        let cell = Cell { entries: 1 << 10, alpha: 2.0, theta: 0.0 };
        let plan = Plan { trial: 1, rounds: 3, keys: 256, ahead: true, ..PLAN };
        let designs = designs(&["set-4", "set-8"]);
        let m = measure(cell, &designs, &plan, 2.5, 1, &mut |_| Ok(())).unwrap();
        assert_eq!((m.floor_rounds.len(), m.rows.len(), m.ahead.len()), (3, 2, 2));
        for (way, row) in
            Way::ALL.into_iter().flat_map(|way| m.rows_of(way).iter().map(move |r| (way, r)))
        {
            assert_eq!(row.way, way);
            assert_eq!(row.hit_rate, m.row(&row.design.to_string()).unwrap().hit_rate);
            assert!(row.trial > 0.0);
            assert_eq!(row.rounds.len(), 3);
            let misses_ns = (1.0 - row.hit_rate) * PENALTY_CYCLES / 2.5;
            for round in &row.rounds {
                let ns = 1000.0 / round.throughput;
                assert!((ns - round.whole_ns - misses_ns).abs() < 1e-6 * ns, "{round:?}");
            }
            assert!(row.rounds.iter().any(|round| round.throughput == row.throughput.median));
        }
    }

    #[test]
    fn ends_on_request() {
        let cell = Cell { entries: 1 << 10, alpha: 1.0, theta: 0.0 };
        let mut stop = |_: f64| Err(LabError::Stopped);
        let ended = measure(cell, &designs(&["set-4"]), &PLAN, 2.5, 1, &mut stop);
        assert!(matches!(ended, Err(LabError::Stopped)));
        let absurd = Cell { entries: usize::MAX, ..cell };
        assert!(measure(absurd, &[], &PLAN, 2.5, 1, &mut |_| Ok(())).is_err());
    }
}
