//! Figure 6: lookup rate by batch size, and how far from the gather floor it is.
//!
//! All ways to look up take turns in every round; each draws its own keys anew. The paper's batches
//! are alone.

use super::measure::{
    LIST, LookUp, Plan, Turn, Which, build, floor, look_up, look_up_ahead, look_up_lists, looks_up,
    rate, rounds,
};
use super::sizes;
use crate::prelude::*;
use overbank::fib::BURST_MAX;
use overbank::memory::HugePages;

pub const FIB6: Experiment = Experiment {
    name: "fib6",
    title: "forwarding table: lookup rate by batch size, hits and misses to the gather floor",
    source: "dissertation, figure 6",
    run,
};

const SMOKE: [u64; 2] = [10_000, 100_000];
const FULL: [u64; 5] = [100_000, 1_000_000, 16_000_000, 128_000_000, 1_000_000_000];

/// Batch sizes; 14 is the paper's best one.
const BATCHES: [usize; 9] = [1, 2, 4, 8, 14, 16, 24, 32, 64];
/// Those that the target of the floor is for: the burst of our ports, and the longest.
const TARGET_BATCHES: [usize; 2] = [32, 64];
/// At most this multiple of the gather floor.
const TARGET: f64 = 1.7;
/// From this many entries up.
const TARGET_ENTRIES: u64 = 16_000_000;
/// Threads of the paper's runs, and the million lookups a second that all of them reached.
const PAPER: (f64, f64) = (16.0, 350.0);

/// Ways to look up bursts; the floor comes after them.
const WAYS: [(&str, &str, Which, LookUp); 4] = [
    ("hits", "looked up alone", Which::Present, look_up),
    ("hits", "next burst named", Which::Present, look_up_ahead),
    ("misses", "looked up alone", Which::Absent, look_up),
    ("misses", "next burst named", Which::Absent, look_up_ahead),
];
const HIT: usize = 0;
const HIT_AHEAD: usize = 1;
const MISS: usize = 2;
const MISS_AHEAD: usize = 3;
const FLOOR: usize = 4;
/// Lists of present keys and of absent ones, after all batches.
const LISTS: usize = BATCHES.len() * (FLOOR + 1);

/// Returns the figure of a way in batches of a size.
fn at(batch: usize, way: usize) -> usize {
    let place = BATCHES.iter().position(|&size| size == batch);
    place.expect("one of the list") * (FLOOR + 1) + way
}

struct Measured {
    entries: u64,
    bytes: u64,
    huge_pages: HugePages,
    lines_a_hit: f64,
    /// Nanoseconds a key: [`at`], then [`LISTS`].
    ns: Rounds,
}

impl Measured {
    fn name(&self) -> String {
        sizes::name_of(self.entries)
    }

    fn spread(&self, batch: usize, way: usize) -> Spread {
        self.ns.spread(at(batch, way))
    }

    fn to_floor(&self, batch: usize, way: usize) -> Spread {
        self.ns.ratio(at(batch, way), at(batch, FLOOR))
    }

    /// Lists to the floor in the longest bursts.
    fn list_to_floor(&self, list: usize) -> Spread {
        self.ns.ratio(LISTS + list, at(BURST_MAX, FLOOR))
    }

    /// Returns how many times as fast hits of one batch size are as of another, medians.
    fn gain(&self, batch: usize, over: usize) -> f64 {
        self.spread(over, HIT).median / self.spread(batch, HIT).median
    }
}

fn measure(context: &mut Context<'_>, entries: u64) -> Result<Measured, LabError> {
    let plan = &Plan::of(context.smoke());
    let what = sizes::name_of(entries);
    let fib = context.part((0.0, 0.6), |context| build(context, &what, entries))?;
    let reader = &fib.reader();
    let turn = |which, batch, look_up: LookUp| -> Turn<'_> {
        let of_round = (which, plan.keys, reader.bytes());
        looks_up("overbank::fib", of_round, move |keys| look_up(reader, batch, keys))
    };
    let mut turns = Vec::new();
    for batch in BATCHES {
        turns.extend(WAYS.map(|(_, _, which, look_up)| turn(which, batch, look_up)));
        turns.push(floor(reader, (batch, &[false, true]), plan.keys));
    }
    turns.extend([Which::Present, Which::Absent].map(|which| turn(which, LIST, look_up_lists)));
    let ns = context.part((0.6, 1.0), |context| rounds(context, plan, entries, &mut turns))?;
    let lines_a_hit = 1.0 + fib.stats().second as f64 / entries as f64;
    let (bytes, huge_pages) = (reader.bytes() as u64, reader.huge_pages());
    drop(turns);
    Ok(Measured { entries, bytes, huge_pages, lines_a_hit, ns })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = Plan::of(context.smoke());
    let (mut record, all) =
        sizes::figure(context, &FIB6, (&SMOKE, &FULL), sizes::fib_bytes, measure)?;
    record.settings([
        ("lookups", format!("uniform, {}", plan.describe())),
        ("threads", "1 (the paper: 16)".into()),
        ("instruction set", overbank::isa::Isa::best().to_string()),
        ("the paper's machine", "2 × Xeon E5-2680, 2 × 20 MiB of L3 cache".into()),
    ]);
    record.plots.extend(plots(&all));
    record.tables.extend(tables(&all));
    claims(&mut record, &all);
    record.note(
        "The floor is one random line a key, of the table's own lines, prefetched in the same \
         bursts. A lookup also hashes the key, compares, takes the value and looks at the version \
         again; at 95 % a fifth of the present keys needs a second line, asked for when the first \
         has come.",
    );
    record.note(
        "Next burst named: while a burst is looked up, the home lines of the next one are asked \
         for. Lists go on with the next burst before the second lines of this one are compared. \
         The floor is the cheaper of bursts alone and bursts that ask ahead.",
    );
    Ok(record)
}

fn plots(all: &[Measured]) -> [Plot; 4] {
    let plot = |title: &str, y: &str, value: &dyn Fn(&Measured, usize) -> Spread| {
        let curve =
            |m: &Measured| Series::rounds(m.name(), BATCHES.map(|b| (b as f64, value(m, b))));
        Plot::new(title, "lookups of a batch", y).log_x().with(all.iter().map(curve))
    };
    let (y, floor) = ("million lookups a second", "present keys to the gather floor");
    let present = plot("present keys, one core", y, &|m, batch| rate(m.spread(batch, HIT)));
    [
        present.mark("the paper's 350 M/s, by thread", 14.0, PAPER.1 / PAPER.0),
        plot("absent keys, one core", y, &|m, batch| rate(m.spread(batch, MISS))),
        plot(floor, "multiple", &|m, batch| m.to_floor(batch, HIT)),
        plot(&format!("{floor}, next burst named"), "multiple", &|m, batch| {
            m.to_floor(batch, HIT_AHEAD)
        }),
    ]
}

fn tables(all: &[Measured]) -> Vec<Table> {
    // Figures, and their multiples of the floor of the same round.
    let cell = |ns: Spread, to_floor: Spread| format!("{} (×{:.2})", ns.cell(1), to_floor.median);
    let named = [
        ("Present keys", HIT),
        ("Absent keys", MISS),
        ("Present keys, next burst named", HIT_AHEAD),
        ("Absent keys, next burst named", MISS_AHEAD),
    ];
    let name = |m: &&Measured| m.name();
    let batches = named.map(|(title, way)| {
        let title = format!("{title}: ns a lookup, median and range of the rounds (to the floor)");
        Table::pivot(title, "batch", (BATCHES, usize::to_string), (all, name), |&batch, m| {
            cell(m.spread(batch, way), m.to_floor(batch, way))
        })
    });
    let lists = Table::pivot(
        format!(
            "Lists of {LIST} keys: ns a lookup, median and range of the rounds (to the floor in \
             bursts of {BURST_MAX})"
        ),
        "keys",
        (["present", "absent"].into_iter().enumerate(), |row: &(usize, &str)| row.1.to_owned()),
        (all, name),
        |row, m| cell(m.ns.spread(LISTS + row.0), m.list_to_floor(row.0)),
    );
    let [short, long] = TARGET_BATCHES.map(|batch| format!("floor, bursts of {batch}: ns"));
    let floor = |m: &Measured, at: usize| m.spread(TARGET_BATCHES[at], FLOOR).cell(1);
    let floors = Table::of(
        "The tables, 95 % full, and the gather kernel",
        all,
        &[
            ("entries", &|m| sizes::name(m.entries)),
            ("MiB", &|m| sizes::mib(m.bytes)),
            ("bytes an entry", &|m| sizes::each(m.bytes, m.entries)),
            ("lines a hit", &|m| format!("{:.2}", m.lines_a_hit)),
            ("huge pages", &|m| m.huge_pages.to_string()),
            (&short, &|m| floor(m, 0)),
            (&long, &|m| floor(m, 1)),
        ],
    );
    batches.into_iter().chain([lists, floors]).collect()
}

/// Counts, at any size: 7 slots of 8, two spare buckets.
const COUNTS: &[Claim<Measured>] = &[
    Claim::new("bytes an entry of 8", "below 9.66 (9 GiB for a billion)", |m| {
        let each = m.bytes as f64 / m.entries as f64;
        Finding::new(each < 9.66, format!("{each:.2}"))
    }),
    Claim::new("lines a present key", "fewer than the paper's 1.5", |m| {
        Finding::new(m.lines_a_hit < 1.5, format!("{:.2}", m.lines_a_hit))
    }),
];

/// What the text says of small tables and of large ones.
const ANY: &[Claim<Measured>] = &[Claim::timed(
    "batches of 4 to no batching",
    "a significant improvement for both small and large tables: at least 1.2 ×",
    |m| Finding::new(m.gain(4, 1) >= 1.2, format!("{:.2} ×", m.gain(4, 1))),
)];
const CACHED: &[Claim<Measured>] =
    &[Claim::timed("batches of 14 to 4", "slightly slower: 0.8 to 1 ×", |m| {
        let gain = m.gain(14, 4);
        Finding::new((0.8..=1.0).contains(&gain), format!("{gain:.2} ×"))
    })];
const PAST: &[Claim<Measured>] = &[
    Claim::timed("batches of 14 to 4", "increases greatly: at least 1.2 ×", |m| {
        Finding::new(m.gain(14, 4) >= 1.2, format!("{:.2} ×", m.gain(14, 4)))
    }),
    Claim::timed("batches of 16 to 14", "6 % slower", |m| {
        let gain = m.gain(16, 14);
        Finding::new((0.90..=0.98).contains(&gain), format!("{:+.1} %", 100.0 * (gain - 1.0)))
    }),
];
const ALL: &[Claim<[Measured]>] = &[Claim::timed(
    "million lookups a second of one core, best batch, best and worst table",
    "nearly 350 by 16 threads: 21.9 each",
    |all| {
        let best = |m: &Measured| {
            BATCHES.map(|b| 1000.0 / m.spread(b, HIT).median).into_iter().fold(0.0, f64::max)
        };
        let (high, low) = (all.iter().map(best).fold(0.0, f64::max), all.iter().map(best));
        let low = low.fold(f64::MAX, f64::min);
        Finding::new(low >= PAPER.1 / PAPER.0, format!("{high:.1}, {low:.1}"))
    },
)];

fn claims(record: &mut Record, all: &[Measured]) {
    for m in all {
        record.judge(&format!("{} at 95 %", m.name()), COUNTS, m);
    }
    let full = record.size == Size::Full;
    for m in all.iter().filter(|m| full && m.entries >= TARGET_ENTRIES) {
        let bursts = TARGET_BATCHES.into_iter().flat_map(|batch| {
            WAYS.iter().enumerate().map(move |(figure, (keys, way, ..))| {
                let what = format!("bursts of {batch}, {way}: {keys}");
                (what, m.to_floor(batch, figure))
            })
        });
        let lists = ["hits", "misses"].into_iter().enumerate();
        let lists = lists.map(|(i, keys)| (format!("lists: {keys}"), m.list_to_floor(i)));
        for (what, factor) in bursts.chain(lists) {
            let claim = format!("{}, {what} to the gather floor", m.name());
            let holds = factor.median <= TARGET;
            record.claim(claim, format!("at most {TARGET} ×"), factor.text(), holds);
        }
    }
    let cached = sizes::largest_cached(all, |m| m.bytes);
    let past = all.iter().rfind(|m| sizes::past_the_caches(m.bytes) == Some(true));
    for m in [cached, past].into_iter().flatten() {
        record.judge(&m.name(), ANY, m);
    }
    if let Some(m) = cached {
        record.judge(&format!("{}, in the L3 cache", m.name()), CACHED, m);
    }
    if let Some(m) = past {
        record.judge(&format!("{}, past the caches", m.name()), PAST, m);
    }
    record.judge("", ALL, all);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits alone and with the next burst named, in bursts of 32 and 64, and lists; misses are
    /// fast.
    #[test]
    fn all_ways_are_judged_by_the_floor() {
        for (hit, [alone, ahead, list]) in [
            (1.5, [true, true, true]),
            (1.8, [false, true, true]),
            (2.05, [false, false, true]),
            (2.2, [false, false, false]),
        ] {
            let batches = [hit, hit - 0.3, 1.4, 1.2, 1.0].repeat(BATCHES.len());
            let ns = batches.into_iter().chain([hit - 0.4, 1.1]).map(|ns| vec![ns; 3]).collect();
            let m = Measured {
                entries: TARGET_ENTRIES,
                bytes: TARGET_ENTRIES * 9,
                huge_pages: HugePages::Yes,
                lines_a_hit: 1.2,
                ns: Rounds { figures: ns },
            };
            let mut record = full_record(&FIB6);
            claims(&mut record, &[m]);
            let floors = record.checks.iter().filter(|c| c.claim.contains("gather floor"));
            let expected = [alone, ahead, true, true, alone, ahead, true, true, list, true];
            assert!(floors.map(|check| check.holds).eq(expected), "{hit}");
        }
    }
}
