//! Counters of rules and tables, shared by every worker and every snapshot of the rules.
//!
//! A rule has one [`RuleStats`] for as long as its counters live; snapshots and megaflows share it.
//! Workers count locally and add to these atomics from time to time
//! ([`crate::Datapath::flush_stats`]), so a reading is as old as the last flush. All accesses are
//! relaxed: each counter is exact, but two of them need not be of the same instant.
//!
//! Times are the switch's clock: milliseconds that never go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::rule::TABLE_MAX;

#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used_ms: AtomicU64,
}

impl RuleStats {
    /// Returns zero counters, last used at `now_ms`, from which an idle timeout runs.
    pub fn new(now_ms: u64) -> RuleStats {
        RuleStats { last_used_ms: AtomicU64::new(now_ms), ..RuleStats::default() }
    }

    /// Adds packets, the last of which came at `used_ms`.
    pub fn add(&self, packets: u64, bytes: u64, used_ms: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.touch(used_ms);
    }

    /// Notes a use without a packet.
    pub fn touch(&self, used_ms: u64) {
        self.last_used_ms.fetch_max(used_ms, Relaxed);
    }

    /// Returns the number of times that a packet used the rule.
    pub fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    /// Returns the bytes of these packets, as received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns when the last packet came, or else when the rule was made.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct TableStats {
    lookups: AtomicU64,
    matched: AtomicU64,
}

impl TableStats {
    /// Adds lookups, `matched` of which found a rule.
    pub fn add(&self, lookups: u64, matched: u64) {
        self.lookups.fetch_add(lookups, Relaxed);
        self.matched.fetch_add(matched, Relaxed);
    }

    /// Returns the number of lookups.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Relaxed)
    }

    /// Returns the number of lookups that found a rule.
    pub fn matched(&self) -> u64 {
        self.matched.load(Relaxed)
    }
}

/// The counters of all possible tables.
#[derive(Clone, Debug)]
pub struct AllTableStats(Arc<[TableStats]>);

impl Default for AllTableStats {
    fn default() -> AllTableStats {
        AllTableStats((0..=TABLE_MAX).map(|_| TableStats::default()).collect())
    }
}

impl AllTableStats {
    /// Returns the counters of one table.
    pub fn get(&self, table: u8) -> Option<&TableStats> {
        self.0.get(usize::from(table))
    }

    /// Returns whether both share the same counters.
    pub fn same(&self, other: &AllTableStats) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_never_goes_back() {
        let stats = RuleStats::new(50);
        stats.add(2, 120, 70);
        stats.add(1, 60, 60);
        assert_eq!((stats.packets(), stats.bytes(), stats.last_used_ms()), (3, 180, 70));
        let tables = AllTableStats::default();
        let shared = tables.clone();
        shared.get(TABLE_MAX).expect("the last table").add(3, 2);
        let last = tables.get(TABLE_MAX).expect("the last table");
        assert_eq!((last.lookups(), last.matched()), (3, 2));
        assert!(tables.get(255).is_none() && tables.same(&shared));
    }
}
