//! Open vSwitch as a gateway: a `gtpu` port in its userspace datapath, one rule for each session.
//!
//! ```text
//!   p1 (N3) ── br-phy ── LOCAL, 192.0.2.1 ══ gtpu0 ── br0 ── p2 (N6)
//!
//!   uplink     tun_id=N               ─▶ MAC addresses, TTL − 1, output:p2
//!   downlink   nw_dst=10.0.0.0 + N    ─▶ TTL − 1, tun_id N, tun_dst, output:gtpu0
//! ```
//!
//! The packets of one direction come from the plugin, the ports drop what they get.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use super::traffic::{Direction, GATEWAY_MAC, HOST_MAC, N3, PEER, Traffic};
use crate::machine;
use crate::ovs::switch::{Build, SOURCE, Switch};
use crate::vswitch::{Vswitch, run};

/// The port that frames leave by.
const TARGET: &str = "net_null2";
/// Flows of the datapath that are allowed: Open vSwitch's own limit is 200,000.
const FLOWS_MAX: u32 = 4_000_000;
/// Time between two looks at the flows, the shortest that it takes: with each its limit, which
/// starts at 10,000, grows by 1,000, as long as a look takes less than a second.
const REVALIDATION_MS: u32 = 100;

fn mac([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn ip([a, b, c, d]: [u8; 4]) -> String {
    format!("{a}.{b}.{c}.{d}")
}

/// Starts a switch with all sessions of the traffic; packets flow when this returns.
pub fn start(build: &Build, flowgen: &Path, traffic: &Traffic) -> Result<Switch> {
    let (sessions, out) = (traffic.path("sessions"), traffic.path("out"));
    Switch::launch(build, flowgen, &[(&sessions, "sessions")], |vswitch| {
        std::fs::hard_link(&out, vswitch.file(&format!("{TARGET}.out")))?;
        set_up(vswitch, traffic)
    })
}

fn set_up(vswitch: &Vswitch, traffic: &Traffic) -> Result<()> {
    let gateway = mac(GATEWAY_MAC);
    vswitch.vsctl(&format!(
        "set Open_vSwitch . other_config:flow-limit={FLOWS_MAX} \
         other_config:max-revalidator={REVALIDATION_MS} -- \
         add-br br-phy -- set bridge br-phy datapath_type=netdev fail-mode=secure \
         other_config:hwaddr={gateway}"
    ))?;
    vswitch.add_bridge()?;
    inside(vswitch, &format!("addr add {}/24 dev br-phy", ip(N3)))?;
    // Without a link-local address the kernel sends nothing.
    inside(vswitch, "link set br-phy addrgenmode none")?;
    inside(vswitch, "link set br-phy up")?;
    vswitch.vsctl(
        "add-port br0 gtpu0 -- set interface gtpu0 type=gtpu ofport_request=10 options:key=flow \
         options:remote_ip=flow options:local_ip=flow",
    )?;
    let source = format!("{SOURCE},size=8");
    let target = format!("{TARGET},no-rx=1");
    let (n3, n6) = match traffic.direction {
        Direction::Uplink => (&source, &target),
        Direction::Downlink => (&target, &source),
    };
    let port = |bridge: &str, number: u32, device: &str| {
        vswitch.vsctl(&format!(
            "add-port {bridge} p{number} -- set interface p{number} type=dpdk \
             ofport_request={number} options:dpdk-devargs={device}"
        ))
    };
    vswitch
        .add_rules_to("br-phy", "in_port=1,actions=LOCAL\nin_port=LOCAL,ip,actions=output:1\n")?;
    vswitch.add_rules(&rules(traffic))?;
    // Rules first, and the source last: no packet meets an empty table.
    let ports = [("br-phy", 1, n3), ("br0", 2, n6)];
    let (sinks, sources): (Vec<_>, Vec<_>) = ports.into_iter().partition(|p| *p.2 == target);
    for (bridge, number, device) in sinks {
        port(bridge, number, device)?;
    }
    // The neighbour, which no ARP finds here.
    vswitch.appctl("tnl/arp/set", &["br-phy", &ip(PEER), &mac(HOST_MAC)])?;
    for (bridge, number, device) in sources {
        port(bridge, number, device)?;
    }
    vswitch.check_ports()
}

fn rules(traffic: &Traffic) -> String {
    let (to, from, peer) = (mac(HOST_MAC), mac(GATEWAY_MAC), ip(PEER));
    let rule = |number: u32| match traffic.direction {
        Direction::Uplink => format!(
            "ip,in_port=10,tun_id={number},actions=mod_dl_dst:{to},mod_dl_src:{from},dec_ttl,\
             output:2\n"
        ),
        Direction::Downlink => {
            let address = ip((0x0a00_0000 + number).to_be_bytes());
            format!(
                "ip,in_port=2,nw_dst={address},actions=dec_ttl,set_field:{number}->tun_id,\
                 set_field:{peer}->tun_dst,set_field:{}->tun_src,output:10\n",
                ip(N3)
            )
        }
    };
    (1..=traffic.sessions).map(rule).collect()
}

/// Runs `ip` in the switch's namespace.
fn inside(vswitch: &Vswitch, arguments: &str) -> Result<()> {
    let id = vswitch.id().context("no switch")?;
    let namespace = File::open(format!("/proc/{id}/ns/net"))?;
    let there = || {
        machine::enter(Some(&namespace))?;
        run(Command::new("ip").args(arguments.split_whitespace())).map(drop)
    };
    std::thread::scope(|scope| scope.spawn(there).join())
        .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
}

/// Returns what the switch says about its flows: how many there are, and its limit.
pub fn flows(switch: &Switch) -> Result<(u64, u64)> {
    let text = switch.vswitch.appctl("upcall/show", &[])?;
    read_flows(&text).with_context(|| text.clone())
}

fn read_flows(text: &str) -> Option<(u64, u64)> {
    let number = |name: &str| {
        let rest = text.split_once(name)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    Some((number("(current")?, number("(limit")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read() {
        let text = "netdev@ovs-netdev:\n  flows         : (current 1000) (avg 900) (max 1000) \
                    (limit 200000)\n  dump duration : 1ms\n";
        assert_eq!(read_flows(text), Some((1000, 200_000)));
        assert_eq!(read_flows("flows"), None);
    }

    #[test]
    fn each_session_has_a_rule() {
        for direction in Direction::ALL {
            let traffic = Traffic::new(direction, 300, 10, 1).expect("traffic");
            let rules = rules(&traffic);
            assert_eq!(rules.lines().count(), 300);
            let last = match direction {
                Direction::Uplink => "tun_id=300,",
                Direction::Downlink => "nw_dst=10.0.1.44,",
            };
            assert!(rules.lines().next_back().is_some_and(|rule| rule.contains(last)), "{rules}");
        }
    }
}
