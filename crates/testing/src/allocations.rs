//! An allocator that counts, for tests of what allocates.
//!
//! ```
//! use overbank_testing::allocations::{Counting, allocations, bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let (before, bytes_before) = (allocations(), bytes());
//! let number = Box::new(7_u64);
//! assert_eq!((allocations() - before, bytes() - bytes_before), (1, 8));
//! # drop(number);
//! ```

#![allow(unsafe_code)] // A global allocator is an unsafe trait; this one counts and passes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

// Of each thread by itself: the test harness allocates beside the test.
thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Passes every call to the system's allocator, and counts those of the thread.
pub struct Counting;

/// Returns the allocations and reallocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the bytes that this thread has asked for so far, those of reallocations included.
pub fn bytes() -> u64 {
    BYTES.get()
}

fn count(size: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    BYTES.set(BYTES.get() + size as u64);
}

// SAFETY: every call goes to the system allocator with the arguments that came in; the counters are
// cells without a destructor, made at compile time, so touching them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}
