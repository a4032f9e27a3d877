//! The five research questions of the dissertation's section 5.3, each with a measurement.
//!
//! 1. How does BLP perform in the full system?
//! 2. How should displacement and eviction be balanced?
//! 3. Which eviction policy?
//! 4. What if wrong answers are tolerable?
//! 5. Are there general rules?
//!
//! The figures here are short runs for the answers; the experiments that the answers name have the
//! long ones.

use crate::experiment::{Check, Context, Experiment, LabError, Record, Table};
use crate::experiments::displacement::{Displacing, Figures, VARIANTS, play};
use crate::experiments::table3::approximate;
use crate::micro::{self, Cell, Measured, Plan, Row, measure_all, tsc};
use crate::recommended::RECOMMENDED;
use crate::replay::feed::Source;
use crate::replay::record::TrafficRecord;
use crate::replay::{self, Contestant, Length};
use crate::traffic::Traffic;
use crate::workload::FlowStream;
use overbank_switch::parse::parse_rules;
use overbank_switch::translate::Tables;

/// The questions.
pub const QUESTIONS: Experiment = Experiment {
    name: "questions",
    title: "the five research questions on hash caches, answered with measurements",
    source: "dissertation, section 5.3",
    run,
};

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let mut record = Record::new((QUESTIONS.name, QUESTIONS.title, QUESTIONS.source), context);
    let cycles_per_ns = tsc::cycles_per_ns();
    full_system(context, &mut record)?;
    displacement(context, &mut record)?;
    let all = policies(context, &mut record, cycles_per_ns)?;
    tolerance(context, &mut record)?;
    rules(&mut record, &all, cycles_per_ns);
    record.settings = vec![
        ("TSC".into(), format!("{cycles_per_ns:.3} GHz")),
        context.penalty_setting(),
        ("instruction set".into(), overbank::cache::Isa::best().to_string()),
    ];
    Ok(record)
}

fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// 1: the real three tiers, so that a miss costs what it costs.
fn full_system(context: &mut Context<'_>, record: &mut Record) -> Result<(), LabError> {
    const NAMES: [&str; 5] = ["set-4", "set-8", "blp-2-4", "blp-2-16", RECOMMENDED];
    context.step("question 1: three tiers", 0.0)?;
    let failed = |error: String| LabError::Failed(error);
    let smoke = context.smoke();
    let (flows, entries) = if smoke { (8_000, 8_192) } else { (1_000_000, 1 << 20) };
    let traffic = Traffic::default();
    let rules = parse_rules(&traffic.rules()).map_err(|e| failed(e.to_string()))?;
    let tables = Tables::new(rules).map_err(|e| failed(e.to_string()))?;
    let stream = FlowStream::uniform(flows, context.seed).map_err(|e| failed(e.to_string()))?;
    let contestants = NAMES.map(|name| super::grid::design(name).map(Contestant::Cache));
    let plan = replay::Plan {
        contestants: contestants.into_iter().collect::<Result<_, _>>()?,
        entries,
        megaflows: 1 << 16,
        ports: vec![1, 2, 3, 4, 5],
        seed: context.seed,
        isa: None,
        warmup_loops: if smoke { 5 } else { 10 },
        length: Length::Loops(2),
        rounds: 3,
        pinned_core: None,
    };
    let source = Source::BuiltIn { stream: &stream, traffic };
    let label = TrafficRecord::BuiltIn {
        flows,
        theta: 0.0,
        classes: traffic.classes(),
        alpha: f64::from(flows) / entries as f64,
    };
    let outcome = replay::run(&plan, &source, &tables, label, None, context.stop, &mut |_| {})
        .map_err(|e| failed(e.to_string()))?;
    context.step("question 2: displacement", 0.2)?;
    let rate = |i: usize| outcome.designs.get(i).and_then(|d| d.mpps).unwrap_or(0.0);
    let base = rate(0);
    record.tables.push(Table {
        title: format!("1. The whole switch, {flows} uniform flows on {entries} slots"),
        headings: headings(&["design", "hit rate", "M packets/s", "to set-4"]),
        rows: outcome
            .designs
            .iter()
            .map(|d| {
                vec![
                    d.design.clone(),
                    percent(d.hit_rate),
                    d.mpps.map_or("-".into(), |m| format!("{m:.2}")),
                    d.mpps.map_or("-".into(), |m| format!("{:.3}", m / base)),
                ]
            })
            .collect(),
    });
    let hit = |i: usize| outcome.designs.get(i).map_or(0.0, |d| d.hit_rate);
    record.checks.push(Check {
        claim:
            "1: in the full system 2-4 BLP has a higher hit rate than 8-way, and 8-way than 4-way"
                .into(),
        stated: "as in the micro-benchmark".into(),
        measured: [0, 1, 2].map(|i| percent(hit(i))).join(", "),
        holds: hit(0) < hit(1) && hit(1) < hit(2),
    });
    record.notes.push(format!(
        "1. How does BLP perform in the full system? 2-4 BLP forwards {:.0} % more packets than the \
         4-way table that Open vSwitch has, and BLP with line-sized buckets {:.0} % more, and \
         {RECOMMENDED} {:.0} % more, in the three real tiers. The gain is smaller than in the micro-benchmark, because a packet costs \
         more than its lookup; figures 6 and 7 have the curves.",
        100.0 * (rate(2) / base.max(1e-9) - 1.0),
        100.0 * (rate(3) / base.max(1e-9) - 1.0),
        100.0 * (rate(4) / base.max(1e-9) - 1.0),
    ));
    Ok(())
}

/// 2: hit rate against the price of an insertion.
fn displacement(context: &mut Context<'_>, record: &mut Record) -> Result<(), LabError> {
    let entries = if context.smoke() { 1 << 11 } else { 1 << 17 };
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for (name, shape, m, depth) in VARIANTS {
        let mut row = vec![name.to_owned()];
        let mut both = Vec::new();
        for alpha in [0.95, 1.5] {
            let flows = (f64::from(entries) * alpha) as u32;
            let mut stream = FlowStream::uniform(flows, context.seed)
                .map_err(|e| LabError::Failed(e.to_string()))?;
            let mut table = Displacing::new(shape, m, entries as usize, depth, context.seed);
            let figures = play(&mut table, &mut stream);
            row.push(percent(figures.hit_rate));
            row.push(format!("{:.1}", figures.read));
            both.push(figures);
        }
        all.push((name, both));
        rows.push(row);
    }
    record.tables.push(Table {
        title: format!("2. Displacement, uniform keys, {entries} slots, 20 lookups per flow")
            .to_owned(),
        headings: headings(&[
            "structure",
            "hits, α = 0.95",
            "buckets read per insertion",
            "hits, α = 1.5",
            "buckets read per insertion",
        ]),
        rows,
    });
    let at = |name: &str| figures_of(&all, name, 0).map_or(0.0, |f| f.hit_rate);
    let (wide, deep) = (at("blp-2-16, plain"), at("blp-2-4, depth 2"));
    record.checks.push(Check {
        claim: "2: widening the bucket to a cache line wins more than two displacements in 2-4 BLP"
            .into(),
        stated: "α = 0.95".into(),
        measured: format!("{}, {}", percent(wide), percent(deep)),
        holds: wide > deep,
    });
    record.notes.push(displacement_answer(&all));
    Ok(())
}

/// Of each structure the figures with nearly all flows fitting and with too many.
type Displaced = [(&'static str, Vec<Figures>)];

fn figures_of<'a>(all: &'a Displaced, name: &str, load: usize) -> Option<&'a Figures> {
    all.iter().find(|(n, _)| *n == name)?.1.get(load)
}

/// The answer to question 2, from the figures at α = 0.95 and 1.5.
fn displacement_answer(all: &Displaced) -> String {
    let gain = |from: &str, to: &str, load| {
        let [from, to] = [from, to].map(|name| figures_of(all, name, load));
        100.0 * (to.map_or(0.0, |f| f.hit_rate) - from.map_or(0.0, |f| f.hit_rate))
    };
    // Three standard errors of the difference of two such rates, in points.
    let noise = |name: &str, load| {
        figures_of(all, name, load).map_or(0.0, |f| {
            let variance = f.hit_rate * (1.0 - f.hit_rate) / f.lookups.max(1) as f64;
            300.0 * (2.0 * variance).sqrt()
        })
    };
    let read = |name: &str, load| figures_of(all, name, load).map_or(0.0, |f| f.read);
    let shapes = [("2-4 cuckoo-lite", "cuckoo-2-4"), ("2-4 BLP", "blp-2-4")];
    let gains = |load| {
        shapes.map(|(title, short)| {
            let plain = format!("{short}, plain");
            let noise = noise(&plain, load);
            let [one, two] = [1, 2].map(|depth| {
                let name = format!("{short}, depth {depth}");
                (gain(&plain, &name, load), read(&name, load))
            });
            let text = format!(
                "in {title} one displacement changes the hit rate by {:+.2} points, two by {:+.2} \
                 (noise ±{noise:.2}; {:.1} and {:.1} buckets read per insertion)",
                one.0, two.0, one.1, two.1
            );
            (text, one.0.max(two.0) > noise)
        })
    };
    let [fit, full] = [gains(0), gains(1)];
    let wins = |gains: &[(String, bool); 2]| gains.iter().any(|gain| gain.1);
    let verdict = match (wins(&fit), wins(&full)) {
        (true, false) => "Evict where more flows come than fit; displacement wins hits only before",
        (false, false) => "Evict; displacement wins no more hits than the noise of this run",
        (_, true) => "Displacement wins hits even where more flows come than fit",
    };
    let text = |gains: [(String, bool); 2]| gains.map(|(text, _)| text).join("; ");
    let wide = gain("blp-2-4, plain", "blp-2-16, plain", 0);
    format!(
        "2. How should displacement and eviction be balanced? {verdict}. At α = 0.95 {}. At α = 1.5 \
         {}. A bucket as wide as a cache line, which moves nothing, changes the hit rate of BLP at \
         α = 0.95 by {wide:+.2} points.",
        text(fit),
        text(full),
    )
}

const GEOMETRY_AND_POLICY: &[&str] = &[
    "set-8",
    "set-8+pblru",
    "set-8+bubble",
    "set-8+dc-bubble",
    "cuckoo-2-4",
    "blp-2-4",
    "blp-2-4+pblru",
    "blp-2-4+bubble",
    "blp-2-16",
    "blp-2-16+pblru",
    "blp-2-16+bubble",
    RECOMMENDED,
];

/// 3: policies over skew.
fn policies(
    context: &mut Context<'_>,
    record: &mut Record,
    cycles_per_ns: f64,
) -> Result<Vec<Measured>, LabError> {
    let smoke = context.smoke();
    let mib = if smoke { 1.0 / 32.0 } else { 4.0 };
    let points = [(0.95, 0.0), (1.5, 0.0), (1.5, 0.8), (1.5, 0.99), (3.0, 0.99)];
    let cells: Vec<Cell> =
        points.iter().map(|&(alpha, theta)| Cell::mib(mib, alpha, theta)).collect();
    let designs = micro::designs(GEOMETRY_AND_POLICY)?;
    let penalty_cycles = context.penalty_cycles;
    let plan = |_: &Cell| Plan {
        warm_per_flow: 20.0,
        warm_max: u64::MAX,
        keys: if smoke { 1 << 13 } else { 1 << 17 },
        rounds: if smoke { 2 } else { 5 },
        penalty_cycles,
    };
    let all = measure_all(context, (0.3, 0.8), &cells, &designs, plan, cycles_per_ns)?;
    let mut names = vec!["design".to_owned()];
    names.extend(points.map(|(alpha, theta)| format!("α = {alpha}, θ = {theta}")));
    record.tables.push(Table {
        title: format!("3. Policies, {}: hit rate, ns of a lookup, emulated M/s", cells[0].size()),
        headings: names,
        rows: GEOMETRY_AND_POLICY
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let mut row = vec![(*name).to_owned()];
                row.extend(all.iter().map(|m| {
                    let r = &m.rows[i];
                    format!(
                        "{}, {:.1}, {:.1}",
                        percent(r.hit_rate),
                        r.lookup_ns.median,
                        r.throughput.median
                    )
                }));
                row
            })
            .collect(),
    });
    let hit = |m: &Measured, name: &str| m.row(name).map_or(0.0, |r| r.hit_rate);
    let skewed = &all[4];
    record.checks.push(Check {
        claim: "3: without skew no policy beats random eviction by a point".into(),
        stated: "α = 1.5, blp-2-16: random, PBLRU, bubble LRU".into(),
        measured: ["blp-2-16", "blp-2-16+pblru", "blp-2-16+bubble"]
            .map(|name| percent(hit(&all[1], name)))
            .join(", "),
        holds: ["blp-2-16+pblru", "blp-2-16+bubble"]
            .iter()
            .all(|name| hit(&all[1], name) < hit(&all[1], "blp-2-16") + 0.01),
    });
    record.checks.push(Check {
        claim: "3: with skew and too many flows promotion on each hit keeps the popular ones"
            .into(),
        stated: "α = 3, θ = 0.99, blp-2-16: bubble LRU above random".into(),
        measured: ["blp-2-16+bubble", "blp-2-16"].map(|n| percent(hit(skewed, n))).join(", "),
        holds: hit(skewed, "blp-2-16+bubble") > hit(skewed, "blp-2-16"),
    });
    record.notes.push(
        "3. What kind of eviction policy? Random where popularity is even or nearly all flows fit; \
         there every promotion is in vain. With skew and α > 1 bubbling keeps the popular flows; on \
         each hit it costs several nanoseconds of writes, on one hit in many (PBLRU) little, but it \
         then takes many times the working set until the order has settled. Which of these wins is \
         decided by the miss penalty, see 5."
            .into(),
    );
    Ok(all)
}

/// 4: what verification costs and saves.
fn tolerance(context: &mut Context<'_>, record: &mut Record) -> Result<(), LabError> {
    let smoke = context.smoke();
    let (entries, flows, bursts) =
        if smoke { (1 << 12, 3906, 1 << 12) } else { (1 << 20, 1_000_000, 1 << 19) };
    let mut rows = Vec::new();
    for (i, name) in ["set-8", "blp-2-4", "blp-2-16"].iter().enumerate() {
        context.step("question 4: approximate use", 0.8 + 0.06 * i as f64)?;
        let a = approximate(super::grid::design(name)?, entries, flows, bursts, context.seed)?;
        rows.push(vec![
            (*name).to_owned(),
            percent(a.hits),
            format!("{:.5} %", 100.0 * a.wrong),
            format!("{:.5} %", 100.0 * a.foreign),
            format!("{:.1}", a.speed.median),
        ]);
    }
    record.tables.push(Table {
        title: format!("4. Approximate use, {flows} uniform flows on {entries} slots"),
        headings: headings(&[
            "design",
            "hit rate",
            "wrong answers, working set",
            "wrong answers, new flows",
            "M keys/s",
        ]),
        rows,
    });
    record.notes.push(
        "4. What if wrong answers are tolerable? Then the table never fetches an entry to verify, \
         which in a switch is the larger part of a hit, and the number of candidate slots becomes a \
         matter of correctness: wrong answers grow in proportion to it, one lookup in 2¹⁶ per \
         occupied slot for new flows. A key that is mistaken stays so until the other entry leaves, \
         because it is never inserted. So approximate use wants few candidates or wider fingerprints \
         where exact use wants many candidates."
            .into(),
    );
    Ok(())
}

/// 5: at which miss penalty does a better hit rate pay for a slower lookup?
fn rules(record: &mut Record, all: &[Measured], cycles_per_ns: f64) {
    let pairs = [
        ("set-8", "blp-2-4"),
        ("blp-2-4", "cuckoo-2-4"),
        ("blp-2-4", "blp-2-16"),
        ("blp-2-4", "blp-2-4+pblru"),
        ("blp-2-16", "blp-2-16+bubble"),
        ("blp-2-4", RECOMMENDED),
    ];
    let break_even = |a: &Row, b: &Row| {
        let ns = b.lookup_ns.median - a.lookup_ns.median;
        let hits = b.hit_rate - a.hit_rate;
        if ns <= 0.0 && hits >= 0.0 {
            "always".to_owned()
        } else if hits <= 0.0005 {
            "never".to_owned()
        } else {
            format!("{:.0}", (ns / hits * cycles_per_ns).max(0.0))
        }
    };
    let mut names = vec!["from".to_owned(), "to".to_owned()];
    names.extend(all.iter().map(|m| format!("α = {}, θ = {}", m.cell.alpha, m.cell.theta)));
    record.tables.push(Table {
        title: "5. Miss penalty, in cycles, from which the change pays".into(),
        headings: names,
        rows: pairs
            .iter()
            .map(|&(a, b)| {
                let mut row = vec![a.to_owned(), b.to_owned()];
                row.extend(all.iter().map(|m| match (m.row(a), m.row(b)) {
                    (Some(a), Some(b)) => break_even(a, b),
                    _ => "-".to_owned(),
                }));
                row
            })
            .collect(),
    });
    record.notes.push(
        "5. Are there general rules? (a) What a lookup costs is the number of lines that it waits \
         for, not the number of slots that it compares: make the bucket as wide as the line, one \
         vector compares all of it. (b) Ask for all lines of a burst before reading the first; then \
         a second line costs a fraction of a miss, and least if it lies beside the first. (c) Spend a \
         nanosecond on a lookup if (change of hit rate) × (miss penalty) is more: the table gives \
         the penalty from which each change pays, and a tier behind the cache costs hundreds to \
         thousands of cycles. (d) Evict at random until skew and oversubscription come together. \
         (e) Widen the bucket before you displace: see 2 for what each wins."
            .into(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_on_displacement_is_that_of_the_figures() {
        let all = |rates: [[f64; 2]; 7]| -> Vec<(&'static str, Vec<Figures>)> {
            let figures = |hit_rate, read| Figures {
                fill: Vec::new(),
                hit_rate,
                lookups: 180_000,
                insert_ns: 0.0,
                read,
                moved: 0.0,
            };
            let both = |rates: [f64; 2], read| rates.map(|rate| figures(rate, read)).into();
            VARIANTS
                .iter()
                .zip(rates)
                .enumerate()
                .map(|(i, (v, r))| (v.0, both(r, i as f64)))
                .collect()
        };
        // Plain, one, two in cuckoo; the same in BLP; the wide bucket.
        let fit = [0.90, 0.95, 0.9675, 0.80, 0.83, 0.85, 0.95];
        let answer = displacement_answer(&all(fit.map(|rate| [rate, 0.6])));
        for part in [
            "? Evict where more flows come than fit",
            "At α = 0.95 in 2-4 cuckoo-lite one displacement changes the hit rate by +5.00 points, \
             two by +6.75 (noise ±0.30; 1.0 and 2.0 buckets",
            "in 2-4 BLP one displacement changes the hit rate by +3.00 points, two by +5.00 (noise ±0.40; 4.0 and \
             5.0 buckets",
            "At α = 1.5 in 2-4 cuckoo-lite one displacement changes the hit rate by +0.00",
            "at α = 0.95 by +15.00 points",
        ] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        let answer = displacement_answer(&all(fit.map(|rate| [rate, rate])));
        assert!(answer.contains("? Displacement wins hits even"), "{answer}");
        assert!(displacement_answer(&all([[0.7; 2]; 7])).contains("? Evict; displacement wins no"));
        // Less than the noise is no gain.
        let little = [0.7, 0.703, 0.702, 0.7, 0.703, 0.702, 0.7].map(|rate| [rate; 2]);
        assert!(displacement_answer(&all(little)).contains("? Evict; displacement wins no"));
    }
}
