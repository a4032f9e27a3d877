//! The command `overbank`: reads arguments, shows progress, prints results. Other crates compute
//! them.
//!
//! Exit status: 0 success (also when Ctrl-C ended a replay early and its report was printed), 1
//! failure (one line on standard error), 2 invalid arguments. `overbank kv get`: 1 without a value,
//! 2 failure.

mod advise;
#[cfg(feature = "aside")]
mod aside;
mod fdb;
mod files;
mod gateway;
mod kv;
mod lab;
mod live;
mod manual;
mod model;
mod options;
mod partition;
mod replay;
mod sdc;
mod setup;
mod switch;
mod text;
mod top;
mod version;

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// Run, measure and choose lookup and cache structures for software data planes.
#[derive(Parser)]
#[command(name = "overbank", max_term_width = 100)]
#[command(version = version::VERSION, long_version = version::long())]
#[command(after_help = "Examples:
  overbank replay                                        built-in traffic and rules, all designs
  overbank replay capture.pcapng --rules rules.txt       your traffic and rules
  overbank advise capture.pcapng                         which flow cache for this traffic
  overbank switch --port 1=tap:tap0 --port 2=afpacket:eth1 --rules rules.txt
  overbank gateway --config gateway.toml                 GTP-U tunnels of a mobile network
  overbank partition build keys.csv -o keys.table        1 to 5 bits a key
  overbank kv agent --store memory                       keys and values over UDP
  overbank lab run table1                                a table of the paper, measured here
  overbank help replay                                   every option of a command")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(Box<replay::Args>),
    Advise(Box<advise::Args>),
    #[cfg(feature = "aside")]
    Aside(Box<aside::Args>),
    /// Run real indexes on a simulated machine with a software defined cache (SDC)
    #[command(
        subcommand,
        after_help = "Examples:
  overbank sdc run --index lmdb --system sdc --llc 3MB --ratio 0.5 --report sdc.html
  overbank sdc run --index hash --family 2 --sub-tag-bits 4"
    )]
    Sdc(sdc::Command),
    Switch(Box<switch::Args>),
    Gateway(Box<gateway::Command>),
    Top(top::Args),
    Fdb(fdb::Args),
    /// Serve keys and values, ask for them, load their servers, and cache the hot keys of a Redis
    #[command(
        subcommand,
        after_help = kv::EXAMPLES
    )]
    Kv(kv::Command),
    /// Build a table that maps keys to parts, and look keys up in it
    #[command(
        subcommand,
        after_help = "Examples:
  overbank partition build keys.csv -o keys.table
  overbank partition query keys.table 192.0.2.1"
    )]
    Partition(partition::Command),
    /// Measure the figures, tables and claims of the papers, and write the report
    #[command(
        subcommand,
        after_help = "Examples:
  overbank lab list
  overbank lab run table1 --smoke
  overbank lab report out/lab"
    )]
    Lab(lab::Command),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Replay(args) => replay::run(&args),
        Command::Advise(args) => advise::run(&args),
        #[cfg(feature = "aside")]
        Command::Aside(args) => aside::run(&args),
        Command::Sdc(command) => sdc::run(&command),
        Command::Switch(args) => switch::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Fdb(args) => fdb::run(&args),
        Command::Partition(command) => partition::run(&command),
        Command::Lab(command) => lab::run(&command),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Kv(command) => return reported(kv::run(&command)),
    };
    reported(result.map(|()| ExitCode::SUCCESS))
}

/// Returns the exit status; reports a failure.
fn reported(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be a terminal that is gone.
            let _ = writeln!(std::io::stderr(), "overbank: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Recognises a closed standard output (`overbank replay | head`): no reader is left.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.into_iter().any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
