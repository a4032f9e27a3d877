//! Readers beside a writer at full speed: nothing that stays is ever absent, no reader sees a value
//! that the writer had not written, or one older than it saw before, and a key that comes and goes
//! is there, with the value of that time, or not, as it was at some moment of the lookup.
//!
//! In a table of 11 KiB and more and in one of 37 MiB that is 95 % full, whose lines are seldom in
//! a cache when either side comes for them. So that both sides meet there too, the writer names the
//! keys that it is about to work on, and half of what the readers look up are those.
//!
//! The writer moves entries all the time (`shuffle`, `flip`); with the feature `always-displace`
//! it also does so inside every operation.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use overbank::fib::*;
use overbank::isa::Isa;
use overbank::random::Pcg32;

/// Keys that the writer names at a time.
const NAMED: usize = 16;

/// A table, how full it is, and for how long.
struct Size {
    buckets: usize,
    /// Keys that stay and keep their first value; the numbers below this.
    stay: u32,
    /// Keys that stay and are updated; the numbers after those. The rest comes and goes.
    updated: u32,
    /// Share of the slots that the table is filled to, before and on average, in percent.
    percent: u32,
    run: Duration,
}

const fn run(plain_ms: u64, moving_ms: u64) -> Duration {
    Duration::from_millis(if cfg!(feature = "always-displace") { moving_ms } else { plain_ms })
}

/// Half of the keys that come and go would fill the table to the last slot.
const fn small(buckets: usize) -> Size {
    Size { buckets, stay: 400, updated: 400, percent: 100, run: run(700, 3000) }
}

const LARGE: Size =
    Size { buckets: 600_000, stay: 600_000, updated: 20_000, percent: 95, run: run(3000, 3000) };

trait Made {
    fn of(number: u32) -> Self;
}
impl Made for MacAddr {
    fn of(number: u32) -> Self {
        MacAddr::new(u64::from(number) * 0x1_0001).unwrap()
    }
}
impl Made for u64 {
    fn of(number: u32) -> Self {
        u64::from(number) * 0x1_0000_0001
    }
}
impl Made for u128 {
    fn of(number: u32) -> Self {
        u128::from(number) << 64 | u128::from(number % 3)
    }
}

/// A value says which key it belongs to and how old it is, as far as its bits go.
trait Stamp: Value {
    const AGES: u32;
    /// The bits of a key's number that it has.
    const NUMBER: u32;
    fn stamp(number: u32, age: u32) -> Self;
    fn read(self) -> (u32, u32);
}
macro_rules! stamp {
    ($value:ty, $age_bits:literal) => {
        impl Stamp for $value {
            const AGES: u32 = 1 << $age_bits;
            const NUMBER: u32 = (<$value>::MAX >> $age_bits) as u32;
            fn stamp(number: u32, age: u32) -> Self {
                (number as $value) << $age_bits | age as $value
            }
            fn read(self) -> (u32, u32) {
                ((self >> $age_bits) as u32, (self & ((1 << $age_bits) - 1)) as u32)
            }
        }
    };
}
stamp!(u16, 4);
stamp!(u32, 20);
stamp!(u64, 30);

struct Shared {
    stop: AtomicBool,
    /// Age of the updated keys before and after the update that is under way.
    begun: AtomicU64,
    done: AtomicU64,
    /// Numbers of the keys that the writer works on.
    named: [AtomicU32; NAMED],
    /// By key that comes and goes: its *state*, which counts how often it came and went (odd: it is
    /// there, and half of it is the age of its value), twice; one more while that changes.
    states: Box<[AtomicU32]>,
}

impl Shared {
    /// The state that a key surely was in or past, to be asked before a lookup.
    fn state_before(&self, place: usize) -> u32 {
        self.states[place].load(Ordering::Acquire) / 2
    }

    /// The last state that it can have been in, to be asked after a lookup.
    fn state_after(&self, place: usize) -> u32 {
        self.states[place].load(Ordering::Acquire).div_ceil(2)
    }

    fn name(&self, numbers: impl Iterator<Item = u32>) {
        for (place, number) in self.named.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
    }
}

/// The way of lists, and their longest: several bursts in turn, and several words of hits.
const LIST: u64 = 3;
const LIST_MAX: u32 = 300;

/// The first state from `least` on in which a key was absent, or had a value of this age.
fn first_state<V: Stamp>(least: u32, age: Option<u32>) -> u32 {
    match age {
        None => least.next_multiple_of(2),
        Some(age) => {
            let round = 2 * V::AGES;
            let state = 2 * age + 1;
            least + (state + round - least % round) % round
        }
    }
}

/// Bursts and lists looked up, and answers that could only be one: for keys that had come and gone
/// and did not change meanwhile.
fn read<K: Key + Made, V: Stamp>(
    reader: &Reader<K, V>,
    shared: &Shared,
    size: &Size,
    numbers: u32,
    seed: u64,
) -> (u64, u64) {
    let mut pcg = Pcg32::new(seed, 5);
    let changing = size.stay..size.stay + size.updated;
    let mut newest = vec![0u64; size.updated as usize];
    let mut seen = Vec::new();
    let mut last = vec![0u32; shared.states.len()];
    let mut passed = Vec::new();
    let (mut looked, mut exact) = (0, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        let way = looked % 5;
        let count = 1 + pcg.below(if way == LIST { LIST_MAX } else { 64 }) as usize;
        let pick = |_| match pcg.below(2 * NAMED as u32) as usize {
            i @ ..NAMED => shared.named[i].load(Ordering::Relaxed),
            _ => pcg.below(numbers),
        };
        let picked: Vec<u32> = (0..count).map(pick).collect();
        let keys: Vec<K> = picked.iter().map(|&number| K::of(number)).collect();
        let mut values = [V::default(); LIST_MAX as usize];
        let mut hits = [0; LIST_MAX.div_ceil(64) as usize];
        let place_of = |number: u32| number.checked_sub(changing.end).map(|place| place as usize);
        let before = |&number: &u32| place_of(number).map_or(0, |p| shared.state_before(p));
        let befores: Vec<u32> = picked.iter().map(before).collect();
        let least = shared.done.load(Ordering::Acquire);
        match way {
            0 => hits[0] = reader.lookup_batch(&keys, &mut values),
            2 => hits[0] = reader.lookup_batch_ahead(&keys, &mut values, &keys[count / 2..]),
            LIST => reader.lookup_all(&keys, &mut values, &mut hits),
            _ => {
                for (i, value) in keys.iter().map(|&key| reader.lookup(key)).enumerate() {
                    hits[0] |= u64::from(value.is_some()) << i;
                    values[i] = value.unwrap_or_default();
                }
            }
        }
        let most = shared.begun.load(Ordering::Acquire);
        for (i, &number) in picked.iter().enumerate() {
            let hit = hits[i / 64] >> (i % 64) & 1 == 1;
            let (key, age) = values[i].read();
            assert!(!hit || key == number & V::NUMBER, "the value of another key");
            if let Some(place) = place_of(number) {
                let (before, after) = (befores[i], shared.state_after(place));
                let state = first_state::<V>(before.max(last[place]), hit.then_some(age));
                assert!(
                    state <= after,
                    "key {number}, found: {hit}, age {age}: states {before} to {after}, {} before",
                    last[place]
                );
                exact += u64::from(before == after && after > 1);
                match way {
                    0 | 2 | LIST => passed.push((place, state)),
                    _ => last[place] = state,
                }
                continue;
            }
            assert!(hit, "key {number} stays and was absent");
            if number < changing.start {
                assert_eq!(age, 0, "a value that was never written");
            } else if most - least < u64::from(V::AGES) {
                // The age in full, if it is one of those that it can be.
                let ages = u64::from(V::AGES);
                let age = least + (u64::from(age) + ages - least % ages) % ages;
                assert!(age <= most, "{age} is not in {least} to {most}");
                let place = (number - changing.start) as usize;
                let before = newest[place];
                assert!(age >= before, "{age}, older than {before} before");
                match way {
                    0 | 2 | LIST => seen.push((place, age)),
                    _ => newest[place] = age,
                }
            }
        }
        // A key may come twice in a burst or list, whose lookups are in no order.
        for (place, age) in seen.drain(..) {
            newest[place] = newest[place].max(age);
        }
        for (place, state) in passed.drain(..) {
            last[place] = last[place].max(state);
        }
        looked += 1;
    }
    (looked, exact)
}

/// Removes a key that is there, inserts one that is not.
fn change<K: Key + Made, V: Stamp>(
    writer: &mut Writer<K, V>,
    shared: &Shared,
    number: u32,
    stay: u32,
) {
    let shown = &shared.states[(number - stay) as usize];
    let state = shown.load(Ordering::Relaxed) / 2;
    let value = |state| V::stamp(number, state / 2 % V::AGES);
    shown.store(2 * state + 1, Ordering::Release);
    let changed = if state % 2 == 1 {
        assert_eq!(writer.remove(K::of(number)), Some(value(state)));
        true
    } else {
        // Refused now and then: the table is as full as it gets.
        writer.insert(K::of(number), value(state + 1)).is_ok_and(|old| old.is_none())
    };
    shown.store(2 * (state + u32::from(changed)), Ordering::Release);
}

fn write<K: Key + Made, V: Stamp>(
    writer: &mut Writer<K, V>,
    shared: &Shared,
    size: &Size,
    numbers: u32,
) -> u64 {
    let mut pcg = Pcg32::new(11, 12);
    let (start, stay) = (Instant::now(), size.stay + size.updated);
    let (mut age, mut operations) = (0u64, 0);
    while start.elapsed() < size.run && !shared.stop.load(Ordering::Relaxed) {
        age += 1;
        let stamp = |number| V::stamp(number, (age % u64::from(V::AGES)) as u32);
        shared.begun.store(age, Ordering::Release);
        for number in size.stay..stay {
            if (number as usize).is_multiple_of(NAMED) {
                shared.name(number..stay);
            }
            let key = K::of(number);
            writer.update(key, stamp(number)).expect("stays");
            operations += 1 + u64::from(writer.flip(key));
        }
        shared.done.store(age, Ordering::Release);
        for turn in 0..size.updated as usize {
            let named = turn % NAMED;
            if turn % (16 * NAMED) == 0 {
                // A half of those that stay and can move now; a half of those that come and go.
                let some = |i| match i % 2 {
                    0 => {
                        let mut tries = std::iter::repeat_with(|| pcg.below(stay)).take(20);
                        tries.find(|&number| writer.flip(K::of(number))).unwrap_or(0)
                    }
                    _ => stay + pcg.below(numbers - stay),
                };
                shared.name((0..NAMED).map(some));
            }
            let [moved, changed] =
                [named & !1, named | 1].map(|i| shared.named[i].load(Ordering::Relaxed));
            (0..4).for_each(|_| operations += u64::from(writer.flip(K::of(moved))));
            change::<K, V>(writer, shared, changed, stay);
            writer.shuffle(3);
            operations += 2;
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    operations
}

fn stress<K: Key + Made, V: Stamp>(size: &Size, isa: Isa) {
    let start = Instant::now();
    let config = Config::buckets(size.buckets).isa(Some(isa));
    let mut writer = Writer::<K, V>::new(&config).unwrap();
    // Of those that come and go, half are there on average.
    let stay = size.stay + size.updated;
    let filled = (writer.slots() as u64 * u64::from(size.percent) / 100) as u32;
    let numbers = 2 * filled - stay;
    let there = filled.min(writer.slots() as u32 * 95 / 100);
    for number in 0..there {
        assert_eq!(writer.insert(K::of(number), V::stamp(number, 0)), Ok(None));
    }
    let shared = Shared {
        stop: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        named: [const { AtomicU32::new(0) }; NAMED],
        states: (stay..numbers)
            .map(|number| AtomicU32::new(2 * u32::from(number < there)))
            .collect(),
    };
    let fill = start.elapsed();
    let (looked, exact, operations) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (reader, shared) = (writer.reader(), &shared);
                scope.spawn(move || {
                    // A failed assertion stops the others as well.
                    struct Stop<'a>(&'a AtomicBool);
                    impl Drop for Stop<'_> {
                        fn drop(&mut self) {
                            self.0.store(true, Ordering::Relaxed);
                        }
                    }
                    let _stop = Stop(&shared.stop);
                    read(&reader, shared, size, numbers, seed)
                })
            })
            .collect();
        let operations = write(&mut writer, &shared, size, numbers);
        let done: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let [looked, exact] = [0, 1].map(|i| done.iter().map(|d| [d.0, d.1][i]).sum::<u64>());
        (looked, exact, operations)
    });
    let stats = writer.stats();
    println!(
        "{} {isa}: filled in {fill:.1?}; {operations} operations, {} moves, {looked} bursts, {exact} answers \
         of one choice, {:.1} % full",
        std::any::type_name::<(K, V)>(),
        stats.displaced,
        100.0 * writer.occupancy()
    );
    assert!(looked > 100 && exact > 100 && stats.displaced > 1000 && stats.removed > 100);
    for number in stay..numbers {
        let state = shared.state_before((number - stay) as usize);
        assert_eq!(writer.get(K::of(number)).is_some(), state % 2 == 1);
    }
    for number in 0..stay {
        assert!(writer.remove(K::of(number)).is_some());
    }
}

/// 1200 entries, on every instruction set.
fn small_table<K: Key + Made, V: Stamp>() {
    let buckets = Config::entries(1200).bytes::<K, V>() / Config::buckets(1).bytes::<K, V>();
    Isa::available().for_each(|isa| stress::<K, V>(&small(buckets), isa));
}

/// The best instruction set alone: the others differ in one bucket, not in many.
fn large_table<K: Key + Made, V: Stamp>() {
    let isa = Writer::<K, V>::new(&Config::buckets(2)).unwrap().reader().isa();
    stress::<K, V>(&LARGE, isa);
}

#[test]
fn packed_entries() {
    small_table::<MacAddr, u16>();
}

#[test]
fn keys_and_values_of_a_word() {
    small_table::<u64, u64>();
}

#[test]
fn values_side_by_side_in_a_word() {
    small_table::<u64, u32>();
}

#[test]
fn buckets_of_two_lines() {
    small_table::<u128, u64>();
}

#[test]
fn packed_entries_in_a_large_table() {
    large_table::<MacAddr, u16>();
}

#[test]
fn keys_and_values_of_a_word_in_a_large_table() {
    large_table::<u64, u64>();
}
