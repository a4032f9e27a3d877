//! Translations of pages: set-associative, LRU; and where the entries of the page table lie.
//!
//! ```text
//! set       way ⇄ way ⇄ way …           a ring from the most to the least recently used way
//! chains    hash of a page ─▶ way ─▶ …  of all sets: finds a page, or that it is not there
//! ```
//!
//! Nothing is as long as a set: the paper's has 64 ways, and every access looks here.

use crate::TlbShape;

const EMPTY: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

#[derive(Clone)]
struct Way {
    page: u64,
    /// The next way of the chain.
    chain: u32,
    /// Neighbours in the ring of the set.
    newer: u32,
    older: u32,
}

pub(crate) struct Tlb {
    mask: u64,
    ways: Vec<Way>,
    /// The most recently used way of each set. The one before it in the ring is the oldest.
    newest: Vec<u32>,
    chains: Vec<u32>,
}

impl Tlb {
    /// Returns an empty TLB of a shape that has been checked.
    pub fn new(shape: &TlbShape) -> Tlb {
        let (entries, ways) = (shape.entries, shape.ways);
        let ring = |way: u32| {
            let first = way / ways * ways;
            let at = |step: u32| first + (way - first + step) % ways;
            Way { page: EMPTY, chain: NONE, newer: at(ways - 1), older: at(1) }
        };
        Tlb {
            mask: u64::from(entries / ways) - 1,
            ways: (0..entries).map(ring).collect(),
            newest: (0..entries / ways).map(|set| set * ways).collect(),
            chains: vec![NONE; 4 * entries.next_power_of_two() as usize],
        }
    }

    fn chain(&self, page: u64) -> usize {
        let bits = self.chains.len().trailing_zeros();
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
    }

    /// Makes a page the most recently used. Returns whether it was there.
    #[inline]
    pub fn touch(&mut self, page: u64) -> bool {
        let set = (page & self.mask) as usize;
        let newest = self.newest[set];
        if self.ways[newest as usize].page == page {
            return true;
        }
        let chain = self.chain(page);
        let mut way = self.chains[chain];
        while way != NONE && self.ways[way as usize].page != page {
            way = self.ways[way as usize].chain;
        }
        if way != NONE {
            self.move_up(way, newest);
        } else {
            way = self.ways[newest as usize].newer;
            self.unchain(way);
            let next = std::mem::replace(&mut self.chains[chain], way);
            let of = &mut self.ways[way as usize];
            (of.page, of.chain) = (page, next);
            self.newest[set] = way;
            return false;
        }
        self.newest[set] = way;
        true
    }

    /// Takes a way out of its ring and puts it before the newest.
    fn move_up(&mut self, way: u32, newest: u32) {
        let Way { newer, older, .. } = self.ways[way as usize];
        self.ways[newer as usize].older = older;
        self.ways[older as usize].newer = newer;
        let oldest = std::mem::replace(&mut self.ways[newest as usize].newer, way);
        self.ways[oldest as usize].older = way;
        (self.ways[way as usize].newer, self.ways[way as usize].older) = (oldest, newest);
    }

    /// Takes a way out of its chain, if it has a page.
    fn unchain(&mut self, way: u32) {
        let Way { page, chain: next, .. } = self.ways[way as usize];
        if page == EMPTY {
            return;
        }
        let chain = self.chain(page);
        if self.chains[chain] == way {
            self.chains[chain] = next;
            return;
        }
        let mut before = self.chains[chain];
        while before != NONE {
            let of = &mut self.ways[before as usize];
            if of.chain == way {
                of.chain = next;
                return;
            }
            before = of.chain;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_list_from_the_most_to_the_least_recently_used_page() {
        for (entries, ways) in [(1, 1), (4, 4), (16, 4), (64, 64), (24, 3), (8, 1)] {
            let shape = TlbShape { entries, ways, page_bytes: 4096, walk_levels: 4 };
            let mut tlb = Tlb::new(&shape);
            let mut lists = vec![Vec::new(); (entries / ways) as usize];
            let mut state = 1u64;
            for step in 0..50_000u64 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let range = if step / 1000 % 2 == 0 { entries } else { 3 * entries };
                let page = (state >> 33) % u64::from(range + 1);
                let list: &mut Vec<u64> = &mut lists[page as usize % (entries / ways) as usize];
                let place = list.iter().position(|&there| there == page);
                place.map(|place| list.remove(place));
                list.insert(0, page);
                list.truncate(ways as usize);
                assert_eq!(tlb.touch(page), place.is_some(), "{entries}, {ways}, step {step}");
            }
        }
    }
}
