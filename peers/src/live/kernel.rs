//! Rounds in which all switches take turns between the same interfaces.

use super::Cores;
use super::contestants::{AFPACKET, AFXDP, AFXDP_BUSY, ALL, Contestant, OVS_AFXDP, Running, rules};
use super::host::{Hosts, Load, Window};
use super::net::Net;
use super::ovs::Ovs;
use anyhow::{Result, anyhow};
use overbank_kit::experiment::Context;
use overbank_kit::machine::keep_on;
use overbank_ofctl::RuleControl;
use overbank_runtime::status::StatusOf;
use std::ops::Range;
use std::time::Duration;

/// Frames a second while warming up, and of the loads at smoke size.
const GENTLE: f64 = 20_000.0;
/// Rates to try, as shares of what came through flat out.
const STEPS: [f64; 12] = [1.3, 1.2, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];
/// Tries of each rate: other work of the machine takes a core away now and then.
const TRIES: usize = 3;

/// Sizes of the measurement.
pub struct Plan {
    pub flows: u32,
    /// Rounds in which all switches take turns.
    pub rounds: usize,
    /// Duration of each load.
    pub window: Duration,
    /// Duration before each turn.
    pub warm_up: Duration,
    /// Duration of a try for a rate without loss; `None` tries no rate, as at smoke size, and loads
    /// are gentle.
    pub step: Option<Duration>,
}

/// One switch in one round.
pub struct Turn {
    /// As much as the generator can send.
    pub flat_out: Window,
    /// Half of what the slowest switch forwards without loss.
    pub common: Window,
    /// Half of what this one forwards without loss.
    pub half: Window,
    /// Cycles a packet flat out: datapath, receiving, copying out, flushing; Overbank only.
    pub cycles: Option<[f64; 4]>,
}

/// One switch.
pub struct Measured {
    pub contestant: Contestant,
    /// Frames a second that came through without loss.
    pub lossless: f64,
    /// One for each round.
    pub turns: Vec<Turn>,
    /// Overbank only: whether every account closed.
    pub accounts: bool,
}

/// Results for one number of workers.
pub struct Found {
    /// In the order of [`ALL`], without missing ones.
    pub measured: Vec<Measured>,
    /// Missing switches, with the reasons.
    pub left_out: Vec<String>,
    /// Frames a second of the common rate.
    pub common: f64,
}

/// The state that turns share.
struct Bench<'a> {
    plan: &'a Plan,
    net: &'a Net,
    ovs: Option<&'a Ovs>,
    hosts: Hosts,
    host_core: usize,
    switch_cores: Vec<usize>,
    workers: usize,
}

impl<'a> Bench<'a> {
    /// Sends for a while, on the hosts' core.
    fn window(&mut self, load: Load, time: Duration) -> Result<Window> {
        let (hosts, core) = (&mut self.hosts, self.host_core);
        let on_core = move || {
            keep_on(&[core])?;
            Ok(hosts.run(load, time))
        };
        std::thread::scope(|scope| scope.spawn(on_core).join())
            .unwrap_or_else(|_| Err(anyhow!("the hosts' thread panicked")))
    }

    /// Gives the interfaces to a switch, and sends until its caches are warm.
    fn attach(&mut self, contestant: Contestant) -> Result<(Running<'a>, Window)> {
        let (net, ovs, workers) = (self.net, self.ovs, self.workers);
        let running = Running::attach(contestant, net, ovs, &self.switch_cores, workers)?;
        let warm_up = self.window(Load::Rate(GENTLE), self.plan.warm_up)?;
        if warm_up.received == 0 {
            return Err(anyhow!("{}: no frame came through", contestant.name()));
        }
        Ok((running, warm_up))
    }

    /// Returns the highest rate tried at which every frame arrives.
    fn lossless(&mut self, contestant: Contestant) -> Result<f64> {
        let (_running, _) = self.attach(contestant)?;
        let Some(step) = self.plan.step else { return Ok(GENTLE) };
        let most = self.window(Load::FlatOut, step)?.rate();
        for share in STEPS {
            for _ in 0..TRIES {
                let window = self.window(Load::Rate(most * share), step)?;
                if window.received == window.offered {
                    return Ok(window.rate());
                }
            }
        }
        Ok(most * STEPS[STEPS.len() - 1] / 2.0)
    }

    fn turn(&mut self, measured: &mut Measured, common: f64) -> Result<()> {
        let time = self.plan.window;
        let (running, warm_up) = self.attach(measured.contestant)?;
        let flat_out = self.window(Load::FlatOut, time)?;
        let cycles = running.status().and_then(|status| status.total.cycles_per_packet);
        let common = self.window(Load::Rate(common), time)?;
        let half = self.window(Load::Rate(measured.lossless / 2.0), time)?;
        if let Some(status) = running.detach() {
            measured.accounts &= closes(&status, &[&warm_up, &flat_out, &common, &half]);
        }
        measured.turns.push(Turn { flat_out, common, half, cycles });
        Ok(())
    }
}

/// Returns whether each frame is where the counters say: offered ≥ forwarded = to be sent ≥ sent ≥
/// arrived.
fn closes(status: &StatusOf<RuleControl>, windows: &[&Window]) -> bool {
    let [one, two, ..] = &status.ports[..] else { return false };
    let offered: u64 = windows.iter().map(|w| w.offered).sum();
    let arrived: u64 = windows.iter().map(|w| w.received).sum();
    status.closes
        && two.queued == 0
        && offered >= one.forwarded
        && one.forwarded == two.outputs
        && two.sent >= arrived
}

/// Returns the switches that take part.
fn contestants(plan: &Plan, workers: usize) -> Vec<Contestant> {
    match (plan.step, workers) {
        (Some(_), _) => ALL.to_vec(),
        // Adding AF_XDP ports to Open vSwitch takes a second.
        (None, 1) => ALL.into_iter().filter(|c| ![AFXDP_BUSY, OVS_AFXDP].contains(c)).collect(),
        (None, _) => vec![AFXDP, AFPACKET],
    }
}

/// Measures all switches with `workers` workers; progress goes through `share`.
pub fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    cores: &Cores,
    workers: usize,
    share: Range<f64>,
) -> Result<Found> {
    let contestants = contestants(plan, workers);
    let steps = (contestants.len() * (plan.rounds + 1)) as f64;
    let mut step = 0.0;
    let mut next = |context: &mut Context<'_>, contestant: Contestant, what: &str| {
        let done = share.start + (share.end - share.start) * step / steps;
        step += 1.0;
        let plural = if workers == 1 { "" } else { "s" };
        context.step(&format!("{workers} worker{plural}, {}, {what}", contestant.name()), done)
    };

    let net = Net::new(workers)?;
    let switch_cores = cores.switch(workers);
    let mut left_out = Vec::new();
    let needs_ovs = contestants.iter().any(|c| matches!(c, Contestant::Ovs(_)));
    let ovs = needs_ovs.then(|| Ovs::start(&net, &switch_cores, &rules()));
    let ovs = ovs.and_then(|ovs| ovs.map_err(|error| left_out.push(format!("{error:#}"))).ok());
    let mut bench = Bench {
        plan,
        net: &net,
        ovs: ovs.as_ref(),
        hosts: Hosts::new(&net, plan.flows, context.seed)?,
        host_core: cores.host,
        switch_cores,
        workers,
    };

    let mut measured = Vec::new();
    for contestant in contestants {
        next(context, contestant, "rate without loss")?;
        if matches!(contestant, Contestant::Ovs(_)) && bench.ovs.is_none() {
            continue;
        }
        match bench.lossless(contestant) {
            Ok(lossless) => {
                measured.push(Measured { contestant, lossless, turns: Vec::new(), accounts: true });
            }
            Err(error) if contestant.is_overbank() => return Err(error),
            Err(error) => left_out.push(format!("{error:#}")),
        }
    }
    let slowest = measured.iter().map(|m| m.lossless).fold(f64::INFINITY, f64::min);
    let common = slowest / 2.0;
    for round in 1..=plan.rounds {
        // Each round begins with another one, so that none is always first after a pause.
        for nth in 0..measured.len() {
            let nth = (nth + round) % measured.len();
            let measured: &mut Measured = &mut measured[nth];
            next(context, measured.contestant, &format!("round {round} of {}", plan.rounds))?;
            bench.turn(measured, common)?;
        }
    }
    Ok(Found { measured, left_out, common })
}
