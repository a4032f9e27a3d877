//! The floor: a kernel that touches one random line per key and does nothing else.
//!
//! Same bursts as a cache's probe, same prefetches, same kind of pages, and the line is chosen from
//! the hash in the same way. No table that keeps its entries in memory can answer for less than
//! this, so every lookup cost is also given as a multiple of it.

#![allow(unsafe_code)] // Advice to the kernel about pages.

use overbank::cache::BURST;
use overbank::prefetch;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines to be touched.
pub struct Gather {
    lines: Vec<Line>,
}

impl Gather {
    /// `bytes` of memory, at least one line, on huge pages where the kernel gives them. `None` if
    /// there is not enough.
    pub fn new(bytes: usize) -> Option<Gather> {
        let count = (bytes / size_of::<Line>()).max(1);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        advise_huge(lines.as_mut_ptr(), count * size_of::<Line>());
        lines.extend((0..count as u64).map(|i| Line([i; 8])));
        Some(Gather { lines })
    }

    /// Touches the lines of `hashes`, a burst at a time; gives a number so that it must.
    #[inline(never)]
    pub fn touch(&self, hashes: &[u64]) -> u64 {
        let lines = &self.lines[..];
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

/// Asks for huge pages under a block that was just allocated and not touched yet.
fn advise_huge<T>(start: *mut T, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let skip = start.cast::<u8>().align_offset(PAGE);
        if bytes > PAGE {
            // SAFETY: advice changes no byte, and the range lies in one block that is ours. A
            // refusal only costs speed.
            unsafe {
                let first = start.cast::<u8>().wrapping_add(skip);
                libc::madvise(first.cast(), bytes - skip, libc::MADV_HUGEPAGE);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
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
}
