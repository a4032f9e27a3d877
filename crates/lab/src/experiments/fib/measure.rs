//! What all experiments of forwarding tables share: keys drawn before the clock runs, loops over
//! them, tables that are built with progress.
//!
//! ```text
//!  round   each contestant in turn:  lead-in        new keys, not timed: the others had the caches
//!                                    16 stretches   new keys, each timed; their median counts
//! ```
//!
//! Figures are medians of rounds with their range. Every stretch is checked: all keys that are
//! there were found, with their values, and none that is absent.

use std::hint::black_box;
use std::time::Instant;

use super::{absent, address, sizes};
use crate::prelude::*;
use overbank::fib::{BURST_MAX, Config, MacAddr, Reader, Writer};
use overbank::hash::mix;
use overbank::memory::Pages;
use overbank_kit::workload::{Gray, Workload};

pub(super) type Fib = Writer<MacAddr, u16>;

/// Entries between two looks at progress and Ctrl-C.
const STEP: u64 = 1 << 20;
/// Insertions that a prefetch goes ahead.
const AHEAD: u64 = 16;
const STRETCHES: usize = 16;

/// What lookups found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
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

pub(super) fn value(number: u64) -> u16 {
    number as u16
}

/// Keys, drawn outside of the clock.
pub(super) struct Draws {
    stream: Box<dyn Workload>,
    ids: Vec<u32>,
    /// The keys that were drawn last.
    pub(super) keys: Vec<MacAddr>,
    /// A hash of each, for the gather kernel.
    hashes: Vec<u64>,
    /// What lookups of each stretch must find.
    expected: Vec<Answers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Present,
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
        let (ids, keys, hashes, expected) = Default::default();
        Draws { stream, ids, keys, hashes, expected }
    }

    pub(super) fn numbers(&mut self, count: usize) -> &[u32] {
        self.ids.resize(count, 0);
        let drawn = self.stream.fill(&mut self.ids);
        debug_assert_eq!(drawn, count, "the sequences are endless");
        &self.ids
    }

    pub(super) fn draw(&mut self, which: Which, count: usize) {
        self.numbers(count);
        let (key, there): (fn(u64) -> MacAddr, _) = match which {
            Which::Present => (address, true),
            Which::Absent => (absent, false),
        };
        self.keys.clear();
        self.keys.extend(self.ids.iter().map(|&id| key(id.into())));
        self.hashes.clear();
        self.hashes.extend(self.keys.iter().map(|key| mix(key.get())));
        self.expected.clear();
        self.expected.extend(self.ids.chunks(stretch_of(count)).map(|ids| {
            let mut answers = Answers::default();
            ids.iter().for_each(|&id| answers.add(there.then(|| value(id.into()))));
            answers
        }));
    }
}

fn number(entries: u64) -> Result<u32, LabError> {
    u32::try_from(entries).map_err(|_| LabError::Failed(format!("{entries} entries are too many")))
}

fn stretch_of(count: usize) -> usize {
    count.div_ceil(STRETCHES).next_multiple_of(BURST_MAX)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) keys: usize,
    pub(super) rounds: usize,
}

impl Plan {
    pub(super) fn of(smoke: bool) -> Plan {
        if smoke { Plan { keys: 1 << 12, rounds: 2 } } else { Plan { keys: 1 << 15, rounds: 21 } }
    }

    pub(super) fn describe(&self) -> String {
        format!("{} keys each, {} rounds", self.keys, self.rounds)
    }
}

/// Returns the keys before the clock runs: enough to bring a small table back into the caches.
fn lead_in(bytes: usize) -> usize {
    (bytes / 64).saturating_mul(4).clamp(1 << 12, 1 << 16)
}

/// Returns the median nanoseconds a key of `work`, stretch by stretch, and what it gave.
fn timed<T, R>(keys: &[T], mut work: impl FnMut(&[T]) -> R) -> (f64, Vec<R>) {
    let stretches = keys.chunks(stretch_of(keys.len())).map(|keys| {
        let start = Instant::now();
        let found = black_box(work(keys));
        (start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64, found)
    });
    let (ns, found): (Vec<f64>, Vec<R>) = stretches.unzip();
    (median(ns), found)
}

/// A contestant of a figure: nanoseconds a key of one round.
pub(super) type Turn<'a> = Box<dyn FnMut(&mut Draws) -> Result<f64, LabError> + 'a>;

/// Looks up `keys` new keys of a table of `bytes` bytes, after a lead-in of others; fails if an
/// answer is wrong.
pub(super) fn looks_up<'a>(
    name: &'a str,
    (which, keys, bytes): (Which, usize, usize),
    mut work: impl FnMut(&[MacAddr]) -> Answers + 'a,
) -> Turn<'a> {
    Box::new(move |draws| {
        draws.draw(which, lead_in(bytes));
        black_box(work(&draws.keys));
        draws.draw(which, keys);
        let (ns, found) = timed(&draws.keys, &mut work);
        if found != draws.expected {
            let hits = |answers: &[Answers]| answers.iter().map(|a| a.hits).sum::<u64>();
            let (found, there) = (hits(&found), hits(&draws.expected));
            return Err(LabError::Failed(format!(
                "{name}: {found} of {keys} keys found, {there} are there, or wrong values"
            )));
        }
        Ok(ns)
    })
}

/// Runs the gather kernel on the lines of the table itself, no other memory, which the host may
/// keep otherwise; the cheapest of `ways`: bursts alone, or ahead.
pub(super) fn floor<'a>(
    reader: &'a Reader<MacAddr, u16>,
    (burst, ways): (usize, &'a [bool]),
    keys: usize,
) -> Turn<'a> {
    Box::new(move |draws| {
        let times = ways.iter().map(|&ahead| {
            let touch = |hashes: &[u64]| reader.touch(burst, ahead, hashes);
            draws.draw(Which::Present, lead_in(reader.bytes()));
            black_box(touch(&draws.hashes));
            draws.draw(Which::Present, keys);
            timed(&draws.hashes, touch).0
        });
        Ok(times.fold(f64::MAX, f64::min))
    })
}

/// Runs rounds in which all of `turns` draw from the same keys.
pub(super) fn rounds(
    context: &mut Context<'_>,
    plan: &Plan,
    entries: u64,
    turns: &mut [Turn<'_>],
) -> Result<Rounds, LabError> {
    let mut draws = Draws::uniform(entries, context.seed)?;
    let what = format!("{}: lookups", sizes::name_of(entries));
    Rounds::run(turns, plan.rounds, |done| context.step(&what, done), |turn, _| turn(&mut draws))
}

/// A way to look up keys in bursts of a size.
pub(super) type LookUp = fn(&Reader<MacAddr, u16>, usize, &[MacAddr]) -> Answers;

/// Looks up in bursts, each alone.
#[inline(never)]
pub(super) fn look_up(reader: &Reader<MacAddr, u16>, burst: usize, keys: &[MacAddr]) -> Answers {
    let mut values = [0; BURST_MAX];
    let mut answers = Answers::default();
    for keys in keys.chunks(burst.clamp(1, BURST_MAX)) {
        let found = reader.lookup_batch(keys, &mut values);
        answers.add_burst(found, &values[..keys.len()]);
    }
    answers
}

/// Looks up in bursts, each of which names the next one; the first is prefetched.
#[inline(never)]
pub(super) fn look_up_ahead(
    reader: &Reader<MacAddr, u16>,
    burst: usize,
    keys: &[MacAddr],
) -> Answers {
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

pub(super) const LIST: usize = 1024;

/// Looks up lists of [`LIST`] keys.
#[inline(never)]
pub(super) fn look_up_lists(reader: &Reader<MacAddr, u16>, _: usize, keys: &[MacAddr]) -> Answers {
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

/// Converts nanoseconds each to million a second.
pub(super) fn rate(ns: Spread) -> Spread {
    let Spread { median, low, high } = ns.map(|ns| 1000.0 / ns);
    Spread { median, low: high, high: low }
}

/// Returns an empty table for `entries` entries at 95 %, on huge pages.
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
        let [done, all] = [next, range.end].map(|entries| entries as f64 / 1e6);
        let text = format!("{what}: {done:.1} of {all:.1} M inserted");
        context.step(&text, (next - range.start) as f64 / count)?;
        for number in next..until {
            insert(number, number + AHEAD)?;
        }
        next = until;
    }
    Ok(())
}

/// Inserts the addresses of a range, with progress.
pub(super) fn insert(
    context: &mut Context<'_>,
    what: &str,
    fib: &mut Fib,
    range: std::ops::Range<u64>,
    value: impl Fn(u64) -> u16,
) -> Result<(), LabError> {
    fill(context, what, range, |number, soon| {
        fib.prefetch(address(soon));
        fib.insert(address(number), value(number)).map(drop).map_err(LabError::failed)
    })
}

/// Builds a table of the first `entries` addresses.
pub(super) fn build(context: &mut Context<'_>, what: &str, entries: u64) -> Result<Fib, LabError> {
    let mut fib = empty(entries, context.seed)?;
    insert(context, what, &mut fib, 0..entries, value)?;
    Ok(fib)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn filled(entries: u64) -> Fib {
        smoke(|context| build(context, "", entries)).unwrap()
    }

    #[test]
    fn both_ways_find_all_entries() {
        let reader = filled(1000).reader();
        let keys: Vec<MacAddr> = (0..2000).rev().map(address).collect();
        let expected = Answers { hits: 1000, sum: (0..1000).sum() };
        for burst in [1, 7, 32, BURST_MAX, 1000] {
            assert_eq!(look_up(&reader, burst, &keys), expected, "{burst}");
            assert_eq!(look_up_ahead(&reader, burst, &keys), expected, "{burst}");
        }
        assert_eq!(look_up_lists(&reader, LIST, &keys), expected);
        assert_eq!(look_up_ahead(&reader, 32, &[]), Answers::default());
        assert_eq!(look_up_lists(&reader, LIST, &[]), Answers::default());
    }
}
