//! Offers settings as flags of a command.

use super::{Arity, Section, Setting, Source};
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Adds a flag for every setting, under the headings of the sections.
pub fn add(mut command: Command, sections: &[Section]) -> Command {
    for section in sections {
        let flags = section.settings.iter().map(|setting| flag(setting, section.title));
        command = command.args(flags);
    }
    command
}

fn flag(setting: &'static Setting, heading: &'static str) -> Arg {
    let arg = Arg::new(setting.name).long(setting.name).help(help(setting)).help_heading(heading);
    match setting.arity {
        Arity::Switch => arg.action(ArgAction::SetTrue),
        Arity::One | Arity::Commas => arg.action(ArgAction::Set).value_name(setting.value_name),
        Arity::Many => arg.action(ArgAction::Append).value_name(setting.value_name),
    }
}

/// Returns the help of a setting, with its default.
fn help(setting: &Setting) -> String {
    match setting.default.filter(|_| setting.arity != Arity::Switch).or(setting.or) {
        Some(default) => format!("{} [default: {default}]", setting.help),
        None => setting.help.to_owned(),
    }
}

/// Takes the given flags.
pub fn take(matches: &ArgMatches, sections: &[Section], into: &mut Source) {
    for setting in sections.iter().flat_map(|section| section.settings) {
        if setting.arity == Arity::Switch {
            into.flag(setting.name, matches.get_flag(setting.name).then_some("true"));
        } else {
            let values = matches.get_many::<String>(setting.name);
            into.flag(setting.name, values.into_iter().flatten());
        }
    }
}
