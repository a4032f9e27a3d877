//! The control side of the rule switch: what the rules are, in one place.
//!
//! ```text
//!   OpenFlow sessions ┐                                ┌▶ RuleSnapshot ─▶ workers
//!   reload of rules   ├─ Handle::lock() ─▶ RuleControl ┤
//!   expiry, ports     ┘          ▲                     └▶ events, packets ─▶ subscribers
//!   workers ── stations seen, packets for controllers ─┘
//! ```
//!
//! The holder of the lock changes the working tables; the runtime publishes what was changed
//! ([`overbank_runtime::control`]). All that was changed under one lock is published as a whole.
//!
//! Panics: none.

mod changes;
mod events;
mod handle;
mod timeouts;

pub use changes::{Reloaded, RuleRefused};
pub use events::{Event, FlowRemoved, PortReason, RemovedReason, Subscription, SubscriptionLimits};
pub use handle::{Connected, ControllerHandle, PacketOutFull, listing};

use crate::engine::{EngineLink, PacketIn, RuleEngine, RulePort, RuleSnapshot};
use crossbeam_queue::ArrayQueue;
use events::Subscribers;
use overbank::fib::MacVlan;
use overbank_declare::counters::Exposition;
use overbank_runtime::{Control, ControlStatus, PortDesc, Publisher};
use overbank_stations::{Limits, Reports, Stations, StationsError, StationsStatus, Watch, set_up};
use overbank_switch::rule::{Match, Rule};
use overbank_switch::tables::Tables;
use overbank_switch::view::{Fragments, View};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use timeouts::Timeouts;

/// Most packets for controllers taken from one worker in a tick.
const PACKETS_PER_TICK: usize = 1024;

overbank_declare::choices! {
    /// What happens while no controller is connected.
    pub enum FailMode: "MODE" {
        Secure = "secure", "forwarding by the rules";
        Standalone = "standalone", "forwarding as a learning switch";
    }
}

/// Options of the control side.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Limit of rules.
    pub rules_max: usize,
    /// What rules see of fragments and tags.
    pub view: View,
    /// Bounds of MAC learning.
    pub mac: Limits,
    /// Static addresses, and the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// What happens while no controller is connected.
    pub fail_mode: FailMode,
    /// Whether there are controllers that we connect to.
    pub has_controllers: bool,
    /// Identity towards controllers; 0: from the address of the first port.
    pub datapath_id: u64,
    /// Varies hash functions.
    pub seed: u64,
}

/// What OpenFlow's port modification can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Administratively down: neither receives nor forwards.
    pub down: bool,
    /// Frames that come in are dropped.
    pub no_receive: bool,
    /// Frames are not sent.
    pub no_forward: bool,
    /// Flooded frames leave it out.
    pub no_flood: bool,
    /// Its frames do not go to controllers.
    pub no_packet_in: bool,
}

/// A port towards controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfPort {
    /// What is known of it.
    pub desc: PortDesc,
    /// What it may do.
    pub config: PortConfig,
}

/// What was counted at a port by all workers, in OpenFlow's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// OpenFlow number.
    pub number: u32,
    /// Frames that came in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames lost before we saw them.
    pub received_missed: u64,
    /// Frames that arrived unusable.
    pub received_errors: u64,
    /// Frames that came in and went nowhere.
    pub dropped: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that were to leave and did not.
    pub not_sent: u64,
    /// Since when the port is open.
    pub age_ms: u64,
}

/// There is no port of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port {0} is not configured")]
pub struct NoSuchPort(pub u32);

overbank_declare::counters! {
    /// What the control side of the rule switch shows.
    pub struct ControlTotals: "overbank_" {
        rules: gauge rules "Installed rules";
        rules_max: gauge rules "Limit of rules" as "rules_limit";
        rules_refused: counter rules "Rules refused because the tables were full";
        rules_expired: counter rules "Rules that timed out";
        reloads: counter reloads "Reloads of the file of rules" as "rules_reloads";
        controllers: gauge controllers "Connected controllers";
        packets_lost: counter packets "Packets for controllers that no session took"
            as "controller_packets_lost";
        events_lost: counter events "Events dropped because a session's queue was full"
            as "controller_events_lost";
    }
}

/// The control side in a status document.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleStatus {
    /// Rules and controllers.
    #[serde(flatten)]
    pub totals: ControlTotals,
    /// The table of stations.
    #[serde(flatten)]
    pub stations: StationsStatus,
}

impl ControlStatus for RuleStatus {
    fn expose(&self, to: &mut Exposition) {
        to.add(&[], &self.totals);
        self.stations.expose(to);
    }
}

/// What the control side shares with one engine.
struct WorkerQueues {
    reports: Arc<Reports>,
    packet_ins: Arc<ArrayQueue<PacketIn>>,
}

/// The control side of the rule switch; see the module.
pub struct RuleControl {
    config: ControlConfig,
    publisher: Publisher<RuleEngine>,
    workers: Vec<WorkerQueues>,
    /// Subscribers that take packets.
    packet_takers: Arc<AtomicUsize>,
    tables: Tables,
    ports: Vec<PortConfig>,
    rule_ports: Arc<[RulePort]>,
    stations: Stations,
    timeouts: Timeouts,
    subscribers: Subscribers,
    /// Events not yet sent.
    pending: Vec<Arc<Event>>,
    /// Rules that came from the file, by identity.
    from_file: Vec<(u8, u16, Match)>,
    /// The rule that stands in for absent controllers, while it does.
    standalone: Option<Rule>,
    connected: usize,
    totals: ControlTotals,
}

impl RuleControl {
    /// Returns the control side of a switch with the publisher's ports, without rules.
    ///
    /// # Errors
    /// There is no table of stations.
    pub fn new(
        config: ControlConfig,
        publisher: Publisher<RuleEngine>,
    ) -> Result<RuleControl, StationsError> {
        let ports: Vec<_> = publisher.ports().iter().map(|p| (p.number, p.link_up)).collect();
        let stations = set_up(config.mac, &config.statics, &ports, config.seed)?;
        let configs = vec![PortConfig::default(); ports.len()];
        let mut control = RuleControl {
            rule_ports: rule_ports(publisher.ports(), &configs),
            ports: configs,
            config,
            publisher,
            workers: Vec::new(),
            packet_takers: Arc::default(),
            tables: Tables::default(),
            stations,
            timeouts: Timeouts::default(),
            subscribers: Subscribers::default(),
            pending: Vec::new(),
            from_file: Vec::new(),
            standalone: None,
            connected: 0,
            totals: ControlTotals::default(),
        };
        control.tables.set_view(control.config.view);
        control.follow_fail_mode();
        Ok(control)
    }

    /// Returns the state that one more engine shares with this side; `queue` packets for
    /// controllers may wait.
    pub fn add_worker(&mut self, queue: usize) -> EngineLink {
        let packet_ins = Arc::new(ArrayQueue::new(queue.max(1)));
        let ports = self.publisher.ports().len();
        let (watch, reports) = Watch::new(&self.stations, ports, &self.config.mac);
        self.workers.push(WorkerQueues { reports, packet_ins: packet_ins.clone() });
        EngineLink {
            packet_ins,
            controllers: self.packet_takers.clone(),
            common: self.publisher.common().clone(),
            watch,
        }
    }

    /// Returns the table of stations.
    pub fn stations(&self) -> &Stations {
        &self.stations
    }

    /// Returns the datapath id.
    pub fn datapath_id(&self) -> u64 {
        self.config.datapath_id
    }

    /// Returns the limit of rules.
    pub fn rules_max(&self) -> usize {
        self.config.rules_max
    }

    /// Returns the fragment mode.
    pub fn fragments(&self) -> Fragments {
        self.tables.view().fragments
    }

    /// Changes what rules see of fragments.
    pub fn set_fragments(&mut self, fragments: Fragments) {
        if self.tables.set_view(View { fragments, ..self.tables.view() }) {
            self.publisher.touch();
        }
    }

    /// Returns its counters.
    pub fn totals(&self) -> ControlTotals {
        ControlTotals {
            rules: self.tables.len() as u64,
            rules_max: self.config.rules_max as u64,
            controllers: self.connected as u64,
            packets_lost: self.subscribers.packets_lost,
            events_lost: self.subscribers.events_lost,
            ..self.totals
        }
    }

    /// Whether there is a port of this number.
    pub fn has_port(&self, number: u32) -> bool {
        self.publisher.index_of(number).is_some()
    }

    /// Returns the address and the setting of the port of this number.
    pub fn port_config(&self, number: u32) -> Option<([u8; 6], PortConfig)> {
        let index = self.publisher.index_of(number)?;
        Some((self.publisher.ports()[index].mac, self.ports[index]))
    }

    /// Returns the port of this number.
    pub fn port(&self, number: u32) -> Option<OfPort> {
        self.publisher.index_of(number).map(|index| self.port_at(index))
    }

    fn port_at(&self, index: usize) -> OfPort {
        OfPort { desc: self.publisher.ports()[index].clone(), config: self.ports[index] }
    }

    /// Returns all ports, in the order of all arrays by port.
    pub fn ports(&self) -> Vec<OfPort> {
        (0..self.ports.len()).map(|index| self.port_at(index)).collect()
    }

    /// Returns the counts of all workers at each port.
    pub fn port_stats(&self) -> Vec<PortStats> {
        let now_ms = self.publisher.now_ms();
        let totals = self.publisher.port_totals();
        let ports = self.publisher.ports().iter().zip(&totals).enumerate();
        ports
            .map(|(index, (port, (totals, dropped)))| PortStats {
                number: port.number,
                received: totals.received,
                received_bytes: totals.received_bytes,
                received_missed: totals.missed,
                received_errors: totals.errors,
                dropped: dropped.total(),
                sent: totals.sent,
                sent_bytes: totals.sent_bytes,
                not_sent: totals.not_sent_total(),
                age_ms: now_ms.saturating_sub(self.publisher.opened_ms(index)),
            })
            .collect()
    }

    /// Sets what a port may do.
    ///
    /// # Errors
    /// There is no such port.
    pub fn set_port_config(&mut self, number: u32, config: PortConfig) -> Result<(), NoSuchPort> {
        let index = self.publisher.index_of(number).ok_or(NoSuchPort(number))?;
        if self.ports[index] == config {
            return Ok(());
        }
        self.ports[index] = config;
        self.rule_ports = rule_ports(self.publisher.ports(), &self.ports);
        let (receives, sends) =
            (!config.down && !config.no_receive, !config.down && !config.no_forward);
        self.publisher.open_port(index, receives, sends);
        self.tell_port(index);
        Ok(())
    }

    fn tell_port(&mut self, index: usize) {
        let port = self.port_at(index);
        self.tell(Event::PortStatus { reason: PortReason::Modify, port });
    }

    fn tell(&mut self, event: Event) {
        self.pending.push(Arc::new(event));
    }

    fn tell_pending(&mut self) {
        for event in std::mem::take(&mut self.pending) {
            self.subscribers.event(&event);
        }
    }

    /// Opens a subscription.
    pub fn subscribe(&mut self, limits: SubscriptionLimits) -> Subscription {
        self.subscribers.add(limits, self.packet_takers.clone())
    }

    /// Hears what the workers report.
    fn hear(&mut self) {
        let RuleControl { workers, stations, subscribers, publisher, .. } = self;
        for worker in workers {
            stations.hear(&worker.reports);
            let mut left = PACKETS_PER_TICK;
            while let Some(packet) = worker.packet_ins.pop() {
                subscribers.packet(packet);
                left -= 1;
                if left == 0 {
                    // The rest has its turn soon.
                    publisher.common().bell.ring();
                    break;
                }
            }
        }
    }
}

impl Control for RuleControl {
    type Engine = RuleEngine;
    type Status = RuleStatus;

    fn publisher(&self) -> &Publisher<RuleEngine> {
        &self.publisher
    }

    fn publisher_mut(&mut self) -> &mut Publisher<RuleEngine> {
        &mut self.publisher
    }

    fn snapshot(&self) -> RuleSnapshot {
        RuleSnapshot { tables: Arc::new(self.tables.clone()), ports: self.rule_ports.clone() }
    }

    fn tick(&mut self, now_ms: u64) -> Option<u64> {
        self.hear();
        self.expire(now_ms);
        let next_ms = self.stations.tick(now_ms);
        self.tell_pending();
        next_ms
    }

    fn port_changed(&mut self, index: usize, before: &PortDesc) {
        let now = self.publisher.ports()[index].link_up;
        if before.link_up != now {
            self.stations.set_up(index, now);
        }
        self.tell_port(index);
    }

    fn published(&mut self) {
        self.tell_pending();
    }

    fn is_attended(&self) -> bool {
        self.connected > 0
    }

    fn status(&self) -> RuleStatus {
        RuleStatus { totals: self.totals(), stations: StationsStatus::new(&self.stations) }
    }
}

fn rule_ports(ports: &[PortDesc], configs: &[PortConfig]) -> Arc<[RulePort]> {
    let port = |(port, config): (&PortDesc, &PortConfig)| RulePort {
        number: port.number,
        flood: !config.no_flood,
        packet_in: !config.no_packet_in,
    };
    ports.iter().zip(configs).map(port).collect()
}

#[cfg(test)]
mod tests;
