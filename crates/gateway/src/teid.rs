//! TEIDs that carry a keyed check, so that an ingress drops nearly all invented ones before any
//! table.
//!
//! ```text
//!   TEID   │ check: 8 bits │ number: 24 bits │
//!   check = SipHash-1-3(key of the N3 address, number)
//!   key   = SipHash-2-4-128(secret, N3 address)
//! ```
//!
//! A random TEID passes with a probability of 1/256. The secret is a file's, so that TEIDs outlive
//! a restart, and all nodes of a cluster agree. Without a secret every TEID passes.

use siphasher::sip::SipHasher13;
use siphasher::sip128::SipHasher24;
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// Bits of a TEID below its check.
const NUMBER_BITS: u32 = 24;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;
/// Hexadecimal digits of a secret.
const DIGITS: usize = 32;

/// The secret that checks are made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub const fn new(bytes: [u8; 16]) -> Secret {
        Secret(bytes)
    }

    /// Returns digits that show whether two secrets are the same, and nothing else of them.
    pub fn mark(self) -> String {
        let hash = SipHasher24::new_with_key(&self.0).hash(b"overbank: is it the same secret?");
        format!("{:016x}", hash.h1)
    }

    /// Reads a secret: a file of 32 hexadecimal digits.
    ///
    /// # Errors
    /// Returns what is wrong with the file, and what would be right; never what it holds.
    pub fn read(path: &Path) -> Result<Secret, String> {
        let name = path.display();
        let make = format!("make one by: openssl rand -hex 16 > {name}");
        let mut text = String::new();
        // Anything longer than the digits and a line's end is wrong.
        let file = std::fs::File::open(path);
        let read = file.and_then(|file| file.take(64).read_to_string(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => text.clear(),
            Err(error) => return Err(format!("{name}: cannot read the secret: {error}; {make}")),
        }
        let digits = text.trim();
        let hex = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = hex.then(|| u128::from_str_radix(digits, 16).ok()).flatten();
        let bits = bits.filter(|bits| *bits != 0);
        bits.map(|bits| Secret(bits.to_be_bytes())).ok_or_else(|| {
            format!("{name}: must be {DIGITS} hexadecimal digits, not all 0; {make}")
        })
    }
}

/// Makes and checks TEIDs, by number of the N3 address.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TeidCheck(Option<Arc<[(u64, u64)]>>);

impl fmt::Debug for TeidCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "TeidCheck(on)" } else { "TeidCheck(off)" })
    }
}

impl TeidCheck {
    /// Returns the check for TEIDs of these N3 addresses; without a secret, one that all pass.
    pub fn new(secret: Option<Secret>, n3: &[IpAddr]) -> TeidCheck {
        let key = |secret: &Secret, address: &IpAddr| {
            let hasher = SipHasher24::new_with_key(&secret.0);
            let hash = match address {
                IpAddr::V4(v4) => hasher.hash(&v4.octets()),
                IpAddr::V6(v6) => hasher.hash(&v6.octets()),
            };
            (hash.h1, hash.h2)
        };
        TeidCheck(secret.map(|secret| n3.iter().map(|address| key(&secret, address)).collect()))
    }

    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether a TEID of the N3 address of this number may be one of ours.
    #[inline]
    pub fn admits(&self, n3: u16, teid: u32) -> bool {
        match &self.0 {
            None => true,
            Some(keys) => seal(keys, n3, teid) == teid,
        }
    }

    /// Returns the TEID of a number; without a secret, the number itself.
    pub fn teid(&self, n3: u16, number: u32) -> u32 {
        self.0.as_ref().map_or(number, |keys| seal(keys, n3, number))
    }
}

/// Writes the check into the highest bits.
#[inline]
fn seal(keys: &[(u64, u64)], n3: u16, teid: u32) -> u32 {
    let number = teid & NUMBER;
    let (k0, k1) = keys.get(usize::from(n3)).copied().unwrap_or_default();
    let hash = SipHasher13::new_with_keys(k0, k1).hash(&number.to_be_bytes());
    (hash as u32) << NUMBER_BITS | number
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret::new([7; 16]);

    fn n3() -> [IpAddr; 2] {
        [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]
    }

    #[test]
    fn one_teid_of_each_number_passes() {
        let check = TeidCheck::new(Some(SECRET), &n3());
        for number in (0..1 << 24).step_by(4_099) {
            let passing = (0..256).filter(|top| check.admits(0, top << 24 | number));
            assert_eq!(passing.collect::<Vec<_>>(), [check.teid(0, number) >> 24]);
        }
    }

    #[test]
    fn another_secret_or_address_has_other_checks() {
        let check = TeidCheck::new(Some(SECRET), &n3());
        let other = TeidCheck::new(Some(Secret::new([8; 16])), &n3());
        let numbers = 0..65_536;
        for (name, passed) in [
            ("address", numbers.clone().filter(|n| check.admits(1, check.teid(0, *n))).count()),
            ("secret", numbers.clone().filter(|n| check.admits(0, other.teid(0, *n))).count()),
            ("none", numbers.clone().filter(|n| check.admits(0, *n * 65_537)).count()),
        ] {
            assert!((150..=370).contains(&passed), "{name}: {passed}, 256 expected");
        }
        // The same after a restart.
        let again = TeidCheck::new(Some(SECRET), &n3());
        assert!(numbers.into_iter().all(|n| again.admits(0, check.teid(0, n))));
    }

    #[test]
    fn without_a_secret_every_teid_passes() {
        let check = TeidCheck::new(None, &n3());
        assert!(!check.is_on() && check.admits(0, u32::MAX));
        assert_eq!(check.teid(0, 0x1234_5678), 0x1234_5678);
    }

    #[test]
    fn a_secret_is_32_digits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let missing = Secret::read(&path).unwrap_err();
        assert!(missing.contains("cannot read") && missing.contains("openssl rand"), "{missing}");
        let right = "0123456789abcdef0123456789ABCDEF";
        for wrong in
            ["", "12", &right[1..], &format!("{right}0"), &"0".repeat(32), "+".repeat(32).as_str()]
        {
            std::fs::write(&path, wrong).unwrap();
            let error = Secret::read(&path).unwrap_err();
            assert!(error.contains("must be 32 hexadecimal digits"), "{wrong}: {error}");
            assert!(wrong.is_empty() || !error.contains(wrong) || wrong == "12", "{error}");
        }
        std::fs::write(&path, [255; 32]).unwrap();
        assert!(Secret::read(&path).is_err());
        std::fs::write(&path, format!("{right}\n")).unwrap();
        assert_eq!(Secret::read(&path).map(|secret| secret.0[..2].to_vec()), Ok(vec![1, 0x23]));
    }
}
