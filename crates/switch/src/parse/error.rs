//! Errors in a file of rules, with their places.
//!
//! A [`RuleError`] holds its line, its column and an excerpt of the source. It prints as one line
//! (`rules.txt:3:17: expected …, found …`), or with the source and a caret below it. Excerpts and
//! quoted words contain no control characters, whatever the file holds.
//!
//! Limits: [`ERRORS_KEPT_MAX`] errors are kept and the rest are counted. An excerpt has at most
//! 120 characters, a quoted word at most 40.

use std::borrow::Cow;
use std::fmt;

/// Errors of one file that are kept; the others are only counted.
pub const ERRORS_KEPT_MAX: usize = 100;

/// Characters of the source shown on each side of an error.
const EXCERPT_SIDE_CHARS: usize = 60;
/// Bytes of the longest wrong name for which another one is suggested.
const NAME_MAX: usize = 24;
/// Characters of a wrong word that are quoted.
const QUOTE_CHARS_MAX: usize = 40;

/// What is wrong at one place of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleErrorKind {
    #[error("expected {expected}, found {found}")]
    Expected { expected: Cow<'static, str>, found: String },
    /// A word of the match is no known field, protocol or keyword.
    #[error(
        "expected a field, a protocol, `table`, `priority`, `cookie` or `actions`, \
         found {found}{}",
        hint(suggestion)
    )]
    UnknownField {
        found: String,
        /// A known name that is spelt like it.
        suggestion: Option<&'static str>,
    },
    /// `set_field` names an unknown field.
    #[error("expected the name of a field, found {found}{}", hint(suggestion))]
    UnknownTarget {
        found: String,
        /// A known name that is spelt like it.
        suggestion: Option<&'static str>,
    },
    #[error("expected one of {known}, found {found}{}", hint(suggestion))]
    UnknownAction {
        found: String,
        /// List of every action.
        known: &'static str,
        /// A known name that is spelt like it.
        suggestion: Option<&'static str>,
    },
    /// Open vSwitch supports it; this switch, or its replay, does not.
    #[error("{found} is not supported here, only in Open vSwitch: expected {expected}")]
    NotHere { found: String, expected: &'static str },
    /// The match does not ensure that packets have the field.
    #[error("`{field}` needs {needs}: add it to the rule")]
    MissingPrereq {
        field: &'static str,
        /// What to add to the rule.
        needs: &'static str,
    },
    #[error("expected {name} once, found it twice (first at column {first_column})")]
    Duplicate { name: String, first_column: u32 },
    /// No packet can satisfy both parts of the match.
    #[error("expected a match that agrees with `{other}` at column {other_column}, found {found}")]
    Contradiction { found: String, other: String, other_column: u32 },
    /// The field takes no mask.
    #[error("expected a value of `{field}` without a mask, found {found}")]
    NotMaskable { field: &'static str, found: String },
    /// `set_field` names a field that no action may change.
    #[error("expected a field that can be set, found `{field}`, which is read-only")]
    ReadOnly { field: &'static str },
    #[error("expected `actions=`, found the end of the rule")]
    MissingActions,
    /// `drop` stands beside another action.
    #[error("expected `drop` alone, found it beside other actions")]
    DropNotAlone,
    /// `goto_table` is not the last instruction.
    #[error("expected the end of the rule after `goto_table`, found {found}")]
    AfterGoto { found: String },
    /// `goto_table` names this table or an earlier one.
    #[error("expected a table after {from}, found {table}")]
    GotoBackwards { from: u8, table: u8 },
    #[error("expected at most {max} bytes in a line, found {found}")]
    LineTooLong { max: usize, found: usize },
    #[error("expected at most {max} actions in a rule, found more")]
    TooManyActions { max: usize },
    /// The file has too many rules; the rest was not read.
    #[error("expected at most {max} rules, found more")]
    TooManyRules { max: usize },
}

fn hint(suggestion: &Option<&'static str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// An error at a byte offset of the current line.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: usize,
    pub kind: RuleErrorKind,
}

impl Fault {
    pub fn new(at: usize, kind: RuleErrorKind) -> Fault {
        Fault { at, kind }
    }

    pub fn expected(at: usize, expected: impl Into<Cow<'static, str>>, found: &str) -> Fault {
        Fault::new(at, RuleErrorKind::Expected { expected: expected.into(), found: quote(found) })
    }
}

/// Returns `text` in backquotes, shortened and without control characters; `nothing` if empty.
pub(super) fn quote(text: &str) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    let mut out = String::from("`");
    out.extend(text.chars().take(QUOTE_CHARS_MAX).map(printable));
    out.push_str(if text.chars().nth(QUOTE_CHARS_MAX).is_some() { "…`" } else { "`" });
    out
}

fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        // Bidirectional overrides and other invisible marks would move the caret's target.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        c => c,
    }
}

/// Returns the name in `known` that is closest to `name`, if one is close.
pub(super) fn nearest<'a>(
    name: &str,
    known: impl Iterator<Item = &'static str> + 'a,
) -> Option<&'static str> {
    let name = name.as_bytes();
    if !(3..=NAME_MAX).contains(&name.len()) {
        return None;
    }
    let edits_max = if name.len() < 6 { 1 } else { 2 };
    known
        // The difference in length is a lower bound of the edits.
        .filter(|word| word.len().abs_diff(name.len()) <= edits_max)
        .map(|word| (edits(name, word.as_bytes()), word))
        .filter(|&(distance, _)| distance <= edits_max)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, word)| word)
}

/// Returns Levenshtein's distance, one row at a time; `b` is at most [`NAME_MAX`] + 2 bytes long.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: [usize; NAME_MAX + 3] = std::array::from_fn(|i| i);
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// One error with its place. Displays as `line:column: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1; one past the end if the line ends too early.
    pub column: u32,
    pub kind: RuleErrorKind,
    excerpt: String,
    caret: usize,
}

impl RuleError {
    fn new(line_no: u32, line: &str, fault: Fault) -> RuleError {
        let before = line.get(..fault.at).unwrap_or(line).chars().count();
        let skipped = before.saturating_sub(EXCERPT_SIDE_CHARS);
        let excerpt = line
            .chars()
            .skip(skipped)
            .take(before - skipped + EXCERPT_SIDE_CHARS)
            .map(printable)
            .collect::<String>();
        RuleError {
            line: line_no,
            column: u32::try_from(before + 1).unwrap_or(u32::MAX),
            kind: fault.kind,
            excerpt: excerpt.trim_end().to_owned(),
            caret: before - skipped,
        }
    }

    /// Prints one line, `file:line:column: message`.
    pub fn in_file(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| write!(f, "{file}:{}:{}: {}", self.line, self.column, self.kind))
    }

    /// Prints the line of [`in_file`](Self::in_file), then the source with a caret below the place.
    pub fn with_source(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| {
            writeln!(f, "{}", self.in_file(&file))?;
            let gutter = self.line.to_string();
            writeln!(f, "  {gutter} | {}", self.excerpt)?;
            write!(f, "  {:1$} | {2:3$}^", "", gutter.len(), "", self.caret)
        })
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.kind)
    }
}

impl std::error::Error for RuleError {}

/// Every error of a file, in the order of the file. Never empty when returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleErrors {
    kept: Vec<RuleError>,
    dropped: usize,
}

impl RuleErrors {
    /// Returns the first [`ERRORS_KEPT_MAX`] errors.
    pub fn kept(&self) -> &[RuleError] {
        &self.kept
    }

    /// Returns the number of errors, kept or not.
    pub fn total(&self) -> usize {
        self.kept.len() + self.dropped
    }

    pub(super) fn push(&mut self, line_no: u32, line: &str, fault: Fault) {
        if self.kept.len() < ERRORS_KEPT_MAX {
            self.kept.push(RuleError::new(line_no, line, fault));
        } else {
            self.dropped += 1;
        }
    }

    /// Sorts the kept errors from `first` on, which are all of one line, by column.
    pub(super) fn sort_line(&mut self, first: usize) {
        self.kept[first..].sort_by_key(|error| error.column);
    }

    /// Prints one line per error, `file:line:column: message`.
    pub fn in_file(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| self.list(f, |error| error.in_file(&file).to_string()))
    }

    /// Prints every error with its source line and a caret.
    pub fn with_source(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| self.list(f, |error| error.with_source(&file).to_string()))
    }

    fn list(&self, f: &mut fmt::Formatter<'_>, show: impl Fn(&RuleError) -> String) -> fmt::Result {
        for (i, error) in self.kept.iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            write!(f, "{end}{}", show(error))?;
        }
        match self.dropped {
            0 => Ok(()),
            1 => write!(f, "\nand 1 more error"),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl fmt::Display for RuleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list(f, |error| error.to_string())
    }
}

impl std::error::Error for RuleErrors {}
