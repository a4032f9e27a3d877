//! Matches: fields as type-length-value (OXM; specification 7.2.3).
//!
//! ```text
//!  0               2               4
//!  +---------------+---------------+
//!  |   type = 1    |    length     |   match; length counts these four bytes, not the padding
//!  +---------------+---------+-+---+---+-----------+-----------+
//!  |     class     | number 7|M| length|   value   |   mask    |   field; M: a mask follows
//!  +---------------+---------+-+-------+-----------+-----------+
//!  | more fields, then zeros up to a multiple of 8             |
//!  +-----------------------------------------------------------+
//! ```
//! In class 0xffff, four bytes of experimenter precede the value and count in the length.
//!
//! A match is checked while it is read. An error has the code that the specification names: for a
//! field that is unknown, repeated, of wrong length, wrongly masked, out of range, or before its
//! prerequisite.

mod field;
#[cfg(test)]
mod tests;

use std::ops::Deref;

pub use field::{OxmField, Prereq};

use crate::bytes::{Put, Reader};
use crate::codes::{BadAction, BadMatch, ErrorCode};
use crate::consts::experimenter::ONF;
use crate::error::{DecodeError, EncodeError};
use crate::version::Version;

/// The bit of [`OxmField::VlanVid`] for a present tag (OFPVID_PRESENT). A value of 0 without it
/// matches packets without a tag; as both value and mask it matches packets with any tag.
pub const VID_PRESENT: u128 = 0x1000;

const MATCH_OXM: u16 = 1;

/// One field with a value and a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Oxm {
    pub field: OxmField,
    /// Value, right-aligned; zero outside the mask.
    pub value: u128,
    /// Bits that count; all ones of the field is "no mask".
    pub mask: u128,
}

/// The context of a field, which determines the code of an error.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Match,
    SetField,
}

impl Place {
    fn code(self, in_match: BadMatch, in_set: BadAction) -> ErrorCode {
        match self {
            Place::Match => in_match.into(),
            Place::SetField => in_set.into(),
        }
    }
}

impl Oxm {
    /// Returns a match on all bits of `field`.
    pub const fn exact(field: OxmField, value: u128) -> Oxm {
        Oxm::masked(field, value, field.all_ones())
    }

    /// Returns a match on the bits of `field` in `mask`. Drops bits outside the field or the mask.
    pub const fn masked(field: OxmField, value: u128, mask: u128) -> Oxm {
        let mask = mask & field.all_ones();
        Oxm { field, value: value & mask, mask }
    }

    /// Returns whether the mask covers less than the whole field.
    pub const fn is_masked(&self) -> bool {
        self.mask != self.field.all_ones()
    }

    pub(crate) fn decode(r: &mut Reader<'_>, place: Place) -> Result<Oxm, DecodeError> {
        let start = r.clone();
        let (class, number_mask, len) = (r.u16()?, r.u8()?, usize::from(r.u8()?));
        let (number, has_mask) = (number_mask >> 1, number_mask & 1 == 1);
        let bad_len = place.code(BadMatch::BadLen, BadAction::BadSetLen);
        let mut payload = r.part(len, "field", bad_len)?;
        let known = if class == field::EXPERIMENTER {
            let experimenter = payload.u32()?;
            OxmField::at(field::BASIC, number)
                .filter(|field| experimenter == ONF && field.by_onf(Version::V13))
        } else {
            OxmField::at(class, number)
        };
        let unknown = place.code(BadMatch::BadField, BadAction::BadSetType);
        let field = known.ok_or_else(|| start.fail("has an unknown field", unknown))?;
        let value = payload.uint(field.bytes())?;
        let mask = if has_mask { payload.uint(field.bytes())? } else { u128::MAX };
        payload.end()?;
        let oxm = Oxm::masked(field, value, mask);
        let fault = if oxm.is_masked() && !field.maskable() {
            ("has a mask on a field without masks", BadMatch::BadMask, BadAction::BadSetMask)
        } else if value & !field.all_ones() != 0 {
            ("has a value that is too wide", BadMatch::BadValue, BadAction::BadSetArgument)
        } else if value & !mask != 0 {
            ("has bits outside of its mask", BadMatch::BadWildcards, BadAction::BadSetArgument)
        } else {
            return Ok(oxm);
        };
        Err(start.fail(fault.0, place.code(fault.1, fault.2)))
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let (masked, bytes) = (self.is_masked(), self.field.bytes());
        let len = bytes << u8::from(masked);
        if self.field.by_onf(version) {
            let place = (field::EXPERIMENTER, self.field.place().1);
            out.put_u32(field::header(place, masked, len + 4));
            out.put_u32(ONF);
        } else {
            out.put_u32(field::header(self.field.place(), masked, len));
        }
        out.put_uint(self.value, bytes);
        if masked {
            out.put_uint(self.mask, bytes);
        }
    }
}

/// The fields of a match, each at most once. An empty match covers every packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OxmMatch {
    /// In wire order: a prerequisite precedes its dependants.
    pub fields: Vec<Oxm>,
}

impl Deref for OxmMatch {
    type Target = [Oxm];

    fn deref(&self) -> &[Oxm] {
        &self.fields
    }
}

impl From<Vec<Oxm>> for OxmMatch {
    fn from(fields: Vec<Oxm>) -> OxmMatch {
        OxmMatch { fields }
    }
}

impl OxmMatch {
    /// Returns a match on the ingress port alone, as in a packet-in.
    pub fn of_port(port: u32) -> OxmMatch {
        vec![Oxm::exact(OxmField::InPort, port.into())].into()
    }

    /// Returns the entry of `field`.
    pub fn get(&self, field: OxmField) -> Option<&Oxm> {
        self.fields.iter().find(|oxm| oxm.field == field)
    }

    /// Returns the ingress port, if matched.
    pub fn in_port(&self) -> Option<u32> {
        self.exact(OxmField::InPort).map(|port| port as u32)
    }

    /// Returns the value of `field`, if all of its bits count.
    pub fn exact(&self, field: OxmField) -> Option<u128> {
        self.get(field).filter(|oxm| !oxm.is_masked()).map(|oxm| oxm.value)
    }

    /// Returns whether every matching packet has `field`: the match fixes its prerequisite.
    pub fn meets_prereq(&self, field: OxmField) -> bool {
        let is = |field, value: u128| self.exact(field) == Some(value);
        let (ip4, ip6) = (is(OxmField::EthType, 0x0800), is(OxmField::EthType, 0x86dd));
        let protocol = |number| (ip4 || ip6) && is(OxmField::IpProto, number);
        let nd = |kind| {
            ip6 && is(OxmField::IpProto, 58)
                && is(OxmField::Icmpv6Type, kind)
                && self.get(OxmField::Icmpv6Code).is_none_or(|code| code.value == 0)
        };
        let present =
            |field| self.get(field).is_some_and(|oxm| oxm.value & oxm.mask & VID_PRESENT != 0);
        match field.prereq() {
            Prereq::None => true,
            Prereq::InPort => self.get(OxmField::InPort).is_some(),
            Prereq::Vlan => present(OxmField::VlanVid) || present(OxmField::NxVlanTci),
            Prereq::Ip => ip4 || ip6,
            Prereq::Ip4 => ip4,
            Prereq::Ip6 => ip6,
            Prereq::Arp => is(OxmField::EthType, 0x0806) || is(OxmField::EthType, 0x8035),
            Prereq::Tcp => protocol(6),
            Prereq::Udp => protocol(17),
            Prereq::Sctp => protocol(132),
            Prereq::Icmp4 => ip4 && is(OxmField::IpProto, 1),
            Prereq::Icmp6 => ip6 && is(OxmField::IpProto, 58),
            Prereq::Nd => nd(135) || nd(136),
            Prereq::NdSolicit => nd(135),
            Prereq::NdAdvert => nd(136),
            Prereq::Mpls => is(OxmField::EthType, 0x8847) || is(OxmField::EthType, 0x8848),
            Prereq::Pbb => is(OxmField::EthType, 0x88e7),
        }
    }

    /// Reads the match of a rule, with prerequisites.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<OxmMatch, DecodeError> {
        OxmMatch::read(r, true)
    }

    /// Reads the fields of a packet: no prerequisites.
    pub(crate) fn decode_fields(r: &mut Reader<'_>) -> Result<OxmMatch, DecodeError> {
        OxmMatch::read(r, false)
    }

    fn read(r: &mut Reader<'_>, rule: bool) -> Result<OxmMatch, DecodeError> {
        let bad_len = ErrorCode::BadMatch(BadMatch::BadLen);
        let mut head = r.clone();
        let kind = head.u16()?;
        if kind != MATCH_OXM {
            return Err(r.fail("has a match that is not OXM", BadMatch::BadType.into()));
        }
        let (_, mut fields) = r.tlv("match", bad_len)?;
        let mut matching = OxmMatch::default();
        let mut seen = 0u64;
        while fields.left() > 0 {
            let start = fields.clone();
            let oxm = Oxm::decode(&mut fields, Place::Match)?;
            let bit = 1 << oxm.field as u8;
            if seen & bit != 0 {
                return Err(start.fail("has a field twice", BadMatch::DupField.into()));
            }
            seen |= bit;
            if rule {
                check(&oxm, &matching).map_err(|(why, code)| start.fail(why, code.into()))?;
            }
            matching.fields.push(oxm);
        }
        Ok(matching)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.tlv(MATCH_OXM, |out| {
            self.fields.iter().for_each(|oxm| oxm.encode(version, out));
            Ok(())
        })
    }
}

/// Checks whether `oxm` may follow `before`.
fn check(oxm: &Oxm, before: &OxmMatch) -> Result<(), (&'static str, BadMatch)> {
    if !before.meets_prereq(oxm.field) {
        return Err(("has a field without its prerequisite", BadMatch::BadPrereq));
    }
    let absent = oxm.mask & VID_PRESENT != 0 && oxm.value & VID_PRESENT == 0;
    if matches!(oxm.field, OxmField::VlanVid | OxmField::NxVlanTci) && absent && oxm.value != 0 {
        return Err(("has a VLAN of a packet without a tag", BadMatch::BadValue));
    }
    Ok(())
}
