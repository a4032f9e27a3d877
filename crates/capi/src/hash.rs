//! Hashes for C: as good as the tables need them. (`overbank_mix` is in the header alone, from
//! cbindgen.toml: a call for each packet would cost as much as the work.)

use overbank::hash::Seed;

use crate::border::{border, elements};

/// Hashes a key of `len` bytes, good in all 64 bits. The same seed and bytes give the same hash on
/// every machine. A sender that does not know the seed cannot choose keys that meet. 0 for a NULL
/// that should have bytes.
///
/// Any thread.
///
/// # Safety
/// `key` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_hash(key: *const u8, len: usize, seed: u64) -> u64 {
    let mut hash = 0;
    border(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { elements(key, len, "key") }?;
        hash = Seed::new(seed).hash64(key).get();
        Ok(())
    });
    hash
}

/// A hash of 128 bits, for sketches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_hash128 {
    /// Bits 0 to 63.
    pub low: u64,
    /// Bits 64 to 127.
    pub high: u64,
}

impl overbank_hash128 {
    pub(crate) fn get(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Hashes a key of `len` bytes to 128 bits (XXH3). Zeroes for a NULL that should have bytes.
///
/// Any thread.
///
/// # Safety
/// `key` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_hash_128(
    key: *const u8,
    len: usize,
    seed: u64,
) -> overbank_hash128 {
    let mut hash = 0;
    border(|| {
        // SAFETY: the caller's promise.
        let key = unsafe { elements(key, len, "key") }?;
        hash = xxhash_rust::xxh3::xxh3_128_with_seed(key, seed);
        Ok(())
    });
    overbank_hash128 { low: hash as u64, high: (hash >> 64) as u64 }
}
