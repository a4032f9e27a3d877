//! The model beside the tables: where they differ, and why.

use super::profile::{Profile, profile as profile_of};
use super::simulate::{Sequence, simulate};
use super::{
    A_POINT, AdviseError, Cell, Departure, ModelReview, NEAR_ONE, Question, WARM, Work, noise,
};
use overbank::cache::Design;
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
    let agrees = |c: &Cell| off(c).is_some_and(|o| o.abs() < 100.0 * c.tolerance);
    let within = cells.iter().filter(|c| agrees(c)).count();
    let exact = |c: &&Cell| off(c).is_some_and(|o| o.abs() < 100.0 * A_POINT);
    let within_a_point = cells.iter().filter(exact).count();
    // What luck explains is the worst only where there is nothing else.
    let distance = |c: &Cell| off(c).map_or(-1.0, f64::abs) + if agrees(c) { 0.0 } else { 100.0 };
    let modelled = cells.iter().filter(|c| c.predicted.is_some());
    let worst = modelled.max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let lenient = cells.iter().filter(|c| c.predicted.is_some() && c.tolerance > A_POINT);
    let lenient = lenient.map(|c| 100.0 * c.tolerance).fold(0.0, f64::max);
    let point = match lenient > 0.0 {
        true => format!(
            "one point, or in tables so small that the luck of one set of keys is more, three standard \
             deviations of that ({lenient:.1} points at the most)"
        ),
        false => "one point".to_owned(),
    };
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
                "The model holds: {within_a_point} of {predicted} predictions are within a point of the \
                 tables, and all within {point}."
            ));
        } else {
            notes.push(format!(
                "{} of {predicted} predictions are farther off than {point}; most of all {} with {} \
                 entries: {:.2} % predicted, {:.2} % measured.",
                predicted - within,
                cell.design,
                cell.entries,
                p * 100.0,
                cell.measured * 100.0
            ));
            let design = question.designs.iter().find(|d| d.to_string() == cell.design);
            if let (Some(trace), Some(&design)) = (work.borrowed, design) {
                let ids = shuffled(trace.ids(), question.seed);
                let sequence = Sequence { ids: &ids, hashes: Some(trace.hashes()) };
                let (entries, seed) = (cell.entries, question.seed);
                match simulate(design, entries, sequence, 0, usize::MAX, seed, stop) {
                    Ok(random) => {
                        found.shuffled = Some(random.hit_rate);
                        notes.push(order(&found, random.hit_rate, profile));
                        notes.extend(drift(profile, &profile_of(&ids, work.flows, &[])));
                        let packets = profile.packets as f64 / profile.flows.max(1) as f64;
                        notes.extend(left_over(cell, design, random.hit_rate - p, packets));
                    }
                    Err(AdviseError::Stopped) => {}
                    Err(error) => return Err(error),
                }
            } else if design.is_some_and(|&design| fills_slowly(design, cell.alpha)) {
                notes.push(format!(
                    "The flows are drawn independently, so what is left is {WARM_UP}."
                ));
            } else {
                notes.push(format!(
                    "The flows are drawn independently, so what is left is {ERROR}."
                ));
            }
        }
        departure = Some(found);
    }
    Ok(ModelReview {
        cells: predicted,
        within_a_point,
        within_tolerance: within,
        worst: departure,
        notes,
    })
}

/// What is left over: the reasons.
const WARM_UP: &str = "warm-up: near α = 1 the last free slots fill slowly";
const ERROR: &str = "the error of the model itself, or uncommon luck with the keys";

/// Whether the last free slots of a table are found slowly: several buckets a key, and as many flows
/// as slots.
fn fills_slowly(design: Design, alpha: f64) -> bool {
    !design.geometry().name().starts_with("set") && NEAR_ONE.contains(&alpha)
}

/// What the order of the packets does: the same packets in random order beside the trace.
fn order(cell: &Departure, shuffled: f64, profile: &Profile) -> String {
    let points = 100.0 * (cell.measured - shuffled);
    let matters = (100.0 * noise::difference(shuffled, profile.packets)).max(0.5);
    if points > matters {
        let windows = &profile.windows;
        let mut sets: Vec<u64> = windows.iter().map(|w| w.distinct).collect();
        sets.sort_unstable();
        let median = sets.get(sets.len() / 2).copied().unwrap_or(0);
        let window = windows.first().map_or(0, |w| w.packets);
        format!(
            "The order of the packets is worth {points:+.2} points (the same packets in random order: \
             {:.2} %): temporal locality, packets of a flow come close together. A window of {window} \
             packets has {median} of the {} flows (median).",
            shuffled * 100.0,
            profile.flows
        )
    } else if points < -matters {
        format!(
            "The order of the packets costs {:.2} points (the same packets in random order: {:.2} %): \
             flows come back later than by chance, as in scans, or not at all.",
            -points,
            shuffled * 100.0
        )
    } else {
        format!(
            "The order of the packets does not matter ({points:+.2} points against random order; up to \
             {matters:.2} either way may be chance)."
        )
    }
}

/// Whether the flows of a window were in the one before less often than in random order.
pub(super) fn drift(profile: &Profile, shuffled: &Profile) -> Option<String> {
    let (overlap, chance) = (profile.overlap?, shuffled.overlap?);
    let counted: u64 = profile.windows.iter().skip(1).map(|w| w.distinct).sum();
    let clear = noise::difference(chance, counted).max(0.05);
    (profile.windows.len() > 2 && overlap < chance - clear).then(|| {
        format!(
            "The working set drifts: of a window's flows, {:.0} % were in the window before; of the same \
             packets in random order it would be {:.0} %.",
            overlap * 100.0,
            chance * 100.0
        )
    })
}

/// What the order does not explain: the table with the packets in random order, less the model.
fn left_over(cell: &Cell, design: Design, left: f64, packets_per_flow: f64) -> Option<String> {
    if left.abs() < cell.tolerance {
        return None;
    }
    // Packets that a flow or a slot got, whichever are fewer.
    let packets = packets_per_flow * cell.alpha.max(1.0);
    let reason = if packets < WARM as f64 {
        format!(
            "there are too few packets per flow ({packets_per_flow:.1}) for the tables to reach the \
             stationary state that the model describes"
        )
    } else if fills_slowly(design, cell.alpha) {
        format!("that is {WARM_UP}")
    } else {
        format!("that is {ERROR}")
    };
    Some(format!(
        "In random order {:+.2} points are left between the table and the model: {reason}.",
        left * 100.0
    ))
}
