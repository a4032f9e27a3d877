//! Reads settings from a TOML file and flags, as texts with their locations.

use super::check::{Check, Problem};
use super::{Section, Setting};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Cap of a configuration file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// In a file.
    Line {
        file: Arc<str>,
        /// From 1.
        line: usize,
        /// Setting, where there is one.
        name: String,
    },
    /// A whole file.
    File(Arc<str>),
    /// A flag.
    Flag(String),
    /// Missing setting.
    Missing(&'static str),
    /// The problem's text includes the location.
    InText,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Line { file, line, name } if name.is_empty() => write!(f, "{file}:{line}"),
            Location::Line { file, line, name } => write!(f, "{file}:{line}: {name}"),
            Location::File(file) => f.write_str(file),
            Location::Flag(name) => write!(f, "--{name}"),
            Location::Missing(name) => f.write_str(name),
            Location::InText => Ok(()),
        }
    }
}

/// A text and its location.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) text: String,
    pub(super) location: Location,
}

/// Reads a whole file of at most `max` bytes, called `in_words` in the error. Counts bytes as they
/// arrive: devices and pipes report no length.
///
/// # Errors
/// Fails if the file cannot be read or is longer.
pub fn read_at_most(path: &Path, max: u64, in_words: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("longer than {in_words}")));
    }
    Ok(bytes)
}

/// Settings as written, not yet checked.
#[derive(Clone, Debug)]
pub struct Source {
    known: Vec<&'static Setting>,
    items: BTreeMap<&'static str, Vec<Item>>,
    problems: Vec<Problem>,
    /// A file could not be read, so missing settings are unknown.
    unreadable: bool,
}

impl Source {
    /// Returns an empty source of the settings of `sections`.
    pub fn new(sections: &[Section]) -> Source {
        Source {
            known: sections.iter().flat_map(|section| section.settings).collect(),
            items: BTreeMap::new(),
            problems: Vec::new(),
            unreadable: false,
        }
    }

    /// Takes the values of a flag, which replace those of the file. An empty list is no flag.
    pub fn flag<T: ToString>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        let location = Location::Flag(name.to_owned());
        let items: Vec<Item> = values
            .into_iter()
            .map(|value| Item { text: value.to_string(), location: location.clone() })
            .collect();
        match self.name(name) {
            _ if items.is_empty() => {}
            Some(name) => drop(self.items.insert(name, items)),
            None => self.unknown(location),
        }
    }

    /// Returns the first value of a setting as written.
    pub fn first(&self, name: &str) -> Option<&str> {
        Some(&self.items.get(name)?.first()?.text)
    }

    /// Reads a file; the check reports its problems.
    pub fn file(&mut self, path: &Path) {
        let name: Arc<str> = path.display().to_string().into();
        match read_at_most(path, FILE_BYTES_MAX, "1 MiB").map(String::from_utf8) {
            Ok(Ok(text)) => self.text(&name, &text),
            Ok(Err(_)) => self.unreadable(name, "not UTF-8 text; must be TOML".to_owned()),
            Err(error) => self.unreadable(name, format!("cannot be read: {error}")),
        }
    }

    fn unreadable(&mut self, name: Arc<str>, what: String) {
        self.problem(Location::File(name), what);
        self.unreadable = true;
    }

    fn problem(&mut self, location: Location, what: impl Into<String>) {
        self.problems.push(Problem { location, what: what.into() });
    }

    /// Returns the static name of a setting.
    fn name(&self, name: &str) -> Option<&'static str> {
        self.known.iter().map(|setting| setting.name).find(|known| *known == name)
    }

    fn unknown(&mut self, location: Location) {
        let names: Vec<&str> = self.known.iter().map(|setting| setting.name).collect();
        self.problem(location, format!("unknown setting; known: {}", names.join(", ")));
    }

    /// Reads the text of a file called `file`.
    pub fn text(&mut self, file: &Arc<str>, text: &str) {
        let line_of =
            |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let line = |at, name: &str| Location::Line {
            file: file.clone(),
            line: line_of(at),
            name: name.to_owned(),
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // Further errors of a malformed file are guesswork; one error a line is enough.
            let mut lines = BTreeSet::new();
            for error in errors {
                let location = line(error.span().map_or(0, |span| span.start), "");
                if lines.insert(location.clone()) {
                    let what = format!("not TOML: {}", error.message().replace('\n', ", "));
                    self.problem(location, what);
                }
            }
            self.unreadable = true;
            return;
        }
        for (key, value) in table.into_inner() {
            let name = key.get_ref();
            let Some(known) = self.name(name) else {
                self.unknown(line(key.span().start, name));
                continue;
            };
            let mut items = Vec::new();
            match value.get_ref() {
                DeValue::Array(values) => {
                    for value in values.iter() {
                        let location = line(value.span().start, name);
                        items.extend(self.item(value.get_ref(), location));
                    }
                }
                one => items.extend(self.item(one, line(value.span().start, name))),
            }
            self.items.entry(known).or_insert(items);
        }
    }

    fn item(&mut self, value: &DeValue<'_>, location: Location) -> Option<Item> {
        let text = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => {
                let what = format!(
                    "a {} does not fit here; a string, a number or a list of them does",
                    value.type_str()
                );
                self.problem(location, what);
                return None;
            }
        };
        Some(Item { text, location })
    }

    /// Begins the check; [`Check::finish`] ends it.
    pub fn check(self) -> Check {
        Check::new(self.items, self.problems, self.unreadable)
    }
}
