//! When rules end by themselves.
//!
//! A heap by the earliest time at which a rule could end. A rule whose idle timeout was put off by
//! packets goes back into the heap when its time comes, so packets cost nothing here. Rules that
//! are gone or were changed stay in the heap until their time, or until they are the larger part of
//! it; so it has at most twice as many entries as there are rules, and [`SLACK`] more.

use super::events::RemovedReason;
use overbank_switch::tables::{RuleEntry, Tables};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Entries of rules that are gone which are never cleared away early.
const SLACK: usize = 1024;

struct Due {
    at_ms: u64,
    entry: Arc<RuleEntry>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.at_ms == other.at_ms
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.at_ms.cmp(&other.at_ms)
    }
}

/// Returns when `entry` ends if no packet comes, and why; `None`: never.
fn due(entry: &RuleEntry) -> Option<(u64, RemovedReason)> {
    let of = |from_ms: u64, timeout_s: u16, reason| {
        (timeout_s != 0).then(|| (from_ms + u64::from(timeout_s) * 1000, reason))
    };
    let hard = of(entry.created_ms, entry.rule.hard_timeout_s, RemovedReason::Hard);
    let idle = of(entry.stats.last_used_ms(), entry.rule.idle_timeout_s, RemovedReason::Idle);
    // On a tie the hard one, which would have come anyway.
    hard.into_iter().chain(idle).min_by_key(|(at_ms, _)| *at_ms)
}

/// Whether exactly this entry is in force.
pub(super) fn stands(tables: &Tables, entry: &Arc<RuleEntry>) -> bool {
    let rule = &entry.rule;
    tables
        .entry(rule.table, rule.priority, &rule.matching)
        .is_some_and(|now| Arc::ptr_eq(now, entry))
}

/// The heap; see the module.
#[derive(Default)]
pub(super) struct Timeouts(BinaryHeap<Reverse<Due>>);

impl Timeouts {
    /// Notes a rule, if it ends by itself.
    pub(super) fn watch(&mut self, entry: &Arc<RuleEntry>, tables: &Tables) {
        let Some((at_ms, _)) = due(entry) else { return };
        if self.0.len() > 2 * tables.len() + SLACK {
            self.0.retain(|Reverse(due)| stands(tables, &due.entry));
        }
        self.0.push(Reverse(Due { at_ms, entry: entry.clone() }));
    }

    /// Returns the next rule that is due.
    pub(super) fn next(
        &mut self,
        now_ms: u64,
        tables: &Tables,
    ) -> Option<(Arc<RuleEntry>, RemovedReason)> {
        while self.0.peek().is_some_and(|Reverse(due)| due.at_ms <= now_ms) {
            let Reverse(Due { entry, .. }) = self.0.pop()?;
            if !stands(tables, &entry) {
                continue;
            }
            match due(&entry) {
                Some((at_ms, reason)) if at_ms <= now_ms => return Some((entry, reason)),
                Some((at_ms, _)) => self.0.push(Reverse(Due { at_ms, entry })),
                None => {}
            }
        }
        None
    }

    /// Entries kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
