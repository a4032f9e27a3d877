//! Look-aside tables for C: what `copies.rs` and `versioned.rs` share. Tickets, options, counts,
//! the gate; keys and values of any number of words. `answers.rs` looks up and fills.
//!
//! ```text
//!  overbank_aside_ticket ── table: number of the table in this process; 0 fills nothing
//!                  └─ words: the crate's ticket, as it lies in memory
//! ```

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use overbank::lookaside::{Config, Costs, Counters, Error, Gate, Ticket, VersionError};

use crate::border::overbank_status::*;
use crate::border::*;

/// What a lookup found: nothing. Ask the index, then fill with the ticket.
pub const OVERBANK_ASIDE_MISS: u8 = 0;
/// What a lookup found: the value.
pub const OVERBANK_ASIDE_HIT: u8 = 1;
/// What a lookup found: that the index has no entry for the key.
pub const OVERBANK_ASIDE_ABSENT: u8 = 2;

/// The right to put in what the index answers to a lookup that missed: it has the key, the table
/// and the moment. A plain value: copy it, drop it, hand it to another thread, use it again.
///
/// All bits are the library's. Zeroes fill nothing, as does a ticket of another table. Changed bits
/// never lead outside the table's memory, but may put in a wrong entry: the answer for another key,
/// or one from before a write.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct overbank_aside_ticket {
    /// The library's.
    pub table: u64,
    /// The library's.
    pub words: [MaybeUninit<u64>; 7],
}

impl overbank_aside_ticket {
    #[inline(always)]
    pub(crate) fn set<const K: usize>(&mut self, table: u64, ticket: &Ticket<[u64; K]>) {
        const {
            assert!(size_of::<Ticket<[u64; K]>>() <= size_of::<[u64; 7]>());
            assert!(align_of::<Ticket<[u64; K]>>() <= align_of::<u64>());
        }
        self.table = if ticket.is_void() { 0 } else { table };
        // SAFETY: the words hold a ticket, as just asserted, which owns nothing.
        unsafe { self.words.as_mut_ptr().cast::<Ticket<[u64; K]>>().copy_from(ticket, 1) };
    }

    /// Returns the ticket, if it is one of this table.
    #[inline(always)]
    pub(crate) fn get<const K: usize>(&self, table: u64) -> Option<Ticket<[u64; K]>> {
        // SAFETY: with the table's number, `set` wrote a ticket for keys of this many words. It
        // consists of integers, which are right whatever their bits are, and owns nothing.
        (self.table == table).then(|| unsafe { self.words.as_ptr().cast::<Ticket<_>>().read() })
    }
}

/// What lookups cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct overbank_aside_costs {
    /// A lookup that the table answers.
    pub hit: f32,
    /// What a lookup that it does not answer, and the fill, add to the search of the index.
    pub miss: f32,
    /// A search of the index alone.
    pub index: f32,
}

impl overbank_aside_costs {
    fn checked(self) -> Result<Costs, Failure> {
        let Self { hit, miss, index } = self;
        for (name, cost) in [("hit", hit), ("miss", miss), ("index", index)] {
            if !(cost.is_finite() && cost >= 0.0) {
                return Err(Failure::invalid(format_args!(
                    "costs: {name} is nanoseconds, 0 or more, not {cost}"
                )));
            }
        }
        Ok(Costs { hit, miss, index })
    }
}

/// How a look-aside table is made. All zeroes are the defaults.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct overbank_aside_options {
    /// Seed of the hash function. Use a random one if strangers choose the keys.
    pub seed: u64,
    /// Pages of the table's memory, as in overbank_fib_options.
    pub pages: u32,
    /// 0: the table always works. 1: it steps aside where it does not pay, by `costs`; with those
    /// all zero, which is "unknown", it works until `_set_costs` or a meter gives some.
    pub gate: u32,
    /// What lookups cost, for the gate.
    pub costs: overbank_aside_costs,
    /// Zero.
    pub unused: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// What a look-aside table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_aside_info {
    /// Entries that fit.
    pub slots: usize,
    /// Bytes of the table.
    pub bytes: usize,
    /// Words of a key.
    pub key_words: usize,
    /// Words of a value.
    pub value_words: usize,
}

/// What a look-aside table has counted in one of its buckets in 32: a sample, whose hit rate may be
/// ten points beside the table's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_aside_counters {
    /// Lookups that the table answered, absent keys included.
    pub hits: u64,
    /// Lookups that it did not answer.
    pub misses: u64,
    /// Answers that were put in.
    pub fills: u64,
    /// Answers that were not, since a writer may have changed them since the lookup.
    pub declined: u64,
    /// Answers that were not, since the bucket's entries are asked for more often.
    pub outdone: u64,
    /// Lookups that missed because a writer changed the bucket meanwhile.
    pub raced: u64,
    /// Lookups and fills that met a writer in the bucket.
    pub busy: u64,
}

/// Whether a look-aside table works or steps aside, and why: a gate closes if what hits save is
/// less than what misses cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct overbank_aside_gate {
    /// Decisions so far.
    pub decisions: u64,
    /// Answered share of the lookups before the last decision, 0 to 1; 0 before the first.
    pub hit_rate: f64,
    /// What lookups cost; zeroes if that is not known.
    pub costs: overbank_aside_costs,
    /// 1 if the table works. Otherwise one bucket in 32 does, to see when the others should.
    pub open: u8,
    /// 1 if it may step aside, by its options.
    pub swings: u8,
    /// Zero.
    pub unused: [u8; 2],
}

impl Blame for Error {
    fn status(&self) -> overbank_status {
        if matches!(self, Error::Memory(_)) { OVERBANK_MEMORY } else { OVERBANK_INVALID }
    }
}

impl Blame for VersionError {
    fn status(&self) -> overbank_status {
        OVERBANK_INVALID
    }
}

/// # Safety
/// `options` is NULL or valid.
pub(crate) unsafe fn config(
    options: *const overbank_aside_options,
    entries: usize,
) -> Result<Config, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { or_default(options, "options") }?;
    unused(&options.reserved)?;
    unused(&[options.unused.into()])?;
    let pages = crate::fib::pages(options.pages)?;
    let config = Config::entries(entries).seed(options.seed).pages(pages);
    let known = options.costs != overbank_aside_costs::default();
    match options.gate {
        0 if known => Err(Failure::invalid("costs: given without a gate")),
        0 => Ok(config),
        1 if known => Ok(config.gate(Some(options.costs.checked()?))),
        1 => Ok(config.gate(None)),
        other => Err(Failure::invalid(format_args!("gate: 0 or 1, not {other}"))),
    }
}

/// Sets what lookups cost.
///
/// # Safety
/// `costs` is NULL or valid.
pub(crate) unsafe fn set_costs(
    gate: &Gate,
    costs: *const overbank_aside_costs,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let costs = unsafe { elements(costs, 1, "costs") }?[0];
    if costs == overbank_aside_costs::default() {
        return Err(Failure::invalid("costs: all zero stand for unknown costs; one must be above"));
    }
    gate.set_costs(costs.checked()?);
    Ok(())
}

pub(crate) fn counters(counters: Counters) -> overbank_aside_counters {
    let Counters { hits, misses, fills, declined, outdone, raced, busy } = counters;
    overbank_aside_counters { hits, misses, fills, declined, outdone, raced, busy }
}

pub(crate) fn report(gate: &Gate) -> overbank_aside_gate {
    let report = gate.report();
    let costs = report.costs.map(|Costs { hit, miss, index }| (hit, miss, index));
    let (hit, miss, index) = costs.unwrap_or_default();
    overbank_aside_gate {
        decisions: report.decisions,
        hit_rate: report.hit_rate.unwrap_or_default(),
        costs: overbank_aside_costs { hit, miss, index },
        open: report.open.into(),
        swings: report.swings.into(),
        unused: [0; 2],
    }
}

/// Runs `$make::<K, V>(…)` for keys of K words and values of V.
macro_rules! shaped {
    ($key_words:expr, $value_words:expr, $make:ident $arguments:tt) => {
        $crate::aside::shaped!(@ $key_words, $value_words, $make, $arguments, 1 2 3 4)
    };
    (@ $key_words:expr, $value_words:expr, $make:ident, $arguments:tt, $($key:literal)*) => {
        match ($key_words, $value_words) {
            $(($key, 1) => $make::<$key, 1> $arguments,
            ($key, 2) => $make::<$key, 2> $arguments,
            ($key, 3) => $make::<$key, 3> $arguments,
            ($key, 4) => $make::<$key, 4> $arguments,
            ($key, 5) => $make::<$key, 5> $arguments,
            ($key, 6) => $make::<$key, 6> $arguments,
            ($key, 7) => $make::<$key, 7> $arguments,
            ($key, 8) => $make::<$key, 8> $arguments,)*
            (key, value) => Err($crate::border::Failure::invalid(format_args!(
                "keys have 1 to 4 words and values 1 to 8, not {key} and {value}"
            ))),
        }
    };
}
pub(crate) use shaped;

/// A table that handles of C share, and its number.
pub(crate) struct Shared<T> {
    pub(crate) table: Arc<T>,
    pub(crate) number: u64,
}

impl<T> Shared<T> {
    pub(crate) fn new(table: T) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Self { table: Arc::new(table), number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }
}

/// Borrows a table for as long as the handle of C lives that keeps it.
///
/// # Safety
/// What borrows it lies in a value beside this `Arc`, and is dropped first.
pub(crate) unsafe fn lasting<T>(table: &Arc<T>) -> &'static T {
    // SAFETY: the caller's promise; an `Arc` does not move what it has.
    unsafe { &*Arc::as_ptr(table) }
}

/// What borrows a table, if anything does, and what keeps the table. They drop in this order.
pub(crate) struct Held<G, T> {
    pub(crate) guard: Option<G>,
    pub(crate) table: Arc<T>,
}
