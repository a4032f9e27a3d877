//! Types of setting values.

use super::check::Check;
use super::{Arity, Location, Range, Setting};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time: a year.
const SECONDS_MAX: f64 = 31_536_000.0;

pub trait SettingValue: Sized {
    /// Placeholder in `--help`.
    const VALUE_NAME: &'static str;
    const SWITCH: bool = false;

    /// Describes the valid values.
    fn accepts(range: &Range) -> String;

    /// Reads one value.
    ///
    /// # Errors
    /// Returns the problem and the remedy; one line.
    fn read(text: &str, range: &Range) -> Result<Self, String>;
}

/// Reads an unsigned number.
///
/// # Errors
/// Fails if `text` is not a number, or not within `range`.
pub fn number(text: &str, range: &Range) -> Result<usize, String> {
    let fits = |number: &usize| range.as_ref().is_none_or(|range| range.contains(number));
    match text.parse().ok().filter(fits) {
        Some(number) if !text.starts_with('+') => Ok(number),
        _ => Err(format!("{text:?}: must be {}", numbers(range))),
    }
}

fn numbers(range: &Range) -> String {
    match range {
        Some(range) => format!("a number from {} to {}", range.start(), range.end()),
        None => "a number".to_owned(),
    }
}

/// Reads a number of seconds.
///
/// # Errors
/// Fails if `text`: must be a number of seconds, or not within a year.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("{text:?}: must be a number of seconds from 0.001 to {SECONDS_MAX}")),
    }
}

impl SettingValue for usize {
    const VALUE_NAME: &'static str = "N";

    fn accepts(range: &Range) -> String {
        numbers(range)
    }

    fn read(text: &str, range: &Range) -> Result<usize, String> {
        number(text, range)
    }
}

impl SettingValue for u32 {
    const VALUE_NAME: &'static str = "N";

    fn accepts(range: &Range) -> String {
        numbers(range)
    }

    fn read(text: &str, range: &Range) -> Result<u32, String> {
        let max = u32::MAX as usize;
        let wrong = |_| format!("{text:?}: must be {}", numbers(&Some(0..=max)));
        u32::try_from(number(text, range)?).map_err(wrong)
    }
}

impl SettingValue for Duration {
    const VALUE_NAME: &'static str = "S";

    fn accepts(_: &Range) -> String {
        "seconds".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<Duration, String> {
        seconds(text)
    }
}

impl SettingValue for bool {
    const VALUE_NAME: &'static str = "";
    const SWITCH: bool = true;

    fn accepts(_: &Range) -> String {
        "`true`, `false`, `yes` or `no`".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<bool, String> {
        match text {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err(format!("{text:?}: must be one of true, false, yes, no")),
        }
    }
}

impl SettingValue for PathBuf {
    const VALUE_NAME: &'static str = "PATH";

    fn accepts(_: &Range) -> String {
        "a path".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<PathBuf, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("{text:?}: must be a path"));
        }
        Ok(text.into())
    }
}

impl SettingValue for SocketAddr {
    const VALUE_NAME: &'static str = "ADDRESS:PORT";

    fn accepts(_: &Range) -> String {
        "ADDRESS:PORT".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<SocketAddr, String> {
        let what = "must be ADDRESS:PORT, such as 127.0.0.1:9273 or [::1]:9273";
        text.parse().map_err(|_| format!("{text:?}: {what}"))
    }
}

/// A value, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off<T>(pub Option<T>);

impl<T: SettingValue> SettingValue for Off<T> {
    const VALUE_NAME: &'static str = T::VALUE_NAME;

    fn accepts(range: &Range) -> String {
        format!("{}, or `off`", T::accepts(range))
    }

    fn read(text: &str, range: &Range) -> Result<Off<T>, String> {
        if text == "off" {
            return Ok(Off(None));
        }
        T::read(text, range).map(|value| Off(Some(value))).map_err(|what| format!("{what}, or off"))
    }
}

/// A value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub location: Location,
}

/// Values separated by commas as a flag, a list in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commas<T>(pub Vec<Located<T>>);

/// A field of settings: a value, an optional one, or a list.
pub trait Field: Sized {
    /// Placeholder in `--help`.
    const VALUE_NAME: &'static str;
    /// How many values it takes.
    const ARITY: Arity;

    /// Describes the valid values.
    fn accepts(range: &Range) -> String;

    /// Reads it; `None` where no default can replace a wrong value.
    fn read(check: &mut Check, setting: &'static Setting) -> Option<Self>;
}

/// Reads the one value of `setting`, if it was given and is valid.
fn given<T: SettingValue>(check: &mut Check, setting: &'static Setting) -> Option<T> {
    let item = check.one(setting)?;
    match T::read(&item.text, &setting.range) {
        Ok(value) => Some(value),
        Err(what) => {
            check.problem(item.location, what);
            None
        }
    }
}

impl<T: SettingValue> Field for T {
    const VALUE_NAME: &'static str = T::VALUE_NAME;
    const ARITY: Arity = if T::SWITCH { Arity::Switch } else { Arity::One };

    fn accepts(range: &Range) -> String {
        T::accepts(range)
    }

    fn read(check: &mut Check, setting: &'static Setting) -> Option<T> {
        let is_given = check.given(setting.name).is_some();
        let value = given(check, setting);
        let default = || {
            let read = T::read(setting.default?, &setting.range);
            Some(read.unwrap_or_else(|what| panic!("default of {}: {what}", setting.name)))
        };
        let value = value.or_else(default);
        if value.is_none() && !is_given {
            let what = format!("missing; must be {}", (setting.accepts)(&setting.range));
            check.problem(Location::Missing(setting.name), what);
        }
        value
    }
}

impl<T: SettingValue> Field for Option<T> {
    const VALUE_NAME: &'static str = T::VALUE_NAME;
    const ARITY: Arity = T::ARITY;

    fn accepts(range: &Range) -> String {
        T::accepts(range)
    }

    fn read(check: &mut Check, setting: &'static Setting) -> Option<Option<T>> {
        Some(given(check, setting))
    }
}

impl<T: SettingValue> Field for Vec<Located<T>> {
    const VALUE_NAME: &'static str = T::VALUE_NAME;
    const ARITY: Arity = Arity::Many;

    fn accepts(range: &Range) -> String {
        T::accepts(range)
    }

    fn read(check: &mut Check, setting: &'static Setting) -> Option<Vec<Located<T>>> {
        let mut values = Vec::new();
        for item in check.items(setting) {
            match T::read(&item.text, &setting.range) {
                Ok(value) => values.push(Located { value, location: item.location }),
                Err(what) => check.problem(item.location, what),
            }
        }
        Some(values)
    }
}

impl<T: SettingValue> Field for Commas<T> {
    const VALUE_NAME: &'static str = "LIST";
    const ARITY: Arity = Arity::Commas;

    fn accepts(range: &Range) -> String {
        T::accepts(range)
    }

    fn read(check: &mut Check, setting: &'static Setting) -> Option<Commas<T>> {
        let mut values = Vec::new();
        for item in check.items(setting) {
            for text in item.text.split(',') {
                let location = item.location.clone();
                match T::read(text.trim(), &setting.range) {
                    Ok(value) => values.push(Located { value, location }),
                    Err(what) => check.problem(location, what),
                }
            }
        }
        Some(Commas(values))
    }
}
