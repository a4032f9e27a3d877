//! Verdicts: the action programs of megaflows with the rules behind them, each stored once.
//!
//! ```text
//!  hot    [ shortcut · packets · bytes · last used ]   32 bytes, what each packet touches
//!  slots  [ references · program · lookups ]           the rest
//!  due    numbers of those that counted since the last flush, and those of the flush at hand
//! ```
//!
//! Many megaflows share a program and its rules. A megaflow therefore holds a number, and the
//! programs stay in the CPU's caches. References are counted; a number is reused when none is left.
//! A flush adds what a number has counted to its rules and tables. The last release flushes too, so
//! no count is lost.
//!
//! There is at most one verdict for each megaflow and each packet of the current burst. Counting
//! allocates nothing.

use crate::drop::DropReason;
use crate::program::{Lookup, Op, Translation};
use crate::stats::AllTableStats;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// What happens to every packet of a megaflow.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The steps, in order.
    pub program: Box<[Op]>,
    /// As [`Translation::drop`].
    pub drop: Option<DropReason>,
    /// The lookups behind it.
    pub lookups: Box<[Lookup]>,
    /// The counters of the tables of these lookups.
    stats: AllTableStats,
}

impl Verdict {
    /// Returns whether this verdict equals a translation.
    pub fn is(&self, answer: &Translation, stats: &AllTableStats) -> bool {
        self.program[..] == answer.program[..]
            && self.drop == answer.drop
            && self.lookups[..] == answer.lookups[..]
            && self.stats.same(stats)
    }

    /// Adds packets to the counters behind its lookups.
    pub fn credit(&self, packets: u64, bytes: u64, used_ms: u64) {
        credit(&self.lookups, &self.stats, packets, bytes, used_ms);
    }
}

/// Adds packets to the counters behind a translation that has no verdict.
pub fn credit(lookups: &[Lookup], stats: &AllTableStats, packets: u64, bytes: u64, used_ms: u64) {
    for lookup in lookups {
        if let Some(table) = stats.get(lookup.table) {
            table.add(packets, if lookup.rule.is_some() { packets } else { 0 });
        }
        if let Some(rule) = &lookup.rule {
            rule.add(packets, bytes, used_ms);
        }
    }
}

/// The part of a verdict that the packet path reads first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut {
    /// The program is one output of the frame as it came.
    Output(u32),
    /// The program is empty.
    Drop(DropReason),
    /// Run the program.
    Program,
}

/// The part that a packet touches.
#[derive(Debug)]
struct Hot {
    shortcut: Shortcut,
    last_used_ms: u32,
    packets: u64,
    bytes: u64,
    /// Whether the number is in `due` or `flushing`.
    due: bool,
}

#[derive(Debug)]
struct Slot {
    references: u32,
    hash: u64,
    verdict: Verdict,
}

/// The verdicts in use, by number.
#[derive(Debug)]
pub struct Verdicts {
    hot: Vec<Hot>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_value: HashTable<u32>,
    hasher: FixedState,
    /// Has room for all numbers, as has `flushing`.
    due: Vec<u32>,
    /// Numbers that were due when the current flush began.
    flushing: Vec<u32>,
}

impl Verdicts {
    pub fn new(seed: u64) -> Verdicts {
        Verdicts {
            hot: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_value: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            due: Vec::new(),
            flushing: Vec::new(),
        }
    }

    /// Returns the number of the verdict for a translation, and adds a reference to it. `stats` are
    /// the counters of the translated tables.
    pub fn acquire(&mut self, answer: Translation, stats: &AllTableStats) -> u32 {
        let hash = self.hasher.hash_one((&answer.program, answer.drop, &answer.lookups));
        let known = |&number: &u32| self.slots[number as usize].verdict.is(&answer, stats);
        if let Some(&number) = self.by_value.find(hash, known) {
            self.slots[number as usize].references += 1;
            return number;
        }
        let shortcut = match (&answer.program[..], answer.drop) {
            (&[Op::Output(port)], None) => Shortcut::Output(port),
            (&[], reason) => Shortcut::Drop(reason.unwrap_or(DropReason::NoOutput)),
            _ => Shortcut::Program,
        };
        let Translation { program, drop, lookups, .. } = answer;
        let verdict = Verdict { program, drop, lookups, stats: stats.clone() };
        let slot = Slot { references: 1, hash, verdict };
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                self.hot[number as usize].shortcut = shortcut;
                number
            }
            None => {
                let hot = Hot { shortcut, last_used_ms: 0, packets: 0, bytes: 0, due: false };
                self.hot.push(hot);
                self.slots.push(slot);
                for list in [&mut self.due, &mut self.flushing] {
                    list.reserve(self.slots.len() - list.len());
                }
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.by_value.insert_unique(hash, number, |&number| slots[number as usize].hash);
        number
    }

    /// Releases a reference; `now_ms` is the time of the last burst.
    pub fn release(&mut self, number: u32, now_ms: u64) {
        let slot = &mut self.slots[number as usize];
        debug_assert!(slot.references > 0, "a reference is released once");
        slot.references -= 1;
        if slot.references > 0 {
            return;
        }
        let hash = slot.hash;
        self.flush_one(number, now_ms);
        let found = self.by_value.find_entry(hash, |&other| other == number);
        debug_assert!(found.is_ok(), "a number in use is indexed by its value");
        if let Ok(found) = found {
            found.remove();
        }
        // The counters of its rules may be freed now.
        let verdict = &mut self.slots[number as usize].verdict;
        (verdict.program, verdict.lookups) = Default::default();
        self.free.push(number);
    }

    /// Returns the part that the packet path reads first.
    #[inline]
    pub fn shortcut(&self, number: u32) -> Shortcut {
        self.hot[number as usize].shortcut
    }

    /// Counts a packet.
    #[inline]
    pub fn count(&mut self, number: u32, bytes: usize, now_ms: u32) {
        let hot = &mut self.hot[number as usize];
        hot.packets += 1;
        hot.bytes += bytes as u64;
        hot.last_used_ms = now_ms;
        if !hot.due {
            hot.due = true;
            self.due.push(number);
        }
    }

    /// Adds all counts since the last flush to the counters of rules and tables.
    pub fn flush(&mut self, now_ms: u64) {
        while !self.flush_some(now_ms, usize::MAX) {}
    }

    /// Flushes at most `budget` numbers, those due longest first. Returns true if none is left.
    pub fn flush_some(&mut self, now_ms: u64, budget: usize) -> bool {
        for _ in 0..budget {
            if self.flushing.is_empty() {
                std::mem::swap(&mut self.due, &mut self.flushing);
            }
            let Some(number) = self.flushing.pop() else { return true };
            self.flush_one(number, now_ms);
            self.hot[number as usize].due = false;
        }
        self.flushing.is_empty() && self.due.is_empty()
    }

    fn flush_one(&mut self, number: u32, now_ms: u64) {
        let hot = &mut self.hot[number as usize];
        let (packets, bytes) = (std::mem::take(&mut hot.packets), std::mem::take(&mut hot.bytes));
        if packets > 0 {
            // Verdicts store the low half of the clock.
            let age_ms = (now_ms as u32).wrapping_sub(hot.last_used_ms);
            let used_ms = now_ms.saturating_sub(age_ms.into());
            self.slots[number as usize].verdict.credit(packets, bytes, used_ms);
        }
    }

    #[inline]
    pub fn get(&self, number: u32) -> &Verdict {
        &self.slots[number as usize].verdict
    }

    /// Returns the number of different verdicts in use.
    pub fn len(&self) -> usize {
        self.by_value.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_value.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::RuleStats;
    use overbank_wire::FlowKey;
    use std::sync::Arc;

    fn output(ports: &[u32]) -> Translation {
        Translation {
            mask: FlowKey::default(),
            program: ports.iter().map(|&p| Op::Output(p)).collect(),
            drop: None,
            lookups: Box::default(),
        }
    }

    #[test]
    fn equal_verdicts_share_a_number_until_the_last_reference_goes() {
        let (mut verdicts, stats) = (Verdicts::new(1), AllTableStats::default());
        let mut acquire = |answer| verdicts.acquire(answer, &stats);
        let (a, b) = (acquire(output(&[1])), acquire(output(&[1, 2])));
        assert_eq!(acquire(output(&[1])), a);
        assert_ne!(a, b);
        assert_eq!(verdicts.shortcut(a), Shortcut::Output(1));
        assert_eq!(verdicts.shortcut(b), Shortcut::Program);
        verdicts.release(a, 0);
        assert_eq!(verdicts.len(), 2);
        verdicts.release(a, 0);
        assert_eq!(verdicts.len(), 1);
        let dropped = Translation { drop: Some(DropReason::NoRule), ..output(&[]) };
        assert_eq!(verdicts.acquire(dropped, &stats), a, "the number is given out again");
        assert_eq!(verdicts.shortcut(a), Shortcut::Drop(DropReason::NoRule));
    }

    #[test]
    fn rules_get_their_counts_once_and_before_their_number_is_reused() {
        let (mut verdicts, stats) = (Verdicts::new(1), AllTableStats::default());
        let rules = [Arc::new(RuleStats::new(0)), Arc::new(RuleStats::new(0))];
        let lookup = |table: u8, rule| Lookup { table, rule };
        let answer = Translation {
            lookups: [
                lookup(0, Some(Arc::clone(&rules[0]))),
                lookup(1, None),
                lookup(2, Some(Arc::clone(&rules[1]))),
            ]
            .into(),
            ..output(&[1])
        };
        let number = verdicts.acquire(answer, &stats);
        let counts = || rules.each_ref().map(|r| (r.packets(), r.bytes(), r.last_used_ms()));
        let now_ms = (7 << 32) + 5;
        verdicts.count(number, 60, now_ms as u32);
        assert_eq!(counts(), [(0, 0, 0); 2]);
        verdicts.flush(now_ms + 10);
        verdicts.flush(now_ms + 20);
        assert_eq!(counts(), [(1, 60, now_ms); 2]);
        verdicts.count(number, 80, (now_ms + 30) as u32);
        verdicts.count(number, 70, (now_ms + 40) as u32);
        verdicts.release(number, now_ms + 50);
        assert_eq!(counts(), [(3, 210, now_ms + 40); 2]);
        let table = |n| stats.get(n).map(|t| (t.lookups(), t.matched()));
        assert_eq!((table(0), table(1), table(2)), (Some((3, 3)), Some((3, 0)), Some((3, 3))));
        // The number comes back clean.
        assert_eq!(verdicts.acquire(output(&[1]), &stats), number);
        verdicts.count(number, 60, 0);
        verdicts.flush(now_ms + 60);
        assert_eq!(counts()[0].0, 3);
    }

    /// In slices, each gets its turn although the others go on counting.
    #[test]
    fn a_flush_in_slices_comes_to_all() {
        let (mut verdicts, stats) = (Verdicts::new(1), AllTableStats::default());
        let rules: Vec<_> = (0..5).map(|_| Arc::new(RuleStats::new(0))).collect();
        let of = |rule: &Arc<RuleStats>| Translation {
            lookups: [Lookup { table: 0, rule: Some(Arc::clone(rule)) }].into(),
            ..output(&[1])
        };
        let numbers: Vec<u32> = rules.iter().map(|r| verdicts.acquire(of(r), &stats)).collect();
        for round in 1..=5 {
            numbers.iter().for_each(|&number| verdicts.count(number, 60, round));
            assert!(!verdicts.flush_some(round.into(), 1));
            let came = rules.iter().filter(|rule| rule.packets() > 0).count();
            assert_eq!(came, round as usize);
        }
        while !verdicts.flush_some(9, 2) {}
        assert!(rules.iter().all(|rule| rule.packets() == 5 && rule.bytes() == 300));
        assert!(verdicts.flush_some(9, 1));
    }
}
