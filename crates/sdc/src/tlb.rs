//! Translations of pages: set-associative, LRU; and where the entries of the page table lie.
//!
//! A set is a list from the most to the least recently used page. A program that stays on few pages
//! finds them at the front.

use crate::TlbShape;

const EMPTY: u64 = u64::MAX;

pub(crate) struct Tlb {
    ways: usize,
    mask: u64,
    pages: Vec<u64>,
}

impl Tlb {
    /// Returns an empty TLB of a shape that has been checked.
    pub fn new(shape: &TlbShape) -> Tlb {
        Tlb {
            ways: shape.ways as usize,
            mask: u64::from(shape.entries / shape.ways) - 1,
            pages: vec![EMPTY; shape.entries as usize],
        }
    }

    /// Makes a page the most recently used. Returns whether it was there.
    #[inline]
    pub fn touch(&mut self, page: u64) -> bool {
        let from = (page & self.mask) as usize * self.ways;
        let set = &mut self.pages[from..from + self.ways];
        if set[0] == page {
            return true;
        }
        let found = set.iter().position(|&p| p == page);
        set.copy_within(..found.unwrap_or(self.ways - 1), 1);
        set[0] = page;
        found.is_some()
    }
}

/// Returns the line of the page-table entry at a level (0: the leaf) for a page.
///
/// Each level is one array of 8-byte entries over all of 48 bits of addresses, in a region that no
/// program uses.
pub(crate) fn entry_line(page: u64, page_shift: u32, level: u32) -> u64 {
    let pages = 1 << (48 - page_shift);
    let entry = (page & (pages - 1)) >> (9 * level);
    (1 << 56 | u64::from(level) << 48 | entry << 3) >> 6
}
