//! `Fib`: the forwarding table, an exact map from whole numbers to whole numbers.
//!
//! The types of the table are chosen at run time, so each of the six is behind [`Table`]. Lookups
//! go to the table's reader and take no lock; changes take that of its writer.

use std::path::PathBuf;
use std::sync::Mutex;

use numpy::{Element, PyArrayDescr, dtype};
use overbank::fib::{Config, Key, Reader, Value, Writer};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{Input, Output, pair};
use crate::errors::{self, full, lock, reserve, whole, within_memory};
use crate::hash::seed;

/// More than the largest table holds.
const ENTRIES_MAX: u64 = 1 << 34;
/// Keys of one pass: their places and answers stay in the first-level cache.
const PASS: usize = 4096;
/// Keys whose lines are asked for before they are inserted or removed.
const AHEAD: usize = 16;

/// The numbers that keys and values are.
trait Number: Element + Copy + TryFrom<u64> + Into<u64> {}
impl<T: Element + Copy + TryFrom<u64> + Into<u64>> Number for T {}

/// A table of any types. Arrays are those of numpy; single keys and values are 64 bits wide here.
trait Table: Send + Sync {
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        out: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    ) -> PyResult<Bound<'py, PyTuple>>;
    fn insert(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()>;
    fn remove<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>;
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>>;
    fn one(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>>;
    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()>;
    fn take(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>>;
    fn clear(&self, py: Python<'_>) -> PyResult<()>;
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()>;
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;
    fn len(&self) -> usize;
    fn slots(&self) -> usize;
    fn bytes(&self) -> usize;
    fn types<'py>(&self, py: Python<'py>) -> [Bound<'py, PyArrayDescr>; 2];
}

struct Of<K, V> {
    reader: Reader<K, V>,
    writer: Mutex<Writer<K, V>>,
}

impl<K: Key + Number, V: Value + Number> Of<K, V> {
    fn boxed(writer: Writer<K, V>) -> Box<dyn Table> {
        Box::new(Of { reader: writer.reader(), writer: Mutex::new(writer) })
    }

    fn build(py: Python<'_>, config: &Config, max_bytes: u64) -> PyResult<Box<dyn Table>> {
        within_memory(config.bytes::<K, V>() as u128, max_bytes)?;
        py.detach(|| Writer::new(config)).map(Self::boxed).map_err(errors::fib)
    }

    fn load(py: Python<'_>, path: &PathBuf) -> PyResult<Box<dyn Table>> {
        let config = Config::entries(1);
        py.detach(|| Writer::load(path, &config)).map(Self::boxed).map_err(errors::fib_image)
    }
}

fn number<T: Number>(given: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    let max = u64::MAX >> (64 - 8 * size_of::<T>());
    let number = whole(given, name, 0..=max)?;
    T::try_from(number).map_err(|_| errors::value(format!("{name}: more than {max}")))
}

fn two<'py, T: Element, U: Element>(
    py: Python<'py>,
    first: Output<'py, T>,
    second: Output<'py, U>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [first.done().into_any(), second.done().into_any()])
}

impl<K: Key + Number, V: Value + Number> Table for Of<K, V> {
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        out: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let keys = Input::<K>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let (mut values, mut found) = match out {
            None => (Output::<V>::new(py, keys.len())?, Output::<bool>::new(py, keys.len())?),
            Some((values, found)) => (
                Output::given(&values, "out[0]", keys.len())?,
                Output::given(&found, "out[1]", keys.len())?,
            ),
        };
        let (to, bits) = (values.slice()?, found.slice()?);
        py.detach(|| look_up(&self.reader, keys, to, bits));
        two(py, values, found)
    }

    fn insert(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = keys.py();
        let (keys, values) = pair::<K, V>((keys, "keys"), (values, "values"))?;
        let (keys, values) = (keys.slice()?, values.slice()?);
        let refused = py.detach(|| -> PyResult<_> {
            let mut writer = lock(&self.writer)?;
            for (nth, (&key, &value)) in keys.iter().zip(values).enumerate() {
                keys.get(nth + AHEAD).into_iter().for_each(|&next| writer.prefetch(next));
                if let Err(error) = writer.insert(key, value) {
                    return Ok(Some((error, nth)));
                }
            }
            Ok(None)
        })?;
        match refused {
            None => Ok(()),
            Some((error, nth)) => Err(full(py, error, nth, keys.len())),
        }
    }

    fn remove<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        let keys = Input::<K>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let to = found.slice()?;
        py.detach(|| -> PyResult<()> {
            let mut writer = lock(&self.writer)?;
            for (nth, (&key, to)) in keys.iter().zip(to).enumerate() {
                keys.get(nth + AHEAD).into_iter().for_each(|&next| writer.prefetch(next));
                *to = writer.remove(key).is_some();
            }
            Ok(())
        })?;
        Ok(found.done().into_any())
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let entries = py.detach(|| -> PyResult<Vec<(K, V)>> {
            let writer = lock(&self.writer)?;
            let mut entries = reserve(writer.len())?;
            entries.extend(writer.iter());
            Ok(entries)
        })?;
        let mut keys = Output::<K>::new(py, entries.len())?;
        let mut values = Output::<V>::new(py, entries.len())?;
        let places = keys.slice()?.iter_mut().zip(values.slice()?);
        places.zip(entries).for_each(|((key, value), entry)| (*key, *value) = entry);
        two(py, keys, values)
    }

    fn one(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        Ok(self.reader.lookup(number(key, "key")?).map(Into::into))
    }

    fn set(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key, value) = (key.py(), number(key, "key")?, number(value, "value")?);
        let inserted = py.detach(|| lock(&self.writer).map(|mut writer| writer.insert(key, value)));
        inserted?.map(drop).map_err(|error| full(py, error, 0, 1))
    }

    fn take(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let number = number(key, "key")?;
        let removed = key.py().detach(|| lock(&self.writer).map(|mut w| w.remove(number)));
        Ok(removed?.map(Into::into))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.writer).map(|mut writer| writer.clear()))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let saved = py.detach(|| lock(&self.writer).map(|writer| writer.save(path)));
        saved?.map_err(errors::fib_image)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| lock(&self.writer).map(|writer| writer.stats()))?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("inserted", stats.inserted),
            ("updated", stats.updated),
            ("removed", stats.removed),
            ("refused", stats.refused),
            ("displaced", stats.displaced),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    fn len(&self) -> usize {
        self.reader.len()
    }

    fn slots(&self) -> usize {
        self.reader.slots()
    }

    fn bytes(&self) -> usize {
        self.reader.bytes()
    }

    fn types<'py>(&self, py: Python<'py>) -> [Bound<'py, PyArrayDescr>; 2] {
        [dtype::<K>(py), dtype::<V>(py)]
    }
}

/// Looks all keys up, one pass after the other, and spreads the bits of what was found.
fn look_up<K: Key, V: Value>(
    reader: &Reader<K, V>,
    keys: &[K],
    values: &mut [V],
    found: &mut [bool],
) {
    let passes = keys.chunks(PASS).zip(values.chunks_mut(PASS)).zip(found.chunks_mut(PASS));
    for ((keys, values), found) in passes {
        let mut hits = [0u64; PASS / 64];
        reader.lookup_all(keys, values, &mut hits);
        for (found, word) in found.chunks_mut(64).zip(hits) {
            found.iter_mut().enumerate().for_each(|(bit, to)| *to = word >> bit & 1 == 1);
        }
    }
}

/// Calls a constructor of [`Of`] with the types that two dtypes name.
macro_rules! typed {
    ($types:expr, $make:ident($($argument:expr),*)) => {
        match $types.each_ref().map(|name| &**name) {
            ["uint32", "uint16"] => Of::<u32, u16>::$make($($argument),*),
            ["uint32", "uint32"] => Of::<u32, u32>::$make($($argument),*),
            ["uint32", "uint64"] => Of::<u32, u64>::$make($($argument),*),
            ["uint64", "uint16"] => Of::<u64, u16>::$make($($argument),*),
            ["uint64", "uint32"] => Of::<u64, u32>::$make($($argument),*),
            ["uint64", "uint64"] => Of::<u64, u64>::$make($($argument),*),
            [key, value] => Err(PyTypeError::new_err(format!(
                "key {key}, value {value}: a key is uint32 or uint64, a value uint16, uint32 or \
                 uint64"
            ))),
        }
    };
}

/// Returns the names of the dtypes of keys and values; uint64 unless given.
fn types(
    py: Python<'_>,
    key: Option<&Bound<'_, PyAny>>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<[String; 2]> {
    let name = |given: Option<&Bound<'_, PyAny>>| -> PyResult<String> {
        let Some(given) = given else { return Ok("uint64".to_owned()) };
        PyArrayDescr::new(py, given)?.getattr("name")?.extract()
    };
    Ok([name(key)?, name(value)?])
}

/// An exact map from whole numbers to whole numbers, after CuckooSwitch.
///
/// Lookups take no lock and never wait for a change: any number of threads may look up while
/// another one inserts.
#[pyclass(frozen, module = "overbank")]
pub struct Fib {
    table: Box<dyn Table>,
}

#[pymethods]
impl Fib {
    /// Makes a table for a number of entries, which fill it to 95 %.
    ///
    /// key is the dtype of the keys, uint32 or uint64; value that of the values, uint16, uint32 or
    /// uint64. An entry takes 9 bytes if both have 64 bits together, otherwise up to 23. A table
    /// larger than max_bytes is refused. Use a random seed if strangers choose the keys.
    #[new]
    #[pyo3(signature = (entries, *, key = None, value = None, seed = None, max_bytes = None))]
    fn new(
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let entries = whole(entries, "entries", 1..=ENTRIES_MAX)? as usize;
        let config = Config::entries(entries).seed(self::seed(seed)?);
        let max_bytes = errors::max_bytes(max_bytes)?;
        let table = typed!(types(py, key, value)?, build(py, &config, max_bytes))?;
        Ok(Fib { table })
    }

    /// Reads a table from a file that save has written. The dtypes are those that it had.
    #[staticmethod]
    #[pyo3(signature = (path, *, key = None, value = None))]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let table = typed!(types(py, key, value)?, load(py, &path))?;
        Ok(Fib { table })
    }

    /// Writes the table to a file: all of it, or the old file stays.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.table.save(py, path)
    }

    /// Looks up an array of keys; returns (values, found).
    ///
    /// values has 0 where found is False. out takes two arrays to write instead of new ones.
    #[pyo3(signature = (keys, *, out = None))]
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        out: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.table.lookup(py, keys, out)
    }

    /// Inserts keys with their values, in order; a key that is there gets the new value.
    ///
    /// Raises TableFull at the first key without room.
    fn insert(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.table.insert(keys, values)
    }

    /// Removes keys; returns which of them were there.
    fn remove<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.table.remove(keys)
    }

    /// Returns all entries as (keys, values), in no order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.table.items(py)
    }

    /// Removes all entries.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.table.clear(py)
    }

    /// Returns the value of one key, or default.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self.table.one(key)? {
            Some(value) => Some(value.into_pyobject(py)?.into_any()),
            None => default,
        })
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.table.one(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.table.set(key, value)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let gone = self.table.take(key)?.map(drop);
        gone.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.table.one(key)?.is_some())
    }

    fn __len__(&self) -> usize {
        self.table.len()
    }

    fn __bool__(&self) -> bool {
        self.table.len() > 0
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let [key, value] = self.table.types(py);
        let (len, slots) = (self.table.len(), self.table.slots());
        format!("<Fib {key} -> {value}: {len} entries in {slots} slots>")
    }

    /// Slots: more than the entries that fit.
    #[getter]
    fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Bytes of the table.
    #[getter]
    fn nbytes(&self) -> usize {
        self.table.bytes()
    }

    /// The dtype of the keys.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        let [key, _] = self.table.types(py);
        key
    }

    /// The dtype of the values.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        let [_, value] = self.table.types(py);
        value
    }

    /// Counts of changes since the table was made.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.table.stats(py)
    }
}
