//! A session: one tunnel of one terminal, and the addresses that it leads to.
//!
//! ```text
//!   uplink:    (N3 address, TEID)      ─▶ session ─▶ source must be its address ─▶ N6
//!   downlink:  IPv4, or IPv6 /64       ─▶ session ─▶ peer, peer's TEID, QFI     ─▶ N3
//! ```
//!
//! A [`Key`] is what packets are looked up by. No two sessions share a key.

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bounds of a rate, in bits a second.
pub const RATE_MIN: u64 = 1_000;
pub const RATE_MAX: u64 = 1_000_000_000_000;
/// Largest QoS flow identifier.
pub const QFI_MAX: u8 = 63;

/// The first 64 bits of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix64(pub u64);

impl Prefix64 {
    /// Returns the prefix of an address.
    #[inline]
    pub const fn of(address: Ipv6Addr) -> Prefix64 {
        Prefix64((address.to_bits() >> 64) as u64)
    }

    /// Returns its first address.
    pub const fn address(self) -> Ipv6Addr {
        Ipv6Addr::from_bits((self.0 as u128) << 64)
    }
}

impl fmt::Display for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/64", self.address())
    }
}

impl fmt::Debug for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Prefix64 {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix64 {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let address = text.strip_suffix("/64").and_then(|address| address.parse().ok());
        address.map(Prefix64::of).ok_or_else(|| D::Error::custom("no IPv6 prefix of 64 bits"))
    }
}

overbank_declare::choices! {
    /// Directions in which packets pass.
    pub enum Gate: "GATE" {
        Open = "open", "both directions";
        Uplink = "uplink", "uplink only";
        Downlink = "downlink", "downlink only";
        Closed = "closed", "neither direction";
    }
}

impl Gate {
    /// Returns the gate that is open in these directions.
    pub const fn of(uplink: bool, downlink: bool) -> Gate {
        match (uplink, downlink) {
            (true, true) => Gate::Open,
            (true, false) => Gate::Uplink,
            (false, true) => Gate::Downlink,
            (false, false) => Gate::Closed,
        }
    }

    pub const fn uplink(self) -> bool {
        matches!(self, Gate::Open | Gate::Uplink)
    }

    pub const fn downlink(self) -> bool {
        matches!(self, Gate::Open | Gate::Downlink)
    }
}

impl Serialize for Gate {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// A session. [`Session::check`] lists what must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Identity; not 0. With PFCP, the gateway's SEID.
    pub id: u64,
    /// Our end of the tunnel: an N3 address and its TEID, not 0.
    pub n3: IpAddr,
    pub teid: u32,
    /// The other end, of the same family, and its TEID, not 0.
    pub peer: IpAddr,
    pub peer_teid: u32,
    /// QoS flow of downlink packets; `None`: they have no PDU Session Container.
    pub qfi: Option<u8>,
    /// The terminal's addresses: at least one.
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Prefix64>,
    pub gate: Gate,
    /// Bits a second of inner packets; `None`: unlimited.
    pub rate_up: Option<u64>,
    pub rate_down: Option<u64>,
}

impl Session {
    /// Returns the keys that lead to the session, at most three.
    pub fn keys(&self) -> impl Iterator<Item = Key> + Clone + use<> {
        let tunnel = Some(Key::Tunnel(self.n3, self.teid));
        let keys = [tunnel, self.ipv4.map(Key::Ipv4), self.ipv6.map(Key::Ipv6)];
        keys.into_iter().flatten()
    }

    /// Checks what does not depend on the gateway's addresses.
    ///
    /// # Errors
    /// Returns the field at fault and what would be right.
    pub fn check(&self) -> Result<(), Invalid> {
        let wrong = |field, must| Err(Invalid { field, must });
        if self.id == 0 {
            return wrong("id", "must be a number from 1 to 18446744073709551615");
        }
        if self.teid == 0 {
            return wrong("teid", "must not be 0");
        }
        if self.peer_teid == 0 {
            return wrong("peer_teid", "must not be 0");
        }
        if self.n3.is_ipv4() != self.peer.is_ipv4() {
            return wrong("peer", "must be of the same family as n3");
        }
        if !is_host(self.peer) {
            return wrong("peer", "must be the address of a host");
        }
        if self.qfi.is_some_and(|qfi| qfi > QFI_MAX) {
            return wrong("qfi", "must be a number from 0 to 63");
        }
        if self.ipv4.is_none() && self.ipv6.is_none() {
            return wrong("ipv4", "a session needs an IPv4 address or an IPv6 prefix");
        }
        for (field, rate) in [("rate_up", self.rate_up), ("rate_down", self.rate_down)] {
            if rate.is_some_and(|rate| !(RATE_MIN..=RATE_MAX).contains(&rate)) {
                return wrong(field, "must be from 1000 to 1000000000000 bits a second");
            }
        }
        Ok(())
    }
}

/// Returns whether an address can be a single other machine's.
pub fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_host4(address),
        _ => !(address.is_unspecified() || address.is_loopback() || address.is_multicast()),
    }
}

/// Returns [`is_host`]. The first byte decides, but for 0.0.0.0: 127 is loopback, from 224 on are
/// groups and what is reserved.
#[inline]
pub(crate) fn is_host4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first < 224 && first != 127 && !address.is_unspecified()
}

/// A field of a session that is wrong by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {must}")]
pub struct Invalid {
    pub field: &'static str,
    /// What would be right.
    pub must: &'static str,
}

/// What packets are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    Tunnel(IpAddr, u32),
    Ipv4(Ipv4Addr),
    Ipv6(Prefix64),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Tunnel(n3, teid) => write!(f, "TEID {teid:#x} at {n3}"),
            Key::Ipv4(address) => write!(f, "address {address}"),
            Key::Ipv6(prefix) => write!(f, "prefix {prefix}"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns session `n`: TEID `n` at 192.0.2.1, peer 198.51.100.7, 10.45.0.0/16.
    pub(crate) fn session(n: u16) -> Session {
        let [a, b] = n.to_be_bytes();
        Session {
            id: u64::from(n),
            n3: [192, 0, 2, 1].into(),
            teid: u32::from(n),
            peer: [198, 51, 100, 7].into(),
            peer_teid: 0x1000 + u32::from(n),
            qfi: Some(9),
            ipv4: Some([10, 45, a, b].into()),
            ipv6: Some(Prefix64(0x2001_0db8_0045_0000 | u64::from(n))),
            gate: Gate::Open,
            rate_up: None,
            rate_down: None,
        }
    }

    #[test]
    fn every_wrong_field_is_named() {
        assert_eq!(session(1).check(), Ok(()));
        type Change = fn(&mut Session);
        let cases: [(&str, Change); 11] = [
            ("id", |s| s.id = 0),
            ("teid", |s| s.teid = 0),
            ("peer_teid", |s| s.peer_teid = 0),
            ("peer", |s| s.peer = "2001:db8::1".parse().unwrap()),
            ("peer", |s| s.peer = [224, 0, 0, 1].into()),
            ("peer", |s| s.peer = [255; 4].into()),
            ("peer", |s| s.peer = [0; 4].into()),
            ("qfi", |s| s.qfi = Some(64)),
            ("ipv4", |s| (s.ipv4, s.ipv6) = (None, None)),
            ("rate_up", |s| s.rate_up = Some(999)),
            ("rate_down", |s| s.rate_down = Some(RATE_MAX + 1)),
        ];
        for (field, change) in cases {
            let mut wrong = session(1);
            change(&mut wrong);
            assert_eq!(wrong.check().expect_err("wrong").field, field, "{wrong:?}");
        }
    }

    #[test]
    fn keys_are_those_given() {
        let keys: Vec<String> = session(7).keys().map(|key| key.to_string()).collect();
        let expected = ["TEID 0x7 at 192.0.2.1", "address 10.45.0.7", "prefix 2001:db8:45:7::/64"];
        assert_eq!(keys, expected);
        assert_eq!(Session { ipv4: None, ..session(7) }.keys().count(), 2);
    }
}
