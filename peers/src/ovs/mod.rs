//! `ovs`: Open vSwitch with DPDK beside Overbank's datapath, on the same flows, order and rules.
//!
//! ```text
//!  core 1   │ Overbank … │ OVS emc │ smc │ both │ none │ next build of OVS … │ Overbank … │
//!              a window each: settle, clear the counters, measure      · next round ·
//!  core 0     database, control plane, this program
//! ```
//!
//! One contestant has core 1 at a time: the others are stopped (SIGSTOP) or wait. All read the same
//! file of flow ids, make each packet with the same function, classify it by the same rules and
//! count it at an output port that drops it. Cycles are those of the time stamp counter while the
//! thread is on the core (the kernel counts that), reception and transmission included; what making
//! the packets cost is counted apart.
//!
//! Everything that is changed on the machine is given back when the program ends, also on Ctrl-C:
//! processes, huge pages, folders. A kill -9 takes the processes down; huge pages stay reserved
//! then.
//!
//! [`explosion`] does the same with packets made to slow a switch.

pub mod explosion;
pub mod overbank;
mod report;
pub mod switch;
pub mod traffic;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;
use overbank_kit::workload::FlowStream;
use serde::Serialize;
use serde_json::{Value, json};

use crate::table::DESIGNS;
use crate::{clock, machine};
use overbank::{Datapaths, Runner};
use switch::{Build, Switch};
use traffic::Ids;

/// Cache configurations of Open vSwitch.
pub const NAMES: [&str; 4] = ["emc", "smc", "both", "none"];

/// Arguments of both measurements with Open vSwitch and DPDK.
#[derive(Args)]
pub struct Common {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    pub smoke: bool,
    /// Plugin that feeds the switch (made of peers/ovs/flowgen.c)
    #[arg(long, value_name = "FILE")]
    pub flowgen: PathBuf,
    /// Builds of ovs-vswitchd to measure, NAME=FILE
    #[arg(long, value_name = "NAME=FILE", required = true, value_parser = Build::parse)]
    pub vswitchd: Vec<Build>,
    /// Rounds in which the contestants take turns
    #[arg(long, value_name = "N", default_value_t = 5,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds of a window
    #[arg(long, value_name = "S", default_value_t = 1.0,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.2"), value_parser = seconds)]
    window: f64,
    /// Seconds before a window, not measured: the caches of the processor warm up again
    #[arg(long, value_name = "S", default_value_t = 0.5,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.1"), value_parser = seconds)]
    settle: f64,
    /// Seed of the traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    pub out: PathBuf,
}

impl Common {
    /// Settling and measuring.
    pub fn times(&self) -> (Duration, Duration) {
        (Duration::from_secs_f64(self.settle), Duration::from_secs_f64(self.window))
    }

    /// What a record says of them, besides the machine.
    pub fn record(&self, hertz: f64) -> Value {
        let mut record = machine::describe(hertz);
        record["rounds"] = json!(self.rounds);
        record["window_seconds"] = json!(self.window);
        record["settle_seconds"] = json!(self.settle);
        record["seed"] = json!(self.seed);
        record["builds"] = json!(self.vswitchd);
        record
    }
}

/// What both measurements need of the machine.
pub struct Machine {
    stop: Arc<AtomicBool>,
    pub hertz: f64,
    _huge_pages: machine::HugePages,
}

impl Machine {
    /// Prepares it for `switches` at a time, each with `memory_mib` of huge pages.
    pub fn prepare(switches: usize, memory_mib: u64) -> Result<Machine> {
        if machine::cpus() < 2 {
            bail!("two cores are needed: one forwards, one controls");
        }
        let stop = machine::stop_on_ctrl_c()?;
        // What this thread starts inherits the core.
        machine::keep_on(&[0])?;
        let hertz = clock::hertz();
        let huge_pages = machine::HugePages::reserve(memory_mib * switches as u64)?;
        Ok(Machine { stop, hertz, _huge_pages: huge_pages })
    }

    /// Fails after Ctrl-C.
    pub fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) }
    }

    /// Starts a switch and stops it again once it has had `packets` packets, or after 30 seconds.
    fn warm(&self, build: &Build, flowgen: &Path, ids: &Ids, packets: u64) -> Result<Switch> {
        let switch = Switch::start(build, flowgen, ids)?;
        switch.configure("both")?;
        self.feed(&build.name, &switch, packets, Duration::from_secs(30))?;
        Ok(switch)
    }

    /// Waits until a switch has had `packets` packets, at most for `patience`, and stops it.
    pub fn feed(
        &self,
        name: &str,
        switch: &Switch,
        packets: u64,
        patience: Duration,
    ) -> Result<()> {
        let limit = Instant::now() + patience;
        while switch.generated().0 < packets && Instant::now() < limit {
            self.check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        if switch.generated().0 == 0 {
            bail!("{name}: no packets: {}", switch.last_words());
        }
        switch.pause()
    }
}

/// Arguments of `ovs`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Flows
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "100000,500000,1000000,2000000",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "20000"),
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    flows: Vec<u32>,
    /// Skews; 0 is uniform
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0,0.99",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.99")
    )]
    zipf: Vec<f64>,
    /// Cache configurations of Open vSwitch
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = NAMES,
          value_parser = NAMES)]
    configurations: Vec<String>,
    /// Designs of Overbank's signature cache; `none` is the datapath without one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = DESIGNS)]
    designs: Vec<String>,
    /// Entries of Overbank's cache; Open vSwitch's SMC has 2^20
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    entries: usize,
    /// Ports that packets leave by, 1 to 4. With 4 the rules are those of `overbank replay`; but
    /// Open vSwitch polls each of them for packets that never come, which 1 makes cheaper
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4))]
    outputs: usize,
    /// Packets before the first round, as a multiple of the flows
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "2")
    )]
    warmup: u64,
    /// Length of the sequence of flows, as a power of two; then it starts again
    #[arg(long, value_name = "LOG2", default_value_t = 26,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "18"),
          value_parser = clap::value_parser!(u32).range(10..=30))]
    sequence: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 60 is needed".to_owned()),
    }
}

/// What one window showed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Window {
    /// Packets received.
    pub packets: u64,
    /// Cycles per packet while the thread was on the core, all included.
    pub cycles: f64,
    /// Of these, for making the packet.
    pub generator_cycles: f64,
    /// Share of the window that the thread was on the core: other programs may have wanted it too.
    pub on_core: f64,
    /// Share of the packets found in the exact-match cache.
    pub emc: f64,
    /// Share found in the signature cache (Overbank: tier 1).
    pub signature: f64,
    /// Share found in the megaflow cache.
    pub megaflow: f64,
    /// Subtables searched per megaflow hit.
    pub subtables: f64,
    /// Packets that went to the classifier.
    pub upcalls: u64,
    /// What a table of Overbank counted in the place of Open vSwitch's signature cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
}

/// Counts of a table of Overbank in Open vSwitch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Table {
    /// Flows that it took for others.
    pub false_positives: u64,
    pub evictions: u64,
}

impl Window {
    /// Converts cycles that passed to cycles on the core. `on_core` is `None` if unknown.
    fn on_core(self, on_core: Option<Duration>, went_by: Duration) -> Window {
        let share = on_core.map_or(1.0, |on_core| on_core.as_secs_f64() / went_by.as_secs_f64());
        let share = share.clamp(0.01, 1.0);
        Window {
            cycles: self.cycles * share,
            // The plugin looks at the clock around a few hundred nanoseconds at a time: whatever
            // comes in between hits it as often as the rest.
            generator_cycles: self.generator_cycles * share,
            on_core: share,
            ..self
        }
    }
}

/// A contestant's windows.
pub struct Contestant {
    /// `overbank` or the name of a build.
    pub switch: String,
    /// Design or cache configuration.
    pub cache: String,
    /// One a round.
    pub windows: Vec<Window>,
}

/// Measures all workloads and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let machine = Machine::prepare(common.vswitchd.len(), switch::MEMORY_MIB)?;
    let mut record = common.record(machine.hertz);
    let mut workloads = Vec::new();
    for &zipf in &options.zipf {
        for &flows in &options.flows {
            let stream = FlowStream::zipf(flows, zipf, common.seed)?;
            eprintln!("{flows} flows, θ = {zipf}");
            let contestants = workload(options, stream, &machine)
                .with_context(|| format!("{flows} flows, skew {zipf}"))?;
            workloads.push(report::Workload::new(flows, zipf, contestants, machine.hertz));
        }
    }
    record["entries"] = json!(options.entries);
    record["outputs"] = json!(options.outputs);
    record["warmup"] = json!(options.warmup);
    record["sequence_log2"] = json!(options.sequence);
    report::write(&common.out, record, &workloads)
}

/// Measures all contestants on one workload.
fn workload(options: &Options, stream: FlowStream, machine: &Machine) -> Result<Vec<Contestant>> {
    let common = &options.common;
    let (settle, window) = common.times();
    let warmup = options.warmup * u64::from(stream.flows());
    let ids = Arc::new(Ids::write(stream, options.sequence, options.outputs)?);
    let mut contestants: Vec<Contestant> = Vec::new();
    let mut name = |switch: &str, cache: &str| {
        contestants.push(Contestant {
            switch: switch.into(),
            cache: cache.into(),
            windows: Vec::new(),
        });
    };
    options.designs.iter().for_each(|design| name("overbank", design));
    for build in &common.vswitchd {
        options.configurations.iter().for_each(|cache| name(&build.name, cache));
    }

    let runners = options.designs.iter().map(|design| Runner::new(design, options.entries, &ids));
    let mut datapaths = Datapaths::start(runners.collect::<Result<_>>()?)?;
    for nth in 0..options.designs.len() {
        datapaths.warm(nth, warmup)?;
        machine.check()?;
    }
    let warm = |build| machine.warm(build, &common.flowgen, &ids, warmup);
    let mut switches = common.vswitchd.iter().map(warm).collect::<Result<Vec<_>>>()?;
    for _ in 0..common.rounds {
        let mut next = contestants.iter_mut();
        for nth in 0..options.designs.len() {
            machine.check()?;
            let contestant = next.next().context("one for each design")?;
            contestant.windows.push(datapaths.window(nth, settle, window)?);
        }
        for switch in &mut switches {
            switch.resume()?;
            for configuration in &options.configurations {
                machine.check()?;
                let contestant = next.next().context("one for each configuration")?;
                contestant.windows.push(switch.window(configuration, settle, window)?);
            }
            switch.pause()?;
        }
    }
    Ok(contestants)
}
