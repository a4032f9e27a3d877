//! The tables compared: one trait, one row for each peer.
//!
//! All get the same 16-byte keys in the same order and hash them inside the clock. A lookup is a
//! hit if the table returns the value that belongs to the key. Tables of fingerprints (Overbank,
//! `rte_member`) may return another one, which is a miss.

pub mod dpdk;
pub mod maps;
pub mod overbank;

use anyhow::{Result, bail};

/// Most keys of a lookup.
pub const BURST: usize = 32;
/// Overbank's designs in every comparison; ratios refer to the first one.
pub const DESIGNS: &[&str] = &["blp-2-16", "set-4", "cuckoo-2-8"];

/// Addresses, ports and protocol of a flow, padded.
pub type Key = [u8; 16];

/// One table at work.
pub trait Table {
    /// Looks up at most [`BURST`] keys; bit i of the result: key i is present with its value.
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32;
    /// Inserts a key that was not found; a full table makes room.
    fn insert(&mut self, key: &Key, value: u16);
    /// Returns the bytes of the table, if it knows; else the caller asks the allocator.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }
    /// Returns the remarks on this run, for a reader of its figures.
    fn note(&self) -> String {
        String::new()
    }
}

/// A row: its name, what it is, and its constructor.
pub struct Peer {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, for `list`.
    pub what: &'static str,
    /// Whether it looks up bursts.
    pub bulk: bool,
    /// Makes it with this many entries.
    pub make: fn(&'static str, u32) -> Result<Box<dyn Table>>,
}

/// All peers, in the order of the tables.
pub const PEERS: &[Peer] = &[
    Peer { name: DESIGNS[0], what: "Overbank, 2 × 16 slots", bulk: true, make: overbank::make },
    Peer { name: DESIGNS[1], what: "Overbank, 4 slots", bulk: true, make: overbank::make },
    Peer { name: DESIGNS[2], what: "Overbank, 2 × 8 slots", bulk: true, make: overbank::make },
    Peer {
        name: "rte_member",
        what: "DPDK: fingerprints, hash table mode, as a cache (random eviction in the bucket)",
        bulk: true,
        make: |_, entries| dpdk::member(entries),
    },
    Peer {
        name: "rte_hash",
        what: "DPDK: whole keys, cuckoo with extra buckets; full, a random key is deleted",
        bulk: true,
        make: |_, entries| dpdk::hash(entries),
    },
    Peer {
        name: "hashbrown",
        what: "whole keys, SwissTable; full, a random key is removed",
        bulk: false,
        make: |_, entries| Ok(Box::new(maps::RandomMap::new(entries))),
    },
    Peer {
        name: "quick_cache",
        what: "whole keys, CLOCK-Pro; its variant for one thread",
        bulk: false,
        make: |_, entries| Ok(Box::new(maps::Quick::new(entries))),
    },
    Peer {
        name: "moka",
        what: "whole keys, TinyLFU; its variant for many threads, the usual one",
        bulk: false,
        make: |_, entries| Ok(Box::new(maps::Moka::new(entries))),
    },
];

/// Returns the peer of that name.
pub fn find(name: &str) -> Result<&'static Peer> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        bail!("unknown peer `{name}`: must be one of {}", known.join(", "));
    };
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{key_of, value_of};

    /// A bounded cache that finds the latest insertions, and never a wrong value. The tables of
    /// DPDK are left out: its heap starts once in a process.
    #[test]
    fn peers_are_bounded_caches() {
        const ENTRIES: u32 = 1 << 12;
        for peer in PEERS.iter().filter(|peer| !peer.name.starts_with("rte_")) {
            let mut table = (peer.make)(peer.name, ENTRIES).unwrap();
            for id in 0..4 * ENTRIES {
                table.insert(&key_of(id), value_of(id));
            }
            let (mut found, mut wrong) = (0, 0);
            for id in 0..4 * ENTRIES {
                found += table.lookup(&[key_of(id)], &[value_of(id)]).count_ones();
                wrong += table.lookup(&[key_of(id)], &[value_of(id) ^ 1]).count_ones();
            }
            assert!(found <= ENTRIES + ENTRIES / 8, "{}: {found}", peer.name);
            assert!(found >= ENTRIES / 2, "{}: {found}", peer.name);
            // Two flows of one fingerprint and neighbouring values: next to never.
            assert!(wrong <= 2, "{}: {wrong}", peer.name);
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for peer in PEERS {
            assert_eq!(find(peer.name).unwrap().name, peer.name);
            assert_eq!(PEERS.iter().filter(|other| other.name == peer.name).count(), 1);
        }
        assert!(find("unknown").is_err_and(|e| e.to_string().contains("quick_cache")));
    }
}
