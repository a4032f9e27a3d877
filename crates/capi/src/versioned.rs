//! Look-aside tables for C in front of a database with snapshots and numbered commits. Readers have
//! a view (`view.rs`), writers a commit (`commit.rs`): objects that are used again and again, for
//! one snapshot or transaction after another.

use std::sync::Arc;

use overbank::lookaside::{Config, Gate, Versioned};

use crate::aside::*;
use crate::border::*;
use crate::commit::{Commits, Open};
use crate::meter::*;
use crate::view::{View, Views};

/// A look-aside table in front of a database whose commits have increasing numbers, one writer at a
/// time, and whose readers each see a snapshot. It keeps copies of keys and values and answers most
/// lookups in their place. The numbers should follow one another: each gap takes everything out.
///
/// Reads through a view see what its snapshot has, provided that each transaction that writes says
/// its changes by an overbank_versioned_commit. Whether an answer is kept never changes what it is.
///
/// Any number of threads use it at the same time. Lookups and fills wait for nothing.
pub struct overbank_versioned {
    _opaque: [u8; 0],
}

/// What a table does, whatever its types. Keys and values are where C has them.
pub(crate) trait Numbered: Send + Sync {
    fn published(&self) -> u64;
    fn clear(&self);
    fn gate(&self) -> &Gate;
    fn counters(&self) -> overbank_aside_counters;
    fn info(&self) -> overbank_aside_info;
    fn view(&self) -> Box<dyn Views>;
    fn commit(&self) -> Box<dyn Commits>;
}

pub(crate) type Words<const K: usize, const V: usize> = Versioned<[u64; K], [u64; V]>;

impl<const K: usize, const V: usize> Numbered for Shared<Words<K, V>> {
    fn published(&self) -> u64 {
        self.table.published()
    }

    fn clear(&self) {
        self.table.clear();
    }

    fn gate(&self) -> &Gate {
        self.table.gate()
    }

    fn counters(&self) -> overbank_aside_counters {
        counters(self.table.counters())
    }

    fn info(&self) -> overbank_aside_info {
        let (slots, bytes) = (self.table.slots(), self.table.bytes());
        overbank_aside_info { slots, bytes, key_words: K, value_words: V }
    }

    fn view(&self) -> Box<dyn Views> {
        Box::new(View::new(self))
    }

    fn commit(&self) -> Box<dyn Commits> {
        Box::new(Open { guard: None, table: Arc::clone(&self.table) })
    }
}

pub(crate) type Table = Handle<Box<dyn Numbered>>;

fn make<const K: usize, const V: usize>(config: &Config) -> Result<Box<dyn Numbered>, Failure> {
    Ok(Box::new(Shared::new(Words::<K, V>::new(config)?)))
}

/// Makes a table for `entries` entries, and sets `*out`: before the database's first commit or
/// after any.
///
/// Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8; two keys are
/// the same if their words are. Fill up what is shorter with zeroes. `options` may be NULL.
///
/// Any thread. The caller owns the table: overbank_versioned_destroy.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_create(
    key_words: usize,
    value_words: usize,
    entries: usize,
    options: *const overbank_aside_options,
    out: *mut *mut overbank_versioned,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let config = config(options, entries)?;
            Handle::give(out, shaped!(key_words, value_words, make(&config))?)
        }
    })
}

/// Frees the table's handle; the table goes with its last view or commit. NULL is none.
///
/// # Safety
/// The table is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_destroy(versioned: *mut overbank_versioned) {
    // SAFETY: the caller's promise.
    unsafe { Table::destroy(versioned) };
}

/// Writes the number of the newest published commit, 0 before the first. A reader that takes it
/// *before* it begins its transaction may use it for its snapshot. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_published(
    versioned: *const overbank_versioned,
    out: *mut u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(versioned, out, |table| Ok(table.published())) }
}

/// Takes everything out, in the time of one bucket in 32,768; views answer nothing until they are
/// moved. For changes by a transaction see overbank_versioned_commit_clear. Waits for handfuls of
/// stores of other threads, and their clears. Any number of threads.
///
/// # Safety
/// The table is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_clear(
    versioned: *mut overbank_versioned,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Table::share(versioned, |table| {
                table.clear();
                Ok(())
            })
        }
    })
}

/// Sets what lookups cost, as overbank_copies_set_costs. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `costs` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_set_costs(
    versioned: *mut overbank_versioned,
    costs: *const overbank_aside_costs,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(versioned, |table| set_costs(table.gate(), costs)) })
}

/// Writes to `*around` which way the next `count` lookups of this thread go: 1 if they leave the
/// table alone and ask the index, 0 if through it. `count` is 1, or the length of a list; a list of
/// more than 512 should be cut, since all of it goes one way.
///
/// # Safety
/// The table is NULL or live; the meter is NULL or live, and in no other call; `around` is NULL or
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_way(
    versioned: *const overbank_versioned,
    meter: *mut overbank_aside_meter,
    count: usize,
    around: *mut u8,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(versioned, |table| way(table.gate(), meter, count, around)) })
}

/// Writes whether the table works, and why. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_gate(
    versioned: *const overbank_versioned,
    out: *mut overbank_aside_gate,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(versioned, out, |table| Ok(report(table.gate()))) }
}

/// Writes what the table has counted. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_counters(
    versioned: *const overbank_versioned,
    out: *mut overbank_aside_counters,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(versioned, out, |table| Ok(table.counters())) }
}

/// Writes what the table is. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_info(
    versioned: *const overbank_versioned,
    out: *mut overbank_aside_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(versioned, out, |table| Ok(table.info())) }
}
