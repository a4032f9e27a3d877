//! The model beside the tables: where they differ, and why.

use super::profile::Profile;
use super::simulate::{Sequence, simulate};
use super::{AdviseError, Cell, Departure, ModelReview, Question, Work};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;
use std::sync::atomic::AtomicBool;

/// The same packets in random order.
pub(super) fn shuffled(ids: &[u32], seed: u64) -> Vec<u32> {
    let mut rng = Pcg32::new(seed, 0x0b4e_6ba6);
    let mut ids = ids.to_vec();
    for i in (1..ids.len()).rev() {
        let j = ((u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64) as usize;
        ids.swap(i, j);
    }
    ids
}

pub(super) fn review(
    question: &Question,
    work: &Work<'_>,
    profile: &Profile,
    cells: &[Cell],
    stop: &AtomicBool,
) -> Result<ModelReview, AdviseError> {
    let off = |cell: &Cell| cell.predicted.map(|p| 100.0 * (cell.measured - p));
    let predicted = cells.iter().filter(|c| c.predicted.is_some()).count();
    let within = cells.iter().filter(|c| off(c).is_some_and(|o| o.abs() < 1.0)).count();
    let distance = |c: &&Cell| off(c).map_or(-1.0, f64::abs);
    let worst = cells.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut notes = Vec::new();
    let mut departure = None;
    if predicted < cells.len() {
        notes.push(format!(
            "{} of {} tables are only simulated. With skew the model knows random eviction alone: a policy \
             that promotes puts a flow where its last neighbours let it, so that what is in a bucket \
             depends on the order of the packets and not on popularity alone, and sums like the model's \
             do not exist; and it takes long to settle, as the measured rates do.",
            cells.len() - predicted,
            cells.len()
        ));
    }
    if let Some((cell, p)) = worst.and_then(|c| Some((c, c.predicted?))) {
        let mut found = Departure {
            design: cell.design.clone(),
            entries: cell.entries,
            predicted: p,
            measured: cell.measured,
            shuffled: None,
        };
        if within == predicted {
            notes.push(format!(
                "The model holds: all {predicted} predictions are within one point of the tables."
            ));
        } else {
            notes.push(format!(
                "{} of {predicted} predictions are more than one point off, most of all {} with {} \
                 entries: {:.2} % predicted, {:.2} % measured.",
                predicted - within,
                cell.design,
                cell.entries,
                p * 100.0,
                cell.measured * 100.0
            ));
            let design = question.designs.iter().find(|d| d.to_string() == cell.design);
            match (work.borrowed, design) {
                (Some(trace), Some(&design)) => {
                    let ids = shuffled(trace.ids(), question.seed);
                    let sequence = Sequence { ids: &ids, hashes: Some(trace.hashes()) };
                    let (entries, seed) = (cell.entries, question.seed);
                    match simulate(design, entries, sequence, 0, usize::MAX, seed, stop) {
                        Ok(random) => {
                            found.shuffled = Some(random.hit_rate);
                            notes.extend(explain(&found, random.hit_rate, profile));
                        }
                        Err(AdviseError::Stopped) => {}
                        Err(error) => return Err(error),
                    }
                }
                _ => notes.push(
                    "The flows are drawn independently, so what is left is warm-up: near α = 1 the \
                     last free slots fill slowly."
                        .to_owned(),
                ),
            }
        }
        departure = Some(found);
    }
    Ok(ModelReview { cells: predicted, within_a_point: within, worst: departure, notes })
}

/// Why a trace departs from the model: its order, or the model itself.
fn explain(cell: &Departure, shuffled: f64, profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    let points = 100.0 * (cell.measured - shuffled);
    let windows = &profile.windows;
    let mut sets: Vec<u64> = windows.iter().map(|w| w.distinct).collect();
    sets.sort_unstable();
    let median = sets.get(sets.len() / 2).copied().unwrap_or(0);
    let window = windows.first().map_or(0, |w| w.packets);
    if points > 0.5 {
        notes.push(format!(
            "The order of the packets is worth {points:+.2} points (the same packets in random order: \
             {:.2} %): temporal locality, packets of a flow come close together. A window of {window} \
             packets has {median} of the {} flows (median).",
            shuffled * 100.0,
            profile.flows
        ));
    } else if points < -0.5 {
        notes.push(format!(
            "The order of the packets costs {:.2} points (the same packets in random order: {:.2} %): \
             flows come back later than by chance, as in scans, or not at all.",
            -points,
            shuffled * 100.0
        ));
    } else {
        notes.push(format!(
            "The order of the packets does not matter ({points:+.2} points against random order): \
             there are too few packets per flow ({:.1}) for the tables to reach the stationary state \
             that the model describes.",
            profile.packets as f64 / profile.flows.max(1) as f64
        ));
    }
    if let Some(overlap) = profile.overlap.filter(|&o| o < 0.5 && windows.len() > 2) {
        notes.push(format!(
            "The working set drifts: of a window's flows, {:.0} % were in the window before.",
            overlap * 100.0
        ));
    }
    notes
}
