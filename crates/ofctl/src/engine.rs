//! A worker's engine of the rule switch: the three tiers, and what rules hand over.
//!
//! NORMAL uses the table of stations, looked up for each packet, so no megaflow depends on what was
//! learnt. A packet for the controllers is copied into a bounded queue; why one is refused comes
//! back as the reason to drop it.

use crossbeam_queue::ArrayQueue;
use overbank::fib::MacVlan;
use overbank_runtime::link::Common;
use overbank_runtime::{Engine, Ingress, Out};
use overbank_stations::{Heard, Sighting, Station, Watch};
use overbank_switch::datapath::Frame;
use overbank_switch::drop::DropReason;
use overbank_switch::rule::Action;
use overbank_switch::sink::{ControllerPacket, Normal, NormalPacket, PacketInReason, Sink};
use overbank_switch::tables::Tables;
use overbank_switch::{Datapath, SwitchPort};
use overbank_wire::bridge::Header;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Turns in which all megaflows are looked at once.
const SWEEP_TURNS: usize = 100;

overbank_stations::counters! {
    /// What a worker of the rule switch counts.
    pub struct RuleTotals: "overbank_" {
        microflow_lookups: counter packets "Packets looked up in a tier"
            as "tier_lookups" { tier = "microflow" };
        microflow_hits: counter packets "Packets that the tier decided"
            as "tier_hits" { tier = "microflow" } rate "microflow";
        megaflow_lookups: counter packets "Packets looked up in a tier"
            as "tier_lookups" { tier = "megaflow" };
        megaflow_hits: counter packets "Packets that the tier decided"
            as "tier_hits" { tier = "megaflow" } rate "megaflow";
        megaflow_subtables: counter subtables "Subtables searched in the megaflow cache" in status;
        megaflow_evictions: counter megaflows "Megaflows evicted for new ones";
        megaflow_expirations: counter megaflows "Megaflows removed because they were idle";
        megaflows: gauge megaflows "Megaflows now" rate;
        classifier_lookups: counter packets "Packets looked up in a tier"
            as "tier_lookups" { tier = "classifier" }, "tier_hits" { tier = "classifier" }
            rate "classifier";
        packet_outs: counter packets "Packets from controllers sent";
        packet_ins: counter packets "Packets queued for the controllers";
    }
}

/// A packet for the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Why.
    pub reason: PacketInReason,
    /// How many bytes of it the rule wants them to have; `u16::MAX` is all.
    pub max_len: u16,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Port that it came in on.
    pub in_port: u32,
    /// The whole frame.
    pub frame: Vec<u8>,
}

/// A packet of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The frame.
    pub frame: Vec<u8>,
    /// Its ingress port; [`PORT_CONTROLLER`] if it has none.
    ///
    /// [`PORT_CONTROLLER`]: overbank_switch::ports::PORT_CONTROLLER
    pub in_port: u32,
    /// What to do with it.
    pub actions: Vec<Action>,
}

/// A port as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePort {
    /// OpenFlow number.
    pub number: u32,
    /// Whether flooded frames leave by it.
    pub flood: bool,
    /// Whether its frames go to controllers.
    pub packet_in: bool,
}

/// What the engines run on.
#[derive(Clone)]
pub struct RuleSnapshot {
    /// The rules.
    pub tables: Arc<Tables>,
    /// The ports, in the order of all arrays by port.
    pub ports: Arc<[RulePort]>,
}

impl RuleSnapshot {
    /// Returns the ports as the datapath sees them.
    pub fn switch_ports(&self) -> Vec<SwitchPort> {
        let port = |port: &RulePort| SwitchPort { number: port.number, flood: port.flood };
        self.ports.iter().map(port).collect()
    }
}

/// What an engine shares with its control side.
pub struct EngineLink {
    /// Packets for controllers.
    pub packet_ins: Arc<ArrayQueue<PacketIn>>,
    /// Subscribers that take packets.
    pub controllers: Arc<AtomicUsize>,
    /// Rings when there is something for the control side.
    pub common: Arc<Common>,
    /// What the worker knows of stations.
    pub watch: Watch,
}

/// The engine.
pub struct RuleEngine {
    datapath: Datapath,
    context: Context,
    megaflow_idle_ms: u32,
}

/// What rules use besides the tiers.
struct Context {
    link: EngineLink,
    ports: Arc<[RulePort]>,
    packet_ins: u64,
    flooded: u64,
}

impl RuleEngine {
    /// Returns an engine that runs on `first`, on which the datapath was made.
    pub fn new(
        datapath: Datapath,
        first: &RuleSnapshot,
        link: EngineLink,
        megaflow_idle_ms: u32,
    ) -> RuleEngine {
        let ports = first.ports.clone();
        let context = Context { link, ports, packet_ins: 0, flooded: 0 };
        RuleEngine { datapath, context, megaflow_idle_ms }
    }
}

/// Where the frames of one burst go.
struct Burst<'a> {
    out: &'a mut Out<DropReason>,
    context: &'a mut Context,
    now_ms: u64,
    /// Whether the ingress port's frames go to controllers.
    packet_in: bool,
}

impl Sink for Burst<'_> {
    #[inline]
    fn output(&mut self, index: usize, port: u32, frame: &[u8], _edited: bool) {
        let at = self.out.index_of(port);
        debug_assert!(at.is_some(), "the datapath sends to ports that exist");
        if let Some(at) = at {
            self.out.output(index, at, frame);
        }
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        self.out.drop(index, reason);
    }

    fn controller(
        &mut self,
        index: usize,
        packet: &ControllerPacket<'_>,
    ) -> Result<(), DropReason> {
        if !self.packet_in {
            return Err(DropReason::NoPacketIn);
        }
        let link = &self.context.link;
        // Relaxed: a controller that has just come or gone may miss a packet or lose one.
        if link.controllers.load(Ordering::Relaxed) == 0 {
            return Err(DropReason::NoController);
        }
        if link.packet_ins.is_full() {
            return Err(DropReason::ControllerQueueFull);
        }
        let packet_in = PacketIn {
            reason: packet.reason,
            max_len: packet.max_len,
            table: packet.table,
            cookie: packet.cookie,
            in_port: packet.in_port,
            frame: packet.frame.to_vec(),
        };
        link.packet_ins.push(packet_in).map_err(|_| DropReason::ControllerQueueFull)?;
        link.common.bell.ring();
        self.context.packet_ins += 1;
        self.out.to_control(index);
        Ok(())
    }

    fn normal(&mut self, _index: usize, packet: &NormalPacket) -> Normal {
        let vlan = packet.vlan.unwrap_or(0);
        let header = Header { dst: packet.dst, src: packet.src, vlan };
        let ingress = self.out.index_of(packet.in_port);
        let link = &mut self.context.link;
        if let Some(port) = ingress
            && header.from_station()
        {
            match Station::heard(link.watch.lookup(packet.src, vlan), port, link.watch.epoch()) {
                Heard::Known => {}
                Heard::Elsewhere => return Normal::Drop,
                Heard::News(news) => {
                    let sighting = Sighting { key: MacVlan::new(packet.src, vlan), port, news };
                    if link.watch.report(sighting, self.now_ms) {
                        link.common.bell.ring();
                    }
                }
            }
        }
        if header.to_reserved() {
            return Normal::Drop;
        }
        let known = match header.to_group() {
            true => None,
            false => link.watch.lookup(packet.dst, vlan).map(Station::port),
        };
        match known {
            Some(port) if Some(port) == ingress => Normal::Drop,
            Some(port) => self.out.number_of(port).map_or(Normal::Drop, Normal::Port),
            None => {
                self.context.flooded += 1;
                Normal::Flood
            }
        }
    }
}

impl Engine for RuleEngine {
    type Snapshot = RuleSnapshot;
    type Order = PacketOut;
    type Totals = RuleTotals;
    type Drop = DropReason;

    #[inline]
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<DropReason>,
    ) {
        let RuleEngine { datapath, context, .. } = self;
        let packet_in = context.ports[usize::from(ingress.index)].packet_in;
        let mut sink = Burst { out, context, now_ms, packet_in };
        datapath.process(burst, ingress.number, now_ms, &mut sink);
    }

    fn carry_out(&mut self, order: PacketOut, now_ms: u64, out: &mut Out<DropReason>) {
        let PacketOut { frame, in_port, actions } = order;
        out.injected(frame.len());
        let mut sink = Burst { out, context: &mut self.context, now_ms, packet_in: true };
        let frame = Frame { bytes: &frame, in_port };
        self.datapath.packet_out(frame, &actions, now_ms, &mut sink);
    }

    fn take_over(&mut self, old: &RuleSnapshot, new: &RuleSnapshot, now_ms: u64) {
        self.datapath.flush_stats(now_ms);
        let given_back = self.datapath.set_tables(new.tables.clone());
        debug_assert!(Arc::ptr_eq(&given_back, &old.tables), "those of the old snapshot");
        if !Arc::ptr_eq(&old.ports, &new.ports) {
            self.datapath.set_ports(&new.switch_ports());
            self.context.ports = new.ports.clone();
        }
    }

    fn settle(&mut self, now_ms: u64) {
        self.datapath.flush_stats(now_ms);
    }

    fn turn(&mut self, now_ms: u64) {
        self.datapath.flush_stats(now_ms);
        // Enough for all to be looked at after all turns.
        let budget = self.datapath.megaflows().capacity().div_ceil(SWEEP_TURNS);
        self.datapath.sweep(now_ms, self.megaflow_idle_ms, budget);
    }

    fn totals(&self) -> RuleTotals {
        let counters = self.datapath.counters();
        let learner = self.context.link.watch.learner();
        RuleTotals {
            microflow_lookups: counters.microflow.lookups,
            microflow_hits: counters.microflow.hits,
            megaflow_lookups: counters.megaflow.lookups,
            megaflow_hits: counters.megaflow.hits,
            megaflow_subtables: counters.megaflow.subtables_searched,
            megaflow_evictions: counters.megaflow.evictions,
            megaflow_expirations: counters.megaflow.expirations,
            megaflows: self.datapath.megaflows().len() as u64,
            classifier_lookups: counters.classifier_lookups,
            packet_outs: counters.packet_outs,
            packet_ins: self.context.packet_ins,
            flooded: self.context.flooded,
            learn_limited: learner.limited(),
            learn_queue_full: learner.queue_full(),
        }
    }
}
