//! Lookups of a look-aside table from `u64` to `u64`, for an instruction count.
//!
//!     lookaside hit|burst|miss|fill|write
//!
//! Run it under callgrind with `--toggle-collect='*measured*'`, as `cargo xtask instructions` does.
//! Prints the lookups or writes that went through `measured`. A *fill* is a lookup that misses, and
//! its answer put in or not, as the policy decides.

use std::error::Error;
use std::hint::black_box;

use overbank::lookaside::{Config, Copies};

const KEYS: u64 = 4096;
type Table = Copies<u64, u64>;

#[inline(never)]
fn measured_gets(table: &Table, keys: &[u64]) -> usize {
    keys.iter().filter(|&&key| table.get(key).is_answer()).count()
}

#[inline(never)]
fn measured_bursts(table: &Table, keys: &[u64]) -> usize {
    let mut answers = 0;
    table.get_batch(keys, |_, found| answers += usize::from(found.is_answer()));
    answers
}

#[inline(never)]
fn measured_fills(table: &Table, keys: &[u64]) -> usize {
    keys.iter().filter_map(|&key| table.get_or(key, |&key| Some(key))).count()
}

#[inline(never)]
fn measured_writes(table: &Table, keys: &[u64]) -> usize {
    keys.iter().for_each(|&key| table.write(key).keep(key + 1));
    keys.len()
}

fn main() -> Result<(), Box<dyn Error>> {
    let what = std::env::args().nth(1).ok_or("arguments: hit|burst|miss|fill|write")?;
    let table = Table::new(&Config::entries(KEYS as usize * 30))?;
    // All of them fit. What they displace later is not measured.
    (0..2 * KEYS).for_each(|key| _ = table.get_or(key, |&key| Some(key)));
    let keys: Vec<u64> = (0..KEYS).collect();
    let others: Vec<u64> = (2 * KEYS..3 * KEYS).collect();
    let full = Table::new(&Config::entries(KEYS as usize / 8))?;
    (0..2 * KEYS).for_each(|key| _ = full.get_or(key, |&key| Some(key)));
    black_box(match &*what {
        "hit" => measured_gets(&table, &keys),
        "burst" => measured_bursts(&table, &keys),
        "miss" => measured_gets(&table, &others),
        "fill" => measured_fills(&full, &others),
        "write" => measured_writes(&table, &keys),
        _ => return Err("arguments: hit|burst|miss|fill|write".into()),
    });
    println!("{KEYS}");
    Ok(())
}
