//! Which field of the switch is which OXM field: one table for matches and `set_field`.
//!
//! Left out are those that do not correspond bit by bit: VLAN, `arp_op`, type of service, and the
//! untyped transport ports. Matches and actions treat them by hand.

use overbank_openflow::OxmField;
use overbank_switch::rule::Match;
use overbank_wire::{Field, FlowKey, edit_key};

/// Same bits, same meaning; in the order in which prerequisites come first.
pub(super) const SAME: &[(OxmField, Field)] = &[
    (OxmField::InPort, Field::InPort),
    (OxmField::EthDst, Field::DlDst),
    (OxmField::EthSrc, Field::DlSrc),
    (OxmField::EthType, Field::DlType),
    (OxmField::IpProto, Field::NwProto),
    (OxmField::IpDscp, Field::IpDscp),
    (OxmField::IpEcn, Field::NwEcn),
    (OxmField::NxIpTtl, Field::NwTtl),
    (OxmField::NxIpFrag, Field::NwFrag),
    (OxmField::Ipv4Src, Field::NwSrc),
    (OxmField::Ipv4Dst, Field::NwDst),
    (OxmField::Ipv6Src, Field::Ipv6Src),
    (OxmField::Ipv6Dst, Field::Ipv6Dst),
    (OxmField::Ipv6Flabel, Field::Ipv6Label),
    (OxmField::ArpSpa, Field::ArpSpa),
    (OxmField::ArpTpa, Field::ArpTpa),
    (OxmField::ArpSha, Field::ArpSha),
    (OxmField::ArpTha, Field::ArpTha),
    (OxmField::TcpSrc, Field::TcpSrc),
    (OxmField::TcpDst, Field::TcpDst),
    (OxmField::TcpFlags, Field::TcpFlags),
    (OxmField::UdpSrc, Field::UdpSrc),
    (OxmField::UdpDst, Field::UdpDst),
    (OxmField::SctpSrc, Field::SctpSrc),
    (OxmField::SctpDst, Field::SctpDst),
    (OxmField::Icmpv4Type, Field::IcmpType),
    (OxmField::Icmpv4Code, Field::IcmpCode),
    (OxmField::Icmpv6Type, Field::Icmp6Type),
    (OxmField::Icmpv6Code, Field::Icmp6Code),
    (OxmField::NdTarget, Field::NdTarget),
    (OxmField::NdSll, Field::NdSll),
    (OxmField::NdTll, Field::NdTll),
];

/// Those that matches and actions treat by hand.
const BY_HAND: &[OxmField] = &[
    OxmField::VlanVid,
    OxmField::VlanPcp,
    OxmField::ArpOp,
    OxmField::NxVlanTci,
    OxmField::NxIpTos,
];

/// Returns the switch's field with the same bits.
pub(super) fn same(field: OxmField) -> Option<Field> {
    SAME.iter().find(|pair| pair.0 == field).map(|pair| pair.1)
}

/// Returns the OXM field with the same bits.
pub(super) fn same_oxm(field: Field) -> Option<OxmField> {
    SAME.iter().find(|pair| pair.1 == field).map(|pair| pair.0)
}

/// Fields that a match may have.
pub fn matchable() -> impl Iterator<Item = OxmField> {
    SAME.iter().map(|pair| pair.0).chain(BY_HAND.iter().copied())
}

/// Fields that `set_field` may write.
pub fn settable() -> impl Iterator<Item = OxmField> {
    matchable().filter(|field| field.settable())
}

/// Whether every packet that matches has `field`, except for VLAN tags: actions push and pop those,
/// and the caller counts them.
pub(super) fn established(field: Field, matching: &Match) -> bool {
    let mut bits = edit_key::has_mask(field);
    // A match on transport fields need not say that the packet is no later fragment, and one on
    // neighbour discovery need not give the code; ICMP's numbers have eight bits.
    bits.nw_frag = 0;
    (bits.tp_src, bits.tp_dst) = (bits.tp_src & 0xff, 0);
    edit_key::has(field, &matching.key) && bits.and_not(&matching.mask).is_zero()
}

/// Whether the match asks for a tag.
pub(super) fn has_tag(matching: &Match) -> bool {
    let present = FlowKey { vlan_tci: overbank_wire::key::VLAN_PRESENT, ..FlowKey::default() };
    present.and_not(&matching.mask).is_zero() && present.and_not(&matching.key).is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_the_same_have_the_same_width() {
        for &(oxm, field) in SAME {
            assert_eq!(oxm.bits(), field.bits(), "{oxm:?}");
            assert_eq!(same(oxm), Some(field));
            assert_eq!(same_oxm(field), Some(oxm));
            if oxm.settable() {
                assert!(field.writable(), "{field:?}");
            }
        }
        assert!(BY_HAND.iter().all(|&field| same(field).is_none()));
    }

    #[test]
    fn a_field_is_established_by_its_prerequisites() {
        let ip = Match::default().with(Field::DlType, 0x0800, 0xffff);
        let tcp = ip.with(Field::NwProto, 6, 0xff);
        assert!(established(Field::NwSrc, &ip) && !established(Field::Ipv6Src, &ip));
        assert!(established(Field::TcpDst, &tcp) && !established(Field::TcpDst, &ip));
        assert!(!established(Field::UdpDst, &tcp) && established(Field::DlSrc, &Match::default()));
        let later = tcp.with(Field::NwFrag, 3, 3);
        assert!(!established(Field::TcpDst, &later));
        let icmp6 =
            Match::default().with(Field::DlType, 0x86dd, 0xffff).with(Field::NwProto, 58, 0xff);
        let solicit = icmp6.with(Field::Icmp6Type, 135, 0xff);
        assert!(established(Field::NdSll, &solicit) && !established(Field::NdTll, &solicit));
        assert!(!established(Field::NdTarget, &icmp6));
        assert!(!has_tag(&ip) && has_tag(&ip.with(Field::VlanTci, 0x1000, 0x1000)));
        assert!(!has_tag(&ip.with(Field::VlanTci, 0, 0x1fff)));
    }
}
