//! Which server a proxy stands before.

use overbank_declare::settings::{Range, SettingValue};
use redis::{ConnectionAddr, IntoConnectionInfo};
use std::fmt;

/// The server.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
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
        let scheme = if self.tls { "rediss" } else { "redis" };
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
            host: host.clone(),
            port: *port,
            tls,
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        })
    }
}

impl SettingValue for Upstream {
    const VALUE_NAME: &'static str = "URL";

    fn accepts(_: &Range) -> String {
        "redis://[USER:PASSWORD@]HOST[:PORT], or rediss:// for TLS".to_owned()
    }

    fn read(text: &str, range: &Range) -> Result<Upstream, String> {
        let found = match text.split_once("://") {
            Some(("redis", rest)) if !rest.is_empty() => Upstream::redis(rest, false),
            Some(("rediss", rest)) if !rest.is_empty() => Upstream::redis(rest, true),
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
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with("must be redis://") && !error.contains("secret"), "{error}");
        }
    }
}
