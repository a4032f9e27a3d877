//! One OpenFlow table: finds the highest-priority rule for a packet, and the bits that determine
//! it.
//!
//! Priority tuple-space search: rules with the same mask form a subtable with a hash table. A
//! lookup tries subtables by descending priority, until no better rule can follow.
//!
//! ```text
//!   order   (priority, subtable) sorted, highest first
//!     │
//!     ├─► Subtable  mask A   stage hashes ─► stage hashes ─► hash table ─┐
//!     ├─► Subtable  mask B                                               ├─► rules: list by
//!     └─► Subtable  mask C                                              ─┘   priority for each key
//!   tries   one for each prefix field: which prefix lengths are worth trying for this address
//! ```
//!
//! A lookup reports the bits that it looked at, so that a megaflow can be made of it: **any packet
//! that agrees on the reported bits gets the same rule.** Two means keep those bits few. A lookup
//! enters a subtable stage by stage (`subtable`). A trie over the prefixes in use rules out a
//! subtable by the few leading address bits that prove a miss (`trie`).
//!
//! Of rules with equal priority, the one inserted first wins. Cost: about four cache lines for each
//! subtable tried, plus one trie walk for each prefix field asked for. Insertion and removal take
//! constant time, except for sorting the subtables. Panics: none.
//!
//! Clones share their parts (`crate::cow`). A change after a clone copies the one subtable that it
//! affects, as a list of shards, and one or two words for each other mask.

mod select;
mod subtable;
mod trie;

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use overbank_wire::FlowKey;

pub use self::select::Filter;
use self::{
    subtable::Subtable,
    trie::{Trie, Walk},
};
use crate::cow::CowVec;
use crate::rule::{Match, Rule};
use crate::stats::RuleStats;

/// Number of fields with a trie.
const PREFIX_FIELDS: usize = 6;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrefixField {
    NwSrc,
    NwDst,
    Ipv6Src,
    Ipv6Dst,
    TpSrc,
    TpDst,
}

impl PrefixField {
    const ALL: [PrefixField; PREFIX_FIELDS] = [
        PrefixField::NwSrc,
        PrefixField::NwDst,
        PrefixField::Ipv6Src,
        PrefixField::Ipv6Dst,
        PrefixField::TpSrc,
        PrefixField::TpDst,
    ];

    /// Returns the stage of the words that hold the field.
    const fn stage(self) -> usize {
        match self {
            PrefixField::TpSrc | PrefixField::TpDst => 3,
            _ => 2,
        }
    }

    /// Returns the field of `key`, left-aligned.
    #[inline]
    fn get(self, key: &FlowKey) -> u128 {
        match self {
            PrefixField::NwSrc => u128::from(key.nw_src) << 96,
            PrefixField::NwDst => u128::from(key.nw_dst) << 96,
            PrefixField::Ipv6Src => u128::from_be_bytes(key.ipv6_src),
            PrefixField::Ipv6Dst => u128::from_be_bytes(key.ipv6_dst),
            PrefixField::TpSrc => u128::from(key.tp_src) << 112,
            PrefixField::TpDst => u128::from(key.tp_dst) << 112,
        }
    }

    /// Returns the number of leading bits of the field that are set in `mask`.
    fn leading_ones(self, mask: &FlowKey) -> u8 {
        // At most 128.
        self.get(mask).leading_ones() as u8
    }

    /// Adds the first `len` bits of the field (1 to its width) to `wc`.
    #[inline]
    fn unwildcard(self, wc: &mut FlowKey, len: u8) {
        let ones = u128::MAX << (128 - u32::from(len));
        let v6 = |have: &mut [u8; 16]| *have = (u128::from_be_bytes(*have) | ones).to_be_bytes();
        match self {
            // The shifts leave 32 and 16 bits.
            PrefixField::NwSrc => wc.nw_src |= (ones >> 96) as u32,
            PrefixField::NwDst => wc.nw_dst |= (ones >> 96) as u32,
            PrefixField::Ipv6Src => v6(&mut wc.ipv6_src),
            PrefixField::Ipv6Dst => v6(&mut wc.ipv6_dst),
            PrefixField::TpSrc => wc.tp_src |= (ones >> 112) as u16,
            PrefixField::TpDst => wc.tp_dst |= (ones >> 112) as u16,
        }
    }
}

/// The trie walks of one lookup, each made on first use.
struct Walks<'a> {
    tries: &'a [Trie; PREFIX_FIELDS],
    done: [Option<Walk>; PREFIX_FIELDS],
}

impl Walks<'_> {
    #[inline]
    fn get(&mut self, field: PrefixField, key: &FlowKey) -> Walk {
        let at = field as usize;
        *self.done[at].get_or_insert_with(|| self.tries[at].walk(field.get(key)))
    }
}

/// A rule as the classifier stores it. Immutable: a modified rule is a new entry.
#[derive(Clone, Debug)]
pub struct RuleEntry {
    pub rule: Rule,
    /// Sequence number of insertion; of two rules with equal priority, the lower wins.
    pub seq: u64,
    pub stats: Arc<RuleStats>,
    /// When it was made, by the switch's clock.
    pub created_ms: u64,
}

/// Result of adding a rule.
#[derive(Clone, Debug)]
pub struct Added {
    /// The rule as stored.
    pub entry: Arc<RuleEntry>,
    /// The rule with the same identity that it replaced.
    pub replaced: Option<Arc<RuleEntry>>,
}

/// A link in the list of rules with the same match, highest priority first.
#[derive(Clone, Debug, Default)]
struct RuleLink {
    entry: Option<Arc<RuleEntry>>,
    /// The next rule of the list, or the next free link.
    next: u32,
}

/// Links that are copied together when one of them changes.
const CHUNK: usize = 32;

type RuleLinks = CowVec<RuleLink, CHUNK>;

/// The rules of one OpenFlow table; see the module.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: RuleLinks,
    /// The first free link.
    free: u32,
    subtables: Vec<Option<Arc<Subtable>>>,
    free_subtables: Vec<u32>,
    by_mask: Arc<HashMap<FlowKey, u32, RandomState>>,
    /// Highest priority and index of each subtable, highest first.
    order: Vec<(u16, u32)>,
    tries: [Trie; PREFIX_FIELDS],
    len: usize,
}

impl Default for Classifier {
    fn default() -> Classifier {
        Classifier {
            rules: RuleLinks::default(),
            free: NIL,
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            by_mask: Arc::default(),
            order: Vec::new(),
            tries: Default::default(),
            len: 0,
        }
    }
}

impl Classifier {
    pub fn new() -> Classifier {
        Classifier::default()
    }

    /// Returns a table with these rules, the first being the oldest. Of rules with the same
    /// identity, the last one takes the place of the first.
    pub fn from_rules(rules: impl IntoIterator<Item = Rule>) -> Classifier {
        let mut table = Classifier::new();
        for (seq, rule) in (0..).zip(rules) {
            table.put(RuleEntry { rule, seq, stats: Arc::default(), created_ms: 0 });
        }
        table.restore_order();
        table
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of different masks of the rules.
    pub fn subtables(&self) -> usize {
        self.order.len()
    }

    /// Iterates over the rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RuleEntry>> {
        self.rules.iter().filter_map(|place| place.entry.as_ref())
    }

    /// Adds a rule, whose `seq` must exceed that of every rule before it. A rule with the same
    /// identity is replaced: the new one takes its place in insertion order, and so its `seq`.
    pub fn insert(&mut self, entry: RuleEntry) -> Added {
        let mask = entry.rule.matching.mask;
        let before = self.by_mask.get(&mask).copied();
        let old_priority = before.map(|index| self.subtable(index).max_priority());
        let inserted = self.put(entry);
        let index = self.by_mask[&mask];
        let priority = self.subtable(index).max_priority();
        if old_priority != Some(priority) {
            self.place(index, old_priority, Some(priority));
        }
        inserted
    }

    /// Inserts without keeping `order`, for many rules at once. Call [`Classifier::restore_order`]
    /// before the next lookup.
    pub(crate) fn put(&mut self, mut new: RuleEntry) -> Added {
        new.rule.matching = new.rule.matching.canonical();
        let Match { key, mask } = new.rule.matching;
        let priority = new.rule.priority;
        let index = self.subtable_for(&mask);
        let head = self.subtable(index).head(&key, &self.rules);
        // The list of rules with this match is sorted by priority.
        let (mut above, mut at) = (None, head.unwrap_or(NIL));
        while at != NIL && self.entry(at).rule.priority > priority {
            (above, at) = (Some(at), self.next(at));
        }
        if at != NIL && self.entry(at).rule.priority == priority {
            new.seq = self.entry(at).seq;
            let new = Arc::new(new);
            let old = self.rules[at as usize].entry.replace(Arc::clone(&new));
            return Added { entry: new, replaced: old };
        }
        let new = Arc::new(new);
        let place = self.alloc(RuleLink { entry: Some(Arc::clone(&new)), next: at });
        match above {
            Some(above) => self.rules[above as usize].next = place,
            None => {
                Self::subtable_of(&mut self.subtables, index).set_head(&key, place, &self.rules);
            }
        }
        let subtable = Self::subtable_of(&mut self.subtables, index);
        subtable.count(&key, priority, new.seq);
        for (field, len) in subtable.prefixes() {
            self.tries[field as usize].insert(field.get(&key), len);
        }
        self.len += 1;
        Added { entry: new, replaced: None }
    }

    /// Finds the rule with this priority and match. Returns its subtable, the link before it, and
    /// its own.
    fn find(&self, priority: u16, matching: &Match) -> Option<(u32, Option<u32>, u32)> {
        let index = *self.by_mask.get(&matching.mask)?;
        let key = matching.key.masked(&matching.mask);
        let (mut above, mut at) = (None, self.subtable(index).head(&key, &self.rules)?);
        while self.entry(at).rule.priority != priority {
            (above, at) = (Some(at), self.next(at));
            if at == NIL {
                return None;
            }
        }
        Some((index, above, at))
    }

    /// Returns the rule with this priority and match.
    pub fn get(&self, priority: u16, matching: &Match) -> Option<&Arc<RuleEntry>> {
        self.find(priority, matching).map(|(.., at)| self.entry(at))
    }

    /// Removes the rule with this priority and match, and returns it.
    pub fn remove(&mut self, priority: u16, matching: &Match) -> Option<Arc<RuleEntry>> {
        let (index, above, at) = self.find(priority, matching)?;
        let key = matching.key.masked(&matching.mask);
        let old_priority = self.subtable(index).max_priority();
        let next = self.next(at);
        let subtable = Self::subtable_of(&mut self.subtables, index);
        subtable.discount(&key, priority);
        for (field, len) in subtable.prefixes() {
            self.tries[field as usize].remove(field.get(&key), len);
        }
        match above {
            Some(above) => self.rules[above as usize].next = next,
            None if next == NIL => subtable.remove_head(&key, &self.rules),
            None => subtable.set_head(&key, next, &self.rules),
        }
        self.len -= 1;
        let gone = RuleLink { entry: None, next: self.free };
        let removed = std::mem::replace(&mut self.rules[at as usize], gone).entry;
        self.free = at;
        if self.subtable(index).is_empty() {
            self.place(index, Some(old_priority), None);
            Arc::make_mut(&mut self.by_mask).remove(&matching.mask);
            self.subtables[index as usize] = None;
            self.free_subtables.push(index);
        } else if self.subtable(index).max_priority() != old_priority {
            let priority = self.subtable(index).max_priority();
            self.place(index, Some(old_priority), Some(priority));
        }
        removed
    }

    /// Returns the best rule for `key`. Adds to `wc` the bits of the key that the answer depends
    /// on: any packet that agrees on them gets the same answer.
    pub fn lookup(&self, key: &FlowKey, wc: &mut FlowKey) -> Option<&Arc<RuleEntry>> {
        let mut walks = Walks { tries: &self.tries, done: [None; PREFIX_FIELDS] };
        let mut best: Option<&Arc<RuleEntry>> = None;
        for &(priority, index) in &self.order {
            let subtable = self.subtable(index);
            if let Some(found) = best {
                if priority < found.rule.priority {
                    break;
                }
                if priority == found.rule.priority && subtable.first_seq() > found.seq {
                    continue;
                }
            }
            if let Some(at) = subtable.lookup(key, &self.rules, &mut walks, wc) {
                let entry = self.entry(at);
                let better = best.is_none_or(|found| {
                    (entry.rule.priority, found.seq) > (found.rule.priority, entry.seq)
                });
                if better {
                    best = Some(entry);
                }
            }
        }
        best
    }

    /// Sorts the subtables after [`Classifier::put`].
    pub(crate) fn restore_order(&mut self) {
        self.order.clear();
        for (index, subtable) in (0..).zip(&self.subtables) {
            if let Some(subtable) = subtable {
                self.order.push((subtable.max_priority(), index));
            }
        }
        self.order.sort_unstable_by_key(|&place| rank(place));
    }

    /// Moves a subtable in `order` from its old priority to its new one.
    fn place(&mut self, index: u32, old: Option<u16>, new: Option<u16>) {
        if let Some(old) = old
            && let Ok(at) = self.order.binary_search_by_key(&rank((old, index)), |&p| rank(p))
        {
            self.order.remove(at);
        }
        if let Some(new) = new
            && let Err(at) = self.order.binary_search_by_key(&rank((new, index)), |&p| rank(p))
        {
            self.order.insert(at, (new, index));
        }
    }

    fn subtable_for(&mut self, mask: &FlowKey) -> u32 {
        if let Some(&index) = self.by_mask.get(mask) {
            return index;
        }
        let subtable = Some(Arc::new(Subtable::new(mask)));
        let index = match self.free_subtables.pop() {
            Some(index) => {
                self.subtables[index as usize] = subtable;
                index
            }
            None => {
                self.subtables.push(subtable);
                u32::try_from(self.subtables.len() - 1).expect("fewer subtables than rules")
            }
        };
        Arc::make_mut(&mut self.by_mask).insert(*mask, index);
        index
    }

    fn alloc(&mut self, place: RuleLink) -> u32 {
        if self.free != NIL {
            let at = self.free;
            let free = std::mem::replace(&mut self.rules[at as usize], place);
            self.free = free.next;
            return at;
        }
        self.rules.push(place);
        u32::try_from(self.rules.len() - 1).expect("rules are bounded far below 2^32")
    }

    #[inline]
    fn subtable(&self, index: u32) -> &Subtable {
        self.subtables[index as usize].as_ref().expect("`order` and `by_mask` name live subtables")
    }

    fn subtable_of(subtables: &mut [Option<Arc<Subtable>>], index: u32) -> &mut Subtable {
        let subtable = subtables[index as usize].as_mut();
        Arc::make_mut(subtable.expect("`order` and `by_mask` name live subtables"))
    }

    #[inline]
    fn entry(&self, place: u32) -> &Arc<RuleEntry> {
        let entry = self.rules[place as usize].entry.as_ref();
        entry.expect("lists and hash tables name live rules")
    }

    #[inline]
    fn next(&self, place: u32) -> u32 {
        self.rules[place as usize].next
    }
}

/// Returns the sort key of subtables: highest priority first, then by index.
fn rank((priority, index): (u16, u32)) -> (u16, u32) {
    (u16::MAX - priority, index)
}
