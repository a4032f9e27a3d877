//! `rte_efd`, DPDK's table after the same paper, through the C shim.
//!
//! Debian's library is compiled without AVX2, yet chooses its AVX2 lookup at run time, whose body
//! is then a dummy that answers 0. So that build is held to its scalar lookup, and the source is
//! compiled here with this machine's vectors, for values of 8 bits (its default) and of 4.

// The shim is C.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use anyhow::{Context, Result, bail, ensure};

use super::peer::{BURST_MAX, Sizes, Table};
use crate::table::dpdk::start_with;

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// The shim's calls of a build of the library.
#[repr(C)]
struct Calls {
    create: unsafe extern "C" fn(keys: u32) -> *mut Opaque,
    insert: unsafe extern "C" fn(*mut Opaque, *const u64, *const u8, n: u64) -> u64,
    look_up: unsafe extern "C" fn(*const Opaque, *const usize, n: u64, burst: u64, *mut u8),
    free: unsafe extern "C" fn(*mut Opaque),
}

unsafe extern "C" {
    static peers_efd: Calls;
    static peers_efd_8: Calls;
    static peers_efd_4: Calls;
}

/// Builds of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    Debian,
    Bits8,
    Bits4,
}

impl Build {
    fn calls(self) -> &'static Calls {
        // SAFETY: constants of the shim, of this layout.
        unsafe {
            match self {
                Build::Debian => &peers_efd,
                Build::Bits8 => &peers_efd_8,
                Build::Bits4 => &peers_efd_4,
            }
        }
    }

    fn value_bits(self) -> u64 {
        if self == Build::Bits4 { 4 } else { 8 }
    }
}

const GROUPS: u64 = 64;
/// Memory that DPDK may take beyond its limit: it asks for more if a gap is too small.
const SLACK: u64 = 32 << 20;

/// Returns the parts of a table: a power of two, of 64 groups of 22 keys each at most.
fn chunks(keys: u64) -> u64 {
    (keys / (GROUPS * 22) + 1).next_power_of_two()
}

/// Returns the bytes that a table takes, with its keys and DPDK's overhead.
pub fn bytes(keys: u64) -> u64 {
    let chunks = chunks(keys);
    // Room for 28 keys a group: the keys, a ring of free places, and what the groups hold.
    let places = chunks * GROUPS * 28;
    let bytes = 8 * places + 8 * places.next_power_of_two() + chunks * GROUPS * (172 + 33);
    bytes + bytes / 50 + 2 * SLACK
}

/// The table lives until a new one is built, or the process ends.
struct Efd {
    build: Build,
    keys: u32,
    huge: bool,
    table: Option<NonNull<Opaque>>,
    lookups: Vec<u64>,
    /// Addresses of `lookups`, as the library takes them.
    pointers: Vec<usize>,
}

/// Starts DPDK, and makes a table for `sizes.keys` keys.
pub fn make(sizes: Sizes, build: Build) -> Result<Box<dyn Table>> {
    let keys = u32::try_from(sizes.keys).context("rte_efd has at most 2³² keys")?;
    ensure!(u64::from(sizes.value_bits) <= build.value_bits(), "this build has 4-bit values");
    let mib = u32::try_from((bytes(sizes.keys as u64) - SLACK).div_ceil(2 << 20) * 2)?;
    let huge = start_with(mib, if build == Build::Debian { 128 } else { 0 })?;
    let (lookups, pointers) = (Vec::new(), Vec::new());
    Ok(Box::new(Efd { build, keys, huge, table: None, lookups, pointers }))
}

impl Table for Efd {
    fn build(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        assert_eq!(keys.len(), values.len());
        let calls = self.build.calls();
        if let Some(old) = self.table.take() {
            // SAFETY: made by `create`, and not used any more.
            unsafe { (calls.free)(old.as_ptr()) };
        }
        // SAFETY: the library has started; it takes any number.
        let table = NonNull::new(unsafe { (calls.create)(self.keys) });
        let Some(table) = table else { bail!("rte_efd made no table of {} keys", self.keys) };
        self.table = Some(table);
        let n = keys.len() as u64;
        // SAFETY: the table is alive, and both slices hold that many.
        let done = unsafe { (calls.insert)(table.as_ptr(), keys.as_ptr(), values.as_ptr(), n) };
        ensure!(done == n, "rte_efd found no group for key {done} of {n}");
        Ok(())
    }

    fn bytes(&self) -> u64 {
        // Choices, 16 bits of index and 16 of array for each bit and group, and padding.
        chunks(u64::from(self.keys)) * (64 + GROUPS * 4 * self.build.value_bits()) + 256
    }

    fn prepare(&mut self, keys: &[u64]) {
        self.lookups.clear();
        self.lookups.extend(keys);
        self.pointers.clear();
        let addresses = self.lookups.iter().map(|key| std::ptr::from_ref(key).expose_provenance());
        self.pointers.extend(addresses);
    }

    fn look_up(&mut self, keys: &[u64], burst: usize, values: &mut [u8]) {
        assert!((1..=BURST_MAX).contains(&burst));
        assert!(keys.len() == self.pointers.len() && keys.len() == values.len(), "prepared");
        let Some(table) = self.table else { return };
        let (pointers, n) = (self.pointers.as_ptr(), self.pointers.len() as u64);
        let (look_up, values) = (self.build.calls().look_up, values.as_mut_ptr());
        // SAFETY: the table is alive; as many pointers, each to a key of the vector, as places for
        // values; the burst is one of the library's.
        unsafe { look_up(table.as_ptr(), pointers, n, burst as u64, values) };
    }

    fn note(&self) -> String {
        let pages = if self.huge { "yes" } else { "no" };
        format!("{}-bit values, huge pages: {pages}", self.build.value_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_library() {
        assert_eq!([1000, 1_000_000, 16_000_000].map(chunks), [1, 1024, 16_384]);
        assert!((700 << 20..900 << 20).contains(&bytes(16_000_000)));
    }
}
