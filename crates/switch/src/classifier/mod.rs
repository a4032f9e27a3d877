//! One OpenFlow table: the highest-priority rule for a packet, and the bits that say so.
//!
//! Priority tuple-space search: rules with the same mask form a subtable with a hash table; the
//! subtables are tried from the highest priority down, until nothing better can come.
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
//! A lookup reports what it looked at, so that a megaflow can be made from it: **any packet that
//! agrees with this one on the reported bits gets the same rule.** Two means keep those bits few: a
//! subtable is entered stage by stage (`subtable`), and a trie over the prefixes in use excludes a
//! subtable by as many leading address bits as it takes to see that no rule can match (`trie`).
//!
//! Equal priorities: the rule that was inserted first wins. Cost: about four cache lines for each
//! subtable tried, plus one trie walk for each prefix field that is asked for; insertion and
//! removal are constant but for keeping the subtables in order. Panics: none.
//!
//! Clones share what they have in common (`crate::cow`): a change after a clone copies the one
//! subtable that it is in, as a list of shards, and a word or two for each other mask.

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

/// How many fields have a trie.
const PREFIX_FIELDS: usize = 6;
/// End of a list of rules.
const NIL: u32 = u32::MAX;

/// A field whose prefixes are tracked.
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

    /// The stage of the words that hold it.
    const fn stage(self) -> usize {
        match self {
            PrefixField::TpSrc | PrefixField::TpDst => 3,
            _ => 2,
        }
    }

    /// The field of `key`, left-aligned.
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

    /// How many leading bits of the field are in `mask`.
    fn leading_ones(self, mask: &FlowKey) -> u8 {
        // At most 128, so it fits.
        self.get(mask).leading_ones() as u8
    }

    /// Adds the first `len` bits (at least one, at most the width) to `wc`.
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

/// The trie walks of one lookup, each made when it is first asked for.
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

/// A rule as the classifier holds it. It never changes: a modified rule is a new entry.
#[derive(Clone, Debug)]
pub struct RuleEntry {
    /// The rule.
    pub rule: Rule,
    /// When it was inserted; of two rules with equal priority, the lower number wins.
    pub seq: u64,
    /// What it counted.
    pub stats: Arc<RuleStats>,
    /// When it was made, by the switch's clock.
    pub created_ms: u64,
}

/// What adding a rule did.
#[derive(Clone, Debug)]
pub struct Added {
    /// The rule as it stands now.
    pub entry: Arc<RuleEntry>,
    /// The rule with the same identity that it replaced.
    pub replaced: Option<Arc<RuleEntry>>,
}

/// Where a rule is: a link of the list of rules with the same match, highest priority first.
#[derive(Clone, Debug, Default)]
struct RuleLink {
    entry: Option<Arc<RuleEntry>>,
    /// The next rule of the list; of a place without a rule, the next one of those.
    next: u32,
}

/// Links that are copied together when one of them changes.
const CHUNK: usize = 256;

type RuleLinks = CowVec<RuleLink, CHUNK>;

/// The rules of one OpenFlow table; see the module.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: RuleLinks,
    /// The first place without a rule.
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
    /// An empty table.
    pub fn new() -> Classifier {
        Classifier::default()
    }

    /// A table with these rules, the first being the oldest; of rules with the same identity the
    /// last stays, in the place of the first.
    pub fn from_rules(rules: impl IntoIterator<Item = Rule>) -> Classifier {
        let mut table = Classifier::new();
        for (seq, rule) in (0..).zip(rules) {
            table.put(RuleEntry { rule, seq, stats: Arc::default(), created_ms: 0 });
        }
        table.restore_order();
        table
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many different masks the rules have.
    pub fn subtables(&self) -> usize {
        self.order.len()
    }

    /// The rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RuleEntry>> {
        self.rules.iter().filter_map(|place| place.entry.as_ref())
    }

    /// Adds a rule, whose `seq` must be higher than that of every rule before it. A rule with the
    /// same identity is replaced: the new one takes its place in the order of insertion, so its
    /// `seq` becomes that of the old one.
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

    /// [`Classifier::insert`] without keeping `order`: call [`Classifier::restore_order`] before
    /// the next lookup. For many rules at once.
    pub(crate) fn put(&mut self, mut new: RuleEntry) -> Added {
        new.rule.matching = new.rule.matching.canonical();
        let Match { key, mask } = new.rule.matching;
        let priority = new.rule.priority;
        let index = self.subtable_for(&mask);
        let head = self.subtable(index).head(&key, &self.rules);
        // Where in the list of rules with this match it belongs: by priority.
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

    /// The place of the rule with this priority and match: its subtable, the place before it in
    /// its list, and its own.
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

    /// The rule with this priority and match.
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

    /// The best rule for `key`. `wc` grows by the bits of the key that the answer depends on: any
    /// packet that agrees with this one on them gets the same answer.
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

/// Sorts subtables: highest priority first, then by index.
fn rank((priority, index): (u16, u32)) -> (u16, u32) {
    (u16::MAX - priority, index)
}
