//! From texts to a [`Config`]; every problem is found before any is reported.

use super::source::Item;
use super::{
    CACHE_DEFAULT, CONNECTIONS_MAX, Config, ControllerLimits, LogFormat, METRICS_DEFAULT,
    PORTS_MAX, Place, PortSetting, Problem, Problems, SETTINGS, STATUS_CONNECTIONS,
    STATUS_CONNECTIONS_MAX, Settings, WORKERS_MAX,
};
use crate::switch::guests;
use overbank::cache::Design;
use overbank_ofctl::rules::FailMode;
use overbank_ofctl::sessions::BUFFERS_MAX;
use overbank_ofctl::target::Target;
use overbank_ports::PortSpec;
use overbank_runtime::running::ORDERS;
use overbank_switch::parse::PORT_MAX;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longest time that can be asked for.
const SECONDS_MAX: f64 = 31_536_000.0;

pub(super) struct Check {
    pub(super) settings: Settings,
    problems: Vec<Problem>,
}

impl Check {
    pub(super) fn problem(&mut self, place: Place, what: impl Into<String>) {
        self.problems.push(Problem { place, what: what.into() });
    }

    /// The items of a list.
    pub(super) fn list(&mut self, name: &str) -> Vec<Item> {
        self.settings.items.remove(name).unwrap_or_default()
    }

    /// The item of a setting that has one value.
    fn one(&mut self, name: &str) -> Option<Item> {
        let mut items = self.list(name);
        if items.len() > 1 {
            let wanted = SETTINGS.iter().find(|s| s.0 == name).map_or("", |s| s.1);
            let place = items.swap_remove(1).place;
            self.problem(place, format!("{} values, one is needed: {wanted}", items.len() + 1));
            return None;
        }
        items.pop()
    }

    /// One value, read by `read`; its error says what would be right.
    fn read<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let item = self.one(name)?;
        match read(&item.text) {
            Ok(value) => Some(value),
            Err(what) => {
                self.problem(item.place, what);
                None
            }
        }
    }

    pub(super) fn number(&mut self, name: &str, range: RangeInclusive<usize>) -> Option<usize> {
        self.read(name, |text| number(text, &range))
    }

    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        self.read(name, |text| {
            choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(
                || {
                    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                    format!("{text:?} is not one of {}", names.join(", "))
                },
            )
        })
    }

    /// Each item of a list, read by `read`.
    pub(super) fn each<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&str) -> Result<T, String>,
    ) -> Vec<(T, Place)> {
        let mut values = Vec::new();
        for item in self.list(name) {
            match read(&item.text) {
                Ok(value) => values.push((value, item.place)),
                Err(what) => self.problem(item.place, what),
            }
        }
        values
    }

    fn ports(&mut self) -> Vec<PortSetting> {
        let any = self.settings.items.contains_key("port");
        let mut seen: HashMap<u32, Place> = HashMap::new();
        let mut interfaces: HashMap<String, Place> = HashMap::new();
        let mut ports = Vec::new();
        for (port, place) in self.each("port", port) {
            if let Some(first) = seen.get(&port.number) {
                let what = format!("port number {} is taken already, at {first}", port.number);
                self.problem(place, what);
                continue;
            }
            let interface = port.spec.interface().map(str::to_owned);
            if let Some(interface) = interface {
                if let Some(first) = interfaces.get(&interface) {
                    let what = format!("interface {interface} is a port already, at {first}");
                    self.problem(place, what);
                    continue;
                }
                interfaces.insert(interface, place.clone());
            }
            seen.insert(port.number, place);
            ports.push(port);
        }
        if !any || (ports.is_empty() && self.problems.is_empty()) {
            let what = "no port; name one at least, such as 1=afpacket:eth0 or 1=tap:tap0";
            self.problem(Place::Missing("port"), what);
        }
        if ports.len() > PORTS_MAX {
            let what = format!("{} ports, at most {PORTS_MAX} are possible", ports.len());
            self.problem(Place::Missing("port"), what);
        }
        ports.sort_by_key(|port| port.number);
        ports
    }

    fn targets(&mut self) -> Vec<Target> {
        let mut targets: Vec<(Target, Place)> = Vec::new();
        let read = |text: &str| Target::from_str(text).map_err(|error| error.to_string());
        for (target, place) in self.each("openflow", read) {
            match targets.iter().find(|(known, _)| *known == target) {
                Some((_, first)) => {
                    let what = format!("{target} is there already, at {first}");
                    self.problem(place, what);
                }
                None => targets.push((target, place)),
            }
        }
        targets.into_iter().map(|(target, _)| target).collect()
    }

    fn controllers(&mut self) -> ControllerLimits {
        let of = ControllerLimits::default();
        let probe = self.read("controller-probe", |text| off_or(text, seconds));
        ControllerLimits {
            connections: self
                .number("controller-connections", 1..=CONNECTIONS_MAX)
                .unwrap_or(of.connections),
            hello: self.read("controller-hello", seconds).unwrap_or(of.hello),
            probe: probe.map_or(of.probe, Option::unwrap_or_default),
            stall: self.read("controller-stall", seconds).unwrap_or(of.stall),
            bytes: self.number("controller-bytes", 1 << 16..=1 << 26).unwrap_or(of.bytes),
            packets: self.number("controller-packets", 1..=1 << 16).unwrap_or(of.packets),
            buffers: self.number("controller-buffers", 0..=BUFFERS_MAX).unwrap_or(of.buffers),
            events: self.number("controller-events", 1..=1 << 16).unwrap_or(of.events),
            bundles: self.number("controller-bundles", 1..=1024).unwrap_or(of.bundles),
            bundle_messages: self
                .number("controller-bundle-messages", 1..=1_000_000)
                .unwrap_or(of.bundle_messages),
        }
    }

    fn cores(&mut self, workers: usize, there: &[usize]) -> Vec<usize> {
        // A flag is one text with commas, a file has a list.
        let items = self.list("cores");
        let (mut cores, mut absent) = (Vec::new(), false);
        for item in &items {
            for text in item.text.split(',') {
                match number(text.trim(), &(0..=4095)) {
                    Ok(core) if there.is_empty() || there.contains(&core) => cores.push(core),
                    Ok(core) => {
                        absent = true;
                        let what = format!(
                            "core {core} is none that this process may use; there are {}",
                            ranges(there)
                        );
                        self.problem(item.place.clone(), what);
                    }
                    Err(what) => self.problem(item.place.clone(), what),
                }
            }
        }
        if let Some(item) = items.first()
            && !cores.is_empty()
            && !absent
            && cores.len() != workers
        {
            let what = format!("{} cores for {workers} workers; name one for each", cores.len());
            self.problem(item.place.clone(), what);
        }
        cores
    }
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

/// A number without a sign.
pub(super) fn number(text: &str, range: &RangeInclusive<usize>) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if range.contains(&number) && !text.starts_with('+') => Ok(number),
        _ => Err(format!("{text:?} is not a number from {} to {}", range.start(), range.end())),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("{text:?} is not a number of seconds from 0.001 to {SECONDS_MAX}")),
    }
}

fn port(text: &str) -> Result<PortSetting, String> {
    let Some((number, spec)) = text.split_once('=') else {
        return Err(format!("{text:?}: write NUMBER=KIND:…, such as 1=afpacket:eth0"));
    };
    let number = number.trim();
    let number: u32 = match number.parse() {
        Ok(parsed) if (1..=PORT_MAX).contains(&parsed) && !number.starts_with('+') => parsed,
        _ => return Err(format!("{number:?} is not a port number from 1 to {PORT_MAX}")),
    };
    let spec = PortSpec::from_str(spec.trim()).map_err(|error| error.to_string())?;
    Ok(PortSetting { number, spec })
}

fn cache(text: &str) -> Result<Option<Design>, String> {
    if text == "none" {
        return Ok(None);
    }
    Design::from_str(text).map(Some).map_err(|error| format!("{error}; or none"))
}

fn datapath_id(text: &str) -> Result<u64, String> {
    let digits: String = text.trim_start_matches("0x").chars().filter(|c| *c != ':').collect();
    let hex = !digits.is_empty() && digits.len() <= 16;
    match u64::from_str_radix(&digits, 16) {
        Ok(id) if hex && id != 0 && !digits.starts_with('+') => Ok(id),
        _ => Err(format!("{text:?} is not a number of 1 to 16 hexadecimal digits, not all zero")),
    }
}

fn off_or<T>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == "off" { Ok(None) } else { read(text).map(Some) }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not ADDRESS:PORT, such as {METRICS_DEFAULT} or [::1]:9273, or off")
    })
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!("{text:?} is not a path"));
    }
    Ok(text.into())
}

impl Settings {
    /// The configuration that these settings make.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn check(self) -> Result<Config, Problems> {
        let there = core_affinity::get_core_ids().unwrap_or_default();
        let there: Vec<usize> = there.into_iter().map(|core| core.id).collect();
        self.check_on(&there)
    }

    /// The same, on a machine with these cores; none: the system does not tell.
    pub(super) fn check_on(mut self, there: &[usize]) -> Result<Config, Problems> {
        let problems = std::mem::take(&mut self.problems);
        if self.broken {
            return Err(Problems(problems));
        }
        let mut check = Check { settings: self, problems };
        let c = &mut check;
        let yes_no = [("true", true), ("false", false), ("yes", true), ("no", false)];
        let levels = ["off", "error", "warn", "info", "debug", "trace"].map(|l| (l, l));
        let mode = c.mode();
        let ports = c.ports();
        let workers = c.number("workers", 1..=WORKERS_MAX).unwrap_or(1);
        let config = Config {
            mode,
            isolated: c.isolated(&ports),
            statics: c.statics(&ports),
            ports,
            rules: c.read("rules", path),
            openflow: c.targets(),
            workers,
            cores: c.cores(workers, there),
            cache: c.read("cache", cache).unwrap_or_else(|| CACHE_DEFAULT.parse().ok()),
            entries: c.number("entries", 64..=1 << 32).unwrap_or(1 << 18),
            megaflows: c.number("megaflows", 1..=1 << 24).unwrap_or(1 << 16),
            megaflow_idle: c.read("megaflow-idle", seconds).unwrap_or(Duration::from_secs(10)),
            rules_max: c.number("max-rules", 1..=1_000_000).unwrap_or(1_000_000),
            mac: c.learning(),
            controller_queue: c.number("controller-queue", 1..=1 << 16).unwrap_or(256),
            packet_outs: c.number("controller-packet-outs", 1..=1 << 16).unwrap_or(ORDERS),
            controllers: c.controllers(),
            fail_mode: c
                .choice(
                    "fail-mode",
                    &[("secure", FailMode::Secure), ("standalone", FailMode::Standalone)],
                )
                .unwrap_or_default(),
            metrics_named: c.settings.items.contains_key("metrics"),
            metrics: c
                .read("metrics", |text| off_or(text, address))
                .unwrap_or_else(|| METRICS_DEFAULT.parse().ok()),
            metrics_connections: c
                .number("metrics-connections", 1..=CONNECTIONS_MAX)
                .unwrap_or(guests::CONNECTIONS),
            status_socket: c.read("status-socket", |text| off_or(text, path)).flatten(),
            status_connections: c
                .number("status-connections", 1..=STATUS_CONNECTIONS_MAX)
                .unwrap_or(STATUS_CONNECTIONS),
            log: c.choice("log", &levels).unwrap_or("info").to_owned(),
            log_format: c
                .choice("log-format", &[("text", LogFormat::Text), ("json", LogFormat::Json)])
                .unwrap_or_default(),
            datapath_id: c.read("datapath-id", datapath_id),
            duration: c.read("duration", seconds),
            busy_poll: c.choice("poll", &[("idle", false), ("busy", true)]).unwrap_or(false),
            keep_privileges: c.choice("keep-privileges", &yes_no).unwrap_or(false),
        };
        let mut problems = check.problems;
        if problems.is_empty() {
            return Ok(config);
        }
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        Err(Problems(problems))
    }
}
