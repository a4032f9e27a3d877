//! A server: a queue that takes as long for each request, and the product's agent behind it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use overbank::hash::mix;
use overbank_netcache::agent::{Action, Answer, Ask, Letter, Settings, Value};
use overbank_netcache::{Protocol, Server as Side};
use overbank_wire::netcache::{Key, Op, Status};

use super::packet::{CONTROLLER, Packet, Place};

pub(super) struct Server {
    place: Place,
    agent: Side<Place>,
    /// Values that were written; the others follow from their keys.
    written: HashMap<Key, Value>,
    value_len: usize,
    /// Requests that wait or are served, in their order.
    queue: VecDeque<Packet>,
    /// When the last one is done.
    free_at: u64,
    pub(super) count: Count,
    actions: Vec<Action<Place>>,
    /// Without updates after writes: keys whose value the controller has asked for since.
    around: Option<HashSet<Key>>,
}

/// What a server has counted since this was taken last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) arrived: u64,
    pub(super) dropped: u64,
    pub(super) served: u64,
}

/// How long a request takes and how many wait at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) ns: u64,
    pub(super) waiting_max: usize,
}

impl Server {
    /// `around`: the device gets a value only if its controller has asked for it.
    pub(super) fn new(place: Place, value_len: usize, protocol: Protocol, around: bool) -> Server {
        Server {
            place,
            agent: Side::new(protocol, Settings::default(), mix(u64::from(place)) | 1),
            written: HashMap::new(),
            value_len,
            queue: VecDeque::new(),
            free_at: 0,
            count: Count::default(),
            actions: Vec::new(),
            around: around.then(HashSet::new),
        }
    }

    /// Takes a packet. Returns when a request will have been served: [`Server::serve`] it then.
    pub(super) fn arrive(
        &mut self,
        packet: &Packet,
        service: Service,
        out: &mut Vec<Packet>,
    ) -> Option<u64> {
        let op = packet.message().op;
        if !(op == Op::Get || op.is_write()) {
            // What keeps the device right takes no time of the store.
            self.handle(packet.at, packet, out);
            return None;
        }
        self.count.arrived += 1;
        if self.queue.len() >= service.waiting_max {
            self.count.dropped += 1;
            return None;
        }
        self.free_at = self.free_at.max(packet.at) + service.ns;
        self.queue.push_back(*packet);
        Some(self.free_at)
    }

    /// Serves the first request that waits.
    pub(super) fn serve(&mut self, now: u64, out: &mut Vec<Packet>) {
        if let Some(packet) = self.queue.pop_front() {
            self.count.served += 1;
            self.handle(now, &packet, out);
        }
    }

    fn handle(&mut self, now: u64, packet: &Packet, out: &mut Vec<Packet>) {
        let message = packet.message();
        if let Some(asked) = &mut self.around {
            match message.op {
                Op::Adopt => _ = asked.insert(message.key),
                Op::PutCached | Op::DeleteCached | Op::UpdateOk => _ = asked.remove(&message.key),
                _ => {}
            }
        }
        self.agent.message(now / 1000, packet.from, &message, &mut self.actions);
        self.carry_out(now, out);
    }

    /// Repeats what was not answered; returns when next, in nanoseconds.
    pub(super) fn tick(&mut self, now: u64, out: &mut Vec<Packet>) -> u64 {
        let next = self.agent.tick(now / 1000, &mut self.actions);
        self.carry_out(now, out);
        next.saturating_mul(1000)
    }

    fn carry_out(&mut self, now: u64, out: &mut Vec<Packet>) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Reply(to, letter) => {
                        out.push(Packet::new(now, self.place, to, &letter.message()));
                    }
                    Action::Device(letter) if self.keeps(&letter) => {
                        let answer = letter.head.answer(Op::UpdateOk, Status::Ok);
                        self.agent.message(now / 1000, CONTROLLER, &answer, &mut self.actions);
                    }
                    Action::Device(letter) => {
                        out.push(Packet::new(now, self.place, CONTROLLER, &letter.message()));
                    }
                    Action::Store { number, key, ask } => {
                        let answer = match ask {
                            Ask::Read => Answer::Read(self.read(key)),
                            Ask::Write(value) => {
                                self.written.insert(key, value);
                                Answer::Written
                            }
                        };
                        self.agent.stored(now / 1000, number, answer, &mut self.actions);
                    }
                }
            }
        }
    }

    /// Whether a letter to the device is an update that nothing has asked for.
    fn keeps(&self, letter: &Letter) -> bool {
        let asked = |asked: &HashSet<Key>| asked.contains(&letter.head.key);
        letter.head.op == Op::Update && self.around.as_ref().is_some_and(|all| !asked(all))
    }

    fn read(&self, key: Key) -> Value {
        self.written.get(&key).cloned().unwrap_or_else(|| cold(key, self.value_len))
    }
}

/// Returns the value of a key that was not written.
pub(in super::super) fn cold(key: Key, len: usize) -> Value {
    let word = mix(key as u64).to_le_bytes();
    let bytes: Arc<[u8]> = word.into_iter().cycle().take(len).collect();
    Some(bytes)
}
