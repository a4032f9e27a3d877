//! What is wrong with a file of rules, and where.
//!
//! A [`RuleError`] knows its line, its column and an excerpt of the source, so that it can be shown
//! as one line (`rules.txt:3:17: expected …, found …`) or with the source and a caret below it.
//! Excerpts and quoted words carry no control characters, whatever the file holds.
//!
//! Limits: [`ERRORS_KEPT_MAX`] errors are kept and the rest are counted; an excerpt is at most
//! 120 characters long, a quoted word at most 40.

use std::borrow::Cow;
use std::fmt;

/// How many errors of one file are kept; the others are counted.
pub const ERRORS_KEPT_MAX: usize = 100;

/// How many characters of the source are shown on each side of an error.
const EXCERPT_SIDE_CHARS: usize = 60;
/// How many characters of a wrong word are quoted.
const QUOTE_CHARS_MAX: usize = 40;

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What should stand here.
        expected: Cow<'static, str>,
        /// What does.
        found: String,
    },
    /// A match names no field, protocol or keyword that exists.
    #[error(
        "expected a field, a protocol, `table`, `priority`, `cookie` or `actions`, \
         found {found}{}",
        hint(suggestion)
    )]
    UnknownField {
        /// The name.
        found: String,
        /// A name that looks like it.
        suggestion: Option<&'static str>,
    },
    /// `set_field` names no field that exists.
    #[error("expected the name of a field, found {found}{}", hint(suggestion))]
    UnknownTarget {
        /// The name.
        found: String,
        /// A name that looks like it.
        suggestion: Option<&'static str>,
    },
    /// An action that does not exist.
    #[error("expected one of {known}, found {found}{}", hint(suggestion))]
    UnknownAction {
        /// The name.
        found: String,
        /// Every action there is.
        known: &'static str,
        /// A name that looks like it.
        suggestion: Option<&'static str>,
    },
    /// Open vSwitch has it, this switch does not.
    #[error("{found} is part of Open vSwitch but not of this switch: expected {expected}")]
    NotHere {
        /// The name.
        found: String,
        /// What can stand here.
        expected: &'static str,
    },
    /// The rule does not say that its packets have the field.
    #[error("`{field}` needs {needs}: expected that in the rule, found none")]
    MissingPrereq {
        /// The field.
        field: &'static str,
        /// What has to be added.
        needs: &'static str,
    },
    /// The same name twice.
    #[error("expected `{name}` once, found it again (first at column {first_column})")]
    Duplicate {
        /// The name.
        name: String,
        /// Where it stood first.
        first_column: u32,
    },
    /// Two parts of a match that no packet can satisfy together.
    #[error("expected agreement with `{other}` at column {other_column}, found {found}")]
    Contradiction {
        /// The later part.
        found: String,
        /// The earlier part.
        other: String,
        /// Where the earlier part stands.
        other_column: u32,
    },
    /// A mask on a field that has to be given whole.
    #[error("expected a value of `{field}` without a mask, found {found}")]
    NotMaskable {
        /// The field.
        field: &'static str,
        /// The mask.
        found: String,
    },
    /// `set_field` on a field that no action may change.
    #[error("expected a field that can be set, found `{field}`, which is read-only")]
    ReadOnly {
        /// The field.
        field: &'static str,
    },
    /// A rule without actions.
    #[error("expected `actions=`, found the end of the rule")]
    MissingActions,
    /// `drop` beside another action.
    #[error("expected `drop` alone, found it beside other actions")]
    DropNotAlone,
    /// Something after `goto_table`.
    #[error("expected the end of the rule after `goto_table`, found {found}")]
    AfterGoto {
        /// The next action.
        found: String,
    },
    /// `goto_table` to this table or an earlier one.
    #[error("expected a table after {from}, found {table}")]
    GotoBackwards {
        /// The rule's table.
        from: u8,
        /// The wanted table.
        table: u8,
    },
    /// A line that is too long to be a rule.
    #[error("expected at most {max} bytes in a line, found {found}")]
    LineTooLong {
        /// The limit.
        max: usize,
        /// The length.
        found: usize,
    },
    /// Too many actions in a rule.
    #[error("expected at most {max} actions in a rule, found more")]
    TooManyActions {
        /// The limit.
        max: usize,
    },
    /// Too many rules in a file. Nothing after it was read.
    #[error("expected at most {max} rules, found more")]
    TooManyRules {
        /// The limit.
        max: usize,
    },
}

fn hint(suggestion: &Option<&'static str>) -> String {
    suggestion.map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// A kind of error at a byte offset of the line that is being read.
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

/// `text` in backquotes, without control characters and not too long; `nothing` if it is empty.
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

/// The name of `known` that is nearest to `name`, if one is near.
pub(super) fn nearest<'a>(
    name: &str,
    known: impl Iterator<Item = &'static str> + 'a,
) -> Option<&'static str> {
    let name = name.as_bytes();
    if !(3..=24).contains(&name.len()) {
        return None;
    }
    let edits_max = if name.len() < 6 { 1 } else { 2 };
    known
        // No fewer edits than the lengths differ by.
        .filter(|word| word.len().abs_diff(name.len()) <= edits_max)
        .map(|word| (edits(name, word.as_bytes()), word))
        .filter(|&(distance, _)| distance <= edits_max)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, word)| word)
}

/// Levenshtein's distance, one row at a time.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
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

/// One error, with its place. `Display` is `line:column: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1; one past the last character if the line ends too
    /// early.
    pub column: u32,
    /// What is wrong.
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

    /// `file:line:column: message`, one line.
    pub fn in_file(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| write!(f, "{file}:{}:{}: {}", self.line, self.column, self.kind))
    }

    /// As [`in_file`](Self::in_file), then the source line with a caret below the place.
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

/// Every error of a file, in the order of the file. Never empty when it is returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleErrors {
    kept: Vec<RuleError>,
    dropped: usize,
}

impl RuleErrors {
    /// The first [`ERRORS_KEPT_MAX`] errors.
    pub fn kept(&self) -> &[RuleError] {
        &self.kept
    }

    /// How many errors there are in all.
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

    /// Puts the errors from the `first`th kept one on, all of one line, in the order of the line.
    pub(super) fn sort_line(&mut self, first: usize) {
        self.kept[first..].sort_by_key(|error| error.column);
    }

    /// One line per error, `file:line:column: message`.
    pub fn in_file(&self, file: &str) -> impl fmt::Display {
        let file = file.to_owned();
        fmt::from_fn(move |f| self.list(f, |error| error.in_file(&file).to_string()))
    }

    /// Every error with its source line and a caret.
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
