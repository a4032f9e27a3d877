//! Ports and their settings.
//!
//! OpenFlow 1.3 and later have no bit for "does not flood"; it keeps what the configuration said.

use overbank_openflow::{
    Name, Port, PortConfig as OfConfig, PortMod, PortModFailed, PortReason as OfReason, PortSpeeds,
    PortState, PortStatus, multipart::PortStats as OfStats,
};

use super::flow::ms;
use crate::rules::{OfPort, PortConfig, PortReason, PortStats};

/// Returns a port as descriptions and port-status messages show it. One that a controller took down
/// has no link towards controllers, whatever its interface has, as in Open vSwitch.
pub fn desc(port: &OfPort) -> Port {
    let passes = port.desc.link_up && !port.config.down;
    let state = if passes { PortState::LIVE } else { PortState::LINK_DOWN };
    Port {
        number: port.desc.number,
        hw_addr: port.desc.mac,
        name: Name::new(&port.desc.name),
        config: config(&port.config),
        state,
        speeds: speeds(port.desc.speed_mbps),
    }
}

/// Returns the speed of an interface, if known.
fn speeds(mbps: u32) -> PortSpeeds {
    // OFPPF_*: the full-duplex rates that have a bit, and "other".
    let curr = match mbps {
        0 => 0,
        10 => 1 << 1,
        100 => 1 << 3,
        1_000 => 1 << 5,
        10_000 => 1 << 6,
        40_000 => 1 << 7,
        100_000 => 1 << 8,
        1_000_000 => 1 << 9,
        _ => 1 << 10,
    };
    PortSpeeds { curr, curr_speed_kbps: mbps.saturating_mul(1000), ..PortSpeeds::default() }
}

/// Returns the bits of a setting.
pub fn config(config: &PortConfig) -> OfConfig {
    let bit = |on: bool, bit: OfConfig| if on { bit.0 } else { 0 };
    OfConfig(
        bit(config.down, OfConfig::PORT_DOWN)
            | bit(config.no_receive, OfConfig::NO_RECV)
            | bit(config.no_forward, OfConfig::NO_FWD)
            | bit(config.no_packet_in, OfConfig::NO_PACKET_IN),
    )
}

/// Applies a port-mod to the setting `now` of a port with this address.
///
/// # Errors
/// `BadHwAddr`, `BadConfig` for bits that are not known, `BadAdvertise` since nothing is
/// advertised.
pub fn changed(
    mac: [u8; 6],
    now: PortConfig,
    change: &PortMod,
) -> Result<PortConfig, PortModFailed> {
    if change.hw_addr != mac {
        return Err(PortModFailed::BadHwAddr);
    }
    if change.mask.0 & !OfConfig::KNOWN.0 != 0 {
        return Err(PortModFailed::BadConfig);
    }
    if change.advertise != 0 {
        return Err(PortModFailed::BadAdvertise);
    }
    let bit = |bit: OfConfig, was: bool| {
        if change.mask.contains(bit) { change.config.contains(bit) } else { was }
    };
    Ok(PortConfig {
        down: bit(OfConfig::PORT_DOWN, now.down),
        no_receive: bit(OfConfig::NO_RECV, now.no_receive),
        no_forward: bit(OfConfig::NO_FWD, now.no_forward),
        no_packet_in: bit(OfConfig::NO_PACKET_IN, now.no_packet_in),
        no_flood: now.no_flood,
    })
}

/// Returns the port-status message of a change.
pub fn status(reason: PortReason, port: &OfPort) -> PortStatus {
    let reason = match reason {
        PortReason::Add => OfReason::Add,
        PortReason::Delete => OfReason::Delete,
        PortReason::Modify => OfReason::Modify,
    };
    PortStatus { reason, port: desc(port) }
}

/// Counters of a port.
pub fn stats(port: &PortStats) -> OfStats {
    OfStats {
        port: port.number,
        rx_packets: port.received,
        tx_packets: port.sent,
        rx_bytes: port.received_bytes,
        tx_bytes: port.sent_bytes,
        rx_dropped: port.received_missed,
        tx_dropped: port.not_sent,
        rx_errors: port.received_errors,
        tx_errors: 0,
        rx_frame_err: 0,
        rx_over_err: 0,
        rx_crc_err: 0,
        collisions: 0,
        age: ms(port.age_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_runtime::PortDesc;

    fn port() -> OfPort {
        let desc = PortDesc {
            number: 3,
            name: "veth-with-a-long-name".to_owned(),
            mac: [2, 0, 0, 0, 0, 3],
            mtu: 1500,
            link_up: true,
            speed_mbps: 10_000,
            detail: String::new(),
        };
        OfPort { desc, config: PortConfig { no_flood: true, ..PortConfig::default() } }
    }

    fn change(config: OfConfig, mask: OfConfig) -> PortMod {
        PortMod { port: 3, hw_addr: port().desc.mac, config, mask, advertise: 0 }
    }

    fn changed_of(port: &OfPort, change: &PortMod) -> Result<PortConfig, PortModFailed> {
        changed(port.desc.mac, port.config, change)
    }

    #[test]
    fn a_port_mod_changes_the_bits_of_its_mask() {
        let all = OfConfig::KNOWN;
        let set = changed_of(&port(), &change(all, all)).expect("known bits");
        assert_eq!(config(&set), all);
        assert!(set.down && set.no_receive && set.no_forward && set.no_packet_in && set.no_flood);
        let mut port = port();
        port.config = set;
        let set = changed_of(&port, &change(OfConfig(0), OfConfig::NO_FWD)).expect("known bits");
        assert!(set.down && set.no_receive && !set.no_forward && set.no_packet_in);
    }

    #[test]
    fn a_port_mod_is_checked() {
        let mut other = change(OfConfig(0), OfConfig(0));
        other.hw_addr[5] = 9;
        assert_eq!(changed_of(&port(), &other), Err(PortModFailed::BadHwAddr));
        let unknown = change(OfConfig(0), OfConfig(1 << 20));
        assert_eq!(changed_of(&port(), &unknown), Err(PortModFailed::BadConfig));
        let advertise = PortMod { advertise: 1, ..change(OfConfig(0), OfConfig(0)) };
        assert_eq!(changed_of(&port(), &advertise), Err(PortModFailed::BadAdvertise));
    }

    #[test]
    fn a_port_without_link_reports_it() {
        let up = desc(&port());
        assert_eq!(up.name.to_string(), "veth-with-a-lon");
        assert!(up.state.contains(PortState::LIVE) && !up.state.contains(PortState::LINK_DOWN));
        let mut port = port();
        port.desc.link_up = false;
        let down = desc(&port);
        assert_eq!(down.state, PortState::LINK_DOWN);
    }

    #[test]
    fn a_port_that_was_taken_down_is_not_live() {
        let mut port = port();
        port.config.down = true;
        assert_eq!(desc(&port).state, PortState::LINK_DOWN);
        port.config = PortConfig::default();
        assert_eq!(desc(&port).state, PortState::LIVE);
    }

    #[test]
    fn the_speed_is_the_interface_s() {
        let mut port = port();
        let speeds = |port: &OfPort| {
            let speeds = desc(port).speeds;
            (speeds.curr, speeds.curr_speed_kbps, speeds.max_speed_kbps)
        };
        assert_eq!(speeds(&port), (1 << 6, 10_000_000, 0));
        port.desc.speed_mbps = 25_000;
        assert_eq!(speeds(&port), (1 << 10, 25_000_000, 0));
        port.desc.speed_mbps = 0;
        assert_eq!(speeds(&port), (0, 0, 0));
    }
}
