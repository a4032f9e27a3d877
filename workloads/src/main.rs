//! `overbank-workloads`: runs a store on the machine of the SDC paper and prints what it cost.
//!
//! ```text
//!  arguments ─▶ point ─▶ keys ─▶ client ◀── requests, answers ──▶ watched: store
//!                 │                                                   │ every load and store
//!                 └─ JSON ◀── counters, cycles ── machine ◀── hooks ◀─┘ SDC instructions
//! ```
//!
//! One process a point. Errors are one line.

mod arena;
mod arguments;
mod base;
mod client;
mod clock;
mod fixed;
mod held;
mod hooks;
mod keys;
mod point;
mod walk;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    let outcome = match arguments.command {
        Command::Run(options) => alone(|| point::run(&options)),
        Command::Walk(options) => fixed::addresses().and_then(|()| walk::run(&options)),
        Command::List(options) => {
            arguments::list(&options);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overbank-workloads: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `work` with memory and a stack at fixed addresses.
fn alone(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    fixed::addresses()?;
    arena::reserve()?;
    fixed::on_stack(work)
}

/// Prints help or the version, or what is wrong with the arguments in one line.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        // Without a reader of the help there is nothing to do.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let what = what.strip_suffix("For more information, try '--help'.").unwrap_or(what);
    eprintln!("overbank-workloads: {}", what.trim_end());
    ExitCode::from(2)
}
