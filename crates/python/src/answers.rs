//! Lookups of look-aside tables, whatever their kind, and what the index answers to the rest.
//!
//! Tickets are objects of Python, so that any code may run between a lookup and its fill. No lock
//! is held while the index is asked.

use std::sync::Mutex;

use numpy::PyArray1;
use overbank::lookaside::{Copies, Counters, Found, Ticket};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{Input, Output, as_many};
use crate::errors::{self, lock, type_name, value};

/// Keys of a list that are looked up together: there is room for their tickets first.
const LIST: usize = 1024;

pub type Numbers<'py> = Bound<'py, PyArray1<u64>>;
pub type Bools<'py> = Bound<'py, PyArray1<bool>>;

/// What can be looked up and filled: a table, or a view of one.
pub trait Looks: Sync {
    fn get_batch(&self, keys: &[u64], each: impl FnMut(usize, Found<u64, u64>));
    fn fill(&self, ticket: Ticket<u64>, value: Option<u64>) -> bool;
}

impl Looks for Copies<u64, u64> {
    #[inline(always)]
    fn get_batch(&self, keys: &[u64], each: impl FnMut(usize, Found<u64, u64>)) {
        self.get_batch(keys, each);
    }

    #[inline(always)]
    fn fill(&self, ticket: Ticket<u64>, value: Option<u64>) -> bool {
        self.fill(ticket, value)
    }
}

/// Looks keys up; returns (values, found, tickets).
pub fn lookup<'py>(
    table: &impl Looks,
    keys: &Bound<'py, PyAny>,
) -> PyResult<(Numbers<'py>, Bools<'py>, Tickets)> {
    let (py, keys) = (keys.py(), Input::<u64>::new(keys, "keys")?);
    let Looked { values, found, missed } = look_up(py, table, keys.slice()?)?;
    Ok((values.done(), found.done(), missed.tickets(py)?))
}

/// Puts in what the index answered for the keys of tickets; returns how many answers were.
pub fn fill(
    py: Python<'_>,
    table: &impl Looks,
    tickets: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    found: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    let Ok(tickets) = tickets.cast::<Tickets>() else {
        let kind = type_name(tickets);
        let text = format!("tickets: {kind}; expected those of a lookup");
        return Err(PyTypeError::new_err(text));
    };
    let tickets = tickets.get();
    let answers = Answers::new(values, found, tickets.count, "tickets")?;
    let (values, found) = answers.slices()?;
    py.detach(|| match lock(&tickets.tickets)?.take() {
        None => Err(value("tickets: filled before; lookup gives new ones")),
        Some(tickets) => Ok(put_in(table, tickets, values, found)),
    })
}

/// An array of keys, and a function that asks the index for some.
pub struct Asked<'a, 'py> {
    keys: &'a Bound<'py, PyAny>,
    load: &'a Bound<'py, PyAny>,
}

impl<'a, 'py> Asked<'a, 'py> {
    pub fn new(keys: &'a Bound<'py, PyAny>, load: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if !load.is_callable() {
            let kind = type_name(load);
            let text = format!("load: {kind}; expected a function of an array of keys");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Asked { keys, load })
    }

    /// The array is not borrowed while load runs, which may write it.
    fn keys(&self) -> PyResult<Input<'py, u64>> {
        Input::new(self.keys, "keys")
    }

    pub fn count(&self) -> PyResult<usize> {
        Ok(self.keys()?.slice()?.len())
    }

    /// Looks the keys up, asks for those that the table lacks, and fills; returns (values, found).
    /// Writes to `hits` how many keys the table had, also if load fails.
    pub fn through(&self, table: &impl Looks, hits: &mut usize) -> PyResult<Bound<'py, PyTuple>> {
        let py = self.load.py();
        let (looked, count) = {
            let keys = self.keys()?;
            let keys = keys.slice()?;
            (look_up(py, table, keys)?, keys.len())
        };
        let Looked { mut values, mut found, missed } = looked;
        let Missed { keys: missing, places, tickets } = missed;
        *hits = count - missing.len();
        if !missing.is_empty() {
            let answers = self.load(copied(py, &missing)?)?;
            let (of, are) = answers.slices()?;
            let (values, found) = (values.slice()?, found.slice()?);
            py.detach(|| {
                for (nth, &place) in places.iter().enumerate() {
                    let answer = answer(of, are, nth);
                    let place = place as usize;
                    (values[place], found[place]) = (answer.unwrap_or(0), answer.is_some());
                }
                put_in(table, tickets, of, are)
            });
        }
        PyTuple::new(py, [values.done().into_any(), found.done().into_any()])
    }

    /// Asks for all keys, past the table; returns (values, found).
    pub fn around(&self) -> PyResult<Bound<'py, PyTuple>> {
        let py = self.load.py();
        let asked = copied(py, self.keys()?.slice()?)?;
        let answers = self.load(asked)?;
        let (of, are) = answers.slices()?;
        let mut values = Output::<u64>::new(py, of.len())?;
        let mut found = Output::<bool>::new(py, of.len())?;
        let (to, bits) = (values.slice()?, found.slice()?);
        py.detach(|| {
            for (nth, (value, found)) in to.iter_mut().zip(bits).enumerate() {
                let answer = answer(of, are, nth);
                (*value, *found) = (answer.unwrap_or(0), answer.is_some());
            }
        });
        PyTuple::new(py, [values.done().into_any(), found.done().into_any()])
    }

    /// Calls load with an array that it cannot write.
    fn load(&self, asked: Output<'py, u64>) -> PyResult<Answers<'py>> {
        let asked = asked.fixed();
        // It may resize the array.
        let count = asked.len()?;
        let answers = self.load.call1((&asked,))?;
        let Ok((of, are)) = answers.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>() else {
            let kind = type_name(&answers);
            let text = format!("load returned {kind}; expected (values, found)");
            return Err(PyTypeError::new_err(text));
        };
        Answers::new(&of, Some(&are), count, "keys of load")
    }
}

fn copied<'py>(py: Python<'py>, keys: &[u64]) -> PyResult<Output<'py, u64>> {
    let mut copy = Output::new(py, keys.len())?;
    copy.slice()?.copy_from_slice(keys);
    Ok(copy)
}

struct Looked<'py> {
    values: Output<'py, u64>,
    found: Output<'py, bool>,
    missed: Missed,
}

fn look_up<'py>(py: Python<'py>, table: &impl Looks, keys: &[u64]) -> PyResult<Looked<'py>> {
    let mut values = Output::<u64>::new(py, keys.len())?;
    let mut found = Output::<bool>::new(py, keys.len())?;
    let (to, bits) = (values.slice()?, found.slice()?);
    let missed = py.detach(|| -> PyResult<Missed> {
        let mut missed = Missed::default();
        for (nth, keys) in keys.chunks(LIST).enumerate() {
            missed.room(keys.len())?;
            table.get_batch(keys, |at, got| {
                let at = nth * LIST + at;
                (to[at], bits[at]) = match got.answer() {
                    Ok(value) => (value.unwrap_or(0), value.is_some()),
                    Err(ticket) => {
                        missed.push(at, ticket);
                        (0, false)
                    }
                };
            });
        }
        Ok(missed)
    })?;
    Ok(Looked { values, found, missed })
}

/// Puts answers in; returns how many.
fn put_in(
    table: &impl Looks,
    tickets: Vec<Ticket<u64>>,
    values: &[u64],
    found: Option<&[u8]>,
) -> usize {
    let fill = |(nth, ticket)| table.fill(ticket, answer(values, found, nth));
    tickets.into_iter().enumerate().map(fill).filter(|&done| done).count()
}

/// The keys that the table lacks: where they lie in the caller's array, and their tickets.
#[derive(Default)]
struct Missed {
    keys: Vec<u64>,
    places: Vec<i64>,
    tickets: Vec<Ticket<u64>>,
}

impl Missed {
    fn room(&mut self, count: usize) -> PyResult<()> {
        errors::room(&mut self.keys, count)?;
        errors::room(&mut self.places, count)?;
        errors::room(&mut self.tickets, count)
    }

    fn push(&mut self, place: usize, ticket: Ticket<u64>) {
        self.keys.push(*ticket.key());
        self.places.push(place as i64);
        self.tickets.push(ticket);
    }

    fn tickets(self, py: Python<'_>) -> PyResult<Tickets> {
        Ok(Tickets {
            count: self.tickets.len(),
            keys: PyArray1::from_vec(py, self.keys).unbind(),
            places: PyArray1::from_vec(py, self.places).unbind(),
            tickets: Mutex::new(Some(self.tickets)),
        })
    }
}

/// What an index answered: values, and which keys it has (all without a list).
pub struct Answers<'py> {
    values: Input<'py, u64>,
    found: Option<Input<'py, u8>>,
}

impl<'py> Answers<'py> {
    /// Takes arrays of as many elements as there are keys, by the name of those.
    pub fn new(
        values: &Bound<'py, PyAny>,
        found: Option<&Bound<'py, PyAny>>,
        keys: usize,
        of: &str,
    ) -> PyResult<Self> {
        let values = Input::new(values, "values")?;
        let found = found.map(|found| Input::bools(found, "found")).transpose()?;
        as_many((of, keys), ("values", values.slice()?.len()))?;
        if let Some(found) = &found {
            as_many((of, keys), ("found", found.slice()?.len()))?;
        }
        Ok(Answers { values, found })
    }

    pub fn slices(&self) -> PyResult<(&[u64], Option<&[u8]>)> {
        Ok((self.values.slice()?, self.found.as_ref().map(Input::slice).transpose()?))
    }
}

/// Returns the nth answer; `None` if the index lacks the key.
pub fn answer(values: &[u64], found: Option<&[u8]>, nth: usize) -> Option<u64> {
    found.is_none_or(|found| found[nth] != 0).then(|| values[nth])
}

/// The right to put in what the index answers for the keys that a lookup did not know.
///
/// Ask the index after the lookup, for keys, in their order; fill of the same table or view takes
/// the answers.
#[pyclass(frozen, module = "overbank")]
pub struct Tickets {
    keys: Py<PyArray1<u64>>,
    places: Py<PyArray1<i64>>,
    count: usize,
    /// None once they were used.
    tickets: Mutex<Option<Vec<Ticket<u64>>>>,
}

#[pymethods]
impl Tickets {
    /// The unknown keys, an array of uint64.
    #[getter]
    fn keys(&self, py: Python<'_>) -> Py<PyArray1<u64>> {
        self.keys.clone_ref(py)
    }

    /// Where they lie in the array of the lookup, an array of int64.
    #[getter]
    fn places(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        self.places.clone_ref(py)
    }

    fn __len__(&self) -> usize {
        self.count
    }

    fn __repr__(&self) -> String {
        format!("<Tickets: {} keys>", self.count)
    }
}

/// Returns counts of a table by their names.
pub fn counters<'py>(py: Python<'py>, counters: Counters) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in [
        ("hits", counters.hits),
        ("misses", counters.misses),
        ("fills", counters.fills),
        ("declined", counters.declined),
        ("outdone", counters.outdone),
        ("raced", counters.raced),
        ("busy", counters.busy),
    ] {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}
