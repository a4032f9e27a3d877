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

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::super::nodes::{LABELLED, Role};
use crate::prelude::LabError;
use overbank_ports::queue::{Port, Queue};
use overbank_ports::{PortSpec, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

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
}

/// An open port of one queue.
pub(super) struct Open {
    pub(super) queue: Queue,
    /// Modes that were granted.
    pub(super) detail: String,
    _port: Box<dyn Port>,
}

impl Open {
    fn new(kind: Kind, interface: &str) -> Result<Open, LabError> {
        let spec: PortSpec = kind.port(interface).parse().map_err(LabError::failed)?;
        let mut port = open(&spec, 1).map_err(LabError::failed)?;
        let queue = port.take_queues().pop();
        let queue = queue.ok_or_else(|| LabError::Failed(format!("{interface}: no queue")))?;
        let detail = port.info().detail;
        Ok(Open { queue, detail, _port: port })
    }
}

/// Waits until one of the ports has a frame.
pub(super) fn wait<'a>(ports: impl Iterator<Item = &'a Open>, most: Duration) {
    let fds: Vec<BorrowedFd> = ports.filter_map(|port| port.queue.receive.wait_fd()).collect();
    let mut fds: Vec<PollFd> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    // A signal or a refusal only wakes the caller early.
    let _ = poll(&mut fds, Some(&most));
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

/// Makes interfaces without IPv6, which send nothing by themselves, and a bridge without netfilter,
/// which drops packets whose checksum is left out.
const QUIET: &str = "cd /proc/sys/net; for f in all default; do echo 1 >ipv6/conf/$f/disable_ipv6; \
     done 2>/dev/null; echo 0 2>/dev/null >bridge/bridge-nf-call-iptables || true";

/// Namespaces by name: the hub's and each node's. The names are removed on drop.
pub(super) struct Names {
    tag: String,
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
        let outside = self.inside(None, || {
            (0..self.nodes).map(|node| Open::new(kind, &format!("x{node}"))).collect()
        })?;
        let ports = (0..self.nodes).map(|node| {
            self.inside(Some(node), || {
                let mesh = (0..self.nodes)
                    .map(|to| (to != node).then(|| Open::new(kind, &format!("m{to}"))).transpose());
                Ok(NodePorts {
                    ext: Open::new(kind, "ext")?,
                    switch: Open::new(kind, "fab")?,
                    mesh: mesh.collect::<Result<_, _>>()?,
                })
            })
        });
        Ok(Net { outside, nodes: ports.collect::<Result<_, _>>()? })
    }

    fn new(nodes: usize) -> Result<Names, LabError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let names = Names { tag: format!("obl{}x{number}", std::process::id()), nodes };
        let add = |name: String| {
            sh(&format!("ip netns add {name} && ip netns exec {name} sh -c '{QUIET}'"))
        };
        names.all().try_for_each(add).map_err(|why| {
            let need = "needs network namespaces: run as root on Linux with iproute2";
            LabError::Failed(format!("{need} ({why})"))
        })?;
        Ok(names)
    }

    /// The hub's, or a node's.
    fn name(&self, node: Option<usize>) -> String {
        node.map_or(self.tag.clone(), |node| format!("{}n{node}", self.tag))
    }

    fn all(&self) -> impl Iterator<Item = String> {
        [None].into_iter().chain((0..self.nodes).map(Some)).map(|node| self.name(node))
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

    /// Runs `work` in a namespace, on a thread of it.
    fn inside<T: Send>(
        &self,
        node: Option<usize>,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let path = format!("/run/netns/{}", self.name(node));
        let enter = || {
            let file = File::open(&path).map_err(|e| LabError::Failed(format!("{path}: {e}")))?;
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), network)
                .map_err(|e| LabError::Failed(format!("{path}: setns: {e}")))
        };
        thread::scope(|scope| {
            let thread = scope.spawn(|| enter().and_then(|()| work()));
            thread.join().map_err(|_| LabError::Failed(format!("{path}: a thread panicked")))?
        })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in self.all() {
            // It may not have been made.
            let _ = sh(&format!("ip netns del {name}"));
        }
    }
}

/// Runs a command; its error is what it said last.
fn sh(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", command]).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = || said.lines().last().unwrap_or("no reason given").to_owned();
    if output.status.success() { Ok(()) } else { Err(last()) }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_refusal_has_the_last_line_of_the_command() {
        assert_eq!(sh("echo one >&2; echo two >&2; false"), Err("two".to_owned()));
        assert_eq!((sh("false"), sh("true")), (Err("no reason given".to_owned()), Ok(())));
    }
}
