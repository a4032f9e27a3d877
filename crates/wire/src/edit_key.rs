//! Edits of a flow key alone: the counterpart of [`crate::edit`].
//!
//! The translator follows a packet through the tables by its key alone. For a valid frame with at
//! most two tags, these functions give the key of the edited frame.
//!
//! - A key holds two tags. A third one, pushed below the first two, is lost: popping restores the
//!   second tag, and the unknown third counts as none. [`crate::edit::FrameBuf`] follows the same
//!   rule, so key and frame agree on whether a tag can be popped.
//! - A key with an IP type whose header was broken has TTL 0: [`dec_ttl`] reports expiry.
//! - Changing the type of an ICMPv6 message into or out of neighbour discovery leaves the neighbour
//!   fields of the key unchanged. No rule sees them: their prerequisite is the type.

use crate::field::{Field, Prereq};
use crate::key::{FRAG_LATER, FlowKey, VLAN_PRESENT};
use crate::proto::{ethernet, icmp, number};
use crate::reason::TtlExpired;

/// Returns the bits of a field that a write may change: none of a read-only field, else all that
/// the field owns (not ECN below `nw_tos`, nor the present bit in `vlan_tci`).
pub const fn write_mask(field: Field) -> u128 {
    match field {
        Field::NwTos => 0xfc,
        Field::VlanTci => !VLAN_PRESENT as u128,
        _ if field.writable() => field.all_ones(),
        _ => 0,
    }
}

/// Returns whether a packet with this key has the field. `vlan_tci` requires a tag.
pub fn has(field: Field, key: &FlowKey) -> bool {
    let ip4 = key.dl_type == ethernet::TYPE_IP4;
    let ip6 = key.dl_type == ethernet::TYPE_IP6;
    let transport = (ip4 || ip6) && key.nw_frag & FRAG_LATER == 0;
    let over = |proto: u8| transport && key.nw_proto == proto;
    let nd =
        |kind: u8| ip6 && over(number::ICMP6) && key.tp_src == u16::from(kind) && key.tp_dst == 0;
    match effective_prereq(field) {
        Prereq::None => true,
        Prereq::Vlan => key.vlan_tci & VLAN_PRESENT != 0,
        Prereq::Arp => matches!(key.dl_type, ethernet::TYPE_ARP | ethernet::TYPE_RARP),
        Prereq::Ip4 => ip4,
        Prereq::Ip6 => ip6,
        Prereq::Ip => ip4 || ip6,
        Prereq::Tcp => over(number::TCP),
        Prereq::Udp => over(number::UDP),
        Prereq::Sctp => over(number::SCTP),
        Prereq::Ports => over(number::TCP) || over(number::UDP) || over(number::SCTP),
        Prereq::Icmp4 => ip4 && over(number::ICMP),
        Prereq::Icmp6 => ip6 && over(number::ICMP6),
        Prereq::Nd => nd(icmp::ND_SOLICIT) || nd(icmp::ND_ADVERT),
        Prereq::NdSolicit => nd(icmp::ND_SOLICIT),
        Prereq::NdAdvert => nd(icmp::ND_ADVERT),
    }
}

/// Returns the bits of a key that [`has`] reads for this field. A cache of its answers must
/// distinguish packets that differ in them.
pub fn has_mask(field: Field) -> FlowKey {
    let mut mask = FlowKey::default();
    match effective_prereq(field) {
        Prereq::None => {}
        Prereq::Vlan => mask.vlan_tci = VLAN_PRESENT,
        Prereq::Arp | Prereq::Ip4 | Prereq::Ip6 | Prereq::Ip => mask.dl_type = u16::MAX,
        Prereq::Tcp
        | Prereq::Udp
        | Prereq::Sctp
        | Prereq::Ports
        | Prereq::Icmp4
        | Prereq::Icmp6 => {
            (mask.dl_type, mask.nw_proto, mask.nw_frag) = (u16::MAX, u8::MAX, FRAG_LATER);
        }
        Prereq::Nd | Prereq::NdSolicit | Prereq::NdAdvert => {
            (mask.dl_type, mask.nw_proto, mask.nw_frag) = (u16::MAX, u8::MAX, FRAG_LATER);
            (mask.tp_src, mask.tp_dst) = (u16::MAX, u16::MAX);
        }
    }
    mask
}

/// Returns the prerequisite of a write: every packet matches `vlan_tci`, but only a tag can be
/// written.
const fn effective_prereq(field: Field) -> Prereq {
    match field {
        Field::VlanTci => Prereq::Vlan,
        _ => field.prereq(),
    }
}

/// Writes the bits `mask` of a field. Returns false, without a change, if the packet does not have
/// the field or the field is read-only.
pub fn set_field(key: &mut FlowKey, field: Field, value: u128, mask: u128) -> bool {
    if !field.writable() || !has(field, key) {
        return false;
    }
    let mask = mask & write_mask(field);
    let merged = (field.get(key) & !mask) | (value & mask);
    field.set(key, merged);
    true
}

/// Adds an outer tag with VID and PCP of the tag below, or zeros. Returns false, without a change,
/// if `tpid` is neither 0x8100 nor 0x88a8.
pub fn push_vlan(key: &mut FlowKey, tpid: u16) -> bool {
    if !ethernet::is_tpid(tpid) {
        return false;
    }
    (key.inner_tci, key.inner_tpid) = (key.vlan_tci, key.vlan_tpid);
    (key.vlan_tci, key.vlan_tpid) = (key.vlan_tci | VLAN_PRESENT, tpid);
    true
}

/// Removes the outer tag. Returns false, without a change, if there is none.
pub fn pop_vlan(key: &mut FlowKey) -> bool {
    if key.vlan_tci & VLAN_PRESENT == 0 {
        return false;
    }
    (key.vlan_tci, key.vlan_tpid) = (key.inner_tci, key.inner_tpid);
    (key.inner_tci, key.inner_tpid) = (0, 0);
    true
}

/// Decrements TTL or hop limit; leaves packets other than IP unchanged.
pub fn dec_ttl(key: &mut FlowKey) -> Result<(), TtlExpired> {
    if matches!(key.dl_type, ethernet::TYPE_IP4 | ethernet::TYPE_IP6) {
        if key.nw_ttl <= 1 {
            return Err(TtlExpired);
        }
        key.nw_ttl -= 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nw_tos_leaves_ecn_alone_and_vlan_tci_the_present_bit() {
        let mut key = FlowKey {
            dl_type: ethernet::TYPE_IP4,
            nw_tos: 0x01,
            vlan_tci: 0x1005,
            ..FlowKey::default()
        };
        assert!(set_field(&mut key, Field::NwTos, 0xba, u128::MAX));
        assert_eq!(key.nw_tos, 0xb9);
        assert!(set_field(&mut key, Field::IpDscp, 0x01, 0x03));
        assert_eq!(key.nw_tos, 0xb5);
        assert!(set_field(&mut key, Field::VlanTci, 0x2007, u128::MAX));
        assert_eq!(key.vlan_tci, 0x3007);
        assert!(!set_field(&mut key, Field::DlType, 1, u128::MAX));
    }

    #[test]
    fn a_third_tag_is_lost_to_the_key() {
        let mut key = FlowKey::default();
        assert!(!pop_vlan(&mut key));
        assert!(!push_vlan(&mut key, 0x9100));
        for vid in [1, 2, 3] {
            assert!(push_vlan(&mut key, 0x8100));
            assert!(set_field(&mut key, Field::VlanVid, vid, 0xfff));
        }
        assert_eq!((key.vlan_tci, key.inner_tci), (0x1003, 0x1002));
        assert!(pop_vlan(&mut key) && pop_vlan(&mut key) && !pop_vlan(&mut key));
        assert_eq!(key, FlowKey::default());
    }
}
