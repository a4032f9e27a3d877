//! OXM matches to the switch's masked keys, and back.
//!
//! The codec has checked prerequisites, masks and widths; what is left are fields that the switch
//! does not have (`BadField`) and values that no packet has here (`BadValue`).
//!
//! - `vlan_vid` has 13 bits, of which 0x1000 means that a tag is present: `0` is untagged,
//!   `0x1000/0x1000` any tag. `vlan_pcp` implies a tag.
//! - `arp_op` has 16 bits on the wire and 8 in a key; an opcode above 255 is refused.
//! - Back: the bits of a key come in the one spelling that Open vSwitch uses too. What no OXM field
//!   covers (the second tag) is left out; no rule can match on it.

use overbank_openflow::{BadMatch, ErrorCode, Oxm, OxmField, OxmMatch, VID_PRESENT};
use overbank_switch::rule::Match;
use overbank_wire::Field;

use super::fields;

/// Returns the switch's match.
///
/// # Errors
/// `BadField`, `BadValue`; `DupField` where two fields ask for different values of the same bits.
pub fn from_oxm(matching: &OxmMatch) -> Result<Match, ErrorCode> {
    let mut out = Match::default();
    for oxm in &matching.fields {
        let wish = wish(oxm)?;
        if !wish.overlaps(&out) {
            return Err(BadMatch::DupField.into());
        }
        out.key = out.key.or(&wish.key);
        out.mask = out.mask.or(&wish.mask);
    }
    Ok(out)
}

/// Returns the match of one field.
fn wish(oxm: &Oxm) -> Result<Match, ErrorCode> {
    let of = |field: Field, value: u128, mask: u128| Match::default().with(field, value, mask);
    if let Some(field) = fields::same(oxm.field) {
        return Ok(of(field, oxm.value, oxm.mask));
    }
    // A packet without a tag has nothing but zeros there.
    let tci = |value: u128, mask: u128| {
        if mask & VID_PRESENT != 0 && value & VID_PRESENT == 0 && value != 0 {
            return Err(ErrorCode::from(BadMatch::BadValue));
        }
        Ok(of(Field::VlanTci, value, mask))
    };
    match oxm.field {
        OxmField::VlanVid | OxmField::NxVlanTci => tci(oxm.value, oxm.mask),
        OxmField::VlanPcp => tci(oxm.value << 13 | VID_PRESENT, 0xe000 | VID_PRESENT),
        OxmField::ArpOp if oxm.value <= 0xff => Ok(of(Field::ArpOp, oxm.value, 0xff)),
        OxmField::ArpOp => Err(BadMatch::BadValue.into()),
        OxmField::NxIpTos if oxm.value & 3 == 0 => Ok(of(Field::NwTos, oxm.value, 0xfc)),
        OxmField::NxIpTos => Err(BadMatch::BadValue.into()),
        // Every packet here is an Ethernet frame.
        OxmField::PacketType if oxm.value == 0 => Ok(Match::default()),
        OxmField::PacketType => Err(BadMatch::BadValue.into()),
        _ => Err(BadMatch::BadField.into()),
    }
}

/// Returns the OXM fields of a match, prerequisites first.
pub fn to_oxm(matching: &Match) -> OxmMatch {
    let mut out = Vec::with_capacity(8);
    let over = |field: Field| fields::established(field, matching);
    let arp = over(Field::ArpSpa);
    for &(oxm, field) in fields::SAME {
        let mask = field.get(&matching.mask) & field.all_ones();
        if mask == 0 {
            continue;
        }
        // Fields that share their bits with others.
        let has = match field {
            Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => arp,
            Field::NwSrc | Field::NwDst | Field::NwProto => !arp,
            Field::TcpSrc | Field::TcpDst => over(Field::TcpSrc),
            Field::UdpSrc | Field::UdpDst => over(Field::UdpSrc),
            Field::SctpSrc | Field::SctpDst => over(Field::SctpSrc),
            Field::IcmpType | Field::IcmpCode => over(Field::IcmpType),
            Field::Icmp6Type | Field::Icmp6Code => over(Field::Icmp6Type),
            Field::NdSll | Field::NdTll => over(field),
            _ => true,
        };
        if !has {
            continue;
        }
        let value = field.get(&matching.key) & mask;
        match field {
            Field::IpDscp if mask != field.all_ones() => {
                out.push(Oxm::masked(OxmField::NxIpTos, value << 2, mask << 2));
            }
            _ => out.push(Oxm::masked(oxm, value, mask)),
        }
        if field == Field::DlType {
            vlan(matching, &mut out);
            if arp && matching.mask.nw_proto != 0 {
                out.push(Oxm::exact(OxmField::ArpOp, matching.key.nw_proto.into()));
            }
        }
    }
    if matching.mask.dl_type == 0 {
        vlan(matching, &mut out);
    }
    OxmMatch { fields: out }
}

fn vlan(matching: &Match, out: &mut Vec<Oxm>) {
    let (key, mask) = (u128::from(matching.key.vlan_tci), u128::from(matching.mask.vlan_tci));
    let vid = mask & OxmField::VlanVid.all_ones();
    match mask & 0xe000 {
        0 if mask == 0 => {}
        0 => out.push(Oxm::masked(OxmField::VlanVid, key, vid)),
        0xe000 if key & vid & VID_PRESENT != 0 => {
            out.push(Oxm::masked(OxmField::VlanVid, key, vid));
            out.push(Oxm::exact(OxmField::VlanPcp, key >> 13));
        }
        _ => out.push(Oxm::masked(OxmField::NxVlanTci, key, mask)),
    }
}

#[cfg(test)]
mod tests {
    use overbank_switch::parse::parse_rule;

    use super::*;

    fn of(text: &str) -> Match {
        parse_rule(&format!("{text} actions=drop")).expect("a rule").matching
    }

    #[test]
    fn matches_of_text_survive_a_round_trip() {
        for text in [
            "",
            "in_port=3,dl_src=00:11:22:33:44:55/ff:ff:00:00:00:00,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            "in_port=LOCAL,dl_type=0x88cc",
            "dl_vlan=7",
            "dl_vlan=0xffff",
            "vlan_tci=0x1000/0x1000,ip",
            "dl_vlan=7,dl_vlan_pcp=5,arp,arp_op=2,arp_spa=10.0.0.0/8,arp_tpa=10.0.0.1",
            "dl_vlan_pcp=5",
            "vlan_tci=0x2000/0x2000",
            "vlan_tci=0x3007",
            "vlan_tci=0/0xffff",
            "vlan_vid=0x1003/0x1003",
            "rarp,arp_sha=00:11:22:33:44:55,arp_tha=00:11:22:33:44:55/00:00:00:ff:ff:ff",
            "arp,nw_proto=1,nw_src=10.0.0.1",
            "ip,nw_src=10.0.0.0/255.0.255.0,nw_dst=192.168.0.0/16,nw_tos=184,nw_ecn=1,nw_ttl=64",
            "ip,nw_proto=47",
            "ip,ip_frag=later",
            "ipv6,ip_frag=not_later,ip_dscp=46",
            "tcp,tp_src=80,tcp_dst=0x50/0xfff0,tcp_flags=+syn-ack",
            "tcp6,tp_dst=443,ipv6_src=fe80::/10,ipv6_dst=::1,ipv6_label=0x12345/0xfffff",
            "udp,tp_src=53,ip_frag=first",
            "udp6,udp_dst=53",
            "sctp,tp_src=1,sctp_dst=2",
            "sctp6,tp_dst=7",
            "icmp,icmp_type=8,icmp_code=0",
            "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::1,nd_sll=00:11:22:33:44:55",
            "icmp6,icmpv6_type=136,nd_target=fe80::1/64,nd_tll=00:11:22:33:44:55",
            "icmp6,icmpv6_type=1,icmpv6_code=3",
            "mpls",
        ] {
            let matching = of(text);
            let oxm = to_oxm(&matching);
            assert_eq!(from_oxm(&oxm), Ok(matching), "{text}: {oxm:?}");
            // The codec agrees with the order of prerequisites.
            let mut before = OxmMatch::default();
            for field in oxm.fields {
                assert!(before.meets_prereq(field.field), "{text}: {field:?}");
                before.fields.push(field);
            }
        }
    }

    #[test]
    fn unsupported_matches_are_refused() {
        let code = |field, value| from_oxm(&OxmMatch { fields: vec![Oxm::exact(field, value)] });
        for field in [
            OxmField::Metadata,
            OxmField::InPhyPort,
            OxmField::TunnelId,
            OxmField::MplsLabel,
            OxmField::PbbIsid,
            OxmField::Ipv6Exthdr,
            OxmField::ActsetOutput,
        ] {
            assert_eq!(code(field, 1), Err(BadMatch::BadField.into()), "{field:?}");
        }
        assert_eq!(code(OxmField::ArpOp, 256), Err(BadMatch::BadValue.into()));
        assert_eq!(code(OxmField::VlanVid, 7), Err(BadMatch::BadValue.into()));
        assert_eq!(code(OxmField::PacketType, 1), Err(BadMatch::BadValue.into()));
        assert_eq!(code(OxmField::PacketType, 0), Ok(Match::default()));
        let twice =
            [Oxm::exact(OxmField::VlanVid, 0x1007), Oxm::exact(OxmField::NxVlanTci, 0x1008)];
        let twice = OxmMatch { fields: twice.to_vec() };
        assert_eq!(from_oxm(&twice), Err(BadMatch::DupField.into()));
    }
}
