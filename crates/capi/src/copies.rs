//! Look-aside tables for C in front of a live index. Writes of the index are announced by a writer,
//! an object that is used again and again: so a write that was not begun, or has ended, is seen.

use std::sync::Arc;

use overbank::lookaside::{Clearing, Config, Copies, Found, Gate, Ticket, Writing};

use crate::answers::*;
use crate::aside::*;
use crate::border::*;
use crate::meter::*;

/// A look-aside table in front of an index that is read in its newest state: a map behind a lock, a
/// concurrent map. It keeps copies of keys and values and answers most lookups in their place.
///
/// Reads through it are as right as those of the index, provided that each write of the index
/// happens between `_begin` and `_keep` or `_finish` of an overbank_copies_writer. Whether an
/// answer is kept never changes what it is.
///
/// Any number of threads use it at the same time. Lookups and fills wait for nothing.
pub struct overbank_copies {
    _opaque: [u8; 0],
}

/// Announces writes of the index, one after another: `_begin`, the write, then `_keep` or
/// `_finish`.
///
/// One thread at a time uses it; each thread that writes needs one. It keeps the table alive after
/// overbank_copies_destroy.
pub struct overbank_copies_writer {
    _opaque: [u8; 0],
}

/// What a table does, whatever its types. Keys and values are where C has them.
trait Live: Send + Sync {
    /// # Safety
    /// The pointers are NULL or valid for `count` keys.
    unsafe fn lookup(&self, sought: &Sought) -> Result<(), Failure>;
    /// # Safety
    /// The pointers are NULL or valid; `value` has the words of a value.
    unsafe fn fill(
        &self,
        ticket: *const overbank_aside_ticket,
        value: *const u64,
    ) -> Result<bool, Failure>;
    fn clear(&self);
    fn gate(&self) -> &Gate;
    fn counters(&self) -> overbank_aside_counters;
    fn info(&self) -> overbank_aside_info;
    fn writer(&self) -> Box<dyn Writes>;
}

trait Writes: Send {
    /// # Safety
    /// `key` is NULL or has the words of a key.
    unsafe fn begin(&mut self, key: *const u64) -> Result<(), Failure>;
    fn begin_all(&mut self) -> Result<(), Failure>;
    /// # Safety
    /// `value` is NULL or has the words of a value.
    unsafe fn keep(&mut self, value: *const u64) -> Result<(), Failure>;
    fn finish(&mut self) -> Result<(), Failure>;
}

type Words<const K: usize, const V: usize> = Copies<[u64; K], [u64; V]>;

impl<const K: usize, const V: usize> Looks<K, V> for Words<K, V> {
    #[inline(always)]
    fn get(&self, key: Key<K>) -> Found<Key<K>, [u64; V]> {
        self.get(key)
    }

    #[inline(always)]
    fn get_batch(&self, keys: &[Key<K>], each: impl FnMut(usize, Found<Key<K>, [u64; V]>)) {
        self.get_batch(keys, each);
    }

    #[inline(always)]
    fn fill(&self, ticket: Ticket<Key<K>>, value: Option<[u64; V]>) -> bool {
        self.fill(ticket, value)
    }
}

impl<const K: usize, const V: usize> Live for Shared<Words<K, V>> {
    unsafe fn lookup(&self, sought: &Sought) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { lookup(&*self.table, self.number, sought) }
    }

    unsafe fn fill(
        &self,
        ticket: *const overbank_aside_ticket,
        value: *const u64,
    ) -> Result<bool, Failure> {
        // SAFETY: the caller's promise.
        unsafe { fill(&*self.table, self.number, ticket, value) }
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

    fn writer(&self) -> Box<dyn Writes> {
        Box::new(Held::<Open<K, V>, _> { guard: None, table: Arc::clone(&self.table) })
    }
}

/// A write of the index that has begun.
enum Open<const K: usize, const V: usize> {
    One(Writing<'static, [u64; K], [u64; V]>),
    /// Dropped at its end, no more.
    All(#[allow(dead_code)] Clearing<'static, [u64; K], [u64; V]>),
}

fn none_begun() -> Failure {
    Failure::invalid("the writer has begun no write")
}

impl<const K: usize, const V: usize> Held<Open<K, V>, Words<K, V>> {
    fn idle(&self) -> Result<&'static Words<K, V>, Failure> {
        if self.guard.is_some() {
            return Err(Failure::invalid("the writer has begun a write: keep or finish it first"));
        }
        // SAFETY: what borrows it goes into `guard`.
        Ok(unsafe { lasting(&self.table) })
    }
}

impl<const K: usize, const V: usize> Writes for Held<Open<K, V>, Words<K, V>> {
    unsafe fn begin(&mut self, at: *const u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let (table, key) = (self.idle()?, unsafe { key(at) }?);
        self.guard = Some(Open::One(table.write(key)));
        Ok(())
    }

    fn begin_all(&mut self) -> Result<(), Failure> {
        self.guard = Some(Open::All(self.idle()?.clearing()));
        Ok(())
    }

    unsafe fn keep(&mut self, value: *const u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let value = unsafe { answer(value) }?;
        match self.guard.take() {
            Some(Open::One(guard)) => match value {
                Some(value) => guard.keep(value),
                None => guard.keep_absent(),
            },
            all @ Some(Open::All(_)) => {
                self.guard = all;
                return Err(Failure::invalid("a write of all keys has no value: finish it"));
            }
            None => return Err(none_begun()),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.guard.take().map(drop).ok_or_else(none_begun)
    }
}

type Table = Handle<Box<dyn Live>>;
type Writer = Handle<Box<dyn Writes>>;

fn make<const K: usize, const V: usize>(config: &Config) -> Result<Box<dyn Live>, Failure> {
    Ok(Box::new(Shared::new(Words::<K, V>::new(config)?)))
}

/// Makes a table for `entries` entries, and sets `*out`.
///
/// Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8; two keys are
/// the same if their words are. Fill up what is shorter with zeroes. `options` may be NULL.
///
/// Any thread. The caller owns the table: overbank_copies_destroy.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_create(
    key_words: usize,
    value_words: usize,
    entries: usize,
    options: *const overbank_aside_options,
    out: *mut *mut overbank_copies,
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

/// Frees the table's handle; the table goes with its last writer. NULL is none.
///
/// # Safety
/// The table is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_destroy(copies: *mut overbank_copies) {
    // SAFETY: the caller's promise.
    unsafe { Table::destroy(copies) };
}

/// Looks up any number of keys, in bursts of 32 whose waits for memory overlap. Sets `found[i]` to
/// OVERBANK_ASIDE_HIT, _ABSENT or _MISS, and the value at `values + i * value_words`: the key's of
/// a hit, else zeroes.
///
/// Of a miss, sets `tickets[i]`: the right to put in what the index answers *afterwards*. Read the
/// index only after this call. `tickets` may be NULL. Other tickets fill nothing.
///
/// `keys` are `count` keys of `key_words` words, one after another. Each key is looked up by
/// itself: a list is no snapshot. Takes no lock and waits for nothing. Any number of threads.
///
/// # Safety
/// The table is NULL or live; the arrays are so long, and no two share memory: OVERBANK_INVALID if
/// they do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_lookup(
    copies: *const overbank_copies,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
    tickets: *mut overbank_aside_ticket,
) -> overbank_status {
    let sought = Sought { keys, count, values, found, tickets };
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(copies, |table| table.lookup(&sought)) })
}

/// Puts in what the index answered after the lookup that gave this ticket: `value`, or NULL if it
/// has no entry for the key.
///
/// OVERBANK_DECLINED, which is no fault: if a key of the bucket was written meanwhile, after a
/// clear, with a ticket of another table, or if the entries there are asked for more often. Waits
/// for nothing: declines if another thread is in the bucket. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `ticket` is NULL, zeroed, or as the library wrote it; `value` is NULL
/// or has `value_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_fill(
    copies: *const overbank_copies,
    ticket: *const overbank_aside_ticket,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    filled(|| unsafe { Table::share(copies, |table| table.fill(ticket, value)) })
}

/// Takes everything out, in the time of one bucket in 32,768, and voids all tickets. Changes no
/// answer by itself.
///
/// After a change of the index outside a writer, call it while readers of the index are still
/// excluded: under the lock that the change took. Where nothing excludes them, a reader may fill an
/// old answer after this call: use overbank_copies_writer_begin_all. Waits for writers' handfuls of
/// stores and other clears. Any number of threads.
///
/// # Safety
/// The table is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_clear(copies: *mut overbank_copies) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Table::share(copies, |table| {
                table.clear();
                Ok(())
            })
        }
    })
}

/// Sets what lookups cost, from the gate's next decision on. Of a table without a gate it changes
/// nothing else. OVERBANK_INVALID if all are zero, which stands for unknown costs. Any number of
/// threads.
///
/// # Safety
/// The table is NULL or live; `costs` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_set_costs(
    copies: *mut overbank_copies,
    costs: *const overbank_aside_costs,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(copies, |table| set_costs(table.gate(), costs)) })
}

/// Writes to `*around` which way the next `count` lookups of this thread go: 1 if they leave the
/// table alone and ask the index, 0 if through it. `count` is 1, or the length of a list; a list of
/// more than 512 should be cut, since all of it goes one way.
///
/// # Safety
/// The table is NULL or live; the meter is NULL or live, and in no other call; `around` is NULL or
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_way(
    copies: *const overbank_copies,
    meter: *mut overbank_aside_meter,
    count: usize,
    around: *mut u8,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(copies, |table| way(table.gate(), meter, count, around)) })
}

/// Writes whether the table works, and why. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_gate(
    copies: *const overbank_copies,
    out: *mut overbank_aside_gate,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(copies, out, |table| Ok(report(table.gate()))) }
}

/// Writes what the table has counted. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_counters(
    copies: *const overbank_copies,
    out: *mut overbank_aside_counters,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(copies, out, |table| Ok(table.counters())) }
}

/// Writes what the table is. Any number of threads.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_info(
    copies: *const overbank_copies,
    out: *mut overbank_aside_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Table::tell(copies, out, |table| Ok(table.info())) }
}

/// Makes a writer and sets `*out`.
///
/// Any thread. The caller owns it: overbank_copies_writer_destroy.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_create(
    copies: *const overbank_copies,
    out: *mut *mut overbank_copies_writer,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(copies, |table| Handle::give(out, table.writer())) })
}

/// Frees a writer. A write that it has begun is finished, so the index must have changed by then.
/// NULL is none.
///
/// A writer that is never destroyed keeps the table's memory, and what it had begun takes no
/// answers in any more: the key's bucket, or the whole table after `_begin_all`.
///
/// # Safety
/// The writer is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_destroy(writer: *mut overbank_copies_writer) {
    // SAFETY: the caller's promise.
    unsafe { Writer::destroy(writer) };
}

/// Begins a write of one key: call it *before* the index changes. Takes the key's entry out; until
/// the end of the write, its bucket takes no answers in.
///
/// OVERBANK_INVALID if this writer has begun a write already. Waits for a handful of stores of each
/// other thread in the bucket, rarely for a clear. Hold writes briefly: while 255 are in one
/// bucket, another one there takes the whole table out until it ends.
///
/// # Safety
/// The writer is NULL or live, and in no other call; `key` is NULL or has `key_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_begin(
    writer: *mut overbank_copies_writer,
    key: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Writer::change(writer, |writer| writer.begin(key)) })
}

/// Begins a write of any number of keys, a range or all: as overbank_copies_writer_begin. Takes
/// everything out, in the time of one bucket in 32,768; until overbank_copies_writer_finish, the
/// table takes no answers in.
///
/// # Safety
/// The writer is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_begin_all(
    writer: *mut overbank_copies_writer,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Writer::change(writer, |writer| writer.begin_all()) })
}

/// Ends the write after the index took this value for the key, or removed it (NULL): an entry that
/// was there at `_begin` now says so. Not if another writer was in the bucket since: it may have
/// reached the index in the other order.
///
/// OVERBANK_INVALID if no write has begun, or one of all keys: that goes on.
///
/// # Safety
/// The writer is NULL or live, and in no other call; `value` is NULL or has `value_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_keep(
    writer: *mut overbank_copies_writer,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Writer::change(writer, |writer| writer.keep(value)) })
}

/// Ends the write, whatever the index now has: call it *after* the index has changed, or has not.
/// OVERBANK_INVALID if no write has begun.
///
/// # Safety
/// The writer is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_copies_writer_finish(
    writer: *mut overbank_copies_writer,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Writer::change(writer, |writer| writer.finish()) })
}
