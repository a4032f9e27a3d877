//! The table: building it, looking up in it, changing a group of it.

use alloc::vec;
use alloc::vec::Vec;

use super::super::shape::block_of;
use super::super::sorted::{BadEntry, Sorted};
use super::balance::{BUCKETS, CANDIDATES, GROUPS, assign, candidates};
use super::search::{Function, Functions, Group, Pair, Search, by_lanes, plain};
use crate::isa::{Isa, IsaError};
use crate::memory::{MemoryError, filled};
use crate::prefetch::prefetch_at;
use crate::random::Pcg32;

/// Keys of a block on average.
const BLOCK_KEYS: usize = 1024;
/// Bytes of a block's choices.
const CHOICE_BYTES: usize = BUCKETS / 4;
/// Bytes behind the last group, as a group is read with loads of 8.
const PADDING: usize = 8;
/// The longest burst of a lookup.
const BURST_MAX: usize = 64;

/// What a table is built for. Checked by the construction, not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    keys: usize,
    value_bits: u32,
    index_bits: u32,
    m: u32,
    search: Search,
    isa: Option<Isa>,
}

impl Config {
    /// For `keys` keys with values of `value_bits` bits (1 to 8), in the paper's setting 16 + 8.
    pub const fn new(keys: usize, value_bits: u32) -> Self {
        Self { keys, value_bits, index_bits: 16, m: 8, search: Search::Lanes, isa: None }
    }

    /// Bits of an index (8 or 16), and of an array (2 to 30).
    #[must_use]
    pub const fn setting(mut self, index_bits: u32, m: u32) -> Self {
        self.index_bits = index_bits;
        self.m = m;
        self
    }

    /// How functions are searched.
    #[must_use]
    pub const fn search(mut self, search: Search) -> Self {
        self.search = search;
        self
    }

    /// Forces an instruction set. Without it, the best available is used.
    #[must_use]
    pub const fn isa(mut self, isa: Option<Isa>) -> Self {
        self.isa = isa;
        self
    }
}

/// A table cannot be built; nothing is left of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetSepError {
    /// Value bits outside of 1 to 8.
    #[error("values have 1 to 8 bits, not {bits}")]
    ValueBits {
        /// What was asked for.
        bits: u32,
    },
    /// No such setting.
    #[error("a setting has 8 or 16 bits of index and arrays of 2 to 30 bits, not {index} + {m}")]
    Setting {
        /// Bits of the index.
        index: u32,
        /// Bits of the array.
        m: u32,
    },
    /// More keys than the configuration names.
    #[error("more keys than the {keys} that the table is for")]
    Keys {
        /// What was planned.
        keys: usize,
    },
    /// A value has more bits than the table.
    #[error("value {value} of hash {hash:#018x} has more than {bits} bits")]
    Value {
        /// The key's hash.
        hash: u64,
        /// Its value.
        value: u8,
        /// What the table holds.
        bits: u32,
    },
    /// One hash has two values.
    #[error("hash {hash:#018x} has two values, {first} and {second}")]
    Conflict {
        /// The hash.
        hash: u64,
        /// One value.
        first: u8,
        /// The other.
        second: u8,
    },
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The system gives no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What a build found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Groups.
    pub groups: usize,
    /// Keys of the largest group.
    pub largest: u32,
    /// Indices tried, over all groups and value bits.
    pub trials: u64,
    /// Keys in groups without a solution.
    pub fallback: usize,
}

/// The new content of a group, for copies of a table: a memory copy (`001`, section 4.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDelta {
    group: usize,
    functions: Vec<Function>,
    fallback: Vec<(u64, u8)>,
}

impl GroupDelta {
    /// Returns whether functions were found: otherwise the keys go to the fallback.
    pub fn is_solved(&self) -> bool {
        self.fallback.is_empty()
    }

    /// Bits of the functions that it carries.
    pub fn bits(&self, table: &SetSep) -> usize {
        self.functions.len() * table.entry_bits() as usize
    }
}

/// See the [module](super).
pub struct SetSep {
    config: Config,
    isa: Isa,
    blocks: u32,
    candidates: Vec<[u8; CANDIDATES]>,
    choices: Vec<u8>,
    groups: Vec<u8>,
    /// By hash.
    fallback: Vec<(u64, u8)>,
}

impl SetSep {
    /// Builds a table of `(hash, value)` pairs; the same pair twice counts once.
    ///
    /// # Errors
    /// See [`SetSepError`].
    pub fn build(
        config: &Config,
        entries: impl IntoIterator<Item = (u64, u8)>,
    ) -> Result<(SetSep, Stats), SetSepError> {
        let Config { value_bits: bits, index_bits: index, m, keys, .. } = *config;
        if !(1..=8).contains(&bits) {
            return Err(SetSepError::ValueBits { bits });
        }
        if !matches!(index, 8 | 16) || !(2..=30).contains(&m) {
            return Err(SetSepError::Setting { index, m });
        }
        let blocks = (keys.saturating_add(BLOCK_KEYS / 2) / BLOCK_KEYS).max(1);
        let blocks =
            u32::try_from(blocks).map_err(|_| SetSepError::Keys { keys: keys.min(1 << 42) })?;
        let count = blocks as usize;
        let mut table = Self {
            config: config.clone(),
            isa: Isa::choose(config.isa)?,
            blocks,
            candidates: candidates(),
            choices: filled(count * CHOICE_BYTES, 0)?,
            groups: Vec::new(),
            fallback: Vec::new(),
        };
        let group_bits = count * GROUPS * table.group_bits();
        table.groups = filled(group_bits.div_ceil(8) + PADDING, 0)?;
        let (all, block_of) = (0..count, |hash| table.block(hash));
        let sorted = Sorted::new(entries, (keys, bits as usize), &all, block_of);
        let sorted = sorted.map_err(|bad| match bad {
            BadEntry::TooMany => SetSepError::Keys { keys },
            BadEntry::Value { hash, value } => SetSepError::Value { hash, value, bits },
            BadEntry::Memory(error) => error.into(),
        })?;
        let stats = table.fill(&sorted)?;
        Ok((table, stats))
    }

    /// Bits of a function: index and array.
    pub fn entry_bits(&self) -> u32 {
        self.config.index_bits + self.config.m
    }

    fn group_bits(&self) -> usize {
        (self.entry_bits() * self.config.value_bits) as usize
    }

    /// Bytes that lookups read.
    pub fn bytes(&self) -> usize {
        self.choices.len() + self.groups.len() - PADDING + 16 * self.fallback.len()
    }

    fn block(&self, hash: u64) -> usize {
        block_of(hash, 0, self.blocks)
    }

    fn bucket(hash: u64) -> usize {
        hash as usize % BUCKETS
    }

    fn fill(&mut self, sorted: &Sorted) -> Result<Stats, SetSepError> {
        let mut stats = Stats { groups: self.blocks as usize * GROUPS, ..Stats::default() };
        let mut pcg = Pcg32::new(1, 1);
        let mut groups: Vec<Vec<(u64, u8)>> = vec![Vec::new(); GROUPS];
        for (block, entries) in sorted.by_block().enumerate() {
            let mut sizes = [0; BUCKETS];
            entries.iter().for_each(|entry| sizes[Self::bucket(entry.0)] += 1);
            let (choices, largest) = assign(&self.candidates, &sizes, &mut pcg);
            stats.largest = stats.largest.max(largest);
            for (bucket, choice) in choices.into_iter().enumerate() {
                self.choices[block * CHOICE_BYTES + bucket / 4] |= choice << (bucket % 4 * 2);
            }
            groups.iter_mut().for_each(Vec::clear);
            for &entry in entries {
                let bucket = Self::bucket(entry.0);
                let group = self.candidates[bucket][usize::from(choices[bucket])];
                groups[usize::from(group)].push(entry);
            }
            for (group, keys) in groups.iter_mut().enumerate() {
                keys.sort_unstable();
                keys.dedup();
                if let Some(two) = keys.windows(2).find(|two| two[0].0 == two[1].0) {
                    let [(hash, first), (_, second)] = [two[0], two[1]];
                    return Err(SetSepError::Conflict { hash, first, second });
                }
                let delta = self.solve(block * GROUPS + group, keys, &mut stats.trials);
                stats.fallback += delta.fallback.len();
                self.apply(&delta);
            }
        }
        Ok(stats)
    }

    /// The group of a key, as a number over all blocks.
    pub fn group_of(&self, hash: u64) -> usize {
        let (block, bucket) = (self.block(hash), Self::bucket(hash));
        let choice = self.choices[block * CHOICE_BYTES + bucket / 4] >> (bucket % 4 * 2) & 3;
        block * GROUPS + usize::from(self.candidates[bucket][usize::from(choice)])
    }

    /// Finds functions for a group that has exactly these keys (each hash once) from now on. The
    /// indices tried are added to `trials`.
    pub fn solve(&self, group: usize, keys: &[(u64, u8)], trials: &mut u64) -> GroupDelta {
        let last = (1u32 << self.config.index_bits) - 2;
        let pairs: Vec<Pair> = keys.iter().map(|key| Pair::new(key.0)).collect();
        let values: Vec<u8> = keys.iter().map(|key| key.1).collect();
        let (planes, mut found) = (self.config.value_bits as usize, Functions::default());
        let task = Group { keys: &pairs, values: &values, m: self.config.m, last, planes };
        let solved = match self.config.search {
            Search::Plain => plain(task, &mut found, trials),
            Search::Lanes => by_lanes(self.isa, task, &mut found, trials),
        };
        if !solved {
            found.fill(Function { index: last + 1, array: 0 });
        }
        let fallback = if solved { Vec::new() } else { keys.to_vec() };
        GroupDelta { group, functions: found[..planes].to_vec(), fallback }
    }

    /// Takes a group over from [`SetSep::solve`], of this table or of a copy.
    pub fn apply(&mut self, delta: &GroupDelta) {
        let (entry, index_bits) = (self.entry_bits(), self.config.index_bits);
        for (plane, function) in delta.functions.iter().enumerate() {
            let bit = delta.group * self.group_bits() + plane * entry as usize;
            let value = u64::from(function.array) << index_bits | u64::from(function.index);
            let mask = ((1u64 << entry) - 1) << (bit % 8);
            let bytes: &mut [u8] = &mut self.groups[bit / 8..bit / 8 + 8];
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            let word = u64::from_le_bytes(word) & !mask | value << (bit % 8);
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        for &(hash, value) in &delta.fallback {
            match self.fallback.binary_search_by_key(&hash, |entry| entry.0) {
                Ok(at) => self.fallback[at].1 = value,
                Err(at) => self.fallback.insert(at, (hash, value)),
            }
        }
    }

    /// The functions' bits of plane `plane` of a group.
    #[inline(always)]
    fn entry(&self, group: usize, plane: usize) -> u64 {
        let bit = group * self.group_bits() + plane * self.entry_bits() as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&self.groups[bit / 8..bit / 8 + 8]);
        u64::from_le_bytes(word) >> (bit % 8)
    }

    #[inline(always)]
    fn value(&self, group: usize, hash: u64) -> u8 {
        let (index_bits, m) = (self.config.index_bits, self.config.m);
        let (none, pair) = ((1u32 << index_bits) - 1, Pair::new(hash));
        let mut value = 0;
        for plane in 0..self.config.value_bits as usize {
            let entry = self.entry(group, plane);
            let index = entry as u32 & none;
            if index == none {
                return self.in_fallback(hash);
            }
            value |= ((entry >> index_bits >> pair.place(index, m) & 1) as u8) << plane;
        }
        value
    }

    #[cold]
    fn in_fallback(&self, hash: u64) -> u8 {
        let at = self.fallback.binary_search_by_key(&hash, |entry| entry.0);
        at.map_or(0, |at| self.fallback[at].1)
    }

    /// Returns the value of a key by its hash; an arbitrary value if it was never inserted.
    pub fn lookup(&self, hash: u64) -> u8 {
        self.value(self.group_of(hash), hash)
    }

    /// Looks up any number of hashes, in bursts of 64 at most: the lines of a burst are asked for
    /// together, first those of the choices, then those of the groups.
    ///
    /// # Panics
    /// If there are not as many places for values.
    pub fn lookup_batch(&self, hashes: &[u64], values: &mut [u8]) {
        assert_eq!(hashes.len(), values.len(), "one place for each value");
        let mut groups = [0; BURST_MAX];
        for (hashes, values) in hashes.chunks(BURST_MAX).zip(values.chunks_mut(BURST_MAX)) {
            for &hash in hashes {
                let at = self.block(hash) * CHOICE_BYTES + Self::bucket(hash) / 4;
                prefetch_at::<false>(self.choices.as_ptr().wrapping_add(at));
            }
            for (group, &hash) in groups.iter_mut().zip(hashes) {
                *group = self.group_of(hash);
                let at = *group * self.group_bits() / 8;
                prefetch_at::<false>(self.groups.as_ptr().wrapping_add(at));
            }
            for ((value, &hash), &group) in values.iter_mut().zip(hashes).zip(&groups) {
                *value = self.value(group, hash);
            }
        }
    }
}
