//! Lookups of a given sequence of flows, instead of drawn keys: what a lookup costs in some
//! designs, with this traffic and in tables of this size, on this machine.

use super::keys::Keys;
use super::loops::{Lane, lookups, run};
use super::{Way, lead_in_keys};
use crate::experiment::LabError;
use crate::rounds::turns;
use crate::spread::median;
use overbank::cache::{BURST, Config, Design};

const ROUNDS: usize = 7;
/// Keys timed in a round, for each design.
const TIMED: usize = 1 << 15;

/// Fewest keys that say something: all that is timed, and as many before that.
pub const KEYS_MIN: usize = 2 * ROUNDS * TIMED;

/// Returns the nanoseconds of a verified lookup in each of `designs`, tables of `entries` slots:
/// the median of rounds at the end of `keys`, in which the designs take turns. All keys before them
/// warm the tables up. `None` if there are fewer than [`KEYS_MIN`]. `step` may end it.
pub fn lookup_ns(
    designs: &[Design],
    entries: usize,
    keys: &Keys,
    seed: u64,
    step: &mut dyn FnMut() -> Result<(), LabError>,
) -> Result<Option<Vec<f64>>, LabError> {
    if keys.hashes.len() < KEYS_MIN {
        return Ok(None);
    }
    let mut lanes = Vec::with_capacity(designs.len());
    for design in designs {
        let cache = design
            .build(&Config::entries(entries).seed(seed))
            .map_err(|error| LabError::Failed(format!("{design}: {error}")))?;
        lanes.push(Lane::new(cache));
    }
    let first = keys.hashes.len() - ROUNDS * TIMED;
    for lane in &mut lanes {
        for at in (0..first).step_by(1 << 20) {
            step()?;
            let part = at..first.min(at + (1 << 20));
            run(&mut *lane.cache, Way::Ahead, &keys.hashes[part.clone()], &keys.values[part]);
        }
    }
    for (round, at) in (first..keys.hashes.len()).step_by(TIMED).enumerate() {
        step()?;
        let timed = at..(at + TIMED).min(keys.hashes.len());
        let (hashes, values) = (&keys.hashes[timed.clone()], &keys.values[timed]);
        // The other tables had the caches before: the keys up to here once more bring this one
        // back.
        let lead_in = at.saturating_sub(lead_in_keys(entries, TIMED)).next_multiple_of(BURST)..at;
        for turn in turns(round, lanes.len()) {
            let lane = &mut lanes[turn];
            let cache = &mut *lane.cache;
            let before = lead_in.clone();
            run(cache, Way::Ahead, &keys.hashes[before.clone()], &keys.values[before]);
            lane.times[0].lookup.push(lookups(cache, Way::Alone, hashes, values));
        }
    }
    Ok(Some(lanes.iter().map(|lane| median(lane.times[0].lookup.iter().copied())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowStream;

    /// Timings are not asserted, only that each design has one.
    #[test]
    fn each_design_has_a_time() {
        let designs = super::super::designs(&["set-4", "cuckoo-2-16+half-bubble"]).unwrap();
        let mut stream = FlowStream::zipf(3000, 0.9, 1).unwrap();
        let mut keys = Keys::default();
        keys.draw(&mut stream, KEYS_MIN);
        let ns = lookup_ns(&designs, 1 << 10, &keys, 1, &mut || Ok(())).unwrap().unwrap();
        assert!(ns.len() == 2 && ns.iter().all(|ns| *ns > 0.0 && ns.is_finite()), "{ns:?}");

        let mut stop = || Err(LabError::Stopped);
        assert!(matches!(
            lookup_ns(&designs, 1 << 10, &keys, 1, &mut stop),
            Err(LabError::Stopped)
        ));
        keys.draw(&mut stream, KEYS_MIN - 1);
        assert!(lookup_ns(&designs, 1 << 10, &keys, 1, &mut || Ok(())).unwrap().is_none());
    }
}
