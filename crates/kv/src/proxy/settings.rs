//! The settings of a proxy.

use super::commands::{self, Command};
use super::tls::Tls;
use super::upstream::{Protocol, Upstream};
use overbank_declare::settings::{Check, Location, Range, SettingValue, seconds};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

overbank_declare::choices! {
    /// Whether hot keys are cached.
    pub enum Mode: "MODE" {
        Cache = "cache", "hot keys are cached";
        Observe = "observe", "hot keys are counted and reported, and nothing is cached";
    }
}

overbank_declare::choices! {
    /// What a script may write.
    pub enum Scripts: "SCRIPTS" {
        Keys = "keys", "the keys that it declares";
        Close = "close", "any key: each script closes the cache until it has ended";
    }
}

overbank_declare::choices! {
    /// In which order a connection's commands take effect.
    pub enum Order: "ORDER" {
        Key = "key", "in the order of the connection for each key";
        Connection = "connection", "in the order of the connection for all keys";
    }
}

overbank_declare::choices! {
    /// How commands go to the server.
    pub enum Lanes: "LANES" {
        Shared = "shared", "clients share connections until one needs its own";
        Dedicated = "dedicated", "each client has its own connection";
    }
}

/// Beginnings of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(pub Vec<Vec<u8>>);

impl Prefixes {
    /// Returns whether a key begins with one of them.
    pub fn begin(&self, key: &[u8]) -> bool {
        self.0.iter().any(|prefix| key.starts_with(prefix))
    }
}

impl SettingValue for Prefixes {
    const VALUE_NAME: &'static str = "PREFIX,…";

    fn accepts(_: &Range) -> String {
        "beginnings of keys, separated by commas".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Prefixes, String> {
        let all: Vec<Vec<u8>> = text.split(',').map(|prefix| prefix.as_bytes().to_vec()).collect();
        if all.iter().any(Vec::is_empty) {
            return Err(format!("{text:?}: must be {}", Self::accepts(range)));
        }
        Ok(Prefixes(all))
    }
}

/// Commands of Redis whose replies may be cached: a bit for each [`Command::number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cacheable(u32);

impl Cacheable {
    pub const ALL: Cacheable = Cacheable(u32::MAX);

    /// Returns whether a command's replies may be cached.
    pub fn has(self, command: &Command) -> bool {
        command.number().is_some_and(|number| self.0 >> number & 1 == 1)
    }
}

impl SettingValue for Cacheable {
    const VALUE_NAME: &'static str = "COMMAND,…";

    fn accepts(_: &Range) -> String {
        format!("one or more of {}", commands::names_of_cacheable().collect::<Vec<_>>().join(","))
    }

    fn read(text: &str, range: &Range) -> Result<Cacheable, String> {
        let number = |word: &str| {
            commands::names_of_cacheable().position(|name| name.eq_ignore_ascii_case(word))
        };
        let bits = text.split(',').map(|word| number(word).map(|number| 1 << number));
        let all = bits.reduce(|all, bit| Some(all? | bit?)).flatten();
        all.map(Cacheable).ok_or_else(|| format!("{text:?}: must be {}", Self::accepts(range)))
    }
}

/// A name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(pub ServerName<'static>);

impl SettingValue for CertificateName {
    const VALUE_NAME: &'static str = "NAME";

    fn accepts(_: &Range) -> String {
        "a DNS name or an IP address".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<CertificateName, String> {
        let name = ServerName::try_from(text.to_owned());
        name.map(CertificateName).map_err(|_| format!("{text:?}: must be {}", Self::accepts(range)))
    }
}

/// The longest time for which a value is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxAge {
    After(Duration),
    /// Until it is written or expires.
    None,
}

impl SettingValue for MaxAge {
    const VALUE_NAME: &'static str = "S";

    fn accepts(_: &Range) -> String {
        "seconds, or `none` with memcached".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<MaxAge, String> {
        match text {
            "none" => Ok(MaxAge::None),
            text => seconds(text).map(MaxAge::After),
        }
    }
}

overbank_declare::settings! {
    /// A proxy.
    pub struct ProxySettings: "Proxy" {
        listen: SocketAddr = "127.0.0.1:6380", "Address that clients connect to";
        upstream: Upstream = "redis://127.0.0.1:6379",
            "The server: redis://[USER:PASSWORD@]HOST[:PORT], or rediss:// for TLS, whose user and \
            password are for the proxy's own connection; or memcached://HOST[:PORT]";
        upstream_ca: Option<PathBuf>, "PEM file of the authorities that the server's certificate \
            is checked by" or "those of the system" example "/etc/overbank/ca.crt";
        upstream_cert: Option<PathBuf>, "PEM file of the certificate that the server is shown, \
            with upstream-key" or "none" example "/etc/overbank/upstream.crt";
        upstream_key: Option<PathBuf>, "PEM file of its private key, without password" or "none"
            example "/etc/overbank/upstream.key";
        upstream_name: Option<CertificateName>, "Name that the server's certificate must have"
            or "the host of upstream" example "redis.example.com";
        tls_cert: Option<PathBuf>, "PEM file of the certificate that clients are shown, with \
            tls-key; all clients then have to speak TLS" or "clients speak plain TCP"
            example "/etc/overbank/proxy.crt";
        tls_key: Option<PathBuf>, "PEM file of its private key, without password" or "none"
            example "/etc/overbank/proxy.key";
        tls_client_ca: Option<PathBuf>, "PEM file of authorities, of which clients have to show a \
            certificate" or "clients need no certificate" example "/etc/overbank/clients.crt";
        mode: Mode = "cache", "Whether hot keys are cached: cache, or observe to count alone";
        workers: usize = 1, in 1..=64, "Threads that serve clients";
        clients: usize = 10_000, in 1..=1_000_000, "Limit of clients of each worker; more are refused";
        entries: usize = 10_000, in 1..=1_000_000, "Limit of cached keys";
        memory: usize = 64, in 1..=65_536, "Limit of cached values, in MiB";
        value_max: usize = 65_536, in 1..=16_777_216, "Longest cached reply, in bytes";
        prefix: Option<Prefixes>, "Beginnings of the keys that may be cached" or "all keys may"
            example "user:,page:";
        deny: Option<Prefixes>, "Beginnings of keys that are not cached" or "none"
            example "lock:,session:";
        cacheable: Option<Cacheable>, "Commands of Redis whose replies may be cached"
            or "all that can be" example "get,mget,hgetall";
        staleness_max: Duration = 1,
            "Seconds that a reply may be older than a write that did not pass this proxy (with \
            memcached: max-age), or than the server's last sign of life";
        max_age: Option<MaxAge>, "Seconds after which a value is asked for again in any case; none \
            with memcached if every writer comes through this proxy"
            or "60 with Redis, 1 with memcached" example "60";
        lanes: Lanes = "shared", "Connections to the server: shared by clients until one needs its \
            own, or dedicated, one for each client";
        order: Order = "key", "Order of a connection's commands: key or connection";
        scripts: Scripts = "keys", "Sets which keys a script may write: keys, those that it declares, or close, any";
    }
}

impl ProxySettings {
    /// Checks what no single setting shows; returns what its files have.
    pub fn check(&self, check: &mut Check) -> Tls {
        let mut problem = |name: &'static str, what: String| {
            check.problem(check.given(name).unwrap_or(Location::Missing(name)), what);
        };
        if self.staleness_max < STALENESS_LEAST {
            let what = format!("{:?}: must be at least 0.3 seconds", self.staleness_max);
            problem("staleness-max", what);
        }
        match (self.upstream.protocol, self.max_age) {
            (Protocol::Memcached, _) if self.cacheable.is_some() => {
                problem("cacheable", "is for Redis: leave it out".to_owned());
            }
            (Protocol::Redis, Some(MaxAge::None)) => {
                problem("max-age", "none: must be seconds; none is for memcached".to_owned());
            }
            (Protocol::Redis, _) if self.age_max() < self.staleness_max => {
                let age = self.age_max();
                problem("max-age", format!("{age:?}: must be at least staleness-max"));
            }
            (Protocol::Memcached, Some(MaxAge::After(age))) if age < AGE_LEAST => {
                problem("max-age", format!("{age:?}: must be at least 0.1 seconds"));
            }
            _ => {}
        }
        Tls::read(self).unwrap_or_else(|problems| {
            problems.into_iter().for_each(|(name, what)| problem(name, what));
            Tls::default()
        })
    }

    /// Returns the longest time for which a value is served.
    pub fn age_max(&self) -> Duration {
        match (self.max_age, self.upstream.protocol) {
            (Some(MaxAge::After(age)), _) => age,
            (Some(MaxAge::None), _) => Duration::MAX,
            (None, Protocol::Redis) => Duration::from_secs(60),
            (None, Protocol::Memcached) => Duration::from_secs(1),
        }
    }
}

/// Values are asked for again before they are over.
const AGE_LEAST: Duration = Duration::from_millis(100);

/// The server is asked for a sign of life ten times a second, and may take a little.
const STALENESS_LEAST: Duration = Duration::from_millis(300);
