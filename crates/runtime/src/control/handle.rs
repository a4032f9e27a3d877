//! Gives threads and tasks access to the control side.

use super::{Control, port_changed, publish, tick};
use crate::engine::Engine;
use crate::link::{Common, WorkerEnd};
use crate::ports::{PortDesc, Selection};
use crate::sys::wait_for;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a barrier.
pub const BARRIER_MAX: Duration = Duration::from_secs(2);

/// How often a barrier yields before it sleeps.
const YIELDS: u32 = 20;
/// Shortest time of yielding.
const YIELDING: Duration = Duration::from_micros(100);

/// The queue of orders is full; the order comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrdersFull<T>(pub T);

struct Shared<C: Control> {
    control: Mutex<C>,
    common: Arc<Common>,
    workers: Arc<[WorkerEnd<C::Engine>]>,
    /// What the thread of the ports is asked for.
    selections: Mutex<Vec<Selection>>,
}

/// Access to the control side; cheap to clone.
pub struct Handle<C: Control>(Arc<Shared<C>>);

impl<C: Control> Clone for Handle<C> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<C: Control> Handle<C> {
    /// Takes the control side and the ends of its workers.
    pub fn new(mut control: C, workers: Vec<WorkerEnd<C::Engine>>) -> Handle<C> {
        let workers: Arc<[_]> = workers.into();
        control.publisher_mut().set_workers(workers.clone());
        let common = control.publisher().common().clone();
        let selections = Mutex::default();
        Handle(Arc::new(Shared { control: Mutex::new(control), common, workers, selections }))
    }

    /// Locks the control side. Keep the lock short, and never across an `await`.
    pub fn lock(&self) -> MutexGuard<'_, C> {
        // The control side does not panic half way: a holder that panicked did so elsewhere.
        self.0.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn selections(&self) -> MutexGuard<'_, Vec<Selection>> {
        self.0.selections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now_ms(&self) -> u64 {
        self.0.common.clock.now_ms()
    }

    pub fn workers(&self) -> &[WorkerEnd<C::Engine>] {
        &self.0.workers
    }

    /// Runs `work` with the control side locked; frees its garbage without the lock.
    fn with<T>(&self, work: impl FnOnce(&mut C) -> T) -> T {
        let (done, garbage) = {
            let mut control = self.lock();
            (work(&mut control), control.publisher_mut().take_garbage())
        };
        drop(garbage);
        done
    }

    /// Publishes any changes.
    pub fn publish_changes(&self) {
        self.with(|control| {
            if control.publisher().is_dirty() {
                publish(control);
            }
        });
    }

    /// Passes a port's new description to the control side; see [`port_changed`].
    pub fn port_changed(&self, index: usize, now: PortDesc, reopened: bool) {
        port_changed(&mut *self.lock(), index, now, reopened);
    }

    /// Returns whether every worker runs on `version`, or sleeps and takes it before its next
    /// frame. Collects what they gave back.
    fn reached(&self, version: u64) -> bool {
        self.0.workers.iter().fold(true, |all, worker| all & reached(worker, version))
    }

    /// Publishes and waits until every worker runs on the new version. By then earlier orders are
    /// carried out, and what engines share with readers is up to date. Returns false if a worker
    /// did not get there within [`BARRIER_MAX`].
    pub async fn barrier(&self) -> bool {
        let version = self.with(publish);
        let start = Instant::now();
        let (impatient, end) = (start + YIELDING, start + BARRIER_MAX);
        let mut tries = 0u32;
        while !self.reached(version) {
            if Instant::now() > end {
                return false;
            }
            // Awake workers answer in microseconds; the shortest sleep is a millisecond.
            tries += 1;
            if tries < YIELDS || Instant::now() < impatient {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        true
    }

    /// Does as [`Handle::barrier`], for threads.
    pub fn barrier_blocking(&self, at_most: Duration) -> bool {
        let version = self.with(publish);
        let end = Instant::now() + at_most;
        while !self.reached(version) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Hands an order to the first worker. A single worker keeps the orders in sequence.
    ///
    /// # Errors
    /// Fails if the queue is full.
    pub fn order(
        &self,
        order: <C::Engine as Engine>::Order,
    ) -> Result<(), OrdersFull<<C::Engine as Engine>::Order>> {
        let Some(worker) = self.0.workers.first() else { return Err(OrdersFull(order)) };
        worker.link.orders.push(order).map_err(OrdersFull)?;
        worker.link.bell.ring();
        Ok(())
    }

    /// Runs the control side's thread: ticks until `stop`.
    pub fn run(&self, stop: &AtomicBool) {
        let bell = &self.0.common.bell;
        while !stop.load(Ordering::Relaxed) {
            bell.answer();
            let next_ms = self.with(tick);
            wait_for(bell.waker(), Duration::from_millis(next_ms));
        }
    }

    /// Ends [`Handle::run`] soon after `stop` was set.
    pub fn wake(&self) {
        self.0.common.bell.ring();
    }
}

/// Does what [`Handle::reached`] does.
fn reached<E: Engine>(worker: &WorkerEnd<E>, version: u64) -> bool {
    if worker.sender.seen() >= version {
        return true;
    }
    // Check both before asking whether the worker sleeps. A sleeper then takes the snapshot when it
    // wakes, and its orders are done.
    let given_back = worker.sender.collect();
    let no_orders = worker.link.orders.is_empty();
    if no_orders && worker.link.rest.is_asleep() {
        return true;
    }
    if given_back.is_some() {
        worker.link.bell.ring();
    }
    false
}
