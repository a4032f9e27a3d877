//! Keys and values side by side, one bucket a cache line: see the [module](super).

mod batch;
mod bucket;
mod live;
mod policy;
mod table;
mod ticket;
mod versioned;

pub use batch::BURST;
pub(super) use bucket::Shape;
pub use live::{Clearing, Copies, Writing};
pub use table::SAMPLE;
pub use ticket::{Found, Ticket};
pub use versioned::{At, Commit, KEPT_MAX, VERSION_MAX, Versioned};
