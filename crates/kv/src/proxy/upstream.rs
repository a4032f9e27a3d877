//! Which server a proxy stands before.

use overbank_declare::settings::{Range, SettingValue};
use redis::{ConnectionAddr, IntoConnectionInfo};
use std::fmt;

/// What server and clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Memcached,
}

impl Protocol {
    const fn scheme(self) -> &'static str {
        match self {
            Protocol::Redis => "redis",
            Protocol::Memcached => "memcached",
        }
    }
}

/// The server.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    pub protocol: Protocol,
    pub host: String,
    pub port: u16,
    /// It speaks TLS.
    pub tls: bool,
    /// What the proxy's own connection says that it is. Clients say it by themselves.
    pub user: Option<String>,
    pub password: Option<String>,
}

impl fmt::Display for Upstream {
    /// Writes the address without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { self.protocol.scheme() };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Upstream {
    /// Reads what stands behind the scheme.
    fn redis(rest: &str, tls: bool) -> Option<Upstream> {
        let info = format!("redis://{rest}").into_connection_info().ok()?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else { return None };
        let settings = info.redis_settings();
        (settings.db() == 0).then(|| Upstream {
            protocol: Protocol::Redis,
            host: host.clone(),
            port: *port,
            tls,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        })
    }

    /// Reads a host, with a port or without.
    fn memcached(place: &str) -> Option<Upstream> {
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, 11211),
        };
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let is_host = !host.is_empty() && !host.contains(['/', '@', '[', ']', '?', '#']);
        is_host.then(|| Upstream {
            protocol: Protocol::Memcached,
            host: host.to_owned(),
            port,
            tls: false,
            user: None,
            password: None,
        })
    }
}

impl SettingValue for Upstream {
    const VALUE_NAME: &'static str = "URL";

    fn accepts(_: &Range) -> String {
        "redis://[USER:PASSWORD@]HOST[:PORT], rediss:// for TLS, or memcached://HOST[:PORT]"
            .to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Upstream, String> {
        let found = match text.split_once("://") {
            Some(("redis", rest)) if !rest.is_empty() => Upstream::redis(rest, false),
            Some(("rediss", rest)) if !rest.is_empty() => Upstream::redis(rest, true),
            Some(("memcached", place)) => Upstream::memcached(place),
            _ => None,
        };
        // The text may have a password.
        found.ok_or_else(|| {
            format!("must be {}; databases are chosen by clients", Self::accepts(range))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Upstream, String> {
        Upstream::read(text, &Range::None)
    }

    #[test]
    fn urls_name_a_server() {
        let plain = read("redis://127.0.0.1").expect("a server");
        assert_eq!((plain.port, plain.to_string()), (6379, "redis://127.0.0.1:6379".to_owned()));
        let named = read("redis://me:p%40ss@[::1]:7000/0").expect("a server");
        assert_eq!(named.user.as_deref(), Some("me"));
        assert_eq!(named.password.as_deref(), Some("p@ss"));
        assert_eq!(format!("{named} {named:?}"), "redis://[::1]:7000 redis://[::1]:7000");
        let secret = read("rediss://me:pw@host").expect("a server");
        assert_eq!((secret.tls, secret.to_string()), (true, "rediss://host:6379".to_owned()));
        for (text, printed) in [
            ("memcached://cache.example", "memcached://cache.example:11211"),
            ("memcached://127.0.0.1:7", "memcached://127.0.0.1:7"),
            ("memcached://[::1]", "memcached://[::1]:11211"),
            ("memcached://[::1]:7", "memcached://[::1]:7"),
        ] {
            assert_eq!(read(text).expect("a server").to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_server_is_an_error_without_its_text() {
        for text in [
            "",
            "redis://",
            "rediss://",
            "rediss://:secret@host/1",
            "host:1",
            "http://host",
            "redis://:secret@host/1",
            "redis://host:99999",
            "memcached://",
            "memcached://:11211",
            "memcached://::1",
            "memcached://me:secret@host",
            "memcached://host:99999",
            "memcached://host/1",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with("must be redis://") && !error.contains("secret"), "{error}");
        }
    }
}
