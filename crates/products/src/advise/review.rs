//! The model beside the tables: where they differ, and why, a fixed sentence for each case.

use super::profile::{Profile, profile as profile_of};
use super::simulate::{Sequence, simulate};
use super::{A_POINT, AdviseError, Cell, Departure, ModelReview, Question, WARM, Work, noise};
use overbank_kit::workload;
use std::sync::atomic::AtomicBool;

pub(super) const SIMULATED: &str = "Some tables are only simulated. With skew the model knows \
     random eviction alone: where a policy that promotes puts a flow depends on the order of the \
     packets, not on popularity alone.";
pub(super) const LOCALITY: &str = "In random order the same packets hit less often. The trace has \
     temporal locality: packets of a flow come close together.";
pub(super) const SCAN: &str = "In random order the same packets hit more often. Flows of the trace \
     come back later than by chance, as in scans, or not at all.";
const NO_ORDER: &str = "In random order the same packets hit as often, but for chance.";
pub(super) const DRIFT: &str = "The working set drifts: of the flows of a window fewer were in the \
     window before than in random order.";
const ORDER_APART: &str = "A difference is left where the order of the packets does not matter. \
     With several buckets a key and α near 1 the last free slots fill slowly. Else it is the error \
     of the model, or uncommon luck with the keys.";
const UNSETTLED: &str = "The traffic has few packets per flow or slot: tables have not reached the \
     stationary state that the model describes.";

pub(super) fn review(
    question: &Question,
    work: &Work<'_>,
    profile: &Profile,
    cells: &[Cell],
    stop: &AtomicBool,
) -> Result<ModelReview, AdviseError> {
    let modelled: Vec<(&Cell, f64)> =
        cells.iter().filter_map(|c| Some((c, c.measured - c.predicted?))).collect();
    let within = |limit: fn(&Cell) -> f64| {
        modelled.iter().filter(|(cell, off)| off.abs() < limit(cell)).count()
    };
    let (within_a_point, within_tolerance) = (within(|_| A_POINT), within(|cell| cell.tolerance));
    let all = modelled.len();
    let mut notes = Vec::new();
    if all < cells.len() {
        notes.push(SIMULATED.to_owned());
    }
    // What luck explains is the worst only where there is nothing else.
    let distance =
        |&(cell, off): &(&Cell, f64)| off.abs() + f64::from(u8::from(off.abs() >= cell.tolerance));
    let mut worst = None;
    if let Some(&(cell, off)) = modelled.iter().max_by(|a, b| distance(a).total_cmp(&distance(b))) {
        let (predicted, measured) = (cell.measured - off, cell.measured);
        let design = question.designs.iter().find(|d| d.to_string() == cell.design);
        let mut reasons = Vec::new();
        let mut shuffled = None;
        if let (Some(_), Some(&design)) = (work.hashes, design)
            && within_tolerance < all
        {
            let ids = workload::shuffled(work.ids.to_vec(), question.seed);
            let sequence = Sequence { ids: &ids, hashes: work.hashes };
            match simulate(design, cell.entries, sequence, 0, usize::MAX, question.seed, stop) {
                Ok(random) => {
                    shuffled = Some(random.hit_rate);
                    let chance = noise::difference(random.hit_rate, profile.packets).max(0.005);
                    reasons.push(match measured - random.hit_rate {
                        worth if worth > chance => LOCALITY,
                        worth if worth < -chance => SCAN,
                        _ => NO_ORDER,
                    });
                    let drifts = drift(profile, &profile_of(&ids, work.flows, &[]));
                    reasons.extend(drifts.then_some(DRIFT));
                }
                Err(AdviseError::Stopped) => {}
                Err(error) => return Err(error),
            }
        }
        if (shuffled.unwrap_or(measured) - predicted).abs() >= cell.tolerance {
            let per_flow = profile.packets as f64 / profile.flows.max(1) as f64;
            let few = per_flow * cell.alpha.max(1.0) < WARM as f64;
            reasons.push(if few { UNSETTLED } else { ORDER_APART });
        }
        let random = shuffled.map(|rate| format!(", {:.2} % in random order", 100.0 * rate));
        notes.push(format!(
            "{within_a_point} of {all} predictions are within a point of the tables, \
             {within_tolerance} within three standard deviations of the luck of one set of keys. \
             Farthest off: {} with {} entries, {:.2} % predicted, {:.2} % measured{}.",
            cell.design,
            cell.entries,
            100.0 * predicted,
            100.0 * measured,
            random.unwrap_or_default()
        ));
        notes.extend(reasons.into_iter().map(str::to_owned));
        let (design, entries) = (cell.design.clone(), cell.entries);
        worst = Some(Departure { design, entries, predicted, measured, shuffled });
    }
    Ok(ModelReview { cells: all, within_a_point, within_tolerance, worst, notes })
}

/// Returns whether the flows of a window were in the one before less often than in random order.
pub(super) fn drift(profile: &Profile, shuffled: &Profile) -> bool {
    let Some((overlap, chance)) = profile.overlap.zip(shuffled.overlap) else { return false };
    let counted: u64 = profile.windows.iter().skip(1).map(|w| w.distinct).sum();
    profile.windows.len() > 2 && overlap < chance - noise::difference(chance, counted).max(0.05)
}
