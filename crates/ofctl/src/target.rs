//! Where controllers are: the connection targets of `--openflow`, in the words of Open vSwitch.
//!
//! ```text
//!  ptcp:6653              listen on 127.0.0.1          ptcp:6653:0.0.0.0, ptcp:6653:[::1]
//!  tcp:10.0.0.1:6653      connect to a controller      tcp:10.0.0.1, tcp:[fd00::1]:6653
//!  punix:/run/ob.sock     listen on a Unix socket      unix:/run/ovs.sock (connects)
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The port that IANA gave to OpenFlow.
pub const PORT_DEFAULT: u16 = 6653;

/// One place where control connections come from or go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Controllers and tools connect to this address.
    Listen(SocketAddr),
    /// We connect to a controller, again whenever the connection ends.
    Connect {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// Controllers and tools connect to this socket.
    UnixListen(PathBuf),
    /// We connect to this socket.
    UnixConnect(PathBuf),
}

impl Target {
    /// Whether others connect to us.
    pub fn is_passive(&self) -> bool {
        matches!(self, Target::Listen(_) | Target::UnixListen(_))
    }
}

/// A target that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?}: {problem}; must be ptcp:PORT[:ADDRESS], tcp:HOST[:PORT], punix:PATH or unix:PATH"
)]
pub struct TargetError {
    text: String,
    problem: &'static str,
}

/// Splits `host:port`, `[v6]:port`, or only the host.
fn split_port(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        return match (rest.is_empty(), rest.strip_prefix(':')) {
            (true, _) => Ok((host, None)),
            (_, Some(port)) => Ok((host, Some(port))),
            _ => Err("a colon is expected after the bracket"),
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Err("an IPv6 address needs brackets"),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn port_number(text: &str) -> Result<u16, &'static str> {
    match text.parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err("the port must be a number from 1 to 65535"),
    }
}

fn parse(text: &str) -> Result<Target, &'static str> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "ptcp" => {
            let (port, address) = rest.split_once(':').unwrap_or((rest, ""));
            let port = if port.is_empty() { PORT_DEFAULT } else { port_number(port)? };
            let address = address.trim_start_matches('[').trim_end_matches(']');
            let address = match address {
                "" => IpAddr::V4(Ipv4Addr::LOCALHOST),
                _ => address.parse().map_err(|_| "the address is not an IP address")?,
            };
            Ok(Target::Listen(SocketAddr::new(address, port)))
        }
        "tcp" => {
            let (host, port) = split_port(rest)?;
            if host.is_empty() || host.contains(char::is_whitespace) {
                return Err("the host is missing");
            }
            let port = port.map_or(Ok(PORT_DEFAULT), port_number)?;
            Ok(Target::Connect { host: host.to_owned(), port })
        }
        "punix" | "unix" if rest.is_empty() => Err("the path is missing"),
        "punix" => Ok(Target::UnixListen(rest.into())),
        "unix" => Ok(Target::UnixConnect(rest.into())),
        "ssl" | "pssl" => Err("connections with TLS are not supported"),
        _ => Err("unknown kind of connection"),
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        parse(text).map_err(|problem| TargetError { text: text.to_owned(), problem })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Listen(at) => match at.ip() {
                IpAddr::V4(ip) => write!(f, "ptcp:{}:{ip}", at.port()),
                IpAddr::V6(ip) => write!(f, "ptcp:{}:[{ip}]", at.port()),
            },
            Target::Connect { host, port } if host.contains(':') => {
                write!(f, "tcp:[{host}]:{port}")
            }
            Target::Connect { host, port } => write!(f, "tcp:{host}:{port}"),
            Target::UnixListen(path) => write!(f, "punix:{}", path.display()),
            Target::UnixConnect(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        for (text, canonical) in [
            ("ptcp:", "ptcp:6653:127.0.0.1"),
            ("ptcp:6654", "ptcp:6654:127.0.0.1"),
            ("ptcp:6653:0.0.0.0", "ptcp:6653:0.0.0.0"),
            ("ptcp:6653:[::1]", "ptcp:6653:[::1]"),
            ("tcp:10.0.0.1", "tcp:10.0.0.1:6653"),
            ("tcp:controller:6633", "tcp:controller:6633"),
            ("tcp:[fd00::1]:6633", "tcp:[fd00::1]:6633"),
            ("tcp:[fd00::1]", "tcp:[fd00::1]:6653"),
            ("unix:/run/a", "unix:/run/a"),
            ("punix:b", "punix:b"),
        ] {
            let target: Target = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(target.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(target));
        }
    }

    #[test]
    fn problems_are_named() {
        for (text, problem) in [
            ("", "unknown kind"),
            ("6653", "unknown kind"),
            ("ssl:1.2.3.4", "TLS"),
            ("ptcp:0", "1 to 65535"),
            ("ptcp:70000", "1 to 65535"),
            ("ptcp:6653:here", "not an IP address"),
            ("tcp:", "host is missing"),
            ("tcp:a:b", "1 to 65535"),
            ("tcp:fd00::1:6653", "brackets"),
            ("tcp:[fd00::1", "not closed"),
            ("tcp:[fd00::1]6653", "a colon"),
            ("punix:", "path is missing"),
        ] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains("ptcp:PORT"), "{error}");
        }
    }
}
