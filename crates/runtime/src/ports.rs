//! The set of ports: opened, watched, opened again.
//!
//! ```text
//!   open ─▶ Open ── interface gone ──▶ Leaving ── every worker gave its queue back ──▶ Away
//!            ▲   (a worker or info()                (then the port is dropped, which    │
//!            │    says so)                           undoes what opening it did)        │
//!            └──────── opened again: new queues to every worker ◀── every 500 ms ───────┘
//! ```
//!
//! A thread of its own does this, so that what takes long (loading an XDP program, say) delays no
//! packet and no controller. A port that is down stays open; it works again by itself. Nothing that
//! happens to one port touches another. Changes of link, address and MTU reach the control side within
//! [`WATCH_EVERY`]; a link that was down for less is known by the kernel's count of losses.
//!
//! Panics: none.

use crate::control::{Control, Handle};
use crate::link::Attachment;
use overbank_ports::PortSpec;
use overbank_ports::queue::{Port, PortError, PortInfo, Queue};
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often ports are looked at.
pub const WATCH_EVERY: Duration = Duration::from_millis(100);
/// How often a port that is away is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often a port on its way out is looked at.
const LEAVING_EVERY: Duration = Duration::from_millis(5);

/// What is known of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Number that people and controllers call it by.
    pub number: u32,
    /// Interface, or kind where there is none.
    pub name: String,
    /// Ethernet address, zero where there is none.
    pub mac: [u8; 6],
    /// Longest payload of a frame.
    pub mtu: u32,
    /// Whether frames can pass at the moment.
    pub link_up: bool,
    /// Megabits a second, 0 where the system does not say.
    pub speed_mbps: u32,
    /// Modes, for people.
    pub detail: String,
}

/// A port as configured, open or to be opened.
pub struct ConfiguredPort {
    /// Number that people and controllers call it by.
    pub number: u32,
    /// How it is opened again; `None`: it is not.
    pub spec: Option<PortSpec>,
    /// The port; `None`: it could not be opened yet.
    pub port: Option<Box<dyn Port>>,
}

impl ConfiguredPort {
    /// Opens a port. An interface that is down or gone is no error: it is tried again later.
    ///
    /// # Errors
    /// It cannot work as configured.
    pub fn open(number: u32, spec: PortSpec, queues: usize) -> Result<ConfiguredPort, PortError> {
        let port = match overbank_ports::open(&spec, queues) {
            Ok(port) => Some(port),
            Err(error @ (PortError::Down { .. } | PortError::Gone { .. })) => {
                tracing::warn!(port = number, %error, "tried again later");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(ConfiguredPort { number, spec: Some(spec), port })
    }

    /// What is known of it.
    pub fn describe(&mut self) -> PortDesc {
        let info = self.port.as_mut().map(|port| port.info());
        describe(self.number, self.spec.as_ref(), info.as_ref())
    }
}

/// What is known of a port, open or not.
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
        detail: info.map_or_else(|| "not there".to_owned(), |info| info.detail.clone()),
    }
}

enum State {
    Open(Box<dyn Port>),
    /// Some workers still have a queue of it.
    Leaving {
        port: Box<dyn Port>,
        queues: Vec<Queue>,
    },
    Away {
        retry: Instant,
    },
    /// It does not come back.
    Over,
}

struct Kept {
    number: u32,
    spec: Option<PortSpec>,
    state: State,
    last_error: String,
    /// How often its interface had lost the link when it was last looked at.
    downs: Option<u64>,
}

/// How often an interface of this network namespace has lost its link, if the kernel counts it.
fn downs(name: &str) -> Option<u64> {
    attribute(name, "carrier_down_count")
}

/// The speed of an interface of this network namespace, if its driver says one: -1 is none.
fn speed_mbps(name: &str) -> Option<u32> {
    attribute(name, "speed")
}

fn attribute<T: FromStr>(interface: &str, name: &str) -> Option<T> {
    let path = Path::new("/sys/class/net").join(interface).join(name);
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The ports of a running engine; see the module.
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

    /// Watches until `stop`, then lets go of the ports. To be called when the workers are done.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let leaving = self.look();
            std::thread::park_timeout(if leaving { LEAVING_EVERY } else { WATCH_EVERY });
        }
    }

    /// Looks at every port once; returns whether one is on its way out.
    pub fn look(&mut self) -> bool {
        self.collect();
        let mut leaving = false;
        for index in 0..self.ports.len() {
            self.step(index);
            leaving |= matches!(self.ports[index].state, State::Leaving { .. });
        }
        leaving
    }

    /// Takes the queues that workers gave back.
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
                    // Down and up again between two looks: whoever was there may be elsewhere.
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
                tracing::info!(port = kept.number, name = %desc.name, "opened again");
                kept.state = State::Open(port);
                kept.downs = None;
                kept.last_error.clear();
                self.handle.port_changed(index, desc, true);
                self.attach(index);
            }
            Err(error) => {
                let error = error.to_string();
                // Once for each reason, not twice a second.
                if error != kept.last_error {
                    tracing::warn!(port = kept.number, %error, "still away");
                    kept.last_error = error;
                }
            }
        }
    }
}
