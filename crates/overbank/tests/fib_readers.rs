//! Readers beside a writer at full speed: nothing that stays is ever absent, and no reader sees a
//! value that the writer had not written, or one older than it saw before.
//!
//! The writer moves entries all the time (`shuffle`); with `RUSTFLAGS="--cfg overbank_small"` it also
//! does so inside every operation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use overbank::cache::Pcg32;
use overbank::fib::*;

const RUN: Duration = Duration::from_millis(if cfg!(overbank_small) { 3000 } else { 700 });
/// Keys below this stay and keep their first value; the same number of others is updated; the rest
/// comes and goes.
const STAY: u32 = 400;

trait Made {
    fn of(number: u32) -> Self;
}
impl Made for Key6 {
    fn of(number: u32) -> Self {
        Key6::new(u64::from(number) * 0x1_0001).unwrap()
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
    fn stamp(number: u32, age: u32) -> Self;
    fn read(self) -> (u32, u32);
}
macro_rules! stamp {
    ($value:ty, $age_bits:literal) => {
        impl Stamp for $value {
            const AGES: u32 = 1 << $age_bits;
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
}

fn read<K: Key + Made, V: Stamp>(
    reader: &Reader<K, V>,
    shared: &Shared,
    numbers: u32,
    seed: u64,
) -> u64 {
    let mut pcg = Pcg32::new(seed, 5);
    let mut newest = vec![0u32; numbers as usize];
    let mut looked = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let count = 1 + pcg.below(64) as usize;
        let picked: Vec<u32> = (0..count).map(|_| pcg.below(numbers)).collect();
        let keys: Vec<K> = picked.iter().map(|&number| K::of(number)).collect();
        let mut values = [V::default(); 64];
        let least = shared.done.load(Ordering::Acquire) as u32;
        let hits = if looked % 2 == 0 {
            reader.lookup_batch(&keys, &mut values)
        } else {
            keys.iter().enumerate().fold(0, |hits, (i, &key)| match reader.lookup(key) {
                Some(value) => {
                    values[i] = value;
                    hits | 1 << i
                }
                None => hits,
            })
        };
        let most = shared.begun.load(Ordering::Acquire) as u32;
        for (i, &number) in picked.iter().enumerate() {
            if hits >> i & 1 == 0 {
                assert!(number >= 2 * STAY, "key {number} stays and was absent");
                continue;
            }
            let (key, age) = values[i].read();
            assert_eq!(key, number, "the value of another key");
            if number < STAY {
                assert_eq!(age, 0, "a value that was never written");
            } else if number < 2 * STAY && V::AGES > 1 << 16 {
                assert!((least..=most).contains(&age), "{age} is not in {least} to {most}");
                assert!(age >= newest[number as usize], "older than before");
                newest[number as usize] = age;
            }
        }
        looked += 1;
    }
    looked
}

fn write<K: Key + Made, V: Stamp>(writer: &mut Writer<K, V>, shared: &Shared, numbers: u32) -> u64 {
    let mut pcg = Pcg32::new(11, 12);
    let (mut age, start) = (0, Instant::now());
    let mut operations = 0u64;
    while start.elapsed() < RUN && age + 1 < V::AGES.max(1 << 20) {
        age += 1;
        shared.begun.store(u64::from(age), Ordering::Release);
        for number in STAY..2 * STAY {
            writer.update(K::of(number), V::stamp(number, age % V::AGES)).expect("stays");
            operations += 1;
        }
        shared.done.store(u64::from(age), Ordering::Release);
        for _ in 0..400 {
            let number = 2 * STAY + pcg.below(numbers - 2 * STAY);
            if writer.remove(K::of(number)).is_none() {
                // Refused now and then: the table is as full as it gets.
                let _ = writer.insert(K::of(number), V::stamp(number, age % V::AGES));
            }
            writer.shuffle(3);
            operations += 2;
        }
    }
    shared.stop.store(true, Ordering::Relaxed);
    operations
}

fn stress<K: Key + Made, V: Stamp>() {
    for isa in Isa::available() {
        let config = Config::entries(3 * STAY as usize).isa(Some(isa));
        let mut writer = Writer::<K, V>::new(&config).unwrap();
        // More keys than slots, so that the last ones are inserted into a full table.
        let numbers = 2 * writer.slots() as u32 - 2 * STAY;
        (0..2 * STAY).for_each(|number| {
            assert_eq!(writer.insert(K::of(number), V::stamp(number, 0)), Ok(None))
        });
        let (stop, begun, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { stop, begun, done };
        let (looked, operations) = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|seed| {
                    let reader = writer.reader();
                    let shared = &shared;
                    scope.spawn(move || {
                        // A failed assertion stops the others as well.
                        struct Stop<'a>(&'a AtomicBool);
                        impl Drop for Stop<'_> {
                            fn drop(&mut self) {
                                self.0.store(true, Ordering::Relaxed);
                            }
                        }
                        let _stop = Stop(&shared.stop);
                        read(&reader, shared, numbers, seed)
                    })
                })
                .collect();
            let operations = write(&mut writer, &shared, numbers);
            (readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>(), operations)
        });
        let stats = writer.stats();
        println!(
            "{} {isa}: {operations} operations, {} moves, {looked} bursts, {:.1} % full",
            std::any::type_name::<(K, V)>(),
            stats.displaced,
            100.0 * writer.occupancy()
        );
        assert!(looked > 100 && stats.displaced > 1000 && stats.removed > 100);
        for number in 0..2 * STAY {
            assert!(writer.remove(K::of(number)).is_some());
        }
    }
}

#[test]
fn packed_entries() {
    stress::<Key6, u16>();
}

#[test]
fn keys_and_values_of_a_word() {
    stress::<u64, u64>();
}

#[test]
fn values_side_by_side_in_a_word() {
    stress::<u64, u32>();
}

#[test]
fn buckets_of_two_lines() {
    stress::<u128, u64>();
}
