//! Partition tables for C: which part a key belongs to, by hashes; changes travel as bytes.

use std::ffi::c_char;

use overbank::file::FileError;
use overbank::partition::{
    self, BatchError, BuildError, Config, Delta, DeltaError, InsertError, PartitionImageError,
    Reader, Replica, TableError, Writer,
};

use crate::border::overbank_status::*;
use crate::border::*;

/// The owner of a partition table: knows the keys' hashes, changes the table and says each change
/// in bytes for the copies. One thread at a time uses it, while others look up.
pub struct overbank_partition {
    _opaque: [u8; 0],
}

/// A copy of a partition table, without keys: 1.2 to 4.4 bits each. One thread at a time changes
/// it, while others look up.
pub struct overbank_replica {
    _opaque: [u8; 0],
}

/// A thread's side of a partition table or of a copy. It keeps the table alive. Threads may share
/// one.
pub struct overbank_partition_reader {
    _opaque: [u8; 0],
}

/// How a partition table is made. All zeroes are the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct overbank_partition_options {
    /// Keys that the table may grow to; 0: those that it is planned for.
    pub keys_max: usize,
    /// Parts of the table that grow each by itself, a power of two; 0 is 1.
    pub partitions: usize,
    /// Tells apart the tables of one name that were built anew.
    pub generation: u32,
    /// Pages of memory, as in overbank_fib_options.
    pub pages: u32,
    /// The seed that keys are hashed with. Images keep it; the table does not use it.
    pub seed: u64,
    /// As in overbank_fib_options.
    pub isa: *const c_char,
    /// Zero.
    pub reserved: [u64; 4],
}

impl Default for overbank_partition_options {
    fn default() -> Self {
        let isa = std::ptr::null();
        Self { keys_max: 0, partitions: 0, generation: 0, pages: 0, seed: 0, isa, reserved: [0; 4] }
    }
}

/// What a copy of a partition table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_partition_info {
    /// Name of the table, the same in all its copies.
    pub id: u64,
    /// Number of the last change.
    pub sequence: u64,
    /// The seed that keys are hashed with.
    pub seed: u64,
    /// Keys.
    pub keys: usize,
    /// Bytes of the table.
    pub bytes: usize,
    /// Bits of a value.
    pub value_bits: usize,
    /// Its generation.
    pub generation: u32,
    /// Zero.
    pub unused: u32,
}

/// Whose fault a file is.
pub(crate) fn of_file(error: &FileError) -> overbank_status {
    if matches!(error, FileError::Io { .. }) { OVERBANK_IO } else { OVERBANK_DAMAGED }
}

impl Blame for BuildError {
    fn status(&self) -> overbank_status {
        match self {
            BuildError::Table(TableError::Memory(_)) => OVERBANK_MEMORY,
            BuildError::Fallback(_) => OVERBANK_FULL,
            _ => OVERBANK_INVALID,
        }
    }
}

impl Blame for InsertError {
    fn status(&self) -> overbank_status {
        match self {
            InsertError::Value { .. } => OVERBANK_INVALID,
            InsertError::Memory(_) => OVERBANK_MEMORY,
            _ => OVERBANK_FULL,
        }
    }
}

impl Blame for BatchError {
    fn status(&self) -> overbank_status {
        OVERBANK_DAMAGED
    }
}

impl Blame for DeltaError {
    fn status(&self) -> overbank_status {
        if matches!(self, DeltaError::Fallback(_)) { OVERBANK_FULL } else { OVERBANK_DAMAGED }
    }
}

impl Blame for overbank::memory::MemoryError {
    fn status(&self) -> overbank_status {
        OVERBANK_MEMORY
    }
}

impl Blame for PartitionImageError {
    fn status(&self) -> overbank_status {
        match self {
            PartitionImageError::File(error) => of_file(error),
            _ => OVERBANK_DAMAGED,
        }
    }
}

type Owner = Handle<Writer>;
type Copied = Handle<Replica>;
type Looking = Handle<Reader>;

/// Hashes a key of `len` bytes as the tables of a cluster do. Any thread. 0 for a NULL that should
/// have bytes.
///
/// # Safety
/// `key` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_hash(key: *const u8, len: usize, seed: u64) -> u64 {
    let mut hash = 0;
    border(|| {
        // SAFETY: the caller's promise.
        hash = partition::hash_key(unsafe { elements(key, len, "key") }?, seed);
        Ok(())
    });
    hash
}

/// Builds a table for `keys` keys with values of `value_bits` bits, 1 to 8, which has the `count`
/// keys of these hashes with these values, and sets `*out`.
///
/// Two keys of one hash are one key: with different values, OVERBANK_INVALID names the hash.
/// `count` may be 0. `options` may be NULL.
///
/// Any thread. The caller owns the table: overbank_partition_destroy.
///
/// # Safety
/// The pointers are NULL or valid; `hashes` and `values` have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_build(
    keys: usize,
    value_bits: usize,
    hashes: *const u64,
    values: *const u8,
    count: usize,
    options: *const overbank_partition_options,
    out: *mut *mut overbank_partition,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let options = or_default(options, "options")?;
            unused(&options.reserved)?;
            let grown = if options.keys_max == 0 { keys } else { options.keys_max };
            let config = Config::new(keys, value_bits)
                .growing(grown, options.partitions.max(1))
                .generation(options.generation)
                .seed(options.seed)
                .pages(crate::fib::pages(options.pages)?)
                .isa(isa(options.isa)?);
            let hashes = elements(hashes, count, "hashes")?;
            let values = elements(values, count, "values")?;
            let entries = hashes.iter().copied().zip(values.iter().copied());
            Handle::give(out, Writer::build(&config, entries)?.0)
        }
    })
}

/// Frees the owner's side. NULL is none.
///
/// # Safety
/// The table is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_destroy(table: *mut overbank_partition) {
    // SAFETY: the caller's promise.
    unsafe { Owner::destroy(table) };
}

/// Gives a key a value: a new key, or a move of one. `delta` gets the change for the copies, which
/// is empty if nothing changed; NULL if there are none. OVERBANK_FULL if no key fits any more.
///
/// # Safety
/// The table is NULL or live, and in no other call of its owner; `delta` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_set(
    table: *mut overbank_partition,
    hash: u64,
    value: u8,
    delta: *mut overbank_bytes,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let delta = if delta.is_null() { None } else { Some(place(delta, "delta")?) };
            Owner::change(table, |table| {
                let change = table.insert(hash, value)?;
                if let Some(delta) = delta {
                    let bytes = change.map(|change| Delta::encode(&[change])).transpose()?;
                    *delta = overbank_bytes::of(bytes.unwrap_or_default());
                }
                Ok(())
            })
        }
    })
}

/// Removes a key; `value` gets its value, NULL if that is of no interest. OVERBANK_ABSENT if it is
/// not there. Copies need not hear of it: they answer anything for a key that is not there.
///
/// # Safety
/// The table is NULL or live, and in no other call of its owner; `value` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_remove(
    table: *mut overbank_partition,
    hash: u64,
    value: *mut u8,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe { Owner::change(table, |table| tell(table.remove(hash), value)) }
    })
}

/// Reads the value of a key, exactly. OVERBANK_ABSENT if it is not there.
///
/// # Safety
/// As overbank_partition_remove.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_get(
    table: *const overbank_partition,
    hash: u64,
    value: *mut u8,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Owner::read(table, |table| tell(table.get(hash), value)) })
}

/// # Safety
/// `out` is NULL or valid.
unsafe fn tell(value: Option<u8>, out: *mut u8) -> Result<(), Failure> {
    let value =
        value.ok_or_else(|| Failure::new(OVERBANK_ABSENT, "the key is not in the table"))?;
    if !out.is_null() {
        // SAFETY: the caller's promise.
        *unsafe { place(out, "value") }? = value;
    }
    Ok(())
}

/// Writes the number of keys.
///
/// # Safety
/// The table is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_len(
    table: *const overbank_partition,
    out: *mut usize,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Owner::tell(table, out, |table| Ok(table.len())) }
}

/// Makes a reader of the owner's table, and sets `*out`. overbank_partition_reader_destroy.
///
/// # Safety
/// The table is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_reader_create(
    table: *const overbank_partition,
    out: *mut *mut overbank_partition_reader,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Owner::read(table, |table| Handle::give(out, table.reader())) })
}

/// Makes a copy of the owner's table as it is now, and sets `*out`. overbank_replica_destroy.
///
/// # Safety
/// As overbank_partition_reader_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_replica(
    table: *const overbank_partition,
    out: *mut *mut overbank_replica,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            Owner::read(table, |table| Handle::give(out, table.replica()?))
        }
    })
}

/// Frees a reader. NULL is none.
///
/// # Safety
/// The reader is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_reader_destroy(reader: *mut overbank_partition_reader) {
    // SAFETY: the caller's promise.
    unsafe { Looking::destroy(reader) };
}

/// Looks up any number of keys by their hashes: `values[i]` is that of `hashes[i]`. A key that was
/// never in the table gets any value. Takes no lock; while a change is made, reads again.
///
/// # Safety
/// The reader is NULL or live; the arrays have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_partition_lookup(
    reader: *const overbank_partition_reader,
    hashes: *const u64,
    count: usize,
    values: *mut u8,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Looking::read(reader, |reader| {
                let hashes = elements(hashes, count, "hashes")?;
                reader.lookup_all(hashes, places(values, count, "values")?);
                Ok(())
            })
        }
    })
}

/// Applies a change of overbank_partition_set. Changes come in order and once each:
/// OVERBANK_DAMAGED, with the copy as it was, for one that does not follow, or is of another table.
/// An empty one changes nothing.
///
/// # Safety
/// The copy is NULL or live, and in no other call but lookups; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_apply(
    replica: *mut overbank_replica,
    data: *const u8,
    len: usize,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            Copied::change(replica, |replica| {
                let data = elements(data, len, "data")?;
                if data.is_empty() {
                    return Ok(());
                }
                Ok(replica.apply_all(&Delta::decode(data)?)?)
            })
        }
    })
}

/// Makes a reader of a copy, and sets `*out`. overbank_partition_reader_destroy.
///
/// # Safety
/// The copy is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_reader(
    replica: *const overbank_replica,
    out: *mut *mut overbank_partition_reader,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Copied::read(replica, |replica| Handle::give(out, replica.reader())) })
}

/// Writes what a copy is.
///
/// # Safety
/// As overbank_replica_reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_info(
    replica: *const overbank_replica,
    out: *mut overbank_partition_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe {
        Copied::tell(replica, out, |replica| {
            let reader = replica.reader();
            Ok(overbank_partition_info {
                id: replica.id(),
                sequence: replica.sequence(),
                seed: replica.seed(),
                keys: replica.keys(),
                bytes: reader.bytes(),
                value_bits: reader.value_bits(),
                generation: replica.generation(),
                unused: 0,
            })
        })
    }
}

/// Writes an image of a copy to `*out`: overbank_bytes_free.
///
/// # Safety
/// As overbank_replica_reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_encode(
    replica: *const overbank_replica,
    out: *mut overbank_bytes,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let out = place(out, "out")?;
            Copied::read(replica, |replica| {
                let image = replica.encode();
                let bytes = image.map_err(|error| Failure::new(OVERBANK_MEMORY, error))?;
                *out = overbank_bytes::of(bytes);
                Ok(())
            })
        }
    })
}

/// Makes a copy from an image, and sets `*out`. Any changed byte is OVERBANK_DAMAGED.
///
/// # Safety
/// `data` has `len` bytes; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_decode(
    data: *const u8,
    len: usize,
    out: *mut *mut overbank_replica,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let pages = overbank::memory::Pages::Huge;
            Handle::give(out, Replica::decode(elements(data, len, "data")?, None, pages)?)
        }
    })
}

/// Writes an image of a copy to a file, which is replaced once the new one is on disk.
///
/// # Safety
/// As overbank_replica_reader; `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_save(
    replica: *const overbank_replica,
    path: *const c_char,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe { Copied::read(replica, |replica| Ok(replica.save(text(path, "path")?)?)) }
    })
}

/// Makes a copy from a file of overbank_replica_save, and sets `*out`.
///
/// # Safety
/// `path` is NULL or a text; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_load(
    path: *const c_char,
    out: *mut *mut overbank_replica,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let pages = overbank::memory::Pages::Huge;
            Handle::give(out, Replica::load(text(path, "path")?, None, pages)?)
        }
    })
}

/// Frees a copy. NULL is none.
///
/// # Safety
/// The copy is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_replica_destroy(replica: *mut overbank_replica) {
    // SAFETY: the caller's promise.
    unsafe { Copied::destroy(replica) };
}
