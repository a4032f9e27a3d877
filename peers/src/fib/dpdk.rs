//! `rte_hash`, whose readers take no lock (`RW_CONCURRENCY_LF`), through the C shim.

// The shim is C.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};

use super::peer::{Lookup, Table, Tally};
use crate::table::dpdk::{heap_bytes, start};

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn peers_fib_new(entries: u32, extendable: c_int) -> *mut Opaque;
    fn peers_fib_write(table: *mut Opaque, keys: *const u64, values: *const u16, n: u64) -> c_int;
    fn peers_fib_count(table: *const Opaque) -> i32;
    fn peers_fib_lookup(
        table: *const Opaque,
        keys: *const u64,
        pointers: *const usize,
        n: u64,
        burst: u64,
        hashed: c_int,
        tally: *mut Tally,
    );
}

/// Memory that DPDK may take beyond its limit: it asks for more if a gap is too small.
const SLACK: u64 = 32 << 20;

/// Slots from which on the plain table fills less: index and signature then share too many of its
/// hash's 32 bits. With 2²⁷ slots it refuses a key at 92.5 %.
const CROWDED_SLOTS: u64 = 1 << 27;

/// Returns the size to create a table with. From [`CROWDED_SLOTS`] on, a plain table that would be
/// more than 90 % full gets twice the buckets (not twice the room for keys).
fn created_for(entries: u64, extendable: bool) -> u64 {
    let slots = entries.next_power_of_two();
    let crowded = slots >= CROWDED_SLOTS && entries > slots / 10 * 9;
    if crowded && !extendable { slots + 1 } else { entries }
}

/// Returns the bytes that a table takes, with DPDK's overhead.
pub fn bytes(entries: u64, extendable: bool) -> u64 {
    let entries = created_for(entries, extendable);
    let slots = entries.next_power_of_two();
    // Buckets of 8 slots, a line each; 16 bytes a key; a ring of free places.
    let plain = 8 * slots + 16 * (entries + 1) + 4 * (entries + 2).next_power_of_two();
    // As many buckets again, a ring of the free ones, and the one that each key leaves.
    let more = 8 * slots + slots + 4 * (entries + 1);
    let bytes = if extendable { plain + more } else { plain };
    bytes + bytes / 50 + 2 * SLACK
}

/// The table, which lives as long as the process.
#[derive(Clone, Copy)]
struct Handle(NonNull<Opaque>);

// SAFETY: with lock-free readers, one thread may write while others look up. `write` needs the one
// `RteHash`, mutably; everything else reads.
unsafe impl Send for Handle {}

struct RteHash {
    table: Handle,
    bytes: u64,
    slots: u64,
}

struct RteReader {
    table: Handle,
    keys: Vec<u64>,
    /// Addresses of the keys, as the library takes them.
    pointers: Vec<usize>,
}

/// Makes a table with room for `room` entries; DPDK gets memory for it and starts.
pub fn make(room: usize, extendable: bool) -> Result<Box<dyn Table>> {
    let told = bytes(room as u64, extendable) - SLACK;
    let room = u32::try_from(created_for(room.max(8) as u64, extendable))
        .context("rte_hash has at most 2³⁰ entries")?;
    let mib = u32::try_from(told.div_ceil(2 << 20) * 2)?;
    start(mib)?;
    let before = heap_bytes();
    // SAFETY: the library has started; it takes any number.
    let table = unsafe { peers_fib_new(room, c_int::from(extendable)) };
    let Some(table) = NonNull::new(table) else { bail!("rte_hash made no table of {room}") };
    let slots = u64::from(room).next_power_of_two();
    Ok(Box::new(RteHash { table: Handle(table), bytes: heap_bytes() - before, slots }))
}

impl RteHash {
    fn write(&mut self, keys: &[u64], values: &[u16]) -> c_int {
        assert_eq!(keys.len(), values.len());
        // SAFETY: the table lives as long as the process, this is its only writer, and both slices
        // hold that many.
        unsafe {
            let table = self.table.0.as_ptr();
            peers_fib_write(table, keys.as_ptr(), values.as_ptr(), keys.len() as u64)
        }
    }

    fn load_percent(&self) -> f64 {
        // SAFETY: the table lives as long as the process.
        let count = unsafe { peers_fib_count(self.table.0.as_ptr()) };
        100.0 * f64::from(count) / self.slots as f64
    }
}

impl Table for RteHash {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        let error = self.write(keys, values);
        if error < 0 {
            bail!("rte_hash refused a key ({error}) at {:.1} % of its slots", self.load_percent());
        }
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        // The keys are present, so memory cannot run out.
        let error = self.write(keys, values);
        debug_assert_eq!(error, 0);
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Box::new(RteReader { table: self.table, keys: Vec::new(), pointers: Vec::new() })
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn note(&self) -> String {
        format!("{:.1} % of slots", self.load_percent())
    }
}

impl Lookup for RteReader {
    fn prepare(&mut self, keys: &[u64]) {
        self.keys.clear();
        self.keys.extend(keys);
        self.pointers.clear();
        self.pointers
            .extend(self.keys.iter().map(|key| std::ptr::from_ref(key).expose_provenance()));
    }

    fn look_up(&mut self, way: usize, burst: usize) -> Tally {
        assert!((1..=64).contains(&burst));
        let mut tally = Tally::default();
        // SAFETY: the table lives as long as the process; as many pointers as keys, each to a key
        // of the vector, which did not change since; a burst fits the shim's arrays.
        unsafe {
            peers_fib_lookup(
                self.table.0.as_ptr(),
                self.keys.as_ptr(),
                self.pointers.as_ptr(),
                self.keys.len() as u64,
                burst as u64,
                c_int::from(way == 1),
                &raw mut tally,
            );
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_plain_tables_get_more_buckets() {
        const SLOTS: u64 = 1 << 27;
        assert_eq!(created_for(128_000_000, false), SLOTS + 1);
        for (entries, extendable) in
            [(128_000_000, true), (120_000_000, false), (16_000_000, false), (2 * SLOTS / 3, false)]
        {
            assert_eq!(created_for(entries, extendable), entries);
        }
        // Twice the buckets (8 bytes a slot) and the ring, not twice the keys.
        let more = bytes(128_000_000, false) - bytes(SLOTS / 10 * 9, false);
        assert!((12 * SLOTS..17 * SLOTS).contains(&more), "{more}");
    }
}
