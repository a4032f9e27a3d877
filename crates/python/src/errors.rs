//! What the tables refuse, as exceptions of Python.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use overbank::cache::CacheError;
use overbank::fib::{FibError, FibImageError};
use overbank::file::FileError;
use overbank::lookaside::{self, tree::TreeError};
use overbank::memory::MemoryError;
use overbank::partition::{BuildError, InsertError, PartitionImageError, TableError};
use overbank::sketch::SketchError;
use pyo3::exceptions::{
    PyException, PyMemoryError, PyOSError, PyOverflowError, PyRuntimeError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::{create_exception, types::PyType};

create_exception!(
    overbank,
    TableFull,
    PyException,
    "A table has no room for a key. The keys before it are in the table: `inserted` is their number."
);
create_exception!(
    overbank,
    ImageError,
    PyValueError,
    "A file, or bytes of changes, is damaged, or belongs to another kind of table."
);

pub fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn memory(error: impl Display) -> PyErr {
    PyMemoryError::new_err(error.to_string())
}

fn image(error: impl Display) -> PyErr {
    ImageError::new_err(error.to_string())
}

/// Of an insertion that found no room, as the `nth` of its keys.
pub fn full(py: Python<'_>, error: impl Display, nth: usize, of: usize) -> PyErr {
    let text = format!("{error}; {nth} of {of} keys were inserted");
    let error = TableFull::new_err(text);
    match error.value(py).setattr("inserted", nth) {
        Ok(()) => error,
        Err(other) => other,
    }
}

pub fn cache(error: CacheError) -> PyErr {
    match error {
        CacheError::Memory(error) => memory(error),
        error => value(error),
    }
}

pub fn fib(error: FibError) -> PyErr {
    match error {
        FibError::Memory(error) => memory(error),
        error => value(error),
    }
}

pub fn sketch(error: SketchError) -> PyErr {
    match error {
        SketchError::Memory(error) => memory(error),
        error => value(error),
    }
}

pub fn look_aside(error: lookaside::Error) -> PyErr {
    match error {
        lookaside::Error::Memory(error) => memory(error),
        error => value(error),
    }
}

pub fn tree(error: TreeError) -> PyErr {
    match error {
        TreeError::Memory(error) | TreeError::Hints(CacheError::Memory(error)) => memory(error),
        error => value(error),
    }
}

pub fn build(error: BuildError) -> PyErr {
    match error {
        BuildError::Table(TableError::Memory(error)) => memory(error),
        error => value(error),
    }
}

pub fn insert(py: Python<'_>, error: InsertError, nth: usize, of: usize) -> PyErr {
    match error {
        InsertError::Memory(error) => memory(error),
        InsertError::Value { .. } => value(error),
        error => full(py, error, nth, of),
    }
}

pub fn fib_image(error: FibImageError) -> PyErr {
    match error {
        FibImageError::File(error) => file(error),
        FibImageError::Table { error: FibError::Memory(error), .. } => memory(error),
        error => image(error),
    }
}

pub fn partition_image(error: PartitionImageError) -> PyErr {
    match error {
        PartitionImageError::File(error) => file(error),
        PartitionImageError::Memory(error)
        | PartitionImageError::Table { error: TableError::Memory(error), .. } => memory(error),
        error => image(error),
    }
}

/// Of bytes that hold changes.
pub fn changes(error: impl Display) -> PyErr {
    image(error)
}

fn file(error: FileError) -> PyErr {
    match error {
        FileError::Io { path, what, error } => io(&path, what, &error),
        error => image(error),
    }
}

/// With a number and a name, Python chooses among the kinds of `OSError`.
fn io(path: &Path, what: &str, error: &std::io::Error) -> PyErr {
    let Some(number) = error.raw_os_error() else {
        return PyOSError::new_err(format!("{}: cannot {what}: {error}", path.display()));
    };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    PyOSError::new_err((number, format!("cannot {what}: {text}"), path.as_os_str().to_owned()))
}

/// Takes the lock of an object. Without the GIL, or while no other holder of it waits for the GIL.
pub fn lock<T>(mutex: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    let broken = "internal error: a call on this object panicked; please report it";
    mutex.lock().map_err(|_| PyRuntimeError::new_err(broken))
}

/// Returns a whole number of Python's within a range.
pub fn whole(given: &Bound<'_, PyAny>, name: &str, within: RangeInclusive<u64>) -> PyResult<u64> {
    let (low, high) = within.clone().into_inner();
    let number = given.extract::<u64>();
    match number {
        Ok(number) if within.contains(&number) => Ok(number),
        Err(error) if !error.is_instance_of::<PyOverflowError>(given.py()) => {
            let kind = type_name(given);
            Err(PyTypeError::new_err(format!("{name}: {kind}; expected an int")))
        }
        _ => {
            let text = given.str().map_or_else(|_| "?".to_owned(), |text| text.to_string());
            let text = if text.len() > 40 { format!("{}…", cut(&text, 40)) } else { text };
            Err(value(format!("{name} {text}: must be between {low} and {high}")))
        }
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

pub fn type_name(of: &Bound<'_, PyAny>) -> String {
    let kind: Bound<'_, PyType> = of.get_type();
    kind.name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// Returns how large a table may be: 1 GiB unless the caller says otherwise.
pub fn max_bytes(given: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    given.map_or(Ok(1 << 30), |given| whole(given, "max_bytes", 1..=u64::MAX))
}

/// Refuses a table larger than the caller expects: a typo must not take the machine's memory.
pub fn within_memory(bytes: u128, max_bytes: u64) -> PyResult<()> {
    if bytes > u128::from(max_bytes) {
        let text = format!(
            "a table of {bytes} bytes: more than max_bytes={max_bytes}; pass a larger one if that \
             is intended"
        );
        return Err(value(text));
    }
    Ok(())
}

/// Of memory that is taken beside the tables'.
pub fn reserve<T>(count: usize) -> PyResult<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(count).map_err(|_| no_room::<T>(count))?;
    Ok(vec)
}

/// Makes room for more elements.
pub fn room<T>(vec: &mut Vec<T>, more: usize) -> PyResult<()> {
    vec.try_reserve(more).map_err(|_| no_room::<T>(vec.len().saturating_add(more)))
}

fn no_room<T>(count: usize) -> PyErr {
    memory(MemoryError::OutOfMemory { bytes: count.saturating_mul(size_of::<T>()) })
}
