//! `overbank sdc`: one point of a design of a cache, with an index, beside the regular machine.
//!
//! ```text
//!  Plan ─▶ arguments ─▶ overbank-workloads (a process a point) ─▶ Outcome ─▶ Comparison: JSON
//!                                                                               │
//!                                                              tables, page ◀───┘
//! ```
//!
//! Points are simulated, not timed: the two run at the same time, and one machine says the same as
//! another.

pub mod page;
pub mod point;
pub mod program;
pub mod record;

use overbank_sdc::bits::{STATUS_BITS, cost};
use point::{Modes, Outcome};
use program::{Program, SdcError};
use record::{BitsRecord, Comparison, SCHEMA};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Indexes of the program, and what they are.
pub const INDEXES: [(&str, &str); 9] = [
    ("lmdb", "LMDB, pages of 512 bytes, one read transaction"),
    ("hash", "Chained hash table, as memcached's"),
    ("bplus", "B+ tree of fanout 20"),
    ("btreemap", "std's BTreeMap"),
    ("masstree", "B+ tree of Masstree's node width and version checks: one layer"),
    ("skipmap", "crossbeam's SkipMap"),
    ("redb", "redb in memory, one read transaction"),
    ("congee", "An adaptive radix tree"),
    ("tree", "Overbank's ordered map"),
];

/// Systems in front of an index, and what they are.
pub const SYSTEMS: [(&str, &str); 7] = [
    ("regular", "Nothing"),
    ("sdc", "The software defined cache in the last-level cache, of items' addresses"),
    ("sdc-values", "The same of keys and values: --read 8, 24 or 56"),
    ("slb", "A look-aside buffer in software, of items' addresses"),
    ("slb-items", "The same with copies of the items"),
    ("copies", "Overbank's look-aside table"),
    ("hints", "Overbank's hints; with the index tree only"),
];

/// Between two reports of progress.
const LOOK: Duration = Duration::from_millis(100);

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub index: String,
    pub system: String,
    /// Arguments of the program for both points.
    pub common: Vec<String>,
    /// Further arguments of the point that the regular machine does not take.
    pub further: Vec<String>,
    /// Leaves the regular machine out.
    pub alone: bool,
}

impl Plan {
    fn has_regular(&self) -> bool {
        !self.alone && self.system != "regular"
    }

    fn arguments(&self, system: &str, further: &[String]) -> Vec<String> {
        let head = ["run", "--index", &self.index, "--system", system].map(str::to_owned);
        head.iter().chain(&self.common).chain(further).cloned().collect()
    }
}

/// Runs a plan. `progress` gets what runs, and the share that is done.
///
/// # Errors
/// Fails with the first point that has no outcome, the regular one last.
pub fn run(
    program: &Program,
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Comparison, SdcError> {
    let mut points = vec![plan.arguments(&plan.system, &plan.further)];
    if plan.has_regular() {
        points.push(plan.arguments("regular", &[]));
    }
    let failed = AtomicBool::new(false);
    let stopped = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    let (sender, ended) = channel();
    let mut outcomes: Vec<Option<Result<Outcome, SdcError>>> =
        points.iter().map(|_| None).collect();
    let started = Instant::now();
    thread::scope(|scope| {
        for (at, arguments) in points.iter().enumerate() {
            let (sender, stopped, failed) = (sender.clone(), &stopped, &failed);
            scope.spawn(move || {
                let outcome = program.run(arguments, stopped);
                // The other point is worth nothing without this one.
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                // The receiver outlives the scope.
                _ = sender.send((at, outcome));
            });
        }
        drop(sender);
        loop {
            let done = outcomes.iter().filter(|outcome| outcome.is_some()).count();
            let seconds = started.elapsed().as_secs();
            let what = format!("{}, {}: {seconds} s", plan.index, plan.system);
            progress(&what, done as f64 / points.len() as f64);
            match ended.recv_timeout(LOOK) {
                Ok((at, outcome)) => outcomes[at] = Some(outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    if stop.load(Ordering::Relaxed) {
        return Err(SdcError::Stopped);
    }
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome.unwrap_or(Err(SdcError::Stopped)) {
            Ok(outcome) => found.push(outcome),
            Err(error) => errors.push(error),
        }
    }
    // A point that was stopped gave way to the error of the other.
    let why = errors.iter().position(|error| !matches!(error, SdcError::Stopped));
    if !errors.is_empty() {
        return Err(errors.swap_remove(why.unwrap_or(0)));
    }
    let mut found = found.into_iter();
    let point = found.next().ok_or(SdcError::Stopped)?;
    compare(plan, point, found.next())
}

/// Puts two points side by side.
///
/// # Errors
/// One of them is of another index or system than the plan's.
pub fn compare(
    plan: &Plan,
    point: Outcome,
    regular: Option<Outcome>,
) -> Result<Comparison, SdcError> {
    let wanted = [(Some(&point), plan.system.as_str()), (regular.as_ref(), "regular")];
    for (of, system) in wanted {
        let other = of.filter(|of| of.index != plan.index || of.system != system);
        if let Some(of) = other {
            let what = format!("a point of {}, {}", of.index, of.system);
            return Err(SdcError::Printed(what));
        }
    }
    let gain =
        regular.as_ref().map(|regular| point.lookups_per_second.over(&regular.lookups_per_second));
    Ok(Comparison {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        gain,
        bits: bits(&point),
        point,
        regular,
    })
}

/// Returns what SDC costs in bits; `None` without SDC.
fn bits(point: &Outcome) -> Option<BitsRecord> {
    let (llc, sdc) = (&point.shape.llc, point.shape.sdc.as_ref()?);
    let line = cost(llc, sdc, 64 / sdc.slots.max(1), STATUS_BITS)?;
    let extra_bytes = i64::from(line.extra) * (llc.bytes / 64) as i64 / 8;
    Some(BitsRecord { line, extra_bytes })
}

/// Returns the gains by name.
pub fn gains(gain: &Modes) -> [(&'static str, f64); 3] {
    point::MODES.map(|(name, mode)| (name, mode(gain)))
}

#[cfg(test)]
mod tests;
