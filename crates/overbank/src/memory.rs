//! The memory of one table: allocated and touched once, on huge pages if the kernel grants them.
//!
//! ```text
//!  2 MiB and more (Linux, feature std):            less: the global allocator, 64-byte aligned
//!  ┌───────────┬──────────────────────────┬───────────┐
//!  │ PROT_NONE │ table, 2 MiB aligned, RW │ PROT_NONE │   one reservation
//!  └───────────┴──────────────────────────┴───────────┘
//! ```
//!
//! The inaccessible pages on both sides make the table a separate mapping for the kernel. Its line
//! `AnonHugePages` in `/proc/self/smaps` then counts this table alone (the kernel merges neighbours
//! with equal permissions), and a stray read faults. Construction writes every page once: no page
//! fault is left for the packet path.

#![allow(unsafe_code)] // Raw memory: mmap, the allocator, and the slice over it.

use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

use thiserror::Error;

pub use crate::words::Words;

/// Bytes of a huge page, and the size from which a table asks for them.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// The smallest page: one write to each backs it.
const PAGE: usize = 4096;
/// Alignment of small tables: a cache line.
const LINE: usize = 64;

/// The pages to use for a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// The smallest pages. For comparisons.
    Small,
    /// 2 MiB pages if the kernel grants them, else the smallest.
    #[default]
    Huge,
    /// 1 GiB pages, from the pool that `vm.nr_hugepages` or the boot line reserved; the size is
    /// rounded up to whole pages. Linux on x86-64 and AArch64 only.
    Gigabyte {
        /// Whether a lack of pages is an error; otherwise falls back to [`Pages::Huge`].
        required: bool,
    },
}

/// The huge pages that a table lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// None: the table is smaller than 2 MiB, or the kernel granted none.
    No,
    /// A part of the table.
    Partly {
        /// Bytes on huge pages.
        bytes: usize,
    },
    /// All but a tail of less than 2 MiB.
    Yes,
    /// All of it, on pages of 1 GiB.
    Gigabyte,
    /// Unknown: `/proc/self/smaps` could not be read.
    Unknown,
}

impl core::fmt::Display for HugePages {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::No => f.write_str("no"),
            Self::Partly { bytes } => write!(f, "partly ({} MiB)", bytes >> 20),
            Self::Yes => f.write_str("yes"),
            Self::Gigabyte => f.write_str("1 GiB"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Why the memory of a table is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system has less memory.
    #[error("no memory for a table of {bytes} bytes")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// 1 GiB pages were required, and the system has too few.
    #[error("no 1 GiB pages for a table of {bytes} bytes (see /sys/kernel/mm/hugepages)")]
    NoGigabytePages {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// Makes room for `more` elements.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<(), MemoryError> {
    let bytes = (vec.len().saturating_add(more)).saturating_mul(size_of::<T>());
    vec.try_reserve(more).map_err(|_| MemoryError::OutOfMemory { bytes })
}

/// Returns `count` times the same element.
pub(crate) fn filled<T: Copy>(count: usize, element: T) -> Result<Vec<T>, MemoryError> {
    let mut vec = Vec::new();
    reserve(&mut vec, count)?;
    vec.resize(count, element);
    Ok(vec)
}

enum Source {
    Allocator,
    #[cfg(all(feature = "huge-pages", target_os = "linux"))]
    Mapping {
        reservation: NonNull<u8>,
        reserved: usize,
    },
    /// Pages of 1 GiB; the mapping starts at the first byte.
    #[cfg(all(feature = "huge-pages", target_os = "linux"))]
    Gigabyte {
        reserved: usize,
    },
}

/// Zeroed bytes, owned.
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    source: Source,
}

// SAFETY: `Memory` owns its bytes alone, as a `Box<[u8]>` does; shared access only reads.
unsafe impl Send for Memory {}
// SAFETY: as above; every write goes through `&mut self`, or is that of an atomic (`words`).
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates `bytes` zero bytes (at least 1, at most `isize::MAX` less two huge pages), all
    /// touched.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self, MemoryError> {
        Self::zeroed_on(bytes, Pages::Huge)
    }

    /// Allocates as [`Memory::zeroed`], on these pages.
    pub(crate) fn zeroed_on(bytes: usize, pages: Pages) -> Result<Self, MemoryError> {
        let out_of_memory = MemoryError::OutOfMemory { bytes };
        if bytes == 0 || bytes > isize::MAX as usize - 2 * HUGE_PAGE {
            return Err(out_of_memory);
        }
        if let Pages::Gigabyte { required } = pages {
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            if let Some(memory) = linux::map_gigabytes(bytes) {
                return Ok(memory);
            }
            if required {
                return Err(MemoryError::NoGigabytePages { bytes });
            }
        }
        #[cfg(all(feature = "huge-pages", target_os = "linux"))]
        if bytes >= HUGE_PAGE {
            return linux::map(bytes, pages != Pages::Small).ok_or(out_of_memory);
        }
        let layout = Layout::from_size_align(bytes, LINE).map_err(|_| out_of_memory)?;
        // SAFETY: the layout's size is not zero, checked above.
        let start = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(out_of_memory)?;
        let mut memory = Self { start, bytes, source: Source::Allocator };
        memory.touch();
        Ok(memory)
    }

    /// Writes to every page, so that all are backed.
    fn touch(&mut self) {
        for byte in self.bytes_mut().iter_mut().step_by(PAGE) {
            // SAFETY: a reference is valid for writes. Volatile, because writing a zero over a zero
            // is otherwise nothing to the compiler.
            unsafe { core::ptr::from_mut(byte).write_volatile(0) };
        }
    }

    /// Returns the start of the bytes, at least 64-byte aligned.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for reads of `bytes` initialised (zeroed) bytes as long as
        // `self` lives, and writes need `&mut self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Returns the kernel's current report on the pages under these bytes. Reads a file: not for
    /// the packet path.
    pub(crate) fn huge_pages(&self) -> HugePages {
        match self.source {
            Source::Allocator => HugePages::No,
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            Source::Mapping { .. } => match linux::huge_bytes(self.start.as_ptr() as usize) {
                None => HugePages::Unknown,
                Some(0) => HugePages::No,
                Some(huge) if huge + HUGE_PAGE > self.bytes => HugePages::Yes,
                Some(bytes) => HugePages::Partly { bytes },
            },
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            Source::Gigabyte { .. } => HugePages::Gigabyte,
        }
    }
}

impl Clone for Memory {
    /// Copies the bytes to pages of the same kind, as far as there are such.
    ///
    /// # Panics
    /// Ends as every allocation without memory does ([`alloc::alloc::handle_alloc_error`]).
    fn clone(&self) -> Self {
        let pages = match self.source {
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            Source::Gigabyte { .. } => Pages::Gigabyte { required: false },
            _ => Pages::Huge,
        };
        let Ok(mut copy) = Memory::zeroed_on(self.bytes, pages) else {
            alloc::alloc::handle_alloc_error(
                Layout::from_size_align(self.bytes, LINE)
                    .expect("that of bytes that were allocated"),
            )
        };
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.source {
            Source::Allocator => {
                // SAFETY: allocated in `zeroed` with this very layout, which was valid there.
                unsafe {
                    let layout = Layout::from_size_align_unchecked(self.bytes, LINE);
                    alloc::alloc::dealloc(self.start.as_ptr(), layout);
                }
            }
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            Source::Mapping { reservation, reserved } => {
                // SAFETY: exactly the reservation that `linux::map` made; nothing else points in.
                unsafe { libc::munmap(reservation.as_ptr().cast(), reserved) };
            }
            #[cfg(all(feature = "huge-pages", target_os = "linux"))]
            Source::Gigabyte { reserved } => {
                // SAFETY: exactly the mapping that `linux::map_gigabytes` made.
                unsafe { libc::munmap(self.start.as_ptr().cast(), reserved) };
            }
        }
    }
}

#[cfg(all(feature = "huge-pages", target_os = "linux"))]
mod linux {
    use std::fs::File;
    use std::io::{BufRead, BufReader};

    use super::{HUGE_PAGE, Memory, NonNull, Source};

    const GIGABYTE: usize = 1 << 30;

    /// Maps `bytes`, rounded up, on pages of 1 GiB; returns `None` if the pool has too few.
    pub(super) fn map_gigabytes(bytes: usize) -> Option<Memory> {
        let reserved = bytes.checked_next_multiple_of(GIGABYTE)?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
        // exists. Without MAP_NORESERVE the pages are set aside now or the call fails.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = NonNull::new(start.cast::<u8>())?;
        let mut memory = Memory { start, bytes, source: Source::Gigabyte { reserved } };
        memory.touch();
        Some(memory)
    }

    /// Maps `bytes` (the caller checked that two more huge pages fit).
    pub(super) fn map(bytes: usize, huge: bool) -> Option<Memory> {
        // Guards have the address space of whole huge pages, so any page size of the kernel fits.
        let reserved = bytes.next_multiple_of(HUGE_PAGE).checked_add(3 * HUGE_PAGE)?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
        // exists.
        let reservation = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if reservation == libc::MAP_FAILED {
            return None;
        }
        let reservation = NonNull::new(reservation.cast::<u8>())?;
        // At least one huge page of guard before the table and after it.
        let skip = HUGE_PAGE + reservation.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: skip < 2 huge pages, so table and guard end inside the reservation.
        let start = unsafe { reservation.add(skip) };
        let mut memory = Memory { start, bytes, source: Source::Mapping { reservation, reserved } };
        // SAFETY: `start .. start + bytes` lies in the reservation, and `start` is page aligned.
        let opened = unsafe {
            libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE)
        };
        if opened != 0 {
            return None; // `memory` unmaps.
        }
        // Advice on our own mapping: a refusal only costs speed, and `huge_pages` reports it.
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: as above.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
        memory.touch();
        Some(memory)
    }

    /// Returns `AnonHugePages` of the mapping that holds `address`, in bytes.
    pub(super) fn huge_bytes(address: usize) -> Option<usize> {
        let mut inside = false;
        for line in BufReader::new(File::open("/proc/self/smaps").ok()?).lines() {
            let line = line.ok()?;
            if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
                let kib: usize = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
                return kib.checked_mul(1024);
            }
            // A mapping's first line: "start-end permissions …", in hexadecimal.
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            if let Some((start, end)) = range
                && let Ok(start) = usize::from_str_radix(start, 16)
                && let Ok(end) = usize::from_str_radix(end, 16)
            {
                inside = (start..end).contains(&address);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_aligned_and_writable_to_the_last_byte() {
        for bytes in [1, 63, 64, 4096, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 24] {
            let mut memory = Memory::zeroed(bytes).unwrap();
            assert_eq!(memory.len(), bytes);
            assert_eq!(memory.bytes().len(), bytes);
            assert!(memory.bytes().iter().all(|&b| b == 0));
            memory.bytes_mut()[bytes - 1] = 7;
            assert_eq!(memory.bytes()[bytes - 1], 7);
            assert!((memory.as_ptr() as usize).is_multiple_of(LINE));
            if bytes < HUGE_PAGE {
                assert_eq!(memory.huge_pages(), HugePages::No);
            } else if cfg!(target_os = "linux") {
                assert!((memory.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
                assert_ne!(memory.huge_pages(), HugePages::Unknown);
            }
        }
    }

    #[test]
    fn neighbouring_tables_are_counted_apart() {
        // Without guards the kernel would merge the two, and each would claim the pages of both.
        let tables = [(); 4].map(|()| Memory::zeroed(HUGE_PAGE).unwrap());
        for table in &tables {
            assert!(!matches!(table.huge_pages(), HugePages::Partly { .. } | HugePages::Unknown));
        }
    }

    #[test]
    fn small_and_gigabyte_pages_are_used_as_requested() {
        let small = Memory::zeroed_on(2 * HUGE_PAGE, Pages::Small).unwrap();
        assert!(matches!(small.huge_pages(), HugePages::No | HugePages::Unknown));
        // Most machines set no such pages aside; then one is refused and the other falls back.
        let bytes = HUGE_PAGE + 64;
        match Memory::zeroed_on(bytes, Pages::Gigabyte { required: true }) {
            Ok(mut memory) => {
                assert_eq!(memory.huge_pages(), HugePages::Gigabyte);
                memory.bytes_mut()[bytes - 1] = 1;
            }
            Err(error) => assert_eq!(error, MemoryError::NoGigabytePages { bytes }),
        }
        let memory = Memory::zeroed_on(bytes, Pages::Gigabyte { required: false }).unwrap();
        assert_eq!(memory.len(), bytes);
        assert!(memory.bytes().iter().all(|&b| b == 0));
    }

    #[test]
    fn absurd_sizes_are_errors() {
        for bytes in [0, usize::MAX, isize::MAX as usize, isize::MAX as usize / 2] {
            assert_eq!(Memory::zeroed(bytes).err(), Some(MemoryError::OutOfMemory { bytes }));
        }
    }
}
