//! The live switch between real interfaces, beside the Linux bridge and Open vSwitch's userspace
//! datapath; and from memory ports, with one worker and two.
//!
//! ```text
//!   turn    attach ─ warm up ─ flat out ─ common rate ─ own half ─ detach          (kernel.rs)
//!   round   a turn of every switch                    median and range over the rounds
//!
//!   core of the hosts    generator and sink, one thread              (host.rs)
//!   core of the switch   the worker, the switch's other threads      (contestants.rs, ovs.rs)
//! ```
//!
//! All switches forward between the same two veth pairs (`net.rs`), by the same rules if they have
//! rules, with the same generator and sink. *Common rate*: half of what the slowest of them
//! forwards without loss. *Own half*: half of what the switch itself forwards without loss.
//!
//! Needs root for network namespaces. A missing switch is left out, and the record says so.

pub mod contestants;
mod host;
mod kernel;
mod memory;
mod net;
mod ovs;
mod report;

use anyhow::{Result, bail};
use clap::Args;
use overbank_kit::experiment::{Context, Record, Size};
use overbank_kit::machine::{allowed_cores, pin, usable_cores};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::machine::{is_root, stop_on_ctrl_c};
use crate::output;

/// Name, title and source of the record.
const LIVE: (&str, &str, &str) = (
    "live",
    "The live switch beside the Linux bridge and Open vSwitch, and how it scales",
    "Target of this project",
);

/// Arguments of `live`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    smoke: bool,
    /// Seed of the traffic
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Core of the first worker [default: the last one]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    out: PathBuf,
}

/// Measures and writes the record.
pub fn run(options: &Options) -> Result<()> {
    let pinned = pin(options.core)?;
    let stop = stop_on_ctrl_c()?;
    let mut shown = String::new();
    let mut progress = |what: &str, done: f64| {
        if shown != what {
            eprintln!("{:3.0} %  {what}", 100.0 * done);
            what.clone_into(&mut shown);
        }
    };
    let mut context = Context {
        size: if options.smoke { Size::Smoke } else { Size::Full },
        seed: options.seed,
        stop: &stop,
        progress: &mut progress,
        penalty_cycles: 0.0,
        entries: &[],
        program: None,
    };
    let start = Instant::now();
    let mut record = measure(&mut context)?;
    record.seconds = start.elapsed().as_secs_f64();
    output::write_record(&options.out, record, pinned)
}

/// Cores of the threads.
struct Cores {
    /// Generator and sink.
    host: usize,
    /// Workers, in this order; the host's core comes last.
    workers: Vec<usize>,
}

impl Cores {
    /// Assigns the cores; the core that the calling thread was pinned to is the switch's.
    fn share_out(smoke: bool) -> Result<Cores> {
        let allowed = allowed_cores();
        // A test may have been restricted to some cores on purpose.
        let usable = if smoke { allowed.clone() } else { usable_cores() };
        let first = allowed.last().copied().filter(|core| usable.contains(core));
        let Some(first) = first.or(usable.last().copied()) else {
            bail!("the system does not report its cores");
        };
        let host = usable.iter().copied().find(|core| *core != first).unwrap_or(first);
        let mut workers = vec![first];
        workers.extend(usable.iter().copied().filter(|core| ![first, host].contains(core)));
        if host != first {
            workers.push(host);
        }
        Ok(Cores { host, workers })
    }

    /// Returns the cores of a switch with `workers` workers.
    fn switch(&self, workers: usize) -> Vec<usize> {
        self.workers.iter().copied().take(workers.max(1)).collect()
    }

    fn all(&self) -> Vec<usize> {
        self.workers.iter().copied().chain([self.host]).collect()
    }

    /// Returns whether a switch with `workers` workers leaves the hosts' core to the hosts.
    fn apart(&self, workers: usize) -> bool {
        self.workers.len() >= workers && !self.switch(workers).contains(&self.host)
    }
}

/// Sizes of all parts.
struct Plan {
    memory: memory::Plan,
    kernel: kernel::Plan,
}

impl Plan {
    fn of(smoke: bool) -> Plan {
        let ms = Duration::from_millis;
        if smoke {
            Plan {
                memory: memory::Plan { flows: 1000, rounds: 1, window: ms(50) },
                kernel: kernel::Plan {
                    flows: 300,
                    rounds: 1,
                    window: ms(60),
                    warm_up: ms(20),
                    step: None,
                },
            }
        } else {
            Plan {
                memory: memory::Plan { flows: 1 << 14, rounds: 7, window: ms(2000) },
                kernel: kernel::Plan {
                    flows: 4096,
                    rounds: 5,
                    window: ms(1000),
                    warm_up: ms(200),
                    step: Some(ms(200)),
                },
            }
        }
    }
}

fn measure(context: &mut Context<'_>) -> Result<Record> {
    context.step("starts", 0.0)?;
    let missing = match is_root() {
        false => Some("network namespaces and AF_XDP need root".to_owned()),
        true => net::Net::new(1).err().map(|error| format!("{error:#}")),
    };
    if let (Some(why), false) = (&missing, context.smoke()) {
        bail!("{why}");
    }
    let (plan, cores) = (Plan::of(context.smoke()), Cores::share_out(context.smoke())?);
    let mut record = Record::new(LIVE, context);
    report::settings(&mut record, &plan, &cores);
    let scaling = memory::measure(context, &plan.memory, &cores, 0.1)?;
    report::memory(&mut record, &scaling, cores.workers.len() >= 2);
    if let Some(why) = missing {
        record.notes.push(format!("The part between interfaces was skipped: {why}."));
        return Ok(record);
    }
    for (workers, from) in [(1, 0.1), (2, 0.55)] {
        let found = kernel::measure(context, &plan.kernel, &cores, workers, from..from + 0.45)?;
        report::kernel(&mut record, &found, workers, &cores);
    }
    report::notes(&mut record);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_worker_takes_the_hosts_core_only_where_there_is_no_other() {
        let two = Cores { host: 0, workers: vec![1, 0] };
        assert_eq!((two.switch(1), two.switch(2)), (vec![1], vec![1, 0]));
        assert!(two.apart(1) && !two.apart(2));
        let three = Cores { host: 0, workers: vec![2, 1, 0] };
        assert!(three.apart(2));
        let one = Cores { host: 0, workers: vec![0] };
        assert_eq!(one.switch(2), [0]);
        assert!(!one.apart(1));
        let here = Cores::share_out(false).expect("there are cores");
        assert!(here.apart(1) || here.workers.len() == 1);
    }
}
