//! The fields of a flow key by name: one table for rule parser, classifier and frame editor.
//!
//! A [`Field`] knows its bits in a [`FlowKey`], its width, its prerequisite, whether `set_field`
//! may write it, and its text format. Names and prerequisites are those of ovs-fields(7).

use crate::key::FlowKey;

/// The condition for a packet to have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prereq {
    /// Every packet has it.
    None,
    /// The outer VLAN tag is present.
    Vlan,
    /// `dl_type` is 0x0806 or 0x8035.
    Arp,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// IPv4 or IPv6.
    Ip,
    /// TCP over IPv4 or IPv6, not a later fragment.
    Tcp,
    /// UDP over IPv4 or IPv6, not a later fragment.
    Udp,
    /// SCTP over IPv4 or IPv6, not a later fragment.
    Sctp,
    /// TCP, UDP or SCTP, not a later fragment (the untyped `tp_src` and `tp_dst`).
    Ports,
    /// ICMP over IPv4, not a later fragment.
    Icmp4,
    /// ICMPv6 over IPv6, not a later fragment.
    Icmp6,
    /// ICMPv6 neighbour solicitation or advertisement (types 135 and 136, code 0).
    Nd,
    /// Neighbour solicitation (type 135, code 0).
    NdSolicit,
    /// Neighbour advertisement (type 136, code 0).
    NdAdvert,
}

/// The text format of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Decimal or 0x hexadecimal.
    Number,
    /// aa:bb:cc:dd:ee:ff.
    Mac,
    /// Dotted quad, with /bits or /mask.
    Ip4,
    /// RFC 4291 text, with /bits or /mask.
    Ip6,
    /// A port number or reserved name.
    Port,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// `+syn-ack`, or number/mask.
    TcpFlags,
}

macro_rules! fields {
    ($( $(#[$doc:meta])* $id:ident $bits:literal $prereq:ident $format:ident $writable:literal
        [$($name:literal)+] ($($member:tt)+) ),+ $(,)?) => {
        /// A field that rules match or set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Field { $( $(#[$doc])* $id ),+ }

        impl Field {
            /// Every field, in the order in which rules print.
            pub const ALL: &'static [Field] = &[ $(Field::$id),+ ];

            /// Returns the width in bits.
            pub const fn bits(self) -> u32 { match self { $(Field::$id => $bits),+ } }
            /// Returns the prerequisite.
            pub const fn prereq(self) -> Prereq {
                match self { $(Field::$id => Prereq::$prereq),+ }
            }
            /// Returns the text format.
            pub const fn format(self) -> Format {
                match self { $(Field::$id => Format::$format),+ }
            }
            /// Returns whether `set_field` may write the field.
            pub const fn writable(self) -> bool { match self { $(Field::$id => $writable),+ } }
            /// Returns the accepted names, the preferred one first.
            pub const fn names(self) -> &'static [&'static str] {
                match self { $(Field::$id => &[$($name),+]),+ }
            }
            /// Returns the field's bits of `key` as an integer (network order, right-aligned).
            pub fn get(self, key: &FlowKey) -> u128 {
                match self { $(Field::$id => fields!(@get key $($member)+)),+ }
            }
            /// Writes the field's bits of `key`; ignores bits of `value` above the width.
            pub fn set(self, key: &mut FlowKey, value: u128) {
                match self { $(Field::$id => fields!(@set key value $($member)+)),+ }
            }
        }
    };
    (@get $k:ident $m:ident bits $shift:literal $width:literal) => {
        (u128::from($k.$m) >> $shift) & ((1u128 << $width) - 1)
    };
    (@set $k:ident $v:ident $m:ident bits $shift:literal $width:literal) => {{
        let ones = ((1u128 << $width) - 1) << $shift;
        let old = u128::from($k.$m);
        let new = (old & !ones) | (($v << $shift) & ones);
        $k.$m = new.try_into().expect("a field lies within its member");
    }};
    (@get $k:ident $m:ident mac) => {
        $k.$m.iter().fold(0u128, |acc, &b| acc << 8 | u128::from(b))
    };
    (@set $k:ident $v:ident $m:ident mac) => {
        $k.$m.copy_from_slice(&$v.to_be_bytes()[10..])
    };
    (@get $k:ident $m:ident v6) => { u128::from_be_bytes($k.$m) };
    (@set $k:ident $v:ident $m:ident v6) => { $k.$m = $v.to_be_bytes() };
}

fields! {
    /// Ingress port.
    InPort 32 None Port false ["in_port"] (in_port bits 0 32),
    /// Ethernet source.
    DlSrc 48 None Mac true ["dl_src" "eth_src"] (dl_src mac),
    /// Ethernet destination.
    DlDst 48 None Mac true ["dl_dst" "eth_dst"] (dl_dst mac),
    /// Ethernet type.
    DlType 16 None Number false ["dl_type" "eth_type"] (dl_type bits 0 16),
    /// The raw outer tag with the present bit at 0x1000.
    VlanTci 16 None Number true ["vlan_tci"] (vlan_tci bits 0 16),
    /// VLAN identifier of the outer tag.
    VlanVid 12 Vlan Number true ["dl_vlan" "vlan_vid"] (vlan_tci bits 0 12),
    /// Priority of the outer tag.
    VlanPcp 3 Vlan Number true ["dl_vlan_pcp" "vlan_pcp"] (vlan_tci bits 13 3),
    /// IPv4 source.
    NwSrc 32 Ip4 Ip4 true ["nw_src" "ip_src"] (nw_src bits 0 32),
    /// IPv4 destination.
    NwDst 32 Ip4 Ip4 true ["nw_dst" "ip_dst"] (nw_dst bits 0 32),
    /// ARP sender's protocol address.
    ArpSpa 32 Arp Ip4 true ["arp_spa"] (nw_src bits 0 32),
    /// ARP target's protocol address.
    ArpTpa 32 Arp Ip4 true ["arp_tpa"] (nw_dst bits 0 32),
    /// IPv6 source.
    Ipv6Src 128 Ip6 Ip6 true ["ipv6_src"] (ipv6_src v6),
    /// IPv6 destination.
    Ipv6Dst 128 Ip6 Ip6 true ["ipv6_dst"] (ipv6_dst v6),
    /// IPv6 flow label.
    Ipv6Label 20 Ip6 Number true ["ipv6_label"] (ipv6_label bits 0 20),
    /// IP protocol.
    NwProto 8 Ip Number false ["nw_proto" "ip_proto"] (nw_proto bits 0 8),
    /// DSCP in place: the upper six bits of the type-of-service byte.
    NwTos 8 Ip Number true ["nw_tos"] (nw_tos bits 0 8),
    /// DSCP as a six-bit number.
    IpDscp 6 Ip Number true ["ip_dscp"] (nw_tos bits 2 6),
    /// ECN.
    NwEcn 2 Ip Number true ["nw_ecn" "ip_ecn"] (nw_tos bits 0 2),
    /// Time to live or hop limit.
    NwTtl 8 Ip Number true ["nw_ttl"] (nw_ttl bits 0 8),
    /// Fragment state.
    NwFrag 2 Ip Frag false ["ip_frag" "nw_frag"] (nw_frag bits 0 2),
    /// ARP opcode.
    ArpOp 8 Arp Number true ["arp_op"] (nw_proto bits 0 8),
    /// ARP sender's hardware address.
    ArpSha 48 Arp Mac true ["arp_sha"] (arp_sha mac),
    /// ARP target's hardware address.
    ArpTha 48 Arp Mac true ["arp_tha"] (arp_tha mac),
    /// Source port of any transport.
    TpSrc 16 Ports Number true ["tp_src"] (tp_src bits 0 16),
    /// Destination port of any transport.
    TpDst 16 Ports Number true ["tp_dst"] (tp_dst bits 0 16),
    /// TCP source port.
    TcpSrc 16 Tcp Number true ["tcp_src"] (tp_src bits 0 16),
    /// TCP destination port.
    TcpDst 16 Tcp Number true ["tcp_dst"] (tp_dst bits 0 16),
    /// TCP flags.
    TcpFlags 12 Tcp TcpFlags false ["tcp_flags"] (tcp_flags bits 0 12),
    /// UDP source port.
    UdpSrc 16 Udp Number true ["udp_src"] (tp_src bits 0 16),
    /// UDP destination port.
    UdpDst 16 Udp Number true ["udp_dst"] (tp_dst bits 0 16),
    /// SCTP source port.
    SctpSrc 16 Sctp Number true ["sctp_src"] (tp_src bits 0 16),
    /// SCTP destination port.
    SctpDst 16 Sctp Number true ["sctp_dst"] (tp_dst bits 0 16),
    /// ICMP type.
    IcmpType 8 Icmp4 Number true ["icmp_type"] (tp_src bits 0 16),
    /// ICMP code.
    IcmpCode 8 Icmp4 Number true ["icmp_code"] (tp_dst bits 0 16),
    /// ICMPv6 type.
    Icmp6Type 8 Icmp6 Number true ["icmpv6_type"] (tp_src bits 0 16),
    /// ICMPv6 code.
    Icmp6Code 8 Icmp6 Number true ["icmpv6_code"] (tp_dst bits 0 16),
    /// Neighbour discovery target.
    NdTarget 128 Nd Ip6 true ["nd_target"] (nd_target v6),
    /// Source link-layer option.
    NdSll 48 NdSolicit Mac true ["nd_sll"] (arp_sha mac),
    /// Target link-layer option.
    NdTll 48 NdAdvert Mac true ["nd_tll"] (arp_tha mac),
}

impl Field {
    /// Returns the field of this name, if any.
    pub fn by_name(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|f| f.names().contains(&name))
    }

    /// Returns the preferred name.
    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns a value with every bit of the field set.
    pub const fn all_ones(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// Returns the mask over a flow key that covers exactly this field.
    pub fn key_mask(self) -> FlowKey {
        let mut mask = FlowKey::default();
        self.set(&mut mask, self.all_ones());
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_reads_back_what_it_wrote() {
        for &field in Field::ALL {
            let mut key = FlowKey::default();
            field.set(&mut key, u128::MAX);
            assert_eq!(field.get(&key) & field.all_ones(), field.all_ones(), "{field:?}");
            let value = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdefu128 & field.all_ones();
            field.set(&mut key, value);
            assert_eq!(field.get(&key), value, "{field:?}");
            assert_eq!(Field::by_name(field.name()), Some(field));
        }
    }
}
