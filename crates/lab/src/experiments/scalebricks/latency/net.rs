//! The links of a cluster: network namespaces joined by veth pairs, and the ports at their ends.
//!
//! ```text
//!  hub                    node 0            node 1            …
//!   x0 ═══════════════════ ext │             │                 from outside
//!   x1 ══════════════════════════════════════ ext
//!   bridge ─ f0 ══════════ fab │             │                 switch: by the address of a label
//!          └ f1 ═════════════════════════════ fab
//!                          m1 ═══════════════ m0               mesh: a link for each two nodes
//! ```
//!
//! A namespace has a name only until its ports are open, and exists as long as they are. So nothing
//! stays behind, however the process ends.

use super::super::nodes::{LABELLED, Role};
use crate::experiments::namespaces::{Open, Spaces, sh};
use crate::prelude::LabError;

/// How frames pass between a node and its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AfXdp,
    AfPacket,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::AfXdp => "AF_XDP",
            Kind::AfPacket => "AF_PACKET",
        }
    }

    /// Returns the port of an interface: one packet at a time needs little memory.
    fn port(self, interface: &str) -> String {
        match self {
            Kind::AfXdp => format!("afxdp:{interface},frames=256"),
            Kind::AfPacket => format!("afpacket:{interface},ring-mib=1"),
        }
    }

    fn open(self, interface: &str) -> Result<Open, LabError> {
        Open::new(&self.port(interface))
    }
}

/// The ports of a node.
pub(super) struct NodePorts {
    pub(super) ext: Open,
    pub(super) switch: Open,
    /// By node; none to itself.
    pub(super) mesh: Vec<Option<Open>>,
}

impl NodePorts {
    pub(super) fn all(&self) -> impl Iterator<Item = &Open> {
        [&self.ext, &self.switch].into_iter().chain(self.mesh.iter().flatten())
    }
}

/// All ports of a cluster.
pub(super) struct Net {
    /// Outside of each node.
    pub(super) outside: Vec<Open>,
    pub(super) nodes: Vec<NodePorts>,
}

/// Namespaces: the hub's and each node's.
pub(super) struct Names {
    spaces: Spaces,
    nodes: usize,
}

impl Names {
    /// Makes the namespaces of `nodes` nodes and joins them.
    ///
    /// # Errors
    /// There are no namespaces for this process.
    pub(super) fn joined(nodes: usize) -> Result<Names, LabError> {
        let names = Names::new(nodes)?;
        names.wire()?;
        Ok(names)
    }

    /// Opens all ports.
    ///
    /// # Errors
    /// There are no ports of this kind.
    pub(super) fn open(self, kind: Kind) -> Result<Net, LabError> {
        let outside = self
            .spaces
            .inside(0, || (0..self.nodes).map(|node| kind.open(&format!("x{node}"))).collect())?;
        let ports = (0..self.nodes).map(|node| {
            self.spaces.inside(node + 1, || {
                let mesh = (0..self.nodes)
                    .map(|to| (to != node).then(|| kind.open(&format!("m{to}"))).transpose());
                Ok(NodePorts {
                    ext: kind.open("ext")?,
                    switch: kind.open("fab")?,
                    mesh: mesh.collect::<Result<_, _>>()?,
                })
            })
        });
        Ok(Net { outside, nodes: ports.collect::<Result<_, _>>()? })
    }

    fn new(nodes: usize) -> Result<Names, LabError> {
        Ok(Names { spaces: Spaces::new(nodes + 1)?, nodes })
    }

    /// The hub's, or a node's.
    fn name(&self, node: Option<usize>) -> String {
        self.spaces.name(node.map_or(0, |node| node + 1))
    }

    /// Makes the veth pairs and the switch, whose addresses are those of labels.
    fn wire(&self) -> Result<(), LabError> {
        let (hub, nodes) = (self.name(None), self.nodes);
        let mut script = format!(
            "ip -n {hub} link add bridge type bridge mcast_snooping 0 && \
             ip -n {hub} link set bridge up"
        );
        let mut add = |command: String| script.extend([" && ", &command]);
        for node in 0..nodes {
            let space = self.name(Some(node));
            add(format!("ip -n {hub} link add x{node} type veth peer name ext netns {space}"));
            add(format!("ip -n {hub} link add f{node} type veth peer name fab netns {space}"));
            add(format!("ip -n {hub} link set f{node} master bridge"));
            add(format!("bridge -n {hub} link set dev f{node} learning off flood off"));
            for role in [Role::Lookup, Role::Handling] {
                let [x, y, z] = LABELLED;
                let (role, to) = (role as u8, node as u8);
                let mac = format!("{x:02x}:{y:02x}:{z:02x}:{role:02x}:{to:02x}:{to:02x}");
                add(format!("bridge -n {hub} fdb add {mac} dev f{node} master static"));
            }
            for to in node + 1..nodes {
                let peer = self.name(Some(to));
                add(format!(
                    "ip -n {space} link add m{to} type veth peer name m{node} netns {peer}"
                ));
            }
        }
        for node in 0..nodes {
            let space = self.name(Some(node));
            add(format!("ip -n {hub} link set x{node} up && ip -n {hub} link set f{node} up"));
            add(format!("ip -n {space} link set ext up && ip -n {space} link set fab up"));
            for to in (0..nodes).filter(|&to| to != node) {
                add(format!("ip -n {space} link set m{to} up"));
            }
        }
        sh(&script).map_err(|why| LabError::Failed(format!("veth pairs and a bridge: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::namespaces::wait;
    use std::time::Duration;

    #[test]
    fn open_ports_are_all_that_holds_the_namespaces() {
        if !overbank_testing::needs("root", sh("test $(id -u) = 0 && ip netns list").is_ok()) {
            return;
        }
        let mut net = Names::joined(2).unwrap().open(Kind::AfPacket).unwrap();
        let tag = format!("obl{}", std::process::id());
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        assert!(!left.into_iter().any(|of| of.file_name().to_string_lossy().starts_with(&tag)));
        let (a, b) = net.nodes.split_at_mut(1);
        let (from, to) = (a[0].mesh[1].as_mut().unwrap(), b[0].mesh[0].as_mut().unwrap());
        from.queue.transmit.send(&[7; 60]).unwrap();
        from.queue.transmit.flush().unwrap();
        wait([&*to].into_iter(), Duration::from_secs(20));
        assert_eq!(to.queue.receive.receive().unwrap()[..], [&[7; 60][..]]);
    }
}
