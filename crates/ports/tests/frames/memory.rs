//! What a store of frames takes from the allocator, at its worst moment.

#![allow(unsafe_code)] // A global allocator is an unsafe trait; this one counts and passes on.

use overbank_ports::{FrameStore, Limits};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn came(bytes: usize) {
    LIVE.with(|n| n.set(n.get() + bytes));
    PEAK.with(|n| n.set(n.get().max(LIVE.with(Cell::get))));
}

fn went(bytes: usize) {
    LIVE.with(|n| n.set(n.get().saturating_sub(bytes)));
}

// SAFETY: every call goes to the system allocator with the arguments that came in. A block that is
// made larger counts twice for a moment, as where it has to move.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        came(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        went(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        came(size);
        went(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn memory_stays_within_the_limit_at_every_moment() {
    for limit in [1000, 10_000, 300_000, 8 << 20] {
        for len in [0, 1, 64, 1500, 9000, 100_000] {
            let frame = vec![7; len];
            PEAK.with(|peak| peak.set(LIVE.with(Cell::get)));
            let before = PEAK.with(Cell::get);
            let mut store = FrameStore::with_limits(Limits { memory_bytes_max: limit });
            while store.push(&frame, 0, 0).is_ok() {}
            let peak = PEAK.with(Cell::get) - before;
            assert!(peak <= limit, "{limit} bytes allowed, {peak} taken for frames of {len}");
            assert!(store.memory_bytes() <= limit);
            let each = len.next_multiple_of(64).max(64) + 24;
            assert!(
                store.len() * each >= limit / 4 * 3 || limit < 64 * each,
                "{limit} bytes allowed, {} frames of {len}",
                store.len()
            );
        }
    }
}
