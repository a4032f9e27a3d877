//! The floor, as a contestant: the lab's gather kernel on as many lines as Overbank's table has.

use std::sync::Arc;

use anyhow::{Context, Result};
use overbank::hash::Hash64;
use overbank_kit::micro::Way;
use overbank_kit::micro::gather::Gather;

use super::peer::{Lookup, Table, Tally};

struct Floor(Arc<Gather>);

struct FloorReader {
    lines: Arc<Gather>,
    hashes: Vec<Hash64>,
}

/// Makes lines of seven entries each, 95 % of them taken.
pub fn make(entries: usize) -> Result<Box<dyn Table>> {
    let bytes = (entries * 100).div_ceil(7 * 95) * 64;
    Ok(Box::new(Floor(Arc::new(Gather::new(bytes).context("no memory for the floor")?))))
}

impl Table for Floor {
    fn insert(&mut self, _keys: &[u64], _values: &[u16]) -> Result<()> {
        Ok(())
    }

    fn update(&mut self, _keys: &[u64], _values: &[u16]) {}

    fn reader(&self) -> Box<dyn Lookup> {
        Box::new(FloorReader { lines: Arc::clone(&self.0), hashes: Vec::new() })
    }
}

impl Lookup for FloorReader {
    fn prepare(&mut self, keys: &[u64]) {
        self.hashes.clear();
        self.hashes.extend(keys.iter().map(|&key| Hash64::mix(key)));
    }

    fn look_up(&mut self, way: usize, burst: usize) -> Tally {
        Tally { hits: 0, sum: self.lines.touch(burst, Way::ALL[way.min(1)], &self.hashes) }
    }
}
