//! Figure 7: frames forwarded from memory ports, by size of the table; and building that table.
//!
//! A loop of few frames would have few addresses. So a ring of frames is written anew, one burst
//! ahead, as a network card writes into memory (`bench.rs`). What that and the ports cost is
//! measured by the same loop without the forwarder. Two switches take turns: the paper's, which has
//! addresses of 48 bits and looks up no sources, and the live one's `--mode l2`, *with learning*
//! (`learning.rs`).

use super::insertion::{self, Built};
use super::measure::{Draws, Plan};
use super::sizes;
use crate::prelude::*;
use bench::{Counts, Lane, alone, among_stations, in_turn, through, to_entries};
use learning::{Learning, Learnt};
use overbank::fib::{Key, Reader, Value};
use overbank_stations::Station;
use overbank_stations::forward::{Forwarder, Role};

mod bench;
mod learning;
mod report;

pub const FIB7: Experiment = Experiment {
    name: "fib7",
    title: "the Ethernet switch from memory: packet rate by table size, building the table, \
            insertions",
    source: "dissertation, figure 7",
    run,
};

const SMOKE: [u64; 2] = [100_000, 1_000_000];
const FULL: [u64; 5] = [100_000, 1_000_000, 16_000_000, 128_000_000, 1_000_000_000];

/// Ports that frames leave by, as many as the paper's machine had.
const PORTS: u16 = 8;
/// The port that frames come in on.
const INGRESS: u16 = 0;
/// What all of them may do.
const ROLES: [Role; 1 + PORTS as usize] =
    [Role { isolated: false, flood: true }; 1 + PORTS as usize];
/// Bytes of a frame without its check sequence; on the wire, with it, the paper's 64.
const FRAME: usize = 60;
/// Frames of the ring: 256 KiB, in a second-level cache, as after a network card's direct cache
/// access.
const RING: usize = 4096;
const THETA: f64 = 0.99;

/// Returns the place of the port of an address among all ports.
fn port_of(number: u64) -> u16 {
    1 + (number % u64::from(PORTS)) as u16
}

fn station_of(number: u64) -> u16 {
    Station::fixed(port_of(number)).bits()
}

/// Lanes of a measurement; the last two where it has learning.
const UNIFORM: usize = 0;
const ZIPF: usize = 1;
/// The loop without the forwarder.
const ALONE: usize = 2;
const LEARNT_UNIFORM: usize = 3;
const LEARNT_ZIPF: usize = 4;

struct Measured {
    entries: u64,
    facts: Facts,
    built: Built,
    /// As [`insertion::LATENCIES`].
    latency: [u64; 6],
    /// Nanoseconds a frame of each lane.
    times: Rounds,
    /// Of the frames of the lanes without learning.
    counts: Counts,
    /// With learning, or why not, in one line.
    learning: Result<Learning, String>,
}

/// What a table is like when it is full.
struct Facts {
    bytes: u64,
    pages: String,
    occupancy: f64,
}

impl Facts {
    fn of<K: Key, V: Value>(reader: &Reader<K, V>) -> Facts {
        let occupancy = reader.len() as f64 / reader.slots() as f64;
        Facts { bytes: reader.bytes() as u64, pages: reader.huge_pages().to_string(), occupancy }
    }
}

fn measure(context: &mut Context<'_>, entries: u64) -> Result<Measured, LabError> {
    let plan = &Plan::of(context.smoke());
    let what = sizes::name_of(entries);
    let built = if entries <= learning::ENTRIES_MAX { 0.4 } else { 0.8 };
    let (mut fib, built) =
        context.part((0.0, built), |context| insertion::build(context, entries, station_of))?;
    let learnt = match learning::left_out(entries) {
        None => Ok(context.part((0.4, 0.8), |context| Learnt::build(context, entries))?),
        Some(line) => Err(line),
    };
    let seed = context.seed;
    let forwarder = Forwarder::new(fib.reader(), &ROLES);
    let learning_forwarder = learnt.as_ref().ok().map(Learnt::forwarder);
    let mut lanes = vec![
        Lane::new(through(&forwarder), to_entries, Draws::uniform(entries, seed)?),
        Lane::new(through(&forwarder), to_entries, Draws::zipf(entries, THETA, seed)?),
        Lane::new(alone(), in_turn, Draws::uniform(entries, seed)?),
    ];
    if let Some(forwarder) = &learning_forwarder {
        let (uniform, zipf) =
            (Draws::uniform(entries / 2, seed)?, Draws::zipf(entries / 2, THETA, seed)?);
        lanes.extend(
            [uniform, zipf].map(|draws| Lane::new(through(forwarder), among_stations, draws)),
        );
    }
    let step = |share| context.step(&format!("{what}: forwarding"), 0.8 + 0.1 * share);
    let times = Rounds::run(&mut lanes, plan.rounds, step, |lane, _| lane.round(plan))?;
    let counts = Lane::counts(&lanes[..LEARNT_UNIFORM]);
    let learning = learnt.as_ref().map_err(String::clone);
    let learning = learning.map(|learnt| learnt.found(Lane::counts(&lanes[LEARNT_UNIFORM..])));

    context.step(&format!("{what}: single insertions"), 0.9)?;
    let count = if context.smoke() { 2000 } else { 200_000 };
    let latency = insertion::latency(&mut fib, entries, count, seed, station_of)?;
    let facts = Facts::of(&fib.reader());
    Ok(Measured { entries, facts, built, latency, times, counts, learning })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let plan = Plan::of(context.smoke());
    let (mut record, all) =
        sizes::figure(context, &FIB7, (&SMOKE, &FULL), sizes::fib_bytes, measure)?;
    report::write(&mut record, &plan, &all);
    Ok(record)
}
