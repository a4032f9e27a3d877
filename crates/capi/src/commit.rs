//! Commits of look-aside tables for C: what a transaction changes, and whether it did.

use overbank::lookaside::Commit;

use crate::answers::*;
use crate::aside::*;
use crate::border::*;
use crate::versioned::{Table, Words, overbank_versioned};

/// Says what a transaction changes, one after another: `_begin`, the changes, then the database
/// commits, then `_publish`; or `_abort`.
///
/// One thread at a time uses it. It keeps the table alive after overbank_versioned_destroy.
pub struct overbank_versioned_commit {
    _opaque: [u8; 0],
}

/// What a commit does, whatever its types.
pub(crate) trait Commits: Send {
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

/// A commit that has begun, if one has.
pub(crate) type Open<const K: usize, const V: usize> =
    Held<Commit<'static, [u64; K], [u64; V]>, Words<K, V>>;

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

type Committing = Handle<Box<dyn Commits>>;

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
/// Numbers should follow one another. All below this one count as published from now on, whatever
/// becomes of it; with a gap, commits did not pass by this table, and everything is taken out.
///
/// OVERBANK_INVALID if the number is not above the newest published one or has more than 48 bits:
/// the database numbers anew, or a wrong number came before. This table cannot hear of the change.
/// So do not commit beside it: destroy it with its views, and create another one first.
/// OVERBANK_INVALID, too, if this object has begun a commit already.
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
/// Allocates for a key that the table had: if the system then has no memory, the process is
/// aborted. Waits for a handful of stores of each other thread in the bucket.
///
/// # Safety
/// The commit is NULL or live, and in no other call; `key` is NULL or has `key_words` words;
/// `value` is NULL or has `value_words`.
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
/// everything out, in the time of one bucket in 32,768; no snapshot before this commit has answers
/// any more.
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
