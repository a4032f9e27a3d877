//! The comparison as a record: what `--format json` prints and the page is made of.
//! docs/aside-json.md says what each field means.

use super::mix::Mix;
use overbank_kit::machine::Machine;
use overbank_kit::report::count;
use overbank_kit::spread::Spread;
use serde::Serialize;
use std::fmt;

pub const SCHEMA: &str = "overbank-aside/1";

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    pub version: &'static str,
    pub machine: Machine,
    pub input: Input,
    /// Keys of an index at first.
    pub keys: usize,
    pub settings: Settings,
    pub interrupted: bool,
    pub indexes: Vec<IndexRecord>,
    pub recommendation: Recommendation,
}

/// Where the operations are from.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Input {
    File {
        file: String,
        lookups: usize,
    },
    /// Keys of a database that was there; drawn, or those of a file.
    Database {
        file: String,
        table: String,
        theta: Option<f64>,
        lookups: Option<usize>,
    },
    BuiltIn {
        mix: Mix,
        keys: u32,
        theta: f64,
    },
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::File { file, lookups } => {
                write!(f, "{file}, {} lookups", count(*lookups as u64))
            }
            Input::BuiltIn { mix, keys, theta } => {
                let keys = count(u64::from(*keys));
                write!(f, "YCSB {mix:?} ({}) over {keys} keys, {}", mix.what(), skew(*theta))
            }
            Input::Database { file, table, theta, lookups } => {
                write!(f, "{file}, table {}", table.escape_debug())?;
                theta.map_or(Ok(()), |theta| write!(f, ", {}", skew(theta)))?;
                let lookups = lookups.map(|lookups| count(lookups as u64));
                lookups.map_or(Ok(()), |lookups| write!(f, ", {lookups} lookups"))
            }
        }
    }
}

fn skew(theta: f64) -> String {
    if theta == 0.0 { "uniform".to_owned() } else { format!("Zipf θ = {theta}") }
}

#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    pub rounds: u32,
    pub operations: usize,
    pub burst: usize,
    pub seed: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct IndexRecord {
    pub index: &'static str,
    pub what: &'static str,
    pub bytes: u64,
    /// Of all rounds, with whichever table.
    pub alone_ns: Spread,
    pub tables: Vec<TableRecord>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TableRecord {
    pub entries: usize,
    pub slots: usize,
    pub bytes: usize,
    /// Rounds that were run.
    pub rounds: u32,
    /// Of the index alone, in these rounds.
    pub alone_ns: Spread,
    pub ns: Spread,
    /// Times faster than alone, round by round.
    pub gain: Spread,
    pub burst_ns: Option<Spread>,
    pub burst_gain: Option<Spread>,
    /// `None` if lookups went around the table, or there were none.
    pub hit_rate: Option<f64>,
    pub optimum: Option<f64>,
    /// Rounds at whose end the gate was open.
    pub open_rounds: u32,
    /// The gate's report in the round with the median time.
    pub gate: String,
}

impl TableRecord {
    /// Says in which of the rounds the gate was open.
    pub fn gate_state(&self) -> String {
        match self.open_rounds {
            0 => "closed".to_owned(),
            open if open == self.rounds => "open".to_owned(),
            open => format!("open in {open} of {}", self.rounds),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The index that gains most; none if a table pays for none of them.
    pub index: Option<&'static str>,
    pub entries: Option<usize>,
    pub reason: String,
}
