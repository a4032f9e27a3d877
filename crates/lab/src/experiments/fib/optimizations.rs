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
    Draws, Fib, LookUp, Plan, Which, build, fill, gather_ns, look_up, look_up_ahead, ns_per_key,
    rate, value,
};
use super::optimistic::{Census, Filler, Optimistic};
use super::{absent, address, sizes};
use overbank_kit::experiment::{
    Claim, Context, Experiment, Finding, LabError, Plot, Record, Series, Table,
};
use overbank_kit::micro::gather::{self, Footing, Gather, refusal};
use overbank_kit::rounds::Rounds;
use overbank_kit::spread::Spread;

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
const BASELINE: usize = 0;
const HUGE: usize = 1;
const ORDERING: usize = 2;
const BATCHING: usize = 3;
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
    /// Nanoseconds a key of each step.
    ns: Rounds,
    floor: Spread,
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
    /// How many times as fast `step` is as `other`, by round.
    fn factor(&self, step: usize, other: usize) -> Spread {
        self.ns.ratio(other, step)
    }

    /// The same where the table is past the last-level cache.
    fn past(&self, step: usize, other: usize) -> Option<Spread> {
        let past = sizes::past_the_caches(self.bytes) == Some(true);
        past.then(|| self.factor(step, other))
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
    entries: u64,
    lanes: &mut [Lane<'_>],
) -> Result<Vec<Vec<f64>>, LabError> {
    let mut draws = Draws::uniform(entries, context.seed)?;
    let what = format!("{} entries: lookups", sizes::name(entries));
    let turn = |lane: &mut Lane<'_>, _| match lane {
        Lane::LooksUp(name, bytes, work) => {
            ns_per_key(name, &mut draws, (Which::Present, plan.keys, *bytes as usize), work)
        }
        Lane::Gathers(gather, bytes) => {
            Ok(gather_ns(gather, &mut draws, BATCH, (plan.keys, *bytes as usize)))
        }
    };
    let step = |share| context.step(&what, share);
    Ok(Rounds::run(lanes, plan.rounds, step, turn)?.figures)
}

/// The paper's table, on both kinds of pages.
struct Cuckoo {
    small: Optimistic,
    huge: Optimistic,
}

impl Cuckoo {
    fn build(context: &mut Context<'_>, entries: u64) -> Result<Cuckoo, LabError> {
        let none = || LabError::Failed("no memory for the baseline's table".to_owned());
        let huge = Optimistic::new(entries as usize, true, context.seed).ok_or_else(none)?;
        let mut filler = Filler::of(&huge);
        let what = format!("{} entries, the baseline's table", sizes::name(entries));
        fill(context, &what, 0..entries, |number, soon| {
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
    entries: u64,
) -> Result<Result<Measured, String>, LabError> {
    let (theirs, ours) = (sizes::optimistic_bytes(entries), sizes::fib_bytes(entries));
    let together = sizes::fits(2 * theirs + 2 * ours);
    if let Some(line) = sizes::does_not_fit(entries, 2 * theirs.max(ours)).filter(|_| !together) {
        return Ok(Err(line));
    }
    let gather_for = |fib: &Fib| {
        let failed = || LabError::Failed("no memory for the gather kernel".to_owned());
        Gather::new(fib.reader().bytes()).ok_or_else(failed)
    };
    let cuckoo = context.part((0.0, 0.4), |context| Cuckoo::build(context, entries))?;
    let lines_a_hit = cuckoo.lines_a_hit();
    let pages = [cuckoo.small.huge_pages(), cuckoo.huge.huge_pages()].map(|p| p.to_string());
    let (mut ns, until) = (Vec::new(), if together { 0.4 } else { 0.5 });
    let mut cuckoo = Some(cuckoo);
    if !together && let Some(alone) = cuckoo.take() {
        let mut lanes = alone.lanes();
        ns = context.part((0.4, until), |context| rounds(context, plan, entries, &mut lanes))?;
    }
    let what = format!("{} entries, overbank::fib", sizes::name(entries));
    let built = until + 0.4;
    let fib = context.part((until, built), |context| build(context, &what, entries))?;
    let gather = gather_for(&fib)?;
    let mut lanes = cuckoo.as_ref().map(Cuckoo::lanes).unwrap_or_default();
    lanes.extend(our_lanes(&fib, &gather));
    ns.extend(context.part((built, 1.0), |context| rounds(context, plan, entries, &mut lanes))?);
    drop(lanes);
    let floor_pages = gather.huge_pages();
    let floor = Spread::of(ns.pop().unwrap_or_default());
    let ns = Rounds { figures: ns };
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
    let (all, missing) =
        sizes::each(context, &wanted, |context, entries| measure(context, &plan, entries))?;
    let mut record = FIB5.record(context);
    sizes::left_out(&mut record, &wanted, missing)?;
    record.settings([
        ("lookups", format!("of keys that are there, uniform, {}", plan.describe())),
        ("batch", format!("{BATCH} (the paper: 14)")),
        ("threads", "1 (the paper: 16)".into()),
        ("the paper's machine", "2 × Xeon E5-2680, 2 × 20 MiB of L3 cache".into()),
    ]);
    record.plots.push(plot(&all));
    record.tables.extend([times(&all), facts(&all)]);
    claims(&mut record, &all);
    notes(&mut record, &all);
    Ok(record)
}

fn plot(all: &[Measured]) -> Plot {
    let step = |(i, name): (usize, &&str)| {
        Series::rounds(*name, all.iter().map(|m| (m.entries as f64, rate(m.ns.spread(i)))))
    };
    // Where it is no floor, its curve would look like one.
    let floored = all.iter().filter(|m| m.facts.footing.is_alike());
    let floor = Series::rounds("gather kernel", floored.map(|m| (m.entries as f64, rate(m.floor))));
    Plot::new(
        "lookups of one core, optimisations cumulative",
        "entries of the table",
        "million lookups a second",
    )
    .log_x()
    // From some to hundreds.
    .log_y()
    .with(STEPS.iter().enumerate().map(step))
    .with([Series { model: true, ..floor }])
}

fn times(all: &[Measured]) -> Table {
    let first = ["ns a lookup (× as fast as the baseline)".to_owned()];
    let mut table = Table::new(
        "Lookups by number of entries: median and range of the rounds",
        first.into_iter().chain(all.iter().map(Measured::name)),
    );
    for (i, name) in STEPS.iter().enumerate() {
        let cell =
            |m: &Measured| format!("{} ({:.2})", m.ns.spread(i).cell(1), m.factor(i, 0).median);
        table.row([(*name).to_owned()].into_iter().chain(all.iter().map(cell)));
    }
    let floor = |m: &Measured| {
        let multiple = |step| {
            let ns = m.ns.spread(step).median;
            gather::times(m.facts.footing.multiple(ns, m.floor.median))
        };
        let (alone, ahead) = (multiple(OURS), multiple(OURS_AHEAD));
        format!("{} (overbank::fib: {alone}; next burst named: {ahead})", m.floor.cell(1))
    };
    table.row(["gather kernel".to_owned()].into_iter().chain(all.iter().map(floor)));
    table
}

fn facts(all: &[Measured]) -> Table {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let each = |bytes: u64, entries: u64| format!("{:.2}", bytes as f64 / entries as f64);
    Table::of(
        "The tables, 95 % full",
        all,
        &[
            ("entries", &|m| m.name()),
            ("baseline: MiB", &|m| mib(m.bytes)),
            ("bytes an entry", &|m| each(m.bytes, m.entries)),
            ("buckets a hit", &|m| format!("{:.2}", m.facts.lines_a_hit[0])),
            ("a miss", &|_| "2".into()),
            ("huge pages: baseline", &|m| m.facts.pages[0].clone()),
            ("next steps", &|m| m.facts.pages[1].clone()),
            ("overbank::fib: MiB", &|m| mib(m.facts.ours_bytes)),
            ("bytes an entry", &|m| each(m.facts.ours_bytes, m.entries)),
            ("lines a hit", &|m| format!("{:.2}", m.facts.lines_a_hit[1])),
            ("a miss", &|m| format!("{:.2}", m.facts.lines_a_miss)),
            ("huge pages", &|m| m.facts.pages[2].clone()),
        ],
    )
}

/// Of any table, and of those past the last-level cache; 4 × is the target of this project.
const CLAIMS: &[Claim<Measured>] = &[
    Claim::new("lines that a present key costs, overbank::fib", "fewer than 2,4 cuckoo's", |m: &Measured| {
        let [theirs, ours] = m.facts.lines_a_hit;
        Finding::new(ours < theirs, format!("{ours:.2}, {theirs:.2}"))
    }),
    Claim::new(
        "lines that an absent key costs, overbank::fib",
        "fewer than 1.25; 2,4 cuckoo's are 2",
        |m: &Measured| Finding::new(m.facts.lines_a_miss < 1.25, format!("{:.2}", m.facts.lines_a_miss)),
    ),
    Claim::timed(
        "all of the paper's optimisations together, to the baseline",
        "at least 4 × (the paper: approximately 5.6 ×)",
        |m| Finding::at_least(4.0, m.past(PAPER_ALL, BASELINE)?),
    ),
    Claim::timed("overbank::fib, to the baseline", "at least 4 ×", |m: &Measured| {
        Finding::at_least(4.0, m.past(OURS, BASELINE)?)
    }),
    Claim::timed("all together with the next burst named, to the baseline", "at least 4 ×", |m: &Measured| {
        Finding::at_least(4.0, m.past(OURS_AHEAD, BASELINE)?)
    }),
    Claim::timed("huge pages improve only slightly", "at most 1.25 ×", |m: &Measured| {
        Finding::at_most(1.25, m.past(HUGE, BASELINE)?)
    })
    .because(
        "Each lookup waits for a walk of the page tables first, which in a virtual machine goes through \
         two sets of them; that is probably why small pages cost more here than on the paper's machine.",
    ),
    Claim::timed("memory ordering", "more than 2 ×", |m: &Measured| {
        let factor = m.past(ORDERING, HUGE)?;
        Finding::new(factor.median > 2.0, factor.text())
    })
    .because(
        "The paper counts about 100 cycles for each of a lookup's four locked instructions, which cost \
         less here.",
    ),
    Claim::timed("batching without prefetching", "less than 1.2 ×", |m: &Measured| {
        let factor = m.past(BATCHING, ORDERING)?;
        Finding::new(factor.median < 1.2, factor.text())
    })
    .because(
        "The comparisons of a batch follow each other with little in between, so that a deeper reorder \
         buffer than the paper's machine had probably overlaps the waits of several keys.",
    ),
    Claim::timed("batching and prefetching together (section 3.5)", "a further 2 ×", |m: &Measured| {
        Finding::at_least(2.0, m.past(PAPER_ALL, ORDERING)?)
    })
    .because(
        "Without fences successive single lookups probably overlap, as far as the reorder buffer goes.",
    ),
];

/// Of the largest table that the last-level cache holds with room to spare.
const CACHED: &[Claim<Measured>] = &[Claim::timed(
    "batching without prefetching is slower where the table fits into the L3 cache",
    "below 1 ×",
    |m: &Measured| {
        let factor = m.factor(BATCHING, ORDERING);
        Finding::new(factor.median < 1.0, factor.text())
    },
)
.because("As past the caches, the waits of several keys probably overlap.")];

fn claims(record: &mut Record, all: &[Measured]) {
    all.iter().for_each(|m| record.judge(&m.name(), CLAIMS, m));
    let cached = all.iter().rfind(|m| sizes::past_the_caches(2 * m.bytes) == Some(false));
    if let Some(m) = cached {
        record.judge(&m.name(), CACHED, m);
    }
}

fn notes(record: &mut Record, all: &[Measured]) {
    record.note(
        "The first five are one table, as the text of section 3 describes it: buckets of 4 entries of \
         8 bytes, 32 bytes each, two to a line; 4096 version counters in a separate array; both \
         buckets' counters read before and after. Its lookups compare word by word. Only pages, the \
         instruction that reads a counter, and batches differ between them.",
    );
    record.note(
        "overbank::fib is the sixth step and ours: buckets of a whole line, 7 entries and a header with \
         the version and the markers, so a lookup reads nothing but its bucket, and most absent keys \
         cost one line; vector compares; no branch on what a key finds but for the second lines of a \
         burst; readers that never wait.",
    );
    record.note(
        "The seventh goes beyond the paper: overbank::fib again, which asks for the home lines of the \
         next batch while it looks up one. The batches of the gather kernel are alone, so it is no \
         bound of this step.",
    );
    let other = all.iter().filter(|m| !m.facts.footing.is_alike());
    let other = other.map(|m| format!("{} entries ({})", m.name(), m.facts.footing));
    record.notes.extend(refusal(&other.collect::<Vec<_>>()));
    let apart: Vec<String> = all.iter().filter(|m| !m.facts.together).map(Measured::name).collect();
    if !apart.is_empty() {
        record.note(format!(
            "{} entries: not all tables fit into memory at once; the paper's five steps took turns, \
             then overbank::fib in both ways and the gather kernel.",
            apart.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fib::measure::full_record;
    use overbank::memory::HugePages;

    fn measured(entries: u64, ns: [f64; STEPS.len()]) -> Measured {
        let facts = Facts {
            pages: ["no", "yes", "yes"].map(str::to_owned),
            ours_bytes: sizes::fib_bytes(entries),
            lines_a_hit: [1.3, 1.2],
            lines_a_miss: 1.1,
            footing: Footing { table: HugePages::Yes, floor: HugePages::Yes, bytes: 1 << 30 },
            together: true,
        };
        let ns = Rounds { figures: ns.map(|ns| vec![ns; 3]).to_vec() };
        let (bytes, floor) = (sizes::optimistic_bytes(entries), Spread::of([5.0]));
        Measured { entries, bytes, ns, floor, facts }
    }

    /// The timed claims about a table within any cache and one past any; those of lines hold.
    #[test]
    fn the_papers_factors_hold_and_others_do_not() {
        let judged = |ns| {
            let mut record = full_record(&FIB5);
            claims(&mut record, &[measured(1000, [9.0; STEPS.len()]), measured(1 << 40, ns)]);
            let (lines, timed): (Vec<_>, Vec<_>) =
                record.checks.into_iter().partition(|check| check.claim.contains("lines that"));
            assert!(lines.len() == 4 && lines.iter().all(|check| check.holds));
            timed.into_iter().map(|check| check.holds).collect::<Vec<bool>>()
        };
        let good = [560.0, 500.0, 220.0, 200.0, 100.0, 90.0, 70.0];
        assert_eq!(judged(good), [true, true, true, true, true, true, true, false]);
        let bad = [100.0, 50.0, 50.0, 30.0, 30.0, 30.0, 26.0];
        assert_eq!(judged(bad), [false; 8]);
        let ahead = [100.0, 50.0, 50.0, 30.0, 30.0, 30.0, 25.0];
        assert_eq!(judged(ahead)[..3], [false, false, true]);
    }
}
