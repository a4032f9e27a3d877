//! The whole machine: what a load, a store and an SDC operation do, part by part.
//!
//! ```text
//! access ─ same line as the last one? ─ TLB ─ L1 ─ L2 ─ LLC ─ DRAM
//!            counted and done             └ walk ──┘ an entry of the page table a level
//! ```

use std::collections::BTreeMap;

use crate::{
    Counters, Mode, Refused, Shape, Times, WayView,
    cache::{Cache, EMPTY, EXTENSION, modified},
    core::{Latencies, Waits},
    dram::{Dram, Row},
    sdc::{SLOTS, Sdc},
    shape::Level,
    tlb::{Tlb, entry_line},
};

/// No access has this line: addresses have 64 bits.
const NONE: u64 = u64::MAX;

/// One core with L1, LLC and SDC, TLB and DRAM.
///
/// Addresses serve as physical ones. Fetches of instructions and prefetchers are not modelled
/// ([`GAPS`](crate::GAPS)).
pub struct Machine {
    /// The line of the last access if it is the first level's most recent line; [`NONE`] otherwise.
    recent: u64,
    recent_modified: bool,
    counters: Counters,
    l1: Option<Cache>,
    l2: Option<Cache>,
    llc: Cache,
    sdc: Option<Sdc>,
    tlb: Tlb,
    dram: Dram,
    latencies: Latencies,
    waits: Waits,
    /// Lines of a page, as a power of two.
    page_shift: u32,
    heat: Vec<u64>,
    line_heat: BTreeMap<u64, [u64; SLOTS]>,
    shape: Shape,
}

/// Where a line was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    L2,
    Llc,
    Dram,
}

impl Machine {
    /// Builds an empty machine. Fails if the shape cannot be built.
    pub fn new(shape: &Shape) -> Result<Machine, Refused> {
        shape.check()?;
        let cache = |level: &Level| Cache::new(level.sets(), level.ways as usize);
        let first = shape.l1.as_ref().unwrap_or(&shape.llc);
        let slots = first.sets() * first.ways as usize * SLOTS;
        let sdc = |sdc| Sdc::new(&shape.llc, sdc);
        Ok(Machine {
            recent: NONE,
            recent_modified: false,
            counters: Counters::default(),
            l1: shape.l1.as_ref().map(cache),
            l2: shape.l2.as_ref().map(cache),
            llc: cache(&shape.llc),
            sdc: shape.sdc.as_ref().map(sdc).transpose()?,
            tlb: Tlb::new(&shape.tlb),
            dram: Dram::new(&shape.dram),
            latencies: Latencies::new(shape),
            waits: Waits::default(),
            page_shift: shape.tlb.page_bytes.trailing_zeros() - 6,
            heat: if shape.heat { vec![0; slots] } else { Vec::new() },
            line_heat: BTreeMap::new(),
            shape: shape.clone(),
        })
    }

    /// Reads `len` bytes: an access to each line touched; none if `len` is 0.
    #[inline]
    pub fn load(&mut self, address: u64, len: u32) {
        self.access(address, len, false);
    }

    /// Writes `len` bytes: an access to each line touched; none if `len` is 0.
    #[inline]
    pub fn store(&mut self, address: u64, len: u32) {
        self.access(address, len, true);
    }

    #[inline]
    fn access(&mut self, address: u64, len: u32, store: bool) {
        if len == 0 {
            return;
        }
        let last = address.saturating_add(u64::from(len) - 1);
        let line = address >> 6;
        if last >> 6 == line && line == self.recent && (!store || self.recent_modified) {
            self.counters.accesses += 1;
            self.counters.stores += u64::from(store);
            self.counters.l1.hits += 1;
            return;
        }
        self.lines(address, last, store);
    }

    /// Accesses each line from one byte to another.
    #[inline(never)]
    fn lines(&mut self, address: u64, last: u64, store: bool) {
        for line in address >> 6..=last >> 6 {
            self.counters.accesses += 1;
            self.counters.stores += u64::from(store);
            let at = self.line(line, store);
            if !self.heat.is_empty() {
                let from = address.max(line << 6) >> 3 & 7;
                let to = last.min(line << 6 | 63) >> 3 & 7;
                let (from, to) = (from as usize, to as usize);
                let place = &mut self.heat[SLOTS * at + from..=SLOTS * at + to];
                let of_line = &mut self.line_heat.entry(line).or_default()[from..=to];
                place.iter_mut().chain(of_line).for_each(|count| *count += 1);
            } else if self.l1.is_some() {
                self.recent = line;
                self.recent_modified = store;
            }
        }
    }

    /// Accesses a line. Returns where it lies now in the first level.
    fn line(&mut self, line: u64, store: bool) -> usize {
        let page = line >> self.page_shift;
        let mut wait = 0;
        if !self.tlb.touch(page) {
            self.llc.ask(line);
            wait = self.walk(page);
        }
        let at = if let Some(l1) = &mut self.l1 {
            if let Some(at) = l1.find(line) {
                l1.touch_ordinary(at, store);
                self.counters.l1.hits += 1;
                if wait == 0 {
                    return at;
                }
                at
            } else {
                let (at, old) = l1.fill(line, store);
                self.counters.l1.misses += 1;
                wait += self.program_fetch(line, false);
                if let Some(old) = modified(old) {
                    self.counters.writebacks.l1 += 1;
                    self.write_below_l1(old);
                }
                at
            }
        } else {
            wait += self.program_fetch(line, store);
            self.llc.find(line).unwrap_or_default()
        };
        self.waits.miss(&self.shape.overlap, self.counters.accesses, line, wait);
        at
    }

    /// Walks the page table from its root. Returns the wait.
    #[inline(never)]
    fn walk(&mut self, page: u64) -> u64 {
        self.counters.tlb_misses += 1;
        let mut wait = 0;
        let (levels, shift) = (self.shape.tlb.walk_levels, self.page_shift + 6);
        // All of them at once: each lookup would wait for the host's memory after the other.
        (0..levels).for_each(|level| self.llc.ask(entry_line(page, shift, level)));
        for level in (0..levels).rev() {
            let (found, waited) = self.fetch(entry_line(page, shift, level), false);
            wait += waited;
            let walk = &mut self.counters.walk;
            match found {
                Found::L2 => walk.l2 += 1,
                Found::Llc => walk.llc += 1,
                Found::Dram => walk.dram += 1,
            }
        }
        wait
    }

    /// Fetches a line for the program. Returns the wait.
    fn program_fetch(&mut self, line: u64, store: bool) -> u64 {
        let (found, wait) = self.fetch(line, store);
        let Counters { l2, llc, .. } = &mut self.counters;
        if found == Found::L2 {
            l2.hits += 1;
        } else {
            l2.misses += u64::from(self.l2.is_some());
            llc.hits += u64::from(found == Found::Llc);
            llc.misses += u64::from(found == Found::Dram);
        }
        wait
    }

    /// Fetches a line from below L1, and marks the LLC's as modified if it is the first level.
    fn fetch(&mut self, line: u64, store: bool) -> (Found, u64) {
        let mut wait = 0;
        if let Some(l2) = &mut self.l2 {
            wait += self.latencies.l2;
            if let Some(at) = l2.find(line) {
                l2.touch(at);
                return (Found::L2, wait);
            }
        }
        wait += self.latencies.llc;
        let found = if let Some(at) = self.llc.find(line) {
            self.llc.touch_ordinary(at, store);
            Found::Llc
        } else {
            let row = self.dram.access(line);
            let rows = &mut self.counters.dram;
            match row {
                Row::Hit => rows.hits += 1,
                Row::Closed => rows.closed += 1,
                Row::Conflict => rows.conflicts += 1,
            }
            wait += self.latencies.row(row);
            self.llc_fill(line, store);
            Found::Dram
        };
        if self.l2.is_some() {
            self.l2_fill(line, false);
        }
        (found, wait)
    }

    fn l2_fill(&mut self, line: u64, store: bool) {
        let Some(l2) = &mut self.l2 else { return };
        let (_, old) = l2.fill(line, store);
        if let Some(old) = modified(old) {
            self.counters.writebacks.l2 += 1;
            self.write_llc(old);
        }
    }

    fn llc_fill(&mut self, line: u64, store: bool) {
        let (at, old) = self.llc.fill(line, store);
        if let Some(sdc) = &mut self.sdc {
            sdc.line_gone(at, old, &mut self.counters.sdc);
        }
        self.write_dram(old);
    }

    fn write_below_l1(&mut self, line: u64) {
        match &mut self.l2 {
            None => self.write_llc(line),
            Some(l2) => match l2.find(line) {
                Some(at) => l2.touch_ordinary(at, true),
                None => self.l2_fill(line, true),
            },
        }
    }

    fn write_llc(&mut self, line: u64) {
        match self.llc.find(line) {
            Some(at) => self.llc.touch_ordinary(at, true),
            None => self.llc_fill(line, true),
        }
    }

    /// Writes back an evicted line of the LLC, if it was modified.
    fn write_dram(&mut self, tag: u64) {
        if let Some(line) = modified(tag) {
            self.counters.writebacks.llc += 1;
            self.dram.access(line);
        }
    }

    /// Looks up a value of `value.len()` words: 1, 2, 4 or 8. Returns whether `value` was written.
    ///
    /// The value may be another key's of the same process: the program checks, and reports by
    /// [`Machine::false_hit`]. Returns false for any other length or process number.
    pub fn sdc_lookup(&mut self, process: u8, key: u64, value: &mut [u64]) -> bool {
        if !self.serves(process, value.len()) {
            return false;
        }
        self.waits.end_group();
        let Some(sdc) = &mut self.sdc else { return false };
        let counters = &mut self.counters.sdc;
        counters.lookups += 1;
        let Some(slot) = sdc.lookup(&mut self.llc, counters, process, key, value) else {
            return false;
        };
        self.heat_value(slot, value.len());
        true
    }

    /// Inserts a value of 1, 2, 4 or 8 words; clears values of any size with an equal sub-tag.
    /// Returns false, and does nothing, for any other length or process number.
    pub fn sdc_insert(&mut self, process: u8, key: u64, value: &[u64]) -> bool {
        if !self.serves(process, value.len()) {
            return false;
        }
        self.waits.end_group();
        let Some(sdc) = &mut self.sdc else { return false };
        let counters = &mut self.counters.sdc;
        counters.inserts += 1;
        let (slot, gone) = sdc.insert(&mut self.llc, counters, process, key, value);
        self.write_dram(gone);
        self.heat_value(slot, value.len());
        true
    }

    /// Clears values of any size with the key's sub-tag. Returns whether there were any.
    pub fn sdc_invalidate(&mut self, process: u8, key: u64) -> bool {
        if !self.serves(process, 1) {
            return false;
        }
        self.waits.end_group();
        let Some(sdc) = &mut self.sdc else { return false };
        let counters = &mut self.counters.sdc;
        counters.invalidations += 1;
        sdc.invalidate(&self.llc, counters, process, key)
    }

    /// Counts a use of a value's slots where the LLC is the first level.
    fn heat_value(&mut self, slot: usize, slots: usize) {
        if self.l1.is_none()
            && let Some(heat) = self.heat.get_mut(slot..slot + slots)
        {
            heat.iter_mut().for_each(|count| *count += 1);
        }
    }

    /// Returns whether SDC is there for this process and length; counts what it refuses.
    fn serves(&mut self, process: u8, words: usize) -> bool {
        let Some(sdc) = &self.sdc else { return false };
        let serves = sdc.serves(process) && matches!(words, 1 | 2 | 4 | 8);
        self.counters.sdc.refused += u64::from(!serves);
        serves
    }

    /// Counts that the value of the last lookup was another key's.
    pub fn false_hit(&mut self) {
        self.counters.sdc.false_hits += 1;
        if let Some(sdc) = &self.sdc {
            self.counters.sdc.compared_others[sdc.hit_compared] += 1;
        }
    }

    /// Adds cycles of computing.
    #[inline]
    pub fn work(&mut self, cycles: u64) {
        self.counters.work = self.counters.work.saturating_add(cycles);
    }

    /// Returns what was counted since the machine was built or restarted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets counters, times and heat to zero; contents of caches, TLB and open rows stay.
    pub fn restart(&mut self) {
        self.counters = Counters::default();
        self.waits = Waits::default();
        self.heat.fill(0);
        self.line_heat.clear();
    }

    /// Returns the cycles since the machine was built or restarted, by mode.
    pub fn times(&self) -> Times {
        self.waits.times(&self.shape, &self.counters)
    }

    /// Returns the cycles of one mode.
    pub fn cycles(&self, mode: Mode) -> f64 {
        let times = self.times();
        match mode {
            Mode::Blocking => times.blocking,
            Mode::Overlap => times.overlap,
            Mode::AsEvaluated => times.as_evaluated,
        }
    }

    /// Returns the shape that the machine was built from.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns accesses per 8-byte slot of each line of the first level, as set × way × slot; empty
    /// unless [`Shape::heat`] is set. Where the LLC is the first level, hits and inserts of SDC
    /// count as well.
    pub fn heat(&self) -> &[u64] {
        &self.heat
    }

    /// Returns accesses per 8-byte slot of each line of memory, by its number (address / 64), where
    /// [`Machine::heat`] counts; those of SDC are in no line of memory.
    pub fn line_heat(&self) -> &BTreeMap<u64, [u64; SLOTS]> {
        &self.line_heat
    }

    /// Returns the ways of an LLC set; `None` if there is no such set.
    pub fn set_view(&self, set: usize) -> Option<Vec<WayView>> {
        if set >= self.shape.llc.sets() {
            return None;
        }
        let view = |at| match (self.llc.tag(at), &self.sdc) {
            (EMPTY, _) => WayView::Empty,
            (tag, Some(sdc)) if tag & EXTENSION != 0 => sdc.view(at, tag),
            (tag, _) => WayView::Ordinary { line: tag >> 1, modified: modified(tag).is_some() },
        };
        Some(self.llc.set(set as u64).map(view).collect())
    }

    /// Returns the number of LLC lines that SDC holds now.
    pub fn sdc_lines(&self) -> usize {
        self.llc.tags().iter().filter(|&&tag| tag != EMPTY && tag & EXTENSION != 0).count()
    }
}
