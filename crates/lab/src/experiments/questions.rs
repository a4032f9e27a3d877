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

mod answers;

use answers::{Tolerated, Wider};

use crate::experiments::displacement::{Displacing, VARIANTS, play};
use crate::experiments::table3::approximate;
use overbank_kit::experiment::{Check, Context, Experiment, LabError, Record, Table};
use overbank_kit::micro::{self, Cell, Measured, Plan, Row, measure_all, tsc};
use overbank_kit::recommended::RECOMMENDED;
use overbank_kit::traffic::Traffic;
use overbank_kit::workload::FlowStream;
use overbank_products::replay::feed::Source;
use overbank_products::replay::record::TrafficRecord;
use overbank_products::replay::{self, Contestant, Length};
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
    let wide = displacement(context, &mut record)?;
    let all = policies(context, &mut record, cycles_per_ns)?;
    tolerance(context, &mut record)?;
    rules(&mut record, &all, wide, cycles_per_ns);
    record.settings = vec![
        ("TSC".into(), format!("{cycles_per_ns:.3} GHz")),
        context.penalty_setting(),
        ("instruction set".into(), overbank::isa::Isa::best().to_string()),
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
        reason: String::new(),
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
fn displacement(context: &mut Context<'_>, record: &mut Record) -> Result<Wider, LabError> {
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
            let figures = play(&mut table, &mut stream, context.seed);
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
    let at = |name: &str| answers::figures_of(&all, name, 0).map_or(0.0, |f| f.hit_rate);
    let (wide, deep) = (at("blp-2-16, plain"), at("blp-2-4, depth 2"));
    record.checks.push(Check {
        claim: "2: widening the bucket to a cache line wins more than two displacements in 2-4 BLP"
            .into(),
        stated: "α = 0.95".into(),
        measured: format!("{}, {}", percent(wide), percent(deep)),
        holds: wide > deep,
        reason: String::new(),
    });
    record.notes.push(answers::displacement(&all));
    Ok(Wider { plain: at("blp-2-4, plain"), wide, displaced: deep })
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
        trial: 0,
        rounds: if smoke { 2 } else { 5 },
        penalty_cycles,
        ahead: false,
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
        reason: String::new(),
    });
    record.checks.push(Check {
        claim: "3: with skew and too many flows promotion on each hit keeps the popular ones"
            .into(),
        stated: "α = 3, θ = 0.99, blp-2-16: bubble LRU above random".into(),
        measured: ["blp-2-16+bubble", "blp-2-16"].map(|n| percent(hit(skewed, n))).join(", "),
        holds: hit(skewed, "blp-2-16+bubble") > hit(skewed, "blp-2-16"),
        reason: String::new(),
    });
    record.notes.push(answers::policies(&all, context.penalty_cycles));
    Ok(all)
}

/// 4: what verification costs and saves.
fn tolerance(context: &mut Context<'_>, record: &mut Record) -> Result<(), LabError> {
    let smoke = context.smoke();
    let (entries, flows, bursts) =
        if smoke { (1 << 12, 3906, 1 << 12) } else { (1 << 20, 1_000_000, 1 << 19) };
    let mut rows = Vec::new();
    let mut answered = Vec::new();
    for (i, name) in ["set-8", "blp-2-4", "blp-2-16"].iter().enumerate() {
        context.step("question 4: approximate use", 0.8 + 0.06 * i as f64)?;
        let design = super::grid::design(name)?;
        let a = approximate(design, entries, flows, bursts, context.seed)?;
        rows.push(vec![
            (*name).to_owned(),
            percent(a.hits),
            format!("{:.5} %", 100.0 * a.wrong),
            format!("{:.5} %", 100.0 * a.foreign),
            format!("{:.1}", a.speed.median),
        ]);
        answered.push(Tolerated {
            name,
            wrong: a.wrong,
            foreign: a.foreign,
            expected: a.q,
            probed: a.probed,
        });
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
    record.notes.push(answers::tolerance(&answered));
    Ok(())
}

/// From, or up to, which penalty of a miss a change pays that costs so many cycles a lookup more (or
/// less) and hits so much more often (or less).
fn pays(cycles: f64, hits: f64) -> String {
    // Less than a twentieth of a point is no change of the hit rate.
    let hits = if hits.abs() <= 0.0005 { 0.0 } else { hits };
    match (cycles <= 0.0, hits) {
        (true, hits) if hits >= 0.0 => "always".to_owned(),
        (true, hits) => format!("up to {:.0}", cycles / hits),
        (false, hits) if hits <= 0.0 => "never".to_owned(),
        (false, hits) => format!("{:.0}", cycles / hits),
    }
}

/// 5: at which miss penalty does a better hit rate pay for a slower lookup?
fn rules(record: &mut Record, all: &[Measured], wide: Wider, cycles_per_ns: f64) {
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
        pays(ns * cycles_per_ns, b.hit_rate - a.hit_rate)
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
    record.notes.push(answers::rules(all, wide));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_pays_from_or_up_to_a_penalty() {
        assert_eq!(pays(-1.0, 0.01), "always");
        assert_eq!(pays(-1.0, 0.0004), "always");
        assert_eq!(pays(-2.6, -0.01), "up to 260");
        assert_eq!(pays(2.6, 0.01), "260");
        assert_eq!(pays(2.6, -0.01), "never");
        assert_eq!(pays(2.6, 0.0005), "never");
    }
}
