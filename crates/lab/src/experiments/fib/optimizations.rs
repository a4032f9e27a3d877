//! Figure 5: each optimisation switched on in turn.
//!
//! All look up keys that are there, on one core. They take turns in each round where all their
//! tables fit into memory at once; where not, the paper's five do, and then ours with the gather
//! kernel.

use super::measure::{
    LookUp, Plan, Turn, Which, build, fill, floor, look_up, look_up_ahead, looks_up, rate, rounds,
    value,
};
use super::optimistic::{Filler, LOOK_UPS, Optimistic};
use super::{absent, address, sizes};
use crate::prelude::*;

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
    "baseline",           // 2,4 cuckoo, versions read by locked instructions, 4 KiB pages
    "+ huge pages",       // The same on 2 MiB pages.
    "+ memory ordering",  // Versions read by loads, without a fence.
    "+ batching",         // 32 lookups at a time, no prefetching.
    "+ prefetching",      // In two rounds: the paper's table.
    "overbank::fib",      // Ours: another layout.
    "+ next burst named", // Each batch asks for the lines of the next one; beyond the paper.
];
const BASELINE: usize = 0;
const HUGE: usize = 1;
const ORDERING: usize = 2;
const BATCHING: usize = 3;
/// The last one of the paper's.
const PAPER_ALL: usize = 4;
const OURS: usize = 5;
const OURS_AHEAD: usize = 6;
/// The gather kernel, after them.
const FLOOR: usize = 7;

/// Buckets that are looked at to learn where entries are.
const CENSUS_BUCKETS: u32 = 1 << 20;

struct Measured {
    entries: u64,
    /// Of the baseline's table, and of ours.
    bytes: [u64; 2],
    /// Nanoseconds a key of each step, and of the gather kernel.
    ns: Rounds,
    /// Pages of the baseline's table, of that of the other steps, and of ours.
    pages: [String; 3],
    /// Buckets that the lookup of a present key reads, the paper's and ours.
    lines_a_hit: [f64; 2],
    /// Lines that the lookup of an absent key reads, ours; the paper's reads two.
    lines_a_miss: f64,
    together: bool,
}

impl Measured {
    /// Returns how many times as fast `step` is as `other`, by round.
    fn factor(&self, step: usize, other: usize) -> Spread {
        self.ns.ratio(other, step)
    }

    /// Returns the same where the table is past the last-level cache.
    fn past(&self, step: usize, other: usize) -> Option<Spread> {
        let past = sizes::past_the_caches(self.bytes[0]) == Some(true);
        past.then(|| self.factor(step, other))
    }

    fn name(&self) -> String {
        sizes::name(self.entries)
    }
}

/// Builds the paper's table, on huge pages and on small ones.
fn cuckoo(context: &mut Context<'_>, entries: u64) -> Result<[Optimistic; 2], LabError> {
    let none = || LabError::Failed("no memory for the baseline's table".to_owned());
    let huge = Optimistic::new(entries as usize, true, context.seed).ok_or_else(none)?;
    let mut filler = Filler::of(&huge);
    let what = format!("{}, the baseline's table", sizes::name_of(entries));
    fill(context, &what, 0..entries, |number, soon| {
        filler.prefetch(address(soon));
        let full = || LabError::Failed(format!("{what}: full at entry {number}"));
        filler.insert(address(number), value(number)).map_err(|_| full())
    })?;
    let small = huge.copy(false).ok_or_else(none)?;
    Ok([huge, small])
}

fn cuckoo_turns([huge, small]: &[Optimistic; 2], keys: usize) -> Vec<Turn<'_>> {
    let [locked, loads, batched, prefetched] = LOOK_UPS;
    [(small, locked), (huge, locked), (huge, loads), (huge, batched), (huge, prefetched)]
        .into_iter()
        .enumerate()
        .map(|(step, (table, look_up))| {
            let of_round = (Which::Present, keys, table.bytes());
            looks_up(STEPS[step], of_round, move |keys| look_up(table, BATCH, keys))
        })
        .collect()
}

/// Returns the bytes that are there at once at least: the paper's table on both kinds of pages, or
/// ours.
fn bytes(entries: u64) -> u64 {
    (2 * sizes::optimistic_bytes(entries)).max(sizes::fib_bytes(entries))
}

fn measure(context: &mut Context<'_>, entries: u64) -> Result<Measured, LabError> {
    let plan = &Plan::of(context.smoke());
    let (theirs, ours) = (sizes::optimistic_bytes(entries), sizes::fib_bytes(entries));
    let together = sizes::fits(2 * theirs + ours);
    let tables = context.part((0.0, 0.4), |context| cuckoo(context, entries))?;
    let (all, second) = tables[0].census(CENSUS_BUCKETS);
    let [huge, small] = [&tables[0], &tables[1]].map(|table| table.huge_pages().to_string());
    let (mut ns, until) = (Vec::new(), if together { 0.4 } else { 0.5 });
    let mut tables = Some(tables);
    if !together && let Some(tables) = tables.take() {
        let mut turns = cuckoo_turns(&tables, plan.keys);
        let rounds = |context: &mut Context<'_>| rounds(context, plan, entries, &mut turns);
        ns = context.part((0.4, until), rounds)?.figures;
    }
    let what = format!("{}, overbank::fib", sizes::name_of(entries));
    let built = until + 0.4;
    let fib = context.part((until, built), |context| build(context, &what, entries))?;
    let reader = &fib.reader();
    let of_round = (Which::Present, plan.keys, reader.bytes());
    let mut turns = tables.as_ref().map(|t| cuckoo_turns(t, plan.keys)).unwrap_or_default();
    let ours: [(usize, LookUp); 2] = [(OURS, look_up), (OURS_AHEAD, look_up_ahead)];
    turns.extend(ours.map(|(step, look_up)| {
        looks_up(STEPS[step], of_round, move |keys| look_up(reader, BATCH, keys))
    }));
    turns.push(floor(reader, (BATCH, &[false]), plan.keys));
    let last = |context: &mut Context<'_>| rounds(context, plan, entries, &mut turns);
    ns.extend(context.part((built, 1.0), last)?.figures);
    drop(turns);
    let asked = entries.min(10_000);
    let lines: usize = (0..asked).map(|number| reader.lines_if_absent(absent(number))).sum();
    Ok(Measured {
        entries,
        bytes: [theirs, reader.bytes() as u64],
        ns: Rounds { figures: ns },
        pages: [small, huge, reader.huge_pages().to_string()],
        lines_a_hit: [
            second as f64 / all.max(1) as f64,
            fib.stats().second as f64 / entries as f64,
        ]
        .map(|second| 1.0 + second),
        lines_a_miss: lines as f64 / asked as f64,
        together,
    })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = Plan::of(context.smoke());
    let (mut record, all) = sizes::figure(context, &FIB5, (&SMOKE, &FULL), bytes, measure)?;
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
    let floor = Series { model: true, ..step((FLOOR, &"gather kernel")) };
    let (x, y) = ("entries of the table", "million lookups a second");
    Plot::new("lookups of one core, optimisations cumulative", x, y)
        .log_x()
        // From some to hundreds.
        .log_y()
        .with(STEPS.iter().enumerate().map(step).chain([floor]))
}

fn times(all: &[Measured]) -> Table {
    let names = STEPS.into_iter().chain(["gather kernel"]).enumerate();
    Table::pivot(
        "Lookups by number of entries: median and range of the rounds",
        "ns a lookup (× as fast as the baseline)",
        (names, |(_, name): &(usize, &str)| (*name).to_owned()),
        (all, |m: &&Measured| m.name()),
        |&(step, _), m| {
            let ns = m.ns.spread(step).cell(1);
            if step != FLOOR {
                return format!("{ns} ({:.2})", m.factor(step, BASELINE).median);
            }
            let [alone, ahead] = [OURS, OURS_AHEAD].map(|step| m.ns.ratio(step, FLOOR).median);
            format!("{ns} (overbank::fib: ×{alone:.2}; next burst named: ×{ahead:.2})")
        },
    )
}

fn facts(all: &[Measured]) -> Table {
    use sizes::{each, mib};
    Table::of(
        "The tables, 95 % full",
        all,
        &[
            ("entries", &|m| m.name()),
            ("baseline: MiB", &|m| mib(m.bytes[0])),
            ("bytes an entry", &|m| each(m.bytes[0], m.entries)),
            ("buckets a hit", &|m| format!("{:.2}", m.lines_a_hit[0])),
            ("a miss", &|_| "2".into()),
            ("huge pages: baseline", &|m| m.pages[0].clone()),
            ("next steps", &|m| m.pages[1].clone()),
            ("overbank::fib: MiB", &|m| mib(m.bytes[1])),
            ("bytes an entry", &|m| each(m.bytes[1], m.entries)),
            ("lines a hit", &|m| format!("{:.2}", m.lines_a_hit[1])),
            ("a miss", &|m| format!("{:.2}", m.lines_a_miss)),
            ("huge pages", &|m| m.pages[2].clone()),
        ],
    )
}

/// Of any table, and of those past the last-level cache; 4 × is the target of this project.
const CLAIMS: &[Claim<Measured>] = &[
    Claim::new("lines that a present key costs, overbank::fib", "fewer than 2,4 cuckoo's", |m| {
        let [theirs, ours] = m.lines_a_hit;
        Finding::new(ours < theirs, format!("{ours:.2}, {theirs:.2}"))
    }),
    Claim::new(
        "lines that an absent key costs, overbank::fib",
        "fewer than 1.25; 2,4 cuckoo's are 2",
        |m| Finding::new(m.lines_a_miss < 1.25, format!("{:.2}", m.lines_a_miss)),
    ),
    Claim::timed(
        "all of the paper's optimisations together, to the baseline",
        "at least 4 × (the paper: approximately 5.6 ×)",
        |m| Finding::at_least(4.0, m.past(PAPER_ALL, BASELINE)?),
    ),
    Claim::timed("overbank::fib, to the baseline", "at least 4 ×", |m| {
        Finding::at_least(4.0, m.past(OURS, BASELINE)?)
    }),
    Claim::timed("all together with the next burst named, to the baseline", "at least 4 ×", |m| {
        Finding::at_least(4.0, m.past(OURS_AHEAD, BASELINE)?)
    }),
    Claim::timed("huge pages improve only slightly", "at most 1.25 ×", |m: &Measured| {
        Finding::at_most(1.25, m.past(HUGE, BASELINE)?)
    })
    .because(
        "Each lookup waits for a walk of the page tables first, which in a virtual machine goes \
         through two sets of them; that is probably why small pages cost more here than on the \
         paper's machine.",
    ),
    Claim::timed("memory ordering", "more than 2 ×", |m: &Measured| {
        let factor = m.past(ORDERING, HUGE)?;
        Finding::new(factor.median > 2.0, factor.text())
    })
    .because(
        "The paper counts about 100 cycles for each of a lookup's four locked instructions, which \
         cost less here.",
    ),
    Claim::timed("batching without prefetching", "less than 1.2 ×", |m: &Measured| {
        let factor = m.past(BATCHING, ORDERING)?;
        Finding::new(factor.median < 1.2, factor.text())
    })
    .because(
        "The comparisons of a batch follow each other with little in between, so that a deeper \
         reorder buffer than the paper's machine had probably overlaps the waits of several keys.",
    ),
    Claim::timed(
        "batching and prefetching together (section 3.5)",
        "a further 2 ×",
        |m: &Measured| Finding::at_least(2.0, m.past(PAPER_ALL, ORDERING)?),
    )
    .because(
        "Without fences successive single lookups probably overlap, as far as the reorder buffer \
         goes.",
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
    if let Some(m) = sizes::largest_cached(all, |m| m.bytes[0]) {
        record.judge(&m.name(), CACHED, m);
    }
}

fn notes(record: &mut Record, all: &[Measured]) {
    record.note(
        "The first five are one table, as the text of section 3 describes it: buckets of 4 entries \
         of 8 bytes, two to a line; 4096 version counters in a separate array; both buckets' \
         counters read before and after. Only pages, the instruction that reads a counter, and \
         batches differ.",
    );
    record.note(
        "overbank::fib is the sixth step and ours: buckets of a whole line, 7 entries and a header \
         with the version and the markers, so that most absent keys cost one line; vector \
         compares; readers that never wait. The seventh asks for the home lines of the next batch \
         while it looks up one; the gather kernel touches lines of our table, batches alone, so it \
         is no bound of this step.",
    );
    let apart: Vec<String> = all.iter().filter(|m| !m.together).map(Measured::name).collect();
    if !apart.is_empty() {
        record.note(format!(
            "{} entries: not all tables fit into memory at once; the paper's five steps took \
             turns, then overbank::fib in both ways and the gather kernel.",
            apart.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(entries: u64, ns: [f64; STEPS.len()]) -> Measured {
        Measured {
            entries,
            bytes: [sizes::optimistic_bytes(entries), sizes::fib_bytes(entries)],
            ns: Rounds { figures: ns.map(|ns| vec![ns; 3]).to_vec() },
            pages: Default::default(),
            lines_a_hit: [1.3, 1.2],
            lines_a_miss: 1.1,
            together: true,
        }
    }

    /// The timed claims about a table within any cache and one past any; those of lines hold.
    #[test]
    fn the_papers_factors_hold_and_others_do_not() {
        let (yes, no) = (true, false);
        for (ns, expected) in [
            (
                [560.0, 500.0, 220.0, 200.0, 100.0, 90.0, 70.0],
                [yes, yes, yes, yes, yes, yes, yes, no],
            ),
            ([100.0, 50.0, 50.0, 30.0, 30.0, 30.0, 26.0], [no; 8]),
            ([100.0, 50.0, 50.0, 30.0, 30.0, 30.0, 25.0], [no, no, yes, no, no, no, no, no]),
        ] {
            let mut record = full_record(&FIB5);
            claims(&mut record, &[measured(1000, [9.0; STEPS.len()]), measured(1 << 40, ns)]);
            let (lines, timed): (Vec<_>, Vec<_>) =
                record.checks.into_iter().partition(|check| check.claim.contains("lines that"));
            assert!(lines.len() == 4 && lines.iter().all(|check| check.holds));
            assert!(timed.into_iter().map(|check| check.holds).eq(expected), "{ns:?}");
        }
    }
}
