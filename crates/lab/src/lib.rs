//! Workloads, models, experiments and reports of Overbank.
//!
//! - [`workload`], [`zipf`]: which flow does the next packet belong to?
//! - [`advise`]: which flow cache for this traffic?
//! - [`traffic`]: the built-in flows, frames and rules.
//! - [`replay`]: the same traffic through the switch, once for each design.
//! - [`experiment`], [`experiments`]: the figures, tables and claims of the papers, measured.
//! - [`results`]: their records, with machine and date, as JSON.
//! - [`report`]: the pages that show all this.
//! - [`micro`]: a table alone, against the clock.
//! - [`hardware`]: caches and memory, for the choice of sizes.
//! - [`hits`]: a table alone, and what it holds.
//! - [`recommended`]: the design for traffic that is not known.
//! - [`models`]: hit rates by calculation, to compare measurements with.
//! - [`shapes`]: those for a table of any number of buckets and slots, by name, and a naive one.

pub mod advise;
pub mod experiment;
pub mod experiments;
pub mod hardware;
pub mod hits;
pub mod micro;
pub mod models;
pub mod recommended;
pub mod replay;
pub mod report;
pub mod results;
pub mod shapes;
pub mod traffic;
pub mod workload;
pub mod zipf;
