//! The control side: the one writer of the table of stations and of the cached keys.
//!
//! ```text
//!   workers ── News: messages of servers, hot keys ─▶ Controller ─▶ letters ─▶ Order of a worker
//!   clock ── tick ───────────────────────────────────────┘ │
//!   workers ── Visitor: bursts of messages ─▶ Grace ─▶ items of evicted keys are free
//! ```
//!
//! The controller repeats what is not answered. So an order for which there is no room is counted
//! and forgotten. At most what the queues hold is taken in a tick; workers wake no one for it: a
//! flood of messages costs a tick's share of them, not more ticks.

use crate::address::{DeviceAddress, Server};
use crate::boot::Boot;
use crate::engine::{Device, News, Order, Parts as EngineParts};
use crate::hot::{Hot, HotKey, SCHEMA, query};
use arrayvec::ArrayVec;
use overbank::fib::{self, MacVlan};
use overbank::sketch;
use overbank_declare::counters::Exposition;
use overbank_handover::grace::Grace;
use overbank_netcache::agent::Letter;
use overbank_netcache::controller::{Controller, Settings, Watch as KeyWatch};
use overbank_netcache::pipeline::{Config, Counts, Pipeline, Table};
use overbank_netcache::{Micros, Protocol};
use overbank_runtime::{
    ConfiguredPort, Control, ControlStatus, Handle, Options, Parts, PortDesc, Publisher, Running,
};
use overbank_stations::forward::{Forwarder, Role};
use overbank_stations::listing::Listing;
use overbank_stations::{Limits, Reports, Stations, StationsError, StationsStatus, Watch, set_up};
use overbank_wire::netcache::frame::{End, HEAD_MAX, write};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Options of a device, besides its ports.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How it is run.
    pub run: Options,
    /// Bounds of learning, and of its table.
    pub mac: Limits,
    /// Static addresses, and the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// Numbers of the ports that are isolated.
    pub isolated: Vec<u32>,
    /// Varies the hash functions; strangers do not know it.
    pub seed: u64,
    pub address: DeviceAddress,
    /// UDP port of the protocol.
    pub udp_port: u16,
    /// Numbers of the ports behind which servers are.
    pub servers: Vec<u32>,
    /// Sizes of the cache.
    pub cache: Config,
    /// What the sketches begin with.
    pub counting: sketch::Settings,
    /// What the controller decides by.
    pub controller: Settings,
    /// Messages for the controller, and reports of hot keys, that wait at most, for each worker.
    pub queue: usize,
    pub boot: Boot,
    pub protocol: Protocol,
}

/// Why a device does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no table of stations.
    #[error(transparent)]
    Stations(#[from] StationsError),
    /// There is no table of keys.
    #[error("kv-items: {0}")]
    Keys(#[from] fib::FibError),
    /// There is no sketch.
    #[error("no memory for the sketch of hot keys: {0}")]
    Sketch(#[from] sketch::SketchError),
    /// The run has no number.
    #[error(transparent)]
    Boot(#[from] crate::boot::BootError),
    /// The system has no threads or descriptors left.
    #[error("cannot start a thread or open a descriptor: {0}")]
    System(#[from] io::Error),
}

/// The control side.
pub struct DeviceControl {
    publisher: Publisher<Device>,
    stations: Stations,
    reports: Vec<Arc<Reports>>,
    controller: Controller<Server>,
    news: Vec<Arc<News>>,
    grace: Grace,
    /// Items that rest, in their order: the period that must be over, and how many.
    resting: VecDeque<(u64, usize)>,
    address: DeviceAddress,
    udp_port: u16,
    boot: Boot,
    /// What the controller says in a tick; kept for its memory.
    letters: Vec<(Server, Letter)>,
    sent: u64,
    unsent: u64,
}

/// Starts a device between these ports.
///
/// # Errors
/// Nothing runs then.
pub fn start(
    setup: &Setup,
    ports: Vec<ConfiguredPort>,
) -> Result<Running<DeviceControl>, StartError> {
    overbank_runtime::start(&setup.run, ports, |publisher| DeviceControl::new(setup, publisher))
}

impl DeviceControl {
    /// Returns the control side, and an engine for each worker.
    ///
    /// # Errors
    /// There is no memory for a table.
    pub fn new(
        setup: &Setup,
        publisher: Publisher<Device>,
    ) -> Result<Parts<DeviceControl>, StartError> {
        let ports: Vec<_> = publisher.ports().iter().map(|p| (p.number, p.link_up)).collect();
        let stations = set_up(setup.mac, &setup.statics, &ports, setup.seed)?;
        let role = |(number, _): &(u32, bool)| Role {
            isolated: setup.isolated.contains(number),
            flood: true,
        };
        let roles: Vec<Role> = ports.iter().map(role).collect();
        let servers: Vec<bool> = ports.iter().map(|(n, _)| setup.servers.contains(n)).collect();
        let table = Table::new(setup.cache, setup.boot.number)?;
        let (grace, visitors) = Grace::new(setup.run.workers.max(1));
        let (mut engines, mut reports) = (Vec::new(), Vec::new());
        let (mut all_news, mut watches) = (Vec::new(), Vec::new());
        for (nth, visitor) in visitors.into_iter().enumerate() {
            let (watch, of_worker) = Watch::new(&stations, ports.len(), &setup.mac);
            reports.push(of_worker);
            let (counts, hits) = Counts::new(table.items());
            // Workers sample different packets; the hash is one for all.
            let samples = setup.seed.wrapping_add(nth as u64);
            let (counter, keeper) = sketch::Config::default().build(samples, setup.counting)?;
            watches.push(KeyWatch { keeper, hits });
            let news = News::new(setup.queue);
            all_news.push(news.clone());
            engines.push(Device::new(EngineParts {
                forwarder: Forwarder::new(stations.reader(), &roles).learning(stations.epoch()),
                watch,
                pipeline: Pipeline::new(
                    table.reader(),
                    table.arrays(),
                    counts,
                    counter,
                    setup.seed,
                )
                .following(setup.protocol),
                visitor,
                news,
                address: setup.address,
                udp_port: setup.udp_port,
                servers: servers.clone(),
                common: publisher.common().clone(),
            }));
        }
        let run = (setup.boot.number, setup.seed);
        let control = DeviceControl {
            publisher,
            stations,
            reports,
            controller: Controller::new(setup.controller, table, watches, setup.counting, run),
            news: all_news,
            grace,
            resting: VecDeque::new(),
            address: setup.address,
            udp_port: setup.udp_port,
            boot: setup.boot,
            letters: Vec::new(),
            sent: 0,
            unsent: 0,
        };
        Ok(Parts { control, first: (), engines })
    }

    /// Returns the table of stations.
    pub fn stations(&self) -> &Stations {
        &self.stations
    }

    /// Returns the controller.
    pub fn controller(&self) -> &Controller<Server> {
        &self.controller
    }

    /// Takes what the workers tell the controller.
    fn hear(&mut self, now: Micros) {
        for news in &self.news {
            for _ in 0..news.said.len() {
                let Some((server, said)) = news.said.pop() else { break };
                let from = (server.port, server);
                self.controller.message(now, from, &said, &mut self.letters);
            }
            for _ in 0..news.hot.len() {
                let Some((key, server)) = news.hot.pop() else { break };
                let to = (server.port, server);
                self.controller.report(now, key, to, &mut self.letters);
            }
        }
    }

    /// Gives items free that no worker can be using.
    fn settle(&mut self) {
        let marked: usize = self.resting.iter().map(|(_, count)| count).sum();
        let new = self.controller.table().resting().saturating_sub(marked);
        if new > 0 {
            self.resting.push_back((self.grace.mark(), new));
        }
        let over = self.grace.reached();
        while let Some((_, count)) = self.resting.pop_front_if(|(period, _)| *period <= over) {
            self.controller.settle(count);
        }
    }

    /// Sends what the controller has said.
    fn send(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        for (server, letter) in letters.drain(..) {
            let sent =
                self.order(&server, &letter).is_some_and(|order| self.publisher.order(order));
            self.sent += u64::from(sent);
            self.unsent += u64::from(!sent);
        }
        self.letters = letters;
    }

    fn order(&self, server: &Server, letter: &Letter) -> Option<Order> {
        let ip = self.address.facing(server.end.ip)?;
        let from = End { mac: self.address.mac, ip, port: self.udp_port };
        let mut frame = [0; HEAD_MAX];
        let len = write(&letter.message(), &from, &server.end, server.vlan, &mut frame)?;
        let mut frame = ArrayVec::from(frame);
        frame.truncate(len);
        Some(Order { port: server.port, frame })
    }
}

/// Returns the answer to a line that asks for stations; see [`overbank_stations::listing`].
pub fn listing(handle: &Handle<DeviceControl>, line: &str) -> Listing {
    let ports: Vec<u32> = handle.lock().publisher().ports().iter().map(|p| p.number).collect();
    Listing::answer(line, &ports, &|look| look(&handle.lock().stations))
}

impl Hot {
    /// Returns the answer to a line that asks for hot keys.
    pub fn answer(handle: &Handle<DeviceControl>, line: &str) -> Hot {
        let hot = Hot { schema: SCHEMA.to_owned(), ..Hot::default() };
        match query(line) {
            Ok(most) => {
                let control = handle.lock();
                let ports: Vec<u32> = control.publisher.ports().iter().map(|p| p.number).collect();
                let hottest = control.controller.hottest(most);
                Hot {
                    cached: control.controller.table().len(),
                    sample_log2: control.controller.counting().sample_log2,
                    keys: hottest.iter().map(|hot| HotKey::new(hot, &ports)).collect(),
                    ..hot
                }
            }
            Err(error) => Hot { error, ..hot },
        }
    }
}

overbank_declare::counters! {
    /// The cache and its controller.
    pub struct KvTotals: "overbank_kv_" {
        boot: gauge number "Number of the device's run";
        cached: gauge keys "Keys that are cached";
        items: gauge keys "Limit of cached keys" as "cached_limit";
        resting: gauge keys "Evicted keys whose place is not free yet";
        units_free: gauge units "Free units of value memory, 16 bytes each";
        threshold: gauge samples "Counted reads in an epoch from which a key is reported";
        sample_log2: gauge number "Logarithm of the reads for each that is counted";
        reports_heard: counter reports "Reports of hot keys that the controller has taken";
        reports_invalid: counter reports "Those of cached keys that are not valid";
        reports_refused: counter reports "Those that found too many waiting";
        installed: counter keys "Keys installed" rate;
        evicted: counter keys "Keys evicted" rate;
        moved: counter keys "Keys moved to make room";
        barred: counter keys
            "Keys left out for a while: written too often, or their values are too long";
        silent: counter keys "Keys evicted because their server did not answer";
        letters: counter packets "Messages of the controller handed to a worker";
        letters_lost: counter packets "Messages of the controller that found no room; \
            it repeats them";
    }
}

/// What the control side shows of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStatus {
    /// The table of stations.
    #[serde(flatten)]
    pub stations: StationsStatus,
    /// The cache and its controller.
    pub kv: KvTotals,
}

impl ControlStatus for DeviceStatus {
    fn expose(&self, to: &mut Exposition) {
        self.stations.expose(to);
        to.add(&[], &self.kv);
    }
}

impl Control for DeviceControl {
    type Engine = Device;
    type Status = DeviceStatus;

    fn publisher(&self) -> &Publisher<Device> {
        &self.publisher
    }

    fn publisher_mut(&mut self) -> &mut Publisher<Device> {
        &mut self.publisher
    }

    fn snapshot(&self) {}

    fn tick(&mut self, now_ms: u64) -> Option<u64> {
        for reports in &self.reports {
            self.stations.hear(reports);
        }
        let soon = self.stations.tick(now_ms);
        let now = now_ms * 1000;
        self.hear(now);
        let mut due_ms = self.boot.installs_from_ms;
        if now_ms >= due_ms {
            due_ms = self.controller.tick(now, &mut self.letters).div_ceil(1000);
        }
        self.settle();
        self.send();
        let mut wait_ms = due_ms.saturating_sub(now_ms).max(1);
        if !self.resting.is_empty() {
            // Bursts are shorter.
            wait_ms = 1;
        }
        Some(soon.map_or(wait_ms, |soon| soon.min(wait_ms)).min(overbank_runtime::control::TICK_MS))
    }

    fn port_changed(&mut self, index: usize, before: &PortDesc) {
        let now = self.publisher.ports()[index].link_up;
        if before.link_up != now {
            self.stations.set_up(index, now);
        }
    }

    fn status(&self) -> DeviceStatus {
        let (totals, counting) = (self.controller.totals(), self.controller.counting());
        let table = self.controller.table();
        DeviceStatus {
            stations: StationsStatus::new(&self.stations),
            kv: KvTotals {
                boot: self.boot.number.into(),
                cached: table.len() as u64,
                items: table.items() as u64,
                resting: table.resting() as u64,
                units_free: table.free_units().into(),
                threshold: counting.threshold.into(),
                sample_log2: counting.sample_log2.into(),
                reports_heard: totals.reports,
                reports_invalid: totals.invalid,
                reports_refused: totals.dropped,
                installed: totals.installed,
                evicted: totals.evicted,
                moved: totals.moved,
                barred: totals.barred,
                silent: totals.silent,
                letters: self.sent,
                letters_lost: self.unsent,
            },
        }
    }
}
