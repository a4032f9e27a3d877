//! From texts to values; every problem is found before any is reported.

use super::source::Item;
use super::{Located, Location, Section, Setting};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Display};
use std::hash::Hash;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub location: Location,
    /// What, and what would be right; one line.
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

/// Everything that is wrong, by location.
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

/// A check under way: tables read their settings from it, and what is wrong gathers here.
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

    /// Adds a problem.
    pub fn problem(&mut self, location: Location, what: impl Into<String>) {
        self.problems.push(Problem { location, what: what.into() });
    }

    /// Returns where a setting was given first, if it was.
    pub fn given(&self, name: &str) -> Option<Location> {
        Some(self.items.get(name)?.first()?.location.clone())
    }

    /// Returns whether nothing is wrong so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Reports every setting of `section` that was given, each as wrong for the same reason: it does
    /// not belong to what is configured.
    pub fn refuse(&mut self, section: &Section, what: &str) {
        for setting in section.settings {
            if let Some(location) = self.given(setting.name) {
                self.problem(location, what);
            }
        }
    }

    /// Returns the values of a list that were not there before by `key`; reports the others, with
    /// where the first one stands.
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

    /// The items of a list.
    pub(super) fn items(&self, setting: &Setting) -> Vec<Item> {
        self.items.get(setting.name).cloned().unwrap_or_default()
    }

    /// The item of a setting that has one value.
    pub(super) fn one(&mut self, setting: &Setting) -> Option<Item> {
        let mut items = self.items(setting);
        if items.len() > 1 {
            let wanted = (setting.accepts)(&setting.range);
            let what = format!("{} values, one is needed: {wanted}", items.len());
            self.problem(items.swap_remove(1).location, what);
            return None;
        }
        items.pop()
    }

    /// Ends the check.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn finish<T>(mut self, checked: Option<T>) -> Result<T, Problems> {
        if self.unreadable {
            // What is missing, or does not fit, may stand in what could not be read.
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
