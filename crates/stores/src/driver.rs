//! Steps and actions: a thread with the node, and tasks for what waits.
//!
//! The thread takes all events that have come in at once: under load, batches are few and large. It
//! performs a step's actions in their order; what workers may still act on is settled before
//! anything leaves that tells others. Requests to etcd
//! and to the log run as tasks, so that none waits for another. Queues are bounded: a full one
//! drops messages and requests, which the engine repeats, but never etcd's changes, which wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use overbank_cluster::etcd::Info;
use overbank_cluster::message::{Answer, Answered, Counts, Message, Refusal, Request};
use overbank_cluster::node::Change;
use overbank_cluster::table::Dense;
use overbank_cluster::{Action, Event, Member, Micros, Node, NodeId, SessionId};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::services::{Joined, PATIENCE, StoresError, Ways};

/// Events that wait for the node.
const EVENTS_MAX: usize = 1 << 14;
/// Events of a step.
const STEP_MAX: usize = 1 << 12;
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

/// Takes what comes in for a run.
#[derive(Clone)]
pub(crate) struct Inbox(mpsc::Sender<Input>);

impl Inbox {
    /// Takes an event that may be lost: a full queue drops it. Returns false once the run is over.
    pub(crate) fn offer(&self, event: Event<Dense>) -> bool {
        let _ = self.0.try_send(Input::Event(event));
        !self.0.is_closed()
    }

    /// Takes an event, and waits for room. Returns false once the run is over.
    pub(crate) async fn put(&self, event: Event<Dense>) -> bool {
        self.0.send(Input::Event(event)).await.is_ok()
    }

    /// Ends the run: changes of etcd are lost.
    pub(crate) async fn lose(&self) {
        let _ = self.0.send(Input::Lost).await;
    }
}

/// Asks a running node for something.
#[derive(Clone)]
pub struct Handle(mpsc::Sender<Input>);

impl Handle {
    /// Asks for a change of sessions; returns false if too many wait.
    pub fn request(&self, number: u64, request: Request) -> bool {
        self.0.try_send(Input::Event(Event::Request(number, request))).is_ok()
    }

    /// Lets the node give everything away, this many sessions a second, and end; returns false if
    /// too many wait.
    pub fn drain(&self, rate: Option<u64>) -> bool {
        self.0.try_send(Input::Event(Event::Drain { rate })).is_ok()
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
    For(End),
}

/// How a node has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has given everything away.
    Drained,
    /// It was to give everything away, and lost the cluster before: others take over what is left.
    Lost,
    /// As it was told, with what it had.
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

    /// Runs the node until it is drained or stopped.
    ///
    /// # Errors
    /// It could not begin its first run, also after 30 s if that might have helped.
    pub fn run(mut self) -> Result<End, StoresError> {
        let (mut is_first, patient_until) = (true, Instant::now() + PATIENCE);
        loop {
            let member = match self.runtime.block_on(self.joined.services.next_member()) {
                Ok(member) => member,
                Err(error) if is_first && !(error.may_pass() && Instant::now() < patient_until) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "the node cannot begin another run yet");
                    match self.pause() {
                        Some(end) => return Ok(end),
                        None => continue,
                    }
                }
            };
            is_first = false;
            let ended = self.one_run(member);
            self.host.ended();
            tracing::info!(node = member.node.0, run = member.incarnation, ?ended, "run ended");
            match ended {
                Ended::Again => {}
                Ended::For(end) => return Ok(end),
            }
        }
    }

    /// Waits between two runs; returns how the node has ended, if it is to end.
    fn pause(&mut self) -> Option<End> {
        let end = Instant::now() + AGAIN;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let input = async { tokio::time::timeout(left, self.input.recv()).await };
            let end = match self.runtime.block_on(input) {
                Err(_) => return None,
                Ok(None) => Some(End::Stopped),
                Ok(Some(input)) => self.between_runs(input),
            };
            if end.is_some() {
                return end;
            }
        }
    }

    /// Takes what comes in while there is no run; returns how the node has ended, if it is to end.
    fn between_runs(&mut self, input: Input) -> Option<End> {
        match input {
            Input::Stop => return Some(End::Stopped),
            // Others have its sessions, or take them over.
            Input::Event(Event::Drain { .. }) => return Some(End::Lost),
            Input::Event(Event::Request(number, _)) => {
                self.host.answer(number, Err(Refusal::NoOwner));
            }
            Input::Event(_) | Input::Lost => {}
        }
        None
    }

    fn one_run(&mut self, me: Member) -> Ended {
        let mut tasks = JoinSet::new();
        let (inbox, on) = (Inbox(self.sender.clone()), self.runtime.handle().clone());
        let Joined { services, settings, info, .. } = &mut self.joined;
        tick(Duration::from_micros(settings.beat_us), inbox.clone(), &mut tasks, &on);
        let out = services.begin(me, &inbox, &mut tasks, &on);
        let mut node = Node::new(*settings, me, info.clone(), self.host.now());
        let (mut events, mut actions) = (Vec::new(), Vec::new());
        let mut drains = false;
        let ended = loop {
            if let Some(ended) = self.events(&mut events) {
                break ended;
            }
            drains |= events.iter().any(|event| matches!(event, Event::Drain { .. }));
            node.steps(self.host.now(), events.drain(..), &mut actions);
            let looked = self.host.look(&node);
            if let Some(ended) = self.perform(&*out, me, looked, &mut actions) {
                break ended;
            }
        };
        // What is under way, the end of the lease above all, has a moment.
        self.runtime.block_on(async {
            let _ = tokio::time::timeout(LAST, out.last()).await;
            tasks.shutdown().await;
        });
        let mut end = drains.then_some(End::Lost);
        while let Ok(input) = self.input.try_recv() {
            end = self.between_runs(input).or(end);
        }
        match (ended, end) {
            (Ended::Again, Some(end)) => Ended::For(end),
            (ended, _) => ended,
        }
    }

    /// Waits for an event, and takes those behind it; returns why the run is over, if it is.
    fn events(&mut self, events: &mut Vec<Event<Dense>>) -> Option<Ended> {
        let mut input = self.input.blocking_recv();
        loop {
            match input {
                None | Some(Input::Stop) => return Some(Ended::For(End::Stopped)),
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
        out: &dyn Ways,
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
                Action::End { again: false } => ended = Some(Ended::For(End::Drained)),
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

    fn send(&mut self, out: &dyn Ways, me: Member, action: Action<Dense>) {
        match action {
            Action::Etcd(request) => out.etcd(request),
            Action::Log(request) => out.log(request),
            Action::Send(to, mut message) => {
                message.count(me, |session| self.host.counts(session));
                out.send(Some(to), message);
            }
            Action::Broadcast(beat) => out.send(None, Message::Beat(beat)),
            Action::Session(_) | Action::Answer(..) | Action::Note(..) | Action::End { .. } => {}
        }
    }
}

/// Has a node take a step at each beat.
fn tick(every: Duration, to: Inbox, tasks: &mut JoinSet<()>, on: &tokio::runtime::Handle) {
    tasks.spawn_on(
        async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                if !to.offer(Event::Tick) {
                    break;
                }
            }
        },
        on,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::{Later, Services};
    use overbank_cluster::{Settings, etcd, log};

    /// Services of a single run, into which nothing comes; before it, they fail so often.
    struct Once(Option<u32>);

    impl Services for Once {
        fn next_member(&mut self) -> Later<'_, Result<Member, StoresError>> {
            let fails = self.0.take().expect("no other run begins");
            self.0 = fails.checked_sub(1);
            Box::pin(async move {
                let silent = || StoresError::EtcdSilent("a server that is gone".to_owned());
                if fails > 0 { Err(silent()) } else { Ok(Member::default()) }
            })
        }

        fn begin(
            &mut self,
            _: Member,
            _: &Inbox,
            _: &mut JoinSet<()>,
            _: &tokio::runtime::Handle,
        ) -> Box<dyn Ways> {
            Box::new(Nowhere)
        }
    }

    struct Nowhere;

    impl Ways for Nowhere {
        fn etcd(&self, _: etcd::Request) {}
        fn log(&self, _: log::Request<Dense>) {}
        fn send(&self, _: Option<NodeId>, _: Message) {}

        fn last(&self) -> Later<'_, ()> {
            Box::pin(async {})
        }
    }

    /// What was answered, in this order.
    #[derive(Default)]
    struct Answers(Arc<std::sync::Mutex<Vec<(u64, Answer)>>>);

    impl Host for Answers {
        fn now(&mut self) -> Micros {
            0
        }

        fn change(&mut self, _: &Change) {}

        fn look(&mut self, _: &Node<Dense>) -> bool {
            false
        }

        fn settle(&mut self) {}

        fn counts(&mut self, _: SessionId) -> Counts {
            Counts::default()
        }

        fn answer(&mut self, number: u64, answer: Answer) {
            self.0.lock().expect("whole").push((number, answer));
        }

        fn ended(&mut self) {}
    }

    #[test]
    fn what_waits_at_the_end_of_a_run_is_not_lost() {
        type Act = fn(&Handle);
        let acts: [(Act, u32, End); 3] = [
            (|handle| handle.stop(), 0, End::Stopped),
            (|handle| assert!(handle.drain(None)), 0, End::Lost),
            // Also before the first run, which waits for a service.
            (|handle| handle.stop(), 1, End::Stopped),
        ];
        for (act, fails, end) in acts {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = { runtime }.worker_threads(1).enable_all().build().expect("threads");
            let joined = Joined {
                services: Box::new(Once(Some(fails))),
                settings: Settings::default(),
                info: Arc::from([]),
                seed: 0,
            };
            let answers = Answers::default();
            let answered = answers.0.clone();
            let (driver, handle) = Driver::new(joined, runtime, answers);
            // All of it is there before the run takes the first.
            assert!(driver.sender.try_send(Input::Lost).is_ok());
            assert!(handle.request(7, Request::Remove { session: SessionId::default() }));
            act(&handle);
            assert_eq!(driver.run().expect("begins"), end);
            assert_eq!(*answered.lock().expect("whole"), [(7, Err(Refusal::NoOwner))]);
        }
    }
}
