//! Steps and actions: a thread with the node, and tasks for what waits.
//!
//! The thread takes all events that have come in at once: under load, batches are few and large. It
//! performs a step's actions in their order; what workers may still act on is settled before
//! anything leaves that tells others. Requests to etcd
//! and to the log run as tasks, so that none waits for another. Queues are bounded: a full one
//! drops messages and requests, which the engine repeats, but never etcd's changes, which wait.

use std::sync::Arc;
use std::time::Duration;

use overbank_cluster::etcd::Info;
use overbank_cluster::message::{Answer, Answered, Counts, Message, Request};
use overbank_cluster::node::Change;
use overbank_cluster::table::Dense;
use overbank_cluster::{Action, Event, Member, Micros, Node, NodeId, SessionId};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::bus::{self, Outgoing};
use crate::etcd;
use crate::join::{Joined, StoresError};

/// Events that wait for the node.
const EVENTS_MAX: usize = 1 << 14;
/// Events of a step.
const STEP_MAX: usize = 1 << 12;
/// Messages that wait to be sent.
const OUTGOING_MAX: usize = 1 << 12;
/// Requests under way to a service at a time.
const REQUESTS_MAX: usize = 1 << 10;
/// Time between tries of a run that cannot begin.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for the last requests of a run.
const LAST: Duration = Duration::from_millis(200);

/// What a node runs for: the data path, and the callers that ask.
pub trait Host: Send + 'static {
    /// Returns the data path's clock, which never goes back.
    fn now(&mut self) -> Micros;

    /// Performs a change of the data path.
    fn change(&mut self, change: &Change);

    /// Shows the data path what the node knows; returns whether workers may still act on what was
    /// there before.
    fn look(&mut self, node: &Node<Dense>) -> bool;

    /// Returns once no worker acts on what was there before.
    fn settle(&mut self);

    /// Returns the counts of a session that is installed here.
    fn counts(&mut self, session: SessionId) -> Counts;

    /// Takes the answer to a request.
    fn answer(&mut self, number: u64, answer: Answer);

    /// Hears what the gateway of a node has noted.
    fn note(&mut self, _from: Member, _note: &[u8]) {}

    /// A run is over: nothing is installed any more.
    fn ended(&mut self);
}

enum Input {
    Event(Event<Dense>),
    /// Changes of etcd are lost.
    Lost,
    Stop,
}

/// Asks a running node for something.
#[derive(Clone)]
pub struct Handle(mpsc::Sender<Input>);

impl Handle {
    /// Asks for a change of sessions; returns false if too many wait.
    pub fn request(&self, number: u64, request: Request) -> bool {
        self.0.try_send(Input::Event(Event::Request(number, request))).is_ok()
    }

    /// Lets the node give everything away and end; returns false if too many wait.
    pub fn drain(&self) -> bool {
        self.0.try_send(Input::Event(Event::Drain)).is_ok()
    }

    /// Lets sessions be moved to where rendezvous hashing has them; returns false if too many
    /// requests wait.
    pub fn rebalance(&self) -> bool {
        self.0.try_send(Input::Event(Event::Rebalance)).is_ok()
    }

    /// Leaves something to later speakers, if the node speaks; returns false if too many requests
    /// wait.
    pub fn share(&self, shared: Info) -> bool {
        self.0.try_send(Input::Event(Event::Share(shared))).is_ok()
    }

    /// Tells the gateway of a node something; it may be lost.
    pub fn note(&self, to: NodeId, note: Arc<[u8]>) {
        let _ = self.0.try_send(Input::Event(Event::Note(to, note)));
    }

    /// Ends the node at once, as by a crash.
    pub fn stop(&self) {
        let _ = self.0.blocking_send(Input::Stop);
    }
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Another one begins.
    Again,
    /// It was drained.
    Drained,
    Stopped,
}

/// A node over its services.
pub struct Driver<H> {
    joined: Joined,
    runtime: Runtime,
    host: H,
    input: mpsc::Receiver<Input>,
    sender: mpsc::Sender<Input>,
}

impl<H: Host> Driver<H> {
    /// Returns a driver and what it is asked by. `runtime` runs what waits.
    pub fn new(joined: Joined, runtime: Runtime, host: H) -> (Driver<H>, Handle) {
        let (sender, input) = mpsc::channel(EVENTS_MAX);
        let handle = Handle(sender.clone());
        (Driver { joined, runtime, host, input, sender }, handle)
    }

    /// Runs the node until it is drained or stopped. Returns whether it was drained.
    ///
    /// # Errors
    /// It could not begin its first run.
    pub fn run(mut self) -> Result<bool, StoresError> {
        let mut is_first = true;
        loop {
            let member = match self.runtime.block_on(self.joined.next_member()) {
                Ok(member) => member,
                Err(error) if is_first => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the node cannot begin another run yet");
                    std::thread::sleep(AGAIN);
                    continue;
                }
            };
            is_first = false;
            let ended = self.one_run(member);
            self.host.ended();
            tracing::info!(node = member.node.0, run = member.incarnation, ?ended, "run ended");
            match ended {
                Ended::Again => {}
                Ended::Drained => return Ok(true),
                Ended::Stopped => return Ok(false),
            }
        }
    }

    fn one_run(&mut self, me: Member) -> Ended {
        let (outgoing, sends) = mpsc::channel(OUTGOING_MAX);
        let mut tasks = self.tasks(me, sends);
        let options = &self.joined.options;
        let now = self.host.now();
        let mut node = Node::new(options.settings, me, options.info.clone(), now);
        let out = Out {
            etcd: Arc::new(Semaphore::new(REQUESTS_MAX)),
            log: Arc::new(Semaphore::new(REQUESTS_MAX)),
            outgoing,
        };
        let (mut events, mut actions) = (Vec::new(), Vec::new());
        let mut drains = false;
        let ended = loop {
            if let Some(ended) = self.events(&mut events) {
                break ended;
            }
            drains |= events.iter().any(|event| matches!(event, Event::Drain));
            node.steps(self.host.now(), events.drain(..), &mut actions);
            let looked = self.host.look(&node);
            if let Some(ended) = self.perform(&out, me, looked, &mut actions) {
                break ended;
            }
        };
        // What is under way, the end of the lease above all, has a moment.
        self.runtime.block_on(async {
            let all = out.etcd.acquire_many(REQUESTS_MAX as u32);
            let _ = tokio::time::timeout(LAST, all).await;
            tasks.shutdown().await;
        });
        while self.input.try_recv().is_ok() {}
        // A node that was to leave, and has lost the cluster: others have its sessions.
        if drains && ended == Ended::Again { Ended::Drained } else { ended }
    }

    /// Waits for an event, and takes those behind it; returns why the run is over, if it is.
    fn events(&mut self, events: &mut Vec<Event<Dense>>) -> Option<Ended> {
        let mut input = self.input.blocking_recv();
        loop {
            match input {
                None | Some(Input::Stop) => return Some(Ended::Stopped),
                Some(Input::Lost) => return Some(Ended::Again),
                Some(Input::Event(event)) => events.push(event),
            }
            if events.len() == STEP_MAX {
                return None;
            }
            match self.input.try_recv() {
                Ok(next) => input = Some(next),
                Err(_) => return None,
            }
        }
    }

    /// Performs actions in their order.
    fn perform(
        &mut self,
        out: &Out,
        me: Member,
        mut unsettled: bool,
        actions: &mut Vec<Action<Dense>>,
    ) -> Option<Ended> {
        let mut ended = None;
        for action in actions.drain(..) {
            match action {
                Action::Session(change) => {
                    unsettled |= matches!(change, Change::Show { .. } | Change::Renew { .. });
                    self.host.change(&change);
                    continue;
                }
                Action::Answer(number, mut answer) => {
                    if let Ok(Answered::Found(found)) = &mut answer
                        && found.at == me
                    {
                        found.counts = self.host.counts(found.session);
                    }
                    self.host.answer(number, answer);
                    continue;
                }
                Action::Note(from, note) => self.host.note(from, &note),
                Action::End { again: true } => ended = Some(Ended::Again),
                Action::End { again: false } => ended = Some(Ended::Drained),
                other => {
                    if std::mem::take(&mut unsettled) {
                        self.host.settle();
                    }
                    self.send(out, me, other);
                }
            }
        }
        if unsettled {
            self.host.settle();
        }
        ended
    }

    fn send(&mut self, out: &Out, me: Member, action: Action<Dense>) {
        let reply = self.sender.clone();
        match action {
            Action::Etcd(request) => {
                let Ok(permit) = out.etcd.clone().try_acquire_owned() else { return };
                let (client, names) = (self.joined.client.clone(), self.joined.names.clone());
                let lease_s = self.joined.options.settings.lease_us.div_ceil(1_000_000) as i64;
                self.runtime.spawn(async move {
                    let done = etcd::request(&client, &names, lease_s, request).await;
                    if let Some(done) = done {
                        let _ = reply.send(Input::Event(Event::Etcd(done))).await;
                    }
                    drop(permit);
                });
            }
            Action::Log(request) => {
                let Ok(permit) = out.log.clone().try_acquire_owned() else { return };
                let log = self.joined.log.clone();
                self.runtime.spawn(async move {
                    if let Some(done) = log.request(request).await {
                        let _ = reply.send(Input::Event(Event::Log(done))).await;
                    }
                    drop(permit);
                });
            }
            Action::Send(to, mut message) => {
                message.count(me, |session| self.host.counts(session));
                let _ = out.outgoing.try_send((Some(to), message));
            }
            Action::Broadcast(beat) => drop(out.outgoing.try_send((None, Message::Beat(beat)))),
            Action::Session(_) | Action::Answer(..) | Action::Note(..) | Action::End { .. } => {}
        }
    }

    /// Starts what a run waits for.
    fn tasks(&self, me: Member, sends: mpsc::Receiver<Outgoing>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let on = self.runtime.handle();
        let Joined { client, nats, log, names, options, .. } = &self.joined;
        let cluster = options.cluster.clone();
        tasks.spawn_on(bus::send(nats.clone(), cluster.clone(), me, sends), on);
        let (bus, to) = (nats.clone(), self.sender.clone());
        tasks.spawn_on(
            async move {
                let take = |from, message| {
                    // A full queue drops it.
                    let _ = to.try_send(Input::Event(Event::Message(from, message)));
                    !to.is_closed()
                };
                if let Err(error) = bus::receive(bus, cluster, me, take).await {
                    tracing::error!(%error, "no messages of other nodes");
                }
            },
            on,
        );
        let (hears, from, to) = (log.clone(), nats.clone(), self.sender.clone());
        tasks.spawn_on(
            async move {
                let take = |reply| {
                    // A full queue drops it: it is fetched later.
                    let _ = to.try_send(Input::Event(Event::Log(reply)));
                    std::future::ready(!to.is_closed())
                };
                if let Err(error) = hears.hear(from, take).await {
                    tracing::error!(%error, "the log is not heard, only fetched");
                }
            },
            on,
        );
        let (client, names, to) = (client.clone(), names.clone(), self.sender.clone());
        tasks.spawn_on(
            async move {
                let show = |reply| {
                    let to = to.clone();
                    async move { to.send(Input::Event(Event::Etcd(reply))).await.is_ok() }
                };
                if etcd::watch(client, names, show).await.is_err() {
                    let _ = to.send(Input::Lost).await;
                }
            },
            on,
        );
        let (beat, to) = (options.settings.beat_us, self.sender.clone());
        tasks.spawn_on(
            async move {
                let mut ticks = tokio::time::interval(Duration::from_micros(beat));
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
                loop {
                    ticks.tick().await;
                    if to.is_closed() {
                        break;
                    }
                    let _ = to.try_send(Input::Event(Event::Tick));
                }
            },
            on,
        );
        tasks
    }
}

/// Ways out of a run.
struct Out {
    etcd: Arc<Semaphore>,
    log: Arc<Semaphore>,
    outgoing: mpsc::Sender<Outgoing>,
}
