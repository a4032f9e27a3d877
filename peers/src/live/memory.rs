//! Scaling from memory ports, without a kernel: one worker and two.
//!
//! ```text
//!   port 1   one frame of each flow, looped; flows belong to queues by their hash
//!     │ worker 0 on its core │ worker 1 on its core │
//!   port 2   counts
//! ```

use super::Cores;
use super::contestants::overbank;
use anyhow::{Result, anyhow};
use overbank_kit::experiment::Context;
use overbank_kit::machine::keep_on;
use overbank_kit::traffic::{FRAME_LEN, Traffic};
use overbank_ofctl::RuleControl;
use overbank_ofctl::Switch;
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_runtime::ConfiguredPort;
use overbank_runtime::status::StatusOf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the counters of the workers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sizes of the measurement.
pub struct Plan {
    /// Flows, one frame each.
    pub flows: u32,
    /// Rounds in which one worker and two take turns.
    pub rounds: usize,
    /// Duration of each.
    pub window: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Million packets a second.
    pub mpps: f64,
    /// Share of the window that the workers had their cores to themselves; `None` if unknown.
    pub on_core: Option<f64>,
}

impl Rate {
    /// Returns million packets per second of a worker on its core.
    pub fn while_on_core(&self) -> Option<f64> {
        self.on_core.filter(|share| *share > 0.0).map(|share| self.mpps / share)
    }
}

/// For each round, the rates of one worker and of two.
pub struct Scaling {
    pub rounds: Vec<[Rate; 2]>,
    /// Whether every received packet was accounted for, and left.
    pub accounts: bool,
}

/// Measures; reports progress from 0 to `share`.
pub fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    cores: &Cores,
    share: f64,
) -> Result<Scaling> {
    let mut store = FrameStore::new();
    let (traffic, mut frame) = (Traffic::default(), [0; FRAME_LEN]);
    for id in 0..plan.flows {
        traffic.write_frame(id, &mut frame);
        store.push(&frame, 0, 0)?;
    }
    let store = Arc::new(store);
    let mut scaling = Scaling { rounds: Vec::new(), accounts: true };
    for round in 0..plan.rounds {
        let mut rates = [Rate { mpps: 0.0, on_core: None }; 2];
        for (workers, rate) in (1..).zip(&mut rates) {
            let what = format!("memory ports, {workers} workers");
            context.step(&what, share * round as f64 / plan.rounds as f64)?;
            let switch = start(&store, workers, cores)?;
            *rate = window(&switch, workers, plan.window)?;
            scaling.accounts &= closes(&switch.stop());
        }
        scaling.rounds.push(rates);
    }
    Ok(scaling)
}

fn start(store: &Arc<FrameStore>, workers: usize, cores: &Cores) -> Result<Switch> {
    let port = |number, frames: &Arc<FrameStore>| {
        let (options, name) = (MemoryOptions::default(), format!("memory{number}"));
        let port = MemoryPort::from_store(frames.clone(), &options, &name, workers);
        ConfiguredPort { number, spec: None, port: Some(Box::new(port)) }
    };
    let ports = vec![port(1, store), port(2, &Arc::default())];
    let on = cores.switch(workers);
    // The switch's other threads, which hardly run, may run anywhere allowed.
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            keep_on(&cores.all())?;
            overbank(ports, &on, workers, true)
        });
        there.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
    })
}

/// Returns the rate over about `time`, between two moments at which the workers published counters.
fn window(switch: &Switch, workers: usize, time: Duration) -> Result<Rate> {
    let (packets, start) = told(switch)?;
    let on_core = workers_on_core_ns();
    std::thread::sleep(time);
    let (later, end) = told(switch)?;
    let seconds = (end - start).as_secs_f64();
    let on_core = on_core.zip(workers_on_core_ns());
    let on_core = on_core.map(|(a, b)| b.saturating_sub(a) as f64 / 1e9 / seconds / workers as f64);
    Ok(Rate { mpps: (later - packets) as f64 / seconds / 1e6, on_core })
}

/// Returns the packets so far, at a moment at which every worker published them.
fn told(switch: &Switch) -> Result<(u64, Instant)> {
    let counts = || switch.status().workers.iter().map(|w| w.packets).collect::<Vec<u64>>();
    let (before, end) = (counts(), Instant::now() + PATIENCE);
    while Instant::now() < end {
        // Workers publish every ten milliseconds.
        std::thread::sleep(Duration::from_micros(500));
        let now = counts();
        if now.iter().zip(&before).all(|(now, before)| now > before) {
            return Ok((now.iter().sum(), Instant::now()));
        }
    }
    Err(anyhow!("a worker does not work"))
}

/// Returns the time that the workers of this process were on a core; `None` if the kernel does not
/// count it.
fn workers_on_core_ns() -> Option<u64> {
    let mut sum = None;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).ok();
        if read("comm").is_some_and(|name| name.starts_with("worker-")) {
            let time = read("schedstat")?;
            let time: u64 = time.split_whitespace().next()?.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + time);
        }
    }
    sum
}

/// Returns whether every packet came in by port 1 and left by port 2.
fn closes(status: &StatusOf<RuleControl>) -> bool {
    let [one, two, ..] = &status.ports[..] else { return false };
    status.closes && one.received > 0 && one.received == one.forwarded && two.sent == one.forwarded
}
