//! `Partition` and `PartitionReplica`: which part a key belongs to, without the keys.

use std::path::PathBuf;
use std::sync::Mutex;

use overbank::memory::Pages;
use overbank::partition::{BURST_MAX, Config, Delta, KEYS_MAX, Reader, Replica, Writer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::{Input, Output, as_many};
use crate::errors::{self, lock, max_bytes, value, whole, within_memory};
use crate::hash::{Keys, seed};

/// Which of up to 256 parts a key belongs to, in 1.2 to 9 bits a key: the keys are not kept.
///
/// A key that was never inserted has an arbitrary part. This object owns the keys, to change the
/// table; replicas of it have none.
#[pyclass(frozen, module = "overbank")]
pub struct Partition {
    writer: Mutex<Writer>,
    reader: Reader,
    seed: u64,
    hashed: bool,
}

#[pymethods]
impl Partition {
    /// Builds a table of keys and their parts (an array of uint8).
    ///
    /// keys is an array of uint64, or a list of str or bytes; hashed says that the numbers are
    /// hashes already. value_bits is that of the largest part if not given, room the number of keys
    /// to plan for. A table larger than max_bytes is refused.
    #[new]
    #[pyo3(signature = (keys, parts, *, value_bits = None, room = None, packed = false,
                        hashed = false, seed = None, max_bytes = None))]
    #[allow(clippy::too_many_arguments)] // Named ones, in Python.
    fn new(
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        parts: &Bound<'_, PyAny>,
        value_bits: Option<&Bound<'_, PyAny>>,
        room: Option<&Bound<'_, PyAny>>,
        packed: bool,
        hashed: bool,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let seed = self::seed(seed)?;
        let (keys, parts) = (Keys::new(keys, seed)?, Input::<u8>::new(parts, "parts")?);
        let ((keys, hashing), parts) = (keys.parts(seed, hashed)?, parts.slice()?);
        as_many(("keys", keys.len()), ("parts", parts.len()))?;
        let most = parts.iter().copied().max().unwrap_or(0);
        let bits = value_bits
            .map_or(Ok(u64::from(u8::BITS - (most | 1).leading_zeros())), |bits| {
                whole(bits, "value_bits", 1..=8)
            })?;
        let least = keys.len().max(1) as u64;
        let room = room.map_or(Ok(least), |room| whole(room, "room", least..=KEYS_MAX as u64))?;
        // Lookups' memory: no table takes more than 1.3 bits for each bit of a value, and a choice.
        within_memory(
            u128::from(room) * u128::from(13 * bits + 2) / 80,
            self::max_bytes(max_bytes)?,
        )?;
        let config = Config::new(room as usize, bits as usize).seed(seed);
        let config = if packed { config.packed() } else { config };
        let built = py.detach(|| {
            let entries = keys.iter().map(|&key| hashing.number(key)).zip(parts.iter().copied());
            Writer::build(&config, entries)
        });
        let (writer, _) = built.map_err(errors::build)?;
        Ok(Partition { reader: writer.reader(), writer: Mutex::new(writer), seed, hashed })
    }

    /// Returns the part of each key, as an array of uint8.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        look_up(py, &self.reader, keys, self.seed, self.hashed)
    }

    /// Inserts keys with their parts, or gives them other parts. Returns the changes as bytes, for
    /// PartitionReplica.apply.
    ///
    /// Raises TableFull at the first key without room; replicas then need a new copy.
    fn insert<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        parts: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (keys, parts) = (Keys::new(keys, self.seed)?, Input::<u8>::new(parts, "parts")?);
        let ((keys, hashing), parts) = (keys.parts(self.seed, self.hashed)?, parts.slice()?);
        as_many(("keys", keys.len()), ("parts", parts.len()))?;
        let bits = self.reader.value_bits();
        if let Some(nth) = parts.iter().position(|&part| u32::from(part) >> bits != 0) {
            let text = format!("parts[{nth}] = {}: has more than {bits} bits", parts[nth]);
            return Err(value(text));
        }
        let inserted = py.detach(|| -> PyResult<_> {
            let mut writer = lock(&self.writer)?;
            let mut deltas: Vec<Delta> = Vec::new();
            for (nth, (&key, &part)) in keys.iter().zip(parts).enumerate() {
                match writer.insert(hashing.number(key), part) {
                    Ok(delta) => deltas.extend(delta),
                    Err(error) => return Ok(Err((error, nth))),
                }
            }
            // No change is no bytes.
            if deltas.is_empty() {
                return Ok(Ok(Vec::new()));
            }
            Delta::encode(&deltas).map(Ok).map_err(value)
        })?;
        match inserted {
            Ok(bytes) => Ok(PyBytes::new(py, &bytes)),
            Err((error, nth)) => Err(errors::insert(py, error, nth, keys.len())),
        }
    }

    /// Removes keys; returns which of them were there. Lookups go on to answer something for them.
    fn remove<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys = Keys::new(keys, self.seed)?;
        let (keys, hashing) = keys.parts(self.seed, self.hashed)?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let to = found.slice()?;
        py.detach(|| -> PyResult<()> {
            let mut writer = lock(&self.writer)?;
            for (&key, to) in keys.iter().zip(to) {
                *to = writer.remove(hashing.number(key)).is_some();
            }
            Ok(())
        })?;
        Ok(found.done().into_any())
    }

    /// Copies the table, without its keys.
    fn replica(&self, py: Python<'_>) -> PyResult<PartitionReplica> {
        let replica = py.detach(|| lock(&self.writer).map(|writer| writer.replica()))?;
        Ok(PartitionReplica::of(replica.map_err(errors::memory)?, self.hashed))
    }

    /// Writes the table to a file, for PartitionReplica.load and `overbank partition query`.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let saved = py.detach(|| lock(&self.writer).map(|writer| writer.save(path)));
        saved?.map_err(errors::partition_image)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| lock(&self.writer).map(|writer| writer.len()))
    }

    fn __repr__(&self) -> String {
        let (bits, bytes) = (self.reader.value_bits(), self.reader.bytes());
        format!("<Partition: values of {bits} bits, {bytes} bytes>")
    }

    /// Bytes that lookups read; the keys are not among them.
    #[getter]
    fn nbytes(&self) -> usize {
        self.reader.bytes()
    }

    /// Bits of a part's number.
    #[getter]
    fn value_bits(&self) -> usize {
        self.reader.value_bits()
    }

    /// Bits that lookups read, over the keys.
    #[getter]
    fn bits_per_key(&self, py: Python<'_>) -> PyResult<f64> {
        let keys = self.__len__(py)?;
        Ok(self.reader.bytes() as f64 * 8.0 / keys.max(1) as f64)
    }
}

/// A copy of a partition table, without its keys: it answers, and follows the changes.
#[pyclass(frozen, module = "overbank")]
pub struct PartitionReplica {
    replica: Mutex<Replica>,
    reader: Reader,
    seed: u64,
    hashed: bool,
}

impl PartitionReplica {
    fn of(replica: Replica, hashed: bool) -> Self {
        let (reader, seed) = (replica.reader(), replica.seed());
        PartitionReplica { replica: Mutex::new(replica), reader, seed, hashed }
    }
}

#[pymethods]
impl PartitionReplica {
    /// Reads a table from a file of Partition.save or `overbank partition build`.
    ///
    /// hashed says that the numbers of its keys are hashes already.
    #[staticmethod]
    #[pyo3(signature = (path, *, hashed = false))]
    fn load(py: Python<'_>, path: PathBuf, hashed: bool) -> PyResult<Self> {
        let replica = py.detach(|| Replica::load(path, None, Pages::Huge));
        Ok(Self::of(replica.map_err(errors::partition_image)?, hashed))
    }

    /// Writes the table to a file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let saved = py.detach(|| lock(&self.replica).map(|replica| replica.save(path)));
        saved?.map_err(errors::partition_image)
    }

    /// Returns the part of each key, as an array of uint8.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        look_up(py, &self.reader, keys, self.seed, self.hashed)
    }

    /// Applies the changes of Partition.insert: all of them, each once and in order.
    fn apply(&self, py: Python<'_>, changes: &Bound<'_, PyBytes>) -> PyResult<()> {
        let bytes = changes.as_bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        py.detach(|| {
            let deltas = Delta::decode(bytes).map_err(errors::changes)?;
            lock(&self.replica)?.apply_all(&deltas).map_err(errors::changes)
        })
    }

    /// Number of the last change.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| lock(&self.replica).map(|replica| replica.sequence()))
    }

    fn __repr__(&self) -> String {
        let (bits, bytes) = (self.reader.value_bits(), self.reader.bytes());
        format!("<PartitionReplica: values of {bits} bits, {bytes} bytes>")
    }

    /// Bytes that lookups read.
    #[getter]
    fn nbytes(&self) -> usize {
        self.reader.bytes()
    }

    /// Bits of a part's number.
    #[getter]
    fn value_bits(&self) -> usize {
        self.reader.value_bits()
    }
}

fn look_up<'py>(
    py: Python<'py>,
    reader: &Reader,
    keys: &Bound<'py, PyAny>,
    seed: u64,
    hashed: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let keys = Keys::new(keys, seed)?;
    let (keys, hashing) = keys.parts(seed, hashed)?;
    let mut parts = Output::<u8>::new(py, keys.len())?;
    let to = parts.slice()?;
    py.detach(|| {
        let mut hashes = [0; BURST_MAX];
        for (keys, to) in keys.chunks(BURST_MAX).zip(to.chunks_mut(BURST_MAX)) {
            reader.lookup_batch(hashing.numbers(keys, &mut hashes), to);
        }
    });
    Ok(parts.done().into_any())
}
