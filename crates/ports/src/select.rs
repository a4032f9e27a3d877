//! Which frames a port takes; the kernel keeps the others.
//!
//! ```text
//!   frame ─┬─ from a MAC address that starts with three bytes ──────▶ port
//!          ├─ IP to a prefix ───────────────────────────────────────▶ port
//!          ├─ UDP to an address and port ───────────────────────────▶ port
//!          └─ else: ARP, neighbour discovery, ICMP, BGP, SSH, … ────▶ kernel
//! ```
//!
//! - Only untagged frames are taken: a VLAN is another interface of the kernel.
//! - UDP: IPv4 options, and an IPv6 fragment header alone, may come before it. A *first* fragment
//!   has the port and is taken, so that its receiver can refuse the packet by name. Later fragments
//!   have no port and may be another service's (IKE, DNS): the kernel keeps them.
//! - A frame that is too short for what a rule reads does not match it.
//!
//! [`Select::takes`] says the same as the XDP program of AF_XDP ports, which the tests compare.
//!
//! Limits: [`RULES_MAX`] rules. Panics: none, on any frames.

use std::net::IpAddr;

/// Most rules of a port; the program compares them one by one.
pub const RULES_MAX: usize = 128;

/// The frames that a port takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    #[default]
    All,
    /// Frames that match at least one rule.
    Rules(Rules),
}

/// At most [`RULES_MAX`] rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// A kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// UDP datagrams to an address and port.
    Udp { dst: IpAddr, port: u16 },
    /// IP packets to a prefix of `len` bits; later bits of the address do not count.
    To { prefix: IpAddr, len: u8 },
    /// Frames from a MAC address that starts with these bytes.
    From { src: [u8; 3] },
}

/// Why rules are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    #[error("{0} rules: must be at most {RULES_MAX}")]
    TooMany(usize),
    #[error("prefix {prefix}/{len}: must have at most {max} bits")]
    TooLong { prefix: IpAddr, len: u8, max: u8 },
}

impl Rules {
    /// Checks a list of rules; an empty one takes nothing.
    pub fn new(rules: Vec<Rule>) -> Result<Rules, SelectError> {
        if rules.len() > RULES_MAX {
            return Err(SelectError::TooMany(rules.len()));
        }
        for rule in &rules {
            if let Rule::To { prefix, len } = *rule {
                let max = if prefix.is_ipv4() { 32 } else { 128 };
                if len > max {
                    return Err(SelectError::TooLong { prefix, len, max });
                }
            }
        }
        Ok(Rules(rules))
    }

    /// Returns the rules of both, each once.
    ///
    /// # Errors
    /// They are too many.
    pub fn and(&self, other: &Rules) -> Result<Rules, SelectError> {
        let new = other.iter().filter(|rule| !self.0.contains(rule));
        Rules::new(self.iter().chain(new).copied().collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }
}

const ETHERNET: usize = 14;
const IP4: [u8; 2] = [0x08, 0x00];
const IP6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;

/// What rules read in a frame.
struct Header {
    dst: IpAddr,
    /// Destination port of a UDP header.
    port: Option<u16>,
}

impl Select {
    /// Returns what takes the frames of both.
    ///
    /// # Errors
    /// The rules are too many.
    pub fn and(&self, other: &Select) -> Result<Select, SelectError> {
        match (self, other) {
            (Select::Rules(ours), Select::Rules(others)) => ours.and(others).map(Select::Rules),
            _ => Ok(Select::All),
        }
    }

    /// Returns whether a frame is taken.
    pub fn takes(&self, frame: &[u8]) -> bool {
        let Select::Rules(rules) = self else { return true };
        let Some(ethernet) = frame.first_chunk::<ETHERNET>() else { return false };
        let header = Header::of(frame);
        rules.iter().any(|rule| match *rule {
            Rule::From { src } => ethernet[6..9] == src,
            Rule::To { prefix, len } => {
                header.as_ref().is_some_and(|header| is_in(header.dst, prefix, len))
            }
            Rule::Udp { dst, port } => {
                header.as_ref().is_some_and(|header| (header.dst, header.port) == (dst, Some(port)))
            }
        })
    }
}

impl Header {
    fn of(frame: &[u8]) -> Option<Header> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET>()?;
        match [ethernet[12], ethernet[13]] {
            IP4 => {
                let header = packet.first_chunk::<20>()?;
                let dst = IpAddr::from([header[16], header[17], header[18], header[19]]);
                let header_len = usize::from(header[0] & 15) * 4;
                let later = [header[6] & 0x1f, header[7]] != [0, 0];
                let is_udp = header[9] == UDP && !later && header_len >= 20;
                let port = if is_udp { udp_port(packet, header_len) } else { None };
                (header[0] >> 4 == 4).then_some(Header { dst, port })
            }
            IP6 => {
                let header = packet.first_chunk::<40>()?;
                let dst = IpAddr::from(<[u8; 16]>::try_from(&header[24..]).ok()?);
                let port = match header[6] {
                    UDP => udp_port(packet, 40),
                    FRAGMENT => packet.get(40..48).and_then(|fragment| {
                        let later = [fragment[2], fragment[3] & 0xf8] != [0, 0];
                        if fragment[0] == UDP && !later { udp_port(packet, 48) } else { None }
                    }),
                    _ => None,
                };
                (header[0] >> 4 == 6).then_some(Header { dst, port })
            }
            _ => None,
        }
    }
}

/// Returns the destination port of the whole UDP header at `at`.
fn udp_port(packet: &[u8], at: usize) -> Option<u16> {
    let header = packet.get(at..at + 8)?;
    Some(u16::from_be_bytes([header[2], header[3]]))
}

fn is_in(address: IpAddr, prefix: IpAddr, len: u8) -> bool {
    let bits = |address| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    address.is_ipv4() == prefix.is_ipv4() && (bits(address) ^ bits(prefix)) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_bounded() {
        let rule = Rule::From { src: [2, 0x4f, 0x42] };
        assert!(Rules::new(vec![rule; RULES_MAX]).is_ok());
        let error = Rules::new(vec![rule; RULES_MAX + 1]).expect_err("too many");
        assert_eq!(error.to_string(), "129 rules: must be at most 128");
        let other = Rules::new(vec![Rule::Udp { dst: [10, 0, 0, 1].into(), port: 1 }]);
        let [one, other] = [Rules::new(vec![rule]), other].map(|rules| rules.expect("few"));
        let both = one.and(&other).and_then(|both| both.and(&one)).expect("few");
        assert_eq!(both.len(), 2);
        assert_eq!(Select::Rules(one).and(&Select::All), Ok(Select::All));
        let rule = Rule::To { prefix: [10, 0, 0, 0].into(), len: 33 };
        let error = Rules::new(vec![rule]).expect_err("too long");
        assert_eq!(error.to_string(), "prefix 10.0.0.0/33: must have at most 32 bits");
    }

    #[test]
    fn prefixes_count_by_their_bits() {
        for (address, prefix, len, expected) in [
            ("10.45.255.1", "10.45.0.0", 16, true),
            ("10.46.0.1", "10.45.0.0", 16, false),
            ("1.2.3.4", "0.0.0.0", 0, true),
            ("::1", "0.0.0.0", 0, false),
            ("2001:db8:45::1", "2001:db8:44::", 47, true),
            ("2001:db8:45::1", "2001:db8:44::", 48, false),
            ("::1", "::1", 128, true),
        ] {
            let [address, prefix] = [address, prefix].map(|text| text.parse().expect("valid"));
            assert_eq!(is_in(address, prefix, len), expected, "{address} {prefix}/{len}");
        }
    }
}
