//! The figures of the SDC paper: real indexes on its machine (`overbank-sdc`), run by
//! `overbank-workloads`, a program that the compiler has instrumented (`workloads/`).

mod bits;
mod families;
mod gaps;
mod heat;
mod modern;
mod point;
mod sizes;
mod valid;
mod ycsb;

use crate::prelude::*;

macro_rules! experiments {
    ($($name:ident = $id:literal, $title:literal, $source:literal, $run:path;)*) => {
        $(pub const $name: Experiment = Experiment {
            name: $id,
            title: $title,
            source: concat!("SDC, ICS 2019, ", $source),
            run: $run,
        };)*
    };
}

experiments! {
    SDC1 = "sdc1", "Accesses to the slots of cache lines", "figure 1", heat::run;
    SDC7 = "sdc7", "Lookups a second by size of the data set", "figure 7", sizes::throughput;
    SDC8 = "sdc8", "Memory accesses saved, by cause", "figure 8", sizes::saved;
    SDC9 = "sdc9", "Reads of DRAM a lookup", "figure 9", sizes::dram;
    SDC10 = "sdc10", "Hits of SDC by size of the data set", "figure 10", sizes::hits;
    SDC11 = "sdc11", "Hits of SDC by size of families", "figure 11", families::hits;
    SDC12 = "sdc12", "Lookups a second by size of families", "figure 12", families::throughput;
    SDC13 = "sdc13", "False hits by length of sub-tags", "figure 13", families::false_hits;
    SDC14 = "sdc14", "Lookups a second by length of sub-tags", "figure 14", families::short_tags;
    SDC15 = "sdc15", "A database under YCSB", "figure 15", ycsb::run;
    SDCBITS = "sdcbits", "Bits that SDC adds to a cache", "section 2.3", bits::run;
    SDCMODERN = "sdcmodern", "What is left of SDC on a machine of today", "beyond it", modern::run;
    SDCGAP = "sdcgap", "What each reading of the paper is worth", "gaps of it", gaps::run;
    SDCVALID = "sdcvalid", "The machine against what is known", "checks of it", valid::run;
}

/// The stores of the paper: its B+ tree is LMDB's, its hash table memcached's.
const STORES: [(&str, &str); 2] = [("lmdb", "B+ tree"), ("hash", "hash table")];

/// Whether the measured keys are those of the warm-up, the paper's way, or others.
const KEYS: [(&str, bool); 2] = [("replayed", false), ("fresh", true)];

/// Size of the data set, in caches, from which the paper says that gains fall.
const KNEE: f64 = 3.2;
