//! The control side of an engine: the desired state, published to the workers.
//!
//! ```text
//!   sessions, reload, … ┐                        ┌▶ snapshot ─▶ mailbox of worker 0
//!   ports, the clock    ┼─ Handle::lock() ─▶ C ──┤              mailbox of worker 1 …
//!   engines' queues     ┘                        └▶ other parties of C
//! ```
//!
//! A [`Control`] is a plain synchronous structure behind a mutex that no worker touches. The lock's
//! holder changes it and calls [`Publisher::touch`]. A thread of the runtime calls
//! [`Control::tick`] and publishes changes. The first ones wait for [`PUBLISH_EVERY_MS`]. Later
//! ones of a flood wait longer, up to [`PUBLISH_EVERY_MAX_MS`], because each publication makes the
//! changes after it copy the parts that they touch. A barrier publishes at once. All changes under
//! one lock are published as a whole.
//!
//! Panics: none.

mod handle;

pub use handle::{BARRIER_MAX, Handle, OrdersFull};

use crate::engine::Engine;
use crate::link::{Common, PortView, Snapshot, WorkerEnd};
use crate::ports::PortDesc;
use crate::status::{ControlStatus, PublisherTotals};
use crate::totals::{DropCounts, PortTotals, Reading};
use overbank_declare::counters::Counters;
use std::io;
use std::sync::Arc;

/// Shortest time between two publications, barriers apart.
pub const PUBLISH_EVERY_MS: u64 = 1;
/// Longest time for which changes wait while more of them keep coming.
pub const PUBLISH_EVERY_MAX_MS: u64 = 32;
/// Time after a publication during which ticks come as often as publications may.
const BUSY_MS: u64 = 20;
/// Longest time between two ticks.
pub const TICK_MS: u64 = 20;

/// The control side of an engine; see the module.
pub trait Control: Sized + Send + 'static {
    /// The engine that it controls.
    type Engine: Engine;
    /// The status that it reports.
    type Status: ControlStatus;

    /// Returns the publisher that it was made with.
    fn publisher(&self) -> &Publisher<Self::Engine>;

    /// Returns the publisher for changes.
    fn publisher_mut(&mut self) -> &mut Publisher<Self::Engine>;

    /// Returns the state that the workers run on.
    fn snapshot(&self) -> <Self::Engine as Engine>::Snapshot;

    /// Does what is due: reads the engines' reports, expires entries. Returns in how many
    /// milliseconds to call again, if that is soon.
    fn tick(&mut self, now_ms: u64) -> Option<u64>;

    /// Handles a changed description of a port; `before` is the previous one.
    fn port_changed(&mut self, index: usize, before: &PortDesc);

    /// Notes that all changes have been published.
    fn published(&mut self) {}

    /// Returns whether a reader exists for the frames that engines hand to the control side.
    fn is_attended(&self) -> bool {
        false
    }

    fn status(&self) -> Self::Status;
}

/// State of every control side: the ports, the workers, the published version.
pub struct Publisher<E: Engine> {
    common: Arc<Common>,
    workers: Arc<[WorkerEnd<E>]>,
    ports: Vec<PortDesc>,
    opened_ms: Vec<u64>,
    views: Arc<[PortView]>,
    /// Changes since the last snapshot.
    dirty: bool,
    published_ms: u64,
    /// Time between two publications: doubles while changes wait for each of them.
    every_ms: u64,
    /// When the control side's thread next looks unprompted.
    next_look_ms: u64,
    totals: PublisherTotals,
    /// Snapshots without users, to be freed without the lock.
    garbage: Vec<Snapshot<E>>,
}

impl<E: Engine> Publisher<E> {
    /// Returns a publisher for these ports, without workers.
    ///
    /// # Errors
    /// Fails if the system has no descriptors left.
    pub fn new(ports: Vec<PortDesc>) -> io::Result<Publisher<E>> {
        let common = Arc::new(Common::new()?);
        let view = |port: &PortDesc| PortView { number: port.number, receives: true, sends: true };
        Ok(Publisher {
            workers: Arc::new([]),
            views: ports.iter().map(view).collect(),
            opened_ms: vec![common.clock.now_ms(); ports.len()],
            ports,
            common,
            dirty: false,
            published_ms: 0,
            every_ms: PUBLISH_EVERY_MS,
            next_look_ms: u64::MAX,
            totals: PublisherTotals::default(),
            garbage: Vec::new(),
        })
    }

    /// Takes the workers, which all started with the first snapshot as version 0.
    pub fn set_workers(&mut self, workers: Arc<[WorkerEnd<E>]>) {
        self.workers = workers;
        self.dirty = true;
    }

    /// Returns the state that all threads share; an engine rings its bell to report to the control
    /// side.
    pub fn common(&self) -> &Arc<Common> {
        &self.common
    }

    pub fn now_ms(&self) -> u64 {
        self.common.clock.now_ms()
    }

    /// Returns the ports, in the order of all arrays by port.
    pub fn ports(&self) -> &[PortDesc] {
        &self.ports
    }

    /// Returns the index of the port with this number.
    pub fn index_of(&self, number: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.number == number)
    }

    /// Returns when a port was opened, in milliseconds since the start.
    pub fn opened_ms(&self, index: usize) -> u64 {
        self.opened_ms[index]
    }

    /// Returns the ports as workers see them.
    pub fn views(&self) -> &Arc<[PortView]> {
        &self.views
    }

    /// Sets whether workers receive from a port and send by it.
    pub fn open_port(&mut self, index: usize, receives: bool, sends: bool) {
        let mut views = self.views.to_vec();
        if let Some(view) = views.get_mut(index) {
            (view.receives, view.sends) = (receives, sends);
            self.views = views.into();
            self.touch();
        }
    }

    /// Marks a change that the workers must see. Wakes the control side's thread only if it would
    /// not look soon: during a series of changes it does.
    pub fn touch(&mut self) {
        self.dirty = true;
        if self.next_look_ms > self.now_ms() + PUBLISH_EVERY_MS {
            self.common.bell.ring();
        }
    }

    /// Returns whether changes are unpublished.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub fn totals(&self) -> PublisherTotals {
        self.totals
    }

    /// Returns the counts of every worker.
    pub fn readings(&self) -> Vec<Reading<E>> {
        self.workers.iter().map(|worker| worker.link.published.read()).collect()
    }

    /// Returns the counts of all workers, by port; the last entry is the control side's frames.
    pub fn port_totals(&self) -> Vec<(PortTotals, DropCounts<E::Drop>)> {
        let mut sums = Vec::new();
        sums.resize_with(self.ports.len() + 1, <(PortTotals, DropCounts<E::Drop>)>::default);
        for reading in self.readings() {
            for ((totals, dropped), port) in sums.iter_mut().zip(&reading.ports) {
                totals.add(&port.totals);
                dropped.add(&port.dropped);
            }
        }
        sums
    }

    /// Hands an order to the first worker. Returns false if its queue is full.
    pub fn order(&self, order: E::Order) -> bool {
        let Some(worker) = self.workers.first() else { return false };
        let done = worker.link.orders.push(order).is_ok();
        if done {
            worker.link.bell.ring();
        }
        done
    }

    /// Posts a snapshot to every worker; returns its version.
    fn post(&mut self, engine: E::Snapshot) -> u64 {
        self.totals.version += 1;
        let version = self.totals.version;
        let snapshot = Snapshot { engine, ports: self.views.clone() };
        for worker in self.workers.iter() {
            let free = worker.sender.post(version, snapshot.clone());
            self.garbage.extend(free.into_iter().flatten());
            // A sleeping worker takes it before its next frame and need not wake for it.
            if !worker.link.rest.is_asleep() {
                worker.link.bell.ring();
            }
        }
        self.dirty = false;
        self.published_ms = self.now_ms();
        self.totals.snapshots_published += 1;
        version
    }

    /// Takes back what workers no longer use.
    fn collect(&mut self) {
        for worker in self.workers.iter() {
            self.garbage.extend(worker.sender.collect());
        }
    }

    /// Returns the snapshots to be freed without the lock.
    pub fn take_garbage(&mut self) -> Vec<Snapshot<E>> {
        std::mem::take(&mut self.garbage)
    }

    /// Takes a new description; returns the previous one if it differs.
    fn describe(&mut self, index: usize, now: PortDesc, reopened: bool) -> Option<PortDesc> {
        if reopened {
            self.opened_ms[index] = self.common.clock.now_ms();
        }
        let port = self.ports.get_mut(index)?;
        let now = PortDesc { number: port.number, ..now };
        (*port != now).then(|| std::mem::replace(port, now))
    }
}

/// Posts a snapshot of the current state to every worker; returns its version.
pub fn publish<C: Control>(control: &mut C) -> u64 {
    let snapshot = control.snapshot();
    let version = control.publisher_mut().post(snapshot);
    control.published();
    version
}

/// Does what is due and publishes changes. Returns in how many milliseconds to call again, unless
/// rung for earlier.
pub fn tick<C: Control>(control: &mut C) -> u64 {
    control.publisher_mut().collect();
    let now_ms = control.publisher().now_ms();
    let mut next_ms = control.tick(now_ms).unwrap_or(TICK_MS);
    let publisher = control.publisher();
    let since = now_ms.saturating_sub(publisher.published_ms);
    if publisher.dirty && since >= publisher.every_ms {
        publish(control);
        let publisher = control.publisher_mut();
        let in_flood = since < 2 * publisher.every_ms + PUBLISH_EVERY_MS;
        let longer = (2 * publisher.every_ms).min(PUBLISH_EVERY_MAX_MS);
        publisher.every_ms = if in_flood { longer } else { PUBLISH_EVERY_MS };
    }
    let publisher = control.publisher_mut();
    if publisher.dirty || now_ms.saturating_sub(publisher.published_ms) < BUSY_MS {
        next_ms = next_ms.min(PUBLISH_EVERY_MS);
    }
    publisher.next_look_ms = now_ms + next_ms;
    next_ms
}

/// Takes a port's new description. With `reopened` another device has taken the number.
pub fn port_changed<C: Control>(control: &mut C, index: usize, now: PortDesc, reopened: bool) {
    if let Some(before) = control.publisher_mut().describe(index, now, reopened) {
        control.port_changed(index, &before);
        control.publisher().common.bell.ring();
    }
}
