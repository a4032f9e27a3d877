//! Open vSwitch with its userspace datapath (`datapath_type=netdev`) in the switch's network
//! namespace. Ports are added for a turn and removed after it, so that switches can take turns on
//! the same interfaces.

use super::net::{NEAR, Net, Space};
use crate::vswitch::{Home, Vswitch, run};
use anyhow::{Context, Result};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// `AF_PACKET` sockets, polled by the main thread.
    System,
    /// `AF_XDP` sockets, polled without pause by a PMD thread on each core of the switch.
    AfXdp,
}

/// A running Open vSwitch with one bridge and rules.
pub struct Ovs {
    vswitch: Vswitch,
    /// Cores of the PMD threads.
    cores: Vec<usize>,
}

impl Ovs {
    /// Starts it in the switch's namespace and on these cores.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(net: &Net, cores: &[usize], rules: &str) -> Result<Ovs> {
        let home = Home { namespace: Some(net.file(Space::Switch)?), cores: cores.to_vec() };
        let mut vswitch = Vswitch::start_database("live", home)?;
        vswitch.start_switch(Command::new("ovs-vswitchd"))?;
        vswitch.add_bridge()?;
        vswitch.add_rules(rules)?;
        Ok(Ovs { vswitch, cores: cores.to_vec() })
    }

    /// Takes the switch's interfaces, as ports 1 and 2 of that kind.
    ///
    /// # Errors
    /// It cannot, for example because it was built without that kind.
    pub fn attach(&self, kind: PortType, queues: usize) -> Result<()> {
        let (name, options) = match kind {
            PortType::System => ("system", String::new()),
            PortType::AfXdp => ("afxdp", format!("options:n_rxq={queues}")),
        };
        let mask = self.cores.iter().fold(0u128, |mask, core| mask | 1 << (core % 128));
        let mut text = format!("set Open_vSwitch . other_config:pmd-cpu-mask={mask:#x}");
        for (number, near) in (1..).zip(NEAR) {
            text += &format!(
                " -- add-port br0 {near} -- set interface {near} type={name} \
                 ofport_request={number} {options}"
            );
        }
        self.vswitch.vsctl(&text)?;
        self.vswitch.check_ports().with_context(|| format!("Open vSwitch, {name}"))
    }

    /// Releases the interfaces.
    pub fn detach(&self) -> Result<()> {
        let [a, b] = NEAR;
        self.vswitch
            .vsctl(&format!("--if-exists del-port {a} -- --if-exists del-port {b}"))
            .map(drop)
    }

    /// Returns its version.
    pub fn version() -> Result<String> {
        let text = run(Command::new("ovs-vswitchd").arg("--version"))?;
        let first = text.lines().next().unwrap_or_default();
        Ok(first.rsplit(' ').next().unwrap_or_default().to_owned())
    }
}
