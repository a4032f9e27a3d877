//! What both kinds of table share: buckets, epochs, the order of clearing, counts.

use core::sync::atomic::AtomicU64 as Plain64;

use super::super::config::{Config, Counters, Error};
use super::super::gate::{Event, Gate};
use super::super::plain::{Plain, WORDS_MAX};
use super::bucket::{Bucket, Locked, Seen, Shape, VERSION, wait};
use super::policy::{Policy, Turn};
use super::ticket::{Found, Ticket};
use crate::hash::{Hash64, Hasher};
use crate::memory::HugePages;
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::words::Buckets;

/// One bucket in this number is counted, and works also while the table steps aside.
pub const SAMPLE: u32 = 32;

/// Clears between two visits of the sweep to a bucket, at most: half of the epochs.
const SWEEP: usize = 1 << 15;

/// Numbers of lots. The language's atomic also under the model checker: its orders do not matter.
static LOTS: Plain64 = Plain64::new(1);

fn next_lot() -> u64 {
    LOTS.fetch_add(1, core::sync::atomic::Ordering::Relaxed)
}

/// A bucket, and what tells a key from most others of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) tag: u16,
}

pub(super) struct Table<K, V> {
    /// Epoch and floor: the stamp of each bucket whose own is of another epoch.
    pub(super) era: AtomicU64,
    /// Changes with each clear, after `era`. No other table has the number, and no other time.
    pub(super) lot: AtomicU64,
    buckets: Buckets<Shape<K, V>>,
    hasher: Hasher,
    far: bool,
    /// Held by a thread that changes what is below, or `era` and `lot`.
    busy: AtomicU32,
    /// Next bucket of the sweep.
    swept: AtomicU64,
    /// Guards of clears that are not finished.
    pub(super) shut: AtomicU32,
    pub(super) gate: Gate,
}

impl<K: Plain, V: Plain> Table<K, V> {
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let count = config.buckets::<K, V>()?;
        Ok(Self {
            era: AtomicU64::new(0),
            lot: AtomicU64::new(next_lot()),
            buckets: Buckets::zeroed(count, config.pages)?,
            hasher: Hasher::new(config.seed),
            far: config.prefetch.is_far(count * Shape::<K, V>::BYTES),
            busy: AtomicU32::new(0),
            swept: AtomicU64::new(0),
            shut: AtomicU32::new(0),
            gate: Gate::new(config.gate, count * Shape::<K, V>::WAYS),
        })
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: K) -> Hash64 {
        Hash64::new(self.hasher.hash_words(&key.to_words()[..K::WORDS]))
    }

    /// Returns where a key of this hash belongs.
    #[inline(always)]
    pub(super) fn place(&self, hash: Hash64) -> Place {
        let bucket = (((hash.get() >> 32) * self.buckets.count() as u64) >> 32) as u32;
        Place { bucket, tag: hash.get() as u16 }
    }

    #[inline(always)]
    fn bucket(&self, bucket: u32) -> Bucket<'_, K, V> {
        Bucket::new(self.buckets.get(bucket as usize))
    }

    /// Prefetches a bucket's lines.
    #[inline(always)]
    pub(super) fn prefetch<const FAR: bool>(&self, bucket: u32) {
        let start = self.buckets.address(bucket as usize);
        (0..Shape::<K, V>::LINES)
            .for_each(|line| prefetch_at::<FAR>(start.wrapping_add(64 * line)));
    }

    pub(super) fn prefetches_far(&self) -> bool {
        self.far
    }

    /// Looks up a key in its bucket, if its stamp `admits`.
    #[inline(always)]
    pub(super) fn look(
        &self,
        key: K,
        Place { bucket, tag }: Place,
        era: u64,
        admits: impl Fn(u64) -> bool,
    ) -> Found<K, V> {
        let sampled = bucket.is_multiple_of(SAMPLE);
        if !(sampled | self.gate.is_open()) {
            return Found::Miss(Ticket::void(key));
        }
        let count = |event| {
            if sampled {
                self.gate.count(bucket, event);
            }
        };
        match self.bucket(bucket).read(&key.to_words(), era, admits) {
            Seen::Entry(value) => {
                count(Event::Hit);
                value.map_or(Found::Absent, Found::Hit)
            }
            Seen::Nothing { stamp } => {
                count(Event::Miss);
                let lot = self.lot.load(Ordering::Acquire);
                Found::Miss(Ticket { key, bucket, tag, stamp, lot })
            }
            Seen::Busy => {
                count(Event::Busy);
                count(Event::Miss);
                Found::Miss(Ticket::void(key))
            }
            Seen::Raced => {
                count(Event::Raced);
                count(Event::Miss);
                Found::Miss(Ticket::void(key))
            }
        }
    }

    /// Locks a bucket and empties it if it is of an older epoch.
    pub(super) fn lock(&self, bucket: u32) -> Locked<'_, K, V> {
        let locked = self.bucket(bucket).lock();
        locked.refresh(self.era.load(Ordering::Acquire));
        locked
    }

    /// Puts in the answer to a ticket, if the locked bucket's stamps admit it: `admits(found,
    /// refreshed)`, before and after the bucket is emptied if it is of an older epoch.
    pub(super) fn fill(
        &self,
        ticket: &Ticket<K>,
        value: Option<V>,
        admits: impl Fn(u64, u64) -> bool,
    ) -> bool {
        // A ticket of another table may name a bucket that this one lacks, and so may one from
        // beyond a border, where anyone can write into it.
        let lot = self.lot.load(Ordering::Acquire);
        if ticket.lot != lot || ticket.bucket as usize >= self.buckets.count() {
            return false;
        }
        let (key, value) = (ticket.key.to_words(), value.map(V::to_words));
        let bucket = self.bucket(ticket.bucket);
        let event = match bucket.turn(self.era.load(Ordering::Relaxed), ticket.tag) {
            Turn::Out(_) => Event::Outdone,
            Turn::In(slot, policy) => match bucket.try_lock() {
                None => Event::Busy,
                Some(locked) => {
                    let found = locked.stamp();
                    locked.refresh(self.era.load(Ordering::Acquire));
                    // First whether all is being written: where that has ended, the lot is another.
                    // The other way round, a reader that still has the epoch of the write would
                    // find an answer from before it.
                    let may = self.shut.load(Ordering::Acquire) == 0
                        && self.lot.load(Ordering::Acquire) == ticket.lot
                        && locked.writers() == 0
                        && admits(found, locked.stamp());
                    if may {
                        Self::bring_in(&locked, &key, value.as_ref(), slot, policy);
                        Event::Fill
                    } else {
                        Event::Declined
                    }
                }
            },
        };
        if ticket.bucket.is_multiple_of(SAMPLE) {
            self.gate.count(ticket.bucket, event);
        }
        event == Event::Fill
    }

    /// Puts an entry in, in the place of `victim` if the bucket is full.
    fn bring_in(
        locked: &Locked<'_, K, V>,
        key: &[u64; WORDS_MAX],
        value: Option<&[u64; WORDS_MAX]>,
        victim: usize,
        policy: Policy,
    ) {
        let slot = locked.find(key).or_else(|| locked.free()).unwrap_or_else(|| {
            locked.set_policy(policy);
            victim
        });
        locked.put(slot, key, value);
    }

    /// Runs `change` alone among the threads that clear and number commits. Waits for another's.
    pub(super) fn alone<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut tries = 0;
        loop {
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if self.busy.compare_exchange(0, 1, taken, failed).is_ok() {
                break;
            }
            wait(&mut tries);
        }
        let result = change();
        self.busy.store(0, Ordering::Release);
        result
    }

    /// Runs `change` as [`Table::alone`] does, unless another thread is at it.
    pub(super) fn alone_now(&self, change: impl FnOnce()) {
        if self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            change();
            self.busy.store(0, Ordering::Release);
        }
    }

    /// Begins an epoch: no entry counts any more, and no ticket. Returns the new lot. Called
    /// [`alone`](Table::alone).
    ///
    /// Also visits the next few buckets, so that each is emptied before its epoch's number returns.
    pub(super) fn begin_epoch(&self, floor: u64) -> u64 {
        let epoch = (self.era.load(Ordering::Relaxed) >> 48).wrapping_add(1) as u16;
        let era = u64::from(epoch) << 48 | floor & VERSION;
        let lot = next_lot();
        self.era.store(era, Ordering::Release);
        self.lot.store(lot, Ordering::Release);
        let count = self.buckets.count();
        let mut next = self.swept.load(Ordering::Relaxed) as usize;
        for _ in 0..count.div_ceil(SWEEP) {
            self.bucket(next as u32).lock().refresh(era);
            next = (next + 1) % count;
        }
        self.swept.store(next as u64, Ordering::Relaxed);
        lot
    }

    pub(super) fn slots(&self) -> usize {
        self.buckets.count() * Shape::<K, V>::WAYS
    }

    pub(super) fn bytes(&self) -> usize {
        self.buckets.count() * Shape::<K, V>::BYTES
    }

    pub(super) fn huge_pages(&self) -> HugePages {
        self.buckets.huge_pages()
    }

    pub(super) fn counters(&self) -> Counters {
        self.gate.counters()
    }
}
