//! A point beside the regular machine as a record: what `--format json` prints and the page is made
//! of. docs/sdc-json.md says what each field means.

use super::point::{Modes, Outcome};
use overbank_sdc::bits::Cost;
use serde::Serialize;

pub const SCHEMA: &str = "overbank-sdc/1";

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    pub version: &'static str,
    pub point: Outcome,
    /// The same index on the machine without SDC.
    pub regular: Option<Outcome>,
    /// Lookups a second by those of the regular machine.
    pub gain: Option<Modes>,
    /// None without SDC.
    pub bits: Option<BitsRecord>,
}

/// What SDC costs.
#[derive(Clone, Debug, Serialize)]
pub struct BitsRecord {
    /// Of a line.
    pub line: Cost,
    /// Of the whole last-level cache.
    pub extra_bytes: i64,
}
