//! Tells when no worker can still use what was withdrawn from its tables.
//!
//! ```text
//!   worker                                control side
//!   enter: visits += 1, odd               withdraw: the tables no longer lead to it
//!          fence                          mark
//!          look up, use                   reached: fence
//!   leave: visits += 1, even                       each worker outside, or at another visit?
//! ```
//!
//! A worker looks things up only between [`Visitor::enter`] and [`Visitor::leave`], and keeps
//! nothing that it found. The control side withdraws something, calls [`Grace::mark`], and may
//! change the thing once [`Grace::reached`] returns that number or a larger one.
//!
//! **Consistency.** Each side writes, then reads what the other one writes, with a fence between.
//! If the control side sees an even count, the worker's next visit starts with a fence after the
//! control side's, so it finds the tables without the thing. If it sees an odd count, that visit
//! may have found the thing, and the period waits until the count changes. Either way the uses
//! before the count that was seen happened before what the control side does next.
//!
//! No side waits for the other: [`Grace::reached`] only looks. Any number of withdrawals share a
//! period. Cost: two stores and a fence for each visit, which may be a burst. Panics: none. `tests`
//! has the loom model.

#![cfg_attr(all(test, loom), allow(unsafe_code))] // What loom watches is in its cells.

use crate::sync::{Arc, AtomicU64, Ordering, fence};

/// Visits of one worker: odd during one. A pair of cache lines: no worker writes another's.
#[derive(Debug)]
#[repr(align(128))]
struct Visits(AtomicU64);

/// The control side's end.
#[derive(Debug)]
pub struct Grace {
    workers: Arc<Box<[Visits]>>,
    /// Counts that the running period saw at its begin; empty: none is running.
    seen: Vec<u64>,
    /// Number of the period that comes next.
    next: u64,
    /// Largest number that [`Grace::mark`] returned.
    marked: u64,
    /// Largest number of a period that is over.
    over: u64,
}

/// A worker's end.
#[derive(Debug)]
pub struct Visitor {
    workers: Arc<Box<[Visits]>>,
    index: usize,
}

impl Grace {
    /// Returns the ends of the control side and of each worker.
    pub fn new(workers: usize) -> (Grace, Vec<Visitor>) {
        let all = (0..workers).map(|_| Visits(AtomicU64::new(0)));
        let workers: Arc<Box<[Visits]>> = Arc::new(all.collect());
        let visitor = |index| Visitor { workers: workers.clone(), index };
        let visitors = (0..workers.len()).map(visitor).collect();
        (Grace { workers, seen: Vec::new(), next: 1, marked: 0, over: 0 }, visitors)
    }

    /// Returns the number of the period that covers everything withdrawn so far.
    pub fn mark(&mut self) -> u64 {
        self.marked = self.next;
        self.next
    }

    /// Returns the largest number of a period that is over, 0 at first.
    pub fn reached(&mut self) -> u64 {
        loop {
            if self.over + 1 < self.next {
                if !self.is_over() {
                    return self.over;
                }
                self.over += 1;
            }
            if self.marked < self.next {
                return self.over;
            }
            // SeqCst fence: pairs with the one of `enter`.
            fence(Ordering::SeqCst);
            self.seen.clear();
            // Acquire: pairs with the Release of `leave`.
            self.seen.extend(self.workers.iter().map(|visits| visits.0.load(Ordering::Acquire)));
            self.next += 1;
        }
    }

    /// Returns whether every visit that the running period saw has ended.
    fn is_over(&self) -> bool {
        let mut all = self.workers.iter().zip(&self.seen);
        // Acquire: pairs with the Release of `leave`.
        all.all(|(visits, &seen)| seen & 1 == 0 || visits.0.load(Ordering::Acquire) != seen)
    }
}

impl Visitor {
    /// Begins a visit.
    #[inline]
    pub fn enter(&mut self) {
        let visits = &self.workers[self.index].0;
        // Release: a count that differs from the seen one shows the end of the visit before.
        visits.store(visits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        // SeqCst fence: pairs with the one of `reached`.
        fence(Ordering::SeqCst);
    }

    /// Ends the visit.
    #[inline]
    pub fn leave(&mut self) {
        let visits = &self.workers[self.index].0;
        // Release: pairs with the Acquire loads of `Grace`.
        visits.store(visits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_period_ends_with_the_visits_that_it_saw() {
        let (mut grace, mut visitors) = Grace::new(2);
        assert_eq!((grace.reached(), grace.mark()), (0, 1));
        assert_eq!(grace.reached(), 1, "no worker is inside");
        visitors[0].enter();
        let (first, second) = (grace.mark(), grace.mark());
        assert_eq!((first, second, grace.reached()), (2, 2, 1));
        let third = grace.mark();
        assert_eq!((third, grace.reached()), (3, 1), "the running period does not cover it");
        visitors[1].enter();
        visitors[0].leave();
        assert_eq!(grace.reached(), 2, "the other visit began later");
        visitors[0].enter();
        assert_eq!(grace.reached(), 2);
        visitors[1].leave();
        assert_eq!(grace.reached(), 3, "worker 0 has been outside since");
        assert_eq!((grace.reached(), grace.mark()), (3, 4));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::AtomicBool;
    use loom::cell::UnsafeCell;
    use loom::thread;

    struct Cell(UnsafeCell<u64>);

    // SAFETY: loom reports every access that is not ordered with a write, which is what the test is
    // about.
    unsafe impl Sync for Cell {}

    /// A worker looks twice whether the thing is there, and uses it. The control side withdraws it
    /// and changes it as soon as the period is over.
    #[test]
    fn grace_means_that_the_withdrawn_is_out_of_use() {
        loom::model(|| {
            let shared = Arc::new((AtomicBool::new(true), Cell(UnsafeCell::new(0))));
            let (mut grace, mut visitors) = Grace::new(1);
            let mut visitor = visitors.remove(0);
            let of_worker = shared.clone();
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    visitor.enter();
                    if of_worker.0.load(Ordering::Acquire) {
                        // SAFETY: loom checks that no one writes at the same time.
                        assert_eq!(of_worker.1.0.with(|value| unsafe { *value }), 0);
                    }
                    visitor.leave();
                }
            });
            shared.0.store(false, Ordering::Release);
            let withdrawn = grace.mark();
            for _ in 0..2 {
                if grace.reached() >= withdrawn {
                    // SAFETY: loom checks that no one reads at the same time.
                    shared.1.0.with_mut(|value| unsafe { *value = 7 });
                    break;
                }
            }
            thread.join().unwrap();
        });
    }
}
