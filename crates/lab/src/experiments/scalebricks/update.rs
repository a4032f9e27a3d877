//! Updates a second by the number of nodes that own the RIB.
//!
//! ```text
//!   RIB    32 parts by a hash of the key; N owners have 32 / N parts each
//!   move   owner: the change of the GPT ─▶ all nodes apply the delta
//!                                       ─▶ one node takes the FIB entry, another drops it
//!   full duplication: every node sets the value in its whole FIB
//! ```
//!
//! Owners work alone on this core, in turn; their rates are added. A cluster whose nodes do all of
//! it on one core has 1 / (owner/N + apply + entries/N), which is judged as well.

use std::hint::black_box;
use std::time::Instant;

use super::rib::{Dense, Paper, Part, VALUE_BITS};
use super::{hash, table};
use crate::prelude::*;
use overbank::fib::Writer;
use overbank::hash::mix;
use overbank::random::Pcg32;

pub const SB_UPDATE: Experiment = Experiment {
    name: "sb-update",
    title: "Updates of the partition table, by owners of the RIB",
    source: "ScaleBricks, section 4.4.3",
    run,
};

const OWNERS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const PARTS: usize = 32;
/// Deltas of a part that a node applies at a time.
const BATCH: usize = 64;

struct Plan {
    keys: u64,
    /// Changes of an owner: before its clock runs, and under it.
    lead: usize,
    timed: usize,
    rounds: usize,
}

/// The sessions of a part with their nodes.
struct Sessions {
    numbers: Vec<u64>,
    nodes: Vec<u8>,
}

fn part_of(session: u64) -> usize {
    (mix(hash(session)) >> 32) as usize % PARTS
}

fn sessions(keys: u64) -> Vec<Sessions> {
    let empty = || Sessions { numbers: Vec::new(), nodes: Vec::new() };
    let mut all: Vec<Sessions> = (0..PARTS).map(|_| empty()).collect();
    for session in 0..keys {
        let of = &mut all[part_of(session)];
        of.numbers.push(session);
        of.nodes.push(super::handling(session, 1 << VALUE_BITS));
    }
    all
}

/// What changes: the part, the session's place in it, the key's hash, the new node.
type Change = (usize, usize, u64, u8);

/// Draws moves of sessions of some parts, each to another node.
fn moves(
    sessions: &mut [Sessions],
    parts: std::ops::Range<usize>,
    count: usize,
    pcg: &mut Pcg32,
) -> Vec<Change> {
    let mut draw = || {
        let part = parts.start + pcg.below(parts.len() as u32) as usize;
        let of = &mut sessions[part];
        let at = pcg.below(of.numbers.len() as u32) as usize;
        let by = 1 + pcg.below((1 << VALUE_BITS) - 1) as u8;
        of.nodes[at] = (of.nodes[at] + by) % (1 << VALUE_BITS);
        (part, at, hash(of.numbers[at]), of.nodes[at])
    };
    (0..count).map(|_| draw()).collect()
}

/// What was measured of a kind of table.
struct Measured {
    name: &'static str,
    /// By owners: updates a second, all owners together.
    rates: Rounds,
    /// Nanoseconds a delta takes to apply, by round.
    apply: Vec<f64>,
    /// Nanoseconds of each change by the owner of everything, ascending.
    changes: Vec<f64>,
    delta_bits: [usize; 2],
    /// Keys whose copies have a wrong value at the end.
    wrong: u64,
    /// Nanoseconds of a new key in place of another, and the mean bits of its delta.
    replaces: Option<(f64, f64)>,
}

impl Measured {
    fn quantile(&self, share: f64) -> f64 {
        let at = (share * self.changes.len() as f64) as usize;
        self.changes.get(at).copied().unwrap_or(0.0)
    }

    fn apply(&self) -> Spread {
        Spread::of(self.apply.iter().copied())
    }

    /// By the places of two numbers of owners: the ratio of their rates.
    fn ratio(&self, owners: usize) -> Spread {
        self.rates.ratio(OWNERS.iter().position(|&n| n == owners).unwrap_or(0), 0)
    }
}

/// Work after the moves: nanoseconds of the owner, and the mean bits of a delta.
type Finish<P> = fn(&mut [P], &mut [Sessions], u64) -> Result<Option<(f64, f64)>, LabError>;

fn measure<P: Part>(
    context: &mut Context<'_>,
    plan: &Plan,
    sessions: &mut [Sessions],
    finish: Finish<P>,
) -> Result<Measured, LabError> {
    let mut parts: Vec<P> = Vec::new();
    for (nth, of) in sessions.iter().enumerate() {
        context.step(&format!("{}: part {nth}", P::NAME), 0.6 * nth as f64 / PARTS as f64)?;
        let hashes = of.numbers.iter().map(|&session| hash(session));
        let entries: Vec<_> = hashes.zip(of.nodes.iter().copied()).collect();
        parts.push(P::build(&entries)?);
    }
    let mut pcg = Pcg32::new(context.seed, 7);
    let (mut apply, mut changes) = (Vec::new(), Vec::new());
    let rates = Rounds::run(
        &mut OWNERS.clone(),
        plan.rounds,
        |done| context.step(&format!("{}: moves", P::NAME), 0.6 + 0.4 * done),
        |&mut owners, _| {
            let mut rate = 0.0;
            for owner in 0..owners {
                let own = owner * PARTS / owners..(owner + 1) * PARTS / owners;
                for (part, _, hash, node) in moves(sessions, own.clone(), plan.lead, &mut pcg) {
                    parts[part].change(hash, node)?;
                }
                let moves = moves(sessions, own, plan.timed, &mut pcg);
                let start = Instant::now();
                let mut before = start;
                for &(part, _, hash, node) in &moves {
                    parts[part].change(hash, node)?;
                    if owners == 1 {
                        let now = Instant::now();
                        changes.push((now - before).as_nanos() as f64);
                        before = now;
                    }
                }
                rate += moves.len() as f64 / start.elapsed().as_secs_f64();
            }
            let (start, mut count) = (Instant::now(), 0);
            loop {
                let before = count;
                for part in &mut parts {
                    count += part.apply(BATCH)?;
                }
                if count == before {
                    break;
                }
            }
            // The deltas of a few milliseconds of all parts, as a node gets them.
            if owners == 1 {
                apply.push(start.elapsed().as_nanos() as f64 / count.max(1) as f64);
            }
            Ok(rate)
        },
    )?;
    let delta_bits = parts[0].delta_bits();
    let replaces = finish(&mut parts, sessions, context.seed)?;
    let right = |(part, of): (&P, &Sessions)| {
        let all = of.numbers.iter().zip(&of.nodes);
        all.filter(|&(&session, &node)| part.value(hash(session)) != node).count() as u64
    };
    let wrong = parts.iter().zip(&*sessions).map(right).sum();
    changes.sort_by(f64::total_cmp);
    Ok(Measured { name: P::NAME, rates, apply, changes, delta_bits, wrong, replaces })
}

/// Replaces sessions by new ones: nanoseconds of the owner, mean bits of a delta.
fn replace(
    parts: &mut [Dense],
    sessions: &mut [Sessions],
    seed: u64,
) -> Result<Option<(f64, f64)>, LabError> {
    let mut pcg = Pcg32::new(seed, 8);
    let mut fresh = 1u64 << 40;
    let count = (sessions[0].numbers.len() / 4).min(8192);
    let drawn: Vec<(Change, u64)> = moves(sessions, 0..PARTS, count, &mut pcg)
        .into_iter()
        .map(|change| {
            while part_of(fresh) != change.0 {
                fresh += 1;
            }
            // The session may have been drawn before: its key is the one that it has by then.
            let old = std::mem::replace(&mut sessions[change.0].numbers[change.1], fresh);
            fresh += 1;
            let node = sessions[change.0].nodes[change.1];
            ((change.0, change.1, hash(old), node), fresh - 1)
        })
        .collect();
    let (start, mut bits) = (Instant::now(), 0);
    for &((part, _, old, node), new) in &drawn {
        parts[part].replace(old, (hash(new), node))?;
        bits += parts[part].delta_bits()[1];
    }
    let ns = start.elapsed().as_nanos() as f64 / count.max(1) as f64;
    for part in parts {
        while part.apply(BATCH)? > 0 {}
    }
    Ok(Some((ns, bits as f64 / count.max(1) as f64)))
}

/// Full duplication, and the entries of a handling node: nanoseconds by round.
struct Fib {
    /// By nodes: updates a second of the slowest node.
    rates: Rounds,
    /// An entry taken in and another dropped.
    entries: Vec<f64>,
}

fn fib(context: &mut Context<'_>, plan: &Plan) -> Result<Fib, LabError> {
    context.step("full duplication: table", 0.0)?;
    let mut whole = table(plan.keys, context.seed, |session| session as u32)?;
    let count = 8 * (plan.lead + plan.timed);
    let mut pcg = Pcg32::new(context.seed, 9);
    let mut draw = |count: usize| -> Vec<u64> {
        (0..count).map(|_| hash(u64::from(pcg.below(plan.keys as u32)))).collect()
    };
    let mut entries = Vec::new();
    let mut timed = |work: &mut dyn FnMut(&mut Writer<u64, u32>, u64)| {
        let (lead, keys) = (draw(count / 8), draw(count));
        lead.iter().for_each(|&key| work(&mut whole, key));
        let start = Instant::now();
        keys.iter().for_each(|&key| work(&mut whole, key));
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    };
    let rates = Rounds::run(
        &mut OWNERS.clone(),
        plan.rounds,
        |done| context.step("full duplication: updates", 0.3 + 0.7 * done),
        |&mut nodes, _| {
            let each = (0..nodes)
                .map(|node| timed(&mut |fib, key| _ = black_box(fib.update(key, node as u32))));
            let slowest = each.fold(0.0, f64::max);
            if nodes == 1 {
                entries.push(timed(&mut |fib, key| {
                    let value = fib.remove(key).unwrap_or(0);
                    // Its slot is free.
                    _ = black_box(fib.insert(key, value));
                }));
            }
            Ok(1e9 / slowest)
        },
    )?;
    Ok(Fib { rates, entries })
}

struct All {
    dense: Measured,
    paper: Measured,
    fib: Fib,
    keys: u64,
}

impl All {
    /// Updates a second of a cluster whose nodes own, apply and keep entries on one core each.
    fn whole(&self, of: &Measured, nodes: usize) -> f64 {
        let owner = 1e9 / of.rates.spread(0).median;
        let entries = median(self.fib.entries.iter().copied());
        1e9 / ((owner + entries) / nodes as f64 + of.apply().median)
    }
}

const CLAIMS: &[Claim<All>] = &[
    Claim::new("all copies have the last value of every key", "all", |of: &All| {
        let wrong = of.dense.wrong + of.paper.wrong;
        Finding::new(wrong == 0, format!("{wrong} wrong of {} keys", of.keys))
    }),
    Claim::new(
        "SetSep: a delta is tens of bits, 24 for each bit of a value",
        "tens",
        |of: &All| {
            let [content, sent] = of.paper.delta_bits;
            let text = format!("{content} bits for 32 nodes, {sent} with the group's number");
            Finding::new(content == 24 * VALUE_BITS, text)
        },
    ),
    Claim::new("the partition table: a move is 24 bytes at most", "goal: 24 bytes", |of: &All| {
        let bytes = of.dense.delta_bits[1] / 8;
        Finding::new((1..=24).contains(&bytes), format!("{bytes} bytes"))
    }),
    Claim::timed("8 owners of the partition table: at least 0.9 × 8", "scales", |of: &All| {
        Finding::at_least(7.2, of.dense.ratio(8))
    }),
    Claim::timed("8 owners of SetSep: at least 0.9 × 8", "scales", |of: &All| {
        Finding::at_least(7.2, of.paper.ratio(8))
    }),
    Claim::timed(
        "8 nodes that also apply every delta on the same core: at least 0.9 × 8",
        "scales",
        |of: &All| {
            let ratio = of.whole(&of.dense, 8) / of.whole(&of.dense, 1);
            Finding::new(ratio >= 7.2, format!("{ratio:.2} ×"))
        },
    ),
    Claim::timed("full duplication: 8 nodes at the rate of one", "one server's", |of: &All| {
        let ratio = of.fib.rates.ratio(3, 0);
        Finding::new((0.8..=1.1).contains(&ratio.median), ratio.text())
    }),
    Claim::timed("an owner computes a move in 3 µs (p50)", "goal: 3 µs", |of: &All| {
        let ns = of.dense.quantile(0.5);
        Finding::new(ns <= 3000.0, format!("{:.2} µs", ns / 1e3))
    })
    .because("the owner of all 16 M keys waits for memory; one of an eighth of them takes less"),
    Claim::timed("and in 10 µs (p99)", "goal: 10 µs", |of: &All| {
        let ns = of.dense.quantile(0.99);
        Finding::new(ns <= 10_000.0, format!("{:.2} µs", ns / 1e3))
    }),
    Claim::timed("a node applies a delta in 30 ns", "a memory copy; goal: 30 ns", |of: &All| {
        Finding::at_most(30.0, of.dense.apply())
    })
    .because("prefetches begin anew with each batch: here 64 deltas for each of 32 parts"),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let plan = if smoke {
        Plan { keys: 100_000, lead: 8, timed: 32, rounds: 2 }
    } else {
        Plan { keys: 16_000_000, lead: 256, timed: 2048, rounds: 9 }
    };
    context.step("sessions", 0.0)?;
    let mut sessions = sessions(plan.keys);
    let dense = context.part((0.0, 0.4), |c| measure::<Dense>(c, &plan, &mut sessions, replace))?;
    let paper = |c: &mut Context<'_>| measure::<Paper>(c, &plan, &mut sessions, |_, _, _| Ok(None));
    let paper = context.part((0.4, 0.8), paper)?;
    let fib = context.part((0.8, 1.0), |context| fib(context, &plan))?;
    let all = All { dense, paper, fib, keys: plan.keys };
    let mut record = SB_UPDATE.record(context);
    record.setting("keys", plan.keys);
    record.setting("moves of an owner in a round", plan.timed);
    record.setting("bits of a value", VALUE_BITS);
    record.settings([isa()]);
    record.judge("", CLAIMS, &all);
    let millions = |spread: Spread| spread.map(|rate| rate / 1e6);
    let curve = |name: &str, rates: &Rounds| {
        let point = |(at, &n): (usize, &usize)| (n as f64, millions(rates.spread(at)));
        Series::rounds(name, OWNERS.iter().enumerate().map(point))
    };
    let whole = |of: &Measured| {
        let points = OWNERS.iter().map(|&n| (n as f64, all.whole(of, n) / 1e6)).collect();
        Series::model(format!("{}, with all of a node's work", of.name), points)
    };
    let plot = Plot::new("updates by nodes", "nodes that own the RIB", "M updates/s");
    record.plots.push(plot.log_x().log_y().with([
        curve(all.dense.name, &all.dense.rates),
        whole(&all.dense),
        curve(all.paper.name, &all.paper.rates),
        whole(&all.paper),
        curve("full duplication", &all.fib.rates),
    ]));
    let cell = |rates: &Rounds, at: usize| millions(rates.spread(at)).cell(2);
    record.tables.push(Table::of(
        "M updates a second",
        0..OWNERS.len(),
        &[
            ("nodes", &|&at| OWNERS[at].to_string()),
            ("partition table, owners", &|&at| cell(&all.dense.rates, at)),
            ("with all of a node's work", &|&at| {
                format!("{:.2}", all.whole(&all.dense, OWNERS[at]) / 1e6)
            }),
            ("SetSep, owners", &|&at| cell(&all.paper.rates, at)),
            ("full duplication", &|&at| cell(&all.fib.rates, at)),
        ],
    ));
    record.tables.push(Table::of(
        "A move",
        [&all.dense, &all.paper],
        &[
            ("table", &|of| of.name.to_owned()),
            ("owner p50, µs", &|of| format!("{:.2}", of.quantile(0.5) / 1e3)),
            ("owner p99, µs", &|of| format!("{:.2}", of.quantile(0.99) / 1e3)),
            ("apply, ns", &|of| of.apply().cell(1)),
            ("delta, bytes", &|of| format!("{:.1}", of.delta_bits[1] as f64 / 8.0)),
            ("a new key for another, µs", &|of| {
                of.replaces.map_or(String::new(), |(ns, _)| format!("{:.2}", ns / 1e3))
            }),
            ("its delta, bytes", &|of| {
                of.replaces.map_or(String::new(), |(_, bits)| format!("{:.0}", bits / 8.0))
            }),
        ],
    ));
    let entries = Spread::of(all.fib.entries.iter().copied());
    record.note(format!(
        "A forwarding entry dropped and another taken in: {} ns, in a table of all keys, which no handling \
         node has. Full duplication sets a value in a large table on every node: that is cheap in memory, \
         so its flat rate is above a few owners' sum. What it does not do is grow. Deltas pass in memory: \
         no network, no log.",
        entries.cell(0)
    ));
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follows<P: Part>() {
        let mut all = sessions(20_000);
        let of = &mut all[..1];
        let entries: Vec<_> =
            of[0].numbers.iter().map(|&s| hash(s)).zip(of[0].nodes.iter().copied()).collect();
        let mut part = P::build(&entries).unwrap();
        let mut pcg = Pcg32::new(1, 1);
        for (_, _, hash, node) in moves(of, 0..1, 300, &mut pcg) {
            part.change(hash, node).unwrap();
        }
        let wrong = |part: &P| {
            let all = of[0].numbers.iter().zip(&of[0].nodes);
            all.filter(|&(&session, &node)| part.value(hash(session)) != node).count()
        };
        assert!(wrong(&part) > 100, "nothing is applied yet");
        assert_eq!((part.apply(100).unwrap(), part.apply(1000).unwrap()), (100, 200));
        assert_eq!((part.apply(1).unwrap(), wrong(&part)), (0, 0), "{}", P::NAME);
    }

    #[test]
    fn copies_follow_their_owner() {
        follows::<Dense>();
        follows::<Paper>();
    }

    #[test]
    fn replaced_sessions_are_in_their_part() {
        let mut all = sessions(20_000);
        let entries = |of: &Sessions| -> Vec<_> {
            of.numbers.iter().map(|&s| hash(s)).zip(of.nodes.iter().copied()).collect()
        };
        let mut parts: Vec<Dense> =
            all.iter().map(|of| Dense::build(&entries(of)).unwrap()).collect();
        assert!(replace(&mut parts, &mut all, 1).unwrap().is_some());
        for (nth, (part, of)) in parts.iter().zip(&all).enumerate() {
            assert!(of.numbers.iter().all(|&session| part_of(session) == nth));
            assert!(entries(of).iter().all(|&(hash, node)| part.value(hash) == node));
        }
    }
}
