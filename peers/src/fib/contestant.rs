//! One forwarding table in a separate process: takes orders on its input ([`crate::process`]).
//!
//! - `build 0`: makes and fills it: time, memory, the pages that it lies on.
//! - `check N`: N keys one by one and in bursts of present and absent ones, each answer compared.
//! - `round N`: N present and N absent keys in each way, drawn before the clock starts.
//! - `busy N`: N present keys in each way, while a thread on another core only writes; in turns
//!   with stretches in which that thread spins.
//!
//! The clock is the thread's, which stops while another program has the core. `busy` uses
//! wall-clock time, which includes waiting for a lock. Every stretch of lookups is compared with
//! the expected hits and sum of values.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::keys::{Draws, address, port};
use super::peer::{FLOOR, Lookup, Peer, Table, Tally, find};
use crate::{machine, process};

/// Keys between two readings of the clock: 128 KiB of them.
const STRETCH: usize = 1 << 14;
/// Keys that the writer draws at a time.
const CHANGES: usize = 256;

/// Arguments of a contestant.
#[derive(Args)]
pub struct Options {
    /// Peer
    peer: String,
    /// Entries of the table
    #[arg(long)]
    entries: u64,
    /// Entries that it has room for
    #[arg(long)]
    room: u64,
    /// Keys of a lookup
    #[arg(long)]
    burst: usize,
    /// Seed of the keys
    #[arg(long)]
    seed: u64,
    /// Core to run on
    #[arg(long)]
    core: usize,
    /// Core that the writer runs on
    #[arg(long)]
    writer_core: Option<usize>,
}

/// The answer to `build`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// Seconds on the core.
    pub seconds: f64,
    /// Bytes of the table.
    pub memory_bytes: u64,
    /// Share of the memory since the start that lies on huge pages.
    pub huge_share: f64,
    /// Further properties.
    pub note: String,
}

/// The answer to `round`, a number for each way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Round {
    /// Nanoseconds per present key.
    pub hit_ns: Vec<f64>,
    /// Nanoseconds per absent key.
    pub miss_ns: Vec<f64>,
}

/// The answer to `busy`, a number for each way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Busy {
    /// Nanoseconds per present key while the writer spins.
    pub idle_ns: Vec<f64>,
    /// Nanoseconds per present key while it writes.
    pub busy_ns: Vec<f64>,
    /// Values that the writer replaced in a second, meanwhile.
    pub changes_per_s: Vec<f64>,
    /// Present keys that were not found or had another value.
    pub lost: u64,
}

struct Contestant<'o> {
    options: &'o Options,
    peer: &'static Peer,
    draws: Draws,
    keys: Vec<u64>,
    table: Option<Box<dyn Table>>,
    reader: Option<Box<dyn Lookup>>,
}

/// Draws present or absent keys; returns the expected tally.
fn draw(draws: &mut Draws, keys: &mut Vec<u64>, count: usize, present: bool) -> Tally {
    keys.clear();
    let mut due = Tally::default();
    for _ in 0..count {
        let number = if present { draws.present() } else { draws.absent() };
        due.hits += u64::from(present);
        due.sum += if present { u64::from(port(number)) } else { 0 };
        keys.push(address(number));
    }
    due
}

impl Contestant<'_> {
    fn build(&mut self) -> Result<Built> {
        let Options { entries, room, .. } = *self.options;
        let before = machine::resident()?;
        let mut time = Duration::ZERO;
        let mut timed = |work: &mut dyn FnMut() -> Result<()>| {
            let start = machine::thread_time();
            let outcome = work();
            time += machine::thread_time() - start;
            outcome
        };
        let mut table = None;
        if self.peer.reserved {
            // The memory of starting the library is not the table's.
            table = Some((self.peer.make)(room as usize)?);
        } else {
            timed(&mut || {
                table = Some((self.peer.make)(room as usize)?);
                Ok(())
            })?;
        }
        let mut table = table.context("a table")?;
        let mut values = Vec::with_capacity(STRETCH);
        for first in (0..entries).step_by(STRETCH) {
            let numbers = first..entries.min(first + STRETCH as u64);
            self.keys.clear();
            self.keys.extend(numbers.clone().map(address));
            values.clear();
            values.extend(numbers.map(port));
            timed(&mut || table.insert(&self.keys, &values))?;
        }
        let after = machine::resident()?;
        let grown = after.bytes.saturating_sub(before.bytes);
        let huge = after.huge.saturating_sub(before.huge);
        let built = Built {
            seconds: time.as_secs_f64(),
            memory_bytes: table.memory_bytes().unwrap_or(grown),
            huge_share: huge as f64 / grown.max(1) as f64,
            note: table.note(),
        };
        self.reader = Some(table.reader());
        self.table = Some(table);
        Ok(built)
    }

    /// Looks up the drawn keys and compares the results, unless it is the floor.
    fn look_up(&mut self, way: usize, due: Tally) -> Result<Duration> {
        let reader = self.reader.as_mut().context("no table was built")?;
        reader.prepare(&self.keys);
        let start = machine::thread_time();
        let tally = reader.look_up(way, self.options.burst);
        let time = machine::thread_time() - start;
        if tally != due && self.peer.name != FLOOR {
            let first = self.keys.first().copied().unwrap_or_default();
            let (n, way) = (self.keys.len(), self.peer.ways[way]);
            bail!("{way}: {n} keys from {first:012x} on: {tally:?}, due was {due:?}");
        }
        Ok(time)
    }

    fn check(&mut self, count: u64) -> Result<()> {
        for way in 0..self.peer.ways.len() {
            for i in 0..count {
                let due = draw(&mut self.draws, &mut self.keys, 1, i % 2 == 0);
                self.look_up(way, due)?;
            }
            let mut pattern = self.options.seed;
            for _ in 0..count.div_ceil(self.options.burst as u64) {
                pattern = overbank::hash::mix(pattern.wrapping_add(1));
                let (mut due, mut burst, mut one) = (Tally::default(), Vec::new(), Vec::new());
                for i in 0..self.options.burst {
                    let tally = draw(&mut self.draws, &mut one, 1, pattern >> i & 1 == 1);
                    due.hits += tally.hits;
                    due.sum += tally.sum;
                    burst.extend(&one);
                }
                self.keys = burst;
                self.look_up(way, due)?;
            }
        }
        Ok(())
    }

    fn stretches(&mut self, way: usize, count: u64, present: bool) -> Result<f64> {
        let (mut time, mut left) = (Duration::ZERO, count);
        while left > 0 {
            let now = left.min(STRETCH as u64);
            let due = draw(&mut self.draws, &mut self.keys, now as usize, present);
            time += self.look_up(way, due)?;
            left -= now;
        }
        Ok(time.as_nanos() as f64 / count as f64)
    }

    fn round(&mut self, count: u64) -> Result<Round> {
        // Others had the core: the table returns to the caches first.
        self.stretches(0, (count / 2).min(self.options.entries), true)?;
        let mut round = Round::default();
        for way in 0..self.peer.ways.len() {
            round.hit_ns.push(self.stretches(way, count, true)?);
            round.miss_ns.push(self.stretches(way, count, false)?);
        }
        Ok(round)
    }

    fn busy(&mut self, count: u64) -> Result<Busy> {
        let core = self.options.writer_core.context("no core for the writer")?;
        let table = self.table.as_mut().context("no table was built")?;
        let reader = self.reader.as_mut().context("no table was built")?;
        let (stop, go, changes) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let writer_draws = Draws::new(self.options.entries, self.options.seed + 1);
        let mut busy = Busy::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<()> {
                machine::keep_on(&[core])?;
                write(&mut **table, writer_draws, &stop, &go, &changes);
                Ok(())
            });
            for way in 0..self.peer.ways.len() {
                let (mut idle, mut during, mut open) =
                    (Duration::ZERO, Duration::ZERO, Duration::ZERO);
                let written = changes.load(Ordering::Relaxed);
                let mut left = count;
                while left > 0 && !writer.is_finished() {
                    let now = left.min(STRETCH as u64);
                    left -= now;
                    for writing in [false, true] {
                        let due = draw(&mut self.draws, &mut self.keys, now as usize, true);
                        reader.prepare(&self.keys);
                        let opened = Instant::now();
                        go.store(writing, Ordering::Relaxed);
                        let seen = changes.load(Ordering::Relaxed);
                        while writing
                            && changes.load(Ordering::Relaxed) == seen
                            && !writer.is_finished()
                        {
                            std::hint::spin_loop();
                        }
                        let start = Instant::now();
                        let tally = reader.look_up(way, self.options.burst);
                        let time = start.elapsed();
                        go.store(false, Ordering::Relaxed);
                        if writing {
                            during += time;
                            open += opened.elapsed();
                        } else {
                            idle += time;
                        }
                        let lost = due.hits - tally.hits.min(due.hits);
                        busy.lost += lost.max(u64::from(tally != due));
                    }
                }
                let written = changes.load(Ordering::Relaxed) - written;
                busy.idle_ns.push(idle.as_nanos() as f64 / count as f64);
                busy.busy_ns.push(during.as_nanos() as f64 / count as f64);
                busy.changes_per_s.push(written as f64 / open.as_secs_f64());
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?
        })?;
        Ok(busy)
    }
}

/// Replaces values of random keys, one by one, while `go` is set.
fn write(
    table: &mut dyn Table,
    mut draws: Draws,
    stop: &AtomicBool,
    go: &AtomicBool,
    changes: &AtomicU64,
) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        keys.clear();
        values.clear();
        for _ in 0..CHANGES {
            let number = draws.present();
            keys.push(address(number));
            values.push(port(number));
        }
        // A few at a time, so that the flag is seen soon.
        for (keys, values) in keys.chunks(32).zip(values.chunks(32)) {
            while !go.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            table.update(keys, values);
            changes.fetch_add(keys.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Serves until the input ends.
pub fn run(options: &Options) -> Result<()> {
    machine::keep_on(&[options.core])?;
    let mut contestant = Contestant {
        options,
        peer: find(&options.peer)?,
        draws: Draws::new(options.entries, options.seed),
        keys: Vec::with_capacity(STRETCH),
        table: None,
        reader: None,
    };
    process::serve(|order, count| {
        let answer = match order {
            "build" => contestant.build().map(|built| json!(built)),
            "check" => contestant.check(count).map(|()| json!({})),
            "round" => contestant.round(count).map(|round| json!(round)),
            "busy" => contestant.busy(count).map(|busy| json!(busy)),
            _ => bail!("unknown order `{order}`"),
        };
        answer.with_context(|| format!("{}, {order}", options.peer))
    })
}
