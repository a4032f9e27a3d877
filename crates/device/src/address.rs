//! Addresses: the device's, and those of servers.

use overbank_stations::mac_of;
use overbank_wire::netcache::frame::End;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Addresses of the device: servers send it what is for the device or its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// A unicast address that no station has.
    pub mac: [u8; 6],
    /// At least one of the two is there.
    pub ip4: Option<Ipv4Addr>,
    pub ip6: Option<Ipv6Addr>,
}

impl DeviceAddress {
    /// Returns whether this is one of its IP addresses.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.facing(ip) == Some(ip)
    }

    /// Returns the address that talks to this one: of the same family.
    pub fn facing(&self, ip: IpAddr) -> Option<IpAddr> {
        match ip {
            IpAddr::V4(_) => self.ip4.map(IpAddr::V4),
            IpAddr::V6(_) => self.ip6.map(IpAddr::V6),
        }
    }
}

/// How an address is written.
pub const SYNTAX: &str = "MAC,IP[,IP]";

impl FromStr for DeviceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceAddress, String> {
        let wrong = |what: &str| format!("{what:?}: must be {SYNTAX}, such as {EXAMPLE}");
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let mac = mac_of(first).ok_or_else(|| wrong(text))?;
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(format!("{first}: must be a unicast MAC address, not a group or zero"));
        }
        let mut address = DeviceAddress { mac, ip4: None, ip6: None };
        for part in parts {
            let ip: IpAddr = part.parse().map_err(|_| wrong(text))?;
            if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
                return Err(format!("{ip}: must be the address of a host"));
            }
            let is_second = match ip {
                IpAddr::V4(ip) => address.ip4.replace(ip).is_some(),
                IpAddr::V6(ip) => address.ip6.replace(ip).is_some(),
            };
            if is_second {
                return Err(format!("{ip}: must be one IPv4 and one IPv6 address at most"));
            }
        }
        match (address.ip4, address.ip6) {
            (None, None) => Err(wrong(text)),
            _ => Ok(address),
        }
    }
}

/// An address as an example.
pub const EXAMPLE: &str = "02:00:00:00:00:fe,10.0.0.254";

/// Where a server is. One behind another port, or with another address, is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Index of its port.
    pub port: u16,
    /// 0 without a tag.
    pub vlan: u16,
    pub end: End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let mac = [2, 0, 0, 0, 0, 254];
        let (ip4, ip6) = (Some([10, 0, 0, 254].into()), "fd00::1".parse().ok());
        for (text, wanted) in [
            (EXAMPLE, DeviceAddress { mac, ip4, ip6: None }),
            ("02:00:00:00:00:fe, fd00::1", DeviceAddress { mac, ip4: None, ip6 }),
            ("02:00:00:00:00:fe,fd00::1,10.0.0.254", DeviceAddress { mac, ip4, ip6 }),
        ] {
            assert_eq!(text.parse(), Ok(wanted));
            assert_eq!(wanted.has([10, 0, 0, 254].into()), wanted.ip4.is_some());
            assert!(!wanted.has([10, 0, 0, 1].into()) && !wanted.has(Ipv6Addr::LOCALHOST.into()));
        }
        for (text, problem) in [
            ("", "must be MAC,IP[,IP]"),
            ("02:00:00:00:00:fe", "must be MAC,IP[,IP], such as 02:"),
            ("10.0.0.254", "must be MAC,IP[,IP]"),
            ("02:00:00:00:00:fe,10.0.0", "must be MAC,IP[,IP]"),
            ("03:00:00:00:00:fe,10.0.0.1", "unicast MAC address"),
            ("02:00:00:00:00:fe,224.0.0.1", "224.0.0.1: must be the address of a host"),
            ("02:00:00:00:00:fe,10.0.0.1,10.0.0.2", "10.0.0.2: must be one IPv4"),
        ] {
            let error = text.parse::<DeviceAddress>().expect_err(text);
            assert!(error.contains(problem), "{error}");
        }
    }
}
