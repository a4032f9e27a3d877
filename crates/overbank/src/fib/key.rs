//! Keys and values of a forwarding table: keys of 6, 8 and 16 bytes, values of 2, 4 and 8.
//!
//! A key is one or two 64-bit words, a value at most one. The traits are sealed: their sizes alone
//! determine the layout (`bucket`), and every pair of them is tested.

use core::fmt::{self, Debug};
use core::hash::Hash;

/// A key. Implemented by [`Key6`], `u64`, [`MacVlan`] and `u128`.
pub trait Key: Copy + Debug + Eq + Hash + Ord + Send + Sync + 'static + sealed::Key {}

/// A value. Implemented by `u16`, `u32` and `u64`.
pub trait Value: Copy + Debug + Default + Eq + Send + Sync + 'static + sealed::Value {}

pub(super) mod sealed {
    pub trait Key: Sized {
        /// Significant bits: 48, 64 or 128.
        const BITS: usize;
        /// 64-bit words: 1 or 2.
        const WORDS: usize = Self::BITS.div_ceil(64);
        /// Returns the low word; it has `BITS` bits if it is the only one.
        fn low(self) -> u64;
        /// Returns the high word, or zero.
        fn high(self) -> u64;
        /// Returns the key of two words; ignores bits past `BITS`.
        fn from_words(low: u64, high: u64) -> Self;
    }

    pub trait Value: Sized {
        /// 16, 32 or 64.
        const BITS: usize;
        fn to_bits(self) -> u64;
        /// Returns the value of the low `BITS` bits.
        fn from_bits(bits: u64) -> Self;
    }
}

/// A key of 48 bits: an Ethernet address. With a 16-bit value an entry takes 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key6(u64);

impl Key6 {
    /// Returns the key of a number; `None` if it has more than 48 bits.
    pub const fn new(number: u64) -> Option<Self> {
        if number >> 48 == 0 { Some(Self(number)) } else { None }
    }

    /// Returns the key of an address as it lies in a frame.
    pub const fn from_bytes([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Returns the address as it lies in a frame.
    pub const fn to_bytes(self) -> [u8; 6] {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// Returns the number; at most 48 bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<[u8; 6]> for Key6 {
    fn from(bytes: [u8; 6]) -> Self {
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for Key6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.to_bytes();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Debug for Key6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An Ethernet address in a VLAN: 48 and 12 bits, a key of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacVlan(u64);

impl MacVlan {
    /// Returns the key of an address and the low 12 bits of a VLAN number.
    pub const fn new(mac: [u8; 6], vlan: u16) -> Self {
        Self(Key6::from_bytes(mac).0 << 12 | (vlan & 0xfff) as u64)
    }

    /// Returns the address.
    pub const fn mac(self) -> [u8; 6] {
        Key6(self.0 >> 12 & 0xffff_ffff_ffff).to_bytes()
    }

    /// Returns the VLAN number, 0 to 4095.
    pub const fn vlan(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

impl fmt::Display for MacVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", Key6::from_bytes(self.mac()), self.vlan())
    }
}

impl Debug for MacVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! key {
    ($key:ty, $bits:literal, |$k:ident| ($low:expr, $high:expr), |$l:ident, $h:ident| $from:expr) => {
        impl Key for $key {}
        impl sealed::Key for $key {
            const BITS: usize = $bits;
            #[inline(always)]
            fn low(self) -> u64 {
                let $k = self;
                $low
            }
            #[inline(always)]
            fn high(self) -> u64 {
                let $k = self;
                let _ = $k; // Not every key has a high word.
                $high
            }
            #[inline(always)]
            fn from_words($l: u64, $h: u64) -> Self {
                let _ = $h; // As above.
                $from
            }
        }
    };
}

key!(Key6, 48, |k| (k.0, 0), |low, high| Key6(low & 0xffff_ffff_ffff));
key!(u64, 64, |k| (k, 0), |low, high| low);
key!(MacVlan, 64, |k| (k.0, 0), |low, high| MacVlan(low & (u64::MAX >> 4)));
key!(u128, 128, |k| (k as u64, (k >> 64) as u64), |low, high| u128::from(high) << 64
    | u128::from(low));

macro_rules! value {
    ($value:ty) => {
        impl Value for $value {}
        impl sealed::Value for $value {
            const BITS: usize = <$value>::BITS as usize;
            #[inline(always)]
            fn to_bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $value
            }
        }
    };
}

value!(u16);
value!(u32);
value!(u64);

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::sealed::{Key as _, Value as _};
    use super::*;
    use std::string::ToString;

    #[test]
    fn keys_survive_their_words() {
        let mac = [0x02, 0, 0x5e, 0xff, 0x80, 1];
        assert_eq!(Key6::from_bytes(mac).to_bytes(), mac);
        assert_eq!(Key6::from_bytes(mac).to_string(), "02:00:5e:ff:80:01");
        assert_eq!(Key6::new(1 << 48), None);
        assert_eq!(Key6::new((1 << 48) - 1).map(Key6::get), Some((1 << 48) - 1));
        let key = MacVlan::new([0xff; 6], 0xffff);
        assert_eq!((key.mac(), key.vlan()), ([0xff; 6], 0xfff));
        assert_eq!(MacVlan::new(mac, 7).to_string(), "02:00:5e:ff:80:01@7");
        assert_eq!(MacVlan::from_words(key.low(), 0), key);
        let wide = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128;
        assert_eq!(u128::from_words(wide.low(), wide.high()), wide);
        assert_eq!(u16::from_bits(0x1_2345), 0x2345);
    }
}
