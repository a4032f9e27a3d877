//! The tables of Overbank for Python: the module `overbank._overbank`, which the package
//! `python/overbank` shows as `overbank`.
//!
//! ```text
//!  numpy array ─ arrays: dtype, shape, contiguous ─▶ slice ─ without the GIL ─▶ table
//!  keys ─ hash: mixed with a seed, or taken as hashes ─▶ what caches, partitions, sketches take
//! ```
//!
//! *Threads.* Each object may be used from any number of threads. A change holds the object's lock;
//! the lookups of `Fib`, `Partition` and the look-aside tables take none and go on meanwhile. No
//! lock is held while the GIL is waited for.
//!
//! *Errors.* Sizes and arguments are checked before anything is allocated for them; what is refused
//! is an exception with one line. An array that another thread writes during a call is read as it
//! comes: the answer is of no use then, and nothing worse happens.

mod answers;
mod arrays;
mod cache;
mod commit;
mod errors;
mod fib;
mod hash;
mod lookaside;
mod meter;
mod models;
mod partition;
mod sketch;
mod tree;
mod versioned;
mod writing;

use pyo3::prelude::*;

/// Tables of software data planes, on numpy arrays.
#[pymodule]
mod _overbank {
    #[pymodule_export]
    use super::answers::Tickets;
    #[pymodule_export]
    use super::cache::Cache;
    #[pymodule_export]
    use super::commit::Commit;
    #[pymodule_export]
    use super::errors::{ImageError, TableFull};
    #[pymodule_export]
    use super::fib::Fib;
    #[pymodule_export]
    use super::hash::{hash_bytes, mix};
    #[pymodule_export]
    use super::lookaside::LookAside;
    #[pymodule_export]
    use super::models::{Design, hit_rate};
    #[pymodule_export]
    use super::partition::{Partition, PartitionReplica};
    #[pymodule_export]
    use super::sketch::Sketch;
    #[pymodule_export]
    use super::tree::Tree;
    #[pymodule_export]
    use super::versioned::{Versioned, View};
    #[pymodule_export]
    use super::writing::Writing;

    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
