//! A store: an index, a system in front of it, and how values are read.

use clap::ValueEnum;

use crate::Failed;
use crate::front::{FalseHit, Front, Ours, Regular, Sdc, SdcValues};
use crate::index::{self, Index, Visit};
use crate::item::{Item, Reading, WORD};
use crate::serve::serve;
use crate::slb::Slb;

/// Names of the systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// No look-aside: every lookup walks the index
    Regular,
    /// The SDC instructions of the machine; its LLC holds items' addresses
    Sdc,
    /// The same; its LLC holds keys and values (--read 8, 24 or 56)
    SdcValues,
    /// SLB, a look-aside buffer in software (--table bytes), from its description in papers: of
    /// items' addresses
    Slb,
    /// The same with copies of the items, which are in --table too
    SlbItems,
    /// Overbank's look-aside table (--table bytes)
    Copies,
    /// Overbank's Tree with hints (--table bytes); only with --index tree
    Hints,
}

impl System {
    /// Returns whether the machine needs SDC.
    pub fn has_sdc(self) -> bool {
        matches!(self, Self::Sdc | Self::SdcValues)
    }
}

/// What a store is built of.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The index.
    pub index: index::Kind,
    /// The system in front of it.
    pub system: System,
    /// Most items.
    pub items: usize,
    /// Words of a value.
    pub words: usize,
    /// Which of them a lookup reads.
    pub reading: Reading,
    /// Buckets of the hash table, a power of two.
    pub buckets: u64,
    /// Bytes of SLB, copies or hints.
    pub table_bytes: usize,
    /// Seed of the hash function of copies.
    pub seed: u64,
    /// What an SDC hit with another key does.
    pub false_hit: FalseHit,
}

/// A store of any index and system.
pub trait Store {
    /// Inserts a new item; the system in front sees nothing of it.
    ///
    /// # Errors
    /// The key is there already, or memory is missing.
    fn fill(&mut self, key: u64) -> Result<(), Failed>;

    /// Ends the building phase.
    ///
    /// # Errors
    /// What was inserted cannot be kept.
    fn ready(&mut self) -> Result<(), Failed>;

    /// Serves the client's requests.
    ///
    /// # Errors
    /// An insert fails.
    fn serve(&mut self) -> Result<(), Failed>;

    /// Returns the levels of the index or its longest chain, where it knows.
    fn depth(&self) -> Option<u64>;

    /// Visits the index's nodes, where it knows them.
    fn nodes(&self, visit: Visit<'_>);

    /// Returns address and bytes of the item of a key.
    fn item(&mut self, key: u64) -> Option<(u64, u64)>;
}

struct Pair<I, F> {
    index: I,
    front: F,
    words: usize,
    reading: Reading,
}

impl<I: Index, F: Front> Store for Pair<I, F> {
    fn fill(&mut self, key: u64) -> Result<(), Failed> {
        self.index.insert(key, Item::new(key, self.words)?)
    }

    fn ready(&mut self) -> Result<(), Failed> {
        self.index.ready()
    }

    fn serve(&mut self) -> Result<(), Failed> {
        serve(&mut self.index, &mut self.front, self.words, self.reading)
    }

    fn depth(&self) -> Option<u64> {
        self.index.depth()
    }

    fn nodes(&self, visit: Visit<'_>) {
        self.index.nodes(visit);
    }

    fn item(&mut self, key: u64) -> Option<(u64, u64)> {
        let bytes = (Item::words(self.words) * WORD) as u64;
        Some((self.index.find(key)?.address(), bytes))
    }
}

/// Builds an empty store.
///
/// # Errors
/// A part cannot have its size, the two do not fit, or the system is out of memory.
pub fn store(options: &Options) -> Result<Box<dyn Store>, Failed> {
    use index::Kind;
    /// More than LMDB needs for an item: pages are half full at least.
    const LMDB_ITEM_BYTES: u64 = 256;
    const LMDB_LEAST_BYTES: u64 = 16 << 20;
    let hints = (options.system == System::Hints).then_some(options.table_bytes);
    if hints.is_some() && options.index != Kind::Tree {
        return Err(Failed::new("--system hints", "only --index tree has hints"));
    }
    match options.index {
        Kind::Lmdb => {
            let bytes = options.items as u64 * LMDB_ITEM_BYTES + LMDB_LEAST_BYTES;
            behind(options, index::Lmdb::new(bytes)?)
        }
        Kind::Hash => behind(options, index::Hash::new(options.buckets)?),
        Kind::Bplus => behind(options, index::Bplus::new(0)?),
        Kind::Masstree => behind(options, index::Masstree::new(0)?),
        Kind::Btreemap => behind(options, index::Ordered::default()),
        Kind::Skipmap => behind(options, index::Skip::default()),
        Kind::Redb => behind(options, index::Redb::new()?),
        Kind::Congee => behind(options, index::Art::default()),
        Kind::Tree => behind(options, index::Ours::new(options.items, hints)?),
    }
}

/// Puts the system in front of an index.
fn behind<I: Index + 'static>(options: &Options, index: I) -> Result<Box<dyn Store>, Failed> {
    fn boxed<I: Index + 'static, F: Front + 'static>(
        options: &Options,
        index: I,
        front: F,
    ) -> Box<dyn Store> {
        Box::new(Pair { index, front, words: options.words, reading: options.reading })
    }
    Ok(match options.system {
        // Hints are the tree's own.
        System::Regular | System::Hints => boxed(options, index, Regular),
        System::Sdc => boxed(options, index, Sdc { false_hit: options.false_hit }),
        System::SdcValues => {
            boxed(options, index, SdcValues::new(options.false_hit, options.reading.words))
        }
        System::Slb => boxed(options, index, Slb::new(options.table_bytes, None)?),
        System::SlbItems => {
            boxed(options, index, Slb::new(options.table_bytes, Some(options.words))?)
        }
        System::Copies => boxed(options, index, Ours::new(options.table_bytes, options.seed)?),
    })
}
