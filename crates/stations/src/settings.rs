//! The settings of learnt and static addresses.

use crate::{Limits, mac_of};
use overbank::fib::MacVlan;
use overbank::memory::Pages;
use overbank_declare::settings::{Check, Located, Range, SettingValue, number};

overbank_declare::choices! {
    /// Pages that the table shall lie on.
    pub enum PageSize: "PAGES" {
        Huge = "huge", "2 MiB where available";
        Gigabyte = "1g", "from the pool of 1 GiB pages; startup fails if it has too few";
        Small = "small", "4 KiB";
    }
}

overbank_declare::settings! {
    /// Learnt and static addresses.
    pub struct StationSettings: "MAC addresses" {
        mac_entries: usize = 8192, in 0..=2_500_000_000, "Limit of learnt addresses";
        mac_pages: PageSize = "huge", "Pages of the address table: huge (2 MiB where available), \
            1g (from the pool of 1 GiB pages; required) or small";
        mac_age: u32 = 300, in 1..=1_000_000,
            "Seconds after which a silent address is removed";
        mac_rate: u32 = 4096, in 1..=1_000_000,
            "Limit of new addresses that a worker reports each second, for each port";
        mac_queue: usize = 1024, in 1..=1_048_576,
            "Limit of queued reports of addresses, for each worker and kind";
        mac_static: Vec<Located<StaticSetting>>,
            "Static address of a port; repeat for each" example "02:00:00:00:00:01@10=2";
    }
}

/// A static address and its port, which is not yet checked.
#[derive(Clone, Debug)]
pub struct StaticSetting {
    /// The address in its VLAN.
    pub key: MacVlan,
    /// Number of the port, as it was written.
    pub port: String,
}

impl SettingValue for StaticSetting {
    const VALUE_NAME: &'static str = "MAC[@VLAN]=PORT";

    fn accepts(_: &Range) -> String {
        Self::VALUE_NAME.to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<StaticSetting, String> {
        let wrong = || format!("{text:?}: must be MAC[@VLAN]=PORT, such as 02:00:00:00:00:01@10=3");
        let (station, port) = text.split_once('=').ok_or_else(wrong)?;
        let (address, vlan) = match station.trim().split_once('@') {
            Some((address, vlan)) => (address, number(vlan, &Some(0..=4095))? as u16),
            None => (station.trim(), 0),
        };
        let mac = mac_of(address).ok_or_else(wrong)?;
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(format!("{address}: must be a unicast MAC address, not a group or zero"));
        }
        Ok(StaticSetting { key: MacVlan::new(mac, vlan), port: port.to_owned() })
    }
}

impl StationSettings {
    /// Returns the limits of learning and of its table.
    pub fn limits(&self) -> Limits {
        Limits {
            entries_max: self.mac_entries,
            pages: match self.mac_pages {
                PageSize::Huge => Pages::Huge,
                PageSize::Gigabyte => Pages::Gigabyte { required: true },
                PageSize::Small => Pages::Small,
            },
            age_s: self.mac_age,
            learn_per_s: self.mac_rate,
            queue: self.mac_queue,
        }
    }

    /// Returns the static addresses and the numbers of their ports, which `port_number` reads.
    /// Reports addresses that are given twice, and ports that are not configured.
    pub fn statics(
        &self,
        check: &mut Check,
        port_number: impl Fn(&str) -> Result<u32, String>,
    ) -> Vec<(MacVlan, u32)> {
        let mut statics = Vec::new();
        for Located { value, location } in self.mac_static.clone() {
            match port_number(&value.port) {
                Ok(port) => statics.push(Located { value: (value.key, port), location }),
                Err(what) => check.problem(location, what),
            }
        }
        let taken = |(key, _): &(MacVlan, u32)| format!("{key} is given already");
        let statics = check.distinct(statics, |(key, _)| *key, taken);
        statics.into_iter().map(|entry| entry.value).collect()
    }
}
