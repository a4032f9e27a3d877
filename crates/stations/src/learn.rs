//! Reports of a worker to the writer of the table, about the addresses that it sees.
//!
//! ```text
//!   Sighting ─▶ just reported? ─▶ unknown, moved: rate of the port ─▶ queue of news ─▶ writer
//!                             └──▶ silent ─▶ queue of refreshes ────────────────────▶ writer
//! ```
//!
//! Both queues are bounded. Refreshes of known addresses use a separate queue, which invented
//! addresses cannot fill: a flood cannot age known addresses out. News have an allowance for each
//! port, so that a flood on one port delays no station of another.
//!
//! What could not be reported is reported with a later frame. Nothing waits, locks or allocates.

use super::station::{News, Sighting};
use super::stations::Limits;
use crossbeam_queue::ArrayQueue;
use overbank::fib::MacVlan;
use std::sync::Arc;

/// Stations whose last report a worker remembers.
const RECENT: usize = 256;
/// Time before a worker reports a station again: the writer may not have processed it yet.
pub const QUIET_MS: u32 = 20;
/// Part of a second's allowance that a burst may use.
const AT_ONCE_MS: u64 = 125;
/// Smallest burst of reports.
const AT_ONCE_MIN: u64 = 32;

/// Reports on their way from one worker to the writer.
#[derive(Debug)]
pub struct Reports {
    /// Stations that are new or moved.
    pub news: ArrayQueue<Sighting>,
    /// Stations that are where they were.
    pub life: ArrayQueue<Sighting>,
}

/// What a worker reports; see the module.
pub struct Learner {
    reports: Arc<Reports>,
    recent: Box<[Recent; RECENT]>,
    allowances: Box<[Allowance]>,
    per_s: u32,
    limited: u64,
    queue_full: u64,
}

#[derive(Clone, Copy)]
struct Recent {
    key: MacVlan,
    port: u16,
    at_ms: u32,
}

/// Thousandths of a report that a port has left.
#[derive(Clone, Copy)]
struct Allowance {
    left: u64,
    at_ms: u32,
}

/// Returns where a key is remembered.
fn place(key: MacVlan) -> usize {
    let [a, b, c, d, e, f] = key.mac();
    let [g, h] = key.vlan().to_be_bytes();
    let word = u64::from_be_bytes([g, h, a, b, c, d, e, f]);
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % RECENT
}

impl Learner {
    /// Returns a learner for `ports` ports, and the queues that it fills.
    pub fn new(ports: usize, limits: &Limits) -> (Learner, Arc<Reports>) {
        let queue = limits.queue.max(1);
        let reports =
            Arc::new(Reports { news: ArrayQueue::new(queue), life: ArrayQueue::new(queue) });
        // No station has the zero key.
        let never = Recent { key: MacVlan::new([0; 6], 0), port: 0, at_ms: 0 };
        let full = Allowance { left: u64::MAX, at_ms: 0 };
        let learner = Learner {
            reports: reports.clone(),
            recent: Box::new([never; RECENT]),
            allowances: vec![full; ports].into(),
            per_s: limits.learn_per_s,
            limited: 0,
            queue_full: 0,
        };
        (learner, reports)
    }

    /// Reports to the writer unless limited. Returns whether it reported. Times may wrap.
    #[cold]
    pub fn report(&mut self, sighting: Sighting, now_ms: u32) -> bool {
        let Sighting { key, port, news } = sighting;
        let recent = &mut self.recent[place(key)];
        let known = recent.key == key && recent.port == port;
        if known && now_ms.wrapping_sub(recent.at_ms) < QUIET_MS {
            return false;
        }
        let queue = match news {
            News::Silent => &self.reports.life,
            News::Unknown | News::Moved => {
                let Some(allowance) = self.allowances.get_mut(usize::from(port)) else {
                    return false;
                };
                if !allowance.take(self.per_s, now_ms) {
                    self.limited += 1;
                    return false;
                }
                &self.reports.news
            }
        };
        if queue.push(sighting).is_err() {
            self.queue_full += 1;
            return false;
        }
        *recent = Recent { key, port, at_ms: now_ms };
        true
    }

    /// Reports that were not made because their port had made too many.
    pub fn limited(&self) -> u64 {
        self.limited
    }

    /// Reports that were not made because the queue was full.
    pub fn queue_full(&self) -> u64 {
        self.queue_full
    }
}

impl Allowance {
    fn take(&mut self, per_s: u32, now_ms: u32) -> bool {
        let per_s = u64::from(per_s);
        let most = (per_s * AT_ONCE_MS).max(1000 * per_s.min(AT_ONCE_MIN));
        let since = u64::from(now_ms.wrapping_sub(self.at_ms));
        self.left = self.left.saturating_add(since * per_s).min(most);
        self.at_ms = now_ms;
        let enough = self.left >= 1000;
        self.left -= if enough { 1000 } else { 0 };
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(n: u8, port: u16, news: News) -> Sighting {
        Sighting { key: MacVlan::new([2, 0, 0, 0, 0, n], 0), port, news }
    }

    fn limits(learn_per_s: u32, queue: usize) -> Limits {
        Limits { learn_per_s, queue, ..Limits::default() }
    }

    #[test]
    fn an_address_is_not_reported_twice_in_a_moment() {
        let (mut learner, reports) = Learner::new(3, &limits(100, 8));
        let start = u32::MAX - 3;
        let at = |ms: u32| start.wrapping_add(ms);
        assert!(learner.report(sighting(1, 1, News::Unknown), at(0)));
        assert!(!learner.report(sighting(1, 1, News::Unknown), at(QUIET_MS - 1)));
        assert!(learner.report(sighting(1, 2, News::Unknown), at(5)), "another port is news");
        assert!(learner.report(sighting(1, 1, News::Unknown), at(6)), "and so is the first again");
        assert!(learner.report(sighting(1, 1, News::Unknown), at(6 + QUIET_MS)), "it was lost");
        assert_eq!((reports.news.len(), reports.life.len()), (4, 0));
        assert_eq!((learner.limited(), learner.queue_full()), (0, 0));
    }

    #[test]
    fn each_port_has_an_allowance_and_life_needs_none() {
        let (mut learner, reports) = Learner::new(2, &limits(3, 300));
        let mut told = |n: u8, port, news, ms| learner.report(sighting(n, port, news), ms);
        let of_flood = (0..100).filter(|&n| told(n, 0, News::Unknown, 0)).count();
        assert_eq!(of_flood, 3);
        assert!(told(100, 1, News::Moved, 0), "the other port is not touched");
        assert!((101..201).all(|n| told(n, 0, News::Silent, 0)));
        assert!(!told(201, 0, News::Unknown, 333) && told(202, 0, News::Unknown, 334));
        assert!((0..3).all(|n| told(n, 0, News::Unknown, 60_000)));
        assert!(!told(3, 0, News::Unknown, 60_000), "what was not used is not kept");
        assert!(!told(9, 2, News::Unknown, 60_000), "there is no such port");
        assert_eq!((reports.news.len(), reports.life.len()), (8, 100));
        assert_eq!(learner.limited(), 97 + 1 + 1);
    }

    #[test]
    fn a_full_queue_is_counted_and_the_other_is_not_touched() {
        let (mut learner, reports) = Learner::new(1, &limits(1000, 2));
        for n in 0..5 {
            assert_eq!(learner.report(sighting(n, 0, News::Unknown), 0), n < 2);
        }
        assert!(learner.report(sighting(9, 0, News::Silent), 0));
        assert_eq!(learner.queue_full(), 3);
        reports.news.pop().expect("two were told");
        assert!(learner.report(sighting(4, 0, News::Unknown), 0), "told as soon as there is room");
    }
}
