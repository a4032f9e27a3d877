//! `cargo xtask test words`: phrases that stop a reader, and comments past column 100.
//!
//! Looks at every line of the Rust sources and of the documents for people. A phrase counts as a
//! whole word, in capitals or not, and not where “a source is quoted”.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;
use crate::steps::Counts;

/// A phrase and what to say instead.
const PHRASES: &[(&str, &str)] = &[
    ("so many", "the number: capped at N, up to N"),
    ("nobody", "the subject: no caller, no reader"),
    ("that there is", "existing, configured, available"),
    ("that there are", "existing, configured, available"),
    ("is told", "reports, receives, is notified"),
    ("are told", "report, receive, are notified"),
    ("goes by", "uses, follows"),
    ("go by", "use, follow"),
    ("not to be had", "unavailable"),
    ("is through", "finished, done"),
    ("of its own", "separate, its"),
    ("of their own", "separate, their"),
    ("such and such", "what it is"),
    ("a thread broke", "a thread panicked"),
    ("thread of the switch broke", "a worker thread panicked"),
    ("who", "the subject: a caller that, users that"),
    ("whoever", "the subject: a caller that, every reader that"),
];

/// Columns of a comment.
const COLUMNS_MAX: usize = 100;
/// This file names the phrases.
const THIS: &str = "xtask/src/words.rs";

/// Fails with a line for each place.
pub fn run() -> Result<Counts> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(["*.rs", "*.md", "packaging/*", "xtask/*.toml"])
        .current_dir(root())
        .output()
        .context("git ls-files")?;
    let names = String::from_utf8(output.stdout).context("git ls-files")?;
    let mut wrong = Vec::new();
    for name in names.lines().filter(|name| *name != THIS) {
        // Deleted, and not yet committed.
        let Ok(text) = fs::read_to_string(root().join(name)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            wrong.extend(problems(line).into_iter().map(|what| format!("{name}:{number}: {what}")));
        }
    }
    if wrong.is_empty() {
        return Ok(Counts::default());
    }
    bail!("{} lines to write anew (WORDS)\n{}", wrong.len(), wrong.join("\n"))
}

/// Returns the problem of a line.
fn problems(line: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let columns = line.chars().count();
    if columns > COLUMNS_MAX && line.trim_start().starts_with("//") {
        problems.push(format!("{columns} columns; a comment has at most {COLUMNS_MAX}"));
    }
    let said = unquoted(&line.to_lowercase());
    for (phrase, instead) in PHRASES {
        if contains_words(&said, phrase) {
            problems.push(format!("`{phrase}`; say {instead}"));
        }
    }
    problems
}

/// Removes what stands between “ and ”.
fn unquoted(line: &str) -> String {
    let mut depth = 0u32;
    let keep = |c: &char| {
        depth += u32::from(*c == '“');
        let quoted = depth > 0;
        depth -= u32::from(*c == '”' && depth > 0);
        !quoted
    };
    line.chars().filter(keep).collect()
}

/// Whether `line` has `phrase` with no letter, digit or underscore before or after it.
fn contains_words(line: &str, phrase: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        !line[..at].ends_with(part_of_word) && !line[at + phrase.len()..].starts_with(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_count_as_whole_words_outside_quotations() {
        assert_eq!(problems("/// Who asks waits; nobody else does.").len(), 2);
        assert_eq!(problems("/// The whole of it; anybody; who_asks.").len(), 0);
        assert_eq!(problems("// The paper says: “nobody knows so many”.").len(), 0);
    }

    #[test]
    fn comments_end_at_column_100() {
        let text = "x".repeat(97);
        assert_eq!(problems(&format!("// {text}")).len(), 0);
        assert_eq!(problems(&format!("    //! {text}")).len(), 1);
        assert_eq!(problems(&format!("let text = \"{text}\";")).len(), 0, "rustfmt sees to code");
    }
}
