//! Settings in documents: an example file in TOML, and the reference in Markdown.

use super::{Arity, Section, Setting};
use std::fmt::Write as _;

/// Widest line of the example.
const WIDTH: usize = 100;

/// An example file with every setting. What is commented out shows the default, or an example; the
/// settings named in `active` are not commented out.
pub fn example(sections: &[Section], active: &[&str]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = writeln!(text, "\n# --- {} ---", section.title);
        for setting in section.settings {
            let help = match setting.or {
                Some(or) => format!("{}; without it: {or}", setting.help),
                None => setting.help.to_owned(),
            };
            text.push('\n');
            wrapped(&mut text, &help);
            let comment = if active.contains(&setting.name) { "" } else { "# " };
            let _ = writeln!(text, "{comment}{} = {}", setting.name, value(setting));
        }
    }
    text
}

/// Comment lines of at most [`WIDTH`] columns.
fn wrapped(text: &mut String, help: &str) {
    let mut line = String::from("#");
    for word in help.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

/// The default or the example as TOML; several examples stand apart by spaces.
fn value(setting: &Setting) -> String {
    let shown = setting.default.or(setting.example);
    match setting.arity {
        Arity::Many | Arity::Commas => {
            let values = shown.into_iter().flat_map(|all| all.split(' ')).map(toml);
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        Arity::One | Arity::Switch => toml(shown.unwrap_or("")),
    }
}

/// Numbers and truth values as they are, everything else as a string.
fn toml(text: &str) -> String {
    let bare = text.parse::<f64>().is_ok() || text == "true" || text == "false";
    if bare { text.to_owned() } else { format!("{text:?}") }
}

/// Markdown: a table of the settings of a section.
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
        let _ = writeln!(
            text,
            "| `{}` | {accepts}{list} | {default} | {} |",
            setting.name, setting.help
        );
    }
    text
}
