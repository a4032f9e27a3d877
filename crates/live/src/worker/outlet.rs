//! What a worker does with the frames that its datapath hands over, and how it accounts for them.

use crate::mac::Learner;
use crate::snapshot::{Common, Link, PacketIn, PortView};
use crate::sys::cycles;
use crate::totals::{
    DROP_NO_CONTROLLER, DROP_NO_PACKET_IN, NOT_SENT_BLOCKED, NOT_SENT_DOWN, NOT_SENT_FULL,
    NOT_SENT_LOST, NOT_SENT_TOO_LONG, PortTotals,
};
use overbank_ports::queue::{SendError, Transmit, TransmitCounters};
use overbank_switch::drop::DropReason;
use overbank_switch::ports::PORT_CONTROLLER;
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket, Sink};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Addresses of link-layer protocols (01:80:c2:00:00:0x), which no bridge forwards.
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0, 0];
/// No such port.
const NONE: u16 = u16::MAX;

/// The sending side of one port.
#[derive(Default)]
pub(super) struct Egress {
    pub(super) transmit: Option<Box<dyn Transmit>>,
    /// Frames that the current queue took.
    taken: u64,
    /// What earlier queues did.
    before: TransmitCounters,
    /// Whether something was sent since the last flush.
    touched: bool,
}

/// Where frames go; see the module.
pub(super) struct Outlet {
    /// By place of the port; the last one is the controllers'.
    pub(super) totals: Vec<PortTotals>,
    pub(super) egress: Vec<Egress>,
    pub(super) learner: Learner,
    pub(super) packet_ins: u64,
    /// Cycles spent in `send`, while `timing`.
    pub(super) cycles_send: u64,
    pub(super) timing: bool,
    link: Arc<Link>,
    common: Arc<Common>,
    ports: Arc<[PortView]>,
    /// Place of a port by its number.
    places: Vec<u16>,
    touched: Vec<usize>,
    now_ms: u32,
    /// Of the burst: the port that it came in on, and which frames went where.
    ingress: usize,
    no_packet_in: bool,
    forwarded: u32,
    controlled: u32,
    copies: u64,
    refusal: usize,
}

impl Outlet {
    pub(super) fn new(
        ports: Arc<[PortView]>,
        link: Arc<Link>,
        common: Arc<Common>,
        learner: Learner,
    ) -> Outlet {
        let numbers = ports.iter().map(|port| port.number as usize + 1).max().unwrap_or(0);
        let mut places = vec![NONE; numbers];
        for (place, port) in ports.iter().enumerate() {
            places[port.number as usize] = place as u16;
        }
        Outlet {
            totals: vec![PortTotals::default(); ports.len() + 1],
            egress: ports.iter().map(|_| Egress::default()).collect(),
            learner,
            packet_ins: 0,
            cycles_send: 0,
            timing: false,
            link,
            common,
            touched: Vec::with_capacity(ports.len()),
            ports,
            places,
            now_ms: 0,
            ingress: 0,
            no_packet_in: false,
            forwarded: 0,
            controlled: 0,
            copies: 0,
            refusal: 0,
        }
    }

    /// The same ports in the same order, with other settings.
    pub(super) fn set_ports(&mut self, ports: &Arc<[PortView]>) {
        self.ports = ports.clone();
    }

    /// What `port` may do.
    pub(super) fn config(&self, port: usize) -> crate::snapshot::PortConfig {
        self.ports[port].config
    }

    /// Starts a burst that came in on `ingress`, the place after the last port for the controllers.
    #[inline]
    pub(super) fn begin(&mut self, ingress: usize, now_ms: u64) {
        self.ingress = ingress;
        self.no_packet_in = self.ports.get(ingress).is_some_and(|p| p.config.no_packet_in);
        // Only differences count, and seconds.
        self.now_ms = now_ms as u32;
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

    /// Hands over everything that was sent.
    pub(super) fn flush(&mut self) {
        for place in self.touched.drain(..) {
            let egress = &mut self.egress[place];
            egress.touched = false;
            if let Some(transmit) = &mut egress.transmit {
                // What was not handed over is counted as lost, and the receiving half says why.
                let _ = transmit.flush();
            }
        }
    }

    /// Flushes every port, and brings the totals up to date.
    pub(super) fn settle(&mut self) {
        for (place, egress) in self.egress.iter_mut().enumerate() {
            egress.touched = false;
            let now = match &mut egress.transmit {
                Some(transmit) => {
                    let _ = transmit.flush();
                    transmit.counters()
                }
                None => TransmitCounters::default(),
            };
            let totals = &mut self.totals[place];
            totals.sent = egress.before.sent + now.sent;
            totals.sent_bytes = egress.before.sent_bytes + now.sent_bytes;
            totals.not_sent[NOT_SENT_LOST] = egress.before.lost + now.lost;
            totals.queued = egress.taken.saturating_sub(now.sent + now.lost);
        }
        self.touched.clear();
    }

    /// Frames that wait in transmit queues.
    pub(super) fn queued(&self) -> u64 {
        self.totals.iter().map(|totals| totals.queued).sum()
    }

    /// Exchanges the sending half of a port.
    pub(super) fn replace(
        &mut self,
        place: usize,
        transmit: Option<Box<dyn Transmit>>,
    ) -> Option<Box<dyn Transmit>> {
        let egress = &mut self.egress[place];
        let mut old = std::mem::replace(&mut egress.transmit, transmit);
        if let Some(old) = &mut old {
            let _ = old.flush();
            let counted = old.counters();
            egress.before.sent += counted.sent;
            egress.before.sent_bytes += counted.sent_bytes;
            // What is still in the queue now will not leave any more.
            egress.before.lost += egress.taken.saturating_sub(counted.sent);
        }
        egress.taken = 0;
        old
    }

    #[inline]
    fn send(&mut self, place: usize, frame: &[u8]) {
        let totals = &mut self.totals[place];
        totals.outputs += 1;
        let config = self.ports[place].config;
        if config.down || config.no_forward {
            totals.not_sent[NOT_SENT_BLOCKED] += 1;
            return;
        }
        let egress = &mut self.egress[place];
        let Some(transmit) = &mut egress.transmit else {
            totals.not_sent[NOT_SENT_DOWN] += 1;
            return;
        };
        let reason = match transmit.send(frame) {
            Ok(()) => {
                egress.taken += 1;
                if !egress.touched {
                    egress.touched = true;
                    self.touched.push(place);
                }
                return;
            }
            Err(SendError::Full) => NOT_SENT_FULL,
            Err(SendError::TooLong) => NOT_SENT_TOO_LONG,
            Err(SendError::Down) => NOT_SENT_DOWN,
        };
        totals.not_sent[reason] += 1;
    }
}

impl Sink for Outlet {
    #[inline]
    fn output(&mut self, index: usize, port: u32, frame: &[u8], _edited: bool) {
        let place = self.places.get(port as usize).copied().unwrap_or(NONE);
        debug_assert!(place != NONE, "the datapath sends to ports that exist");
        self.forwarded |= 1 << index;
        if place == NONE {
            return;
        }
        if self.timing {
            let start = cycles();
            self.send(usize::from(place), frame);
            self.cycles_send += cycles().wrapping_sub(start);
        } else {
            self.send(usize::from(place), frame);
        }
    }

    fn drop(&mut self, _index: usize, reason: DropReason) {
        let reason = match reason {
            DropReason::ControllerQueueFull => self.refusal,
            reason => reason.index(),
        };
        self.totals[self.ingress].dropped[reason] += 1;
    }

    fn controller(&mut self, index: usize, packet: &ControllerPacket<'_>) -> bool {
        self.refusal = DropReason::ControllerQueueFull.index();
        if self.no_packet_in {
            self.refusal = DROP_NO_PACKET_IN;
            return false;
        }
        // Relaxed: a controller that has just come or gone may miss a packet or lose one.
        if self.common.controllers.load(Ordering::Relaxed) == 0 {
            self.refusal = DROP_NO_CONTROLLER;
            return false;
        }
        if self.link.packet_ins.is_full() {
            return false;
        }
        let packet_in = PacketIn {
            reason: packet.reason,
            max_len: packet.max_len,
            table: packet.table,
            cookie: packet.cookie,
            in_port: packet.in_port,
            frame: packet.frame.to_vec(),
        };
        if self.link.packet_ins.push(packet_in).is_err() {
            return false;
        }
        self.common.bell.ring();
        self.packet_ins += 1;
        self.copies += 1;
        self.controlled |= 1 << index;
        true
    }

    fn normal(&mut self, _index: usize, packet: &NormalPacket) -> Normal {
        let vlan = packet.vlan.unwrap_or(0);
        if packet.in_port != PORT_CONTROLLER
            && self.learner.saw(vlan, packet.src, packet.in_port, self.now_ms)
        {
            self.common.bell.ring();
        }
        if packet.dst[..5] == RESERVED && packet.dst[5] < 16 {
            return Normal::Drop;
        }
        if packet.dst[0] & 1 != 0 {
            return Normal::Flood;
        }
        match self.learner.lookup(vlan, packet.dst) {
            Some(port) if port == packet.in_port => Normal::Drop,
            Some(port) => Normal::Port(port),
            None => Normal::Flood,
        }
    }
}
