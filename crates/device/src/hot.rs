//! The hottest cached keys, for people and scripts: a bounded listing over the status socket.
//!
//! A client sends a line `hot`, with a number after it if it likes. The answer is a [`Hot`] on one
//! line. Panics: none.

use crate::address::Server;
use overbank_netcache::controller::Hottest;
use serde::{Deserialize, Serialize};

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-kv-hot/1";
/// Default limit of keys in a listing.
pub const MOST: usize = 20;
/// Most keys in a listing.
pub const MOST_MAX: usize = 1000;

/// A cached key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKey {
    /// 32 hexadecimal digits.
    pub key: String,
    /// Hits in this epoch that were counted: one in `1 << sample_log2`.
    pub hits: u32,
    /// Whether the device answers for it now.
    pub valid: bool,
    /// MAC address, IP address and UDP port of its server.
    pub server: HotServer,
    /// Number of its installation in this run of the device.
    pub install: u32,
}

/// Where the server of a cached key is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotServer {
    /// Number of its port.
    pub port: u32,
    /// 0 without a tag.
    pub vlan: u16,
    pub mac: String,
    pub address: String,
    pub udp_port: u16,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hot {
    /// [`SCHEMA`].
    pub schema: String,
    /// How many keys are cached.
    pub cached: usize,
    /// Logarithm of the hits for each that is counted.
    pub sample_log2: u32,
    /// The hottest ones first.
    pub keys: Vec<HotKey>,
    /// What is wrong with the query; otherwise empty.
    pub error: String,
}

/// Reads `hot [N]`.
///
/// # Errors
/// Returns what would be right.
pub fn query(line: &str) -> Result<usize, String> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("hot") {
        return Err(format!("{line:?}: must begin with hot"));
    }
    let most = match words.next() {
        None => MOST,
        Some(word) => {
            let most = word.parse().ok().filter(|most| *most <= MOST_MAX);
            most.ok_or_else(|| {
                format!("{}: must be a number from 0 to {MOST_MAX}", word.escape_debug())
            })?
        }
    };
    match words.next() {
        None => Ok(most),
        Some(word) => Err(format!("{}: must be the end of the line", word.escape_debug())),
    }
}

impl HotKey {
    /// Returns a key to be shown; `ports` has the numbers of ports.
    pub fn new(hot: &Hottest<Server>, ports: &[u32]) -> HotKey {
        let Server { port, vlan, end } = hot.server;
        let mac = end.mac.map(|byte| format!("{byte:02x}")).join(":");
        HotKey {
            key: format!("{:032x}", hot.key),
            hits: hot.hits,
            valid: hot.is_valid,
            server: HotServer {
                port: ports.get(usize::from(port)).copied().unwrap_or(0),
                vlan,
                mac,
                address: end.ip.to_string(),
                udp_port: end.port,
            },
            install: hot.install,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_errors_name_the_expected_form() {
        assert_eq!((query("hot"), query("hot 7\n")), (Ok(MOST), Ok(7)));
        for (line, wanted) in [
            ("status", "must begin with hot"),
            ("hotter", "must begin with hot"),
            ("hot x", "x: must be a number from 0 to 1000"),
            ("hot 1001", "must be a number"),
            ("hot 1 2", "2: must be the end"),
        ] {
            let error = query(line).expect_err(line);
            assert!(error.contains(wanted), "{error}");
        }
    }
}
