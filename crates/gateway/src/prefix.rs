//! Address prefixes: pools of terminals, allowed peers, protected addresses.

use overbank_declare::settings::{Range, SettingValue};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A prefix of addresses of one family; the bits after it are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Returns the mask of a prefix of IPv4.
#[inline]
pub(crate) fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)
}

/// Returns the mask of a prefix of IPv6.
#[inline]
pub(crate) fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

/// Returns the first `len` bits of an address.
#[inline]
pub(crate) fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() & mask4(len)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & mask6(len)).into(),
    }
}

/// Returns the bits of an address of this family.
pub(crate) const fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Prefix {
    /// Returns the prefix of `len` bits that `address` is in.
    pub fn of(address: IpAddr, len: u8) -> Prefix {
        let len = len.min(bits_of(address));
        Prefix { address: masked(address, len), len }
    }

    pub const fn address(&self) -> IpAddr {
        self.address
    }

    #[expect(clippy::len_without_is_empty, reason = "a length in bits")]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns whether an address is in it.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.len) == self.address
    }

    /// Returns whether some address is in both.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Reads `ADDRESS/LENGTH`, or an address alone.
    ///
    /// # Errors
    /// Returns what is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Prefix, String> {
        let wrong = || format!("{text:?}: must be ADDRESS/LENGTH, such as 10.45.0.0/16");
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = bits_of(address);
        let len = match len.map(str::trim) {
            None => most,
            Some(len) if len.starts_with('+') => return Err(wrong()),
            Some(len) => len.parse().ok().filter(|len| *len <= most).ok_or_else(wrong)?,
        };
        let prefix = Prefix::of(address, len);
        if prefix.address != address {
            return Err(format!("{text:?}: has bits after the prefix; meant is {prefix}?"));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl SettingValue for Prefix {
    const VALUE_NAME: &'static str = "PREFIX";

    fn accepts(_: &Range) -> String {
        "ADDRESS/LENGTH".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Prefix, String> {
        Prefix::parse(text)
    }
}

/// A few prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    all: Vec<Prefix>,
    /// Address and mask of those of IPv4.
    v4: Vec<[u32; 2]>,
}

impl Prefixes {
    /// Returns whether an address is in one of them. Cost: a comparison for each prefix.
    #[inline]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.all.iter().any(|prefix| prefix.contains(address))
    }

    /// Returns [`Prefixes::contain`].
    #[inline]
    pub(crate) fn contain4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|[prefix, mask]| address.to_bits() & mask == *prefix)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Prefix> {
        self.all.iter()
    }
}

impl FromIterator<Prefix> for Prefixes {
    fn from_iter<T: IntoIterator<Item = Prefix>>(prefixes: T) -> Prefixes {
        let all: Vec<Prefix> = prefixes.into_iter().collect();
        let v4 = all.iter().filter_map(|prefix| match prefix.address {
            IpAddr::V4(address) => Some([address.to_bits(), mask4(prefix.len)]),
            IpAddr::V6(_) => None,
        });
        Prefixes { v4: v4.collect(), all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).expect("a prefix")
    }

    #[test]
    fn prefixes_contain_their_addresses() {
        for (text, inside, outside) in [
            ("10.45.0.0/16", "10.45.255.255", "10.46.0.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("2001:db8:45::/48", "2001:db8:45:ffff::1", "2001:db8:46::"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            let (prefix, ip) = (prefix(text), |text: &str| text.parse::<IpAddr>().unwrap());
            assert!(prefix.contains(ip(inside)) && !prefix.contains(ip(outside)), "{text}");
            let prefixes: Prefixes = [prefix].into_iter().collect();
            for address in [inside, outside].map(ip) {
                let IpAddr::V4(v4) = address else { continue };
                assert_eq!(prefixes.contain4(v4), prefixes.contain(address), "{text}");
            }
        }
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.45.0.0/16")));
        assert!(prefix("10.45.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.45.0.0/16").overlaps(&prefix("10.46.0.0/16")));
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for text in ["", "10.45.0.0/33", "10.45.0.0/+1", "10.45.0.0/", "::/129", "x", "10/8"] {
            let error = Prefix::parse(text).expect_err(text);
            assert!(error.contains("must be ADDRESS/LENGTH"), "{error}");
        }
        let error = Prefix::parse("10.45.1.0/16").expect_err("bits after it");
        assert!(error.ends_with("meant is 10.45.0.0/16?"), "{error}");
    }
}
