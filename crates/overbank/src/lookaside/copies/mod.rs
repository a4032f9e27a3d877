//! Keys and values side by side, one bucket a cache line: see the [module](super).

mod batch;
mod bucket;
mod live;
#[cfg(all(test, feature = "loom"))]
mod model;
mod policy;
mod table;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod ticket;
#[cfg(any(test, feature = "internals"))]
pub mod twin;
mod versioned;

pub use batch::BURST;
pub(super) use bucket::Shape;
pub use live::{Clearing, Copies, Writing};
pub use table::SAMPLE;
pub use ticket::{Found, Ticket};
pub use versioned::{At, Commit, KEPT_MAX, VERSION_MAX, Versioned};
