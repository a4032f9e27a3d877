//! Lookups beside a writer: what it costs readers that the one writer writes at full speed.
//!
//! ```text
//!  this core     lookups │ lookups │ lookups │ lookups │ …     slices; new keys before each
//!  another one   spins   │ writes  │ spins   │ writes  │ …
//! ```
//!
//! Slices with and without writes take turns in one run; a round is one of each for every way to look
//! up, and the cost of a way is that of its median round. While the writer does not write it spins, so that its core, and what
//! the cores share, are in the same state in both.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::measure::{
    Answers, Draws, Fib, LIST, Which, build, look_up, look_up_ahead, look_up_lists, value,
};
use super::{absent, address, sizes};
use overbank::fib::{Key6, Reader};
use overbank::random::Pcg32;
use overbank_kit::experiment::{
    Claim, Context, Experiment, Finding, LabError, Plot, Record, Series, Size, Table,
};
use overbank_kit::machine::{allowed_cores, keep_on, usable_cores};
use overbank_kit::spread::Spread;

/// Lookups while the writer writes.
pub const FIBWRITER: Experiment = Experiment {
    name: "fibwriter",
    title: "forwarding table: lookups while the writer is idle and while it writes at full speed",
    source: "Target of this project",
    run,
};

const SMOKE: [u64; 1] = [100_000];
const FULL: [u64; 3] = [1_000_000, 16_000_000, 128_000_000];

/// Keys of a burst.
const BURST: usize = 32;
/// A writer may cost readers less than this share.
const TARGET: f64 = 0.15;
/// Operations that the writer's prefetches go ahead.
const AHEAD: usize = 16;

/// What the writer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Update,
    RemoveAndInsert,
    Replace,
    Displace,
}

const WORKS: [Work; 4] = [Work::Update, Work::RemoveAndInsert, Work::Replace, Work::Displace];

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Update => "updates values",
            Work::RemoveAndInsert => "removes and inserts",
            Work::Replace => "replaces keys by others",
            Work::Displace => "moves entries",
        }
    }

    /// Whether readers of present keys find all of them meanwhile.
    fn keeps_all(self) -> bool {
        matches!(self, Work::Update | Work::Displace)
    }

    /// Whether the target is for it. (No writer only moves entries; it is the hardest on readers.)
    fn has_target(self) -> bool {
        self != Work::Displace
    }
}

/// A way to look keys up.
struct Way {
    name: &'static str,
    look_up: fn(&Reader<Key6, u16>, &[Key6]) -> Answers,
}

const WAYS: [Way; 3] = [
    Way { name: "bursts alone", look_up: |reader, keys| look_up(reader, BURST, keys) },
    Way { name: "next burst named", look_up: |reader, keys| look_up_ahead(reader, BURST, keys) },
    Way { name: "lists", look_up: look_up_lists },
];

struct Plan {
    /// Keys of a slice.
    keys: usize,
    /// Pairs of slices of each way.
    rounds: usize,
}

/// Nanoseconds a key by round, of one way.
#[derive(Clone, Default)]
struct Lane {
    idle: Vec<f64>,
    busy: Vec<f64>,
}

impl Lane {
    /// How many times as long a lookup takes, by round.
    fn slower(&self) -> Spread {
        Spread::of(self.ratios())
    }

    fn ratios(&self) -> Vec<f64> {
        self.busy.iter().zip(&self.idle).map(|(busy, idle)| busy / idle).collect()
    }

    /// The quartiles of the same: slices are short, and the extremes of 201 rounds say little.
    fn quartiles(&self) -> (f64, f64) {
        let mut ratios = self.ratios();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios.get(ratios.len() * share / 4).copied().unwrap_or(1.0);
        (at(1), at(3))
    }
}

/// What was measured of one size and work.
struct Measured {
    work: Work,
    entries: u64,
    /// By way.
    lanes: [Lane; WAYS.len()],
    /// Million operations of the writer a second.
    writes: f64,
    operations: u64,
    /// Lookups of present keys that found none.
    absent: u64,
    lookups: u64,
}

impl Measured {
    fn what(&self) -> String {
        format!("{} entries, the writer {}", sizes::name(self.entries), self.work.name())
    }
}

/// What reader and writer tell each other.
#[derive(Default)]
struct Signals {
    go: AtomicBool,
    stop: AtomicBool,
    /// Operations done.
    operations: AtomicU64,
}

/// Stops the writer when the reader is done, also by an error.
struct Stops<'a>(&'a Signals);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Keys that others stand for at the moment, [`Self::MOST`] at most; then the oldest come back. So the
/// table stays as full as it is, and each insertion is of a key that was not there, which has to find
/// a free slot or to make one.
#[derive(Default)]
struct Replaced {
    /// Number of the key, and of the one that stands for it.
    pairs: VecDeque<(u64, u64)>,
    count: u64,
}

impl Replaced {
    const MOST: usize = 4096;

    /// A removal and an insertion.
    fn step(&mut self, fib: &mut Fib, number: u64) {
        if self.pairs.len() == Self::MOST {
            self.put_back(fib);
        } else if fib.remove(address(number)).is_some() {
            // If it is refused, there will be nothing to remove when the key comes back.
            let _ = fib.insert(absent(self.count), 0);
            self.pairs.push_back((number, self.count));
            self.count += 1;
        }
    }

    fn put_back(&mut self, fib: &mut Fib) {
        if let Some((number, other)) = self.pairs.pop_front() {
            fib.remove(absent(other));
            let _ = fib.insert(address(number), value(number));
        }
    }
}

/// Writes while it is told to. The table has the same keys afterwards, and values that are right.
fn write(fib: &mut Fib, work: Work, entries: u64, seed: u64, signals: &Signals) {
    let mut pcg = Pcg32::new(seed, 12);
    let mut ring = [0u64; AHEAD];
    let mut at = 0;
    let mut replaced = Replaced::default();
    while !signals.stop.load(Ordering::Relaxed) {
        if !signals.go.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            continue;
        }
        // At most 2^32 entries: `Draws` refuses more.
        let next = u64::from(pcg.below(entries as u32));
        fib.prefetch(address(next));
        let number = std::mem::replace(&mut ring[at], next);
        at = (at + 1) % AHEAD;
        match work {
            Work::Update => {
                fib.update(address(number), value(number));
            }
            Work::RemoveAndInsert => {
                fib.remove(address(number));
                // Its slot is free, so this cannot be refused; if it were, readers would count it.
                let _ = fib.insert(address(number), value(number));
            }
            Work::Replace => replaced.step(fib, number),
            Work::Displace => fib.shuffle(1),
        }
        signals.operations.fetch_add(1, Ordering::Relaxed);
    }
    while !replaced.pairs.is_empty() {
        replaced.put_back(fib);
    }
}

/// One slice of lookups; nanoseconds a key.
fn slice(way: &Way, reader: &Reader<Key6, u16>, draws: &mut Draws, keys: usize) -> (f64, Answers) {
    draws.draw(Which::Present, keys);
    let start = Instant::now();
    let answers = black_box((way.look_up)(reader, &draws.keys));
    (start.elapsed().as_secs_f64() * 1e9 / keys as f64, answers)
}

fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    (fib, work, entries): (&mut Fib, Work, u64),
    core: usize,
) -> Result<Measured, LabError> {
    let reader = fib.reader();
    let mut draws = Draws::uniform(entries, context.seed)?;
    let signals = Signals::default();
    let seed = context.seed;
    let mut found = Measured {
        work,
        entries,
        lanes: Default::default(),
        writes: 0.0,
        operations: 0,
        absent: 0,
        lookups: 0,
    };
    let mut seconds = 0.0;
    std::thread::scope(|scope| -> Result<(), LabError> {
        let signals = &signals;
        let writer = scope.spawn(move || -> Result<(), LabError> {
            keep_on(&[core]).map_err(LabError::failed)?;
            write(fib, work, entries, seed, signals);
            Ok(())
        });
        let stops = Stops(signals);
        for round in 0..plan.rounds {
            let share = round as f64 / plan.rounds as f64;
            let what = format!("{} entries, the writer {}", sizes::name(entries), work.name());
            context.step(&what, share)?;
            for (way, lane) in WAYS.iter().zip(&mut found.lanes) {
                let (idle, answers) = slice(way, &reader, &mut draws, plan.keys);
                lane.idle.push(idle);
                found.absent += plan.keys as u64 - answers.hits;
                let before = signals.operations.load(Ordering::Relaxed);
                let start = Instant::now();
                signals.go.store(true, Ordering::Relaxed);
                while signals.operations.load(Ordering::Relaxed) == before {
                    if writer.is_finished() {
                        return Err(LabError::Failed(format!("core {core} is unavailable")));
                    }
                    std::hint::spin_loop();
                }
                let (busy, answers) = slice(way, &reader, &mut draws, plan.keys);
                signals.go.store(false, Ordering::Relaxed);
                seconds += start.elapsed().as_secs_f64();
                found.operations += signals.operations.load(Ordering::Relaxed) - before;
                lane.busy.push(busy);
                found.absent += plan.keys as u64 - answers.hits;
                found.lookups += 2 * plan.keys as u64;
            }
        }
        drop(stops);
        writer.join().unwrap_or_else(|_| Err(LabError::failed("the writer's thread panicked")))
    })?;
    found.writes = found.operations as f64 / seconds / 1e6;
    Ok(found)
}

/// A core beside that of this thread; `None` if there is none.
fn other_core(smoke: bool) -> Option<usize> {
    let (allowed, usable) = (allowed_cores(), usable_cores());
    let mine = allowed.last().copied()?;
    let cores = if smoke && allowed.len() > 1 { allowed } else { usable };
    cores.into_iter().find(|core| *core != mine)
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let smoke = context.smoke();
    let plan =
        if smoke { Plan { keys: 1 << 12, rounds: 5 } } else { Plan { keys: 1 << 15, rounds: 201 } };
    let mut record = FIBWRITER.record(context);
    record.setting(
        "lookups",
        format!(
            "of keys that are there, uniform; bursts of {BURST} alone, bursts of {BURST} that name \
             the next one, lists of {LIST}"
        ),
    );
    record.setting("slices", format!("{} keys, {} pairs each", plan.keys, plan.rounds));
    let Some(core) = other_core(smoke) else {
        record.note("Skipped: the writer needs a core beside the readers', and there is one only.");
        record.setting("writer", "skipped, one core only");
        record.tables.push(table(&[]));
        return Ok(record);
    };
    record.setting("writer", format!("on core {core}"));
    // The reader's thread stays where it is, also where the whole process was not pinned.
    let mine = allowed_cores();
    let reader_core = mine.iter().copied().rfind(|mine| *mine != core).unwrap_or(core);
    keep_on(&[reader_core]).map_err(LabError::failed)?;
    let measured = sizes_and_works(context, &plan, core, &mut record);
    keep_on(&mine).map_err(LabError::failed)?;
    let all = measured?;
    record.plots.extend((0..WAYS.len()).map(|way| plot(&all, way)));
    record.tables.push(table(&all));
    claims(&mut record, &all);
    record.note(
        "A writer at full speed also takes its share of the memory's bandwidth and of the shared \
         cache, which any program on another core would do. A key that is removed and inserted again \
         finds its slot free; one that stands for another has to find a free slot in a table 95 % \
         full, or to make one. Keys are absent between their removal and their insertion, and up to \
         4096 while others stand for them; a reader that looked then missed them, rightly.",
    );
    Ok(record)
}

fn sizes_and_works(
    context: &mut Context<'_>,
    plan: &Plan,
    core: usize,
    record: &mut Record,
) -> Result<Vec<Measured>, LabError> {
    let wanted = sizes::wanted(context, &SMOKE, &FULL);
    let (all, missing) = sizes::each(context, &wanted, |context, entries| {
        if let Some(line) = sizes::does_not_fit(entries, sizes::fib_bytes(entries)) {
            return Ok(Err(line));
        }
        let what = format!("{} entries", sizes::name(entries));
        let mut fib = context.part((0.0, 0.4), |context| build(context, &what, entries))?;
        let name = |work: &Work| format!("{what}, the writer {}", work.name());
        let of_size = context.part((0.4, 1.0), |context| {
            context.each(WORKS, name, |context, work| {
                measure(context, plan, (&mut fib, work, entries), core)
            })
        });
        of_size.map(Ok)
    })?;
    sizes::left_out(record, &wanted, missing)?;
    Ok(all.into_iter().flatten().collect())
}

fn percent(factor: f64) -> f64 {
    100.0 * (factor - 1.0)
}

/// Of one of [`WAYS`].
fn plot(all: &[Measured], way: usize) -> Plot {
    let series = WORKS.into_iter().map(|work| {
        let points = all.iter().filter(|m| m.work == work).map(|m| {
            let (low, high) = m.lanes[way].quartiles();
            let median = m.lanes[way].slower().median;
            (m.entries as f64, Spread { median, low, high }.change())
        });
        Series::rounds(format!("the writer {}", work.name()), points)
    });
    let title = format!(
        "what a writer costs readers, {}: median and quartiles of the rounds",
        WAYS[way].name
    );
    Plot::new(title, "entries of the table", "longer lookups, %").log_x().with(series)
}

fn table(all: &[Measured]) -> Table {
    let lanes = all.iter().flat_map(|m| m.lanes.iter().zip(&WAYS).map(move |lane| (m, lane)));
    let ns = |ns: &[f64]| Spread::of(ns.iter().copied()).cell(1);
    let shown = |factor: f64| format!("{:+.1} %", percent(factor));
    Table::of(
        "Lookups beside the writer: medians and ranges of the rounds",
        lanes,
        &[
            ("entries", &|(m, _)| sizes::name(m.entries)),
            ("the writer", &|(m, _)| m.work.name().to_owned()),
            ("M operations a second", &|(m, _)| format!("{:.1}", m.writes)),
            ("lookups", &|(_, (_, way))| way.name.to_owned()),
            ("ns a lookup, writer idle", &|(_, (lane, _))| ns(&lane.idle)),
            ("writing", &|(_, (lane, _))| ns(&lane.busy)),
            ("longer, median", &|(_, (lane, _))| shown(lane.slower().median)),
            ("quartiles", &|(_, (lane, _))| {
                let (low, high) = lane.quartiles();
                format!("{} to {}", shown(low), shown(high))
            }),
            ("present keys not found, all ways", &|(m, _)| {
                format!("{} of {}", m.absent, m.lookups)
            }),
        ],
    )
}

const CLAIMS: &[Claim<Measured>] = &[
    Claim::new("every present key is found", "none absent", |m| {
        let found = Finding::new(m.absent == 0, format!("{} of {} absent", m.absent, m.lookups));
        found.filter(|_| m.work.keeps_all())
    }),
    Claim::new("it writes", "an operation in each slice at least", |m| {
        let slices = m.lanes.iter().map(|lane| lane.busy.len() as u64).sum();
        Finding::new(m.operations >= slices, format!("{} operations", m.operations))
    }),
];

fn claims(record: &mut Record, all: &[Measured]) {
    for m in all {
        record.judge(&m.what(), CLAIMS, m);
        let judged = record.size == Size::Full && m.work.has_target();
        for (lane, way) in m.lanes.iter().zip(&WAYS).filter(|_| judged) {
            let cost = lane.slower().median - 1.0;
            record.claim(
                format!("{}: longer lookups, {}", m.what(), way.name),
                format!("less than {:.0} %", 100.0 * TARGET),
                format!("{:+.1} %", 100.0 * cost),
                cost < TARGET,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::full_record;
    use super::*;
    use overbank::fib::{Config, Writer};

    /// Every way has its own check, by rounds of the same time.
    #[test]
    fn each_way_has_to_meet_the_target() {
        let lane = |slower: f64| Lane {
            idle: vec![10.0, 20.0, 30.0],
            busy: vec![10.0 * slower, 20.0 * slower, 300.0],
        };
        let of = |work, lanes| Measured {
            work,
            entries: 1_000_000,
            lanes,
            writes: 1.0,
            operations: 9,
            absent: 0,
            lookups: 100,
        };
        let all = [
            of(Work::Replace, [lane(1.1), lane(1.1), lane(1.2)]),
            of(Work::Displace, [lane(2.0), lane(2.0), lane(2.0)]),
        ];
        let mut record = full_record(&FIBWRITER);
        claims(&mut record, &all);
        let costs: Vec<_> =
            record.checks.iter().filter(|check| check.claim.contains("longer lookups")).collect();
        assert_eq!(costs.len(), WAYS.len(), "a writer that only moves entries has no target");
        for (check, (way, holds)) in costs.iter().zip(WAYS.iter().zip([true, true, false])) {
            assert!(check.claim.ends_with(way.name), "{}", check.claim);
            assert_eq!(check.holds, holds, "{}: {}", check.claim, check.measured);
        }
        assert_eq!(table(&all).rows.len(), all.len() * WAYS.len());
    }

    /// All keys are there again at the end, and no other.
    #[test]
    fn replaced_keys_come_back() {
        let entries = 20_000;
        let mut fib: Fib = Writer::new(&Config::entries(entries as usize)).unwrap();
        for number in 0..entries {
            fib.insert(address(number), value(number)).unwrap();
        }
        let mut replaced = Replaced::default();
        let mut pcg = Pcg32::new(1, 1);
        for _ in 0..30_000 {
            replaced.step(&mut fib, u64::from(pcg.below(entries as u32)));
        }
        assert_eq!(fib.len(), entries as usize);
        assert!(replaced.pairs.len() > Replaced::MOST / 2 && replaced.count > 10_000);
        let strangers = |fib: &Fib| (0..40_000).filter(|&n| fib.get(absent(n)).is_some()).count();
        assert_eq!(strangers(&fib), replaced.pairs.len());
        while !replaced.pairs.is_empty() {
            replaced.put_back(&mut fib);
        }
        assert_eq!((fib.len(), strangers(&fib)), (entries as usize, 0));
        for number in 0..entries {
            assert_eq!(fib.get(address(number)), Some(value(number)));
        }
    }
}
