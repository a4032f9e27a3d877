//! The loops of the micro-benchmark: warm-up, and the parts of a round that are timed.
//!
//! A burst is probed, verified without a branch that the data decides, and reported; what missed is
//! inserted after it, or after a stretch when the clock does not run.

use std::time::Instant;

use super::Way;
use super::keys::Keys;
use super::row::rate;
use crate::spread::median;
use overbank::cache::{BURST, DynCache, Mask, Probes};
use overbank::hash::Hash64;

const STRETCH: usize = 4096;

/// Nanoseconds a key of one way, round by round.
#[derive(Default)]
pub(super) struct Times {
    pub(super) probe: Vec<f64>,
    pub(super) lookup: Vec<f64>,
    pub(super) whole: Vec<f64>,
    /// Throughput in the trial; zero until it ends.
    pub(super) trial: f64,
}

pub(super) struct Lane {
    pub(super) cache: Box<dyn DynCache>,
    pub(super) times: [Times; 2],
}

impl Lane {
    pub(super) fn new(cache: Box<dyn DynCache>) -> Lane {
        Lane { cache, times: Default::default() }
    }

    /// Ends the trial, if there was one: keeps its throughput and forgets the
    /// rest.
    pub(super) fn end_trial(&mut self, penalty_ns: f64) {
        let misses = 1.0 - self.cache.counters().hit_rate();
        for times in &mut self.times {
            let rates = times.whole.iter().map(|ns| rate(ns + misses * penalty_ns));
            *times = Times { trial: median(rates), ..Times::default() };
        }
        self.cache.reset_counters();
    }
}

/// Times `work`, which gets a stretch of the keys at a time: nanoseconds per key, the median over
/// the stretches, so that what the machine did in between for others falls out.
pub fn ns_per_key(keys: &Keys, mut work: impl FnMut(&[Hash64], &[u16])) -> f64 {
    let stretches = keys.hashes.chunks(STRETCH).zip(keys.values.chunks(STRETCH));
    let times = stretches.map(|(hashes, values)| {
        let start = Instant::now();
        work(hashes, values);
        start.elapsed().as_secs_f64() * 1e9 / hashes.len() as f64
    });
    median(times)
}

/// Returns bursts of hashes, each with the one after it if they are to be looked up ahead; the
/// first has then been asked for.
#[inline(always)]
fn bursts<'a>(
    cache: &dyn DynCache,
    way: Way,
    hashes: &'a [Hash64],
) -> impl Iterator<Item = (&'a [Hash64], Option<&'a [Hash64]>)> + use<'a> {
    let mut next = hashes.chunks(BURST);
    let first = next.next().unwrap_or_default();
    if way == Way::Ahead {
        cache.probe_batch_ahead(&[], first, &mut Probes::new());
    }
    hashes.chunks(BURST).map(move |hashes| {
        let next = next.next().unwrap_or_default();
        (hashes, (way == Way::Ahead).then_some(next))
    })
}

#[inline(always)]
fn probe(
    cache: &dyn DynCache,
    (hashes, next): (&[Hash64], Option<&[Hash64]>),
    probes: &mut Probes,
) {
    match next {
        None => cache.probe_batch(hashes, probes),
        Some(next) => cache.probe_batch_ahead(hashes, next, probes),
    }
}

/// Probes in batches alone; returns a checksum, so that it is not optimised away.
#[inline(never)]
pub(super) fn probes(cache: &dyn DynCache, way: Way, hashes: &[Hash64]) -> u32 {
    let mut probes = Probes::new();
    let mut sum = 0u32;
    // Whole bursts only.
    let hashes = &hashes[..hashes.len() - hashes.len() % BURST];
    for burst in bursts(cache, way, hashes) {
        probe(cache, burst, &mut probes);
        let found = probes.values().iter().fold(0u32, |a, &v| a.wrapping_add(v));
        sum = sum.wrapping_add(found ^ probes.matched().bits());
    }
    sum
}

/// Looks up a burst, verifies and reports it; returns a bit for each key that missed.
#[inline(always)]
fn lookup_burst(
    cache: &mut dyn DynCache,
    probes: &mut Probes,
    (hashes, next): (&[Hash64], Option<&[Hash64]>),
    values: &[u16],
) -> Mask {
    probe(cache, (hashes, next), probes);
    // Almost every match is the right one: no branch depends on the data here.
    let hits = probes.resolve_branchless(cache, hashes, |i, value| value == u32::from(values[i]));
    cache.commit(hashes, &hits);
    hits.missed()
}

#[inline(always)]
fn insert_missed(cache: &mut dyn DynCache, hashes: &[Hash64], values: &[u16], missed: Mask) {
    for i in missed {
        cache.insert(hashes[i], u32::from(values[i])).expect("16 bits fit every layout");
    }
}

/// Looks up and verifies all keys; inserts what missed after its burst.
#[inline(never)]
pub(super) fn run(cache: &mut dyn DynCache, way: Way, hashes: &[Hash64], values: &[u16]) {
    let mut probes = Probes::new();
    for (burst, values) in bursts(cache, way, hashes).zip(values.chunks(BURST)) {
        let missed = lookup_burst(cache, &mut probes, burst, values);
        insert_missed(cache, burst.0, values, missed);
    }
}

/// Runs as [`run`], but inserts what missed after each [`STRETCH`], when the clock does not run.
/// Gives nanoseconds per key.
pub(super) fn lookups(
    cache: &mut dyn DynCache,
    way: Way,
    hashes: &[Hash64],
    values: &[u16],
) -> f64 {
    let mut missed = [Mask::default(); STRETCH / BURST];
    let stretches = hashes.chunks(STRETCH).zip(values.chunks(STRETCH));
    let times = stretches.map(|(hashes, values)| {
        let start = Instant::now();
        lookup_stretch(cache, way, hashes, values, &mut missed);
        let ns = start.elapsed().as_secs_f64() * 1e9;
        for ((hashes, values), &missed) in
            hashes.chunks(BURST).zip(values.chunks(BURST)).zip(&missed)
        {
            insert_missed(cache, hashes, values, missed);
        }
        ns / hashes.len() as f64
    });
    median(times)
}

/// Looks up and verifies a stretch; writes the keys that missed, a word per burst.
#[inline(never)]
fn lookup_stretch(
    cache: &mut dyn DynCache,
    way: Way,
    hashes: &[Hash64],
    values: &[u16],
    missed: &mut [Mask],
) {
    let mut probes = Probes::new();
    let bursts = bursts(cache, way, hashes).zip(values.chunks(BURST));
    for ((burst, values), missed) in bursts.zip(missed) {
        *missed = lookup_burst(cache, &mut probes, burst, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::designs;
    use overbank::cache::Config;

    #[test]
    fn a_burst_is_verified_key_by_key() {
        let mut cache =
            designs(&["set-4"]).unwrap()[0].build(&Config::entries(64).seed(1)).unwrap();
        let mut keys = Keys::default();
        keys.set(0..40);
        keys.hashes.iter().take(20).enumerate().for_each(|(i, &hash)| {
            // Every other value is another flow's.
            cache.insert(hash, i as u32 + (i as u32 & 1)).unwrap();
        });
        let mut probes = Probes::new();
        let mut look = |count: usize, next: Option<&[Hash64]>| {
            let (hashes, values) = (&keys.hashes[..count], &keys.values[..count]);
            lookup_burst(&mut *cache, &mut probes, (hashes, next), values)
        };
        let missed = look(32, None);
        for i in 0..32 {
            assert_eq!(missed.contains(i), i >= 20 || i & 1 == 1, "key {i}");
        }
        // Ahead of the other keys; shorter bursts, and nothing at all.
        assert_eq!(look(32, Some(&keys.hashes[32..])), missed);
        assert_eq!(look(3, None).bits(), 0b010);
        assert!(look(0, Some(&[])).is_empty());
        assert_eq!((cache.counters().lookups, cache.counters().hits), (67, 22));
        assert_eq!(cache.counters().false_positives, 21);
    }

    /// Both ways find and insert the same, in bursts that do not come out even.
    #[test]
    fn both_ways_do_the_same() {
        let build =
            || designs(&["set-4"]).unwrap()[0].build(&Config::entries(256).seed(1)).unwrap();
        let mut keys = Keys::default();
        keys.set((0..300).chain(100..275));
        let counters = Way::ALL.map(|way| {
            let mut cache = build();
            run(&mut *cache, way, &keys.hashes, &keys.values);
            let sum = probes(&*cache, way, &keys.hashes);
            (*cache.counters(), sum)
        });
        assert!(counters[0].0.hits > 0 && counters[0].0.evictions > 0);
        assert_eq!(counters[0], counters[1]);
        let cache = build();
        let numbered = |way| bursts(&*cache, way, &keys.hashes).collect::<Vec<_>>();
        let (alone, ahead) = (numbered(Way::Alone), numbered(Way::Ahead));
        assert!(alone.iter().all(|(_, next)| next.is_none()));
        for (i, (hashes, next)) in ahead.iter().enumerate() {
            assert_eq!(*hashes, alone[i].0);
            assert_eq!(*next, Some(alone.get(i + 1).map_or(&[][..], |burst| burst.0)));
        }
    }

    #[test]
    fn lookups_also_insert_misses() {
        let mut cache = designs(&["blp-2-16"]).unwrap()[0].build(&Config::entries(1 << 14).seed(1));
        let cache = &mut **cache.as_mut().unwrap();
        let mut keys = Keys::default();
        keys.set(0..9000);
        assert!(lookups(cache, Way::Alone, &keys.hashes, &keys.values) > 0.0);
        assert_eq!(cache.counters().hits, 0);
        cache.reset_counters();
        run(cache, Way::Ahead, &keys.hashes, &keys.values);
        assert!(cache.counters().hit_rate() > 0.99);
    }
}
