//! Rates that all workers share without locks.
//!
//! A limit is one word: the time at which everything admitted so far would have passed at the
//! configured rate (GCRA). A packet is admitted if that time is at most a burst ahead; it moves the
//! time on by its cost. Workers exchange the word by compare-and-swap: a failure means that another
//! worker has just succeeded, which only workers of the same session do to each other.
//!
//! Times are given in; they may stand still or go back. Cost: one cache line. Panics: none.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::FromZeros;

/// Nanoseconds in a millisecond, the unit of the workers' clock.
pub(crate) const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// One limit; 0 admits at once.
#[derive(Debug, Default, FromZeros)]
#[repr(transparent)]
pub struct Limit(AtomicU64);

impl Limit {
    /// Admits something of this cost, unless more than `burst_ns` are admitted ahead of time.
    #[inline]
    pub fn admit(&self, now_ns: u64, cost_ns: u64, burst_ns: u64) -> bool {
        let mut at = self.0.load(Relaxed);
        loop {
            let start = at.max(now_ns);
            if start - now_ns > burst_ns {
                return false;
            }
            match self.0.compare_exchange_weak(at, start.saturating_add(cost_ns), Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => at = seen,
            }
        }
    }

    /// Forgets what was admitted.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// A number of events a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond {
    cost_ns: u64,
    burst_ns: u64,
}

impl PerSecond {
    /// Returns the rate with at most `n` events (at least one) in any second: half of them at once,
    /// the others evenly.
    pub const fn at_most(n: u64) -> PerSecond {
        let half = n / 2;
        if half == 0 {
            return PerSecond { cost_ns: SECOND, burst_ns: 0 };
        }
        let cost_ns = SECOND / (n - half);
        PerSecond { cost_ns, burst_ns: (half - 1) * cost_ns }
    }

    /// Admits an event.
    #[inline]
    pub fn admit(self, limit: &Limit, now_ms: u64) -> bool {
        limit.admit(now_ms.saturating_mul(MS), self.cost_ns, self.burst_ns)
    }
}

/// A limit for each of many addresses, in bounded memory.
///
/// Addresses of one place share its limit, so no address ever gets more than its rate. A flood from
/// invented addresses can use up the places of others; its answers are bounded by `PLACES` times
/// the rate. The hash is seeded: a place cannot be aimed at without its address.
#[derive(Debug)]
pub struct PeerLimits {
    places: Box<[Limit]>,
    hasher: FixedState,
}

/// Places of a [`PeerLimits`].
pub const PLACES: usize = 4096;

impl PeerLimits {
    pub fn new(seed: u64) -> PeerLimits {
        let places = (0..PLACES).map(|_| Limit::default()).collect();
        PeerLimits { places, hasher: FixedState::with_seed(seed) }
    }

    /// Admits an event of an address.
    pub fn admit(&self, rate: PerSecond, address: IpAddr, now_ms: u64) -> bool {
        let place = (self.hasher.hash_one(address) >> 32) as usize % PLACES;
        self.places.get(place).is_some_and(|limit| rate.admit(limit, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_second_has_more_events_than_allowed() {
        for n in [1, 2, 3, 10, 100, 101] {
            let (rate, limit) = (PerSecond::at_most(n), Limit::default());
            let mut admitted = Vec::new();
            for now_ms in 0..5000u64 {
                for _ in 0..3 {
                    if rate.admit(&limit, now_ms) {
                        admitted.push(now_ms);
                    }
                }
            }
            for &start in &admitted {
                let within = admitted.iter().filter(|at| (start..start + 1000).contains(at));
                assert!(within.count() as u64 <= n, "{n} a second, from {start} ms");
            }
            assert!(admitted.len() as u64 >= 2 * n, "{n} a second: {} in 5 s", admitted.len());
        }
    }

    #[test]
    fn a_flood_of_one_address_leaves_others_alone() {
        let (limits, rate) = (PeerLimits::new(1), PerSecond::at_most(10));
        let flood = (0..1000).filter(|_| limits.admit(rate, [192, 0, 2, 1].into(), 0)).count();
        assert_eq!(flood, 5);
        let others = (0..100u8).filter(|&n| limits.admit(rate, [192, 0, 3, n].into(), 0)).count();
        assert!(others >= 95, "{others}: a hundred addresses rarely share places");
    }

    proptest! {
        /// The admitted cost never exceeds rate × time + burst + one event.
        #[test]
        fn the_admitted_cost_is_bounded(
            steps in prop::collection::vec((0u64..20_000_000, 1u64..5_000_000), 1..200),
            burst in 0u64..50_000_000,
        ) {
            let limit = Limit::default();
            let (mut now, mut sum, mut last) = (1 << 40, 0, 0);
            let start = now;
            for (wait, cost) in steps {
                now += wait;
                let fits = sum == 0 || limit.0.load(Relaxed).saturating_sub(now) <= burst;
                let admitted = limit.admit(now, cost, burst);
                prop_assert_eq!(admitted, fits);
                if admitted {
                    sum += cost;
                    last = cost;
                }
                prop_assert!(sum <= now - start + burst + last.max(5_000_000));
            }
        }
    }
}
