//! The settings of the Ethernet switch alone.

use overbank_declare::settings::{Check, Commas, Located, Range, SettingValue};
use overbank_runtime::settings::{PortSetting, port_number};

overbank_declare::settings! {
    /// The Ethernet switch.
    pub struct BridgeSettings: "Ethernet switch" {
        isolated: Commas<PortNumber>,
            "Ports that exchange frames with other ports but not with each other (mode l2)" example "2 3";
    }
}

/// Number of a port, not yet checked.
#[derive(Clone, Debug)]
pub struct PortNumber(String);

impl SettingValue for PortNumber {
    const VALUE_NAME: &'static str = "N";

    fn accepts(_: &Range) -> String {
        "numbers of ports".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<PortNumber, String> {
        Ok(PortNumber(text.to_owned()))
    }
}

impl BridgeSettings {
    /// Returns the numbers of isolated ports; reports those that are not configured.
    pub fn isolated(&self, check: &mut Check, ports: &[PortSetting]) -> Vec<u32> {
        let mut isolated = Vec::new();
        for Located { value, location } in &self.isolated.0 {
            match port_number(&value.0, ports) {
                Ok(number) => isolated.push(number),
                Err(what) => check.problem(location.clone(), what),
            }
        }
        isolated
    }
}
