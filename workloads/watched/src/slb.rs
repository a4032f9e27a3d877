//! SLB, a search look-aside buffer in software, written from what papers say about it and nothing
//! else: a bounded table of buckets of one cache line, counters of use, and admission by a log of
//! recent misses.
//!
//! ```text
//! bucket, a line: │ 7 counters of a byte │ 7 × (tag 16 | address 48) │    7/8 of the bytes
//! log,    a line: │ 16 tags of 32 bits: the bucket's last misses │        1/8 of the bytes
//! ```
//!
//! A hit adds one to its counter; one that is full halves those of its bucket. A miss whose tag is
//! in the log already is admitted: it replaces an empty slot or the one with the smallest counter,
//! and the others lose one. Other misses only enter the log, in place of one of its tags.

use crate::Failed;
use crate::item::Item;

const SLOTS: usize = 7;
const TAGS: usize = 16;
const LINE: usize = 64;
/// The part of the bytes that the log has.
const LOG_SHARE: usize = 8;

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
    /// Allocates a table of `bytes`, its log included.
    ///
    /// # Errors
    /// The bytes hold no bucket and log, or the system is out of memory.
    pub fn new(bytes: usize) -> Result<Self, Failed> {
        let logs = bytes / LOG_SHARE / LINE;
        let buckets = (bytes / LINE).saturating_sub(logs);
        if logs == 0 || buckets == 0 {
            let least = LOG_SHARE * LINE;
            return Err(Failed::new(
                "--table",
                format!("{bytes} bytes: SLB needs at least {least}"),
            ));
        }
        let mut table = Self { buckets: Vec::new(), logs: Vec::new(), turn: 0 };
        let room = table.buckets.try_reserve_exact(buckets);
        room.and_then(|()| table.logs.try_reserve_exact(logs))
            .map_err(|error| Failed::new("--table", error))?;
        table.buckets.resize(buckets, Bucket { counters: 0, slots: [0; SLOTS] });
        table.logs.resize(logs, Log([0; TAGS]));
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
            self.buckets[place.bucket].admit(place.tag | item.address());
        } else {
            log[self.turn % TAGS] = place.log_tag;
            self.turn += 1;
        }
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

    fn admit(&mut self, entry: u64) {
        let slot = match self.slots.iter().position(|&slot| slot == 0) {
            Some(free) => free,
            None => {
                let least = (0..SLOTS).min_by_key(|&slot| self.counter(slot)).unwrap_or(0);
                for slot in 0..SLOTS {
                    if self.counter(slot) > 0 {
                        self.counters -= 1 << (COUNTER_BITS * slot);
                    }
                }
                least
            }
        };
        self.slots[slot] = entry;
        self.counters &= !(COUNTER_MAX << (COUNTER_BITS * slot));
        self.used(slot);
    }
}
