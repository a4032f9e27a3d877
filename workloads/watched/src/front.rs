//! Systems: what stands in front of an index.

use clap::ValueEnum;
use overbank::lookaside::{self, Config, Copies, Ticket};

use crate::Failed;
use crate::item::Item;
use crate::outside::sdc;
use crate::slb::Slb;

/// What a system found.
pub enum Found<T> {
    /// The item of the key.
    Hit(Item),
    /// Nothing; the ticket may fill.
    Miss(T),
    /// Another key's item, and the lookup ends (paper, figure 3).
    Dropped,
}

/// A system in front of an index.
pub trait Front {
    /// What a miss hands to the fill.
    type Ticket;

    /// Looks up a key. A hit is the key's own item.
    fn get(&mut self, key: u64) -> Found<Self::Ticket>;

    /// Takes what the index found after a miss.
    fn fill(&mut self, ticket: Self::Ticket, key: u64, item: Item);

    /// Finds an item whose value will change in place.
    #[inline]
    fn update(&mut self, _key: u64, find: impl FnOnce() -> Option<Item>) -> Option<Item> {
        find()
    }

    /// Inserts a new item.
    ///
    /// # Errors
    /// Those of `insert`.
    #[inline]
    fn insert(
        &mut self,
        _key: u64,
        _item: Item,
        insert: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        insert()
    }
}

/// No look-aside: every lookup walks the index.
pub struct Regular;

impl Front for Regular {
    type Ticket = ();

    #[inline]
    fn get(&mut self, _key: u64) -> Found<()> {
        Found::Miss(())
    }

    #[inline]
    fn fill(&mut self, (): (), _key: u64, _item: Item) {}
}

/// What a hit with another key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FalseHit {
    /// Goes on with the index
    Through,
    /// Ends the lookup without an answer, as in the paper's figure 3
    Dropped,
}

impl FalseHit {
    /// Notes a hit with another key. Returns how the lookup goes on.
    fn ends(self) -> Found<()> {
        sdc::false_hit();
        match self {
            Self::Through => Found::Miss(()),
            Self::Dropped => Found::Dropped,
        }
    }
}

/// The SDC instructions, of items' addresses.
pub struct Sdc {
    /// What a hit with another key does.
    pub false_hit: FalseHit,
}

impl Front for Sdc {
    type Ticket = ();

    #[inline]
    fn get(&mut self, key: u64) -> Found<()> {
        let mut address = 0;
        if !sdc::lookup(key, &mut address) {
            return Found::Miss(());
        }
        match Item::at(address) {
            Some(item) if item.key() == key => Found::Hit(item),
            _ => self.false_hit.ends(),
        }
    }

    #[inline]
    fn fill(&mut self, (): (), key: u64, item: Item) {
        sdc::insert(key, item.address());
    }

    #[inline]
    fn update(&mut self, key: u64, find: impl FnOnce() -> Option<Item>) -> Option<Item> {
        // An item that stays where it is needs none; the paper's database does it (§ 3.5).
        sdc::invalidate(key);
        find()
    }

    #[inline]
    fn insert(
        &mut self,
        key: u64,
        item: Item,
        insert: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        insert()?;
        sdc::insert(key, item.address());
        Ok(())
    }
}

/// Words of the longest value of SDC: a line.
const LINE: usize = 8;

/// The SDC instructions, of keys and values themselves: a hit reads no item.
pub struct SdcValues {
    /// What a hit with another key does.
    pub false_hit: FalseHit,
    /// Words of a key and the value that is read: 2, 4 or 8.
    words: usize,
    copy: Copied,
}

/// What the last hit copied: an item whose key begins the second line.
#[repr(C, align(64))]
struct Copied([u64; 2 * LINE]);

impl SdcValues {
    /// Returns the system for reads of the first `words` words of a value: 1, 3 or 7.
    pub fn new(false_hit: FalseHit, words: usize) -> Self {
        Self { false_hit, words: 1 + words, copy: Copied([0; 2 * LINE]) }
    }
}

impl Front for SdcValues {
    type Ticket = ();

    #[inline]
    fn get(&mut self, key: u64) -> Found<()> {
        let Some(to) = self.copy.0.last_chunk_mut::<LINE>() else { return Found::Miss(()) };
        if !sdc::lookup_words(key, to, self.words) {
            return Found::Miss(());
        }
        if to[0] == key {
            return Found::Hit(Item::lent(&mut self.copy.0[LINE - 1..]));
        }
        self.false_hit.ends()
    }

    #[inline]
    fn fill(&mut self, (): (), key: u64, item: Item) {
        sdc::insert_item(item, key, self.words);
    }

    #[inline]
    fn update(&mut self, key: u64, find: impl FnOnce() -> Option<Item>) -> Option<Item> {
        sdc::invalidate(key);
        find()
    }

    #[inline]
    fn insert(
        &mut self,
        key: u64,
        item: Item,
        insert: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        insert()?;
        sdc::insert_item(item, key, self.words);
        Ok(())
    }
}

impl Front for Slb {
    type Ticket = ();

    #[inline]
    fn get(&mut self, key: u64) -> Found<()> {
        match self.look(key) {
            Some(item) => Found::Hit(item),
            None => Found::Miss(()),
        }
    }

    #[inline]
    fn fill(&mut self, (): (), key: u64, item: Item) {
        self.missed(key, item);
    }

    #[inline]
    fn update(&mut self, key: u64, find: impl FnOnce() -> Option<Item>) -> Option<Item> {
        self.changes(key);
        find()
    }
}

/// Ours: [`overbank::lookaside::Copies`], from a key to its item's address. A hit is exact, so the
/// item's key is not read.
pub struct Ours(Copies<u64, u64>);

impl Ours {
    /// Allocates a table of `bytes`.
    ///
    /// # Errors
    /// The bytes hold no bucket, or the system is out of memory.
    pub fn new(bytes: usize, seed: u64) -> Result<Self, Failed> {
        let table = Copies::new(&Config::bytes(bytes).seed(seed));
        table.map(Self).map_err(|error: lookaside::Error| Failed::new("--table", error))
    }
}

impl Front for Ours {
    type Ticket = Ticket<u64>;

    #[inline]
    fn get(&mut self, key: u64) -> Found<Ticket<u64>> {
        match self.0.get(key) {
            lookaside::Found::Hit(address) => Item::at(address).map_or(Found::Dropped, Found::Hit),
            lookaside::Found::Absent => Found::Dropped,
            lookaside::Found::Miss(ticket) => Found::Miss(ticket),
        }
    }

    #[inline]
    fn fill(&mut self, ticket: Ticket<u64>, _key: u64, item: Item) {
        self.0.fill(ticket, Some(item.address()));
    }

    #[inline]
    fn update(&mut self, key: u64, find: impl FnOnce() -> Option<Item>) -> Option<Item> {
        let guard = self.0.write(key);
        let item = find();
        if let Some(item) = item {
            guard.keep(item.address());
        }
        item
    }

    #[inline]
    fn insert(
        &mut self,
        key: u64,
        _item: Item,
        insert: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let _guard = self.0.write(key);
        insert()
    }
}
