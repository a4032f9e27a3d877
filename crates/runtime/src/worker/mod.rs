//! A worker: a thread that passes frames from its queue of each port through its engine.
//!
//! ```text
//!   round:  something from the control side? ─▶ snapshot, queues, orders
//!           for each port: receive ≤ 128 ─▶ engine ─▶ send       (out.rs)
//!           flush the ports that were sent to
//!           every 10 ms: the engine's turn, totals for readers
//!           nothing for a while: wait for frames or for the control side
//! ```
//!
//! Nothing on the packet path is locked or shared: a worker owns its queues, its caches and its
//! counters. It takes over a snapshot between two bursts. So one snapshot decides each packet: the
//! one in force on reception, or a newer one.
//!
//! **Time** is measured in every [`SAMPLE`]th round: cycles in `receive`, in the engine, in `send`
//! (copies out) and in `flush` (system calls). The other rounds pay nothing.
//!
//! Panics: none; a faulty port shows in counters.

mod out;

pub use out::Out;

use crate::engine::{Engine, Ingress};
use crate::link::{Attachment, Common, Link, Snapshot};
use crate::sys::{WaitSet, cycles};
use crate::totals::WorkerTotals;
use overbank_handover::mailbox;
use overbank_ports::queue::{PortError, Queue, Receive, ReceiveCounters};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Rounds per measured round.
pub const SAMPLE: u64 = 16;
/// Empty rounds before a worker waits.
const EMPTY_ROUNDS_MAX: u32 = 64;
/// Longest wait for frames.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// Longest wait if a port offers no descriptor to wait for.
const WAIT_ASKING: Duration = Duration::from_millis(1);
/// Time between two turns of periodic work.
const TURN_MS: u64 = 10;
/// Rounds between two looks at the clock.
const ROUNDS_PER_TURN_CHECK: u64 = 16;
/// Time before a port that is down is polled again.
const RETRY_MS: u64 = 5;
/// Longest time that a worker asked to end processes arrived frames.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// Longest time for a port to send what it has taken.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Orders carried out in a round.
const ORDERS_PER_ROUND: usize = 32;

/// The receiving side of one port.
struct Ingest {
    receive: Box<dyn Receive>,
    /// Not polled before.
    retry_ms: u64,
}

/// One worker; see the module.
pub struct Worker<E: Engine> {
    mailbox: mailbox::Worker<Snapshot<E>>,
    engine: E,
    ingress: Vec<Option<Ingest>>,
    /// Counts of earlier queues.
    ingress_before: Vec<ReceiveCounters>,
    out: Out<E::Drop>,
    link: Arc<Link<E>>,
    common: Arc<Common>,
    busy_poll: bool,
    totals: WorkerTotals,
    waits: WaitSet,
    next_turn_ms: u64,
    /// Scratch memory of a publication.
    words: Vec<u64>,
}

impl<E: Engine> Worker<E> {
    /// Returns a worker without queues; they come as attachments. `engine` runs on the mailbox's
    /// snapshot. With `busy_poll` it never waits.
    pub fn new(
        mailbox: mailbox::Worker<Snapshot<E>>,
        engine: E,
        link: Arc<Link<E>>,
        common: Arc<Common>,
        busy_poll: bool,
    ) -> Worker<E> {
        let ports = mailbox.current().ports.clone();
        let totals = WorkerTotals { version: mailbox.version(), ..Default::default() };
        Worker {
            mailbox,
            engine,
            ingress: ports.iter().map(|_| None).collect(),
            ingress_before: vec![ReceiveCounters::default(); ports.len()],
            out: Out::new(ports),
            link,
            common,
            busy_poll,
            totals,
            waits: WaitSet::default(),
            next_turn_ms: 0,
            words: Vec::new(),
        }
    }

    /// Works until asked to stop, then processes the frames that have arrived.
    pub fn run(mut self) {
        let mut empty = 0;
        while !self.link.stop.load(Ordering::Relaxed) {
            let worked = self.round();
            empty = if worked { 0 } else { empty + 1 };
            if empty >= EMPTY_ROUNDS_MAX && !self.busy_poll {
                self.wait();
                empty = 0;
            }
        }
        self.drain();
    }

    /// Runs one round; returns whether there was anything to do.
    fn round(&mut self) -> bool {
        self.totals.rounds += 1;
        let mut worked = self.listen();
        let now_ms = self.common.clock.now_ms();
        self.out.timing = self.totals.rounds.is_multiple_of(SAMPLE);
        for index in 0..self.ingress.len() {
            worked |= self.burst(index, now_ms);
        }
        if self.out.timing {
            let start = cycles();
            self.out.flush();
            if worked {
                self.totals.cycles_flush += cycles().wrapping_sub(start);
            }
        } else {
            self.out.flush();
        }
        if self.totals.rounds.is_multiple_of(ROUNDS_PER_TURN_CHECK) && now_ms >= self.next_turn_ms {
            self.turn(now_ms);
        }
        worked
    }

    /// Receives from one port and processes the frames.
    #[inline]
    fn burst(&mut self, index: usize, now_ms: u64) -> bool {
        let Some(ingress) = &mut self.ingress[index] else { return false };
        if now_ms < ingress.retry_ms {
            return false;
        }
        let timing = self.out.timing;
        let start = if timing { cycles() } else { 0 };
        let received = match ingress.receive.receive() {
            Ok(received) => received,
            Err(error) => {
                ingress.retry_ms = now_ms + RETRY_MS;
                if matches!(error, PortError::Gone { .. }) {
                    let gone = &self.link.gone[index];
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
        let view = self.out.view(index);
        let totals = &mut self.out.totals[index];
        totals.received += n;
        totals.received_bytes += received.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if !view.receives {
            self.out.refuse(index, n);
            return true;
        }
        // Every table of ports has 16-bit indices.
        let ingress = Ingress { index: index as u16, number: view.number };
        self.totals.bursts += 1;
        self.totals.packets += n;
        self.out.begin(index);
        if timing {
            let (middle, sent) = (cycles(), self.out.cycles_send);
            self.engine.process(&received, ingress, now_ms, &mut self.out);
            let sending = self.out.cycles_send - sent;
            let processing = cycles().wrapping_sub(middle);
            self.totals.cycles_receive += middle.wrapping_sub(start);
            self.totals.cycles_datapath += processing.saturating_sub(sending);
            self.totals.sampled_packets += n;
        } else {
            self.engine.process(&received, ingress, now_ms, &mut self.out);
        }
        self.out.end();
        true
    }

    /// Carries out requests of the control side.
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
        while let Some(attachment) = self.link.attachments.pop() {
            match attachment {
                Attachment::Attach { port, queue } => self.attach(port, Some(queue)),
                Attachment::Detach { port } => self.attach(port, None),
            }
        }
        for _ in 0..ORDERS_PER_ROUND {
            let empty = self.link.orders.is_empty();
            if self.take_snapshot() {
                continue;
            }
            if empty {
                return;
            }
            // The order preceded the look at the mailbox, so the snapshot published before it is in
            // force.
            let Some(order) = self.link.orders.pop() else { return };
            carry_out(order, &mut self.engine, &mut self.out, self.common.clock.now_ms());
        }
        // There may be more; frames received meanwhile go first.
        self.link.bell.ring();
    }

    /// Moves on to the newest snapshot, if any. Earlier orders are carried out before it counts as
    /// seen.
    fn take_snapshot(&mut self) -> bool {
        let Worker { mailbox, engine, out, link, common, totals, .. } = self;
        let taken = mailbox.take(|old, new| {
            engine.take_over(&old.engine, &new.engine, common.clock.now_ms());
            if !Arc::ptr_eq(&old.ports, &new.ports) {
                out.set_ports(&new.ports);
            }
            // Bounded by the queue's length: orders that arrive meanwhile are later than the
            // snapshot.
            for _ in 0..link.orders.len() {
                let Some(order) = link.orders.pop() else { break };
                carry_out(order, engine, out, common.clock.now_ms());
            }
            out.flush();
            engine.settle(common.clock.now_ms());
            totals.snapshots += 1;
        });
        self.totals.version = self.mailbox.version();
        taken
    }

    /// Exchanges the queue of a port; the old one returns to the control side.
    fn attach(&mut self, index: usize, queue: Option<Queue>) {
        let (receive, transmit) = match queue {
            Some(Queue { receive, transmit }) => (Some(receive), Some(transmit)),
            None => (None, None),
        };
        let ingress = receive.map(|receive| Ingest { receive, retry_ms: 0 });
        let old_receive = std::mem::replace(&mut self.ingress[index], ingress);
        let old_transmit = self.out.replace(index, transmit);
        if let (Some(mut receive), Some(transmit)) = (old_receive, old_transmit) {
            let counted = receive.receive.counters();
            self.ingress_before[index].missed += counted.missed;
            self.ingress_before[index].errors += counted.errors;
            let old = Queue { receive: receive.receive, transmit };
            let full = self.link.detached.push((index, old));
            debug_assert!(full.is_ok(), "room for every queue handed out and not collected");
            self.common.bell.ring();
        }
    }

    /// Does periodic work.
    #[cold]
    fn turn(&mut self, now_ms: u64) {
        self.next_turn_ms = now_ms + TURN_MS;
        self.engine.turn(now_ms);
        self.publish();
    }

    /// Publishes the totals for readers.
    fn publish(&mut self) {
        self.out.settle();
        let mut finished = true;
        for (index, ingress) in self.ingress.iter_mut().enumerate() {
            let before = self.ingress_before[index];
            // A port without a queue counts nothing now.
            let now = ingress.as_mut().map(|i| i.receive.counters()).unwrap_or_default();
            self.out.totals[index].missed = before.missed + now.missed;
            self.out.totals[index].errors = before.errors + now.errors;
            finished &= ingress.as_ref().is_some_and(|i| i.receive.is_finished());
        }
        self.totals.cycles_send = self.out.cycles_send;
        let ports = self.out.totals.iter().zip(&self.out.dropped);
        self.link.published.publish(&self.totals, &self.engine.totals(), ports, &mut self.words);
        if finished && self.out.queued() == 0 {
            self.link.finished.store(true, Ordering::Release);
        }
    }

    /// Waits for frames or for the control side. Next it looks at the mailbox: see [`Rest`].
    ///
    /// [`Rest`]: overbank_handover::rest::Rest
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
        self.link.rest.begin();
        if !self.mailbox.has_next() {
            self.waits.wait(at_most);
        }
        self.link.rest.end();
        self.link.bell.waker().clear();
    }

    /// Processes the frames that have arrived: until a round brings nothing, within limits.
    fn drain(&mut self) {
        let end = Instant::now() + DRAIN_MAX;
        while self.round() && Instant::now() < end {}
        self.out.settle();
        let end = Instant::now() + SETTLE_MAX;
        while self.out.queued() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            self.out.settle();
        }
        self.turn(self.common.clock.now_ms());
    }
}

/// Has the engine carry out an order, whose frames belong to the control side's account.
fn carry_out<E: Engine>(order: E::Order, engine: &mut E, out: &mut Out<E::Drop>, now_ms: u64) {
    out.begin(out.totals.len() - 1);
    engine.carry_out(order, now_ms, out);
    out.end();
}

#[cfg(test)]
mod tests;
