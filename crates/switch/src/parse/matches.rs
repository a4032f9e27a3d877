//! The match of a rule: fields and protocol names, collected word by word, then checked together.
//!
//! Fields may stand in any order (`tp_dst=53,udp` equals `udp,tp_dst=53`), so prerequisites and
//! contradictions are checked once the whole match is read. Two words may agree (`tcp,nw_proto=6`);
//! a repeated word, or two words that no packet satisfies together, are an error.
//!
//! What the names mean beyond the table of fields, all as in ovs-fields(7):
//! - `dl_vlan=5` is VLAN 5 with the tag present, `dl_vlan=0xffff` is "untagged"; `vlan_vid` is the
//!   13-bit field of OpenFlow 1.2 and later, whose bit 0x1000 says that a tag is present.
//! - `nw_src`, `nw_dst` and `nw_proto` on ARP are `arp_spa`, `arp_tpa` and `arp_op`.
//! - `tp_src` and `tp_dst` on ICMP are type and code, and `icmp_type` may stand for `icmpv6_type`.
//! - `field=*` matches everything.
//! - `tp_src[5]=1` and `ipv6_src[64..127]=0xfd` match some bits of a field, counted from the
//!   lowest.
//!
//! Stricter than Open vSwitch: bits that do not fit (`nw_tos=7`, `dl_vlan=5000`) are an error, and
//! so is a missing prerequisite. Open vSwitch drops such bits and widens such a match.

use overbank_wire::field::{Field, Prereq};
use overbank_wire::key::{FRAG_LATER, VLAN_PRESENT};

use super::error::{Fault, RuleErrorKind, nearest, quote};
use super::lex::{Join, Span, Word};
use super::{FLAG_NAMES, LIFETIMES, LineErrors, values};
use crate::rule::Match;

/// Ethernet types and IP protocols by name.
pub(crate) const PROTOCOLS: [(&str, u16, Option<u8>); 15] = [
    ("ip", 0x0800, None),
    // Of two names for the same protocol, printing takes the later.
    ("ip6", 0x86dd, None),
    ("ipv6", 0x86dd, None),
    ("icmp", 0x0800, Some(1)),
    ("icmp6", 0x86dd, Some(58)),
    ("tcp", 0x0800, Some(6)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp", 0x0800, Some(17)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp", 0x0800, Some(132)),
    ("sctp6", 0x86dd, Some(132)),
    ("arp", 0x0806, None),
    ("rarp", 0x8035, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Fields of Open vSwitch that the flow key does not have.
const FIELDS_NOT_HERE: [&str; 34] = [
    "actset_output",
    "conj_id",
    "ct_ipv6_dst",
    "ct_ipv6_src",
    "ct_label",
    "ct_mark",
    "ct_nw_dst",
    "ct_nw_proto",
    "ct_nw_src",
    "ct_state",
    "ct_tp_dst",
    "ct_tp_src",
    "ct_zone",
    "dp_hash",
    "in_port_oxm",
    "metadata",
    "mpls_bos",
    "mpls_label",
    "mpls_tc",
    "mpls_ttl",
    "nd_options_type",
    "nd_reserved",
    "packet_type",
    "pkt_mark",
    "recirc_id",
    "skb_priority",
    "tun_dst",
    "tun_flags",
    "tun_id",
    "tun_ipv6_dst",
    "tun_ipv6_src",
    "tun_src",
    "tun_tos",
    "tun_ttl",
];
/// Prefixes of further families of such fields.
const PREFIXES_NOT_HERE: [&str; 8] =
    ["NXM_", "OXM_", "NXOXM_", "nsh_", "tun_gbp_", "tun_metadata", "xreg", "xxreg"];

/// Returns whether Open vSwitch has a field of this name that is not supported here.
pub(super) fn is_field_elsewhere(name: &str) -> bool {
    FIELDS_NOT_HERE.contains(&name)
        || PREFIXES_NOT_HERE.iter().any(|prefix| name.starts_with(prefix))
        || name.strip_prefix("reg").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
}

/// Iterates over every name that a match can use.
fn names() -> impl Iterator<Item = &'static str> {
    let fields = Field::ALL.iter().flat_map(|field| field.names().iter().copied());
    let keywords = ["table", "priority", "cookie", "actions"];
    let of_life = LIFETIMES.into_iter().chain(FLAG_NAMES);
    fields.chain(PROTOCOLS.iter().map(|p| p.0)).chain(keywords).chain(of_life)
}

struct Item<'a> {
    name: &'a str,
    whole: Span<'a>,
    /// Absent for a protocol name.
    field: Option<Field>,
    /// The match that this word asks for.
    wish: Match,
}

/// The words of a match that have been read so far.
#[derive(Default)]
pub(super) struct MatchBuilder<'a> {
    items: Vec<Item<'a>>,
    /// A word could not be read. It might have been the prerequisite of another, so a missing
    /// prerequisite is not reported: one slip gives one error.
    unsure: bool,
}

/// A finished match, and whether every word that could be a prerequisite was read.
pub(super) struct Finished {
    pub matching: Match,
    pub unsure: bool,
}

impl<'a> MatchBuilder<'a> {
    /// Reads one word that is no keyword.
    pub fn word(&mut self, word: &Word<'a>, errors: &mut LineErrors<'_>) {
        let (name, bits) = match word.key.split_once("[") {
            Some((name, bits)) => (name.text, Some(bits)),
            None => (word.key.text, None),
        };
        let protocol = PROTOCOLS.iter().find(|p| p.0 == word.key.text);
        let field = Field::by_name(name);
        if protocol.is_none() && field.is_none() {
            self.unsure = true;
            return errors.push(unknown(word));
        }
        if !errors.first_time(word.key) {
            self.unsure = true;
            return;
        }
        if let Some(&(_, dl_type, proto)) = protocol {
            if word.join != Join::None {
                self.unsure = true;
                let expected = format!("`{name}` without a value");
                return errors.push(Fault::expected(word.whole.at, expected, word.whole.text));
            }
            let mut wish = Match::default().with(Field::DlType, dl_type.into(), 0xffff);
            if let Some(proto) = proto {
                wish = wish.with(Field::NwProto, proto.into(), 0xff);
            }
            return self.items.push(Item { name, whole: word.whole, field: None, wish });
        }
        let Some(field) = field else { return };
        if word.join != Join::Assign {
            self.unsure |= establishes(field);
            let expected = format!("`=` and a value after `{name}`");
            return errors.push(Fault::expected(word.key.end(), expected, after_key(word)));
        }
        if word.value.text == "*" {
            return;
        }
        let wish = match bits {
            Some(bits) => wish_bits(field, name, bits, word.value),
            None => wish(field, name, word.value),
        };
        match wish {
            Ok(wish) => {
                let name = word.key.text;
                self.items.push(Item { name, whole: word.whole, field: Some(field), wish });
            }
            Err(fault) => {
                self.unsure |= establishes(field);
                errors.push(fault);
            }
        }
    }

    /// Combines the words and checks them against each other.
    pub fn finish(mut self, errors: &mut LineErrors<'_>) -> Finished {
        let mut proto = Match::default();
        for item in &self.items {
            if matches!(item.field, None | Some(Field::DlType | Field::NwProto)) {
                proto.key = proto.key.or(&item.wish.key);
                proto.mask = proto.mask.or(&item.wish.mask);
            }
        }
        self.items.retain_mut(|item| {
            let adapted = item.adapt(&proto);
            let good = adapted.is_ok();
            adapted.unwrap_or_else(|fault| errors.push(fault));
            self.unsure |= !good;
            good
        });
        let mut matching = Match::default();
        for (i, item) in self.items.iter().enumerate() {
            let (key, mask) = (item.wish.key, item.wish.mask);
            if key.matches(&matching.key, &mask.masked(&matching.mask)) {
                matching.key = matching.key.or(&key);
                matching.mask = matching.mask.or(&mask);
                continue;
            }
            self.unsure = true;
            let earlier = self.items[..i]
                .iter()
                .find(|earlier| !key.matches(&earlier.wish.key, &mask.masked(&earlier.wish.mask)));
            let other = earlier.map_or(item.whole, |earlier| earlier.whole);
            let kind = RuleErrorKind::Contradiction {
                found: quote(item.whole.text),
                other: quote(other.text).trim_matches('`').to_owned(),
                other_column: errors.column(other.at),
            };
            errors.push(Fault::new(item.whole.at, kind));
        }
        for item in self.items.iter().filter(|_| !self.unsure) {
            if let Some(needs) = item.field.and_then(|field| missing(field, &matching)) {
                let field = item.field.map_or("", |f| preferred(f, item.name));
                let kind = RuleErrorKind::MissingPrereq { field, needs };
                errors.push(Fault::new(item.whole.at, kind));
            }
        }
        Finished { matching, unsure: self.unsure }
    }
}

impl Item<'_> {
    /// Gives the untyped names the meaning that the protocol implies.
    fn adapt(&mut self, proto: &Match) -> Result<(), Fault> {
        let to = match (self.field, icmp_version(proto)) {
            (Some(Field::TpSrc), Some(4)) => Field::IcmpType,
            (Some(Field::TpDst), Some(4)) => Field::IcmpCode,
            (Some(Field::TpSrc | Field::IcmpType), Some(6)) => Field::Icmp6Type,
            (Some(Field::TpDst | Field::IcmpCode), Some(6)) => Field::Icmp6Code,
            _ => return Ok(()),
        };
        // `tp_src` has 16 bits, an ICMP type or code 8.
        let (value, mask) = (to.get(&self.wish.key), to.get(&self.wish.mask));
        if mask & 0xff != 0xff || value > 0xff {
            let expected =
                format!("an ICMP {} from 0 to 255", if is_type(to) { "type" } else { "code" });
            let after_name = self.whole.at + self.name.len() + 1;
            let text = self.whole.text.get(self.name.len() + 1..).unwrap_or_default();
            return Err(Fault::expected(after_name, expected, text));
        }
        self.field = Some(to);
        self.wish = Match::default().with(to, value, 0xff);
        Ok(())
    }
}

/// Returns the text found where `=` was expected.
fn after_key<'a>(word: &Word<'a>) -> &'a str {
    &word.whole.text[word.key.text.len()..]
}

fn is_type(field: Field) -> bool {
    matches!(field, Field::IcmpType | Field::Icmp6Type)
}

/// Returns the rule's spelling if the field table has it, else the field's main name.
fn preferred(field: Field, name: &str) -> &'static str {
    field.names().iter().copied().find(|&known| known == name).unwrap_or(field.name())
}

fn unknown(word: &Word<'_>) -> Fault {
    let name = word.key.text.split('[').next().unwrap_or_default();
    let kind = if is_field_elsewhere(name) {
        let expected = "a field of the flow key";
        RuleErrorKind::NotHere { found: quote(name), expected }
    } else {
        let suggestion = nearest(name, names());
        RuleErrorKind::UnknownField { found: quote(name), suggestion }
    };
    Fault::new(word.key.at, kind)
}

/// Returns the match that `name=value` asks for.
fn wish(field: Field, name: &str, value: Span<'_>) -> Result<Match, Fault> {
    let present = u128::from(VLAN_PRESENT);
    let tci = |value: u128, mask: u128| Match::default().with(Field::VlanTci, value, mask);
    let without_mask = |max: u64, expected: &'static str| {
        values::no_mask(field, value)?;
        values::number_as(value, max, || expected.into()).map(u128::from)
    };
    match field {
        Field::VlanVid if name == "dl_vlan" => {
            if matches!(value.text, "0xffff" | "65535") {
                return Ok(tci(0, 0x1fff));
            }
            let vid = without_mask(0xfff, "a VLAN from 0 to 4095, or 0xffff for untagged packets")?;
            Ok(tci(present | vid, 0x1fff))
        }
        Field::VlanVid => {
            let (bits, mask) = values::number_masked(value, 13)?;
            tag_that_can_be(bits, mask, value)?;
            Ok(tci(bits, mask))
        }
        Field::VlanTci => {
            let (bits, mask) = values::of_field(field, value)?;
            tag_that_can_be(bits, mask, value)?;
            Ok(tci(bits, mask))
        }
        Field::VlanPcp => {
            Ok(tci(present | without_mask(7, "a priority from 0 to 7")? << 13, 0xf000))
        }
        Field::NwTos => Ok(Match::default().with(field, values::tos(value)?, 0xfc)),
        _ => {
            let (bits, mask) = values::of_field(field, value)?;
            Ok(Match::default().with(field, bits, mask))
        }
    }
}

/// Returns the match that `name[bits]=value` asks for; `bits` is `5]`, `0..7]` or `]`.
fn wish_bits(field: Field, name: &str, bits: Span<'_>, value: Span<'_>) -> Result<Match, Fault> {
    // The 13 bits of OpenFlow 1.2 and later, with the present bit.
    let (target, width) = match field {
        Field::VlanVid if name == "vlan_vid" => (Field::VlanTci, 13),
        field => (field, field.bits()),
    };
    if target == field && !values::maskable(field) || name == "dl_vlan" {
        let kind = RuleErrorKind::NotMaskable { field: field.name(), found: quote(bits.text) };
        return Err(Fault::new(bits.at, kind));
    }
    let (start, end) = values::bit_range(bits, width)?;
    let ones = u64::MAX >> (63 - (end - start));
    let value_bits = u128::from(values::number(value, ones)?) << start;
    let mask = u128::from(ones) << start;
    if target == Field::VlanTci {
        tag_that_can_be(value_bits, mask, value)?;
    }
    Ok(Match::default().with(target, value_bits, mask))
}

/// Refuses a VID or PCP without the present bit: a packet without a tag has neither.
fn tag_that_can_be(bits: u128, mask: u128, value: Span<'_>) -> Result<(), Fault> {
    let present = u128::from(VLAN_PRESENT);
    if mask & present != 0 && bits & present == 0 && bits != 0 {
        let expected = "the bit 0x1000 (tag present) in a value that is not 0";
        return Err(Fault::expected(value.at, expected, value.text));
    }
    Ok(())
}

/// Returns whether a match on `field` can be the prerequisite of another.
fn establishes(field: Field) -> bool {
    use Field::*;
    matches!(
        field,
        DlType
            | NwProto
            | NwFrag
            | VlanTci
            | VlanVid
            | VlanPcp
            | TpSrc
            | TpDst
            | IcmpType
            | IcmpCode
            | Icmp6Type
            | Icmp6Code
    )
}

/// Returns the value of `field` if the match fixes all of its bits.
pub(crate) fn fixed(field: Field, matching: &Match) -> Option<u128> {
    (field.get(&matching.mask) & field.all_ones() == field.all_ones())
        .then(|| field.get(&matching.key) & field.all_ones())
}

/// Returns 4 for ICMP and 6 for ICMPv6.
fn icmp_version(matching: &Match) -> Option<u8> {
    match (fixed(Field::DlType, matching)?, fixed(Field::NwProto, matching)?) {
        (0x0800, 1) => Some(4),
        (0x86dd, 58) => Some(6),
        _ => None,
    }
}

/// Returns whether every packet of this match meets `prereq`. For a VLAN tag, which actions can add
/// and remove, only the present bit of the match counts.
pub(super) fn established(prereq: Prereq, matching: &Match) -> bool {
    let dl_type = fixed(Field::DlType, matching);
    let proto = fixed(Field::NwProto, matching);
    let ip = matches!(dl_type, Some(0x0800 | 0x86dd));
    let first = matching.key.nw_frag & FRAG_LATER == 0;
    let over_ip = |protos: &[u128]| ip && first && proto.is_some_and(|p| protos.contains(&p));
    let icmp = |version| first && icmp_version(matching) == Some(version);
    let nd = |types: &[u128]| {
        let code_is_0 = Field::Icmp6Code.get(&matching.key) == 0;
        let known = fixed(Field::Icmp6Type, matching).is_some_and(|t| types.contains(&t));
        icmp(6) && code_is_0 && known
    };
    match prereq {
        Prereq::None => true,
        Prereq::Vlan => has_tag(matching),
        Prereq::Arp => matches!(dl_type, Some(0x0806 | 0x8035)),
        Prereq::Ip4 => dl_type == Some(0x0800),
        Prereq::Ip6 => dl_type == Some(0x86dd),
        Prereq::Ip => ip,
        Prereq::Tcp => over_ip(&[6]),
        Prereq::Udp => over_ip(&[17]),
        Prereq::Sctp => over_ip(&[132]),
        Prereq::Ports => over_ip(&[6, 17, 132]),
        Prereq::Icmp4 => icmp(4),
        Prereq::Icmp6 => icmp(6),
        Prereq::Nd => nd(&[135, 136]),
        Prereq::NdSolicit => nd(&[135]),
        Prereq::NdAdvert => nd(&[136]),
    }
}

/// Returns whether the match asks for a tag.
pub(super) fn has_tag(matching: &Match) -> bool {
    matching.mask.vlan_tci & matching.key.vlan_tci & VLAN_PRESENT != 0
}

/// Returns the words to add to a match so that its packets meet `prereq`.
pub(super) fn needs(prereq: Prereq, matching: &Match) -> &'static str {
    let later = matching.key.nw_frag & FRAG_LATER != 0;
    match prereq {
        Prereq::None => "",
        Prereq::Vlan => "a VLAN (`dl_vlan=…`, or `vlan_tci=0x1000/0x1000` for any)",
        Prereq::Arp => "`arp` or `rarp`",
        Prereq::Ip4 => "`ip`",
        Prereq::Ip6 => "`ipv6`",
        Prereq::Ip => "`ip` or `ipv6`",
        _ if later => "a match without later fragments, which have no transport header",
        Prereq::Tcp => "`tcp` or `tcp6`",
        Prereq::Udp => "`udp` or `udp6`",
        Prereq::Sctp => "`sctp` or `sctp6`",
        Prereq::Ports => "`tcp`, `udp`, `sctp`, `tcp6`, `udp6` or `sctp6`",
        Prereq::Icmp4 => "`icmp`",
        Prereq::Icmp6 => "`icmp6`",
        Prereq::Nd => "`icmp6,icmpv6_type=135` or `136`, with code 0",
        Prereq::NdSolicit => "`icmp6,icmpv6_type=135`, with code 0",
        Prereq::NdAdvert => "`icmp6,icmpv6_type=136`, with code 0",
    }
}

/// Returns the prerequisite that a match on `field` lacks, if any.
fn missing(field: Field, matching: &Match) -> Option<&'static str> {
    let arp = established(Prereq::Arp, matching);
    match field {
        // ARP's own fields share these bits.
        Field::NwSrc | Field::NwDst | Field::NwProto if arp => None,
        Field::NwSrc | Field::NwDst if fixed(Field::DlType, matching).is_none() => {
            Some("`ip` (or `arp`)")
        }
        // `wish` already asks for the tag.
        Field::VlanVid | Field::VlanPcp => None,
        _ => {
            let prereq = field.prereq();
            (!established(prereq, matching)).then(|| needs(prereq, matching))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_means_two_things() {
        let mut all: Vec<_> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| !is_field_elsewhere(name)));
    }
}
