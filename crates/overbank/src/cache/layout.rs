//! Layout: the width of a slot, and a bucket's place in memory.
//!
//! ```text
//!  Fp16V16, m = 4 (16 bytes)         f0 f1 f2 f3 v0 v1 v2 v3
//!  Fp16V16, m = 16 (64 bytes)        f0 … f15 | v0 … v15         one cache line
//!  Fp16V32, m = 4 (24 bytes)         f0 f1 f2 f3 v0··· v1··· v2··· v3···
//! ```
//!
//! A bucket packs its fingerprints together, then its values (paper, section 6). One vector load
//! reads all fingerprints, and the value of a match is in the same or the next line. All numbers
//! are little-endian in memory on every machine. A slot whose fingerprint is 0 is empty, and its
//! value has no meaning.

use super::design::LayoutKind;

mod sealed {
    pub trait Sealed {}
}

/// Widths of a slot's fields.
pub trait Layout: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The value of an entry: `u16` or `u32`.
    type Value: Copy + Into<u32> + TryFrom<u32> + Send + 'static;
    /// The layout as a value.
    const KIND: LayoutKind;
    /// Bytes of a value.
    const VALUE_BYTES: usize;
    /// Bytes of a slot: fingerprint and value.
    const SLOT_BYTES: usize = 2 + Self::VALUE_BYTES;

    /// Writes a value at the start of `to`.
    fn store(value: Self::Value, to: &mut [u8]);
    /// Reads a value from the start of `from`.
    fn load(from: &[u8]) -> Self::Value;
    /// Swaps the two values at the start of `pair`.
    fn exchange(pair: &mut [u8]);
}

/// 16-bit fingerprint, 16-bit value: 4 bytes a slot, the paper's layout.
#[derive(Clone, Copy, Debug)]
pub struct Fp16V16;

/// 16-bit fingerprint, 32-bit value: 6 bytes a slot.
#[derive(Clone, Copy, Debug)]
pub struct Fp16V32;

macro_rules! layout {
    ($type:ident, $value:ty, $bytes:literal, $pair:ty) => {
        impl sealed::Sealed for $type {}
        impl Layout for $type {
            type Value = $value;
            const KIND: LayoutKind = LayoutKind::$type;
            const VALUE_BYTES: usize = $bytes;

            #[inline(always)]
            fn store(value: $value, to: &mut [u8]) {
                to[..$bytes].copy_from_slice(&value.to_le_bytes());
            }

            #[inline(always)]
            fn load(from: &[u8]) -> $value {
                let mut bytes = [0; $bytes];
                bytes.copy_from_slice(&from[..$bytes]);
                <$value>::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn exchange(pair: &mut [u8]) {
                if let Some(bytes) = pair.first_chunk_mut::<{ 2 * $bytes }>() {
                    *bytes = <$pair>::from_le_bytes(*bytes).rotate_left(8 * $bytes).to_le_bytes();
                }
            }
        }
    };
}

layout!(Fp16V16, u16, 2, u32);
layout!(Fp16V32, u32, 4, u64);
