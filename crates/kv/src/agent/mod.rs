//! A server's agent: `netcache::agent` with a socket, a clock and a store, in one thread.
//!
//! ```text
//!   socket ─▶ message? ─▶ from where it may come? ─▶ netcache::agent ─▶ socket, store
//!                │                  │                    ▲      ▲
//!             malformed          dropped              clock   store's answers
//!             by reason          by reason
//! ```
//!
//! # Guarantees
//! - Every datagram is counted once: `received = handled + malformed + dropped`, by reason.
//! - What only a device says (RESUME, ADOPT, EVICTED, the answers to FENCE and UPDATE) counts from
//!   the device's address alone. Without a device, stamped writes do not count either.
//! - The run's number, which RESUME has to name, is from the system's generator: a stranger that
//!   forges the device's address cannot guess it.
//! - A request is applied at most once, also over a store that outlives the agent: `quiet`,
//!   explained in `netcache::client`.
//! - With a rate, requests above it are dropped as if they had been lost: clients repeat them.
//!   What keeps the device right is not limited.
//! - Bounded: waiting requests, remembered clients, values in memory. What exceeds a bound is
//!   refused and counted. What the kernel does not send is counted, and repeated as if lost.
//!
//! The protocol has no secrets. Strangers on the path can read and forge requests, and a request
//! with a forged source sends up to 1.4 KB there. Serve it in networks whose sources are checked.
//!
//! Cost: one thread; with the store in memory, no other is woken for a request. Panics: none.

mod rate;
pub mod settings;
#[cfg(test)]
mod tests;

use crate::client::unguessable;
use crate::store::{Answers, Store, StoreError};
use crate::udp::{DATAGRAM_MAX, Udp, canonical};
use overbank_netcache::agent::{Action, Agent, Settings, Totals};
use overbank_netcache::{Micros, Protocol, Server};
use overbank_wire::netcache::{Message, Op, Refused};
use rate::Rate;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Datagrams that are read before the store's answers and the clock have their turn.
const BURST: usize = 64;

overbank_reasons::reasons! {
    /// Why a message is dropped.
    pub enum Dropped {
        NotDevice = "not_device", "What only the device says, from another address, or without one";
        Stamped = "stamped", "Stamped write without a device";
        NotForServers = "not_for_servers", "Operation that servers do not take";
        Rate = "rate", "Request above the rate";
    }
}

overbank_declare::counters! {
    /// What an agent has counted.
    pub struct AgentTotals: "overbank_kv_agent_" {
        received: counter datagrams "Datagrams received";
        handled: counter messages "Messages that the agent has taken";
        malformed[Refused]: counter datagrams "Datagrams that are no message";
        dropped[Dropped]: counter messages "Messages that were dropped";
        replies: counter messages "Answers to clients";
        to_device: counter messages "Messages to the device";
        not_sent: counter messages "Messages that the kernel did not send: lost";
        asked: counter requests "Reads and writes of the store";
        failed: counter requests "Reads and writes that the store has not done";
        early: counter requests "Requests before the device has answered, or in the quiet time";
        overtaken: counter requests "Writes dropped because a later one of their key was accepted";
        repeated: counter requests "Writes that came again";
        held: counter requests "Writes that waited for a fence";
        busy: counter requests "Requests refused because too many wait, or too many clients are remembered";
        too_old: counter requests "Requests refused because later ones of their client are remembered";
        refreshed: counter keys "Keys that the controller was asked to install anew or to leave out";
        serving: gauge agents "1 if requests are served";
        values: gauge values "Values in memory";
        value_bytes: gauge bytes "Bytes that values in memory take";
    }
}

/// An agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("listen {address}: {source}; must be a free address of this machine")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("store {0}")]
    Store(#[from] StoreError),
    #[error("cannot start a thread or wake it: {0}")]
    System(#[from] io::Error),
}

/// What an agent is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub listen: SocketAddr,
    pub device: Option<SocketAddr>,
    /// Datagrams that the kernel keeps, in bytes.
    pub receive_bytes: usize,
    pub machine: Settings,
    pub protocol: Protocol,
    /// Requests that are served in a second.
    pub rate: Option<u32>,
}

/// What the agent's thread shares.
#[derive(Debug)]
struct Shared {
    totals: Mutex<AgentTotals>,
    stop: AtomicBool,
    wake: UnixStream,
}

/// Access to a running agent.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Handle {
    /// Returns what was counted until the thread's last turn.
    pub fn totals(&self) -> AgentTotals {
        *self.shared.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running agent; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts an agent over the store that `open` returns. That gets a stream to write a byte to
    /// when answers have come.
    ///
    /// # Errors
    /// Fails if the address is taken, or the store cannot be opened.
    pub fn start(
        setup: &Setup,
        open: impl FnOnce(UnixStream) -> Result<Box<dyn Store>, StoreError>,
    ) -> Result<Running, StartError> {
        let address = setup.listen;
        let udp = Udp::bind(address, setup.receive_bytes)
            .map_err(|source| StartError::Bind { address, source })?;
        let address = udp.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let store = open(wake.try_clone()?)?;
        let epoch = unguessable()?;
        let agent = match setup.device {
            Some(_) => Server::new(setup.protocol, setup.machine, epoch),
            None => Server::Stamps(Agent::alone(setup.machine, epoch)),
        };
        let totals = Mutex::new(AgentTotals::default());
        let shared = Arc::new(Shared { totals, stop: AtomicBool::new(false), wake });
        let serving = Serving {
            udp,
            device: setup.device.map(canonical),
            agent,
            store,
            rate: setup.rate.map(Rate::new),
            woken,
            start: Instant::now(),
            totals: AgentTotals::default(),
            out: Vec::new(),
            answers: Vec::new(),
        };
        let of_thread = shared.clone();
        let serve = move || serving.serve(&of_thread);
        let thread = std::thread::Builder::new().name("agent".to_owned()).spawn(serve)?;
        Ok(Running { handle: Handle { shared, address }, thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns whether the thread has ended by itself: it has panicked, or its socket has failed.
    pub fn is_broken(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it and returns what was counted.
    pub fn stop(mut self) -> AgentTotals {
        self.end();
        self.handle.totals()
    }

    fn end(&mut self) {
        self.handle.shared.stop.store(true, Ordering::Release);
        // If it is full, the thread wakes anyway.
        let _ = (&self.handle.shared.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The agent's thread.
struct Serving {
    udp: Udp,
    device: Option<SocketAddr>,
    agent: Server<SocketAddr>,
    store: Box<dyn Store>,
    rate: Option<Rate>,
    /// Readable when answers of the store have come, or it is to stop.
    woken: UnixStream,
    start: Instant,
    totals: AgentTotals,
    /// What is to be done, and what the store has answered.
    out: Vec<Action<SocketAddr>>,
    answers: Answers,
}

impl Serving {
    fn serve(mut self, shared: &Shared) {
        let mut room = [0; DATAGRAM_MAX];
        // Pairs with the store in `Running::end`.
        while !shared.stop.load(Ordering::Acquire) {
            let due = match self.turn(&mut room) {
                Ok(due) => due,
                Err(error) => {
                    tracing::error!(%error, "the agent's socket has failed");
                    return;
                }
            };
            *shared.totals.lock().unwrap_or_else(PoisonError::into_inner) = self.totals();
            if let Some(due) = due
                && let Err(error) = self.udp.wait(Some(self.woken.as_fd()), due)
            {
                tracing::error!(%error, "cannot wait for datagrams");
                return;
            }
        }
    }

    fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Does what there is to do; returns how long nothing else is due, unless more is there.
    fn turn(&mut self, room: &mut [u8]) -> io::Result<Option<Duration>> {
        // What wakes is read before the answers are, so that none is left without a wake.
        while matches!((&self.woken).read(&mut [0; 64]), Ok(1..)) {}
        let mut taken = 0;
        while taken < BURST
            && let Some((len, from)) = self.udp.receive(room)?
        {
            taken += 1;
            self.datagram(&room[..len], from);
        }
        self.store.answers(&mut self.answers);
        self.act();
        let now = self.now();
        let due = self.agent.tick(now, &mut self.out);
        self.act();
        let wait = Duration::from_micros(due.saturating_sub(now));
        Ok((taken < BURST).then_some(wait))
    }

    fn datagram(&mut self, datagram: &[u8], from: SocketAddr) {
        self.totals.received += 1;
        let message = match Message::parse(datagram) {
            Ok(message) => message,
            Err(why) => {
                self.totals.malformed[why.index()] += 1;
                return;
            }
        };
        let now = self.now();
        let is_request = message.op == Op::Get || message.op.is_write();
        let mut why = dropped(message.op, from, self.device);
        if why.is_none() && is_request && self.rate.as_mut().is_some_and(|rate| !rate.allows(now)) {
            why = Some(Dropped::Rate);
        }
        if let Some(why) = why {
            self.totals.dropped[why.index()] += 1;
            return;
        }
        self.totals.handled += 1;
        self.agent.message(now, from, &message, &mut self.out);
        self.act();
    }

    /// Does all that the agent wants, and what follows from the store's answers.
    fn act(&mut self) {
        loop {
            for action in std::mem::take(&mut self.out) {
                match action {
                    Action::Reply(to, letter) => {
                        self.totals.replies += 1;
                        self.send(&letter.message(), to);
                    }
                    Action::Device(letter) => {
                        let Some(device) = self.device else { continue };
                        self.totals.to_device += 1;
                        self.send(&letter.message(), device);
                    }
                    Action::Store { number, key, ask } => {
                        self.totals.asked += 1;
                        self.store.ask(number, key, ask, &mut self.answers);
                    }
                }
            }
            let now = self.now();
            for (number, answer) in std::mem::take(&mut self.answers) {
                self.agent.stored(now, number, answer, &mut self.out);
            }
            if self.out.is_empty() {
                return;
            }
        }
    }

    fn send(&mut self, message: &Message<'_>, to: SocketAddr) {
        let mut room = [0; DATAGRAM_MAX];
        let sent =
            message.emit(&mut room).is_some_and(|len| self.udp.send(&room[..len], to).is_ok());
        self.totals.not_sent += u64::from(!sent);
    }

    fn totals(&self) -> AgentTotals {
        let Totals { early, overtaken, repeated, held, busy, too_old, failed, refreshed } =
            self.agent.totals();
        let (values, value_bytes) = self.store.held();
        let serving = u64::from(self.agent.serves(self.now()));
        AgentTotals {
            early,
            overtaken,
            repeated,
            held,
            busy,
            too_old,
            failed,
            refreshed,
            values,
            value_bytes,
            serving,
            ..self.totals
        }
    }
}

/// Returns why a message is dropped that has come from there, if it is.
fn dropped(op: Op, from: SocketAddr, device: Option<SocketAddr>) -> Option<Dropped> {
    match op {
        Op::Get | Op::Put | Op::Delete => None,
        Op::PutCached | Op::DeleteCached => device.is_none().then_some(Dropped::Stamped),
        Op::Resume | Op::Adopt | Op::Evicted | Op::FenceOk | Op::UpdateOk => {
            (device != Some(from)).then_some(Dropped::NotDevice)
        }
        Op::GetOk
        | Op::NotFound
        | Op::WriteOk
        | Op::Update
        | Op::Fence
        | Op::Adopted
        | Op::Hello
        | Op::Refresh
        | Op::Error => Some(Dropped::NotForServers),
    }
}
