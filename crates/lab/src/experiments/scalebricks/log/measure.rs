//! Latency, rates and time of CPUs by changes of a batch.

use std::sync::Arc;
use std::time::Instant;

use overbank_cluster::log::Batch;
use overbank_cluster::table::Dense;
use overbank_cluster::{Key, Member, NodeId, SessionId, rib};
use overbank_stores::bytes;

use super::super::hash;
use super::servers::cpu;
use super::transport::{JetStream, Tcp, Transport};
use super::{PARTITIONS, SB_LOG};
use crate::prelude::*;

const SIZES: [u64; 5] = [1, 16, 64, 256, 1024];
/// Name and servers of each way.
const WAYS: [(&str, usize); 3] =
    [("JetStream, 1 server", 1), ("JetStream, 3 servers", 3), ("TCP", 0)];

struct Plan {
    /// Batches one by one of a turn, and rounds of all partitions.
    single: usize,
    parallel: usize,
    rounds: usize,
}

/// What one way gave for batches of one size, by round.
#[derive(Default)]
struct Measured {
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Changes a second.
    rates: Vec<f64>,
    /// Microseconds of CPU a change: of both ends, of servers.
    ends: Vec<f64>,
    servers: Vec<f64>,
}

struct All {
    /// By size, then by way.
    by: Vec<Vec<Measured>>,
    refused: [bool; 2],
}

impl All {
    fn of(&self, changes: u64, way: usize) -> &Measured {
        let size = SIZES.iter().position(|&size| size == changes).unwrap_or(0);
        &self.by[size][way]
    }
}

fn spread(values: &[f64]) -> Spread {
    Spread::of(values.iter().copied())
}

fn thousands(rates: &[f64]) -> Spread {
    spread(rates).map(|rate| rate / 1e3)
}

const CLAIMS: &[Claim<All>] = &[
    Claim::new("a batch that does not follow the last one is refused", "fencing", |of: &All| {
        let [one, three] = of.refused;
        Finding::new(one && three, format!("by 1 server: {one}; by 3: {three}"))
    }),
    Claim::timed(
        "batches of 256, 1 server: 40 thousand changes a second",
        "goal: 4·10⁴ moves a second",
        |of: &All| Finding::at_least(40.0, thousands(&of.of(256, 0).rates)),
    ),
    Claim::timed(
        "batches of 256, 3 servers: 40 thousand changes a second",
        "goal: 4·10⁴ moves a second",
        |of: &All| Finding::at_least(40.0, thousands(&of.of(256, 1).rates)),
    ),
    Claim::timed(
        "a change in a batch of 256 takes a tenth of the CPU of one alone, 1 server",
        "so batch",
        |of: &All| {
            let all = |changes| {
                let of = of.of(changes, 0);
                of.ends.iter().zip(&of.servers).map(|(ends, servers)| ends + servers)
            };
            Finding::at_most(0.1, Spread::of_ratios(all(256), all(1)))
        },
    ),
];

fn batch(changes: u64) -> Batch<Dense> {
    let owner = Member { node: NodeId(1), incarnation: 1 };
    let place = |nth| rib::Change::Place {
        session: SessionId(hash(nth)),
        from: Some(owner),
        to: owner,
        keys: Arc::new([Key { hash: hash(nth), full: nth.into() }]),
        context: Arc::new([]),
        born: 1,
    };
    let changes = (0..changes).map(place).collect();
    Batch { epoch: 1, owner, changes, deltas: Vec::new(), digests: Vec::new(), image: None }
}

fn turn(
    way: &mut dyn Transport,
    (changes, payload): (u64, &[u8]),
    plan: &Plan,
    to: &mut Measured,
) -> Result<(), LabError> {
    let mut times = Vec::with_capacity(plan.single);
    for _ in 0..plan.single {
        let start = Instant::now();
        way.round(1, payload)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    to.p50.push(times[times.len() / 2]);
    to.p99.push(times[times.len() * 99 / 100]);
    let used = |way: &dyn Transport| [cpu(std::process::id()), way.cpu()];
    let (start, before) = (Instant::now(), used(way));
    for _ in 0..plan.parallel {
        way.round(PARTITIONS, payload)?;
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), used(way));
    let count = changes as f64 * (plan.parallel * PARTITIONS) as f64;
    to.rates.push(count / seconds);
    to.ends.push((after[0] - before[0]) * 1e6 / count);
    to.servers.push((after[1] - before[1]) * 1e6 / count);
    Ok(())
}

pub(super) fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = match context.smoke() {
        true => Plan { single: 4, parallel: 1, rounds: 1 },
        false => Plan { single: 400, parallel: 100, rounds: 9 },
    };
    context.step("servers", 0.0)?;
    let (mut one, mut three) = (JetStream::new(WAYS[0].1)?, JetStream::new(WAYS[1].1)?);
    let mut tcp = Tcp::new().map_err(LabError::failed)?;
    let refused = [one.refuses_a_stale_owner()?, three.refuses_a_stale_owner()?];
    let mut ways: [&mut dyn Transport; 3] = [&mut one, &mut three, &mut tcp];
    let mut payloads = Vec::new();
    for changes in SIZES {
        let payload = bytes::of_batch(1, &batch(changes)).map_err(LabError::failed)?;
        payloads.push((changes, payload));
    }
    let mut by: Vec<Vec<Measured>> = Vec::new();
    by.resize_with(SIZES.len(), || WAYS.map(|_| Measured::default()).into());
    for (size, (changes, payload)) in payloads.iter().enumerate() {
        for round in 0..plan.rounds {
            let done = (size * plan.rounds + round) as f64 / (SIZES.len() * plan.rounds) as f64;
            context.step(&format!("batches of {changes}"), done)?;
            for (nth, way) in ways.iter_mut().enumerate() {
                turn(*way, (*changes, payload), &plan, &mut by[size][nth])?;
            }
        }
    }
    let all = All { by, refused };
    let mut record = SB_LOG.record(context);
    record.setting("batches one by one of a round", plan.single);
    record.setting("partitions at once", PARTITIONS);
    record.setting("batches of a partition of a round", plan.parallel);
    record.judge("", CLAIMS, &all);
    let curve = |way: usize| {
        let point = |&changes: &u64| (changes as f64, spread(&all.of(changes, way).rates));
        Series::rounds(WAYS[way].0, SIZES.iter().map(point))
    };
    let plot = Plot::new("changes a second by their batch", "changes of a batch", "changes/s");
    record.plots.push(plot.log_x().log_y().with((0..WAYS.len()).map(curve)));
    record.tables.push(Table::of(
        "Batches",
        payloads.iter().flat_map(|payload| (0..WAYS.len()).map(move |way| (payload, way))),
        &[
            ("changes", &|((changes, _), _)| changes.to_string()),
            ("bytes", &|((_, payload), _)| payload.len().to_string()),
            ("over", &|(_, way)| WAYS[*way].0.to_owned()),
            ("heard after p50, µs", &|((changes, _), way)| {
                spread(&all.of(*changes, *way).p50).cell(0)
            }),
            ("p99, µs", &|((changes, _), way)| spread(&all.of(*changes, *way).p99).cell(0)),
            ("thousand changes/s", &|((changes, _), way)| {
                thousands(&all.of(*changes, *way).rates).cell(0)
            }),
            ("CPU of the ends, µs a change", &|((changes, _), way)| {
                spread(&all.of(*changes, *way).ends).cell(2)
            }),
            ("of servers, µs a change", &|((changes, _), way)| {
                spread(&all.of(*changes, *way).servers).cell(2)
            }),
        ],
    ));
    record.note(
        "All is on one machine: ends and servers share its cores, and a network's latency is not \
         in it. The servers write to disk within their sync_interval of two minutes. TCP keeps \
         nothing, and orders nothing beyond its connection.",
    );
    Ok(record)
}
