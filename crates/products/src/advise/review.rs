//! The model beside the tables: where they differ, and why.

use super::profile::{Profile, profile as profile_of};
use super::simulate::{Sequence, simulate};
use super::{A_POINT, AdviseError, Cell, Departure, ModelReview, Question, WARM, Work, noise};
use overbank_kit::spread::median;
use overbank_kit::workload;
use std::sync::atomic::AtomicBool;

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
    let mut notes = Vec::new();
    if modelled.len() < cells.len() {
        let simulated = cells.len() - modelled.len();
        notes.push(format!("{simulated} of {} tables are only simulated. {ORDERED}", cells.len()));
    }
    // What luck explains is the worst only where there is nothing else.
    let distance =
        |&(cell, off): &(&Cell, f64)| off.abs() + f64::from(u8::from(off.abs() >= cell.tolerance));
    let worst = modelled.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut departure = None;
    if let Some(&(cell, off)) = worst {
        let predicted = cell.measured - off;
        let lenient = modelled.iter().map(|(cell, _)| cell.tolerance).fold(A_POINT, f64::max);
        notes.push(format!(
            "{within_a_point} of {} predictions are within a point of the tables, {within_tolerance} \
             within what the luck of one set of keys explains (three standard deviations, at most \
             {:.1} points). Farthest off: {} with {} entries, {:.2} % predicted, {:.2} % measured.",
            modelled.len(),
            lenient * 100.0,
            cell.design,
            cell.entries,
            predicted * 100.0,
            cell.measured * 100.0
        ));
        let mut shuffled = None;
        let mut left = off;
        let design = question.designs.iter().find(|d| d.to_string() == cell.design);
        if let (Some(trace), Some(&design)) = (work.borrowed, design)
            && within_tolerance < modelled.len()
        {
            let ids = workload::shuffled(trace.ids().to_vec(), question.seed);
            let sequence = Sequence { ids: &ids, hashes: Some(trace.hashes()) };
            match simulate(design, cell.entries, sequence, 0, usize::MAX, question.seed, stop) {
                Ok(random) => {
                    shuffled = Some(random.hit_rate);
                    left = random.hit_rate - predicted;
                    notes.push(order(cell.measured, random.hit_rate, profile));
                    notes.extend(drift(profile, &profile_of(&ids, work.flows, &[])));
                }
                Err(AdviseError::Stopped) => {}
                Err(error) => return Err(error),
            }
        }
        if left.abs() >= cell.tolerance {
            let per_flow = profile.packets as f64 / profile.flows.max(1) as f64;
            notes.push(format!(
                "Where the order of the packets does not matter, {:+.2} points are left between the \
                 table and the model. With fewer than {WARM} packets per flow or slot ({:.1} here) a \
                 table has not reached the stationary state that the model describes; with several \
                 buckets a key and α near 1 ({:.2} here) the last free slots fill slowly; what is \
                 neither is the error of the model, or uncommon luck with the keys.",
                left * 100.0,
                per_flow * cell.alpha.max(1.0),
                cell.alpha
            ));
        }
        let (design, entries, measured) = (cell.design.clone(), cell.entries, cell.measured);
        departure = Some(Departure { design, entries, predicted, measured, shuffled });
    }
    Ok(ModelReview {
        cells: modelled.len(),
        within_a_point,
        within_tolerance,
        worst: departure,
        notes,
    })
}

/// Why some tables are only simulated.
const ORDERED: &str = "With skew the model knows random eviction alone: a policy that promotes puts a \
                       flow where its last neighbours let it, so that what is in a bucket depends on \
                       the order of the packets and not on popularity alone, and sums like the model's \
                       do not exist; and it takes long to settle, as the measured rates do.";

/// What the order of the packets does: the same packets in random order beside the trace.
fn order(measured: f64, shuffled: f64, profile: &Profile) -> String {
    let window = profile.windows.first().map_or(0, |w| w.packets);
    format!(
        "The same packets in random order hit {:.2} %: their order is worth {:+.2} points, of which up to \
         {:.2} either way may be chance. More is temporal locality, packets of a flow that come close \
         together: a window of {window} packets has {:.0} of the {} flows (median). Less is flows that \
         come back later than by chance, as in scans, or not at all.",
        shuffled * 100.0,
        (measured - shuffled) * 100.0,
        (100.0 * noise::difference(shuffled, profile.packets)).max(0.5),
        median(profile.windows.iter().map(|w| w.distinct as f64)),
        profile.flows
    )
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
