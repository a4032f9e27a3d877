//! Where settings come from: the TOML file and the flags, as texts with their places.

use super::{Problem, SETTINGS};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Longest configuration file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file.
    Line {
        /// Its name.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
        /// Name of the setting, where it has one.
        name: String,
    },
    /// In a file as a whole.
    File(Arc<str>),
    /// A flag.
    Flag(String),
    /// Nowhere: it is missing.
    Missing(&'static str),
    /// In the file of rules; the text says where.
    Rules,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { file, line, name } if name.is_empty() => write!(f, "{file}:{line}"),
            Place::Line { file, line, name } => write!(f, "{file}:{line}: {name}"),
            Place::File(file) => f.write_str(file),
            Place::Flag(name) => write!(f, "--{name}"),
            Place::Missing(name) => f.write_str(name),
            Place::Rules => f.write_str("rules"),
        }
    }
}

/// A text and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) text: String,
    pub(super) place: Place,
}

/// The bytes of a file. Devices and pipes say nothing of their length, so what comes is counted.
pub(super) fn read_at_most(path: &Path, max: u64, in_words: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("longer than {in_words}")));
    }
    Ok(bytes)
}

/// All settings, not yet checked.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub(super) items: BTreeMap<&'static str, Vec<Item>>,
    pub(super) problems: Vec<Problem>,
    /// A file could not be read at all, so that nothing can be said of what is missing.
    pub(super) broken: bool,
}

/// The name as the list of settings has it.
fn known(name: &str) -> Option<&'static str> {
    SETTINGS.iter().map(|s| s.0).find(|known| *known == name)
}

impl Settings {
    /// None.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// Takes a flag, which replaces what the file says; an empty list is no flag.
    ///
    /// # Panics
    /// There is no such setting: a slip in the program, not in what a user wrote.
    pub fn flag<T: ToString>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        let name = known(name).expect("flags have the names of settings");
        let place = Place::Flag(name.to_owned());
        let items: Vec<Item> = values
            .into_iter()
            .map(|value| Item { text: value.to_string(), place: place.clone() })
            .collect();
        if !items.is_empty() {
            self.items.insert(name, items);
        }
    }

    /// Reads a file; what is wrong with it is told by [`Settings::check`].
    pub fn file(&mut self, path: &Path) {
        let name: Arc<str> = path.display().to_string().into();
        match read_at_most(path, FILE_BYTES_MAX, "1 MiB").map(String::from_utf8) {
            Ok(Ok(text)) => self.text(&name, &text),
            Ok(Err(_)) => self.unreadable(name, "not UTF-8 text, TOML is needed".to_owned()),
            Err(error) => self.unreadable(name, format!("cannot be read: {error}")),
        }
    }

    fn unreadable(&mut self, name: Arc<str>, what: String) {
        self.problem(Place::File(name), what);
        self.broken = true;
    }

    fn problem(&mut self, place: Place, what: impl Into<String>) {
        self.problems.push(Problem { place, what: what.into() });
    }

    /// Reads the text of a file called `name`.
    pub fn text(&mut self, name: &Arc<str>, text: &str) {
        let line_of =
            |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // What a broken file says beside its errors is guesswork; one error a line is enough.
            let mut lines = std::collections::BTreeSet::new();
            for error in errors {
                let line = error.span().map_or(1, |span| line_of(span.start));
                if lines.insert(line) {
                    let what = format!("not TOML: {}", error.message().replace('\n', ", "));
                    let place = Place::Line { file: name.clone(), line, name: String::new() };
                    self.problem(place, what);
                }
            }
            self.broken = true;
            return;
        }
        for (key, value) in table.into_inner() {
            let place = Place::Line {
                file: name.clone(),
                line: line_of(key.span().start),
                name: key.get_ref().to_string(),
            };
            let Some(setting) = known(key.get_ref()) else {
                let names: Vec<&str> = SETTINGS.iter().map(|s| s.0).collect();
                self.problem(place, format!("no such setting; there are {}", names.join(", ")));
                continue;
            };
            let mut items = Vec::new();
            self.values(
                value.get_ref(),
                &place,
                true,
                &mut items,
                &|span| line_of(span),
                value.span().start,
            );
            self.items.entry(setting).or_insert(items);
        }
    }

    fn values(
        &mut self,
        value: &DeValue<'_>,
        place: &Place,
        list_allowed: bool,
        items: &mut Vec<Item>,
        line_of: &dyn Fn(usize) -> usize,
        at: usize,
    ) {
        let mut place = place.clone();
        if let Place::Line { line, .. } = &mut place {
            *line = line_of(at);
        }
        let text = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Array(values) if list_allowed => {
                for value in values.iter() {
                    let at = value.span().start;
                    self.values(value.get_ref(), &place, false, items, line_of, at);
                }
                return;
            }
            DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) => {
                let what = format!(
                    "a {} does not fit here; a string, a number or a list of them does",
                    value.type_str()
                );
                return self.problem(place, what);
            }
        };
        items.push(Item { text, place });
    }
}
