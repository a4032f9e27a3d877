//! One partition table in a separate process: takes orders on its input ([`crate::process`]).
//!
//! - `build 0`: builds it of keys and values that are drawn before: time, size.
//! - `check 0`: every key, its value compared.
//! - `round N`: N random keys, drawn before the clock starts; each value is compared after it.
//!
//! The clock of a build is the process's, that of lookups the thread's: both stop while another
//! program has the core.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::keys::{Draws, key, value};
use super::peer::{FLOOR, Peer, Sizes, Table, find};
use crate::{machine, process};

/// Keys between two readings of the clock: 128 KiB of them.
const STRETCH: usize = 1 << 14;

/// Arguments of a contestant.
#[derive(Args)]
pub struct Options {
    /// Peer
    peer: String,
    /// Keys of the table
    #[arg(long)]
    keys: u64,
    /// Bits of a value
    #[arg(long)]
    value_bits: u32,
    /// Keys of a lookup
    #[arg(long)]
    burst: usize,
    /// Bytes of the floor
    #[arg(long)]
    floor_bytes: usize,
    /// Seed of the lookups
    #[arg(long)]
    seed: u64,
    /// Core to run on
    #[arg(long)]
    core: usize,
}

/// The answer to `build`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Built {
    /// Seconds on the core.
    pub seconds: f64,
    /// Bytes that lookups can read.
    pub bytes: u64,
    /// Further properties.
    pub note: String,
}

struct Contestant<'o> {
    options: &'o Options,
    peer: &'static Peer,
    table: Box<dyn Table>,
    draws: Draws,
    keys: Vec<u64>,
    due: Vec<u8>,
    values: Vec<u8>,
}

impl Contestant<'_> {
    fn build(&mut self) -> Result<Built> {
        let Options { keys, value_bits, .. } = *self.options;
        let values: Vec<u8> = (0..keys).map(|number| value(number, value_bits)).collect();
        let keys: Vec<u64> = (0..keys).map(key).collect();
        let start = machine::process_time();
        self.table.build(&keys, &values)?;
        let seconds = (machine::process_time() - start).as_secs_f64();
        Ok(Built { seconds, bytes: self.table.bytes(), note: self.table.note() })
    }

    /// Looks up the keys of these numbers and compares their values, unless it is the floor.
    fn look_up(&mut self, numbers: impl Iterator<Item = u64>) -> Result<Duration> {
        self.keys.clear();
        self.due.clear();
        for number in numbers {
            self.keys.push(key(number));
            self.due.push(value(number, self.options.value_bits));
        }
        self.values.clear();
        self.values.resize(self.keys.len(), 0xff);
        self.table.prepare(&self.keys);
        let start = machine::thread_time();
        self.table.look_up(&self.keys, self.options.burst, &mut self.values);
        let time = machine::thread_time() - start;
        let wrong = self.values.iter().zip(&self.due).position(|(value, due)| value != due);
        if let Some(at) = wrong.filter(|_| self.peer.name != FLOOR) {
            let (key, value, due) = (self.keys[at], self.values[at], self.due[at]);
            anyhow::bail!("key {key:016x} has value {value}, must be {due}");
        }
        Ok(time)
    }

    fn check(&mut self) -> Result<()> {
        let keys = self.options.keys;
        for first in (0..keys).step_by(STRETCH) {
            self.look_up(first..keys.min(first + STRETCH as u64))?;
        }
        Ok(())
    }

    fn round(&mut self, count: u64) -> Result<f64> {
        ensure!(count > 0, "a round of no keys");
        let (mut time, mut left) = (Duration::ZERO, count);
        // Others had the core: the table returns to the caches first.
        let mut warming = (count / 2).min(self.options.keys);
        while warming + left > 0 {
            let now = (if warming > 0 { warming } else { left }).min(STRETCH as u64);
            let numbers: Vec<u64> = (0..now).map(|_| self.draws.next()).collect();
            let taken = self.look_up(numbers.into_iter())?;
            if warming > 0 {
                warming -= now;
            } else {
                left -= now;
                time += taken;
            }
        }
        Ok(time.as_nanos() as f64 / count as f64)
    }
}

/// Serves until the input ends.
pub fn run(options: &Options) -> Result<()> {
    machine::keep_on(&[options.core])?;
    let peer = find(&options.peer)?;
    let Options { keys, value_bits, floor_bytes, seed, .. } = *options;
    let sizes = Sizes { keys: usize::try_from(keys)?, value_bits, floor_bytes };
    let mut contestant = Contestant {
        options,
        peer,
        table: (peer.make)(sizes).with_context(|| peer.name)?,
        draws: Draws::new(keys, seed),
        keys: Vec::with_capacity(STRETCH),
        due: Vec::with_capacity(STRETCH),
        values: Vec::with_capacity(STRETCH),
    };
    process::serve(|order, count| {
        let answer = match order {
            "build" => contestant.build().map(|built| json!(built)),
            "check" => contestant.check().map(|()| json!({})),
            "round" => contestant.round(count).map(|ns| json!(ns)),
            _ => anyhow::bail!("unknown order `{order}`"),
        };
        answer.with_context(|| format!("{}, {order}", options.peer))
    })
}
