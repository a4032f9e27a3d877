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

mod claims;
mod measure;

use super::nodes::{ARCHITECTURES, Architecture, BURST, FlowKey, LEN};
use crate::prelude::*;
use claims::CLAIMS;
use measure::{Plan, measure};
use overbank_kit::machine::last_level_cache_bytes;

pub const SB_ARCH: Experiment = Experiment {
    name: "sb-arch",
    title: "Four architectures of a cluster: hops, bytes, time of a packet, tables",
    source: "ScaleBricks, section 4.2",
    run,
};

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
