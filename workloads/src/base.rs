//! Cycles of computing an access: the default of `base_cycles`, by index.
//!
//! Callgrind counts the instructions of a lookup in the plain build, the machine its accesses in
//! the watched one (README.md, *How code is watched*); the lab's `sdcvalid` measures both again.
//! One instruction is the access itself, whose cycles are L1's. The others run beside it on the
//! paper's out-of-order core: we assume that it completes
//! [`INSTRUCTIONS_A_CYCLE`] of them.

use overbank_sdc::INSTRUCTIONS_A_CYCLE;
use overbank_watched::index::Kind;

/// Returns the instructions of a lookup divided by its accesses: 100,000 items, on x86-64.
fn instructions(index: Kind) -> f64 {
    match index {
        Kind::Lmdb => 4.1,
        Kind::Hash => 5.5,
        Kind::Bplus => 6.2,
        Kind::Btreemap => 7.3,
        Kind::Masstree => 5.3,
        Kind::Skipmap => 6.8,
        Kind::Redb => 6.5,
        Kind::Congee => 4.4,
        Kind::Tree => 5.5,
    }
}

/// Returns the cycles of an access besides its latency.
pub fn cycles(index: Kind) -> f64 {
    (instructions(index) - 1.0) / INSTRUCTIONS_A_CYCLE
}
