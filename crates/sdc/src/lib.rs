//! One core with caches, TLB and DRAM, and a software defined cache (SDC) in its last level.
//!
//! Source: Ni, Jiang, Jiang, Huang, Wu: *SDC: A Software Defined Cache for Efficient Data
//! Indexing*, ICS 2019.
//!
//! A program calls [`Machine::load`] and [`Machine::store`] for what it does, and the SDC
//! operations where the paper's program would; [`Machine::counters`] and [`Machine::times`] say
//! what it cost. No I/O, no clock.
//!
//! - [`Shape`]: what a machine is built of. [`GAPS`]: what the paper leaves open.
//! - `cache`, `sdc`, `tlb`, `dram`, `core` (time): the parts; [`Machine`]: the whole.
//! - [`address`]: from keys to places, and longer keys to 64 bits. [`bits`]: what SDC costs.

#![warn(missing_docs)]

pub mod address;
pub mod bits;
mod cache;
mod core;
mod counters;
mod dram;
mod gaps;
mod heat;
mod machine;
mod sdc;
mod shape;
mod tlb;
mod view;

pub use crate::core::{DRAIN_CYCLES, INSTRUCTIONS_A_CYCLE, Mode, Times};
pub use counters::{Counters, Evicted, HitMiss, Rows, SdcCounters, Walk, Writebacks};
pub use gaps::{GAPS, Gap};
pub use heat::{FEW, used_slots};
pub use machine::Machine;
pub use sdc::SLOTS;
pub use shape::{DramShape, Level, OverlapShape, Refused, SdcShape, Shape, TlbShape};
pub use view::{SlotView, WayView};
