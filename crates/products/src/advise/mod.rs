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
//! *The rule.* The estimated time a packet is hit cost, policy and second line ([`calibrate`]) +
//! share of misses × what a miss costs more. The size is that of the smallest table within 2 % of
//! the best estimate. Of that size the designs within 2 % of the best estimate and those of the
//! lab's short list are tried on this traffic (`trial.rs`), unless costs are to be taken from a
//! table. Recommended is, of those within 2 % of the fastest, the design that the lab recommends
//! for any traffic ([`RECOMMENDED`](overbank_kit::recommended::RECOMMENDED)), or the one that hits
//! most often. Where it is another, the reason says what that one would cost.
//!
//! *Sizes* go up to four times the flows, at most 2²⁶ entries, and with drawn traffic no farther
//! than the packets drawn can warm a table up. Where that ends them, the reason says so if it
//! matters.
//!
//! *Measured* is the hit rate of the real tables on the same sequence: a trace once from empty
//! tables on, so that first packets count as misses; drawn traffic after a warm-up. *Predicted* is
//! [`overbank_models::predict`]'s, from how often each flow came and from nothing else: it does not
//! know in which order. They may differ by a point, and in small tables by as much as the luck of
//! one set of keys has it (`noise.rs`). Where they differ by more, the packets of the trace in
//! random order show whether it is the order that matters.

pub mod calibrate;
mod noise;
pub mod page;
pub mod profile;
pub mod record;
mod review;
pub mod rule;
pub mod simulate;
mod trial;

use crate::TrafficSource;
use overbank::cache::{CacheError, Config, Design, PolicyKind};
use overbank_kit::workload::{FlowStream, Trace};
use overbank_models::law::Law;
use overbank_models::predict::Model;
use profile::profile;
pub use record::{Advice, Cell, Costs, Departure, ModelReview, Recommendation, SCHEMA, State};
use review::review;
use rule::recommend;
use simulate::{Sequence, Simulated, simulate};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Smallest and largest size looked at, as powers of two.
pub const SIZES_LOG2: std::ops::RangeInclusive<u32> = 10..=26;
/// Slots, of 6 bytes, of all tables that are simulated at the same time.
const SLOTS_AT_ONCE_MAX: usize = 1 << 29;
/// Packets per slot or flow, whichever are fewer, before drawn traffic is measured.
const WARM: usize = 40;
/// Packets drawn per slot or flow, whichever are fewer, without which a size is not looked at.
const DRAWN_MIN: usize = 6;
const MEASURED: usize = 1_000_000;
/// Flows per slot where the last free slots are found slowly.
const NEAR_ONE: std::ops::RangeInclusive<f64> = 0.75..=1.25;
/// Model and table agree when they are no farther apart, or no farther than luck has them.
const A_POINT: f64 = 0.01;
const DRAWN_MAX: usize = 1 << 26;

#[derive(Clone, Debug)]
pub struct Question {
    pub designs: Vec<Design>,
    pub costs: Costs,
    /// Seed of evictions, and of the hashes of drawn flows.
    pub seed: u64,
}

#[derive(Clone, Copy)]
pub enum Input<'a> {
    Trace(&'a Trace),
    /// Drawn from a law, from the start of the stream on.
    Drawn {
        stream: &'a FlowStream,
        theta: f64,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    #[error("no design to choose from: name at least one with --cache")]
    NoDesign,
    #[error("no packets to look at")]
    NoPackets,
    #[error("{design}: {reason}")]
    Table { design: String, reason: CacheError },
    #[error("stopped before there was an answer")]
    Stopped,
}

struct Work<'a> {
    ids: Cow<'a, [u32]>,
    /// Of a trace; none of drawn traffic.
    hashes: Option<&'a [u64]>,
    law: Law,
    /// Whether all flows are about as popular.
    even: bool,
    flows: usize,
    times_ns: &'a [u64],
}

impl<'a> Work<'a> {
    fn of(input: Input<'a>) -> Work<'a> {
        let (ids, hashes, law, flows, times_ns) = match input {
            Input::Trace(trace) => {
                let hashes = trace.hashes();
                let mut counts = vec![0u32; hashes.len()];
                trace.ids().iter().for_each(|&id| counts[id as usize] += 1);
                let law = Law::counted(&counts);
                (Cow::from(trace.ids()), Some(hashes), law, hashes.len(), trace.times_ns())
            }
            Input::Drawn { stream, theta } => {
                let flows = stream.flows() as usize;
                let packets = flows.saturating_mul(WARM).saturating_add(MEASURED.max(flows));
                let mut ids = vec![0; packets.min(DRAWN_MAX)];
                stream.clone().fill(&mut ids);
                (Cow::from(ids), None, Law::zipf(stream.flows(), theta), flows, &[][..])
            }
        };
        // A packet's flow is on average less than a tenth more popular than a flow.
        let even = law.per_packet(|weight| weight) < 1.1;
        Work { ids, hashes, law, even, flows, times_ns }
    }

    fn sequence(&self) -> Sequence<'_> {
        Sequence { ids: &self.ids, hashes: self.hashes }
    }

    /// Returns the sizes looked at: of drawn traffic those that the packets warm up.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        let enough = if self.hashes.is_some() { usize::MAX } else { self.ids.len() / DRAWN_MIN };
        let flows = self.flows;
        sizes(flows).take_while(move |&entries| flows.min(entries) <= enough)
    }

    /// Returns the largest size looked at, if there are flows for a larger one.
    fn cut_at(&self) -> Option<usize> {
        self.sizes().last().filter(|&entries| entries < self.flows.saturating_mul(4))
    }

    /// Returns the packets before and in the measurement of a table.
    fn span(&self, entries: usize) -> (usize, usize) {
        if self.hashes.is_some() {
            return (0, usize::MAX);
        }
        let warm = self.flows.min(entries).saturating_mul(WARM);
        let measured = MEASURED.max(self.flows.min(entries));
        (warm.min(self.ids.len().saturating_sub(measured)), measured)
    }

    /// Predicts the hit rate where the model knows the policy.
    fn predicted(
        &self,
        design: Design,
        entries: usize,
        (warm, measured): (usize, usize),
    ) -> Option<f64> {
        let flows = self.law.flows();
        let alpha = flows / entries as f64;
        let known = match design.policy() {
            PolicyKind::Random => true,
            // Without skew all policies end where random eviction does. A policy that always evicts
            // the last slot takes much longer to find the last free ones of several buckets.
            PolicyKind::HalfBubble => self.even,
            _ => {
                let one_bucket = design.geometry().name().starts_with("set");
                self.even && (one_bucket || !NEAR_ONE.contains(&alpha))
            }
        };
        known.then(|| {
            let model = Model::new(design.geometry(), entries, &self.law);
            match self.hashes {
                Some(_) => model.hit_rate_once(self.ids.len() as f64 / flows),
                None => model.hit_rate(warm as f64 / flows, (warm + measured) as f64 / flows),
            }
        })
    }

    fn cell(
        &self,
        question: &Question,
        design: Design,
        entries: usize,
        stop: &AtomicBool,
    ) -> Result<Cell, AdviseError> {
        let span = self.span(entries);
        let Simulated { hit_rate, full, .. } =
            simulate(design, entries, self.sequence(), span.0, span.1, question.seed, stop)?;
        let table = design
            .build(&Config::entries(entries).seed(question.seed))
            .map_err(|reason| AdviseError::Table { design: design.to_string(), reason })?;
        let state = State { hit_rate, full, even: self.even };
        let packets = self.ids.len().saturating_sub(span.0).min(span.1);
        let noise =
            noise::hit_rate(design.geometry(), entries, self.law.flows(), hit_rate, packets);
        Ok(Cell {
            design: design.to_string(),
            entries,
            table_bytes: table.memory_bytes(),
            alpha: self.law.flows() / entries as f64,
            predicted: self.predicted(design, entries, span),
            tolerance: noise.max(A_POINT),
            measured: hit_rate,
            ns_per_packet: question.costs.estimate(design, state),
            lookup_ns: None,
        })
    }
}

/// Returns sizes worth looking at: up to four times the flows, where every design holds nearly all.
pub fn sizes(flows: usize) -> impl Iterator<Item = usize> {
    let (first, last) = (*SIZES_LOG2.start(), *SIZES_LOG2.end());
    let enough = flows.saturating_mul(4).max(1).checked_next_power_of_two();
    let enough = enough.map_or(last, |n| n.trailing_zeros().clamp(first, last));
    (first..=enough).map(|log2| 1 << log2)
}

/// Advises. `progress` gets what was done last and the share done. `stop` ends it early: the advice
/// is then of the designs and sizes done until then, and an error if there are none. `pin` is
/// called on this thread before it times anything; before that, threads are started that must not
/// be pinned.
pub fn run(
    question: &Question,
    input: Input<'_>,
    traffic: TrafficSource,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
    pin: &mut dyn FnMut(),
) -> Result<Advice, AdviseError> {
    if question.designs.is_empty() {
        return Err(AdviseError::NoDesign);
    }
    progress("looking at the traffic", 0.0);
    let work = Work::of(input);
    if work.ids.is_empty() {
        return Err(AdviseError::NoPackets);
    }
    // Of drawn traffic, a part says as much as all.
    let part = work.flows.max(100_000).saturating_mul(20).min(work.ids.len());
    let ids = if work.hashes.is_some() { &work.ids } else { &work.ids[..part] };
    let profile = profile(ids, work.flows, work.times_ns);
    let (mut cells, interrupted) = all_cells(question, &work, stop, progress)?;
    let size = rule::size(&cells);
    if question.costs.calibrated && !interrupted {
        progress("trying the best of them", 1.0);
        pin();
        trial::tried(question, &work, &mut cells, size.entries, stop);
    }
    let recommendation = recommend(&cells, &size, work.cut_at());
    let model = review(question, &work, &profile, &cells, stop)?;
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
        interrupted,
    })
}

/// Runs every design at every size, on all cores: hit rates do not depend on other load. Also
/// whether that was ended before the last of them.
fn all_cells(
    question: &Question,
    work: &Work<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<(Vec<Cell>, bool), AdviseError> {
    // By size, so that what was done when it is ended can be compared.
    let jobs: Vec<(Design, usize)> = work
        .sizes()
        .flat_map(|entries| question.designs.iter().map(move |&design| (design, entries)))
        .collect();
    let next = AtomicUsize::new(0);
    let largest = work.sizes().last().unwrap_or(1);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.min(jobs.len()).min(SLOTS_AT_ONCE_MAX / largest);
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
                    let cell = work.cell(question, design, entries, stop);
                    let failed = cell.is_err();
                    if sender.send((at, cell)).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (done, (at, cell)) in receiver.into_iter().enumerate() {
            let cell = match cell {
                Err(AdviseError::Stopped) => continue,
                cell => cell?,
            };
            progress(
                &format!("{} × {}", cell.design, cell.entries),
                done as f64 / jobs.len() as f64,
            );
            cells[at] = Some(cell);
        }
        Ok::<_, AdviseError>(())
    })?;
    let mut done: Vec<Cell> = cells.into_iter().flatten().collect();
    if done.is_empty() {
        return Err(AdviseError::Stopped);
    }
    // A table in the order in which the designs were named.
    let name = |cell: &Cell| question.designs.iter().position(|d| d.to_string() == cell.design);
    done.sort_by_key(name);
    let interrupted = done.len() < jobs.len();
    Ok((done, interrupted))
}

pub fn size_text(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{:.1} KiB", b as f64 / 1024.0),
    }
}

#[cfg(test)]
mod tests;
