//! `aside`: look-aside tables and caches of others in front of an index, at equal bytes.
//!
//! ```text
//!  BTreeMap of 10 M keys ─┬─ nothing          all in one process, on one core; rounds in which
//!  (or hashbrown)         ├─ Copies, bursts   they take turns; fresh Zipf keys; thread's CPU clock
//!                         └─ fixed-cache, quick_cache, moka, lru
//! ```
//!
//! A miss asks the index and inserts its answer. Each front has as many bytes as ours has for a
//! tenth of the keys, as near as its sizes let it: entries are chosen by what a filled one takes,
//! as the allocator counts, and what it takes then is shown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Result;
use clap::Args;
use clap::builder::ArgPredicate;
use foldhash::fast::FixedState;
use overbank::hash::mix;
use overbank::lookaside::{Config, Copies, Found};
use overbank_kit::machine::keep_on;
use overbank_kit::rounds::turns;
use overbank_kit::spread::Spread;
use overbank_kit::workload::FlowStream;
use serde_json::json;

use crate::output::{self, Block, target};
use crate::{clock, machine};

/// Arguments of `aside`, and of `mdbx`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    pub smoke: bool,
    /// Keys of the index
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "100000"),
          value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    pub keys: u32,
    /// Skews; 0 is uniform
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,0.8,0.99")]
    pub zipf: Vec<f64>,
    /// Rounds in which the fronts take turns
    #[arg(long, value_name = "N", default_value_t = 7,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Lookups of a turn
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "50000"))]
    pub lookups: usize,
    /// Seed of the keys drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Core to run on [default: the last one]
    #[arg(long, value_name = "N")]
    pub core: Option<usize>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    pub out: PathBuf,
}

/// What answers lookups that an index need not.
trait Front {
    /// Looks keys up, first here, then in the index; inserts what was missing. Returns the hits.
    fn run(&mut self, keys: &[u64], index: &dyn Index) -> u64;
}

trait Index {
    fn get(&self, key: u64) -> Option<u64>;
}

impl Index for BTreeMap<u64, u64> {
    fn get(&self, key: u64) -> Option<u64> {
        BTreeMap::get(self, &key).copied()
    }
}

impl Index for hashbrown::HashMap<u64, u64, FixedState> {
    fn get(&self, key: u64) -> Option<u64> {
        hashbrown::HashMap::get(self, &key).copied()
    }
}

/// Panics at a wrong answer.
#[inline]
pub fn checked(key: u64, value: Option<u64>) {
    assert_eq!(value, Some(!key), "a wrong answer");
}

struct Nothing;

impl Front for Nothing {
    fn run(&mut self, keys: &[u64], index: &dyn Index) -> u64 {
        keys.iter().for_each(|key| checked(*key, index.get(*key)));
        0
    }
}

/// Overbank's, key by key or in bursts.
struct Ours(Copies<u64, u64>, bool);

impl Front for Ours {
    fn run(&mut self, keys: &[u64], index: &dyn Index) -> u64 {
        let Ours(table, bursts) = self;
        let mut hits = 0;
        let mut see = |key: u64, found: Found<u64, u64>| match found.answer() {
            Ok(value) => {
                hits += 1;
                checked(key, value);
            }
            Err(ticket) => {
                let value = index.get(key);
                table.fill(ticket, value);
                checked(key, value);
            }
        };
        if *bursts {
            table.get_batch(keys, |at, found| see(keys[at], found));
        } else {
            keys.iter().for_each(|key| see(*key, table.get(*key)));
        }
        hits
    }
}

/// A cache of another, by its lookup and its insertion: closures, which the compiler inlines.
struct Other<C, G, I> {
    cache: C,
    get: G,
    insert: I,
}

impl<C, G: Fn(&C, u64) -> Option<u64>, I: Fn(&C, u64, u64)> Front for Other<C, G, I> {
    fn run(&mut self, keys: &[u64], index: &dyn Index) -> u64 {
        let Other { cache, get, insert } = self;
        let mut hits = 0;
        for &key in keys {
            if let Some(value) = get(cache, key) {
                hits += 1;
                checked(key, Some(value));
            } else {
                let value = index.get(key);
                checked(key, value);
                value.into_iter().for_each(|value| insert(cache, key, value));
            }
        }
        hits
    }
}

fn other<C: 'static>(
    cache: C,
    get: impl Fn(&C, u64) -> Option<u64> + 'static,
    insert: impl Fn(&C, u64, u64) + 'static,
) -> Box<dyn Front> {
    Box::new(Other { cache, get, insert })
}

type Fixed = fixed_cache::Cache<u64, u64, FixedState>;
type Quick = quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, FixedState>;
type Moka = moka::sync::Cache<u64, u64, FixedState>;
type Lru = Mutex<lru::LruCache<u64, u64, FixedState>>;

/// Makes a front of another with this many entries.
type Make = fn(usize) -> Box<dyn Front>;

const OTHERS: [(&str, Make); 4] = [
    ("fixed-cache", |entries| {
        // Only powers of two: the next one below.
        let entries = (entries + 1).next_power_of_two() / 2;
        other(
            Fixed::new(entries.max(4), FixedState::default()),
            |cache, key| cache.get(&key),
            |cache, key, value| cache.insert(key, value),
        )
    }),
    ("quick_cache", |entries| {
        let (weighter, hasher) = (quick_cache::UnitWeighter, FixedState::default());
        let life = quick_cache::sync::DefaultLifecycle::default();
        other(
            Quick::with(entries, entries as u64, weighter, hasher, life),
            |cache, key| cache.get(&key),
            |cache, key, value| cache.insert(key, value),
        )
    }),
    ("moka", |entries| {
        let builder = moka::sync::CacheBuilder::new(entries as u64);
        other(
            builder.build_with_hasher(FixedState::default()),
            |cache: &Moka, key| cache.get(&key),
            |cache, key, value| cache.insert(key, value),
        )
    }),
    ("lru", |entries| {
        let entries = entries.max(1).try_into().expect("not zero");
        other(
            Lru::new(lru::LruCache::with_hasher(entries, FixedState::default())),
            |cache, key| cache.lock().expect("no panic").get(&key).copied(),
            |cache, key, value| _ = cache.lock().expect("no panic").put(key, value),
        )
    }),
];

/// Returns the bytes of a cache with this many entries, filled.
fn bytes(make: Make, entries: usize) -> u64 {
    struct All;
    impl Index for All {
        fn get(&self, key: u64) -> Option<u64> {
            Some(!key)
        }
    }
    let keys: Vec<u64> = (0..2 * entries as u64).map(mix).collect();
    let before = machine::heap_bytes();
    let mut front = make(entries);
    front.run(&keys, &All);
    machine::heap_bytes().saturating_sub(before)
}

/// A cache of another, at the size at which it takes as many bytes as ours.
struct Chosen {
    name: &'static str,
    make: Make,
    entries: usize,
    /// What it takes, filled.
    bytes: u64,
}

impl Chosen {
    fn new((name, make): (&'static str, Make), wanted: usize) -> Chosen {
        let probe = 1 << 16;
        let each = bytes(make, probe) as f64 / probe as f64;
        let entries = (wanted as f64 / each.max(1.0)) as usize;
        Chosen { name, make, entries, bytes: bytes(make, entries) }
    }
}

/// What was measured of a front.
pub struct Row {
    pub name: String,
    pub bytes: u64,
    /// Nanoseconds of a lookup, round by round.
    pub ns: Vec<f64>,
    /// Share of the lookups of the last round that the front answered.
    pub hits: f64,
}

impl Row {
    pub fn new(name: &str, bytes: u64) -> Row {
        Row { name: name.to_owned(), bytes, ns: Vec::new(), hits: 0.0 }
    }
}

/// Measures and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let core = options.core.unwrap_or(machine::cpus() - 1);
    keep_on(&[core])?;
    let keys: Vec<u64> = (0..u64::from(options.keys)).map(mix).collect();
    let tenth = Config::entries(keys.len() / 10);
    let wanted = Copies::<u64, u64>::new(&tenth)?.bytes();
    let sized = OTHERS.map(|of| Chosen::new(of, wanted));
    let tree: BTreeMap<u64, u64> = keys.iter().map(|key| (*key, !key)).collect();
    let hash: hashbrown::HashMap<u64, u64, FixedState> =
        keys.iter().map(|key| (*key, !key)).collect();
    let indexes: [(&str, &dyn Index); 2] = [("BTreeMap", &tree), ("hashbrown", &hash)];
    let (mut blocks, mut claims, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (index_name, index) in indexes {
        for &theta in &options.zipf {
            eprintln!("{index_name}, θ = {theta}");
            let ours =
                |bursts| Ok::<_, anyhow::Error>(Box::new(Ours(Copies::new(&tenth)?, bursts)));
            let mut fronts: Vec<(Row, Box<dyn Front>)> = vec![
                (Row::new("nothing", 0), Box::new(Nothing)),
                (Row::new("overbank", wanted as u64), ours(false)?),
                (Row::new("overbank, bursts", wanted as u64), ours(true)?),
            ];
            let others = sized.iter();
            fronts.extend(others.map(|of| (Row::new(of.name, of.bytes), (of.make)(of.entries))));
            measure(options, &keys, theta, &mut fronts, |front, keys| Ok(front.run(keys, index)))?;
            let rows: Vec<Row> = fronts.into_iter().map(|(row, _)| row).collect();
            if index_name == "BTreeMap" && theta == 0.99 {
                claims.extend(goals(&rows));
            }
            blocks.push(block(index_name, theta, &rows));
            let rows = rows.iter().map(|row| {
                json!({ "front": row.name, "bytes": row.bytes, "ns": Spread::of(row.ns.iter().copied()),
                        "hit_rate": row.hits })
            });
            let rows: Vec<_> = rows.collect();
            cells.push(json!({ "index": index_name, "theta": theta, "fronts": rows }));
        }
    }
    let mut record = machine::describe(clock::hertz());
    record["keys"] = json!(options.keys);
    record["bytes_of_ours"] = json!(wanted);
    record["rounds"] = json!(options.rounds);
    record["lookups"] = json!(options.lookups);
    record["seed"] = json!(options.seed);
    record["cells"] = json!(cells);
    let intro = format!(
        "{} keys of 8 bytes with values of 8; entries so that each front takes {:.1} MB, as near as \
         its sizes let it; misses are inserted; median \
         [range] of {} rounds, in which the fronts took turns on one core.\n{}, {}.\n`{}`",
        options.keys,
        wanted as f64 / 1e6,
        options.rounds,
        record["cpu"].as_str().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    );
    output::Report {
        name: "aside",
        title: "Look-aside tables and caches of others in front of an index",
        record: &record,
        intro,
        blocks,
        claims,
        core,
    }
    .write(&options.out)
}

/// Warms fronts up and lets them take turns on fresh keys; `run` returns the hits. What has no
/// bytes has nothing to warm up.
pub fn measure<F>(
    options: &Options,
    keys: &[u64],
    theta: f64,
    fronts: &mut [(Row, F)],
    mut run: impl FnMut(&mut F, &[u64]) -> Result<u64>,
) -> Result<()> {
    let mut stream = FlowStream::zipf(options.keys, theta, options.seed)?;
    let mut draw = |count: usize| -> Vec<u64> {
        (0..count).map(|_| keys[stream.next_flow() as usize]).collect()
    };
    // All see the same keys before the first round: 24 for each entry of ours.
    for _ in 0..24 {
        let warm = draw(keys.len() / 10);
        for (_, front) in fronts.iter_mut().filter(|(row, _)| row.bytes > 0) {
            run(front, &warm)?;
        }
    }
    for round in 0..options.rounds as usize {
        for at in turns(round, fronts.len()) {
            let keys = draw(options.lookups);
            let (row, front) = &mut fronts[at];
            let start = machine::thread_time();
            let hits = run(front, &keys)?;
            let time = machine::thread_time() - start;
            row.ns.push(time.as_nanos() as f64 / keys.len() as f64);
            row.hits = hits as f64 / keys.len() as f64;
        }
    }
    Ok(())
}

/// Returns the time of one as a multiple of another's, round by round.
pub fn ratio(of: &Row, to: &Row) -> Spread {
    Spread::of_ratios(of.ns.iter().copied(), to.ns.iter().copied())
}

fn goals(rows: &[Row]) -> Vec<overbank_kit::experiment::Check> {
    let least = [("fixed-cache", 1.05), ("quick_cache", 1.2), ("moka", 2.0), ("lru", 1.3)];
    let found = least.into_iter().filter_map(|(name, least)| {
        let other = rows.iter().find(|row| row.name == name)?;
        let claim = format!("BTreeMap, θ = 0.99: time with {name}, as a multiple of ours");
        Some(target(claim, least, ratio(other, &rows[1])))
    });
    found.collect()
}

fn block(index: &str, theta: f64, rows: &[Row]) -> Block {
    let header = ["front", "MB", "ns", "as fast as alone", "ours faster by", "hit %"];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            format!("{:.1}", row.bytes as f64 / 1e6),
            Spread::of(row.ns.iter().copied()).cell(1),
            ratio(&rows[0], row).cell(2),
            ratio(row, &rows[1]).cell(2),
            format!("{:.1}", 100.0 * row.hits),
        ]
    });
    Block {
        title: format!("{index}, θ = {theta}"),
        header: header.map(String::from).to_vec(),
        rows: cells.collect(),
    }
}
