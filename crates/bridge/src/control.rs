//! The control side of the Ethernet switch: the one writer of the table of stations.

use crate::engine::Bridge;
use crate::{Forwarder, Role};
use overbank::fib::MacVlan;
use overbank_declare::counters::Exposition;
use overbank_runtime::{
    ConfiguredPort, Control, ControlStatus, Handle, Options, Parts, PortDesc, Publisher, Running,
};
use overbank_stations::listing::Listing;
use overbank_stations::{Limits, Reports, Stations, StationsError, StationsStatus, Watch, set_up};
use serde::Serialize;
use std::io;
use std::sync::Arc;

/// Options of an Ethernet switch, besides its ports.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// How it is run.
    pub run: Options,
    /// Bounds of learning, and of its table.
    pub mac: Limits,
    /// Static addresses, and the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// Numbers of the ports that are isolated.
    pub isolated: Vec<u32>,
    /// Varies the hash function.
    pub seed: u64,
}

/// Why an Ethernet switch does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no table of stations.
    #[error(transparent)]
    Stations(#[from] StationsError),
    /// The system has no threads or descriptors left.
    #[error("cannot start a thread or open a descriptor: {0}")]
    System(#[from] io::Error),
}

/// The control side.
pub struct BridgeControl {
    publisher: Publisher<Bridge>,
    stations: Stations,
    reports: Vec<Arc<Reports>>,
}

/// Starts an Ethernet switch between these ports.
///
/// # Errors
/// Nothing runs then.
pub fn start(
    setup: &Setup,
    ports: Vec<ConfiguredPort>,
) -> Result<Running<BridgeControl>, StartError> {
    overbank_runtime::start(&setup.run, ports, |publisher| BridgeControl::new(setup, publisher))
}

impl BridgeControl {
    /// Returns the control side, and an engine for each worker.
    ///
    /// # Errors
    /// There is no table of stations.
    pub fn new(
        setup: &Setup,
        publisher: Publisher<Bridge>,
    ) -> Result<Parts<BridgeControl>, StartError> {
        let ports: Vec<_> = publisher.ports().iter().map(|p| (p.number, p.link_up)).collect();
        let stations = set_up(setup.mac, &setup.statics, &ports, setup.seed)?;
        let role = |(number, _): &(u32, bool)| Role {
            isolated: setup.isolated.contains(number),
            flood: true,
        };
        let roles: Vec<Role> = ports.iter().map(role).collect();
        let (mut engines, mut reports) = (Vec::new(), Vec::new());
        for _ in 0..setup.run.workers.max(1) {
            let (watch, of_worker) = Watch::new(&stations, ports.len(), &setup.mac);
            let forwarder = Forwarder::new(stations.reader(), &roles).learning(stations.epoch());
            engines.push(Bridge::new(forwarder, watch, publisher.common().clone()));
            reports.push(of_worker);
        }
        let control = BridgeControl { publisher, stations, reports };
        Ok(Parts { control, first: (), engines })
    }

    /// Returns the table of stations.
    pub fn stations(&self) -> &Stations {
        &self.stations
    }
}

/// Returns the answer to a line that asks for stations; see [`overbank_stations::listing`].
pub fn listing(handle: &Handle<BridgeControl>, line: &str) -> Listing {
    let ports: Vec<u32> = handle.lock().publisher().ports().iter().map(|p| p.number).collect();
    Listing::answer(line, &ports, &|look| look(&handle.lock().stations))
}

/// What the control side shows of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BridgeStatus {
    /// The table of stations.
    #[serde(flatten)]
    pub stations: StationsStatus,
}

impl ControlStatus for BridgeStatus {
    fn expose(&self, to: &mut Exposition) {
        self.stations.expose(to);
    }
}

impl Control for BridgeControl {
    type Engine = Bridge;
    type Status = BridgeStatus;

    fn publisher(&self) -> &Publisher<Bridge> {
        &self.publisher
    }

    fn publisher_mut(&mut self) -> &mut Publisher<Bridge> {
        &mut self.publisher
    }

    fn snapshot(&self) {}

    fn tick(&mut self, now_ms: u64) -> Option<u64> {
        for reports in &self.reports {
            self.stations.hear(reports);
        }
        self.stations.tick(now_ms)
    }

    fn port_changed(&mut self, index: usize, before: &PortDesc) {
        let now = self.publisher.ports()[index].link_up;
        if before.link_up != now {
            self.stations.set_up(index, now);
        }
    }

    fn status(&self) -> BridgeStatus {
        BridgeStatus { stations: StationsStatus::new(&self.stations) }
    }
}
