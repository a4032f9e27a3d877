//! Results of a measurement: JSON for machines, tables as text and as Markdown, and a record for
//! `overbank lab report` (below `records/`).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use overbank_kit::experiment::{Check, Record, Size, Table as Figures};
use overbank_kit::machine::Machine;
use overbank_kit::results::Outcome;
use overbank_kit::spread::Spread;
use serde_json::Value;

use crate::machine;

/// Fields of a record that say where it was made; the lab stores them separately.
const CIRCUMSTANCES: [&str; 4] = ["date", "command", "cpu", "cpus"];

/// A table with the sentence above it.
pub struct Block {
    pub title: String,
    /// Column names.
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Block {
    /// Converts to a table of a record.
    fn figures(&self) -> Figures {
        let (title, headings) = (self.title.clone(), self.header.clone());
        Figures { title, headings, rows: self.rows.clone() }
    }

    fn render(&self, preset: &str) -> String {
        let mut table = Table::new();
        table.load_preset(preset).set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        let lines = table.to_string();
        lines.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// The results of a measurement.
pub struct Report<'a> {
    /// Name of the files.
    pub name: &'static str,
    /// What was measured, in one line.
    pub title: &'static str,
    /// JSON for machines.
    pub record: &'a Value,
    /// Text above the tables.
    pub intro: String,
    pub blocks: Vec<Block>,
    /// Targets.
    pub claims: Vec<Check>,
    /// Core of the measurement.
    pub core: usize,
}

impl Report<'_> {
    /// Writes `NAME.json`, `NAME.txt`, `NAME.md` and `records/peers-NAME.json` to a folder, and
    /// prints the text.
    pub fn write(self, folder: &Path) -> Result<()> {
        self.write_with(folder, |record| record)
    }

    /// Does the same; `more` adds to the record.
    pub fn write_with(self, folder: &Path, more: impl FnOnce(Record) -> Record) -> Result<()> {
        let Report { name, ref intro, .. } = self;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (mut text, mut markdown) = (format!("{intro}\n"), format!("{intro}\n"));
        for block in &self.blocks {
            text += &format!("\n{}\n{}\n", block.title, block.render(NOTHING));
            markdown += &format!("\n**{}**\n\n{}\n", block.title, block.render(ASCII_MARKDOWN));
        }
        let json = serde_json::to_string_pretty(self.record)? + "\n";
        for (kind, content) in [("json", &json), ("txt", &text), ("md", &markdown)] {
            let file = folder.join(format!("{name}.{kind}"));
            fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        println!("{text}");
        println!("recorded in {}/{name}.{{json,txt,md}}", folder.display());
        let core = self.core;
        write_record(folder, more(self.outcome()), Some(core))
    }

    /// Converts to a record of the lab.
    fn outcome(self) -> Record {
        let value = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let fields = self.record.as_object().into_iter().flatten();
        let settings = fields.filter(|(name, _)| !CIRCUMSTANCES.contains(&name.as_str()));
        Record {
            name: format!("peers-{}", self.name),
            title: self.title.to_owned(),
            source: "Target of this project".to_owned(),
            size: Size::Full,
            seed: self.record["seed"].as_u64().unwrap_or_default(),
            settings: settings.filter_map(|(n, v)| Some((n.clone(), value(v)?))).collect(),
            plots: Vec::new(),
            tables: self.blocks.iter().map(Block::figures).collect(),
            checks: self.claims,
            notes: vec![self.intro],
            seconds: 0.0,
        }
    }
}

/// Returns a target; `measured` is the median with its spread.
pub fn target(claim: String, least: f64, measured: Spread) -> Check {
    check(claim, format!("at least {least}"), measured, measured.median >= least)
}

/// As [`target`], the other way round.
pub fn limit(claim: String, most: f64, measured: Spread) -> Check {
    check(claim, format!("at most {most}"), measured, measured.median <= most)
}

fn check(claim: String, stated: String, measured: Spread, holds: bool) -> Check {
    let Spread { median, low, high } = measured;
    let measured = format!("{median:.2} ({low:.2} to {high:.2})");
    Check { claim, stated, measured, holds, reason: String::new() }
}

/// Writes a record of the lab below `records/`, for `overbank lab report`.
pub fn write_record(folder: &Path, record: Record, core: Option<usize>) -> Result<()> {
    let folder = folder.join("records");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{}.json", record.name));
    let outcome = Outcome::new(record, Machine::here(core), machine::command());
    fs::write(&file, outcome.json()).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{}: overbank lab report {}", file.display(), folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_record_of_the_lab() {
        let folder = crate::folder::Folder::new("report").expect("a folder");
        let block =
            Block { title: "t".into(), header: vec!["a".into()], rows: vec![vec!["1".into()]] };
        let spread = Spread::of([1.0, 2.0, 4.0]);
        let report = Report {
            name: "some",
            title: "title",
            record: &serde_json::json!({"date": "d", "seed": 3, "list": [1], "core": 1}),
            intro: "intro".into(),
            blocks: vec![block],
            claims: vec![target("holds".into(), 2.0, spread), target("no".into(), 2.1, spread)],
            core: 1,
        };
        report.write(folder.path()).expect("written");
        let json = fs::read_to_string(folder.path().join("records/peers-some.json"));
        let outcome = Outcome::parse(&json.expect("a record")).expect("a record of the lab");
        assert_eq!((outcome.held(), outcome.record.seed), ((1, 2), 3));
        assert_eq!(outcome.record.checks[0].measured, "2.00 (1.00 to 4.00)");
        assert_eq!(
            outcome.record.settings,
            [("core", "1"), ("seed", "3")].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(outcome.record.tables[0].rows, [["1"]]);
    }
}
