//! A limit of requests in a second: a token bucket that holds a tenth of a second.
//!
//! Panics: none.

use overbank_netcache::Micros;

/// Time for which tokens are kept.
const KEPT_US: u64 = 100_000;
/// Parts of a token: a microsecond brings as many parts as the rate has tokens a second.
const TOKEN: u64 = 1_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Rate {
    a_second: u64,
    /// Parts of tokens that are left, and when they were counted.
    left: u64,
    at: Micros,
}

impl Rate {
    /// Returns a bucket that is full.
    pub(super) fn new(a_second: u32) -> Rate {
        let a_second = a_second.into();
        Rate { a_second, left: Rate::most(a_second), at: 0 }
    }

    /// At least one token: a rate below 10 would allow nothing.
    fn most(a_second: u64) -> u64 {
        (a_second * KEPT_US).max(TOKEN)
    }

    /// Returns whether one more is allowed now, and takes it. Time must not run backwards.
    pub(super) fn allows(&mut self, now: Micros) -> bool {
        let new = now.saturating_sub(self.at).saturating_mul(self.a_second);
        self.at = now;
        self.left = self.left.saturating_add(new).min(Rate::most(self.a_second));
        let is_enough = self.left >= TOKEN;
        if is_enough {
            self.left -= TOKEN;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_the_rate_and_a_burst() {
        for (a_second, burst) in [(1, 1), (7, 1), (300, 30), (30_000, 3_000)] {
            let mut rate = Rate::new(a_second);
            let mut allowed = |from: Micros, step: usize| {
                let times = (from..from + 1_000_000).step_by(step);
                times.filter(|&now| rate.allows(now)).count() as u64
            };
            let first = allowed(5_000_000, 1);
            let all = u64::from(a_second) + burst;
            assert!((all - 1..=all).contains(&first), "{a_second}: {first} of {all}");
            // Then as many as come again.
            let second = allowed(6_000_000, 1);
            let all = u64::from(a_second);
            assert!((all.saturating_sub(1)..=all + 1).contains(&second), "{a_second}: {second}");
        }
        let mut slow = Rate::new(1000);
        assert!((0..1000).all(|nth| slow.allows(nth * 1000)), "all that does not exceed it");
    }

    #[test]
    fn no_time_and_no_rate_are_too_large() {
        let mut rate = Rate::new(u32::MAX);
        assert!([0, 1, u64::MAX, u64::MAX, 5].into_iter().all(|now| rate.allows(now)));
    }
}
