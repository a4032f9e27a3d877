//! One worker: a thread that takes frames from its queue of each port through its own engine.
//!
//! ```text
//!   round:  something from the control side? ─▶ snapshot, queues, frames of controllers
//!           for each port: receive ≤ 32 ─▶ engine ─▶ send        (engine.rs, outlet.rs)
//!           flush the ports that were sent to
//!           every 10 ms: counters of rules, sweep of megaflows, totals for readers
//!           nothing for a while: wait for frames or for the control side
//! ```
//!
//! Nothing here is locked or shared on the packet path: a worker owns its queues, its caches and its
//! counters. A snapshot is taken over between two bursts, so each packet is treated by one set of
//! rules: those in force when it was received, or newer ones.
//!
//! **Time** is measured in every [`SAMPLE`]th round: cycles in `receive`, in the engine itself, in
//! `send` (copies to the outside) and in `flush` (system calls). The rest of the rounds pays nothing.
//!
//! Panics: none of its own; a port or rule that misbehaves ends in counters.

mod engine;
mod outlet;

pub use engine::{Engine, roles};
pub use outlet::Stationed;

use overbank_handover::mailbox;
use crate::snapshot::{Command, Common, Link, PacketOut, Snapshot};
use crate::sys::{WaitSet, cycles};
use crate::totals::{DROP_PORT_BLOCKED, WorkerTotals};
use outlet::Outlet;
use overbank_ports::queue::{PortError, Queue, Receive, ReceiveCounters};
use overbank_switch::datapath::Frame;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One round in so many is measured.
pub const SAMPLE: u64 = 16;
/// Empty rounds before a worker waits.
const EMPTY_ROUNDS_MAX: u32 = 64;
/// Longest wait for frames.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// Longest wait if some port cannot be waited for.
const WAIT_ASKING: Duration = Duration::from_millis(1);
/// Time between two turns of what needs not be done in every round.
const TURN_MS: u64 = 10;
/// Rounds after which the clock is asked whether it is time.
const ROUNDS_PER_TURN_CHECK: u64 = 16;
/// A port that is down is asked again after so long.
const RETRY_MS: u64 = 5;
/// Turns in which all megaflows are looked at once.
const SWEEP_TURNS: usize = 100;
/// How long a worker that was told to end goes on with what has arrived.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// Longest time for what a port has taken to leave it.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Frames of controllers carried out in a round.
const PACKET_OUTS_PER_ROUND: usize = 32;

/// What a worker is told at the start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// After how long an unused megaflow goes.
    pub megaflow_idle_ms: u32,
    /// Whether it never waits.
    pub busy_poll: bool,
}

/// The receiving side of one port.
struct Ingress {
    receive: Box<dyn Receive>,
    /// Nothing is to be had before.
    retry_ms: u64,
}

/// One worker; see the module.
pub struct Worker {
    mailbox: mailbox::Worker<Snapshot>,
    engine: Engine,
    ingress: Vec<Option<Ingress>>,
    /// What earlier queues counted.
    ingress_before: Vec<ReceiveCounters>,
    outlet: Outlet,
    link: Arc<Link>,
    common: Arc<Common>,
    options: Options,
    totals: WorkerTotals,
    waits: WaitSet,
    next_turn_ms: u64,
}

impl Worker {
    /// A worker without queues; they come as commands. `engine` runs on the mailbox's snapshot.
    pub fn new(
        mailbox: mailbox::Worker<Snapshot>,
        engine: Engine,
        stations: Stationed,
        link: Arc<Link>,
        common: Arc<Common>,
        options: Options,
    ) -> Worker {
        let ports = mailbox.current().ports.clone();
        let totals = WorkerTotals { version: mailbox.version(), ..Default::default() };
        Worker {
            mailbox,
            engine,
            ingress: ports.iter().map(|_| None).collect(),
            ingress_before: vec![ReceiveCounters::default(); ports.len()],
            outlet: Outlet::new(ports, link.clone(), common.clone(), stations),
            link,
            common,
            options,
            totals,
            waits: WaitSet::default(),
            next_turn_ms: 0,
        }
    }

    /// Works until it is told to stop, then takes what has arrived to its end.
    pub fn run(mut self) {
        let mut empty = 0;
        while !self.link.stop.load(Ordering::Relaxed) {
            let worked = self.round();
            empty = if worked { 0 } else { empty + 1 };
            if empty >= EMPTY_ROUNDS_MAX && !self.options.busy_poll {
                self.wait();
                empty = 0;
            }
        }
        self.drain();
    }

    /// One round; returns whether there was anything to do.
    fn round(&mut self) -> bool {
        self.totals.rounds += 1;
        let mut worked = self.listen();
        let now_ms = self.common.clock.now_ms();
        self.outlet.timing = self.totals.rounds.is_multiple_of(SAMPLE);
        for place in 0..self.ingress.len() {
            worked |= self.burst(place, now_ms);
        }
        if self.outlet.timing {
            let start = cycles();
            self.outlet.flush();
            if worked {
                self.totals.cycles_flush += cycles().wrapping_sub(start);
            }
        } else {
            self.outlet.flush();
        }
        if self.totals.rounds.is_multiple_of(ROUNDS_PER_TURN_CHECK) && now_ms >= self.next_turn_ms {
            self.turn(now_ms);
        }
        worked
    }

    /// Receives from one port and processes what came.
    #[inline]
    fn burst(&mut self, place: usize, now_ms: u64) -> bool {
        let Some(ingress) = &mut self.ingress[place] else { return false };
        if now_ms < ingress.retry_ms {
            return false;
        }
        let timing = self.outlet.timing;
        let start = if timing { cycles() } else { 0 };
        let received = match ingress.receive.receive() {
            Ok(received) => received,
            Err(error) => {
                ingress.retry_ms = now_ms + RETRY_MS;
                if matches!(error, PortError::Gone { .. }) {
                    let gone = &self.link.gone[place];
                    if !gone.swap(true, Ordering::Relaxed) {
                        self.common.bell.ring();
                    }
                }
                return false;
            }
        };
        if received.is_empty() {
            return false;
        }
        let n = received.len() as u64;
        let config = self.outlet.config(place);
        let totals = &mut self.outlet.totals[place];
        totals.received += n;
        totals.received_bytes += received.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if config.down || config.no_receive {
            totals.dropped[DROP_PORT_BLOCKED] += n;
            return true;
        }
        let in_port = self.mailbox.current().ports[place].number;
        self.totals.bursts += 1;
        // Rules have their own count, which has the frames of controllers as well.
        self.totals.packets += n;
        self.outlet.begin(place, now_ms);
        if timing {
            let (middle, sent) = (cycles(), self.outlet.cycles_send);
            self.engine.process(&received, place, in_port, now_ms, &mut self.outlet);
            let sending = self.outlet.cycles_send - sent;
            let processing = cycles().wrapping_sub(middle);
            self.totals.cycles_receive += middle.wrapping_sub(start);
            self.totals.cycles_datapath += processing.saturating_sub(sending);
            self.totals.sampled_packets += n;
        } else {
            self.engine.process(&received, place, in_port, now_ms, &mut self.outlet);
        }
        self.outlet.end();
        true
    }

    /// Does what the control side wants.
    #[inline]
    fn listen(&mut self) -> bool {
        if !self.link.bell.answer() && !self.mailbox.has_next() {
            return false;
        }
        self.obey();
        true
    }

    #[cold]
    fn obey(&mut self) {
        while let Some(command) = self.link.commands.pop() {
            match command {
                Command::Attach { port, queue } => self.attach(port, Some(queue)),
                Command::Detach { port } => self.attach(port, None),
            }
        }
        for _ in 0..PACKET_OUTS_PER_ROUND {
            let empty = self.link.packet_outs.is_empty();
            if self.take_snapshot() {
                continue;
            }
            if empty {
                return;
            }
            // It was there before the look at the mailbox, so the rules that were published before
            // it was sent are in force.
            let Some(packet_out) = self.link.packet_outs.pop() else { return };
            let now_ms = self.common.clock.now_ms();
            carry_out(&packet_out, &mut self.engine, &mut self.outlet, &mut self.totals, now_ms);
        }
        // There may be more; frames that came in meanwhile have their turn first.
        self.link.bell.ring();
    }

    /// Moves on to the newest snapshot, if there is one. Frames of controllers that were sent before
    /// it are carried out before it counts as seen.
    fn take_snapshot(&mut self) -> bool {
        let Worker { mailbox, engine, outlet, link, common, totals, .. } = self;
        let taken = mailbox.take(|old, new| {
            // What was counted so far belongs to the old rules.
            engine.flush_stats(common.clock.now_ms());
            engine.take_over(old, new);
            if !Arc::ptr_eq(&old.ports, &new.ports) {
                outlet.set_ports(&new.ports);
            }
            // As many as the queue holds: more that come meanwhile are later than the snapshot.
            for _ in 0..link.packet_outs.len() {
                let Some(packet_out) = link.packet_outs.pop() else { break };
                carry_out(&packet_out, engine, outlet, totals, common.clock.now_ms());
            }
            outlet.flush();
            engine.flush_stats(common.clock.now_ms());
            totals.snapshots += 1;
        });
        self.totals.version = self.mailbox.version();
        taken
    }

    /// Exchanges the queue of a port; the old one goes back to the control side.
    fn attach(&mut self, place: usize, queue: Option<Queue>) {
        let (receive, transmit) = match queue {
            Some(Queue { receive, transmit }) => (Some(receive), Some(transmit)),
            None => (None, None),
        };
        let ingress = receive.map(|receive| Ingress { receive, retry_ms: 0 });
        let old_receive = std::mem::replace(&mut self.ingress[place], ingress);
        let old_transmit = self.outlet.replace(place, transmit);
        if let (Some(mut receive), Some(transmit)) = (old_receive, old_transmit) {
            let counted = receive.receive.counters();
            self.ingress_before[place].missed += counted.missed;
            self.ingress_before[place].errors += counted.errors;
            let old = Queue { receive: receive.receive, transmit };
            // There is room for every queue that was ever handed out and not collected; were there
            // none, the queue would be freed here.
            drop(self.link.detached.push((place, old)));
            self.common.bell.ring();
        }
    }

    /// What needs not be done in every round.
    #[cold]
    fn turn(&mut self, now_ms: u64) {
        self.next_turn_ms = now_ms + TURN_MS;
        self.engine.flush_stats(now_ms);
        self.engine.sweep(now_ms, self.options.megaflow_idle_ms, SWEEP_TURNS);
        self.publish();
    }

    /// Shows the totals to readers.
    fn publish(&mut self) {
        self.outlet.settle();
        let mut finished = true;
        for (place, ingress) in self.ingress.iter_mut().enumerate() {
            let before = self.ingress_before[place];
            let now = ingress.as_mut().map(|i| i.receive.counters()).unwrap_or_default();
            self.outlet.totals[place].missed = before.missed + now.missed;
            self.outlet.totals[place].errors = before.errors + now.errors;
            finished &= ingress.as_ref().is_some_and(|i| i.receive.is_finished());
        }
        let totals = &mut self.totals;
        self.engine.count(totals);
        totals.packet_ins = self.outlet.packet_ins;
        totals.flooded = self.outlet.flooded;
        totals.learn_limited = self.outlet.stations.learner.limited();
        totals.learn_queue_full = self.outlet.stations.learner.queue_full();
        totals.cycles_send = self.outlet.cycles_send;
        self.link.published.publish(totals, &self.outlet.totals);
        if finished && self.outlet.queued() == 0 {
            self.link.finished.store(true, Ordering::Release);
        }
    }

    /// Waits for frames, or for the control side.
    #[cold]
    fn wait(&mut self) {
        self.turn(self.common.clock.now_ms());
        self.totals.waits += 1;
        self.waits.clear();
        self.waits.add(self.link.bell.waker().as_fd());
        let mut at_most = WAIT_MAX;
        let now_ms = self.common.clock.now_ms();
        for ingress in self.ingress.iter().flatten() {
            match ingress.receive.wait_fd() {
                // A port that is down would end the wait at once.
                _ if now_ms < ingress.retry_ms => {}
                Some(fd) => self.waits.add(fd),
                None if ingress.receive.is_finished() => {}
                None => at_most = WAIT_ASKING,
            }
        }
        self.waits.wait(at_most);
        self.link.bell.waker().clear();
    }

    /// Takes what has arrived to its end: until a round brings nothing, within limits.
    fn drain(&mut self) {
        let end = Instant::now() + DRAIN_MAX;
        while self.round() && Instant::now() < end {}
        self.outlet.settle();
        let end = Instant::now() + SETTLE_MAX;
        while self.outlet.queued() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            self.outlet.settle();
        }
        self.turn(self.common.clock.now_ms());
    }
}

/// Runs the actions of a controller on its frame.
fn carry_out(
    packet_out: &PacketOut,
    engine: &mut Engine,
    outlet: &mut Outlet,
    totals: &mut WorkerTotals,
    now_ms: u64,
) {
    let PacketOut { frame, in_port, actions } = packet_out;
    let controllers = outlet.totals.len() - 1;
    outlet.totals[controllers].received += 1;
    outlet.totals[controllers].received_bytes += frame.len() as u64;
    outlet.begin(controllers, now_ms);
    let frame = Frame { bytes: frame, in_port: *in_port };
    engine.packet_out(frame, actions, now_ms, outlet);
    outlet.end();
    totals.packet_outs += 1;
}
