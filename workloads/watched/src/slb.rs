//! SLB, a search look-aside buffer in software, written from what papers say about it and nothing
//! else: a bounded table of buckets of one cache line, counters of use, and admission by a log of
//! recent misses.
//!
//! ```text
//! bucket, a line: │ 7 counters of a byte │ 7 × (tag 16 | address 48) │
//! log,    a line: │ 16 tags of 32 bits: the last misses │              one for 7 buckets
//! copies:         │ 7 items a bucket │                                 if it copies items
//! ```
//!
//! The SDC paper says that SLB needs "an extra memory copy to move a data item into the buffer", so
//! one form copies items; the other keeps their addresses.
//!
//! A hit adds one to its counter; one that is full halves those of its bucket. A miss whose tag is
//! in the log already is admitted: it replaces an empty slot or the one with the smallest counter,
//! and the others lose one. Other misses only enter the log, in place of one of its tags.

use crate::Failed;
use crate::item::{Item, WORD};

const SLOTS: usize = 7;
const TAGS: usize = 16;
const LINE: usize = 64;
/// Buckets for each line of the log.
const BUCKETS_A_LOG: usize = 7;

const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const COUNTER_BITS: usize = 8;
const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;
/// Keeps the counters of a bucket apart when all are halved at once.
const HALVES: u64 = 0x7f7f_7f7f_7f7f_7f7f;

#[derive(Clone)]
#[repr(C, align(64))]
struct Bucket {
    counters: u64,
    slots: [u64; SLOTS],
}

/// Tags of recent misses. The slot for the next one goes around for all logs together.
#[derive(Clone)]
#[repr(C, align(64))]
struct Log([u32; TAGS]);

/// The table.
pub struct Slb {
    buckets: Vec<Bucket>,
    logs: Vec<Log>,
    turn: usize,
    copies: Option<Copies>,
}

/// A place for a copy of an item for each slot of a bucket.
struct Copies {
    room: Vec<u64>,
    /// Words of an item's value.
    words: usize,
}

/// Where a key belongs, and its tags.
struct Place {
    bucket: usize,
    log: usize,
    /// In the address's upper bits.
    tag: u64,
    /// Never 0, which is no tag.
    log_tag: u32,
}

impl Slb {
    /// Allocates a table of `bytes`, its log included, and copies of items with values of
    /// `copied` words, if it makes any.
    ///
    /// # Errors
    /// The bytes hold no bucket and log, or the system is out of memory.
    pub fn new(bytes: usize, copied: Option<usize>) -> Result<Self, Failed> {
        let item_words = copied.map_or(0, Item::words);
        let bucket = LINE + SLOTS * item_words * WORD;
        let part = BUCKETS_A_LOG * bucket + LINE;
        let buckets = bytes / part * BUCKETS_A_LOG;
        let logs = buckets / BUCKETS_A_LOG;
        if logs == 0 {
            return Err(Failed::new(
                "--table",
                format!("{bytes} bytes: SLB needs at least {part}"),
            ));
        }
        let mut table = Self { buckets: Vec::new(), logs: Vec::new(), turn: 0, copies: None };
        let mut room = Vec::new();
        table
            .buckets
            .try_reserve_exact(buckets)
            .and_then(|()| table.logs.try_reserve_exact(logs))
            .and_then(|()| room.try_reserve_exact(buckets * SLOTS * item_words))
            .map_err(|error| Failed::new("--table", error))?;
        table.buckets.resize(buckets, Bucket { counters: 0, slots: [0; SLOTS] });
        table.logs.resize(logs, Log([0; TAGS]));
        room.resize(buckets * SLOTS * item_words, 0);
        table.copies = copied.map(|words| Copies { room, words });
        Ok(table)
    }

    #[inline]
    fn place(&self, key: u64) -> Place {
        let product = u128::from(key ^ (key >> 32)) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let hash = (product >> 64) as u64 ^ product as u64;
        let scaled = |parts: usize| ((u128::from(hash) * parts as u128) >> 64) as usize;
        Place {
            bucket: scaled(self.buckets.len()),
            log: scaled(self.logs.len()),
            tag: hash << ADDRESS_BITS,
            log_tag: hash as u32 | 1,
        }
    }

    /// Looks up a key. A slot whose tag fits is checked by the item's key.
    #[inline]
    pub fn look(&mut self, key: u64) -> Option<Item> {
        let place = self.place(key);
        let bucket = &mut self.buckets[place.bucket];
        for (i, &slot) in bucket.slots.iter().enumerate() {
            if (slot ^ place.tag) & !ADDRESS != 0 {
                continue;
            }
            let Some(item) = Item::at(slot & ADDRESS) else { continue };
            if item.key() == key {
                bucket.used(i);
                return Some(item);
            }
        }
        None
    }

    /// Takes what the index found for a key that was not here.
    #[inline]
    pub fn missed(&mut self, key: u64, item: Item) {
        let place = self.place(key);
        let log = &mut self.logs[place.log].0;
        if log.contains(&place.log_tag) {
            let bucket = &mut self.buckets[place.bucket];
            let slot = bucket.make_room();
            let item = match &mut self.copies {
                None => item,
                Some(copies) => copies.put(SLOTS * place.bucket + slot, item),
            };
            bucket.set(slot, place.tag | item.address());
        } else {
            log[self.turn % TAGS] = place.log_tag;
            self.turn += 1;
        }
    }
}

impl Slb {
    /// Takes a key out, if it has a copy: the item is about to change.
    #[inline]
    pub fn changes(&mut self, key: u64) {
        if self.copies.is_none() {
            return;
        }
        let place = self.place(key);
        let slots = &mut self.buckets[place.bucket].slots;
        for slot in slots {
            let fits = (*slot ^ place.tag) & !ADDRESS == 0;
            if fits && Item::at(*slot & ADDRESS).is_some_and(|item| item.key() == key) {
                *slot = 0;
            }
        }
    }
}

impl Copies {
    /// Copies an item to a place and returns the copy.
    fn put(&mut self, place: usize, item: Item) -> Item {
        let each = Item::words(self.words);
        let room = &mut self.room[place * each..(place + 1) * each];
        item.copy(room)
    }
}

impl Bucket {
    #[inline]
    fn counter(&self, slot: usize) -> u64 {
        (self.counters >> (COUNTER_BITS * slot)) & COUNTER_MAX
    }

    #[inline]
    fn used(&mut self, slot: usize) {
        if self.counter(slot) == COUNTER_MAX {
            self.counters = (self.counters >> 1) & HALVES;
        }
        self.counters += 1 << (COUNTER_BITS * slot);
    }

    /// Returns a free slot, or that of the smallest counter; then the others lose one.
    fn make_room(&mut self) -> usize {
        if let Some(free) = self.slots.iter().position(|&slot| slot == 0) {
            return free;
        }
        let least = (0..SLOTS).min_by_key(|&slot| self.counter(slot)).unwrap_or(0);
        for slot in 0..SLOTS {
            if self.counter(slot) > 0 {
                self.counters -= 1 << (COUNTER_BITS * slot);
            }
        }
        least
    }

    fn set(&mut self, slot: usize, entry: u64) {
        self.slots[slot] = entry;
        self.counters &= !(COUNTER_MAX << (COUNTER_BITS * slot));
        self.used(slot);
    }
}
