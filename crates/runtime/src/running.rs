//! Starts, inspects and stops an engine: ports, workers, control side.
//!
//! ```text
//!   threads   worker 0 … N−1     one for each queue, pinned
//!             control            ticks, publishes (control/)
//!             ports              watches and opens again (ports.rs)
//! ```
//!
//! Nothing here knows files, signals or sockets. Tests and experiments start engines over ports in
//! memory.

use crate::control::{Control, Handle, Publisher};
use crate::engine::Engine;
use crate::link::{Link, Snapshot, WorkerEnd};
use crate::ports::{ConfiguredPort, PortKeeper};
use crate::status::{Status, StatusOf};
use crate::worker::Worker;
use overbank_handover::mailbox::mailbox;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Default cap of pending orders of a worker.
pub const ORDERS: usize = 256;

/// How to run an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of workers.
    pub workers: usize,
    /// Cores of the workers in order; empty: all that the process may use.
    pub cores: Vec<usize>,
    /// Whether workers poll without waiting.
    pub busy_poll: bool,
    /// Cap of pending orders of a worker.
    pub orders: usize,
}

impl Default for Options {
    /// Returns one worker on any core that waits when idle.
    fn default() -> Options {
        Options { workers: 1, cores: Vec::new(), busy_poll: false, orders: ORDERS }
    }
}

/// A running engine.
pub struct Running<C: Control> {
    handle: Handle<C>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    pinned: Vec<Option<usize>>,
}

/// Parts of an engine to run.
pub struct Parts<C: Control> {
    /// Control side, which keeps the publisher.
    pub control: C,
    /// State that the engines were made with, until the first snapshot is published.
    pub first: <C::Engine as Engine>::Snapshot,
    /// One engine for each worker.
    pub engines: Vec<C::Engine>,
}

/// Starts the threads; forwarding begins at once. `build` makes the parts.
///
/// # Errors
/// Returns the error of `build`, or fails if the system has no threads or descriptors left. Nothing
/// runs then.
pub fn start<C: Control, Error: From<io::Error>>(
    options: &Options,
    mut ports: Vec<ConfiguredPort>,
    build: impl FnOnce(Publisher<C::Engine>) -> Result<Parts<C>, Error>,
) -> Result<Running<C>, Error> {
    let descs = ports.iter_mut().map(ConfiguredPort::describe).collect();
    let Parts { control, first, engines } = build(Publisher::new(descs)?)?;
    let ports_now = control.publisher().views().clone();
    let first = Snapshot::<C::Engine> { engine: first, ports: ports_now };
    let common = control.publisher().common().clone();
    let (mut ends, mut workers) = (Vec::new(), Vec::new());
    for engine in engines {
        let link = Arc::new(Link::new(ports.len(), options.orders)?);
        let (sender, receiver) = mailbox(0, first.clone());
        let busy_poll = options.busy_poll;
        workers.push(Worker::new(receiver, engine, link.clone(), common.clone(), busy_poll));
        ends.push(WorkerEnd { sender, link });
    }
    let mut running = Running {
        pinned: cores(options, workers.len()),
        handle: Handle::new(control, ends),
        workers: Vec::new(),
        others: Vec::new(),
        stop: Arc::new(AtomicBool::new(false)),
    };
    running.spawn(workers, ports)?;
    Ok(running)
}

impl<C: Control> Running<C> {
    fn spawn(
        &mut self,
        workers: Vec<Worker<C::Engine>>,
        ports: Vec<ConfiguredPort>,
    ) -> io::Result<()> {
        let keeper = PortKeeper::new(ports, self.handle.clone());
        let (pinned, told) = mpsc::channel();
        for (index, worker) in workers.into_iter().enumerate() {
            let core = self.pinned.get(index).copied().flatten();
            let thread = thread::Builder::new().name(format!("worker-{index}"));
            let pinned = pinned.clone();
            self.workers.push(thread.spawn(move || {
                if let Some(id) = core
                    && !core_affinity::set_for_current(core_affinity::CoreId { id })
                {
                    tracing::warn!(worker = index, core = id, "cannot pin the worker to its core");
                    // An error means that starting failed and nothing listens any more.
                    let _ = pinned.send(index);
                }
                drop(pinned);
                worker.run();
            })?);
        }
        drop(pinned);
        // Ends when every worker has tried.
        for index in told {
            self.pinned[index] = None;
        }
        let (handle, stop) = (self.handle.clone(), self.stop.clone());
        let thread = thread::Builder::new().name("control".to_owned());
        self.others.push(thread.spawn(move || handle.run(&stop))?);
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name("ports".to_owned());
        self.others.push(thread.spawn(move || keeper.run(&stop))?);
        Ok(())
    }

    pub fn handle(&self) -> &Handle<C> {
        &self.handle
    }

    /// Returns the cores of the workers; `None`: not pinned.
    pub fn pinned(&self) -> &[Option<usize>] {
        &self.pinned
    }

    /// Returns whether no port will bring another frame, as at the end of captures.
    pub fn is_finished(&self) -> bool {
        self.handle.workers().iter().all(|w| w.link.finished.load(Ordering::Acquire))
    }

    /// Returns whether a thread has panicked: an internal error.
    pub fn is_broken(&self) -> bool {
        self.workers.iter().chain(&self.others).any(JoinHandle::is_finished)
    }

    /// Returns the status document.
    pub fn status(&self) -> StatusOf<C> {
        Status::new(&self.handle)
    }

    /// Processes the frames that have arrived, then ends all threads, closes the ports and returns
    /// the counts.
    pub fn stop(mut self) -> StatusOf<C> {
        self.end()
    }

    fn end(&mut self) -> StatusOf<C> {
        for worker in self.handle.workers() {
            worker.link.stop.store(true, Ordering::Relaxed);
            worker.link.bell.ring();
        }
        for thread in self.workers.drain(..) {
            // A panicked worker has nothing to add; `is_broken` reports it.
            let _ = thread.join();
        }
        let status = Status::new(&self.handle);
        self.stop.store(true, Ordering::Relaxed);
        self.handle.wake();
        for thread in self.others.drain(..) {
            thread.thread().unpark();
            // As above: `is_broken` reports a panic.
            let _ = thread.join();
        }
        status
    }
}

impl<C: Control> Drop for Running<C> {
    fn drop(&mut self) {
        if !self.others.is_empty() || !self.workers.is_empty() {
            self.end();
        }
    }
}

/// Returns a core for each worker; excess workers share cores.
fn cores(options: &Options, workers: usize) -> Vec<Option<usize>> {
    if !options.cores.is_empty() {
        let cores = &options.cores;
        return (0..workers).map(|i| cores.get(i % cores.len()).copied()).collect();
    }
    // No answer means that the cores are unknown: then nothing is pinned.
    let there = core_affinity::get_core_ids().unwrap_or_default();
    if there.is_empty() {
        return vec![None; workers];
    }
    if workers > there.len() {
        tracing::warn!(workers, cores = there.len(), "more workers than cores: they share");
    }
    (0..workers).map(|i| Some(there[i % there.len()].id)).collect()
}
