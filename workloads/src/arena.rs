//! Allocates the watched code's memory at fixed addresses. They depend on nothing but what was
//! allocated here before: not on arguments, environment or the rest of the program.
//!
//! ```text
//! FROM ─▶ size 8 │ block, to 16 bytes │ size 8 │ block …      a fresh block follows the last one,
//!                                                             as in a fresh heap of glibc's malloc
//! ```
//!
//! Blocks above 1,016 bytes are rounded up to a quarter of a power of two, where malloc would round
//! to 16 bytes. A freed block goes to the list of its size; the next one of that size takes it. The
//! arena serves the thread inside [`within`]; everything else is the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::null_mut;

use anyhow::{Context, Result};

use crate::fixed;

/// Below the addresses that the kernel, valgrind and QEMU hand out.
const FROM: usize = 8 << 30;
/// Reserved, not used: pages come at their first access.
const BYTES: usize = 32 << 30;
/// Bytes of the size before each block.
const HEAD: usize = 8;
const GRAIN: usize = 16;
/// Sizes up to here have a list each, larger ones four lists a doubling.
const SMALL: usize = 1024;
const LISTS: usize = 192;

thread_local! {
    // Constant and without a destructor: its first use allocates nothing.
    static ON: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static MEMORY: Memory = Memory(UnsafeCell::new(Arena { next: FROM, end: FROM, free: [0; LISTS] }));

struct Memory(UnsafeCell<Arena>);

// SAFETY: the arena has one user: the thread inside `within`, which runs the store. No other thread
// allocates here, and none frees a block of the arena meanwhile.
unsafe impl Sync for Memory {}

struct Arena {
    /// The first byte that was never used.
    next: usize,
    end: usize,
    /// First free block of each list, 0 if it has none; the first word of a block is the next one.
    free: [usize; LISTS],
}

/// Reserves the memory.
pub fn reserve() -> Result<()> {
    fixed::map(FROM, BYTES).with_context(|| {
        format!("memory: cannot reserve {} GB of addresses at {FROM:#x} (ulimit -v?)", BYTES >> 30)
    })?;
    // SAFETY: the only thread that runs.
    unsafe { (*MEMORY.0.get()).end = FROM + BYTES };
    Ok(())
}

/// Runs `work`, whose memory comes from the arena. One thread at a time.
pub fn within<R>(work: impl FnOnce() -> R) -> R {
    /// The mode before.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            ON.set(self.0);
        }
    }
    let _before = Before(ON.replace(true));
    work()
}

/// Returns whether an address is one of the arena's.
fn is_here(address: usize) -> bool {
    (FROM..FROM + BYTES).contains(&address)
}

/// Returns the list and the bytes of a block for `bytes`, the head included.
fn list(bytes: usize) -> (usize, usize) {
    let least = (bytes + HEAD).next_multiple_of(GRAIN).max(2 * GRAIN);
    if least <= SMALL {
        return (least / GRAIN, least);
    }
    let size = least.next_multiple_of(1 << ((least - 1).ilog2() - 2));
    let top = size.ilog2();
    (SMALL / GRAIN + 4 * (top - SMALL.ilog2()) as usize + (size >> (top - 2) & 3), size)
}

impl Arena {
    /// Returns a block, and whether it was never used, so that all of it is zero; 0 without memory.
    fn take(&mut self, bytes: usize, align: usize) -> (usize, bool) {
        if bytes > BYTES {
            return (0, false);
        }
        let (list, size) = list(bytes);
        let first = self.free[list];
        if first != 0 && first.is_multiple_of(align) {
            // SAFETY: a free block of this arena, whose first word is the next one.
            self.free[list] = unsafe { *(first as *const usize) };
            return (first, false);
        }
        let at = (self.next + HEAD).next_multiple_of(align.max(GRAIN));
        let next = at - HEAD + size;
        if next > self.end {
            return (0, false);
        }
        self.next = next;
        // SAFETY: the word before the block is inside the reserved memory and belongs to the block.
        unsafe { *((at - HEAD) as *mut usize) = bytes };
        (at, true)
    }

    /// # Safety
    /// `take` returned the address, and nothing uses the block any more.
    unsafe fn give(&mut self, at: usize) {
        let (list, _) = list(bytes(at));
        // SAFETY: the block is the arena's, and has a word at least.
        unsafe { *(at as *mut usize) = self.free[list] };
        self.free[list] = at;
    }
}

/// Returns the bytes that a block of the arena was first allocated for.
fn bytes(at: usize) -> usize {
    // SAFETY: callers have an address that `take` returned.
    unsafe { *((at - HEAD) as *const usize) }
}

impl Memory {
    fn take(&self, bytes: usize, align: usize) -> (*mut u8, bool) {
        // SAFETY: the thread inside `within`, and no allocation happens inside another.
        let (at, fresh) = unsafe { (*self.0.get()).take(bytes, align) };
        (at as *mut u8, fresh)
    }

    /// # Safety
    /// As [`Arena::give`].
    unsafe fn give(&self, at: *mut u8) {
        // SAFETY: one thread; the rest is the caller's.
        unsafe { (*self.0.get()).give(at as usize) }
    }
}

// SAFETY: blocks are disjoint, aligned and as long as asked; others are the system's.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ON.get() {
            return self.take(layout.size(), layout.align()).0;
        }
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if ON.get() {
            return zeroed(layout.size(), layout.align());
        }
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's: the block is the arena's or the system's.
        unsafe {
            if is_here(block as usize) {
                self.give(block);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's; a block that moves is copied as far as both go.
        unsafe {
            if !is_here(block as usize) && !ON.get() {
                return System.realloc(block, layout, bytes);
            }
            if is_here(block as usize) && list(self::bytes(block as usize)) == list(bytes) {
                return block;
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                block.copy_to_nonoverlapping(moved, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

fn zeroed(bytes: usize, align: usize) -> *mut u8 {
    let (at, fresh) = MEMORY.take(bytes, align);
    if !fresh && !at.is_null() {
        // SAFETY: the block has these bytes.
        unsafe { at.write_bytes(0, bytes) };
    }
    at
}

// The C files call these instead of libc's (watched/build.rs).

// SAFETY: no other function has the name.
#[unsafe(no_mangle)]
extern "C" fn overbank_malloc(bytes: usize) -> *mut c_void {
    if ON.get() {
        return MEMORY.take(bytes, GRAIN).0.cast();
    }
    // SAFETY: any size may be asked for.
    unsafe { libc::malloc(bytes) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn overbank_calloc(count: usize, bytes: usize) -> *mut c_void {
    if ON.get() {
        return count.checked_mul(bytes).map_or(null_mut(), |all| zeroed(all, GRAIN)).cast();
    }
    // SAFETY: any size may be asked for.
    unsafe { libc::calloc(count, bytes) }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn overbank_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return overbank_malloc(bytes);
    }
    if !is_here(block as usize) {
        // SAFETY: the caller's block is libc's.
        return unsafe { libc::realloc(block, bytes) };
    }
    let (list, size) = self::list(self::bytes(block as usize));
    if self::list(bytes) == (list, size) {
        return block;
    }
    let moved = overbank_malloc(bytes);
    if !moved.is_null() {
        // SAFETY: both blocks have these bytes; the old one is the caller's, and ends here. It may
        // have grown in place since it was allocated: all of it is copied.
        unsafe {
            block.copy_to_nonoverlapping(moved, (size - HEAD).min(bytes));
            MEMORY.give(block.cast());
        }
    }
    moved
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn overbank_free(block: *mut c_void) {
    // SAFETY: the caller's block is the arena's or libc's.
    unsafe {
        if is_here(block as usize) {
            MEMORY.give(block.cast());
        } else {
            libc::free(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arena_serves_one_thread() {
        // One test: the arena has one user at a time.
        reserve().expect("addresses");
        a_block_that_grows_keeps_its_bytes();
        another_thread_allocates_elsewhere();
    }

    fn a_block_that_grows_keeps_its_bytes() {
        within(|| {
            let mut block = overbank_malloc(1).cast::<u8>();
            for bytes in 1..3000usize {
                // SAFETY: the block has `bytes` bytes, and is freed once.
                unsafe {
                    block = overbank_realloc(block.cast(), bytes).cast();
                    block.add(bytes - 1).write(bytes as u8);
                    let all = std::slice::from_raw_parts(block, bytes);
                    let wrong = all.iter().enumerate().find(|(i, byte)| **byte != (i + 1) as u8);
                    assert_eq!(wrong, None, "{bytes} bytes");
                }
            }
            // SAFETY: as above.
            unsafe { overbank_free(block.cast()) };
            let zeros = overbank_calloc(3000, 1).cast::<u8>();
            // SAFETY: the block has these bytes.
            assert!(unsafe { std::slice::from_raw_parts(zeros, 3000) }.iter().all(|b| *b == 0));
        });
    }

    fn another_thread_allocates_elsewhere() {
        within(|| {
            assert!(ON.get());
            let other = std::thread::scope(|scope| scope.spawn(|| ON.get()).join());
            assert!(!other.expect("no panic"));
        });
        assert!(!ON.get());
    }

    #[test]
    fn lists_hold_what_was_asked_and_do_not_mix() {
        let mut sizes = [0; LISTS];
        for bytes in (0..70_000).chain((17..36).map(|shift| (1 << shift) - HEAD)) {
            let (list, size) = list(bytes);
            assert!(size >= bytes + HEAD && size.is_multiple_of(GRAIN), "{bytes}: {size}");
            assert!(size <= 2 * GRAIN || size <= (bytes + HEAD + GRAIN) * 5 / 4, "{bytes}: {size}");
            assert!(sizes[list] == 0 || sizes[list] == size, "{bytes}: list {list}");
            sizes[list] = size;
        }
    }
}
