//! Figures 8 and 9: lookup cost, hit rate and emulated throughput over α, small and large tables.
//!
//! The sizes are the paper's, 4 MiB and 64 MiB; with a last-level cache of 32 MiB, as here, the
//! second one is past it, and a third size would show nothing new. The paper gives no numbers in
//! its text for these figures but orderings, so those are the checks.

use crate::experiment::{Check, Context, Experiment, LabError, Plot, Record, Series, Table};
use crate::micro::{
    self, Cell, DESIGNS, Measured, PENALTY_CYCLES, Plan, Row, Spread, measure_all, tsc,
};

/// Figure 8.
pub const FIG8: Experiment = Experiment {
    name: "fig8",
    title: "one table alone, uniform keys: lookup cost, hit rate, emulated throughput",
    source: "ATC 2020, figure 8",
    run: |context| run(context, &FIG8, 0.0),
};

/// Figure 9.
pub const FIG9: Experiment = Experiment {
    name: "fig9",
    title: "one table alone, Zipf 0.99: lookup cost, hit rate, emulated throughput",
    source: "ATC 2020, figure 9",
    run: |context| run(context, &FIG9, 0.99),
};

const ALPHAS: [f64; 6] = [0.5, 0.75, 0.95, 1.25, 1.5, 2.0];
const MIB: [f64; 2] = [4.0, 64.0];
/// The paper's designs with random eviction, by its order of hit rates.
const PLAIN: [&str; 4] = ["set-4", "set-8", "blp-2-4", "cuckoo-2-4"];

fn run(context: &mut Context<'_>, experiment: &Experiment, theta: f64) -> Result<Record, LabError> {
    let cycles_per_ns = tsc::cycles_per_ns();
    let smoke = context.smoke();
    let (sizes, alphas) =
        if smoke { (&[0.125][..], &[0.5, 0.95, 2.0][..]) } else { (&MIB[..], &ALPHAS[..]) };
    let cells: Vec<Cell> = sizes
        .iter()
        .flat_map(|&mib| alphas.iter().map(move |&alpha| Cell::mib(mib, alpha, theta)))
        .collect();
    let designs = micro::designs(DESIGNS)?;
    let plan = |cell: &Cell| {
        let large = cell.entries > 1 << 22;
        Plan {
            warm_per_flow: if smoke { 10.0 } else { 20.0 },
            warm_max: if large { 48_000_000 } else { u64::MAX },
            keys: if smoke { 1 << 13 } else { 1 << 18 },
            rounds: if smoke { 2 } else { 5 },
            penalty_cycles: PENALTY_CYCLES,
        }
    };
    let all = measure_all(context, (0.0, 1.0), &cells, &designs, plan, cycles_per_ns)?;

    let mut record = Record::new((experiment.name, experiment.title, experiment.source), context);
    record.settings = vec![
        ("skew θ".into(), theta.to_string()),
        ("miss penalty".into(), format!("{PENALTY_CYCLES} cycles of the TSC")),
        ("TSC".into(), format!("{cycles_per_ns:.3} GHz")),
        ("instruction set".into(), overbank::cache::Isa::best().to_string()),
        ("keys of a timed part, rounds".into(), {
            let plan = plan(&cells[0]);
            format!("{}, {}", plan.keys, plan.rounds)
        }),
    ];
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    let mut differ = Vec::new();
    for size in all.chunk_by(|a, b| a.cell.entries == b.cell.entries) {
        record.plots.extend(plots(size, cycles_per_ns));
        record.tables.push(table(size, cycles_per_ns));
        let large = size[0].cell.entries > 1 << 22;
        for claim in claims(theta > 0.0, large) {
            if smoke && claim.timed {
                continue;
            }
            let (holds, measured) = (claim.test)(size);
            if !holds {
                let size = size[0].cell.size();
                differ
                    .push(format!("{size}: \"{}\" does not hold here. {}", claim.text, claim.why));
            }
            record.checks.push(Check {
                claim: format!("{}: {}", size[0].cell.size(), claim.text),
                stated: claim.stated.to_owned(),
                measured,
                holds,
            });
        }
    }
    record.notes = vec![
        "The paper measured an Intel Xeon with AVX2, where each design's lookup was its own code; \
         here every design has the same burst, with all lines asked for before the first is read \
         and no branch on hit or miss, and AVX-512 compares a whole bucket of any width at once. \
         That takes most of the difference between lookup costs away, and what is left is decided \
         by the hit rate."
            .into(),
        "64 MiB is past the last-level cache here (32 MiB), as it was there, so there is no third \
         size."
            .into(),
        format!(
            "Warm-up: as many flows as there are slots, by popularity (not with skew at α ≥ 2), and \
             up to 20 draws per flow; at least {:.1} in the large tables, where PBLRU and cuckoo are \
             not quite at their final hit rates.",
            all.iter().map(|m| m.warmed).fold(f64::MAX, f64::min)
        ),
    ];
    record.notes.append(&mut differ);
    Ok(record)
}

fn plots(size: &[Measured], cycles_per_ns: f64) -> Vec<Plot> {
    let name = size[0].cell.size();
    let plot = |title: &str, y: &str, value: &dyn Fn(&Row) -> Spread, scale: f64, ranges: bool| {
        let series = DESIGNS.iter().enumerate().map(|(i, design)| {
            let at = |m: &Measured| (m.cell.alpha, value(&m.rows[i]));
            let range = |m: &Measured| {
                let (low, high) = at(m).1.range();
                (low * scale, high * scale)
            };
            Series {
                name: (*design).to_owned(),
                points: size.iter().map(|m| (m.cell.alpha, at(m).1.median * scale)).collect(),
                ranges: if ranges { size.iter().map(range).collect() } else { Vec::new() },
                model: false,
            }
        });
        Plot {
            title: format!("{name}: {title}"),
            x: "oversubscription α (flows per slot)".into(),
            y: y.to_owned(),
            log_x: false,
            log_y: false,
            series: series.collect(),
            stated: Vec::new(),
        }
    };
    let mut cost = plot("lookup cost", "cycles per key", &|row| row.lookup_ns, cycles_per_ns, true);
    cost.series.push(Series {
        name: "gather kernel".into(),
        points: size.iter().map(|m| (m.cell.alpha, m.floor_ns.median * cycles_per_ns)).collect(),
        ranges: Vec::new(),
        model: true,
    });
    let hit_rate = |row: &Row| Spread { median: row.hit_rate, ..Spread::default() };
    vec![
        cost,
        plot("hit rate", "hit rate, %", &hit_rate, 100.0, false),
        plot("emulated throughput", "million keys per second", &|row| row.throughput, 1.0, true),
    ]
}

fn table(size: &[Measured], cycles_per_ns: f64) -> Table {
    let mut headings = vec!["design".to_owned()];
    headings.extend(size.iter().map(|m| format!("α = {}", m.cell.alpha)));
    let rows = DESIGNS.iter().enumerate().map(|(i, design)| {
        let mut row = vec![(*design).to_owned()];
        row.extend(size.iter().map(|m| {
            let r = &m.rows[i];
            let cost = r.lookup_ns.median;
            format!(
                "{:.1} %, {:.0} cycles (×{:.2}), {:.1} M/s",
                100.0 * r.hit_rate,
                cost * cycles_per_ns,
                cost / m.floor_ns.median,
                r.throughput.median
            )
        }));
        row
    });
    Table {
        title: format!(
            "{}: hit rate, lookup cost (as a multiple of the gather kernel), emulated throughput",
            size[0].cell.size()
        ),
        headings,
        rows: rows.collect(),
    }
}

/// What the text of section 7.3 says.
struct Claim {
    text: &'static str,
    stated: &'static str,
    /// Whether it is about time, which the smoke size says nothing of.
    timed: bool,
    /// Why it may differ here.
    why: &'static str,
    test: fn(&[Measured]) -> (bool, String),
}

fn row<'a>(m: &'a Measured, name: &str) -> &'a Row {
    // Every design of DESIGNS was measured, and claims are about those.
    m.row(name).expect("a design of the list")
}

/// `a` and `b` at each α, as text, and whether `holds` at all of them.
fn compare(
    size: &[Measured],
    names: (&str, &str),
    value: fn(&Row) -> f64,
    holds: fn(f64, f64) -> bool,
) -> (bool, String) {
    let pairs = size.iter().map(|m| (m, value(row(m, names.0)), value(row(m, names.1))));
    let text = pairs.clone().map(|(m, a, b)| format!("α {}: {a:.2}, {b:.2}", m.cell.alpha));
    let text = text.collect::<Vec<_>>().join("; ");
    (pairs.clone().all(|(_, a, b)| holds(a, b)), format!("{}, {}: {text}", names.0, names.1))
}

fn hit(row: &Row) -> f64 {
    100.0 * row.hit_rate
}

fn cost(row: &Row) -> f64 {
    row.lookup_ns.median
}

fn speed(row: &Row) -> f64 {
    row.throughput.median
}

/// More, or the same within half a point.
fn not_below(a: f64, b: f64) -> bool {
    a >= b - 0.5
}

fn more(a: f64, b: f64) -> bool {
    a > b
}

fn less(a: f64, b: f64) -> bool {
    a < b
}

/// The fastest of the plain designs at each α.
fn winners(size: &[Measured]) -> Vec<(f64, &'static str)> {
    let best = |m: &Measured| {
        let by = |a: &&str, b: &&str| speed(row(m, a)).total_cmp(&speed(row(m, b)));
        (m.cell.alpha, PLAIN.into_iter().max_by(by).unwrap_or(PLAIN[0]))
    };
    size.iter().map(best).collect()
}

fn won(size: &[Measured], name: &str, where_: fn(f64) -> bool) -> (bool, String) {
    let winners: Vec<_> = winners(size).into_iter().filter(|w| where_(w.0)).collect();
    let text = winners.iter().map(|(alpha, name)| format!("α {alpha}: {name}"));
    (winners.iter().all(|w| w.1 == name), text.collect::<Vec<_>>().join("; "))
}

const EQUAL_COST: &str = "Lookup costs lie so close together here (one burst without branches for all \
     designs) that the higher hit rate decides.";

fn claims(skewed: bool, large: bool) -> Vec<Claim> {
    let mut claims = vec![
        Claim {
            text: "2-4 cuckoo-lite has the highest hit rate of the plain designs at every α",
            stated: "cuckoo-lite ≥ 2-4 BLP",
            timed: false,
            why: "At high α with skew all plain designs are within a fraction of a point.",
            test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), hit, not_below),
        },
        Claim {
            text: "2-4 BLP has a higher hit rate than 8-way",
            stated: "2-4 BLP ≥ 8-way at every α",
            timed: false,
            why: "At high α all tables are full, and the rates are the same.",
            test: |size| compare(size, ("blp-2-4", "set-8"), hit, not_below),
        },
        Claim {
            text: "8-way has a higher hit rate than 4-way",
            stated: "8-way ≥ 4-way at every α",
            timed: false,
            why: "At high α all tables are full, and the rates are the same.",
            test: |size| compare(size, ("set-8", "set-4"), hit, not_below),
        },
        Claim {
            text: "2-4 cuckoo-lite has the highest lookup cost of the plain designs",
            stated: "slower than 2-4 BLP at every α",
            timed: true,
            why: "Its second line is asked for in the same pass as the first, so the two waits \
                  overlap with those of the other keys of the burst.",
            test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), cost, more),
        },
        Claim {
            text: "4-way and 8-way have the lowest lookup cost",
            stated: "8-way faster than 2-4 BLP at every α",
            timed: true,
            why: "2-4 BLP reads 1.25 lines on average and compares its two buckets in one load; \
                  misses, of which set-associative tables have more, cost mispredicted branches \
                  afterwards.",
            test: |size| compare(size, ("set-8", "blp-2-4"), cost, less),
        },
    ];
    if skewed {
        claims.extend([
            Claim {
                text: "8-way achieves the highest throughput of the plain designs",
                stated: "8-way first, 2-4 BLP within 1 to 2 %",
                timed: true,
                why: EQUAL_COST,
                test: |size| won(size, "set-8", |_| true),
            },
            Claim {
                text: "2-4 BLP has a higher throughput than 2-4 cuckoo-lite",
                stated: "much higher",
                timed: true,
                why: EQUAL_COST,
                test: |size| compare(size, ("blp-2-4", "cuckoo-2-4"), speed, more),
            },
            Claim {
                text: "PBLRU has a higher hit rate than DC-Bubble",
                stated: "2-4 BLP with PBLRU above 8-way with DC-Bubble",
                timed: false,
                why: "PBLRU promotes one hit in many and needs more draws than a full run of this \
                      size has to reach its final order.",
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), hit, not_below),
            },
            Claim {
                text: "PBLRU has a lower lookup cost than DC-Bubble",
                stated: "lower",
                timed: true,
                why: "",
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), cost, less),
            },
            Claim {
                text: "PBLRU has a higher throughput than DC-Bubble",
                stated: "higher",
                timed: true,
                why: "",
                test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
            },
            Claim {
                text: "PBLRU has a lower throughput than 2-4 BLP with random eviction",
                stated: "lower",
                timed: true,
                why: "Where a miss costs 1000 cycles and lookups cost 20, one point of hit rate is \
                      10 cycles; PBLRU's promotions cost less than its additional hits save.",
                test: |size| compare(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
            },
        ]);
        return claims;
    }
    if large {
        claims.extend([
            Claim {
                text: "2-4 cuckoo-lite has a lower throughput than 2-4 BLP",
                stated: "lower at every α",
                timed: true,
                why: EQUAL_COST,
                test: |size| compare(size, ("cuckoo-2-4", "blp-2-4"), speed, less),
            },
            Claim {
                text: "at small α 8-way outperforms 2-4 BLP",
                stated: "α = 0.5",
                timed: true,
                why: EQUAL_COST,
                test: |size| compare(&size[..1], ("set-8", "blp-2-4"), speed, more),
            },
        ]);
    } else {
        claims.extend([
            Claim {
                text: "2-4 cuckoo-lite has the best throughput for α from 0.75 to 1.25",
                stated: "cuckoo-2-4",
                timed: true,
                why: EQUAL_COST,
                test: |size| won(size, "cuckoo-2-4", |alpha| (0.75..=1.25).contains(&alpha)),
            },
            Claim {
                text: "2-4 BLP has the best throughput at all other α",
                stated: "blp-2-4",
                timed: true,
                why: EQUAL_COST,
                test: |size| won(size, "blp-2-4", |alpha| !(0.75..=1.25).contains(&alpha)),
            },
        ]);
    }
    claims.extend([
        Claim {
            text: "PBLRU is slower than 2-4 BLP with random eviction",
            stated: "lower throughput",
            timed: true,
            why: "",
            test: |size| compare(size, ("blp-2-4+pblru", "blp-2-4"), speed, less),
        },
        Claim {
            text: "PBLRU is much faster than DC-Bubble",
            stated: "higher throughput than 8-way with DC-Bubble",
            timed: true,
            why: "Without skew every promotion is in vain; at high α both miss most of the time and \
                  the penalty hides the difference.",
            test: |size| compare(size, ("blp-2-4+pblru", "set-8+dc-bubble"), speed, more),
        },
    ]);
    claims
}
