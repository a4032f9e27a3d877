//! Meters for C: what lookups cost, for the gate of a look-aside table.

use std::time::Instant;

use overbank::lookaside::{Gate, Meter, Way};

use crate::border::*;

/// Measures lookups of a thread, so that the gate of a table knows what they cost: one for each
/// thread and table. Before lookups ask overbank_copies_way or overbank_versioned_way which way
/// they go, and after those through the table say overbank_aside_meter_hits.
///
/// It reads the clock once in 512 lookups, and lets one lookup in 64 go around the table, in turns
/// of 262,144; while the gate is closed, 15 in 16 go around.
pub struct overbank_aside_meter {
    _opaque: [u8; 0],
}

/// A meter with its clock.
pub(crate) struct Clocked {
    meter: Meter,
    start: Instant,
}

type Owned = Handle<Clocked>;

/// Makes a meter and sets `*meter`: destroy it with overbank_aside_meter_destroy. Any thread.
///
/// # Safety
/// `meter` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_aside_meter_create(
    meter: *mut *mut overbank_aside_meter,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(meter, "meter")?;
            Handle::give(meter, Clocked { meter: Meter::new(), start: Instant::now() })
        }
    })
}

/// Frees the meter. NULL is none.
///
/// # Safety
/// The meter is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_aside_meter_destroy(meter: *mut overbank_aside_meter) {
    // SAFETY: the caller's promise.
    unsafe { Owned::destroy(meter) };
}

/// Notes how many of the lookups that went through the table found an entry, `OVERBANK_ASIDE_HIT`
/// or `_ABSENT`.
///
/// # Safety
/// The meter is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_aside_meter_hits(
    meter: *mut overbank_aside_meter,
    hits: u32,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Owned::change(meter, |Clocked { meter, .. }| {
                meter.hits(hits);
                Ok(())
            })
        }
    })
}

/// Writes 1 if the next `count` lookups go around the table of this gate, 0 if through it.
///
/// # Safety
/// The meter is NULL or live, and in no other call; `around` is NULL or valid.
pub(crate) unsafe fn way(
    gate: &Gate,
    meter: *mut overbank_aside_meter,
    count: usize,
    around: *mut u8,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let around = place(around, "around")?;
        Owned::change(meter, |Clocked { meter, start }| {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let way = meter.way(gate, count, || start.elapsed().as_nanos() as u64);
            *around = (way == Way::Around).into();
            Ok(())
        })
    }
}
