//! Lookups that measure what they cost, so that the table's gate can decide.
//!
//! [`overbank`] has no clock; here it is std's. A [`Timer`] reads it once in 512 lookups, and lets
//! one lookup in 64 go around the table: 262,144 of 17 million in a row. While the gate is closed,
//! 15 in 16 do.

use overbank::lookaside::{Gate, Meter, Plain, Way};
use std::time::Instant;

/// Keys of a list that go one way; a longer list is several.
const LIST_MAX: usize = 512;

/// An index with a table in front, as a reader sees it.
pub trait Source {
    /// Keys.
    type Key: Plain;
    /// Values.
    type Value: Plain;
    /// Why a lookup fails.
    type Error;

    /// Returns the gate of the table.
    fn gate(&self) -> &Gate;

    /// Looks a key up in the index alone.
    ///
    /// # Errors
    /// The index failed.
    fn around(&self, key: Self::Key) -> Result<Option<Self::Value>, Self::Error>;

    /// Looks a key up through the table. Also returns whether the table answered.
    ///
    /// # Errors
    /// The index failed.
    fn look(&self, key: Self::Key) -> Result<(Option<Self::Value>, bool), Self::Error>;

    /// Looks up as many keys as `values` has places, in bursts. Returns the number of answers that
    /// came from the table.
    ///
    /// # Errors
    /// The index failed; then `values` has no meaning.
    fn look_batch(
        &self,
        keys: &[Self::Key],
        values: &mut [Option<Self::Value>],
    ) -> Result<u32, Self::Error>;
}

/// Looks keys up and measures it: one for each thread and table.
#[derive(Debug)]
pub struct Timer {
    meter: Meter,
    start: Instant,
    lookups: u64,
    hits: u64,
}

impl Default for Timer {
    fn default() -> Self {
        Timer::new()
    }
}

impl Timer {
    /// Begins with lookups through the table.
    pub fn new() -> Self {
        Timer { meter: Meter::new(), start: Instant::now(), lookups: 0, hits: 0 }
    }

    #[inline(always)]
    fn way(&mut self, gate: &Gate, lookups: u32) -> Way {
        self.meter.way(gate, lookups, || self.start.elapsed().as_nanos() as u64)
    }

    /// Looks a key up, mostly through the table.
    ///
    /// # Errors
    /// The index failed.
    #[inline(always)]
    pub fn get<S: Source>(
        &mut self,
        source: &S,
        key: S::Key,
    ) -> Result<Option<S::Value>, S::Error> {
        match self.way(source.gate(), 1) {
            // Where a table does not pay, this is all that a lookup takes longer.
            Way::Around => source.around(key),
            Way::Through => self.through(source, key),
        }
    }

    #[inline]
    fn through<S: Source>(
        &mut self,
        source: &S,
        key: S::Key,
    ) -> Result<Option<S::Value>, S::Error> {
        let (value, hit) = source.look(key)?;
        self.saw(1, u32::from(hit));
        Ok(value)
    }

    /// Looks up as many keys as `values` has places, in bursts, mostly through the table.
    ///
    /// # Errors
    /// The index failed; then `values` has no meaning.
    pub fn get_batch<S: Source>(
        &mut self,
        source: &S,
        keys: &[S::Key],
        values: &mut [Option<S::Value>],
    ) -> Result<(), S::Error> {
        for (keys, values) in keys.chunks(LIST_MAX).zip(values.chunks_mut(LIST_MAX)) {
            let count = keys.len().min(values.len()) as u32;
            if self.way(source.gate(), count) == Way::Around {
                for (value, key) in values.iter_mut().zip(keys) {
                    *value = source.around(*key)?;
                }
            } else {
                let hits = source.look_batch(keys, values)?;
                self.saw(count, hits);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn saw(&mut self, lookups: u32, hits: u32) {
        self.meter.hits(hits);
        self.lookups += u64::from(lookups);
        self.hits += u64::from(hits);
    }

    /// Returns the lookups through the table so far, and how many of them it answered.
    pub fn counts(&self) -> (u64, u64) {
        (self.lookups, self.hits)
    }
}
