//! Writes settings as an example file in TOML and as a reference in Markdown.

use super::{Arity, Section, Setting};
use std::fmt::Write as _;

/// Width of the example.
const WIDTH: usize = 100;
/// Why `expect` on writes to a string.
const STRING: &str = "writing to a string does not fail";

/// Returns an example file of a command with every setting. Settings in `active` have their example
/// or default as values; the others are comments that show the default or an example.
pub fn example(command: &str, sections: &[Section], active: &[&str]) -> String {
    // A command of a group has a file of its last word.
    let file = command.rsplit(' ').next().unwrap_or(command);
    let mut text = format!(
        "\
# Configuration of `overbank {command} --config {file}.toml`; `--check` reports its problems.
# Every setting is also an option of the command. Commented settings show the default, or an
# example where there is none.
"
    );
    for section in sections {
        writeln!(text, "\n# --- {} ---", section.title).expect(STRING);
        for setting in section.settings {
            let help = match setting.or {
                Some(or) => format!("{}; without it: {or}", setting.help),
                None => setting.help.to_owned(),
            };
            text.push('\n');
            wrapped(&mut text, &help);
            let (comment, shown) = if active.contains(&setting.name) {
                ("", setting.example.or(setting.default))
            } else {
                ("# ", setting.default.or(setting.example))
            };
            writeln!(text, "{comment}{} = {}", setting.name, value(setting, shown)).expect(STRING);
        }
    }
    text
}

/// Writes comment lines of at most [`WIDTH`] columns.
fn wrapped(text: &mut String, help: &str) {
    let mut line = String::from("#");
    for word in help.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(text, "{line}").expect(STRING);
            line = String::from("#");
        }
        write!(line, " {word}").expect(STRING);
    }
    writeln!(text, "{line}").expect(STRING);
}

/// Returns a default or an example as TOML. Spaces separate several examples.
fn value(setting: &Setting, shown: Option<&str>) -> String {
    match setting.arity {
        Arity::Many | Arity::Commas => {
            let values = shown.into_iter().flat_map(|all| all.split(' ')).map(toml);
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        Arity::One | Arity::Switch => toml(shown.unwrap_or("")),
    }
}

/// Returns numbers and truth values unquoted, everything else as a string.
fn toml(text: &str) -> String {
    let bare = text.parse::<f64>().is_ok() || text == "true" || text == "false";
    if bare { text.to_owned() } else { format!("{text:?}") }
}

/// Returns a Markdown table of the settings of a section.
pub fn reference(section: &Section) -> String {
    let mut text =
        String::from("| setting | value | default | what it does |\n|---|---|---|---|\n");
    for setting in section.settings {
        let default = match (setting.default, setting.or) {
            (Some(default), _) => format!("`{default}`"),
            (None, or) => or.unwrap_or("").to_owned(),
        };
        let list = match setting.arity {
            Arity::Many | Arity::Commas => ", a list",
            Arity::One | Arity::Switch => "",
        };
        let accepts = (setting.accepts)(&setting.range);
        writeln!(text, "| `{}` | {accepts}{list} | {default} | {} |", setting.name, setting.help)
            .expect(STRING);
    }
    text
}
