//! `overbank-workloads`: runs a store on the machine of the SDC paper and prints what it cost.
//!
//! ```text
//!  arguments ─▶ point ─▶ keys ─▶ client ◀── requests, answers ──▶ watched: store
//!                 │                                                   │ every load and store
//!                 └─ JSON ◀── counters, cycles ── machine ◀── hooks ◀─┘ SDC instructions
//! ```
//!
//! One process a point. Errors are one line.

mod arguments;
mod client;
mod fixed;
mod hooks;
mod keys;
mod point;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(options) => fixed::addresses().and_then(|()| point::run(&options)),
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
