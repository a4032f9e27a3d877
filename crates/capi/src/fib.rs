//! Forwarding tables for C: one writer, a reader for each thread, keys of a fixed number of bytes.

use std::ffi::{c_char, c_void};

use overbank::fib::{Config, FibError, FibImageError, Full, Reader, Value, Writer};
use overbank::memory::Pages;

use crate::border::overbank_status::*;
use crate::border::*;

/// The writing side of a forwarding table: an exact map of up to billions of entries, from keys of
/// 4, 6, 8, 13 or 16 bytes to values of 2, 4 or 8.
///
/// One thread at a time uses it, while others look up through their readers.
pub struct overbank_fib {
    _opaque: [u8; 0],
}

/// A thread's side of a forwarding table: looks up while the writer writes, and never waits.
///
/// One thread at a time uses it. It keeps the table alive after overbank_fib_destroy.
pub struct overbank_fib_reader {
    _opaque: [u8; 0],
}

/// How a forwarding table is made. All zeroes are the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct overbank_fib_options {
    /// Seed of the hash function, which strangers should not know.
    pub seed: u64,
    /// Pages of the table's memory: 0: 2 MiB where the system gives them; 1: the smallest;
    /// 2: 1 GiB where the system has them.
    pub pages: u32,
    /// Zero.
    pub unused: u32,
    /// "portable", "avx2", "avx512" or "neon"; NULL: the best that the CPU has.
    pub isa: *const c_char,
    /// Zero.
    pub reserved: [u64; 4],
}

impl Default for overbank_fib_options {
    fn default() -> Self {
        Self { seed: 0, pages: 0, unused: 0, isa: std::ptr::null(), reserved: [0; 4] }
    }
}

/// What a forwarding table is and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct overbank_fib_info {
    /// Entries.
    pub len: usize,
    /// Slots. A table takes entries up to 95 % of them and often more.
    pub slots: usize,
    /// Bytes of the table.
    pub bytes: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Blame for FibError {
    fn status(&self) -> overbank_status {
        if matches!(self, FibError::Memory(_)) { OVERBANK_MEMORY } else { OVERBANK_INVALID }
    }
}

impl Blame for Full {
    fn status(&self) -> overbank_status {
        OVERBANK_FULL
    }
}

impl Blame for FibImageError {
    fn status(&self) -> overbank_status {
        match self {
            FibImageError::File(error) => crate::partition::of_file(error),
            FibImageError::Table { error, .. } => error.status(),
            _ => OVERBANK_DAMAGED,
        }
    }
}

/// What a writer does, whatever its types. Keys and values are where C has them.
trait Writing: Send {
    fn info(&self) -> overbank_fib_info;
    /// # Safety
    /// `key` is NULL or has the bytes of a key.
    unsafe fn insert(&mut self, key: *const c_void, value: u64) -> Result<(), Failure>;
    /// # Safety
    /// As [`Writing::insert`].
    unsafe fn remove(&mut self, key: *const c_void) -> Result<Option<u64>, Failure>;
    /// # Safety
    /// As [`Writing::insert`].
    unsafe fn get(&self, key: *const c_void) -> Result<Option<u64>, Failure>;
    fn clear(&mut self);
    fn reader(&self) -> Box<dyn Reading>;
    fn save(&self, path: &str) -> Result<(), FibImageError>;
}

trait Reading: Send {
    /// # Safety
    /// The pointers are NULL or valid for `count` keys.
    unsafe fn lookup(
        &self,
        keys: *const c_void,
        count: usize,
        values: *mut c_void,
        hits: *mut u64,
    ) -> Result<(), Failure>;
}

impl<const N: usize, V: Value + TryFrom<u64> + Into<u64>> Writing for Writer<[u8; N], V> {
    fn info(&self) -> overbank_fib_info {
        let reader = self.reader();
        overbank_fib_info {
            len: self.len(),
            slots: reader.slots(),
            bytes: reader.bytes(),
            key_bytes: N,
            value_bytes: size_of::<V>(),
        }
    }

    unsafe fn insert(&mut self, key: *const c_void, value: u64) -> Result<(), Failure> {
        let bits = 8 * size_of::<V>();
        let value = V::try_from(value).map_err(|_| {
            Failure::invalid(format_args!("the value {value} has more than {bits} bits"))
        })?;
        // SAFETY: the caller's promise.
        self.insert(unsafe { one(key) }?, value)?;
        Ok(())
    }

    unsafe fn remove(&mut self, key: *const c_void) -> Result<Option<u64>, Failure> {
        // SAFETY: the caller's promise.
        Ok(self.remove(unsafe { one(key) }?).map(V::into))
    }

    unsafe fn get(&self, key: *const c_void) -> Result<Option<u64>, Failure> {
        // SAFETY: the caller's promise.
        Ok(self.get(unsafe { one(key) }?).map(V::into))
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn reader(&self) -> Box<dyn Reading> {
        Box::new(self.reader())
    }

    fn save(&self, path: &str) -> Result<(), FibImageError> {
        self.save(path)
    }
}

/// # Safety
/// `key` is NULL or has the bytes of a key.
unsafe fn one<const N: usize>(key: *const c_void) -> Result<[u8; N], Failure> {
    // SAFETY: the caller's promise; a key is bytes, of no alignment.
    Ok(unsafe { elements(key.cast::<[u8; N]>(), 1, "key") }?[0])
}

impl<const N: usize, V: Value> Reading for Reader<[u8; N], V> {
    #[inline]
    unsafe fn lookup(
        &self,
        keys: *const c_void,
        count: usize,
        values: *mut c_void,
        hits: *mut u64,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise; a key is bytes, of no alignment.
        let (keys, values, hits) = unsafe {
            (
                elements(keys.cast::<[u8; N]>(), count, "keys")?,
                places(values.cast::<V>(), count, "values")?,
                places(hits, count.div_ceil(64), "hits")?,
            )
        };
        if let [hits] = hits {
            *hits = self.lookup_batch(keys, values);
        } else {
            self.lookup_all(keys, values, hits);
        }
        Ok(())
    }
}

/// Makes a writer of these types by `$make`.
macro_rules! typed {
    ($key_bytes:expr, $value_bytes:expr, |$writer:ident| $make:expr) => {
        typed!(@ $key_bytes, $value_bytes, $writer, $make, 4 6 8 13 16)
    };
    (@ $key_bytes:expr, $value_bytes:expr, $writer:ident, $make:expr, $($bytes:literal)*) => {
        match ($key_bytes, $value_bytes) {
            $(($bytes, 2) => typed!(% Writer<[u8; $bytes], u16>, $writer, $make),
            ($bytes, 4) => typed!(% Writer<[u8; $bytes], u32>, $writer, $make),
            ($bytes, 8) => typed!(% Writer<[u8; $bytes], u64>, $writer, $make),)*
            (key, value) => Err(Failure::invalid(format_args!(
                "keys have 4, 6, 8, 13 or 16 bytes and values 2, 4 or 8, not {key} and {value}"
            ))),
        }
    };
    (% $type:ty, $writer:ident, $make:expr) => {{
        type $writer = $type;
        $make.map(|writer| Box::new(writer) as Box<dyn Writing>).map_err(Failure::from)
    }};
}

type Fib = Handle<Box<dyn Writing>>;
type FibReader = Handle<Box<dyn Reading>>;

fn config(options: overbank_fib_options, entries: usize) -> Result<Config, Failure> {
    unused(&options.reserved)?;
    unused(&[options.unused.into()])?;
    let pages = pages(options.pages)?;
    // SAFETY: a text or NULL, as the options promise.
    let isa = unsafe { isa(options.isa) }?;
    Ok(Config::entries(entries).seed(options.seed).pages(pages).isa(isa))
}

pub(crate) fn pages(number: u32) -> Result<Pages, Failure> {
    match number {
        0 => Ok(Pages::Huge),
        1 => Ok(Pages::Small),
        2 => Ok(Pages::Gigabyte { required: false }),
        other => Err(Failure::invalid(format_args!("pages: 0, 1 or 2, not {other}"))),
    }
}

/// Makes a table for `entries` entries, and sets `*out`.
///
/// Keys have `key_bytes` bytes: 4, 6, 8, 13 or 16, of no alignment; two are the same if their bytes
/// are. Values have `value_bytes` bytes: 2, 4 or 8. `options` may be NULL.
///
/// Any thread. The caller owns the table: overbank_fib_destroy.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_create(
    key_bytes: usize,
    value_bytes: usize,
    entries: usize,
    options: *const overbank_fib_options,
    out: *mut *mut overbank_fib,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let config = config(or_default(options, "options")?, entries)?;
            let writer = typed!(key_bytes, value_bytes, |W| W::new(&config))?;
            Handle::give(out, writer)
        }
    })
}

/// Frees the writing side; the table goes with its last reader. NULL is none.
///
/// # Safety
/// The table is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_destroy(fib: *mut overbank_fib) {
    // SAFETY: the caller's promise.
    unsafe { Fib::destroy(fib) };
}

/// Makes a reader and sets `*out`. Each thread needs one.
///
/// The caller owns it: overbank_fib_reader_destroy.
///
/// # Safety
/// The table is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_reader_create(
    fib: *const overbank_fib,
    out: *mut *mut overbank_fib_reader,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Fib::read(fib, |fib| Handle::give(out, fib.reader())) })
}

/// Frees a reader. NULL is none.
///
/// # Safety
/// The reader is NULL, or was made and not destroyed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_reader_destroy(reader: *mut overbank_fib_reader) {
    // SAFETY: the caller's promise.
    unsafe { FibReader::destroy(reader) };
}

/// Inserts an entry or replaces its value. OVERBANK_FULL if the table has no place for it: it is as
/// before.
///
/// Readers see the entry at once or not yet, never half.
///
/// # Safety
/// The table is NULL or live, and in no other call of its writer; `key` has `key_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_insert(
    fib: *mut overbank_fib,
    key: *const c_void,
    value: u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Fib::change(fib, |fib| fib.insert(key, value)) })
}

/// Removes an entry. OVERBANK_ABSENT if the key has none. `value` gets what it was; NULL if that is
/// of no interest.
///
/// # Safety
/// As overbank_fib_insert; `value` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_remove(
    fib: *mut overbank_fib,
    key: *const c_void,
    value: *mut u64,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe { Fib::change(fib, |fib| found(fib.remove(key)?, value)) }
    })
}

/// Reads the value of one key, on the writer's side. OVERBANK_ABSENT if it has none.
///
/// # Safety
/// As overbank_fib_remove.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_get(
    fib: *const overbank_fib,
    key: *const c_void,
    value: *mut u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Fib::read(fib, |fib| found(fib.get(key)?, value)) })
}

/// # Safety
/// `out` is NULL or valid.
unsafe fn found(value: Option<u64>, out: *mut u64) -> Result<(), Failure> {
    let value = value.ok_or_else(|| Failure::new(OVERBANK_ABSENT, "the key has no entry"))?;
    if !out.is_null() {
        // SAFETY: the caller's promise.
        *unsafe { place(out, "value") }? = value;
    }
    Ok(())
}

/// Looks up any number of keys: sets bit `i % 64` of `hits[i / 64]` if key `i` has an entry, and
/// then `values[i]`, else both to zero. Up to 64 keys are one burst; of more, bursts overlap.
///
/// `keys` are `count` keys of `key_bytes` bytes, one after another. `values` are `count` integers
/// of `value_bytes` bytes, `hits` are `(count + 63) / 64` words. Each key is looked up by itself: a
/// list is no snapshot. Takes no lock and waits for nothing.
///
/// # Safety
/// The reader is NULL or live, and in no other call; the arrays are so long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_lookup(
    reader: *const overbank_fib_reader,
    keys: *const c_void,
    count: usize,
    values: *mut c_void,
    hits: *mut u64,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { FibReader::read(reader, |fib| fib.lookup(keys, count, values, hits)) })
}

/// Removes all entries. Readers see them go one by one.
///
/// # Safety
/// The table is NULL or live, and in no other call of its writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_clear(fib: *mut overbank_fib) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe {
        Fib::change(fib, |fib| {
            fib.clear();
            Ok(())
        })
    })
}

/// Writes what the table is and holds.
///
/// # Safety
/// The table is NULL or live, and no other call changes it; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_info(
    fib: *const overbank_fib,
    out: *mut overbank_fib_info,
) -> overbank_status {
    // SAFETY: the caller's promise.
    unsafe { Fib::tell(fib, out, |fib| Ok(fib.info())) }
}

/// Writes all entries to a file, which is replaced once the new one is on disk. Readers go on.
///
/// # Safety
/// The table is NULL or live, and no other call changes it; `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_save(
    fib: *const overbank_fib,
    path: *const c_char,
) -> overbank_status {
    // SAFETY: the caller's promise.
    border(|| unsafe { Fib::read(fib, |fib| Ok(fib.save(text(path, "path")?)?)) })
}

/// Makes a table from a file of overbank_fib_save, and sets `*out`. Size and seed are the file's;
/// sizes of keys and values must be. Any changed byte is OVERBANK_DAMAGED.
///
/// # Safety
/// As overbank_fib_create; `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overbank_fib_load(
    path: *const c_char,
    key_bytes: usize,
    value_bytes: usize,
    options: *const overbank_fib_options,
    out: *mut *mut overbank_fib,
) -> overbank_status {
    border(|| {
        // SAFETY: the caller's promise.
        unsafe {
            place(out, "out")?;
            let (path, config) = (text(path, "path")?, config(or_default(options, "options")?, 1)?);
            let writer = typed!(key_bytes, value_bytes, |W| W::load(path, &config))?;
            Handle::give(out, writer)
        }
    })
}
