//! Four architectures of a cluster: nodes visited, bytes on the fabric, time of a packet by role,
//! bytes of a node's tables.
//!
//! ```text
//!  pass    packets enter at random nodes ─▶ every node in turn ─▶ all are handled or refused:
//!          links crossed, bytes, which node handled
//!  turn    the frames that node 0 got in such a pass, by role, in bursts of 32:
//!          ingress │ between │ handling │ ingress │ …     each role under its clock
//! ```
//!
//! One node runs for a whole turn, so that the caches hold its tables and no other's. In a balanced
//! cluster each node has as many packets in each role as enter there, so a packet's time is the sum
//! over the roles, and the cluster's rate is N over that sum.

mod cluster;
mod frame;
mod node;
mod tables;

use std::hint::black_box;
use std::time::Instant;

use super::node_bits;
use crate::prelude::*;
use cluster::{Cluster, Pass, draw};
use frame::{FlowKey, Frame, LEN, ROLES, Role};
use node::{ARCHITECTURES, Architecture, BURST, Drops, Node, Outbox};
use overbank::random::Pcg32;
use overbank_kit::machine::last_level_cache_bytes;
use tables::Tables;

pub const SB_ARCH: Experiment = Experiment {
    name: "sb-arch",
    title: "Four architectures of a cluster: hops, bytes, time of a packet, tables",
    source: "ScaleBricks, section 4.2",
    run,
};

/// What was measured of an architecture at a number of sessions and nodes.
struct Measured {
    architecture: Architecture,
    pass: Pass,
    /// Bytes of the largest node's tables.
    bytes: u64,
    /// Nanoseconds of a packet, by round: ingress, between, handling.
    ns: Vec<[f64; 3]>,
}

impl Measured {
    fn role(&self, at: usize) -> Spread {
        Spread::of(self.ns.iter().map(|ns| ns[at]))
    }

    fn totals(&self) -> impl Iterator<Item = f64> {
        self.ns.iter().map(|ns| ns.iter().sum())
    }

    fn total(&self) -> Spread {
        Spread::of(self.totals())
    }

    /// Bytes on the fabric for each external byte.
    fn internal(&self) -> f64 {
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
struct Sized {
    sessions: u64,
    nodes: u64,
    key: &'static str,
    all: Vec<Measured>,
    /// Bytes of an entry of the whole table.
    entry_bytes: f64,
}

impl Sized {
    fn of(&self, architecture: Architecture) -> Option<&Measured> {
        self.all.iter().find(|of| of.architecture == architecture)
    }

    fn ratio(&self, a: Architecture, b: Architecture) -> Option<Spread> {
        Some(Spread::of_ratios(self.of(a)?.totals(), self.of(b)?.totals()))
    }

    /// Nanoseconds of receiving and sending a packet, without which the nodes work here, from which
    /// on an architecture with one hop takes 0.8 of the time of a hash partition:
    /// d + 2 p = 0.8 (c + 3 p).
    fn port_ns(&self, of: &Measured) -> Option<f64> {
        let c = self.of(Architecture::HashPartition)?.total().median;
        let one_hop = of.architecture.between().is_none();
        one_hop.then(|| ((of.total().median - 0.8 * c) / 0.4).max(0.0))
    }

    fn place(&self) -> String {
        let sessions = self.sessions as f64 / 1e6;
        format!("{sessions} M sessions, {} nodes, by {}", self.nodes, self.key)
    }

    /// Bytes of a node's tables by the model.
    fn model(&self, architecture: Architecture) -> f64 {
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
struct Plan {
    counted: usize,
    arriving: usize,
    rounds: usize,
}

fn measure<K: FlowKey>(
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

const CLAIMS: &[Claim<Sized>] = &[
    Claim::new("every packet is handled by its session's node", "all", |of: &Sized| {
        let right = |m: &&Measured| {
            let Pass { packets, known, handled, refused, wrong, .. } = m.pass;
            handled == known && refused == packets - known && wrong == 0
        };
        let (count, packets) = (of.all.iter().filter(right).count(), of.all[0].pass.packets);
        let text = format!("{count} of {} architectures, {packets} packets each", of.all.len());
        Finding::new(count == of.all.len(), text)
    }),
    Claim::new("links crossed: two with (a) and (c), one with (b) and (d)", "2, 1, 2, 1", |of| {
        let exact = |m: &Measured| {
            m.pass.hops_max == m.architecture.hops()
                && m.pass.unknown_hops_max <= m.architecture.hops()
        };
        let text = listed(&of.all, |m| format!("{}: {}", m.architecture.name(), m.pass.hops_max));
        Finding::new(of.all.iter().all(exact), text)
    }),
    Claim::new(
        "internal bytes for each external one: links × (1 − 1/N), within 2 %",
        "2 R, R",
        |of: &Sized| {
            let other = 1.0 - 1.0 / of.nodes as f64;
            let off = of.all.iter().map(|m| {
                let due = f64::from(m.architecture.hops()) * other;
                (m.internal() / due - 1.0, m.architecture.name())
            });
            let (worst, name) = farthest(off);
            let bytes = listed(&of.all, |m| format!("{:.2}", m.internal()));
            let text = format!("{bytes}; {:+.1} % ({name})", 100.0 * worst);
            // The smoke size has few packets.
            let few = of.all[0].pass.packets < 100_000;
            Finding::new(worst.abs() < if few { 0.06 } else { 0.02 }, text)
        },
    ),
    Claim::new("bytes of a node's tables: those of the model, within 4 %", "n e/N + n g", |of| {
        let off = of
            .all
            .iter()
            .map(|m| (m.bytes as f64 / of.model(m.architecture) - 1.0, m.architecture.name()));
        let (worst, name) = farthest(off);
        Finding::new(worst.abs() < 0.04, format!("{:+.1} % ({name})", 100.0 * worst))
    }),
    Claim::timed("(d) takes less time than (c)", "less", |of: &Sized| {
        let ratio = of.ratio(Architecture::ScaleBricks, Architecture::HashPartition)?;
        Finding::new(ratio.median < 1.0, ratio.text())
    }),
    Claim::timed("(d) takes at most 0.8 of the time of (c)", "goal: 0.8", |of: &Sized| {
        Finding::at_most(0.8, of.ratio(Architecture::ScaleBricks, Architecture::HashPartition)?)
    })
    .because("a hop in memory costs hardly more than a lookup; the table has the port's time that decides"),
    Claim::timed(
        "(d) is as fast as (b), whose table leaves the L3",
        "goal: at most 1",
        |of: &Sized| {
            let bytes = of.of(Architecture::Duplication)?.bytes;
            (bytes > last_level_cache_bytes()? as u64).then_some(())?;
            Finding::at_most(1.0, of.ratio(Architecture::ScaleBricks, Architecture::Duplication)?)
        },
    ),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let plan = match smoke {
        true => Plan { counted: 1 << 13, arriving: 1 << 8, rounds: 2 },
        false => Plan { counted: 1 << 18, arriving: 1 << 13, rounds: 11 },
    };
    let two = [Architecture::Duplication, Architecture::ScaleBricks];
    let nodes: &[u64] = if smoke { &[2, 8] } else { &[2, 4, 8, 16, 32] };
    let sizes: &[u64] = if smoke { &[100_000] } else { &[1_000_000, 16_000_000] };
    let mut cases: Vec<(u64, u64, bool, &[Architecture])> =
        pairs(sizes, nodes).into_iter().map(|(n, of)| (n, of, false, &ARCHITECTURES[..])).collect();
    cases.push((sizes[0], 4, true, &ARCHITECTURES));
    if !smoke {
        // A table of more than 480 MiB.
        cases.push((64_000_000, 16, false, &two));
    }
    let total: u64 = cases.iter().map(|case| case.0).sum();
    let (mut all, mut before) = (Vec::new(), 0);
    for (sessions, nodes, wide, architectures) in cases {
        let share = |done: u64| done as f64 / total as f64;
        let part = (share(before), share(before + sessions));
        before += sessions;
        all.push(context.part(part, |context| {
            let size = (sessions, nodes);
            match wide {
                true => measure::<u128>(context, &plan, size, architectures),
                false => measure::<u64>(context, &plan, size, architectures),
            }
        })?);
    }
    let mut record = SB_ARCH.record(context);
    record.setting("bytes of a packet", LEN);
    record.setting("burst", BURST);
    record.setting("packets of a node in a turn, each role", plan.arriving);
    if let Some(bytes) = last_level_cache_bytes() {
        record.setting("last-level cache, as reported", format!("{} MiB", bytes >> 20));
    }
    record.settings([isa()]);
    for of in &all {
        record.judge(&of.place(), CLAIMS, of);
        record.tables.push(Table::of(
            of.place(),
            &of.all,
            &[
                ("architecture", &|m| m.architecture.name().to_owned()),
                ("links, at most", &|m| m.pass.hops_max.to_string()),
                ("internal bytes/external", &|m| format!("{:.2}", m.internal())),
                ("ingress, ns", &|m| format!("{:.1}", m.role(0).median)),
                ("between, ns", &|m| format!("{:.1}", m.role(1).median)),
                ("handling, ns", &|m| format!("{:.1}", m.role(2).median)),
                ("all, ns", &|m| m.total().cell(1)),
                ("× (b)", &|m| {
                    let ratio = of.ratio(m.architecture, Architecture::Duplication);
                    ratio.map_or(String::new(), |ratio| ratio.cell(2))
                }),
                ("port, ns, for 0.8 × (c)", &|m| {
                    of.port_ns(m).map_or(String::new(), |ns| format!("{ns:.0}"))
                }),
                ("tables of a node, MB", &|m| format!("{:.2}", m.bytes as f64 / 1e6)),
                ("model, MB", &|m| format!("{:.2}", of.model(m.architecture) / 1e6)),
            ],
        ));
    }
    for &sessions in sizes {
        let of_size = || all.iter().filter(|of| of.sessions == sessions && of.key == u64::NAME);
        let curve = |&architecture: &Architecture| {
            let of = of_size().filter_map(|of| Some((of.nodes as f64, of.of(architecture)?)));
            Series::rounds(architecture.name(), of.map(|(n, m)| (n, m.total())))
        };
        let title = format!("{} M sessions", sessions as f64 / 1e6);
        let plot = Plot::new(title, "nodes", "ns of all nodes for a packet").log_x();
        record.plots.push(plot.with(ARCHITECTURES.iter().map(curve)));
    }
    record.note(
        "A hop costs here what it costs in memory: a frame copied, its addresses read and written. Drivers \
         and interfaces cost more, which is in favour of fewer hops: with p ns for receiving and sending at \
         each node, two nodes stand against three, and the table has the p from which (d) takes 0.8 of the \
         time of (c). Links crossed are those of the longest \
         way; a packet that enters at its next node saves one, with probability 1/N.",
    );
    record.note(
        "A slot number that was found travels with the frame in (a) to (c), so their handling nodes look up \
         nothing. (d) looks up twice, in two smaller tables. Its time is compared with (b)'s where (b)'s \
         table is larger than the last-level cache that the machine reports, which other machines of the \
         host share.",
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::super::handling;
    use super::*;

    fn checks<K: FlowKey>(nodes: u64) {
        let size = (20_000, nodes);
        let tables = smoke(|context| Tables::<K>::build(context, size, true)).unwrap();
        let mut pcg = Pcg32::new(1, 1);
        for architecture in ARCHITECTURES {
            let mut cluster = Cluster::new(&tables, architecture);
            let keys = draw::<K>(size, 5000, true, &mut pcg);
            let mut visits = [0u64; 4];
            let pass = cluster.pass(&keys, &mut pcg, |role, _, frames| {
                visits[role as usize] += frames.len() as u64;
            });
            let name = architecture.name();
            assert_eq!((pass.handled, pass.wrong), (pass.known, 0), "{name}");
            assert_eq!(pass.refused, 5000 - pass.known, "{name}");
            // Unknown keys are refused by the first forwarding table.
            let (known, all) = (pass.known, pass.packets);
            let due = match architecture {
                Architecture::RouteBricks => [all, known, 0, known],
                Architecture::Duplication => [all, 0, 0, known],
                Architecture::HashPartition => [all, 0, all, known],
                _ => [all, 0, 0, all],
            };
            assert_eq!(visits, due, "{name}");
        }
    }

    #[test]
    fn every_architecture_leads_packets_to_their_node() {
        checks::<u64>(4);
        checks::<u128>(2);
    }

    /// The counts of a session are those of its packets, and the tunnel is the session's.
    #[test]
    fn sessions_count_and_get_their_tunnel() {
        use std::sync::atomic::Ordering::Relaxed;
        let tables = smoke(|context| Tables::<u64>::build(context, (1000, 2), true)).unwrap();
        let mut cluster = Cluster::new(&tables, Architecture::ScaleBricks);
        let keys: Vec<_> = (0..3).map(|_| (u64::of(7), Some(handling(7, 2)))).collect();
        let mut pcg = Pcg32::new(1, 1);
        assert_eq!(cluster.pass(&keys, &mut pcg, |_, _, _| ()).handled, 3);
        let lines = tables.sessions[usize::from(handling(7, 2))].get();
        let line = lines.chunks(node::LINE).find(|line| line[0].load(Relaxed) == u64::of(7));
        let line: Vec<u64> = line.unwrap().iter().map(|word| word.load(Relaxed)).collect();
        assert_eq!((line[2] as u32, line[3], line[4]), (8, 3, 150));
    }
}
