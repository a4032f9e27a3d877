//! What a design did to all packets so far, in bounded memory.
//!
//! Chunk digests are kept in *cells*: of one chunk each at first, and of twice as many whenever
//! [`CELLS_MAX`] are full. So a short replay is compared chunk by chunk, and a replay of days takes
//! no more than a megabyte or two a design. A cell's digest is the sum of those of its chunks, each
//! of which covers the numbers of its packets, so cells of different width can be brought to the
//! same one.

use xxhash_rust::xxh3::xxh3_64;

const CELLS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    first: u64,
    /// Number after that of the last packet.
    end: u64,
    sum: u64,
}

impl Cell {
    fn with(self, next: Cell) -> Cell {
        Cell { end: next.end, sum: self.sum.wrapping_add(next.sum), ..self }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Digests {
    cells: Vec<Cell>,
    cells_max: usize,
    /// Chunks of a whole cell, a power of two. Only the last cell may have fewer.
    width: u64,
    chunks: u64,
}

impl Default for Digests {
    fn default() -> Self {
        Digests { cells: Vec::new(), cells_max: CELLS_MAX, width: 1, chunks: 0 }
    }
}

impl Digests {
    /// Adds the digest of the next chunk: `count` packets from number `first` on.
    pub(super) fn push(&mut self, first: u64, count: u64, digest: u64) {
        let chunk = Cell { first, end: first + count, sum: digest };
        let starts_a_cell = self.chunks.is_multiple_of(self.width);
        self.chunks += 1;
        match self.cells.last_mut() {
            Some(last) if !starts_a_cell => *last = last.with(chunk),
            _ => {
                if self.cells.len() == self.cells_max {
                    self.widen();
                }
                self.cells.push(chunk);
            }
        }
    }

    fn widen(&mut self) {
        self.cells = joined(&self.cells, 2);
        self.width *= 2;
    }

    /// Returns the first and last packet of the first cell that differs from `other`'s. Where one
    /// has seen more than the other, the last cell of the shorter one counts only if it is whole.
    pub(super) fn difference(&self, other: &Digests) -> Option<(u64, u64)> {
        let [ours, theirs] = [self, other].map(|d| d.shared(&[self, other]));
        let mut pairs = ours.iter().zip(&theirs);
        let (ours, theirs) = pairs.find(|(ours, theirs)| ours != theirs)?;
        Some((ours.first.min(theirs.first), ours.end.max(theirs.end).saturating_sub(1)))
    }

    /// Returns the digest of what all of `others` have seen, and the packets in it.
    pub(super) fn digest(&self, others: &[&Digests]) -> (u64, u64) {
        let cells = self.shared(others);
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.sum.to_le_bytes()).collect();
        (xxh3_64(&bytes), cells.last().map_or(0, |cell| cell.end))
    }

    /// Returns the cells that can be compared with those of `others`.
    fn shared(&self, others: &[&Digests]) -> Vec<Cell> {
        let width = others.iter().map(|d| d.width).fold(self.width, u64::max);
        let chunks = others.iter().map(|d| d.chunks).fold(self.chunks, u64::min);
        // Widths are powers of two, so their ratio is one.
        let mut cells = joined(&self.cells, (width / self.width) as usize);
        if others.iter().any(|d| d.chunks != self.chunks) {
            cells.truncate((chunks / width) as usize);
        }
        cells
    }
}

/// Joins every `many` cells.
fn joined(cells: &[Cell], many: usize) -> Vec<Cell> {
    cells.chunks(many.max(1)).filter_map(|some| some.iter().copied().reduce(Cell::with)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few, so that cells are widened all the time.
    const CELLS_MAX: usize = 8;

    /// Returns the digests of `chunks` chunks of ten packets; chunk `odd` is not what it should be.
    fn digests(chunks: u64, odd: Option<u64>) -> Digests {
        let mut digests = Digests { cells_max: CELLS_MAX, ..Digests::default() };
        for chunk in 0..chunks {
            let wrong = u64::from(odd == Some(chunk));
            digests.push(chunk * 10, 10, chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) + wrong);
        }
        digests
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        for chunks in 0..200 {
            let some = digests(chunks, None);
            assert!(some.cells.len() <= CELLS_MAX, "{chunks}");
            assert_eq!(some.digest(&[]).1, chunks * 10);
            assert_eq!(some.digest(&[]), digests(chunks, None).digest(&[&some]));
            for odd in 0..chunks {
                let other = digests(chunks, Some(odd));
                assert_ne!(some.digest(&[]), other.digest(&[]), "{odd} of {chunks}");
                let (first, last) = some.difference(&other).expect("one chunk differs");
                assert!(first <= odd * 10 && odd * 10 + 9 <= last && last < chunks * 10);
                if chunks <= CELLS_MAX as u64 {
                    assert_eq!((first, last), (odd * 10, odd * 10 + 9));
                }
            }
        }
    }

    #[test]
    fn replays_of_different_lengths_are_compared_as_far_as_both_go() {
        for (short, long) in [(1, 2), (5, 9), (8, 9), (20, 100), (64, 65), (100, 1000)] {
            let (a, b) = (digests(short, None), digests(long, None));
            assert_eq!((a.difference(&b), b.difference(&a)), (None, None), "{short} {long}");
            assert_eq!(a.digest(&[&b]), b.digest(&[&a]), "{short} {long}");
            assert!(a.digest(&[&b]).1 <= short * 10);
            let odd = digests(long, Some(0));
            let whole = short >= odd.width;
            assert_eq!(a.difference(&odd).is_some(), whole, "{short} {long}");
            assert_eq!(odd.difference(&a).is_some(), whole, "{short} {long}");
            assert_eq!(a.difference(&digests(long, Some(long - 1))), None, "{short} {long}");
        }
    }
}
