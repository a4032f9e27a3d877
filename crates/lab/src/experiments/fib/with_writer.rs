//! Lookups beside a writer: what it costs readers that the one writer writes at full speed.
//!
//! ```text
//!  this core     lookups │ lookups │ lookups │ lookups │ …     slices; new keys before each
//!  another one   spins   │ writes  │ spins   │ writes  │ …
//! ```
//!
//! Slices with and without writes take turns in one run; a round is one of each for every way to
//! look up, and the cost of a way is that of its median round. While the writer does not write it
//! spins, so that its core, and what the cores share, are in the same state in both.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::measure::{
    Draws, Fib, LIST, LookUp, Plan, Which, build, look_up, look_up_ahead, look_up_lists, value,
};
use super::{absent, address, sizes};
use crate::prelude::*;
use overbank::random::Pcg32;
use overbank_kit::machine::{allowed_cores, keep_on, usable_cores};

pub const FIBWRITER: Experiment = Experiment {
    name: "fibwriter",
    title: "forwarding table: lookups while the writer is idle and while it writes at full speed",
    source: "Target of this project",
    run,
};

const SMOKE: [u64; 1] = [100_000];
const FULL: [u64; 3] = [1_000_000, 16_000_000, 128_000_000];

const BURST: usize = 32;
/// A writer may cost readers less than this share.
const TARGET: f64 = 0.15;
/// Operations that the writer's prefetches go ahead.
const AHEAD: usize = 16;

struct Work {
    name: &'static str,
    /// With an entry; its key is back, with its value, when all that was replaced is.
    step: Step,
    /// Whether readers of present keys find all of them meanwhile.
    keeps_all: bool,
    /// Whether the target is for it. (No writer only moves entries; it is the hardest on readers.)
    has_target: bool,
}

const WORKS: [Work; 4] = [
    work("updates values", |fib, _, n| _ = fib.update(address(n), value(n)), [true, true]),
    work("removes and inserts", remove_and_insert, [false, true]),
    work("replaces keys by others", |fib, replaced, n| replaced.step(fib, n), [false, true]),
    work("moves entries", |fib, _, _| fib.shuffle(1), [true, false]),
];

type Step = fn(&mut Fib, &mut Replaced, u64);

const fn work(name: &'static str, step: Step, [keeps_all, has_target]: [bool; 2]) -> Work {
    Work { name, step, keeps_all, has_target }
}

fn remove_and_insert(fib: &mut Fib, _: &mut Replaced, number: u64) {
    fib.remove(address(number));
    fib.insert(address(number), value(number)).expect("its slot is free");
}

const WAYS: [(&str, LookUp); 3] =
    [("bursts alone", look_up), ("next burst named", look_up_ahead), ("lists", look_up_lists)];

struct Measured {
    work: &'static Work,
    entries: u64,
    /// Nanoseconds a key: of each way beside an idle writer, then beside one that writes.
    ns: Rounds,
    /// Million operations of the writer a second.
    writes: f64,
    operations: u64,
    /// Lookups of present keys that found none.
    absent: u64,
    lookups: u64,
}

impl Measured {
    fn what(&self) -> String {
        format!("{}, the writer {}", sizes::name_of(self.entries), self.work.name)
    }

    /// Returns how many times as long a lookup takes, by round: the median and the quartiles, as
    /// slices are short and the extremes of 201 rounds say little.
    fn slower(&self, way: usize) -> Spread {
        let rounds = self.ns.figures[WAYS.len() + way].iter().zip(&self.ns.figures[way]);
        Spread::without(0.25, rounds.map(|(busy, idle)| busy / idle))
    }
}

#[derive(Default)]
struct Signals {
    go: AtomicBool,
    stop: AtomicBool,
    operations: AtomicU64,
}

/// Keys that others stand for at the moment, [`Self::MOST`] at most; then the oldest come back. So
/// the table stays as full as it is, and each insertion is of a key that was not there, which has
/// to find a free slot or to make one.
#[derive(Default)]
struct Replaced {
    /// Number of the key, and of the one that stands for it.
    pairs: VecDeque<(u64, u64)>,
    count: u64,
}

impl Replaced {
    const MOST: usize = 4096;

    fn step(&mut self, fib: &mut Fib, number: u64) {
        if self.pairs.len() == Self::MOST {
            self.put_back(fib);
        } else if fib.remove(address(number)).is_some() {
            fib.insert(absent(self.count), 0).expect("room at 95 %");
            self.pairs.push_back((number, self.count));
            self.count += 1;
        }
    }

    fn put_back(&mut self, fib: &mut Fib) {
        if let Some((number, other)) = self.pairs.pop_front() {
            fib.remove(absent(other));
            fib.insert(address(number), value(number)).expect("room at 95 %");
        }
    }
}

/// Writes while `signals` says so. The table has the same keys and right values afterwards.
fn write(fib: &mut Fib, work: &Work, entries: u64, seed: u64, signals: &Signals) {
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
        (work.step)(fib, &mut replaced, number);
        signals.operations.fetch_add(1, Ordering::Relaxed);
    }
    while !replaced.pairs.is_empty() {
        replaced.put_back(fib);
    }
}

fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    (fib, work, entries): (&mut Fib, &'static Work, u64),
    core: usize,
) -> Result<Measured, LabError> {
    let (reader, seed) = (fib.reader(), context.seed);
    let mut draws = Draws::uniform(entries, seed)?;
    let signals = Signals::default();
    let operations = || signals.operations.load(Ordering::Relaxed);
    let what = format!("{}, the writer {}", sizes::name_of(entries), work.name);
    let (mut written, mut absent, mut seconds) = (0, 0, 0.0);
    let mut slice = |way: usize| {
        draws.draw(Which::Present, plan.keys);
        let start = Instant::now();
        let answers = black_box(WAYS[way].1(&reader, BURST, &draws.keys));
        absent += plan.keys as u64 - answers.hits;
        start.elapsed().as_secs_f64() * 1e9 / plan.keys as f64
    };
    let ns = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            keep_on(&[core]).map_err(LabError::failed)?;
            write(fib, work, entries, seed, &signals);
            Ok(())
        });
        let turn = |figure: &mut usize, _| {
            let Some(way) = figure.checked_sub(WAYS.len()) else { return Ok(slice(*figure)) };
            let (before, start) = (operations(), Instant::now());
            signals.go.store(true, Ordering::Relaxed);
            while operations() == before {
                if writer.is_finished() {
                    return Err(LabError::Failed(format!("core {core} is unavailable")));
                }
                std::hint::spin_loop();
            }
            let ns = slice(way);
            signals.go.store(false, Ordering::Relaxed);
            seconds += start.elapsed().as_secs_f64();
            written += operations() - before;
            Ok(ns)
        };
        let mut figures: Vec<usize> = (0..2 * WAYS.len()).collect();
        let step = |done| context.step(&what, done);
        let read = Rounds::run(&mut figures, plan.rounds, step, turn);
        // Also after an error.
        signals.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err(LabError::failed("the writer's thread panicked"));
        writer.join().unwrap_or_else(panicked).and(read)
    })?;
    let lookups = (2 * WAYS.len() * plan.rounds * plan.keys) as u64;
    let writes = written as f64 / seconds / 1e6;
    Ok(Measured { work, entries, ns, writes, operations: written, absent, lookups })
}

/// Returns a core beside that of this thread; `None` if there is none.
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
    let Some(core) = other_core(smoke) else {
        let mut record = FIBWRITER.record(context);
        record.note("Skipped: the writer needs a core beside the readers', and none is left.");
        record.setting("writer", "skipped, one core only");
        record.tables.push(table(&[]));
        return Ok(record);
    };
    // The reader's thread stays where it is, also where the whole process was not pinned.
    let mine = allowed_cores();
    let reader_core = mine.iter().copied().rfind(|mine| *mine != core).unwrap_or(core);
    keep_on(&[reader_core]).map_err(LabError::failed)?;
    let measure = |context: &mut Context<'_>, entries| {
        let what = sizes::name_of(entries);
        let mut fib = context.part((0.0, 0.4), |context| build(context, &what, entries))?;
        let name = |work: &&Work| format!("{what}, the writer {}", work.name);
        context.part((0.4, 1.0), |context| {
            context.each(&WORKS, name, |context, work| {
                measure(context, &plan, (&mut fib, work, entries), core)
            })
        })
    };
    let measured = sizes::figure(context, &FIBWRITER, (&SMOKE, &FULL), sizes::fib_bytes, measure);
    keep_on(&mine).map_err(LabError::failed)?;
    let (mut record, all) = measured?;
    let all: Vec<Measured> = all.into_iter().flatten().collect();
    let lookups = format!(
        "of keys that are there, uniform; bursts of {BURST} alone, bursts of {BURST} that name the \
         next one, lists of {LIST}"
    );
    record.settings([
        ("lookups", lookups),
        ("slices", format!("{} keys, {} pairs each", plan.keys, plan.rounds)),
        ("writer", format!("on core {core}")),
    ]);
    record.plots.extend((0..WAYS.len()).map(|way| plot(&all, way)));
    record.tables.push(table(&all));
    claims(&mut record, &all);
    record.note(
        "A writer at full speed also takes its share of the memory's bandwidth and of the shared \
         cache, which any program on another core would do. A key that is removed and inserted \
         again finds its slot free; one that stands for another has to find a free slot in a table \
         95 % full, or to make one. Keys are absent between their removal and their insertion, and \
         up to 4096 while others stand for them; a reader that looked then missed them, rightly.",
    );
    Ok(record)
}

fn plot(all: &[Measured], way: usize) -> Plot {
    let series = WORKS.iter().map(|work| {
        let points = all.iter().filter(|m| m.work.name == work.name);
        let points = points.map(|m| (m.entries as f64, m.slower(way).change()));
        Series::rounds(format!("the writer {}", work.name), points)
    });
    let way = WAYS[way].0;
    let title = format!("what a writer costs readers, {way}: median and quartiles of the rounds");
    Plot::new(title, "entries of the table", "longer lookups, %").log_x().with(series)
}

fn table(all: &[Measured]) -> Table {
    let lanes = all.iter().flat_map(|m| (0..WAYS.len()).map(move |way| (m, way)));
    let shown = |percent: f64| format!("{percent:+.1} %");
    Table::of(
        "Lookups beside the writer: medians and ranges of the rounds",
        lanes,
        &[
            ("entries", &|(m, _)| sizes::name(m.entries)),
            ("the writer", &|(m, _)| m.work.name.to_owned()),
            ("M operations a second", &|(m, _)| format!("{:.1}", m.writes)),
            ("lookups", &|&(_, way)| WAYS[way].0.to_owned()),
            ("ns a lookup, writer idle", &|&(m, way)| m.ns.spread(way).cell(1)),
            ("writing", &|&(m, way)| m.ns.spread(WAYS.len() + way).cell(1)),
            ("longer, median", &|&(m, way)| shown(m.slower(way).change().median)),
            ("quartiles", &|&(m, way)| {
                let Spread { low, high, .. } = m.slower(way).change();
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
        found.filter(|_| m.work.keeps_all)
    }),
    Claim::new("it writes", "an operation in each slice at least", |m| {
        let slices = m.ns.figures[WAYS.len()..].iter().map(|busy| busy.len() as u64).sum();
        Finding::new(m.operations >= slices, format!("{} operations", m.operations))
    }),
];

fn claims(record: &mut Record, all: &[Measured]) {
    for m in all {
        record.judge(&m.what(), CLAIMS, m);
        let judged = record.size == Size::Full && m.work.has_target;
        for (way, (name, _)) in WAYS.iter().enumerate().filter(|_| judged) {
            let cost = m.slower(way).median - 1.0;
            record.claim(
                format!("{}: longer lookups, {name}", m.what()),
                format!("less than {:.0} %", 100.0 * TARGET),
                format!("{:+.1} %", 100.0 * cost),
                cost < TARGET,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::filled;
    use super::*;

    /// Every way has its own check, by rounds of the same time.
    #[test]
    fn each_way_has_to_meet_the_target() {
        let of = |work, slower: [f64; 3]| {
            let idle = [(); 3].map(|()| vec![10.0, 20.0, 30.0]);
            let busy = slower.map(|slower| vec![10.0 * slower, 20.0 * slower, 300.0]);
            let ns = Rounds { figures: idle.into_iter().chain(busy).collect() };
            let entries = 1_000_000;
            Measured { work, entries, ns, writes: 1.0, operations: 9, absent: 0, lookups: 100 }
        };
        let mut record = full_record(&FIBWRITER);
        claims(&mut record, &[of(&WORKS[2], [1.1, 1.1, 1.2]), of(&WORKS[3], [2.0; 3])]);
        let costs = record.checks.iter().filter(|check| check.claim.contains("longer lookups"));
        let costs: Vec<_> =
            costs.map(|check| (check.claim.rsplit(", ").next(), check.holds)).collect();
        let expected = WAYS.iter().zip([true, true, false]);
        let expected: Vec<_> = expected.map(|(way, holds)| (Some(way.0), holds)).collect();
        assert_eq!(costs, expected, "a writer that only moves entries has no target");
    }

    /// All keys are there again at the end, and no other.
    #[test]
    fn replaced_keys_come_back() {
        let entries = 20_000;
        let mut fib = filled(entries);
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
        assert!((0..entries).all(|n| fib.get(address(n)) == Some(value(n))));
    }
}
