//! Tells whether a worker sleeps, so that its mailbox need not wake it.
//!
//! ```text
//!   worker                                   control side
//!   begin: asleep = true                     mailbox := snapshot
//!          fence                             is_asleep: fence
//!          mailbox empty? then sleep                    asleep?
//!   end:   asleep = false
//!          fence
//!          mailbox: take
//! ```
//!
//! Each side writes, then reads what the other one writes, so at least one of them sees the other's
//! write. Either the worker sees the snapshot before it falls asleep, or the control side sees that
//! it sleeps. In that case the worker finds the snapshot when it wakes.
//!
//! **Consistency.** If [`Rest::is_asleep`] is true after [`post`] and a following [`collect`], the
//! worker no longer uses an older snapshot, and all its uses happened before.
//!
//! Cost: a fence and a store on each side, when the worker is about to wait anyway. Panics: none.
//! `tests` has the loom model.
//!
//! [`post`]: crate::mailbox::Sender::post
//! [`collect`]: crate::mailbox::Sender::collect

#![cfg_attr(all(test, loom), allow(unsafe_code))] // What loom watches is in its cells.

use crate::sync::{AtomicBool, Ordering, fence};

#[derive(Debug)]
pub struct Rest(AtomicBool);

impl Default for Rest {
    fn default() -> Rest {
        Rest(AtomicBool::new(false))
    }
}

impl Rest {
    /// Announces that the worker is about to sleep. It checks its mailbox once more first.
    pub fn begin(&self) {
        // Release: pairs with the Acquire of `is_asleep`, so that what the worker did happened
        // before.
        self.0.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Announces that the worker is awake. It checks its mailbox before anything else.
    pub fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns whether the worker sleeps.
    pub fn is_asleep(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sleeps_between_begin_and_end() {
        let rest = Rest::default();
        assert!(!rest.is_asleep());
        rest.begin();
        assert!(rest.is_asleep());
        rest.end();
        assert!(!rest.is_asleep());
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::mailbox::mailbox;
    use crate::sync::Arc;
    use loom::cell::UnsafeCell;
    use loom::thread;

    struct Cell(UnsafeCell<u64>);

    // SAFETY: loom reports every access that is not ordered with a write, which is what the test is
    // about.
    unsafe impl Sync for Cell {}

    /// A worker uses its snapshot, sleeps, wakes and uses what it has then. The control side
    /// changes what the old snapshot shows as soon as the worker sleeps or runs on the new one.
    #[test]
    fn rest_means_that_the_old_one_is_out_of_use() {
        loom::model(|| {
            let shared = Arc::new(Cell(UnsafeCell::new(0)));
            let rest = Arc::new(Rest::default());
            let (sender, mut worker) = mailbox(1, Some(shared.clone()));
            let link = rest.clone();
            let thread = thread::spawn(move || {
                let use_it = |current: &Option<Arc<Cell>>| {
                    if let Some(cell) = current {
                        // SAFETY: loom checks that no one writes at the same time.
                        assert_eq!(cell.0.with(|value| unsafe { *value }), 0);
                    }
                };
                use_it(worker.current());
                link.begin();
                worker.has_next();
                link.end();
                worker.take(|old, _| *old = None);
                use_it(worker.current());
                worker
            });
            sender.post(2, None);
            drop(sender.collect());
            if rest.is_asleep() || sender.seen() == 2 {
                // SAFETY: loom checks that no one reads or writes at the same time.
                shared.0.with_mut(|value| unsafe { *value = 7 });
            }
            drop(thread.join().unwrap());
        });
    }
}
