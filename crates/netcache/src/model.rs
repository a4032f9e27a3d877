//! The protocol under stateright: the product's own pipeline and agent, one key, and every order of
//! what may happen.
//!
//! Messages are a set that only grows: each may arrive never, late, or again. A state has the
//! device's entry, the agent, the store, which answers at once, and the writes that were applied.
//! From there the checker chooses each step: the arrival of a message at the device, or at the
//! agent by a way around the device; an installation, an eviction; another run of the device or of
//! the agent; what the agent does after some time.
//!
//! What must hold in each state: a value that the device hands out is the store's; a request is
//! applied once; what is answered as done is applied. So a read has its instant when the device
//! answers it or the store does, and all operations have one order.
//!
//! [`Broken`] names what the protocol rests on; without one of them, a counterexample is found.
//!
//! All states of two writes, each of which may also come by no device, were seen without a finding:
//! 817,244 of PUT and PUT, 801,700 of PUT and DELETE (2026-11-25,
//! `OVERBANK_PROTOCOL_STATES=100000000 cargo test -p overbank-netcache --lib model`). With an
//! eviction, another run of the device or of the agent, there are more than fit into 8 GB. A test
//! goes as far as its budget, the shortest orders first.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::agent::{Action, Agent, Answer, Ask, Letter, Settings, Value};
use crate::entry::Entry;
use crate::pipeline::{Length, Packet, Pipeline, Status, Table, Verdict};
use crate::slots::{Place, VALUE_MAX};
use overbank_wire::netcache::{Key, Message, Op, Stamp, Status as Said};

const KEY: Key = 1;
const CLIENT: u16 = 1;
const SERVER: u16 = 7;
const ENTRY: Entry =
    Entry { place: Place { index: 0, stages: 1, units: 1 }, item: 0, port: SERVER };
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
    /// The agent forgets which requests it has applied.
    Windows,
    /// An installation gets the number that the one before had.
    Installs,
    /// The controller answers HELLO without evicting anything.
    Resumes,
    /// The agent takes the answer to an earlier run for that to this one.
    Runs,
}

/// What may happen besides messages, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    installs: u32,
    evictions: u32,
    reboots: u32,
    crashes: u32,
    /// Stamps of an installation.
    writes: u32,
    /// Whether writes may also come by no device.
    around: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    boot: u32,
    /// The last number of an installation.
    install: u32,
    /// The device's entry: its status, and the value behind it.
    device: Option<(Status, Length, u8)>,
    agent: Agent<u8>,
    epoch: u64,
    resumed: u64,
    store: Value,
    /// Writes in the store, by client; each client has one.
    applied: BTreeSet<u64>,
    /// Whether a client was told that its write is done, which is not.
    lied: bool,
    twice: bool,
    /// Where to, and what.
    network: BTreeSet<(To, Vec<u8>)>,
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
    Arrives(To, Vec<u8>),
    /// A client's write comes by no device.
    Around(Vec<u8>),
    Install,
    Evict,
    Reboot,
    Crash,
    Patience,
}

struct Protocol {
    /// What clients write.
    writes: Vec<Op>,
    budget: Budget,
    broken: Broken,
}

fn bytes(letter: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; letter.emit_len()];
    letter.emit(&mut bytes).expect("room");
    bytes
}

thread_local! {
    static DEVICE: std::cell::RefCell<Pipeline> = std::cell::RefCell::new({
        let config = crate::pipeline::Config { items: 1, indexes_log2: 0, passes: 1 };
        let table = Table::new(config, 0);
        Pipeline::of_one_item(&table.expect("memory"))
    });
}

impl Protocol {
    /// Passes a message through the product's pipeline.
    fn pass(world: &mut World, message: &Message<'_>, port: u16) -> (Verdict, Vec<u8>) {
        DEVICE.with_borrow_mut(|device| {
            let entry = world.device.map(|(status, length, value)| {
                device.set(ENTRY, (world.boot, status), (length, &[value]));
                ENTRY
            });
            let mut room = [0; VALUE_MAX];
            let packet = Packet { message: *message, port };
            let verdict = device.one(&packet, entry, &mut room);
            if entry.is_some() {
                let (status, length, value) = device.of(ENTRY);
                world.device = Some((status, length, value));
            }
            (verdict, room.to_vec())
        })
    }

    fn device(&self, world: &mut World, to: To, letter: &[u8]) {
        let message = Message::parse(letter).expect("ours");
        let mut message = message;
        let port = if to == To::Device { CLIENT } else { SERVER };
        if self.broken == Broken::Stamps
            && message.op == Op::Update
            && let Some((status, ..)) = world.device
        {
            message.stamp = status.stamp(world.boot);
        }
        let (verdict, room) = Protocol::pass(world, &message, port);
        let on = if to == To::Device { Some(To::Agent) } else { None };
        let mut send = |to: Option<To>, message: &Message<'_>| {
            to.map(|to| world.network.insert((to, bytes(message))));
        };
        match verdict {
            Verdict::Forward => send(on, &message),
            Verdict::Mark(op, stamp) => send(on, &Message { op, stamp, ..message }),
            Verdict::Answer { op, flags, status, stamp, len } => {
                let answer = message.answer(op, status);
                let value = &room[..len.into()];
                let back = (to == To::Back).then_some(To::Agent);
                send(back, &Message { flags, stamp, value, ..answer });
            }
            Verdict::Control if message.op == Op::Hello => {
                if message.request != world.resumed && self.broken != Broken::Resumes {
                    self.evict(world);
                }
                world.resumed = message.request;
                let resume = message.answer(Op::Resume, Said::Ok);
                world.network.insert((To::Agent, bytes(&resume)));
            }
            Verdict::Control | Verdict::Drop(_) => {}
        }
    }

    fn evict(&self, world: &mut World) {
        if let Some((status, ..)) = world.device.take() {
            let stamp = Stamp { writes: 0, ..status.stamp(world.boot) };
            let evicted = Message { stamp, ..Message::new(Op::Evicted, 0, 0, KEY) };
            world.network.insert((To::Agent, bytes(&evicted)));
        }
    }

    fn act(&self, world: &mut World, mut out: Vec<Action<u8>>) {
        while let Some(action) = (!out.is_empty()).then(|| out.remove(0)) {
            match action {
                Action::Reply(client, Letter { head, .. }) => {
                    world.lied |= head.op == Op::WriteOk && !world.applied.contains(&client.into());
                }
                Action::Device(letter) => {
                    world.network.insert((To::Back, bytes(&letter.message())));
                }
                Action::Store { number, ask, .. } => {
                    let answer = match ask {
                        Ask::Read => Answer::Read(world.store.clone()),
                        Ask::Write(value) => {
                            let client = world.agent.writing(KEY).expect("it writes");
                            world.twice |= !world.applied.insert(client);
                            world.store = value;
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
        let message = Message::parse(letter).expect("ours");
        let mut out = Vec::new();
        let from = message.client as u8;
        if self.broken == Broken::Runs && message.op == Op::Resume {
            let resume = Message { request: world.epoch, ..message };
            world.agent.message(0, from, &resume, &mut out);
        }
        if self.broken == Broken::Fences && matches!(message.op, Op::Put | Op::Delete) {
            let stamp = Stamp { boot: u32::MAX, install: u32::MAX, writes: 0 };
            let forget = Message { stamp, ..Message::new(Op::Evicted, 0, 0, KEY) };
            world.agent.message(0, from, &forget, &mut Vec::new());
        }
        world.agent.message(0, from, &message, &mut out);
        self.act(world, out);
    }

    fn tick(&self, world: &mut World) {
        let mut out = Vec::new();
        world.agent.tick(0, &mut out);
        self.act(world, out);
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            boot: 1,
            install: 0,
            device: None,
            agent: Agent::new(SETTINGS, 1),
            epoch: 1,
            resumed: 0,
            store: None,
            applied: BTreeSet::new(),
            lied: false,
            twice: false,
            network: BTreeSet::new(),
            left: self.budget,
        };
        for (client, &op) in self.writes.iter().enumerate() {
            let value = [client as u8 + 1];
            let value = if op == Op::Put { &value[..] } else { &[] };
            let write = Message { value, ..Message::new(op, client as u64, 1, KEY) };
            world.network.insert((To::Device, bytes(&write)));
        }
        // The first run was answered before anything was cached.
        let resume = Message::new(Op::Resume, 0, 1, 0);
        world.agent.message(0, 0, &resume, &mut Vec::new());
        world.network.insert((To::Agent, bytes(&resume)));
        world.resumed = 1;
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (to, letter) in &world.network {
            steps.push(Step::Arrives(*to, letter.clone()));
            if *to == To::Device && world.left.around {
                steps.push(Step::Around(letter.clone()));
            }
        }
        let Budget { installs, evictions, reboots, crashes, .. } = world.left;
        let is_cached = world.device.is_some();
        let may = [
            (installs > 0 && !is_cached, Step::Install),
            (evictions > 0 && is_cached, Step::Evict),
            (reboots > 0, Step::Reboot),
            (crashes > 0, Step::Crash),
            (world.agent.is_due(), Step::Patience),
        ];
        steps.extend(may.into_iter().filter(|may| may.0).map(|may| may.1));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Arrives(To::Agent, letter) | Step::Around(letter) => {
                self.agent(&mut next, &letter);
            }
            Step::Arrives(to, letter) => self.device(&mut next, to, &letter),
            Step::Install => {
                next.left.installs -= 1;
                if self.broken != Broken::Installs || next.install == 0 {
                    next.install += 1;
                }
                let status = Status::of(next.install);
                next.device = Some((status, Length { bytes: 0, absent: false }, 0));
                let stamp = status.stamp(next.boot);
                let adopt = Message { stamp, ..Message::new(Op::Adopt, 0, 0, KEY) };
                next.network.insert((To::Agent, bytes(&adopt)));
            }
            Step::Evict => {
                next.left.evictions -= 1;
                self.evict(&mut next);
            }
            Step::Reboot => {
                next.left.reboots -= 1;
                (next.boot, next.install, next.device) = (next.boot + 1, 0, None);
            }
            Step::Crash => {
                next.left.crashes -= 1;
                next.epoch += 1;
                next.agent = next.agent.again(next.epoch);
                self.tick(&mut next);
            }
            Step::Patience => self.tick(&mut next),
        }
        next.agent.forget_tries();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is handed out is in the store", |_, world: &World| {
                world.device.is_none_or(|(status, length, value)| {
                    let value: Value =
                        (!length.absent).then(|| [value][..length.bytes.into()].into());
                    !status.is_valid() || value == world.store
                })
            }),
            Property::always("a request is applied once", |_, world: &World| !world.twice),
            Property::always("what is done is applied", |_, world: &World| !world.lied),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.device.is_none_or(|(status, ..)| status.writes() <= self.budget.writes)
    }
}

const CALM: Budget =
    Budget { installs: 1, evictions: 0, reboots: 0, crashes: 0, writes: 3, around: true };
/// With little else, so that all states can be seen.
const TWICE: Budget = Budget { installs: 2, writes: 2, around: false, ..CALM };

/// Returns what was found, and how many states there are, or were seen in
/// `OVERBANK_PROTOCOL_STATES` steps.
fn explore(writes: &[Op], budget: Budget, broken: Broken) -> (Option<&'static str>, usize) {
    let asked = std::env::var("OVERBANK_PROTOCOL_STATES").ok();
    let states = asked.map_or(500_000, |text| text.parse().expect("a number"));
    let checker = Protocol { writes: writes.to_vec(), budget, broken }
        .checker()
        .threads(2)
        .target_state_count(states)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    (checker.discoveries().into_keys().next(), checker.unique_state_count())
}

#[test]
fn no_order_of_messages_shows_an_old_value() {
    let cases = [
        (&[Op::Put, Op::Put][..], CALM),
        (&[Op::Put, Op::Delete], CALM),
        (&[Op::Put], Budget { evictions: 1, ..TWICE }),
        (&[Op::Put], Budget { reboots: 1, ..TWICE }),
        (&[Op::Put], Budget { crashes: 1, ..TWICE }),
    ];
    for (writes, budget) in cases {
        let (found, states) = explore(writes, budget, Broken::Nothing);
        eprintln!("{writes:?} {budget:?}: {states} states");
        assert_eq!(found, None, "{writes:?} {budget:?}");
        assert!(states > 1000, "{states} states");
    }
}

#[test]
fn each_part_of_the_protocol_is_needed() {
    let [put, puts] = [&[Op::Put][..], &[Op::Put, Op::Put]];
    let again = Budget { evictions: 1, ..TWICE };
    let crash = Budget { crashes: 1, ..TWICE };
    let cases = [
        (Broken::Stamps, puts, CALM),
        (Broken::Fences, puts, CALM),
        (Broken::Windows, put, CALM),
        (Broken::Installs, puts, again),
        (Broken::Resumes, puts, crash),
        (Broken::Runs, puts, crash),
    ];
    for (broken, writes, budget) in cases {
        let (found, states) = explore(writes, budget, broken);
        eprintln!("{broken:?}: {found:?} in {states} states");
        assert!(found.is_some(), "{broken:?} is not missed in {states} states");
    }
}
