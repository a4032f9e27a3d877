//! The live switch between real interfaces, beside the Linux bridge and Open vSwitch's userspace
//! datapath; and from memory ports, with one worker and two.
//!
//! ```text
//!   turn    attach ─ warm up ─ flat out ─ common rate ─ half of its own ─ detach     (kernel.rs)
//!   round   a turn of every switch                    median and range over the rounds
//!
//!   core of the hosts    generator and sink, one thread              (host.rs)
//!   core of the switch   the worker, the switch's other threads      (contestants.rs, ovs.rs)
//! ```
//!
//! All switches forward between the same two veth pairs (`net.rs`), by the same rules where they have
//! rules, and are fed and judged by the same generator and sink. *Common rate*: half of what the
//! slowest of them forwards without loss; *half of its own*: half of what it forwards without loss.
//!
//! Needs root for network namespaces. A switch of others that is not installed is left out, and the
//! record says so.

mod contestants;
mod host;
mod kernel;
mod memory;
mod net;
mod ovs;
mod report;
pub(in crate::experiments) mod sys;

use overbank_kit::experiment::{Context, Experiment, LabError, Record};
use std::time::Duration;

/// The live switch beside others.
pub const LIVE: Experiment = Experiment {
    name: "live",
    title: "The live switch beside the Linux bridge and Open vSwitch, and how it scales",
    source: "Target of this project",
    run,
};

/// Where threads run.
struct Cores {
    /// Generator and sink.
    host: usize,
    /// Workers, in this order; the host's core is the last one to be taken.
    workers: Vec<usize>,
}

impl Cores {
    /// Shares out the cores; the core that the calling thread was pinned to is the switch's.
    fn share_out(smoke: bool) -> Result<Cores, LabError> {
        let allowed = sys::allowed_cores();
        // In a test others may have been kept away from some cores on purpose.
        let usable = if smoke { allowed.clone() } else { sys::usable_cores() };
        let first = allowed.last().copied().filter(|core| usable.contains(core));
        let Some(first) = first.or(usable.last().copied()) else {
            return Err(LabError::failed("the system does not tell which cores there are"));
        };
        let host = usable.iter().copied().find(|core| *core != first).unwrap_or(first);
        let mut workers = vec![first];
        workers.extend(usable.iter().copied().filter(|core| ![first, host].contains(core)));
        if host != first {
            workers.push(host);
        }
        Ok(Cores { host, workers })
    }

    /// Those of a switch with so many workers.
    fn switch(&self, workers: usize) -> Vec<usize> {
        self.workers.iter().copied().take(workers.max(1)).collect()
    }

    /// Every one.
    fn all(&self) -> Vec<usize> {
        self.workers.iter().copied().chain([self.host]).collect()
    }

    /// Whether a switch with so many workers leaves the hosts' core to the hosts.
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

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let missing = match sys::is_root() {
        false => Some("network namespaces and AF_XDP need root".to_owned()),
        true => net::Net::new(1).err().map(|error| error.to_string()),
    };
    if let (Some(why), false) = (&missing, context.smoke()) {
        return Err(LabError::Failed(why.clone()));
    }
    let (plan, cores) = (Plan::of(context.smoke()), Cores::share_out(context.smoke())?);
    let mut record = Record::new((LIVE.name, LIVE.title, LIVE.source), context);
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
