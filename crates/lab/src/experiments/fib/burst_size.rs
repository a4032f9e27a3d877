//! Figure 6: lookup rate by batch size, and how far from the gather floor it is.
//!
//! All ways to look up take turns in every round; each draws its own keys anew. The paper's batches are
//! alone.

use super::measure::{
    Answers, Draws, LIST, Plan, Which, build, floor_ns, look_up, look_up_ahead, look_up_lists,
    ns_per_key, rate,
};
use super::sizes;
use crate::prelude::*;
use overbank::fib::{BURST_MAX, Key6, Reader};
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

/// Ways to look up bursts, as figures of [`Rounds`]; the floor comes after them.
const WAYS: [(&str, &str, Which, LookUpIn); 4] = [
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

type LookUpIn = fn(&Reader<Key6, u16>, usize, &[Key6]) -> Answers;

struct Measured {
    entries: u64,
    bytes: u64,
    huge_pages: HugePages,
    lines_a_hit: f64,
    /// Nanoseconds a key, as [`BATCHES`].
    batches: Vec<Rounds>,
    /// The same in lists: present keys, absent ones, the floor in its longest bursts.
    lists: Rounds,
}

impl Measured {
    fn name(&self) -> String {
        sizes::name_of(self.entries)
    }

    fn batch(&self, size: usize) -> &Rounds {
        let at = BATCHES.iter().position(|&batch| batch == size);
        &self.batches[at.expect("one of the list")]
    }

    /// How many times as fast hits of one batch size are as of another, medians.
    fn gain(&self, size: usize, over: usize) -> f64 {
        self.batch(over).spread(HIT).median / self.batch(size).spread(HIT).median
    }
}

fn measure(context: &mut Context<'_>, entries: u64) -> Result<Measured, LabError> {
    let plan = &Plan::of(context.smoke());
    let what = sizes::name_of(entries);
    let fib = context.part((0.0, 0.6), |context| build(context, &what, entries))?;
    let reader = fib.reader();
    let bytes = reader.bytes();
    let mut draws = Draws::uniform(entries, context.seed)?;
    let none = |count| Rounds { figures: vec![Vec::new(); count] };
    let (mut batches, mut lists) = (vec![none(WAYS.len() + 1); BATCHES.len()], none(3));
    for round in 0..plan.rounds {
        let share = 0.6 + 0.4 * round as f64 / plan.rounds as f64;
        context.step(&format!("{what}: lookups"), share)?;
        let timed = |draws: &mut Draws, which, look_up: &dyn Fn(&[Key6]) -> Answers| {
            ns_per_key("overbank::fib", draws, (which, plan.keys, bytes), look_up)
        };
        for (&batch, rounds) in BATCHES.iter().zip(&mut batches) {
            for ((_, _, which, look_up), ns) in WAYS.iter().zip(&mut rounds.figures) {
                ns.push(timed(&mut draws, *which, &|keys| look_up(&reader, batch, keys))?);
            }
            // The lines of the table itself, no other memory, which the host may keep otherwise; the
            // cheaper of both ways.
            let floor = [false, true].map(|ahead| {
                let touch = |hashes: &[u64]| reader.touch(batch, ahead, hashes);
                floor_ns(&mut draws, (plan.keys, bytes), touch)
            });
            rounds.figures[FLOOR].push(floor[0].min(floor[1]));
        }
        for (which, ns) in [Which::Present, Which::Absent].into_iter().zip(&mut lists.figures) {
            ns.push(timed(&mut draws, which, &|keys| look_up_lists(&reader, keys))?);
        }
    }
    // The last batch is the longest burst.
    lists.figures[2] = batches[BATCHES.len() - 1].figures[FLOOR].clone();
    let lines_a_hit = 1.0 + fib.stats().second as f64 / entries as f64;
    let (bytes, huge_pages) = (bytes as u64, reader.huge_pages());
    Ok(Measured { entries, bytes, huge_pages, lines_a_hit, batches, lists })
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
        "The floor is one random line a key, of the table's own lines, prefetched in the same bursts. \
         A lookup also hashes the key, compares, takes the value and looks at the version again; at \
         95 % a fifth of the present keys needs a second line, asked for when the first has come.",
    );
    record.note(
        "Next burst named: while a burst is looked up, the home lines of the next one are asked for. \
         Lists go on with the next burst before the second lines of this one are compared. The floor is \
         the cheaper of bursts alone and bursts that ask ahead.",
    );
    Ok(record)
}

fn plots(all: &[Measured]) -> [Plot; 4] {
    let plot = |title: &str, y: &str, value: &dyn Fn(&Rounds) -> Spread| {
        let curve = |m: &Measured| {
            let points = BATCHES.iter().zip(&m.batches);
            let points = points.map(|(&batch, rounds)| (batch as f64, value(rounds)));
            Series::rounds(m.name(), points)
        };
        Plot::new(title, "lookups of a batch", y).log_x().with(all.iter().map(curve))
    };
    let (y, floor) = ("million lookups a second", "present keys to the gather floor");
    let present = plot("present keys, one core", y, &|rounds| rate(rounds.spread(HIT)));
    [
        present.mark("the paper's 350 M/s, by thread", 14.0, PAPER.1 / PAPER.0),
        plot("absent keys, one core", y, &|rounds| rate(rounds.spread(MISS))),
        plot(floor, "multiple", &|rounds| rounds.ratio(HIT, FLOOR)),
        plot(&format!("{floor}, next burst named"), "multiple", &|rounds| {
            rounds.ratio(HIT_AHEAD, FLOOR)
        }),
    ]
}

fn tables(all: &[Measured]) -> Vec<Table> {
    // Figures, and their multiples of the floor of the same round.
    let cell = |rounds: &Rounds, figure: usize, floor: usize| {
        format!("{} (×{:.2})", rounds.spread(figure).cell(1), rounds.ratio(figure, floor).median)
    };
    let named = [
        ("Present keys", HIT),
        ("Absent keys", MISS),
        ("Present keys, next burst named", HIT_AHEAD),
        ("Absent keys, next burst named", MISS_AHEAD),
    ];
    let name = |m: &&Measured| m.name();
    let batches = named.map(|(title, way)| {
        let title = format!("{title}: ns a lookup, median and range of the rounds (to the floor)");
        let rows = (BATCHES.iter().enumerate(), |(_, batch): &(usize, &usize)| batch.to_string());
        Table::pivot(title, "batch", rows, (all, name), |row, m| {
            cell(&m.batches[row.0], way, FLOOR)
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
        |row, m| cell(&m.lists, row.0, 2),
    );
    let [short, long] = TARGET_BATCHES.map(|batch| format!("floor, bursts of {batch}: ns"));
    let floor = |m: &Measured, at: usize| m.batch(TARGET_BATCHES[at]).spread(FLOOR).cell(1);
    let floors = Table::of(
        "The tables, 95 % full, and the gather kernel",
        all,
        &[
            ("entries", &|m| sizes::name(m.entries)),
            ("MiB", &|m| format!("{:.1}", m.bytes as f64 / f64::from(1 << 20))),
            ("bytes an entry", &|m| format!("{:.2}", m.bytes as f64 / m.entries as f64)),
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
            m.batches.iter().map(|r| 1000.0 / r.spread(HIT).median).fold(0.0, f64::max)
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
                (what, m.batch(batch).ratio(figure, FLOOR))
            })
        });
        let lists = ["hits", "misses"].into_iter().enumerate();
        let lists = lists.map(|(i, keys)| (format!("lists: {keys}"), m.lists.ratio(i, 2)));
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

    /// Hits alone and with the next burst named, in bursts of 32 and 64, and lists; misses are fast.
    #[test]
    fn all_ways_are_judged_by_the_floor() {
        let of = |ns: &[f64]| Rounds { figures: ns.iter().map(|&ns| vec![ns; 3]).collect() };
        for (hit, [alone, ahead, list]) in [
            (1.5, [true, true, true]),
            (1.8, [false, true, true]),
            (2.05, [false, false, true]),
            (2.2, [false, false, false]),
        ] {
            let m = Measured {
                entries: TARGET_ENTRIES,
                bytes: TARGET_ENTRIES * 9,
                huge_pages: HugePages::Yes,
                lines_a_hit: 1.2,
                batches: vec![of(&[hit, hit - 0.3, 1.4, 1.2, 1.0]); BATCHES.len()],
                lists: of(&[hit - 0.4, 1.1, 1.0]),
            };
            let mut record = full_record(&FIB6);
            claims(&mut record, &[m]);
            let floors = record.checks.iter().filter(|c| c.claim.contains("gather floor"));
            let expected = [alone, ahead, true, true, alone, ahead, true, true, list, true];
            assert!(floors.map(|check| check.holds).eq(expected), "{hit}");
        }
    }
}
