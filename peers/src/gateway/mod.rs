//! `gateway`: Open vSwitch with `gtpu` ports beside Overbank's gateway, on the same packets.
//!
//! ```text
//!  core 1   │ Overbank │ OVS emc │ both │ none │ Overbank │ …      a window each · next round ·
//!  core 0     database, control plane, this program
//! ```
//!
//! The method is that of [`crate::ovs`]: one contestant has core 1 at a time, both read the same
//! sequence of sessions, make each frame with the same function, and count what leaves at a port
//! that drops it. What making the frames cost is left out. Before the first window, each output of
//! one pass is compared with what must leave.

mod overbank;
mod report;
mod switch;
mod traffic;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;
use serde::Serialize;
use serde_json::json;

use crate::ovs::overbank::Datapaths;
use crate::ovs::switch::{MEMORY_MIB, SOURCE, Switch};
use crate::ovs::{Common, Machine, Window};
use overbank::Runner;
use traffic::{Direction, SKEWS, Traffic};

/// Cache configurations of Open vSwitch: as it comes, with the SMC, and without caches.
pub const CONFIGURATIONS: [&str; 3] = ["emc", "both", "none"];
/// Longest time in which Open vSwitch makes its flows.
const PATIENCE: Duration = Duration::from_secs(200);
/// The word of the plugin's file that chooses the sequence.
const CHOSEN_AT: u64 = 16;

/// Arguments of `gateway`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Sessions
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "1000,10000,100000,1000000",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "1000"),
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: Vec<u32>,
}

/// One direction of some sessions under one law.
#[derive(Serialize)]
pub struct Workload {
    direction: Direction,
    sessions: u32,
    zipf: f64,
    /// Flows of Open vSwitch's datapath before the windows, and its limit.
    flows: (u64, u64),
    /// Outputs that were compared with what must leave.
    verified: [usize; 2],
    /// Overbank's windows, one a round.
    ours: Vec<Window>,
    /// Open vSwitch's, by configuration.
    theirs: Vec<(String, Vec<Window>)>,
}

/// Measures all workloads and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let machine = Machine::prepare(1, MEMORY_MIB)?;
    let mut record = common.record(machine.hertz);
    let mut workloads = Vec::new();
    for &sessions in &options.sessions {
        for direction in Direction::ALL {
            eprintln!("{sessions} sessions, {}", direction.name());
            let found = measure(options, direction, sessions, &machine)
                .with_context(|| format!("{sessions} sessions, {}", direction.name()))?;
            workloads.extend(found);
        }
    }
    record["packet_bytes"] = json!(traffic::PACKET_LEN);
    report::write(&common.out, record, &workloads, machine.hertz)
}

/// Measures both gateways with these sessions, one direction.
fn measure(
    options: &Options,
    direction: Direction,
    sessions: u32,
    machine: &Machine,
) -> Result<Vec<Workload>> {
    let common = &options.common;
    let (settle, window) = common.times();
    // Each session comes a few times, and 2^20 outputs at most are kept.
    let log2 = (4 * sessions).next_power_of_two().ilog2().clamp(12, 20);
    let traffic = Arc::new(Traffic::new(direction, sessions, log2, common.seed)?);
    let mut runner = Runner::new(&traffic)?;
    let ours = runner.check()?;
    let mut datapaths = Datapaths::start(vec![runner])?;
    let [build] = &common.vswitchd[..] else { bail!("one build of ovs-vswitchd is measured") };
    let switch = switch::start(build, &common.flowgen, &traffic)?;
    warm(&switch, &traffic, machine)?;
    let flows = switch::flows(&switch)?;
    eprintln!("  {} flows of {}, limit {}", flows.0, sessions, flows.1);
    switch.pause()?;
    let theirs = traffic.check_kept(&traffic.path("out"))?;
    if theirs < traffic.room() {
        bail!("Open vSwitch sent {theirs} frames of {}: {}", traffic.room(), switch.last_words());
    }
    let mut workloads = Vec::new();
    for (sequence, zipf) in (0..).zip(SKEWS) {
        choose(&switch, sequence)?;
        traffic.choose(sequence);
        let none = |name: &str| (name.to_owned(), Vec::new());
        let mut workload = Workload {
            direction,
            sessions,
            zipf,
            flows,
            verified: [ours, theirs],
            ours: Vec::new(),
            theirs: CONFIGURATIONS.map(none).into(),
        };
        for _ in 0..common.rounds {
            machine.check()?;
            let own = datapaths.window(0, settle, window)?;
            if own.upcalls > 0 {
                bail!("Overbank dropped {} packets", own.upcalls);
            }
            workload.ours.push(own);
            switch.resume()?;
            for (name, windows) in &mut workload.theirs {
                machine.check()?;
                windows.push(switch.window(name, settle, window)?);
            }
            switch.pause()?;
        }
        workloads.push(workload);
    }
    Ok(workloads)
}

/// Runs both sequences until Open vSwitch makes no more flows.
fn warm(switch: &Switch, traffic: &Traffic, machine: &Machine) -> Result<()> {
    switch.configure("both")?;
    let limit = Instant::now() + PATIENCE;
    for sequence in [1, 0] {
        choose(switch, sequence)?;
        let start = switch.generated().0;
        let passes = 2 * traffic.room() as u64;
        let (mut before, mut calm) = (0, 0);
        while calm < 3 {
            machine.check()?;
            std::thread::sleep(Duration::from_millis(300));
            let now = switch::flows(switch)?.0;
            let passed = switch.generated().0.wrapping_sub(start) >= passes;
            calm = if now <= before && passed { calm + 1 } else { 0 };
            before = now;
            if Instant::now() > limit {
                // Its limit; the record shows the flows and the upcalls.
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Chooses the sequence of Open vSwitch's packets.
fn choose(switch: &Switch, sequence: u64) -> Result<()> {
    let file = switch.vswitch.file(&format!("{SOURCE}.stats"));
    let file = OpenOptions::new().write(true).open(file)?;
    Ok(file.write_all_at(&sequence.to_ne_bytes(), CHOSEN_AT)?)
}
