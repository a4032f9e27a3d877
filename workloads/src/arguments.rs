//! The command line.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use overbank_sdc::{Level, Shape};
use overbank_watched::front::FalseHit;
use overbank_watched::index::Kind;
use overbank_watched::item::{Reading, WORD};
use overbank_watched::store::{self, System};
use serde_json::Value;

use crate::base;
use crate::keys::{ITEMS_MAX, Placement, Ycsb};

/// Bytes of a cache line: what one read of a value touches.
pub const LINE: usize = 64;
/// Most bytes of a value.
const VALUE_MAX: usize = 1 << 16;
/// Bytes of a value that fill slots of SDC beside their key: 16, 32 and 64 in all.
const INSIDE: [usize; 3] = [56, 24, 8];
/// Most bytes of tables: half of the memory that is reserved for all (arena.rs).
const TABLE_MAX: u64 = 1 << 34;
/// Most sets that --view lists.
const VIEW_MAX: usize = 64;
/// The cache of the paper's figure 1.
const HEAT: Level = Level { bytes: 32 << 10, ways: 8, cycles: 3 };

/// Runs indexes and look-aside tables on the simulated machine of the SDC paper
#[derive(Parser)]
#[command(name = "overbank-workloads", version)]
#[command(after_help = "Examples:\n  \
    overbank-workloads run --index lmdb --system sdc --subset 20000\n  \
    overbank-workloads list --format json")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run one point and print a JSON object
    ///
    /// Builds an index of --items items with the machine off, serves the warm-up, then counts while
    /// it serves --lookups requests. Every answer is checked.
    #[command(after_help = "Examples:\n  \
        overbank-workloads run --index lmdb --system sdc --llc 3MB --subset 20000\n  \
        overbank-workloads run --index hash --system slb --table 3MB --keys fresh\n  \
        overbank-workloads run --index tree --system hints --set tlb.walk_levels=0\n  \
        overbank-workloads run --index masstree --system sdc --ycsb B --value 64\n  \
        overbank-workloads run --index bplus --heat --items 8000 --lookups 80000 --value 8\n  \
        overbank-workloads run --index lmdb --system sdc --set sdc.family=2 \
        --set sdc.sub_tag_bits=4\n  \
        overbank-workloads run --index lmdb --system sdc-values --read 56 --ratio 0.5\n  \
        overbank-workloads run --index lmdb --system sdc --ratio 0.5 --view 0,17")]
    Run(Box<Run>),
    /// Read an array on an otherwise empty machine and print a JSON object
    ///
    /// The loop reads nothing but the array: callgrind counts the same misses of it, access by
    /// access.
    #[command(after_help = "Example:\n  \
        overbank-workloads walk --order random --bytes 8MB --set tlb.walk_levels=0")]
    Walk(Walk),
    /// List indexes and systems
    #[command(after_help = "Example:\n  overbank-workloads list --format json")]
    List(List),
}

#[derive(Args)]
pub struct Run {
    /// Index that every miss walks
    #[arg(long)]
    pub index: Kind,
    /// What stands in front of it
    #[arg(long, default_value = "regular")]
    pub system: System,
    #[command(flatten)]
    pub chosen: Chosen,
    /// Items in the index
    #[arg(long, default_value_t = 1_500_000)]
    pub items: usize,
    /// Items that are asked for [default: all]
    #[arg(long)]
    pub subset: Option<usize>,
    /// The same by the size of their data set, in last-level caches: of each item a lookup touches
    /// its key and what it reads
    #[arg(long, value_name = "RATIO", conflicts_with = "subset")]
    pub ratio: Option<f64>,
    /// Where the items lie that are asked for
    #[arg(long, default_value = "together")]
    pub placement: Placement,
    /// Requests that are measured
    #[arg(long, default_value_t = 1_000_000)]
    pub lookups: usize,
    /// Requests before [default: three times --lookups; with --ycsb a third of it]
    #[arg(long, value_name = "REQUESTS")]
    pub warmup: Option<usize>,
    /// Whether the measured requests are those of the warm-up [default: replayed]
    #[arg(long, conflicts_with = "ycsb")]
    pub keys: Option<Sequence>,
    /// Skew of Zipf's law
    #[arg(long, default_value_t = 0.99, allow_negative_numbers = true)]
    pub theta: f64,
    /// Seed of keys, orders and tables
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Mix of YCSB; always fresh, reads 8 of each 64 bytes of a value
    #[arg(long, ignore_case = true)]
    pub ycsb: Option<Ycsb>,
    /// Bytes of a value, a multiple of 8
    #[arg(long, default_value = "512", value_name = "BYTES", value_parser = bytes)]
    pub value: u64,
    /// First bytes of a value that a lookup reads, at most all [default: 64; 56 with --system
    /// sdc-values; with --ycsb, 8 of each 64]
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "ycsb")]
    pub read: Option<u64>,
    /// Bytes of SLB, copies or hints [default: the last-level cache's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub table: Option<u64>,
    /// Buckets of the hash table, a power of two
    #[arg(long, default_value_t = 1 << 21)]
    pub buckets: u64,
    /// What an SDC hit with another key does
    #[arg(long, default_value = "through")]
    pub false_hit: FalseHit,
    /// Count the client's reads of its list of requests, too: simulators of whole programs do
    #[arg(long)]
    pub watch_requests: bool,
    /// Count accesses to each 8-byte slot of each line of one 32 KB 8-way cache (figure 1)
    #[arg(long)]
    pub heat: bool,
    /// Adds what the last-level cache holds at the end, and the ways of these sets [without a list:
    /// of the four with the most values of SDC]
    #[arg(long, value_name = "SETS", num_args = 0..=1, default_missing_value = "fullest")]
    pub view: Option<View>,
}

/// Sets of the last-level cache to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    Fullest,
    Sets(Vec<usize>),
}

impl FromStr for View {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "fullest" {
            return Ok(View::Fullest);
        }
        let sets: Result<Vec<usize>, _> = text.split(',').map(|set| set.trim().parse()).collect();
        match sets {
            Ok(sets) if sets.len() <= VIEW_MAX => Ok(View::Sets(sets)),
            Ok(_) => Err(format!("must be at most {VIEW_MAX} sets")),
            Err(_) => Err("must be numbers of sets, as 0,17".to_owned()),
        }
    }
}

#[derive(Args)]
pub struct Walk {
    /// Order of the reads
    #[arg(long, default_value = "random")]
    pub order: Order,
    /// Bytes of the array, a power of two
    #[arg(long, default_value = "8MB", value_name = "BYTES", value_parser = bytes)]
    pub bytes: u64,
    /// Reads of 8 bytes
    #[arg(long, default_value_t = 1_000_000)]
    pub accesses: u64,
    #[command(flatten)]
    pub chosen: Chosen,
}

/// The machine.
#[derive(Args)]
pub struct Chosen {
    /// Machine: the paper's (table 2), or one of today
    #[arg(long, default_value = "paper")]
    pub machine: Model,
    /// Bytes of the last-level cache: 64 × its ways × a power of two [default: the machine's]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub llc: Option<u64>,
    /// Sets a field of the machine's shape, as in the JSON that is printed; repeatable
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
}

/// Where a walk reads next.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Order {
    /// The next word
    Sequential,
    /// The word 520 bytes further
    Strided,
    /// Any word
    Random,
}

#[derive(Args)]
pub struct List {
    /// Format of the list
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One name a line
    Text,
    /// One object
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Model {
    /// 32 KB, 3 MB, DDR3-1600, 64-entry TLB, 2.5 GHz
    Paper,
    /// 32 KB, 1 MB, 32 MB, DDR5, 2048-entry TLB of huge pages, 4 GHz
    Modern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sequence {
    /// The paper's way: the sequence of the warm-up again
    Replayed,
    /// Others of the same distribution
    Fresh,
}

impl Chosen {
    /// Returns the shape for a system, before `--llc` and `--set` as `change` makes it.
    fn shape(&self, system: System, change: impl FnOnce(&mut Shape)) -> Result<Shape> {
        let mut shape = match (self.machine, system.has_sdc()) {
            (Model::Paper, true) => Shape::paper_sdc(),
            (Model::Paper, false) => Shape::paper(),
            (Model::Modern, true) => Shape::modern_sdc(),
            (Model::Modern, false) => Shape::modern(),
        };
        change(&mut shape);
        if let Some(llc) = self.llc {
            shape.llc.bytes = llc;
        }
        let mut json = serde_json::to_value(&shape)?;
        for set in &self.set {
            let before = set_field(&mut json, set)?;
            // One at a time, to say which of them is wrong.
            if serde_json::from_value::<Shape>(json.clone()).is_err() {
                bail!("--set {set}: must be of the kind that it is by default: {before}");
            }
        }
        let shape: Shape = serde_json::from_value(json)?;
        ensure!(
            shape.sdc.is_some() == system.has_sdc(),
            "--set sdc: --system sdc and sdc-values have one, the other systems have none"
        );
        shape.check()?;
        Ok(shape)
    }
}

impl Walk {
    /// Returns the machine's shape.
    pub fn shape(&self) -> Result<Shape> {
        let (bytes, accesses) = (self.bytes, self.accesses);
        if !bytes.is_power_of_two() || !(LINE as u64..=1 << 30).contains(&bytes) {
            bail!("--bytes {bytes}: must be a power of two between {LINE} and 2^30");
        }
        ensure!(
            (1..=1 << 36).contains(&accesses),
            "--accesses {accesses}: must be between 1 and 2^36"
        );
        self.chosen.shape(System::Regular, |_| {})
    }
}

impl Run {
    /// Returns the machine's shape.
    pub fn shape(&self) -> Result<Shape> {
        self.chosen.shape(self.system, |shape| {
            shape.base_cycles = base::cycles(self.index);
            if self.heat {
                (shape.l1, shape.l2, shape.llc, shape.heat) = (None, None, HEAT, true);
            }
        })
    }

    /// Returns what the store is built of.
    pub fn store(&self, shape: &Shape) -> Result<store::Options> {
        let limit = ITEMS_MAX / 2;
        for (name, n) in [("--items", self.items), ("--lookups", self.lookups)] {
            ensure!((1..=limit).contains(&n), "{name} {n}: must be between 1 and {limit}");
        }
        let warmup = self.warmup();
        ensure!(warmup <= limit, "--warmup {warmup}: must be at most {limit}");
        let subset = self.subset(shape);
        let items = self.items;
        match self.ratio {
            None => ensure!(
                (1..=items).contains(&subset),
                "--subset {subset}: must be between 1 and --items, which is {items}"
            ),
            Some(ratio) => ensure!(
                (1..=items).contains(&subset),
                "--ratio {ratio}: these are {subset} items: must be between 1 and --items, which \
                 is {items}"
            ),
        }
        let sets = shape.llc.sets();
        if let Some(View::Sets(wanted)) = &self.view
            && let Some(set) = wanted.iter().find(|set| **set >= sets)
        {
            bail!("--view {set}: must be below {sets}, the sets of the last-level cache");
        }
        let theta = self.theta;
        ensure!(theta.is_finite() && theta >= 0.0, "--theta {theta}: must be at least 0");
        let value = self.value as usize;
        if !value.is_multiple_of(WORD) || !(WORD..=VALUE_MAX).contains(&value) {
            bail!("--value {value}: must be a multiple of {WORD} between {WORD} and {VALUE_MAX}");
        }
        let read = self.read_bytes();
        if !read.is_multiple_of(WORD) || !(WORD..=value).contains(&read) {
            bail!("--read {read}: must be a multiple of {WORD} between {WORD} and --value {value}");
        }
        let reading = self.reading();
        if self.system == System::SdcValues {
            // SDC takes words that lie side by side.
            match self.ycsb {
                Some(_) => ensure!(
                    reading.words == 1,
                    "--value {value}: must be at most {LINE} with --system sdc-values and --ycsb"
                ),
                None => ensure!(
                    INSIDE.contains(&read),
                    "--read {read}: must be 8, 24 or 56 with --system sdc-values"
                ),
            }
        }
        let buckets = self.buckets;
        if !buckets.is_power_of_two() || buckets > 1 << 30 {
            bail!("--buckets {buckets}: must be a power of two of at most 2^30");
        }
        ensure!(
            self.table.is_none() || (self.system != System::Regular && !self.system.has_sdc()),
            "--table: is for SLB, copies and hints; --system {} has none",
            name(&self.system)
        );
        let table_bytes = self.table.unwrap_or(shape.llc.bytes);
        ensure!(table_bytes <= TABLE_MAX, "--table {table_bytes}: must be at most 2^34");
        let inserts = if self.ycsb == Some(Ycsb::D) { self.lookups + warmup } else { 0 };
        Ok(store::Options {
            index: self.index,
            system: self.system,
            items: items + inserts,
            words: value / WORD,
            reading,
            buckets,
            table_bytes: table_bytes as usize,
            seed: self.seed,
            false_hit: self.false_hit,
        })
    }

    /// Returns the bytes of a value that a lookup reads, without --ycsb.
    fn read_bytes(&self) -> usize {
        let value = self.value as usize;
        let inside = || INSIDE.into_iter().find(|bytes| *bytes <= value);
        let usual = match self.system {
            System::SdcValues => inside().unwrap_or(value),
            _ => value.min(LINE),
        };
        self.read.map_or(usual, |read| read as usize)
    }

    fn reading(&self) -> Reading {
        match self.ycsb {
            None => Reading { words: self.read_bytes() / WORD, stride: 1 },
            Some(_) => Reading { words: (self.value as usize).div_ceil(LINE), stride: LINE / WORD },
        }
    }

    /// Returns the items that are asked for.
    pub fn subset(&self, shape: &Shape) -> usize {
        let bytes = (WORD * (1 + self.reading().words)) as f64;
        let by_ratio = self.ratio.map(|ratio| (ratio * shape.llc.bytes as f64 / bytes) as usize);
        by_ratio.or(self.subset).unwrap_or(self.items)
    }

    /// Returns the requests before those that are measured.
    pub fn warmup(&self) -> usize {
        let usual =
            if self.ycsb.is_some() { self.lookups / 3 } else { self.lookups.saturating_mul(3) };
        self.warmup.unwrap_or(usual)
    }

    /// Returns whether the measured requests are those of the warm-up.
    pub fn replayed(&self) -> bool {
        self.ycsb.is_none() && self.keys.unwrap_or(Sequence::Replayed) == Sequence::Replayed
    }
}

/// Sets `a.b` of an object by `a.b=VALUE`; returns what it was.
fn set_field(json: &mut Value, set: &str) -> Result<Value> {
    let (path, value) = set
        .split_once('=')
        .with_context(|| format!("--set {set}: must be FIELD=VALUE, as llc.ways=16"))?;
    let pointer = format!("/{}", path.replace('.', "/"));
    let field = json.pointer_mut(&pointer).with_context(|| {
        format!("--set {set}: no such field; the JSON that is printed has them all, as llc.ways")
    })?;
    let value = serde_json::from_str(value).with_context(|| {
        format!("--set {set}: the value must be JSON, as 16, 2.5, true or null")
    })?;
    Ok(std::mem::replace(field, value))
}

/// Reads a number of bytes: `4096`, `512KB`, `3MB`, `1GB`, with powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let (number, unit) = [("KB", 10), ("MB", 20), ("GB", 30), ("", 0)]
        .into_iter()
        .find_map(|(unit, shift)| Some((upper.strip_suffix(unit)?, shift)))
        .unwrap_or((&upper, 0));
    let number: Option<u64> = number.trim().parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << unit))
        .ok_or_else(|| "must be a number of bytes, as 4096, 512KB or 3MB".to_owned())
}

/// Prints the names.
pub fn list(options: &List) {
    fn names<T: ValueEnum>() -> Vec<String> {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect()
    }
    let lists = [("indexes", names::<Kind>()), ("systems", names::<System>())];
    match options.format {
        Format::Text => {
            for (what, names) in lists {
                println!("{what}: {}", names.join(" "));
            }
        }
        Format::Json => {
            let object: serde_json::Map<_, _> = lists
                .map(|(what, names)| (what.to_owned(), Value::from(names)))
                .into_iter()
                .collect();
            println!("{}", Value::Object(object));
        }
    }
}

/// Returns the name of a value of the command line.
pub fn name<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
