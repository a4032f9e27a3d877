//! Lookups by the bytes of a value, and with a session behind a slot number.
//!
//! ```text
//!   2, 4, 8 bytes   key ─▶ bucket ─▶ value
//!   session line    key ─▶ bucket ─▶ slot ─▶ line of 64 bytes, prefetched for the whole burst and
//!                                            read while the next burst is looked up
//!   floor           one random line of the sessions and nothing else
//! ```
//!
//! Keys have 64 bits, as those of tunnels and addresses in the gateway; each round draws new ones.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{hash, table, table_for};
use crate::prelude::*;
use overbank::fib::{Reader, Value};
use overbank::hash::Hash64;
use overbank::memory::{Pages, Words};
use overbank::prefetch::{Prefetch, prefetch, prefetch_far};
use overbank::random::Pcg32;
use overbank_kit::micro::{Gather, Way};

pub const FIB_VALUES: Experiment = Experiment {
    name: "fib-values",
    title: "Forwarding table: lookups by bytes of a value, and with a session line behind",
    source: "ScaleBricks, section 4.2.2",
    run,
};

const BURST: usize = 32;
/// 64-bit words of a session's line.
const LINE: usize = 8;

const NAMES: [&str; 6] = [
    "2-byte values",
    "4-byte values",
    "8-byte values",
    "slot and session line",
    "floor",
    "8-byte values, 80 % full",
];
/// Their places.
const TWO: usize = 0;
const FOUR: usize = 1;
const EIGHT: usize = 2;
const SESSION: usize = 3;
const FLOOR: usize = 4;
const ROOMY: usize = 5;

/// Sums what lookups found.
type LookUp<'a> = Box<dyn Fn(&[u64]) -> u64 + 'a>;

/// Calls `each` with what every burst found; each burst asks for the next one.
#[inline(always)]
fn bursts<V: Value>(
    reader: &Reader<u64, V>,
    keys: &[u64],
    mut each: impl FnMut(&[u64], &[V; BURST]),
) {
    let mut upcoming = keys.chunks(BURST);
    reader.prefetch(upcoming.next().unwrap_or_default());
    let mut values = [V::default(); BURST];
    for keys in keys.chunks(BURST) {
        let next = upcoming.next().unwrap_or_default();
        reader.lookup_batch_ahead(keys, &mut values, next);
        each(keys, &values);
    }
}

/// Lines of sessions; the first word of each is the session's key.
struct Sessions {
    words: Words,
    far: bool,
}

impl Sessions {
    fn new(count: u64) -> Result<Sessions, LabError> {
        let words = Words::zeroed(LINE * count as usize, Pages::Huge).map_err(LabError::failed)?;
        for (session, line) in words.get().chunks_exact(LINE).enumerate() {
            line[0].store(hash(session as u64), Relaxed);
            line[1].store(session as u64, Relaxed);
        }
        let far = Prefetch::Automatic.is_far(size_of_val(words.get()));
        Ok(Sessions { words, far })
    }

    #[inline(always)]
    fn ask(&self, slot: u32) {
        let line = &self.words.get()[LINE * slot as usize];
        if self.far { prefetch_far(line) } else { prefetch(line) }
    }

    /// The number of the session in a slot, if its key is this one.
    #[inline(always)]
    fn read(&self, slot: u32, key: u64) -> u64 {
        let line = &self.words.get()[LINE * slot as usize..][..2];
        if line[0].load(Relaxed) == key { line[1].load(Relaxed) } else { 0 }
    }
}

/// Looks up slots and reads the sessions behind them, one burst later.
fn through(reader: &Reader<u64, u32>, sessions: &Sessions, keys: &[u64]) -> u64 {
    let (mut before, mut slots, mut sum) = (&keys[..0], [0; BURST], 0u64);
    let read = |keys: &[u64], slots: &[u32; BURST]| {
        keys.iter().zip(slots).map(|(&key, &slot)| sessions.read(slot, key)).sum::<u64>()
    };
    let mut start = 0;
    bursts(reader, keys, |now, values| {
        values[..now.len()].iter().for_each(|&slot| sessions.ask(slot));
        sum = sum.wrapping_add(read(before, &slots));
        (before, slots) = (&keys[start..start + now.len()], *values);
        start += now.len();
    });
    sum.wrapping_add(read(before, &slots))
}

/// What was measured of a number of entries.
struct Sized {
    entries: u64,
    rounds: Rounds,
    /// Bytes that lookups read: the tables, and the sessions.
    bytes: [usize; 6],
    /// Share of the entries that are in their second bucket, where the row is a table.
    second: [Option<f64>; 6],
    /// Lookups with a wrong value.
    wrong: u64,
}

fn measure(context: &mut Context<'_>, entries: u64, keys: usize) -> Result<Sized, LabError> {
    let (seed, smoke) = (context.seed, context.smoke());
    context.step(&format!("{entries} entries: tables"), 0.0)?;
    let two = table(entries, seed, |session| session as u16)?;
    let four = table(entries, seed, |session| session as u32)?;
    let eight = table(entries, seed, |session| session)?;
    let roomy = table_for(entries, entries * 95 / 80, seed, |session| session)?;
    let share = |second: u64| Some(second as f64 / entries as f64);
    let [in_two, in_four] = [two.stats().second, four.stats().second].map(share);
    let [in_eight, in_roomy] = [eight.stats().second, roomy.stats().second].map(share);
    let second = [in_two, in_four, in_eight, None, None, in_roomy];
    let (two, four) = (two.reader(), four.reader());
    let (eight, roomy) = (eight.reader(), roomy.reader());
    let sessions = Sessions::new(entries)?;
    let lines = 8 * LINE * entries as usize;
    let gather = Gather::new(lines).ok_or_else(|| LabError::Failed("no memory".into()))?;
    let with_lines = four.bytes() + lines;
    let bytes = [two.bytes(), four.bytes(), eight.bytes(), with_lines, lines, roomy.bytes()];
    fn sum<V: Value>(reader: &Reader<u64, V>, keys: &[u64], of: fn(V) -> u64) -> u64 {
        let mut sum = 0u64;
        bursts(reader, keys, |keys, values| {
            sum += values[..keys.len()].iter().map(|&value| of(value)).sum::<u64>();
        });
        sum
    }
    let mut turns: [LookUp<'_>; 6] = [
        Box::new(|keys| sum(&two, keys, u64::from)),
        Box::new(|keys| sum(&four, keys, u64::from)),
        Box::new(|keys| sum(&eight, keys, |value| value)),
        Box::new(|keys| through(&four, &sessions, keys)),
        Box::new(|keys| gather.touch(BURST, Way::Ahead, Hash64::slice(keys))),
        Box::new(|keys| sum(&roomy, keys, |value| value)),
    ];
    let mut pcg = Pcg32::new(seed, 5);
    let mut draw = |count: usize| -> Vec<u64> {
        (0..count).map(|_| u64::from(pcg.below(entries as u32))).collect()
    };
    let mut wrong = 0;
    let rounds = if smoke { 2 } else { 21 };
    let rounds = Rounds::run(
        &mut turns,
        rounds,
        |done| context.step(&format!("{entries} entries: lookups"), 0.5 + 0.5 * done),
        |turn, _| {
            // New keys: the other contestants had the caches.
            let lead = draw(keys / 4);
            black_box(turn(&lead.iter().map(|&session| hash(session)).collect::<Vec<_>>()));
            let drawn = draw(keys);
            let asked: Vec<u64> = drawn.iter().map(|&session| hash(session)).collect();
            let start = Instant::now();
            black_box(turn(&asked));
            Ok(start.elapsed().as_nanos() as f64 / keys as f64)
        },
    )?;
    // Every entry of every table, apart from the clock.
    for first in (0..entries).step_by(1 << 16) {
        let numbers = first..entries.min(first + (1 << 16));
        let asked: Vec<u64> = numbers.clone().map(hash).collect();
        for (at, turn) in turns.iter().enumerate().filter(|(at, _)| *at != FLOOR) {
            let mask = if at == TWO { u64::from(u16::MAX) } else { u64::MAX };
            let due: u64 = numbers.clone().map(|session| session & mask).sum();
            wrong += u64::from(turn(&asked) != due);
        }
    }
    drop(turns);
    Ok(Sized { entries, rounds, bytes, second, wrong })
}

const CLAIMS: &[Claim<Sized>] = &[
    Claim::new("every key has its value, and every slot its session", "all", |of: &Sized| {
        Finding::new(of.wrong == 0, format!("{} wrong stretches", of.wrong))
    }),
    Claim::new("a larger value makes a larger table", "configurable", |of: &Sized| {
        let [two, four, eight, ..] = of.bytes.map(|bytes| bytes as f64 / of.entries as f64);
        let text = format!("{two:.1}, {four:.1}, {eight:.1} bytes an entry");
        Finding::new(two < four && four < eight, text)
    }),
    Claim::timed(
        "values of 8 bytes: at most 1.1 × the time of 2 bytes",
        "minimal performance impact",
        |of: &Sized| Finding::at_most(1.1, of.rounds.ratio(EIGHT, TWO)),
    )
    .because("three slots a bucket, not five: more lines, and more keys in their second bucket"),
    Claim::timed(
        "and so in a table with more room, 80 % full",
        "minimal performance impact",
        |of: &Sized| Finding::at_most(1.1, of.rounds.ratio(ROOMY, TWO)),
    )
    .because("fewer keys are in their second bucket, but the table is twice as large"),
    Claim::timed(
        "the session line costs one random line, at most 1.25 × the floor",
        "goal: one floor",
        |of: &Sized| {
            let figures = &of.rounds.figures;
            let extra = figures[SESSION].iter().zip(&figures[FOUR]).map(|(with, less)| with - less);
            Finding::at_most(1.25, Spread::of_ratios(extra, figures[FLOOR].iter().copied()))
        },
    ),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let sizes: &[u64] = if context.smoke() { &[20_000] } else { &[1_000_000, 16_000_000] };
    let keys = if context.smoke() { 1 << 12 } else { 1 << 18 };
    let all = context.each(
        sizes.iter().copied(),
        |entries| format!("{entries} entries"),
        |context, entries| measure(context, entries, keys),
    )?;
    let mut record = FIB_VALUES.record(context);
    record.setting("lookups of a round", keys);
    record.setting("burst", BURST);
    record.settings([isa()]);
    for of in &all {
        let place = format!("{} M entries", of.entries as f64 / 1e6);
        record.judge(&place, CLAIMS, of);
        record.tables.push(Table::of(
            place,
            0..NAMES.len(),
            &[
                ("lookup", &|&at| NAMES[at].to_owned()),
                ("ns", &|&at| of.rounds.spread(at).cell(2)),
                ("× 2-byte values", &|&at| of.rounds.ratio(at, TWO).cell(2)),
                ("in the second bucket", &|&at| {
                    of.second[at].map_or(String::new(), |share| percent(share, 1))
                }),
                ("bytes an entry", &|&at| {
                    format!("{:.1}", of.bytes[at] as f64 / of.entries as f64)
                }),
            ],
        ));
    }
    record.note(
        "A bucket is a cache line whatever the value: 5, 4 and 3 entries of a 64-bit key with values of 2, 4 \
         and 8 bytes. With fewer slots a table has more lines, and at 95 % more keys are in \
         their second bucket. The \
         session's line is known only after the lookup: it is prefetched by burst, and read one burst later.",
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_through_their_slots() {
        let entries = 1000;
        let reader = table(entries, 1, |session| session as u32).unwrap().reader();
        let sessions = Sessions::new(entries).unwrap();
        for count in [0, 1, 31, 32, 33, 100, 1000] {
            let keys: Vec<u64> = (0..count).map(hash).collect();
            assert_eq!(through(&reader, &sessions, &keys), (0..count).sum::<u64>(), "{count}");
        }
        // A slot of another session is no answer.
        assert_eq!(sessions.read(7, hash(8)), 0);
        assert_eq!(sessions.read(7, hash(7)), 7);
    }
}
