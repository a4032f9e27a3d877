//! `Commit`: what a transaction changes, as a context manager.
//!
//! ```text
//!  begin(version) ─ change(keys, values): entries out ─ the database commits ─ __exit__: values in
//! ```
//!
//! A commit borrows the table; [`Open`] holds both. Values go in at the end and not in `change`:
//! the database may still fail to commit.

use std::sync::{Arc, Mutex, OnceLock};

use overbank::lookaside::Commit as Changes;
use pyo3::prelude::*;
use self_cell::self_cell;

use crate::answers::{Answers, answer};
use crate::arrays::Input;
use crate::errors::{lock, value};
use crate::versioned::{Shared, number};

/// What a transaction changes: see Versioned.commit.
///
/// Begin it with the transaction's number, name each change before the database commits, and leave
/// the block after it has: then readers of the number get answers. If the block raises, the
/// transaction is taken to be aborted, and its number may come again. So is one that has named no
/// change, since LMDB uses the number of a transaction without changes again; publish says that the
/// database has committed nonetheless.
#[pyclass(frozen, module = "overbank")]
pub struct Commit {
    shared: Arc<Shared>,
    version: OnceLock<u64>,
    state: Mutex<State>,
}

enum State {
    /// It has no number yet.
    Made,
    Open {
        open: Open,
        /// Whether a change was named.
        changed: bool,
    },
    Published,
    Aborted,
}

/// None once it was published.
type Changing<'t> = Option<Changes<'t, u64, u64>>;

self_cell!(
    struct Open {
        owner: Arc<Shared>,
        #[covariant]
        dependent: Changing,
    }
);

impl Commit {
    pub fn new(shared: Arc<Shared>) -> Self {
        Commit { shared, version: OnceLock::new(), state: Mutex::new(State::Made) }
    }

    /// Opens it, as the commit of this number.
    pub fn open(&self, version: u64) -> PyResult<()> {
        let mut state = lock(&self.state)?;
        let State::Made = *state else { return Err(state.refused()) };
        let shared = self.shared.clone();
        let open = Open::try_new(shared, |shared| shared.table.commit(version).map(Some));
        let open = open.map_err(value)?;
        *state = State::Open { open, changed: false };
        _ = self.version.set(version);
        Ok(())
    }

    /// Runs `change` on the open commit.
    fn with(&self, any: bool, change: impl FnOnce(&mut Changes<'_, u64, u64>)) -> PyResult<()> {
        match &mut *lock(&self.state)? {
            State::Open { open, changed } => {
                *changed |= any;
                open.with_dependent_mut(|_, changing| changing.as_mut().map(change));
                Ok(())
            }
            over => Err(over.refused()),
        }
    }

    /// Ends the open commit.
    fn end(&self, publishes: bool) -> PyResult<()> {
        let mut state = lock(&self.state)?;
        match &*state {
            State::Open { .. } => state.end(publishes),
            over => return Err(over.refused()),
        }
        Ok(())
    }
}

impl State {
    fn end(&mut self, publishes: bool) {
        if let (State::Open { open, .. }, true) = (&mut *self, publishes) {
            open.with_dependent_mut(|_, changing| changing.take().map(Changes::publish));
        }
        // Drops the commit, which is aborted unless it was published.
        *self = if publishes { State::Published } else { State::Aborted };
    }

    fn refused(&self) -> PyErr {
        match self {
            State::Made => value("the commit has no number yet; begin(version) first"),
            State::Open { .. } => value("the commit has begun; it has one number"),
            State::Published => value("the commit was published; the table's commit() is another"),
            State::Aborted => value("the commit was aborted; the table's commit() is another"),
        }
    }
}

#[pymethods]
impl Commit {
    /// Begins the commit of the transaction that is about to get this number, before any change.
    /// Raises ValueError if the number is out of order: see Versioned.commit.
    fn begin(&self, py: Python<'_>, version: &Bound<'_, PyAny>) -> PyResult<()> {
        let version = number(version)?;
        py.detach(|| self.open(version))
    }

    /// Says that the transaction gives keys these values, and which keys it has at all afterwards,
    /// all unless given: the others are removed. Of a key that is named twice the last counts.
    ///
    /// Keys that the table had, up to 65,536, have their values there once published; the others
    /// stay without entries until a reader fills them in.
    #[pyo3(signature = (keys, values, found = None))]
    fn change(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        found: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        let answers = Answers::new(values, found, keys.len(), "keys")?;
        let (values, found) = answers.slices()?;
        py.detach(|| {
            self.with(!keys.is_empty(), |commit| {
                for (nth, &key) in keys.iter().enumerate() {
                    commit.change(key, answer(values, found, nth));
                }
            })
        })
    }

    /// Says that the transaction changes keys, to values that the caller does not know.
    fn touch(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Input::<u64>::new(keys, "keys")?;
        let keys = keys.slice()?;
        py.detach(|| {
            self.with(!keys.is_empty(), |commit| keys.iter().for_each(|&key| commit.touch(key)))
        })
    }

    /// Says that the transaction changes any number of keys: a range, a drop, a restore. Takes
    /// everything out; no view from before has answers any more.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(true, |commit| commit.clear()))
    }

    /// Ends the commit after the database has committed, as leaving the block does if a change was
    /// named. Needed without a block, and where several tables share a transaction.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end(true))
    }

    /// Ends the commit of a transaction that did not commit, or changed nothing. Its number may
    /// come again; the keys that were named stay without entries.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.end(false))
    }

    /// Number of the commit, None before begin.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.version.get().copied()
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        slf.py().detach(|| match &*lock(&this.state)? {
            State::Made | State::Open { .. } => Ok(()),
            over => Err(over.refused()),
        })?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // Python shows their names.
        let _ = (error, trace);
        let done = kind.is_none();
        py.detach(|| {
            let mut state = lock(&self.state)?;
            match *state {
                State::Made => {
                    state.end(false);
                    if done {
                        return Err(value(
                            "the block ended without begin(version): if the database has \
                             committed, call clear() of the table",
                        ));
                    }
                }
                State::Open { changed, .. } => state.end(changed && done),
                // It was ended within the block.
                State::Published | State::Aborted => {}
            }
            Ok(())
        })
    }

    fn __repr__(&self) -> String {
        self.version.get().map_or_else(|| "<Commit>".to_owned(), |n| format!("<Commit: {n}>"))
    }
}
