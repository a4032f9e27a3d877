//! The seam between a forwarding table and the machine's vectors, as in `cache::simd`.
//!
//! Each instruction set has one file with two methods: the comparison of a cache line, and the bits
//! of a burst. [`kernel`] has the lookups, written once. The choice is made when a table is
//! constructed and stored as three function pointers, so a burst costs one indirect call.
//!
//! The writer may store into a line while it is compared, and the language has no vector load that
//! may race with an atomic store. So the vector files load with one line of assembly, which stands
//! for what the CPU does: a read of each word, in no particular order. Words may even be torn. The
//! words of a key that stays do not change in any compared bit, and a result for any other key is
//! discarded when the version is checked.

#![allow(unsafe_code)] // Vector loads, unchecked indices, calls of functions with target features.

mod kernel;
mod portable;

#[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
mod avx512;
#[cfg(all(target_arch = "aarch64", not(feature = "loom")))]
mod neon;

use super::key::{Key, Value};
use super::table::BURST_MAX;
use crate::isa::{Isa, IsaError};
use crate::sync::AtomicU64;

pub(super) use kernel::View;

/// The operations of an instruction set.
///
/// # Safety
/// The CPU has the instruction set, and `line` points to 8 words, 64-byte aligned, that live.
pub(super) trait Simd {
    /// Returns the words `i` of a line with `(word ^ pattern) & mask == 0`, as bits `i`. Only the
    /// bits `1..end` are defined; `end <= 8`.
    unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64, end: usize) -> u32;

    /// Returns the bytes that are not zero, one bit each.
    unsafe fn nonzero(bytes: &[u8; BURST_MAX]) -> u64;
}

/// The lookups of a table, for its types and instruction set.
///
/// # Safety
/// To call any: the view is of a table of these types.
pub(super) struct Kernels<K, V> {
    /// Looks up one key.
    pub(super) one: unsafe fn(&View, K) -> Option<V>,
    /// Looks up the first 64 keys at most, and as many as there are values. Bit `i` of the result:
    /// key `i` has an entry, whose value is in place `i`. Given the next burst, prefetches its home
    /// lines instead of this one's.
    pub(super) batch: Batch<K, V>,
    /// Looks up any number of keys, as many as there are values and bits. Bit `i % 64` of word `i /
    /// 64`: key `i` has an entry, whose value is in place `i`.
    pub(super) all: unsafe fn(&View, &[K], &mut [V], &mut [u64]),
}

type Batch<K, V> = unsafe fn(&View, &[K], &mut [V], Option<&[K]>) -> u64;

impl<K: Key, V: Value> Kernels<K, V> {
    /// Returns the kernels for `isa`, which the machine has ([`Isa::choose`]). `far` selects those
    /// that prefetch only into the second-level cache.
    pub(super) fn of(isa: Isa, far: bool) -> Result<Self, IsaError> {
        macro_rules! kernels {
            ($isa:ident) => {
                if far {
                    Self {
                        one: $isa::one,
                        batch: $isa::batch::<K, V, true>,
                        all: $isa::all::<K, V, true>,
                    }
                } else {
                    Self {
                        one: $isa::one,
                        batch: $isa::batch::<K, V, false>,
                        all: $isa::all::<K, V, false>,
                    }
                }
            };
        }
        match isa {
            Isa::Portable => Ok(kernels!(portable)),
            #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
            Isa::Avx2 if isa.is_available() => Ok(kernels!(avx2)),
            #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
            Isa::Avx512 if isa.is_available() => Ok(kernels!(avx512)),
            #[cfg(all(target_arch = "aarch64", not(feature = "loom")))]
            Isa::Neon if isa.is_available() => Ok(kernels!(neon)),
            _ => Err(IsaError::Unavailable { name: isa.name() }),
        }
    }
}

/// The entry points of one instruction set: the generic lookups with its features enabled.
macro_rules! entry_points {
    ($simd:ty $(, $features:literal)?) => {
        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn one<K: Key, V: Value>(view: &View, key: K) -> Option<V> {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::one::<$simd, K, V>(view, key) }
        }

        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn batch<K: Key, V: Value, const FAR: bool>(
            view: &View,
            keys: &[K],
            values: &mut [V],
            next: Option<&[K]>,
        ) -> u64 {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::batch::<$simd, K, V, FAR>(view, keys, values, next) }
        }

        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn all<K: Key, V: Value, const FAR: bool>(
            view: &View,
            keys: &[K],
            values: &mut [V],
            hits: &mut [u64],
        ) {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::all::<$simd, K, V, FAR>(view, keys, values, hits) }
        }
    };
}
use entry_points;

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Line([AtomicU64; 8]);

    /// `S` against a plain loop, on words full of near misses.
    fn agrees<S: Simd>() {
        let mut pcg = crate::random::Pcg32::new(7, 7);
        let pool = [0u64, 1, 1 << 16, 1 << 63, u64::MAX, 0xffff, u64::MAX << 16, 0x8000];
        for _ in 0..2000 {
            let words = [(); 8].map(|()| pool[pcg.below(8) as usize]);
            let line = Line(words.map(AtomicU64::new));
            let (pattern, mask) = (pool[pcg.below(8) as usize], pool[pcg.below(8) as usize]);
            for end in 1..=8 {
                let plain = (1..end)
                    .filter(|&i| (words[i] ^ pattern) & mask == 0)
                    .fold(0, |bits, i| bits | 1 << i);
                // SAFETY: a line, and the callers of `agrees` checked the CPU.
                let bits = unsafe { S::equal(line.0.as_ptr(), pattern, mask, end) };
                assert_eq!(bits & ((1 << end) - 2), plain);
            }
            let bytes = [(); BURST_MAX].map(|()| pcg.below(4).wrapping_sub(1).min(2) as u8 * 64);
            let plain = (0..BURST_MAX).fold(0, |bits, i| bits | u64::from(bytes[i] != 0) << i);
            // SAFETY: as above.
            assert_eq!(unsafe { S::nonzero(&bytes) }, plain);
        }
    }

    #[test]
    fn every_instruction_set_compares_alike() {
        agrees::<portable::Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            if Isa::Avx2.is_available() {
                agrees::<avx2::Avx2>();
            }
            if Isa::Avx512.is_available() {
                agrees::<avx512::Avx512>();
            }
        }
        #[cfg(target_arch = "aarch64")]
        if Isa::Neon.is_available() {
            agrees::<neon::Neon>();
        }
    }
}
