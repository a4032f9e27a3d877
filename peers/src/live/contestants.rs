//! The switches that take turns on the same interfaces.

use super::net::{NEAR, Net, Space};
use super::ovs::{Ovs, PortType};
use anyhow::{Context, Result, anyhow, bail};
use overbank_kit::recommended::recommended;
use overbank_kit::traffic::{OUTPUT_PORTS, Traffic};
use overbank_ofctl::RuleControl;
use overbank_ofctl::{Setup, Switch};
use overbank_runtime::status::StatusOf;
use overbank_runtime::{ConfiguredPort, Options};
use overbank_switch::datapath::CacheConfig;
use overbank_switch::parse::parse_rules;

/// A switch to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// Overbank, on ports of that kind.
    Overbank {
        /// As in `--port 1=KIND:…`.
        port: &'static str,
        /// What follows the interface's name.
        options: &'static str,
        /// `--poll busy`.
        busy: bool,
    },
    /// Open vSwitch's userspace datapath.
    Ovs(PortType),
    Bridge,
}

/// AF_XDP with default options.
pub const AFXDP: Contestant = Contestant::Overbank { port: "afxdp", options: "", busy: false };
/// AF_XDP, never asleep, as the PMD threads of Open vSwitch are.
pub const AFXDP_BUSY: Contestant = Contestant::Overbank { port: "afxdp", options: "", busy: true };
/// AF_PACKET with default options.
pub const AFPACKET: Contestant =
    Contestant::Overbank { port: "afpacket", options: "", busy: false };
/// AF_PACKET with the ring for throughput.
pub const AFPACKET_V3: Contestant =
    Contestant::Overbank { port: "afpacket", options: ",ring=v3", busy: false };
pub const OVS_AFXDP: Contestant = Contestant::Ovs(PortType::AfXdp);
pub const OVS_SYSTEM: Contestant = Contestant::Ovs(PortType::System);

/// All, in the order of the tables.
pub const ALL: [Contestant; 7] =
    [AFXDP, AFXDP_BUSY, OVS_AFXDP, AFPACKET, AFPACKET_V3, OVS_SYSTEM, Contestant::Bridge];

impl Contestant {
    /// Returns the name in tables.
    pub fn name(self) -> String {
        match self {
            Contestant::Overbank { port, options, busy } => {
                let busy = if busy { ", busy" } else { "" };
                format!("overbank {port}{}{busy}", options.replace(',', ", "))
            }
            Contestant::Ovs(PortType::AfXdp) => "Open vSwitch afxdp".to_owned(),
            Contestant::Ovs(PortType::System) => "Open vSwitch AF_PACKET".to_owned(),
            Contestant::Bridge => "Linux bridge".to_owned(),
        }
    }

    pub fn is_overbank(self) -> bool {
        matches!(self, Contestant::Overbank { .. })
    }
}

/// Returns the rules of the built-in traffic, which all send to port 2 here.
pub fn rules() -> String {
    let rules = Traffic::default().rules();
    OUTPUT_PORTS
        .iter()
        .fold(rules, |rules, port| rules.replace(&format!("output:{port}\n"), "output:2\n"))
}

/// Returns Overbank with the command's defaults, on these ports and cores.
pub fn overbank(
    ports: Vec<ConfiguredPort>,
    cores: &[usize],
    workers: usize,
    busy_poll: bool,
) -> Result<Switch> {
    let setup = Setup {
        run: Options { workers, cores: cores.to_vec(), busy_poll, ..Options::default() },
        cache: Some(CacheConfig { design: recommended(), entries: 1 << 18, isa: None }),
        rules: parse_rules(&rules()).map_err(|error| anyhow!("rules: {error}"))?,
        ..Setup::default()
    };
    Ok(overbank_ofctl::start(setup, ports)?)
}

/// A switch that forwards between the interfaces. Dropping it releases them.
pub struct Running<'a> {
    switch: Option<Switch>,
    _others: Others<'a>,
}

/// What to undo on drop.
enum Others<'a> {
    None,
    /// Open vSwitch with the interfaces as ports.
    Ovs(&'a Ovs),
    /// A bridge in that namespace.
    Bridge(&'a Net),
}

impl Drop for Others<'_> {
    fn drop(&mut self) {
        // What cannot be undone here goes with the namespace.
        match self {
            Others::None => {}
            Others::Ovs(ovs) => drop(ovs.detach()),
            Others::Bridge(net) => drop(net.ip(Space::Switch, "link del bridge0")),
        }
    }
}

impl<'a> Running<'a> {
    /// Gives the interfaces to a switch.
    ///
    /// # Errors
    /// Something is missing.
    pub fn attach(
        contestant: Contestant,
        net: &'a Net,
        ovs: Option<&'a Ovs>,
        cores: &[usize],
        workers: usize,
    ) -> Result<Running<'a>> {
        match contestant {
            Contestant::Bridge => {
                // Removed on drop even if it was only partly created.
                let others = Others::Bridge(net);
                net.ip(Space::Switch, "link add bridge0 type bridge mcast_snooping 0")?;
                for near in NEAR {
                    net.ip(Space::Switch, &format!("link set {near} master bridge0"))?;
                }
                net.ip(Space::Switch, "link set bridge0 addrgenmode none")?;
                net.ip(Space::Switch, "link set bridge0 up")?;
                Ok(Running { switch: None, _others: others })
            }
            Contestant::Ovs(kind) => {
                let ovs = ovs.context("Open vSwitch does not run")?;
                let others = Others::Ovs(ovs);
                ovs.attach(kind, workers)?;
                Ok(Running { switch: None, _others: others })
            }
            Contestant::Overbank { port, options, busy } => {
                // Its other threads run on the cores of its workers.
                let switch = net.inside(Space::Switch, cores, || {
                    let ports = (1..).zip(NEAR).map(|(number, near)| {
                        let spec = format!("{port}:{near}{options}");
                        let parsed = spec.parse()?;
                        let open = ConfiguredPort::open(number, parsed, workers);
                        match open? {
                            ConfiguredPort { port: None, .. } => {
                                bail!("{spec}: the interface is down")
                            }
                            open => Ok(open),
                        }
                    });
                    overbank(ports.collect::<Result<_, _>>()?, cores, workers, busy)
                })?;
                Ok(Running { switch: Some(switch), _others: Others::None })
            }
        }
    }

    /// Returns Overbank's counters so far.
    pub fn status(&self) -> Option<StatusOf<RuleControl>> {
        self.switch.as_ref().map(Switch::status)
    }

    /// Releases the interfaces; returns Overbank's final counters.
    pub fn detach(self) -> Option<StatusOf<RuleControl>> {
        self.switch.map(Switch::stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_send_to_port_2_and_names_differ() {
        let rules = rules();
        assert_eq!(rules.lines().count(), 20);
        assert!(rules.lines().all(|rule| rule.ends_with("actions=output:2")), "{rules}");
        let names: std::collections::BTreeSet<String> = ALL.map(Contestant::name).into();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(AFPACKET_V3.name(), "overbank afpacket, ring=v3");
    }
}
