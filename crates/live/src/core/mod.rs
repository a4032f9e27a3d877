//! The control core: what the switch shall do, in one place, published to the workers.
//!
//! ```text
//!   OpenFlow sessions ┐                     ┌▶ snapshot ─▶ mailbox of worker 0
//!   reload of rules   ├─ Handle::lock() ─▶ Core           mailbox of worker 1 …
//!   expiry, ports     ┘                     └▶ events ─▶ subscribers
//!   workers ── stations seen, packets for controllers ──▶ tick()
//! ```
//!
//! [`Core`] is a plain synchronous structure behind a mutex that no worker ever touches. Whoever
//! holds it changes the working tables; [`Core::tick`], called by a thread of its own, publishes
//! what was changed, at most once in [`PUBLISH_EVERY_MS`] (a barrier publishes at once). All that was
//! changed under one lock is published as a whole.
//!
//! Panics: none.

mod events;
mod handle;
mod rules;
mod timeouts;

pub use events::{Event, FlowRemoved, PortReason, RemovedReason, Subscription, SubscriptionLimits};
pub use handle::{BARRIER_MAX, Connected, Handle, PacketOutFull, WorkerEnd};
pub use rules::{Reloaded, RuleRefused};

use crate::config::{FailMode, Mode};
use crate::l2::{self, StaticError, Stations};
use crate::snapshot::{Common, Link, PortConfig, PortView, Snapshot};
use crate::sys::memory_available;
use crate::totals::{PortTotals, WorkerTotals};
use events::Subscribers;
use overbank::fib::{self, MacVlan};
use overbank::memory::{MemoryError, Pages};
use overbank_switch::rule::{Match, Rule};
use overbank_switch::tables::Tables;
use std::sync::Arc;
use timeouts::Timeouts;

/// Snapshots are published at most once in so many milliseconds, barriers apart.
pub const PUBLISH_EVERY_MS: u64 = 1;
/// A tick comes after so long at the latest.
const TICK_MS: u64 = 20;
/// Most packets for controllers taken from one worker in a tick.
const PACKETS_PER_TICK: usize = 1024;

/// What the core is made of.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// What the workers go by.
    pub mode: Mode,
    /// Most rules.
    pub rules_max: usize,
    /// Bounds of MAC learning.
    pub mac: l2::Limits,
    /// Static addresses, and the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// Numbers of the ports that are isolated, in the Ethernet switch.
    pub isolated: Vec<u32>,
    /// What happens while no controller is connected.
    pub fail_mode: FailMode,
    /// Whether there are controllers that we connect to.
    pub has_controllers: bool,
    /// Identity towards controllers.
    pub datapath_id: u64,
    /// Varies hash functions.
    pub seed: u64,
}

/// A port towards controllers and people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// OpenFlow number.
    pub number: u32,
    /// Interface, or kind where there is none.
    pub name: String,
    /// Ethernet address, zero where there is none.
    pub mac: [u8; 6],
    /// Longest payload of a frame.
    pub mtu: u32,
    /// Whether frames can pass at the moment.
    pub link_up: bool,
    /// What it may do.
    pub config: PortConfig,
    /// Modes, for people.
    pub detail: String,
}

/// What was counted at a port by all workers.
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
#[error("there is no port {0}")]
pub struct NoSuchPort(pub u32);

/// There is no table of stations.
#[derive(Debug, thiserror::Error)]
pub enum StationsError {
    /// There is no memory for it.
    #[error("{setting}: {0}", setting = setting_of(.0))]
    Table(#[from] fib::Error),
    /// It would take memory that is not there, and the system would kill somebody to get it.
    #[error(
        "mac-entries: {entries} stations take {needs_mib} MiB, and {available_mib} MiB of memory \
         are available; ask for fewer"
    )]
    Memory {
        /// Stations asked for.
        entries: usize,
        /// Memory for them.
        needs_mib: usize,
        /// Memory that there is.
        available_mib: usize,
    },
    /// A static entry cannot be.
    #[error("mac-static: {0}")]
    Static(#[from] StaticError),
}

/// The setting that asked for what there is not.
fn setting_of(error: &fib::Error) -> &'static str {
    match error {
        fib::Error::Memory(MemoryError::NoGigabytePages { .. }) => "mac-pages",
        _ => "mac-entries",
    }
}

/// What the core itself counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTotals {
    /// Snapshots published.
    pub published: u64,
    /// Rules that ended by themselves.
    pub expired: u64,
    /// Packets for controllers that no subscriber took.
    pub packets_lost: u64,
    /// Events that a subscriber had no room for.
    pub events_lost: u64,
    /// Rules refused because there were too many.
    pub table_full: u64,
    /// Times the rules were read again.
    pub reloads: u64,
}

/// The core; see the module.
pub struct Core {
    config: CoreConfig,
    common: Arc<Common>,
    workers: Arc<[WorkerEnd]>,
    tables: Tables,
    ports: Vec<PortDesc>,
    opened_ms: Vec<u64>,
    views: Arc<[PortView]>,
    stations: Stations,
    timeouts: Timeouts,
    subscribers: Subscribers,
    /// Events not yet told.
    pending: Vec<Arc<Event>>,
    /// Rules that came from the file, by identity.
    from_file: Vec<(u8, u16, Match)>,
    /// The rule that stands in for absent controllers, while it does.
    standalone: Option<Rule>,
    connected: usize,
    /// Something was changed since the last snapshot.
    dirty: bool,
    version: u64,
    published_ms: u64,
    totals: CoreTotals,
    /// Snapshots that nobody uses any more, to be freed without the lock.
    garbage: Vec<Snapshot>,
}

impl Core {
    /// A core with these ports, without rules or workers.
    ///
    /// # Errors
    /// There is no table of stations.
    pub fn new(
        config: CoreConfig,
        ports: Vec<PortDesc>,
        common: Arc<Common>,
    ) -> Result<Core, StationsError> {
        let views = views(&ports, &config.isolated);
        let fixed = config.statics.len();
        let needs = Stations::bytes_of(config.mac, fixed);
        // Pages of 1 GiB are set aside already, and nobody has to make room for them.
        if !matches!(config.mac.pages, Pages::Gigabyte { .. })
            && let Some(available) = memory_available()
            && needs > available
        {
            return Err(StationsError::Memory {
                entries: config.mac.entries_max,
                needs_mib: needs >> 20,
                available_mib: available >> 20,
            });
        }
        let mut stations = Stations::new(config.mac, ports.len(), fixed, config.seed)?;
        for &(key, number) in &config.statics {
            let place = ports.iter().position(|port| port.number == number);
            let place = place.and_then(|place| u16::try_from(place).ok());
            stations.add_static(key, place.ok_or(StaticError::Port(key))?)?;
        }
        for (place, port) in ports.iter().enumerate() {
            stations.set_up(place, port.link_up);
        }
        let now_ms = common.clock.now_ms();
        let mut core = Core {
            config,
            common,
            workers: Arc::new([]),
            tables: Tables::default(),
            opened_ms: vec![now_ms; ports.len()],
            ports,
            views,
            stations,
            timeouts: Timeouts::default(),
            subscribers: Subscribers::default(),
            pending: Vec::new(),
            from_file: Vec::new(),
            standalone: None,
            connected: 0,
            dirty: false,
            version: 0,
            published_ms: 0,
            totals: CoreTotals::default(),
            garbage: Vec::new(),
        };
        core.follow_fail_mode();
        Ok(core)
    }

    /// The snapshot that workers start with.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { tables: Arc::new(self.tables.clone()), ports: self.views.clone() }
    }

    /// Takes the workers on, who all started with [`Core::snapshot`] as version 0.
    pub fn set_workers(&mut self, workers: Arc<[WorkerEnd]>) {
        self.workers = workers;
        self.dirty = true;
    }

    /// Where stations are.
    pub fn stations(&self) -> &Stations {
        &self.stations
    }

    /// The switch's clock.
    pub fn now_ms(&self) -> u64 {
        self.common.clock.now_ms()
    }

    /// What the workers go by.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Identity towards controllers.
    pub fn datapath_id(&self) -> u64 {
        self.config.datapath_id
    }

    /// Most rules.
    pub fn rules_max(&self) -> usize {
        self.config.rules_max
    }

    /// Version of the snapshot published last.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What the core itself counted.
    pub fn totals(&self) -> CoreTotals {
        CoreTotals {
            packets_lost: self.subscribers.packets_lost,
            events_lost: self.subscribers.events_lost,
            ..self.totals
        }
    }

    /// Something was changed that the workers must know.
    fn touch(&mut self) {
        self.dirty = true;
        self.common.bell.ring();
    }

    /// The ports, in the order of all arrays by port.
    pub fn ports(&self) -> Vec<PortDesc> {
        self.ports.clone()
    }

    /// What every worker counted: of itself, and by port; the last port is the controllers.
    pub fn worker_totals(&self) -> Vec<(WorkerTotals, Vec<PortTotals>)> {
        self.workers.iter().map(|worker| worker.link.published.read()).collect()
    }

    /// What all workers counted, by port; the last one is the controllers.
    pub fn port_totals(&self) -> Vec<PortTotals> {
        let mut sums = vec![PortTotals::default(); self.ports.len() + 1];
        for (_, ports) in self.worker_totals() {
            sums.iter_mut().zip(&ports).for_each(|(sum, port)| sum.add(port));
        }
        sums
    }

    /// The same in OpenFlow's words.
    pub fn port_stats(&self) -> Vec<PortStats> {
        let now_ms = self.now_ms();
        let totals = self.port_totals();
        let ports = self.ports.iter().zip(&self.opened_ms).zip(&totals);
        ports
            .map(|((port, opened_ms), t)| PortStats {
                number: port.number,
                received: t.received,
                received_bytes: t.received_bytes,
                received_missed: t.missed,
                received_errors: t.errors,
                dropped: t.dropped_total(),
                sent: t.sent,
                sent_bytes: t.sent_bytes,
                not_sent: t.not_sent_total(),
                age_ms: now_ms.saturating_sub(*opened_ms),
            })
            .collect()
    }

    /// Sets what a port may do.
    ///
    /// # Errors
    /// There is no such port.
    pub fn set_port_config(&mut self, number: u32, config: PortConfig) -> Result<(), NoSuchPort> {
        let port = self.ports.iter_mut().find(|port| port.number == number);
        let port = port.ok_or(NoSuchPort(number))?;
        if port.config == config {
            return Ok(());
        }
        port.config = config;
        let event = Event::PortStatus { reason: PortReason::Modify, port: port.clone() };
        self.views = views(&self.ports, &self.config.isolated);
        self.tell(event);
        self.touch();
        Ok(())
    }

    /// What is known of a port has changed; `reopened`: it is another one behind the same number.
    pub fn port_changed(&mut self, place: usize, now: PortDesc, reopened: bool) {
        let now_ms = self.now_ms();
        let Some(port) = self.ports.get_mut(place) else { return };
        let now = PortDesc { config: port.config, number: port.number, ..now };
        if reopened {
            self.opened_ms[place] = now_ms;
        }
        if *port == now {
            return;
        }
        if port.link_up != now.link_up {
            self.stations.set_up(place, now.link_up);
        }
        *port = now.clone();
        self.tell(Event::PortStatus { reason: PortReason::Modify, port: now });
        self.common.bell.ring();
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
        self.subscribers.add(limits, self.common.clone())
    }

    /// Makes a snapshot of what is there and posts it to every worker; returns its version.
    pub fn publish(&mut self) -> u64 {
        self.version += 1;
        let snapshot = self.snapshot();
        for worker in self.workers.iter() {
            let free = worker.sender.post(self.version, snapshot.clone());
            self.garbage.extend(free.into_iter().flatten());
            worker.link.bell.ring();
        }
        self.dirty = false;
        self.published_ms = self.now_ms();
        self.totals.published += 1;
        self.tell_pending();
        self.version
    }

    /// Does what is due: takes what workers have to tell, ends rules and stations, publishes.
    /// Returns when it wants to be called again, in milliseconds, if not rung for before.
    pub fn tick(&mut self) -> u64 {
        let workers = self.workers.clone();
        for worker in workers.iter() {
            self.garbage.extend(worker.sender.collect());
            self.hear(&worker.link);
        }
        let now_ms = self.now_ms();
        self.expire(now_ms);
        let next_ms = self.stations.tick(now_ms).unwrap_or(TICK_MS);
        self.tell_pending();
        if !self.dirty {
            return next_ms;
        }
        let since = now_ms.saturating_sub(self.published_ms);
        if since < PUBLISH_EVERY_MS {
            return PUBLISH_EVERY_MS - since;
        }
        self.publish();
        next_ms
    }

    /// What one worker has to tell.
    fn hear(&mut self, link: &Link) {
        self.stations.hear(&link.reports);
        for _ in 0..PACKETS_PER_TICK {
            let Some(packet) = link.packet_ins.pop() else { return };
            self.subscribers.packet(packet);
        }
        self.common.bell.ring();
    }

    /// Snapshots to be freed without the lock.
    pub fn take_garbage(&mut self) -> Vec<Snapshot> {
        std::mem::take(&mut self.garbage)
    }
}

fn views(ports: &[PortDesc], isolated: &[u32]) -> Arc<[PortView]> {
    let view = |port: &PortDesc| PortView {
        number: port.number,
        config: port.config,
        isolated: isolated.contains(&port.number),
    };
    ports.iter().map(view).collect()
}

#[cfg(test)]
mod tests;
