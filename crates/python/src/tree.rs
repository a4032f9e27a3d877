//! `Tree`: an ordered map of bounded size, with hints of where keys were found last.
//!
//! Lookups move hints, so all calls on one tree take turns. An iterator takes the lock once for
//! some keys, and goes on behind the last of them whatever was changed meanwhile.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Mutex;

use numpy::PyArray1;
use overbank::lookaside::{self, Hints};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{Input, Output, pair};
use crate::errors::{self, full, lock, max_bytes, room, whole, within_memory};
use crate::hash::seed;

type Map = lookaside::Tree<u64, u64>;
type Key = std::ops::Bound<u64>;

/// Most entries of a tree.
const CAPACITY_MAX: u64 = 1 << 31;
/// Bytes of an entry, inner nodes included, and of a hint.
const BYTES: (u128, u128) = (35, 6);
/// Keys of one pass: their answers stay in the first-level cache.
const PASS: usize = 1024;

/// An ordered map from whole numbers to whole numbers, in fixed memory: a B+ tree.
///
/// Hints remember where keys were found last; one that is right saves the walk down the tree.
#[pyclass(frozen, module = "overbank")]
pub struct Tree {
    tree: Mutex<Map>,
    /// Facts that do not change, so that no lock is needed to report them.
    capacity: usize,
    bytes: usize,
}

#[pymethods]
impl Tree {
    /// Makes a tree of this many entries at most, about 35 bytes each, and of at least this many
    /// hints, 6 bytes each; none unless given.
    ///
    /// Hints pay where some keys are asked for more often than others: 3 for 10 entries is a
    /// start. seed is that of their hashes. A tree larger than max_bytes is refused.
    #[new]
    #[pyo3(signature = (capacity, *, hints = None, seed = None, max_bytes = None))]
    fn new(
        py: Python<'_>,
        capacity: &Bound<'_, PyAny>,
        hints: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let capacity = whole(capacity, "capacity", 1..=CAPACITY_MAX)?;
        let hints = hints.map_or(Ok(0), |hints| whole(hints, "hints", 0..=u64::MAX))?;
        let bytes = u128::from(capacity) * BYTES.0 + u128::from(hints) * BYTES.1;
        let seed = self::seed(seed)?;
        within_memory(bytes, self::max_bytes(max_bytes)?)?;
        let hints = (hints > 0).then(|| Hints::entries(hints as usize).seed(seed));
        let tree = py.detach(|| Map::with_capacity(capacity as usize, hints));
        let tree = tree.map_err(errors::tree)?;
        let bytes = tree.memory_bytes() + tree.hints().map_or(0, Hints::memory_bytes);
        Ok(Tree { capacity: tree.capacity(), bytes, tree: Mutex::new(tree) })
    }

    /// Looks up an array of uint64; returns (values, found). values has 0 where found is False.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut values = Output::<u64>::new(py, keys.len())?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let (to, bits) = (values.slice()?, found.slice()?);
        py.detach(|| -> PyResult<()> {
            let mut tree = lock(&self.tree)?;
            let mut pass = [None; PASS];
            let passes = keys.chunks(PASS).zip(to.chunks_mut(PASS)).zip(bits.chunks_mut(PASS));
            for ((keys, values), found) in passes {
                tree.get_batch(keys, &mut pass);
                for ((value, found), got) in values.iter_mut().zip(found).zip(pass) {
                    (*value, *found) = (got.unwrap_or(0), got.is_some());
                }
            }
            Ok(())
        })?;
        PyTuple::new(py, [values.done().into_any(), found.done().into_any()])
    }

    /// Inserts keys with their values (uint64), in order; a key that is there gets the new value.
    ///
    /// Raises TableFull at the first key without room.
    fn insert(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = keys.py();
        let (keys, values) = pair::<u64, u64>((keys, "keys"), (values, "values"))?;
        let (keys, values) = (keys.slice()?, values.slice()?);
        let refused = py.detach(|| -> PyResult<_> {
            let mut tree = lock(&self.tree)?;
            let mut entries = keys.iter().zip(values).enumerate();
            Ok(entries.find_map(|(nth, (&key, &value))| {
                tree.insert(key, value).err().map(|error| (error, nth))
            }))
        })?;
        match refused {
            None => Ok(()),
            Some((error, nth)) => Err(full(py, error, nth, keys.len())),
        }
    }

    /// Removes keys; returns which of them were there.
    fn remove<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let to = found.slice()?;
        py.detach(|| -> PyResult<()> {
            let mut tree = lock(&self.tree)?;
            to.iter_mut().zip(keys).for_each(|(to, key)| *to = tree.remove(key).is_some());
            Ok(())
        })?;
        Ok(found.done().into_any())
    }

    /// Returns the entries from start on and before stop, in the order of their keys, as (keys,
    /// values): the first `limit` of them, all without a limit.
    #[pyo3(signature = (start = None, stop = None, *, limit = None))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let bound = |given: Option<&Bound<'py, PyAny>>, name| {
            given.map(|given| whole(given, name, 0..=u64::MAX)).transpose()
        };
        let start = bound(start, "start")?.map_or(Unbounded, Included);
        let stop = bound(stop, "stop")?.map_or(Unbounded, Excluded);
        let limit = bound(limit, "limit")?.unwrap_or(u64::MAX) as usize;
        let (keys, values) = py.detach(|| -> PyResult<_> {
            let tree = lock(&self.tree)?;
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, value) in tree.range((start, stop)).take(limit) {
                room(&mut keys, 1)?;
                room(&mut values, 1)?;
                keys.push(key);
                values.push(value);
            }
            Ok((keys, values))
        })?;
        PyTuple::new(py, [keys, values].map(|numbers| PyArray1::from_vec(py, numbers)))
    }

    /// Removes all entries; hints that are left cost a look each.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.tree).map(|mut tree| tree.clear()))
    }

    /// Returns the value of one key, or default.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self.one(key)? {
            Some(value) => Some(value.into_pyobject(key.py())?.into_any()),
            None => default,
        })
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.one(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key, value) = (key.py(), number(key, "key")?, number(value, "value")?);
        let inserted = py.detach(|| lock(&self.tree).map(|mut tree| tree.insert(key, value)));
        inserted?.map(drop).map_err(|error| full(py, error, 0, 1))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = number(key, "key")?;
        let gone = key.py().detach(|| lock(&self.tree).map(|mut tree| tree.remove(&number)))?;
        gone.map(drop).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.one(key)?.is_some())
    }

    /// Iterates over the keys in order. What is changed meanwhile is seen if it lies ahead.
    fn __iter__(slf: Bound<'_, Self>) -> TreeKeys {
        TreeKeys { tree: slf.unbind(), ahead: Mutex::new((Vec::new(), Some(Unbounded))) }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| lock(&self.tree).map(|tree| tree.len()))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.__len__(py)? > 0)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let len = self.__len__(py)?;
        Ok(format!("<Tree: {len} entries of {}, {} bytes>", self.capacity, self.bytes))
    }

    /// Entries that fit, always.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the tree and its hints.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    /// Counts of lookups and of hints, all 0 without hints: hits are keys that lay where their hint
    /// said, false_positives are hints that were wrong.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = py.detach(|| {
            lock(&self.tree).map(|tree| tree.hints().map(|h| *h.counters()).unwrap_or_default())
        })?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("lookups", counters.lookups),
            ("hits", counters.hits),
            ("false_positives", counters.false_positives),
            ("inserts", counters.inserts),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }
}

fn number(given: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    whole(given, name, 0..=u64::MAX)
}

impl Tree {
    fn one(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let number = number(key, "key")?;
        key.py().detach(|| lock(&self.tree).map(|mut tree| tree.get(&number)))
    }
}

/// The keys of a tree, in order.
#[pyclass(frozen, module = "overbank")]
pub struct TreeKeys {
    tree: Py<Tree>,
    /// Keys of a pass that are left, the next one last; and where the next pass begins, unless this
    /// was the last.
    ahead: Mutex<(Vec<u64>, Option<Key>)>,
}

#[pymethods]
impl TreeKeys {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let tree = self.tree.get();
        py.detach(|| {
            let (keys, next) = &mut *lock(&self.ahead)?;
            if let (true, Some(start)) = (keys.is_empty(), *next) {
                room(keys, PASS)?;
                let tree = lock(&tree.tree)?;
                keys.extend(tree.range((start, Unbounded)).take(PASS).map(|(key, _)| key));
                *next = keys.last().map(|&last| Excluded(last));
                keys.reverse();
            }
            Ok(keys.pop())
        })
    }
}
