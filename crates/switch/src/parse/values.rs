//! Values: numbers, addresses, ports, fragments and TCP flags, each with its mask where it has one.
//!
//! A value is (bits, mask), right-aligned, with the bits outside the mask cleared, as `Field::get`
//! and `Field::set` expect them.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use overbank_wire::field::{Field, Format};

use super::error::{Fault, RuleErrorKind, quote};
use super::lex::Span;
use super::{PORT_LOCAL, PORT_MAX};

/// A value and its mask.
pub(super) type Masked = (u128, u128);

pub(crate) const TCP_FLAG_NAMES: [&str; 9] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Names of `ip_frag` values, each with its value and mask.
pub(crate) const FRAG_NAMES: [(&str, u128, u128); 5] =
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];

/// Returns whether a rule may match or set single bits of a field, as in Open vSwitch.
pub(super) fn maskable(field: Field) -> bool {
    use Field::*;
    match field {
        InPort | DlType | VlanPcp | NwProto | NwTos | IpDscp | NwEcn | NwTtl | ArpOp | IcmpType
        | IcmpCode | Icmp6Type | Icmp6Code => false,
        DlSrc | DlDst | VlanTci | VlanVid | NwSrc | NwDst | ArpSpa | ArpTpa | Ipv6Src | Ipv6Dst
        | Ipv6Label | NwFrag | ArpSha | ArpTha | TpSrc | TpDst | TcpSrc | TcpDst | TcpFlags
        | UdpSrc | UdpDst | SctpSrc | SctpDst | NdTarget | NdSll | NdTll => true,
    }
}

/// Parses a decimal or 0x number from 0 to `max`.
pub(super) fn number(span: Span<'_>, max: u64) -> Result<u64, Fault> {
    number_as(span, max, || format!("a number from 0 to {max}").into())
}

/// As [`number`], with a separate description of what is expected.
pub(super) fn number_as(
    span: Span<'_>,
    max: u64,
    expected: impl FnOnce() -> Cow<'static, str>,
) -> Result<u64, Fault> {
    let text = span.text;
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((text, 10), |digits| (digits, 16));
    if hex.is_none() && digits.len() > 1 && digits.starts_with('0') {
        // Open vSwitch reads 010 as eight, most readers as ten.
        return Err(Fault::expected(span.at, "a number without a leading zero", text));
    }
    let all_digits = digits.bytes().all(|b| char::from(b).is_digit(radix));
    let value = if all_digits { u64::from_str_radix(digits, radix).ok() } else { None };
    value.filter(|&value| value <= max).ok_or_else(|| Fault::expected(span.at, expected(), text))
}

/// Parses a number of `bits` bits, with a mask after a slash.
pub(super) fn number_masked(span: Span<'_>, bits: u32) -> Result<Masked, Fault> {
    let max = u64::MAX >> (64 - bits);
    let (value, mask) = match span.split_once("/") {
        Some((value, mask)) => (number(value, max)?, number(mask, max)?),
        None => (number(span, max)?, max),
    };
    Ok((u128::from(value & mask), u128::from(mask)))
}

/// Parses the bit range of a subfield (`5]`, `0..7]`, or `]` for all bits) of a field with `width`
/// bits. Returns the lowest and the highest bit, at most 64 bits apart.
pub(super) fn bit_range(span: Span<'_>, width: u32) -> Result<(u32, u32), Fault> {
    let top = width - 1;
    let wrong = || {
        let expected = format!("`[BIT]` or `[LOW..HIGH]` with bits from 0 to {top}, at most 64");
        Fault::expected(span.at, expected, span.text)
    };
    let inner = span.text.strip_suffix(']').ok_or_else(wrong)?;
    let bit = |text: &str| text.parse().ok().filter(|&bit: &u32| bit <= top);
    let (low, high) = match inner.split_once("..") {
        _ if inner.is_empty() => (Some(0), Some(top)),
        Some((low, high)) => (bit(low), bit(high)),
        None => (bit(inner), bit(inner)),
    };
    match (low, high) {
        (Some(low), Some(high)) if low <= high && high - low < 64 => Ok((low, high)),
        _ => Err(wrong()),
    }
}

/// Parses the number of a table that a rule can be in.
pub(super) fn table(span: Span<'_>) -> Result<u8, Fault> {
    let value =
        number_as(span, u64::from(crate::rule::TABLE_MAX), || "a table from 0 to 254".into())?;
    Ok(u8::try_from(value).expect("`number_as` checked the bound"))
}

/// Converts a reserved port from OpenFlow 1.0's 16 bits (65528 to 65534) to OpenFlow's 32-bit
/// number.
pub(super) fn reserved_port(span: Span<'_>) -> Option<u32> {
    let number = number(span, u32::MAX.into()).ok()?;
    match u32::try_from(number).ok()? {
        short @ 0xfff8..=0xfffe => Some(0xffff_0000 | short),
        long @ 0xffff_fff8..=0xffff_fffe => Some(long),
        _ => None,
    }
}

/// Parses a port: a number, or `LOCAL`.
pub(super) fn port(span: Span<'_>) -> Result<u32, Fault> {
    if span.text.eq_ignore_ascii_case("local") || reserved_port(span) == Some(PORT_LOCAL) {
        return Ok(PORT_LOCAL);
    }
    let expected = || "a port from 0 to 65279 or LOCAL".into();
    let value = number_as(span, u64::from(PORT_MAX), expected)?;
    Ok(u32::try_from(value).expect("`number_as` checked the bound"))
}

fn mac_bits(span: Span<'_>) -> Result<u128, Fault> {
    let wrong =
        || Fault::expected(span.at, "an Ethernet address like 00:11:22:aa:bb:cc", span.text);
    let mut bits = 0;
    let mut octets = 0;
    for octet in span.text.split(':') {
        octets += 1;
        let digits = octet.bytes().all(|b| b.is_ascii_hexdigit());
        if octets > 6 || !digits || !(1..=2).contains(&octet.len()) {
            return Err(wrong());
        }
        bits = bits << 8 | u128::from(u8::from_str_radix(octet, 16).map_err(|_| wrong())?);
    }
    if octets == 6 { Ok(bits) } else { Err(wrong()) }
}

/// Parses an address with /bits or /mask.
fn address<A: FromStr>(
    span: Span<'_>,
    width: u32,
    to_bits: impl Fn(A) -> u128,
    expected: &'static str,
    expected_mask: &'static str,
) -> Result<Masked, Fault> {
    let ones = u128::MAX >> (128 - width);
    let parse = |span: Span<'_>, expected: &'static str| {
        let address = span.text.parse::<A>();
        address.map(&to_bits).map_err(|_| Fault::expected(span.at, expected, span.text))
    };
    let Some((value, mask)) = span.split_once("/") else {
        return Ok((parse(span, expected)?, ones));
    };
    let value = parse(value, expected)?;
    let mask = if !mask.text.is_empty() && mask.text.bytes().all(|b| b.is_ascii_digit()) {
        let prefix = number_as(mask, u64::from(width), || expected_mask.into())?;
        let host_bits = width - u32::try_from(prefix).unwrap_or(width);
        ones & u128::MAX.checked_shl(host_bits).unwrap_or(0)
    } else {
        parse(mask, expected_mask)?
    };
    Ok((value & mask, mask))
}

fn ip4(span: Span<'_>) -> Result<Masked, Fault> {
    address::<Ipv4Addr>(
        span,
        32,
        |a| u128::from(a.to_bits()),
        "an IPv4 address like 10.0.0.0/8",
        "a prefix length from 0 to 32 or a mask like 255.255.255.0",
    )
}

fn ip6(span: Span<'_>) -> Result<Masked, Fault> {
    address::<Ipv6Addr>(
        span,
        128,
        Ipv6Addr::to_bits,
        "an IPv6 address like fe80::/10",
        "a prefix length from 0 to 128 or a mask like ffff::",
    )
}

fn mac(span: Span<'_>) -> Result<Masked, Fault> {
    match span.split_once("/") {
        None => Ok((mac_bits(span)?, (1 << 48) - 1)),
        Some((value, mask)) => {
            let (value, mask) = (mac_bits(value)?, mac_bits(mask)?);
            Ok((value & mask, mask))
        }
    }
}

fn frag(span: Span<'_>) -> Result<Masked, Fault> {
    let known = FRAG_NAMES.iter().find(|(name, ..)| *name == span.text);
    known.map(|&(_, value, mask)| (value, mask)).ok_or_else(|| {
        Fault::expected(span.at, "`no`, `yes`, `first`, `later` or `not_later`", span.text)
    })
}

/// Parses `+syn-ack` (these bits), `syn|ack` (exactly these of all twelve), a number or
/// number/mask.
fn tcp_flags(span: Span<'_>) -> Result<Masked, Fault> {
    let flag = |name: Span<'_>| {
        let bit = TCP_FLAG_NAMES.iter().position(|&known| known == name.text);
        bit.map(|bit| 1u128 << bit).ok_or_else(|| {
            let expected = "a TCP flag (fin, syn, rst, psh, ack, urg, ece, cwr, ns)";
            Fault::expected(name.at, expected, name.text)
        })
    };
    let once = |name: Span<'_>, seen: u128, bit: u128| match seen & bit {
        0 => Ok(()),
        _ => Err(Fault::expected(name.at, "each TCP flag once", name.text)),
    };
    let bytes = span.text.as_bytes();
    match bytes.first() {
        Some(b'0'..=b'9') => number_masked(span, Field::TcpFlags.bits()),
        Some(b'+' | b'-') => {
            let (mut value, mut mask) = (0, 0);
            let mut at = 0;
            while at < bytes.len() {
                let end = bytes[at + 1..].iter().position(|b| matches!(b, b'+' | b'-'));
                let end = end.map_or(bytes.len(), |n| at + 1 + n);
                let name = Span { text: &span.text[at + 1..end], at: span.at + at + 1 };
                let bit = flag(name)?;
                once(name, mask, bit)?;
                mask |= bit;
                value |= if bytes[at] == b'+' { bit } else { 0 };
                at = end;
            }
            Ok((value, mask))
        }
        Some(_) => {
            let mut value = 0;
            let mut at = span.at;
            for text in span.text.split('|') {
                let name = Span { text, at };
                let bit = flag(name)?;
                once(name, value, bit)?;
                value |= bit;
                at += text.len() + 1;
            }
            Ok((value, Field::TcpFlags.all_ones()))
        }
        None => Err(Fault::expected(span.at, "TCP flags like `+syn-ack` or `syn|ack`", "")),
    }
}

/// Returns an error if the span contains a slash.
pub(super) fn no_mask(field: Field, span: Span<'_>) -> Result<(), Fault> {
    let Some((_, mask)) = span.split_once("/") else { return Ok(()) };
    let kind = RuleErrorKind::NotMaskable { field: field.name(), found: quote(mask.text) };
    Err(Fault::new(mask.at, kind))
}

/// Parses a type of service: DSCP in its upper six bits, zeros below.
pub(super) fn tos(span: Span<'_>) -> Result<u128, Fault> {
    no_mask(Field::NwTos, span)?;
    let expected = "a type of service from 0 to 252 with its lower two bits 0 (ECN is `nw_ecn`)";
    let value = number_as(span, 0xff, || expected.into())?;
    if value & 3 != 0 {
        return Err(Fault::expected(span.at, expected, span.text));
    }
    Ok(u128::from(value))
}

/// Parses a number with a mask of all ones or all zeros, which every numeric field accepts.
fn all_or_nothing(field: Field, span: Span<'_>) -> Option<Masked> {
    let (value, mask) = span.split_once("/").filter(|_| field.format() == Format::Number)?;
    let max = u64::MAX >> (64 - field.bits());
    let (value, mask) = (number(value, max).ok()?, number(mask, max).ok()?);
    (mask == 0 || mask == max).then(|| ((value & mask).into(), mask.into()))
}

/// Parses a value of `field` in the field's format, masked where the field allows it.
///
/// Callers parse the VLAN fields and `nw_tos` themselves: these differ between matches and actions.
pub(super) fn of_field(field: Field, span: Span<'_>) -> Result<Masked, Fault> {
    if !maskable(field) {
        match all_or_nothing(field, span) {
            Some(whole_or_none) => return Ok(whole_or_none),
            None => no_mask(field, span)?,
        }
    }
    match field.format() {
        Format::Number => number_masked(span, field.bits()),
        Format::Mac => mac(span),
        Format::Ip4 => ip4(span),
        Format::Ip6 => ip6(span),
        Format::Port => Ok((u128::from(port(span)?), field.all_ones())),
        Format::Frag => frag(span),
        Format::TcpFlags => tcp_flags(span),
    }
}
