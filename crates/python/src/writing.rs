//! `Writing`: the guards of a write of the index, as a context manager.
//!
//! ```text
//!  __enter__: guards on, entries out ─ index ─ keep(values) ─ __exit__: values in, guards off
//! ```
//!
//! Guards borrow the table; [`Inside`] holds both. Values go in at the end and not in `keep`: what
//! the body does after it, such as a commit, may still fail.

use std::mem;
use std::sync::{Arc, Mutex};

use overbank::lookaside::{Clearing, KEPT_MAX, Writing as Guard};
use pyo3::prelude::*;
use self_cell::self_cell;

use crate::answers::{Answers, answer};
use crate::errors::{lock, reserve, value};
use crate::lookaside::Table;

/// A write of the index: see LookAside.writing.
///
/// No other writer waits for its block. If the block raises, the keys stay without entries.
#[pyclass(frozen, module = "overbank")]
pub struct Writing {
    table: Arc<Table>,
    /// Number of the caller's keys, unless it stands for any.
    count: Option<usize>,
    state: Mutex<State>,
}

enum State {
    /// Not entered. Keys in order, each with its place among the caller's; None for all keys.
    Made(Option<Vec<(u64, usize)>>),
    Inside(Inside),
    Left,
}

self_cell!(
    struct Inside {
        owner: Arc<Table>,
        #[covariant]
        dependent: Guards,
    }
);

enum Guards<'t> {
    Keys(Vec<One<'t>>),
    All { _guard: Clearing<'t, u64, u64> },
}

struct One<'t> {
    guard: Guard<'t, u64, u64>,
    /// Place among the caller's keys. None of a key that is there twice: it has no one value.
    place: Option<usize>,
    kept: Option<Option<u64>>,
}

impl Writing {
    /// More keys than fit the table, or than [`KEPT_MAX`], take everything out: guards take memory,
    /// and a bucket counts few of them.
    pub fn new(table: Arc<Table>, keys: Option<&[u64]>) -> PyResult<Self> {
        let some = keys.filter(|keys| keys.len() <= table.slots().min(KEPT_MAX));
        let some = some.map(|keys| -> PyResult<_> {
            let mut places = reserve(keys.len())?;
            places.extend(keys.iter().copied().zip(0..));
            places.sort_unstable();
            Ok(places)
        });
        let state = Mutex::new(State::Made(some.transpose()?));
        Ok(Writing { table, count: keys.map(<[u64]>::len), state })
    }

    fn enter(&self, keys: Option<Vec<(u64, usize)>>) -> PyResult<Inside> {
        Inside::try_new(self.table.clone(), |table| {
            let Some(keys) = keys else { return Ok(Guards::All { _guard: table.clearing() }) };
            let mut guards = reserve(keys.len())?;
            guards.extend(keys.chunk_by(|a, b| a.0 == b.0).map(|same| One {
                guard: table.write(same[0].0),
                place: (same.len() == 1).then_some(same[0].1),
                kept: None,
            }));
            Ok(Guards::Keys(guards))
        })
    }
}

#[pymethods]
impl Writing {
    /// Says which values the index has for the keys after the write, and which keys it has at all,
    /// all unless given. Entries that were there get them when the write is left.
    ///
    /// Of keys that share a bucket, of three entries, only the largest can get its value; the
    /// others stay without entries. So a write of few keys beside the table's slots keeps nearly
    /// all. Nothing is kept in a bucket that another writer came to meanwhile, nor of a key that is
    /// there twice, nor of more keys than fit the table, or than 65,536.
    #[pyo3(signature = (values, found = None))]
    fn keep(
        &self,
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        found: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(count) = self.count else {
            return Err(value("keep: this write has no keys; writing(keys) has"));
        };
        let answers = Answers::new(values, found, count, "keys")?;
        let (values, found) = answers.slices()?;
        py.detach(|| match &mut *lock(&self.state)? {
            State::Inside(inside) => {
                inside.with_dependent_mut(|_, guards| {
                    let Guards::Keys(guards) = guards else { return };
                    for one in guards {
                        one.kept = one.place.map(|place| answer(values, found, place));
                    }
                });
                Ok(())
            }
            State::Made(_) => Err(value("keep: the write is not entered; use it by with")),
            State::Left => Err(value("keep: the write is over")),
        })
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        slf.py().detach(|| {
            let mut state = lock(&this.state)?;
            match mem::replace(&mut *state, State::Left) {
                State::Made(keys) => *state = State::Inside(this.enter(keys)?),
                before => {
                    *state = before;
                    return Err(value("a write is entered once; writing(keys) makes another"));
                }
            }
            Ok(())
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
            match mem::replace(&mut *state, State::Left) {
                State::Inside(mut inside) => {
                    if done {
                        inside.with_dependent_mut(|_, guards| leave(guards));
                    }
                    Ok(())
                }
                before => {
                    *state = before;
                    Err(value("the write is not entered, or over"))
                }
            }
        })
    }

    fn __repr__(&self) -> String {
        match self.count {
            Some(count) => format!("<Writing: {count} keys>"),
            None => "<Writing: any keys>".to_owned(),
        }
    }
}

/// Leaves with the values that were kept: the last guard first, since a guard keeps only if none
/// came to its bucket, or left it, after it.
fn leave(guards: &mut Guards<'_>) {
    let Guards::Keys(guards) = guards else { return };
    while let Some(One { guard, kept, .. }) = guards.pop() {
        match kept {
            None => drop(guard),
            Some(None) => guard.keep_absent(),
            Some(Some(value)) => guard.keep(value),
        }
    }
}
