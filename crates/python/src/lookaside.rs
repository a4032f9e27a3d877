//! `LookAside`: copies of an index's answers in front of it.
//!
//! The index is the caller's: a database, a dict, a service. Tickets are objects of Python, so that
//! any code may run between a lookup and its fill; the guards of a write are a context manager
//! (`writing.rs`). Neither holds a lock while the index is asked or written.

use std::sync::{Arc, Mutex};

use numpy::PyArray1;
use overbank::lookaside::{BUCKETS_MAX, Config, Copies, Costs, Ticket};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{Input, Output, as_many};
use crate::errors::{self, lock, max_bytes, type_name, value, whole, within_memory};
use crate::hash::seed;
use crate::writing::Writing;

/// Keys of a list that are looked up together: there is room for their tickets first.
const LIST: usize = 1024;

pub type Table = Copies<u64, u64>;
type Numbers<'py> = Bound<'py, PyArray1<u64>>;
type Bools<'py> = Bound<'py, PyArray1<bool>>;

/// Entries and bytes of a bucket.
const BUCKET: (u64, u128) = (3, 64);

/// Copies of an index's answers in front of it, in fixed memory: whole numbers to whole numbers.
///
/// Whether an answer is cached never changes what it is, provided that every write of the index
/// happens within writing. Any number of threads may call everything at once: lookups never
/// wait, a fill only for one of the same tickets, and writing and clear for a few stores of another
/// thread or its clear.
#[pyclass(frozen, module = "overbank")]
pub struct LookAside {
    table: Arc<Table>,
}

#[pymethods]
impl LookAside {
    /// Makes an empty table for a number of entries, 21.3 bytes each.
    ///
    /// costs are nanoseconds of a hit, of what a miss adds, and of a search of the index: with them
    /// the table steps aside where it does not pay; without, it always works. A table larger than
    /// max_bytes is refused. Use a random seed if strangers choose the keys.
    #[new]
    #[pyo3(signature = (entries, *, costs = None, seed = None, max_bytes = None))]
    fn new(
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        costs: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (ways, bytes) = BUCKET;
        let entries = whole(entries, "entries", 1..=BUCKETS_MAX as u64 * ways)?;
        let config = Config::entries(entries as usize).seed(self::seed(seed)?);
        let config = match costs {
            None => config,
            Some(costs) => config.gate(Some(self::costs(costs)?)),
        };
        within_memory(u128::from(entries.div_ceil(ways)) * bytes, self::max_bytes(max_bytes)?)?;
        let table = py.detach(|| Copies::new(&config)).map_err(errors::look_aside)?;
        Ok(LookAside { table: Arc::new(table) })
    }

    /// Looks up an array of uint64; returns (values, found, tickets).
    ///
    /// found says which keys the index has, and values their values, 0 elsewhere. The keys of
    /// tickets are unknown, at tickets.places of keys; the others that are not found are known to
    /// be absent. Ask the index for tickets.keys, then fill.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<(Numbers<'py>, Bools<'py>, Tickets)> {
        let Looked { values, found, missed } = self.look_up(py, keys)?;
        Ok((values.done(), found.done(), missed.tickets(py)?))
    }

    /// Puts in what the index answered for tickets.keys after their lookup: values, and which keys
    /// were found, all unless given. Returns how many answers were put in.
    ///
    /// An answer is declined if its key may have been written meanwhile, after clear, with tickets
    /// of another table, and where entries are asked for more often. Tickets fill once.
    #[pyo3(signature = (tickets, values, found = None))]
    fn fill(
        &self,
        py: Python<'_>,
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
            Some(tickets) => Ok(self.put_in(tickets, values, found)),
        })
    }

    /// Looks up an array of uint64, asks load for the keys that are unknown, and puts its answers
    /// in; returns (values, found).
    ///
    /// load takes an array of keys and returns (values, found), as Fib.lookup does. Other threads
    /// may read and write meanwhile, and load may use the table.
    fn lookup_through<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if !load.is_callable() {
            let kind = type_name(load);
            let text = format!("load: {kind}; expected a function of an array of keys");
            return Err(PyTypeError::new_err(text));
        }
        let Looked { mut values, mut found, missed } = self.look_up(py, keys)?;
        let Missed { keys: missing, places, tickets } = missed;
        if !tickets.is_empty() {
            let mut asked = Output::<u64>::new(py, missing.len())?;
            asked.slice()?.copy_from_slice(&missing);
            let answers = load.call1((asked.fixed(),))?;
            let Ok((of, are)) = answers.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>() else {
                let kind = type_name(&answers);
                let text = format!("load returned {kind}; expected (values, found)");
                return Err(PyTypeError::new_err(text));
            };
            let answers = Answers::new(&of, Some(&are), tickets.len(), "keys of load")?;
            let (of, are) = answers.slices()?;
            let (values, found) = (values.slice()?, found.slice()?);
            py.detach(|| {
                for (nth, &place) in places.iter().enumerate() {
                    let answer = answer(of, are, nth);
                    let place = place as usize;
                    (values[place], found[place]) = (answer.unwrap_or(0), answer.is_some());
                }
                self.put_in(tickets, of, are)
            });
        }
        PyTuple::new(py, [values.done().into_any(), found.done().into_any()])
    }

    /// Returns a context manager for a write of the index at keys, an array of uint64:
    /// `with table.writing(keys) as write: …; write.keep(values)`.
    ///
    /// Takes their entries out when it is entered, and takes none in until it is left. Without
    /// keys it stands for any: a range, everything. Keep the block short: their buckets, or the
    /// table, take no answers in meanwhile.
    #[pyo3(signature = (keys = None))]
    fn writing(&self, py: Python<'_>, keys: Option<&Bound<'_, PyAny>>) -> PyResult<Writing> {
        let keys = keys.map(|keys| Input::<u64>::new(keys, "keys")).transpose()?;
        let keys = keys.as_ref().map(Input::slice).transpose()?;
        py.detach(|| Writing::new(self.table.clone(), keys))
    }

    /// Takes everything out, in the time of one bucket in 32,768, and no ticket from before fills
    /// any more. For changes of the index see writing.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.table.clear());
    }

    /// Counts of events since the table was made, in one bucket of 32.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.table.counters();
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

    /// Answered share of the lookups in one bucket of 32, 0 to 1.
    #[getter]
    fn hit_rate(&self) -> f64 {
        self.table.counters().hit_rate()
    }

    /// Whether the table works; otherwise it has stepped aside, but for one bucket of 32.
    #[getter]
    fn is_open(&self) -> bool {
        self.table.gate().is_open()
    }

    /// Why the table works or steps aside, in one line.
    #[getter]
    fn report(&self) -> String {
        self.table.gate().report().to_string()
    }

    /// Entries that fit.
    #[getter]
    fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Bytes of the table.
    #[getter]
    fn nbytes(&self) -> usize {
        self.table.bytes()
    }

    fn __repr__(&self) -> String {
        format!("<LookAside: {} slots, {} bytes>", self.table.slots(), self.table.bytes())
    }
}

impl LookAside {
    fn look_up<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Looked<'py>> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let mut values = Output::<u64>::new(py, keys.len())?;
        let mut found = Output::<bool>::new(py, keys.len())?;
        let (to, bits) = (values.slice()?, found.slice()?);
        let missed = py.detach(|| -> PyResult<Missed> {
            let mut missed = Missed::default();
            for (nth, keys) in keys.chunks(LIST).enumerate() {
                missed.room(keys.len())?;
                self.table.get_batch(keys, |at, got| {
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
    fn put_in(&self, tickets: Vec<Ticket<u64>>, values: &[u64], found: Option<&[u8]>) -> usize {
        let fill = |(nth, ticket)| self.table.fill(ticket, answer(values, found, nth));
        tickets.into_iter().enumerate().map(fill).filter(|&done| done).count()
    }
}

fn costs(given: &Bound<'_, PyAny>) -> PyResult<Costs> {
    let Ok([hit, miss, index]) = given.extract::<(f32, f32, f32)>().map(<[f32; 3]>::from) else {
        let kind = type_name(given);
        let text = format!("costs: {kind}; expected three numbers: ns of hit, miss and index");
        return Err(PyTypeError::new_err(text));
    };
    for (name, cost) in [("hit", hit), ("miss", miss), ("index", index)] {
        if !(cost.is_finite() && cost > 0.0) {
            let text =
                format!("costs: {name} {cost}: must be above 0 and finite; costs=None if unknown");
            return Err(value(text));
        }
    }
    Ok(Costs { hit, miss, index })
}

struct Looked<'py> {
    values: Output<'py, u64>,
    found: Output<'py, bool>,
    missed: Missed,
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
/// Ask the index after the lookup, for keys, in their order; LookAside.fill takes the answers.
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
