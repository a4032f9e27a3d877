//! The memory of a table: 64-bit words that threads share.

#![allow(unsafe_code)] // One cast, from the bytes of `Memory` to atomics.

use super::sync::AtomicU64;
use crate::memory::{HugePages, MemoryError, Pages};

/// Zeroed words on the pages that were asked for, at least 64-byte aligned.
#[cfg(not(feature = "loom"))]
pub(crate) struct Words {
    memory: crate::memory::Memory,
}

#[cfg(not(feature = "loom"))]
impl Words {
    /// At least one word.
    pub(crate) fn zeroed(count: usize, pages: Pages) -> Result<Self, MemoryError> {
        let bytes = count.checked_mul(8).ok_or(MemoryError::OutOfMemory { bytes: usize::MAX })?;
        Ok(Self { memory: crate::memory::Memory::zeroed_on(bytes, pages)? })
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> &[AtomicU64] {
        // SAFETY: `Memory` has that many initialised bytes, 64-byte aligned, for as long as `self`
        // lives. Nothing makes a reference to them as bytes (the field is private and used here
        // only), so all accesses are atomic, and atomics may be written through shared references.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.len() / 8) }
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        self.memory.huge_pages()
    }
}

/// Words of the model checker, which knows about each access.
#[cfg(feature = "loom")]
pub(crate) struct Words {
    words: alloc::vec::Vec<AtomicU64>,
}

#[cfg(feature = "loom")]
impl Words {
    pub(crate) fn zeroed(count: usize, _: Pages) -> Result<Self, MemoryError> {
        Ok(Self { words: (0..count).map(|_| AtomicU64::new(0)).collect() })
    }

    pub(crate) fn get(&self) -> &[AtomicU64] {
        &self.words
    }

    pub(crate) fn huge_pages(&self) -> HugePages {
        HugePages::No
    }
}
