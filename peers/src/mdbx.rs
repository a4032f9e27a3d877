//! `mdbx`: our table in front of LMDB beside lookups that libmdbx caches, each beside its database.
//!
//! ```text
//!  10 M keys ─┬─▶ LMDB ────┬─ alone              all in one process, on one core; rounds in which
//!             │            ├─ our table          they take turns; fresh Zipf keys; thread's CPU
//!             │            └─ our table, bursts  clock
//!             └─▶ libmdbx ─┬─ alone: mdbx_get
//!                          └─ mdbx_cache_get, its entries in a DashMap, bounded or not
//! ```
//!
//! `mdbx_cache_get` proves a position in the file that its caller keeps: 32 bytes a key, and the
//! caller finds the table to keep them in. A DashMap evicts nothing. Bounded, it takes new keys
//! until it has the number of entries that fit without growing into the size nearest to our bytes
//! (its shards have powers of two); unbounded, all keys that were seen. Its bytes are those of all
//! slots, empty ones too. Nothing is written meanwhile: each entry is proved once.

mod library;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use dashmap::DashMap;
use foldhash::fast::FixedState;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, WithoutTls};
use overbank::hash::mix;
use overbank::lookaside::Config;
use overbank_aside::heed::{Db, ReadTable, Table};
use overbank_aside::{Source, Watched};
use overbank_kit::machine::keep_on;
use overbank_kit::spread::Spread;
use serde::Serialize;
use serde_json::json;

use crate::aside::{Options, Row, checked, measure, ratio};
use crate::folder::Folder;
use crate::output::{Block, Report};
use crate::{clock, machine};
use library::{Entry, Read};

/// Name of the table in both.
const TABLE: &std::ffi::CStr = c"numbers";
const PAGE_BYTES: usize = 4096;
const VALUE_BYTES: usize = 8;
/// Most bytes of a file for each key, with room for pages that are half full.
const MAP_BYTES_PER_KEY: usize = 128;
/// Keys between looks at Ctrl-C.
const STEP: usize = 1 << 16;
/// Keys of a list that is looked up in bursts, as [`overbank_aside::Timer`] does.
const LIST: usize = 512;

/// Size of a database's tree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Shape {
    entries: u64,
    depth: u32,
    pages: u64,
    page_bytes: u32,
}

/// What answers lookups.
trait Front {
    /// Looks keys up and checks the values. Returns the number that the database need not answer.
    fn run(&mut self, keys: &[u64]) -> Result<u64>;

    /// Returns the bytes beside the database's.
    fn bytes(&self) -> u64 {
        0
    }
}

type Numbers = Database<'static, Bytes, U64<heed::byteorder::NativeEndian>>;

/// LMDB, as the adapter reads it, without the table in front.
struct Lmdb<'a>(ReadTable<'a, u64, u64>);

impl Front for Lmdb<'_> {
    fn run(&mut self, keys: &[u64]) -> Result<u64> {
        for &key in keys {
            checked(key, self.0.around(key)?);
        }
        Ok(0)
    }
}

/// LMDB and our table, key by key.
struct Single<'a>(ReadTable<'a, u64, u64>, u64);

impl Front for Single<'_> {
    fn run(&mut self, keys: &[u64]) -> Result<u64> {
        let mut hits = 0;
        for &key in keys {
            let (value, hit) = self.0.look(key)?;
            checked(key, value);
            hits += u64::from(hit);
        }
        Ok(hits)
    }

    fn bytes(&self) -> u64 {
        self.1
    }
}

/// LMDB and our table, in bursts.
struct Bursts<'a>(ReadTable<'a, u64, u64>, u64);

impl Front for Bursts<'_> {
    fn run(&mut self, keys: &[u64]) -> Result<u64> {
        let (mut hits, mut values) = (0, [None; LIST]);
        for keys in keys.chunks(LIST) {
            let values = &mut values[..keys.len()];
            hits += u64::from(self.0.look_batch(keys, values)?);
            keys.iter().zip(values).for_each(|(key, value)| checked(*key, *value));
        }
        Ok(hits)
    }

    fn bytes(&self) -> u64 {
        self.1
    }
}

/// libmdbx without entries.
struct Mdbx<'a>(&'a Read<'a>);

impl Front for Mdbx<'_> {
    fn run(&mut self, keys: &[u64]) -> Result<u64> {
        for &key in keys {
            checked(key, self.0.get(key)?);
        }
        Ok(0)
    }
}

type Entries = DashMap<u64, Entry, FixedState>;

/// libmdbx, with entries of the first `most` keys.
struct Cached<'a> {
    read: &'a Read<'a>,
    entries: Entries,
    /// Entries so far: DashMap counts by locking its shards one by one.
    count: usize,
    most: usize,
}

impl Front for Cached<'_> {
    fn run(&mut self, keys: &[u64]) -> Result<u64> {
        let Cached { read, entries, count, most } = self;
        let mut hits = 0;
        for &key in keys {
            let value = if let Some(entry) = entries.get(&key) {
                let (value, hit) = read.get_cached(key, &entry)?;
                hits += u64::from(hit);
                value
            } else if *count < *most {
                let entry = Entry::new();
                let (value, _) = read.get_cached(key, &entry)?;
                entries.insert(key, entry);
                *count += 1;
                value
            } else {
                read.get(key)?
            };
            checked(key, value);
        }
        Ok(hits)
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.entries)
    }
}

/// Bytes of a slot of a DashMap: key, entry, and a byte of hashbrown's.
const SLOT_BYTES: usize = size_of::<(u64, Entry)>() + 1;

/// Returns the bytes of all slots: hashbrown fills seven in eight.
fn bytes_of(entries: &Entries) -> u64 {
    (entries.capacity() / 7 * 8 * SLOT_BYTES) as u64
}

/// A DashMap of the size nearest to some bytes.
#[derive(Clone, Copy)]
struct Bounded {
    /// A power of two, as DashMap chooses it.
    shards: usize,
    /// Entries of a shard, before it grows.
    each: usize,
}

impl Bounded {
    fn new(cores: usize, wanted: u64) -> Bounded {
        let shards = (4 * cores).next_power_of_two();
        let slots = wanted as f64 / (SLOT_BYTES * shards) as f64;
        // Seven in eight, of eight at least.
        let slots = 1 << (slots.log2().round() as u32).max(3);
        Bounded { shards, each: slots / 8 * 7 }
    }

    fn entries(self) -> Entries {
        let Bounded { shards, each } = self;
        DashMap::with_capacity_and_hasher_and_shard_amount(
            shards * each,
            FixedState::default(),
            shards,
        )
    }

    /// Entries that hardly make a shard grow: four standard deviations of its share less.
    fn most(self) -> usize {
        self.shards * (self.each - 4 * self.each.isqrt().min(self.each / 8))
    }
}

/// Measures and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let cores = machine::cpus();
    let core = options.core.unwrap_or(cores - 1);
    keep_on(&[core])?;
    let stop = machine::stop_on_ctrl_c()?;
    let go_on = || if stop.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) };
    let keys: Vec<u64> = (0..u64::from(options.keys)).map(mix).collect();
    let map_bytes = (1 << 26) + MAP_BYTES_PER_KEY * keys.len();
    let folder = Folder::below(&options.out, "mdbx")?;
    let [theirs, ours] = ["libmdbx", "lmdb"].map(|name| folder.path().join(name));
    eprintln!("building LMDB");
    let (lmdb, lmdb_shape) = build_lmdb(&ours, map_bytes, &keys, &stop)?;
    eprintln!("building libmdbx");
    std::fs::create_dir(&theirs).with_context(|| format!("cannot make {}", theirs.display()))?;
    let mdbx = library::Env::create(&theirs, map_bytes)?;
    mdbx.fill(pairs(&keys, &stop))?;
    let mdbx = mdbx.read()?;
    let mdbx_shape = mdbx.shape()?;
    for shape in [lmdb_shape, mdbx_shape] {
        if (shape.entries, shape.page_bytes as usize) != (keys.len() as u64, PAGE_BYTES) {
            bail!("{shape:?}: must have {} keys on pages of {PAGE_BYTES} bytes", keys.len());
        }
    }
    let tenth = Config::entries(keys.len() / 10);
    let (mut blocks, mut cells, mut wanted, mut bounded) = (Vec::new(), Vec::new(), 0, None);
    for &theta in &options.zipf {
        eprintln!("θ = {theta}");
        // Two tables in front of one database: a handle each.
        let name = TABLE.to_str()?;
        let table = || -> Result<(Db, Table<u64, u64>)> {
            let mut db = Db::new(lmdb.clone());
            let table = db.table(name, &tenth)?;
            Ok((db, table))
        };
        let ((db, single), (db_of_bursts, bursts)) = (table()?, table()?);
        let (read, read_of_bursts) = (db.begin_read()?, db_of_bursts.begin_read()?);
        wanted = single.aside().bytes() as u64;
        let sized = Bounded::new(cores, wanted);
        bounded = Some(sized);
        let cached = |entries: Entries, most| Cached { read: &mdbx, entries, count: 0, most };
        let smallest = Bounded { each: 7, ..sized }.entries();
        let fronts: [(&str, Box<dyn Front>); 6] = [
            ("LMDB", Box::new(Lmdb(read.open(&single)?))),
            ("LMDB, overbank", Box::new(Single(read.open(&single)?, wanted))),
            ("LMDB, overbank, bursts", Box::new(Bursts(read_of_bursts.open(&bursts)?, wanted))),
            ("libmdbx", Box::new(Mdbx(&mdbx))),
            ("libmdbx, cache_get, bounded", Box::new(cached(sized.entries(), sized.most()))),
            ("libmdbx, cache_get, unbounded", Box::new(cached(smallest, usize::MAX))),
        ];
        let mut fronts = fronts.map(|(name, front)| (Row::new(name, front.bytes()), front));
        measure(options, &keys, theta, &mut fronts, |front, keys| {
            go_on()?;
            front.run(keys)
        })?;
        let rows = fronts.map(|(row, front)| Row { bytes: front.bytes(), ..row });
        blocks.push(block(theta, &rows));
        let rows = rows.iter().map(|row| {
            json!({ "front": row.name, "bytes": row.bytes, "ns": Spread::of(row.ns.iter().copied()),
                    "as_fast_as_alone": ratio(alone(&rows, row), row),
                    "ours_faster_by": ratio(row, &rows[1]), "hit_rate": row.hits })
        });
        let rows: Vec<_> = rows.collect();
        cells.push(json!({ "theta": theta, "fronts": rows }));
    }
    let mut record = machine::describe(clock::hertz());
    record["keys"] = json!(options.keys);
    record["bytes_of_ours"] = json!(wanted);
    record["bounded_entries"] = json!(bounded.map(Bounded::most));
    record["rounds"] = json!(options.rounds);
    record["lookups"] = json!(options.lookups);
    record["seed"] = json!(options.seed);
    record["lmdb"] = json!(lmdb_shape);
    record["libmdbx"] = json!(mdbx_shape);
    record["cells"] = json!(cells);
    let size = |shape: Shape| {
        format!("{} levels, {:.0} MB", shape.depth, (shape.pages * 4096) as f64 / 1e6)
    };
    let intro = format!(
        "{} keys of 8 bytes with values of 8 (LMDB: {}; libmdbx: {}), one read transaction, nothing \
         written; our table has entries for a tenth; the bounded DashMap takes the first {} keys, \
         of 32 bytes an entry, MB with its empty slots; median [range] of {} rounds, in which all \
         took turns on one core.\n{}, {}.\n`{}`",
        options.keys,
        size(lmdb_shape),
        size(mdbx_shape),
        bounded.map_or(0, Bounded::most),
        options.rounds,
        record["cpu"].as_str().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    );
    Report {
        name: "mdbx",
        title: "Our table in front of LMDB, beside lookups that libmdbx caches",
        record: &record,
        intro,
        blocks,
        claims: Vec::new(),
        core,
    }
    .write(&options.out)
}

/// Returns keys with their values; fails once `stop` is set.
fn pairs(keys: &[u64], stop: &AtomicBool) -> impl Iterator<Item = Result<(u64, u64)>> {
    keys.iter().enumerate().map(|(at, key)| {
        if at % STEP == 0 && stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok((*key, !key))
    })
}

fn build_lmdb(
    folder: &Path,
    map_bytes: usize,
    keys: &[u64],
    stop: &AtomicBool,
) -> Result<(heed::Env<WithoutTls>, Shape)> {
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_bytes.next_multiple_of(PAGE_BYTES)).max_dbs(1);
    // SAFETY: the folder is this process's, so only LMDB changes the file. Without syncing it may
    // lose commits with the machine, which do not outlive the process.
    #[allow(unsafe_code)]
    let env = unsafe {
        options.flags(EnvFlags::NO_SYNC);
        options.open(folder)
    }?;
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
        let numbers = opener.create_database(transaction, Some(TABLE.to_str()?))?;
        Ok::<_, anyhow::Error>(CommitOrAbort::<_, ()>::Commit(numbers))
    })?;
    let numbers: Numbers = made.commit().context("LMDB made no table")?;
    let mut write = env.write_txn()?;
    for pair in pairs(keys, stop) {
        let (key, value) = pair?;
        numbers.put(&mut write, &key.to_ne_bytes(), &value)?;
    }
    write.commit()?;
    let read = env.read_txn()?;
    let stat = numbers.stat(&read)?;
    drop(read);
    let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
    let shape = Shape {
        entries: stat.entries as u64,
        depth: stat.depth,
        pages: pages as u64,
        page_bytes: stat.page_size,
    };
    Ok((env, shape))
}

/// Returns the row of a front's database without a front.
fn alone<'a>(rows: &'a [Row], of: &Row) -> &'a Row {
    let database = |row: &Row| row.name.split(',').next().map(str::to_owned);
    rows.iter().find(|row| database(row) == database(of)).unwrap_or(&rows[0])
}

fn block(theta: f64, rows: &[Row]) -> Block {
    let header = ["front", "MB", "ns", "as fast as alone", "ours faster by", "hit %"];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            format!("{:.1}", row.bytes as f64 / 1e6),
            Spread::of(row.ns.iter().copied()).cell(1),
            ratio(alone(rows, row), row).cell(2),
            ratio(row, &rows[1]).cell(2),
            format!("{:.1}", 100.0 * row.hits),
        ]
    });
    Block {
        title: format!("θ = {theta}"),
        header: header.map(String::from).to_vec(),
        rows: cells.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are the allocator's, and the bound holds without growing.
    #[test]
    fn a_bounded_map_has_the_bytes_that_are_counted() {
        for wanted in [300_000, 21_300_000] {
            let bounded = Bounded::new(2, wanted);
            // Again where another test allocates meanwhile.
            let is_counted = || {
                let before = machine::heap_bytes();
                let entries = bounded.entries();
                let taken = machine::heap_bytes().wrapping_sub(before) as f64;
                (taken / bytes_of(&entries) as f64 - 1.0).abs() < 0.05
            };
            assert!((0..20).any(|_| is_counted()), "{wanted}");
            let entries = bounded.entries();
            let counted = bytes_of(&entries);
            let near = counted as f64 / wanted as f64;
            assert!((0.7..1.42).contains(&near), "{counted} of {wanted}");
            for key in 0..bounded.most() as u64 {
                entries.insert(mix(key), Entry::new());
            }
            assert_eq!(bytes_of(&entries), counted);
            let slots = counted as f64 / SLOT_BYTES as f64;
            assert!(bounded.most() as f64 > 0.7 * slots, "{} of {slots}", bounded.most());
        }
    }
}
