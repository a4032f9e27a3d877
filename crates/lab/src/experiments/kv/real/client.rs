//! The clients: requests at random times, at a rate that follows the losses.
//!
//! Requests are sent in bursts of [`PAUSE`], and each is counted in the step in which it was sent.
//! A step is judged a little after its end, when answers have come: by its own requests alone.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use overbank_wire::netcache::frame::{Datagram, End, HEAD_MAX, write};
use overbank_wire::netcache::{Message, Op, Stamp};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::super::law::key;
use super::scene::THRESHOLD;
use super::*;
use crate::experiments::namespaces::Open;

/// Time between two bursts.
const PAUSE: Duration = Duration::from_micros(500);
/// Time between two decisions, and after a step until it is judged.
const STEP_NS: u64 = 100_000_000;
const LATE_NS: u64 = 20_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Time without requests until all are answered or lost.
const REST: Duration = Duration::from_millis(50);
/// Requests that a stall has held up for longer are not made up for.
const BEHIND_NS: f64 = 20e6;

/// Names of the client in requests that are counted, and in those that fill the cache.
const COUNTED: u64 = 1;
const FILLING: u64 = 2;
/// Keys of a step of filling: no more than the controller aims at in a second.
const FILLED_AT_ONCE: usize = 180;
/// Steps after which a key is looked for in the cache.
const LOOK_AFTER: usize = 4;
/// Times that missing keys are asked for.
const PASSES: usize = 20;

/// How the rate follows the losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Below the first, it rises; above the second, it falls.
    pub(super) losses: [f64; 2],
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Rule {
    /// Returns what the rate is multiplied by.
    fn factor(&self, loss: f64) -> f64 {
        match loss {
            loss if loss < self.losses[0] => self.up,
            loss if loss > self.losses[1] => self.down,
            _ => 1.0,
        }
    }
}

/// What was sent and heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) sent: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Seen {
    pub(super) fn answered(&self) -> u64 {
        self.hits + self.misses
    }

    pub(super) fn since(self, before: Seen) -> Seen {
        Seen {
            sent: self.sent - before.sent,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
        }
    }
}

/// Requests from this number on.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    first: u64,
    sent: u64,
    answered: u64,
}

pub(super) struct Client {
    port: Open,
    own: End,
    servers: Vec<End>,
    placement: Placement,
    random: Pcg64Mcg,
    start: Instant,
    /// When the next request is sent, in nanoseconds since the start.
    next: f64,
    number: u64,
    /// This step, and the one before.
    steps: [Step; 2],
    step_end: u64,
    is_judged: bool,
    seen: Seen,
    /// Ranks that the device has answered for.
    filled: HashSet<u64>,
}

impl Client {
    pub(super) fn new(port: Open, own: End, servers: Vec<End>, plan: &Plan) -> Client {
        Client {
            port,
            own,
            servers,
            placement: plan.placement,
            random: Pcg64Mcg::seed_from_u64(plan.seed),
            start: Instant::now(),
            next: 0.0,
            number: 0,
            steps: [Step::default(); 2],
            step_end: 0,
            is_judged: true,
            seen: Seen::default(),
            filled: HashSet::new(),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Whether frames can pass: links need a moment.
    pub(super) fn is_up(&mut self) -> bool {
        self.hear().is_ok()
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen
    }

    /// Asks for a key, by its place in the law: with the next burst.
    fn ask(&mut self, client: u64, request: u64, rank: u64) -> Result<(), LabError> {
        let message = Message::new(Op::Get, client, request, key(rank));
        let server = &self.servers[usize::from(self.placement.server(rank))];
        let mut frame = [0; HEAD_MAX];
        let len = write(&message, &self.own, server, 0, &mut frame).expect("room for a head");
        self.port.queue.transmit.send(&frame[..len]).map_err(LabError::failed)
    }

    fn flush(&mut self) -> Result<(), LabError> {
        self.port.queue.transmit.flush().map_err(LabError::failed)
    }

    /// Takes the answers that have come.
    fn hear(&mut self) -> Result<(), LabError> {
        loop {
            let frames = self.port.queue.receive.receive().map_err(LabError::failed)?;
            if frames.is_empty() {
                return Ok(());
            }
            for frame in frames {
                let Ok(Some(datagram)) = Datagram::of(frame, self.own.port) else { continue };
                let Ok(message) = Message::parse(datagram.payload()) else { continue };
                let is_hit = message.stamp != Stamp::NONE;
                match (message.client, message.op) {
                    (COUNTED, Op::GetOk) => {
                        self.seen.hits += u64::from(is_hit);
                        self.seen.misses += u64::from(!is_hit);
                        let mut steps = self.steps.iter_mut();
                        if let Some(step) = steps.find(|step| step.first <= message.request) {
                            step.answered += 1;
                        }
                    }
                    (FILLING, Op::GetOk) if is_hit => {
                        self.filled.insert(message.request);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Sends nothing until all is answered or lost.
    pub(super) fn rest(&mut self) {
        let end = Instant::now() + REST;
        // A port that is gone is an error of the next request.
        while Instant::now() < end && self.hear().is_ok() {
            thread::sleep(PAUSE);
        }
        let now = self.now();
        (self.next, self.step_end, self.is_judged) = (now as f64, now + STEP_NS, true);
        self.steps = [Step { first: self.number, ..Step::default() }; 2];
    }

    /// Sends requests for a second, at the load's rate; that follows the losses. Returns what was
    /// sent and heard in that second.
    pub(super) fn second(&mut self, load: &mut Load, rule: &Rule) -> Result<Seen, LabError> {
        let (before, end) = (self.seen, self.now() + SECOND_NS);
        loop {
            let now = self.now();
            if now >= end {
                return Ok(self.seen.since(before));
            }
            self.next = self.next.max(now as f64 - BEHIND_NS);
            while self.next < now as f64 {
                let pause: f64 = Exp1.sample(&mut self.random);
                self.next += pause * 1e9 / load.rate;
                let rank = load.ranks.key(load.law.draw(&mut self.random));
                self.ask(COUNTED, self.number, rank)?;
                self.number += 1;
                self.steps[0].sent += 1;
                self.seen.sent += 1;
            }
            self.flush()?;
            self.hear()?;
            self.judge(load, rule);
            thread::sleep(PAUSE);
        }
    }

    fn judge(&mut self, load: &mut Load, rule: &Rule) {
        let now = self.now();
        if now >= self.step_end {
            self.steps = [Step { first: self.number, ..Step::default() }, self.steps[0]];
            self.step_end = (self.step_end + STEP_NS).max(now);
            self.is_judged = false;
        }
        if !self.is_judged && now + STEP_NS >= self.step_end + LATE_NS {
            self.is_judged = true;
            let Step { sent, answered, .. } = self.steps[1];
            load.rate *= rule.factor(1.0 - answered as f64 / sent.max(1) as f64);
        }
    }

    /// Asks for the hottest keys until the device answers for each.
    ///
    /// # Errors
    /// It does not, or Ctrl-C was pressed.
    pub(super) fn fill(&mut self, context: &mut Context<'_>, items: usize) -> Result<(), LabError> {
        let mut missing: Vec<u64> = (1..=items as u64).collect();
        for pass in 0..PASSES {
            let parts: Vec<&[u64]> = missing.chunks(FILLED_AT_ONCE).collect();
            for nth in 0..parts.len() + LOOK_AFTER {
                context.step("filling the cache", pass as f64 / PASSES as f64)?;
                // As often as makes a key hot; later once more, to see whether it is cached.
                let hot = parts.get(nth).map(|part| (part, THRESHOLD));
                let look = nth.checked_sub(LOOK_AFTER).and_then(|nth| parts.get(nth));
                for (part, times) in hot.into_iter().chain(look.map(|part| (part, 1))) {
                    for &rank in *part {
                        (0..times).try_for_each(|_| self.ask(FILLING, rank, rank))?;
                        self.flush()?;
                    }
                }
                let end = self.now() + STEP_NS;
                while self.now() < end {
                    self.hear()?;
                    thread::sleep(PAUSE);
                }
            }
            missing.retain(|rank| !self.filled.contains(rank));
            if missing.is_empty() {
                return Ok(());
            }
        }
        Err(LabError::Failed(format!("the device lacks {} of {items} keys", missing.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_losses() {
        let rule = Rule { losses: [0.01, 0.05], up: 1.03, down: 0.93 };
        let factors = [0.0, 0.009, 0.02, 0.05, 0.06, 1.0].map(|loss| rule.factor(loss));
        assert_eq!(factors, [1.03, 1.03, 1.0, 1.0, 0.93, 0.93]);
    }
}
