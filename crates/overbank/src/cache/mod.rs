//! Flow caches: bounded tables from a key's hash to a small value, read a burst at a time.
//!
//! A software switch first asks whether it has seen a flow, and which entry of the slower tables it
//! used. These tables answer from one or two cache lines. Designs and policies are those of Zhou,
//! Yu, Kaminsky, Andersen: *Fast Software Cache Design for Network Appliances* (USENIX ATC 2020),
//! and line-sized relatives of them.
//!
//! ```text
//!  FlowCache<G, P, L>  =  geometry   ×  policy      ×  layout
//!                         SetAssoc      Random         Fp16V16   4 bytes a slot
//!                         Cuckoo        BubbleLru      Fp16V32   6 bytes a slot
//!                         Blp           Pblru
//!                                       DcBubble
//!                                       HalfBubble
//! ```
//!
//! | geometry | candidate slots | cache lines read (16-bit values) | hit rate, uniform, α = 0.95 |
//! |---|---|---|---|
//! | set-4, set-8 | 4, 8 | 1 | 82 %, 88 % |
//! | set-16 | 16 | 1 | 92 % |
//! | cuckoo-2-4 | 8 | 2 | 99 % |
//! | cuckoo-2-16 | 32 | 2 | 99.9 % |
//! | blp-2-4 | 8 | 1.25 side by side | 94 % |
//! | blp-2-16 | 32 | 2 side by side | 98 % |
//!
//! A type names a design at compile time. [`Design`] names it at run time (`blp-2-16+pblru`) and
//! builds a boxed [`DynCache`], whose virtual calls are paid once per burst.
//!
//! A burst through a cache:
//!
//! ```
//! use overbank::cache::{Config, Design, Probes};
//! use overbank::hash::Hash64;
//!
//! let design: Design = "blp-2-16+pblru".parse()?;
//! let mut cache = design.build(&Config::entries(1 << 12))?;
//! let hashes: Vec<Hash64> = (0..32).map(Hash64::mix).collect();
//! let belongs = |i: usize, value: u32| value == i as u32; // The caller knows the keys.
//!
//! let mut probes = Probes::new();
//! for round in 0..2 {
//!     cache.probe_batch(&hashes, &mut probes);
//!     let hits = probes.resolve(&*cache, &hashes, belongs);
//!     cache.commit(&hashes, &hits);
//!     for i in hits.missed() {
//!         cache.insert(hashes[i], i as u32)?; // What the slower tables said.
//!     }
//! }
//! assert_eq!((cache.counters().lookups, cache.counters().hits), (64, 32));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Guarantees.* No panic on any hash or argument; no allocation after construction; no action on
//! an unverified match. Every operation is bounded by the H × m candidate slots, except `retain`,
//! `sweep` and `clear`, which visit the buckets.

mod config;
mod counters;
mod design;
mod dynamic;
mod error;
mod flow;
mod geometry;
mod layout;
mod policy;
mod probes;
mod simd;
mod table;

pub use config::{BUCKETS_MAX, Config, PROMOTE_EVERY, PROMOTE_EVERY_MAX};
pub use counters::Counters;
pub use design::{Design, GeometryKind, KNOWN, LayoutKind, PolicyKind};
pub use dynamic::DynCache;
pub use error::{CacheError, DesignError, ValueTooWide};
pub use flow::{Drain, FlowCache, Inserted, Swept, Unverified};
pub use geometry::{Blp, Cuckoo, Fingerprint, Geometry, SetAssoc};
pub use layout::{Fp16V16, Fp16V32, Layout};
pub use policy::{BubbleLru, DcBubble, HalfBubble, Pblru, Policy, Random};
pub use probes::{BURST, Hits, Mask, Ones, Probes, Slot, Slots};
