//! What lookups through a look-aside table cost, for its gate: measured by `lookup_through`, which
//! sees the lookup, the search of the index and the fill.
//!
//! A meter is one thread's, and Python's threads come and go: each call takes one that no other
//! call has. Its clock runs within calls alone, so what the caller does between them is no cost.

use std::sync::Mutex;
use std::time::Instant;

use overbank::lookaside::{Gate, Meter, Way};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answers::{Asked, Looks};
use crate::errors::{lock, room};

/// Meters of a table, as many as it had calls at once.
#[derive(Default)]
pub struct Meters {
    free: Mutex<Vec<Clocked>>,
}

#[derive(Default)]
struct Clocked {
    meter: Meter,
    /// Nanoseconds of its calls so far.
    elapsed: u64,
}

impl Meters {
    /// Looks keys up the way that a meter says, if there are meters, else through the table.
    pub fn measure<'py>(
        meters: Option<&Self>,
        gate: &Gate,
        table: &impl Looks,
        asked: &Asked<'_, 'py>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (count, mut hits) = (asked.count()?, 0);
        // No keys, no lookups: their time would be that of others.
        let Some(meters) = meters.filter(|_| count > 0) else {
            return asked.through(table, &mut hits);
        };
        let mut clocked = lock(&meters.free)?.pop().unwrap_or_default();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let way = clocked.meter.way(gate, count, || clocked.elapsed);
        let start = Instant::now();
        let found = match way {
            Way::Around => asked.around(),
            Way::Through => asked.through(table, &mut hits),
        };
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        clocked.elapsed = clocked.elapsed.saturating_add(nanoseconds);
        clocked.meter.hits(u32::try_from(hits).unwrap_or(u32::MAX));
        // Without room the meter goes, not the answers.
        if let Ok(mut free) = lock(&meters.free)
            && room(&mut free, 1).is_ok()
        {
            free.push(clocked);
        }
        found
    }
}
