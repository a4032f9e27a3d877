//! ScaleBricks measured: what a partition table at every ingress node brings a cluster whose
//! sessions are placed from outside (`001`, sections 4.1, 4.2 and 4.4.3).
//!
//! | experiment | file | content |
//! |---|---|---|
//! | `sb-arch` | `arch/`, `nodes/` | hops, bytes, time and tables of four architectures |
//! | `sb-latency` | `latency/`, `nodes/` | time of a packet over interfaces |
//! | `sb-scale` | `scale.rs`, `gpt.rs` | keys that fit into a node's memory, by nodes |
//! | `sb-update` | `update/` | updates by owners of the RIB |
//! | `sb-log` | `log/` | batches of changes over JetStream and over TCP |
//! | `sb-fault` | `fault/` | packets by verdict while nodes fail, leave and join |
//! | `gpt-vs-range` | `range/` | ranges and exceptions instead of a GPT |
//! | `fib-values` | `values.rs` | lookups by bytes of a value, and with a session line behind |
//!
//! The dissertation has no evaluation of the cluster: where it states a figure without deriving it,
//! a model stands beside the claim.

mod arch;
mod fault;
mod gpt;
mod latency;
mod log;
mod nodes;
mod range;
mod scale;
mod update;
mod values;

pub(super) use arch::SB_ARCH;
pub(super) use fault::SB_FAULT;
pub(super) use latency::SB_LATENCY;
pub(super) use log::SB_LOG;
pub(super) use range::GPT_VS_RANGE;
pub(super) use scale::SB_SCALE;
pub(super) use update::SB_UPDATE;
pub(super) use values::FIB_VALUES;

use crate::prelude::LabError;
use overbank::fib::{Config, Value, Writer};
use overbank::hash::mix;
use overbank::memory::Pages;

/// Returns the hash of a session's key, by its number.
fn hash(session: u64) -> u64 {
    mix(session)
}

/// Returns the handling node of a session: chosen from outside, so it does not follow from the
/// hash. `nodes` is a power of two.
fn handling(session: u64, nodes: u64) -> u8 {
    (mix(!session) >> 32 & (nodes - 1)) as u8
}

/// Returns the bits that a node's number takes.
const fn node_bits(nodes: u64) -> u32 {
    nodes.trailing_zeros()
}

/// Returns a forwarding table of the first `entries` sessions' keys, 95 % full.
fn table<V: Value>(
    entries: u64,
    seed: u64,
    value: impl Fn(u64) -> V,
) -> Result<Writer<u64, V>, LabError> {
    table_for(entries, entries, seed, value)
}

/// Returns the same with room for `room` entries at 95 %.
fn table_for<V: Value>(
    entries: u64,
    room: u64,
    seed: u64,
    value: impl Fn(u64) -> V,
) -> Result<Writer<u64, V>, LabError> {
    let config = Config::entries(room as usize).seed(seed).pages(Pages::Huge);
    let mut writer = Writer::new(&config).map_err(LabError::failed)?;
    for session in 0..entries {
        writer.prefetch(hash(session + 16));
        writer.insert(hash(session), value(session)).map_err(LabError::failed)?;
    }
    Ok(writer)
}
