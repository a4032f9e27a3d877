//! Every match field of this codec: one table.
//!
//! A field has a place in the OXM space (class and number, the OpenFlow basic class where it has
//! one), often an older one in Nicira's NXM classes, a width in bits, and says whether a match may
//! mask it, whether `set_field` may write it, and which other field must come before it. Values and
//! masks are numbers in network order, right-aligned. Sources: specification 1.3.5 7.2.3, 1.4.1
//! 7.2.3, 1.5.1 7.2.3; ovs-fields(7).

use crate::version::Version;

/// OpenFlow basic class.
pub(crate) const BASIC: u16 = 0x8000;
/// NXM classes of Nicira.
const NXM0: u16 = 0x0000;
const NXM1: u16 = 0x0001;
/// Experimenter class; four bytes of experimenter follow the header.
pub(crate) const EXPERIMENTER: u16 = 0xffff;
/// No place in NXM.
const NONE: u16 = 0x7fff;

/// The condition for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prereq {
    None,
    /// A match on the ingress port.
    InPort,
    /// A VLAN tag that is present.
    Vlan,
    /// Ethernet type IPv4 or IPv6.
    Ip,
    /// Ethernet type IPv4.
    Ip4,
    /// Ethernet type IPv6.
    Ip6,
    /// Ethernet type ARP (or RARP).
    Arp,
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
    /// IP protocol 132.
    Sctp,
    /// IPv4 with protocol 1.
    Icmp4,
    /// IPv6 with protocol 58.
    Icmp6,
    /// ICMPv6 type 135 or 136.
    Nd,
    /// ICMPv6 type 135.
    NdSolicit,
    /// ICMPv6 type 136.
    NdAdvert,
    /// Ethernet type MPLS.
    Mpls,
    /// Ethernet type PBB.
    Pbb,
}

macro_rules! fields {
    ($( $(#[$doc:meta])* $id:ident $class:ident $number:literal $bits:literal $mask:literal
        $set:literal $prereq:ident $nxm_class:ident $nxm_number:literal ),+ $(,)?) => {
        /// A match field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum OxmField { $( $(#[$doc])* $id ),+ }

        impl OxmField {
            pub const ALL: &'static [OxmField] = &[ $( OxmField::$id ),+ ];

            /// Returns class and number.
            pub const fn place(self) -> (u16, u8) {
                match self { $( OxmField::$id => ($class, $number) ),+ }
            }
            /// Returns the width in bits.
            pub const fn bits(self) -> u32 {
                match self { $( OxmField::$id => $bits ),+ }
            }
            /// Returns whether a match may mask the field.
            pub const fn maskable(self) -> bool {
                match self { $( OxmField::$id => $mask ),+ }
            }
            /// Returns whether `set_field` may write the field.
            pub const fn settable(self) -> bool {
                match self { $( OxmField::$id => $set ),+ }
            }
            /// Returns the field's prerequisite.
            pub const fn prereq(self) -> Prereq {
                match self { $( OxmField::$id => Prereq::$prereq ),+ }
            }
            /// Returns class and number in NXM, if any.
            pub(crate) const fn nxm_place(self) -> Option<(u16, u8)> {
                let place = match self { $( OxmField::$id => ($nxm_class, $nxm_number) ),+ };
                if place.0 == NONE { None } else { Some(place) }
            }
            /// Returns the field at an OXM or NXM place.
            pub fn at(class: u16, number: u8) -> Option<OxmField> {
                if class == NONE {
                    return None;
                }
                $( if matches!((class, number), ($class, $number) | ($nxm_class, $nxm_number)) {
                    return Some(OxmField::$id);
                } )+
                None
            }
        }
    };
}

fields! {
    // field      place     bits mask  set   prerequisite and place in NXM
    /// Ingress port.
    InPort BASIC 0 32 false false None NONE 0,
    /// Physical ingress port, below a logical one.
    InPhyPort BASIC 1 32 false false InPort NONE 0,
    /// Metadata that tables hand on.
    Metadata BASIC 2 64 true false None NONE 0,
    /// Ethernet destination.
    EthDst BASIC 3 48 true true None NXM0 1,
    /// Ethernet source.
    EthSrc BASIC 4 48 true true None NXM0 2,
    /// Ethernet type after VLAN tags.
    EthType BASIC 5 16 false false None NXM0 3,
    /// VLAN identifier, and [`VID_PRESENT`](crate::VID_PRESENT) if there is a tag.
    VlanVid BASIC 6 13 true true None NONE 0,
    /// VLAN priority.
    VlanPcp BASIC 7 3 false true Vlan NONE 0,
    /// DSCP.
    IpDscp BASIC 8 6 false true Ip NONE 0,
    /// ECN.
    IpEcn BASIC 9 2 false true Ip NXM1 28,
    /// IP protocol.
    IpProto BASIC 10 8 false false Ip NXM0 6,
    /// IPv4 source.
    Ipv4Src BASIC 11 32 true true Ip4 NXM0 7,
    /// IPv4 destination.
    Ipv4Dst BASIC 12 32 true true Ip4 NXM0 8,
    /// TCP source port.
    TcpSrc BASIC 13 16 true true Tcp NXM0 9,
    /// TCP destination port.
    TcpDst BASIC 14 16 true true Tcp NXM0 10,
    /// UDP source port.
    UdpSrc BASIC 15 16 true true Udp NXM0 11,
    /// UDP destination port.
    UdpDst BASIC 16 16 true true Udp NXM0 12,
    /// SCTP source port.
    SctpSrc BASIC 17 16 true true Sctp NONE 0,
    /// SCTP destination port.
    SctpDst BASIC 18 16 true true Sctp NONE 0,
    /// ICMP type.
    Icmpv4Type BASIC 19 8 false true Icmp4 NXM0 13,
    /// ICMP code.
    Icmpv4Code BASIC 20 8 false true Icmp4 NXM0 14,
    /// ARP opcode.
    ArpOp BASIC 21 16 false true Arp NXM0 15,
    /// ARP sender's protocol address.
    ArpSpa BASIC 22 32 true true Arp NXM0 16,
    /// ARP target's protocol address.
    ArpTpa BASIC 23 32 true true Arp NXM0 17,
    /// ARP sender's hardware address.
    ArpSha BASIC 24 48 true true Arp NXM1 17,
    /// ARP target's hardware address.
    ArpTha BASIC 25 48 true true Arp NXM1 18,
    /// IPv6 source.
    Ipv6Src BASIC 26 128 true true Ip6 NXM1 19,
    /// IPv6 destination.
    Ipv6Dst BASIC 27 128 true true Ip6 NXM1 20,
    /// IPv6 flow label.
    Ipv6Flabel BASIC 28 20 true true Ip6 NXM1 27,
    /// ICMPv6 type.
    Icmpv6Type BASIC 29 8 false true Icmp6 NXM1 21,
    /// ICMPv6 code.
    Icmpv6Code BASIC 30 8 false true Icmp6 NXM1 22,
    /// Neighbour discovery target.
    NdTarget BASIC 31 128 true true Nd NXM1 23,
    /// Source link-layer option.
    NdSll BASIC 32 48 true true NdSolicit NXM1 24,
    /// Target link-layer option.
    NdTll BASIC 33 48 true true NdAdvert NXM1 25,
    /// Label of the outer MPLS entry.
    MplsLabel BASIC 34 20 false true Mpls NONE 0,
    /// Traffic class of the outer MPLS entry.
    MplsTc BASIC 35 3 false true Mpls NONE 0,
    /// Bottom-of-stack bit of the outer MPLS entry.
    MplsBos BASIC 36 1 false true Mpls NONE 0,
    /// Service identifier of PBB.
    PbbIsid BASIC 37 24 true true Pbb NONE 0,
    /// Tunnel identifier.
    TunnelId BASIC 38 64 true true None NXM1 16,
    /// Present IPv6 extension headers.
    Ipv6Exthdr BASIC 39 9 true false Ip6 NONE 0,
    /// Use-customer-address bit of PBB (1.4).
    PbbUca BASIC 41 1 false true Pbb NONE 0,
    /// TCP flags (1.5; an extension of the ONF before).
    TcpFlags BASIC 42 12 true false Tcp NXM1 34,
    /// Output port of the action set (1.5; an extension of the ONF before).
    ActsetOutput BASIC 43 32 false false None NONE 0,
    /// Kind of packet (1.5).
    PacketType BASIC 44 32 false false None NONE 0,
    /// The outer tag with the present bit at 0x1000 (NXM only).
    NxVlanTci NXM0 4 16 true true None NONE 0,
    /// DSCP in place, as the upper six bits (NXM only).
    NxIpTos NXM0 5 8 false true Ip NONE 0,
    /// Fragment state: bit 0 a fragment, bit 1 not the first (NXM only).
    NxIpFrag NXM1 26 2 true false Ip NONE 0,
    /// Time to live or hop limit (NXM only).
    NxIpTtl NXM1 29 8 false true Ip NONE 0,
}

impl OxmField {
    /// Returns a value with every bit of the field set.
    pub const fn all_ones(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns the number of bytes of a value on the wire.
    pub const fn bytes(self) -> usize {
        match self.bits() {
            20 => 4,
            bits => bits.div_ceil(8) as usize,
        }
    }

    /// Returns whether the field needs the experimenter form in `version`.
    pub(crate) fn by_onf(self, version: Version) -> bool {
        version < Version::V15 && matches!(self, OxmField::TcpFlags | OxmField::ActsetOutput)
    }

    /// Returns the four-byte header that names the field, without a mask, as `oxm_ids` in table
    /// features list it. A field that `version` has only as an extension of the ONF is named by its
    /// NXM place, if any.
    pub fn id(self, version: Version) -> Option<u32> {
        let place = if self.by_onf(version) { self.nxm_place()? } else { self.place() };
        Some(header(place, false, self.bytes()))
    }
}

/// Returns class, number, mask bit and length as the first four bytes of a field.
pub(crate) fn header((class, number): (u16, u8), masked: bool, len: usize) -> u32 {
    u32::from(class) << 16 | u32::from(number) << 9 | u32::from(masked) << 8 | len as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_and_belong_to_one_field() {
        for &field in OxmField::ALL {
            let (class, number) = field.place();
            assert_eq!(OxmField::at(class, number), Some(field));
            if let Some((class, number)) = field.nxm_place() {
                assert_eq!(OxmField::at(class, number), Some(field));
            }
            assert!((field as u8) < 64, "a match marks the fields it has in 64 bits");
        }
        assert_eq!(OxmField::at(NONE, 0), None);
        assert_eq!(OxmField::at(BASIC, 40), None);
    }

    #[test]
    fn widths_are_those_of_the_specification() {
        assert_eq!(OxmField::VlanVid.bytes(), 2);
        assert_eq!(OxmField::Ipv6Flabel.bytes(), 4);
        assert_eq!(OxmField::PbbIsid.bytes(), 3);
        assert_eq!(OxmField::Ipv6Dst.all_ones(), u128::MAX);
        assert_eq!(OxmField::EthType.id(Version::V13), Some(0x8000_0a02));
        assert_eq!(OxmField::TcpFlags.id(Version::V13), Some(0x0001_4402));
        assert_eq!(OxmField::TcpFlags.id(Version::V15), Some(0x8000_5402));
        assert_eq!(OxmField::ActsetOutput.id(Version::V13), None);
    }
}
