//! An agent behind a socket: what it takes, drops and counts.

use super::*;
use crate::store::Memory;
use overbank_netcache::agent::Ask;
use overbank_wire::netcache::{Key, Stamp, Status};
use std::net::UdpSocket;

/// A store that counts the writes, whose answers come later.
#[derive(Default)]
struct Late {
    memory: Option<Memory>,
    waiting: Answers,
}

impl Store for Late {
    fn ask(&mut self, number: u64, key: Key, ask: Ask, _: &mut Answers) {
        let memory = self.memory.get_or_insert_with(|| Memory::new(1 << 20));
        memory.ask(number, key, ask, &mut self.waiting);
    }

    fn answers(&mut self, answers: &mut Answers) {
        answers.append(&mut self.waiting);
    }
}

fn setup(device: Option<SocketAddr>) -> Setup {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let (machine, protocol) = (Settings::DEFAULT, Protocol::Stamps);
    Setup { listen, device, receive_bytes: 1 << 20, machine, protocol, rate: None }
}

fn start(setup: &Setup) -> Running {
    Running::start(setup, |_| Ok(Box::new(Memory::new(1 << 20)))).expect("it starts")
}

/// A peer of the agent: a client, or the device.
struct Peer(UdpSocket);

impl Peer {
    fn new(address: &str, agent: &Running) -> Peer {
        let socket = UdpSocket::bind(address).expect("a free address");
        socket.connect(agent.handle().address()).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a setting");
        Peer(socket)
    }

    fn say(&self, message: &Message<'_>) {
        let mut room = [0; DATAGRAM_MAX];
        let len = message.emit(&mut room).expect("room");
        self.0.send(&room[..len]).expect("sent");
    }

    /// The next message of one of these operations.
    fn hear(&self, ops: &[Op]) -> (Message<'static>, Vec<u8>) {
        loop {
            let mut room = [0; DATAGRAM_MAX];
            let len = self.0.recv(&mut room).expect("an answer");
            let message = Message::parse(&room[..len]).expect("a message");
            if ops.contains(&message.op) {
                return (Message { value: &[], ..message }, message.value.to_vec());
            }
        }
    }

    fn ask(&self, message: &Message<'_>) -> (Op, Status, Vec<u8>) {
        self.say(message);
        let answers = [Op::GetOk, Op::NotFound, Op::WriteOk, Op::Error];
        let (answer, value) = self.hear(&answers);
        assert_eq!((answer.client, answer.request), (message.client, message.request));
        (answer.op, answer.status, value)
    }
}

fn message(op: Op, request: u64) -> Message<'static> {
    Message::new(op, 9, request, 5)
}

fn put(request: u64, value: &[u8]) -> Message<'_> {
    Message { value, ..message(Op::Put, request) }
}

/// What was received was handled, or has a reason.
fn closes(totals: &AgentTotals) {
    let refused: u64 = totals.malformed.iter().chain(&totals.dropped).sum();
    assert_eq!(totals.received, totals.handled + refused, "{totals:?}");
}

#[test]
fn without_a_device_an_agent_serves_at_once_and_takes_no_stamps() {
    let agent = start(&setup(None));
    let client = Peer::new("127.0.0.1:0", &agent);
    assert_eq!(client.ask(&message(Op::Get, 1)).0, Op::NotFound);
    assert_eq!(client.ask(&put(2, b"one")).0, Op::WriteOk);
    let stamp = Stamp { boot: 9, install: 9, writes: 9 };
    for op in [Op::PutCached, Op::DeleteCached, Op::Adopt, Op::Resume, Op::Hello, Op::GetOk] {
        client.say(&Message { stamp, ..message(op, 3) });
    }
    assert_eq!(client.ask(&message(Op::Get, 4)), (Op::GetOk, Status::Ok, b"one".to_vec()));
    // The same write again is answered and not done again; a later one is not undone.
    assert_eq!(client.ask(&put(5, b"two")).0, Op::WriteOk);
    assert_eq!(client.ask(&put(2, b"one")).0, Op::WriteOk);
    assert_eq!(client.ask(&message(Op::Get, 6)).2, b"two");
    assert_eq!(client.ask(&message(Op::Delete, 7)).0, Op::WriteOk);
    assert_eq!(client.ask(&message(Op::Get, 8)).0, Op::NotFound);
    let totals = agent.stop();
    closes(&totals);
    assert_eq!(totals.dropped, [2, 2, 2, 0]);
    assert_eq!((totals.repeated, totals.values, totals.to_device), (1, 0, 0));
}

#[test]
fn with_a_device_an_agent_waits_for_its_answer_and_takes_it_from_there_alone() {
    // The device is not there before the agent.
    let device = UdpSocket::bind("127.0.0.2:0").expect("a free address");
    let address = device.local_addr().expect("bound");
    let setup = setup(Some(address));
    let late = |_| Ok(Box::new(Late::default()) as Box<dyn Store>);
    let agent = Running::start(&setup, late).expect("it starts");
    device.connect(agent.handle().address()).expect("an address");
    device.set_read_timeout(Some(Duration::from_secs(10))).expect("a setting");
    let device = Peer(device);
    let client = Peer::new("127.0.0.1:0", &agent);
    let (hello, _) = device.hear(&[Op::Hello]);
    client.say(&message(Op::Get, 1));
    // A stranger that knows the number, and the device with that of another run.
    client.say(&Message::new(Op::Resume, 0, hello.request, 0));
    device.say(&Message::new(Op::Resume, 0, hello.request ^ 1, 0));
    assert_ne!(hello.request, 0);
    device.hear(&[Op::Hello]);
    device.say(&Message::new(Op::Resume, 0, hello.request, 0));
    // A datagram on another path may overtake it.
    while agent.handle().totals().serving == 0 {
        std::thread::yield_now();
    }
    assert_eq!(agent.handle().totals().early, 1);
    assert_eq!(client.ask(&put(2, b"one")).0, Op::WriteOk);

    // The key is cached: fence, update, and the same after a write that is stamped.
    let stamp = |writes| Stamp { boot: 1, install: 1, writes };
    device.say(&Message { stamp: stamp(0), ..message(Op::Adopt, 0) });
    let (fence, _) = device.hear(&[Op::Fence]);
    // Not from the device: no answer to it.
    client.say(&Message { stamp: stamp(7), ..fence.answer(Op::FenceOk, Status::Ok) });
    device.say(&Message { stamp: stamp(1), ..fence.answer(Op::FenceOk, Status::Ok) });
    let (update, value) = device.hear(&[Op::Update]);
    assert_eq!((update.stamp, &value[..]), (stamp(1), &b"one"[..]));
    device.say(&update.answer(Op::UpdateOk, Status::Ok));
    let cached = Message { stamp: stamp(2), op: Op::PutCached, ..put(3, b"two") };
    assert_eq!(client.ask(&cached).0, Op::WriteOk);
    loop {
        let (update, value) = device.hear(&[Op::Update]);
        if update.stamp == stamp(2) {
            assert_eq!(value, b"two");
            break;
        }
    }
    let totals = agent.stop();
    closes(&totals);
    assert_eq!(totals.dropped[Dropped::NotDevice.index()], 2);
}

#[test]
fn hostile_datagrams_are_counted_and_others_served() {
    use rand::{Rng, RngCore, SeedableRng};
    let device = UdpSocket::bind("127.0.0.2:0").expect("a free address");
    for device in [None, Some(device.local_addr().expect("bound"))] {
        let agent = start(&setup(device));
        let client = Peer::new("127.0.0.1:0", &agent);
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let mut sent = 0;
        for nth in 0..50_000u64 {
            let mut room = [0; DATAGRAM_MAX];
            let op = [Op::Get, Op::Put, Op::PutCached, Op::Adopt, Op::FenceOk, Op::Resume];
            let op = op[random.random_range(0..op.len())];
            let value = if op.has_value() { &b"some value"[..] } else { &[] };
            let valid = Message { value, ..Message::new(op, random.random(), nth, 5) };
            let mut len = valid.emit(&mut room).expect("room");
            match nth % 4 {
                0 => {
                    len = random.random_range(0..room.len());
                    random.fill_bytes(&mut room[..len]);
                }
                1 => room[random.random_range(0..len)] ^= 1 << random.random_range(0..8),
                2 => len = random.random_range(0..=room.len()),
                _ => {}
            }
            client.0.send(&room[..len]).expect("sent");
            sent += 1;
            // So that the kernel keeps them all.
            while sent % 64 == 0 && agent.handle().totals().received < sent {
                std::thread::yield_now();
            }
        }
        while agent.handle().totals().received < sent {
            std::thread::yield_now();
        }
        assert!(!agent.is_broken());
        if device.is_none() {
            let other = Peer::new("127.0.0.1:0", &agent);
            assert_eq!(other.ask(&put(u64::MAX, b"right")).0, Op::WriteOk);
        }
        let totals = agent.stop();
        closes(&totals);
        assert!(totals.malformed.iter().filter(|count| **count > 0).count() >= 8, "{totals:?}");
        let by_reason = Dropped::ALL.iter().zip(totals.dropped);
        let named = by_reason.filter(|(why, _)| **why != Dropped::Rate);
        let all = named.map(|(_, count)| count).all(|count| count > 0);
        assert!(all || device.is_some(), "{totals:?}");
    }
}

/// Above a rate, requests are lost; what the device says is not.
#[test]
fn requests_above_the_rate_are_dropped_and_counted() {
    let device = UdpSocket::bind("127.0.0.2:0").expect("a free address");
    let from_device = device.local_addr().expect("bound");
    let agent = start(&Setup { rate: Some(1), ..setup(Some(from_device)) });
    let device = Peer(device);
    device.0.connect(agent.handle().address()).expect("an address");
    device.0.set_read_timeout(Some(Duration::from_secs(10))).expect("a setting");
    let (hello, _) = device.hear(&[Op::Hello]);
    device.say(&hello.answer(Op::Resume, Status::Ok));
    let client = Peer::new("127.0.0.1:0", &agent);
    while agent.handle().totals().serving == 0 {
        std::thread::yield_now();
    }
    assert_eq!(client.ask(&put(1, b"one")).0, Op::WriteOk);
    (2..12).for_each(|request| client.say(&put(request, b"more")));
    (0..10).for_each(|_| device.say(&hello.answer(Op::Resume, Status::Ok)));
    let handled = || agent.handle().totals().handled;
    while agent.handle().totals().received < 22 {
        std::thread::yield_now();
    }
    assert!(handled() >= 12, "{}", handled());
    let totals = agent.stop();
    closes(&totals);
    // A slow machine may have let one or two more pass.
    assert!((5..=10).contains(&totals.dropped[Dropped::Rate.index()]), "{totals:?}");
}

#[test]
fn a_taken_address_is_named() {
    let agent = start(&setup(None));
    let taken = Setup { listen: agent.handle().address(), ..setup(None) };
    let error = Running::start(&taken, |_| unreachable!("bound before the store is opened"));
    let error = error.expect_err("taken").to_string();
    assert!(error.starts_with(&format!("listen {}: ", taken.listen)), "{error}");
}
