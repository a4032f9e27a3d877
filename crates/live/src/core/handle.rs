//! The way to the core for everybody on the control side.

use super::{Core, Subscription, SubscriptionLimits};
use overbank_handover::mailbox;
use crate::snapshot::{Common, Link, PacketOut, Snapshot};
use crate::sys::wait_for;
use overbank_switch::ports::PORT_TABLE;
use overbank_switch::rule::Action;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a barrier.
pub const BARRIER_MAX: Duration = Duration::from_secs(2);

/// The control side's end of a worker.
pub struct WorkerEnd {
    /// Where snapshots go.
    pub sender: mailbox::Sender<Snapshot>,
    /// Everything else.
    pub link: Arc<Link>,
}

/// Too many frames of controllers wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many packets of controllers wait to be sent")]
pub struct PacketOutFull;

struct Shared {
    core: Mutex<Core>,
    common: Arc<Common>,
    workers: Arc<[WorkerEnd]>,
}

/// The way to the core; cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// While it lives, a controller counts as connected.
pub struct Connected(Handle);

impl Handle {
    /// Takes the core, whose workers are these.
    pub fn new(mut core: Core, common: Arc<Common>, workers: Vec<WorkerEnd>) -> Handle {
        let workers: Arc<[WorkerEnd]> = workers.into();
        core.set_workers(workers.clone());
        Handle(Arc::new(Shared { core: Mutex::new(core), common, workers }))
    }

    /// The core. Keep the lock short, and never across an `await`.
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        // Nothing of the core panics half way; who panicked with the lock held had reasons of
        // their own.
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the switch started.
    pub fn now_ms(&self) -> u64 {
        self.0.common.clock.now_ms()
    }

    /// The workers' ends.
    pub fn workers(&self) -> &[WorkerEnd] {
        &self.0.workers
    }

    /// Publishes now; returns the version and what is to be freed without the lock.
    fn publish(&self) -> u64 {
        let (version, garbage) = {
            let mut core = self.lock();
            (core.publish(), core.take_garbage())
        };
        drop(garbage);
        version
    }

    /// Whether every worker runs on `version`; collects what they gave back.
    fn reached(&self, version: u64) -> bool {
        let reached = self.0.workers.iter().all(|worker| worker.sender.seen() >= version);
        if !reached {
            for worker in self.0.workers.iter() {
                if let Some(old) = worker.sender.collect() {
                    drop(old);
                    worker.link.bell.ring();
                }
            }
        }
        reached
    }

    /// Publishes what was changed and waits until every worker runs on it; frames of controllers
    /// that were handed over before are carried out by then, and counters of rules are up to date.
    /// False: a worker did not get there in [`BARRIER_MAX`].
    pub async fn barrier(&self) -> bool {
        let version = self.publish();
        let end = Instant::now() + BARRIER_MAX;
        let mut tries = 0u32;
        while !self.reached(version) {
            if Instant::now() > end {
                return false;
            }
            // Workers answer in microseconds while they work.
            tries += 1;
            if tries < 20 {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
        true
    }

    /// [`Handle::barrier`] for threads.
    pub fn barrier_blocking(&self, at_most: Duration) -> bool {
        let version = self.publish();
        let end = Instant::now() + at_most;
        while !self.reached(version) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Opens a subscription.
    pub fn subscribe(&self, limits: SubscriptionLimits) -> Subscription {
        self.lock().subscribe(limits)
    }

    /// A controller is connected for as long as the guard lives. For those that we connect to, not
    /// for tools that come and go.
    pub fn connected(&self) -> Connected {
        self.lock().controller_connected(true);
        Connected(self.clone())
    }

    /// Has a frame of a controller sent. Frames leave in the order in which they are handed over.
    /// Where its actions lead through the tables, the rules are published first.
    ///
    /// # Errors
    /// Too many wait already.
    pub fn packet_out(&self, packet_out: PacketOut) -> Result<(), PacketOutFull> {
        // One worker sends them all, so that their order stays.
        let Some(worker) = self.0.workers.first() else { return Err(PacketOutFull) };
        let through_tables = |action: &Action| match *action {
            Action::Output(port) => port == PORT_TABLE,
            Action::Resubmit { .. } => true,
            _ => false,
        };
        if packet_out.actions.iter().any(through_tables) {
            let garbage = {
                let mut core = self.lock();
                if core.dirty {
                    core.publish();
                }
                core.take_garbage()
            };
            drop(garbage);
        }
        worker.link.packet_outs.push(packet_out).map_err(|_| PacketOutFull)?;
        worker.link.bell.ring();
        Ok(())
    }

    /// The core's own thread: ticks until `stop`.
    pub fn run(&self, stop: &AtomicBool) {
        let bell = &self.0.common.bell;
        while !stop.load(Ordering::Relaxed) {
            bell.answer();
            let (next_ms, garbage) = {
                let mut core = self.lock();
                (core.tick(), core.take_garbage())
            };
            drop(garbage);
            wait_for(bell.waker(), Duration::from_millis(next_ms));
        }
    }

    /// Ends [`Handle::run`] soon after `stop` was set.
    pub fn wake(&self) {
        self.0.common.bell.ring();
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.lock().controller_connected(false);
    }
}
