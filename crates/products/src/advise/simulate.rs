//! The real tables on a sequence of flows: hit rates, nothing timed. The value of a slot is the
//! flow's number, so every match is verified exactly ([`overbank_kit::keyed`]).

use super::AdviseError;
use overbank::cache::{Config, Design, LayoutKind};
use overbank::hash::Hash64;
use overbank_kit::keyed::{look_up, seeded};
use std::sync::atomic::{AtomicBool, Ordering};

/// Packets between two looks at the flag that ends it.
const STRETCH: usize = 1 << 17;

/// Which flow each packet belongs to, and the hash of each flow.
#[derive(Clone, Copy)]
pub struct Sequence<'a> {
    pub ids: &'a [u32],
    /// Their hashes by id; without, the seed chooses a hash function of ids.
    pub hashes: Option<&'a [u64]>,
}

impl Sequence<'_> {
    pub(super) fn hash(&self, id: u32, seed: u64) -> Hash64 {
        self.hashes.map_or_else(|| seeded(id, seed), |hashes| Hash64::new(hashes[id as usize]))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    pub hit_rate: f64,
    /// Entries over slots in the end.
    pub full: f64,
    pub held: usize,
}

/// Runs `design` over `measured` packets, after `warm` from an empty table on, as far as the
/// sequence goes. [`AdviseError::Stopped`] if `stop` is set before the end.
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
        .build(&Config::entries(entries).layout(LayoutKind::Fp16V32).seed(seed))
        .map_err(|reason| AdviseError::Table { design: design.to_string(), reason })?;
    let mut pass = |ids: &[u32]| {
        let mut hits = 0;
        for ids in ids.chunks(STRETCH) {
            if stop.load(Ordering::Relaxed) {
                return Err(AdviseError::Stopped);
            }
            hits += look_up(&mut *cache, ids, |id| sequence.hash(id, seed));
        }
        Ok(hits as f64 / ids.len().max(1) as f64)
    };
    let warm = warm.min(sequence.ids.len());
    let end = warm.saturating_add(measured).min(sequence.ids.len());
    pass(&sequence.ids[..warm])?;
    let hit_rate = pass(&sequence.ids[warm..end])?;
    let held = cache.len();
    Ok(Simulated { hit_rate, full: held as f64 / cache.capacity() as f64, held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::hash::mix;
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

            let mut cache = design
                .build(&Config::entries(1 << 10).layout(LayoutKind::Fp16V32).seed(1))
                .unwrap();
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
