//! Declares settings, one line each.
//!
//! ```
//! use std::time::Duration;
//! overbank_declare::settings! {
//!     /// Workers.
//!     pub struct Workers: "Workers" {
//!         workers: usize = 1, in 1..=64, "Worker threads, each with its own queues";
//!         idle: Duration = 2.5, "Seconds after which an idle worker sleeps";
//!         cores: Commas<usize>, in 0..=4095, "Cores, one for each" or "those that are allowed";
//!     }
//! }
//! # use overbank_declare::settings::{Commas, Source, Table as _};
//! let mut source = Source::new(&[Workers::SECTION]);
//! source.flag("workers", ["4"]);
//! let mut check = source.check();
//! let workers = Workers::read(&mut check);
//! let workers = check.finish(workers).expect("no problems");
//! assert_eq!((workers.workers, workers.idle), (4, Duration::from_millis(2500)));
//! ```
//!
//! A line reads: field, type, default, range, help, options.
//!
//! | in the line | meaning |
//! |---|---|
//! | `some_name: T` | field of the struct; `some-name` in a file, `--some-name` as a flag |
//! | `T` | a [`SettingValue`]: a number, seconds, `bool`, path, address, choice, [`Off<T>`], … |
//! | `Option<T>` | may be left out |
//! | `Vec<Located<T>>` | a list in the file, a flag that may be repeated |
//! | [`Commas<T>`] | a list in the file, one flag with commas |
//! | `= default` | as in a file |
//! | `in range` | least and largest number |
//! | `or "text"` | meaning without a value, where there is no default |
//! | `example "text"` | an example for documents |
//!
//! The table gives: the struct, the check with its errors ([`Check`]), the flags
//! ([`flags`](mod@flags)), the keys of the TOML file ([`Source`]), an example file and the
//! reference in Markdown ([`text`](mod@text)). Every problem is found before any is reported.
//!
//! ```text
//!   file  ──▶ ┐                                  ┌▶ structs, fully checked
//!             ├─ Source: name → texts, places ───┤
//!   flags ──▶ ┘   a flag replaces the file's     └▶ all problems, each with its place
//!                 values of the same name            and its remedy
//! ```

mod check;
pub mod flags;
mod source;
#[cfg(test)]
mod tests;
pub mod text;
mod value;

pub use check::{Check, Problem, Problems};
pub use source::{FILE_BYTES_MAX, Location, Source, read_at_most};
pub use value::{Commas, Field, Located, Off, SettingValue, number, seconds};

use std::ops::RangeInclusive;

/// Smallest and largest number of a setting.
pub type Range = Option<RangeInclusive<usize>>;

/// One line of a table: all about a setting but its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name in a file, and as a flag after `--`.
    pub name: &'static str,
    /// Default as in a file.
    pub default: Option<&'static str>,
    /// Meaning without a value, where there is no default.
    pub or: Option<&'static str>,
    pub range: Range,
    pub help: &'static str,
    /// Example for documents.
    pub example: Option<&'static str>,
    /// Placeholder in `--help`.
    pub value_name: &'static str,
    /// Describes the valid values.
    pub accepts: fn(&Range) -> String,
    pub arity: Arity,
}

/// How many values a setting takes, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// A flag without a value, which means `true`.
    Switch,
    One,
    /// A list in the file, one flag for each value.
    Many,
    /// A list in the file, one flag with commas.
    Commas,
}

/// The settings of one area, under one heading.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Heading in help and documents.
    pub title: &'static str,
    /// Declarations, in order.
    pub settings: &'static [Setting],
}

/// A struct of settings, declared by [`crate::settings!`].
pub trait Table: Sized {
    const SECTION: Section;

    /// Reads all settings; [`Check::finish`] reports the problems. Returns `None` if a setting
    /// without a default is wrong or missing.
    fn read(check: &mut Check) -> Option<Self>;

    /// Returns the default values; `None` if a setting has none.
    fn defaults() -> Option<Self> {
        Self::read(&mut Source::new(&[Self::SECTION]).check())
    }
}

/// Returns the name with `-` for `_`.
#[doc(hidden)]
pub const fn kebab<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        let byte = name.as_bytes()[i];
        bytes[i] = if byte == b'_' { b'-' } else { byte };
        i += 1;
    }
    bytes
}

/// Declares settings, one line each; see [the module](mod@crate::settings).
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Settings:ident : $title:literal {
            $( $name:ident : $Type:ty $(= $default:literal)? $(, in $range:expr)? , $help:literal
               $(or $or:literal)? $(example $example:literal)? ; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $vis struct $Settings {
            $( #[doc = $help] pub $name: $Type, )+
        }

        impl $crate::settings::Table for $Settings {
            const SECTION: $crate::settings::Section = $crate::settings::Section {
                title: $title,
                settings: &[ $( $crate::settings::Setting {
                    name: {
                        const NAME: [u8; stringify!($name).len()] =
                            $crate::settings::kebab(stringify!($name));
                        match std::str::from_utf8(&NAME) {
                            Ok(name) => name,
                            Err(_) => stringify!($name),
                        }
                    },
                    default: $crate::settings!(@some $(concat!($default))?),
                    or: $crate::settings!(@some $($or)?),
                    range: $crate::settings!(@some $($range)?),
                    help: $help,
                    example: $crate::settings!(@some $($example)?),
                    value_name: <$Type as $crate::settings::Field>::VALUE_NAME,
                    accepts: <$Type as $crate::settings::Field>::accepts,
                    arity: <$Type as $crate::settings::Field>::ARITY,
                } ),+ ],
            };

            fn read(check: &mut $crate::settings::Check) -> Option<Self> {
                let mut settings = <Self as $crate::settings::Table>::SECTION.settings.iter();
                $( let $name = <$Type as $crate::settings::Field>::read(check, settings.next()?); )+
                Some(Self { $( $name: $name?, )+ })
            }
        }

        impl $Settings {
            #[allow(dead_code)] // Some users do not import the trait.
            pub const SECTION: $crate::settings::Section =
                <Self as $crate::settings::Table>::SECTION;
        }
    };

    (@some) => { None };
    (@some $value:expr) => { Some($value) };
}

/// Declares an enum that is a setting's value: `Variant = "text", "help";`.
///
/// ```
/// overbank_declare::choices! {
///     pub enum LogFormat: "FORMAT" {
///         Text = "text", "For people";
///         Json = "json", "One JSON object a line";
///     }
/// }
/// assert_eq!(LogFormat::Json.name(), "json");
/// ```
#[macro_export]
macro_rules! choices {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Choice:ident : $value_name:literal {
            $( $Variant:ident = $name:literal, $help:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Choice {
            $( #[doc = $help] $Variant, )+
        }

        impl $Choice {
            /// Every choice with its name and meaning.
            pub const ALL: &'static [($Choice, &'static str, &'static str)] =
                &[ $( ($Choice::$Variant, $name, $help) ),+ ];

            /// Returns the name as in a file.
            #[allow(dead_code)] // Few choices are displayed again.
            pub const fn name(self) -> &'static str {
                match self { $( $Choice::$Variant => $name, )+ }
            }
        }

        impl $crate::settings::SettingValue for $Choice {
            const VALUE_NAME: &'static str = $value_name;

            fn accepts(_: &$crate::settings::Range) -> String {
                let choices = Self::ALL.iter().map(|(_, name, help)| format!("`{name}` ({help})"));
                choices.collect::<Vec<_>>().join(", ")
            }

            fn read(text: &str, _: &$crate::settings::Range) -> Result<Self, String> {
                Self::ALL.iter().find(|(_, name, _)| *name == text).map(|(it, ..)| *it).ok_or_else(
                    || {
                        let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
                        format!("{text:?}: must be one of {}", names.join(", "))
                    },
                )
            }
        }
    };
}
