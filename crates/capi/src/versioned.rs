//! Look-aside tables for C in front of a database with snapshots and numbered commits. A view and a
//! commit are objects that are used again and again, for one snapshot or transaction after another.

use std::sync::Arc;

use overbank::lookaside::{At, Commit, Config, Found, Gate, Ticket, Versioned};

use crate::aside::*;
use crate::border::*;

/// A look-aside table in front of a database whose commits have increasing numbers, one writer at a
/// time, and whose readers each see a snapshot. It keeps copies of keys and values and answers most
/// lookups in their place.
///
/// Reads through a view see what its snapshot has, provided that each transaction that writes says
/// its changes by an overbank_versioned_commit. Whether an answer is kept never changes what it is.
///
/// Any number of threads use it at the same time. Readers wait for nothing.
pub struct overbank_versioned {
    _opaque: [u8; 0],
}

/// A table as of one snapshot, and then of the next: a reader's side.
///
/// One thread at a time uses it; each snapshot that is open needs one. It keeps the table alive
/// after overbank_versioned_destroy.
pub struct overbank_versioned_view {
    _opaque: [u8; 0],
}

/// Says what a transaction changes, one after another: `_begin`, the changes, then the database
/// commits, then `_publish`; or `_abort`.
///
/// One thread at a time uses it. It keeps the table alive after overbank_versioned_destroy.
pub struct overbank_versioned_commit {
    _opaque: [u8; 0],
}

/// What a table does, whatever its types. Keys and values are where C has them.
trait Numbered: Send + Sync {
    fn published(&self) -> u64;
    fn clear(&self);
    fn gate(&self) -> &Gate;
    fn counters(&self) -> overbank_aside_counters;
    fn info(&self) -> overbank_aside_info;
    fn view(&self) -> Box<dyn Views>;
    fn commit(&self) -> Box<dyn Commits>;
}

trait Views: Send + Sync {
    /// Moves to the snapshot of this number, or to the newest one; returns the number.
    fn at(&mut self, version: Option<u64>) -> u64;
    /// # Safety
    /// The pointers are NULL or valid for so many keys.
    unsafe fn lookup(&self, sought: &Sought) -> Result<(), Failure>;
    /// # Safety
    /// The pointers are NULL or valid; `value` has the words of a value.
    unsafe fn fill(
        &self,
        ticket: *const overbank_ticket,
        value: *const u64,
    ) -> Result<bool, Failure>;
}

trait Commits: Send {
    fn begin(&mut self, version: u64) -> Result<(), Failure>;
    /// # Safety
    /// `key` is NULL or has the words of a key, `value` is NULL or has those of a value.
    unsafe fn change(&mut self, key: *const u64, value: *const u64) -> Result<(), Failure>;
    /// # Safety
    /// `key` is NULL or has the words of a key.
    unsafe fn touch(&mut self, key: *const u64) -> Result<(), Failure>;
    fn clear(&mut self) -> Result<(), Failure>;
    fn publish(&mut self) -> Result<(), Failure>;
    fn abort(&mut self) -> Result<(), Failure>;
}

type Words<const K: usize, const V: usize> = Versioned<[u64; K], [u64; V]>;

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
        // SAFETY: goes into a `View`, beside what keeps the table.
        let at = unsafe { lasting(&self.table) }.latest();
        Box::new(View { at, table: Arc::clone(&self.table), number: self.number })
    }

    fn commit(&self) -> Box<dyn Commits> {
        Box::new(Open { guard: None, table: Arc::clone(&self.table) })
    }
}

struct View<const K: usize, const V: usize> {
    at: At<'static, [u64; K], [u64; V]>,
    table: Arc<Words<K, V>>,
    number: u64,
}

impl<const K: usize, const V: usize> Looks<K, V> for At<'_, [u64; K], [u64; V]> {
    #[inline(always)]
    fn get(&self, key: Key<K>) -> Found<Key<K>, [u64; V]> {
        self.get(key)
    }

    #[inline(always)]
    fn get_batch(&self, keys: &[Key<K>], found: &mut [Found<Key<K>, [u64; V]>]) {
        self.get_batch(keys, found);
    }

    #[inline(always)]
    fn fill(&self, ticket: Ticket<Key<K>>, value: Option<[u64; V]>) -> bool {
        self.fill(ticket, value)
    }
}

impl<const K: usize, const V: usize> Views for View<K, V> {
    fn at(&mut self, version: Option<u64>) -> u64 {
        // SAFETY: goes into `self.at`, beside what keeps the table.
        let table = unsafe { lasting(&self.table) };
        self.at = version.map_or_else(|| table.latest(), |version| table.at(version));
        self.at.version()
    }

    unsafe fn lookup(&self, sought: &Sought) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { lookup(&self.at, self.number, sought) }
    }

    unsafe fn fill(
        &self,
        ticket: *const overbank_ticket,
        value: *const u64,
    ) -> Result<bool, Failure> {
        // SAFETY: the caller's promise.
        unsafe { fill(&self.at, self.number, ticket, value) }
    }
}

/// A commit that has begun, if one has.
type Open<const K: usize, const V: usize> = Held<Commit<'static, [u64; K], [u64; V]>, Words<K, V>>;

fn none_begun() -> Failure {
    Failure::invalid("no commit has begun")
}

impl<const K: usize, const V: usize> Commits for Open<K, V> {
    fn begin(&mut self, version: u64) -> Result<(), Failure> {
        if self.guard.is_some() {
            return Err(Failure::invalid("a commit has begun: publish or abort it first"));
        }
        // SAFETY: goes into `guard`.
        self.guard = Some(unsafe { lasting(&self.table) }.commit(version)?);
        Ok(())
    }

    unsafe fn change(&mut self, at: *const u64, value: *const u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let (key, value) = unsafe { (key(at)?, answer(value)?) };
        self.guard.as_mut().ok_or_else(none_begun)?.change(key, value);
        Ok(())
    }

    unsafe fn touch(&mut self, at: *const u64) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let key = unsafe { key(at) }?;
        self.guard.as_mut().ok_or_else(none_begun)?.touch(key);
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        self.guard.as_mut().ok_or_else(none_begun)?.clear();
        Ok(())
    }

    fn publish(&mut self) -> Result<(), Failure> {
        self.guard.take().ok_or_else(none_begun)?.publish();
        Ok(())
    }

    fn abort(&mut self) -> Result<(), Failure> {
        self.guard.take().map(drop).ok_or_else(none_begun)
    }
}

type Table = Handle<Box<dyn Numbered>>;
type Reader = Handle<Box<dyn Views>>;
type Committing = Handle<Box<dyn Commits>>;

fn make<const K: usize, const V: usize>(config: &Config) -> Result<Box<dyn Numbered>, Failure> {
    Ok(Box::new(Shared::new(Words::<K, V>::new(config)?)))
}

/// Makes a table for `entries` entries, and sets `*out`: before the database's first commit or after
/// any.
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

/// Takes everything out, in constant time; views answer nothing until they are moved. For changes
/// by a transaction see overbank_versioned_commit_clear. Any number of threads.
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

/// Makes a view of the newest published commit, and sets `*out`.
///
/// Any thread. The caller owns it: overbank_versioned_view_destroy.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_create(
    versioned: *const overbank_versioned,
    out: *mut *mut overbank_versioned_view,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(versioned, |table| Handle::give(out, table.view())) })
}

/// Frees a view. NULL is none.
///
/// # Safety
/// The view is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_destroy(view: *mut overbank_versioned_view) {
    // SAFETY: the caller's promise.
    unsafe { Reader::destroy(view) };
}

/// Moves the view to a snapshot: the number of its newest commit, or a lower one that was published
/// before the transaction began. Takes a few loads.
///
/// A number above the newest published one is that of a commit that did not pass by this table
/// (another process): everything is taken out. With the number of a commit that has begun, or one
/// of more than 48 bits, the view answers nothing and takes nothing in.
///
/// # Safety
/// The view is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_at(
    view: *mut overbank_versioned_view,
    version: u64,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Reader::change(view, |view| {
                view.at(Some(version));
                Ok(())
            })
        }
    })
}

/// Moves the view to the newest published commit, and writes its number to `version`; NULL if that
/// is of no interest. For reads that need no transaction unless they miss: then begin one and fill
/// through this view. Where commits may pass by this table, first move it to the transaction's own
/// number, and look up again.
///
/// # Safety
/// The view is NULL or live, and in no other call; `version` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_latest(
    view: *mut overbank_versioned_view,
    version: *mut u64,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let version = if version.is_null() { None } else { Some(place(version, "version")?) };
            Reader::change(view, |view| {
                let newest = view.at(None);
                version.into_iter().for_each(|version| *version = newest);
                Ok(())
            })
        }
    })
}

/// Looks up any number of keys as of the view's snapshot; the arguments are those of
/// overbank_copies_lookup. After a miss, ask the snapshot, then fill with the ticket.
///
/// Takes no lock and waits for nothing.
///
/// # Safety
/// The view is NULL or live, and no other call moves it; the arrays are so long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_lookup(
    view: *const overbank_versioned_view,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
    tickets: *mut overbank_ticket,
) -> overbank_status {
    let sought = Sought { keys, count, values, found, tickets };
    // SAFETY: the caller's promise.
    border(|| unsafe { Reader::share(view, |view| view.lookup(&sought)) })
}

/// Puts in what the snapshot has for the ticket's key: `value`, or NULL if it has no entry.
///
/// OVERBANK_DECLINED, which is no fault: if a later commit changed a key of the bucket, after a
/// clear, with a ticket of another table or snapshot, or if the entries there are asked for more
/// often. Waits for nothing.
///
/// # Safety
/// The view is NULL or live, and no other call moves it; `ticket` is NULL, zeroed, or as the library
/// wrote it; `value` is NULL or has `value_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_fill(
    view: *const overbank_versioned_view,
    ticket: *const overbank_ticket,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    filled(|| unsafe { Reader::share(view, |view| view.fill(ticket, value)) })
}

/// Makes what says commits, and sets `*out`.
///
/// Any thread. The caller owns it: overbank_versioned_commit_destroy.
///
/// # Safety
/// The table is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_create(
    versioned: *const overbank_versioned,
    out: *mut *mut overbank_versioned_commit,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Table::share(versioned, |table| Handle::give(out, table.commit())) })
}

/// Frees it. A commit that it has begun is aborted. NULL is none.
///
/// If it is never destroyed, it keeps the table's memory; the commit that it had begun ends with
/// the next one of the table.
///
/// # Safety
/// The commit is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_destroy(commit: *mut overbank_versioned_commit) {
    // SAFETY: the caller's promise.
    unsafe { Committing::destroy(commit) };
}

/// Begins the commit of the transaction that is about to get this number, before the database
/// commits. One that another object has begun is taken to be aborted.
///
/// OVERBANK_INVALID if the number is not above the newest published one or has more than 48 bits,
/// or if this object has begun a commit already.
///
/// # Safety
/// The commit is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_begin(
    commit: *mut overbank_versioned_commit,
    version: u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.begin(version)) })
}

/// Says that the transaction gives the key this value, or removes it (NULL): before the database
/// commits. A key that the table had has its new value there once published (of 65,536 keys at
/// most). OVERBANK_INVALID if no commit has begun.
///
/// Allocates. Waits for at most a handful of stores of another thread.
///
/// # Safety
/// The commit is NULL or live, and in no other call; `key` is NULL or has `key_words` words, `value`
/// is NULL or has `value_words`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_change(
    commit: *mut overbank_versioned_commit,
    key: *const u64,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.change(key, value)) })
}

/// Says that the transaction changes the key, to a value that the caller does not know.
/// OVERBANK_INVALID if no commit has begun.
///
/// # Safety
/// The commit is NULL or live, and in no other call; `key` is NULL or has `key_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_touch(
    commit: *mut overbank_versioned_commit,
    key: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.touch(key)) })
}

/// Says that the transaction changes any number of keys: a range, a drop, a restore. Takes
/// everything out, in constant time; no snapshot before this commit has answers any more.
/// OVERBANK_INVALID if no commit has begun.
///
/// # Safety
/// The commit is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_clear(
    commit: *mut overbank_versioned_commit,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.clear()) })
}

/// Ends the commit *after* the database has committed: readers of its number get answers.
/// OVERBANK_INVALID if no commit has begun.
///
/// # Safety
/// The commit is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_publish(
    commit: *mut overbank_versioned_commit,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.publish()) })
}

/// Ends the commit after the database has not committed. Its number may come again. Call it before
/// another transaction can begin, where another process may write. OVERBANK_INVALID if no commit
/// has begun.
///
/// # Safety
/// The commit is NULL or live, and in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_commit_abort(
    commit: *mut overbank_versioned_commit,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Committing::change(commit, |commit| commit.abort()) })
}
