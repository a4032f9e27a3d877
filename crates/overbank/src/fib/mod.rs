//! Forwarding tables.

mod config;
mod error;
mod key;
mod place;
mod reader;
mod search;
mod shape;
mod simd;
mod sync;
mod table;
mod words;
mod writer;

pub use config::{BUCKETS_MAX, Config, OCCUPANCY_PERCENT, SEARCH_MAX};
pub use error::{Error, Full};
pub use key::{Key, Key6, MacVlan, Value};
pub use reader::Reader;
pub use table::BURST_MAX;
pub use writer::{Stats, Writer};

pub use crate::cache::{HugePages, Isa, IsaError, Pages};
