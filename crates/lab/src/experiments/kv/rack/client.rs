//! Clients: requests at random times, at a rate that does not depend on their answers.

use std::collections::HashMap;

use overbank_kit::histories::{Kind, Operation, judge};
use overbank_netcache::slots::PASS;
use overbank_wire::netcache::{Key, Message, Op, Stamp};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::super::law::{Law, Placement, key};
use super::super::popularity::Popularity;
use super::packet::{CLIENT, Packet};

/// Written values begin with this, and the number of their write.
const WRITTEN: [u8; 8] = *b"overbank";
/// Requests come from these clients in turn: a server remembers a client's last ones by number.
const CLIENTS: u64 = 64;
/// Requests whose time of sending is remembered.
const REMEMBERED: usize = 1 << 20;

/// What is asked for.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) law: Law,
    /// The keys of its ranks.
    pub(crate) ranks: Popularity,
    /// Requests a second.
    pub(crate) rate: f64,
    /// Share of writes, and their law.
    pub(crate) writes: f64,
    pub(crate) write_law: Option<Law>,
    /// Bytes of a written value.
    pub(crate) value_len: usize,
}

/// What came of the requests that were sent since this was taken last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) written: u64,
    /// Writes that the server refused.
    pub(crate) refused: u64,
    /// Reads of a value that a later write had replaced which was answered before they were sent.
    pub(crate) stale: u64,
    /// Nanoseconds of all writes that were answered.
    pub(crate) write_ns: u64,
    /// Nanoseconds of each answered request.
    pub(crate) times: Vec<u32>,
}

pub(super) struct Client {
    random: Pcg64Mcg,
    placement: Placement,
    /// When the next request is sent, in nanoseconds.
    next: f64,
    number: u64,
    /// When requests were sent, and the last write of their key that was answered by then.
    sent: Vec<(u64, u64)>,
    /// By key: the last write that was answered, by its number from 1 on.
    answered: HashMap<Key, u64>,
    /// Requests before this one are not counted.
    first: u64,
    recorder: Recorder,
    pub(super) outcome: Outcome,
}

impl Client {
    /// Returns a client that records the histories of the `watched` hottest keys.
    pub(super) fn new(placement: Placement, watched: u64, seed: u64) -> Client {
        Client {
            random: Pcg64Mcg::seed_from_u64(seed),
            placement,
            next: 0.0,
            number: 0,
            sent: vec![(0, 0); REMEMBERED],
            answered: HashMap::new(),
            first: 0,
            recorder: Recorder { watched, histories: HashMap::new() },
            outcome: Outcome::default(),
        }
    }

    /// Begins a series of requests that are counted.
    pub(super) fn count(&mut self) -> Outcome {
        self.first = self.number;
        std::mem::take(&mut self.outcome)
    }

    /// Returns how many of the recorded histories have no order.
    pub(super) fn wrong(&self) -> usize {
        self.recorder.wrong()
    }

    /// Sends nothing before this time.
    pub(super) fn wait(&mut self, until: u64) {
        self.next = self.next.max(until as f64);
    }

    /// Sends all requests before `until`, each with the time at which it leaves.
    pub(super) fn send(&mut self, until: u64, load: &Load, out: &mut Vec<Packet>) {
        while self.next < until as f64 {
            let at = self.next as u64;
            let pause: f64 = Exp1.sample(&mut self.random);
            self.next += pause * 1e9 / load.rate;
            let is_write = load.writes > 0.0
                && (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= load.writes;
            let law = load.write_law.as_ref().filter(|_| is_write).unwrap_or(&load.law);
            let rank = load.ranks.key(law.draw(&mut self.random));
            let mut value = [0; PASS];
            value[..8].copy_from_slice(&WRITTEN);
            value[8..16].copy_from_slice(&(self.number + 1).to_le_bytes());
            let (op, len) = if is_write { (Op::Put, load.value_len) } else { (Op::Get, 0) };
            let (client, request) = (self.number % CLIENTS, self.number / CLIENTS);
            let message =
                Message { value: &value[..len], ..Message::new(op, client, request, key(rank)) };
            self.recorder.sent(rank, is_write.then_some(self.number), at);
            let known = self.answered.get(&key(rank)).copied().unwrap_or(0);
            self.sent[self.number as usize % REMEMBERED] = (at, known);
            self.outcome.sent += 1;
            self.number += 1;
            out.push(Packet::new(at, CLIENT, self.placement.server(rank), &message));
        }
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, packet: &Packet) {
        let message = packet.message();
        let number = message.request * CLIENTS + message.client;
        if self.number - number > REMEMBERED as u64 {
            return;
        }
        let (at, known) = self.sent[number as usize % REMEMBERED];
        if message.op == Op::WriteOk {
            let last = self.answered.entry(message.key).or_default();
            *last = (*last).max(number + 1);
        }
        self.recorder.answered(&message, number, (at, packet.at));
        if number < self.first {
            return;
        }
        let (outcome, took) = (&mut self.outcome, packet.at - at);
        match message.op {
            Op::GetOk | Op::NotFound => {
                let of_server = message.stamp == Stamp::NONE;
                outcome.misses += u64::from(of_server);
                outcome.hits += u64::from(!of_server);
                outcome.stale += u64::from(version(message.value) < known);
            }
            Op::WriteOk => {
                outcome.written += 1;
                outcome.write_ns += took;
            }
            _ => {
                outcome.refused += 1;
                return;
            }
        }
        outcome.times.push(took.min(u64::from(u32::MAX)) as u32);
    }
}

/// Histories of the hottest keys.
struct Recorder {
    /// How many keys.
    watched: u64,
    histories: HashMap<Key, History>,
}

#[derive(Default)]
struct History {
    /// By number.
    writes: HashMap<u64, Operation>,
    reads: Vec<Operation>,
}

impl Recorder {
    fn sent(&mut self, rank: u64, write: Option<u64>, at: u64) {
        if rank > self.watched {
            return;
        }
        let history = self.histories.entry(key(rank)).or_default();
        if let Some(number) = write {
            let put = Operation { kind: Kind::Put(number + 1), call: at + 1, reply: None };
            history.writes.insert(number, put);
        }
    }

    fn answered(&mut self, message: &Message<'_>, number: u64, (call, reply): (u64, u64)) {
        let Some(history) = self.histories.get_mut(&message.key) else { return };
        match message.op {
            Op::GetOk => {
                let kind = Kind::Read(Some(version(message.value)).filter(|&version| version > 0));
                history.reads.push(Operation { kind, call: call + 1, reply: Some(reply + 1) });
            }
            Op::WriteOk => {
                let write = history.writes.get_mut(&number);
                write.map(|write| write.reply.get_or_insert(reply + 1));
            }
            _ => {}
        }
    }

    /// Returns how many of the histories have no order.
    fn wrong(&self) -> usize {
        let wrong = self.histories.values().filter(|history| {
            let operations = history.writes.values().chain(&history.reads);
            judge(&operations.copied().collect::<Vec<_>>()).is_err()
        });
        wrong.count()
    }
}

/// Returns the number of the write that a value is of, from 1 on; 0: of none.
fn version(value: &[u8]) -> u64 {
    let number = value.strip_prefix(&WRITTEN).and_then(|rest| rest.first_chunk());
    number.map_or(0, |number| u64::from_le_bytes(*number))
}
