//! Clients: requests at random times, at a rate that does not depend on their answers.

use overbank_wire::netcache::{Message, Op, Stamp};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::super::law::{Law, Placement, key};
use super::super::popularity::Popularity;
use super::packet::{CLIENT, Packet};

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
    sent: Vec<u64>,
    /// Requests before this one are not counted.
    first: u64,
    pub(super) outcome: Outcome,
}

impl Client {
    pub(super) fn new(placement: Placement, seed: u64) -> Client {
        Client {
            random: Pcg64Mcg::seed_from_u64(seed),
            placement,
            next: 0.0,
            number: 0,
            sent: vec![0; REMEMBERED],
            first: 0,
            outcome: Outcome::default(),
        }
    }

    /// Begins a series of requests that are counted.
    pub(super) fn count(&mut self) -> Outcome {
        self.first = self.number;
        std::mem::take(&mut self.outcome)
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
            let value = [self.number as u8; 128];
            let (op, len) = if is_write { (Op::Put, load.value_len) } else { (Op::Get, 0) };
            let message =
                Message { value: &value[..len], ..Message::new(op, 1, self.number, key(rank)) };
            self.sent[self.number as usize % REMEMBERED] = at;
            self.outcome.sent += 1;
            self.number += 1;
            out.push(Packet::new(at, CLIENT, self.placement.server(rank), &message));
        }
    }

    /// Takes an answer.
    pub(super) fn take(&mut self, packet: &Packet) {
        let message = packet.message();
        let number = message.request;
        if number < self.first || self.number - number > REMEMBERED as u64 {
            return;
        }
        let outcome = &mut self.outcome;
        match message.op {
            Op::GetOk | Op::NotFound if message.stamp == Stamp::NONE => outcome.misses += 1,
            Op::GetOk | Op::NotFound => outcome.hits += 1,
            Op::WriteOk => outcome.written += 1,
            _ => {
                outcome.refused += 1;
                return;
            }
        }
        let took = packet.at - self.sent[number as usize % REMEMBERED];
        outcome.write_ns += if message.op == Op::WriteOk { took } else { 0 };
        outcome.times.push(took.min(u64::from(u32::MAX)) as u32);
    }
}
