//! The memory of a table: 64-bit words that threads share, or buckets of them with a head.

#![allow(unsafe_code)] // Casts from the bytes of `Memory` to atomics.

use core::marker::PhantomData;

use super::sync::{AtomicU16, AtomicU32, AtomicU64};
use crate::memory::{HugePages, MemoryError, Pages};

/// Zeroed words on the requested pages, at least 64-byte aligned.
#[cfg(not(feature = "loom"))]
pub struct Words {
    memory: crate::memory::Memory,
}

#[cfg(not(feature = "loom"))]
impl Words {
    /// Allocates `count` words, at least one.
    pub fn zeroed(count: usize, pages: Pages) -> Result<Self, MemoryError> {
        let bytes = count.checked_mul(8).ok_or(MemoryError::OutOfMemory { bytes: usize::MAX })?;
        Ok(Self { memory: crate::memory::Memory::zeroed_on(bytes, pages)? })
    }

    /// Returns the words.
    #[inline(always)]
    pub fn get(&self) -> &[AtomicU64] {
        // SAFETY: `Memory` has that many initialised bytes, 64-byte aligned, for as long as `self`
        // lives. Nothing makes a reference to them as bytes (the field is private and used here
        // only), so all accesses are atomic, and atomics may be written through shared references.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.len() / 8) }
    }

    /// Returns the pages that they lie on. Reads a file of the kernel: not for the packet path.
    pub fn huge_pages(&self) -> HugePages {
        self.memory.huge_pages()
    }
}

/// Words of the model checker, which observes each access.
#[cfg(feature = "loom")]
pub struct Words {
    words: alloc::vec::Vec<AtomicU64>,
}

#[cfg(feature = "loom")]
#[allow(missing_docs)] // As above.
impl Words {
    pub fn zeroed(count: usize, _: Pages) -> Result<Self, MemoryError> {
        Ok(Self { words: (0..count).map(|_| AtomicU64::new(0)).collect() })
    }

    pub fn get(&self) -> &[AtomicU64] {
        &self.words
    }

    pub fn huge_pages(&self) -> HugePages {
        HugePages::No
    }
}

/// The size of a kind of bucket.
pub(crate) trait Stride {
    /// Words from one bucket to the next, its head included: at least one.
    const WORDS: usize;
}

/// The first word of a bucket, in three parts that are always accessed as such.
#[repr(C)]
pub(crate) struct Head {
    pub(crate) seq: AtomicU32,
    pub(crate) state: AtomicU16,
    pub(crate) policy: AtomicU16,
}

/// Zeroed buckets on the requested pages, at least 64-byte aligned: a head and words each.
#[cfg(not(feature = "loom"))]
pub(crate) struct Buckets<S> {
    memory: crate::memory::Memory,
    count: usize,
    stride: PhantomData<fn() -> S>,
}

#[cfg(not(feature = "loom"))]
impl<S: Stride> Buckets<S> {
    const BYTES: usize = 8 * S::WORDS;

    /// Allocates `count` buckets, at least one.
    pub(crate) fn zeroed(count: usize, pages: Pages) -> Result<Self, MemoryError> {
        let bytes = count.checked_mul(Self::BYTES);
        let bytes = bytes.ok_or(MemoryError::OutOfMemory { bytes: usize::MAX })?;
        let memory = crate::memory::Memory::zeroed_on(bytes, pages)?;
        Ok(Self { memory, count, stride: PhantomData })
    }

    /// Returns a bucket's head and its other words.
    ///
    /// # Panics
    /// There are fewer buckets.
    #[inline(always)]
    pub(crate) fn get(&self, bucket: usize) -> (&Head, &[AtomicU64]) {
        assert!(bucket < self.count);
        // SAFETY: `zeroed` allocated `count` times `BYTES` initialised bytes, 64-byte aligned, so
        // bucket `bucket` lies inside for as long as `self` lives. Nothing makes a reference to
        // them as bytes. `S` fixes the places of heads, so a byte is always part of an atomic of
        // one size. Atomics may be written through shared references.
        unsafe {
            let start = self.memory.as_ptr().add(bucket * Self::BYTES);
            let words = core::slice::from_raw_parts(start.add(8).cast(), S::WORDS - 1);
            (&*start.cast::<Head>(), words)
        }
    }

    /// Returns where a bucket begins.
    #[inline(always)]
    pub(crate) fn address(&self, bucket: usize) -> *const u8 {
        self.memory.as_ptr().wrapping_add(bucket * Self::BYTES)
    }

    /// Returns the number of buckets.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the pages that they lie on. Reads a file of the kernel: not for the packet path.
    pub(crate) fn huge_pages(&self) -> HugePages {
        self.memory.huge_pages()
    }
}

/// Buckets of the model checker, which observes each access.
#[cfg(feature = "loom")]
pub(crate) struct Buckets<S> {
    buckets: alloc::vec::Vec<(Head, alloc::vec::Vec<AtomicU64>)>,
    stride: PhantomData<fn() -> S>,
}

#[cfg(feature = "loom")]
#[allow(missing_docs)] // As above.
impl<S: Stride> Buckets<S> {
    pub(crate) fn zeroed(count: usize, _: Pages) -> Result<Self, MemoryError> {
        let bucket = |_| {
            let head = Head {
                seq: AtomicU32::new(0),
                state: AtomicU16::new(0),
                policy: AtomicU16::new(0),
            };
            (head, (1..S::WORDS).map(|_| AtomicU64::new(0)).collect())
        };
        Ok(Self { buckets: (0..count).map(bucket).collect(), stride: PhantomData })
    }

    pub(crate) fn get(&self, bucket: usize) -> (&Head, &[AtomicU64]) {
        let (head, words) = &self.buckets[bucket];
        (head, words)
    }

    pub(crate) fn address(&self, _: usize) -> *const u8 {
        core::ptr::null()
    }

    pub(crate) fn count(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        HugePages::No
    }
}
