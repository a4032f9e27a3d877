//! What the tables see before anything is measured; they are shared out to the cores.

use super::keys::Keys;
use super::loops::{Lane, run};
use super::row::Way;
use crate::experiment::LabError;
use crate::workload::{FlowStream, shuffled};

/// Keys between two steps of the progress.
const BLOCK: usize = 1 << 17;

/// Shows the tables each of `flows` once, in an order that `seed` chooses. `step` gets the share
/// done.
pub(super) fn show_all(
    lanes: &mut [Lane],
    flows: u32,
    seed: u64,
    step: &mut dyn FnMut(f64) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let order = shuffled((0..flows).collect(), seed);
    let mut keys = Keys::seeded(seed);
    for (block, flows) in order.chunks(BLOCK).enumerate() {
        keys.set(flows.iter().copied());
        show(lanes, &keys);
        step((block * BLOCK + flows.len()) as f64 / order.len() as f64)?;
    }
    Ok(())
}

/// Shows the tables `draws` keys of `stream`, hashed as `seed` says. `step` gets the share done.
pub(super) fn show_drawn(
    lanes: &mut [Lane],
    stream: &mut FlowStream,
    seed: u64,
    draws: u64,
    step: &mut dyn FnMut(f64) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut keys = Keys::seeded(seed);
    let mut done = 0u64;
    while done < draws {
        let count = (draws - done).min(BLOCK as u64);
        keys.draw(stream, count as usize);
        show(lanes, &keys);
        done += count;
        step(done as f64 / draws as f64)?;
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
