//! The five research questions of the dissertation's section 5.3 ([`NOTES`]), each with a short
//! run; the experiments that the answers name have the long ones.

use super::displacement::{Figures, VARIANTS, play};
use super::endtoend::Course;
use super::table3::{Approximate, approximate};
use crate::prelude::*;
use overbank_kit::micro::{self, Cell, Measured, Plan, measure_all, tsc};
use overbank_kit::models::ALPHA_PAPER;
use overbank_products::replay::record::DesignRecord;

pub const QUESTIONS: Experiment = Experiment {
    name: "questions",
    title: "the five research questions on hash caches, answered with measurements",
    source: "dissertation, section 5.3",
    run,
};

struct Found {
    /// 1: the designs of the whole switch.
    switch: Vec<DesignRecord>,
    /// 2: of each structure the figures at [`LOADS`].
    displaced: Vec<(&'static str, Vec<Figures>)>,
    /// 3 and 5: policies and geometries in a cell each.
    cells: Vec<Measured>,
    /// 4: tables whose matches are believed.
    believed: Vec<(&'static str, Approximate)>,
}

/// α of question 2: nearly all flows fit, and too many.
const LOADS: [f64; 2] = [0.95, 1.5];
/// (α, θ) of questions 3 and 5.
const CELLS: [(f64, f64); 5] = [(0.95, 0.0), (1.5, 0.0), (1.5, 0.8), (1.5, 0.99), (3.0, 0.99)];
const SWITCH: [&str; 5] = ["set-4", "set-8", "blp-2-4", "blp-2-16", RECOMMENDED];
const BELIEVED: [&str; 3] = ["set-8", "blp-2-4", "blp-2-16"];
const GEOMETRY_AND_POLICY: [&str; 12] = [
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
/// Points of hit rate below which two policies are as good: rates come from some 10⁵ lookups.
const ALIKE: f64 = 0.5;

/// Returns the points of hit rate and nanoseconds of a lookup that a change adds in a cell.
fn change(m: &Measured, from: &str, to: &str) -> Option<(f64, f64)> {
    let (from, to) = (m.row(from)?, m.row(to)?);
    let points = 100.0 * (to.hit_rate - from.hit_rate);
    Some((points, to.lookup_ns.median - from.lookup_ns.median))
}

fn place(m: &Measured) -> String {
    format!("α = {}, θ = {}", m.cell.alpha, m.cell.theta)
}

impl Found {
    /// Returns the points of hit rate that `to` adds to `from`, and three standard errors of it, in
    /// points.
    fn gain(&self, from: &str, to: &str, load: usize) -> Option<(f64, f64)> {
        let of = |name: &str| Some(&self.displaced.iter().find(|d| d.0 == name)?.1[load]);
        let (from, to) = (of(from)?, of(to)?);
        let variance = from.hit_rate * (1.0 - from.hit_rate) / from.lookups.max(1) as f64;
        Some((100.0 * (to.hit_rate - from.hit_rate), 300.0 * (2.0 * variance).sqrt()))
    }

    /// Returns the most of what one and two displacements add in each geometry, in multiples of its
    /// noise.
    fn displacement(&self, load: usize) -> Option<(f64, String)> {
        let (mut most, mut texts) = (f64::MIN, Vec::new());
        for geometry in ["cuckoo-2-4", "blp-2-4"] {
            for depth in [1, 2] {
                let to = format!("{geometry}, depth {depth}");
                let (points, noise) = self.gain(&format!("{geometry}, plain"), &to, load)?;
                most = most.max(points / noise);
                texts.push(format!("{to}: {points:+.2} points (noise ±{noise:.2})"));
            }
        }
        Some((most, texts.join("; ")))
    }

    /// Returns the points that promotion on each hit adds to 2-16 BLP where `wanted`, cell by cell.
    fn bubbling(&self, wanted: impl Fn(&Cell) -> bool) -> Vec<f64> {
        let cells = self.cells.iter().filter(|m| wanted(&m.cell));
        cells.filter_map(|m| Some(change(m, "blp-2-16", "blp-2-16+bubble")?.0)).collect()
    }
}

const CLAIMS: &[Claim<Found>] = &[
    Claim::new(
        "1: in the full system 2-4 BLP has a higher hit rate than 8-way, and 8-way than 4-way",
        "as in the micro-benchmark",
        |found| {
            let rates: Vec<f64> = found.switch.iter().take(3).map(|d| d.hit_rate).collect();
            let shown = listed(&rates, |&rate| percent(rate, 2));
            Finding::new(rates.is_sorted_by(|a, b| a < b), shown)
        },
    ),
    Claim::new(
        "2: widening the bucket to a cache line wins more than two displacements in 2-4 BLP",
        "α = 0.95",
        |found| {
            let (wide, _) = found.gain("blp-2-4, plain", "blp-2-16, plain", 0)?;
            let (deep, _) = found.gain("blp-2-4, plain", "blp-2-4, depth 2", 0)?;
            Finding::new(wide > deep, format!("{wide:+.2} and {deep:+.2} points"))
        },
    ),
    Claim::timed(
        "2: displacement wins hits where nearly all flows fit",
        "α = 0.95: more than its noise",
        |found| {
            let (most, text) = found.displacement(0)?;
            Finding::new(most > 1.0, text)
        },
    ),
    Claim::timed(
        "2: and none where more flows come than fit",
        "α = 1.5: no more than its noise",
        |found| {
            let (most, text) = found.displacement(1)?;
            Finding::new(most <= 1.0, text)
        },
    ),
    Claim::new(
        "3: without skew no policy beats random eviction by a point",
        "α = 1.5, blp-2-16: PBLRU, bubble LRU to random",
        |found| {
            let m = &found.cells[1];
            let won = ["blp-2-16+pblru", "blp-2-16+bubble"].map(|to| change(m, "blp-2-16", to));
            let [Some(pblru), Some(bubble)] = won else { return None };
            let shown = format!("{:+.2} and {:+.2} points", pblru.0, bubble.0);
            Finding::new(pblru.0.max(bubble.0) < 1.0, shown)
        },
    ),
    Claim::new(
        "3: with skew and too many flows promotion on each hit keeps the popular ones",
        "α = 3, θ = 0.99, blp-2-16: bubble LRU above random",
        |found| {
            let (points, _) = change(&found.cells[4], "blp-2-16", "blp-2-16+bubble")?;
            Finding::new(points > 0.0, format!("{points:+.2} points"))
        },
    ),
    Claim::timed(
        "4: wrong answers for new flows are one in 2¹⁶ per occupied candidate slot",
        "within four standard deviations of the count",
        |found| {
            let as_calculated = |a: &Approximate| {
                let (seen, due) = (a.foreign * a.probed as f64, a.q * a.probed as f64);
                (seen - due).abs() <= 4.0 * due.max(1.0).sqrt()
            };
            let shown = listed(&found.believed, |(name, a)| {
                format!("{name} {} for {}", percent(a.foreign, 4), percent(a.q, 4))
            });
            Finding::new(found.believed.iter().all(|(_, a)| as_calculated(a)), shown)
        },
    ),
    Claim::timed("4: within the working set wrong answers are fewer", "in every design", |found| {
        let shown = listed(&found.believed, |(name, a)| {
            format!("{name} {} for {}", percent(a.wrong, 4), percent(a.foreign, 4))
        });
        Finding::new(found.believed.iter().all(|(_, a)| a.wrong <= a.foreign), shown)
    }),
    Claim::timed(
        "5a: a bucket as wide as the line wins hits for nothing, as one vector compares all of it",
        "blp-2-4 to blp-2-16: more hits for at most one nanosecond",
        |found| {
            let (points, ns) = change(&found.cells[0], "blp-2-4", "blp-2-16")?;
            let shown = format!("{points:+.2} points, {ns:+.1} ns at {}", place(&found.cells[0]));
            Finding::new(points > 0.0 && ns <= 1.0, shown)
        },
    ),
    Claim::timed(
        "5b: a second line costs least beside the first",
        "against 8-way, which reads one: 2-4 BLP less than 2-4 cuckoo-lite",
        |found: &Found| {
            let (_, beside) = change(&found.cells[0], "set-8", "blp-2-4")?;
            let (_, anywhere) = change(&found.cells[0], "set-8", "cuckoo-2-4")?;
            Finding::new(beside < anywhere, format!("{beside:+.1} and {anywhere:+.1} ns a lookup"))
        },
    )
    .because("cuckoo-lite here looks at second buckets only where it must while it has room"),
    Claim::timed(
        "5c: the recommended design is nowhere slower than 2-4 BLP",
        "at least its throughput in every cell, with the penalty of a miss",
        |found| {
            let ratio = |m: &Measured| {
                Some(m.row(RECOMMENDED)?.to(m.row("blp-2-4")?, |round| round.throughput).median)
            };
            let Spread { low, high, .. } = Spread::of(found.cells.iter().filter_map(ratio));
            Finding::new(low >= 1.0, format!("{low:.2} to {high:.2} of it"))
        },
    ),
    Claim::timed(
        "5d: evict at random until skew and oversubscription come together",
        "bubbling in 2-16 BLP: half a point or more where θ > 0 and α > 1, less elsewhere",
        |found| {
            let both = |cell: &Cell| cell.theta > 0.0 && cell.alpha > 1.0;
            let least = found.bubbling(both).into_iter().fold(f64::MAX, f64::min);
            let rest = found.bubbling(|cell| !both(cell)).into_iter().fold(f64::MIN, f64::max);
            let shown = format!("{least:+.2} points at least there, {rest:+.2} at most elsewhere");
            Finding::new(least >= ALIKE && rest < ALIKE, shown)
        },
    ),
];

const NOTES: [&str; 5] = [
    "1. How does BLP perform in the full system? The gain over the 4-way table that Open vSwitch \
     has is smaller than in the micro-benchmark, because a packet costs more than its lookup; \
     figures 6 and 7 have the curves.",
    "2. How should displacement and eviction be balanced? Displacement can win only where there is \
     an empty slot to be reached: widen the bucket before you displace.",
    "3. What kind of eviction policy? Without skew no order of the flows is better than another; \
     with skew and too many flows promotion keeps the popular ones, at the price that the table \
     has.",
    "4. What if wrong answers are tolerable? Then the table never fetches an entry to verify it, \
     and wants few candidates, or wider fingerprints. A flow that is mistaken stays so until the \
     other entry leaves.",
    "5. Are there general rules? Spend a nanosecond on a lookup if (change of hit rate) × (miss \
     penalty) is more: the table has the penalty from which each change pays.",
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let cycles_per_ns = tsc::cycles_per_ns();
    let found = Found {
        switch: context.part((0.0, 0.2), full_system)?,
        displaced: context.part((0.2, 0.3), displacement)?,
        cells: policies(context, cycles_per_ns)?,
        believed: context.part((0.8, 1.0), tolerance)?,
    };
    let mut record = QUESTIONS.record(context);
    let clock = ("TSC".to_owned(), format!("{cycles_per_ns:.3} GHz"));
    record.settings([clock, context.penalty_setting(), isa()]);
    record.judge("", CLAIMS, &found);
    let base = found.switch[0].mpps.unwrap_or(f64::NAN);
    let rate = |d: &DesignRecord, to: f64, digits: usize| {
        d.mpps.map_or("-".to_owned(), |mpps| format!("{:.digits$}", mpps / to))
    };
    record.tables.push(Table::of(
        "1. The whole switch, uniform flows, α = 10⁶/2²⁰",
        &found.switch,
        &[
            ("design", &|d| d.design.clone()),
            ("hit rate", &|d| percent(d.hit_rate, 2)),
            ("M packets/s", &|d| rate(d, 1.0, 2)),
            ("to set-4", &|d| rate(d, base, 3)),
        ],
    ));
    let entries = displaced_entries(smoke);
    record.tables.push(Table::of(
        format!("2. Displacement, uniform keys, {entries} slots, 20 lookups per flow"),
        &found.displaced,
        &[
            ("structure", &|d| d.0.to_owned()),
            ("hits, α = 0.95", &|d| percent(d.1[0].hit_rate, 2)),
            ("buckets read per insertion", &|d| format!("{:.1}", d.1[0].read)),
            ("hits, α = 1.5", &|d| percent(d.1[1].hit_rate, 2)),
            ("buckets read per insertion", &|d| format!("{:.1}", d.1[1].read)),
        ],
    ));
    let size = found.cells[0].cell.size();
    let name = |(_, name): &(usize, &str)| (*name).to_owned();
    record.tables.push(Table::pivot(
        format!("3. Policies, {size}: hit rate, ns of a lookup, emulated M/s"),
        "design",
        (GEOMETRY_AND_POLICY.into_iter().enumerate(), name),
        (&found.cells, |m: &&Measured| place(m)),
        |&(i, _), m| {
            let (r, hits) = (&m.rows[i], percent(m.rows[i].hit_rate, 2));
            format!("{hits}, {:.1}, {:.1}", r.lookup_ns.median, r.throughput.median)
        },
    ));
    record.tables.push(Table::of(
        "4. Approximate use, uniform flows",
        &found.believed,
        &[
            ("design", &|b| b.0.to_owned()),
            ("hit rate", &|b| percent(b.1.hits, 2)),
            ("wrong answers, working set", &|b| format!("{:.5} %", 100.0 * b.1.wrong)),
            ("wrong answers, new flows", &|b| format!("{:.5} %", 100.0 * b.1.foreign)),
            ("M keys/s", &|b| format!("{:.1}", b.1.speed.median)),
        ],
    ));
    let changes = [
        ("set-8", "blp-2-4"),
        ("blp-2-4", "cuckoo-2-4"),
        ("blp-2-4", "blp-2-16"),
        ("blp-2-4", "blp-2-4+pblru"),
        ("blp-2-16", "blp-2-16+bubble"),
        ("blp-2-4", RECOMMENDED),
    ];
    record.tables.push(Table::pivot(
        "5. Miss penalty, in cycles, from which the change pays",
        "change",
        (changes, |(from, to): &(&str, &str)| format!("{from} to {to}")),
        (&found.cells, |m: &&Measured| place(m)),
        |(from, to), m| {
            let change = change(m, from, to);
            change.map_or("-".into(), |(points, ns)| pays(ns * cycles_per_ns, points / 100.0))
        },
    ));
    record.notes.extend(NOTES.map(str::to_owned));
    Ok(record)
}

/// Answers question 1 with the real three tiers, so that a miss costs what it costs.
fn full_system(context: &mut Context<'_>) -> Result<Vec<DesignRecord>, LabError> {
    let (entries, warmup_loops) = if context.smoke() { (1 << 13, 5) } else { (1 << 20, 10) };
    let (alphas, thetas) = (&[ALPHA_PAPER][..], &[0.0][..]);
    let course = Course { entries, alphas, thetas, warmup_loops, rounds: 5 };
    let mut points = course.measure(context, &SWITCH)?;
    let point = points.pop();
    point.map(|p| p.designs).ok_or_else(|| LabError::Failed("no point was measured".into()))
}

fn displaced_entries(smoke: bool) -> usize {
    if smoke { 1 << 11 } else { 1 << 17 }
}

/// Answers question 2: hit rate against the price of an insertion.
fn displacement(context: &mut Context<'_>) -> Result<Vec<(&'static str, Vec<Figures>)>, LabError> {
    let entries = displaced_entries(context.smoke());
    context.each(
        VARIANTS,
        |v| format!("displacement: {}", v.0),
        |context, variant| {
            let figures = LOADS.map(|alpha| play(variant, entries, (alpha, 0.0), context.seed));
            Ok((variant.0, figures.into_iter().collect::<Result<_, _>>()?))
        },
    )
}

/// Answers question 3: policies over skew.
fn policies(context: &mut Context<'_>, cycles_per_ns: f64) -> Result<Vec<Measured>, LabError> {
    let smoke = context.smoke();
    let mib = if smoke { 1.0 / 32.0 } else { 4.0 };
    let cells = CELLS.map(|(alpha, theta)| Cell::mib(mib, alpha, theta));
    let designs = |_: &Cell| micro::designs(&GEOMETRY_AND_POLICY);
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
    measure_all(context, (0.3, 0.8), &cells, designs, plan, cycles_per_ns)
}

/// Answers question 4: what verification costs and saves.
fn tolerance(context: &mut Context<'_>) -> Result<Vec<(&'static str, Approximate)>, LabError> {
    let (entries, flows, bursts) =
        if context.smoke() { (1 << 12, 3906, 1 << 12) } else { (1 << 20, 1_000_000, 1 << 19) };
    context.each(
        BELIEVED,
        |name| format!("approximate use: {name}"),
        |context, name| {
            Ok((name, approximate(design(name)?, entries, flows, bursts, context.seed)?))
        },
    )
}

/// Returns from, or up to, which penalty of a miss a change pays that costs `cycles` a lookup more
/// (or less) and hits so much more often (or less).
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

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::micro::made_up;

    #[test]
    fn a_change_pays_from_or_up_to_a_penalty() {
        assert_eq!(pays(-1.0, 0.01), "always");
        assert_eq!(pays(-1.0, 0.0004), "always");
        assert_eq!(pays(-2.6, -0.01), "up to 260");
        assert_eq!(pays(2.6, 0.01), "260");
        assert_eq!(pays(2.6, -0.01), "never");
        assert_eq!(pays(2.6, 0.0005), "never");
    }

    #[test]
    fn each_rule_can_fail() {
        // Points that promotion wins without and with skew, what a wider bucket costs, what
        // cuckoo-lite's second line costs, and throughput of the recommended design.
        let holds = |[even, skewed, wider_ns, cuckoo_ns, ours]: [f64; 5], part: &str| {
            let cells = CELLS.map(|(alpha, theta)| {
                let promoted = if theta > 0.0 { skewed } else { even } / 100.0;
                let rows = [
                    ("set-8", (0.80, 3.0, 20.0)),
                    ("blp-2-4", (0.85, 4.0, 20.0)),
                    ("cuckoo-2-4", (0.86, cuckoo_ns, 20.0)),
                    ("blp-2-16", (0.90, 4.0 + wider_ns, 20.0)),
                    ("blp-2-16+pblru", (0.90 + promoted / 2.0, 5.0, 20.0)),
                    ("blp-2-16+bubble", (0.90 + promoted, 6.0, 20.0)),
                    (RECOMMENDED, (0.9, 4.0, ours)),
                ];
                made_up::measured(Cell { entries: 1000, alpha, theta }, 1.0, &rows)
            });
            let claim = CLAIMS.iter().find(|claim| claim.text.starts_with(part)).unwrap();
            let (switch, displaced, believed) = Default::default();
            let found = Found { switch, displaced, cells: cells.into(), believed };
            (claim.judge)(&found).unwrap().holds
        };
        let all = [0.0, 4.0, 0.5, 6.0, 30.0];
        let limits = [
            ("3: without", 0, 1.1),
            ("3: with skew", 1, -0.1),
            ("5a", 2, 1.1),
            ("5b", 3, 3.9),
            ("5c", 4, 19.9),
            ("5d", 0, 0.6),
            ("5d", 1, 0.4),
        ];
        for (part, at, fails) in limits {
            let mut figures = all;
            figures[at] = fails;
            assert!(holds(all, part) && !holds(figures, part), "{part}");
        }
    }
}
