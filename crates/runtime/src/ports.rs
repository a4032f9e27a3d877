//! Opens ports, watches them and reopens them.
//!
//! ```text
//!   open ─▶ Open ── interface gone ──▶ Leaving ── every worker gave its queue back ──▶ Away
//!            ▲   (a worker or info()                (then the port is dropped, which    │
//!            │    says so)                           undoes what opening it did)        │
//!            └──────── opened again: new queues to every worker ◀── every 500 ms ───────┘
//! ```
//!
//! A separate thread does this, so slow work, such as loading an XDP program, delays no packet and
//! no controller. A port that is down stays open and works again once it is up. An event on one
//! port affects no other. Changes of link, address and MTU reach the control side within
//! [`WATCH_EVERY`]; the kernel's count of losses reveals shorter losses of link.
//!
//! Panics: none.

use crate::control::{Control, Handle};
use crate::link::Attachment;
use overbank_ports::PortSpec;
use overbank_ports::queue::{Port, PortError, PortInfo, Queue};
use overbank_ports::select::Select;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Time between two looks at all ports.
pub const WATCH_EVERY: Duration = Duration::from_millis(100);
/// Time between two attempts to open a missing port.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Time between two looks while a port is closing.
const LEAVING_EVERY: Duration = Duration::from_millis(5);

/// Longest wait for the thread of the ports.
const SELECT_MAX: Duration = Duration::from_secs(5);

/// Asks for other frames of a port.
pub(crate) struct Selection {
    number: u32,
    select: Select,
    reply: Sender<Result<(), PortError>>,
}

impl<C: Control> Handle<C> {
    /// Has a port take the frames that `select` takes from now on, also when it is opened again;
    /// waits until it does.
    ///
    /// # Errors
    /// The port takes what it took before, but after a wait of 5 s that is unknown.
    pub fn select(&self, number: u32, select: Select) -> Result<(), PortError> {
        let (reply, answer) = channel();
        self.selections().push(Selection { number, select, reply });
        answer.recv_timeout(SELECT_MAX).unwrap_or_else(|_| {
            let problem = "the thread of the ports does not answer".to_owned();
            Err(PortError::Unusable { port: format!("port {number}"), problem })
        })
    }
}

/// Description of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Number in configuration and OpenFlow.
    pub number: u32,
    /// Interface, or the kind of a port without one.
    pub name: String,
    /// Ethernet address; zero without one.
    pub mac: [u8; 6],
    /// Longest payload of a frame.
    pub mtu: u32,
    /// Whether frames can pass now.
    pub link_up: bool,
    /// Megabits a second; 0 if unknown.
    pub speed_mbps: u32,
    /// Modes, for display.
    pub detail: String,
}

/// A port as configured, open or to be opened.
pub struct ConfiguredPort {
    /// Number in configuration and OpenFlow.
    pub number: u32,
    /// How to reopen it; `None`: it is not reopened.
    pub spec: Option<PortSpec>,
    /// The port; `None`: not opened yet.
    pub port: Option<Box<dyn Port>>,
}

impl ConfiguredPort {
    /// Opens a port. A missing or inactive interface is not an error: it is tried again later.
    ///
    /// # Errors
    /// Fails if the port cannot work as configured.
    pub fn open(number: u32, spec: PortSpec, queues: usize) -> Result<ConfiguredPort, PortError> {
        let port = match overbank_ports::open(&spec, queues) {
            Ok(port) => Some(port),
            Err(error @ (PortError::Down { .. } | PortError::Gone { .. })) => {
                tracing::warn!(port = number, %error, "cannot open the port; will try again");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(ConfiguredPort { number, spec: Some(spec), port })
    }

    /// Returns its description.
    pub fn describe(&mut self) -> PortDesc {
        let info = self.port.as_mut().map(|port| port.info());
        describe(self.number, self.spec.as_ref(), info.as_ref())
    }
}

/// Describes a port, open or not.
fn describe(number: u32, spec: Option<&PortSpec>, info: Option<&PortInfo>) -> PortDesc {
    let of_info = info.map(|info| info.name.clone());
    let interface = spec.and_then(PortSpec::interface);
    let name = interface.map(str::to_owned).or(of_info);
    PortDesc {
        number,
        name: name.unwrap_or_else(|| format!("port{number}")),
        mac: info.map_or([0; 6], |info| info.mac),
        mtu: info.map_or(0, |info| info.mtu),
        link_up: info.is_some_and(|info| info.link_up),
        speed_mbps: info.and(interface).and_then(speed_mbps).unwrap_or(0),
        detail: info.map_or_else(|| "missing".to_owned(), |info| info.detail.clone()),
    }
}

enum State {
    Open(Box<dyn Port>),
    /// Some workers still hold its queues.
    Leaving {
        port: Box<dyn Port>,
        queues: Vec<Queue>,
    },
    Away {
        retry: Instant,
    },
    /// Closed for good.
    Over,
}

struct Kept {
    number: u32,
    spec: Option<PortSpec>,
    state: State,
    last_error: String,
    /// Losses of link at the last look.
    downs: Option<u64>,
}

/// Returns how often an interface of this namespace has lost its link, if the kernel counts it.
fn downs(name: &str) -> Option<u64> {
    attribute(name, "carrier_down_count")
}

/// Returns the speed of an interface of this namespace; drivers without one report -1 or fail.
fn speed_mbps(name: &str) -> Option<u32> {
    attribute(name, "speed")
}

fn attribute<T: FromStr>(interface: &str, name: &str) -> Option<T> {
    let path = Path::new("/sys/class/net").join(interface).join(name);
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Keeps the ports of a running engine; see the module.
pub struct PortKeeper<C: Control> {
    ports: Vec<Kept>,
    handle: Handle<C>,
}

impl<C: Control> PortKeeper<C> {
    /// Hands the queues of all ports to the workers.
    pub fn new(ports: Vec<ConfiguredPort>, handle: Handle<C>) -> PortKeeper<C> {
        let now = Instant::now();
        let ports = ports.into_iter().map(|ConfiguredPort { number, spec, port }| {
            let state = match port {
                Some(port) => State::Open(port),
                None => State::Away { retry: now },
            };
            Kept { number, spec, state, last_error: String::new(), downs: None }
        });
        let mut keeper = PortKeeper { ports: ports.collect(), handle };
        for index in 0..keeper.ports.len() {
            keeper.attach(index);
        }
        keeper
    }

    /// Gives every worker its queue of an open port.
    fn attach(&mut self, index: usize) {
        let State::Open(port) = &mut self.ports[index].state else { return };
        for (worker, queue) in self.handle.workers().iter().zip(port.take_queues()) {
            worker.link.gone[index].store(false, Ordering::Relaxed);
            let full = worker.link.attachments.push(Attachment::Attach { port: index, queue });
            debug_assert!(full.is_ok(), "room for one attach and one detach of each port");
            worker.link.bell.ring();
        }
    }

    /// Watches until `stop`, then releases the ports. Call it after the workers have ended.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let leaving = self.look();
            std::thread::park_timeout(if leaving { LEAVING_EVERY } else { WATCH_EVERY });
        }
    }

    /// Has ports take other frames.
    fn select(&mut self) {
        let asked = std::mem::take(&mut *self.handle.selections());
        for Selection { number, select, reply } in asked {
            let kept = self.ports.iter_mut().find(|kept| kept.number == number);
            let done = kept.map_or(Ok(()), |kept| {
                if let State::Open(port) = &mut kept.state {
                    port.select(&select)?;
                }
                if let Some(now) = kept.spec.as_mut().and_then(PortSpec::select) {
                    *now = select;
                }
                Ok(())
            });
            // Whether a caller that waited too long hears of it or not, it is done.
            let _ = reply.send(done);
        }
    }

    /// Looks at every port once; returns whether one is closing.
    pub fn look(&mut self) -> bool {
        self.select();
        self.collect();
        let mut leaving = false;
        for index in 0..self.ports.len() {
            self.step(index);
            leaving |= matches!(self.ports[index].state, State::Leaving { .. });
        }
        leaving
    }

    /// Takes the queues that workers returned.
    fn collect(&mut self) {
        for worker in self.handle.workers() {
            while let Some((index, queue)) = worker.link.detached.pop() {
                if let Some(Kept { state: State::Leaving { queues, .. }, .. }) =
                    self.ports.get_mut(index)
                {
                    queues.push(queue);
                }
            }
        }
    }

    fn step(&mut self, index: usize) {
        let workers = self.handle.workers();
        let kept = &mut self.ports[index];
        match std::mem::replace(&mut kept.state, State::Over) {
            State::Open(mut port) => {
                let info = port.info();
                let gone = workers.iter().any(|w| w.link.gone[index].load(Ordering::Relaxed));
                let desc = describe(kept.number, kept.spec.as_ref(), Some(&info));
                if gone {
                    tracing::warn!(port = kept.number, name = %info.name, "the interface is gone");
                    for worker in workers {
                        let full = worker.link.attachments.push(Attachment::Detach { port: index });
                        debug_assert!(full.is_ok(), "room for a detach of each port");
                        worker.link.bell.ring();
                    }
                    kept.state = State::Leaving { port, queues: Vec::new() };
                    let desc = PortDesc { link_up: false, ..desc };
                    self.handle.port_changed(index, desc, false);
                } else {
                    kept.state = State::Open(port);
                    let downs = kept.spec.as_ref().and_then(PortSpec::interface).and_then(downs);
                    let before = std::mem::replace(&mut kept.downs, downs);
                    // Down and up again between two looks: learned hosts may have moved.
                    let flapped = desc.link_up && before.is_some() && downs > before;
                    if flapped {
                        let down = PortDesc { link_up: false, ..desc.clone() };
                        self.handle.port_changed(index, down, false);
                    }
                    self.handle.port_changed(index, desc, false);
                }
            }
            State::Leaving { port, queues } if queues.len() < workers.len() => {
                kept.state = State::Leaving { port, queues };
            }
            State::Leaving { port, queues } => {
                drop(queues);
                drop(port);
                if kept.spec.is_some() {
                    kept.state = State::Away { retry: Instant::now() + RETRY_EVERY };
                }
            }
            State::Away { retry } if Instant::now() < retry => kept.state = State::Away { retry },
            State::Away { .. } => self.reopen(index),
            State::Over => {}
        }
    }

    fn reopen(&mut self, index: usize) {
        let workers = self.handle.workers().len();
        let kept = &mut self.ports[index];
        kept.state = State::Away { retry: Instant::now() + RETRY_EVERY };
        let Some(spec) = &kept.spec else { return };
        match overbank_ports::open(spec, workers) {
            Ok(mut port) => {
                let desc = describe(kept.number, Some(spec), Some(&port.info()));
                tracing::info!(port = kept.number, name = %desc.name, "the port is open again");
                kept.state = State::Open(port);
                kept.downs = None;
                kept.last_error.clear();
                self.handle.port_changed(index, desc, true);
                self.attach(index);
            }
            Err(error) => {
                let error = error.to_string();
                // Log each reason once, not twice a second.
                if error != kept.last_error {
                    tracing::warn!(port = kept.number, %error, "the port is still unavailable");
                    kept.last_error = error;
                }
            }
        }
    }
}
