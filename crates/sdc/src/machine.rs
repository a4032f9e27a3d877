//! The whole machine: what a load, a store and an SDC operation do, part by part.

use crate::{Counters, Mode, Refused, Shape, Times, WayView};

/// One core with L1, LLC and SDC, TLB and DRAM.
pub struct Machine {
    shape: Shape,
    counters: Counters,
}

impl Machine {
    /// Builds an empty machine. Fails if the shape cannot be built.
    pub fn new(shape: &Shape) -> Result<Machine, Refused> {
        shape.check()?;
        Ok(Machine { shape: shape.clone(), counters: Counters::default() })
    }

    /// Reads `len` bytes: an access to each line touched; none if `len` is 0.
    #[inline]
    pub fn load(&mut self, address: u64, len: u32) {
        let _ = (address, len);
        self.counters.accesses += 1;
    }

    /// Writes `len` bytes: an access to each line touched; none if `len` is 0.
    #[inline]
    pub fn store(&mut self, address: u64, len: u32) {
        let _ = (address, len);
        self.counters.accesses += 1;
    }

    /// Looks up a value of `value.len()` words: 1, 2, 4 or 8. Returns whether `value` was written.
    ///
    /// The value may be another key's of the same process: the program checks, and reports by
    /// [`Machine::false_hit`]. Returns false for any other length or process number.
    pub fn sdc_lookup(&mut self, process: u8, key: u64, value: &mut [u64]) -> bool {
        let _ = (process, key, value);
        false
    }

    /// Inserts a value of 1, 2, 4 or 8 words; clears values of any size with an equal sub-tag.
    /// Returns false, and does nothing, for any other length or process number.
    pub fn sdc_insert(&mut self, process: u8, key: u64, value: &[u64]) -> bool {
        let _ = (process, key, value);
        false
    }

    /// Clears values of any size with the key's sub-tag. Returns whether there were any.
    pub fn sdc_invalidate(&mut self, process: u8, key: u64) -> bool {
        let _ = (process, key);
        false
    }

    /// Counts that the value of the last lookup was another key's.
    pub fn false_hit(&mut self) {
        self.counters.sdc.false_hits += 1;
    }

    /// Adds cycles of computing.
    pub fn work(&mut self, cycles: u64) {
        self.counters.work += cycles;
    }

    /// Returns what was counted since the machine was built or restarted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets counters, times and heat to zero; contents of caches, TLB and open rows stay.
    pub fn restart(&mut self) {
        self.counters = Counters::default();
    }

    /// Returns the cycles since the machine was built or restarted, by mode.
    pub fn times(&self) -> Times {
        Times::default()
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
    /// unless [`Shape::heat`] is set.
    pub fn heat(&self) -> &[u64] {
        &[]
    }

    /// Returns the ways of an LLC set; `None` if there is no such set.
    pub fn set_view(&self, set: usize) -> Option<Vec<WayView>> {
        (set < self.shape.llc.sets()).then(Vec::new)
    }

    /// Returns the number of LLC lines that SDC holds now.
    pub fn sdc_lines(&self) -> usize {
        0
    }
}
