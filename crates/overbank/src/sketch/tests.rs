//! The sketch beside naive twins: arrays of the same indices, exact counts, and a set.

use std::collections::{HashMap, HashSet};
use std::vec;
use std::vec::Vec;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::random::Pcg32;
use crate::sketch::{BLOOM_ROWS, COUNT_MAX, COUNT_ROWS, Config, Counter, Settings, SketchError};

fn hash(key: u32) -> u128 {
    xxh3_128_with_seed(&key.to_le_bytes(), 5)
}

fn settings(threshold: u16, sample_log2: u32) -> Settings {
    Settings { threshold, sample_log2 }
}

/// A skewed key: the product of two draws crowds the small numbers.
fn skewed(pcg: &mut Pcg32, keys: u32) -> u32 {
    let bound = pcg.below(keys) + 1;
    pcg.below(bound)
}

/// The same structure over plain arrays, one key at a time.
struct Twin {
    counts: Vec<[u16; COUNT_ROWS]>,
    bits: Vec<[bool; BLOOM_ROWS]>,
    samples: u64,
}

impl Twin {
    fn new(config: Config) -> Self {
        let counts = vec![[0; COUNT_ROWS]; 1 << config.counters_log2];
        Self { counts, bits: vec![[false; BLOOM_ROWS]; 1 << config.bloom_log2], samples: 0 }
    }

    fn estimate(&self, hash: u128) -> u16 {
        let index = |row| (hash >> (16 * row) & 0xffff) as usize % self.counts.len();
        (0..COUNT_ROWS).map(|row| self.counts[index(row)][row]).min().unwrap()
    }

    fn count(&mut self, hash: u128, threshold: u16) -> bool {
        self.samples += 1;
        for row in 0..COUNT_ROWS {
            let index = (hash >> (16 * row) & 0xffff) as usize % self.counts.len();
            let count = &mut self.counts[index][row];
            *count = count.saturating_add(1);
        }
        if self.estimate(hash) < threshold {
            return false;
        }
        let mut fresh = false;
        for row in 0..BLOOM_ROWS {
            let index = (hash >> (64 + 18 * row) & 0x3_ffff) as usize % self.bits.len();
            fresh |= !std::mem::replace(&mut self.bits[index][row], true);
        }
        fresh
    }

    fn largest(&self) -> u16 {
        self.counts.iter().flatten().copied().max().unwrap()
    }
}

#[test]
fn agrees_with_arrays_through_epochs() {
    for (counters_log2, bloom_log2) in [(2, 6), (7, 9), (16, 18)] {
        let config = Config { counters_log2, bloom_log2 };
        let mut now = settings(20, 0);
        let (mut counter, mut keeper) = config.build(0, now).unwrap();
        let mut pcg = Pcg32::new(1, u64::from(counters_log2));
        for epoch in 0..6 {
            let mut twin = Twin::new(config);
            for _ in 0..4000 {
                let burst: Vec<u128> =
                    (0..pcg.below(65)).map(|_| hash(skewed(&mut pcg, 3000))).collect();
                let hot = counter.count_batch(&burst);
                for (i, &hash) in burst.iter().enumerate() {
                    assert_eq!(hot >> i & 1 == 1, twin.count(hash, now.threshold), "{epoch} {i}");
                }
            }
            let next = settings(20 << epoch, 0);
            assert!(keeper.turn(next) && !keeper.turn(next), "only one turn before the counter's");
            assert!(keeper.finished().is_none());
            assert_eq!(keeper.live().samples(), twin.samples);
            counter.attend();
            let counts = keeper.finished().unwrap();
            assert_eq!((counts.settings(), keeper.live().settings()), (now, next));
            assert_eq!((counts.samples(), keeper.live().samples()), (twin.samples, 0));
            assert_eq!((counts.largest(), keeper.live().largest()), (twin.largest(), 0));
            for key in 0..3000 {
                assert_eq!(counts.estimate(hash(key)), twin.estimate(hash(key)), "{epoch} {key}");
                assert!(keeper.live().estimate(hash(key)) == 0);
                assert!(!keeper.live().reported(hash(key)));
            }
            now = next;
        }
    }
}

#[test]
fn is_never_under_and_seldom_far_over() {
    for counters_log2 in [8, 12, 16] {
        let config = Config { counters_log2, ..Config::default() };
        let (mut counter, keeper) = config.build(0, settings(COUNT_MAX, 0)).unwrap();
        let (mut exact, mut pcg) = (HashMap::new(), Pcg32::new(2, 3));
        let samples = 1_000_000u32;
        for _ in 0..samples {
            let key = skewed(&mut pcg, 200_000);
            *exact.entry(key).or_insert(0u32) += 1;
            counter.count_batch(&[hash(key)]);
        }
        let bound = std::f64::consts::E * f64::from(samples) / f64::from(1 << counters_log2);
        let over = |(&key, &count): (&u32, &u32)| {
            let estimate = u32::from(keeper.live().estimate(hash(key)));
            assert!(estimate >= count, "{key}: {estimate} for {count}");
            f64::from(estimate - count) > bound
        };
        let far = exact.iter().filter(|&entry| over(entry)).count();
        let share = far as f64 / exact.len() as f64;
        assert!(share <= (-4f64).exp(), "2^{counters_log2}: {share} of keys");
    }
}

#[test]
fn a_hot_key_is_reported_once_and_seldom_missed() {
    let (mut counter, keeper) = Config::default().build(0, settings(1, 0)).unwrap();
    let (mut reported, mut seen, mut missed) = (HashSet::new(), HashSet::new(), 0);
    let mut pcg = Pcg32::new(4, 5);
    for _ in 0..200_000 {
        let key = pcg.below(40_000);
        let hot = counter.count_batch(&[hash(key)]) == 1;
        missed += u32::from(seen.insert(key) && !hot);
        assert!(!hot || reported.insert(key), "{key} again");
        assert!(keeper.live().reported(hash(key)));
    }
    // Each row is at most 15 % full at the end: a mean of (0.15 / 2)^3, less than 34 of 40,000.
    assert!(missed <= 60 && reported.len() as u32 + missed == seen.len() as u32, "{missed}");
}

#[test]
fn counters_stop_at_the_top() {
    let (mut counter, keeper) = Config::default().build(0, settings(COUNT_MAX, 0)).unwrap();
    let reports: u32 = (0..1100).map(|_| counter.count_batch(&[hash(1); 64]).count_ones()).sum();
    assert_eq!((reports, keeper.live().samples()), (1, 64 * 1100));
    assert_eq!((keeper.live().estimate(hash(1)), keeper.live().largest()), (COUNT_MAX, COUNT_MAX));
    // The neighbours in the same words are untouched.
    let beside = (0..COUNT_ROWS).fold(hash(1), |hash, row| hash ^ 1 << (16 * row));
    assert_eq!(keeper.live().estimate(beside), 0);
}

#[test]
fn one_of_two_to_the_k_is_sampled() {
    for sample_log2 in [0, 1, 4, 10] {
        for period in [1u32, 2, 16, 1024] {
            let settings = settings(COUNT_MAX, sample_log2);
            let (mut counter, keeper) = Config::default().build(9, settings).unwrap();
            // Every `period`-th packet has the key in question: its share is sampled evenly too.
            let packets = 1u32 << 19;
            (0..packets).for_each(|i| {
                counter.count_batch(&[if i % period == 0 { hash(0) } else { hash(1) }]);
            });
            let even = |count: f64, packets: u32| {
                let mean = f64::from(packets) / f64::from(1 << sample_log2);
                (count - mean).abs() <= 5.0 * mean.sqrt() || count == f64::from(COUNT_MAX)
            };
            assert!(even(keeper.live().samples() as f64, packets), "{sample_log2}");
            let estimate = f64::from(keeper.live().estimate(hash(0)));
            assert!(even(estimate, packets / period), "{sample_log2} {period}: {estimate}");
        }
    }
}

#[test]
fn settings_and_sizes_out_of_range_are_mended_or_refused() {
    let (_, keeper) = Config::default().build(0, settings(0, 99)).unwrap();
    assert_eq!(keeper.live().settings(), settings(1, 32));
    let of = |counters_log2, bloom_log2| {
        Config { counters_log2, bloom_log2 }.build(0, settings(1, 0)).err()
    };
    for log2 in [0, 1, 17, u32::MAX] {
        assert_eq!(of(log2, 18), Some(SketchError::Counters { log2 }));
    }
    for log2 in [0, 5, 19, u32::MAX] {
        assert_eq!(of(16, log2), Some(SketchError::Bloom { log2 }));
    }
}

#[test]
fn long_and_empty_bursts_and_epochs_that_wrap() {
    let config = Config { counters_log2: 2, bloom_log2: 6 };
    let (mut counter, mut keeper) = config.build(0, settings(1, 0)).unwrap();
    assert_eq!((counter.count_batch(&[]), counter.count_batch(&[hash(1); 100])), (0, 1));
    assert_eq!(keeper.live().samples(), 64);
    for _ in 0..70_000 {
        assert!(keeper.turn(settings(1, 0)));
        assert_eq!(counter.count_batch(&[hash(1)]), 1);
    }
    assert_eq!(keeper.finished().map(|counts| counts.samples()), Some(1));
}

/// Both sides move to their threads.
#[test]
fn both_sides_can_be_sent() {
    fn sent<T: Send>() {}
    sent::<Counter>();
    sent::<crate::sketch::Keeper>();
}
