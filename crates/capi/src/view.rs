//! Views of look-aside tables for C: what a snapshot's reader looks up and fills.

use std::sync::Arc;

use overbank::lookaside::{At, Found, Ticket};

use crate::answers::*;
use crate::aside::*;
use crate::border::*;
use crate::versioned::{Table, Words, overbank_versioned};

/// A table as of one snapshot, and then of the next: a reader's side.
///
/// Any number of threads look up and fill through it, while no call moves it. Each snapshot that is
/// open at a time needs one. It keeps the table alive after overbank_versioned_destroy.
pub struct overbank_versioned_view {
    _opaque: [u8; 0],
}

/// What a view does, whatever its types.
pub(crate) trait Views: Send + Sync {
    /// Moves to the snapshot of this number, or to the newest one; returns the number.
    fn at(&mut self, version: Option<u64>) -> u64;
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
}

/// A view of a table, and what keeps the table.
pub(crate) struct View<const K: usize, const V: usize> {
    at: At<'static, [u64; K], [u64; V]>,
    table: Arc<Words<K, V>>,
    number: u64,
}

impl<const K: usize, const V: usize> View<K, V> {
    pub(crate) fn new(of: &Shared<Words<K, V>>) -> Self {
        // SAFETY: lies beside what keeps the table, and drops nothing.
        let at = unsafe { lasting(&of.table) }.latest();
        Self { at, table: Arc::clone(&of.table), number: of.number }
    }
}

impl<const K: usize, const V: usize> Looks<K, V> for At<'_, [u64; K], [u64; V]> {
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
        ticket: *const overbank_aside_ticket,
        value: *const u64,
    ) -> Result<bool, Failure> {
        // SAFETY: the caller's promise.
        unsafe { fill(&self.at, self.number, ticket, value) }
    }
}

type Reader = Handle<Box<dyn Views>>;

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
/// before the transaction began. Takes a few loads, unless everything is taken out: then the time
/// of one bucket in 32,768, and it waits for handfuls of stores of other threads.
///
/// A number above the newest published one is that of a commit that did not pass by this table
/// (another process): everything is taken out, and the number counts as published from then on, so
/// that no commit can have it or a lower one. Ask with numbers of the database alone.
///
/// With the number of a commit that has begun, or one of more than 48 bits, the view answers
/// nothing and takes nothing in.
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
/// Takes no lock and waits for nothing. Any number of threads, while no call moves the view.
///
/// # Safety
/// The view is NULL or live, and no other call moves it; the arrays are so long, and no two share
/// memory: OVERBANK_INVALID if they do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_lookup(
    view: *const overbank_versioned_view,
    keys: *const u64,
    count: usize,
    values: *mut u64,
    found: *mut u8,
    tickets: *mut overbank_aside_ticket,
) -> overbank_status {
    let sought = Sought { keys, count, values, found, tickets };
    // SAFETY: the caller's promise.
    border(|| unsafe { Reader::share(view, |view| view.lookup(&sought)) })
}

/// Puts in what the snapshot has for the ticket's key: `value`, or NULL if it has no entry.
///
/// OVERBANK_DECLINED, which is no fault: if a later commit changed a key of the bucket, after a
/// clear, with a ticket of another table or snapshot, or if the entries there are asked for more
/// often. Waits for nothing. Any number of threads, while no call moves the view.
///
/// # Safety
/// The view is NULL or live, and no other call moves it; `ticket` is NULL, zeroed, or as the
/// library wrote it; `value` is NULL or has `value_words` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_versioned_view_fill(
    view: *const overbank_versioned_view,
    ticket: *const overbank_aside_ticket,
    value: *const u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    filled(|| unsafe { Reader::share(view, |view| view.fill(ticket, value)) })
}
