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
//! program. The classifier makes every megaflow right for all packets that it matches, whatever the
//! priority of the rule behind it, so the first match is as good as any. For the same reason a
//! stale signature in tier 1 is harmless: [`MegaflowCache::verify`] accepts an entry only if the
//! packet matches it now.
//!
//! A change of rules or ports starts a new *epoch* ([`MegaflowCache::next_epoch`]). Megaflows of
//! older epochs are *stale*: they match nothing until they are installed again with the same mask
//! and key. A change therefore costs nothing here, and no packet meets a wrong megaflow.
//!
//! Packets determine the masks, so crafted packets can create thousands (tuple space explosion),
//! and a lookup that misses would search them all. Three bounds keep such packets cheap:
//! - **Masks.** [`MegaflowCache::bounded`] caps their number. One of 16 new masks replaces an
//!   unused mask with few megaflows. The others get more bits than the rules looked at: still
//!   right, but for fewer packets.
//! - **Flows.** At the cap, the first packet of a flow installs nothing, so packets that never come
//!   again cost a translation and evict nothing. The second packet installs.
//! - **Horizon.** A lookup searches only the first masks of the order: as many as would have made
//!   recent lookups cheapest, with the classifier's cost for each miss. A packet whose megaflow
//!   lies beyond gets the same answer from the classifier. Installing then meets the equal megaflow
//!   and counts a hit, so a mask that repays its search returns.
//!
//! ```text
//!  masks  0 ─── 128 ── 192 ─ 193
//!         as the rules  whole  one of
//!         looked        words  all bits
//! ```
//!
//! Cost: `verify` reads one line for masks of up to six words. A lookup hashes the packet once for
//! each subtable that it searches, or compares it if the subtable has one entry. Bounds: the number
//! of entries is fixed at construction; there is at most one subtable per entry. Lookups,
//! reordering included, neither panic nor allocate; installing allocates.
//!
//! Source: Fast Software Cache Design for Network Appliances, section 2.

mod subtable;

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use overbank_wire::FlowKey;
use std::cmp::Reverse;
use subtable::{DEAD, Entry, Subtable, fold};

/// Largest burst of a lookup.
pub const BURST: usize = 32;

/// Largest capacity of a cache: ids must leave room for [`NO_ENTRY`].
pub const MEGAFLOWS_MAX: usize = 1 << 24;

/// Bytes of one megaflow, without its share of the hash tables.
pub const MEGAFLOW_BYTES: usize = size_of::<Entry>();

/// Entry id that stands for none.
pub const NO_ENTRY: u32 = u32::MAX;

/// Masks that are installed unchanged; see [`MegaflowCache::bounded`].
pub const MASKS_MAX: usize = 128;
/// Further masks of whole words.
const WHOLE_MASKS_MAX: usize = 64;
/// A mask with more megaflows is never evicted.
const COLD_MEGAFLOWS_MAX: usize = 4;
/// Masks examined to find one to evict.
const MASK_SAMPLE: usize = 16;
/// Most masks of a cache that installs only [`bounded`](MegaflowCache::bounded) masks.
pub const MASKS_BOUND: usize = MASKS_MAX + WHOLE_MASKS_MAX + 1;

/// Lookups between two reorderings of the subtables.
const REORDER_LOOKUPS: u32 = 4096;
/// Cost of tier 3 before the first is known, in searches of a subtable.
const MISS_COST: u32 = 64;
/// Weight of the past in the average of costs.
const MISS_COST_PAST: u32 = 16;
/// Megaflows with new masks at the cap, of which one may evict another mask.
const EVICTION_INTERVAL: u32 = 16;
/// Most tags of flows whose megaflow was refused.
const REFUSED_MAX: usize = 1 << 16;
/// Entries examined to find one to evict.
const EVICTION_SAMPLE: usize = 16;
/// Milliseconds that a stale megaflow waits for a packet before a sweep removes it.
pub const STALE_MS: u32 = 1000;
const EPOCH_FIRST: u32 = DEAD + 1;

/// The capacity asked for is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} megaflows: must be between 1 and {MEGAFLOWS_MAX}")]
pub struct SizeError {
    pub wanted: usize,
}

/// Counters of tier 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MegaflowCounters {
    /// Packets looked up; a second try of the same packet does not count.
    pub lookups: u64,
    /// Packets that a megaflow matched.
    pub hits: u64,
    /// Subtables searched, summed over the lookups.
    pub subtables_searched: u64,
    /// Megaflows installed.
    pub installs: u64,
    /// Live megaflows removed to make room.
    pub evictions: u64,
    /// Megaflows removed because no packet used them.
    pub expirations: u64,
    /// Megaflows removed because the rules changed.
    pub revalidation_removals: u64,
    /// Stale megaflows that would have matched a lookup.
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
    /// Lookups that `recent_hits` of the subtables refer to.
    recent_lookups: u32,
    /// Number of subtables, from the first in `order`, that a lookup searches.
    horizon: usize,
    /// Average cost of tier 3, times [`MISS_COST_PAST`].
    miss_costs: u32,
    /// Tags of flows whose megaflow was refused, by hash.
    refused: Box<[u8]>,
    refusals: u32,
    hand: usize,
    sweep_hand: usize,
    mask_hand: usize,
    epoch: u32,
    secret: u64,
    counters: MegaflowCounters,
}

impl MegaflowCache {
    /// Returns an empty cache for up to `capacity` megaflows; `seed` varies the hash function.
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
            recent_lookups: 0,
            horizon: usize::MAX,
            miss_costs: MISS_COST * MISS_COST_PAST,
            refused: vec![0; capacity.next_power_of_two().min(REFUSED_MAX)].into(),
            refusals: 0,
            hand: 0,
            sweep_hand: 0,
            mask_hand: 0,
            epoch: EPOCH_FIRST,
            secret: fold(seed ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db) | 1,
            counters: MegaflowCounters::default(),
        })
    }

    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of megaflows, stale ones included.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of masks: the most subtables that a miss searches.
    pub fn masks(&self) -> usize {
        self.order.len()
    }

    pub fn counters(&self) -> &MegaflowCounters {
        &self.counters
    }

    pub fn reset_counters(&mut self) {
        self.counters = MegaflowCounters::default();
    }

    /// Returns the bytes of the entries and of the hash tables over them.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
            + self
                .subtables
                .iter()
                .map(|s| size_of::<Subtable>() + s.ids.allocation_size())
                .sum::<usize>()
    }

    /// Prefetches the first line of an entry.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        if let Some(entry) = self.entries.get(id as usize) {
            overbank::prefetch::prefetch(entry);
        }
    }

    /// Returns whether entry `id` is a megaflow of this epoch that `key` matches.
    #[inline]
    pub fn verify(&self, id: u32, key: &FlowKey) -> bool {
        let Some(entry) = self.entries.get(id as usize) else { return false };
        let Some(subtable) = self.subtables.get(usize::from(entry.subtable)) else { return false };
        (entry.epoch == self.epoch) & subtable.agrees(key, &entry.values)
    }

    /// Returns whether entry `id` is a stale megaflow that `key` matches.
    #[cold]
    pub fn is_stale_match(&self, id: u32, key: &FlowKey) -> bool {
        let Some(entry) = self.entries.get(id as usize) else { return false };
        let Some(subtable) = self.subtables.get(usize::from(entry.subtable)) else { return false };
        entry.epoch != self.epoch && entry.epoch != DEAD && subtable.agrees(key, &entry.values)
    }

    /// Makes every megaflow stale. After 2^32 epochs the count restarts: then all megaflows are
    /// removed, so that no epoch repeats, and `removed` gets their verdict numbers.
    pub fn next_epoch(&mut self, removed: impl FnMut(u32)) {
        match self.epoch.checked_add(1) {
            Some(next) => self.epoch = next,
            None => {
                self.revalidate(|_, _, _| false, removed);
                self.epoch = EPOCH_FIRST;
            }
        }
    }

    /// Marks entry `id` as used at `now_ms` and returns its verdict number.
    #[inline]
    pub fn use_entry(&mut self, id: u32, now_ms: u32) -> u32 {
        debug_assert!((id as usize) < self.entries.len(), "only ids of this cache are used");
        match self.entries.get_mut(id as usize) {
            Some(entry) => {
                entry.last_used_ms = now_ms;
                entry.verdict
            }
            None => NO_ENTRY,
        }
    }

    /// Looks up the keys whose indices are `pending`, subtable by subtable up to the horizon. Keys
    /// that hit leave `pending`, and `found` gets their entry's id at the key's index.
    pub fn lookup_batch(
        &mut self,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
    ) {
        let asked = pending.len() as u32;
        self.counters.lookups += u64::from(asked);
        let mut stale = 0;
        for &s in self.order.iter().take(self.horizon) {
            if pending.is_empty() {
                break;
            }
            let Some(subtable) = self.subtables.get_mut(usize::from(s)) else { continue };
            self.counters.subtables_searched += pending.len() as u64;
            stale += subtable.search(&self.entries, self.epoch, keys, pending, found, self.secret);
        }
        self.counters.stale_refusals += stale;
        self.counters.hits += u64::from(asked) - pending.len() as u64;
        self.recent_lookups += asked;
        self.lookups_to_reorder = self.lookups_to_reorder.saturating_sub(asked);
        if self.lookups_to_reorder == 0 {
            self.reorder();
        }
    }

    /// Looks up a key that missed before these megaflows were installed. Counts hits, but no
    /// lookups.
    pub fn lookup_again(&mut self, key: &FlowKey, installed: &[u32]) -> Option<u32> {
        let id = installed.iter().copied().find(|&id| self.verify(id, key))?;
        self.counters.hits += 1;
        self.subtables[usize::from(self.entries[id as usize].subtable)].recent_hits += 1;
        Some(id)
    }

    /// Notes what tier 3 took for a packet, in searches of a subtable.
    pub fn note_miss(&mut self, cost: u32) {
        self.miss_costs = self.miss_costs - self.miss_costs / MISS_COST_PAST + cost;
    }

    /// Sorts the subtables by recent hits, and halves the hits. A stable sort would allocate; the
    /// number of the subtable breaks ties.
    fn reorder(&mut self) {
        self.lookups_to_reorder = REORDER_LOOKUPS;
        let subtables = &mut self.subtables;
        self.order.sort_unstable_by_key(|&s| (Reverse(subtables[usize::from(s)].recent_hits), s));
        self.horizon = self.cheapest_horizon();
        self.recent_lookups /= 2;
        self.subtables.iter_mut().for_each(|s| s.recent_hits /= 2);
    }

    /// Returns the number of subtables with which recent lookups would have cost least, misses
    /// included.
    fn cheapest_horizon(&self) -> usize {
        let miss_cost = u64::from(self.miss_costs / MISS_COST_PAST);
        let mut missed = u64::from(self.recent_lookups);
        let (mut searched, mut best, mut least) = (0, 0, missed * miss_cost);
        for (&s, n) in self.order.iter().zip(1..) {
            searched += missed;
            missed = missed.saturating_sub(self.subtables[usize::from(s)].recent_hits.into());
            if searched + missed * miss_cost <= least {
                (best, least) = (n, searched + missed * miss_cost);
            }
        }
        if best == self.order.len() { usize::MAX } else { best.max(1) }
    }

    /// Installs a megaflow. Returns its id and the verdict number that no longer holds, if any:
    /// that of an evicted megaflow, or of an equal one (stale or not), whose id it keeps. Returns
    /// `None` if it would add a mask beyond 65,536.
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
            let fresh = entry.epoch == self.epoch;
            self.counters.refreshes += u64::from(!fresh);
            // Beyond the horizon: the lookup would have found it.
            self.subtables[usize::from(s)].recent_hits += u32::from(fresh);
            entry.epoch = self.epoch;
            return Some((id, Some(std::mem::replace(&mut entry.verdict, verdict))));
        }
        let mut evicted = None;
        if self.free.is_empty() {
            let victim = self.victim(now_ms);
            evicted = Some(self.entries[victim as usize].verdict);
            // The new megaflow's subtable may still be empty: it stays.
            self.remove_entry(victim, Some(s));
            self.counters.evictions += 1;
        }
        let id = self.free.pop().expect("a megaflow was evicted to make room");
        self.entries[id as usize] =
            Entry { subtable: s, epoch: self.epoch, last_used_ms: now_ms, verdict, values };
        self.subtables[usize::from(s)].insert(id, hash, &self.entries, self.secret);
        self.counters.installs += 1;
        Some((id, evicted))
    }

    /// Returns the mask to install a megaflow of `mask` with, or `None` to install none; `flow` is
    /// a hash of the packet's flow. It is `mask` itself while there are fewer than [`MASKS_MAX`]
    /// masks, if it is present, or if another can be evicted. Otherwise the first packet of a flow
    /// installs nothing, and the next a megaflow with more bits. Caps the number of masks at
    /// [`MASKS_BOUND`]; `removed` gets the verdict numbers of evicted megaflows.
    pub fn bounded(
        &mut self,
        mask: &FlowKey,
        flow: u64,
        now_ms: u32,
        removed: impl FnMut(u32),
    ) -> Option<FlowKey> {
        if self.has_room_for(mask, MASKS_MAX) {
            return Some(*mask);
        }
        self.refusals = (self.refusals + 1) % EVICTION_INTERVAL;
        if self.refusals == 0 && self.evict_mask(now_ms, removed) {
            return Some(*mask);
        }
        if !self.was_refused(flow) {
            return None;
        }
        let mut whole = *mask;
        whole.words_mut().iter_mut().filter(|word| **word != 0).for_each(|word| *word = u64::MAX);
        if !self.has_room_for(&whole, MASKS_MAX + WHOLE_MASKS_MAX) {
            whole.words_mut().fill(u64::MAX);
        }
        Some(whole)
    }

    /// Returns whether a megaflow of this flow was refused before, and notes that one is.
    fn was_refused(&mut self, flow: u64) -> bool {
        let hash = fold(flow ^ self.secret, 0x9e37_79b9_7f4a_7c15);
        let tag = (hash >> 56) as u8 | 1;
        let at = hash as usize & (self.refused.len() - 1);
        std::mem::replace(&mut self.refused[at], tag) == tag
    }

    fn has_room_for(&self, mask: &FlowKey, most: usize) -> bool {
        self.by_mask.len() < most || self.by_mask.contains_key(mask)
    }

    /// Evicts the longest unused of a few masks, in turn. Returns false if all of them are in use
    /// or have many megaflows. Hits of tier 1 count as use, since they touch the entries.
    fn evict_mask(&mut self, now_ms: u32, mut removed: impl FnMut(u32)) -> bool {
        let (mut coldest, mut coldest_age) = (None, 0);
        for _ in 0..MASK_SAMPLE {
            self.mask_hand = (self.mask_hand + 1) % self.order.len().max(1);
            let Some(&s) = self.order.get(self.mask_hand) else { return false };
            let ids = &self.subtables[usize::from(s)].ids;
            // Looked at first: a mask of all bits may have most of the megaflows.
            if ids.len() > COLD_MEGAFLOWS_MAX {
                continue;
            }
            let age = |id: &u32| now_ms.wrapping_sub(self.entries[*id as usize].last_used_ms);
            let idle = ids.iter().map(age).min().unwrap_or(u32::MAX);
            if idle > coldest_age {
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

    /// Returns a stale entry, or else the longest unused, of a few entries in turn. The cache must
    /// be full.
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

    /// Removes an entry; an emptied subtable goes too, unless it is `keep`.
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
    /// their verdict numbers. Times wrap after 49 days.
    pub fn expire(&mut self, now_ms: u32, idle_ms: u32, mut removed: impl FnMut(u32)) -> usize {
        let idle = |entry: &Entry| now_ms.wrapping_sub(entry.last_used_ms) > idle_ms;
        let gone = self.remove_if(|_, _, entry| idle(entry), &mut removed);
        self.counters.expirations += gone as u64;
        gone
    }

    /// Asks `keep` about every megaflow (masked key, mask, verdict number) after a change of rules.
    /// Removes those that it refuses; the others belong to this epoch.
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

    /// Examines the next `budget` entries in turn. Removes those idle as in [`Self::expire`], and
    /// those stale and unused for longer than [`STALE_MS`].
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

    /// Returns whether `id` is a megaflow, stale or not.
    pub fn is_live(&self, id: u32) -> bool {
        self.entries.get(id as usize).is_some_and(|entry| entry.epoch != DEAD)
    }

    /// Iterates over masked key, mask and verdict number of every megaflow that is not stale.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, FlowKey, u32)> + '_ {
        self.entries.iter().filter(|entry| entry.epoch == self.epoch).map(|entry| {
            let subtable = &self.subtables[usize::from(entry.subtable)];
            (subtable.expand(&entry.values), subtable.mask(), entry.verdict)
        })
    }
}
