//! Keys and values of a forwarding table: keys of up to 128 bits, values of 2, 4 and 8 bytes.
//!
//! A key is one or two 64-bit words, a value at most one. Their sizes alone determine the layout
//! (`bucket`).
//!
//! | keys | bits |
//! |---|---|
//! | `u32`, `Ipv4Addr` | 32 |
//! | [`MacAddr`] | 48 |
//! | `u64`, [`MacVlan`] | 64 |
//! | `u128`, `Ipv6Addr` | 128 |
//! | `[u8; N]`, N from 1 to 16 | 8 N |

use core::fmt::{self, Debug};
use core::hash::Hash;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A key. To be implemented for others:
///
/// ```
/// use overbank::fib::{Config, Key, Writer};
///
/// /// A session of a gateway: its tunnel, and which of its flows.
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
/// struct Session {
///     teid: u32,
///     flow: u8,
/// }
///
/// impl Key for Session {
///     const BITS: usize = 40;
///     fn to_words(self) -> [u64; 2] {
///         [u64::from(self.teid) << 8 | u64::from(self.flow), 0]
///     }
///     fn from_words([low, _]: [u64; 2]) -> Self {
///         Session { teid: (low >> 8) as u32, flow: low as u8 }
///     }
/// }
///
/// let mut fib = Writer::<Session, u16>::new(&Config::entries(1000))?;
/// fib.insert(Session { teid: 7, flow: 1 }, 3)?;
/// assert_eq!(fib.get(Session { teid: 7, flow: 1 }), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Two keys are equal if and only if their words are: else a table may lose or confuse them, and
/// does nothing worse.
pub trait Key: Copy + Debug + Eq + Hash + Ord + Send + Sync + 'static {
    /// Significant bits, 1 to 128. Others do not compile. With the value's bits, at most 64, an
    /// entry takes 8 bytes.
    const BITS: usize;

    /// Returns the key's bits, the lower 64 first. Those past [`Key::BITS`] are ignored.
    fn to_words(self) -> [u64; 2];

    /// Returns the key of these bits: those of a key, or any within [`Key::BITS`] if they are from
    /// an image that another program has written.
    fn from_words(words: [u64; 2]) -> Self;
}

/// What a table needs of a key.
pub(super) trait Words: Key {
    /// 64-bit words: 1 or 2.
    const WORDS: usize = {
        assert!(Self::BITS >= 1 && Self::BITS <= 128, "a key has 1 to 128 bits");
        Self::BITS.div_ceil(64)
    };
    /// The key's bits in its last word.
    const LAST: u64 = u64::MAX >> (64 * Self::WORDS - Self::BITS);

    /// Returns the low word.
    #[inline(always)]
    fn low(self) -> u64 {
        let mask = if Self::WORDS == 1 { Self::LAST } else { u64::MAX };
        self.to_words()[0] & mask
    }

    /// Returns the high word, or zero.
    #[inline(always)]
    fn high(self) -> u64 {
        if Self::WORDS == 1 { 0 } else { self.to_words()[1] & Self::LAST }
    }
}

impl<K: Key> Words for K {}

/// A value. Implemented by `u16`, `u32` and `u64`.
pub trait Value: Copy + Debug + Default + Eq + Send + Sync + 'static + sealed::Value {}

pub(super) mod sealed {
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
pub struct MacAddr(u64);

impl MacAddr {
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

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> Self {
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.to_bytes();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Debug for MacAddr {
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
        Self(MacAddr::from_bytes(mac).0 << 12 | (vlan & 0xfff) as u64)
    }

    /// Returns the address.
    pub const fn mac(self) -> [u8; 6] {
        MacAddr(self.0 >> 12 & 0xffff_ffff_ffff).to_bytes()
    }

    /// Returns the VLAN number, 0 to 4095.
    pub const fn vlan(self) -> u16 {
        (self.0 & 0xfff) as u16
    }
}

impl fmt::Display for MacVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", MacAddr::from_bytes(self.mac()), self.vlan())
    }
}

impl Debug for MacVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! keys {
    ($($key:ty, $bits:literal, |$k:ident| $to:expr, |$words:pat_param| $from:expr;)+) => {
        $(impl Key for $key {
            const BITS: usize = $bits;
            #[inline(always)]
            fn to_words(self) -> [u64; 2] {
                let $k = self;
                $to
            }
            #[inline(always)]
            fn from_words($words: [u64; 2]) -> Self {
                $from
            }
        })+
    };
}

keys! {
    u32, 32, |k| [k.into(), 0], |[low, _]| low as u32;
    u64, 64, |k| [k, 0], |[low, _]| low;
    u128, 128, |k| [k as u64, (k >> 64) as u64], |[low, high]| u128::from(high) << 64 | u128::from(low);
    Ipv4Addr, 32, |k| k.to_bits().to_words(), |words| Ipv4Addr::from_bits(u32::from_words(words));
    Ipv6Addr, 128, |k| k.to_bits().to_words(), |words| Ipv6Addr::from_bits(u128::from_words(words));
    MacAddr, 48, |k| [k.0, 0], |[low, _]| MacAddr(low & 0xffff_ffff_ffff);
    MacVlan, 64, |k| [k.0, 0], |[low, _]| MacVlan(low & (u64::MAX >> 4));
}

impl<const N: usize> Key for [u8; N] {
    const BITS: usize = 8 * N;

    #[inline(always)]
    fn to_words(self) -> [u64; 2] {
        const { assert!(N <= 16, "a key has 1 to 128 bits") };
        let mut bytes = [0; 16];
        bytes[..N].copy_from_slice(&self);
        u128::from_le_bytes(bytes).to_words()
    }

    #[inline(always)]
    fn from_words(words: [u64; 2]) -> Self {
        let bytes = u128::from_words(words).to_le_bytes();
        core::array::from_fn(|i| bytes[i])
    }
}

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
    use super::sealed::Value as _;
    use super::*;
    use std::string::ToString;

    #[test]
    fn keys_survive_their_words() {
        let mac = [0x02, 0, 0x5e, 0xff, 0x80, 1];
        assert_eq!(MacAddr::from_bytes(mac).to_bytes(), mac);
        assert_eq!(MacAddr::from_bytes(mac).to_string(), "02:00:5e:ff:80:01");
        assert_eq!(MacAddr::new(1 << 48), None);
        assert_eq!(MacAddr::new((1 << 48) - 1).map(MacAddr::get), Some((1 << 48) - 1));
        let key = MacVlan::new([0xff; 6], 0xffff);
        assert_eq!((key.mac(), key.vlan()), ([0xff; 6], 0xfff));
        assert_eq!(MacVlan::new(mac, 7).to_string(), "02:00:5e:ff:80:01@7");
        assert_eq!(MacVlan::from_words([key.low(), 0]), key);
        let wide = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128;
        assert_eq!(u128::from_words([wide.low(), wide.high()]), wide);
        fn survives<K: Key>(key: K, words: usize) {
            assert_eq!((K::from_words([key.low(), key.high()]), K::WORDS), (key, words));
        }
        survives(u32::MAX, 1);
        survives(Ipv4Addr::new(192, 0, 2, 255), 1);
        survives(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 2, 3, 4, 0xffff), 2);
        survives([0xff], 1);
        survives([1, 2, 3, 4, 5, 6, 7, 8], 1);
        survives([9, 8, 7, 6, 5, 4, 3, 2, 1], 2);
        survives([0xff; 13], 2);
        survives([0xff; 16], 2);
        assert_eq!(u16::from_bits(0x1_2345), 0x2345);
    }
}
