//! Tier 2: the megaflow cache, one hash table per mask.
//!
//! ```text
//!  order:     [ subtable 7 | subtable 2 | subtable 0 | … ]     by recent hits, most first
//!  subtable:  mask as (word index, bits) pairs · hash table: masked words → entry id
//!  entry:     one or two cache lines
//!     line 0  subtable u16 · epoch u32 · last_used u32 · verdict u32 · values[0..6]
//!     line 1  values[6..14]          (IPv6 and ARP masks only)
//! ```
//!
//! A megaflow says: packets that agree with `values` on the bits of the subtable's mask get this
//! program. The classifier makes every megaflow right for all packets that it matches, whatever
//! the priority of the rule behind it, so the first match is as good as any other. That is also
//! why a stale signature in tier 1 does no harm: [`MegaflowCache::verify`] accepts an entry only
//! if the packet matches it now.
//!
//! When rules or ports change, a new *epoch* begins ([`MegaflowCache::next_epoch`]): megaflows of
//! an older one are *stale* and match nothing, until they are installed again with the same mask
//! and key, or go. So a change costs nothing here, and no packet meets a megaflow that may be
//! wrong.
//!
//! Packets decide which masks there are, so crafted ones can make thousands (tuple space explosion),
//! and a lookup that finds nothing searches them all. [`MegaflowCache::bounded`] keeps masks few. A
//! new one replaces an unused mask with few megaflows. If all are in use, the new one gets more bits
//! than the rules looked at: right as well, for fewer packets.
//!
//! ```text
//!  masks  0 ─── 128 ── 192 ─ 193
//!         as the rules  whole  one of
//!         looked        words  all bits
//! ```
//!
//! Cost: `verify` reads one line for masks of up to six words; a lookup hashes the packet once per
//! subtable that it searches, or compares it if the subtable has one entry. Bounds: the number of
//! entries is fixed at construction; there is at most one subtable per entry. No panic and no
//! allocation on lookups, the reordering included; installing allocates.
//!
//! Source: Fast Software Cache Design for Network Appliances, section 2.

mod subtable;

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use overbank_wire::FlowKey;
use std::cmp::Reverse;
use subtable::{DEAD, Entry, Subtable, fold};

/// Largest burst that a lookup takes.
pub const BURST: usize = 32;

/// Most megaflows that a cache may hold: ids must leave room for [`NO_ENTRY`].
pub const MEGAFLOWS_MAX: usize = 1 << 24;

/// Bytes that one megaflow takes, its share of the hash tables not counted.
pub const MEGAFLOW_BYTES: usize = size_of::<Entry>();

/// In place of an entry id: there is none.
pub const NO_ENTRY: u32 = u32::MAX;

/// Masks up to which new ones are taken as they are; see [`MegaflowCache::bounded`].
pub const MASKS_MAX: usize = 128;
/// Masks of whole words beyond those.
const WHOLE_MASKS_MAX: usize = 64;
/// A mask with more megaflows makes room for no other.
const COLD_MEGAFLOWS_MAX: usize = 4;
/// Masks looked at to find one that makes room.
const MASK_SAMPLE: usize = 16;
/// Masks of a cache whose megaflows are installed with a [`bounded`](MegaflowCache::bounded) mask.
pub const MASKS_BOUND: usize = MASKS_MAX + WHOLE_MASKS_MAX + 1;

/// Lookups between two reorderings of the subtables.
const REORDER_LOOKUPS: u32 = 4096;
/// Entries looked at to find one to evict.
const EVICTION_SAMPLE: usize = 16;
/// How long a stale megaflow waits for a packet that would bring it back, before a sweep takes it.
pub const STALE_MS: u32 = 1000;
/// The first epoch.
const EPOCH_FIRST: u32 = DEAD + 1;

/// Why a megaflow cache cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} megaflows asked for: from 1 to {MEGAFLOWS_MAX} are possible")]
pub struct SizeError {
    /// The number asked for.
    pub wanted: usize,
}

/// What tier 2 did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MegaflowCounters {
    /// Packets looked up, each once however often it was tried.
    pub lookups: u64,
    /// Packets that a megaflow matched.
    pub hits: u64,
    /// Subtables searched, summed over the lookups.
    pub subtables_searched: u64,
    /// Megaflows installed.
    pub installs: u64,
    /// Live megaflows that made room for new ones.
    pub evictions: u64,
    /// Megaflows removed because no packet used them.
    pub expirations: u64,
    /// Megaflows removed because the rules changed.
    pub revalidation_removals: u64,
    /// Stale megaflows that a lookup would have found.
    pub stale_refusals: u64,
    /// Stale megaflows that were installed again.
    pub refreshes: u64,
}

/// The megaflows of one worker. `verdict` numbers are the caller's.
#[derive(Debug)]
pub struct MegaflowCache {
    entries: Vec<Entry>,
    free: Vec<u32>,
    subtables: Vec<Subtable>,
    free_subtables: Vec<u16>,
    by_mask: HashMap<FlowKey, u16, FixedState>,
    order: Vec<u16>,
    lookups_to_reorder: u32,
    hand: usize,
    sweep_hand: usize,
    mask_hand: usize,
    epoch: u32,
    secret: u64,
    counters: MegaflowCounters,
}

impl MegaflowCache {
    /// An empty cache for up to `capacity` megaflows; `seed` varies the hash function.
    pub fn new(capacity: usize, seed: u64) -> Result<MegaflowCache, SizeError> {
        if capacity == 0 || capacity > MEGAFLOWS_MAX {
            return Err(SizeError { wanted: capacity });
        }
        Ok(MegaflowCache {
            entries: vec![Entry::DEAD; capacity],
            free: (0..capacity as u32).rev().collect(),
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            by_mask: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: Vec::new(),
            lookups_to_reorder: REORDER_LOOKUPS,
            hand: 0,
            sweep_hand: 0,
            mask_hand: 0,
            epoch: EPOCH_FIRST,
            secret: fold(seed ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db) | 1,
            counters: MegaflowCounters::default(),
        })
    }

    /// Most megaflows that fit.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Megaflows that are there.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Masks in use: the subtables that a miss searches.
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> &MegaflowCounters {
        &self.counters
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&mut self) {
        self.counters = MegaflowCounters::default();
    }

    /// Bytes that the entries and the hash tables over them take.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
            + self
                .subtables
                .iter()
                .map(|s| size_of::<Subtable>() + s.ids.allocation_size())
                .sum::<usize>()
    }

    /// Starts to bring the first line of an entry into the CPU's caches.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        if let Some(entry) = self.entries.get(id as usize) {
            overbank::prefetch::prefetch(entry);
        }
    }

    /// Whether entry `id` is a megaflow of this epoch that `key` matches.
    #[inline]
    pub fn verify(&self, id: u32, key: &FlowKey) -> bool {
        let Some(entry) = self.entries.get(id as usize) else { return false };
        let Some(subtable) = self.subtables.get(usize::from(entry.subtable)) else { return false };
        (entry.epoch == self.epoch) & subtable.agrees(key, &entry.values)
    }

    /// Whether entry `id` is a stale megaflow that `key` matches.
    #[cold]
    pub fn is_stale_match(&self, id: u32, key: &FlowKey) -> bool {
        let Some(entry) = self.entries.get(id as usize) else { return false };
        let Some(subtable) = self.subtables.get(usize::from(entry.subtable)) else { return false };
        entry.epoch != self.epoch && entry.epoch != DEAD && subtable.agrees(key, &entry.values)
    }

    /// Makes every megaflow stale. Once in 2^32 times the epochs start again: then all megaflows
    /// go, so that none is of an epoch that comes twice, and `removed` gets their verdict numbers.
    pub fn next_epoch(&mut self, removed: impl FnMut(u32)) {
        match self.epoch.checked_add(1) {
            Some(next) => self.epoch = next,
            None => {
                self.revalidate(|_, _, _| false, removed);
                self.epoch = EPOCH_FIRST;
            }
        }
    }

    /// The caller's number of entry `id`, which is marked as used at `now_ms`.
    #[inline]
    pub fn use_entry(&mut self, id: u32, now_ms: u32) -> u32 {
        match self.entries.get_mut(id as usize) {
            Some(entry) => {
                entry.last_used_ms = now_ms;
                entry.verdict
            }
            None => NO_ENTRY,
        }
    }

    /// Looks up the keys whose indices are `pending`, subtable by subtable. Those found leave
    /// `pending` and have their entry's id in `found`, at the key's index.
    pub fn lookup_batch(
        &mut self,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
    ) {
        let asked = pending.len();
        self.counters.lookups += asked as u64;
        self.counters.subtables_searched += self.search(keys, pending, found);
        self.lookups_to_reorder = self.lookups_to_reorder.saturating_sub(asked as u32);
        if self.lookups_to_reorder == 0 {
            self.reorder();
        }
    }

    /// As [`Self::lookup_batch`], for keys that were looked up and not found, after others were
    /// installed: a hit counts, the lookup and the subtables searched do not count again.
    pub fn lookup_again(
        &mut self,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
    ) {
        self.search(keys, pending, found);
    }

    /// Counts the hits and returns how many subtables were searched, all keys together.
    #[inline]
    fn search(
        &mut self,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
    ) -> u64 {
        let asked = pending.len();
        let (mut searched, mut stale) = (0, 0);
        for &s in &self.order {
            if pending.is_empty() {
                break;
            }
            let Some(subtable) = self.subtables.get_mut(usize::from(s)) else { continue };
            searched += pending.len() as u64;
            stale += subtable.search(&self.entries, self.epoch, keys, pending, found, self.secret);
        }
        self.counters.stale_refusals += stale;
        self.counters.hits += (asked - pending.len()) as u64;
        searched
    }

    /// Sorts the subtables by recent hits and lets old hits count half. A stable sort would
    /// allocate; the number of the subtable decides between equals.
    fn reorder(&mut self) {
        self.lookups_to_reorder = REORDER_LOOKUPS;
        let subtables = &mut self.subtables;
        self.order.sort_unstable_by_key(|&s| (Reverse(subtables[usize::from(s)].recent_hits), s));
        subtables.iter_mut().for_each(|s| s.recent_hits /= 2);
    }

    /// Installs a megaflow and returns its id and the verdict number that no longer holds: that of
    /// the megaflow evicted to make room, or of an equal one that was there, stale or not, which
    /// keeps its id. `None`: there are
    /// 65,536 masks already, and this would be one more.
    pub fn install(
        &mut self,
        key: &FlowKey,
        mask: &FlowKey,
        verdict: u32,
        now_ms: u32,
    ) -> Option<(u32, Option<u32>)> {
        let s = self.subtable_for(mask)?;
        let values = self.subtables[usize::from(s)].compact(key);
        let hash = self.subtables[usize::from(s)].hash(&values, self.secret);
        let same = self.subtables[usize::from(s)]
            .ids
            .find(hash, |&id| self.entries[id as usize].values == values)
            .copied();
        if let Some(id) = same {
            let entry = &mut self.entries[id as usize];
            entry.last_used_ms = now_ms;
            self.counters.refreshes += u64::from(entry.epoch != self.epoch);
            entry.epoch = self.epoch;
            return Some((id, Some(std::mem::replace(&mut entry.verdict, verdict))));
        }
        let mut evicted = None;
        if self.free.is_empty() {
            let victim = self.victim(now_ms);
            evicted = Some(self.entries[victim as usize].verdict);
            // The new megaflow's subtable may be empty still: it stays.
            self.remove_entry(victim, Some(s));
            self.counters.evictions += 1;
        }
        let id = self.free.pop()?;
        self.entries[id as usize] =
            Entry { subtable: s, epoch: self.epoch, last_used_ms: now_ms, verdict, values };
        self.subtables[usize::from(s)].insert(id, hash, &self.entries, self.secret);
        self.counters.installs += 1;
        Some((id, evicted))
    }

    /// Returns the mask to install a megaflow of `mask` with: the same while there are few masks, it
    /// is one of them, or another makes room, else one that has all its bits and more. Keeps masks
    /// at [`MASKS_BOUND`]. `removed` gets the verdict numbers of megaflows that went.
    pub fn bounded(&mut self, mask: &FlowKey, now_ms: u32, removed: impl FnMut(u32)) -> FlowKey {
        if self.has_room_for(mask, MASKS_MAX) || self.evict_mask(now_ms, removed) {
            return *mask;
        }
        let mut whole = *mask;
        whole.words_mut().iter_mut().filter(|word| **word != 0).for_each(|word| *word = u64::MAX);
        if !self.has_room_for(&whole, MASKS_MAX + WHOLE_MASKS_MAX) {
            whole.words_mut().fill(u64::MAX);
        }
        whole
    }

    fn has_room_for(&self, mask: &FlowKey, most: usize) -> bool {
        self.by_mask.len() < most || self.by_mask.contains_key(mask)
    }

    /// Removes the longest unused of a few masks, walking round; false if all are in use, now or by
    /// many megaflows. Hits of tier 1 count as use: they reach the entries.
    fn evict_mask(&mut self, now_ms: u32, mut removed: impl FnMut(u32)) -> bool {
        let (mut coldest, mut coldest_age) = (None, 0);
        for _ in 0..MASK_SAMPLE {
            self.mask_hand = (self.mask_hand + 1) % self.order.len().max(1);
            let Some(&s) = self.order.get(self.mask_hand) else { return false };
            let ids = &self.subtables[usize::from(s)].ids;
            let age = |id: &u32| now_ms.wrapping_sub(self.entries[*id as usize].last_used_ms);
            let idle = ids.iter().map(age).min().unwrap_or(u32::MAX);
            if ids.len() <= COLD_MEGAFLOWS_MAX && idle > coldest_age {
                (coldest, coldest_age) = (Some(s), idle);
            }
        }
        let Some(s) = coldest else { return false };
        let ids: ArrayVec<u32, COLD_MEGAFLOWS_MAX> =
            self.subtables[usize::from(s)].ids.iter().copied().collect();
        for id in ids {
            removed(self.entries[id as usize].verdict);
            self.remove_entry(id, None);
            self.counters.evictions += 1;
        }
        true
    }

    fn subtable_for(&mut self, mask: &FlowKey) -> Option<u16> {
        if let Some(&s) = self.by_mask.get(mask) {
            return Some(s);
        }
        let s = match self.free_subtables.pop() {
            Some(s) => {
                self.subtables[usize::from(s)] = Subtable::new(mask);
                s
            }
            None => {
                let s = u16::try_from(self.subtables.len()).ok()?;
                self.subtables.push(Subtable::new(mask));
                s
            }
        };
        self.by_mask.insert(*mask, s);
        self.order.push(s);
        Some(s)
    }

    /// A stale one, or else the longest unused, of a few entries, walking round. Called when the
    /// cache is full.
    fn victim(&mut self, now_ms: u32) -> u32 {
        let capacity = self.entries.len();
        let (mut best, mut best_age) = (0, None);
        for _ in 0..EVICTION_SAMPLE.min(capacity) {
            self.hand = (self.hand + 1) % capacity;
            let entry = &self.entries[self.hand];
            let stale = entry.epoch != self.epoch;
            let age = Some((stale, now_ms.wrapping_sub(entry.last_used_ms)));
            if age > best_age {
                (best, best_age) = (self.hand as u32, age);
            }
        }
        best
    }

    /// Takes an entry out; an emptied subtable goes too, unless it is `keep`.
    fn remove_entry(&mut self, id: u32, keep: Option<u16>) {
        let entry = self.entries[id as usize];
        let subtable = &mut self.subtables[usize::from(entry.subtable)];
        subtable.remove(id, &entry.values, self.secret);
        self.entries[id as usize] = Entry::DEAD;
        self.free.push(id);
        if subtable.ids.is_empty() && keep != Some(entry.subtable) {
            self.by_mask.remove(&subtable.mask());
            self.order.retain(|&s| s != entry.subtable);
            self.free_subtables.push(entry.subtable);
        }
    }

    /// Removes the megaflows that no packet has used for longer than `idle_ms`; `removed` gets
    /// their verdict numbers. Times wrap round after 49 days.
    pub fn expire(&mut self, now_ms: u32, idle_ms: u32, mut removed: impl FnMut(u32)) -> usize {
        let idle = |entry: &Entry| now_ms.wrapping_sub(entry.last_used_ms) > idle_ms;
        let gone = self.remove_if(|_, _, entry| idle(entry), &mut removed);
        self.counters.expirations += gone as u64;
        gone
    }

    /// Asks `keep` about every megaflow (masked key, mask, verdict number) after the rules changed
    /// and removes those that it refuses. The others are of this epoch then.
    pub fn revalidate(
        &mut self,
        mut keep: impl FnMut(&FlowKey, &FlowKey, u32) -> bool,
        mut removed: impl FnMut(u32),
    ) -> usize {
        let gone = self.remove_if(|key, mask, entry| !keep(key, mask, entry.verdict), &mut removed);
        self.counters.revalidation_removals += gone as u64;
        let epoch = self.epoch;
        for entry in self.entries.iter_mut().filter(|entry| entry.epoch != DEAD) {
            entry.epoch = epoch;
        }
        gone
    }

    /// Looks at the next `budget` entries, going round, and removes those that are idle as in
    /// [`Self::expire`] and those that have been stale and unused for longer than [`STALE_MS`].
    pub fn sweep(
        &mut self,
        now_ms: u32,
        idle_ms: u32,
        budget: usize,
        mut removed: impl FnMut(u32),
    ) -> usize {
        let mut gone = 0;
        for _ in 0..budget.min(self.entries.len()) {
            self.sweep_hand = (self.sweep_hand + 1) % self.entries.len();
            let entry = &self.entries[self.sweep_hand];
            let age_ms = now_ms.wrapping_sub(entry.last_used_ms);
            let stale = entry.epoch != self.epoch && age_ms > STALE_MS;
            if entry.epoch == DEAD || !(stale || age_ms > idle_ms) {
                continue;
            }
            if age_ms > idle_ms {
                self.counters.expirations += 1;
            } else {
                self.counters.revalidation_removals += 1;
            }
            removed(entry.verdict);
            // Ids are less than 2^32.
            self.remove_entry(self.sweep_hand as u32, None);
            gone += 1;
        }
        gone
    }

    fn remove_if(
        &mut self,
        mut goes: impl FnMut(&FlowKey, &FlowKey, &Entry) -> bool,
        removed: &mut impl FnMut(u32),
    ) -> usize {
        let mut gone = Vec::new();
        for &s in &self.order {
            let subtable = &self.subtables[usize::from(s)];
            let mask = subtable.mask();
            gone.extend(subtable.ids.iter().copied().filter(|&id| {
                let entry = &self.entries[id as usize];
                goes(&subtable.expand(&entry.values), &mask, entry)
            }));
        }
        for &id in &gone {
            removed(self.entries[id as usize].verdict);
            self.remove_entry(id, None);
        }
        gone.len()
    }

    /// Whether `id` is a megaflow, stale or not.
    pub fn is_live(&self, id: u32) -> bool {
        self.entries.get(id as usize).is_some_and(|entry| entry.epoch != DEAD)
    }

    /// Masked key, mask and verdict number of every megaflow that is not stale.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, FlowKey, u32)> + '_ {
        self.entries.iter().filter(|entry| entry.epoch == self.epoch).map(|entry| {
            let subtable = &self.subtables[usize::from(entry.subtable)];
            (subtable.expand(&entry.values), subtable.mask(), entry.verdict)
        })
    }
}
