//! The rings that an AF_XDP socket shares with the kernel: one side writes, the other reads.
//!
//! ```text
//!            consumer          producer
//!               │                 │
//!   entries  ─ ─┼─────────────────┼─ ─ ─     both indices count for ever and wrap at 2³²;
//!               │ filled, in order│ free     entry number i lies in slot i mod size
//! ```
//!
//! We produce into *fill* (empty frames for the kernel) and *tx*, and consume *rx* and
//! *completion*. Each side keeps a copy of the other side's index and reads the shared one only
//! when the copy shows nothing to do. A cache line of the other side is thus fetched once for each
//! burst.
//!
//! Order: an index is stored with release after the entries before it were written (producer) or
//! read (consumer), and loaded with acquire by the other side before it touches those entries. The
//! kernel does the same with `smp_store_release` and `smp_load_acquire` (net/xdp/xsk_queue.h).
//!
//! Guarantees: slots are masked, so no index leads outside the mapping; no call panics. Tested
//! against a naive twin on plain memory, over the wrap at 2³².

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A frame in the `rx` or `tx` ring, in the kernel's layout (`struct xdp_desc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Offset in the UMEM.
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

/// The parts of a ring in memory.
pub(super) struct Parts<T> {
    pub(super) producer: NonNull<AtomicU32>,
    pub(super) consumer: NonNull<AtomicU32>,
    pub(super) flags: NonNull<AtomicU32>,
    pub(super) entries: NonNull<T>,
    /// Slots, a power of two.
    pub(super) size: u32,
}

impl<T: Copy> Parts<T> {
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the maker of the ring promised that the parts stay mapped while it lives.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the index is masked to `size` slots, all of which are mapped.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }

    /// Reads an entry that is ours.
    fn read(&self, index: u32) -> T {
        // SAFETY: the slot is mapped and aligned. The kernel does not write slots that it has
        // handed over; if it did, the value is plain data and any value is checked by the caller.
        unsafe { self.slot(index).as_ptr().read_volatile() }
    }

    fn write(&self, index: u32, value: T) {
        // SAFETY: the slot is mapped and aligned, and no reference to it exists.
        unsafe { self.slot(index).as_ptr().write_volatile(value) }
    }
}

pub(super) struct Producer<T> {
    parts: Parts<T>,
    /// The entry to write next; entries not yet published are invisible.
    head: u32,
    /// The last published index.
    published: u32,
    /// The kernel's index when last read.
    tail: u32,
}

pub(super) struct Consumer<T> {
    parts: Parts<T>,
    /// The entry to read next.
    tail: u32,
    /// The kernel's index when last read.
    head: u32,
}

// SAFETY: a ring is one side of a single-producer single-consumer queue; moving it to another
// thread moves that side as a whole, and the other side is the kernel.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T: Copy> Producer<T> {
    /// Returns our side of a ring.
    ///
    /// # Safety
    /// The parts point to valid, aligned memory that stays mapped while the ring lives. `size` is a
    /// power of two, and this is the only producer.
    pub(super) unsafe fn new(parts: Parts<T>) -> Producer<T> {
        // Relaxed: we are the only writer of the producer index.
        let head = parts.producer().load(Ordering::Relaxed);
        let tail = parts.consumer().load(Ordering::Acquire);
        Producer { parts, head, published: head, tail }
    }

    /// Writes an entry that the kernel sees after [`Producer::publish`]; returns false if the ring
    /// is full.
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.head.wrapping_sub(self.tail) >= self.parts.size {
            // Acquire, pairs with the kernel's release: it has finished reading these slots.
            self.tail = self.parts.consumer().load(Ordering::Acquire);
            if self.head.wrapping_sub(self.tail) >= self.parts.size {
                return false;
            }
        }
        self.parts.write(self.head, value);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Publishes the pushed entries; returns whether there were any.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        // Release, pairs with the kernel's acquire: the entries are written before the index.
        self.parts.producer().store(self.head, Ordering::Release);
        self.published = self.head;
        true
    }

    /// Returns whether the kernel wants a system call before it looks at the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        // A driver sets the flag and then looks at the ring once more; we publish and then look at
        // the flag. Without a full fence between store and load both sides could miss the other.
        fence(Ordering::SeqCst);
        self.parts.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the entry after the last one that the kernel took.
    pub(super) fn consumed(&self) -> u32 {
        // Acquire: what we reuse of those slots comes after the kernel's reads.
        self.parts.consumer().load(Ordering::Acquire)
    }

    /// Returns the entry after the last published one.
    pub(super) fn published(&self) -> u32 {
        self.published
    }

    /// Returns entry `index` as written, if it is one of the last `size` entries.
    pub(super) fn entry(&self, index: u32) -> T {
        self.parts.read(index)
    }

    /// Overwrites an entry that was published and not yet taken.
    pub(super) fn replace(&mut self, index: u32, value: T) {
        self.parts.write(index, value);
    }
}

impl<T: Copy> Consumer<T> {
    /// Returns our side of a ring.
    ///
    /// # Safety
    /// As [`Producer::new`]; this is the only consumer.
    pub(super) unsafe fn new(parts: Parts<T>) -> Consumer<T> {
        // Relaxed: we are the only writer of the consumer index.
        let tail = parts.consumer().load(Ordering::Relaxed);
        Consumer { parts, tail, head: tail }
    }

    /// Takes the next entry. [`Consumer::release`] returns its slot.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.tail == self.head {
            // Acquire, pairs with the kernel's release: the entries are there before the index.
            self.head = self.parts.producer().load(Ordering::Acquire);
            if self.tail == self.head {
                return None;
            }
        }
        let value = self.parts.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(value)
    }

    /// Returns the slots of all popped entries.
    pub(super) fn release(&mut self) {
        // Release: the entries were read before the kernel may overwrite their slots.
        self.parts.consumer().store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
