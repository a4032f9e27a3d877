//! Turns texts into values; finds every problem before reporting any.

use super::source::Item;
use super::{Located, Location, Section, Setting};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::hash::Hash;

/// One error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub location: Location,
    /// The error and the remedy; one line.
    pub what: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::InText => f.write_str(&self.what),
            location => write!(f, "{location}: {}", self.what),
        }
    }
}

/// All errors, by location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl std::error::Error for Problems {}

impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// A check in progress: tables read their settings from it, and it collects problems.
#[derive(Debug)]
pub struct Check {
    items: BTreeMap<&'static str, Vec<Item>>,
    problems: Vec<Problem>,
    unreadable: bool,
}

impl Check {
    pub(super) fn new(
        items: BTreeMap<&'static str, Vec<Item>>,
        problems: Vec<Problem>,
        unreadable: bool,
    ) -> Check {
        Check { items, problems, unreadable }
    }

    pub fn problem(&mut self, location: Location, what: impl Into<String>) {
        self.problems.push(Problem { location, what: what.into() });
    }

    /// Returns where a setting was first given.
    pub fn given(&self, name: &str) -> Option<Location> {
        Some(self.items.get(name)?.first()?.location.clone())
    }

    /// Returns whether there are no problems so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Reports every given setting of `section` with the same reason: it does not fit the
    /// configuration.
    pub fn refuse(&mut self, section: &Section, what: &str) {
        for setting in section.settings {
            if let Some(location) = self.given(setting.name) {
                self.problem(location, what);
            }
        }
    }

    /// Returns the values of a list whose `key` is new. Reports duplicates with the location of the
    /// first.
    pub fn distinct<T, K: Hash + Eq>(
        &mut self,
        list: Vec<Located<T>>,
        key: impl Fn(&T) -> K,
        taken: impl Fn(&T) -> String,
    ) -> Vec<Located<T>> {
        let mut seen: HashMap<K, Location> = HashMap::new();
        let mut distinct = Vec::new();
        for item in list {
            if let Some(first) = seen.get(&key(&item.value)) {
                self.problem(item.location, format!("{}, at {first}", taken(&item.value)));
                continue;
            }
            seen.insert(key(&item.value), item.location.clone());
            distinct.push(item);
        }
        distinct
    }

    /// Returns the items of a list; none if it was not given.
    pub(super) fn items(&self, setting: &Setting) -> Vec<Item> {
        self.items.get(setting.name).cloned().unwrap_or_default()
    }

    /// Returns the item of a setting with one value.
    pub(super) fn one(&mut self, setting: &Setting) -> Option<Item> {
        let mut items = self.items(setting);
        if items.len() > 1 {
            let wanted = (setting.accepts)(&setting.range);
            let what = format!("{} values; must be one: {wanted}", items.len());
            self.problem(items.swap_remove(1).location, what);
            return None;
        }
        items.pop()
    }

    /// Ends the check.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn finish<T>(mut self, checked: Option<T>) -> Result<T, Problems> {
        if self.unreadable {
            // Missing or conflicting settings may stand in the file that could not be read.
            let unread = |p: &Problem| !matches!(p.location, Location::Missing(_));
            self.problems.retain(unread);
        }
        self.problems.sort_by(|a, b| a.location.cmp(&b.location));
        match checked {
            Some(checked) if self.problems.is_empty() => Ok(checked),
            _ => Err(Problems(self.problems)),
        }
    }
}
