//! `Design`, and hit rates by calculation.

use numpy::PyUntypedArray;
use overbank::cache::{GeometryKind, PolicyKind};
use overbank_models::geometry::{AnyGeometry, Family};
use overbank_models::law::Law;
use overbank_models::predict::Model;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::arrays::{Input, Output};
use crate::errors::{type_name, value, whole};

/// Slots of a table that a skewed law is calculated for, at most.
const ENTRIES_MAX: u64 = 1 << 26;
/// Skew beyond which everything is one flow.
const THETA_MAX: f64 = 8.0;

/// A design of a flow cache: a geometry, and a policy of eviction.
#[pyclass(frozen, eq, hash, module = "overbank")]
#[derive(PartialEq, Eq, Hash)]
pub struct Design(pub overbank::cache::Design);

#[pymethods]
impl Design {
    /// Returns the design of a name, such as "set-8" or "blp-2-16+pblru".
    #[new]
    fn new(name: &Bound<'_, PyAny>) -> PyResult<Self> {
        design(name).map(Design)
    }

    /// Returns all designs.
    #[staticmethod]
    fn all() -> Vec<Design> {
        overbank::cache::Design::all().map(Design).collect()
    }

    /// The name.
    #[getter]
    fn name(&self) -> String {
        self.0.to_string()
    }

    /// The name of the geometry: which buckets may hold a key.
    #[getter]
    fn geometry(&self) -> &'static str {
        self.0.geometry().name()
    }

    /// The name of the policy: which entries are promoted and evicted.
    #[getter]
    fn policy(&self) -> &'static str {
        self.0.policy().name()
    }

    /// Buckets that may hold a key.
    #[getter]
    fn buckets(&self) -> u32 {
        AnyGeometry::from(self.0.geometry()).h
    }

    /// Slots of a bucket.
    #[getter]
    fn slots(&self) -> u32 {
        AnyGeometry::from(self.0.geometry()).m
    }

    fn __str__(&self) -> String {
        self.name()
    }

    fn __repr__(&self) -> String {
        format!("Design('{}')", self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.name(),)
    }
}

/// Takes a design, or its name.
pub fn design(given: &Bound<'_, PyAny>) -> PyResult<overbank::cache::Design> {
    if let Ok(design) = given.cast::<Design>() {
        return Ok(design.get().0);
    }
    let name = text(given, "design")?;
    name.parse().map_err(|error| value(format!("design {name:?}: {error}")))
}

fn text(given: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    if let Ok(design) = given.cast::<Design>() {
        return Ok(design.get().name());
    }
    let kind = || format!("{name}: {}; expected a name (str)", type_name(given));
    let text = given.cast::<PyString>().map_err(|_| PyTypeError::new_err(kind()))?;
    Ok(text.to_cow()?.into_owned())
}

/// Whose popularity the flows have.
#[derive(Clone, Copy)]
enum Of {
    Uniform(AnyGeometry),
    Zipf { kind: GeometryKind, theta: f64, entries: usize },
}

impl Of {
    fn hit_rate(self, alpha: f64) -> Result<f64, String> {
        match self {
            Of::Uniform(geometry) => geometry.hit_rate(alpha).map_err(|error| error.to_string()),
            Of::Zipf { kind, theta, entries } => {
                let AnyGeometry { h, m, .. } = kind.into();
                overbank_models::uniform::check(h, m, alpha).map_err(|error| error.to_string())?;
                let flows = (alpha * entries as f64).round();
                if !(1.0..=f64::from(u32::MAX)).contains(&flows) {
                    let max = u32::MAX;
                    return Err(format!("α = {alpha}: {flows} flows; must be between 1 and {max}"));
                }
                let law = Law::zipf(flows as u32, theta);
                let settled = Model::new(kind, entries, &law).settled();
                Ok(law.per_packet(|weight| settled.of(weight)))
            }
        }
    }
}

/// Returns the final hit rate of a geometry with random eviction, by calculation: 0 to 1.
///
/// alpha is the flows per slot: a number, or a numpy array of float64. theta is the skew of Zipf's
/// law, 0 for flows that are all as popular. Without skew, a geometry is set-M, blp-H-M or
/// cuckoo-H-M of any size (of cuckoo an upper bound); with skew, that of a design, in a table of
/// `entries` slots.
#[pyfunction]
#[pyo3(signature = (geometry, alpha, theta = 0.0, *, entries = None))]
pub fn hit_rate<'py>(
    py: Python<'py>,
    geometry: &Bound<'py, PyAny>,
    alpha: &Bound<'py, PyAny>,
    theta: f64,
    entries: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = text(geometry, "geometry")?;
    let entries = entries.map_or(Ok(1 << 20), |given| whole(given, "entries", 1..=ENTRIES_MAX))?;
    let of = of(&name, theta, entries as usize)?;
    // An array of one number is a number to Python, too.
    let is_array = alpha.is_instance_of::<PyUntypedArray>();
    if let (false, Ok(alpha)) = (is_array, alpha.extract::<f64>()) {
        let rate = py.detach(|| of.hit_rate(alpha)).map_err(value)?;
        return Ok(rate.into_pyobject(py)?.into_any());
    }
    let alphas = Input::<f64>::new(alpha, "alpha")?;
    let alphas = alphas.slice()?;
    let mut rates = Output::<f64>::new(py, alphas.len())?;
    let to = rates.slice()?;
    let done = py.detach(|| -> Result<(), String> {
        to.iter_mut().zip(alphas).try_for_each(|(to, &alpha)| {
            *to = of.hit_rate(alpha)?;
            Ok(())
        })
    });
    done.map_err(value)?;
    Ok(rates.done().into_any())
}

fn of(name: &str, theta: f64, entries: usize) -> PyResult<Of> {
    let (geometry, policy) = name.split_once('+').unwrap_or((name, PolicyKind::Random.name()));
    if policy != PolicyKind::Random.name() {
        let text = format!("geometry {name:?}: the models are of random eviction, not of {policy}");
        return Err(value(text));
    }
    if theta == 0.0 {
        return Ok(Of::Uniform(geometry.parse().map_err(value)?));
    }
    if !(0.0..=THETA_MAX).contains(&theta) {
        return Err(value(format!("theta {theta}: must be between 0 and {THETA_MAX}")));
    }
    let kind = GeometryKind::ALL.iter().find(|kind| kind.name() == geometry);
    let known: Vec<&str> = GeometryKind::ALL.iter().map(|kind| kind.name()).collect();
    let known = known.join(", ");
    let unknown = || value(format!("geometry {name:?}: with skew, one of {known}"));
    let &kind = kind.ok_or_else(unknown)?;
    let AnyGeometry { family, m, .. } = kind.into();
    let least = if family == Family::Set { m } else { 2 * m } as usize;
    if entries < least {
        return Err(value(format!("entries {entries}: {geometry} has at least {least}")));
    }
    Ok(Of::Zipf { kind, theta, entries })
}
