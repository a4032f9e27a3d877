//! `Sketch`: which keys are hot, in fixed memory.

use std::sync::Mutex;

use overbank::sketch::{BURST_MAX, Config, Counter, Keeper, Settings};
use pyo3::prelude::*;

use crate::arrays::Output;
use crate::errors::{self, lock, whole};
use crate::hash::{Hashing, WideKeys, seed};

/// Counts keys in fixed memory (count-min) and reports each hot one once an epoch.
///
/// An estimate is never below the number of samples of the key in the epoch, up to 65535.
#[pyclass(frozen, module = "overbank")]
pub struct Sketch {
    parts: Mutex<Parts>,
    seed: u64,
}

struct Parts {
    counter: Counter,
    keeper: Keeper,
    settings: Settings,
}

#[pymethods]
impl Sketch {
    /// Makes a sketch that reports keys from `threshold` samples on.
    ///
    /// It samples one key in 2^sample_log2, and has four rows of 2^counters_log2 counters and three
    /// of 2^bloom_log2 bits. seed decides the hash of the keys, and which are sampled.
    #[new]
    #[pyo3(signature = (threshold, *, sample_log2 = None, counters_log2 = None, bloom_log2 = None,
                        seed = None))]
    fn new(
        py: Python<'_>,
        threshold: &Bound<'_, PyAny>,
        sample_log2: Option<&Bound<'_, PyAny>>,
        counters_log2: Option<&Bound<'_, PyAny>>,
        bloom_log2: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let settings =
            changed(Settings { threshold: 1, sample_log2: 0 }, Some(threshold), sample_log2)?;
        let default = Config::default();
        let log2 = |given: Option<&Bound<'_, PyAny>>, name, default, low, high| {
            given.map_or(Ok(default), |given| whole(given, name, low..=high).map(|n| n as u32))
        };
        let config = Config {
            counters_log2: log2(counters_log2, "counters_log2", default.counters_log2, 2, 16)?,
            bloom_log2: log2(bloom_log2, "bloom_log2", default.bloom_log2, 6, 18)?,
        };
        let seed = self::seed(seed)?;
        let built = py.detach(|| config.build(seed, settings));
        let (counter, keeper) = built.map_err(errors::sketch)?;
        Ok(Sketch { parts: Mutex::new(Parts { counter, keeper, settings }), seed })
    }

    /// Counts keys, in order; returns which of them became hot: report those.
    ///
    /// keys is an array of uint64, or a list of str or bytes.
    fn count<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.each(py, keys, |parts, hashes, to: &mut [bool]| {
            let hot = parts.counter.count_batch(hashes);
            to.iter_mut().enumerate().for_each(|(bit, to)| *to = hot >> bit & 1 == 1);
        })
    }

    /// Returns the samples of each key in this epoch, or more, as an array of uint16.
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.each(py, keys, |parts, hashes, to: &mut [u16]| {
            let counts = parts.keeper.live();
            to.iter_mut().zip(hashes).for_each(|(to, &hash)| *to = counts.estimate(hash));
        })
    }

    /// Returns the samples of each key in the epoch before, or more; 0 in the first epoch.
    fn finished<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.each(py, keys, |parts, hashes, to: &mut [u16]| {
            let counts = parts.keeper.finished();
            let of = |&hash| counts.as_ref().map_or(0, |counts| counts.estimate(hash));
            to.iter_mut().zip(hashes).for_each(|(to, hash)| *to = of(hash));
        })
    }

    /// Starts an epoch: counts are 0, and every key may be reported again.
    #[pyo3(signature = (*, threshold = None, sample_log2 = None))]
    fn turn(
        &self,
        py: Python<'_>,
        threshold: Option<&Bound<'_, PyAny>>,
        sample_log2: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // The check of what was given runs Python's code: not under the lock.
        let before = py.detach(|| lock(&self.parts).map(|parts| parts.settings))?;
        let settings = changed(before, threshold, sample_log2)?;
        py.detach(|| {
            let mut parts = lock(&self.parts)?;
            let Parts { counter, keeper, .. } = &mut *parts;
            counter.attend();
            keeper.turn(settings);
            counter.attend();
            parts.settings = settings;
            Ok(())
        })
    }

    /// Samples of this epoch.
    #[getter]
    fn samples(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| lock(&self.parts).map(|parts| parts.keeper.live().samples()))
    }

    /// Number of this epoch; it wraps at 65536.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u16> {
        py.detach(|| lock(&self.parts).map(|parts| parts.keeper.epoch()))
    }

    /// Samples from which a key is hot.
    #[getter]
    fn threshold(&self, py: Python<'_>) -> PyResult<u16> {
        py.detach(|| lock(&self.parts).map(|parts| parts.settings.threshold))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (threshold, samples) = (self.threshold(py)?, self.samples(py)?);
        Ok(format!("<Sketch: hot from {threshold} samples on, {samples} samples>"))
    }
}

fn changed(
    mut settings: Settings,
    threshold: Option<&Bound<'_, PyAny>>,
    sample_log2: Option<&Bound<'_, PyAny>>,
) -> PyResult<Settings> {
    if let Some(given) = threshold {
        settings.threshold = whole(given, "threshold", 1..=u64::from(u16::MAX))? as u16;
    }
    if let Some(given) = sample_log2 {
        settings.sample_log2 = whole(given, "sample_log2", 0..=32)? as u32;
    }
    Ok(settings)
}

impl Sketch {
    /// Does something with each burst of hashes and its places.
    fn each<'py, T: numpy::Element>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        mut burst: impl FnMut(&mut Parts, &[u128], &mut [T]) + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys = WideKeys::new(keys, self.seed)?;
        let mut places = Output::<T>::new(py, keys.len()?)?;
        let to = places.slice()?;
        let hashing = Hashing::new(self.seed, false);
        match &keys {
            WideKeys::Hashes(hashes) => py.detach(|| -> PyResult<()> {
                let mut parts = lock(&self.parts)?;
                let bursts = hashes.chunks(BURST_MAX).zip(to.chunks_mut(BURST_MAX));
                bursts.for_each(|(hashes, to)| burst(&mut parts, hashes, to));
                Ok(())
            })?,
            WideKeys::Numbers(numbers) => {
                let numbers = numbers.slice()?;
                py.detach(|| -> PyResult<()> {
                    let mut parts = lock(&self.parts)?;
                    let mut hashes = [0; BURST_MAX];
                    for (keys, to) in numbers.chunks(BURST_MAX).zip(to.chunks_mut(BURST_MAX)) {
                        let hashes = &mut hashes[..keys.len()];
                        let pairs = hashes.iter_mut().zip(keys);
                        pairs.for_each(|(hash, &key)| *hash = hashing.wide(key));
                        burst(&mut parts, hashes, to);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(places.done().into_any())
    }
}
