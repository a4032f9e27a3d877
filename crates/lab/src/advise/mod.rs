//! `overbank advise`: which flow cache for this traffic?
//!
//! ```text
//!  capture, live sample, law ─▶ sequence of flows ─▶ profile         flows, working set, skew
//!                                      │
//!                    ┌─────────────────┴──────────────┐
//!              real tables                          model            every design × every size
//!                measured                         predicted
//!                    └────────────┬───────────────────┘
//!                 estimated time a packet ─▶ recommendation ─▶ where the model is off, and why
//! ```
//!
//! *The rule.* The estimated time a packet is hit cost + share of misses × what a miss costs more.
//! Recommended is the smallest table within 2 % of the best estimate, by bytes; among equals the
//! fastest.
//!
//! *Measured* is the hit rate of the real tables on the same sequence: a trace once from empty
//! tables on, so that first packets count as misses; drawn traffic after a warm-up. *Predicted* is
//! [`predict`]'s, from how often each flow came and from nothing else: it does not know in which
//! order. Where the two differ, the packets of the trace in random order tell whether it is the
//! order that matters.

pub mod law;
pub mod page;
pub mod predict;
pub mod profile;
pub mod record;
pub mod simulate;

use crate::workload::{FlowStream, Trace};
use law::Law;
use overbank::cache::{Design, Error, LayoutKind, PolicyKind};
use predict::Model;
use profile::{Profile, profile};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;
pub use record::{
    Advice, Cell, Costs, Departure, ModelReview, Recommendation, SCHEMA, TrafficSource,
};
use simulate::{Sequence, hit_rate};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Smallest and largest size looked at, as powers of two.
pub const SIZES_LOG2: std::ops::RangeInclusive<u32> = 10..=22;
/// A size within this factor of the best estimate is good enough.
const GOOD_ENOUGH: f64 = 1.02;
/// Packets per slot or flow, whichever are fewer, before drawn traffic is measured.
const WARM: usize = 40;
/// Packets measured of drawn traffic, at least.
const MEASURED: usize = 1_000_000;
/// Most packets drawn.
const DRAWN_MAX: usize = 1 << 26;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Designs to choose from.
    pub designs: Vec<Design>,
    /// What packets cost.
    pub costs: Costs,
    /// Seed of evictions.
    pub seed: u64,
}

/// Traffic to advise on.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// A capture or a live sample.
    Trace(&'a Trace),
    /// Drawn from a law, from the start of the stream on.
    Drawn {
        /// The sequence.
        stream: &'a FlowStream,
        /// The skew that it was made with.
        theta: f64,
    },
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// No designs.
    #[error("no design to choose from: name at least one")]
    NoDesign,
    /// No packets.
    #[error("no packets to look at")]
    NoPackets,
    /// A table cannot be made.
    #[error("{design}: {reason}")]
    Table {
        /// Whose.
        design: String,
        /// Why.
        reason: Error,
    },
    /// Ctrl-C.
    #[error("stopped before there was an answer")]
    Stopped,
}

/// The sequence to simulate, and what the model knows of it.
struct Work<'a> {
    ids: Vec<u32>,
    borrowed: Option<&'a Trace>,
    law: Law,
    flows: usize,
    times_ns: &'a [u64],
}

impl<'a> Work<'a> {
    fn of(input: Input<'a>) -> Work<'a> {
        match input {
            Input::Trace(trace) => {
                let flows = trace.hashes().len();
                let mut counts = vec![0u32; flows];
                trace.ids().iter().for_each(|&id| counts[id as usize] += 1);
                let law = Law::counted(&counts);
                let times_ns = trace.times_ns();
                Work { ids: Vec::new(), borrowed: Some(trace), law, flows, times_ns }
            }
            Input::Drawn { stream, theta } => {
                let flows = stream.flows() as usize;
                let packets = flows.saturating_mul(WARM).saturating_add(MEASURED.max(flows));
                let mut ids = vec![0; packets.min(DRAWN_MAX)];
                stream.clone().fill(&mut ids);
                let law = Law::zipf(stream.flows(), theta);
                Work { ids, borrowed: None, law, flows, times_ns: &[] }
            }
        }
    }

    fn sequence(&self) -> Sequence<'_> {
        match self.borrowed {
            Some(trace) => Sequence { ids: trace.ids(), hashes: Some(trace.hashes()) },
            None => Sequence { ids: &self.ids, hashes: None },
        }
    }

    /// Packets before and in the measurement of a table.
    fn span(&self, entries: usize) -> (usize, usize) {
        if self.borrowed.is_some() {
            return (0, usize::MAX);
        }
        let warm = self.flows.min(entries).saturating_mul(WARM);
        let measured = MEASURED.max(self.flows.min(entries));
        (warm.min(self.ids.len().saturating_sub(measured)), measured)
    }

    fn cell(
        &self,
        question: &Question,
        design: Design,
        entries: usize,
    ) -> Result<Cell, AdviseError> {
        let (warm, measured) = self.span(entries);
        let rate = hit_rate(design, entries, self.sequence(), warm, measured, question.seed)?;
        let random = design.policy() == PolicyKind::Random;
        let model = Model::new(design.geometry(), entries, &self.law).filter(|_| random);
        let flows = self.law.flows();
        let predicted = model.map(|model| match self.borrowed {
            Some(trace) => model.hit_rate_once(trace.ids().len() as f64 / flows),
            None => model.hit_rate(warm as f64 / flows, (warm + measured) as f64 / flows),
        });
        let table = design
            .build(entries, LayoutKind::Fp16V16, question.seed, None)
            .map_err(|reason| AdviseError::Table { design: design.to_string(), reason })?;
        Ok(Cell {
            design: design.to_string(),
            entries,
            table_bytes: table.memory_bytes(),
            alpha: flows / entries as f64,
            predicted,
            measured: rate,
            ns_per_packet: question.costs.estimate(design, rate),
        })
    }
}

/// Sizes worth looking at: larger ones than four times the flows hold nothing more.
pub fn sizes(flows: usize) -> impl Iterator<Item = usize> {
    let (first, last) = (*SIZES_LOG2.start(), *SIZES_LOG2.end());
    let enough = flows.saturating_mul(4).max(1).checked_next_power_of_two();
    let enough = enough.map_or(last, |n| n.trailing_zeros().clamp(first, last));
    (first..=enough).map(|log2| 1 << log2)
}

/// Advises. `progress` gets what was done last and the share done; `stop` ends it with an error.
pub fn run(
    question: &Question,
    input: Input<'_>,
    traffic: TrafficSource,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Advice, AdviseError> {
    if question.designs.is_empty() {
        return Err(AdviseError::NoDesign);
    }
    progress("looking at the traffic", 0.0);
    let work = Work::of(input);
    if work.sequence().ids.is_empty() {
        return Err(AdviseError::NoPackets);
    }
    // Of drawn traffic, a part says as much as all.
    let ids = work.sequence().ids;
    let part = work.flows.max(100_000).saturating_mul(20).min(ids.len());
    let ids = if work.borrowed.is_some() { ids } else { &ids[..part] };
    let profile = profile(ids, work.flows, work.times_ns);
    let cells = all_cells(question, &work, stop, progress)?;
    let recommendation = recommend(&cells);
    let model = review(question, &work, &profile, &cells)?;
    Ok(Advice {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        traffic,
        profile,
        costs: question.costs,
        seed: question.seed,
        cells,
        recommendation,
        model,
    })
}

/// Every design at every size, on all cores: hit rates do not depend on who else is running.
fn all_cells(
    question: &Question,
    work: &Work<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Vec<Cell>, AdviseError> {
    let jobs: Vec<(Design, usize)> = question
        .designs
        .iter()
        .flat_map(|&design| sizes(work.flows).map(move |entries| (design, entries)))
        .collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let mut cells: Vec<Option<Cell>> = vec![None; jobs.len()];
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, jobs, next) = (sender.clone(), &jobs, &next);
            scope.spawn(move || {
                // The largest first, so that the cores end together.
                while let Some(at) =
                    jobs.len().checked_sub(next.fetch_add(1, Ordering::Relaxed) + 1)
                {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (design, entries) = jobs[at];
                    let cell = work.cell(question, design, entries);
                    let failed = cell.is_err();
                    if sender.send((at, cell)).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (done, (at, cell)) in receiver.into_iter().enumerate() {
            let cell = cell?;
            progress(
                &format!("{} × {}", cell.design, cell.entries),
                done as f64 / jobs.len() as f64,
            );
            cells[at] = Some(cell);
        }
        Ok(())
    })?;
    cells.into_iter().collect::<Option<Vec<_>>>().ok_or(AdviseError::Stopped)
}

/// A number of bytes for people.
pub fn size_text(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{:.1} KiB", b as f64 / 1024.0),
    }
}

/// The rule. There is at least one cell.
fn recommend(cells: &[Cell]) -> Recommendation {
    let fastest = |cells: &mut dyn Iterator<Item = &Cell>| {
        cells.min_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet)).cloned()
    };
    let best = fastest(&mut cells.iter()).expect("at least one design at one size");
    let good = |cell: &&Cell| cell.ns_per_packet <= best.ns_per_packet * GOOD_ENOUGH;
    let entries = cells.iter().filter(good).map(|c| c.entries).min().unwrap_or(best.entries);
    let chosen = fastest(&mut cells.iter().filter(good).filter(|c| c.entries == entries))
        .unwrap_or(best.clone());
    let mut reason = format!(
        "{} with {} entries hits {:.2} % and costs an estimated {:.1} ns a packet",
        chosen.design,
        chosen.entries,
        chosen.measured * 100.0,
        chosen.ns_per_packet
    );
    if (&chosen.design, chosen.entries) == (&best.design, best.entries) {
        reason += ", the best of all";
    } else {
        reason += &format!(
            ", within 2 % of the best ({} with {} entries, {:.1} ns)",
            best.design, best.entries, best.ns_per_packet
        );
    }
    match fastest(&mut cells.iter().filter(|c| c.entries * 2 == entries)) {
        Some(half) => {
            let more = (half.ns_per_packet / best.ns_per_packet - 1.0) * 100.0;
            let (design, rate) = (&half.design, half.measured * 100.0);
            reason += &format!(
                "; with half the entries, {design} would hit {rate:.2} % and be {more:.0} % slower than the best."
            );
        }
        None => reason += "; no smaller size was looked at.",
    }
    Recommendation {
        design: chosen.design,
        entries,
        table_bytes: chosen.table_bytes,
        hit_rate: chosen.measured,
        ns_per_packet: chosen.ns_per_packet,
        reason,
    }
}

/// The same packets in random order.
fn shuffled(ids: &[u32], seed: u64) -> Vec<u32> {
    let mut rng = Pcg32::new(seed, 0x0b4e_6ba6);
    let mut ids = ids.to_vec();
    for i in (1..ids.len()).rev() {
        let j = ((u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64) as usize;
        ids.swap(i, j);
    }
    ids
}

fn review(
    question: &Question,
    work: &Work<'_>,
    profile: &Profile,
    cells: &[Cell],
) -> Result<ModelReview, AdviseError> {
    let off = |cell: &Cell| cell.predicted.map(|p| 100.0 * (cell.measured - p));
    let predicted = cells.iter().filter(|c| c.predicted.is_some()).count();
    let within = cells.iter().filter(|c| off(c).is_some_and(|o| o.abs() < 1.0)).count();
    let distance = |c: &&Cell| off(c).map_or(-1.0, f64::abs);
    let worst = cells.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut notes = Vec::new();
    let mut departure = None;
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
                    let rate =
                        hit_rate(design, cell.entries, sequence, 0, usize::MAX, question.seed)?;
                    found.shuffled = Some(rate);
                    notes.extend(explain(&found, rate, profile));
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

#[cfg(test)]
mod tests;
