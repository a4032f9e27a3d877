//! What a measurement needs, once.
//!
//! - [`workload`], [`zipf`], [`traffic`]: which flow does the next packet belong to, and its frame;
//!   [`explosion`]: frames made to slow a switch.
//! - [`experiment`]: a figure: context, claims, record; [`results`]: records with machine and date,
//!   as JSON.
//! - [`rounds`], [`spread`]: contestants take turns; medians, ranges, paired ratios.
//! - [`machine`]: the processor, its caches and memory; pinning; [`awake`]: cores that do
//!   not sleep.
//! - [`micro`]: a table alone, against the clock; [`keyed`]: a table alone, and what it holds;
//!   [`naive`]: the same for any geometry.
//! - [`models`], [`geometry`]: hit rates by calculation, for any number of buckets and slots, by
//!   name.
//! - [`histories`]: is a recorded history of a register one that a single register could have had?
//! - [`recommended`]: the design for traffic that is not known.
//! - [`report`]: pages, curves, bars, tables.
//!
//! Nothing here knows an experiment, a product or the switch.

pub mod awake;
pub mod experiment;
pub mod explosion;
pub mod histories;
pub mod keyed;
pub mod machine;
pub mod micro;
pub mod naive;
pub mod recommended;
pub mod report;
pub mod results;
pub mod rounds;
pub mod spread;
pub mod traffic;
pub mod workload;
pub mod zipf;

pub use overbank_models::{geometry, uniform as models};
