//! A rack in virtual time: one switch, its servers, their clients.
//!
//! ```text
//!   clients ── 3.5 µs ── switch: pipeline, controller ── 3.95 µs ── 128 queues ─ agent, store
//! ```
//!
//! Real is what the product runs: messages as bytes, pipeline, controller, agents. Modelled are the
//! servers' queues (a fixed time for each request, a bound, drops above it) and the delays. The
//! switch has no limit. Time passes in slices no longer than any delay, so a slice's packets cause
//! no others in it, and each slice is in the order of its times. The same seed gives the same run.
//!
//! *Inputs, which no result may claim*: the rate of a server (10 M requests/s in the paper), and
//! delays that give 7 µs for a hit and 15 µs for a miss of an idle rack.

mod client;
mod device;
mod packet;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use client::{Load, Outcome};
pub(super) use server::cold;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use overbank::sketch;
use overbank_netcache::{Protocol, controller};
use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::VALUE_LEN;
use super::law::{Placement, fullest, key};
use crate::prelude::LabError;
use client::Client;
use device::{Device, Parts};
use packet::{CLIENT, CONTROLLER, Packet};
use server::{Count, Server, Service};

/// Nanoseconds between client and switch, and between switch and server.
const CLIENT_NS: u64 = 3500;
const SERVER_NS: u64 = 3950;
/// Requests that wait at a server at most.
const WAITING_MAX: usize = 128;
/// Slices between two looks at the status of watched keys.
const LOOK: u64 = 100;

/// What a rack is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) placement: Placement,
    /// Requests that a server takes in a second.
    pub(super) rate: f64,
    /// Keys that the switch caches.
    pub(super) items: usize,
    pub(super) value_len: usize,
    pub(super) counting: sketch::Settings,
    pub(super) controller: controller::Settings,
    pub(super) protocol: Protocol,
    /// No update follows a write: the controller has the value of the hottest key that is invalid
    /// brought again, one key in each of these periods (nanoseconds).
    pub(super) around_ns: Option<u64>,
    pub(super) faults: Faults,
    /// Hottest keys whose histories are judged and whose status is looked at now and then.
    pub(super) watched: u64,
    pub(super) seed: u64,
}

impl Plan {
    /// Returns a rack in which nothing becomes hot and nothing fails.
    pub(super) fn of(placement: Placement, rate: f64, items: usize) -> Plan {
        Plan {
            placement,
            rate,
            items,
            value_len: VALUE_LEN,
            counting: NOTHING,
            controller: controller::Settings::default(),
            protocol: Protocol::Stamps,
            around_ns: None,
            faults: Faults::default(),
            watched: 0,
            seed: placement.seed,
        }
    }
}

/// What may happen to a packet on each of its two ways, as shares of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: f64,
    /// It arrives twice, the second time late.
    pub(super) twice: f64,
    pub(super) late: f64,
    /// Nanoseconds that a late one takes longer at most.
    pub(super) late_ns: u64,
}

/// Nothing becomes hot.
const NOTHING: sketch::Settings = sketch::Settings { threshold: u16::MAX, sample_log2: 0 };

/// What happens in a slice of time.
#[derive(Default)]
struct Slice {
    switch: Vec<Packet>,
    servers: Vec<Packet>,
    clients: Vec<Packet>,
    /// When a server will have served a request.
    served: Vec<(u64, u16)>,
}

impl Slice {
    fn is_empty(&self) -> bool {
        self.switch.len() + self.servers.len() + self.clients.len() + self.served.len() == 0
    }
}

pub(super) struct Rack {
    plan: Plan,
    service: Service,
    /// Nanoseconds of virtual time at which the slice begins that comes next.
    now: u64,
    slice_ns: u64,
    ring: Vec<Slice>,
    /// Slices of the ring that are not empty.
    full: usize,
    device: Device,
    servers: Vec<Server>,
    /// When agents have something to do, the earliest first: what is not in `due_at` is over.
    due: BinaryHeap<Reverse<(u64, u16)>>,
    due_at: Vec<u64>,
    client: Client,
    /// Of the faults.
    random: Pcg64Mcg,
    /// When the controller has a value brought again.
    around_at: u64,
    looks: Looks,
}

/// How often a watched key was looked at, and how often it was invalid.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    all: u64,
    invalid: u64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// What each server has served in a second, and the share that it has dropped.
    pub(super) served: Vec<f64>,
    pub(super) dropped: Vec<f64>,
    /// Share of the time that a watched key was invalid.
    pub(super) invalid: f64,
}

impl Run {
    /// Returns the answers a second: from the switch, from servers.
    pub(super) fn rates(&self) -> [f64; 2] {
        let Outcome { hits, misses, written, .. } = self.outcome;
        [hits, misses + written].map(|count| count as f64 / self.seconds)
    }

    /// Returns the share that the server drops that drops most.
    pub(super) fn loss(&self) -> f64 {
        fullest(&self.dropped)
    }
}

impl Rack {
    pub(super) fn new(plan: Plan) -> Result<Rack, LabError> {
        let ns = (1e9 / plan.rate).round().max(1.0) as u64;
        let service = Service { ns, waiting_max: WAITING_MAX };
        let slice_ns = ns.min(CLIENT_NS).min(SERVER_NS);
        let longest = (ns * (WAITING_MAX as u64 + 1)).max(CLIENT_NS).max(SERVER_NS);
        let longest = longest + plan.faults.late_ns;
        let parts = Parts {
            items: plan.items,
            counting: plan.counting,
            controller: plan.controller,
            protocol: plan.protocol,
            seed: plan.seed,
        };
        let server =
            |place| Server::new(place, plan.value_len, plan.protocol, plan.around_ns.is_some());
        let mut rack = Rack {
            plan,
            service,
            now: 0,
            slice_ns,
            ring: (0..longest / slice_ns + 2).map(|_| Slice::default()).collect(),
            full: 0,
            device: Device::new(&parts)?,
            servers: (0..plan.placement.servers).map(server).collect(),
            due: BinaryHeap::new(),
            due_at: vec![u64::MAX; usize::from(plan.placement.servers)],
            client: Client::new(plan.placement, plan.watched, plan.seed),
            random: Pcg64Mcg::seed_from_u64(plan.seed),
            around_at: 0,
            looks: Looks::default(),
        };
        (0..plan.placement.servers).for_each(|place| rack.wake(place, 0));
        // Agents say hello, and serve from then on.
        rack.run(None, 1_000_000);
        Ok(rack)
    }

    /// Caches the hottest keys, and waits until the switch has their values.
    pub(super) fn fill(&mut self) -> Result<(), LabError> {
        let items = self.plan.items as u64;
        for _ in 0..100 {
            let mut out = Vec::new();
            let missing = (1..=items).filter(|&rank| !self.is_valid(rank));
            for rank in missing.collect::<Vec<u64>>() {
                let server = self.plan.placement.server(rank);
                self.device.report(self.now, key(rank), server, &mut out);
            }
            self.leave(out);
            self.run(None, 200_000_000);
            if (1..=items).all(|rank| self.is_valid(rank)) {
                return Ok(());
            }
        }
        Err(LabError::failed("the switch has not all values that it should cache"))
    }

    /// Whether the switch answers requests of a key.
    pub(super) fn is_valid(&self, rank: u64) -> bool {
        self.device.controller.table().status(key(rank)).is_some_and(|status| status.is_valid())
    }

    /// Runs for `ns` nanoseconds, with requests or without.
    pub(super) fn run(&mut self, load: Option<&Load>, ns: u64) {
        let end = self.now + ns;
        self.client.wait(self.now);
        while self.now < end {
            if load.is_none() && self.full == 0 {
                // Nothing is under way: the next thing that is due comes next.
                let agent = self.due.peek().map_or(u64::MAX, |due| due.0.0);
                let next = agent.min(self.device.due).min(end);
                self.now = self.now.max(next / self.slice_ns * self.slice_ns);
                if self.now >= end {
                    break;
                }
            }
            self.slice(load);
        }
    }

    /// Returns what has happened since this was called last, in a run of `ns` nanoseconds.
    pub(super) fn take(&mut self, ns: u64) -> Run {
        let counts: Vec<_> =
            self.servers.iter_mut().map(|server| std::mem::take(&mut server.count)).collect();
        let seconds = ns as f64 / 1e9;
        let dropped = |count: &Count| count.dropped as f64 / count.arrived.max(1) as f64;
        let looks = std::mem::take(&mut self.looks);
        Run {
            outcome: self.client.count(),
            seconds,
            served: counts.iter().map(|count| count.served as f64 / seconds).collect(),
            dropped: counts.iter().map(dropped).collect(),
            invalid: looks.invalid as f64 / looks.all.max(1) as f64,
        }
    }

    /// Returns how many of the watched keys' histories have no order.
    pub(super) fn wrong(&self) -> usize {
        self.client.wrong()
    }

    /// Returns what the controller has counted.
    pub(super) fn control(&self) -> controller::Totals {
        self.device.controller.totals()
    }

    /// Runs under a load, first for a while that is not counted.
    pub(super) fn measure(&mut self, load: &Load, lead_ns: u64, ns: u64) -> Run {
        // What was under way before is answered.
        self.run(None, 1_000_000);
        self.run(Some(load), lead_ns);
        self.take(0);
        self.run(Some(load), ns);
        // What is under way is answered.
        self.run(None, 1_000_000);
        self.take(ns)
    }

    /// An agent has something to do at this time, or before.
    fn wake(&mut self, place: u16, at: u64) {
        let due = &mut self.due_at[usize::from(place)];
        if at < *due {
            *due = at;
            self.due.push(Reverse((at, place)));
        }
    }

    fn at(&mut self, at: u64) -> &mut Slice {
        let nth = (at.max(self.now) / self.slice_ns) as usize % self.ring.len();
        let slice = &mut self.ring[nth];
        self.full += usize::from(slice.is_empty());
        slice
    }

    /// Packets leave the client or a server, or the switch, at their times.
    fn leave(&mut self, packets: Vec<Packet>) {
        for mut packet in packets {
            let from_switch = packet.from == CONTROLLER;
            self.enter(&mut packet, from_switch);
        }
    }

    fn enter(&mut self, packet: &mut Packet, from_switch: bool) {
        let Faults { lost, twice, late, late_ns } = self.plan.faults;
        if lost + twice + late > 0.0 {
            let random = &mut self.random;
            let [is_lost, is_twice, is_late, part, second]: [f64; 5] =
                StandardUniform.sample(random);
            if is_lost < lost {
                return;
            }
            if is_twice < twice {
                let mut again = *packet;
                again.at += (second * late_ns as f64) as u64;
                self.arrive(&mut again, from_switch);
            }
            if is_late < late {
                packet.at += (part * late_ns as f64) as u64;
            }
        }
        self.arrive(packet, from_switch);
    }

    fn arrive(&mut self, packet: &mut Packet, from_switch: bool) {
        if from_switch {
            packet.at += if packet.to == CLIENT { CLIENT_NS } else { SERVER_NS };
            let is_client = packet.to == CLIENT;
            let slice = self.at(packet.at);
            if is_client { &mut slice.clients } else { &mut slice.servers }.push(*packet);
        } else {
            packet.at += if packet.from == CLIENT { CLIENT_NS } else { SERVER_NS };
            self.at(packet.at).switch.push(*packet);
        }
    }

    fn slice(&mut self, load: Option<&Load>) {
        let end = self.now + self.slice_ns;
        let nth = (self.now / self.slice_ns) as usize % self.ring.len();
        let mut slice = std::mem::take(&mut self.ring[nth]);
        self.full -= usize::from(!slice.is_empty());
        let mut out = Vec::new();
        if self.device.due < end {
            self.device.tick(self.now, &mut out);
        }
        if load.is_some() {
            self.look(&mut out);
        }
        slice.switch.sort_by_key(|packet| packet.at);
        self.device.burst(&slice.switch, &mut out);
        for packet in &mut out {
            self.enter(packet, true);
        }
        out.clear();
        if let Some(load) = load {
            self.client.send(end, load, &mut out);
        }
        for packet in &slice.clients {
            self.client.take(packet);
        }
        slice.servers.sort_by_key(|packet| packet.at);
        slice.served.sort_unstable();
        self.serve(&slice, &mut out);
        while let Some(Reverse((due, place))) = self.due.peek().copied().filter(|d| d.0.0 < end) {
            self.due.pop();
            if self.due_at[usize::from(place)] == due {
                self.due_at[usize::from(place)] = u64::MAX;
                let next = self.servers[usize::from(place)].tick(due.max(self.now), &mut out);
                self.wake(place, next.max(end));
            }
        }
        for packet in &mut out {
            self.enter(packet, false);
        }
        self.now = end;
    }

    /// Looks at keys that may be invalid; has the hottest one's value brought, if that is due.
    fn look(&mut self, out: &mut Vec<Packet>) {
        if self.plan.watched > 0 && (self.now / self.slice_ns).is_multiple_of(LOOK) {
            let invalid = (1..=self.plan.watched).filter(|&rank| !self.is_valid(rank)).count();
            self.looks.all += self.plan.watched;
            self.looks.invalid += invalid as u64;
        }
        let Some(each) = self.plan.around_ns.filter(|_| self.now >= self.around_at) else { return };
        self.around_at = self.now + each;
        if let Some(rank) = (1..=self.plan.items as u64).find(|&rank| !self.is_valid(rank)) {
            let server = self.plan.placement.server(rank);
            self.device.report(self.now, key(rank), server, out);
        }
    }

    /// Requests arrive at servers and are served, in the order of their times.
    fn serve(&mut self, slice: &Slice, out: &mut Vec<Packet>) {
        let (mut arrivals, mut served) =
            (slice.servers.iter().peekable(), slice.served.iter().peekable());
        loop {
            let (arrival, done) = (arrivals.peek(), served.peek());
            let first = match (arrival, done) {
                (None, None) => return,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(arrival), Some(done)) => arrival.at < done.0,
            };
            let before = out.len();
            let place = if first {
                let Some(packet) = arrivals.next() else { return };
                let server = &mut self.servers[usize::from(packet.to)];
                if let Some(at) = server.arrive(packet, self.service, out) {
                    self.at(at).served.push((at, packet.to));
                }
                packet.to
            } else {
                let Some(&(at, place)) = served.next() else { return };
                self.servers[usize::from(place)].serve(at, out);
                place
            };
            // What was said to the device is repeated unless it is answered.
            if out[before..].iter().any(|packet| packet.to == CONTROLLER) {
                self.wake(place, self.now);
            }
        }
    }

    /// Returns the largest load that no server drops more than `loss_max` of, in requests a second,
    /// and the run at it: between `low` and `high`, to the factor `exact`.
    pub(super) fn saturate(
        &mut self,
        load: &Load,
        (mut low, mut high): (f64, f64),
        (lead_ns, ns): (u64, u64),
        (loss_max, exact): (f64, f64),
    ) -> (f64, Run) {
        let mut best = None;
        while high / low > exact {
            let rate = (low * high).sqrt();
            let run = self.measure(&Load { rate, ..load.clone() }, lead_ns, ns);
            if run.loss() <= loss_max {
                (low, best) = (rate, Some(run));
            } else {
                high = rate;
            }
        }
        // Where even the least is too much, the run at it says so.
        let least = Load { rate: low, ..load.clone() };
        (low, best.unwrap_or_else(|| self.measure(&least, lead_ns, ns)))
    }
}
