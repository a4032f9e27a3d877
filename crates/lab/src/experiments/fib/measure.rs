//! What all experiments of forwarding tables share: keys drawn before the clock runs, loops over
//! them, tables that are built with progress.
//!
//! ```text
//!  round   each contestant in turn:  lead-in        new keys, not timed: the others had the caches
//!                                    16 stretches   new keys, each timed; their median is the round's
//! ```
//!
//! Figures are medians of rounds with their range. Every stretch is checked: all keys that are there
//! were found, with their values, and none that is absent.

use std::hint::black_box;
use std::time::Instant;

use super::{absent, address};
use overbank::fib::{BURST_MAX, Config, Key6, Reader, Writer};
use overbank::hash::mix;
use overbank::memory::Pages;
use overbank_kit::experiment::{Context, LabError};
#[cfg(test)]
use overbank_kit::experiment::{Experiment, Record, Size};
use overbank_kit::micro::gather::Gather;
use overbank_kit::spread::{Spread, median};
use overbank_kit::workload::{FlowStream, Gray, Workload};

/// A forwarding table of Ethernet addresses.
pub(super) type Fib = Writer<Key6, u16>;

/// Entries between two looks at progress and Ctrl-C.
const STEP: u64 = 1 << 20;
/// Insertions that a prefetch goes ahead.
const AHEAD: u64 = 16;
/// Stretches of a round.
const STRETCHES: usize = 16;

/// What lookups found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Keys that were there.
    pub(super) hits: u64,
    /// Sum of their values.
    pub(super) sum: u64,
}

impl Answers {
    #[inline(always)]
    pub(super) fn add(&mut self, found: Option<u16>) {
        self.hits += u64::from(found.is_some());
        self.sum += u64::from(found.unwrap_or(0));
    }

    /// Adds a burst: bits of the keys found, and values, which are zero where nothing was found.
    #[inline(always)]
    fn add_burst(&mut self, found: u64, values: &[u16]) {
        self.hits += u64::from(found.count_ones());
        self.sum += values.iter().map(|&value| u64::from(value)).sum::<u64>();
    }
}

/// The value of an entry.
pub(super) fn value(number: u64) -> u16 {
    number as u16
}

/// Keys, drawn outside of the clock.
pub(super) struct Draws {
    stream: Box<dyn Workload>,
    ids: Vec<u32>,
    /// The keys that were drawn last.
    pub(super) keys: Vec<Key6>,
    /// A hash of each, for the gather kernel.
    hashes: Vec<u64>,
    /// What lookups of each stretch must find.
    expected: Vec<Answers>,
}

/// Which keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Entries of the table.
    Present,
    /// Addresses that it does not have.
    Absent,
}

impl Draws {
    /// Draws from the entries of a table, each as likely as any other.
    pub(super) fn uniform(entries: u64, seed: u64) -> Result<Draws, LabError> {
        let stream = FlowStream::uniform(number(entries)?, seed).map_err(LabError::failed)?;
        Ok(Self::of(Box::new(stream)))
    }

    /// Draws by Zipf's law with θ < 1, by the formula of Gray et al.: it needs no memory.
    pub(super) fn zipf(entries: u64, theta: f64, seed: u64) -> Result<Draws, LabError> {
        let stream = Gray::new(number(entries)?, theta, seed).map_err(LabError::failed)?;
        Ok(Self::of(Box::new(stream)))
    }

    fn of(stream: Box<dyn Workload>) -> Draws {
        Draws {
            stream,
            ids: Vec::new(),
            keys: Vec::new(),
            hashes: Vec::new(),
            expected: Vec::new(),
        }
    }

    /// Draws the numbers of `count` entries.
    pub(super) fn numbers(&mut self, count: usize) -> &[u32] {
        self.ids.resize(count, 0);
        let drawn = self.stream.fill(&mut self.ids);
        debug_assert_eq!(drawn, count, "the sequences are endless");
        &self.ids
    }

    /// Draws `count` keys.
    pub(super) fn draw(&mut self, which: Which, count: usize) {
        self.numbers(count);
        let number = |&id: &u32| u64::from(id);
        self.keys.clear();
        match which {
            Which::Present => self.keys.extend(self.ids.iter().map(|id| address(number(id)))),
            Which::Absent => self.keys.extend(self.ids.iter().map(|id| absent(number(id)))),
        }
        self.hashes.clear();
        self.hashes.extend(self.keys.iter().map(|key| mix(key.get())));
        let stretch = stretch_of(count);
        self.expected.clear();
        self.expected.extend(self.ids.chunks(stretch).map(|ids| match which {
            Which::Present => {
                let sum = ids.iter().map(|id| u64::from(value(number(id)))).sum();
                Answers { hits: ids.len() as u64, sum }
            }
            Which::Absent => Answers::default(),
        }));
    }
}

fn number(entries: u64) -> Result<u32, LabError> {
    u32::try_from(entries).map_err(|_| LabError::Failed(format!("{entries} entries are too many")))
}

fn stretch_of(count: usize) -> usize {
    count.div_ceil(STRETCHES).next_multiple_of(BURST_MAX)
}

/// Someone who looks up keys.
pub(super) type LookUp<'a> = Box<dyn FnMut(&[Key6]) -> Answers + 'a>;

/// How many keys a round draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Keys of the timed part.
    pub(super) keys: usize,
    /// Rounds.
    pub(super) rounds: usize,
}

impl Plan {
    pub(super) fn of(smoke: bool) -> Plan {
        if smoke { Plan { keys: 1 << 12, rounds: 2 } } else { Plan { keys: 1 << 15, rounds: 21 } }
    }

    /// In a line of a record.
    pub(super) fn describe(&self) -> String {
        format!("{} keys each, {} rounds", self.keys, self.rounds)
    }
}

/// Keys before the clock runs: enough to bring a small table back into the caches.
fn lead_in(bytes: usize) -> usize {
    (bytes / 64).saturating_mul(4).clamp(1 << 12, 1 << 16)
}

/// Nanoseconds per key of `work` over one round of new keys, after a lead-in of others; an error if
/// an answer is wrong. `bytes`: of the table.
pub(super) fn ns_per_key(
    name: &str,
    draws: &mut Draws,
    (which, keys, bytes): (Which, usize, usize),
    work: &mut dyn FnMut(&[Key6]) -> Answers,
) -> Result<f64, LabError> {
    draws.draw(which, lead_in(bytes));
    black_box(work(&draws.keys));
    draws.draw(which, keys);
    let mut times = Vec::with_capacity(STRETCHES);
    for (keys, expected) in draws.keys.chunks(stretch_of(keys)).zip(&draws.expected) {
        let start = Instant::now();
        let answers = work(keys);
        times.push(start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64);
        if answers != *expected {
            let found = format!("{} of {} keys found", answers.hits, keys.len());
            let should = format!("{} are there", expected.hits);
            return Err(LabError::Failed(format!("{name}: {found}, {should}, or wrong values")));
        }
    }
    Ok(median(times))
}

/// Nanoseconds per key of the gather kernel over one round of new keys, in bursts of `burst`.
pub(super) fn gather_ns(
    gather: &Gather,
    draws: &mut Draws,
    burst: usize,
    (keys, bytes): (usize, usize),
) -> f64 {
    floor_ns(draws, (keys, bytes), |hashes| gather.touch_in(burst, hashes))
}

/// The same where the lines are those of a table itself, in no other memory, which the host may keep
/// otherwise; the cheaper of both ways, bursts alone or ahead.
pub(super) fn own_floor_ns(
    reader: &Reader<Key6, u16>,
    draws: &mut Draws,
    burst: usize,
    (keys, bytes): (usize, usize),
) -> f64 {
    let ways = [false, true]
        .map(|ahead| floor_ns(draws, (keys, bytes), |hashes| reader.touch(burst, ahead, hashes)));
    ways[0].min(ways[1])
}

fn floor_ns(
    draws: &mut Draws,
    (keys, bytes): (usize, usize),
    touch: impl Fn(&[u64]) -> u64,
) -> f64 {
    draws.draw(Which::Present, lead_in(bytes));
    black_box(touch(&draws.hashes));
    draws.draw(Which::Present, keys);
    let times = draws.hashes.chunks(stretch_of(keys)).map(|hashes| {
        let start = Instant::now();
        black_box(touch(hashes));
        start.elapsed().as_secs_f64() * 1e9 / hashes.len() as f64
    });
    median(times)
}

/// Lookups in bursts, each alone.
#[inline(never)]
pub(super) fn look_up(reader: &Reader<Key6, u16>, burst: usize, keys: &[Key6]) -> Answers {
    let mut values = [0; BURST_MAX];
    let mut answers = Answers::default();
    for keys in keys.chunks(burst.clamp(1, BURST_MAX)) {
        let found = reader.lookup_batch(keys, &mut values);
        answers.add_burst(found, &values[..keys.len()]);
    }
    answers
}

/// Lookups in bursts, each of which names the next one; the first is prefetched.
#[inline(never)]
pub(super) fn look_up_ahead(reader: &Reader<Key6, u16>, burst: usize, keys: &[Key6]) -> Answers {
    let mut values = [0; BURST_MAX];
    let mut answers = Answers::default();
    let bursts = keys.chunks(burst.clamp(1, BURST_MAX));
    let mut upcoming = bursts.clone();
    reader.prefetch(upcoming.next().unwrap_or_default());
    for keys in bursts {
        let next = upcoming.next().unwrap_or_default();
        let found = reader.lookup_batch_ahead(keys, &mut values, next);
        answers.add_burst(found, &values[..keys.len()]);
    }
    answers
}

/// Keys of a list.
pub(super) const LIST: usize = 1024;

/// Lookups of lists of [`LIST`] keys.
#[inline(never)]
pub(super) fn look_up_lists(reader: &Reader<Key6, u16>, keys: &[Key6]) -> Answers {
    let (mut values, mut hits) = ([0; LIST], [0; LIST / 64]);
    let mut answers = Answers::default();
    for keys in keys.chunks(LIST) {
        reader.lookup_all(keys, &mut values, &mut hits);
        for (values, &hits) in values[..keys.len()].chunks(64).zip(&hits) {
            answers.add_burst(hits, values);
        }
    }
    answers
}

/// Million a second, from nanoseconds each.
pub(super) fn rate(ns: Spread) -> Spread {
    let Spread { median, low, high } = ns.map(|ns| 1000.0 / ns);
    Spread { median, low: high, high: low }
}

/// An empty table for `entries` entries at 95 %, on huge pages.
pub(super) fn empty(entries: u64, seed: u64) -> Result<Fib, LabError> {
    let entries = usize::try_from(entries).map_err(LabError::failed)?;
    let config = Config::entries(entries).seed(seed).pages(Pages::Huge);
    Writer::new(&config).map_err(LabError::failed)
}

/// Calls `insert` with the numbers of a range, in pieces with progress between them, and `ask` with
/// what it will get a little later.
pub(super) fn fill(
    context: &mut Context<'_>,
    what: &str,
    range: std::ops::Range<u64>,
    mut insert: impl FnMut(u64, u64) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let count = (range.end - range.start).max(1) as f64;
    let mut next = range.start;
    while next < range.end {
        let until = range.end.min(next + STEP);
        let text =
            format!("{what}: {:.1} of {:.1} M inserted", millions(next), millions(range.end));
        context.step(&text, (next - range.start) as f64 / count)?;
        for number in next..until {
            insert(number, number + AHEAD)?;
        }
        next = until;
    }
    Ok(())
}

fn millions(entries: u64) -> f64 {
    entries as f64 / 1e6
}

/// A table of the first `entries` addresses.
pub(super) fn build(context: &mut Context<'_>, what: &str, entries: u64) -> Result<Fib, LabError> {
    let mut fib = empty(entries, context.seed)?;
    fill(context, what, 0..entries, |number, soon| {
        fib.prefetch(address(soon));
        fib.insert(address(number), value(number)).map(drop).map_err(LabError::failed)
    })?;
    Ok(fib)
}

/// The record of a full run that has measured nothing yet.
#[cfg(test)]
pub(super) fn full_record(experiment: &Experiment) -> Record {
    let (stop, mut silent) = (Default::default(), |_: &str, _: f64| {});
    let context = Context { size: Size::Full, ..Context::smoke_run(&stop, &mut silent) };
    experiment.record(&context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_what_is_there() {
        const ENTRIES: u64 = 1000;
        let mut fib = empty(ENTRIES, 1).unwrap();
        for number in 0..ENTRIES {
            fib.insert(address(number), value(number)).unwrap();
        }
        let reader = fib.reader();
        let keys: Vec<Key6> = (0..2 * ENTRIES).rev().map(address).collect();
        let expected = Answers { hits: ENTRIES, sum: (0..ENTRIES).sum() };
        for burst in [1, 7, 32, BURST_MAX, 1000] {
            assert_eq!(look_up(&reader, burst, &keys), expected, "{burst}");
            assert_eq!(look_up_ahead(&reader, burst, &keys), expected, "{burst}");
        }
        assert_eq!(look_up_ahead(&reader, 32, &[]), Answers::default());
        assert_eq!(look_up_lists(&reader, &keys), expected);
        assert_eq!(look_up_lists(&reader, &[]), Answers::default());
    }
}
