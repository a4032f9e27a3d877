//! What tables take in place of keys: the one place where keys of Python become hashes.
//!
//! A number is mixed with the seed of its table; text and bytes are hashed under it; a caller that
//! has good hashes passes them as they are (`hashed=True`).

use overbank::hash::Hash64;
use overbank::partition::hash_key;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::arrays::{Input, Output};
use crate::errors::{reserve, type_name, whole};

/// How the numbers of an array become hashes.
#[derive(Clone, Copy)]
pub struct Hashing {
    seed: Option<u64>,
}

impl Hashing {
    /// Of keys that are mixed with a seed, or are hashes already.
    pub fn new(seed: u64, hashed: bool) -> Self {
        Self { seed: (!hashed).then(|| mixed(seed)) }
    }

    /// Returns the hash as a number, as partitions take it.
    #[inline(always)]
    pub fn number(self, key: u64) -> u64 {
        self.seed.map_or(key, |seed| mixed(seed ^ key))
    }

    /// Returns the hash as caches take it.
    #[inline(always)]
    pub fn of(self, key: u64) -> Hash64 {
        Hash64::new(self.number(key))
    }

    /// Hashes a burst for a cache; returns as many hashes.
    #[inline(always)]
    pub fn burst<'a>(self, keys: &[u64], to: &'a mut [Hash64]) -> &'a [Hash64] {
        let to = &mut to[..keys.len()];
        to.iter_mut().zip(keys).for_each(|(to, &key)| *to = self.of(key));
        to
    }

    /// Hashes a burst for a partition.
    #[inline(always)]
    pub fn numbers<'a>(self, keys: &[u64], to: &'a mut [u64]) -> &'a [u64] {
        let to = &mut to[..keys.len()];
        to.iter_mut().zip(keys).for_each(|(to, &key)| *to = self.number(key));
        to
    }

    /// Returns the hash for a sketch, whose rows need more bits.
    #[inline(always)]
    pub fn wide(self, key: u64) -> u128 {
        let low = self.number(key);
        u128::from(low) | u128::from(mixed(!low)) << 64
    }
}

/// The hash of a number.
#[inline(always)]
fn mixed(number: u64) -> u64 {
    overbank::hash::mix(number)
}

/// The keys of a call: numbers, or hashes of text.
pub enum Keys<'py> {
    Numbers(Input<'py, u64>),
    Hashes(Vec<u64>),
}

impl<'py> Keys<'py> {
    /// Takes an array of numbers, or a list of text or bytes that is hashed with the seed.
    pub fn new(given: &Bound<'py, PyAny>, seed: u64) -> PyResult<Self> {
        match texts(given)? {
            None => Ok(Keys::Numbers(Input::new(given, "keys")?)),
            Some(texts) => Ok(Keys::Hashes(hashed(&texts, |text| hash_key(text, seed))?)),
        }
    }

    /// Returns the numbers, and how they become hashes.
    pub fn parts(&self, seed: u64, of_hashes: bool) -> PyResult<(&[u64], Hashing)> {
        Ok(match self {
            Keys::Numbers(array) => (array.slice()?, Hashing::new(seed, of_hashes)),
            Keys::Hashes(hashes) => (hashes, Hashing::new(seed, true)),
        })
    }
}

/// The keys of a sketch.
pub enum WideKeys<'py> {
    Numbers(Input<'py, u64>),
    Hashes(Vec<u128>),
}

impl<'py> WideKeys<'py> {
    pub fn new(given: &Bound<'py, PyAny>, seed: u64) -> PyResult<Self> {
        match texts(given)? {
            None => Ok(WideKeys::Numbers(Input::new(given, "keys")?)),
            Some(texts) => {
                Ok(WideKeys::Hashes(hashed(&texts, |text| xxh3_128_with_seed(text, seed))?))
            }
        }
    }

    pub fn len(&self) -> PyResult<usize> {
        Ok(match self {
            WideKeys::Numbers(array) => array.slice()?.len(),
            WideKeys::Hashes(hashes) => hashes.len(),
        })
    }
}

/// Returns the elements of a list or tuple.
fn texts<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let is_list = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
    is_list.then(|| given.try_iter()?.collect()).transpose()
}

fn hashed<T>(texts: &[Bound<'_, PyAny>], hash: impl Fn(&[u8]) -> T) -> PyResult<Vec<T>> {
    let mut hashes = reserve(texts.len())?;
    for (nth, text) in texts.iter().enumerate() {
        if let Ok(text) = text.cast::<PyString>() {
            hashes.push(hash(text.to_cow()?.as_bytes()));
        } else if let Ok(bytes) = text.cast::<PyBytes>() {
            hashes.push(hash(bytes.as_bytes()));
        } else {
            let kind = type_name(text);
            let text = format!(
                "keys[{nth}]: {kind}; expected str or bytes (numbers come in an array of uint64)"
            );
            return Err(PyTypeError::new_err(text));
        }
    }
    Ok(hashes)
}

/// Spreads numbers over all 64 bits: a bijection (the finaliser of SplitMix64).
///
/// Makes hashes of keys, and good hashes of those that are good in 32 bits only.
#[pyfunction]
pub fn mix<'py>(py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let keys = Input::<u64>::new(keys, "keys")?;
    let keys = keys.slice()?;
    let mut hashes = Output::<u64>::new(py, keys.len())?;
    let to = hashes.slice()?;
    py.detach(|| {
        to.iter_mut().zip(keys).for_each(|(to, &key)| *to = mixed(key));
    });
    Ok(hashes.done().into_any())
}

/// Hashes text or bytes with a seed (XXH3, 64 bits), as `overbank partition` does.
#[pyfunction]
#[pyo3(signature = (keys, seed = None))]
pub fn hash_bytes<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    seed: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let seed = self::seed(seed)?;
    let Some(texts) = texts(keys)? else {
        let kind = type_name(keys);
        return Err(PyTypeError::new_err(format!("keys: {kind}; expected a list of str or bytes")));
    };
    let hashes = hashed(&texts, |text| hash_key(text, seed))?;
    let mut to = Output::<u64>::new(py, hashes.len())?;
    to.slice()?.copy_from_slice(&hashes);
    Ok(to.done().into_any())
}

/// Returns a seed: any 64 bits, 0 if there is none.
pub fn seed(given: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    given.map_or(Ok(0), |seed| whole(seed, "seed", 0..=u64::MAX))
}
