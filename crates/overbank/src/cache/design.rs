//! Designs by name: geometry and policy, chosen at run time.
//!
//! ```text
//!  blp-2-16+pblru/64
//!  └──┬───┘ └──┬───┘
//!  geometry  policy; absent: random eviction
//! ```

use core::fmt;
use core::str::FromStr;

use alloc::boxed::Box;

use super::config::{Config, PROMOTE_EVERY, PROMOTE_EVERY_MAX};
use super::dynamic::DynCache;
use super::error::{CacheError, DesignError};
use super::flow::FlowCache;
use super::geometry::{Blp, Cuckoo, SetAssoc};
use super::layout::{Fp16V16, Fp16V32};
use super::policy::{BubbleLru, DcBubble, HalfBubble, Pblru, Random};

/// The names of designs, for error messages and help texts.
pub const KNOWN: &str = "set-4, set-8, set-16, cuckoo-2-4, cuckoo-2-8, cuckoo-2-16, blp-2-4, blp-2-8, \
    blp-2-16, blp-4-4, each with +bubble, +pblru, +pblru/N or +half-bubble; set-* with +dc-bubble";

/// A geometry as a value. See [`Geometry`](super::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names give the ways, or H and m.
#[non_exhaustive]
pub enum GeometryKind {
    Set4,
    Set8,
    Set16,
    Cuckoo2x4,
    Cuckoo2x8,
    Cuckoo2x16,
    Blp2x4,
    Blp2x8,
    Blp2x16,
    Blp4x4,
}

impl GeometryKind {
    /// All geometries.
    pub const ALL: &[Self] = &[
        Self::Set4,
        Self::Set8,
        Self::Set16,
        Self::Cuckoo2x4,
        Self::Cuckoo2x8,
        Self::Cuckoo2x16,
        Self::Blp2x4,
        Self::Blp2x8,
        Self::Blp2x16,
        Self::Blp4x4,
    ];

    /// Returns the name, such as `blp-2-16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set4 => "set-4",
            Self::Set8 => "set-8",
            Self::Set16 => "set-16",
            Self::Cuckoo2x4 => "cuckoo-2-4",
            Self::Cuckoo2x8 => "cuckoo-2-8",
            Self::Cuckoo2x16 => "cuckoo-2-16",
            Self::Blp2x4 => "blp-2-4",
            Self::Blp2x8 => "blp-2-8",
            Self::Blp2x16 => "blp-2-16",
            Self::Blp4x4 => "blp-4-4",
        }
    }

    /// Returns the occupancy, in fifths, up to which a probe reads a key's second bucket only if
    /// the first has no match. It is 0 for geometries whose buckets are adjacent. Insertions fill
    /// first buckets first, so at these loads few keys are in their second one.
    pub const fn home_first_fifths(self) -> usize {
        match self {
            Self::Cuckoo2x4 => 2,
            Self::Cuckoo2x8 => 3,
            Self::Cuckoo2x16 => 4,
            _ => 0,
        }
    }

    /// Returns whether the geometry is set-associative.
    pub const fn is_set_associative(self) -> bool {
        matches!(self, Self::Set4 | Self::Set8 | Self::Set16)
    }
}

/// A policy as a value. See [`Policy`](super::Policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Random eviction.
    Random,
    /// Bubble LRU, which promotes on every hit.
    Bubble,
    /// Probabilistic bubble LRU.
    Pblru {
        /// Mean number of hits per promotion, 1 to [`PROMOTE_EVERY_MAX`](super::PROMOTE_EVERY_MAX).
        every: u32,
    },
    /// DC-Bubble.
    DcBubble,
    /// Half-bubble, an addition to the paper's policies.
    HalfBubble,
}

impl PolicyKind {
    /// PBLRU with the default promotion probability.
    pub const PBLRU: Self = Self::Pblru { every: PROMOTE_EVERY };

    /// Returns the name without a number: `random`, `bubble`, `pblru`, `dc-bubble` or
    /// `half-bubble`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Bubble => "bubble",
            Self::Pblru { .. } => "pblru",
            Self::DcBubble => "dc-bubble",
            Self::HalfBubble => "half-bubble",
        }
    }
}

/// A layout as a value. See [`Layout`](super::Layout).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayoutKind {
    /// 16-bit fingerprint, 16-bit value: 4 bytes a slot.
    #[default]
    Fp16V16,
    /// 16-bit fingerprint, 32-bit value: 6 bytes a slot.
    Fp16V32,
}

impl LayoutKind {
    /// All layouts.
    pub const ALL: &[Self] = &[Self::Fp16V16, Self::Fp16V32];

    /// Returns the largest value that fits a slot.
    pub const fn value_max(self) -> u32 {
        match self {
            Self::Fp16V16 => u16::MAX as u32,
            Self::Fp16V32 => u32::MAX,
        }
    }
}

/// A geometry with a policy that works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    geometry: GeometryKind,
    policy: PolicyKind,
}

impl Design {
    /// Combines the two. Fails if the policy does not work on the geometry, or PBLRU's number is
    /// out of range.
    pub fn new(geometry: GeometryKind, policy: PolicyKind) -> Result<Self, DesignError> {
        let design = Self { geometry, policy };
        match policy {
            PolicyKind::DcBubble if !geometry.is_set_associative() => {
                let (geometry, policy) = (geometry.name(), policy.name());
                Err(DesignError::Combination { geometry, policy })
            }
            PolicyKind::Pblru { every } if !(1..=PROMOTE_EVERY_MAX).contains(&every) => {
                Err(DesignError::Promotion)
            }
            _ => Ok(design),
        }
    }

    /// Combines a geometry and a policy that exist together as types.
    pub(crate) const fn of(geometry: GeometryKind, policy: PolicyKind) -> Self {
        Self { geometry, policy }
    }

    /// Returns the geometry.
    pub const fn geometry(self) -> GeometryKind {
        self.geometry
    }

    /// Returns the policy.
    pub const fn policy(self) -> PolicyKind {
        self.policy
    }

    /// Iterates over every geometry with every policy that works on it, PBLRU at its default.
    pub fn all() -> impl Iterator<Item = Self> {
        let policies = [
            PolicyKind::Random,
            PolicyKind::Bubble,
            PolicyKind::PBLRU,
            PolicyKind::HalfBubble,
            PolicyKind::DcBubble,
        ];
        GeometryKind::ALL.iter().flat_map(move |&geometry| {
            policies.into_iter().filter_map(move |policy| Self::new(geometry, policy).ok())
        })
    }

    /// Builds a cache of this design. The design's `promote_every` overrides the configuration's.
    pub fn build(self, config: &Config) -> Result<Box<dyn DynCache>, CacheError> {
        macro_rules! cache {
            ($geometry:ty, $policy:ty, $config:expr) => {
                match config.layout {
                    LayoutKind::Fp16V16 => {
                        Box::new(FlowCache::<$geometry, $policy, Fp16V16>::new($config)?)
                    }
                    LayoutKind::Fp16V32 => {
                        Box::new(FlowCache::<$geometry, $policy, Fp16V32>::new($config)?)
                    }
                }
            };
        }
        macro_rules! policies {
            ($geometry:ty, $dc_bubble:expr) => {
                match self.policy {
                    PolicyKind::Random => cache!($geometry, Random, config),
                    PolicyKind::Bubble => cache!($geometry, BubbleLru, config),
                    PolicyKind::Pblru { every } => {
                        cache!($geometry, Pblru, &config.clone().promote_every(every))
                    }
                    PolicyKind::HalfBubble => cache!($geometry, HalfBubble, config),
                    PolicyKind::DcBubble => $dc_bubble,
                }
            };
        }
        macro_rules! set {
            ($geometry:ty) => {
                policies!($geometry, cache!($geometry, DcBubble, config))
            };
        }
        macro_rules! other {
            ($geometry:ty) => {
                // `new` refuses DC-Bubble here.
                policies!($geometry, cache!($geometry, BubbleLru, config))
            };
        }
        let cache: Box<dyn DynCache> = match self.geometry {
            GeometryKind::Set4 => set!(SetAssoc<4>),
            GeometryKind::Set8 => set!(SetAssoc<8>),
            GeometryKind::Set16 => set!(SetAssoc<16>),
            GeometryKind::Cuckoo2x4 => other!(Cuckoo<2, 4>),
            GeometryKind::Cuckoo2x8 => other!(Cuckoo<2, 8>),
            GeometryKind::Cuckoo2x16 => other!(Cuckoo<2, 16>),
            GeometryKind::Blp2x4 => other!(Blp<2, 4>),
            GeometryKind::Blp2x8 => other!(Blp<2, 8>),
            GeometryKind::Blp2x16 => other!(Blp<2, 16>),
            GeometryKind::Blp4x4 => other!(Blp<4, 4>),
        };
        Ok(cache)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.geometry.name();
        match self.policy {
            PolicyKind::Random => f.pad(geometry),
            PolicyKind::Pblru { every } if every != PROMOTE_EVERY => {
                f.pad(&alloc::format!("{geometry}+pblru/{every}"))
            }
            policy => f.pad(&alloc::format!("{geometry}+{}", policy.name())),
        }
    }
}

impl FromStr for Design {
    type Err = DesignError;

    fn from_str(name: &str) -> Result<Self, DesignError> {
        let (geometry, policy) = match name.split_once('+') {
            Some((geometry, policy)) => (geometry, Some(policy)),
            None => (name, None),
        };
        let geometry = GeometryKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == geometry)
            .ok_or(DesignError::UnknownGeometry)?;
        let policy = match policy {
            None => PolicyKind::Random,
            Some("bubble") => PolicyKind::Bubble,
            Some("pblru") => PolicyKind::PBLRU,
            Some("dc-bubble") => PolicyKind::DcBubble,
            Some("half-bubble") => PolicyKind::HalfBubble,
            Some(policy) => {
                let every = policy.strip_prefix("pblru/").ok_or(DesignError::UnknownPolicy)?;
                let digits = !every.is_empty() && every.bytes().all(|b| b.is_ascii_digit());
                let every = every.parse().ok().filter(|_| digits).unwrap_or(0);
                PolicyKind::Pblru { every }
            }
        };
        Self::new(geometry, policy)
    }
}
