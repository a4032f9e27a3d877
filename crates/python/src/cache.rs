//! `Cache`: a flow cache of any design.
//!
//! A cache keeps 16 bits of a key's hash, so a match is a hint. Python cannot be asked about each
//! one in time; so `lookup` takes the caller's array of entries, in which a value is an index, and
//! `process` takes keys that are the values.

use std::sync::Mutex;

use overbank::cache::{BURST, Config, DynCache, Inserted, LayoutKind, Probes};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{Input, Output, pair};
use crate::errors::{self, lock, max_bytes, reserve, value, whole, within_memory};
use crate::hash::{Hashing, seed};
use crate::models::{Design, design};

/// A flow cache: 16 bits of each key's hash, a small value, and a policy of eviction.
///
/// A match is a hint: one lookup in some thousands of an absent key finds another key's value.
/// lookup verifies each match with the caller's entries.
#[pyclass(frozen, module = "overbank")]
pub struct Cache {
    cache: Mutex<Box<dyn DynCache>>,
    seed: u64,
    /// Facts that do not change, so that no lock is needed to report them.
    design: overbank::cache::Design,
    layout: LayoutKind,
    capacity: usize,
    bytes: usize,
}

#[pymethods]
impl Cache {
    /// Makes a cache of a design, such as "blp-2-16+pblru", of at least this many slots.
    ///
    /// value_bits is 16 or 32. seed decides the hash of the keys and the policy's random numbers.
    /// A cache larger than max_bytes is refused.
    #[new]
    #[pyo3(signature = (design, entries, *, value_bits = None, seed = None, max_bytes = None))]
    fn new(
        py: Python<'_>,
        design: &Bound<'_, PyAny>,
        entries: &Bound<'_, PyAny>,
        value_bits: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let design = self::design(design)?;
        let entries = whole(entries, "entries", 1..=u64::MAX)?;
        let bits = value_bits.map_or(Ok(16), |bits| whole(bits, "value_bits", 16..=32))?;
        let (layout, slot) = match bits {
            16 => (LayoutKind::Fp16V16, 4),
            32 => (LayoutKind::Fp16V32, 6),
            _ => return Err(value(format!("value_bits {bits}: must be 16 or 32"))),
        };
        let seed = self::seed(seed)?;
        within_memory(u128::from(entries) * slot, self::max_bytes(max_bytes)?)?;
        let config = Config::entries(entries as usize).layout(layout).seed(seed);
        let cache = py.detach(|| design.build(&config)).map_err(errors::cache)?;
        let (capacity, bytes) = (cache.capacity(), cache.memory_bytes());
        Ok(Cache { cache: Mutex::new(cache), seed, design, layout, capacity, bytes })
    }

    /// Looks up keys, and verifies each match: a value is right if it is the index of the key in
    /// entries. Returns (values, found); values has 0 where found is False.
    ///
    /// keys and entries are arrays of uint64. hashed says that they are hashes of all 64 bits.
    #[pyo3(signature = (keys, entries, *, hashed = false))]
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        entries: &Bound<'py, PyAny>,
        hashed: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let entries = Input::<u64>::new(entries, "entries")?;
        let entries = entries.slice()?;
        self.look_up(py, keys, hashed, |key, value| entries.get(value as usize) == Some(&key))
    }

    /// Looks up keys and takes every match for right. Returns (values, found).
    #[pyo3(signature = (keys, *, hashed = false))]
    fn lookup_unverified<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        hashed: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.look_up(py, keys, hashed, |_, _| true)
    }

    /// Inserts keys with their values (uint32), in order; returns how many entries were evicted.
    #[pyo3(signature = (keys, values, *, hashed = false))]
    fn insert(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        hashed: bool,
    ) -> PyResult<usize> {
        let (keys, values) = pair::<u64, u32>((keys, "keys"), (values, "values"))?;
        let (keys, values) = (keys.slice()?, values.slice()?);
        self.fit("values", values)?;
        let hashing = Hashing::new(self.seed, hashed);
        py.detach(|| {
            let mut cache = lock(&self.cache)?;
            let mut evicted = 0;
            for (&key, &of) in keys.iter().zip(values) {
                let inserted = cache.insert(hashing.of(key), of).map_err(value)?;
                evicted += usize::from(matches!(inserted, Inserted::Evicted { .. }));
            }
            Ok(evicted)
        })
    }

    /// Removes the entries of keys with these values; returns which of them were there.
    #[pyo3(signature = (keys, values, *, hashed = false))]
    fn remove<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
        hashed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (keys, values) = pair::<u64, u32>((keys, "keys"), (values, "values"))?;
        let (keys, values) = (keys.slice()?, values.slice()?);
        let mut found = Output::<bool>::new(py, keys.len())?;
        let to = found.slice()?;
        let hashing = Hashing::new(self.seed, hashed);
        py.detach(|| -> PyResult<()> {
            let mut cache = lock(&self.cache)?;
            for ((&key, &value), to) in keys.iter().zip(values).zip(to) {
                *to = cache.remove(hashing.of(key), &mut |found| found == value).is_some();
            }
            Ok(())
        })?;
        Ok(found.done().into_any())
    }

    /// Looks up flows one after the other and inserts each one that misses, as a switch does.
    /// Returns which of them hit.
    ///
    /// flows is an array of uint32: numbers of flows, which are the values, too.
    fn process<'py>(
        &self,
        py: Python<'py>,
        flows: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let flows = Input::<u32>::new(flows, "flows")?;
        let flows = flows.slice()?;
        self.fit("flows", flows)?;
        let mut hits = Output::<bool>::new(py, flows.len())?;
        let to = hits.slice()?;
        let hashing = Hashing::new(self.seed, false);
        py.detach(|| -> PyResult<()> {
            let mut cache = lock(&self.cache)?;
            for (&flow, hit) in flows.iter().zip(to) {
                let hash = hashing.of(u64::from(flow));
                *hit = cache.lookup(hash, &mut |value| value == flow).is_some();
                if !*hit {
                    cache.insert(hash, flow).map_err(value)?;
                }
            }
            Ok(())
        })?;
        Ok(hits.done().into_any())
    }

    /// Returns all entries as (fingerprints, values), in no order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let entries = py.detach(|| -> PyResult<Vec<(u16, u32)>> {
            let cache = lock(&self.cache)?;
            let mut entries = reserve(cache.len())?;
            cache.for_each(&mut |fingerprint, value| entries.push((fingerprint.get(), value)));
            Ok(entries)
        })?;
        let mut fingerprints = Output::<u16>::new(py, entries.len())?;
        let mut values = Output::<u32>::new(py, entries.len())?;
        let places = fingerprints.slice()?.iter_mut().zip(values.slice()?);
        places.zip(entries).for_each(|((fp, value), entry)| (*fp, *value) = entry);
        PyTuple::new(py, [fingerprints.done().into_any(), values.done().into_any()])
    }

    /// Returns the hashes of keys, as the cache has them.
    fn hash<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut hashes = Output::<u64>::new(py, keys.len())?;
        let to = hashes.slice()?;
        let hashing = Hashing::new(self.seed, false);
        py.detach(|| to.iter_mut().zip(keys).for_each(|(to, &key)| *to = hashing.number(key)));
        Ok(hashes.done().into_any())
    }

    /// Removes all entries.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.cache).map(|mut cache| cache.clear()))
    }

    /// Sets all counters to 0.
    fn reset_counters(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.cache).map(|mut cache| cache.reset_counters()))
    }

    /// Counts of events since the cache was made, or reset_counters was called.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = py.detach(|| lock(&self.cache).map(|cache| *cache.counters()))?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("lookups", counters.lookups),
            ("hits", counters.hits),
            ("false_positives", counters.false_positives),
            ("inserts", counters.inserts),
            ("replacements", counters.replacements),
            ("evictions", counters.evictions),
            ("removals", counters.removals),
        ] {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// Hits over lookups, 0 to 1.
    #[getter]
    fn hit_rate(&self, py: Python<'_>) -> PyResult<f64> {
        py.detach(|| lock(&self.cache).map(|cache| cache.counters().hit_rate()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| lock(&self.cache).map(|cache| cache.len()))
    }

    fn __repr__(&self) -> String {
        format!("<Cache {}: {} slots, {} bytes>", self.design, self.capacity, self.bytes)
    }

    /// The design.
    #[getter]
    fn design(&self) -> Design {
        Design(self.design)
    }

    /// Slots that can be occupied.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the table.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    /// Bits of a value.
    #[getter]
    fn value_bits(&self) -> u32 {
        u32::BITS - self.layout.value_max().leading_zeros()
    }
}

impl Cache {
    /// Refuses values that the slots cannot hold, before any is inserted.
    fn fit(&self, name: &str, values: &[u32]) -> PyResult<()> {
        let max = self.layout.value_max();
        match values.iter().position(|&value| value > max) {
            None => Ok(()),
            Some(nth) => Err(value(format!(
                "{name}[{nth}] = {}: more than {max}; a cache with value_bits=32 holds it",
                values[nth]
            ))),
        }
    }

    /// Looks up burst by burst, each while the lines of the next one are fetched.
    fn look_up<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        hashed: bool,
        verify: impl Fn(u64, u32) -> bool + Sync,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut values = Output::<u32>::new(py, keys.len())?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let (to, bits) = (values.slice()?, found.slice()?);
        let hashing = Hashing::new(self.seed, hashed);
        py.detach(|| -> PyResult<()> {
            let mut cache = lock(&self.cache)?;
            let mut probes = Probes::new();
            let mut buffers = [[hashing.of(0); BURST]; 2];
            let [now, ahead] = &mut buffers;
            let (mut now, mut ahead) = (now, ahead);
            let mut bursts =
                keys.chunks(BURST).zip(to.chunks_mut(BURST)).zip(bits.chunks_mut(BURST));
            let mut upcoming = keys.chunks(BURST);
            hashing.burst(upcoming.next().unwrap_or_default(), now);
            for ((keys, values), found) in &mut bursts {
                let next = hashing.burst(upcoming.next().unwrap_or_default(), ahead);
                let hashes = &now[..keys.len()];
                cache.probe_batch_ahead(hashes, next, &mut probes);
                values.fill(0);
                let hits = probes.resolve(&**cache, hashes, |i, value| {
                    let right = verify(keys[i], value);
                    values[i] = if right { value } else { 0 };
                    right
                });
                cache.commit(hashes, &hits);
                let hit = hits.found();
                found.iter_mut().enumerate().for_each(|(i, to)| *to = hit.contains(i));
                std::mem::swap(&mut now, &mut ahead);
            }
            Ok(())
        })?;
        PyTuple::new(py, [values.done().into_any(), found.done().into_any()])
    }
}
