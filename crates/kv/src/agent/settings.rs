//! The settings of an agent.

use crate::PORT;
use crate::store::Place;
use overbank_declare::settings::{Check, Location, Range, SettingValue};
use overbank_netcache::Protocol;
use overbank_netcache::agent::Settings;
use overbank_netcache::client::QUIET_US;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long requests may live: an agent over a store that outlives it is quiet for that time.
pub const QUIET: Duration = Duration::from_micros(QUIET_US);

overbank_declare::choices! {
    /// Which protocol an agent speaks.
    pub enum Spoken: "PROTOCOL" {
        Stamps = "stamps", "ours";
        Paper = "paper", "the paper's, with which the device returns old values";
    }
}

overbank_declare::settings! {
    /// An agent.
    pub struct AgentSettings: "Agent" {
        listen: Address = "127.0.0.1:8779",
            "Address that clients know the server by, with a port unless it is 8779";
        device: Option<Address>, "Address of the device on the path, with a port unless it is 8779"
            or "no device is on the path" example "192.0.2.9";
        store: Place = "memory", "Where values are: memory, redis://HOST:PORT/DB or \
            memcached://HOST:PORT";
        memory: usize = 1024, in 1..=1_048_576, "Limit of the values in memory, in MiB";
        store_timeout: Duration = 1, "Seconds after which a store that does not answer has failed";
        store_name: Option<Name>, "Name of the agent at Redis, of one agent only"
            or "the address that it listens on" example "agent-1";
        quiet: Option<Duration>, "Seconds after the start in which no request is served, so that \
            none is applied twice" or "4 with a store that outlives the agent; 0 with memory"
            example "4";
        rate: Option<usize>, in 1..=10_000_000,
            "Requests that are served in a second, in bursts of a tenth of a second at most; more \
            are dropped as if lost" or "no limit" example "10000";
        requests: usize = 65536, in 1..=1_048_576,
            "Limit of requests that wait for store or device; more are refused";
        clients: usize = 65536, in 1..=1_048_576,
            "Limit of remembered clients; requests of more are refused";
        client_idle: Duration = 60, "Seconds after which a silent client is forgotten, at least 4";
        retry: Duration = 0.002,
            "Seconds after which a message to the device is repeated; twice that the next time";
        tries: usize = 10, in 1..=1000,
            "Number of times a message to the device is sent before its controller is asked for help";
        device_value: usize = 128, in 1..=1408, "Longest value that the device takes, in bytes";
        receive_buffer: usize = 4096, in 64..=1_048_576,
            "Received datagrams that the kernel keeps, in KiB; net.core.rmem_max may allow less";
        protocol: Spoken = "stamps",
            "Protocol towards the device: stamps, or paper, which is wrong on purpose: tests have \
            to find the old values that it returns";
    }
}

impl From<Spoken> for Protocol {
    fn from(spoken: Spoken) -> Protocol {
        match spoken {
            Spoken::Stamps => Protocol::Stamps,
            Spoken::Paper => Protocol::Paper,
        }
    }
}

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl SettingValue for Address {
    const VALUE_NAME: &'static str = "ADDRESS[:PORT]";

    fn accepts(_: &Range) -> String {
        "ADDRESS or ADDRESS:PORT".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Address, String> {
        let what = "must be ADDRESS or ADDRESS:PORT, such as 192.0.2.1, 192.0.2.1:8779 or \
                    [2001:db8::1]:8779";
        let alone = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
        match text.parse().or_else(|_| alone()) {
            Ok(address) => Ok(Address(address)),
            Err(_) => Err(format!("{text:?}: {what}")),
        }
    }
}

/// A name of printable characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

impl SettingValue for Name {
    const VALUE_NAME: &'static str = "NAME";

    fn accepts(_: &Range) -> String {
        "1 to 64 printable ASCII characters without blanks".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Name, String> {
        let is_graphic = text.chars().all(|c| c.is_ascii_graphic());
        if is_graphic && (1..=64).contains(&text.len()) {
            return Ok(Name(text.to_owned()));
        }
        Err(format!("{text:?}: must be {}", Self::accepts(range)))
    }
}

impl SettingValue for Place {
    const VALUE_NAME: &'static str = "STORE";

    fn accepts(_: &Range) -> String {
        "`memory`, `redis://HOST:PORT/DB` or `memcached://HOST:PORT`".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Place, String> {
        match text.split_once("://") {
            None if text == "memory" => Ok(Place::Memory),
            #[cfg(not(feature = "redis"))]
            Some(("redis", _)) => Err(crate::store::WITHOUT_REDIS.to_owned()),
            #[cfg(feature = "redis")]
            Some(("redis", rest)) if !rest.is_empty() => Ok(Place::Redis(text.to_owned())),
            Some(("memcached", rest)) if !rest.is_empty() => {
                Ok(Place::Memcached(rest.trim_end_matches('/').to_owned()))
            }
            _ => Err(format!("{text:?}: must be one of {}", Self::accepts(range))),
        }
    }
}

impl AgentSettings {
    /// Returns the settings of the protocol's machine; reports what does not fit together.
    pub fn machine(&self, check: &mut Check) -> Settings {
        let mut problem = |name: &'static str, what: String| {
            check.problem(check.given(name).unwrap_or(Location::Missing(name)), what);
        };
        if self.client_idle < QUIET {
            let what =
                format!("{:?}: must be at least 4 seconds, which requests live", self.client_idle);
            problem("client-idle", what);
        }
        if let Some(Address(device)) = self.device {
            if device.ip().is_unspecified() || device.ip().is_multicast() || device.port() == 0 {
                problem("device", format!("{device}: must be the address of one device"));
            }
            if device.is_ipv6() && self.listen.0.is_ipv4() {
                let what = format!("{device}: cannot be reached from {}, of IPv4", self.listen.0);
                problem("device", what);
            }
        }
        let outlives = self.store.outlives();
        let quiet = self.quiet.unwrap_or(if outlives { QUIET } else { Duration::ZERO });
        Settings {
            retry_us: micros(self.retry).max(1),
            tries_max: u32::try_from(self.tries).unwrap_or(u32::MAX),
            waiting_max: self.requests,
            clients_max: self.clients,
            client_idle_us: micros(self.client_idle),
            value_max: self.device_value,
            quiet_us: micros(quiet),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
