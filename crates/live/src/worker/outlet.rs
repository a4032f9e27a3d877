//! What a worker does with the frames that its datapath hands over, and how it accounts for them.

use crate::l2::{self, Epoch, Heard, Learner, Sighting, Station};
use crate::snapshot::{Common, Link, PacketIn, PortView};
use crate::sys::cycles;
use crate::totals::{
    DROP_NO_CONTROLLER, DROP_NO_PACKET_IN, NOT_SENT_BLOCKED, NOT_SENT_DOWN, NOT_SENT_FULL,
    NOT_SENT_LOST, NOT_SENT_TOO_LONG, PortTotals, drop_l2,
};
use overbank::fib::{MacVlan, Reader};
use overbank_ports::queue::{SendError, Transmit, TransmitCounters};
use overbank_switch::drop::DropReason;
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket, Sink};
use overbank_wire::bridge::Header;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// No such port.
const NONE: u16 = u16::MAX;

/// A worker's view of the table of stations.
pub struct Stationed {
    /// The table.
    pub reader: Reader<MacVlan, u16>,
    /// Its time.
    pub epoch: Epoch,
    /// What is reported to its writer.
    pub learner: Learner,
}

impl Stationed {
    fn lookup(&self, mac: [u8; 6], vlan: u16) -> Option<Station> {
        self.reader.lookup(MacVlan::new(mac, vlan)).map(Station::from_bits)
    }
}

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
    pub(super) stations: Stationed,
    pub(super) packet_ins: u64,
    /// Frames that left by all ports, as nobody knew better.
    pub(super) flooded: u64,
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
        stations: Stationed,
    ) -> Outlet {
        let numbers = ports.iter().map(|port| port.number as usize + 1).max().unwrap_or(0);
        let mut places = vec![NONE; numbers];
        for (place, port) in ports.iter().enumerate() {
            places[port.number as usize] = place as u16;
        }
        Outlet {
            totals: vec![PortTotals::default(); ports.len() + 1],
            egress: ports.iter().map(|_| Egress::default()).collect(),
            stations,
            packet_ins: 0,
            flooded: 0,
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

    /// Sends, and measures it while `timing`.
    #[inline]
    fn timed_send(&mut self, place: usize, frame: &[u8]) {
        if !self.timing {
            return self.send(place, frame);
        }
        let start = cycles();
        self.send(place, frame);
        self.cycles_send += cycles().wrapping_sub(start);
    }

    /// Tells the core of a station.
    #[cold]
    fn report(&mut self, sighting: Sighting) {
        if self.stations.learner.report(sighting, self.now_ms) {
            self.common.bell.ring();
        }
    }

    /// Place of a port by its number.
    #[inline]
    fn place(&self, port: u32) -> Option<u16> {
        self.places.get(port as usize).copied().filter(|place| *place != NONE)
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
        let place = self.place(port);
        debug_assert!(place.is_some(), "the datapath sends to ports that exist");
        self.forwarded |= 1 << index;
        if let Some(place) = place {
            self.timed_send(usize::from(place), frame);
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
        let header = Header { dst: packet.dst, src: packet.src, vlan };
        let ingress = self.place(packet.in_port);
        if let Some(port) = ingress
            && header.from_station()
        {
            let now = self.stations.epoch.now();
            match Station::heard(self.stations.lookup(packet.src, vlan), port, now) {
                Heard::Known => {}
                Heard::Elsewhere => return Normal::Drop,
                Heard::News(news) => {
                    self.report(Sighting { key: MacVlan::new(packet.src, vlan), port, news });
                }
            }
        }
        if header.to_reserved() {
            return Normal::Drop;
        }
        let known = match header.to_group() {
            true => None,
            false => self.stations.lookup(packet.dst, vlan).map(Station::port),
        };
        match known {
            Some(port) if Some(port) == ingress => Normal::Drop,
            Some(port) => Normal::Port(self.ports[usize::from(port)].number),
            None => {
                self.flooded += 1;
                Normal::Flood
            }
        }
    }
}

impl l2::Sink for Outlet {
    #[inline]
    fn output(&mut self, index: usize, port: u16, frame: &[u8]) {
        self.forwarded |= 1 << index;
        self.timed_send(usize::from(port), frame);
    }

    fn drop(&mut self, _index: usize, reason: l2::DropReason) {
        self.totals[self.ingress].dropped[drop_l2(reason)] += 1;
    }

    fn saw(&mut self, sighting: Sighting) {
        self.report(sighting);
    }

    fn flooded(&mut self, _index: usize) {
        self.flooded += 1;
    }
}
