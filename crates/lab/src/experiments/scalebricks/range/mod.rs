//! What a site gets without a GPT: ranges of TEIDs and of addresses, each of which is a node's, and
//! an entry (a route to one host) for every session that is not where its range is.
//!
//! ```text
//!   key     │ range (chunk) │ number in it │      16 chunks a node, of uneven use
//!   node    exception of the key, or else the owner of its chunk
//!   GPT     node of the key's hash
//! ```
//!
//! A session has a TEID, which its node gave out, and an address: of the chunk of the same number,
//! so that both can go together, or static, which is in any pool. Events move sessions one by one
//! or chunk by chunk.

mod claims;
mod lookup;
mod site;

use std::hint::black_box;
use std::time::Instant;

use super::node_bits;
use crate::prelude::*;
use claims::CLAIMS;
use lookup::{BURST, Ranges, by_gpt, hash};
use overbank::partition::{Config, Replica};
use overbank::random::Pcg32;
use site::{CHUNKS, EVENTS, Event, Site};

pub const GPT_VS_RANGE: Experiment = Experiment {
    name: "gpt-vs-range",
    title: "Ranges of TEIDs and addresses beside a partition table, as sessions move",
    source: "Target of this project",
    run,
};

struct Measured {
    event: Event,
    /// Of TEIDs and of addresses; the latter are routes to one host.
    exceptions: [u64; 2],
    moved: u64,
    balance: f64,
    /// Ranges with exceptions, and GPT.
    bytes: [usize; 2],
    rounds: Rounds,
    wrong: u64,
}

fn measure(
    context: &mut Context<'_>,
    event: Event,
    sessions: u64,
    nodes: u32,
) -> Result<Measured, LabError> {
    let site = Site::after(event, sessions, nodes, context.seed);
    context.step(&format!("{nodes} nodes, {}: tables", event.name()), 0.4)?;
    let ranges = Ranges::new(&site, context.seed)?;
    let config = Config::new(2 * sessions as usize, node_bits(nodes.into()) as usize);
    let entries = [0, 1].into_iter().flat_map(|which| {
        let keys = site.keys[which].iter().zip(&site.node);
        keys.map(move |(&key, &node)| (hash(which, key), node))
    });
    let (gpt, _) = Replica::build(&config, entries).map_err(LabError::failed)?;
    let gpt = gpt.reader();
    let bytes = [ranges.bytes(), gpt.bytes()];
    let look_up = |by: usize, which: usize, keys: &[u32], found: &mut [u8]| match by {
        0 => ranges.nodes(which, keys, found),
        _ => by_gpt(&gpt, which, keys, found),
    };
    let (mut found, mut wrong) = ([0; BURST], 0);
    for (by, which) in pairs(&[0, 1], &[0, 1]) {
        for (keys, nodes) in site.keys[which].chunks(BURST).zip(site.node.chunks(BURST)) {
            look_up(by, which, keys, &mut found);
            wrong += nodes.iter().zip(&found).filter(|(due, found)| due != found).count() as u64;
        }
    }
    let (count, rounds) = if context.smoke() { (1 << 10, 2) } else { (1 << 17, 9) };
    let mut pcg = Pcg32::new(context.seed, 14);
    let rounds = Rounds::run(
        &mut [0, 1],
        rounds,
        |done| context.step(&format!("{nodes} nodes, {}", event.name()), 0.6 + 0.4 * done),
        |&mut by, _| {
            let keys: Vec<u32> =
                (0..count).map(|_| site.keys[1][pcg.below(sessions as u32) as usize]).collect();
            let start = Instant::now();
            for keys in keys.chunks(BURST) {
                look_up(by, 1, keys, &mut found);
                black_box(&found);
            }
            Ok(start.elapsed().as_nanos() as f64 / count as f64)
        },
    )?;
    let exceptions = [0, 1].map(|which| site.exceptions(which).count() as u64);
    let (moved, balance) = (site.moved, site.balance());
    Ok(Measured { event, exceptions, moved, balance, bytes, rounds, wrong })
}

struct Sized {
    sessions: u64,
    all: Vec<Measured>,
}

impl Sized {
    fn of(&self, event: Event) -> Option<&Measured> {
        self.all.iter().find(|of| of.event == event)
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let sessions: u64 = if context.smoke() { 40_000 } else { 4_000_000 };
    let all = context.each(
        [4, 16],
        |nodes| format!("{nodes} nodes"),
        |context, nodes| {
            let all = context.each(
                EVENTS,
                |event| format!("{nodes} nodes, {}", event.name()),
                |context, event| measure(context, event, sessions, nodes),
            )?;
            Ok((nodes, Sized { sessions, all }))
        },
    )?;
    let mut record = GPT_VS_RANGE.record(context);
    record.setting("sessions", sessions);
    record.setting("ranges of a node", CHUNKS);
    record.settings([isa()]);
    for (nodes, of) in &all {
        let place = format!("{nodes} nodes");
        record.judge(&place, CLAIMS, of);
        let share = |count: u64| percent(count as f64 / of.sessions as f64, 1);
        record.tables.push(Table::of(
            place,
            &of.all,
            &[
                ("event", &|m| m.event.name()),
                ("sessions moved", &|m| share(m.moved)),
                ("TEIDs off their range", &|m| share(m.exceptions[0])),
                ("routes to one host", &|m| m.exceptions[1].to_string()),
                ("ranges, MB", &|m| format!("{:.2}", m.bytes[0] as f64 / 1e6)),
                ("GPT, MB", &|m| format!("{:.2}", m.bytes[1] as f64 / 1e6)),
                ("ranges, ns", &|m| m.rounds.spread(0).cell(1)),
                ("GPT, ns", &|m| m.rounds.spread(1).cell(1)),
                ("largest load/mean", &|m| format!("{:.3}", m.balance)),
            ],
        ));
    }
    record.note(
        "Where whole ranges move and never single sessions, ranges suffice, through drains and upgrades: \
         they are smaller and faster, the load stays within 10 % of even, and routers need no route \
         to one host. A range then changes its node as one: with 16 ranges a node, a sixteenth of a node's \
         sessions at an instant. A few percent of sessions off their range (static addresses, single moves) \
         cost less as exceptions than all sessions in a GPT. With more, the GPT is smaller, its size does \
         not depend on what happened, and no router knows of it.",
    );
    record.note(
        "Exceptions must be on every ingress node, as the GPT must. They are counted with 9.6 bytes, what an \
         entry of our forwarding table takes for 48-bit keys and 16-bit values.",
    );
    Ok(record)
}
