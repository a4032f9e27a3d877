//! The hosts and the switch between them: three network namespaces and two veth pairs.
//!
//! ```text
//!   namespace a        namespace s            namespace b
//!   eth0 ═════veth═════ va  (switch)  vb ═════veth═════ eth0
//! ```
//!
//! Names contain the process id. Interfaces have no addresses, so that only our frames pass. All is
//! removed on drop, also after a panic. A killed process leaves namespaces behind; `ip netns del`
//! removes them with their interfaces.

use crate::machine::enter;
use crate::vswitch::run;
use anyhow::{Context, Result, anyhow};
use overbank_kit::machine::keep_on;
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The switch's interfaces, in its namespace.
pub const NEAR: [&str; 2] = ["va", "vb"];
/// The hosts' interface, in their namespaces.
pub const FAR: &str = "eth0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The generator's host.
    A,
    /// The sink's host.
    B,
    /// Between them.
    Switch,
}

const SPACES: [Space; 3] = [Space::A, Space::B, Space::Switch];

/// The namespaces and their interfaces.
pub struct Net {
    tag: String,
}

impl Net {
    /// Joins hosts to the switch's namespace by interfaces of `queues` queues.
    ///
    /// # Errors
    /// Capabilities, `ip` or the kernel's veth are missing.
    pub fn new(queues: usize) -> Result<Net> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let net = Net { tag: format!("obl{}x{number}", std::process::id()) };
        for space in SPACES {
            ip(&format!("netns add {}", net.name(space)))?;
        }
        let many = format!("numtxqueues {queues} numrxqueues {queues}");
        for (near, host) in NEAR.into_iter().zip([Space::A, Space::B]) {
            let far = net.name(host);
            net.ip(
                Space::Switch,
                &format!("link add {near} {many} type veth peer name {FAR} netns {far} {many}"),
            )?;
            for (space, name) in [(Space::Switch, near), (host, FAR)] {
                // Without a link-local address the kernel sends nothing.
                net.ip(space, &format!("link set {name} addrgenmode none"))?;
                net.ip(space, &format!("link set {name} up"))?;
            }
        }
        Ok(net)
    }

    fn name(&self, space: Space) -> String {
        let letter = match space {
            Space::A => 'a',
            Space::B => 'b',
            Space::Switch => 's',
        };
        format!("{}{letter}", self.tag)
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, space: Space, arguments: &str) -> Result<()> {
        ip(&format!("-n {} {arguments}", self.name(space)))
    }

    /// Opens the namespace as a file.
    pub fn file(&self, space: Space) -> Result<File> {
        let path = format!("/run/netns/{}", self.name(space));
        File::open(&path).context(path)
    }

    /// Runs work in a namespace and on these cores; threads that it starts are there too.
    pub fn inside<T: Send>(
        &self,
        space: Space,
        cores: &[usize],
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let file = self.file(space)?;
        let there = move || {
            enter(Some(&file))?;
            keep_on(cores)?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(there).join())
            .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in SPACES {
            // One that was not created cannot be removed; interfaces go with their namespace.
            let _ = ip(&format!("netns del {}", self.name(space)));
        }
    }
}

fn ip(arguments: &str) -> Result<()> {
    run(Command::new("ip").args(arguments.split_whitespace())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_go_also_when_something_breaks() {
        if !crate::machine::is_root() {
            println!("skipped: needs root");
            return;
        }
        let net = Net::new(2).expect("root may");
        let names = SPACES.map(|space| net.name(space));
        let there = || names.iter().filter(|name| File::open(format!("/run/netns/{name}")).is_ok());
        assert_eq!(there().count(), 3);
        net.ip(Space::A, "link show eth0").expect("the hosts have interfaces");
        assert!(net.ip(Space::A, "link show va").is_err());
        let cores = overbank_kit::machine::allowed_cores();
        let broken = net.inside(Space::B, &cores, || -> Result<()> { panic!("on purpose") });
        assert!(broken.is_err());
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _net = net;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        assert_eq!(there().count(), 0);
    }
}
