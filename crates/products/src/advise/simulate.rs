//! The real tables on a sequence of flows: hit rates, nothing timed.
//!
//! Packets are looked up in bursts of 32, for speed; those that missed are looked up again one by
//! one before they are put in, so that the second packet of a new flow hits as if it came alone. (In
//! a switch under load it would miss with the first one.) The value of a slot is the flow's number,
//! so every match is verified exactly.

use super::AdviseError;
use overbank::cache::{BURST, Design, LayoutKind, MISS, Probes};
use overbank::hash::mix;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which flow each packet belongs to, and the hash of each flow.
#[derive(Clone, Copy)]
pub struct Sequence<'a> {
    /// Flow ids in order.
    pub ids: &'a [u32],
    /// Their hashes by id; without, the seed chooses a hash function of ids.
    pub hashes: Option<&'a [u64]>,
}

impl Sequence<'_> {
    /// The hash of a flow.
    pub(super) fn hash(&self, id: u32, seed: u64) -> u64 {
        match self.hashes {
            Some(hashes) => hashes[id as usize],
            None => seeded(id, seed),
        }
    }
}

/// The hash of a number: another function for each seed.
fn seeded(id: u32, seed: u64) -> u64 {
    mix(mix(seed) ^ u64::from(id))
}

/// What a table did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Hits per packet measured.
    pub hit_rate: f64,
    /// Entries over slots in the end.
    pub full: f64,
}

/// `design` over `measured` packets, after `warm` from an empty table on, as far as the sequence
/// goes. [`AdviseError::Stopped`] if `stop` is set before the end.
pub fn simulate(
    design: Design,
    entries: usize,
    sequence: Sequence<'_>,
    warm: usize,
    measured: usize,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Simulated, AdviseError> {
    let mut cache = design
        .build(entries, LayoutKind::Fp16V32, seed, None)
        .map_err(|reason| AdviseError::Table { design: design.to_string(), reason })?;
    let mut probes = Probes::new();
    let mut hashes = [0; BURST];
    let mut pass = |ids: &[u32]| {
        let mut misses = 0u64;
        for (nth, burst) in ids.chunks(BURST).enumerate() {
            if nth % 4096 == 0 && stop.load(Ordering::Relaxed) {
                return Err(AdviseError::Stopped);
            }
            let hashes = &mut hashes[..burst.len()];
            hashes.iter_mut().zip(burst).for_each(|(hash, &id)| *hash = sequence.hash(id, seed));
            cache.probe_batch(hashes, &mut probes);
            let mut slots = [MISS; BURST];
            for (i, &id) in burst.iter().enumerate() {
                let mut matches = probes.slots(i);
                let found = matches.find(|&slot| cache.candidate(hashes[i], slot) == id);
                slots[i] = found.unwrap_or(MISS);
            }
            cache.commit_hits(hashes, &slots[..burst.len()], 0);
            for (i, &id) in burst.iter().enumerate().filter(|(i, _)| slots[*i] == MISS) {
                if cache.lookup(hashes[i], &mut |value| value == id).is_none() {
                    cache.insert(hashes[i], id).expect("a flow id has 32 bits, as a slot has");
                    misses += 1;
                }
            }
        }
        Ok(1.0 - misses as f64 / ids.len().max(1) as f64)
    };
    let warm = warm.min(sequence.ids.len());
    let end = warm.saturating_add(measured).min(sequence.ids.len());
    pass(&sequence.ids[..warm])?;
    let hit_rate = pass(&sequence.ids[warm..end])?;
    Ok(Simulated { hit_rate, full: cache.len() as f64 / cache.capacity() as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::workload::FlowStream;

    fn hit_rate(design: Design, entries: usize, sequence: Sequence<'_>, warm: usize) -> f64 {
        let stop = AtomicBool::new(false);
        simulate(design, entries, sequence, warm, usize::MAX, 1, &stop).unwrap().hit_rate
    }

    /// The same, one packet at a time, and with a set of flows as the table.
    #[test]
    fn agrees_with_what_is_known() {
        let ids: Vec<u32> = FlowStream::zipf(5000, 0.9, 1).unwrap().take(60_000).collect();
        let sequence = Sequence { ids: &ids, hashes: None };
        for name in ["set-4", "blp-2-16", "cuckoo-2-8+pblru"] {
            let design: Design = name.parse().unwrap();
            // Where all fit, only first packets miss.
            let flows = ids.iter().collect::<std::collections::HashSet<_>>().len();
            let rate = hit_rate(design, 1 << 18, sequence, 0);
            let expected = 1.0 - flows as f64 / ids.len() as f64;
            assert!((rate - expected).abs() < 1e-4, "{name}: {rate} {expected}");

            let mut cache = design.build(1 << 10, LayoutKind::Fp16V32, 1, None).unwrap();
            for (at, &id) in ids.iter().enumerate() {
                if at == 20_000 {
                    cache.reset_counters();
                }
                if cache.lookup(seeded(id, 1), &mut |v| v == id).is_none() {
                    cache.insert(seeded(id, 1), id).unwrap();
                }
            }
            let rate = hit_rate(design, 1 << 10, sequence, 20_000);
            assert!((rate - cache.counters().hit_rate()).abs() < 0.01, "{name}: {rate}");
        }
    }
    /// Other seeds have other keys collide; hashes that are given stay as they are.
    #[test]
    fn the_seed_chooses_the_hash_function() {
        let ids: Vec<u32> = (0..2000).cycle().take(20_000).collect();
        let full = |seed, hashes: Option<&[u64]>| {
            let sequence = Sequence { ids: &ids, hashes };
            let stop = AtomicBool::new(false);
            let design = "set-4".parse().unwrap();
            simulate(design, 1 << 12, sequence, 0, usize::MAX, seed, &stop).unwrap().full
        };
        assert_eq!(full(1, None), full(1, None));
        assert!((2..6).any(|seed| full(seed, None) != full(1, None)));
        let given: Vec<u64> = (0..2000).map(mix).collect();
        assert!((2..6).all(|seed| full(seed, Some(&given)) == full(1, Some(&given))));
    }
}
