//! The advice as a record: what `--format json` prints. docs/kv-advise-json.md says what each field
//! means.

use super::frames::Packets;
use super::streams::StreamCounts;
use serde::Serialize;

/// Name and version of the document.
pub const SCHEMA: &str = "overbank-kv-advise/1";

#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    pub schema: &'static str,
    pub version: &'static str,
    pub inputs: Vec<Input>,
    pub interrupted: bool,
    pub commands: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub peak_per_second: u64,
    pub clients: u64,
    pub classes: Vec<Class>,
    pub closing: u64,
    pub script_calls: u64,
    pub keys: Keys,
    pub hot: Vec<Hot>,
    pub skew: Option<Skew>,
    pub sizes: Vec<Size>,
    pub recommendation: Recommendation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Monitor,
    Capture,
}

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct Input {
    pub file: String,
    pub kind: Kind,
    pub commands: u64,
    pub seconds: f64,
    pub lines: u64,
    pub bad_lines: u64,
    pub cut_lines: u64,
    pub first_bad: Option<BadLine>,
    pub packets: Option<Packets>,
    pub streams: Option<StreamCounts>,
    /// Why it was not read to its end.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    pub line: u64,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Class {
    pub class: &'static str,
    pub commands: u64,
    pub share: f64,
    pub per_second: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Keys {
    pub distinct: u64,
    pub accesses: u64,
    pub exact: bool,
    pub missed: u64,
    pub names_hashed: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Hot {
    pub key: String,
    pub cut: usize,
    pub accesses: u64,
    pub share: f64,
    pub per_second: f64,
    pub reads: u64,
    pub other_reads: u64,
    pub writes: u64,
    pub missed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Skew {
    pub theta: f64,
    pub keys: f64,
    pub collision: f64,
    pub error: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Size {
    pub entries: usize,
    pub hits: u64,
    pub read_share: f64,
    pub fills: u64,
    pub promoted: u64,
    pub evicted: u64,
    pub saved: i64,
    pub command_share: f64,
}

impl Size {
    /// Returns what a size does, of reads that a cache could answer and of all commands.
    pub fn of(
        entries: usize,
        hits: u64,
        fills: u64,
        (promoted, evicted): (u64, u64),
        (reads, commands): (u64, u64),
    ) -> Size {
        let saved = hits as i64 - fills as i64;
        Size {
            entries,
            hits,
            read_share: hits as f64 / reads.max(1) as f64,
            fills,
            promoted,
            evicted,
            saved,
            command_share: saved as f64 / commands.max(1) as f64,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Worth,
    NotWorth,
    NotNeeded,
    TooShort,
}

#[derive(Clone, Debug, Serialize)]
pub struct Recommendation {
    pub verdict: Verdict,
    pub entries: Option<usize>,
    pub reason: String,
}
