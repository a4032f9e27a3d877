//! Sends the frames of an engine, and accounts for each.

use crate::link::PortView;
use crate::sys::cycles;
use crate::totals::{DropCounts, NotSent, PortDrop, PortTotals};
use overbank_ports::queue::{BURST, SendError, Transmit, TransmitCounters};
use overbank_reasons::Reasons;
use std::sync::Arc;

/// The result of a port.
type Sent = Result<(), SendError>;

/// No such port.
const NONE: u16 = u16::MAX;

/// The sending side of one port.
#[derive(Default)]
struct Egress {
    transmit: Option<Box<dyn Transmit>>,
    /// Frames that the current queue took.
    taken: u64,
    /// Counts of earlier queues.
    before: TransmitCounters,
    /// Frames were sent since the last flush.
    touched: bool,
}

/// Frames of a burst, a bit each.
type Set = u128;
const _: () = assert!(BURST <= Set::BITS as usize);

/// Destinations of the frames of a burst, numbered from 0, below [`BURST`]. For each frame an
/// engine calls [`Out::output`] or [`Out::to_control`] at least once, or [`Out::drop`] once.
pub struct Out<R> {
    /// By index of the port; the last entry is the control side's frames.
    pub(super) totals: Vec<PortTotals>,
    pub(super) dropped: Vec<DropCounts<R>>,
    egress: Vec<Egress>,
    /// Cycles spent in `send`, while `timing`.
    pub(super) cycles_send: u64,
    pub(super) timing: bool,
    ports: Arc<[PortView]>,
    /// Index of a port by its number.
    indexes: Vec<u16>,
    touched: Vec<usize>,
    /// Ingress port of the burst, and which frames went where.
    ingress: usize,
    forwarded: Set,
    controlled: Set,
    copies: u64,
}

impl<R: Reasons> Out<R> {
    pub(super) fn new(ports: Arc<[PortView]>) -> Out<R> {
        let numbers = ports.iter().map(|port| port.number as usize + 1).max().unwrap_or(0);
        let mut indexes = vec![NONE; numbers];
        for (index, port) in ports.iter().enumerate() {
            indexes[port.number as usize] = index as u16;
        }
        let accounts = ports.len() + 1;
        Out {
            totals: vec![PortTotals::default(); accounts],
            dropped: (0..accounts).map(|_| DropCounts::default()).collect(),
            egress: ports.iter().map(|_| Egress::default()).collect(),
            cycles_send: 0,
            timing: false,
            touched: Vec::with_capacity(ports.len()),
            ports,
            indexes,
            ingress: 0,
            forwarded: 0,
            controlled: 0,
            copies: 0,
        }
    }

    /// Sends a frame by the port at `port`; call it once for each of several ports.
    #[inline]
    pub fn output(&mut self, frame: usize, port: u16, bytes: &[u8]) {
        self.output_with(frame, port, |transmit| transmit.send(bytes));
    }

    /// Sends a frame in two parts, the first of which has the Ethernet header: new headers and what
    /// stays of a received frame, without a copy that joins them.
    #[inline]
    pub fn output_parts(&mut self, frame: usize, port: u16, head: &[u8], rest: &[u8]) {
        self.output_with(frame, port, |transmit| transmit.send_parts(head, rest));
    }

    #[inline]
    fn output_with(
        &mut self,
        frame: usize,
        port: u16,
        send: impl FnOnce(&mut dyn Transmit) -> Sent,
    ) {
        self.forwarded |= Set::from(1u8) << frame;
        if !self.timing {
            return self.send(usize::from(port), send);
        }
        let start = cycles();
        self.send(usize::from(port), send);
        self.cycles_send += cycles().wrapping_sub(start);
    }

    /// Drops a frame, for this reason of the engine.
    #[inline]
    pub fn drop(&mut self, frame: usize, reason: R) {
        let decided = self.forwarded | self.controlled;
        debug_assert!(decided >> frame & 1 == 0, "a frame that went somewhere is not dropped");
        self.dropped[self.ingress].by_engine(reason);
    }

    /// Sends a frame that the engine made itself, beside those of the burst: an error about one of
    /// them, for example. It counts as an output of the port and as no frame of the ingress.
    pub fn originate(&mut self, port: u16, bytes: &[u8]) {
        self.send(usize::from(port), |transmit| transmit.send(bytes));
    }

    /// Counts a copy of a frame handed to the control side.
    #[inline]
    pub fn to_control(&mut self, frame: usize) {
        self.copies += 1;
        self.controlled |= Set::from(1u8) << frame;
    }

    /// Counts a frame of this length that came from the control side in an order.
    pub fn injected(&mut self, bytes: usize) {
        let totals = &mut self.totals[self.ingress];
        totals.received += 1;
        totals.received_bytes += bytes as u64;
    }

    /// Returns the index of the port with this number.
    #[inline]
    pub fn index_of(&self, number: u32) -> Option<u16> {
        self.indexes.get(number as usize).copied().filter(|index| *index != NONE)
    }

    /// Returns the number of the port at `index`.
    #[inline]
    pub fn number_of(&self, index: u16) -> Option<u32> {
        self.ports.get(usize::from(index)).map(|port| port.number)
    }

    /// Takes changed views of the same ports, in the same order.
    pub(super) fn set_ports(&mut self, ports: &Arc<[PortView]>) {
        self.ports = ports.clone();
    }

    /// Returns the view of a port.
    #[inline]
    pub(super) fn view(&self, index: usize) -> PortView {
        self.ports[index]
    }

    /// Counts a burst on a port where receiving is disabled.
    pub(super) fn refuse(&mut self, index: usize, frames: u64) {
        self.dropped[index].unprocessed(PortDrop::PortBlocked, frames);
    }

    /// Starts a burst from `ingress`; the index after the last port is the control side.
    #[inline]
    pub(super) fn begin(&mut self, ingress: usize) {
        self.ingress = ingress;
        (self.forwarded, self.controlled, self.copies) = (0, 0, 0);
    }

    /// Ends the burst: every frame is accounted for.
    #[inline]
    pub(super) fn end(&mut self) {
        let controlled = u64::from((self.controlled & !self.forwarded).count_ones());
        let totals = &mut self.totals[self.ingress];
        totals.forwarded += u64::from(self.forwarded.count_ones());
        totals.to_controller += controlled;
        totals.controller_copies += self.copies - controlled;
    }

    /// Flushes every port with sent frames.
    pub(super) fn flush(&mut self) {
        for index in self.touched.drain(..) {
            let egress = &mut self.egress[index];
            egress.touched = false;
            if let Some(transmit) = &mut egress.transmit {
                // The queue counts unsent frames as lost, and the receiving half reports why.
                let _ = transmit.flush();
            }
        }
    }

    /// Flushes every port, and updates the totals.
    pub(super) fn settle(&mut self) {
        for (index, egress) in self.egress.iter_mut().enumerate() {
            egress.touched = false;
            let now = match &mut egress.transmit {
                Some(transmit) => {
                    let _ = transmit.flush(); // As in `flush`.
                    transmit.counters()
                }
                None => TransmitCounters::default(),
            };
            let totals = &mut self.totals[index];
            totals.sent = egress.before.sent + now.sent;
            totals.sent_bytes = egress.before.sent_bytes + now.sent_bytes;
            totals.not_sent[NotSent::Lost.index()] = egress.before.lost + now.lost;
            totals.queued = egress.taken.saturating_sub(now.sent + now.lost);
        }
        self.touched.clear();
    }

    /// Returns how many frames wait in transmit queues.
    pub(super) fn queued(&self) -> u64 {
        self.totals.iter().map(|totals| totals.queued).sum()
    }

    /// Exchanges the sending half of a port.
    pub(super) fn replace(
        &mut self,
        index: usize,
        transmit: Option<Box<dyn Transmit>>,
    ) -> Option<Box<dyn Transmit>> {
        let egress = &mut self.egress[index];
        let mut old = std::mem::replace(&mut egress.transmit, transmit);
        if let Some(old) = &mut old {
            let _ = old.flush(); // What stays is counted as lost below.
            let counted = old.counters();
            egress.before.sent += counted.sent;
            egress.before.sent_bytes += counted.sent_bytes;
            // What is still in the queue will not be sent any more.
            egress.before.lost += egress.taken.saturating_sub(counted.sent);
        }
        egress.taken = 0;
        old
    }

    #[inline]
    fn send(&mut self, index: usize, send: impl FnOnce(&mut dyn Transmit) -> Sent) {
        let totals = &mut self.totals[index];
        totals.outputs += 1;
        if !self.ports[index].sends {
            totals.not_sent[NotSent::Blocked.index()] += 1;
            return;
        }
        let egress = &mut self.egress[index];
        let Some(transmit) = &mut egress.transmit else {
            totals.not_sent[NotSent::PortDown.index()] += 1;
            return;
        };
        let reason = match send(&mut **transmit) {
            Ok(()) => {
                egress.taken += 1;
                if !egress.touched {
                    egress.touched = true;
                    self.touched.push(index);
                }
                return;
            }
            Err(SendError::Full) => NotSent::QueueFull,
            Err(SendError::TooLong) => NotSent::TooLong,
            Err(SendError::Down) => NotSent::PortDown,
        };
        totals.not_sent[reason.index()] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    overbank_reasons::reasons! {
        enum Why {
            Unknown = "unknown", "the destination is unknown";
        }
    }

    #[test]
    fn a_frame_that_left_and_was_copied_to_the_controllers_counts_once() {
        let view = |number| PortView { number, receives: true, sends: true };
        let mut out = Out::<Why>::new([view(1), view(2)].into());
        out.begin(0);
        out.output(0, 1, &[0; 60]);
        out.to_control(0);
        out.to_control(1);
        out.drop(2, Why::Unknown);
        out.end();
        let totals = &mut out.totals[0];
        totals.received = 3;
        let counted = (totals.forwarded, totals.to_controller, totals.controller_copies);
        assert_eq!(counted, (1, 1, 1));
        assert!(totals.closes(&out.dropped[0]));
        // No queue is attached.
        assert_eq!(out.totals[1].not_sent[NotSent::PortDown.index()], 1);
    }
}
