//! Passes and turns of an architecture at a number of sessions and nodes.

use std::hint::black_box;
use std::time::Instant;

use super::super::node_bits;
use super::super::nodes::{
    Architecture, BURST, Cluster, Drops, FlowKey, Frame, Node, Outbox, Pass, ROLES, Role, Tables,
    draw,
};
use crate::prelude::*;
use overbank::random::Pcg32;

/// What was measured of an architecture at a number of sessions and nodes.
pub(super) struct Measured {
    pub(super) architecture: Architecture,
    pub(super) pass: Pass,
    /// Bytes of the largest node's tables.
    pub(super) bytes: u64,
    /// Nanoseconds of a packet, by round: ingress, between, handling.
    pub(super) ns: Vec<[f64; 3]>,
}

impl Measured {
    pub(super) fn role(&self, at: usize) -> Spread {
        Spread::of(self.ns.iter().map(|ns| ns[at]))
    }

    pub(super) fn totals(&self) -> impl Iterator<Item = f64> {
        self.ns.iter().map(|ns| ns.iter().sum())
    }

    pub(super) fn total(&self) -> Spread {
        Spread::of(self.totals())
    }

    /// Bytes on the fabric for each external byte.
    pub(super) fn internal(&self) -> f64 {
        self.pass.hops as f64 / self.pass.handled.max(1) as f64
    }
}

/// The frames that node 0 got, by role.
type Arrivals = [Vec<Frame>; 4];

/// Runs node 0 over what it got: nanoseconds of a packet by role, of the median burst. The first
/// quarter is not timed.
fn turn<K: FlowKey>(node: &mut Node<K>, arrivals: &Arrivals, out: &mut Outbox) -> [f64; 3] {
    let mut spent: [Vec<f64>; 4] = Default::default();
    let bursts = arrivals.iter().map(|all| all.len() / BURST).filter(|&n| n > 0).min();
    let bursts = bursts.unwrap_or(0);
    for burst in 0..bursts {
        for (at, role) in ROLES.into_iter().enumerate() {
            let all = &arrivals[at];
            if all.is_empty() {
                continue;
            }
            let now = &all[burst * BURST..(burst + 1) * BURST];
            let start = Instant::now();
            node.work(role, now, out);
            if burst >= bursts / 4 {
                spent[at].push(start.elapsed().as_nanos() as f64 / BURST as f64);
            }
        }
    }
    black_box(out.take().count());
    let [ingress, indirect, lookup, handling] = spent.map(median);
    [ingress, indirect + lookup, handling]
}

/// A number of sessions and nodes.
pub(super) struct Sized {
    pub(super) sessions: u64,
    pub(super) nodes: u64,
    pub(super) key: &'static str,
    pub(super) all: Vec<Measured>,
    /// Bytes of an entry of the whole table.
    pub(super) entry_bytes: f64,
}

impl Sized {
    pub(super) fn of(&self, architecture: Architecture) -> Option<&Measured> {
        self.all.iter().find(|of| of.architecture == architecture)
    }

    pub(super) fn ratio(&self, a: Architecture, b: Architecture) -> Option<Spread> {
        Some(Spread::of_ratios(self.of(a)?.totals(), self.of(b)?.totals()))
    }

    /// Nanoseconds of receiving and sending a packet, without which the nodes work here, from which
    /// on an architecture with one hop takes 0.8 of the time of a hash partition:
    /// d + 2 p = 0.8 (c + 3 p).
    pub(super) fn port_ns(&self, of: &Measured) -> Option<f64> {
        let c = self.of(Architecture::HashPartition)?.total().median;
        let one_hop = of.architecture.between().is_none();
        one_hop.then(|| ((of.total().median - 0.8 * c) / 0.4).max(0.0))
    }

    pub(super) fn place(&self) -> String {
        let sessions = self.sessions as f64 / 1e6;
        format!("{sessions} M sessions, {} nodes, by {}", self.nodes, self.key)
    }

    /// Bytes of a node's tables by the model.
    pub(super) fn model(&self, architecture: Architecture) -> f64 {
        let (all, value) = (self.sessions as f64, f64::from(node_bits(self.nodes)));
        let share = all / self.nodes as f64 * self.entry_bytes;
        match architecture {
            Architecture::RouteBricks | Architecture::Duplication => all * self.entry_bytes,
            Architecture::HashPartition => share,
            // 128 unknowns of 127 bits, 93 % full, and the choices.
            Architecture::ScaleBricks => share + all * (0.125 + 1.084 * value) / 8.0,
            Architecture::WithSetSep => share + all * (0.5 + 1.5 * value) / 8.0,
        }
    }
}

/// Packets of a counting pass, packets a node in a turn, rounds.
pub(super) struct Plan {
    pub(super) counted: usize,
    pub(super) arriving: usize,
    pub(super) rounds: usize,
}

pub(super) fn measure<K: FlowKey>(
    context: &mut Context<'_>,
    plan: &Plan,
    size: (u64, u64),
    architectures: &[Architecture],
) -> Result<Sized, LabError> {
    let (sessions, nodes) = size;
    let tables = context.part((0.0, 0.7), |context| {
        Tables::<K>::build(context, size, architectures.contains(&Architecture::HashPartition))
    })?;
    let mut pcg = Pcg32::new(context.seed, 11);
    let mut all = Vec::new();
    for &architecture in architectures {
        let mut cluster = Cluster::new(&tables, architecture);
        let keys = draw::<K>(size, plan.counted, true, &mut pcg);
        let pass = cluster.pass(&keys, &mut pcg, |_, _, _| ());
        let bytes = cluster.nodes.iter().map(Node::bytes).max().unwrap_or(0);
        all.push(Measured { architecture, pass, bytes, ns: Vec::new() });
    }
    let mut out = Outbox::new();
    let turned = |of: &mut Measured, pcg: &mut Pcg32, out: &mut Outbox| {
        let mut cluster = Cluster::new(&tables, of.architecture);
        let mut arrivals = Arrivals::default();
        let wants = |arrivals: &Arrivals| {
            let between = of.architecture.between();
            let roles = [Some(Role::Ingress), between, Some(Role::Handling)];
            let short = |role: Role| arrivals[role as usize].len() < plan.arriving;
            roles.into_iter().flatten().any(short)
        };
        while wants(&arrivals) {
            let keys = draw::<K>(size, 8 * BURST * nodes as usize, false, pcg);
            cluster.pass(&keys, pcg, |role, node, frames| {
                if node == 0 {
                    arrivals[role as usize].extend_from_slice(frames);
                }
            });
        }
        let mut node = Node::new(&tables, of.architecture, 0);
        let ns = turn(&mut node, &arrivals, out);
        if node.drops != Drops::default() {
            return Err(LabError::Failed(format!("{}: packets dropped", of.architecture.name())));
        }
        of.ns.push(ns);
        Ok(ns.iter().sum())
    };
    let what = format!("{sessions} sessions, {nodes} nodes: packets");
    Rounds::run(
        &mut all,
        plan.rounds,
        |done| context.step(&what, 0.7 + 0.3 * done),
        |of, _| turned(of, &mut pcg, &mut out),
    )?;
    let entry_bytes = tables.whole.bytes() as f64 / sessions as f64;
    Ok(Sized { sessions, nodes, key: K::NAME, all, entry_bytes })
}
