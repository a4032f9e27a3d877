//! Figure 7: frames forwarded from memory ports, by size of the table; and building that table.
//!
//! ```text
//!  addresses drawn, not timed ─▶ ring of frames ─▶ l2::Forwarder ─▶ 8 memory ports, which count
//!                                64 bytes each,    the switch's      each frame is expected at the
//!                                rewritten as      own datapath      port of its address
//!                                they arrive
//! ```
//!
//! A loop of few frames would have few addresses. So each frame gets a new destination when it
//! arrives: a ring of frames is written anew, one burst ahead, as a network card writes into memory.
//! What that and the ports cost is measured by the same loop without the forwarder, and both figures
//! are reported.
//!
//! Two switches: the paper's, which has addresses of 48 bits and looks up no sources, and the live
//! one's `--mode l2`, *with learning* (`learning.rs`). They take turns in each round.

use super::insertion::{self, Built, Latency};
use super::measure::{Draws, Plan};
use super::sizes;
use bench::{Bench, Counts, Traffic};
use learning::{Lanes, Learning, Learnt};
use overbank::fib::Key6;
use overbank_kit::experiment::{Context, Experiment, LabError, Record};
use overbank_live::l2::{Forwarder, Role, Station};

mod bench;
mod learning;
mod report;

/// Figure 7.
pub const FIB7: Experiment = Experiment {
    name: "fib7",
    title: "the Ethernet switch from memory: packet rate by table size, building the table, insertions",
    source: "dissertation, figure 7",
    run,
};

const SMOKE: [u64; 2] = [100_000, 1_000_000];
const FULL: [u64; 5] = [100_000, 1_000_000, 16_000_000, 128_000_000, 1_000_000_000];

/// Ports that frames leave by, as many as the paper's machine had.
const PORTS: u16 = 8;
/// The port that frames come in on.
const INGRESS: u16 = 0;
/// Bytes of a frame without its check sequence; on the wire, with it, the paper's 64.
const FRAME: usize = 60;
/// Frames of the ring: 256 KiB, in a second-level cache, as after a network card's direct cache
/// access.
const RING: usize = 4096;
/// Skew of the second kind of traffic.
const THETA: f64 = 0.99;

/// Place of the port of an address among all ports.
fn port_of(number: u64) -> u16 {
    1 + (number % u64::from(PORTS)) as u16
}

fn station_of(number: u64) -> u16 {
    Station::fixed(port_of(number)).bits()
}

/// Nanoseconds a frame by round.
#[derive(Default)]
struct Times {
    uniform: Vec<f64>,
    zipf: Vec<f64>,
    /// The loop without the forwarder.
    pass: Vec<f64>,
}

/// What was measured at one size.
struct Measured {
    entries: u64,
    bytes: u64,
    pages: String,
    occupancy: f64,
    built: Built,
    latency: Latency,
    times: Times,
    /// Of the frames of `times`.
    counts: Counts,
    /// With learning, or why not, in one line.
    learning: Result<Learning, String>,
}

fn measure(context: &mut Context<'_>, plan: &Plan, entries: u64) -> Result<Measured, LabError> {
    let name = sizes::name(entries);
    let with_learning = entries <= learning::ENTRIES_MAX;
    let built = if with_learning { 0.4 } else { 0.8 };
    let (mut fib, built) =
        context.part((0.0, built), |context| insertion::build(context, entries, station_of))?;
    let reader = fib.reader();
    let (bytes, pages) = (reader.bytes() as u64, reader.huge_pages().to_string());
    let occupancy = fib.occupancy();

    let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 1 + PORTS as usize]);
    let lane = |forwarder| Bench::<Key6>::new(forwarder, Traffic::ToEntries);
    let mut lanes = [Some(&forwarder), Some(&forwarder), None].map(lane);
    let left_out = learning::left_out(entries);
    let learnt = match left_out {
        None => Some(context.part((0.4, 0.8), |context| Learnt::build(context, entries))?),
        Some(_) => None,
    };
    let learning_forwarder = learnt.as_ref().map(Learnt::forwarder);
    let mut with_learning = match learnt.as_ref().zip(learning_forwarder.as_ref()) {
        Some((learnt, forwarder)) => Some(Lanes::new(learnt, forwarder, context.seed)?),
        None => None,
    };
    let mut uniform = Draws::uniform(entries, context.seed)?;
    let mut zipf = Draws::zipf(entries, THETA, context.seed)?;
    let mut times = Times::default();
    for round in 0..plan.rounds {
        let share = 0.8 + 0.1 * round as f64 / plan.rounds as f64;
        context.step(&format!("{name} entries: forwarding"), share)?;
        let [first, second, third] = &mut lanes;
        times.uniform.push(first.round(&mut uniform, plan)?);
        times.zipf.push(second.round(&mut zipf, plan)?);
        times.pass.push(third.round(&mut uniform, plan)?);
        if let Some(lanes) = &mut with_learning {
            lanes.round(plan)?;
        }
    }
    let counts = lanes.iter().map(Bench::counts).fold(Counts::default(), |all, one| all + one);
    let learning = with_learning.map(Lanes::end).ok_or(left_out.unwrap_or_default());

    context.step(&format!("{name} entries: single insertions"), 0.9)?;
    let count = if context.smoke() { 2000 } else { 200_000 };
    let latency = insertion::latency(&mut fib, entries, count, context.seed, station_of)?;
    Ok(Measured { entries, bytes, pages, occupancy, built, latency, times, counts, learning })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let wanted = sizes::wanted(context, &SMOKE, &FULL);
    let plan = Plan::of(context.smoke());
    let (all, missing) =
        sizes::each(context, &wanted, |context, entries| {
            match sizes::does_not_fit(entries, sizes::fib_bytes(entries)) {
                Some(line) => Ok(Err(line)),
                None => measure(context, &plan, entries).map(Ok),
            }
        })?;
    let mut record = FIB7.record(context);
    sizes::left_out(&mut record, &wanted, missing)?;
    report::write(&mut record, &plan, &all);
    Ok(record)
}
