//! Look-aside tables ([`overbank::lookaside`]) in front of indexes and databases.
//!
//! A table answers what was asked before, and the index answers the rest. Each adapter owns its
//! index, so that nothing in the process writes past the table, and follows one of two rules:
//!
//! - *Live* ([`Aside`]: `BTreeMap` and `HashMap` behind a lock, `SkipMap`, congee). A miss takes a
//!   ticket before the index is read, and a writer holds a guard around its change. A ticket from
//!   before the guard, or under it, fills nothing.
//! - *Snapshot* (`redb`, `heed`). A commit takes its keys out under its number before the database
//!   commits. A reader uses only entries that hold for its snapshot.
//!
//! Each adapter is a feature; without features there is [`live`] alone, for indexes of others.
//!
//! *Guarantees.* Reads through an adapter are what reads of the index alone could have been: after
//! a write returned, none sees what was before. Dropping every entry at any moment changes no
//! answer. A panic in a closure of the caller, an abort and a commit that fails leave the table
//! right. Source: Ni et al., *SDC: A Software Defined Cache for Efficient Data Indexing*, ICS 2019,
//! for the idea; how entries stay valid is ours (docs/look-aside.md).

#[cfg(feature = "congee")]
pub mod congee;
#[cfg(feature = "heed")]
pub mod heed;
pub mod live;
#[cfg(any(feature = "btreemap", feature = "hashmap"))]
pub mod locked;
mod look;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "skipmap")]
pub mod skipmap;
#[cfg(any(feature = "redb", feature = "heed"))]
mod snapshot;
pub mod timer;

pub use live::{Aside, Index, Update};
pub use look::Watched;
pub use overbank::lookaside;
pub use timer::{Source, Timer};
