//! `overbank::partition` in its shapes, SetSep, and the floor.

use anyhow::{Context, Result};
use overbank::hash::Hash64;
use overbank::partition::setsep::{Config as SetSepConfig, Search, SetSep};
use overbank::partition::{Config, Reader, Replica, RowBits};
use overbank_kit::micro::Way;
use overbank_kit::micro::gather::Gather;

use super::keys::hash;
use super::peer::{BURST_MAX, Sizes, Table};

/// Hashes each burst, and passes it on with the places of its values.
#[inline(always)]
fn in_bursts(
    keys: &[u64],
    burst: usize,
    values: &mut [u8],
    mut look_up: impl FnMut(&[u64], &mut [u8]),
) {
    assert!((1..=BURST_MAX).contains(&burst));
    let mut hashes = [0; BURST_MAX];
    for (keys, values) in keys.chunks(burst).zip(values.chunks_mut(burst)) {
        for (to, &key) in hashes.iter_mut().zip(keys) {
            *to = hash(key);
        }
        look_up(&hashes[..keys.len()], values);
    }
}

fn entries(keys: &[u64], values: &[u8]) -> impl Iterator<Item = (u64, u8)> {
    keys.iter().zip(values).map(|(&key, &value)| (hash(key), value))
}

struct Dense {
    config: Config,
    reader: Option<Reader>,
    note: String,
}

/// Makes the table of linear systems.
pub fn dense(sizes: Sizes, row: RowBits, packed: bool) -> Result<Box<dyn Table>> {
    let config = Config::new(sizes.keys, sizes.value_bits as usize).row(row);
    let config = if packed { config.packed() } else { config };
    Ok(Box::new(Dense { config, reader: None, note: String::new() }))
}

impl Table for Dense {
    fn build(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        self.reader = None;
        let (replica, stats) = Replica::build(&self.config, entries(keys, values))?;
        let seeds = stats.seeds_tried as f64 / stats.groups as f64;
        self.note = format!("{} keys in the fallback, {seeds:.2} seeds a group", stats.fallback);
        self.reader = Some(replica.reader());
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.reader.as_ref().map_or(0, |reader| reader.bytes() as u64)
    }

    fn look_up(&mut self, keys: &[u64], burst: usize, values: &mut [u8]) {
        let Some(reader) = &self.reader else { return };
        in_bursts(keys, burst, values, |hashes, values| reader.lookup_batch(hashes, values));
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

struct Paper {
    config: SetSepConfig,
    table: Option<SetSep>,
    note: String,
}

/// Makes the paper's table, in its setting 16+8.
pub fn setsep(sizes: Sizes, search: Search) -> Result<Box<dyn Table>> {
    let config = SetSepConfig::new(sizes.keys, sizes.value_bits).search(search);
    Ok(Box::new(Paper { config, table: None, note: String::new() }))
}

impl Table for Paper {
    fn build(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        self.table = None;
        let (table, stats) = SetSep::build(&self.config, entries(keys, values))?;
        self.note = format!("{} keys in the fallback", stats.fallback);
        self.table = Some(table);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| table.bytes() as u64)
    }

    fn look_up(&mut self, keys: &[u64], burst: usize, values: &mut [u8]) {
        let Some(table) = &self.table else { return };
        in_bursts(keys, burst, values, |hashes, values| table.lookup_batch(hashes, values));
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

struct Floor {
    lines: Gather,
    bytes: usize,
    sum: u64,
}

/// Makes lines of `floor_bytes` bytes.
pub fn floor(sizes: Sizes) -> Result<Box<dyn Table>> {
    let lines = Gather::new(sizes.floor_bytes).context("no memory for the floor")?;
    Ok(Box::new(Floor { lines, bytes: sizes.floor_bytes, sum: 0 }))
}

impl Table for Floor {
    fn build(&mut self, _keys: &[u64], _values: &[u8]) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn look_up(&mut self, keys: &[u64], burst: usize, values: &mut [u8]) {
        let Floor { lines, sum, .. } = self;
        in_bursts(keys, burst, values, |hashes, _| {
            *sum = sum.wrapping_add(lines.touch(burst, Way::Alone, Hash64::slice(hashes)));
        });
    }
}
