//! The instruction sets with kernels, and the choice between them.
//!
//! A table chooses once, at construction ([`Isa::choose`]), and stores the kernels as function
//! pointers: no lookup asks the CPU.
//!
//! | | |
//! |---|---|
//! | 1 | the set that the table's configuration names |
//! | 2 | the fastest that the CPU has |
//!
//! Naming a set that the CPU lacks is an error, never a silent fallback. [`Isa::from_env`] reads
//! the name from a variable; a caller passes it to a configuration.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// An instruction set with kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain 64-bit arithmetic, available on every machine.
    Portable,
    /// 256-bit vectors of x86-64 (AVX2, BMI1, BMI2).
    Avx2,
    /// 512-bit vectors of x86-64 (AVX-512 F, BW, VL).
    Avx512,
    /// 128-bit vectors of AArch64 (NEON), little endian.
    Neon,
}

impl Isa {
    /// All sets, each kind of machine from slowest to fastest.
    pub const ALL: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// The environment variable that forces a set.
    pub const VARIABLE: &'static str = "OVERBANK_SIMD";

    /// Returns the name: `portable`, `avx2`, `avx512` or `neon`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Returns whether this machine has the set. Without the feature `std` the CPU cannot be asked,
    /// and only the build's target features count.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Avx2 => detect::avx2(),
            Isa::Avx512 => detect::avx512(),
            // Part of every AArch64 target with vectors: no need to ask the CPU.
            Isa::Neon => cfg!(all(
                target_arch = "aarch64",
                target_feature = "neon",
                target_endian = "little"
            )),
        }
    }

    /// Iterates over the sets of this machine, slowest first; never empty.
    pub fn available() -> impl Iterator<Item = Isa> {
        Self::ALL.iter().copied().filter(|isa| isa.is_available())
    }

    /// Returns the fastest set of this machine.
    pub fn best() -> Isa {
        Self::available().last().unwrap_or(Isa::Portable)
    }

    /// Returns the set that [`Isa::VARIABLE`] names; `None` if it is unset or empty (or without
    /// the feature `detect`).
    pub fn from_env() -> Result<Option<Isa>, IsaError> {
        #[cfg(feature = "detect")]
        if let Some(name) = std::env::var_os(Self::VARIABLE).filter(|name| !name.is_empty()) {
            let isa: Option<Isa> = name.to_str().and_then(|name| name.parse().ok());
            return isa.ok_or(IsaError::Variable)?.checked().map(Some);
        }
        Ok(None)
    }

    /// Returns the set for a new table: the forced one, else the best.
    pub fn choose(forced: Option<Isa>) -> Result<Isa, IsaError> {
        match forced {
            Some(isa) => isa.checked(),
            None if cfg!(any(test, feature = "internals")) => {
                Ok(Self::from_env()?.unwrap_or_else(Self::best))
            }
            None => Ok(Self::best()),
        }
    }

    pub(crate) fn checked(self) -> Result<Isa, IsaError> {
        if self.is_available() {
            Ok(self)
        } else {
            Err(IsaError::Unavailable { name: self.name() })
        }
    }
}

/// Returns whether AVX-512 also counts the bits of lanes (DQ, VPOPCNTDQ: since Ice Lake and Zen 4).
#[cfg_attr(any(not(target_arch = "x86_64"), feature = "loom"), expect(dead_code))]
pub(crate) fn counts_bits_of_lanes() -> bool {
    detect::avx512_counts()
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(name: &str) -> Result<Self, IsaError> {
        Self::ALL.iter().copied().find(|isa| isa.name() == name).ok_or(IsaError::Unknown)
    }
}

/// Detects the CPU's features, every one that an entry point enables.
#[cfg(all(target_arch = "x86_64", feature = "detect"))]
mod detect {
    use std::arch::is_x86_feature_detected as has;

    pub(super) fn avx2() -> bool {
        has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
    }

    pub(super) fn avx512() -> bool {
        avx2() && has!("avx512f") && has!("avx512bw") && has!("avx512vl")
    }

    pub(super) fn avx512_counts() -> bool {
        avx512() && has!("avx512dq") && has!("avx512vpopcntdq")
    }
}

#[cfg(not(all(target_arch = "x86_64", feature = "detect")))]
mod detect {
    pub(super) fn avx2() -> bool {
        cfg!(all(
            target_arch = "x86_64",
            target_feature = "avx2",
            target_feature = "bmi1",
            target_feature = "bmi2",
            target_feature = "lzcnt",
            target_feature = "popcnt"
        ))
    }

    pub(super) fn avx512() -> bool {
        avx2()
            && cfg!(all(
                target_feature = "avx512f",
                target_feature = "avx512bw",
                target_feature = "avx512vl"
            ))
    }

    pub(super) fn avx512_counts() -> bool {
        avx512() && cfg!(all(target_feature = "avx512dq", target_feature = "avx512vpopcntdq"))
    }
}

/// Why an instruction set cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IsaError {
    /// The name is unknown.
    #[error("unknown instruction set; known: portable, avx2, avx512, neon")]
    Unknown,
    /// So is that of the variable.
    #[error("{} names no instruction set; known: portable, avx2, avx512, neon", Isa::VARIABLE)]
    Variable,
    /// The CPU or the build lacks it.
    #[error("the instruction set {name} is not available on this machine")]
    Unavailable {
        /// Its name.
        name: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_errors() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(*isa));
        }
        let error = "sve".parse::<Isa>().unwrap_err();
        assert_eq!(error, IsaError::Unknown);
        assert!(Isa::available().any(|isa| isa == Isa::Portable));
        assert_eq!(Isa::choose(Some(Isa::Portable)), Ok(Isa::Portable));
    }
}
