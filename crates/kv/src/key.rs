//! Keys of any length on the wire, whose keys have 16 bytes, and in stores.
//!
//! ```text
//!   up to 16 bytes, not ending in 00 and not beginning with ff:   |  the key  | 00 … 00 |
//!   all others:                       | ff | first 15 bytes of SHA-256 of the key |
//!                          and in front of their value: | length u16 | the key |
//! ```
//!
//! - Two keys have the same encoding only if both are hashed and their hashes are equal. With 120
//!   bits that takes 2^60 computed hashes, and SHA-256 leaves an attacker no shorter way; a fast
//!   hash without secret would. All clients must compute the same, so it cannot have a secret.
//! - A reader compares the key in front of the value with its own ([`unwrap`]). So even equal
//!   hashes never give it the value of another key; the second key's writes replace the first's.
//! - A store has a key that is not hashed under its text, and one that is under a longer name, with
//!   the wrapped value ([`redis_name`], [`memcached_name`]). Names of different encodings differ.
//!
//! Panics: none. Source: section 5 of the paper, which leaves the hash open.

use overbank_wire::netcache::{Key, VALUE_MAX};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Most bytes of a key.
pub const KEY_MAX: usize = 1024;
/// Most bytes of a value over IPv6, where the datagram's header is 20 bytes longer: longer ones
/// would be cut into fragments, which no device reads.
pub const VALUE_MAX_V6: usize = VALUE_MAX - 8;

/// Bytes of a key on the wire.
const LEN: usize = size_of::<Key>();
/// First byte of a hashed key: not of any UTF-8 text.
const HASHED: u8 = 0xff;
/// Bytes of the length in front of a key.
const PREFIX: usize = 2;

/// Computes the hash of a key that is not its own encoding.
pub type Hash = fn(&[u8]) -> [u8; LEN - 1];

/// Returns the first 15 bytes of SHA-256.
pub fn hash(key: &[u8]) -> [u8; LEN - 1] {
    let digest: [u8; 32] = Sha256::digest(key).into();
    std::array::from_fn(|at| digest[at])
}

/// A key on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub key: Key,
    /// Whether values have the key in front of them.
    pub is_hashed: bool,
}

impl Encoded {
    pub fn new(key: &[u8], hash: Hash) -> Encoded {
        let mut bytes = [0; LEN];
        let is_own = key.first() != Some(&HASHED) && key.last() != Some(&0);
        match bytes.get_mut(..key.len()) {
            Some(place) if is_own => place.copy_from_slice(key),
            _ => {
                bytes[0] = HASHED;
                bytes[1..].copy_from_slice(&hash(key));
            }
        }
        Encoded { key: Key::from_be_bytes(bytes), is_hashed: bytes[0] == HASHED }
    }

    /// Returns the bytes that values of this key take beside themselves.
    pub fn overhead(&self, key: &[u8]) -> usize {
        if self.is_hashed { PREFIX + key.len() } else { 0 }
    }
}

/// Returns a value with its key, of at most [`KEY_MAX`] bytes, in front.
pub fn wrap(key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&len, key, value].concat()
}

/// Returns the value behind the key; `None`: it is of another key, or of none.
pub fn unwrap<'a>(key: &[u8], wrapped: &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = wrapped.split_first_chunk::<PREFIX>()?;
    let (of, value) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
    (of == key).then_some(value)
}

/// Returns the key of an encoding, in big endian, that is not hashed.
pub fn own(bytes: &[u8; LEN]) -> Option<&[u8]> {
    let len = LEN - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    (bytes[0] != HASHED).then_some(&bytes[..len])
}

fn hexadecimal(kind: &str, bytes: &[u8; LEN]) -> Vec<u8> {
    let mut name = format!("overbank:{kind}:");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into_bytes()
}

/// Returns the name of a key in Redis: its bytes, or `overbank:hash:` and the encoding of a hashed
/// one in hexadecimal digits.
pub fn redis_name(key: Key) -> Vec<u8> {
    let bytes = key.to_be_bytes();
    own(&bytes).map_or_else(|| hexadecimal("hash", &bytes), <[u8]>::to_vec)
}

/// Returns the name of a key in memcached: as in Redis, but `overbank:bytes:` and the encoding in
/// hexadecimal digits where the key has other bytes than `!` to `~`, or none.
pub fn memcached_name(key: Key) -> Vec<u8> {
    let bytes = key.to_be_bytes();
    match own(&bytes) {
        Some(own) if !own.is_empty() && own.iter().all(u8::is_ascii_graphic) => own.to_vec(),
        Some(_) => hexadecimal("bytes", &bytes),
        None => hexadecimal("hash", &bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(0xff), Just(b'a'), any::<u8>()];
        prop::collection::vec(byte, 0..20)
    }

    proptest! {
        #[test]
        fn keys_share_an_encoding_only_if_both_are_hashed(
            keys in prop::collection::hash_set(any_key(), 2..40),
        ) {
            // A hash under which all hashed keys collide.
            let (mut seen, mut redis, mut memcached) =
                (HashMap::new(), HashMap::new(), HashMap::new());
            for key in &keys {
                let encoded = Encoded::new(key, |_| [b'a'; 15]);
                let plain = key.len() <= 16 && key.last() != Some(&0) && key.first() != Some(&0xff);
                prop_assert_eq!(encoded.is_hashed, !plain);
                if let Some(other) = seen.insert(encoded.key, encoded.is_hashed) {
                    prop_assert!(other && encoded.is_hashed);
                }
                for (names, name) in [
                    (&mut redis, redis_name(encoded.key)),
                    (&mut memcached, memcached_name(encoded.key)),
                ] {
                    let first = names.insert(name.clone(), encoded.key);
                    prop_assert!(first.is_none_or(|first| first == encoded.key));
                    prop_assert!(plain && name == *key || name.starts_with(b"overbank:"));
                }
                let name = memcached_name(encoded.key);
                prop_assert!((1..=250).contains(&name.len()));
                prop_assert!(name.iter().all(u8::is_ascii_graphic));
            }
        }

        #[test]
        fn values_come_back_under_their_key_alone(
            key in any_key(), other in any_key(), value: Vec<u8>, bytes: Vec<u8>,
        ) {
            let wrapped = wrap(&key, &value);
            let encoded = Encoded { key: 0, is_hashed: true };
            prop_assert_eq!(wrapped.len(), value.len() + encoded.overhead(&key));
            prop_assert_eq!(unwrap(&key, &wrapped), Some(&value[..]));
            prop_assert_eq!(unwrap(&other, &wrapped).is_some(), key == other);
            // Any bytes are of a key or of none.
            prop_assert!(unwrap(&key, &bytes).is_none() || bytes.len() >= key.len() + 2);
        }
    }

    #[test]
    fn encodings_are_as_documented() {
        let encoded = |key: &[u8]| Encoded::new(key, hash).key.to_be_bytes();
        assert_eq!(encoded(b"abc"), *b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(encoded(b"0123456789abcdef"), *b"0123456789abcdef");
        assert_eq!(encoded(b""), [0; 16]);
        // As `printf 0123456789abcdefg | sha256sum` begins.
        let long = encoded(b"0123456789abcdefg");
        let name = "overbank:hash:ff0e6c0e0aa5d1cde1a4fd6ffa1b5aa1".len();
        assert_eq!((long[0], redis_name(u128::from_be_bytes(long)).len()), (0xff, name));
        assert_eq!(long[1..], hash(b"0123456789abcdefg"));
        assert_eq!(hash(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf], "of FIPS 180-4");
        assert_eq!(redis_name(u128::from_be_bytes(encoded(b"a b"))), b"a b");
        let name = memcached_name(u128::from_be_bytes(encoded(b"a b")));
        assert_eq!(name, b"overbank:bytes:61206200000000000000000000000000");
    }
}
