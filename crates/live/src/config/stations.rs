//! The settings of the Ethernet switch: mode, isolated ports, static addresses.

use super::check::{Check, number};
use super::{Mode, PORTS_MAX, Place, PortSetting};
use crate::l2::{Limits, mac_of};
use overbank::fib::MacVlan;
use overbank::memory::Pages;
use overbank_switch::parse::PORT_MAX;
use std::collections::HashMap;

/// Most learnt addresses that can be asked for: what the largest table holds.
const ENTRIES_MAX: usize = 2_500_000_000;
/// Settings of the OpenFlow switch alone; those of controllers besides.
const OPENFLOW_ONLY: [&str; 8] = [
    "rules",
    "openflow",
    "cache",
    "entries",
    "megaflows",
    "megaflow-idle",
    "max-rules",
    "fail-mode",
];

impl Check {
    /// What decides where frames go; what does not fit to it is wrong.
    pub(super) fn mode(&mut self) -> Mode {
        let choices = [("openflow", Mode::OpenFlow), ("l2", Mode::L2)];
        let mode = self.choice("mode", &choices).unwrap_or_default();
        let foreign = |name: &str| match mode {
            Mode::L2 => OPENFLOW_ONLY.contains(&name) || name.starts_with("controller-"),
            Mode::OpenFlow => name == "isolated",
        };
        let what = match mode {
            Mode::L2 => {
                "the Ethernet switch has no rules and no controllers; leave it out, or use mode openflow"
            }
            Mode::OpenFlow => {
                "ports are isolated in the Ethernet switch only; leave it out, or use mode l2"
            }
        };
        let items = self.settings.items.iter().filter(|(name, _)| foreign(name));
        let places: Vec<Place> =
            items.filter_map(|(_, items)| Some(items.first()?.place.clone())).collect();
        for place in places {
            self.problem(place, what);
        }
        mode
    }

    /// The bounds of learning, and of its table.
    pub(super) fn learning(&mut self) -> Limits {
        let of = Limits::default();
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let pages = [
            ("huge", Pages::Huge),
            ("1g", Pages::Gigabyte { required: true }),
            ("small", Pages::Small),
        ];
        Limits {
            entries_max: self.number("mac-entries", 0..=ENTRIES_MAX).unwrap_or(of.entries_max),
            pages: self.choice("mac-pages", &pages).unwrap_or(of.pages),
            age_s: self.number("mac-age", 1..=1_000_000).map_or(of.age_s, narrow),
            learn_per_s: self.number("mac-rate", 1..=1_000_000).map_or(of.learn_per_s, narrow),
            queue: self.number("mac-queue", 1..=1 << 20).unwrap_or(of.queue),
        }
    }

    /// Numbers of the ports that are isolated.
    pub(super) fn isolated(&mut self, ports: &[PortSetting]) -> Vec<u32> {
        let mut isolated = Vec::new();
        // A flag is one text with commas, a file has a list.
        for item in self.list("isolated") {
            for text in item.text.split(',') {
                match port_of(text, ports) {
                    Ok(port) => isolated.push(port),
                    Err(what) => self.problem(item.place.clone(), what),
                }
            }
        }
        isolated
    }

    /// Static addresses, and the numbers of their ports.
    pub(super) fn statics(&mut self, ports: &[PortSetting]) -> Vec<(MacVlan, u32)> {
        let mut seen: HashMap<MacVlan, Place> = HashMap::new();
        let mut statics = Vec::new();
        for ((key, port), place) in self.each("mac-static", |text| static_entry(text, ports)) {
            if let Some(first) = seen.get(&key) {
                let what = format!("{key} is there already, at {first}");
                self.problem(place, what);
                continue;
            }
            seen.insert(key, place);
            statics.push((key, port));
        }
        statics
    }
}

/// The number of a port that there is. Where ports are wrong themselves, that is told already.
fn port_of(text: &str, ports: &[PortSetting]) -> Result<u32, String> {
    let port = number(text.trim(), &(1..=PORT_MAX as usize))?;
    let port = u32::try_from(port).unwrap_or(u32::MAX);
    if ports.is_empty() || ports.iter().any(|known| known.number == port) {
        return Ok(port);
    }
    let there: Vec<String> =
        ports.iter().take(PORTS_MAX).map(|port| port.number.to_string()).collect();
    Err(format!("there is no port {port}; there are {}", there.join(", ")))
}

/// Reads `MAC[@VLAN]=PORT`.
fn static_entry(text: &str, ports: &[PortSetting]) -> Result<(MacVlan, u32), String> {
    let wrong = || format!("{text:?}: write MAC[@VLAN]=PORT, such as 02:00:00:00:00:01@10=3");
    let (station, port) = text.split_once('=').ok_or_else(wrong)?;
    let (address, vlan) = match station.trim().split_once('@') {
        Some((address, vlan)) => (address, number(vlan, &(0..=4095))? as u16),
        None => (station.trim(), 0),
    };
    let mac = mac_of(address).ok_or_else(wrong)?;
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err(format!("{address} is no address of a station: it is a group, or zero"));
    }
    Ok((MacVlan::new(mac, vlan), port_of(port, ports)?))
}
