//! DPDK's tables, through the C shim.
//!
//! Their memory is on huge pages if the kernel has free ones (the runner reserves them), else on
//! ordinary pages, and the note says so.

// The shim is C.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};

use super::{BURST, Key, Table};

/// Memory that DPDK reserves: the larger of the two tables takes half of it.
pub const MEMORY_MIB: u32 = 256;

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn peers_eal_init(huge_pages: c_int, mib: c_uint, simd_bits: c_uint) -> c_int;
    fn peers_heap_bytes() -> u64;
    fn peers_member_new(entries: u32) -> *mut Opaque;
    fn peers_member_lookup(
        table: *const Opaque,
        keys: *const Key,
        values: *const u16,
        n: u32,
    ) -> u32;
    fn peers_member_add(table: *const Opaque, key: *const Key, value: u16) -> c_int;
    fn peers_hash_new(entries: u32) -> *mut Opaque;
    fn peers_hash_lookup(table: *const Opaque, keys: *const Key, values: *const u16, n: u32)
    -> u32;
    fn peers_hash_add(table: *mut Opaque, key: *const Key, value: u16) -> c_int;
}

/// Starts DPDK with `mib` MiB of memory, once in a process. Returns whether huge pages are in use.
pub fn start(mib: u32) -> Result<bool> {
    start_with(mib, 0)
}

/// As [`start`], with vectors of at most `simd_bits` bits unless it is 0.
pub fn start_with(mib: u32, simd_bits: u32) -> Result<bool> {
    // The library cannot be asked, and after a failed start it cannot start again.
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u32 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let huge = u64::from(free) * 2 >= u64::from(mib);
    // SAFETY: called once, from the only thread, before anything else of the library.
    let error = unsafe { peers_eal_init(c_int::from(huge), mib, simd_bits) };
    if error != 0 {
        let error = std::io::Error::from_raw_os_error(-error);
        return Err(error).context("DPDK did not start");
    }
    Ok(huge)
}

/// Returns the bytes that DPDK's heap has handed out, once the library has started.
pub fn heap_bytes() -> u64 {
    // SAFETY: takes nothing, returns a number; before the start, nothing is handed out.
    unsafe { peers_heap_bytes() }
}

struct Dpdk {
    table: NonNull<Opaque>,
    lookup: unsafe extern "C" fn(*const Opaque, *const Key, *const u16, u32) -> u32,
    insert: unsafe fn(*mut Opaque, *const Key, u16) -> c_int,
    bytes: u64,
    refused: u64,
    huge: bool,
}

/// Makes `rte_member`, hash table mode, as a cache.
pub fn member(entries: u32) -> Result<Box<dyn Table>> {
    unsafe fn insert(table: *mut Opaque, key: *const Key, value: u16) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { peers_member_add(table, key, value) }
    }
    make(peers_member_new, peers_member_lookup, insert, entries)
}

/// Makes `rte_hash` with a bound.
pub fn hash(entries: u32) -> Result<Box<dyn Table>> {
    unsafe fn insert(table: *mut Opaque, key: *const Key, value: u16) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { peers_hash_add(table, key, value) }
    }
    make(peers_hash_new, peers_hash_lookup, insert, entries)
}

fn make(
    new: unsafe extern "C" fn(u32) -> *mut Opaque,
    lookup: unsafe extern "C" fn(*const Opaque, *const Key, *const u16, u32) -> u32,
    insert: unsafe fn(*mut Opaque, *const Key, u16) -> c_int,
    entries: u32,
) -> Result<Box<dyn Table>> {
    let huge = start(MEMORY_MIB)?;
    let before = heap_bytes();
    // SAFETY: the library has started; it takes any number.
    let table = unsafe { new(entries) };
    let Some(table) = NonNull::new(table) else { bail!("DPDK made no table of {entries} entries") };
    let bytes = heap_bytes() - before;
    Ok(Box::new(Dpdk { table, lookup, insert, bytes, refused: 0, huge }))
}

impl Table for Dpdk {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        assert!(keys.len() <= BURST && keys.len() == values.len(), "a burst");
        // SAFETY: the table is the one that this function is for (`make`), it lives as long as the
        // process, and both slices hold `keys.len()` elements, which fit the shim's arrays.
        unsafe {
            (self.lookup)(self.table.as_ptr(), keys.as_ptr(), values.as_ptr(), keys.len() as u32)
        }
    }

    fn insert(&mut self, key: &Key, value: u16) {
        // SAFETY: as above; the key is read during the call only.
        let error = unsafe { (self.insert)(self.table.as_ptr(), key, value) };
        self.refused += u64::from(error < 0);
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn note(&self) -> String {
        let pages = if self.huge { "huge pages: yes" } else { "huge pages: no" };
        match self.refused {
            0 => pages.to_string(),
            n => format!("{pages}, {n} insertions refused"),
        }
    }
}
