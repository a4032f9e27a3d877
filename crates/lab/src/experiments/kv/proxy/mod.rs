//! `overbank kv proxy` measured, before real Redis servers, beside nutcracker.
//!
//! ```text
//!   this process ── RESP ──▶ overbank kv proxy ──▶ redis-server         kvproxy, kvlanes, kvorigin
//!   overbank_kv::load  └───▶ nutcracker ─────────▶      ▲
//!                      └────────────────────────────────┘
//!                      ──▶ overbank kv proxy ──▶ relay ──▶ redis-server    kvshards, kvlatency
//! ```
//!
//! | experiment | file | content |
//! |---|---|---|
//! | `kvproxy`, `kvlanes` | `compare.rs` | throughput and core time, contestants in turns |
//! | `kvshards` | `shards.rs` | throughput of shards whose rate a relay holds, beside the ideal |
//! | `kvlatency` | `latency.rs` | times of hot and cold keys, time to the first hit, memory |
//! | `kvorigin` | `origin.rs` | what Redis is asked for less |
//!
//! Load, proxy and servers share two cores, or all of a machine with fewer. Redis and nutcracker
//! come from Debian; an experiment names what is missing. A [`relay`] makes a server slow: with
//! rates far below what two cores serve, what is measured is the proxy's decisions, not its speed.

mod compare;
mod latency;
mod origin;
mod relay;
mod servers;
mod shards;

pub(in crate::experiments) use compare::{KVLANES, KVPROXY};
pub(in crate::experiments) use latency::KVLATENCY;
pub(in crate::experiments) use origin::KVORIGIN;
pub(in crate::experiments) use shards::KVSHARDS;

use super::processes::Cores;
use super::*;
use overbank_kit::machine::{keep_on, process_time, usable_cores};
use overbank_kv::load::{self, Batch, Pace, Plan, Seen};
use relay::{Limit, Relay};
use servers::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SOURCE: &str = "goals of this project";
/// Connections of clients, and keys, unless an experiment is about others.
const CLIENTS: usize = 50;
const KEYS: u32 = 1_000_000;
const THETA: f64 = 0.99;
/// Of `--max-age`: as a server's values are asked for again this often, each turn is longer.
const MAX_AGE: &str = "4";

/// Most of the time of the place's cores that other programs may take while times are measured.
const OTHERS_MAX: f64 = 0.25;

/// Where processes run.
struct Place<'a> {
    program: &'a Path,
    cores: Vec<usize>,
}

impl<'a> Place<'a> {
    /// Returns the last two cores, and the program.
    ///
    /// # Errors
    /// There is no program to start, or Ctrl-C was pressed.
    fn of(context: &mut Context<'a>) -> Result<Place<'a>, LabError> {
        context.step("starts servers", 0.0)?;
        let program = context.program.ok_or_else(|| {
            LabError::failed("needs the program `overbank`: run it by `overbank lab run`")
        })?;
        let mut cores = usable_cores();
        cores.drain(..cores.len().saturating_sub(2));
        Ok(Place { program, cores })
    }

    /// Runs a load on the cores of the place.
    fn load(
        &self,
        plan: &Plan<'_>,
        next: impl FnMut(&mut Vec<u8>) -> Option<Batch> + Send,
    ) -> Result<Seen, LabError> {
        Ok(self.watched(plan, next)?.0)
    }

    /// Runs a load, and returns what it took of the machine as well.
    fn watched(
        &self,
        plan: &Plan<'_>,
        next: impl FnMut(&mut Vec<u8>) -> Option<Batch> + Send,
    ) -> Result<(Seen, Taken), LabError> {
        let run = || {
            // Where no core can be set, it runs where this one does.
            let _ = keep_on(&self.cores);
            load::run(plan, next)
        };
        let (begun, start) = (Cores::of(&self.cores)?, Instant::now());
        let before = process_time();
        let joined = thread::scope(|scope| scope.spawn(run).join());
        let seen = joined.map_err(|_| LabError::failed("a thread panicked"))?;
        let own = process_time() - before;
        let passed = start.elapsed() * self.cores.len() as u32;
        let cores = Cores::of(&self.cores)?.used_since(begun);
        Ok((seen.map_err(LabError::failed)?, Taken { own, cores, passed }))
    }

    /// Runs a load whose times count: refuses a full run if other programs have changed them.
    fn timed(
        &self,
        context: &Context<'_>,
        plan: &Plan<'_>,
        servers: &[&Server],
        next: impl FnMut(&mut Vec<u8>) -> Option<Batch> + Send,
    ) -> Result<Seen, LabError> {
        let (seen, others) = self.shared(context, plan, servers, next)?;
        valid(context, others)?;
        Ok(seen)
    }

    /// Runs a load, and returns the share of the cores that other programs, and the host of a
    /// virtual machine, have taken.
    fn shared(
        &self,
        context: &Context<'_>,
        plan: &Plan<'_>,
        servers: &[&Server],
        next: impl FnMut(&mut Vec<u8>) -> Option<Batch> + Send,
    ) -> Result<(Seen, f64), LabError> {
        let core_time = || servers.iter().map(|server| server.process.core_time()).sum();
        let before: Result<Duration, LabError> = core_time();
        let before = before?;
        let (seen, taken) = self.watched(plan, next)?;
        let after: Result<Duration, LabError> = core_time();
        Ok((whole(context, seen)?, taken.by_others(after? - before)))
    }

    fn describe(&self, record: &mut Record) {
        record.setting("cores of load, proxy and servers", self.cores.len());
        record.setting("value", format!("{VALUE_LEN} bytes"));
    }
}

/// What a load took of the machine.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Core time of this process: of the load, of relays, and of threads that keep cores awake.
    own: Duration,
    /// Time of the place's cores that was used, by whatever runs here, and that passed.
    cores: Duration,
    passed: Duration,
}

impl Taken {
    /// Returns the share of the cores that programs took beside this one and these servers.
    fn by_others(&self, servers: Duration) -> f64 {
        let others = self.cores.saturating_sub(self.own + servers);
        others.as_secs_f64() / self.passed.as_secs_f64().max(1e-9)
    }
}

/// Refuses a full run of times that other programs have changed.
fn valid(context: &Context<'_>, others: f64) -> Result<(), LabError> {
    if context.smoke() || others <= OTHERS_MAX {
        return Ok(());
    }
    Err(LabError::Failed(format!(
        "void, other programs used {} of the cores (limit {}): run it where nothing else runs",
        percent(others, 0),
        percent(OTHERS_MAX, 0),
    )))
}

/// Runs a load that Ctrl-C ends.
fn whole(context: &Context<'_>, seen: Seen) -> Result<Seen, LabError> {
    match context.stop.load(std::sync::atomic::Ordering::Relaxed) {
        true => Err(LabError::Stopped),
        false => Ok(seen),
    }
}

/// Returns GETs of keys that `draw` returns.
fn gets(pipeline: u32, mut draw: impl FnMut() -> u64) -> impl FnMut(&mut Vec<u8>) -> Option<Batch> {
    move |out| {
        (0..pipeline).for_each(|_| load::get(draw(), out));
        Some(Batch { target: 0, requests: pipeline, kind: 0 })
    }
}
