//! The floor: a kernel that touches one random line per key and does nothing else.
//!
//! Same bursts as a cache's probe, same prefetches, same kind of pages, and the line is chosen from
//! the hash in the same way. No table that keeps its entries in memory can answer for less than
//! this, so every lookup cost is also given as a multiple of it.
//!
//! The memory is laid out as that of a table (`overbank::cache`, `memory.rs`): from 2 MiB on Linux a
//! mapping of its own that starts at a multiple of 2 MiB, between inaccessible pages, advised to be
//! huge before it is touched; smaller, or elsewhere, the global allocator's.

#![allow(unsafe_code)] // A mapping, advice about its pages, and the slice over it.

use overbank::cache::BURST;
use overbank::prefetch;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines to be touched.
pub struct Gather {
    lines: Lines,
}

enum Lines {
    Allocated(Vec<Line>),
    #[cfg(target_os = "linux")]
    Mapped(mapping::Mapping),
}

impl Lines {
    fn as_slice(&self) -> &[Line] {
        match self {
            Lines::Allocated(lines) => lines,
            #[cfg(target_os = "linux")]
            Lines::Mapped(mapping) => mapping.lines(),
        }
    }
}

impl Gather {
    /// `bytes` of memory, at least one line, on huge pages where the kernel gives them. `None` if
    /// there is not enough.
    pub fn new(bytes: usize) -> Option<Gather> {
        let count = (bytes / size_of::<Line>()).max(1);
        #[cfg(target_os = "linux")]
        if count * size_of::<Line>() >= mapping::HUGE_PAGE {
            let mut mapping = mapping::Mapping::new(count)?;
            for (i, line) in mapping.lines_mut().iter_mut().enumerate() {
                *line = Line([i as u64; 8]);
            }
            return Some(Gather { lines: Lines::Mapped(mapping) });
        }
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        lines.extend((0..count as u64).map(|i| Line([i; 8])));
        Some(Gather { lines: Lines::Allocated(lines) })
    }

    /// Touches the lines of `hashes`, a burst at a time; gives a number so that it must.
    #[inline(never)]
    pub fn touch(&self, hashes: &[u64]) -> u64 {
        let lines = self.lines.as_slice();
        let mut at = [0; BURST];
        let mut sum = 0u64;
        for hashes in hashes.chunks(BURST) {
            for (at, &hash) in at.iter_mut().zip(hashes) {
                *at = (((hash >> 32) * lines.len() as u64) >> 32) as usize;
                prefetch(&lines[*at]);
            }
            for (&at, &hash) in at.iter().zip(hashes) {
                sum = sum.wrapping_add(lines[at].0[(hash & 7) as usize]);
            }
        }
        sum
    }
}

#[cfg(target_os = "linux")]
mod mapping {
    use std::ptr::NonNull;

    use super::Line;

    /// Bytes of a huge page.
    pub(super) const HUGE_PAGE: usize = 2 << 20;

    /// Lines from a multiple of 2 MiB on, with inaccessible pages on both sides.
    pub(super) struct Mapping {
        reservation: NonNull<u8>,
        reserved: usize,
        start: NonNull<Line>,
        count: usize,
    }

    // SAFETY: a mapping owns its lines alone, as a `Box<[Line]>` does.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; every write goes through `&mut self`.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// `count` lines of zeros, not touched yet.
        pub(super) fn new(count: usize) -> Option<Mapping> {
            let bytes = count.checked_mul(size_of::<Line>())?;
            let reserved = bytes.checked_next_multiple_of(HUGE_PAGE)?.checked_add(3 * HUGE_PAGE)?;
            if reserved > isize::MAX as usize {
                return None;
            }
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing
            // that exists.
            let reservation = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
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
            let skip = HUGE_PAGE + reservation.as_ptr().align_offset(HUGE_PAGE);
            // SAFETY: skip < 2 huge pages, so the lines and a guard after them end inside the
            // reservation.
            let start = unsafe { reservation.add(skip) }.cast::<Line>();
            let mapping = Mapping { reservation, reserved, start, count };
            // SAFETY: `start .. start + bytes` lies in the reservation, and `start` is page aligned.
            let opened = unsafe {
                libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE)
            };
            if opened != 0 {
                return None; // `mapping` unmaps.
            }
            // SAFETY: advice on our own mapping changes no byte; a refusal only costs speed.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
            Some(mapping)
        }

        #[inline(always)]
        pub(super) fn lines(&self) -> &[Line] {
            // SAFETY: `start` is aligned and valid for `count` lines as long as `self` lives; the
            // kernel gave zeros, which are lines; writes need `&mut self`.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }

        pub(super) fn lines_mut(&mut self) -> &mut [Line] {
            // SAFETY: as in `lines`, and `&mut self` makes the access exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: exactly the reservation that `new` made; nothing else points in.
            unsafe { libc::munmap(self.reservation.as_ptr().cast(), self.reserved) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::cache::mix;

    #[test]
    fn touches_the_lines_of_the_hashes() {
        let gather = Gather::new(1 << 16).unwrap();
        for count in [0, 1, 31, 32, 33, 100] {
            let hashes: Vec<u64> = (0..count).map(mix).collect();
            let expected = hashes.iter().map(|h| h >> (64 - 10)).sum::<u64>();
            assert_eq!(gather.touch(&hashes), expected);
        }
        assert_eq!(Gather::new(0).unwrap().touch(&[u64::MAX]), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn starts_at_a_huge_page_as_tables_do() {
        const HUGE: usize = 2 << 20;
        for bytes in [HUGE, HUGE + 64, 3 * HUGE + 4096 + 128, 4 * HUGE] {
            // Several at once, so that a lucky address does not pass for an aligned one.
            let gathers = [(); 3].map(|()| Gather::new(bytes).unwrap());
            for gather in &gathers {
                let lines = gather.lines.as_slice();
                assert_eq!(lines.len(), bytes / 64);
                assert!((lines.as_ptr() as usize).is_multiple_of(HUGE), "{bytes}");
                assert!(lines.iter().enumerate().all(|(i, line)| line.0 == [i as u64; 8]));
            }
            let last = bytes as u64 / 64 - 1;
            assert_eq!(gathers[0].touch(&[u64::MAX, 0]), last);
        }
        assert!(Gather::new(usize::MAX).is_none());
    }
}
