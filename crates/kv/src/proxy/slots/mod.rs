//! What the proxy's threads share: cached replies, and which of them may be served.
//!
//! ```text
//!   worker   key's hash ─▶ fib::Reader ─▶ slot: state word │ pointer ─▶ entry ─▶ reply
//!   worker   writes in flight: 4,096 buckets by hash, 16 KiB for each worker
//!   core     promote · is_quiet · begin_fill · accept · push · evict · close
//!   all      gate │ lease, one line that is rarely written
//! ```
//!
//! *Workers* own client connections; the *core* is the one thread that owns the tracking connection
//! and writes the table. No sockets, no clock: the caller passes monotonic nanoseconds.
//!
//! | | |
//! |---|---|
//! | a hit reads | the line of gate and lease, 2 or 4 of the table, the slot's, the entry's |
//! | a hit writes | a counter, and a list entry of `arc_swap`, both its thread's |
//! | a write costs | four atomic changes, two of them where other workers may be |
//! | bounds | slots, bytes of entries, 8 replies an entry, 64 workers |
//! | panics | none |
//!
//! # A key's state
//!
//! One word: an epoch, which each event advances, and the number of writes in flight.
//!
//! | event | epoch | in flight |
//! |---|---|---|
//! | a write begins, before its bytes are queued | + 1 | + 1 |
//! | its reply came | + 1 | − 1 |
//! | push, eviction | + 1 | |
//! | fill | remembers the word, in which nothing is in flight | |
//!
//! An entry has the word of its fill. It is served while that is still the word, the gate is open
//! and as it was, the lease holds, and it has not expired. A hash is a hint: key, database and
//! request are compared.
//!
//! # Why it is linearizable per key
//!
//! Needed: a read returns the key's value at some instant between its request and its reply.
//! Messages carry order: a client that knows of a reply sends later, and what a worker does for
//! that request happens after what was done before the reply. So no fence orders workers among
//! each other; each word's own order is enough.
//!
//! 1. *Marked writes.* A write is applied between `begin_write` and `end_write`. Let a hit have
//!    loaded entry E, then the word w of E's fill. No write had begun between the fill's
//!    `begin_fill` and w, else the epoch had changed; each before had ended, as none was in flight.
//!    So the value that the fill read did not change up to w, except by a write whose begin the
//!    load of w did not see. Such a write has no reply yet that the reader's client could know of.
//!    The instant is w, or the fill's read of the origin if that came after the request.
//! 2. *Promotion.* A write that looked the key up before it was in the table is not marked. It
//!    incremented its bucket before the look-up. The core inserts, *then* polls each worker's
//!    bucket until it is 0. Increments and polls are changes of one word, hence in one order, and
//!    each sees what came before the one before: an increment before the poll has ended, one after
//!    it is by a worker that finds the key. (A poll that only loads may miss an increment; see
//!    `model.rs`.)
//! 3. *Closing.* Commands whose keys are unknown close the gate before they are forwarded. It opens
//!    after the core has pushed what they changed, or dropped all. A hit loads the gate *first*. If
//!    it is open, all closings before are reopened and their pushes seen, so an entry that they
//!    changed has another epoch. Those after are concurrent with the read: its instant is the load
//!    of the gate, or the fill's read if that is later.
//! 4. *Reuse.* Words are never reset: an eviction advances the epoch, so no entry and no ticket
//!    from before is ever right again. A worker that looked a slot up before the eviction may mark
//!    it when it has another key. The [`Mark`] names the slot and not the key, so begin and end
//!    meet the same word: counts stay balanced, and the other key is kept out for a moment. The
//!    evicted key's write is in its bucket, so its next promotion waits for it. A slot with writes
//!    in flight is not given to a key only because it could not be filled.
//!
//! A fill may be under way when the push comes of a write that it is going to read: the origin's
//! messages are in the order of what it did, so a push before the fill's first reply is of such a
//! write. [`Ticket::sees_push`] takes the push's event for known; any other still ends the fill.
//!
//! G2 (other writers): a push is seen by all that read a lease set after it. G3: an entry's
//! deadline. G4: [`Core::push_all`] changes the gate, which each entry remembers.
//!
//! Epochs have 40 bits: an entry is served wrongly if exactly a multiple of 2⁴⁰ events pass without
//! a fill (6 days at 10⁶ writes a second of one key). Counts stop at 2²⁴ − 1 and then never go
//! down: the key is never served again.
//!
//! The protocol runs under loom, with mutants that it catches (`model.rs`); `tests.rs` has a naive
//! twin, and threads whose histories are checked.

mod core;
mod filled;
#[cfg(all(test, feature = "loom"))]
mod model;
mod replies;
mod shared;
mod state;
mod sync;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod worker;

use overbank::fib;
use std::sync::Arc;
use thiserror::Error;

pub use self::core::{Core, Refused, SlotId, Ticket};
pub use filled::{Filled, Query, VARIANTS_MAX, Variant};
pub use shared::Closing;
pub use worker::{Mark, Miss, Worker};

/// Most workers of a proxy.
pub const WORKERS_MAX: usize = 64;
/// Most entries.
pub const ENTRIES_MAX: usize = 1 << 24;

/// Sizes of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Threads that own client connections, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Keys that may be cached at a time, 1 to [`ENTRIES_MAX`].
    pub entries: usize,
    /// Bytes of all entries, as [`Filled::bytes`] counts them.
    pub bytes: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { workers: 1, entries: 10_000, bytes: 64 << 20 }
    }
}

/// Why the cache cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SlotsError {
    /// The number of workers is out of range.
    #[error("{0} workers: must be between 1 and {WORKERS_MAX}")]
    Workers(usize),
    /// The number of entries is out of range.
    #[error("{0} entries: must be between 1 and {ENTRIES_MAX}")]
    Entries(usize),
    /// The table cannot be constructed.
    #[error(transparent)]
    Table(#[from] fib::FibError),
}

/// Returns the core's half of an empty cache, and each worker's. No hit is served before
/// [`Core::set_lease`].
///
/// # Errors
/// A size is out of range, or memory is short.
pub fn build(config: Config) -> Result<(Core, Vec<Worker>), SlotsError> {
    let Config { workers, entries, .. } = config;
    if !(1..=WORKERS_MAX).contains(&workers) {
        return Err(SlotsError::Workers(workers));
    }
    if !(1..=ENTRIES_MAX).contains(&entries) {
        return Err(SlotsError::Entries(entries));
    }
    let table = fib::Writer::new(&fib::Config::entries(entries))?;
    let shared = Arc::new(shared::Shared::new(workers, entries));
    let workers =
        (0..workers).map(|number| Worker::new(shared.clone(), table.reader(), number)).collect();
    Ok((Core::new(shared, table, config.bytes), workers))
}
