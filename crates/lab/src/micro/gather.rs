//! The floor: a kernel that touches one random line per key and does nothing else.
//!
//! Same bursts as a cache's probe, same prefetches, same kind of pages ([`super::memory`]), and the
//! line is chosen from the hash in the same way. No table that keeps its entries in memory can answer
//! for less than this, so every lookup cost is also given as a multiple of it.

use overbank::cache::{BURST, HugePages};
use overbank::prefetch;

use super::memory::Memory;

/// The longest burst of [`Gather::touch_in`].
pub const BURST_MAX: usize = 64;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines to be touched.
pub struct Gather {
    lines: Memory<Line>,
}

impl Gather {
    /// `bytes` of memory, at least one line, on huge pages where the kernel gives them. `None` if
    /// there is not enough.
    pub fn new(bytes: usize) -> Option<Gather> {
        let lines = Memory::new(bytes / size_of::<Line>(), true, |i| Line([i as u64; 8]))?;
        Some(Gather { lines })
    }

    /// The pages that the kernel gave. Reads a file of the kernel.
    pub fn huge_pages(&self) -> HugePages {
        self.lines.huge_pages()
    }

    /// Touches the lines of `hashes`, a burst at a time; gives a number so that it must.
    pub fn touch(&self, hashes: &[u64]) -> u64 {
        self.touch_in(BURST, hashes)
    }

    /// The same in bursts of `burst`, from 1 to [`BURST_MAX`].
    #[inline(never)]
    pub fn touch_in(&self, burst: usize, hashes: &[u64]) -> u64 {
        let lines = self.lines.as_slice();
        let mut at = [0; BURST_MAX];
        let mut sum = 0u64;
        for hashes in hashes.chunks(burst.clamp(1, BURST_MAX)) {
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
            for burst in [0, 1, 2, 63, 64, 65] {
                assert_eq!(gather.touch_in(burst, &hashes), expected);
            }
        }
        assert_eq!(Gather::new(0).unwrap().touch(&[u64::MAX]), 0);
        let last = (4 << 20) / 64 - 1;
        assert_eq!(Gather::new(4 << 20).unwrap().touch(&[u64::MAX, 0]), last);
    }
}
