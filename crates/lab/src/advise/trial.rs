//! The last word on the design: the best by estimate are tried, with this traffic, at the size that
//! was chosen, on this machine.
//!
//! An estimate adds up what promotion and a second line cost in tables of other sizes
//! ([`calibrate`](super::calibrate)). What they cost in the table in question depends on where it
//! lies in the caches, and on how many lines the machine fetches at a time: too much for a rule. So
//! the lookups themselves are timed ([`micro::sequence`]). The cheapest of those tried stands for
//! [`Costs::hit_ns`](super::Costs::hit_ns), and what another costs more is added.

use super::{Cell, Question, Work};
use crate::experiment::LabError;
use crate::micro::keys::Keys;
use crate::micro::sequence::{self, KEYS_MIN};
use crate::recommended::SHORTLIST;
use overbank::cache::Design;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most designs tried.
const TRIED_MAX: usize = 5;
/// Worth a trial: estimates up to this factor of the best.
const NEAR: f64 = 1.25;
/// Most packets for it, of the end of the sequence.
const PACKETS_MAX: usize = 1 << 23;

/// Tries the best of the cells with `entries` slots: their `lookup_ns` is then known, and
/// `ns_per_packet` follows from it. Nothing happens with fewer packets than [`KEYS_MIN`], or with one
/// design.
pub(super) fn tried(
    question: &Question,
    work: &Work<'_>,
    cells: &mut [Cell],
    entries: usize,
    stop: &AtomicBool,
) {
    let sequence = work.sequence();
    let mut near: Vec<&mut Cell> = cells.iter_mut().filter(|c| c.entries == entries).collect();
    near.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    let limit = near.first().map_or(0.0, |best| best.ns_per_packet * NEAR);
    near.retain(|cell| cell.ns_per_packet <= limit);
    // Those of the short list first, then by estimate.
    near.sort_by_key(|cell| !SHORTLIST.contains(&&*cell.design));
    near.truncate(TRIED_MAX);
    if near.len() < 2 || sequence.ids.len() < KEYS_MIN {
        return;
    }
    let design = |cell: &&mut Cell| question.designs.iter().find(|d| d.to_string() == cell.design);
    let designs: Vec<Design> = near.iter().filter_map(design).copied().collect();
    let last = &sequence.ids[sequence.ids.len().saturating_sub(PACKETS_MAX)..];
    let mut keys = Keys::default();
    keys.set_hashed(last.iter().map(|&id| (id, sequence.hash(id, question.seed))));
    let mut step = || match stop.load(Ordering::Relaxed) {
        true => Err(LabError::Stopped),
        false => Ok(()),
    };
    let timed = match sequence::lookup_ns(&designs, entries, &keys, question.seed, &mut step) {
        Ok(Some(timed)) if timed.len() == near.len() => timed,
        // Stopped, or no memory for all of them at once: the estimates stand.
        _ => return,
    };
    let least = timed.iter().copied().fold(f64::INFINITY, f64::min);
    for (cell, ns) in near.into_iter().zip(timed) {
        cell.lookup_ns = Some(ns);
        let misses = (1.0 - cell.measured) * question.costs.miss_ns;
        cell.ns_per_packet = question.costs.hit_ns + (ns - least) + misses;
    }
}

#[cfg(test)]
mod tests {
    use crate::advise::{Advice, Costs, Input, Question, TrafficSource, run};
    use crate::micro::sequence::KEYS_MIN;
    use crate::workload::{FlowStream, Trace};
    use std::sync::atomic::AtomicBool;

    const DESIGNS: [&str; 7] = [
        "set-4",
        "set-8",
        "set-16",
        "blp-2-16",
        "cuckoo-2-16+half-bubble",
        "set-16+pblru",
        "set-4+pblru",
    ];

    fn advice(input: Input<'_>, calibrated: bool) -> Advice {
        let designs = DESIGNS.map(|name| name.parse().unwrap()).to_vec();
        let costs = Costs { miss_ns: 1.0, calibrated, ..Costs::default() };
        let traffic = TrafficSource::BuiltIn { flows: 2000, theta: 0.9 };
        let stop = AtomicBool::new(false);
        run(&Question { designs, costs, seed: 1 }, input, traffic, &stop, &mut |_, _| ()).unwrap()
    }

    /// Timings are not asserted; that they decide is.
    #[test]
    fn the_fastest_of_those_tried_is_recommended() {
        let stream = FlowStream::zipf(2000, 0.9, 1).unwrap();
        let advice = advice(Input::Drawn { stream: &stream, theta: 0.9 }, true);
        let r = &advice.recommendation;
        let tried: Vec<_> = advice.cells.iter().filter(|c| c.lookup_ns.is_some()).collect();
        // A miss costs next to nothing, so all estimates are near; the short list comes first.
        assert_eq!(tried.len(), super::TRIED_MAX);
        assert!(tried.iter().all(|c| c.entries == r.entries));
        for name in ["cuckoo-2-16+half-bubble", "set-16+pblru", "set-16"] {
            assert!(tried.iter().any(|c| c.design == name), "{name}");
        }
        let lookup = |c: &&&super::Cell| c.lookup_ns.unwrap();
        let least = tried.iter().map(|c| lookup(&c)).fold(f64::INFINITY, f64::min);
        for cell in &tried {
            let costs = &advice.costs;
            let ns = costs.hit_ns + lookup(&cell) - least + (1.0 - cell.measured) * costs.miss_ns;
            assert!((cell.ns_per_packet - ns).abs() < 1e-9);
        }
        let chosen = tried.iter().find(|c| c.design == r.design).expect("one of those tried");
        let best = tried.iter().map(|c| c.ns_per_packet).fold(f64::INFINITY, f64::min);
        assert!(chosen.ns_per_packet <= best * 1.005);
        assert!(r.reason.contains("Tried here with this traffic"), "{}", r.reason);
    }

    #[test]
    fn nothing_is_tried_without_calibration_or_with_few_packets() {
        let stream = FlowStream::zipf(2000, 0.9, 1).unwrap();
        let without = advice(Input::Drawn { stream: &stream, theta: 0.9 }, false);
        assert!(without.cells.iter().all(|c| c.lookup_ns.is_none()));
        assert!(!without.recommendation.reason.contains("Tried"));
        let mut trace = Trace::default();
        for (at, id) in stream.take(KEYS_MIN - 1).enumerate() {
            trace.push_hash(overbank::cache::mix(u64::from(id)), at as u64);
        }
        let few = advice(Input::Trace(&trace), true);
        assert!(few.cells.iter().all(|c| c.lookup_ns.is_none()));
    }
}
