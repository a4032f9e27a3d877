//! The rules of one table that share a mask: hash tables that a lookup enters stage by stage.
//!
//! ```text
//!  stage       words of the key                        on a miss, the lookup has looked at
//!  0 metadata  in_port dl_type nw_proto nw_frag        stage 0 of the mask
//!  1 L2        dl_dst dl_src, the VLAN tags            stages 0 and 1
//!  2 L3        addresses, IPv6 label, ARP              stages 0 to 2
//!  3 L4        ports, TCP flags, TOS, TTL, ND target   the whole mask
//! ```
//!
//! The hash of a masked key is built up word by word in that order. For each stage but the last
//! that the mask uses, a set holds the hashes of the rules' keys so far: if the packet's is not
//! among them, no rule of this subtable matches, and only the bits hashed so far say so. A
//! collision in a set costs a wasted stage, never a wrong answer. A lookup touches one cache line
//! or two for each stage, no more than four stages. Panics: none.

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use hashbrown::{HashMap, HashTable};
use overbank_wire::{FlowKey, key::WORDS};

use super::{PREFIX_FIELDS, PrefixField, RuleEntry, Walks};

/// The words of the key in the order in which they are hashed, and where each stage ends.
const ORDER: [u8; WORDS] = [0, 1, 2, 5, 3, 6, 7, 8, 9, 12, 13, 4, 10, 11];
/// How many stages there are.
const STAGES: usize = 4;
/// Where in [`ORDER`] each stage ends. Word 5 holds the TPIDs and the IPv6 label: it goes with L2.
const STAGE_ENDS: [usize; STAGES] = [1, 4, 11, 14];

/// Hashes are their own hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = mix(self.0, b.into()));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Hashes = HashMap<u64, u32, std::hash::BuildHasherDefault<Identity>>;

/// Folds one more word into a hash: the two halves of a 128-bit product.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// A prefix of a field that the mask asks for.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    field: PrefixField,
    /// Leading bits of the field in the mask, at least one.
    len: u8,
}

/// A rule in the table of a subtable: the head of the list of those with the same key.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    rule: u32,
}

/// The words of a stage and what narrows it.
#[derive(Clone, Debug, Default)]
struct Stage {
    /// Where the stage's words end in `Subtable::words`.
    end: usize,
    /// Prefixes to try before the stage's hash.
    prefixes: ArrayVec<Prefix, PREFIX_FIELDS>,
    /// Hashes of the rules' keys up to here, with their number; none for the last stage.
    hashes: Option<Hashes>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Subtable {
    /// The words that the mask uses: index and mask.
    words: ArrayVec<(u8, u64), WORDS>,
    stages: ArrayVec<Stage, STAGES>,
    rules: HashTable<Slot>,
    /// How many rules of each priority.
    priorities: BTreeMap<u16, u32>,
    /// No rule here was inserted before this.
    first_seq: u64,
}

impl Subtable {
    pub(super) fn new(mask: &FlowKey) -> Subtable {
        let mut words = ArrayVec::new();
        let mut stages: ArrayVec<Stage, STAGES> = ArrayVec::new();
        let mut start = 0;
        for (stage, end) in STAGE_ENDS.into_iter().enumerate() {
            let before = words.len();
            for &word in &ORDER[start..end] {
                let bits = mask.words()[usize::from(word)];
                if bits != 0 {
                    words.push((word, bits));
                }
            }
            start = end;
            if words.len() == before {
                continue;
            }
            let prefixes = PrefixField::ALL
                .iter()
                .filter(|field| field.stage() == stage)
                .map(|&field| Prefix { field, len: field.leading_ones(mask) })
                .filter(|prefix| prefix.len > 0)
                .collect();
            if let Some(last) = stages.last_mut() {
                last.hashes = Some(Hashes::default());
            }
            stages.push(Stage { end: words.len(), prefixes, hashes: None });
        }
        Subtable {
            words,
            stages,
            rules: HashTable::new(),
            priorities: BTreeMap::new(),
            first_seq: u64::MAX,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The highest priority of a rule here.
    pub(super) fn max_priority(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(&priority, _)| priority)
    }

    /// A lower bound on the sequence numbers of the rules here.
    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The prefixes that its rules put into the tries.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = (PrefixField, u8)> {
        self.stages.iter().flat_map(|stage| &stage.prefixes).map(|p| (p.field, p.len))
    }

    /// The hash of the masked `key` after each stage; the last is that of all.
    fn hashes(&self, key: &FlowKey) -> ([u64; STAGES], u64) {
        let (mut hash, mut start, mut each) = (0, 0, [0; STAGES]);
        for (stage, out) in self.stages.iter().zip(&mut each) {
            hash = self.fold(hash, key, start, stage.end);
            (*out, start) = (hash, stage.end);
        }
        (each, hash)
    }

    #[inline]
    fn fold(&self, hash: u64, key: &FlowKey, start: usize, end: usize) -> u64 {
        self.words[start..end]
            .iter()
            .fold(hash, |h, &(word, mask)| mix(h, key.words()[usize::from(word)] & mask))
    }

    /// The head of the list of rules with the (masked) `key`, if there is one.
    pub(super) fn head(&self, key: &FlowKey, rules: &[Option<RuleEntry>]) -> Option<u32> {
        let (_, hash) = self.hashes(key);
        self.rules
            .find(hash, |slot| is_slot(&self.words, slot, hash, key, rules))
            .map(|slot| slot.rule)
    }

    /// Makes `head` the head of the list with this key, which may be new.
    pub(super) fn set_head(&mut self, key: &FlowKey, head: u32, rules: &[Option<RuleEntry>]) {
        let (_, hash) = self.hashes(key);
        let slot = Slot { hash, rule: head };
        match self.rules.find_mut(hash, |slot| is_slot(&self.words, slot, hash, key, rules)) {
            Some(old) => *old = slot,
            None => {
                self.rules.insert_unique(hash, slot, |slot| slot.hash);
            }
        }
    }

    /// Forgets the list of rules with this key.
    pub(super) fn remove_head(&mut self, key: &FlowKey, rules: &[Option<RuleEntry>]) {
        let (_, hash) = self.hashes(key);
        let words = &self.words;
        if let Ok(entry) =
            self.rules.find_entry(hash, |slot| is_slot(words, slot, hash, key, rules))
        {
            entry.remove();
        }
    }

    /// Counts a rule in the priorities and the stages.
    pub(super) fn count(&mut self, key: &FlowKey, priority: u16, seq: u64) {
        *self.priorities.entry(priority).or_default() += 1;
        self.first_seq = self.first_seq.min(seq);
        let (each, _) = self.hashes(key);
        for (stage, hash) in self.stages.iter_mut().zip(each) {
            if let Some(hashes) = &mut stage.hashes {
                *hashes.entry(hash).or_default() += 1;
            }
        }
    }

    /// Takes back one [`Subtable::count`].
    pub(super) fn discount(&mut self, key: &FlowKey, priority: u16) {
        if let Some(count) = self.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&priority);
            }
        }
        let (each, _) = self.hashes(key);
        for (stage, hash) in self.stages.iter_mut().zip(each) {
            let Some(hashes) = &mut stage.hashes else { continue };
            if let Some(count) = hashes.get_mut(&hash) {
                *count -= 1;
                if *count == 0 {
                    hashes.remove(&hash);
                }
            }
        }
    }

    /// Adds the words before `end` of the mask to `wc`.
    #[inline]
    fn unwildcard(&self, wc: &mut FlowKey, end: usize) {
        let out = wc.words_mut();
        self.words[..end].iter().for_each(|&(word, mask)| out[usize::from(word)] |= mask);
    }

    /// The best rule here for `key`; `wc` grows by bits that alone imply the answer.
    #[inline]
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        rules: &[Option<RuleEntry>],
        walks: &mut Walks<'_>,
        wc: &mut FlowKey,
    ) -> Option<u32> {
        let (mut hash, mut start) = (0, 0);
        for stage in &self.stages {
            for prefix in &stage.prefixes {
                // No rule of the whole table has such a prefix: the prefix alone says so.
                if let Some(bits) = walks.get(prefix.field, key).excludes(prefix.len) {
                    prefix.field.unwildcard(wc, bits);
                    return None;
                }
            }
            hash = self.fold(hash, key, start, stage.end);
            start = stage.end;
            if stage.hashes.as_ref().is_some_and(|hashes| !hashes.contains_key(&hash)) {
                self.unwildcard(wc, stage.end);
                return None;
            }
        }
        self.unwildcard(wc, start);
        self.rules
            .find(hash, |slot| is_slot(&self.words, slot, hash, key, rules))
            .map(|slot| slot.rule)
    }
}

/// Whether `slot` is that of rules whose masked key is that of `key`.
#[inline]
fn is_slot(
    words: &[(u8, u64)],
    slot: &Slot,
    hash: u64,
    key: &FlowKey,
    rules: &[Option<RuleEntry>],
) -> bool {
    slot.hash == hash
        && rules[slot.rule as usize].as_ref().is_some_and(|entry| {
            let (wanted, have) = (entry.rule.matching.key.words(), key.words());
            words.iter().fold(0, |diff, &(word, mask)| {
                diff | ((wanted[usize::from(word)] ^ have[usize::from(word)]) & mask)
            }) == 0
        })
}
