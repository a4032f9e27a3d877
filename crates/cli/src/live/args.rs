//! Arguments of a command that runs an engine: settings as flags, and those of a file.

use crate::options::Format;
use anyhow::anyhow;
use clap::{ArgMatches, Args as ClapArgs, Command, FromArgMatches};
use overbank_declare::settings::{Problems, Section, Source, flags};
use std::marker::PhantomData;
use std::path::PathBuf;

/// A command that runs an engine.
pub trait LiveCommand {
    const SECTIONS: &'static [Section];
    /// What it does: one line, and the lines of the long help after it.
    const ABOUT: &'static str;
    const LONG_ABOUT: &'static str;
    /// Examples after the help.
    const EXAMPLES: &'static str;
}

#[derive(ClapArgs, Clone)]
pub struct Options {
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check settings and files without starting
    #[arg(long)]
    pub check: bool,
    /// Output format of the totals
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Options of the command, and settings of the file and the flags.
pub struct Args<C> {
    pub options: Options,
    flags: Source,
    command: PhantomData<fn() -> C>,
}

impl<C> Clone for Args<C> {
    fn clone(&self) -> Args<C> {
        Args { options: self.options.clone(), flags: self.flags.clone(), command: PhantomData }
    }
}

impl<C> Args<C> {
    /// Returns the settings, with the file as it is now.
    pub fn source(&self) -> Source {
        let mut source = self.flags.clone();
        if let Some(path) = &self.options.config {
            // Flags are there already, and the file does not replace them.
            source.file(path);
        }
        source
    }
}

impl<C: LiveCommand> ClapArgs for Args<C> {
    fn augment_args(command: Command) -> Command {
        let command = Options::augment_args(command).about(C::ABOUT);
        let command = command.long_about(format!("{}\n\n{}", C::ABOUT, C::LONG_ABOUT));
        flags::add(command.after_help(C::EXAMPLES), C::SECTIONS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Args::<C>::augment_args(command)
    }
}

impl<C: LiveCommand> FromArgMatches for Args<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args<C>, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let mut source = Source::new(C::SECTIONS);
        flags::take(matches, C::SECTIONS, &mut source);
        Ok(Args { options, flags: source, command: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Lists all problems, one a line.
pub fn report(problems: &Problems) -> anyhow::Error {
    match problems.0.len() {
        1 => anyhow!("{problems}"),
        n => anyhow!("{n} problems\n{problems}"),
    }
}

/// Returns a number of things, in words.
pub fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
