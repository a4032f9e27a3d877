//! The settings of ports and workers.

use crate::running::Options;
use overbank_declare::settings::{Check, Commas, Located, Location, Range, SettingValue, number};
use overbank_ports::PortSpec;
use std::str::FromStr;

/// Limit of workers.
pub const WORKERS_MAX: usize = 64;
/// Limit of ports.
pub const PORTS_MAX: usize = 256;
/// Largest number of a port.
pub const PORT_NUMBER_MAX: u32 = 0xfeff;

overbank_declare::choices! {
    /// What idle workers do.
    pub enum Poll: "HOW" {
        Idle = "idle", "wait for frames";
        Busy = "busy", "poll again at once";
    }
}

overbank_declare::settings! {
    /// Ports and workers.
    pub struct RuntimeSettings: "Ports and workers" {
        port: Vec<Located<PortSetting>>, "A port: its number and what it is; once for each"
            example "1=afpacket:eth1 2=afpacket:eth2";
        workers: usize = 1, in 1..=WORKERS_MAX,
            "Worker threads, each with its own queues and caches";
        cores: Commas<usize>, in 0..=4095, "Cores of the workers, one for each"
            or "those that this process may use" example "0 1";
        poll: Poll = "idle",
            "What workers do without frames: wait (idle) or poll again at once (busy)";
    }
}

/// One port as configured.
#[derive(Clone, Debug)]
pub struct PortSetting {
    /// Number that people and controllers call it by.
    pub number: u32,
    /// What it is.
    pub spec: PortSpec,
}

impl SettingValue for PortSetting {
    const VALUE_NAME: &'static str = "N=KIND:…";

    fn accepts(_: &Range) -> String {
        "N=KIND:…".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<PortSetting, String> {
        let Some((number, spec)) = text.split_once('=') else {
            return Err(format!("{text:?}: write NUMBER=KIND:…, such as 1=afpacket:eth0"));
        };
        let number = number.trim();
        let number: u32 = match number.parse() {
            Ok(n) if (1..=PORT_NUMBER_MAX).contains(&n) && !number.starts_with('+') => n,
            _ => {
                return Err(format!("{number:?} is not a port number from 1 to {PORT_NUMBER_MAX}"));
            }
        };
        let spec = PortSpec::from_str(spec.trim()).map_err(|error| error.to_string())?;
        Ok(PortSetting { number, spec })
    }
}

impl RuntimeSettings {
    /// Returns the ports by number. Reports numbers and interfaces that are taken, and too many or
    /// no ports.
    pub fn ports(&self, check: &mut Check) -> Vec<PortSetting> {
        let taken = |port: &PortSetting| format!("port number {} is taken already", port.number);
        let ports = check.distinct(self.port.clone(), |port| port.number, taken);
        let interface = |port: &PortSetting| match port.spec.interface() {
            Some(interface) => Ok(interface.to_owned()),
            None => Err(port.number),
        };
        let taken = |port: &PortSetting| {
            let interface = port.spec.interface().unwrap_or_default();
            format!("interface {interface} is a port already")
        };
        let ports = check.distinct(ports, interface, taken);
        let mut ports: Vec<PortSetting> = ports.into_iter().map(|port| port.value).collect();
        let given = check.given("port").is_some();
        if !given || (ports.is_empty() && check.is_clean()) {
            let what = "no port; name one at least, such as 1=afpacket:eth0 or 1=tap:tap0";
            check.problem(Location::Missing("port"), what);
        }
        if ports.len() > PORTS_MAX {
            let what = format!("{} ports, at most {PORTS_MAX} are possible", ports.len());
            check.problem(Location::Missing("port"), what);
        }
        ports.sort_by_key(|port| port.number);
        ports
    }

    /// Returns how the workers are run, on a machine with these cores; none: unknown. Reports cores
    /// that are unavailable, and another number of them than of workers.
    pub fn options(&self, check: &mut Check, available: &[usize]) -> Options {
        let (mut cores, mut absent) = (Vec::new(), false);
        for Located { value, location } in &self.cores.0 {
            if available.is_empty() || available.contains(value) {
                cores.push(*value);
                continue;
            }
            absent = true;
            let what = format!(
                "core {value} is unavailable: this process may use cores {}",
                ranges(available)
            );
            check.problem(location.clone(), what);
        }
        if let Some(first) = self.cores.0.first()
            && !absent
            && cores.len() != self.workers
        {
            let what =
                format!("{} cores for {} workers; name one for each", cores.len(), self.workers);
            check.problem(first.location.clone(), what);
        }
        Options {
            workers: self.workers,
            cores,
            busy_poll: self.poll == Poll::Busy,
            ..Options::default()
        }
    }

    /// Returns the cores that this process may use; none: unknown.
    pub fn available_cores() -> Vec<usize> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        cores.into_iter().map(|core| core.id).collect()
    }
}

/// Reads the number of a configured port. Invalid ports have been reported before: then any number
/// will do.
///
/// # Errors
/// There is no such port.
pub fn port_number(text: &str, ports: &[PortSetting]) -> Result<u32, String> {
    let number = number(text.trim(), &Some(1..=PORT_NUMBER_MAX as usize))?;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    if ports.is_empty() || ports.iter().any(|known| known.number == number) {
        return Ok(number);
    }
    let known: Vec<String> =
        ports.iter().take(PORTS_MAX).map(|port| port.number.to_string()).collect();
    Err(format!("there is no port {number}; there are {}", known.join(", ")))
}

/// Numbers as people write them, `0-3, 8`.
fn ranges(numbers: &[usize]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs: Vec<String> = sorted
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(usize::to_string).collect(),
        })
        .collect();
    runs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_declare::settings::Table as _;

    #[test]
    fn options_without_settings_are_those_of_the_table() {
        let settings = RuntimeSettings::defaults().expect("nothing but ports is needed");
        let mut check = overbank_declare::settings::Source::new(&[]).check();
        let (options, default) = (settings.options(&mut check, &[]), Options::default());
        assert_eq!(format!("{options:?}"), format!("{default:?}"));
    }
}
