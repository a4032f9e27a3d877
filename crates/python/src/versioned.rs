//! `Versioned`: copies in front of a database with snapshots and numbered commits, and `View`: the
//! table as of one snapshot. The writer's side is `commit.rs`.
//!
//! A view borrows the table; [`Seen`] holds both.

use std::sync::Arc;

use overbank::lookaside::{At, Found, Ticket};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use self_cell::self_cell;

use crate::answers::{self, Asked, Bools, Looks, Numbers, Tickets};
use crate::commit::Commit;
use crate::errors::{self, whole};
use crate::lookaside::config;
use crate::meter::Meters;

type Table = overbank::lookaside::Versioned<u64, u64>;

/// Copies of a database's answers in front of it, in fixed memory: whole numbers to whole numbers.
///
/// The database has one writer at a time, whose commits have increasing numbers, and readers that
/// each see a snapshot, such as LMDB. A view answers what its snapshot has, whether or not an
/// answer is cached, provided that every transaction that writes names its changes in a commit.
/// Numbers that follow one another are best: a gap takes everything out.
///
/// Any number of threads may call everything at once. Lookups never wait, a fill only for one of
/// the same tickets, the rest for a few stores of another thread or its clear.
#[pyclass(frozen, module = "overbank")]
pub struct Versioned {
    shared: Arc<Shared>,
}

/// What a table and its views have in common.
pub struct Shared {
    pub table: Table,
    meters: Option<Meters>,
}

#[pymethods]
impl Versioned {
    /// Makes an empty table for a number of entries, 21.3 bytes each: before the first commit of
    /// the database or after any. The arguments are those of LookAside.
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
        let table = py.detach(|| Table::new(&config)).map_err(errors::look_aside)?;
        let meters = measure.then(Meters::default);
        Ok(Versioned { shared: Arc::new(Shared { table, meters }) })
    }

    /// Returns the table as of a snapshot: version is the number of its newest commit, or a lower
    /// one that was published before the transaction began.
    ///
    /// A number above published is that of a commit that did not pass by this table (another
    /// process): everything is taken out, and the number counts as published. With the number of a
    /// commit that is open, or one of more than 48 bits, the view answers nothing and takes
    /// nothing in. Ask with numbers of the database alone.
    ///
    /// Fill with what a transaction of this number read, or of a lower one. Where other processes
    /// write, an answer of a newer one may be newer than the view says, and would be given to
    /// readers of older snapshots.
    fn at(&self, py: Python<'_>, version: &Bound<'_, PyAny>) -> PyResult<View> {
        let version = number(version)?;
        Ok(py.detach(|| View::new(&self.shared, |table| table.at(version))))
    }

    /// Returns the table as of the newest published commit, for reads without a transaction.
    ///
    /// For keys that it lacks, begin a transaction and fill through this view: then the other
    /// answers may be of an older commit than these. Where commits may pass by the table (another
    /// process), use at: with the newest number of the database for what the table has, and for the
    /// keys that it lacks again with the transaction's number.
    fn latest(&self) -> View {
        View::new(&self.shared, Table::latest)
    }

    /// Returns a context manager for a transaction that writes, around its own block:
    /// `with table.commit() as commit, env.begin(write=True) as txn: commit.begin(txn.id()); …`.
    /// It publishes when the block ends, after the database has committed.
    ///
    /// With version it begins at once, as the commit of the transaction that is about to get this
    /// number. All numbers below count as published then. A commit that is still open was aborted,
    /// and ends: begin the next one after its block.
    ///
    /// Raises ValueError if the number is not above published, or has more than 48 bits: then the
    /// database numbers anew, or a wrong number came before, and this table cannot hear of the
    /// change. Make another table.
    #[pyo3(signature = (version = None))]
    fn commit(&self, py: Python<'_>, version: Option<&Bound<'_, PyAny>>) -> PyResult<Commit> {
        let commit = Commit::new(self.shared.clone());
        if let Some(version) = version.map(number).transpose()? {
            py.detach(|| commit.open(version))?;
        }
        Ok(commit)
    }

    /// Number of the newest published commit, 0 before the first. A reader that takes it before it
    /// begins its transaction may use it for its snapshot.
    #[getter]
    fn published(&self) -> u64 {
        self.shared.table.published()
    }

    /// Takes everything out, in the time of one bucket in 32,768; views from before answer nothing
    /// any more. For changes by a transaction see Commit.clear.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.shared.table.clear());
    }

    /// Counts of events since the table was made, in one bucket of 32.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        answers::counters(py, self.shared.table.counters())
    }

    /// Answered share of the lookups in one bucket of 32, 0 to 1.
    #[getter]
    fn hit_rate(&self) -> f64 {
        self.shared.table.counters().hit_rate()
    }

    /// Whether the table works; otherwise it has stepped aside, but for one bucket of 32.
    #[getter]
    fn is_open(&self) -> bool {
        self.shared.table.gate().is_open()
    }

    /// Why the table works or steps aside, in one line.
    #[getter]
    fn report(&self) -> String {
        self.shared.table.gate().report().to_string()
    }

    /// Entries that fit.
    #[getter]
    fn slots(&self) -> usize {
        self.shared.table.slots()
    }

    /// Bytes of the table.
    #[getter]
    fn nbytes(&self) -> usize {
        self.shared.table.bytes()
    }

    fn __repr__(&self) -> String {
        let table = &self.shared.table;
        let (slots, bytes, published) = (table.slots(), table.bytes(), table.published());
        format!("<Versioned: {slots} slots, {bytes} bytes, commit {published}>")
    }
}

pub fn number(version: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole(version, "version", 0..=u64::MAX)
}

type Snapshot<'t> = At<'t, u64, u64>;

self_cell!(
    struct Seen {
        owner: Arc<Shared>,
        #[covariant]
        dependent: Snapshot,
    }
);

/// A look-aside table as of one snapshot: see Versioned.at and Versioned.latest.
///
/// Any number of threads look up and fill through it. After a clear of the table it answers nothing
/// any more.
#[pyclass(frozen, module = "overbank")]
pub struct View {
    seen: Seen,
}

impl View {
    fn new(shared: &Arc<Shared>, look: impl FnOnce(&Table) -> Snapshot<'_>) -> Self {
        View { seen: Seen::new(shared.clone(), |shared| look(&shared.table)) }
    }
}

impl Looks for Snapshot<'_> {
    #[inline(always)]
    fn get_batch(&self, keys: &[u64], each: impl FnMut(usize, Found<u64, u64>)) {
        self.get_batch(keys, each);
    }

    #[inline(always)]
    fn fill(&self, ticket: Ticket<u64>, value: Option<u64>) -> bool {
        self.fill(ticket, value)
    }
}

#[pymethods]
impl View {
    /// Looks up an array of uint64; returns (values, found, tickets), as LookAside.lookup. Ask the
    /// snapshot for tickets.keys, then fill.
    fn lookup<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<(Numbers<'py>, Bools<'py>, Tickets)> {
        answers::lookup(self.seen.borrow_dependent(), keys)
    }

    /// Puts in what the snapshot has for tickets.keys: values, and which keys were found, all
    /// unless given. Returns how many answers were put in.
    ///
    /// An answer is declined if a later commit changed a key of its bucket, after a clear, with
    /// tickets of another table or snapshot, and where entries are asked for more often. Tickets
    /// fill once.
    #[pyo3(signature = (tickets, values, found = None))]
    fn fill(
        &self,
        py: Python<'_>,
        tickets: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        found: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        answers::fill(py, self.seen.borrow_dependent(), tickets, values, found)
    }

    /// Looks up an array of uint64, asks load for the keys that are unknown, and puts its answers
    /// in; returns (values, found).
    ///
    /// load takes an array of keys and returns (values, found) of the snapshot.
    fn lookup_through<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        load: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let Shared { table, meters } = &**self.seen.borrow_owner();
        let (asked, view) = (Asked::new(keys, load)?, self.seen.borrow_dependent());
        Meters::measure(meters.as_ref(), table.gate(), view, &asked)
    }

    /// Number of the snapshot, or 0 for a view that answers nothing.
    #[getter]
    fn version(&self) -> u64 {
        self.seen.borrow_dependent().version()
    }

    fn __repr__(&self) -> String {
        format!("<View: commit {}>", self.version())
    }
}
