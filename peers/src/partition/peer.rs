//! The tables compared: one trait, one row for each peer.
//!
//! What a table is built of is drawn before the clock starts; hashing is inside. So it is for
//! lookups; the form in which a library takes its keys (`prepare`) is made outside.

use anyhow::{Result, bail};
use overbank::partition::RowBits;
use overbank::partition::setsep::Search;

use super::{efd, fuse, overbank as own};

/// The longest burst that all peers take.
pub const BURST_MAX: usize = 32;

pub trait Table {
    /// Builds the table anew.
    fn build(&mut self, keys: &[u64], values: &[u8]) -> Result<()>;
    /// Returns the bytes that lookups can read.
    fn bytes(&self) -> u64;
    /// Takes the keys of the next lookup.
    fn prepare(&mut self, _keys: &[u64]) {}
    /// Looks up the prepared keys, in bursts of at most `burst`.
    fn look_up(&mut self, keys: &[u64], burst: usize, values: &mut [u8]);
    /// Returns the remarks on this run, for a reader of its figures.
    fn note(&self) -> String {
        String::new()
    }
}

/// What a table is made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub keys: usize,
    pub value_bits: u32,
    /// Bytes of the floor.
    pub floor_bytes: usize,
}

/// A row: its name, what it is, and its constructor.
pub struct Peer {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, for `list`.
    pub what: &'static str,
    /// Most keys that it is measured with.
    pub keys_max: u64,
    /// Whether lookups are measured, too.
    pub looks_up: bool,
    /// Bytes that it needs in huge pages that are reserved before it starts.
    pub reserved: fn(u64) -> u64,
    /// Makes it, without keys.
    pub make: fn(Sizes) -> Result<Box<dyn Table>>,
}

/// The peer that the others are compared with.
pub const OVERBANK: &str = "partition-128";
/// The same in rows of 64 bits.
pub const NARROW: &str = "partition-64";
/// The smallest of ours.
pub const PACKED: &str = "partition-128-packed";
/// The paper's table, by either search.
pub const PLAIN: &str = "setsep-plain";
pub const VECTOR: &str = "setsep";
/// `rte_efd` with its AVX2 lookup, for values of 8 bits, as it comes, and of 4 bits.
pub const EFD: &str = "rte_efd-avx2";
pub const EFD_4: &str = "rte_efd-avx2-4";
/// One random line for each key, and nothing else: no table.
pub const FLOOR: &str = "floor";

const ROW: Peer = Peer {
    name: "",
    what: "",
    keys_max: 1 << 30,
    looks_up: true,
    reserved: |_| 0,
    make: |_| bail!("no peer"),
};

/// All peers, in the order of the tables.
pub static PEERS: &[Peer] = &[
    Peer {
        name: OVERBANK,
        what: "overbank::partition, rows of 128 bits, with room for changes",
        make: |sizes| own::dense(sizes, RowBits::R128, false),
        ..ROW
    },
    Peer {
        name: PACKED,
        what: "the same, packed",
        make: |sizes| own::dense(sizes, RowBits::R128, true),
        ..ROW
    },
    Peer {
        name: NARROW,
        what: "overbank::partition, rows of 64 bits, with room for changes",
        make: |sizes| own::dense(sizes, RowBits::R64, false),
        ..ROW
    },
    Peer {
        name: "partition-64-packed",
        what: "the same, packed",
        make: |sizes| own::dense(sizes, RowBits::R64, true),
        ..ROW
    },
    Peer {
        name: VECTOR,
        what: "overbank's SetSep 16+8, eight functions tried at a time",
        make: |sizes| own::setsep(sizes, Search::Lanes),
        ..ROW
    },
    Peer {
        name: PLAIN,
        what: "the same table, one function after another, as in the paper; construction only",
        // Minutes for 16 million keys, at the same rate.
        keys_max: 2_000_000,
        looks_up: false,
        make: |sizes| own::setsep(sizes, Search::Plain),
        ..ROW
    },
    Peer {
        name: "rte_efd",
        what: "DPDK, Debian's library held to its scalar lookup: its AVX2 one answers 0",
        reserved: efd::bytes,
        make: |sizes| efd::make(sizes, efd::Build::Debian),
        ..ROW
    },
    Peer {
        name: EFD,
        what: "lib/efd of DPDK's source, compiled with AVX2; values of 8 bits, as it comes",
        reserved: efd::bytes,
        make: |sizes| efd::make(sizes, efd::Build::Bits8),
        ..ROW
    },
    Peer {
        name: EFD_4,
        what: "the same, compiled for values of 4 bits",
        reserved: efd::bytes,
        make: |sizes| efd::make(sizes, efd::Build::Bits4),
        ..ROW
    },
    Peer {
        name: "sux",
        what: "sux::func::VFunc, 3-wise binary fuse, static",
        make: |sizes| Ok(Box::new(fuse::Fuse::new(sizes))),
        ..ROW
    },
    Peer {
        name: FLOOR,
        what: "no table: one random line a key from as much memory as Overbank takes",
        make: |sizes| own::floor(sizes),
        ..ROW
    },
];

/// Returns the peer of that name.
pub fn find(name: &str) -> Result<&'static Peer> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        bail!("unknown partition table `{name}`: must be one of {}", known.join(", "));
    };
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use super::super::keys::{key, value};
    use super::*;

    /// Every key has its value, in bursts of any length and after a build anew. DPDK is left out,
    /// whose heap starts once in a process (`tests/partition.rs` runs it), and the floor.
    #[test]
    fn tables_give_the_values_they_were_built_of() {
        const KEYS: u64 = 20_000;
        let keys: Vec<u64> = (0..KEYS).map(key).collect();
        for peer in PEERS.iter().filter(|peer| (peer.reserved)(KEYS) == 0 && peer.name != FLOOR) {
            for value_bits in 1..=4 {
                let sizes = Sizes { keys: KEYS as usize, value_bits, floor_bytes: 0 };
                let mut table = (peer.make)(sizes).unwrap();
                for shift in [0, 1 << 32] {
                    let due: Vec<u8> = (0..KEYS).map(|n| value(n + shift, value_bits)).collect();
                    table.build(&keys, &due).unwrap();
                    for burst in [1, 7, BURST_MAX] {
                        let mut values = vec![0xff; due.len()];
                        table.prepare(&keys);
                        table.look_up(&keys, burst, &mut values);
                        assert!(values == due, "{} {value_bits} {burst}", peer.name);
                    }
                }
                let bits = table.bytes() as f64 * 8.0 / KEYS as f64;
                let least = f64::from(value_bits);
                assert!((least..3.0 * least + 1.0).contains(&bits), "{} {bits}", peer.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for peer in PEERS {
            assert!(std::ptr::eq(find(peer.name).unwrap(), peer), "{}", peer.name);
        }
        assert!(find("unknown").is_err_and(|e| e.to_string().contains("setsep-plain")));
    }
}
