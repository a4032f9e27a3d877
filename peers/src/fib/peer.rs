//! The forwarding tables compared: one trait for the writer, one for a reader, one row for each
//! peer.
//!
//! Conversion of numbers into the form that a table takes (`prepare`) is outside the clock; hashing
//! is inside. A reader adds up what it finds, so that it must look, and every measured lookup is
//! checked.

use anyhow::{Result, bail};

use super::{cuckoo, dpdk, floor, maps, overbank};

/// Results of a number of lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Keys found.
    pub hits: u64,
    /// Sum of their values.
    pub sum: u64,
}

pub trait Lookup: Send {
    /// Takes the next keys.
    fn prepare(&mut self, keys: &[u64]);
    /// Looks up all of them, in bursts of at most `burst`, in one of the ways of its [`Peer`].
    fn look_up(&mut self, way: usize, burst: usize) -> Tally;
}

/// The writer, and owner, of a table.
pub trait Table: Send {
    /// Inserts new keys.
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()>;
    /// Writes the values of present keys.
    fn update(&mut self, keys: &[u64], values: &[u16]);
    /// Returns a reader.
    fn reader(&self) -> Box<dyn Lookup>;
    /// Returns the bytes of the table, if the growth of the process does not show them.
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
    /// Ways to look up; ratios refer to the first and the last of [`OVERBANK_WAYS`].
    pub ways: &'static [&'static str],
    /// Most bytes that it takes for this many entries, also while it is filled.
    pub bytes_max: fn(u64) -> u64,
    /// Whether it needs that memory in huge pages that are reserved before it starts.
    pub reserved: bool,
    /// Makes it with room for this many entries.
    pub make: fn(usize) -> Result<Box<dyn Table>>,
}

/// The peer that the others are compared with.
pub const OVERBANK: &str = "overbank";
/// Its ways: each burst alone; each burst prefetching the lines of the next; or lists of [`LIST`]
/// keys.
pub const OVERBANK_WAYS: [&str; 3] = ["batch", "batch, next burst named", "list"];
pub const AHEAD_WAY: usize = 1;
pub const LIST_WAY: usize = 2;
pub const LIST: usize = 1024;
/// One random line for each key, and nothing else: no table.
pub const FLOOR: &str = "floor";

/// All peers, in the order of the tables.
pub static PEERS: &[Peer] = &[
    Peer {
        name: OVERBANK,
        what: "overbank::fib: lookup_batch, lookup_batch_ahead, lookup_all",
        ways: &OVERBANK_WAYS,
        bytes_max: |entries| entries * 10 + (4 << 20),
        reserved: false,
        make: overbank::make,
    },
    Peer {
        name: FLOOR,
        what: "no table: one random line a key from as much memory as Overbank takes",
        ways: &["gather", "gather, next burst named"],
        bytes_max: |entries| entries * 10 + (4 << 20),
        reserved: false,
        make: floor::make,
    },
    Peer {
        name: "rte_hash-lf",
        what: "DPDK, RW_CONCURRENCY_LF: lookup_bulk_data, lookup_with_hash_bulk_data",
        ways: &["bulk", "bulk, hashed by the caller"],
        bytes_max: |entries| dpdk::bytes(entries, false),
        reserved: true,
        make: |room| dpdk::make(room, false),
    },
    Peer {
        name: "rte_hash-lf-ext",
        what: "the same with EXT_TABLE",
        ways: &["bulk", "bulk, hashed by the caller"],
        bytes_max: |entries| dpdk::bytes(entries, true),
        reserved: true,
        make: |room| dpdk::make(room, true),
    },
    Peer {
        name: "libcuckoo",
        what: "cuckoohash_map, 4 slots, find",
        ways: &["find"],
        // If it grows, the old table and the new one exist at the same time.
        bytes_max: |entries| 3 * 10 * entries.next_power_of_two() + (4 << 20),
        reserved: false,
        make: cuckoo::make,
    },
    Peer {
        name: "hashbrown",
        what: "SwissTable behind parking_lot's RwLock, locked once a burst",
        ways: &["get"],
        bytes_max: |entries| 9 * (entries * 8 / 7).next_power_of_two() + (4 << 20),
        reserved: false,
        make: |room| Ok(Box::new(maps::Locked::new(room))),
    },
    Peer {
        name: "papaya",
        what: "papaya::HashMap, pinned once a burst",
        ways: &["get"],
        bytes_max: |entries| 9 * (2 * entries).next_power_of_two() + 32 * entries + (4 << 20),
        reserved: false,
        make: |room| Ok(Box::new(maps::Papaya::new(room))),
    },
    Peer {
        name: "scc",
        what: "scc::HashIndex, whose reads take no lock; one guard a burst",
        ways: &["peek"],
        bytes_max: |entries| 16 * (2 * entries).next_power_of_two() + (4 << 20),
        reserved: false,
        make: |room| Ok(Box::new(maps::Scc::new(room))),
    },
];

/// Returns the peer of that name.
pub fn find(name: &str) -> Result<&'static Peer> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        bail!("unknown forwarding table `{name}`: must be one of {}", known.join(", "));
    };
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::keys::{address, port};

    /// Every entry is found with its value, nothing else is; the same holds after all were updated.
    /// DPDK is left out, whose heap starts once in a process (`tests/fib.rs` runs it), and the
    /// floor.
    #[test]
    fn tables_find_what_they_hold() {
        const ENTRIES: u64 = 5000;
        let keys: Vec<u64> = (0..3 * ENTRIES).map(address).collect();
        let held = &keys[..ENTRIES as usize];
        for peer in PEERS.iter().filter(|peer| !peer.reserved && peer.name != FLOOR) {
            let mut table = (peer.make)(ENTRIES as usize).unwrap();
            let mut reader = table.reader();
            let values: Vec<u16> = (0..ENTRIES).map(port).collect();
            table.insert(held, &values).unwrap();
            for shift in [0, 1] {
                let value = |number: u64| port(number).wrapping_add(shift);
                table.update(held, &(0..ENTRIES).map(value).collect::<Vec<_>>());
                for way in 0..peer.ways.len() {
                    for (number, key) in (0..).zip(&keys) {
                        reader.prepare(std::slice::from_ref(key));
                        let hit = number < ENTRIES;
                        let sum = if hit { u64::from(value(number)) } else { 0 };
                        let due = Tally { hits: u64::from(hit), sum };
                        assert_eq!(reader.look_up(way, 32), due, "{} {number}", peer.name);
                    }
                    for burst in [1, 7, 32, 64] {
                        reader.prepare(&keys);
                        let sum = (0..ENTRIES).map(|number| u64::from(value(number))).sum();
                        let due = Tally { hits: ENTRIES, sum };
                        assert_eq!(reader.look_up(way, burst), due, "{} {burst}", peer.name);
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for peer in PEERS {
            assert!(std::ptr::eq(find(peer.name).unwrap(), peer), "{}", peer.name);
            assert!(!peer.ways.is_empty());
        }
        assert!(find("unknown").is_err_and(|e| e.to_string().contains("papaya")));
    }
}
