//! Figure 5: each optimisation switched on in turn.
//!
//! ```text
//!  baseline           2,4 cuckoo, versions read by locked instructions, 4 KiB pages, one by one
//!  + huge pages       the same on 2 MiB pages
//!  + memory ordering  versions read by loads, without a fence
//!  + batching         32 lookups at a time, no prefetching
//!  + prefetching      in two rounds: the paper's table
//!  overbank::fib      ours: another layout, see `optimistic`
//!  + next burst named ours: each batch asks for the lines of the next one meanwhile; beyond the paper
//! ```
//!
//! All look up keys that are there, drawn anew for each round and each contestant, on one core. They
//! take turns in each round where all their tables fit into memory at once; where not, the paper's
//! five do, and then ours with the gather kernel.

use super::measure::{
    Draws, Fib, LookUp, Part, Plan, Which, build, fill, gather_ns, look_up, look_up_ahead,
    ns_per_key, value,
};
use super::optimistic::{Census, Filler, Optimistic};
use super::{absent, address, sizes};
use overbank_kit::experiment::{Context, Experiment, LabError, Plot, Record, Series, Table};
use overbank_kit::micro::gather::{self, Footing, Gather, refusal};
use overbank_kit::spread::Spread;

mod claims;

/// Figure 5.
pub const FIB5: Experiment = Experiment {
    name: "fib5",
    title: "forwarding table: each optimisation switched on in turn",
    source: "dissertation, figure 5",
    run,
};

const SMOKE: [u64; 2] = [10_000, 100_000];
const FULL: [u64; 8] =
    [10_000, 100_000, 1_000_000, 4_000_000, 16_000_000, 100_000_000, 300_000_000, 1_000_000_000];

/// Keys of a batch: the burst of our ports.
const BATCH: usize = 32;

/// The contestants, in the order in which they are switched on.
const STEPS: [&str; 7] = [
    "baseline",
    "+ huge pages",
    "+ memory ordering",
    "+ batching",
    "+ prefetching",
    "overbank::fib",
    "+ next burst named",
];
/// The last one of the paper's.
const PAPER_ALL: usize = 4;
const OURS: usize = 5;
const OURS_AHEAD: usize = 6;

/// Buckets that are looked at to learn where entries are.
const CENSUS_BUCKETS: u32 = 1 << 20;

/// What was measured at one size.
struct Measured {
    entries: u64,
    /// Of the baseline's table.
    bytes: u64,
    /// Nanoseconds a key of each step, by round.
    ns: Vec<Vec<f64>>,
    floor: Vec<f64>,
    facts: Facts,
}

/// What does not depend on time.
struct Facts {
    /// Pages of the baseline's table, of that of the other steps, and of ours.
    pages: [String; 3],
    ours_bytes: u64,
    /// Buckets that the lookup of a present key reads, the paper's and ours.
    lines_a_hit: [f64; 2],
    /// Lines that the lookup of an absent key reads, ours; the paper's reads two.
    lines_a_miss: f64,
    /// Pages of our table and of the gather kernel's lines.
    footing: Footing,
    /// Whether all took turns.
    together: bool,
}

impl Measured {
    fn spread(&self, step: usize) -> Spread {
        Spread::of(self.ns[step].clone())
    }

    /// How many times as fast `step` is as `other`, by round.
    fn factor(&self, step: usize, other: usize) -> Spread {
        let pairs = self.ns[other].iter().zip(&self.ns[step]);
        Spread::of(pairs.map(|(other, step)| other / step))
    }

    fn name(&self) -> String {
        sizes::name(self.entries)
    }
}

/// Someone who takes part in the rounds.
enum Lane<'a> {
    LooksUp(&'static str, u64, LookUp<'a>),
    Gathers(&'a Gather, u64),
}

fn rounds(
    context: &mut Context<'_>,
    plan: &Plan,
    part: Part,
    entries: u64,
    lanes: &mut [Lane<'_>],
) -> Result<Vec<Vec<f64>>, LabError> {
    let mut draws = Draws::uniform(entries, context.seed)?;
    let mut all = vec![Vec::new(); lanes.len()];
    let count = lanes.len();
    for round in 0..plan.rounds {
        let share = round as f64 / plan.rounds as f64;
        context.step(&format!("{} entries: lookups", sizes::name(entries)), part.at(share))?;
        // Each is first in turn, so that none has the same one before it always.
        for lane in (0..count).map(|i| (i + round) % count) {
            let ns = match &mut lanes[lane] {
                Lane::LooksUp(name, bytes, work) => {
                    let which = (Which::Present, plan.keys, *bytes as usize);
                    ns_per_key(name, &mut draws, which, work)?
                }
                Lane::Gathers(gather, bytes) => {
                    gather_ns(gather, &mut draws, BATCH, (plan.keys, *bytes as usize))
                }
            };
            all[lane].push(ns);
        }
    }
    Ok(all)
}

/// The paper's table, on both kinds of pages.
struct Cuckoo {
    small: Optimistic,
    huge: Optimistic,
}

impl Cuckoo {
    fn build(context: &mut Context<'_>, part: Part, entries: u64) -> Result<Cuckoo, LabError> {
        let none = || LabError::Failed("no memory for the baseline's table".to_owned());
        let huge = Optimistic::new(entries as usize, true, context.seed).ok_or_else(none)?;
        let mut filler = Filler::of(&huge);
        let what = format!("{} entries, the baseline's table", sizes::name(entries));
        fill(context, &what, part, 0..entries, |number, soon| {
            filler.prefetch(address(soon));
            let full = || LabError::Failed(format!("{what}: full at entry {number}"));
            filler.insert(address(number), value(number)).map_err(|_| full())
        })?;
        let small = huge.copy(false).ok_or_else(none)?;
        Ok(Cuckoo { small, huge })
    }

    fn lanes(&self) -> Vec<Lane<'_>> {
        let bytes = self.huge.bytes() as u64;
        let (small, huge) = (&self.small, &self.huge);
        let works: [LookUp<'_>; 5] = [
            Box::new(move |keys| small.look_up_locked(keys)),
            Box::new(move |keys| huge.look_up_locked(keys)),
            Box::new(move |keys| huge.look_up(keys)),
            Box::new(move |keys| huge.look_up_batched(BATCH, keys)),
            Box::new(move |keys| huge.look_up_prefetched(BATCH, keys)),
        ];
        let lanes = STEPS.into_iter().zip(works);
        lanes.map(|(name, work)| Lane::LooksUp(name, bytes, work)).collect()
    }

    /// Buckets that the lookup of a present key reads.
    fn lines_a_hit(&self) -> f64 {
        let Census { entries, second } = self.huge.census(CENSUS_BUCKETS);
        1.0 + second as f64 / entries.max(1) as f64
    }
}

fn our_lanes<'a>(fib: &Fib, gather: &'a Gather) -> Vec<Lane<'a>> {
    let reader = fib.reader();
    let bytes = reader.bytes() as u64;
    let ahead = reader.clone();
    let works: [LookUp<'a>; 2] = [
        Box::new(move |keys| look_up(&reader, BATCH, keys)),
        Box::new(move |keys| look_up_ahead(&ahead, BATCH, keys)),
    ];
    let lanes = STEPS[OURS..].iter().zip(works);
    let mut lanes: Vec<_> = lanes.map(|(name, work)| Lane::LooksUp(name, bytes, work)).collect();
    lanes.push(Lane::Gathers(gather, bytes));
    lanes
}

/// Measures a size; `Err(line)` inside if it does not fit.
fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    part: Part,
    entries: u64,
) -> Result<Result<Measured, String>, LabError> {
    let (theirs, ours) = (sizes::optimistic_bytes(entries), sizes::fib_bytes(entries));
    let together = sizes::fits(2 * theirs + 2 * ours);
    if let Some(line) = sizes::does_not_fit(entries, 2 * theirs.max(ours)).filter(|_| !together) {
        return Ok(Err(line));
    }
    let what = format!("{} entries, overbank::fib", sizes::name(entries));
    let gather_for = |fib: &Fib| {
        let failed = || LabError::Failed("no memory for the gather kernel".to_owned());
        Gather::new(fib.reader().bytes()).ok_or_else(failed)
    };
    let cuckoo = Cuckoo::build(context, part.piece(0.0, 0.4), entries)?;
    let lines_a_hit = cuckoo.lines_a_hit();
    let pages = [cuckoo.small.huge_pages(), cuckoo.huge.huge_pages()].map(|p| p.to_string());
    let (mut ns, fib, floor_pages) = if together {
        let fib = build(context, &what, part.piece(0.4, 0.8), entries)?;
        let gather = gather_for(&fib)?;
        let mut lanes = cuckoo.lanes();
        lanes.extend(our_lanes(&fib, &gather));
        let ns = rounds(context, plan, part.piece(0.8, 1.0), entries, &mut lanes)?;
        drop(lanes);
        (ns, fib, gather.huge_pages())
    } else {
        let mut ns = rounds(context, plan, part.piece(0.4, 0.5), entries, &mut cuckoo.lanes())?;
        drop(cuckoo);
        let fib = build(context, &what, part.piece(0.5, 0.9), entries)?;
        let gather = gather_for(&fib)?;
        let mut lanes = our_lanes(&fib, &gather);
        ns.extend(rounds(context, plan, part.piece(0.9, 1.0), entries, &mut lanes)?);
        drop(lanes);
        (ns, fib, gather.huge_pages())
    };
    let floor = ns.pop().unwrap_or_default();
    let reader = fib.reader();
    let [small, huge] = pages;
    let asked = entries.min(10_000);
    let lines: usize = (0..asked).map(|number| reader.lines_if_absent(absent(number))).sum();
    let facts = Facts {
        pages: [small, huge, reader.huge_pages().to_string()],
        ours_bytes: reader.bytes() as u64,
        lines_a_hit: [lines_a_hit, 1.0 + fib.stats().second as f64 / entries as f64],
        lines_a_miss: lines as f64 / asked as f64,
        footing: Footing { table: reader.huge_pages(), floor: floor_pages, bytes: reader.bytes() },
        together,
    };
    Ok(Ok(Measured { entries, bytes: theirs, ns, floor, facts }))
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let wanted = sizes::wanted(context, &SMOKE, &FULL);
    let plan = Plan::of(context.smoke());
    let (all, missing) = sizes::each(context, &wanted, |context, part, entries| {
        measure(context, &plan, part, entries)
    })?;
    let mut record = Record::new((FIB5.name, FIB5.title, FIB5.source), context);
    sizes::left_out(&mut record, &wanted, missing)?;
    settings(&mut record, &plan);
    record.plots.push(plot(&all));
    record.tables.extend([times(&all), facts(&all)]);
    claims::add(&mut record, &all);
    notes(&mut record, &all);
    Ok(record)
}

fn settings(record: &mut Record, plan: &Plan) {
    record.setting("lookups", format!("of keys that are there, uniform, {}", plan.describe()));
    record.setting("batch", format!("{BATCH} (the paper: 14)"));
    record.setting("threads", "1 (the paper: 16)");
    record.setting("the paper's machine", "2 × Xeon E5-2680, 2 × 20 MiB of L3 cache");
}

fn plot(all: &[Measured]) -> Plot {
    let rate = |ns: f64| 1000.0 / ns;
    let curve =
        |all: &[&Measured], name: &str, spread: &dyn Fn(&Measured) -> Spread, model| Series {
            name: name.to_owned(),
            points: all.iter().map(|m| (m.entries as f64, rate(spread(m).median))).collect(),
            ranges: all.iter().map(|m| (rate(spread(m).high), rate(spread(m).low))).collect(),
            model,
        };
    let every: Vec<&Measured> = all.iter().collect();
    let steps = STEPS.iter().enumerate();
    let mut series: Vec<Series> =
        steps.map(|(i, name)| curve(&every, name, &|m| m.spread(i), false)).collect();
    // Where it is no floor, its curve would look like one.
    let floored: Vec<&Measured> = all.iter().filter(|m| m.facts.footing.is_alike()).collect();
    series.push(curve(&floored, "gather kernel", &|m| Spread::of(m.floor.clone()), true));
    Plot {
        title: "lookups of one core, optimisations cumulative".into(),
        x: "entries of the table".into(),
        y: "million lookups a second".into(),
        log_x: true,
        // From some to hundreds.
        log_y: true,
        series,
        stated: Vec::new(),
    }
}

fn times(all: &[Measured]) -> Table {
    let mut headings = vec!["ns a lookup (× as fast as the baseline)".to_owned()];
    headings.extend(all.iter().map(Measured::name));
    let row = |name: &str, cell: &dyn Fn(&Measured) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(all.iter().map(cell));
        row
    };
    let mut rows: Vec<Vec<String>> = STEPS
        .iter()
        .enumerate()
        .map(|(i, name)| {
            row(name, &|m| {
                let Spread { median, low, high } = m.spread(i);
                let factor = m.factor(i, 0).median;
                format!("{median:.1} [{low:.1}–{high:.1}] ({factor:.2})")
            })
        })
        .collect();
    rows.push(row("gather kernel", &|m| {
        let Spread { median, low, high } = Spread::of(m.floor.clone());
        let multiple =
            |step| gather::times(m.facts.footing.multiple(m.spread(step).median, median));
        let (alone, ahead) = (multiple(OURS), multiple(OURS_AHEAD));
        format!(
            "{median:.1} [{low:.1}–{high:.1}] (overbank::fib: {alone}; next burst named: {ahead})"
        )
    }));
    Table {
        title: "Lookups by number of entries: median and range of the rounds".into(),
        headings,
        rows,
    }
}

fn facts(all: &[Measured]) -> Table {
    let headings = [
        "entries",
        "baseline: MiB",
        "bytes an entry",
        "buckets a hit",
        "a miss",
        "huge pages: baseline",
        "next steps",
        "overbank::fib: MiB",
        "bytes an entry",
        "lines a hit",
        "a miss",
        "huge pages",
    ];
    let rows = all.iter().map(|m| {
        let Facts { pages: [small, huge, ours], ours_bytes, lines_a_hit, lines_a_miss, .. } =
            &m.facts;
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let each = |bytes: u64| format!("{:.2}", bytes as f64 / m.entries as f64);
        vec![
            m.name(),
            mib(m.bytes),
            each(m.bytes),
            format!("{:.2}", lines_a_hit[0]),
            "2".into(),
            small.clone(),
            huge.clone(),
            mib(*ours_bytes),
            each(*ours_bytes),
            format!("{:.2}", lines_a_hit[1]),
            format!("{lines_a_miss:.2}"),
            ours.clone(),
        ]
    });
    Table {
        title: "The tables, 95 % full".into(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn notes(record: &mut Record, all: &[Measured]) {
    record.notes.push(
        "The first five are one table, as the text of section 3 describes it: buckets of 4 entries of \
         8 bytes, 32 bytes each, two to a line; 4096 version counters in an array of their own; both \
         buckets' counters read before and after. Its lookups compare word by word. Only pages, the \
         instruction that reads a counter, and batches differ between them."
            .into(),
    );
    record.notes.push(
        "overbank::fib is the sixth step and ours: buckets of a whole line, 7 entries and a header with \
         the version and the markers, so a lookup reads nothing but its bucket, and most absent keys \
         cost one line; vector compares; no branch on what a key finds but for the second lines of a \
         burst; readers that never wait."
            .into(),
    );
    record.notes.push(
        "The seventh goes beyond the paper: overbank::fib again, which asks for the home lines of the \
         next batch while it looks up one. The batches of the gather kernel are alone, so it is no \
         bound of this step."
            .into(),
    );
    let apart: Vec<String> = all.iter().filter(|m| !m.facts.together).map(Measured::name).collect();
    let other = all.iter().filter(|m| !m.facts.footing.is_alike());
    let other = other.map(|m| format!("{} entries ({})", m.name(), m.facts.footing));
    record.notes.extend(refusal(&other.collect::<Vec<_>>()));
    if !apart.is_empty() {
        record.notes.push(format!(
            "{} entries: not all tables fit into memory at once; the paper's five steps took turns, \
             then overbank::fib in both ways and the gather kernel.",
            apart.join(", ")
        ));
    }
}
