//! The device's pipeline and an agent, with clients and a store, over links that lose, repeat and
//! reorder; keys are installed and evicted, the device and the agent start anew.
//!
//! The store applies writes of a key one after the other, which gives each a version. A read has to
//! see a version that is not older than what any answer had shown before it began, and a write has
//! to be applied once. Besides, after every step: what the device would hand out is what the store
//! has.

use super::*;
use crate::pipeline::{Config, Counts, Packet, Pipeline, Table, Verdict};
use crate::slots::VALUE_MAX;
use overbank::sketch;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

const KEYS: u128 = 3;
const CLIENTS: usize = 4;
/// Messages under way at most; others are lost.
const FLIGHTS_MAX: usize = 200;
/// Ports of clients and of the server.
const CLIENT: u16 = 1;
const SERVER: u16 = 7;

/// Client and request of a write.
type Name = (u64, u64);

/// A message on its way.
#[derive(Clone)]
enum Flight {
    /// To the device by a port; from a client, if it has a number.
    Device(u16, usize, Letter),
    Agent(usize, Letter),
    Client(usize, Letter),
}

/// An operation of a client that is under way.
struct Doing {
    letter: Letter,
    /// The version of the key that it must see at least.
    floor: u64,
}

#[derive(Default)]
struct Client {
    requests: u64,
    doing: Option<Doing>,
}

/// How much goes wrong, in a hundred.
#[derive(Clone, Copy)]
struct Faults {
    lost: u32,
    again: u32,
    around: u32,
    installs: bool,
    restarts: bool,
}

struct World {
    random: Pcg64Mcg,
    faults: Faults,
    now: Micros,
    table: Table,
    boot: u32,
    pipeline: Pipeline,
    agent: Agent<usize>,
    epoch: u64,
    clients: Vec<Client>,
    flights: Vec<Flight>,
    /// What the store was asked for and has not done; what it has done and not answered.
    asked: Vec<(u64, Key, Ask, Option<Name>)>,
    done: Vec<(u64, Answer, Option<Name>)>,
    /// Every value that a key had, by version.
    store: HashMap<Key, Vec<Value>>,
    /// The version that answers have shown.
    shown: HashMap<Key, u64>,
    /// The version that each write has made.
    applied: HashMap<Name, u64>,
    adopting: HashMap<Key, Stamp>,
    /// The last run of the agent that was answered.
    resumed: u64,
    values: u64,
    finished: u64,
    hits: u64,
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let table = Table::new(Config { items: 4, indexes_log2: 2, passes: 1 }, 1).expect("memory");
        let (counts, _) = Counts::new(4);
        let settings = sketch::Settings { threshold: 9, sample_log2: 0 };
        let sketch = sketch::Config { counters_log2: 4, bloom_log2: 6 };
        let (counter, _) = sketch.build(1, settings).expect("memory");
        let pipeline = Pipeline::new(table.reader(), table.arrays(), counts, counter, 3);
        World {
            random: Pcg64Mcg::seed_from_u64(seed),
            faults,
            now: 0,
            table,
            boot: 1,
            pipeline,
            agent: Agent::new(Settings::default(), 1),
            epoch: 1,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            flights: Vec::new(),
            asked: Vec::new(),
            done: Vec::new(),
            store: HashMap::new(),
            shown: HashMap::new(),
            applied: HashMap::new(),
            adopting: HashMap::new(),
            resumed: 0,
            values: 0,
            finished: 0,
            hits: 0,
        }
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn key(&mut self) -> Key {
        self.random.random_range(0..KEYS)
    }

    fn versions(&mut self, key: Key) -> &mut Vec<Value> {
        self.store.entry(key).or_insert_with(|| vec![None])
    }

    /// One thing happens.
    fn step(&mut self) {
        self.now += self.random.random_range(0..50);
        match self.random.random_range(0..100) {
            0..50 => self.deliver(),
            50..70 => self.store(),
            70..82 => self.client(),
            82..90 => self.tick(),
            90..97 if self.faults.installs => self.controller(),
            97 if self.faults.restarts && self.percent(4) => self.restart(),
            _ => {}
        }
        self.check();
    }

    fn send(&mut self, flight: Flight) {
        if self.percent(self.faults.lost) {
            return;
        }
        if self.percent(self.faults.again) {
            self.flights.push(flight.clone());
        }
        self.flights.push(flight);
        while self.flights.len() > FLIGHTS_MAX {
            let at = self.random.random_range(0..self.flights.len());
            self.flights.swap_remove(at);
        }
    }

    fn deliver(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.flights.len());
        match self.flights.swap_remove(at) {
            Flight::Device(port, from, letter) => self.device(port, from, &letter),
            Flight::Agent(from, letter) => {
                let mut out = Vec::new();
                self.agent.message(self.now, from, &letter.message(), &mut out);
                self.act(out);
            }
            Flight::Client(to, letter) => self.answer(to, &letter),
        }
    }

    fn device(&mut self, port: u16, from: usize, letter: &Letter) {
        let packet = Packet { message: letter.message(), port };
        let (mut verdict, mut room) = ([Verdict::Control], [[0; VALUE_MAX]]);
        self.pipeline.burst(&[packet], &mut verdict, &mut room);
        let on = |letter: Letter| match port {
            CLIENT => Flight::Agent(from, letter),
            _ => Flight::Client(from, letter),
        };
        match verdict[0] {
            Verdict::Forward => self.send(on(letter.clone())),
            Verdict::Mark(op, stamp) => {
                let head = Message { op, stamp, ..letter.head };
                self.send(on(Letter { head, ..letter.clone() }));
            }
            Verdict::Answer { op, flags, status, stamp, len } => {
                let head = Message { flags, stamp, ..letter.head.answer(op, status) };
                let value: Arc<[u8]> = room[0][..len.into()].into();
                self.hits += u64::from(op == Op::GetOk);
                let letter = Letter { head, value };
                self.send(match port {
                    CLIENT => Flight::Client(from, letter),
                    _ => Flight::Agent(from, letter),
                });
            }
            Verdict::Control => self.control(&letter.head),
            Verdict::Drop(_) => {}
        }
    }

    /// What agents say to the controller.
    fn control(&mut self, said: &Message<'static>) {
        match said.op {
            Op::Adopted if self.adopting.get(&said.key) == Some(&said.stamp) => {
                self.adopting.remove(&said.key);
            }
            Op::Hello => {
                if said.request != self.resumed {
                    (0..KEYS).for_each(|key| self.evict(key));
                    self.resumed = said.request;
                }
                let resume = said.answer(Op::Resume, Status::Ok);
                self.send(Flight::Agent(0, Letter { head: resume, value: Arc::default() }));
            }
            Op::Refresh if self.table.entry(said.key).is_some() => self.evict(said.key),
            _ => {}
        }
    }

    fn evict(&mut self, key: Key) {
        self.adopting.remove(&key);
        let Some(install) = self.table.evict(key) else { return };
        let stamp = Stamp { boot: self.boot, install, writes: 0 };
        let head = Message { stamp, ..Message::new(Op::Evicted, 0, 0, key) };
        self.send(Flight::Agent(0, Letter { head, value: Arc::default() }));
    }

    fn controller(&mut self) {
        self.table.settle(self.table.resting());
        let key = self.key();
        match self.random.random_range(0..16) {
            0 => self.evict(key),
            1..12 => {
                if let Ok(installed) = self.table.install(key, SERVER, 8) {
                    let install = installed.install;
                    let stamp = Stamp { boot: self.boot, install, writes: 0 };
                    self.adopting.insert(key, stamp);
                }
            }
            _ => {}
        }
        for (&key, &stamp) in &self.adopting.clone() {
            let head = Message { stamp, ..Message::new(Op::Adopt, 0, 0, key) };
            self.send(Flight::Agent(0, Letter { head, value: Arc::default() }));
        }
    }

    /// The device or the agent starts anew.
    fn restart(&mut self) {
        if self.percent(50) {
            (0..KEYS).for_each(|key| self.evict(key));
            self.table.settle(self.table.resting());
            self.boot += 1;
            self.table.begin(self.boot).expect("empty");
            return;
        }
        // What the store was asked for it does or not; what it has done is remembered.
        while !self.asked.is_empty() {
            if self.percent(50) {
                self.store_one();
            } else {
                self.asked.pop();
            }
        }
        self.epoch += 1;
        self.agent = Agent::new(Settings::default(), self.epoch);
        for (_, answer, name) in std::mem::take(&mut self.done) {
            if let (Answer::Written, Some(name)) = (answer, name) {
                self.finish(name);
            }
        }
        for &name in self.applied.clone().keys() {
            self.finish(name);
        }
    }

    /// A new agent remembers what is in the store.
    fn finish(&mut self, name: Name) {
        if self.agent.windows.known(name) == Known::New {
            self.agent.windows.begin(self.now, name);
            self.agent.windows.done(name, Status::Ok);
        }
    }

    fn tick(&mut self) {
        self.now += self.random.random_range(0..3000);
        let mut out = Vec::new();
        self.agent.tick(self.now, &mut out);
        self.act(out);
    }

    fn act(&mut self, out: Vec<Action<usize>>) {
        for action in out {
            match action {
                Action::Reply(to, letter) => self.send(Flight::Device(SERVER, to, letter)),
                Action::Device(letter) => self.send(Flight::Device(SERVER, 0, letter)),
                Action::Store { number, key, ask } => {
                    let write = self.agent.lines.get(&key).and_then(Line::first);
                    let name = matches!(ask, Ask::Write(_)).then_some(write).flatten();
                    self.asked.push((number, key, ask, name));
                }
            }
        }
    }

    fn store(&mut self) {
        if self.percent(50) {
            self.store_one();
        } else if !self.done.is_empty() {
            let at = self.random.random_range(0..self.done.len());
            let (number, answer, _) = self.done.swap_remove(at);
            let mut out = Vec::new();
            self.agent.stored(self.now, number, answer, &mut out);
            self.act(out);
        }
    }

    fn store_one(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.asked.len());
        let (number, key, ask, name) = self.asked.swap_remove(at);
        let versions = self.versions(key);
        let answer = match ask {
            Ask::Read => Answer::Read(versions.last().cloned().flatten()),
            Ask::Write(value) => {
                versions.push(value);
                let version = versions.len() as u64 - 1;
                let name = name.expect("of a write");
                assert_eq!(self.applied.insert(name, version), None, "applied twice: {name:?}");
                Answer::Written
            }
        };
        self.done.push((number, answer, name));
    }

    /// A client begins something, or repeats what was not answered.
    fn client(&mut self) {
        let (at, key, kind) =
            (self.random.random_range(0..CLIENTS), self.key(), self.random.random_range(0..16));
        if self.clients[at].doing.is_none() {
            let op = match kind {
                0..2 => Op::Put,
                2 => Op::Delete,
                _ => Op::Get,
            };
            self.values += 1;
            let value = if op == Op::Put { &self.values.to_be_bytes()[..] } else { &[] };
            let floor = self.shown.get(&key).copied().unwrap_or(0);
            let client = &mut self.clients[at];
            client.requests += 1;
            let head = Message::new(op, at as u64, client.requests, key);
            client.doing = Some(Doing { letter: Letter { head, value: value.into() }, floor });
        }
        let Some(doing) = &self.clients[at].doing else { return };
        let letter = doing.letter.clone();
        let is_write = letter.head.op.is_write();
        let around = is_write && self.percent(self.faults.around);
        self.send(match around {
            true => Flight::Agent(at, letter),
            false => Flight::Device(CLIENT, at, letter),
        });
    }

    fn answer(&mut self, to: usize, letter: &Letter) {
        let head = &letter.head;
        let Some(doing) =
            self.clients[to].doing.take_if(|doing| doing.letter.head.request == head.request)
        else {
            return;
        };
        self.finished += 1;
        let key = head.key;
        let version = match head.op {
            Op::WriteOk => self.applied[&(to as u64, head.request)],
            Op::GetOk | Op::NotFound => {
                let value = (head.op == Op::GetOk).then(|| letter.value.clone());
                let floor = doing.floor as usize;
                let versions = self.versions(key);
                let seen = versions[floor..].iter().position(|known| *known == value);
                (floor + seen.expect("neither old nor invented")) as u64
            }
            op => panic!("{op:?} {:?}", head.status),
        };
        let shown = self.shown.entry(key).or_default();
        *shown = version.max(*shown);
    }

    /// What the device would hand out is what the store has.
    fn check(&mut self) {
        for key in 0..KEYS {
            let get = Packet { message: Message::new(Op::Get, 9, 9, key), port: CLIENT };
            let (mut verdict, mut room) = ([Verdict::Control], [[0; VALUE_MAX]]);
            self.pipeline.burst(&[get], &mut verdict, &mut room);
            let Verdict::Answer { op, len, .. } = verdict[0] else { continue };
            let value: Value = (op == Op::GetOk).then(|| room[0][..len.into()].into());
            let last = self.versions(key).last().cloned().flatten();
            assert_eq!(value, last, "key {key}");
        }
    }

    /// Without further faults, all that was begun ends, and what is cached is valid.
    fn settle(&mut self) {
        self.faults = Faults { lost: 0, again: 0, around: 0, installs: false, restarts: false };
        for _ in 0..60_000 {
            self.step();
        }
        let mut rounds = 0;
        while self.clients.iter().any(|client| client.doing.is_some()) {
            rounds += 1;
            assert!(rounds < 100_000, "a client waits for ever");
            (0..8).for_each(|_| self.deliver());
            (0..4).for_each(|_| self.store());
            self.tick();
            for client in 0..CLIENTS {
                let doing = self.clients[client].doing.as_ref();
                if let Some(letter) = doing.map(|doing| doing.letter.clone()) {
                    self.send(Flight::Device(CLIENT, client, letter));
                }
            }
        }
        // A write that was the last to pass may have been lost: the controller asks for the value.
        for nth in 0..20_000 {
            for key in (0..KEYS).filter(|_| nth % 4000 == 0) {
                if let Some(status) = self.table.status(key).filter(|status| !status.is_valid()) {
                    let stamp = Stamp { writes: 0, ..status.stamp(self.boot) };
                    let head = Message { stamp, ..Message::new(Op::Adopt, 0, 0, key) };
                    self.send(Flight::Agent(0, Letter { head, value: Arc::default() }));
                }
            }
            (0..4).for_each(|_| self.deliver());
            (0..4).for_each(|_| self.store());
            self.tick();
        }
        for key in 0..KEYS {
            let status = self.table.status(key);
            assert!(status.is_none_or(|status| status.is_valid()), "key {key}: {status:?}");
        }
    }
}

#[test]
fn answers_are_of_one_order_whatever_is_lost_repeated_or_restarted() {
    let asked = std::env::var("OVERBANK_AGENT_SEEDS").ok();
    let seeds: u64 = asked.map_or(24, |text| text.parse().expect("a number"));
    let calm = Faults { lost: 0, again: 0, around: 0, installs: true, restarts: false };
    let kinds = [
        calm,
        Faults { lost: 10, again: 10, ..calm },
        Faults { lost: 5, again: 20, around: 20, ..calm },
        Faults { lost: 5, again: 10, around: 10, restarts: true, ..calm },
    ];
    let (mut finished, mut hits) = (0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, kinds[seed as usize % kinds.len()]);
        for _ in 0..60_000 {
            world.step();
        }
        world.settle();
        finished += world.finished;
        hits += world.hits;
    }
    assert!(finished > 1000 * seeds && hits > 100 * seeds, "{finished} finished, {hits} hits");
}

#[test]
fn an_agent_serves_after_its_quiet_time_and_its_device() {
    let get = Message::new(Op::Get, 1, 1, 7);
    let served = |agent: &mut Agent<usize>, now| {
        let mut out = Vec::new();
        agent.message(now, 0, &get, &mut out);
        !out.is_empty()
    };
    let settings = Settings { quiet_us: 1000, ..Settings::DEFAULT };
    let mut alone = Agent::alone(settings, 5);
    assert!(!served(&mut alone, 999) && served(&mut alone, 1000));
    let mut out = Vec::new();
    alone.tick(1000, &mut out);
    assert!(out.is_empty(), "no device to greet");

    let mut agent = Agent::new(settings, 5);
    assert!(!served(&mut agent, 1000));
    agent.message(0, 0, &Message::new(Op::Resume, 0, 4, 0), &mut Vec::new());
    assert!(!agent.serves(1000), "the answer to another run");
    agent.message(0, 0, &Message::new(Op::Resume, 0, 5, 0), &mut Vec::new());
    let adopt = Message {
        stamp: Stamp { boot: 1, install: 1, writes: 0 },
        ..Message::new(Op::Adopt, 0, 0, 7)
    };
    agent.message(999, 0, &adopt, &mut out);
    assert!(out.is_empty() && !served(&mut agent, 999) && served(&mut agent, 1000));
    assert_eq!((agent.totals().early, alone.totals().early), (2, 1));
}

#[test]
fn an_unanswered_hello_is_repeated_ever_more_rarely() {
    let mut agent = Agent::<usize>::new(Settings::DEFAULT, 5);
    let (mut now, mut said) = (0, Vec::new());
    while now < 60_000_000 {
        let mut out = Vec::new();
        now = agent.tick(now, &mut out);
        said.push(out.len());
    }
    assert!(
        said.iter().all(|&said| said == 1) && (100..140).contains(&said.len()),
        "{}",
        said.len()
    );
}

/// A device that takes ten times as long to answer as the agent waits. A fence that comes again
/// counts another write there: without longer waits, no update would ever be the last one's.
#[test]
fn a_slow_device_has_the_value_in_the_end() {
    let settings = Settings::DEFAULT;
    let delay = 10 * settings.retry_us;
    let mut table = Table::new(Config { items: 1, indexes_log2: 0, passes: 1 }, 1).expect("memory");
    let mut pipeline = Pipeline::of_one_item(&table);
    let install = table.install(7, SERVER, 16).expect("room").install;
    let mut agent = Agent::<usize>::alone(settings, 5);
    let (mut out, mut under_way, mut fences) = (Vec::new(), Vec::<(Micros, Letter)>::new(), 0);
    let stamp = Stamp { boot: 1, install, writes: 0 };
    agent.message(0, 0, &Message { stamp, ..Message::new(Op::Adopt, 0, 0, 7) }, &mut out);
    let valid_after = (0..1_000_000).step_by(100).find(|&now| {
        agent.tick(now, &mut out);
        while let Some((_, letter)) = under_way.pop_if(|(due, _)| *due <= now) {
            let packet = Packet { message: letter.message(), port: SERVER };
            let (mut verdict, mut room) = ([Verdict::Control], [[0; VALUE_MAX]]);
            pipeline.burst(&[packet], &mut verdict, &mut room);
            if let Verdict::Answer { op, status, stamp, .. } = verdict[0] {
                let answer = Message { stamp, ..letter.head.answer(op, status) };
                agent.message(now, 0, &answer, &mut out);
            }
        }
        for action in std::mem::take(&mut out) {
            match action {
                Action::Device(letter) => {
                    fences += u32::from(letter.head.op == Op::Fence);
                    under_way.insert(0, (now + delay, letter));
                }
                Action::Store { number, .. } => {
                    let value = Some(Arc::from([1; 16]));
                    agent.stored(now, number, Answer::Read(value), &mut out);
                }
                Action::Reply(..) => {}
            }
        }
        table.status(7).is_some_and(|status| status.is_valid())
    });
    assert!(
        valid_after.is_some_and(|after| after < 500_000) && fences < 10,
        "{valid_after:?} {fences}"
    );
}

/// However often a write comes again, and the device stamps it anew, while the store is slow.
#[test]
fn the_store_is_asked_for_one_read_of_a_key_at_a_time() {
    let mut agent = Agent::<usize>::alone(Settings::DEFAULT, 5);
    let mut out = Vec::new();
    let mut put = |agent: &mut Agent<usize>, writes| {
        let stamp = Stamp { boot: 1, install: 1, writes };
        let put = Message { stamp, value: b"value", ..Message::new(Op::PutCached, 1, 1, 7) };
        agent.message(0, 0, &put, &mut out);
        let asked = out.drain(..).filter_map(|action| match action {
            Action::Store { number, .. } => Some(number),
            _ => None,
        });
        asked.collect::<Vec<u64>>()
    };
    let [write] = put(&mut agent, 1)[..] else { panic!("a write") };
    agent.stored(0, write, Answer::Written, &mut Vec::new());
    let asked: Vec<u64> = (2..50).flat_map(|writes| put(&mut agent, writes)).collect();
    let [first] = asked[..] else { panic!("{asked:?}") };
    // What was read before the last stamp is not for it.
    let mut out = Vec::new();
    let value = Answer::Read(Some(Arc::from(*b"value")));
    agent.stored(0, first, value.clone(), &mut out);
    let [Action::Store { number: second, ask: Ask::Read, .. }] = out[..] else { panic!("{out:?}") };
    out.clear();
    agent.stored(0, second, value, &mut out);
    let [Action::Device(Letter { head, .. })] = &out[..] else { panic!("{out:?}") };
    assert_eq!((head.op, head.stamp.writes), (Op::Update, 49));
}
