//! `overbank completions` and `overbank man`: what shells and `man` know of the command, made from
//! the declaration of its arguments.

use crate::Cli;
use crate::files::Pending;
use crate::version::VERSION;
use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io::Write;
use std::path::PathBuf;

/// Print the completions of this command for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  source <(overbank completions bash)                         in this shell
  overbank completions bash > ~/.local/share/bash-completion/completions/overbank
  overbank completions zsh > ~/.zfunc/_overbank               a directory of fpath
  overbank completions fish > ~/.config/fish/completions/overbank.fish

The Debian package has them already.")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages of this command and of each of its subcommands
#[derive(Args)]
#[command(after_help = "Example:
  overbank man --out-dir ~/.local/share/man/man1; man overbank-replay

The Debian package has them already.")]
pub struct ManArgs {
    /// Directory for the pages; made if it does not exist
    #[arg(long, value_name = "DIR")]
    out_dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> Result<()> {
    std::io::stdout().write_all(&script(args.shell))?;
    Ok(())
}

pub fn man(args: &ManArgs) -> Result<()> {
    let dir = &args.out_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("--out-dir {}", dir.display()))?;
    for (name, text) in pages() {
        Pending::claim(&dir.join(name))?.finish(&text)?;
    }
    Ok(())
}

fn script(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "overbank", &mut text);
    text
}

/// Returns name and text of each page, the command's own last.
fn pages() -> Vec<(String, String)> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages);
    pages
}

fn add(command: &Command, pages: &mut Vec<(String, String)>) {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        add(command, pages);
    }
    let man = Man::new(command.clone()).source(format!("overbank {VERSION}")).manual("Overbank");
    let mut text = Vec::new();
    render(&man, command, &mut text).expect("a Vec takes all");
    let text = String::from_utf8(text).expect("made of strings");
    // A long list as a default may be broken after its commas.
    let lines = text.lines().map(|line| match line.split_once("[default: ") {
        Some((head, default)) => format!("{head}[default: {}\n", default.replace(',', ",\\:")),
        None => format!("{line}\n"),
    });
    pages.push((man.get_filename(), lines.collect()));
}

/// Renders a page. Its examples keep their lines; the version is that of the head, the same on
/// every machine.
fn render(man: &Man, command: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    man.render_title(text)?;
    // Ragged and without hyphens: lists of designs are long words.
    writeln!(text, ".ad l\n.nh")?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(text)?;
    }
    if let Some(examples) = command.get_after_help() {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        let examples = examples.to_string();
        let lines = examples.lines().filter(|line| !matches!(*line, "Examples:" | "Example:"));
        for line in lines {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Program;

    fn all(command: &Command, found: &mut Vec<Command>) {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.for_each(|command| all(command, found));
        found.push(command.clone());
    }

    #[test]
    fn each_command_has_a_page_with_its_options_and_an_example() {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut commands = Vec::new();
        all(&command, &mut commands);
        let pages = pages();
        assert_eq!(pages.len(), commands.len());
        assert!(pages.len() > 20, "{}", pages.len());
        for (command, (name, page)) in commands.iter().zip(&pages) {
            let display = command.get_display_name().unwrap_or(command.get_name());
            assert_eq!(*name, format!("{display}.1"));
            for head in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES"] {
                assert!(page.contains(&format!("\n.SH {head}\n")), "{name}: no {head}");
            }
            for long in command.get_arguments().filter_map(clap::Arg::get_long) {
                let option = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(page.contains(&option), "{name}: no {option}");
            }
            // An example is a line, not a part of a paragraph.
            let examples = page.split("\n.SH EXAMPLES\n.nf\n").nth(1).expect("examples");
            assert!(examples.lines().any(|line| line.starts_with("  overbank ")), "{name}");
        }
    }

    #[test]
    fn bash_completes_commands_options_and_values() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let path = dir.path().join("overbank.bash");
        std::fs::write(&path, script(Shell::Bash)).expect("written");
        for (line, wanted) in [
            ("overbank repl", "replay"),
            ("overbank gateway sess", "sessions"),
            ("overbank switch --openf", "--openflow"),
            ("overbank lab run --smo", "--smoke"),
            ("overbank completions fi", "fish"),
        ] {
            let run = format!(
                "source '{}'; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
                 complete -p overbank > /dev/null && _overbank overbank \
                 \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
                 echo \"${{COMPREPLY[*]}}\"",
                path.display()
            );
            let output = Program::new("bash").args(["--norc", "-c", &run]).output().expect("bash");
            let (said, errors) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(said).trim(), wanted, "{line}: {errors}");
        }
    }

    #[test]
    fn every_shell_gets_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).expect("text");
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
