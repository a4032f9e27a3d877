//! All megaflows of one mask: the mask in compact form, and a hash table.
//!
//! Only the words of a mask that have bits are stored, padded to a width of 2, 4, 6 or 14. Hashing
//! and comparing are loops of that fixed length: the compiler unrolls them, and one branch per
//! search chooses the loop.

use super::BURST;
use arrayvec::ArrayVec;
use hashbrown::HashTable;
use overbank_wire::{FlowKey, key::WORDS};
use std::cell::Cell;

/// One megaflow: one cache line for masks of up to six words, else two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub subtable: u16,
    /// Epoch in which it was last known to be right; [`DEAD`] if the entry is free.
    pub epoch: u32,
    pub last_used_ms: u32,
    pub verdict: u32,
    /// Words of the masked key, compact like the mask; 0 beyond its width.
    pub values: [u64; WORDS],
}

const _: () = assert!(size_of::<Entry>() == 128 && WORDS == 14);

/// The epoch of a free entry.
pub(super) const DEAD: u32 = 0;

impl Entry {
    pub const DEAD: Entry =
        Entry { subtable: 0, epoch: DEAD, last_used_ms: 0, verdict: 0, values: [0; WORDS] };
}

/// A mask and the ids of its entries.
#[derive(Debug)]
pub(super) struct Subtable {
    /// Number of words of `index` and `bits` that are compared: 2, 4, 6 or 14.
    width: usize,
    /// Index and bits of each word of the mask.
    index: [u8; WORDS],
    bits: [u64; WORDS],
    pub ids: HashTable<u32>,
    /// The only entry, if there is just one: comparing is cheaper than hashing.
    only: Option<u32>,
    pub recent_hits: u32,
}

/// Calls a method that is generic over the width with the width of `$subtable`.
macro_rules! by_width {
    ($subtable:ident.$method:ident($($argument:expr),*)) => {
        match $subtable.width {
            2 => $subtable.$method::<2>($($argument),*),
            4 => $subtable.$method::<4>($($argument),*),
            6 => $subtable.$method::<6>($($argument),*),
            _ => $subtable.$method::<WORDS>($($argument),*),
        }
    };
}

impl Subtable {
    pub fn new(mask: &FlowKey) -> Subtable {
        let mut subtable = Subtable {
            width: 0,
            index: [0; WORDS],
            bits: [0; WORDS],
            ids: HashTable::new(),
            only: None,
            recent_hits: 0,
        };
        let mut used = 0;
        for (i, &bits) in mask.words().iter().enumerate().filter(|(_, bits)| **bits != 0) {
            subtable.index[used] = i as u8;
            subtable.bits[used] = bits;
            used += 1;
        }
        subtable.width = [2, 4, 6].into_iter().find(|&width| width >= used).unwrap_or(WORDS);
        subtable
    }

    pub fn mask(&self) -> FlowKey {
        self.expand(&self.bits)
    }

    /// Puts compact words back into their places.
    pub fn expand(&self, compact: &[u64; WORDS]) -> FlowKey {
        let mut key = FlowKey::default();
        for ((&i, &word), _) in
            self.index.iter().zip(compact).zip(&self.bits).filter(|(_, bits)| **bits != 0)
        {
            key.words_mut()[usize::from(i)] = word;
        }
        key
    }

    /// Returns the key's words under the mask, packed.
    pub fn compact(&self, key: &FlowKey) -> [u64; WORDS] {
        let mut values = [0; WORDS];
        for (j, value) in values.iter_mut().enumerate() {
            *value = self.word(key, j);
        }
        values
    }

    #[inline(always)]
    fn word(&self, key: &FlowKey, j: usize) -> u64 {
        key.words().get(usize::from(self.index[j])).map_or(0, |word| word & self.bits[j])
    }

    #[inline(always)]
    fn hash_key<const N: usize>(&self, key: &FlowKey, secret: u64) -> u64 {
        hash_words::<N>(std::array::from_fn(|j| self.word(key, j)), secret)
    }

    #[inline(always)]
    fn hash_compact<const N: usize>(&self, values: &[u64; WORDS], secret: u64) -> u64 {
        hash_words::<N>(std::array::from_fn(|j| values[j]), secret)
    }

    #[inline(always)]
    fn agrees_in<const N: usize>(&self, key: &FlowKey, values: &[u64; WORDS]) -> bool {
        let mut diff = 0;
        for (j, value) in values[..N].iter().enumerate() {
            diff |= self.word(key, j) ^ value;
        }
        diff == 0
    }

    /// Returns the hash of a key with these compact words.
    pub fn hash(&self, values: &[u64; WORDS], secret: u64) -> u64 {
        by_width!(self.hash_compact(values, secret))
    }

    /// Returns whether `key` has `values` under the mask.
    #[inline(always)]
    pub fn agrees(&self, key: &FlowKey, values: &[u64; WORDS]) -> bool {
        by_width!(self.agrees_in(key, values))
    }

    /// Looks up the keys whose indices are `pending` among the entries of `epoch`; see
    /// [`super::MegaflowCache::lookup_batch`]. Returns the number of entries of other epochs that
    /// matched.
    pub fn search(
        &mut self,
        entries: &[Entry],
        epoch: u32,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
        secret: u64,
    ) -> u64 {
        by_width!(self.search_in(entries, epoch, keys, pending, found, secret))
    }

    fn search_in<const N: usize>(
        &mut self,
        entries: &[Entry],
        epoch: u32,
        keys: &[FlowKey],
        pending: &mut ArrayVec<u8, BURST>,
        found: &mut [u32; BURST],
        secret: u64,
    ) -> u64 {
        let (mut left, mut stale) = (0, 0);
        let waiting = Cell::from_mut(pending.as_mut_slice()).as_slice_of_cells();
        for i in waiting.iter().map(Cell::get) {
            let Some(key) = keys.get(usize::from(i)) else { continue };
            let agrees = |id: u32| {
                let entry = &entries[id as usize];
                self.agrees_in::<N>(key, &entry.values).then_some((id, entry.epoch))
            };
            let hit = match self.only {
                Some(id) => agrees(id),
                None => {
                    let mut hit = None;
                    self.ids.find(self.hash_key::<N>(key, secret), |&id| {
                        hit = agrees(id);
                        hit.is_some()
                    });
                    hit
                }
            };
            match hit {
                Some((id, of)) if of == epoch => {
                    found[usize::from(i) % BURST] = id;
                    self.recent_hits += 1;
                }
                other => {
                    stale += u64::from(other.is_some());
                    waiting[left].set(i);
                    left += 1;
                }
            }
        }
        pending.truncate(left);
        stale
    }

    /// Adds a new entry; `hash` is that of its values.
    pub fn insert(&mut self, id: u32, hash: u64, entries: &[Entry], secret: u64) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.insert_unique(hash, id, |&id| self.hash(&entries[id as usize].values, secret));
        self.ids = ids;
        self.note_only();
    }

    /// Removes an entry.
    pub fn remove(&mut self, id: u32, values: &[u64; WORDS], secret: u64) {
        let hash = self.hash(values, secret);
        if let Ok(found) = self.ids.find_entry(hash, |&other| other == id) {
            found.remove();
        }
        self.note_only();
    }

    fn note_only(&mut self) {
        self.only = self.ids.iter().next().copied().filter(|_| self.ids.len() == 1);
    }
}

fn hash_words<const N: usize>(words: [u64; N], secret: u64) -> u64 {
    words.iter().fold(secret, |hash, word| fold(hash ^ word, 0x9e37_79b9_7f4a_7c15 ^ secret))
}

/// Returns the 128-bit product of two words, folded to 64 bits.
#[inline(always)]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}
