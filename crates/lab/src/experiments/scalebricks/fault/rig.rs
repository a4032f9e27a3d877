//! A cluster under traffic, and what became of its packets over time.

use std::time::Instant;

use crate::prelude::*;
use overbank::random::Pcg32;
use overbank_gateway::local::{Account, Burst, Local, Population};
use overbank_gateway::reason::DropReason;
use overbank_gateway::settings::Role;
use overbank_reasons::Reasons;

/// Time between two looks at the cluster.
pub(super) const STEP_MS: u64 = 10;
/// Steps of a slice of the timeline.
const SLICE: u64 = 10;
/// Distances of packets between events: 1, 2, … 128 events.
const LEVELS: u32 = 8;
/// Packets of a burst.
const BURST: u32 = 32;

/// What became of packets: counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fates {
    pub(super) received: u64,
    pub(super) handled: u64,
    /// Sent to another node; one that is forwarded twice counts twice.
    pub(super) forwarded: u64,
    /// Lost on the fabric: sent to a node that does not run, or by a cut link.
    lost: u64,
    /// No node was ready to take them.
    pub(super) turned_away: u64,
    dropped: [u64; DropReason::COUNT],
    /// Error Indications that were due: sent, or kept back by their limits.
    pub(super) indications: u64,
}

impl Fates {
    fn of(local: &Local, turned_away: u64) -> Fates {
        let Account { received, totals, dropped } = local.total();
        let handled = totals.uplink + totals.downlink;
        let (forwarded, lost) = (totals.fabric_sent, local.lost());
        let indications = totals.error_indications + totals.error_indications_limited;
        Fates { received, handled, forwarded, lost, turned_away, dropped, indications }
    }

    pub(super) fn since(&self, start: &Fates) -> Fates {
        let mut dropped = self.dropped;
        dropped.iter_mut().zip(start.dropped).for_each(|(count, start)| *count -= start);
        Fates {
            received: self.received - start.received,
            handled: self.handled - start.handled,
            forwarded: self.forwarded - start.forwarded,
            lost: self.lost - start.lost,
            turned_away: self.turned_away - start.turned_away,
            dropped,
            indications: self.indications - start.indications,
        }
    }

    /// Packets that came to the cluster and were not handled.
    pub(super) const fn missing(&self) -> u64 {
        self.received + self.turned_away - self.handled
    }

    /// Returns each fate with its count, handled packets first.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (handled, lost) = (("handled", self.handled), ("lost on the fabric", self.lost));
        let first = [handled, lost, ("no node is ready", self.turned_away)];
        let dropped = self.dropped.into_iter().enumerate();
        first.into_iter().chain(dropped.map(|(at, count)| (DropReason::name_at(at), count)))
    }

    pub(super) fn named(&self, name: &str) -> u64 {
        self.by_name().filter(|of| of.0 == name).map(|of| of.1).sum()
    }
}

/// The state of the cluster at the end of a slice.
pub(super) struct Slice {
    pub(super) at_ms: u64,
    /// Since the start of the timeline.
    pub(super) fates: Fates,
    /// Sessions that are handled by all nodes, and by that one.
    pub(super) serving: [usize; 2],
}

/// Where packets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ingress {
    /// At nodes that say that they are ready, as routers send them.
    Ready,
    /// At all nodes.
    All,
}

/// When packets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Come {
    /// Also between two events that a node takes one by one.
    Between,
    /// After the nodes have taken what has come in for them, all at once, as drivers have them do.
    After,
}

/// A cluster, its terminals, and their packets.
pub(super) struct Rig {
    pub(super) local: Local,
    pub(super) population: Population,
    random: Pcg32,
    ingress: Ingress,
    packets_come: Come,
    /// The node under test.
    node: u8,
    packets: u32,
    turned_away: u64,
    start_ms: u64,
    start: Option<Fates>,
    pub(super) slices: Vec<Slice>,
    /// Seconds that the nodes' control took, by step.
    pub(super) control: Vec<f64>,
    /// Steps at whose end an account did not close, or a session had two nodes.
    pub(super) open: u64,
    pub(super) twice: u64,
    burst: Burst,
}

impl Rig {
    /// Returns a cluster with its sessions placed.
    pub(super) fn new(
        (nodes, sessions): (u8, u32),
        (node, ingress, packets_come): (u8, Ingress, Come),
        packets: u32,
        seed: u64,
    ) -> Result<Rig, LabError> {
        let population = Population::new(sessions);
        let mut local = Local::new(population.plan(nodes, seed)).map_err(LabError::failed)?;
        population.place(&mut local).map_err(LabError::failed)?;
        Ok(Rig {
            local,
            population,
            random: Pcg32::new(seed, 31),
            ingress,
            packets_come,
            node,
            packets,
            turned_away: 0,
            start_ms: 0,
            start: None,
            slices: Vec::new(),
            control: Vec::new(),
            open: 0,
            twice: 0,
            burst: Burst::default(),
        })
    }

    /// Lets the time pass without packets, until `done`; an error after a minute.
    pub(super) fn settle(&mut self, done: impl Fn(&Local) -> bool) -> Result<(), LabError> {
        for _ in 0..60_000 / STEP_MS {
            if done(&self.local) {
                return Ok(());
            }
            self.local.advance(self.local.now_us() + 1000 * STEP_MS);
        }
        Err(LabError::Failed("the cluster does not settle".to_owned()))
    }

    /// Begins the timeline.
    pub(super) fn begin(&mut self) {
        self.start_ms = self.local.now_us() / 1000;
        self.start = Some(Fates::of(&self.local, self.turned_away));
    }

    /// Returns the time since the start of the timeline.
    pub(super) fn now_ms(&self) -> u64 {
        self.local.now_us() / 1000 - self.start_ms
    }

    /// Passes a step.
    pub(super) fn step(&mut self) {
        let (now, start) = (self.local.now_us() + 1000 * STEP_MS, Instant::now());
        match self.packets_come {
            Come::After => self.local.advance(now),
            Come::Between => self.local.begin(now),
        }
        let (mut left, mut spent) = (self.packets, start.elapsed().as_secs_f64());
        // Half of the packets come one by one, at distances that double.
        let level = (self.packets / 2 / LEVELS).max(1);
        let (mut event, mut next) = (0u32, 0);
        loop {
            let start = Instant::now();
            let more = self.local.step();
            spent += start.elapsed().as_secs_f64();
            if !more {
                break;
            }
            if event == next && left > self.packets / 2 {
                left -= self.send(1);
                next += 1 << ((self.packets - left) / level);
            }
            event += 1;
            self.look();
        }
        while left > 0 {
            left -= self.send(left.min(BURST));
        }
        self.open += u64::from(!self.local.closes());
        self.control.push(spent);
        if (self.control.len() as u64).is_multiple_of(SLICE) {
            let slice = self.slice();
            self.slices.push(slice);
        }
    }

    fn look(&mut self) {
        // A node that is cut off counts its sessions until it hears that others have them.
        if self.ingress == Ingress::Ready {
            let twice = self.local.serving() > self.population.count() as usize;
            self.twice += u64::from(twice);
        }
    }

    /// Returns what became of packets since the start of the timeline.
    pub(super) fn fates(&self) -> Fates {
        let fates = Fates::of(&self.local, self.turned_away);
        self.start.map_or(fates, |start| fates.since(&start))
    }

    fn slice(&self) -> Slice {
        let serving = [self.local.serving(), self.local.status(self.node).serving];
        Slice { at_ms: self.now_ms(), fates: self.fates(), serving }
    }

    /// Sends a burst of random sessions in at a random node; returns its packets.
    fn send(&mut self, count: u32) -> u32 {
        let role = if self.random.below(2) == 0 { Role::N3 } else { Role::N6 };
        self.burst.clear();
        for _ in 0..count {
            let number = 1 + self.random.below(self.population.count());
            self.population.packet(number, role, &mut self.burst);
        }
        self.enter(role);
        count
    }

    fn enter(&mut self, role: Role) {
        let nodes = (0..self.local.nodes()).filter(|&node| match self.ingress {
            Ingress::Ready => self.local.is_ready(node),
            Ingress::All => true,
        });
        let nodes: Vec<u8> = nodes.collect();
        match nodes.get(self.random.below(nodes.len().max(1) as u32) as usize) {
            Some(&node) => self.local.send(node, role, &self.burst),
            None => self.turned_away += self.burst.len() as u64,
        }
    }

    /// Sends a packet of each session in; returns how many were not handled.
    pub(super) fn sweep(&mut self) -> u64 {
        let before = self.local.total().handled();
        let count = self.population.count();
        for first in (1..=count).step_by(BURST as usize) {
            let role = if (first / BURST).is_multiple_of(2) { Role::N3 } else { Role::N6 };
            self.burst.clear();
            for number in first..=count.min(first + BURST - 1) {
                self.population.packet(number, role, &mut self.burst);
            }
            self.enter(role);
        }
        u64::from(count) - (self.local.total().handled() - before)
    }
}
