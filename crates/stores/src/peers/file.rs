//! The file of peers: a line for each node of a cluster without etcd and NATS.
//!
//! ```text
//!   # node  address
//!   0       10.0.0.1:7700     the first one serves the others at this port
//!   1       10.0.0.2          a port of another one is not used
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use overbank::hash::mix;
use overbank_cluster::NodeId;

/// Largest number of a node.
pub const NODE_MAX: u8 = 31;
/// Longest file, in bytes.
pub const BYTES_MAX: usize = 1 << 16;

/// The nodes of a cluster, all known beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    first: (NodeId, SocketAddr),
    nodes: BTreeMap<NodeId, IpAddr>,
}

/// What is wrong with a file of peers, and the line: 0 is the whole file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PeersError {
    pub line: usize,
    pub what: String,
}

/// Reads `NODE ADDRESS` or `NODE ADDRESS:PORT`.
fn line(text: &str) -> Result<(NodeId, IpAddr, Option<u16>), String> {
    let wrong = || format!("{text:?}: must be NODE ADDRESS:PORT, such as 0 10.0.0.1:7700");
    let mut words = text.split_whitespace();
    let (Some(node), Some(at), None) = (words.next(), words.next(), words.next()) else {
        return Err(wrong());
    };
    let digits = node.len() <= 2 && node.bytes().all(|byte| byte.is_ascii_digit());
    let node = node.parse().ok().filter(|node| digits && *node <= NODE_MAX);
    let node = node.ok_or_else(|| format!("{text:?}: the node must be from 0 to {NODE_MAX}"))?;
    let (address, port) = match (at.parse::<IpAddr>(), at.parse::<SocketAddr>()) {
        (Ok(address), _) => (address, None),
        (_, Ok(at)) if at.port() != 0 => (at.ip(), Some(at.port())),
        _ => return Err(wrong()),
    };
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("{address}: must be an address of one machine"));
    }
    Ok((NodeId(node), address, port))
}

impl Peers {
    /// Reads a file.
    ///
    /// # Errors
    /// Every error, with its line.
    pub fn parse(text: &str) -> Result<Peers, Vec<PeersError>> {
        let (mut errors, mut first) = (Vec::new(), None);
        let (mut nodes, mut lines, mut taken) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        if text.len() > BYTES_MAX {
            let what = format!("{} bytes: must be at most {BYTES_MAX}", text.len());
            return Err(vec![PeersError { line: 0, what }]);
        }
        for (nth, text) in text.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let number = nth + 1;
            let mut wrong = |what| errors.push(PeersError { line: number, what });
            let (node, address, port) = match line(text) {
                Ok(read) => read,
                Err(what) => {
                    wrong(what);
                    continue;
                }
            };
            if let Some(before) = lines.insert(node, number) {
                wrong(format!("node {} is also that of line {before}", node.0));
                continue;
            }
            match (first, port) {
                (None, Some(port)) => first = Some((node, SocketAddr::new(address, port))),
                (None, None) if nodes.is_empty() => {
                    wrong(format!(
                        "{address}: the first node needs a port, such as {address}:7700"
                    ));
                }
                _ => {}
            }
            if let Some(port) = port.filter(|port| !taken.insert((address, *port))) {
                wrong(format!("{}: is that of another node", SocketAddr::new(address, port)));
            }
            if first.is_some_and(|(_, at)| at.is_ipv4() != address.is_ipv4()) {
                wrong(format!("{address}: must be of the family of the first node's address"));
            }
            nodes.insert(node, address);
        }
        if nodes.is_empty() && errors.is_empty() {
            let what = "no node; must have a line for each, such as 0 10.0.0.1:7700".to_owned();
            errors.push(PeersError { line: 0, what });
        }
        match first {
            Some(first) if errors.is_empty() => Ok(Peers { first, nodes }),
            _ => Err(errors),
        }
    }

    /// Returns the node that serves the others, and where.
    pub const fn first(&self) -> (NodeId, SocketAddr) {
        self.first
    }

    /// Returns the address of a node; `None`: it is not one of them.
    pub fn address(&self, node: NodeId) -> Option<IpAddr> {
        self.nodes.get(&node).copied()
    }

    /// Returns the addresses of all nodes.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.nodes.values().copied()
    }

    /// Returns the seed of keys' hashes: the same for the same nodes, so that all outlive a new
    /// start of the first one. It is no secret.
    pub(crate) fn seed(&self, cluster: &str) -> u64 {
        let text = format!("{cluster} {self}");
        text.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)))
    }
}

/// What must be equal at all nodes.
impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, at) = self.first;
        write!(f, "{} {at}", first.0)?;
        for (node, address) in self.nodes.iter().filter(|(node, _)| **node != first) {
            write!(f, ", {} {address}", node.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_written_by_its_meaning() {
        let text = "# nodes\n3 10.0.0.3:7700 # serves\n\n0   10.0.0.1\n1 10.0.0.1:9\n";
        let peers = Peers::parse(text).expect("a file");
        assert_eq!(peers.first(), (NodeId(3), "10.0.0.3:7700".parse().expect("an address")));
        assert_eq!(peers.to_string(), "3 10.0.0.3:7700, 0 10.0.0.1, 1 10.0.0.1");
        assert_eq!(peers.address(NodeId(0)), "10.0.0.1".parse().ok());
        assert_eq!(peers.address(NodeId(2)), None);
        assert!(
            peers
                .addresses()
                .map(|address| address.to_string())
                .eq(["10.0.0.1", "10.0.0.1", "10.0.0.3"])
        );
        let other = Peers::parse("3 10.0.0.3:7701\n0 10.0.0.1\n1 10.0.0.1").expect("a file");
        assert_ne!(peers.seed("a"), other.seed("a"));
        assert_ne!(peers.seed("a"), peers.seed("b"));
        assert!(Peers::parse("0 [fd00::1]:7700\n1 fd00::2").is_ok());
    }

    #[test]
    fn every_error_has_its_line() {
        let errors = |text| {
            let errors = Peers::parse(text).expect_err("wrong");
            errors.iter().map(PeersError::to_string).collect::<Vec<_>>()
        };
        let text = "0 10.0.0.1\n0 10.0.0.2:1\n32 10.0.0.3\n+1 10.0.0.3\n4\n5 10.0.0.5:0\n6 ::1\n\
                    7 0.0.0.0\n8 10.0.0.8:1 x\n9 10.0.0.9:2\n10 10.0.0.9:2";
        assert_eq!(
            errors(text),
            [
                "line 1: 10.0.0.1: the first node needs a port, such as 10.0.0.1:7700",
                "line 2: node 0 is also that of line 1",
                "line 3: \"32 10.0.0.3\": the node must be from 0 to 31",
                "line 4: \"+1 10.0.0.3\": the node must be from 0 to 31",
                "line 5: \"4\": must be NODE ADDRESS:PORT, such as 0 10.0.0.1:7700",
                "line 6: \"5 10.0.0.5:0\": must be NODE ADDRESS:PORT, such as 0 10.0.0.1:7700",
                "line 8: 0.0.0.0: must be an address of one machine",
                "line 9: \"8 10.0.0.8:1 x\": must be NODE ADDRESS:PORT, such as 0 10.0.0.1:7700",
                "line 11: 10.0.0.9:2: is that of another node",
            ]
        );
        assert_eq!(
            errors("1 10.0.0.1:7\n2 ::1"),
            ["line 2: ::1: must be of the family of the first node's address"]
        );
        let empty = "line 0: no node; must have a line for each, such as 0 10.0.0.1:7700";
        assert_eq!(errors("# none\n"), [empty]);
        assert!(errors(&"#".repeat(BYTES_MAX + 1))[0].contains("must be at most"));
    }
}
