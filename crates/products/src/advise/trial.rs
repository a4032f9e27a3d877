//! The last word on the design: the best by estimate are tried, with this traffic, at the size that
//! was chosen, on this machine. Where the fastest of them turns out to cost more than another's
//! estimate, that one is tried with them, so that none is left that could be better.
//!
//! An estimate adds up what promotion and a second line cost in tables of other sizes
//! ([`calibrate`](super::calibrate)). What they cost in the table in question depends on where it
//! lies in the caches, and on how many lines the machine fetches at a time: too much for a rule. So
//! the lookups themselves are timed ([`micro::sequence`]). The cheapest of those tried stands for
//! [`Costs::hit_ns`](super::Costs::hit_ns), and what another costs more is added.

use super::rule::AS_GOOD;
use super::{Cell, Question, Work};
use overbank::cache::Design;
use overbank_kit::experiment::LabError;
use overbank_kit::micro::keys::Keys;
use overbank_kit::micro::sequence::{self, KEYS_MIN};
use overbank_kit::recommended::SHORTLIST;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most designs tried, and most bytes of their tables, which are there at the same time.
const TRIED_MAX: usize = 16;
const BYTES_MAX: usize = 2 << 30;
/// Designs of the short list are worth a trial with estimates up to this factor of the best; others
/// where they are as good.
const NEAR: f64 = 1.25;
/// Most packets for it, of the end of the sequence.
const PACKETS_MAX: usize = 1 << 23;

/// Tries the best of the cells with `entries` slots: their `lookup_ns` is then known, and
/// `ns_per_packet` follows from it. Nothing happens with fewer packets than [`KEYS_MIN`], or with
/// one design.
pub(super) fn tried(
    question: &Question,
    work: &Work<'_>,
    cells: &mut [Cell],
    entries: usize,
    stop: &AtomicBool,
) {
    let sequence = work.sequence();
    if sequence.ids.len() < KEYS_MIN {
        return;
    }
    let mut of_size: Vec<&mut Cell> = cells.iter_mut().filter(|c| c.entries == entries).collect();
    of_size.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    let Some(best) = of_size.first().map(|cell| cell.ns_per_packet) else { return };
    let place = |cell: &Cell| match cell.ns_per_packet / best {
        more if more <= NEAR && SHORTLIST.contains(&&*cell.design) => 0,
        more if more <= AS_GOOD => 1,
        _ => 2,
    };
    // Those to try come first, and of each kind the best.
    of_size.sort_by_key(|cell| place(cell));
    let bytes = of_size.iter().map(|c| c.table_bytes).max().unwrap_or(1);
    let most = TRIED_MAX.min(BYTES_MAX / bytes.max(1)).max(2).min(of_size.len());
    let mut count = of_size.iter().filter(|cell| place(cell) < 2).count().min(most);
    let last = &sequence.ids[sequence.ids.len().saturating_sub(PACKETS_MAX)..];
    let mut keys = Keys::default();
    keys.set_hashed(last.iter().map(|&id| (id, sequence.hash(id, question.seed))));
    let mut step = || match stop.load(Ordering::Relaxed) {
        true => Err(LabError::Stopped),
        false => Ok(()),
    };
    while count > 1 {
        let (tried, rest) = of_size.split_at_mut(count);
        let design = |c: &&mut Cell| question.designs.iter().find(|d| d.to_string() == c.design);
        let designs: Vec<Design> = tried.iter().filter_map(design).copied().collect();
        let timed = match sequence::lookup_ns(&designs, entries, &keys, question.seed, &mut step) {
            Ok(Some(timed)) if timed.len() == count => timed,
            // Stopped, or no memory for all of them at once: what is known stands.
            _ => return,
        };
        let least = timed.iter().copied().fold(f64::INFINITY, f64::min);
        for (cell, ns) in tried.iter_mut().zip(timed) {
            cell.lookup_ns = Some(ns);
            let misses = (1.0 - cell.measured) * question.costs.miss_ns;
            cell.ns_per_packet = question.costs.hit_ns + (ns - least) + misses;
        }
        let best = tried.iter().map(|c| c.ns_per_packet).fold(f64::INFINITY, f64::min);
        let better = rest.iter().take_while(|c| c.ns_per_packet < best).count();
        if better == 0 || count == most {
            return;
        }
        count = (count + better).min(most);
    }
}

#[cfg(test)]
mod tests {
    use crate::TrafficSource;
    use crate::advise::{Advice, Costs, Input, Question, run};
    use overbank_kit::micro::sequence::KEYS_MIN;
    use overbank_kit::workload::{FlowStream, Trace};
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
        let traffic = TrafficSource::drawn(2000, 0.9);
        let stop = AtomicBool::new(false);
        let question = Question { designs, costs, seed: 1 };
        let mut pinned = 0;
        let mut pin = || pinned += 1;
        let advice = run(&question, input, traffic, &stop, &mut |_, _| (), &mut pin).unwrap();
        assert_eq!(pinned, u32::from(calibrated));
        advice
    }

    /// Timings are not asserted; that they decide is.
    #[test]
    fn one_of_the_fastest_that_were_tried_is_recommended() {
        let stream = FlowStream::zipf(2000, 0.9, 1).unwrap();
        let advice = advice(Input::Drawn { stream: &stream, theta: 0.9 }, true);
        let r = &advice.recommendation;
        let tried: Vec<_> = advice.cells.iter().filter(|c| c.lookup_ns.is_some()).collect();
        assert!(tried.iter().all(|c| c.entries == r.entries));
        // Whatever its estimate made as good, and the short list.
        let estimated = self::advice(Input::Drawn { stream: &stream, theta: 0.9 }, false).cells;
        let estimated: Vec<_> = estimated.iter().filter(|c| c.entries == r.entries).collect();
        let best = estimated.iter().map(|c| c.ns_per_packet).fold(f64::INFINITY, f64::min);
        let as_good = estimated.iter().filter(|c| c.ns_per_packet <= best * 1.02);
        let names: Vec<&str> = as_good.map(|c| &*c.design).collect();
        assert!(names.len() > 3, "a miss costs next to nothing: {names:?}");
        for name in names.iter().chain(&["cuckoo-2-16+half-bubble", "set-16+pblru", "set-16"]) {
            assert!(tried.iter().any(|c| c.design == *name), "{name}");
        }
        let lookup = |c: &&&super::Cell| c.lookup_ns.unwrap();
        let least = tried.iter().map(|c| lookup(&c)).fold(f64::INFINITY, f64::min);
        for cell in &tried {
            let costs = &advice.costs;
            let ns = costs.hit_ns + lookup(&cell) - least + (1.0 - cell.measured) * costs.miss_ns;
            assert!((cell.ns_per_packet - ns).abs() < 1e-9);
        }
        let chosen = tried.iter().find(|c| c.design == r.design).expect("one of those tried");
        // Of the whole table: none that was not tried seems better.
        let of_size = advice.cells.iter().filter(|c| c.entries == r.entries);
        let best = of_size.map(|c| c.ns_per_packet).fold(f64::INFINITY, f64::min);
        assert!(chosen.ns_per_packet <= best * 1.02);
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
            trace.push_hash(overbank::hash::mix(u64::from(id)), at as u64);
        }
        let few = advice(Input::Trace(&trace), true);
        assert!(few.cells.iter().all(|c| c.lookup_ns.is_none()));
    }
}
