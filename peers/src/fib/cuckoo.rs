//! libcuckoo, through the C++ shim.

// The shim is C++.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::peer::{Lookup, Table, Tally};

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn peers_cuckoo_new(entries: u64) -> *mut Opaque;
    fn peers_cuckoo_write(map: *mut Opaque, keys: *const u64, values: *const u16, n: u64) -> c_int;
    fn peers_cuckoo_load(map: *const Opaque) -> f64;
    fn peers_cuckoo_lookup(map: *const Opaque, keys: *const u64, n: u64, tally: *mut Tally);
    fn peers_cuckoo_free(map: *mut Opaque);
}

struct Map(NonNull<Opaque>);

// SAFETY: the library locks; any thread may call anything.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made by `peers_cuckoo_new`, and no other owner is left.
        unsafe { peers_cuckoo_free(self.0.as_ptr()) };
    }
}

struct Cuckoo(Arc<Map>);

struct CuckooReader {
    map: Arc<Map>,
    keys: Vec<u64>,
}

/// Returns a table with room for `room` entries; it grows if they do not fit.
pub fn make(room: usize) -> Result<Box<dyn Table>> {
    // SAFETY: takes any number.
    let map = NonNull::new(unsafe { peers_cuckoo_new(room as u64) });
    Ok(Box::new(Cuckoo(Arc::new(Map(map.context("no memory for libcuckoo")?)))))
}

impl Cuckoo {
    fn write(&mut self, keys: &[u64], values: &[u16]) -> bool {
        assert_eq!(keys.len(), values.len());
        let map = self.0.0.as_ptr();
        // SAFETY: the map is alive, and both slices hold that many.
        unsafe { peers_cuckoo_write(map, keys.as_ptr(), values.as_ptr(), keys.len() as u64) == 0 }
    }
}

impl Table for Cuckoo {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        ensure!(self.write(keys, values), "libcuckoo could not grow");
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        // The keys are present, so memory cannot run out.
        let written = self.write(keys, values);
        debug_assert!(written);
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Box::new(CuckooReader { map: Arc::clone(&self.0), keys: Vec::new() })
    }

    fn note(&self) -> String {
        // SAFETY: the map is alive.
        let load = unsafe { peers_cuckoo_load(self.0.0.as_ptr()) };
        format!("{:.1} % of slots", 100.0 * load)
    }
}

impl Lookup for CuckooReader {
    fn prepare(&mut self, keys: &[u64]) {
        self.keys.clear();
        self.keys.extend(keys);
    }

    fn look_up(&mut self, _way: usize, _burst: usize) -> Tally {
        let mut tally = Tally::default();
        let (map, keys) = (self.map.0.as_ptr(), self.keys.as_ptr());
        // SAFETY: the map is alive, and there are that many keys.
        unsafe { peers_cuckoo_lookup(map, keys, self.keys.len() as u64, &raw mut tally) };
        tally
    }
}
