//! Hands a snapshot from the control side to one worker, and the old one back.
//!
//! ```text
//!   control                                           worker
//!   post(v3) ──swap──▶ ┌─ inbox ──┐ ──swap null──▶ take() = v3
//!        ◀── v2, if    │ AtomicPtr│                   │ runs on v3 from here on
//!            not taken └──────────┘                   │
//!   collect() = v1 ◀── ┌─ outbox ─┐ ◀──store─────── give back v1
//!                      │ AtomicPtr│
//!   seen() ≥ 3     ◀── seen version ◀──Release────── seen = 3
//! ```
//!
//! Each side takes a bounded number of steps whatever the other one does (wait-free). The newest
//! snapshot is taken in the end: one that was posted and not yet taken comes back from
//! [`Sender::post`]. A worker frees nothing: the old snapshot returns and is freed where it was
//! made. The outbox holds one, so a worker takes the next snapshot only when the outbox is empty.
//! The control side therefore collects before it posts, and again while it waits.
//!
//! **Consistency.** If [`Sender::seen`] returns *v*, the worker no longer uses any snapshot older
//! than *v*, and all its uses happened before.
//!
//! Cost of [`Worker::take`] if nothing is new: one relaxed load of a cache line that changes only
//! with the rules. Panics: none. `tests` has the loom model.

#![allow(unsafe_code)] // Boxes that travel through an `AtomicPtr`.

use crate::sync::{Arc, AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// A slot for one boxed value, filled by one thread and emptied by another.
struct Slot<T>(AtomicPtr<T>);

impl<T> Slot<T> {
    fn new() -> Slot<T> {
        Slot(AtomicPtr::new(ptr::null_mut()))
    }

    /// Puts `value` in; returns the previous value.
    fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        let new = value.map_or(ptr::null_mut(), Box::into_raw);
        // AcqRel: publishes the new value's contents to the thread that takes it (pairs with the
        // Acquire of that swap), and sees the contents of the old one.
        let old = self.0.swap(new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: every pointer that is not null in the slot came from `Box::into_raw` above, and
        // the swap took it out, so that no other call can see it again.
        Some(unsafe { Box::from_raw(old) })
    }

    fn is_empty(&self) -> bool {
        // Relaxed: only a hint; a caller that acts on it swaps, which synchronises.
        self.0.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.swap(None));
    }
}

struct Shared<T> {
    inbox: Slot<(u64, T)>,
    outbox: Slot<(u64, T)>,
    seen: AtomicU64,
}

/// The control side of a mailbox.
pub struct Sender<T>(Arc<Shared<T>>);

/// The worker's side of a mailbox.
pub struct Worker<T> {
    shared: Arc<Shared<T>>,
    current: Box<(u64, T)>,
}

/// Returns a mailbox; the worker starts with `first`, which has this version.
pub fn mailbox<T: Send>(version: u64, first: T) -> (Sender<T>, Worker<T>) {
    let shared =
        Arc::new(Shared { inbox: Slot::new(), outbox: Slot::new(), seen: AtomicU64::new(version) });
    let worker = Worker { shared: shared.clone(), current: Box::new((version, first)) };
    (Sender(shared), worker)
}

impl<T> Sender<T> {
    /// Posts `snapshot` as the next one for the worker. Versions must grow. Returns the snapshots
    /// that are now free: the one that the worker returned, and one that it never took.
    pub fn post(&self, version: u64, snapshot: T) -> [Option<T>; 2] {
        let given_back = self.collect();
        let not_taken = self.0.inbox.swap(Some(Box::new((version, snapshot))));
        [given_back, not_taken.map(|boxed| boxed.1)]
    }

    /// Returns the snapshot that the worker gave back, if any.
    pub fn collect(&self) -> Option<T> {
        self.0.outbox.swap(None).map(|boxed| boxed.1)
    }

    /// Returns the version that the worker runs on; see the module for what follows from it.
    pub fn seen(&self) -> u64 {
        // Acquire: pairs with the Release of `Worker::take`, so that what the worker did with older
        // snapshots happened before.
        self.0.seen.load(Ordering::Acquire)
    }
}

impl<T> Worker<T> {
    pub fn current(&self) -> &T {
        &self.current.1
    }

    pub fn version(&self) -> u64 {
        self.current.0
    }

    /// Returns whether [`Worker::take`] would take a snapshot.
    #[inline]
    pub fn has_next(&self) -> bool {
        !self.shared.inbox.is_empty() && self.shared.outbox.is_empty()
    }

    /// Moves on to the newest snapshot, if there is a newer one. `switch_over` gets the old and the
    /// new one, and must end all use of the old one: it may be freed afterwards.
    #[inline]
    pub fn take(&mut self, switch_over: impl FnOnce(&mut T, &mut T)) -> bool {
        if !self.has_next() {
            return false;
        }
        let Some(mut next) = self.shared.inbox.swap(None) else { return false };
        debug_assert!(next.0 > self.current.0, "versions grow");
        switch_over(&mut self.current.1, &mut next.1);
        let old = std::mem::replace(&mut self.current, next);
        // Only this side fills the outbox, and it was empty: nothing comes back.
        let displaced = self.shared.outbox.swap(Some(old));
        debug_assert!(displaced.is_none(), "the outbox was empty");
        // Release: pairs with the Acquire of `Sender::seen`.
        self.shared.seen.store(self.current.0, Ordering::Release);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Counts how often it is dropped.
    struct Counted(u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_newest_is_taken_and_every_snapshot_is_freed_once() {
        let drops = Arc::new(AtomicUsize::new(0));
        let make = |n| Counted(n, drops.clone());
        let (sender, mut worker) = mailbox(1, make(1));
        assert!(!worker.take(|_, _| panic!("nothing is there")));
        assert!(sender.post(2, make(2)).iter().all(Option::is_none));
        let [none, two] = sender.post(3, make(3));
        assert!(none.is_none());
        assert_eq!(two.expect("not taken").0, 2);
        assert_eq!((sender.seen(), worker.version()), (1, 1));
        assert!(worker.take(|old, new| assert_eq!((old.0, new.0), (1, 3))));
        assert_eq!((sender.seen(), worker.current().0), (3, 3));
        assert_eq!(drops.load(Relaxed), 1, "the worker frees nothing");
        assert_eq!(sender.collect().expect("given back").0, 1);
        assert_eq!(drops.load(Relaxed), 2);
        sender.post(4, make(4));
        drop((sender, worker));
        assert_eq!(drops.load(Relaxed), 4, "what was posted and what was in use");
    }

    #[test]
    fn a_worker_waits_with_the_next_until_its_last_was_collected() {
        let (sender, mut worker) = mailbox(1, 1);
        sender.post(2, 2);
        assert!(worker.take(|_, _| {}));
        assert_eq!(sender.post(3, 3), [Some(1), None]);
        assert!(worker.take(|_, _| {}));
        // The outbox holds 2.
        sender.0.inbox.swap(Some(Box::new((4, 4))));
        assert!(!worker.take(|_, _| {}) && worker.version() == 3);
        assert_eq!(sender.collect(), Some(2));
        assert!(worker.take(|_, _| {}) && sender.seen() == 4);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;

    /// Contents that loom watches: reading them while another thread frees or writes them is an
    /// error, and so is an `Arc` of loom that is never freed.
    struct Watched {
        number: u64,
        cell: Arc<Cell>,
    }

    struct Cell(UnsafeCell<u64>);

    // SAFETY: loom reports every access that is not ordered with a write, which is what the tests
    // are about.
    unsafe impl Sync for Cell {}

    impl Cell {
        fn new(value: u64) -> Arc<Cell> {
            Arc::new(Cell(UnsafeCell::new(value)))
        }

        fn read(&self) -> u64 {
            // SAFETY: loom checks that no one writes at the same time.
            self.0.with(|value| unsafe { *value })
        }

        fn write(&self, new: u64) {
            // SAFETY: loom checks that no one reads or writes at the same time.
            self.0.with_mut(|value| unsafe { *value = new });
        }
    }

    fn watched(number: u64) -> Watched {
        Watched { number, cell: Cell::new(number) }
    }

    /// What the control side does with a snapshot that came back: writes to it, which loom refuses
    /// unless the worker's reads happened before.
    fn free(snapshot: Watched) {
        snapshot.cell.write(u64::MAX);
    }

    #[test]
    fn mailbox_posts_while_taking_and_the_newest_wins() {
        loom::model(|| {
            let (sender, mut worker) = mailbox(1, watched(1));
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    worker.take(|old, new| assert!(old.cell.read() < new.cell.read()));
                    assert_eq!(worker.current().cell.read(), worker.current().number);
                }
                worker
            });
            let mut came_back = Vec::new();
            for version in 2..4 {
                let back = sender.post(version, watched(version)).into_iter().flatten();
                came_back.extend(back.map(|old| {
                    let number = old.number;
                    free(old);
                    number
                }));
            }
            let mut worker = thread.join().unwrap();
            // Whatever happened above, this is where it ends.
            for _ in 0..2 {
                came_back.extend(sender.collect().map(|old| old.number));
                worker.take(|_, _| {});
            }
            assert_eq!((worker.version(), sender.seen()), (3, 3));
            came_back.extend(sender.collect().map(|old| old.number));
            came_back.sort_unstable();
            assert_eq!(came_back, [1, 2], "each old one exactly once");
        });
    }

    #[test]
    fn mailbox_seen_means_that_the_old_one_is_out_of_use() {
        loom::model(|| {
            let shared = Cell::new(0);
            // The snapshots are handles of data that the control side keeps and changes itself.
            let (sender, mut worker) = mailbox(1, Some(shared.clone()));
            let thread = thread::spawn(move || {
                if let Some(cell) = worker.current() {
                    assert_eq!(cell.read(), 0);
                }
                worker.take(|old, _| *old = None);
                worker
            });
            sender.post(2, None);
            if sender.seen() == 2 {
                // The worker's read happened before, or loom complains.
                shared.write(7);
            }
            drop(thread.join().unwrap());
        });
    }

    #[test]
    fn mailbox_leaks_nothing_when_either_side_goes_away() {
        loom::model(|| {
            let (sender, mut worker) = mailbox(1, watched(1));
            let thread = thread::spawn(move || {
                worker.take(|_, _| {});
            });
            drop(sender.post(2, watched(2)));
            drop(sender);
            thread.join().unwrap();
        });
    }
}
