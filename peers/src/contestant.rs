//! One table in a separate process: takes orders on its input, answers in JSON lines.
//!
//! `warm N` looks up N keys and inserts the misses. `round N` does so too and measures; each
//! stretch of keys is drawn before its clock starts. In a round, stretches with insertion (the
//! normal case) alternate with stretches of lookups alone; both continue the same sequence of
//! flows. The clock is the thread's: it stops while another program has the core.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use overbank_kit::workload::FlowStream;
use serde::{Deserialize, Serialize};

use crate::keys::{key_of, value_of};
use crate::machine;
use crate::process;
use crate::table::{BURST, Key, Table, find};

/// Keys between two readings of the clock: 256 KiB of them.
const STRETCH: usize = 1 << 14;

/// Arguments of a contestant.
#[derive(Args)]
pub struct Options {
    /// Peer
    peer: String,
    /// Flows of the traffic
    #[arg(long)]
    flows: u32,
    /// Skew of the traffic
    #[arg(long)]
    zipf: f64,
    /// Entries of the table
    #[arg(long)]
    entries: u32,
    /// Seed of the traffic
    #[arg(long)]
    seed: u64,
    /// Core to run on
    #[arg(long)]
    core: usize,
}

/// The answer to an order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Nanoseconds per key, lookups alone.
    pub lookup_ns: f64,
    /// Nanoseconds per key, misses inserted.
    pub update_ns: f64,
    /// Hits per key, misses inserted.
    pub hit_rate: f64,
    /// Bytes of the table.
    pub memory_bytes: u64,
    /// Further properties.
    pub note: String,
}

struct Contestant {
    table: Box<dyn Table>,
    stream: FlowStream,
    ids: Vec<u32>,
    keys: Vec<Key>,
    values: Vec<u16>,
}

impl Contestant {
    fn draw(&mut self) {
        self.stream.fill(&mut self.ids);
        for ((key, value), &id) in self.keys.iter_mut().zip(&mut self.values).zip(&self.ids) {
            *key = key_of(id);
            *value = value_of(id);
        }
    }

    /// Runs one stretch; returns hits and time.
    fn stretch(&mut self, insert: bool) -> (u64, Duration) {
        self.draw();
        let mut hits = 0;
        let start = machine::thread_time();
        for (keys, values) in self.keys.chunks(BURST).zip(self.values.chunks(BURST)) {
            let found = self.table.lookup(keys, values);
            hits += u64::from(found.count_ones());
            let mut missed = !found & (u32::MAX >> (BURST - keys.len()));
            while insert && missed != 0 {
                let i = missed.trailing_zeros() as usize;
                missed &= missed - 1;
                self.table.insert(&keys[i], values[i]);
            }
        }
        (hits, machine::thread_time() - start)
    }

    fn round(&mut self, keys: u64) -> Answer {
        let stretches = keys.div_ceil(STRETCH as u64).max(1);
        let (mut hits, mut update, mut lookup) = (0, Duration::ZERO, Duration::ZERO);
        for _ in 0..stretches {
            let (found, time) = self.stretch(true);
            hits += found;
            update += time;
            lookup += self.stretch(false).1;
        }
        let keys = (stretches * STRETCH as u64) as f64;
        Answer {
            lookup_ns: lookup.as_nanos() as f64 / keys,
            update_ns: update.as_nanos() as f64 / keys,
            hit_rate: hits as f64 / keys,
            ..Answer::default()
        }
    }
}

/// Serves until the input ends.
pub fn run(options: &Options) -> Result<()> {
    machine::keep_on(&[options.core])?;
    let peer = find(&options.peer)?;
    let stream = FlowStream::zipf(options.flows, options.zipf, options.seed)?;
    let before = machine::heap_bytes();
    let table = (peer.make)(peer.name, options.entries)?;
    let mut contestant = Contestant {
        table,
        stream,
        ids: vec![0; STRETCH],
        keys: vec![[0; 16]; STRETCH],
        values: vec![0; STRETCH],
    };
    let own = (STRETCH * (4 + 16 + 2)) as u64;
    process::serve(|order, keys| {
        let mut answer = match order {
            "warm" => {
                for _ in 0..keys.div_ceil(STRETCH as u64) {
                    contestant.stretch(true);
                }
                Answer::default()
            }
            "round" => contestant.round(keys),
            _ => bail!("unknown order `{order}`"),
        };
        answer.memory_bytes = contestant
            .table
            .memory_bytes()
            .unwrap_or_else(|| machine::heap_bytes().saturating_sub(before + own));
        answer.note = contestant.table.note();
        Ok(answer)
    })
}
