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
//! The hash of a masked key is built word by word in that order. For each stage except the last, a
//! set holds the hashes of the rules' keys so far. If the packet's hash is not in the set, no rule
//! of this subtable matches, and only the bits hashed so far determine it. A collision in a set
//! costs a wasted stage, never a wrong answer. A lookup touches one or two cache lines for each of
//! at most four stages. Panics: none.

use arrayvec::ArrayVec;
use overbank_wire::{FlowKey, key::WORDS};

use super::{PREFIX_FIELDS, PrefixField, RuleLink, RuleLinks, Walks};
use crate::cow::{CowTable, Hashed};

/// The words of the key in the order of hashing.
const ORDER: [u8; WORDS] = [0, 1, 2, 5, 3, 6, 7, 8, 9, 12, 13, 4, 10, 11];
const STAGES: usize = 4;
/// Where in [`ORDER`] each stage ends. Word 5 holds the TPIDs and the IPv6 label and belongs to L2.
const STAGE_ENDS: [usize; STAGES] = [1, 4, 11, 14];

/// Folds one more word into a hash: the two halves of a 128-bit product.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// A prefix of a field in the mask.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    field: PrefixField,
    /// Leading bits of the field in the mask, at least one.
    len: u8,
}

/// A key in the hash table, with the head of its list of rules.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    rule: u32,
}

impl Hashed for Slot {
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// A hash at the end of a stage, with the number of rules that have it.
#[derive(Clone, Copy, Debug)]
struct Reached {
    hash: u64,
    rules: u32,
}

impl Hashed for Reached {
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// The words of a stage and the prefixes that narrow it.
#[derive(Clone, Debug, Default)]
struct Stage {
    /// Where the stage's words end in `Subtable::words`.
    end: usize,
    /// Prefixes to try before the stage's hash.
    prefixes: ArrayVec<Prefix, PREFIX_FIELDS>,
    /// Hashes of the rules' keys up to here, with their number; none for the last stage.
    hashes: Option<CowTable<Reached>>,
}

#[derive(Clone, Debug)]
pub(super) struct Subtable {
    /// Words that the mask uses: index and mask.
    words: ArrayVec<(u8, u64), WORDS>,
    stages: ArrayVec<Stage, STAGES>,
    rules: CowTable<Slot>,
    /// Number of rules for each priority, ascending.
    priorities: Vec<(u16, u32)>,
    /// Lower bound of the rules' sequence numbers.
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
                last.hashes = Some(CowTable::default());
            }
            stages.push(Stage { end: words.len(), prefixes, hashes: None });
        }
        Subtable {
            words,
            stages,
            rules: CowTable::default(),
            priorities: Vec::new(),
            first_seq: u64::MAX,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.priorities.is_empty()
    }

    /// Returns the highest priority of a rule.
    pub(super) fn max_priority(&self) -> u16 {
        self.priorities.last().map_or(0, |&(priority, _)| priority)
    }

    /// Returns whether a rule has this priority.
    pub(super) fn has_priority(&self, priority: u16) -> bool {
        self.priorities.binary_search_by_key(&priority, |p| p.0).is_ok()
    }

    /// Iterates over the first rule of each list.
    pub(super) fn heads(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().map(|slot| slot.rule)
    }

    /// Returns a lower bound of the rules' sequence numbers.
    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Iterates over the prefixes that its rules put into the tries.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = (PrefixField, u8)> {
        self.stages.iter().flat_map(|stage| &stage.prefixes).map(|p| (p.field, p.len))
    }

    /// Returns the hash of the masked `key` after each stage; the last covers all words.
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

    /// Returns the head of the list of rules with the (masked) `key`.
    pub(super) fn head(&self, key: &FlowKey, rules: &RuleLinks) -> Option<u32> {
        let (_, hash) = self.hashes(key);
        self.rules
            .find(hash, |slot| is_slot(&self.words, slot, hash, key, rules))
            .map(|slot| slot.rule)
    }

    /// Sets the head of the list with this key, which may be new.
    pub(super) fn set_head(&mut self, key: &FlowKey, head: u32, rules: &RuleLinks) {
        let (_, hash) = self.hashes(key);
        let words = &self.words;
        let is = |slot: &Slot| is_slot(words, slot, hash, key, rules);
        if !self.rules.update(hash, is, |slot| slot.rule = head) {
            self.rules.insert_unique(Slot { hash, rule: head });
        }
    }

    /// Removes the list of rules with this key.
    pub(super) fn remove_head(&mut self, key: &FlowKey, rules: &RuleLinks) {
        let (_, hash) = self.hashes(key);
        let words = &self.words;
        self.rules.remove(hash, |slot| is_slot(words, slot, hash, key, rules));
    }

    /// Counts a rule in the priorities and the stages.
    pub(super) fn count(&mut self, key: &FlowKey, priority: u16, seq: u64) {
        match self.priorities.binary_search_by_key(&priority, |p| p.0) {
            Ok(at) => self.priorities[at].1 += 1,
            Err(at) => self.priorities.insert(at, (priority, 1)),
        }
        self.first_seq = self.first_seq.min(seq);
        let (each, _) = self.hashes(key);
        for (stage, hash) in self.stages.iter_mut().zip(each) {
            let Some(hashes) = &mut stage.hashes else { continue };
            if !hashes.update(hash, |r| r.hash == hash, |r| r.rules += 1) {
                hashes.insert_unique(Reached { hash, rules: 1 });
            }
        }
    }

    /// Reverts one [`Subtable::count`].
    pub(super) fn discount(&mut self, key: &FlowKey, priority: u16) {
        if let Ok(at) = self.priorities.binary_search_by_key(&priority, |p| p.0) {
            self.priorities[at].1 -= 1;
            if self.priorities[at].1 == 0 {
                self.priorities.remove(at);
            }
        }
        let (each, _) = self.hashes(key);
        for (stage, hash) in self.stages.iter_mut().zip(each) {
            let Some(hashes) = &mut stage.hashes else { continue };
            let is = |r: &Reached| r.hash == hash;
            if hashes.find(hash, is).is_some_and(|r| r.rules == 1) {
                hashes.remove(hash, is);
            } else {
                hashes.update(hash, is, |r| r.rules -= 1);
            }
        }
    }

    /// Adds the words before `end` of the mask to `wc`.
    #[inline]
    fn unwildcard(&self, wc: &mut FlowKey, end: usize) {
        let out = wc.words_mut();
        self.words[..end].iter().for_each(|&(word, mask)| out[usize::from(word)] |= mask);
    }

    /// Returns the best rule for `key`; adds to `wc` bits that alone imply the answer.
    #[inline]
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        rules: &RuleLinks,
        walks: &mut Walks<'_>,
        wc: &mut FlowKey,
    ) -> Option<u32> {
        let (mut hash, mut start) = (0, 0);
        for stage in &self.stages {
            for prefix in &stage.prefixes {
                // No rule of the whole table has such a prefix: the prefix alone proves it.
                if let Some(bits) = walks.get(prefix.field, key).excludes(prefix.len) {
                    prefix.field.unwildcard(wc, bits);
                    return None;
                }
            }
            hash = self.fold(hash, key, start, stage.end);
            start = stage.end;
            let reached = |hashes: &CowTable<Reached>| {
                hashes.find(hash, |reached| reached.hash == hash).is_some()
            };
            if stage.hashes.as_ref().is_some_and(|hashes| !reached(hashes)) {
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

/// Returns whether the masked key of `slot` equals that of `key`.
#[inline]
fn is_slot(words: &[(u8, u64)], slot: &Slot, hash: u64, key: &FlowKey, rules: &RuleLinks) -> bool {
    let place: &RuleLink = &rules[slot.rule as usize];
    slot.hash == hash
        && place.entry.as_ref().is_some_and(|entry| {
            let (wanted, have) = (entry.rule.matching.key.words(), key.words());
            words.iter().fold(0, |diff, &(word, mask)| {
                diff | ((wanted[usize::from(word)] ^ have[usize::from(word)]) & mask)
            }) == 0
        })
}
