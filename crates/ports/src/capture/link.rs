//! Link types: the protocol of a captured packet's first byte.

use std::fmt;

/// A link type as registered at <https://www.tcpdump.org/linktypes.html>; 16 bits in every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet without preamble; the only one that the switch accepts.
    pub const ETHERNET: LinkType = LinkType(1);
}

impl fmt::Display for LinkType {
    /// Prints the registered name of common types, and the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "loopback",
            1 => "Ethernet",
            9 => "PPP",
            12 | 14 | 101 => "raw IP",
            105 => "802.11",
            108 => "OpenBSD loopback",
            113 => "Linux cooked v1",
            127 => "802.11 radiotap",
            189 | 220 => "USB",
            201 | 187 => "Bluetooth HCI",
            228 => "raw IPv4",
            229 => "raw IPv6",
            239 => "NFLOG",
            276 => "Linux cooked v2",
            _ => return write!(f, "link type {}", self.0),
        };
        write!(f, "{name} ({})", self.0)
    }
}
