//! The options of a rule switch, and how it starts.

use crate::engine::RuleEngine;
use crate::rules::{ControlConfig, RuleControl, RuleRefused};
use crate::settings::{ControllerSettings, RuleSettings};
use overbank_declare::settings::Table as _;
use overbank_runtime::{ConfiguredPort, Options, Parts, PortDesc, Publisher, Running};
use overbank_stations::{Limits, StationsError};
use overbank_switch::Datapath;
use overbank_switch::datapath::{self, CacheConfig};
use overbank_switch::rule::Rule;
use std::io;

/// A rule switch at work.
pub type Switch = Running<RuleControl>;

/// Options of a rule switch, besides its ports.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How it is run.
    pub run: Options,
    /// Tier 1 of each worker.
    pub cache: Option<CacheConfig>,
    /// Megaflows of each worker.
    pub megaflows: usize,
    /// After how long an unused megaflow goes.
    pub megaflow_idle_ms: u32,
    /// Rules to begin with.
    pub rules: Vec<Rule>,
    /// Packets for controllers that may wait at each worker.
    pub controller_queue: usize,
    /// The control side's.
    pub control: ControlConfig,
}

impl Default for Setup {
    /// Returns the defaults of the settings; no tier 1.
    fn default() -> Setup {
        const RIGHT: &str = "every setting of the table has a default that is right";
        let rules = RuleSettings::defaults().expect(RIGHT);
        let controllers = ControllerSettings::defaults().expect(RIGHT);
        Setup {
            run: Options::default(),
            cache: None,
            megaflows: rules.megaflows,
            megaflow_idle_ms: rules.megaflow_idle.as_millis() as u32,
            rules: Vec::new(),
            controller_queue: controllers.controller_queue,
            control: ControlConfig {
                rules_max: rules.max_rules,
                view: rules.view(),
                mac: Limits::default(),
                statics: Vec::new(),
                fail_mode: controllers.fail_mode,
                has_controllers: false,
                datapath_id: 1,
                seed: 1,
            },
        }
    }
}

/// Why a rule switch does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The caches cannot be made.
    #[error(transparent)]
    Datapath(#[from] datapath::ConfigError),
    /// A rule is refused.
    #[error("rules: {0}")]
    Rule(#[from] RuleRefused),
    /// There is no table of stations.
    #[error(transparent)]
    Stations(#[from] StationsError),
    /// The system has no threads or descriptors left.
    #[error("cannot start a thread or open a descriptor: {0}")]
    System(#[from] io::Error),
}

/// Returns an identity made of the first port's address; of a fixed one if no port has any.
pub fn datapath_id(ports: &[PortDesc]) -> u64 {
    let mac = ports.iter().map(|port| port.mac).find(|mac| *mac != [0; 6]);
    mac.map_or(1, |mac| mac.iter().fold(0, |id, byte| id << 8 | u64::from(*byte)))
}

/// Starts a rule switch between these ports.
///
/// # Errors
/// Nothing runs then.
pub fn start(setup: Setup, ports: Vec<ConfiguredPort>) -> Result<Switch, StartError> {
    let run = setup.run.clone();
    overbank_runtime::start(&run, ports, |publisher| build(setup, publisher))
}

fn build(
    mut setup: Setup,
    publisher: Publisher<RuleEngine>,
) -> Result<Parts<RuleControl>, StartError> {
    if setup.control.datapath_id == 0 {
        setup.control.datapath_id = datapath_id(publisher.ports());
    }
    let seed = setup.control.seed;
    let mut control = RuleControl::new(setup.control, publisher)?;
    control.reload(std::mem::take(&mut setup.rules))?;
    let first = overbank_runtime::Control::snapshot(&control);
    let mut engines = Vec::new();
    for index in 0..setup.run.workers.max(1) {
        let config = datapath::Config {
            cache: setup.cache,
            megaflows: setup.megaflows,
            ports: first.switch_ports(),
            seed: seed.wrapping_add(index as u64),
        };
        let datapath = Datapath::new(&config, first.tables.clone())?;
        let shared = control.add_worker(setup.controller_queue);
        engines.push(RuleEngine::new(datapath, &first, shared, setup.megaflow_idle_ms));
    }
    Ok(Parts { control, first, engines })
}
