//! The switch as a whole: ports, workers, core; started, asked, stopped.
//!
//! ```text
//!   threads   worker 0 … N−1     one for each queue, pinned
//!             core               ticks, publishes (core/)
//!             ports              watches and opens again (ports.rs)
//! ```
//!
//! Nothing here knows of controllers, files or signals: that is [`crate::run`]. Tests and
//! experiments start a switch over ports of their own.

use crate::config::{Config, FailMode, Mode};
use crate::core::{Core, CoreConfig, Handle, WorkerEnd};
use crate::l2::{self, Forwarder, Learner};
use overbank_handover::mailbox::mailbox;
use crate::ports::{PortKeeper, SwitchPort};
use crate::snapshot::{Clock, Common, Link, PACKET_OUTS};
use crate::status::Status;
use crate::sys::Bell;
use crate::worker::{Engine, Options, Stationed, Worker, roles};
use overbank_switch::Datapath;
use overbank_switch::datapath::{self, CacheConfig};
use overbank_switch::rule::Rule;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// What a switch is made of, besides its ports.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Workers.
    pub workers: usize,
    /// Their cores, one after another; empty: those that the process may use.
    pub cores: Vec<usize>,
    /// Tier 1 of each worker.
    pub cache: Option<CacheConfig>,
    /// Megaflows of each worker.
    pub megaflows: usize,
    /// Rules to begin with.
    pub rules: Vec<Rule>,
    /// Packets for controllers that may wait at each worker.
    pub controller_queue: usize,
    /// Packets of controllers that may wait to be sent.
    pub packet_outs: usize,
    /// Bounds of the workers.
    pub options: Options,
    /// The core's.
    pub core: CoreConfig,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            workers: 1,
            cores: Vec::new(),
            cache: None,
            megaflows: 1 << 16,
            rules: Vec::new(),
            controller_queue: 256,
            packet_outs: PACKET_OUTS,
            options: Options { megaflow_idle_ms: 10_000, busy_poll: false },
            core: CoreConfig {
                mode: Mode::OpenFlow,
                rules_max: 1_000_000,
                mac: l2::Limits::default(),
                statics: Vec::new(),
                isolated: Vec::new(),
                fail_mode: FailMode::Secure,
                has_controllers: false,
                datapath_id: 1,
                seed: 1,
            },
        }
    }
}

impl Setup {
    /// What the configuration says; the datapath's identity is still to come from the ports.
    pub fn new(config: &Config, rules: Vec<Rule>) -> Setup {
        let cache =
            config.cache.map(|design| CacheConfig { design, entries: config.entries, isa: None });
        Setup {
            workers: config.workers,
            cores: config.cores.clone(),
            cache,
            megaflows: config.megaflows,
            rules,
            controller_queue: config.controller_queue,
            packet_outs: config.packet_outs,
            options: Options {
                megaflow_idle_ms: u32::try_from(config.megaflow_idle.as_millis())
                    .unwrap_or(u32::MAX),
                busy_poll: config.busy_poll,
            },
            core: CoreConfig {
                mode: config.mode,
                rules_max: config.rules_max,
                mac: config.mac,
                statics: config.statics.clone(),
                isolated: config.isolated.clone(),
                fail_mode: config.fail_mode,
                has_controllers: config.openflow.iter().any(|target| !target.is_passive()),
                datapath_id: config.datapath_id.unwrap_or(0),
                seed: seed(),
            },
        }
    }
}

/// Bits that a stranger cannot know.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Why a switch does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The caches cannot be made.
    #[error(transparent)]
    Datapath(#[from] datapath::ConfigError),
    /// A rule is refused.
    #[error("rules: {0}")]
    Rule(#[from] crate::core::RuleRefused),
    /// There is no table of stations.
    #[error(transparent)]
    Stations(#[from] crate::core::StationsError),
    /// The system has no threads or descriptors left.
    #[error("the system refuses a thread or a descriptor: {0}")]
    System(#[from] io::Error),
}

/// A running switch.
pub struct Switch {
    handle: Handle,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    pinned: Vec<Option<usize>>,
}

/// An identity from the first address that there is.
fn datapath_id(ports: &[crate::core::PortDesc]) -> u64 {
    let mac = ports.iter().map(|port| port.mac).find(|mac| *mac != [0; 6]);
    mac.map_or(1, |mac| mac.iter().fold(0, |id, byte| id << 8 | u64::from(*byte)))
}

impl Switch {
    /// Starts the threads; forwarding begins at once.
    ///
    /// # Errors
    /// Nothing runs then.
    pub fn start(mut setup: Setup, mut ports: Vec<SwitchPort>) -> Result<Switch, StartError> {
        let descs: Vec<_> = ports.iter_mut().map(SwitchPort::describe).collect();
        if setup.core.datapath_id == 0 {
            setup.core.datapath_id = datapath_id(&descs);
        }
        let common = Arc::new(Common {
            clock: Clock::start(),
            bell: Bell::new()?,
            controllers: AtomicUsize::new(0),
        });
        let seed = setup.core.seed;
        let mut core = Core::new(setup.core.clone(), descs, common.clone())?;
        core.reload(std::mem::take(&mut setup.rules))?;
        let first = core.snapshot();
        let mut ends = Vec::new();
        let mut workers = Vec::new();
        for index in 0..setup.workers.max(1) {
            let engine = match setup.core.mode {
                Mode::OpenFlow => {
                    let ports = first.ports.iter().map(|port| port.switch_port()).collect();
                    let config = datapath::Config {
                        cache: setup.cache,
                        megaflows: setup.megaflows,
                        ports,
                        seed: seed.wrapping_add(index as u64),
                    };
                    Engine::Rules(Box::new(Datapath::new(&config, first.tables.clone())?))
                }
                Mode::L2 => {
                    let forwarder = Forwarder::new(core.stations().reader(), &roles(&first.ports));
                    Engine::Ethernet(forwarder.learning(core.stations().epoch()))
                }
            };
            let (learner, reports) = Learner::new(first.ports.len(), &setup.core.mac);
            let (reader, epoch) = (core.stations().reader(), core.stations().epoch());
            let stations = Stationed { reader, epoch, learner };
            let (ins, outs) = (setup.controller_queue, setup.packet_outs);
            let link = Arc::new(Link::new(first.ports.len(), ins, outs, reports)?);
            let (sender, receiver) = mailbox(0, first.clone());
            let options = setup.options;
            workers.push(Worker::new(
                receiver,
                engine,
                stations,
                link.clone(),
                common.clone(),
                options,
            ));
            ends.push(WorkerEnd { sender, link });
        }
        let handle = Handle::new(core, common, ends);
        let mut switch = Switch {
            handle: handle.clone(),
            workers: Vec::new(),
            others: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            pinned: cores(&setup),
        };
        switch.spawn(workers, ports)?;
        Ok(switch)
    }

    fn spawn(&mut self, workers: Vec<Worker>, ports: Vec<SwitchPort>) -> io::Result<()> {
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
                    tracing::warn!(worker = index, core = id, "cannot be pinned");
                    let _ = pinned.send(index);
                }
                drop(pinned);
                worker.run();
            })?);
        }
        drop(pinned);
        // Until every worker has tried.
        for index in told {
            self.pinned[index] = None;
        }
        let (handle, stop) = (self.handle.clone(), self.stop.clone());
        let thread = thread::Builder::new().name("core".to_owned());
        self.others.push(thread.spawn(move || handle.run(&stop))?);
        let stop = self.stop.clone();
        let thread = thread::Builder::new().name("ports".to_owned());
        self.others.push(thread.spawn(move || keeper.run(&stop))?);
        Ok(())
    }

    /// The way to the core.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The cores that the workers are pinned to; `None`: the system has it run where it likes.
    pub fn pinned(&self) -> &[Option<usize>] {
        &self.pinned
    }

    /// Whether no port will ever bring another frame, as at the end of captures.
    pub fn is_finished(&self) -> bool {
        self.handle.workers().iter().all(|w| w.link.finished.load(Ordering::Acquire))
    }

    /// Whether a thread ended that should run: an error of the program.
    pub fn is_broken(&self) -> bool {
        self.workers.iter().chain(&self.others).any(JoinHandle::is_finished)
    }

    /// What is there and what was counted.
    pub fn status(&self) -> Status {
        Status::new(&self.handle)
    }

    /// Lets the workers take what has arrived to its end, then ends all threads, closes the ports
    /// and tells what was counted.
    pub fn stop(mut self) -> Status {
        self.end()
    }

    fn end(&mut self) -> Status {
        for worker in self.handle.workers() {
            worker.link.stop.store(true, Ordering::Relaxed);
            worker.link.bell.ring();
        }
        for thread in self.workers.drain(..) {
            // A worker that broke has nothing to add; the others have.
            let _ = thread.join();
        }
        let status = Status::new(&self.handle);
        self.stop.store(true, Ordering::Relaxed);
        self.handle.wake();
        for thread in self.others.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
        status
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if !self.others.is_empty() || !self.workers.is_empty() {
            self.end();
        }
    }
}

/// A core for each worker; more workers than cores share.
fn cores(setup: &Setup) -> Vec<Option<usize>> {
    let workers = setup.workers.max(1);
    if !setup.cores.is_empty() {
        return (0..workers).map(|i| setup.cores.get(i % setup.cores.len()).copied()).collect();
    }
    let there = core_affinity::get_core_ids().unwrap_or_default();
    if there.is_empty() {
        return vec![None; workers];
    }
    if workers > there.len() {
        tracing::warn!(workers, cores = there.len(), "more workers than cores: they share");
    }
    (0..workers).map(|i| Some(there[i % there.len()].id)).collect()
}
