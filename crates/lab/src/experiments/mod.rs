//! Every experiment, one file each (or one per family), and the list of them.

mod appendix_ab;
mod appendix_c;
mod appendix_d;
mod churn;
mod displacement;
mod endtoend;
mod explosion;
pub mod fib;
mod fig8_9;
mod floor;
mod grid;
mod kv;
mod lookaside;
mod namespaces;
mod partition;
mod questions;
mod scalebricks;
mod sdc;
mod slide15;
mod table1;
mod table3;

pub use kv::Servers;

use overbank_kit::experiment::Experiment;
use overbank_kit::results::{self, Outcome};

/// All experiments, in the order in which a report shows them.
pub const ALL: &[Experiment] = &[
    table1::TABLE1,
    appendix_ab::APPENDIX_AB,
    appendix_c::APPENDIX_C,
    appendix_d::APPENDIX_D,
    slide15::SLIDE15,
    endtoend::FIG6,
    endtoend::FIG7,
    fig8_9::FIG8,
    fig8_9::FIG9,
    endtoend::FIG10,
    floor::FLOOR,
    table3::TABLE3,
    displacement::DISPLACEMENT,
    churn::CHURN,
    explosion::EXPLOSION,
    questions::QUESTIONS,
    grid::GRID,
    fib::FIB5,
    fib::FIB6,
    fib::FIB7,
    fib::FIBWRITER,
    partition::SEP_TABLE2,
    partition::SEP_FIG10A,
    partition::SEP_FIG10B,
    partition::SEP_TRADEOFF,
    partition::SEP_FIG11,
    partition::SEP_BALANCE,
    partition::SEP_ENTROPY,
    partition::SEP_FIG13,
    partition::SEP_RELATED,
    partition::SEP_BILLION,
    scalebricks::SB_ARCH,
    scalebricks::SB_LATENCY,
    scalebricks::SB_SCALE,
    scalebricks::SB_UPDATE,
    scalebricks::SB_LOG,
    scalebricks::SB_FAULT,
    scalebricks::GPT_VS_RANGE,
    scalebricks::FIB_VALUES,
    kv::KVTHEORY,
    kv::KV9A,
    kv::KV9B,
    kv::KV10A,
    kv::KV10A_REAL,
    kv::KV10B,
    kv::KV10C,
    kv::KV10D,
    kv::KV10E,
    kv::KV10F,
    kv::KV11A,
    kv::KV11B,
    kv::KV11C,
    kv::KV11A_REAL,
    kv::KV11B_REAL,
    kv::KV11C_REAL,
    kv::KVSKETCH,
    kv::KVCONTROL,
    kv::KVCOHERENCE,
    kv::KVPROXY,
    kv::KVLANES,
    kv::KVSHARDS,
    kv::KVLATENCY,
    kv::KVORIGIN,
    lookaside::LOOKASIDE,
    lookaside::LOOKASIDE_WRITES,
    lookaside::LOOKASIDE_THREADS,
    lookaside::LOOKASIDE_TREE,
    sdc::SDC1,
    sdc::SDC7,
    sdc::SDC8,
    sdc::SDC9,
    sdc::SDC10,
    sdc::SDC11,
    sdc::SDC12,
    sdc::SDC13,
    sdc::SDC14,
    sdc::SDC15,
    sdc::SDCBITS,
    sdc::SDCMODERN,
    sdc::SDCGAP,
    sdc::SDCVALID,
];

/// Experiments that another command runs: name, title and command, source.
pub const MOVED: &[[&str; 3]] = &[[
    "live",
    "the live switch beside the Linux bridge and Open vSwitch (moved: cargo xtask peers live)",
    "Target of this project",
]];

/// Puts outcomes into that order; unknown ones last.
pub fn sort(outcomes: &mut [Outcome]) {
    results::sort(outcomes, &ALL.iter().map(|e| e.name).collect::<Vec<_>>());
}

/// Finds an experiment by its name.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
