//! Names for keys that do not show them: HMAC-SHA-256 (RFC 2104) under a secret of this run, cut
//! to 128 bits. With a plain hash, a list of likely keys would show which one is meant.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io;

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// Bytes that are shown.
const SHOWN: usize = 16;

/// See the module.
pub struct Pseudonyms([u8; BLOCK]);

impl Pseudonyms {
    /// Returns those of a new secret.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new() -> io::Result<Pseudonyms> {
        let mut secret = [0; BLOCK];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Pseudonyms(secret))
    }

    /// Returns 32 hexadecimal digits.
    pub fn of(&self, key: &[u8]) -> String {
        let mut text = String::with_capacity(2 * SHOWN);
        for byte in self.hmac(key).into_iter().take(SHOWN) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    fn hmac(&self, text: &[u8]) -> [u8; 32] {
        let padded = |pad: u8| self.0.map(|byte| byte ^ pad);
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
        Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn names_are_those_of_hmac() {
        let mut secret = [0; BLOCK];
        secret[..4].copy_from_slice(b"Jefe");
        let name = Pseudonyms(secret).of(b"what do ya want for nothing?");
        assert_eq!(name, "5bdcc146bf60754e6a042426089575c7");
    }

    #[test]
    fn each_run_has_other_names() {
        let [one, two] = [(); 2].map(|()| Pseudonyms::new().expect("random bytes"));
        assert_eq!(one.of(b"key"), one.of(b"key"));
        assert_ne!((one.of(b"key"), one.of(b"key")), (one.of(b"kez"), two.of(b"key")));
    }
}
