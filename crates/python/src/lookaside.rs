//! `LookAside`: copies of an index's answers in front of it.
//!
//! The index is the caller's: a database, a dict, a service. Lookups are in `answers.rs`, the
//! guards of a write in `writing.rs`. Neither holds a lock while the index is asked or written.

use std::sync::Arc;

use overbank::lookaside::{BUCKETS_MAX, Config, Copies, Costs};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::answers::{self, Asked, Bools, Numbers, Tickets};
use crate::arrays::Input;
use crate::errors::{self, max_bytes, type_name, value, whole, within_memory};
use crate::hash::seed;
use crate::meter::Meters;
use crate::writing::Writing;

pub type Table = Copies<u64, u64>;

/// Entries and bytes of a bucket.
const BUCKET: (u64, u128) = (3, 64);

/// Copies of an index's answers in front of it, in fixed memory: whole numbers to whole numbers.
///
/// Whether an answer is cached never changes what it is, provided that every write of the index
/// happens within writing. Any number of threads may call everything at once: lookups never
/// wait, a fill only for one of the same tickets, and writing and clear for a few stores of another
/// thread or its clear. Of a database with snapshots see Versioned.
#[pyclass(frozen, module = "overbank")]
pub struct LookAside {
    table: Arc<Table>,
    meters: Option<Meters>,
}

#[pymethods]
impl LookAside {
    /// Makes an empty table for a number of entries, 21.3 bytes each.
    ///
    /// costs are nanoseconds of a hit, of what a miss adds, and of a search of the index: with them
    /// the table steps aside where it does not pay. With measure=True lookup_through measures them:
    /// one call in 64 goes around the table. With neither it always works. A table larger than
    /// max_bytes is refused. Use a random seed if strangers choose the keys.
    #[new]
    #[pyo3(signature = (entries, *, costs = None, measure = false, seed = None, max_bytes = None))]
    fn new(
        py: Python<'_>,
        entries: &Bound<'_, PyAny>,
        costs: Option<&Bound<'_, PyAny>>,
        measure: bool,
        seed: Option<&Bound<'_, PyAny>>,
        max_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let config = config(entries, costs, measure, seed, max_bytes)?;
        let table = py.detach(|| Copies::new(&config)).map_err(errors::look_aside)?;
        Ok(LookAside { table: Arc::new(table), meters: measure.then(Meters::default) })
    }

    /// Looks up an array of uint64; returns (values, found, tickets).
    ///
    /// found says which keys the index has, and values their values, 0 elsewhere. The keys of
    /// tickets are unknown, at tickets.places of keys; the others that are not found are known to
    /// be absent. Ask the index for tickets.keys, then fill.
    fn lookup<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<(Numbers<'py>, Bools<'py>, Tickets)> {
        answers::lookup(&*self.table, keys)
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
        answers::fill(py, &*self.table, tickets, values, found)
    }

    /// Looks up an array of uint64, asks load for the keys that are unknown, and puts its answers
    /// in; returns (values, found).
    ///
    /// load takes an array of keys and returns (values, found), as Fib.lookup does. Other threads
    /// may read and write meanwhile, and load may use the table. With measure=True some calls ask
    /// load for all keys.
    fn lookup_through<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (asked, gate) = (Asked::new(keys, load)?, self.table.gate());
        Meters::measure(self.meters.as_ref(), gate, &*self.table, &asked)
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
        answers::counters(py, self.table.counters())
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

/// Checks what a table of either kind is made with.
pub fn config(
    entries: &Bound<'_, PyAny>,
    costs: Option<&Bound<'_, PyAny>>,
    measure: bool,
    seed: Option<&Bound<'_, PyAny>>,
    max_bytes: Option<&Bound<'_, PyAny>>,
) -> PyResult<Config> {
    let (ways, bytes) = BUCKET;
    let entries = whole(entries, "entries", 1..=BUCKETS_MAX as u64 * ways)?;
    let config = Config::entries(entries as usize).seed(self::seed(seed)?);
    let config = match costs.map(self::costs).transpose()? {
        None if !measure => config,
        costs => config.gate(costs),
    };
    within_memory(u128::from(entries.div_ceil(ways)) * bytes, self::max_bytes(max_bytes)?)?;
    Ok(config)
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
