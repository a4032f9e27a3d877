//! Rules as text, in one canonical spelling.
//!
//! The parser reads its own values back: `parse_rule(&rule.to_string())` equals `rule`. An action
//! prints without the rule around it, and a [`Match`] without `actions=`.
//!
//! Other values print for people to read: a megaflow's mask may cover parts of fields that no rule
//! can name. Such bits print as `field=0xvalue/0xmask`, or under the name of the
//! [`FlowKey`](overbank_wire::FlowKey)'s member if no field has them. Every bit of the mask
//! appears. Only the formatter allocates.

use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use overbank_wire::field::{Field, Format};
use overbank_wire::key::VLAN_PRESENT;

use crate::parse::{
    FLAG_NAMES, FRAG_NAMES, MOD_FIELDS, PORT_LOCAL, PROTOCOLS, TCP_FLAG_NAMES, fixed,
};
use crate::rule::{Action, Match, Rule};

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.cookie != 0 {
            write!(f, "cookie={:#x},", self.cookie)?;
        }
        write!(f, "table={},", self.table)?;
        let numbers = [
            ("idle_timeout", self.idle_timeout_s),
            ("hard_timeout", self.hard_timeout_s),
            ("importance", self.importance),
        ];
        for (name, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
            write!(f, "{name}={value},")?;
        }
        for (bit, name) in FLAG_NAMES.iter().enumerate() {
            if self.flags.bits() >> bit & 1 != 0 {
                write!(f, "{name},")?;
            }
        }
        write!(f, "priority={},", self.priority)?;
        if self.matching != Match::default() {
            write!(f, "{},", self.matching)?;
        }
        f.write_str("actions=")?;
        let is_goto = |action: &&Action| matches!(action, Action::GotoTable(_));
        let mut parts = Parts { f, between: "" };
        for action in self.actions.iter().filter(|action| !is_goto(action)) {
            parts.part(format_args!("{action}"))?;
        }
        if self.clear_actions {
            parts.part(format_args!("clear_actions"))?;
        }
        if !self.write_actions.is_empty() {
            parts.part(format_args!("write_actions("))?;
            let mut set = Parts { f: &mut *parts.f, between: "" };
            for action in &self.write_actions {
                set.part(format_args!("{action}"))?;
            }
            parts.f.write_str(")")?;
        }
        for action in self.actions.iter().filter(is_goto) {
            parts.part(format_args!("{action}"))?;
        }
        if parts.between.is_empty() { f.write_str("drop") } else { Ok(()) }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.plain() {
            Action::Output(PORT_LOCAL) => f.write_str("local"),
            Action::Output(port) | Action::OutputAsked { port, .. } => write!(f, "output:{port}"),
            Action::InPort => f.write_str("in_port"),
            Action::Flood => f.write_str("flood"),
            Action::All => f.write_str("all"),
            Action::Normal => f.write_str("normal"),
            Action::Controller { max_len } => write!(f, "controller:{max_len}"),
            Action::SetField { field, value, mask } => set_field(f, field, value, mask),
            Action::SetVlan { field: Field::VlanPcp, value } => write!(f, "mod_vlan_pcp:{value}"),
            Action::SetVlan { value, .. } => write!(f, "mod_vlan_vid:{value}"),
            Action::PushVlan(tpid) => write!(f, "push_vlan:{tpid:#06x}"),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::DecTtl => f.write_str("dec_ttl"),
            Action::GotoTable(table) => write!(f, "goto_table:{table}"),
            Action::Resubmit { in_port, table } => {
                f.write_str("resubmit(")?;
                if let Some(in_port) = in_port {
                    port(f, in_port)?;
                }
                match table {
                    Some(table) => write!(f, ",{table})"),
                    None => f.write_str(")"),
                }
            }
        }
    }
}

/// Prints `mod_…` where one exists, since it reads back without the match around it.
fn set_field(f: &mut Formatter<'_>, field: Field, value: u128, mask: u128) -> fmt::Result {
    let whole = if field == Field::NwTos { 0xfc } else { field.all_ones() };
    if mask == whole
        && let Some((name, _)) = MOD_FIELDS.iter().find(|(_, known)| *known == field)
    {
        write!(f, "{name}:")?;
        return masked(f, field, value, field.all_ones());
    }
    f.write_str("set_field:")?;
    match field {
        // With the present bit of OpenFlow 1.2 and later.
        Field::VlanVid if mask == whole => {
            write!(f, "{}->vlan_vid", value | u128::from(VLAN_PRESENT))
        }
        Field::VlanVid => write!(f, "{value:#x}/{mask:#x}->vlan_vid"),
        Field::VlanPcp => write!(f, "{value}->vlan_pcp"),
        _ => {
            masked(f, field, value, mask)?;
            write!(f, "->{}", field.name())
        }
    }
}

fn port(f: &mut Formatter<'_>, port: u32) -> fmt::Result {
    match port {
        PORT_LOCAL => f.write_str("LOCAL"),
        port => write!(f, "{port}"),
    }
}

/// Prints a value in its field's format, with the mask unless it covers the whole field.
fn masked(f: &mut Formatter<'_>, field: Field, value: u128, mask: u128) -> fmt::Result {
    debug_assert_eq!((value | mask) & !field.all_ones(), 0, "no wider than {}", field.name());
    let whole = mask == field.all_ones();
    match field.format() {
        Format::Mac if whole => mac(f, value),
        Format::Mac => {
            mac(f, value)?;
            f.write_str("/")?;
            mac(f, mask)
        }
        Format::Ip4 => address(f, value, mask, 32, |bits| {
            Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))
        }),
        Format::Ip6 => address(f, value, mask, 128, Ipv6Addr::from_bits),
        Format::Port if whole => port(f, u32::try_from(value).unwrap_or(u32::MAX)),
        Format::TcpFlags => tcp_flags(f, value, mask),
        Format::Frag => match FRAG_NAMES.iter().find(|known| (known.1, known.2) == (value, mask)) {
            Some((name, ..)) => f.write_str(name),
            None => write!(f, "{value:#x}/{mask:#x}"),
        },
        Format::Number | Format::Port if whole => write!(f, "{value}"),
        Format::Number | Format::Port => write!(f, "{value:#x}/{mask:#x}"),
    }
}

fn mac(f: &mut Formatter<'_>, bits: u128) -> fmt::Result {
    for i in (0..6).rev() {
        write!(f, "{:02x}{}", (bits >> (8 * i)) & 0xff, if i == 0 { "" } else { ":" })?;
    }
    Ok(())
}

fn address<A: Display>(
    f: &mut Formatter<'_>,
    value: u128,
    mask: u128,
    width: u32,
    from_bits: impl Fn(u128) -> A,
) -> fmt::Result {
    write!(f, "{}", from_bits(value))?;
    let prefix = mask.count_ones();
    if prefix == width {
        return Ok(());
    }
    // A run of ones from the top bit down.
    if (mask << (128 - width)).leading_ones() == prefix {
        write!(f, "/{prefix}")
    } else {
        write!(f, "/{}", from_bits(mask))
    }
}

fn tcp_flags(f: &mut Formatter<'_>, value: u128, mask: u128) -> fmt::Result {
    let named = (1u128 << TCP_FLAG_NAMES.len()) - 1;
    let names = || TCP_FLAG_NAMES.iter().enumerate();
    if mask == Field::TcpFlags.all_ones() {
        if value == 0 || value & !named != 0 {
            return write!(f, "{value:#x}");
        }
        let mut between = "";
        for (_, name) in names().filter(|(bit, _)| value >> bit & 1 != 0) {
            write!(f, "{between}{name}")?;
            between = "|";
        }
        return Ok(());
    }
    if mask & !named != 0 {
        return write!(f, "{value:#x}/{mask:#x}");
    }
    for (bit, name) in names().filter(|(bit, _)| mask >> bit & 1 != 0) {
        write!(f, "{}{name}", if value >> bit & 1 != 0 { "+" } else { "-" })?;
    }
    Ok(())
}

/// Separates parts by commas.
struct Parts<'a, 'f> {
    f: &'a mut Formatter<'f>,
    between: &'static str,
}

impl Parts<'_, '_> {
    fn part(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        self.f.write_str(self.between)?;
        self.between = ",";
        self.f.write_fmt(text)
    }

    /// Prints `name=value/mask`, if the mask has a bit.
    fn field(&mut self, name: &str, field: Field, value: u128, mask: u128) -> fmt::Result {
        if mask == 0 {
            return Ok(());
        }
        self.part(format_args!("{name}="))?;
        masked(self.f, field, value, mask)
    }

    /// Prints `name=0xvalue/0xmask`, if the mask has a bit.
    fn raw(&mut self, name: &str, value: u32, mask: u32) -> fmt::Result {
        if mask == 0 {
            return Ok(());
        }
        self.part(format_args!("{name}={value:#x}/{mask:#x}"))
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = Parts { f, between: "" };
        let dl_type = fixed(Field::DlType, self);
        let proto = fixed(Field::NwProto, self);
        let arp = matches!(dl_type, Some(0x0806 | 0x8035));
        for &field in Field::ALL {
            let (value, mask) = (field.get(&self.key), field.get(&self.mask));
            match field {
                Field::DlType => self.protocol(&mut parts)?,
                Field::VlanTci => self.vlan(&mut parts)?,
                Field::ArpSpa | Field::ArpTpa | Field::ArpOp => {}
                Field::NwSrc if arp => parts.field("arp_spa", field, value, mask)?,
                Field::NwDst if arp => parts.field("arp_tpa", field, value, mask)?,
                Field::NwProto if arp => parts.field("arp_op", field, value, mask)?,
                Field::NwProto if self.shorthand().is_some_and(|s| s.2.is_some()) => {}
                Field::NwTos => {
                    let (dscp, ecn) = (mask & 0xfc, mask & 3);
                    match dscp {
                        0xfc => parts.part(format_args!("nw_tos={}", value & 0xfc))?,
                        _ => parts.field("nw_tos", field, value & 0xfc, dscp)?,
                    }
                    parts.field("nw_ecn", Field::NwEcn, value & 3, ecn)?;
                }
                Field::TpSrc | Field::TpDst => {
                    let (of_icmp, of_icmp6) = match field {
                        Field::TpSrc => (Field::IcmpType, Field::Icmp6Type),
                        _ => (Field::IcmpCode, Field::Icmp6Code),
                    };
                    let field = match (dl_type, proto) {
                        (Some(0x0800), Some(1)) if mask == 0xff => of_icmp,
                        (Some(0x86dd), Some(58)) if mask == 0xff => of_icmp6,
                        _ => field,
                    };
                    parts.field(field.name(), field, value, mask)?;
                }
                Field::NdSll if !arp => parts.field("nd_sll", field, value, mask)?,
                Field::NdTll if !arp => parts.field("nd_tll", field, value, mask)?,
                // The same bits as another field.
                Field::ArpSha | Field::ArpTha if !arp => {}
                Field::VlanVid
                | Field::VlanPcp
                | Field::IpDscp
                | Field::NwEcn
                | Field::TcpSrc
                | Field::TcpDst
                | Field::UdpSrc
                | Field::UdpDst
                | Field::SctpSrc
                | Field::SctpDst
                | Field::IcmpType
                | Field::IcmpCode
                | Field::Icmp6Type
                | Field::Icmp6Code
                | Field::NdSll
                | Field::NdTll => {}
                Field::InPort
                | Field::DlSrc
                | Field::DlDst
                | Field::NwSrc
                | Field::NwDst
                | Field::Ipv6Src
                | Field::Ipv6Dst
                | Field::Ipv6Label
                | Field::NwProto
                | Field::NwTtl
                | Field::NwFrag
                | Field::ArpSha
                | Field::ArpTha
                | Field::TcpFlags
                | Field::NdTarget => parts.field(field.name(), field, value, mask)?,
            }
        }
        let (key, mask) = (&self.key, &self.mask);
        parts.raw("inner_tci", key.inner_tci.into(), mask.inner_tci.into())?;
        parts.raw("vlan_tpid", key.vlan_tpid.into(), mask.vlan_tpid.into())?;
        parts.raw("inner_tpid", key.inner_tpid.into(), mask.inner_tpid.into())?;
        // Bits of members that are wider than their fields; the parser never sets them.
        parts.raw("frag_rest", (key.nw_frag & !3).into(), (mask.nw_frag & !3).into())?;
        parts.raw("label_rest", key.ipv6_label & !0xf_ffff, mask.ipv6_label & !0xf_ffff)?;
        parts.raw(
            "flags_rest",
            (key.tcp_flags & !0xfff).into(),
            (mask.tcp_flags & !0xfff).into(),
        )?;
        parts.raw("reserved", key.reserved, mask.reserved)
    }
}

impl Match {
    /// Returns the longest protocol name that applies.
    fn shorthand(&self) -> Option<&'static (&'static str, u16, Option<u8>)> {
        let dl_type = fixed(Field::DlType, self)?;
        let proto = fixed(Field::NwProto, self);
        PROTOCOLS
            .iter()
            .filter(|known| u128::from(known.1) == dl_type)
            .filter(|known| known.2.is_none_or(|p| proto == Some(u128::from(p))))
            .max_by_key(|known| known.2.is_some())
    }

    fn protocol(&self, parts: &mut Parts<'_, '_>) -> fmt::Result {
        match (self.shorthand(), self.mask.dl_type) {
            (Some((name, ..)), _) => parts.part(format_args!("{name}")),
            (None, 0) => Ok(()),
            (None, 0xffff) => parts.part(format_args!("dl_type={:#06x}", self.key.dl_type)),
            (None, mask) => parts.raw("dl_type", self.key.dl_type.into(), mask.into()),
        }
    }

    fn vlan(&self, parts: &mut Parts<'_, '_>) -> fmt::Result {
        let (key, mask) = (self.key.vlan_tci, self.mask.vlan_tci);
        let tagged = mask & key & VLAN_PRESENT != 0;
        let vid = match mask & 0x0fff {
            0 => Some(false),
            0x0fff => Some(true),
            _ => None,
        };
        let pcp = match mask & 0xe000 {
            0 => Some(false),
            0xe000 => Some(true),
            _ => None,
        };
        if let (true, Some(vid), Some(pcp)) = (tagged, vid, pcp)
            && (vid || pcp)
        {
            if vid {
                parts.part(format_args!("dl_vlan={}", key & 0x0fff))?;
            }
            if pcp {
                parts.part(format_args!("dl_vlan_pcp={}", key >> 13))?;
            }
            return Ok(());
        }
        match mask {
            0 => Ok(()),
            0xffff => parts.part(format_args!("vlan_tci={key:#06x}")),
            mask => parts.part(format_args!("vlan_tci={key:#06x}/{mask:#06x}")),
        }
    }
}
