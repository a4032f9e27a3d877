//! What the tables see before anything is measured; they are shared out to the cores.

use super::keys::Keys;
use super::loops::{Lane, run};
use super::row::Way;
use crate::experiment::LabError;
use std::ops::Range;

/// Keys between two steps of the progress.
const BLOCK: usize = 1 << 17;

/// Shows the tables `count` keys, hashed as `seed` says; `draw` replaces the keys by those of a
/// range. `step` gets the share done.
pub(super) fn warm(
    lanes: &mut [Lane],
    (count, seed): (usize, u64),
    mut draw: impl FnMut(&mut Keys, Range<usize>),
    mut step: impl FnMut(f64) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut keys = Keys::seeded(seed);
    for from in (0..count).step_by(BLOCK) {
        let until = count.min(from + BLOCK);
        draw(&mut keys, from..until);
        show(lanes, &keys);
        step(until as f64 / count as f64)?;
    }
    Ok(())
}

fn show(lanes: &mut [Lane], keys: &Keys) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let per_thread = lanes.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for lanes in lanes.chunks_mut(per_thread) {
            scope.spawn(move || {
                for lane in lanes {
                    run(&mut *lane.cache, Way::Ahead, &keys.hashes, &keys.values);
                }
            });
        }
    });
}
