//! Settings of ports and workers.

use crate::running::Options;
use overbank_declare::settings::{Check, Commas, Located, Location, Range, SettingValue, number};
use overbank_ports::PortSpec;
use std::str::FromStr;

/// Cap of workers.
pub const WORKERS_MAX: usize = 64;
/// Cap of ports.
pub const PORTS_MAX: usize = 256;
/// Largest port number.
pub const PORT_NUMBER_MAX: u32 = 0xfeff;

overbank_declare::choices! {
    pub enum Poll: "HOW" {
        Idle = "idle", "wait for frames";
        Busy = "busy", "poll again at once";
    }
}

overbank_declare::settings! {
    /// Numbered ports.
    pub struct PortSettings: "Ports" {
        port: Vec<Located<PortSetting>>, "A port as NUMBER=KIND:…; repeat for each port"
            example "1=afpacket:eth1 2=afpacket:eth2";
    }
}

overbank_declare::settings! {
    /// Workers.
    pub struct WorkerSettings: "Workers" {
        workers: usize = 1, in 1..=WORKERS_MAX,
            "Worker threads, each with its own queues and caches";
        cores: Commas<usize>, in 0..=4095, "Cores to pin the workers to, one for each"
            or "those that this process may use" example "0 1";
        poll: Poll = "idle",
            "Behaviour of workers without frames: wait (idle) or poll again at once (busy)";
    }
}

/// A configured port.
#[derive(Clone, Debug)]
pub struct PortSetting {
    /// Number in configuration and OpenFlow.
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
            return Err(format!("{text:?}: must be NUMBER=KIND:…, such as 1=afpacket:eth0"));
        };
        let number = number.trim();
        let number: u32 = match number.parse() {
            Ok(n) if (1..=PORT_NUMBER_MAX).contains(&n) && !number.starts_with('+') => n,
            _ => {
                return Err(format!(
                    "{number:?}: must be a port number from 1 to {PORT_NUMBER_MAX}"
                ));
            }
        };
        let spec = PortSpec::from_str(spec.trim()).map_err(|error| error.to_string())?;
        Ok(PortSetting { number, spec })
    }
}

impl PortSettings {
    /// Returns the ports by number. Reports duplicate numbers and interfaces, too many ports and
    /// none.
    pub fn ports(&self, check: &mut Check) -> Vec<PortSetting> {
        let taken = |port: &PortSetting| format!("port number {} is already in use", port.number);
        let ports = check.distinct(self.port.clone(), |port| port.number, taken);
        let interface = |port: &PortSetting| match port.spec.interface() {
            Some(interface) => Ok(interface.to_owned()),
            None => Err(port.number),
        };
        let taken = |port: &PortSetting| {
            let interface = port.spec.interface().expect("only interfaces collide here");
            format!("interface {interface} is already a port")
        };
        let ports = check.distinct(ports, interface, taken);
        let mut ports: Vec<PortSetting> = ports.into_iter().map(|port| port.value).collect();
        let given = check.given("port").is_some();
        if !given || (ports.is_empty() && check.is_clean()) {
            let what = "no port; configure at least one, such as 1=afpacket:eth0 or 1=tap:tap0";
            check.problem(Location::Missing("port"), what);
        }
        if ports.len() > PORTS_MAX {
            let what = format!("{} ports: at most {PORTS_MAX} are allowed", ports.len());
            check.problem(Location::Missing("port"), what);
        }
        ports.sort_by_key(|port| port.number);
        ports
    }
}

impl WorkerSettings {
    /// Returns how to run the workers on a machine with cores `available` (empty: unknown). Reports
    /// unavailable cores, and a number of cores that differs from the workers'.
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

    /// Returns the cores that this process may use; empty: unknown.
    pub fn available_cores() -> Vec<usize> {
        // No answer means unknown.
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        cores.into_iter().map(|core| core.id).collect()
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

impl PortNumber {
    /// Returns the numbers of a list; reports those that are not configured.
    pub fn all(list: &Commas<PortNumber>, check: &mut Check, ports: &[PortSetting]) -> Vec<u32> {
        let mut numbers = Vec::new();
        for Located { value, location } in &list.0 {
            match port_number(&value.0, ports) {
                Ok(number) => numbers.push(number),
                Err(what) => check.problem(location.clone(), what),
            }
        }
        numbers
    }
}

/// Reads the number of a configured port. Invalid ports have been reported before, so any number is
/// accepted then.
///
/// # Errors
/// Fails if the port is not configured.
pub fn port_number(text: &str, ports: &[PortSetting]) -> Result<u32, String> {
    let number = number(text.trim(), &Some(1..=PORT_NUMBER_MAX as usize))?;
    let number = u32::try_from(number).expect("at most PORT_NUMBER_MAX");
    if ports.is_empty() || ports.iter().any(|known| known.number == number) {
        return Ok(number);
    }
    let known: Vec<String> =
        ports.iter().take(PORTS_MAX).map(|port| port.number.to_string()).collect();
    Err(format!("port {number} is not configured; configured: {}", known.join(", ")))
}

/// Writes numbers as ranges, `0-3, 8`.
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
        let settings = WorkerSettings::defaults().expect("all have defaults");
        let mut check = overbank_declare::settings::Source::new(&[]).check();
        let (options, default) = (settings.options(&mut check, &[]), Options::default());
        assert_eq!(format!("{options:?}"), format!("{default:?}"));
    }
}
