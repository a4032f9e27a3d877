//! What a measurement leaves behind: JSON for machines, tables as text and as Markdown.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use serde_json::Value;

/// A table with the sentence above it.
pub struct Block {
    /// Heading.
    pub title: String,
    /// Column names.
    pub header: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Block {
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

/// Writes `NAME.json`, `NAME.txt` and `NAME.md` to a folder and prints the text.
pub fn write(
    folder: &Path,
    name: &str,
    record: &Value,
    intro: &str,
    blocks: &[Block],
) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (mut text, mut markdown) = (format!("{intro}\n"), format!("{intro}\n"));
    for block in blocks {
        text += &format!("\n{}\n{}\n", block.title, block.render(NOTHING));
        markdown += &format!("\n**{}**\n\n{}\n", block.title, block.render(ASCII_MARKDOWN));
    }
    let json = serde_json::to_string_pretty(record)? + "\n";
    for (kind, content) in [("json", &json), ("txt", &text), ("md", &markdown)] {
        let file = folder.join(format!("{name}.{kind}"));
        fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{text}");
    println!("recorded in {}/{name}.{{json,txt,md}}", folder.display());
    Ok(())
}
