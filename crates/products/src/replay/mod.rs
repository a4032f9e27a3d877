//! `overbank replay`: the same traffic through the three tiers once for each design.
//!
//! ```text
//!  per design   first pass (cold caches, warm-up)
//!  then         round 1: design A, B, C … · round 2: A, B, C … · …      rates: median of rounds
//!  at last      one pass in which every burst is timed by itself: cost of a hit and of a miss
//!               and the lookups of tier 1 alone, which changes nothing and forwards nothing
//! ```
//!
//! Every design has its own place in the same sequence of frames. The designs take turns, because
//! the speed of a shared machine drifts. The clock runs only while the datapath has the frames:
//! making them ready before and digesting what came out after are not counted. Every chunk of
//! every design is digested, and one that differs from the first design's ends the replay.
//!
//! Source: Fast Software Cache Design for Network Appliances, section 7.2.

mod digests;
pub mod feed;
pub mod page;
pub mod record;
mod runner;
pub mod split;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod txlog;

use crate::TrafficSource;
use digests::Digests;
use feed::Source;
use overbank::cache::{Design, DesignError};
use overbank::isa::{Isa, IsaError};
use overbank_kit::machine::Machine;
use overbank_switch::datapath::ConfigError;
use overbank_switch::translate::Tables;
use record::{DesignRecord, Replay, SCHEMA, Settings, Totals};
use runner::{Runner, describe, runner};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rules for a capture that comes without any.
pub const CAPTURE_RULES: &str = include_str!("capture.rules");

/// Packets that a round has at least, unless the caller wants otherwise.
const ROUND_PACKETS: u64 = if cfg!(test) { 10_000 } else { 2_000_000 };

/// One contestant: a signature cache, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// No tier 1: every packet goes to the megaflow cache.
    None,
    Cache(Design),
    /// The same, on a given instruction set: `set-4@portable`.
    CacheOn(Design, Isa),
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ContestantError {
    #[error(transparent)]
    Design(#[from] DesignError),
    #[error(transparent)]
    Isa(#[from] IsaError),
}

impl std::fmt::Display for Contestant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contestant::None => f.pad("none"),
            Contestant::Cache(design) => f.pad(&design.to_string()),
            Contestant::CacheOn(design, isa) => f.pad(&format!("{design}@{isa}")),
        }
    }
}

impl std::str::FromStr for Contestant {
    type Err = ContestantError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name.split_once('@') {
            _ if name == "none" => Contestant::None,
            Some((design, isa)) => Contestant::CacheOn(design.parse()?, isa.parse()?),
            None => Contestant::Cache(name.parse()?),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// As many loops as make two million packets a round.
    Auto,
    Loops(u64),
    /// Seconds per design, all rounds together.
    Seconds(f64),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub contestants: Vec<Contestant>,
    pub entries: usize,
    pub megaflows: usize,
    pub ports: Vec<u32>,
    pub seed: u64,
    /// Instruction set of tier 1; `None` takes the best.
    pub isa: Option<Isa>,
    /// Loops of the first pass, at least 1.
    pub warmup_loops: u64,
    pub length: Length,
    pub rounds: u32,
    /// The core that the caller has pinned this thread to, for the record.
    pub pinned_core: Option<usize>,
}

/// Where a replay stands, for a progress bar.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub contestant: Contestant,
    /// "first pass", "round" or "hit and miss".
    pub phase: &'static str,
    pub done: u64,
    /// Packets in all; estimated where seconds were asked for.
    pub total: u64,
    /// Rate of the last chunk in million packets a second.
    pub mpps: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("no design to replay: name at least one")]
    NoContestant,
    #[error("no frames to replay")]
    NoFrames,
    #[error("{design}: {reason}")]
    Config { design: String, reason: ConfigError },
    /// Two designs did different things to the same frames: a defect of Overbank.
    #[error(
        "{design} forwarded packets {first} to {last} differently from {reference}: \
         this is a defect of Overbank, please report it with the capture and the rules"
    )]
    Disagreement { design: String, reference: String, first: u64, last: u64 },
    #[error(transparent)]
    Output(#[from] overbank_ports::capture::WriteError),
}

/// Gets the frames that the first pass sends out: port, time of arrival, bytes.
pub type OutputFrames<'a> =
    dyn FnMut(u32, u64, &[u8]) -> Result<(), overbank_ports::capture::WriteError> + 'a;

/// Counts packets for the progress bar and knows when to stop.
struct Course<'a> {
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Progress),
    done: u64,
    total: u64,
}

impl Course<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs a contestant for `packets` packets, or until `limit` of measured time is over; returns
    /// packets and measured time.
    fn run(
        &mut self,
        runner: &mut Runner<'_>,
        phase: &'static str,
        packets: u64,
        limit: Option<Duration>,
        mut output: Option<&mut OutputFrames<'_>>,
    ) -> Result<(u64, Duration), ReplayError> {
        let (mut done, mut time) = (0, Duration::ZERO);
        while done < packets && limit.is_none_or(|limit| time < limit) && !self.stopped() {
            let output = output.as_mut().map(|o| &mut **o as &mut OutputFrames<'_>);
            let (count, took) = runner.chunk(packets - done, phase == PHASE_SPLIT, output)?;
            done += count;
            time += took;
            self.done += count;
            (self.progress)(Progress {
                contestant: runner.contestant,
                phase,
                done: self.done,
                total: self.total.max(self.done),
                mpps: count as f64 / took.as_secs_f64().max(1e-9) / 1e6,
            });
        }
        Ok((done, time))
    }
}

const PHASE_FIRST: &str = "first pass";
const PHASE_ROUND: &str = "round";
const PHASE_SPLIT: &str = "hit and miss";

/// Replays `source` through every contestant. `stop` ends it early: what was done is reported.
/// `output` gets the frames that the first contestant sends in its first loop.
pub fn run(
    plan: &Plan,
    source: &Source<'_>,
    tables: &Tables,
    traffic: TrafficSource,
    output: Option<&mut OutputFrames<'_>>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replay, ReplayError> {
    let mut make = |contestant| runner(plan, contestant, source, tables);
    race(plan, source, traffic, &mut make, output, stop, progress)
}

/// Runs as [`run`], with runners that `make` makes.
fn race<'a>(
    plan: &Plan,
    source: &Source<'a>,
    traffic: TrafficSource,
    make: &mut dyn FnMut(Contestant) -> Result<Runner<'a>, ReplayError>,
    mut output: Option<&mut OutputFrames<'_>>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replay, ReplayError> {
    let loop_packets = source.loop_packets();
    if plan.contestants.is_empty() {
        return Err(ReplayError::NoContestant);
    }
    if loop_packets == 0 {
        return Err(ReplayError::NoFrames);
    }
    let loops = match plan.length {
        Length::Auto | Length::Seconds(_) => ROUND_PACKETS.div_ceil(loop_packets),
        Length::Loops(loops) => loops.max(1),
    };
    let rounds = plan.rounds.max(1);
    let warmup_loops = plan.warmup_loops.max(1);
    let (warmup, round) =
        (loop_packets.saturating_mul(warmup_loops), loop_packets.saturating_mul(loops));
    let limit = match plan.length {
        Length::Seconds(s) => Some(Duration::from_secs_f64(s / f64::from(rounds))),
        _ => None,
    };
    // Against the clock, all chunks are whole, so that those of all designs line up.
    let timed = if limit.is_some() { u64::MAX } else { round };
    let per_design = warmup.saturating_add(round.saturating_mul(u64::from(rounds) + 1));
    let total = per_design.saturating_mul(plan.contestants.len() as u64);
    let mut course = Course { stop, progress, done: 0, total };

    let mut runners = Vec::with_capacity(plan.contestants.len());
    for &contestant in &plan.contestants {
        let mut runner = make(contestant)?;
        course.run(&mut runner, PHASE_FIRST, loop_packets, None, output.take())?;
        course.run(&mut runner, PHASE_FIRST, warmup - loop_packets, None, None)?;
        runner.first_pass = runner.take_totals();
        runners.push(runner);
        compare(&runners)?;
        if course.stopped() {
            break;
        }
    }
    for _ in 0..rounds {
        for runner in &mut runners {
            let (done, time) = course.run(runner, PHASE_ROUND, timed, limit, None)?;
            if done > 0 {
                runner.rounds_ns.push(time.as_nanos() as f64 / done as f64);
            }
        }
        compare(&runners)?;
    }
    let totals: Vec<Totals> = runners.iter_mut().map(Runner::take_totals).collect();
    for runner in &mut runners {
        course.run(runner, PHASE_SPLIT, timed, limit, None)?;
    }
    compare(&runners)?;

    let (digest, digest_packets) = common_digest(&runners);
    let digest = format!("{digest:016x}");
    // Not compared and not counted: nothing is forwarded.
    let lookups: Vec<Option<f64>> = runners.iter_mut().map(Runner::time_lookups).collect();
    let designs = runners.iter().zip(totals).zip(lookups);
    let designs = designs
        .map(|((runner, totals), ns_lookup)| DesignRecord {
            ns_lookup,
            ..describe(runner, totals, &digest)
        })
        .collect();
    Ok(Replay {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(plan.pinned_core),
        traffic,
        rules: runners.first().map_or(0, |runner| runner.datapath.tables().len()),
        settings: Settings {
            entries: plan.entries,
            megaflows: plan.megaflows,
            seed: plan.seed,
            loop_packets,
            warmup_loops,
            loops,
            seconds: match plan.length {
                Length::Seconds(s) => Some(s),
                _ => None,
            },
            rounds,
        },
        interrupted: course.stopped(),
        digest,
        digest_packets,
        designs,
    })
}

/// Fails unless every design did to each chunk what the first one did.
fn compare(runners: &[Runner<'_>]) -> Result<(), ReplayError> {
    let Some((reference, others)) = runners.split_first() else { return Ok(()) };
    for runner in others {
        if let Some((first, last)) = reference.digests.difference(&runner.digests) {
            return Err(ReplayError::Disagreement {
                design: runner.contestant.to_string(),
                reference: reference.contestant.to_string(),
                first,
                last,
            });
        }
    }
    Ok(())
}

/// Returns the digest over the chunks that every design has seen, and the packets in them.
fn common_digest(runners: &[Runner<'_>]) -> (u64, u64) {
    let all: Vec<&Digests> = runners.iter().map(|runner| &runner.digests).collect();
    all.first().map_or((0, 0), |first| first.digest(&all))
}
