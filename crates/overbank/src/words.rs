//! The memory of a table: 64-bit words that threads share.

#![allow(unsafe_code)] // One cast, from the bytes of `Memory` to atomics.

use super::sync::AtomicU64;
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
