//! The cluster and its traffic: steps of 10 ms, packets also between the steps of the nodes.

use super::Args;
use super::reading::{NodeReading, Reading};
use super::script::Command;
use anyhow::{Result, bail};
use overbank::random::Pcg32;
use overbank_gateway::DropReason;
use overbank_gateway::local::{Burst, Links, Local, NODES_MAX, NodeState, Population};
use overbank_gateway::settings::Role;
use overbank_reasons::Reasons as _;

/// Time between two steps.
pub const STEP_MS: u64 = 10;
/// Packets of a burst.
const BURST: u64 = 32;

pub struct World {
    local: Local,
    population: Population,
    random: Pcg32,
    burst: Burst,
    rate: u64,
    /// Numbers of terminals that packets name: those beyond the population have no session.
    numbers: u32,
    /// Packets that were due, in thousandths.
    due: u64,
    started_us: u64,
    /// Packets that found no ready node.
    turned_away: u64,
    /// Nodes that have run: numbers below this.
    seen: u8,
    /// Nodes that are to leave.
    leaving: [bool; NODES_MAX as usize],
}

impl World {
    pub fn new(args: &Args) -> Result<World> {
        let population = Population::new(args.sessions);
        let mut plan = population.plan(NODES_MAX, args.seed);
        plan.running = args.nodes;
        let mut local = Local::new(plan)?;
        population.place(&mut local)?;
        local.watch();
        let (known, unknown) = (u64::from(args.sessions), u64::from(args.unknown));
        // All are unknown: numbers above the population alone.
        let numbers = if unknown == 100 { 0 } else { known * 100 / (100 - unknown) };
        Ok(World {
            started_us: local.now_us(),
            local,
            population,
            random: Pcg32::new(args.seed, 1),
            burst: Burst::default(),
            rate: args.rate.into(),
            numbers: numbers.min(u64::from(u32::MAX >> 9)) as u32,
            due: 0,
            turned_away: 0,
            seen: args.nodes,
            leaving: [false; NODES_MAX as usize],
        })
    }

    /// Returns the time since the sessions were placed.
    pub fn time_ms(&self) -> u64 {
        (self.local.now_us() - self.started_us) / 1000
    }

    pub fn is_whole_second(&self) -> bool {
        self.time_ms().is_multiple_of(1000)
    }

    /// Lets a step of time pass: half of its packets come in between the steps of the nodes.
    pub fn tick(&mut self) {
        self.due += self.rate * STEP_MS;
        let mut left = self.due / 1000;
        self.due %= 1000;
        let after = left / 2;
        self.local.begin(self.local.now_us() + STEP_MS * 1000);
        while self.local.step() {
            if left > after {
                left -= self.send((left - after).min(BURST));
            }
        }
        while left > 0 {
            left -= self.send(left.min(BURST));
        }
    }

    /// Sends a burst in at a ready node: routers leave out one that is not ready.
    fn send(&mut self, count: u64) -> u64 {
        let nodes = 0..self.local.nodes();
        let ready = || nodes.clone().filter(|&node| self.local.is_ready(node));
        let nth = self.random.below(ready().count() as u32) as usize;
        let Some(node) = ready().nth(nth) else {
            self.turned_away += count;
            return count;
        };
        let role = if self.random.below(2) == 0 { Role::N3 } else { Role::N6 };
        self.burst.clear();
        for _ in 0..count {
            let number = match self.numbers {
                0 => self.population.count() + 1 + self.random.below(self.population.count()),
                numbers => 1 + self.random.below(numbers),
            };
            self.population.packet(number, role, &mut self.burst);
        }
        self.local.send(node, role, &self.burst);
        count
    }

    /// Performs a command; returns what happened, in words.
    ///
    /// # Errors
    /// The node is not in a state for it.
    pub fn perform(&mut self, command: Command) -> Result<Option<String>> {
        Ok(Some(match command {
            Command::Kill(node) => {
                let sessions = self.local.status(node).serving;
                if !self.local.kill(node) {
                    bail!("node {node} does not run");
                }
                format!("node {node} was killed; it handled {sessions} sessions")
            }
            Command::Start(node) => {
                let anew = self.local.status(node).state == NodeState::Down;
                if anew {
                    // A new machine is connected.
                    self.local.connect(node, Links::Whole);
                }
                if !self.local.start(node)? {
                    bail!("node {node} runs already");
                }
                self.seen = self.seen.max(node + 1);
                self.leaving[usize::from(node)] = false;
                format!("node {node} starts")
            }
            Command::Drain(node) => {
                if !self.local.drain(node) {
                    bail!("node {node} is no member of the cluster");
                }
                self.leaving[usize::from(node)] = true;
                format!("node {node} gives its sessions away")
            }
            Command::Link(node, links) => {
                if self.local.status(node).state == NodeState::Down {
                    bail!("node {node} does not run");
                }
                self.local.connect(node, links);
                let how = match links {
                    Links::Cut => "is cut off from the others",
                    Links::Lagging => "hears the log late",
                    Links::Whole => "is connected again",
                };
                format!("node {node} {how}")
            }
            Command::Move(node, count) => {
                if self.local.status(node).state != NodeState::Live {
                    bail!("node {node} is not live");
                }
                let asked = self.local.move_to(node, count);
                format!("{asked} sessions move to node {node}")
            }
            Command::WaitMs(_) | Command::Settle => return Ok(None),
        }))
    }

    /// Returns the lowest node that does not run.
    #[cfg(feature = "top")]
    pub fn free_node(&self) -> Option<u8> {
        (0..self.local.nodes()).find(|&node| {
            matches!(self.local.status(node).state, NodeState::Down | NodeState::Left)
        })
    }

    /// Whether a node that is cut off has stopped.
    fn is_fenced(&self, node: u8) -> bool {
        let was_live = self.local.status(node).state == NodeState::Live;
        was_live && self.local.links(node) == Links::Cut && !self.local.is_ready(node)
    }

    /// Returns the sessions that are handled.
    fn serving(&self) -> usize {
        let nodes = (0..self.seen).filter(|&node| !self.is_fenced(node));
        nodes.map(|node| self.local.status(node).serving).sum()
    }

    /// Whether one node handles each session, and none is on its way.
    pub fn is_settled(&self) -> bool {
        let still = |node| {
            let status = self.local.status(node);
            let rests = match status.state {
                NodeState::Down | NodeState::Left => true,
                NodeState::Live => !self.leaving[usize::from(node)],
                _ => false,
            };
            status.moving == 0 && rests
        };
        let moves = self.local.moves();
        moves.asked == moves.done + moves.refused
            && self.serving() == self.population.count() as usize
            && (0..self.local.nodes()).all(still)
    }

    pub fn read(&self) -> Reading {
        let total = self.local.total();
        let (exits, moves) = (self.local.exits(), self.local.moves());
        // Notes between nodes are no packets.
        let is_packet = |at: usize| DropReason::name_at(at) != "fabric_note";
        let dropped = total.dropped.into_iter().enumerate();
        let dropped = dropped.filter(|(at, count)| *count > 0 && is_packet(*at));
        let nodes = (0..self.seen).map(|node| {
            let (status, account) = (self.local.status(node), self.local.account(node));
            NodeReading {
                node,
                state: if self.is_fenced(node) { "fenced" } else { status.state.name() },
                links: match self.local.links(node) {
                    Links::Whole => "whole",
                    Links::Lagging => "lagging",
                    Links::Cut => "cut",
                },
                ready: status.ready,
                serving: if self.is_fenced(node) { 0 } else { status.serving },
                moving: status.moving,
                partitions: status.partitions,
                table_bytes: status.table_bytes,
                received: account.received,
                handled: account.handled(),
                forwarded: account.totals.fabric_sent,
                dropped: account.dropped(),
            }
        });
        let cluster = self.local.cluster();
        Reading {
            schema: Reading::SCHEMA,
            time_s: self.time_ms() as f64 / 1e3,
            received: total.received,
            uplink: total.totals.uplink,
            downlink: total.totals.downlink,
            forwarded: total.totals.fabric_sent,
            lost: self.local.lost(),
            dropped: dropped.map(|(at, count)| (DropReason::name_at(at), count)).collect(),
            turned_away: self.turned_away,
            right: exits.right,
            misrouted: exits.misrouted,
            closes: self.local.closes(),
            sessions: self.population.count(),
            serving: self.serving(),
            moves_asked: moves.asked,
            moves_done: moves.done,
            moves_refused: moves.refused,
            coordinator: cluster.coordinator,
            members: cluster.members,
            epochs: cluster.epochs,
            nodes: nodes.collect(),
            rates: None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// A small cluster under traffic.
    pub fn world(nodes: u8) -> World {
        let arguments = ["demo", "--nodes", &nodes.to_string(), "--sessions", "400"];
        World::new(&Cli::parse_from(arguments).args).expect("it fits")
    }

    #[test]
    fn the_rate_is_kept_and_a_fenced_node_counts_no_session() {
        let mut world = world(3);
        (0..100).for_each(|_| world.tick());
        assert_eq!((world.read().received, world.time_ms()), (20_000, 1000));
        assert!(world.is_settled());
        world.perform(Command::Link(1, Links::Cut)).expect("it runs");
        (0..600).for_each(|_| world.tick());
        let now = world.read();
        assert_eq!((now.nodes[1].state, now.nodes[1].serving, now.serving), ("fenced", 0, 400));

        assert_eq!((now.misrouted, now.closes), (0, true));
    }
}
