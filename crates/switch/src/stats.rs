//! What rules and tables have counted, shared by every worker and every snapshot of the rules.
//!
//! A rule has one [`RuleStats`] for as long as its counters live: snapshots of the tables share it,
//! and so do the megaflows that credit it. Workers count on their own and add to these atomics from
//! time to time ([`crate::Datapath::flush_stats`]), so a reading is as old as the last flush. All
//! accesses are relaxed: each counter is exact, two of them need not be of the same instant.
//!
//! The clock is the switch's: milliseconds that go forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::rule::TABLE_MAX;

/// Counters of a rule.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used_ms: AtomicU64,
}

impl RuleStats {
    /// Nothing counted; last used `now_ms`, from which an idle timeout runs.
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

    /// Packets that the rule was used for, as often as it was.
    pub fn packets(&self) -> u64 {
        self.packets.load(Relaxed)
    }

    /// Their bytes, as they came in.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// When the last of them came, or else when the rule was made.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Relaxed)
    }
}

/// Counters of a table.
#[derive(Debug, Default)]
pub struct TableStats {
    lookups: AtomicU64,
    matched: AtomicU64,
}

impl TableStats {
    /// Adds lookups, so many of which found a rule.
    pub fn add(&self, lookups: u64, matched: u64) {
        self.lookups.fetch_add(lookups, Relaxed);
        self.matched.fetch_add(matched, Relaxed);
    }

    /// Packets that were looked up here, as often as they were.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Relaxed)
    }

    /// How many of the lookups found a rule.
    pub fn matched(&self) -> u64 {
        self.matched.load(Relaxed)
    }
}

/// The counters of all tables that there may be.
#[derive(Clone, Debug)]
pub struct AllTableStats(Arc<[TableStats]>);

impl Default for AllTableStats {
    fn default() -> AllTableStats {
        AllTableStats((0..=TABLE_MAX).map(|_| TableStats::default()).collect())
    }
}

impl AllTableStats {
    /// Those of one table.
    pub fn get(&self, table: u8) -> Option<&TableStats> {
        self.0.get(usize::from(table))
    }

    /// Whether both are the same counters.
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
