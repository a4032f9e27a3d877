//! The protocol under stateright: the product's own table, pipeline and agent, two keys, one item
//! for both, and every order of what may happen.
//!
//! Messages are a set that only grows: each may arrive never, late, or again. A state has the
//! device with its item, the agent, the store, which answers at once, and the writes that were
//! applied. From there the checker chooses each step:
//! - a message arrives at the device or at the agent; writes may also come by no device;
//! - a worker finds the item of a message's key, and goes on with it after other steps;
//! - the item is given to a key or taken from it;
//! - more writes pass the device, and are lost, than it can count;
//! - the device, or its controller, which empties it, begins another run; so does the agent;
//! - a client begins a request that is a window later; the agent does what it does after a while.
//!
//! What must hold in each state: a value that the device may hand out, or a worker does, is the
//! store's; a request is applied once; what is answered as done is applied; no open request is
//! refused as too old. So a read has its instant when the device answers it or the store does, and
//! all operations have one order. And from each state all comes to rest soon (`rest`).
//!
//! [`Broken`] names what the protocol rests on; without one of them, a counterexample is found.
//!
//! All states were seen of two writes, to one key or to two, with an eviction, another run of the
//! device or of the agent, or a full count of writes: 13,041 to 325,212 each, 1.8 million in all
//! cases together (2026-11-26, `cargo test -p overbank-netcache --lib model:: -- --nocapture`). For
//! that, states are taken for one that nothing tells apart any more (`tidy`). The agent's run in
//! its fences and updates is due to a counterexample of sixteen steps.

mod cases;
mod device;
mod rest;
mod tidy;

use crate::agent::{Action, Agent, Answer, Ask, Settings, WINDOW};
use crate::client::Requests;
use crate::entry::Entry;
use crate::pipeline::{Status, Verdict, WRITES_MAX};
use device::{Device, SERVER};
use overbank_wire::netcache::{Key, Message, Op, Stamp, Status as Said};
use rest::Rested;
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KEYS: [Key; 2] = [1, 2];
const CLIENT: u16 = 1;
const SETTINGS: Settings =
    Settings { retry_us: 0, tries_max: u32::MAX, waiting_max: 8, ..Settings::DEFAULT };

/// What is taken from the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The device stores any update.
    Stamps,
    /// The agent takes writes without a stamp at once.
    Fences,
    /// The agent takes the writes that wait for a fence when there is a second one.
    Held,
    /// The agent forgets which requests it has applied.
    Windows,
    /// The agent takes a request that is older than its window as a new one.
    Forgets,
    /// A client begins a request although another is open that is a window older.
    Early,
    /// An installation gets the number that the one before had.
    Installs,
    /// The item goes to another key although a worker has found it for the one before.
    Grace,
    /// The item keeps its status when it is taken from a key and given to another.
    Cleared,
    /// The count of writes begins anew after its last one.
    Wraps,
    /// The controller answers HELLO without evicting anything.
    Resumes,
    /// The agent takes the answer to an earlier run for that to this one.
    Runs,
    /// The agent takes answers to what an earlier run has asked the device.
    Numbers,
    /// Another run of the device has the number of the one before.
    Boots,
    /// The controller does not adopt again what stays invalid.
    Adopts,
    /// The agent says nothing twice.
    Repeats,
    /// The controller leaves a key in the cache whose count is full.
    Counts,
}

/// What may happen besides messages, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    installs: u32,
    evictions: u32,
    reboots: u32,
    crashes: u32,
    /// Messages that a worker goes on with later.
    slow: u32,
    /// Whether the count of writes comes to its end.
    full: bool,
    /// Whether the first client begins another request.
    next: bool,
    /// Stamps of an installation.
    writes: u32,
}

/// How clients' writes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Through,
    Around,
    Both,
}

/// Client and request.
type Name = (u64, u64);
type Bytes = Arc<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    Stale,
    Twice,
    Lied,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    device: Device,
    /// What a worker goes on with, and what it has found.
    slow: Option<(To, Bytes, Option<Entry>)>,
    agent: Agent<()>,
    epoch: u64,
    /// The last number that the agent has said to the device.
    said: u64,
    resumed: u64,
    store: BTreeMap<Key, Bytes>,
    applied: BTreeSet<Name>,
    /// A request that its client waits for no more.
    ended: Option<Name>,
    wrong: Option<Wrong>,
    /// Where to, and what.
    network: BTreeSet<(To, Bytes)>,
    left: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum To {
    /// The device, by the port of clients.
    Device,
    /// The device, by the server's port.
    Back,
    Agent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Arrives(To, Bytes),
    /// A worker finds the item, and goes on.
    Begins(To, Bytes),
    Ends,
    Install(Key),
    Evict,
    Full,
    Reboot,
    Crash,
    Next,
    Patience,
}

struct Protocol {
    /// What clients write, each once; the keys of these are read as well.
    writes: Vec<(Op, Key)>,
    way: Way,
    budget: Budget,
    broken: Broken,
    /// Whether states are one that nothing tells apart any more.
    tidy: bool,
    rested: Rested,
}

fn bytes(letter: &Message<'_>) -> Bytes {
    let mut bytes = vec![0; letter.emit_len()];
    letter.emit(&mut bytes).expect("room");
    bytes.into()
}

/// Returns the first number that a client gives a request only once its first one has ended.
fn a_window_later() -> u64 {
    let mut requests = Requests::new(0);
    let begun = std::iter::from_fn(|| requests.begin(0, (Op::Get, 0), 0, Bytes::default()));
    1 + begun.last().expect("room")
}

impl World {
    fn send(&mut self, to: To, message: &Message<'_>) {
        self.network.insert((to, bytes(message)));
    }
}

impl Protocol {
    fn send_write(&self, world: &mut World, client: usize, request: u64) {
        let (op, key) = self.writes[client];
        let value = [client as u8 + 1 + 100 * u8::from(request > 1)];
        let value = if op == Op::Put { &value[..] } else { &[] };
        let write = Message { value, ..Message::new(op, client as u64, request, key) };
        if self.way != Way::Around {
            world.send(To::Device, &write);
        }
        if self.way != Way::Through {
            world.send(To::Agent, &write);
        }
    }

    /// A message arrives at the device, and a worker has found this of its key.
    fn device(&self, world: &mut World, to: To, letter: &[u8], entry: Option<Entry>) {
        let mut message = Message::parse(letter).expect("ours");
        let (port, status) = (if to == To::Device { CLIENT } else { SERVER }, world.device.status);
        if self.broken == Broken::Stamps && message.op == Op::Update {
            message.stamp = status.stamp(world.device.boot());
        }
        let counts = message.op == Op::Fence || message.op.is_write();
        if self.broken == Broken::Wraps && counts && status.writes() == WRITES_MAX {
            world.device.status = Status::of(status.install(), 0);
        }
        let (verdict, room) = world.device.pass(&message, port, entry);
        match verdict {
            // The store's answer to a read is right.
            Verdict::Forward if message.op == Op::Get => {}
            Verdict::Forward if to == To::Device => world.send(To::Agent, &message),
            Verdict::Mark(op, stamp) if to == To::Device => {
                world.send(To::Agent, &Message { op, stamp, ..message });
            }
            Verdict::Answer { op: Op::GetOk | Op::NotFound, len, .. } => {
                let value = (len > 0).then(|| &room[..len.into()]);
                if value != world.store.get(&message.key).map(|value| &value[..]) {
                    world.wrong = Some(Wrong::Stale);
                }
            }
            Verdict::Answer { op, flags, status, stamp, .. } if to == To::Back => {
                let answer = message.answer(op, status);
                world.send(To::Agent, &Message { flags, stamp, value: &[], ..answer });
            }
            Verdict::Control if message.op == Op::Hello => {
                if message.request != world.resumed && self.broken != Broken::Resumes {
                    self.evict(world);
                }
                world.resumed = message.request;
                world.send(To::Agent, &message.answer(Op::Resume, Said::Ok));
            }
            _ => {}
        }
    }

    fn evict(&self, world: &mut World) {
        let before = world.device.status;
        if let Some((key, stamp)) = world.device.evict() {
            world.send(To::Agent, &Message { stamp, ..Message::new(Op::Evicted, 0, 0, key) });
        }
        if self.broken == Broken::Cleared {
            world.device.status = before;
        }
        if world.slow.is_none() || self.broken == Broken::Grace {
            world.device.settle();
        }
    }

    fn install(&self, world: &mut World, key: Key) -> Option<()> {
        let before = world.device.status;
        let mut stamp = world.device.install(key)?;
        if self.broken == Broken::Cleared && before.install() > 0 {
            world.device.status = before;
        }
        if self.broken == Broken::Installs {
            world.device.status = Status::of(1, 0);
            stamp.install = 1;
        }
        world.send(To::Agent, &Message { stamp, ..Message::new(Op::Adopt, 0, 0, key) });
        Some(())
    }

    /// Does what the agent says; the store answers at once.
    fn act(&self, world: &mut World, mut out: Vec<Action<()>>) {
        while let Some(action) = (!out.is_empty()).then(|| out.remove(0)) {
            match action {
                Action::Reply((), letter) => {
                    let (said, name) = (letter.head, (letter.head.client, letter.head.request));
                    if said.op == Op::WriteOk && !world.applied.contains(&name) {
                        world.wrong = Some(Wrong::Lied);
                    }
                    if said.status == Said::TooOld && world.ended != Some(name) {
                        world.wrong = Some(Wrong::Refused);
                    }
                }
                Action::Device(letter) => {
                    if matches!(letter.head.op, Op::Fence | Op::Update) {
                        world.said = letter.head.request;
                    }
                    world.send(To::Back, &letter.message());
                }
                Action::Store { number, key, ask } => {
                    let answer = match ask {
                        Ask::Read => Answer::Read(world.store.get(&key).cloned()),
                        Ask::Write(value) => {
                            if !world.applied.insert(world.agent.writing(key).expect("it writes")) {
                                world.wrong = Some(Wrong::Twice);
                            }
                            match value {
                                Some(value) => world.store.insert(key, value),
                                None => world.store.remove(&key),
                            };
                            Answer::Written
                        }
                    };
                    world.agent.stored(0, number, answer, &mut out);
                }
            }
        }
        if self.broken == Broken::Windows {
            world.agent.forget_windows();
        }
    }

    fn agent(&self, world: &mut World, letter: &[u8]) {
        let mut message = Message::parse(letter).expect("ours");
        let (key, mut out) = (message.key, Vec::new());
        let is_plain = matches!(message.op, Op::Put | Op::Delete);
        match self.broken {
            Broken::Runs if message.op == Op::Resume => {
                let resume = Message { request: world.epoch, ..message };
                world.agent.message(0, (), &resume, &mut out);
            }
            Broken::Numbers if matches!(message.op, Op::FenceOk | Op::UpdateOk) => {
                message.client = world.epoch;
            }
            Broken::Fences if is_plain => {
                let stamp = Stamp { boot: u32::MAX, install: u32::MAX, writes: 0 };
                let forget = Message { stamp, ..Message::new(Op::Evicted, 0, 0, key) };
                world.agent.message(0, (), &forget, &mut Vec::new());
            }
            Broken::Forgets
                if world.applied.contains(&(message.client, message.request + WINDOW)) =>
            {
                world.agent.forget_windows();
            }
            _ => {}
        }
        world.agent.message(0, (), &message, &mut out);
        if self.broken == Broken::Held && is_plain {
            world.agent.release(key, 2, &mut out);
        }
        self.act(world, out);
    }

    fn tick(&self, world: &mut World) {
        let mut out = Vec::new();
        world.agent.tick(0, &mut out);
        self.act(world, out);
    }

    /// Takes a step; `None` if it cannot be.
    fn step(&self, next: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Arrives(To::Agent, letter) => self.agent(next, &letter),
            Step::Arrives(to, letter) => {
                let key = Message::parse(&letter).expect("ours").key;
                let entry = next.device.entry(key);
                self.device(next, to, &letter, entry);
            }
            Step::Begins(to, letter) => {
                next.left.slow -= 1;
                let key = Message::parse(&letter).expect("ours").key;
                let entry = next.device.entry(key);
                next.slow = Some((to, letter, entry));
            }
            Step::Ends => {
                let (to, letter, entry) = next.slow.take()?;
                self.device(next, to, &letter, entry);
                next.device.settle();
            }
            Step::Install(key) => {
                next.left.installs -= 1;
                self.install(next, key)?;
            }
            Step::Evict => {
                next.left.evictions -= 1;
                self.evict(next);
            }
            Step::Full => {
                next.left.full = false;
                next.device.status = Status::of(1, WRITES_MAX - 1);
            }
            Step::Reboot => {
                next.left.reboots -= 1;
                let boot = next.device.boot() + u32::from(self.broken != Broken::Boots);
                (next.device, next.slow, next.resumed) = (Device::new(boot), None, 0);
            }
            Step::Crash => {
                next.left.crashes -= 1;
                next.epoch += 1;
                (next.agent, next.said) = (next.agent.again(next.epoch), 0);
                self.tick(next);
            }
            Step::Next => {
                next.left.next = false;
                if self.broken != Broken::Early {
                    next.ended = Some((0, 1));
                }
                self.send_write(next, 0, a_window_later());
            }
            Step::Patience => self.tick(next),
        }
        if self.tidy {
            next.tidy();
        }
        next.agent.forget_tries(next.said);
        Some(())
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            device: Device::new(1),
            slow: None,
            agent: Agent::new(SETTINGS, 1),
            epoch: 1,
            said: 0,
            resumed: 1,
            store: BTreeMap::new(),
            applied: BTreeSet::new(),
            ended: None,
            wrong: None,
            network: BTreeSet::new(),
            left: self.budget,
        };
        for (client, &(_, key)) in self.writes.iter().enumerate() {
            self.send_write(&mut world, client, 1);
            if self.budget.slow > 0 {
                world.send(To::Device, &Message::new(Op::Get, 100, 1, key));
            }
        }
        // The first run was answered before anything was cached.
        let resume = Message::new(Op::Resume, 0, 1, 0);
        world.agent.message(0, (), &resume, &mut Vec::new());
        world.send(To::Agent, &resume);
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (to, letter) in &world.network {
            steps.push(Step::Arrives(*to, letter.clone()));
            if *to != To::Agent && world.left.slow > 0 && world.slow.is_none() {
                steps.push(Step::Begins(*to, letter.clone()));
            }
        }
        let Budget { installs, evictions, reboots, crashes, full, next, .. } = world.left;
        let is_cached = world.device.key().is_some();
        for key in KEYS {
            if installs > 0 && !is_cached && self.writes.iter().any(|write| write.1 == key) {
                steps.push(Step::Install(key));
            }
        }
        let may = [
            (world.slow.is_some(), Step::Ends),
            (evictions > 0 && is_cached, Step::Evict),
            (full && is_cached && world.device.status.install() == 1, Step::Full),
            (reboots > 0, Step::Reboot),
            (crashes > 0, Step::Crash),
            (next, Step::Next),
            (world.agent.is_due(), Step::Patience),
        ];
        steps.extend(may.into_iter().filter(|may| may.0).map(|may| may.1));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.step(&mut next, step)?;
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is handed out is in the store", |_, world: &World| {
                let (key, value) = (world.device.key(), world.device.value());
                let stored = key.map(|key| world.store.get(&key).map(|value| value[0]));
                world.wrong != Some(Wrong::Stale)
                    && (stored.is_none() || value.is_none() || value == stored)
            }),
            Property::always("a request is applied once", |_, world: &World| {
                world.wrong != Some(Wrong::Twice)
            }),
            Property::always("what is done is applied", |_, world: &World| {
                world.wrong != Some(Wrong::Lied)
            }),
            Property::always("no open request is too old", |_, world: &World| {
                world.wrong != Some(Wrong::Refused)
            }),
            Property::always("all comes to rest", |model, world| model.comes_to_rest(world)),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        let writes = world.device.status.writes();
        writes <= self.budget.writes || self.budget.full && writes >= WRITES_MAX - 1
    }
}
