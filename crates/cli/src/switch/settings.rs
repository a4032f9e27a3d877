//! Joins the settings of `overbank switch` and checks them as a whole.
//!
//! ```text
//!   SwitchSettings   mode, identity              ┐
//!   PortSettings     ports                       │ in every mode
//!   WorkerSettings   workers                     │
//!   StationSettings  MAC addresses               │
//!   ServiceSettings  metrics, status, logs       ┘
//!   RuleSettings, ControllerSettings               mode openflow
//!   BridgeSettings                                 modes l2, netcache
//!   DeviceSettings                                 mode netcache
//! ```
//!
//! Reads files and asks the system for its cores; opens no interface. Panics: none, whatever the
//! files.

use overbank::fib::MacVlan;
use overbank_bridge::settings::BridgeSettings;
use overbank_declare::settings::{
    Check, Location, Problem, Problems, Range, Section, SettingValue, Source, Table, read_at_most,
};
use overbank_device::DeviceAddress;
use overbank_device::settings::DeviceSettings;
use overbank_ofctl::settings::{ControllerSettings, RuleSettings};
use overbank_ofctl::target::Target;
use overbank_runtime::Options;
use overbank_runtime::settings::{
    PortNumber, PortSetting, PortSettings, WorkerSettings, port_number,
};
use overbank_service::options::ServiceSettings;
use overbank_stations::settings::StationSettings;
use overbank_switch::parse::parse_rules;
use overbank_switch::rule::Rule;
use overbank_switch::tables::Tables;
use std::path::Path;

/// Cap of a file of rules.
const RULE_BYTES_MAX: u64 = 1 << 30;

overbank_declare::choices! {
    /// Forwarding mode.
    pub enum Mode: "MODE" {
        OpenFlow = "openflow", "rules and controllers";
        L2 = "l2", "an Ethernet switch that learns addresses";
        NetCache = "netcache", "an Ethernet switch that caches hot keys of key-value servers";
    }
}

overbank_declare::settings! {
    /// Mode and identity.
    pub struct SwitchSettings: "Switch" {
        mode: Mode = "openflow", "Forwarding mode: openflow (rules and controllers), \
            l2 (an Ethernet switch that learns addresses) or netcache (one that also caches hot \
            keys of key-value servers)";
        datapath_id: Option<DatapathId>, "Identity towards controllers, up to 16 hexadecimal digits"
            or "the first port's address" example "00:00:02:00:00:00:00:01";
    }
}

/// Identity towards controllers; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatapathId(pub u64);

impl SettingValue for DatapathId {
    const VALUE_NAME: &'static str = "HEX";

    fn accepts(_: &Range) -> String {
        "1 to 16 hexadecimal digits, not all zero".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<DatapathId, String> {
        let digits: String = text.trim_start_matches("0x").chars().filter(|c| *c != ':').collect();
        let hex = !digits.is_empty() && digits.len() <= 16 && !digits.starts_with('+');
        match u64::from_str_radix(&digits, 16) {
            Ok(id) if hex && id != 0 => Ok(DatapathId(id)),
            _ => Err(format!("{text:?}: must be a number of {}", Self::accepts(range))),
        }
    }
}

/// Every section, in the order of help and documents.
pub const SECTIONS: [Section; 9] = [
    SwitchSettings::SECTION,
    PortSettings::SECTION,
    WorkerSettings::SECTION,
    RuleSettings::SECTION,
    ControllerSettings::SECTION,
    BridgeSettings::SECTION,
    DeviceSettings::SECTION,
    StationSettings::SECTION,
    ServiceSettings::SECTION,
];

/// Sections of some modes only.
const OF_MODES: [(&[Mode], Section); 4] = [
    (&[Mode::OpenFlow], RuleSettings::SECTION),
    (&[Mode::OpenFlow], ControllerSettings::SECTION),
    (&[Mode::L2, Mode::NetCache], BridgeSettings::SECTION),
    (&[Mode::NetCache], DeviceSettings::SECTION),
];

/// The checked settings of the key-value cache.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    pub address: DeviceAddress,
    /// Numbers of the ports of servers.
    pub servers: Vec<u32>,
    pub settings: DeviceSettings,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub switch: SwitchSettings,
    /// By number.
    pub ports: Vec<PortSetting>,
    /// How to run workers.
    pub run: Options,
    /// Rules and flow caches.
    pub rules: RuleSettings,
    /// Control connections.
    pub controllers: ControllerSettings,
    /// Addresses of control connections.
    pub targets: Vec<Target>,
    /// Numbers of the isolated ports.
    pub isolated: Vec<u32>,
    /// The key-value cache, in its mode.
    pub device: Option<DeviceConfig>,
    /// Bounds of MAC learning.
    pub mac: overbank_stations::Limits,
    /// Static addresses with the numbers of their ports.
    pub statics: Vec<(MacVlan, u32)>,
    /// Metrics, status, logs, privileges.
    pub service: ServiceSettings,
    /// Whether a metrics address was given. Otherwise the switch runs without metrics if it is
    /// taken.
    pub metrics_required: bool,
}

impl Config {
    /// Checks the settings on a machine with these cores (empty: unknown).
    ///
    /// # Errors
    /// Returns all problems.
    pub fn new(source: Source, available_cores: &[usize]) -> Result<Config, Problems> {
        let mut check = source.check();
        let config = Config::read(&mut check, available_cores);
        check.finish(config)
    }

    fn read(check: &mut Check, available_cores: &[usize]) -> Option<Config> {
        let metrics_required = check.given("metrics").is_some();
        let switch = SwitchSettings::read(check);
        let ports = PortSettings::read(check);
        let workers = WorkerSettings::read(check);
        let rules = RuleSettings::read(check);
        let controllers = ControllerSettings::read(check);
        let bridge = BridgeSettings::read(check);
        let device = DeviceSettings::read(check);
        let stations = StationSettings::read(check);
        let service = ServiceSettings::read(check);
        // Every table has been read, so all problems are known.
        let (switch, workers, rules, controllers) = (switch?, workers?, rules?, controllers?);
        for (modes, section) in OF_MODES.iter().filter(|(modes, _)| !modes.contains(&switch.mode)) {
            let (owner, mode) = (names(modes), switch.mode.name());
            let what = format!("not a setting of mode {mode}; remove it or use mode {owner}");
            check.refuse(section, &what);
        }
        let ports = ports?.ports(check);
        let (stations, device) = (stations?, device?);
        let statics = stations.statics(check, |text| port_number(text, &ports));
        let device = match switch.mode {
            Mode::NetCache => Some(DeviceConfig::new(device, check, &ports, &statics)?),
            _ => None,
        };
        let run = Options {
            orders: controllers.controller_packet_outs,
            ..workers.options(check, available_cores)
        };
        Some(Config {
            targets: controllers.targets(check),
            isolated: PortNumber::all(&bridge?.isolated, check, &ports),
            device,
            statics,
            mac: stations.limits(),
            service: service?,
            switch,
            ports,
            run,
            rules,
            controllers,
            metrics_required,
        })
    }
}

impl DeviceConfig {
    fn new(
        settings: DeviceSettings,
        check: &mut Check,
        ports: &[PortSetting],
        statics: &[(MacVlan, u32)],
    ) -> Option<DeviceConfig> {
        let servers = settings.servers(check, ports);
        let address = settings.address(check)?;
        if let Some((key, _)) = statics.iter().find(|(key, _)| key.mac() == address.mac) {
            let what = format!("{key} is the device's address (kv-address); remove it");
            check.problem(Location::Missing("mac-static"), what);
        }
        Some(DeviceConfig { address, servers, settings })
    }
}

/// Returns the names of modes, to be read.
fn names(modes: &[Mode]) -> String {
    let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
    names.join(" or ")
}

/// Reads a file of rules and checks that they form a set of tables.
///
/// # Errors
/// Returns one problem for each error of the file.
pub fn read_rules(path: &Path) -> Result<Vec<Rule>, Problems> {
    let name = path.display().to_string();
    let bytes = read_at_most(path, RULE_BYTES_MAX, "1 GiB");
    let bytes = bytes.map_err(|e| in_text(format!("{name}: cannot read the rules: {e}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| in_text(format!("{name}: not UTF-8 text; must be rules")))?;
    let rules = parse_rules(&text).map_err(|errors| {
        let text = errors.in_file(&name).to_string();
        Problems(text.lines().flat_map(|line| in_text(line.to_owned()).0).collect())
    })?;
    Tables::new(rules.clone()).map_err(|error| in_text(format!("{name}: {error}")))?;
    Ok(rules)
}

/// Returns a problem whose text includes the location.
fn in_text(what: String) -> Problems {
    Problems(vec![Problem { location: Location::InText, what }])
}

/// Returns the configuration and its rules.
///
/// # Errors
/// Returns all problems of either.
pub fn prepare(source: Source) -> Result<(Config, Vec<Rule>), Problems> {
    let rules = source.first("rules").map_or(Ok(Vec::new()), |path| read_rules(Path::new(path)));
    match (Config::new(source, &WorkerSettings::available_cores()), rules) {
        (Ok(config), Ok(rules)) if rules.len() > config.rules.max_rules => {
            let max = config.rules.max_rules;
            Err(in_text(format!("rules: {} rules exceed max-rules {max}", rules.len())))
        }
        (Ok(config), Ok(rules)) => Ok((config, rules)),
        (Err(mut all), Err(of_rules)) => {
            all.0.extend(of_rules.0);
            Err(all)
        }
        (Err(all), Ok(_)) | (Ok(_), Err(all)) => Err(all),
    }
}

#[cfg(test)]
mod tests;
