//! `overbank::fib` itself, at 95 % of its slots.

use anyhow::{Context, Result};
use overbank::fib::{Config, MacAddr, Reader, Writer};

use super::peer::{AHEAD_WAY, LIST, LIST_WAY, Lookup, Table, Tally};

/// Keys by which a writer with a list prefetches ahead.
const AHEAD: usize = 16;

struct Fib(Writer<MacAddr, u16>);

struct FibReader {
    reader: Reader<MacAddr, u16>,
    keys: Vec<MacAddr>,
}

/// Returns a table that this many entries fill to 95 %.
pub fn make(entries: usize) -> Result<Box<dyn Table>> {
    let writer = Writer::new(&Config::entries(entries).seed(7)).context("overbank::fib")?;
    Ok(Box::new(Fib(writer)))
}

fn key(number: u64) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    MacAddr::from_bytes([a, b, c, d, e, f])
}

impl Table for Fib {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        for (i, (&number, &value)) in keys.iter().zip(values).enumerate() {
            if let Some(&next) = keys.get(i + AHEAD) {
                self.0.prefetch(key(next));
            }
            self.0.insert(key(number), value)?;
        }
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        for (i, (&number, &value)) in keys.iter().zip(values).enumerate() {
            if let Some(&next) = keys.get(i + AHEAD) {
                self.0.prefetch(key(next));
            }
            self.0.update(key(number), value);
        }
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Box::new(FibReader { reader: self.0.reader(), keys: Vec::new() })
    }

    fn note(&self) -> String {
        let isa = self.0.reader().isa();
        format!("{:.1} % of slots, {isa}", 100.0 * self.0.occupancy())
    }
}

impl FibReader {
    fn look_up_lists(&self) -> Tally {
        let (mut values, mut hits) = ([0u16; LIST], [0u64; LIST / 64]);
        let mut tally = Tally::default();
        for keys in self.keys.chunks(LIST) {
            self.reader.lookup_all(keys, &mut values, &mut hits);
            let hits = &hits[..keys.len().div_ceil(64)];
            tally.hits += hits.iter().map(|hits| u64::from(hits.count_ones())).sum::<u64>();
            let sum: u32 = values[..keys.len()].iter().map(|&value| u32::from(value)).sum();
            tally.sum += u64::from(sum);
        }
        tally
    }
}

impl Lookup for FibReader {
    fn prepare(&mut self, keys: &[u64]) {
        self.keys.clear();
        self.keys.extend(keys.iter().map(|&number| key(number)));
    }

    fn look_up(&mut self, way: usize, burst: usize) -> Tally {
        if way == LIST_WAY {
            return self.look_up_lists();
        }
        let mut values = [0u16; 64];
        let mut tally = Tally::default();
        let ahead = way == AHEAD_WAY;
        let mut upcoming = self.keys.chunks(burst);
        if ahead {
            self.reader.prefetch(upcoming.next().unwrap_or_default());
        }
        for keys in self.keys.chunks(burst) {
            let found = if ahead {
                let next = upcoming.next().unwrap_or_default();
                self.reader.lookup_batch_ahead(keys, &mut values, next)
            } else {
                self.reader.lookup_batch(keys, &mut values)
            };
            tally.hits += u64::from(found.count_ones());
            let sum: u32 = values[..keys.len()].iter().map(|&value| u32::from(value)).sum();
            tally.sum += u64::from(sum);
        }
        tally
    }
}
