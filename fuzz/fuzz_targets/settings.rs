//! Parses any text as a configuration file of the switch: valid settings, or problems of one line
//! each.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use overbank_bridge::settings::BridgeSettings;
use overbank_declare::settings::{Check, Section, Source, Table};
use overbank_device::settings::DeviceSettings;
use overbank_ofctl::settings::{ControllerSettings, RuleSettings};
use overbank_runtime::settings::{PortNumber, PortSettings, WorkerSettings};
use overbank_service::options::ServiceSettings;
use overbank_stations::settings::StationSettings;

/// Sections of the libraries; the program adds its own two settings.
const SECTIONS: [Section; 8] = [
    PortSettings::SECTION,
    WorkerSettings::SECTION,
    RuleSettings::SECTION,
    ControllerSettings::SECTION,
    BridgeSettings::SECTION,
    DeviceSettings::SECTION,
    StationSettings::SECTION,
    ServiceSettings::SECTION,
];

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut source = Source::new(&SECTIONS);
    source.text(&Arc::from("input"), text);
    let mut check = source.check();
    let read = read(&mut check);
    let clean = check.is_clean();
    match check.finish(read) {
        Ok(()) => assert!(clean),
        Err(problems) => {
            assert!(!problems.0.is_empty());
            for problem in &problems.0 {
                let message = problem.to_string();
                assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
            }
        }
    }
});

/// Reads everything, with the checks across settings where their parts are valid.
fn read(check: &mut Check) -> Option<()> {
    let ports = PortSettings::read(check);
    let workers = WorkerSettings::read(check);
    let rules = RuleSettings::read(check);
    let controllers = ControllerSettings::read(check);
    let bridge = BridgeSettings::read(check);
    let device = DeviceSettings::read(check);
    let stations = StationSettings::read(check);
    let service = ServiceSettings::read(check);
    if let Some(controllers) = &controllers {
        controllers.targets(check);
        controllers.options();
    }
    let ports = ports.as_ref().map(|ports| ports.ports(check));
    if let Some(workers) = &workers {
        workers.options(check, &[0, 1]);
    }
    if let (Some(bridge), Some(ports)) = (&bridge, &ports) {
        PortNumber::all(&bridge.isolated, check, ports);
    }
    rules
        .and(workers)
        .and(controllers)
        .and(bridge)
        .and(device)
        .and(stations)
        .and(service)
        .and(ports)
        .map(drop)
}
