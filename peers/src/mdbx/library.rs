//! libmdbx: an environment with one table of numbers, built in one transaction and then read.
//!
//! Keys and values are numbers in this machine's order, as in LMDB beside it. A [`Read`] is one
//! transaction. Its lookups walk the tree ([`Read::get`], `mdbx_get`), or prove an [`Entry`] that
//! the caller kept and walk only if it is stale ([`Read::get_cached`], `mdbx_cache_get`). Both
//! return copies. Nothing here is `Send`: one thread measures.

// A library in C.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context, Result, anyhow};
use mdbx_sys as c;

use super::{PAGE_BYTES, Shape, TABLE, VALUE_BYTES};

/// Pages that a transaction may change before libmdbx writes some of them out: 8 GiB.
const DIRTY_PAGES_MAX: u64 = 1 << 21;
const GROWTH_BYTES: isize = 1 << 26;
const MODE: c::mdbx_mode_t = 0o600;
const NAME: &CStr = TABLE;

/// An environment: a folder with a data file.
pub struct Env(*mut c::MDBX_env);

impl Env {
    /// Creates one in an existing, empty folder. Commits are not synced.
    pub fn create(folder: &Path, map_bytes: usize) -> Result<Env> {
        let path = CString::new(folder.as_os_str().as_bytes()).context("the folder's name")?;
        let mut env = null_mut();
        // SAFETY: sets levels, without a function of ours; writes a pointer. The environment is
        // closed by `Drop`, once.
        let made = unsafe {
            // By default it also prints how its file grows.
            c::mdbx_setup_debug(c::MDBX_LOG_WARN, c::MDBX_DBG_DONTCHANGE, None);
            c::mdbx_env_create(&mut env)
        };
        done("mdbx_env_create", made)?;
        let env = Env(env);
        // SAFETY: the environment is valid and not open yet, when all of these may be set; the path
        // outlives the call. Only this process opens the folder.
        unsafe {
            let set = c::mdbx_env_set_option(env.0, c::MDBX_opt_max_db, 1);
            done("mdbx_env_set_option", set)?;
            let set = c::mdbx_env_set_geometry(
                env.0,
                -1,
                -1,
                map_bytes as isize,
                GROWTH_BYTES,
                0,
                PAGE_BYTES as isize,
            );
            done("mdbx_env_set_geometry", set)?;
            let opened = c::mdbx_env_open(env.0, path.as_ptr(), c::MDBX_UTTERLY_NOSYNC, MODE);
            done("mdbx_env_open", opened)?;
            let limit = c::MDBX_opt_txn_dp_limit;
            done("mdbx_env_set_option", c::mdbx_env_set_option(env.0, limit, DIRTY_PAGES_MAX))?;
        }
        Ok(env)
    }

    /// Inserts keys with their values and commits them.
    pub fn fill(&self, pairs: impl Iterator<Item = Result<(u64, u64)>>) -> Result<()> {
        let write = Transaction::begin(self, c::MDBX_TXN_READWRITE, c::MDBX_CREATE)?;
        for pair in pairs {
            let (key, value) = pair?;
            let (key, mut value) = (key.to_ne_bytes(), value.to_ne_bytes());
            let mut to = c::MDBX_val { iov_base: value.as_mut_ptr().cast(), iov_len: value.len() };
            // SAFETY: a live transaction of this thread; key and value are 8 bytes, which libmdbx
            // copies.
            let put =
                unsafe { c::mdbx_put(write.txn, write.dbi, &of(&key), &mut to, c::MDBX_UPSERT) };
            done("mdbx_put", put)?;
        }
        write.commit()
    }

    /// Begins a transaction that reads.
    pub fn read(&self) -> Result<Read<'_>> {
        Ok(Read(Transaction::begin(self, c::MDBX_TXN_RDONLY, c::MDBX_DB_DEFAULTS)?))
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: created by `create` and closed here alone; transactions borrow it and are over.
        let closed = unsafe { c::mdbx_env_close_ex(self.0, true) };
        if let Err(error) = done("mdbx_env_close_ex", closed) {
            eprintln!("{error:#}");
        }
    }
}

/// A transaction and the table in it; aborted if dropped.
struct Transaction<'env> {
    txn: *mut c::MDBX_txn,
    dbi: c::MDBX_dbi,
    env: PhantomData<&'env Env>,
}

impl<'env> Transaction<'env> {
    fn begin(env: &'env Env, kind: c::MDBX_txn_flags, table: c::MDBX_db_flags) -> Result<Self> {
        let mut transaction = Transaction { txn: null_mut(), dbi: 0, env: PhantomData };
        // SAFETY: an open environment, which the result borrows; writes the transaction's pointer.
        let begun = unsafe {
            c::mdbx_txn_begin_ex(env.0, null_mut(), kind, &mut transaction.txn, null_mut())
        };
        done("mdbx_txn_begin_ex", begun)?;
        let Transaction { txn, dbi, .. } = &mut transaction;
        // SAFETY: a live transaction of this thread; the name ends with a zero.
        let opened = unsafe { c::mdbx_dbi_open(*txn, NAME.as_ptr(), table, dbi) };
        done("mdbx_dbi_open", opened)?;
        Ok(transaction)
    }

    fn commit(mut self) -> Result<()> {
        let txn = std::mem::replace(&mut self.txn, null_mut());
        // SAFETY: a live transaction of this thread, which nothing uses after it.
        done("mdbx_txn_commit_ex", unsafe { c::mdbx_txn_commit_ex(txn, null_mut()) })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.txn.is_null() {
            // SAFETY: a live transaction of this thread: `commit` leaves a null pointer.
            let aborted = unsafe { c::mdbx_txn_abort_ex(self.txn, null_mut()) };
            if let Err(error) = done("mdbx_txn_abort_ex", aborted) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// A transaction that reads.
pub struct Read<'env>(Transaction<'env>);

/// Position of a value and the snapshots in which it was proved: 32 bytes.
pub struct Entry(UnsafeCell<c::MDBX_cache_entry>);

impl Entry {
    /// Returns one without a position, as `mdbx_cache_init` makes it.
    pub fn new() -> Entry {
        Entry(UnsafeCell::new(c::MDBX_cache_entry {
            trunk_txnid: 0,
            last_confirmed_txnid: 0,
            offset: 0,
            length: 0,
        }))
    }
}

impl Read<'_> {
    /// Returns a key's value.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        let (key, mut value) = (key.to_ne_bytes(), nothing());
        // SAFETY: a live transaction of this thread and its table; reads the key's 8 bytes and
        // writes where the value is.
        let got = unsafe { c::mdbx_get(self.0.txn, self.0.dbi, &of(&key), &mut value) };
        self.value(got, value)
    }

    /// Returns a key's value by its entry, which is then proved for this snapshot. Also returns
    /// whether the entry had the position.
    ///
    /// An entry that was proved for another key gives that key's value: libmdbx has no key to
    /// compare.
    #[inline]
    pub fn get_cached(&self, key: u64, entry: &Entry) -> Result<(Option<u64>, bool)> {
        let (key, mut value) = (key.to_ne_bytes(), nothing());
        // SAFETY: as in `get`. The entry was initialized; threads that share one may all be in this
        // call, which reads and writes it by a sequence lock, hence the cell.
        let got = unsafe {
            c::mdbx_cache_get(self.0.txn, self.0.dbi, &of(&key), &mut value, entry.0.get())
        };
        let hit = matches!(got.status, c::MDBX_CACHE_HIT | c::MDBX_CACHE_CONFIRMED);
        Ok((self.value(got.errcode as c_int, value)?, hit))
    }

    #[inline]
    fn value(&self, code: c_int, value: c::MDBX_val) -> Result<Option<u64>> {
        match code {
            c::MDBX_SUCCESS if value.iov_len == VALUE_BYTES => {
                // SAFETY: libmdbx returned a value of 8 bytes inside its map, which stays as it is
                // while the transaction, borrowed here, lives; it may lie unaligned.
                Ok(Some(unsafe { value.iov_base.cast::<u64>().read_unaligned() }))
            }
            c::MDBX_NOTFOUND => Ok(None),
            c::MDBX_SUCCESS => Err(anyhow!("libmdbx: a value of {} bytes", value.iov_len)),
            code => Err(failed("a lookup", code)),
        }
    }

    /// Returns the size of the tree.
    pub fn shape(&self) -> Result<Shape> {
        // SAFETY: a struct of numbers, for which zeros are valid.
        let mut stat: c::MDBX_stat = unsafe { std::mem::zeroed() };
        // SAFETY: a live transaction of this thread and its table; writes one struct of this size.
        let asked =
            unsafe { c::mdbx_dbi_stat(self.0.txn, self.0.dbi, &mut stat, size_of_val(&stat)) };
        done("mdbx_dbi_stat", asked)?;
        Ok(Shape {
            entries: stat.ms_entries,
            depth: stat.ms_depth,
            pages: stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages,
            page_bytes: stat.ms_psize,
        })
    }
}

/// Returns what libmdbx reads a key from. It only reads, though the pointer could write.
#[inline]
fn of(key: &[u8; 8]) -> c::MDBX_val {
    c::MDBX_val { iov_base: key.as_ptr().cast_mut().cast(), iov_len: key.len() }
}

#[inline]
fn nothing() -> c::MDBX_val {
    c::MDBX_val { iov_base: null_mut(), iov_len: 0 }
}

fn done(call: &str, code: c_int) -> Result<()> {
    if code == c::MDBX_SUCCESS { Ok(()) } else { Err(failed(call, code)) }
}

#[cold]
fn failed(call: &str, code: c_int) -> anyhow::Error {
    // SAFETY: takes any number; returns a static string, or one of this thread until its next call,
    // or nothing.
    let text = unsafe {
        let text = c::mdbx_strerror(code);
        if text.is_null() { "unknown".into() } else { CStr::from_ptr(text).to_string_lossy() }
    };
    anyhow!("libmdbx: {call}: {text} ({code})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;

    /// Values are found with and without entries, an entry is stale once, and errors have names.
    #[test]
    fn lookups_find_values_and_prove_entries() {
        let folder = Folder::new("mdbx").expect("a folder");
        let env = Env::create(folder.path(), 1 << 26).expect("an environment");
        let pairs = (0..1000).map(|key| Ok((key, !key)));
        env.fill(pairs).expect("keys");
        let read = env.read().expect("a transaction");
        let shape = read.shape().expect("a size");
        assert_eq!((shape.entries, shape.page_bytes), (1000, 4096));
        let (entry, absent) = (Entry::new(), Entry::new());
        for hit in [false, true, true] {
            assert_eq!(read.get_cached(7, &entry).expect("a lookup"), (Some(!7), hit));
            assert_eq!(read.get_cached(1000, &absent).expect("a lookup"), (None, hit));
        }
        assert_eq!(read.get(7).expect("a lookup"), Some(!7));
        assert_eq!(read.get(1000).expect("a lookup"), None);
        let error = failed("mdbx_put", c::MDBX_MAP_FULL).to_string();
        assert!(error.starts_with("libmdbx: mdbx_put: MDBX_MAP_FULL"), "{error}");
    }

    /// After a commit an entry has the new value, and is proved again.
    #[test]
    fn an_entry_follows_a_commit() {
        let folder = Folder::new("mdbx-commit").expect("a folder");
        let env = Env::create(folder.path(), 1 << 26).expect("an environment");
        env.fill((0..1000).map(|key| Ok((key, !key)))).expect("keys");
        let entry = Entry::new();
        {
            let read = env.read().expect("a transaction");
            assert_eq!(read.get_cached(7, &entry).expect("a lookup"), (Some(!7), false));
        }
        env.fill([Ok((7, 70))].into_iter()).expect("a change");
        let read = env.read().expect("a transaction");
        assert_eq!(read.get_cached(7, &entry).expect("a lookup"), (Some(70), false));
        assert_eq!(read.get_cached(7, &entry).expect("a lookup"), (Some(70), true));
    }
}
