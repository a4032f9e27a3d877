//! What the tables see before anything is measured; they are shared out to the cores.

use super::keys::Keys;
use super::loops::{Lane, run};
use super::row::Way;
use crate::experiment::LabError;
use crate::workload::FlowStream;
use overbank::hash::mix;

/// Keys between two steps of the progress.
const BLOCK: usize = 1 << 17;

/// Shows the tables each of `flows` once, in an order that `seed` chooses. `step` gets the share done.
pub(super) fn show_all(
    lanes: &mut [Lane],
    flows: u32,
    seed: u64,
    step: &mut dyn FnMut(f64) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let mut order = shuffled(flows, seed);
    let mut keys = Keys::seeded(seed);
    let mut done = 0;
    loop {
        keys.set(order.by_ref().take(BLOCK));
        if keys.is_empty() {
            return Ok(());
        }
        show(lanes, &keys);
        done += keys.len();
        step(done as f64 / f64::from(flows))?;
    }
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

/// All ids below `flows` in an order that `seed` chooses: a mix of as many bits as they have that can
/// be undone, without the ids beyond.
fn shuffled(flows: u32, seed: u64) -> impl Iterator<Item = u32> {
    let bits = (u32::BITS - flows.saturating_sub(1).leading_zeros()).max(1);
    let last = (1u64 << bits) - 1;
    let salts = [1u64, 2, 3].map(|nth| mix(seed ^ mix(nth)));
    let ids = (0..=last).map(move |nth| {
        salts.iter().fold(nth, |id, salt| {
            let id = (id ^ salt).wrapping_mul(salt | 1) & last;
            id ^ (id >> bits.div_ceil(2))
        }) as u32
    });
    ids.filter(move |id| *id < flows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_flows_are_shown_once_in_no_order() {
        for flows in [1, 2, 3, 1000, 1 << 12, (1 << 14) + 1] {
            let mut ids: Vec<u32> = shuffled(flows, 1).collect();
            if flows >= 1000 {
                let (first, rest) = ids.split_at(ids.len() / 2);
                let mean = |ids: &[u32]| {
                    ids.iter().map(|&id| f64::from(id)).sum::<f64>() / ids.len() as f64
                };
                let apart = (mean(first) - mean(rest)).abs() / f64::from(flows);
                assert!(apart < 0.05, "{apart} of {flows}");
                assert!(!ids.iter().copied().eq(shuffled(flows, 2)), "the seed does nothing");
            }
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..flows), "{flows}");
        }
    }
}
