//! numpy arrays in and out: what is checked of those given, and how those returned are made.
//!
//! Nothing is converted or copied: an array of another dtype or with gaps is refused, and the error
//! says which call makes it fit.

use numpy::{
    Element, PyArray1, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1,
    PyUntypedArray, PyUntypedArrayMethods, dtype, get_array_module,
};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::type_name;

/// An array of numbers that a call reads.
pub struct Input<'py, T: Element>(PyReadonlyArray1<'py, T>);

impl<'py, T: Element> Input<'py, T> {
    pub fn new(given: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let array = checked::<T>(given, name)?;
        let busy =
            |_| PyRuntimeError::new_err(format!("{name}: another call writes to this array"));
        Ok(Input(array.try_readonly().map_err(busy)?))
    }

    pub fn slice(&self) -> PyResult<&[T]> {
        Ok(self.0.as_slice()?)
    }
}

impl<'py> Input<'py, u8> {
    /// Takes an array of bools, as numbers: a view of other bytes has more than 0 and 1.
    pub fn bools(given: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        checked::<bool>(given, name)?;
        Self::new(&given.call_method1("view", (dtype::<u8>(given.py()),))?, name)
    }
}

/// Reads two arrays of one length.
pub fn pair<'py, T: Element, U: Element>(
    (first, name): (&Bound<'py, PyAny>, &str),
    (second, other): (&Bound<'py, PyAny>, &str),
) -> PyResult<(Input<'py, T>, Input<'py, U>)> {
    let (first, second) = (Input::new(first, name)?, Input::new(second, other)?);
    as_many((name, first.0.len()), (other, second.0.len()))?;
    Ok((first, second))
}

/// Refuses two lengths that differ.
pub fn as_many((name, a): (&str, usize), (other, b): (&str, usize)) -> PyResult<()> {
    if a != b {
        let text = format!("{name} has {a} elements, {other} has {b}: expected as many");
        return Err(PyValueError::new_err(text));
    }
    Ok(())
}

/// An array that a call writes and returns: new, or the caller's.
pub struct Output<'py, T: Element> {
    array: Bound<'py, PyArray1<T>>,
    guard: PyReadwriteArray1<'py, T>,
}

impl<'py, T: Element> Output<'py, T> {
    /// Makes an array; its elements are arbitrary, bools false.
    pub fn new(py: Python<'py>, len: usize) -> PyResult<Self> {
        // Numpy's function, because it reports a lack of memory.
        let array = get_array_module(py)?.call_method1("empty", (len, dtype::<T>(py)))?;
        Self::of(array.cast_into()?, "out")
    }

    /// Takes an array of the caller's, of this length.
    pub fn given(given: &Bound<'py, PyAny>, name: &str, len: usize) -> PyResult<Self> {
        let array = checked::<T>(given, name)?;
        if array.len() != len {
            let text = format!("{name} has {} elements, expected {len}", array.len());
            return Err(PyValueError::new_err(text));
        }
        Self::of(array.clone(), name)
    }

    fn of(array: Bound<'py, PyArray1<T>>, name: &str) -> PyResult<Self> {
        let busy = |error| PyValueError::new_err(format!("{name}: cannot be written: {error}"));
        let guard = array.try_readwrite().map_err(busy)?;
        // A byte that is neither 0 nor 1 is no bool of Rust, even where it is only written.
        if array.dtype().kind() == b'b' {
            array.call_method1("fill", (false,))?;
        }
        Ok(Output { array, guard })
    }

    pub fn slice(&mut self) -> PyResult<&mut [T]> {
        Ok(self.guard.as_slice_mut()?)
    }

    /// Ends the writing.
    pub fn done(self) -> Bound<'py, PyArray1<T>> {
        self.array
    }

    /// Ends the writing for good: Python cannot write the array either.
    pub fn fixed(self) -> Bound<'py, PyArray1<T>> {
        self.guard.make_nonwriteable();
        self.array
    }
}

fn checked<'a, 'py, T: Element>(
    given: &'a Bound<'py, PyAny>,
    name: &str,
) -> PyResult<&'a Bound<'py, PyArray1<T>>> {
    let wanted = dtype::<T>(given.py());
    let Ok(array) = given.cast::<PyUntypedArray>() else {
        let kind = type_name(given);
        let text = format!("{name}: {kind}; expected a numpy array of {wanted}");
        return Err(PyTypeError::new_err(text));
    };
    let found = array.dtype();
    if !found.is_equiv_to(&wanted) {
        let text = format!(
            "{name}: dtype {found}; expected {wanted}: {name}.astype('{wanted}') converts it"
        );
        return Err(PyTypeError::new_err(text));
    }
    let fault = if array.ndim() != 1 {
        format!("{} dimensions; expected 1", array.ndim())
    } else if !array.is_contiguous() {
        format!("not contiguous; numpy.ascontiguousarray({name}) is")
    } else if !array.is_aligned() {
        format!("not aligned; {name}.copy() is")
    } else {
        return Ok(given.cast()?);
    };
    Err(PyValueError::new_err(format!("{name}: {fault}")))
}
