//! `overbank gateway demo`: a cluster of gateways in one process, under traffic.
//!
//! On a terminal it is a screen in real time; elsewhere a line a second of virtual time, which runs
//! as fast as the machine allows: the same command then prints the same lines.

mod reading;
#[cfg(feature = "top")]
mod screen;
mod script;
#[cfg(test)]
mod tests;
mod world;

use crate::options::Format;
use anyhow::{Context, Result, bail};
use overbank_gateway::local::NODES_MAX;
use reading::Reading;
use script::Script;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::World;

/// Most sessions of all nodes together: each node has memory for all sessions.
const PLACES_MAX: u64 = 8_000_000;
/// Longest time from a signal to the end.
const END_MAX: Duration = Duration::from_secs(2);
/// Seconds that a run without a terminal takes if neither `--seconds` nor `--script` says.
const SECONDS: u32 = 5;

/// Run a cluster of gateways in one process: kill, drain and add nodes under traffic
#[derive(clap::Args)]
#[command(long_about = "\
Runs real engines, joined in memory, under packets of random sessions that come in at random nodes.
Checks each packet that leaves: a node that handles its session, and the session's own tunnel and
address. On a terminal, keys kill, start, drain, cut off, slow down and fill nodes. Elsewhere, or
with --script or --format json, prints a line a second; the time is virtual then, and runs as fast
as the machine allows. Needs no privileges, etcd or NATS. Fails if a packet was misrouted, or if the
accounts do not close.")]
#[command(after_help = "Examples:
  overbank gateway demo                                   a screen; q ends it
  overbank gateway demo --nodes 8 --sessions 200000 --rate 50000
  overbank gateway demo --script 'wait 2; kill 2; wait 8; start 2; drain 1; settle'
  overbank gateway demo --seconds 10 --format json | jq .misrouted

Commands of --script, separated by semicolons:
  kill N, start N, drain N    end a node as by a crash; start it; have it give all away and leave
  cut N, slow N, heal N       cut a node off from the others; let its log come late; undo both
  move N COUNT                move sessions to a node, from all others alike
  wait S                      let S seconds pass
  settle                      wait until one node handles each session, at most 60 s")]
pub struct Args {
    /// Nodes that run at first; numbers up to 31 can be started later
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
    nodes: u8,
    /// Sessions
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// Packets a second, up and down
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    rate: u32,
    /// Packets of no session, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    unknown: u8,
    /// Perform these commands, instead of keys
    #[arg(long, value_name = "COMMANDS")]
    script: Option<Script>,
    /// End after this time [default: at the end of the script, or 5 s without a terminal]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,
    /// Varies sessions' places and the packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format; text on a terminal is a screen
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: &Args) -> Result<()> {
    if u64::from(args.nodes) * u64::from(args.sessions) > PLACES_MAX {
        let most = PLACES_MAX / u64::from(args.nodes);
        bail!("--sessions {}: must be at most {most} with {} nodes", args.sessions, args.nodes);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let handler = move || {
        set.store(true, Ordering::Relaxed);
        // A read of keys does not end when its terminal is gone; nor is a long step waited for.
        std::thread::sleep(END_MAX);
        #[cfg(feature = "top")]
        let _ = ratatui::try_restore();
        std::process::exit(130);
    };
    ctrlc::set_handler(handler).context("cannot handle Ctrl-C")?;
    let mut world = World::new(args)?;
    let screen = args.format == Format::Text
        && args.script.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal();
    if !screen {
        print(args, &mut world, &stop)?;
    } else {
        #[cfg(feature = "top")]
        screen::run(&mut world, args.seconds, &stop)?;
        #[cfg(not(feature = "top"))]
        {
            eprintln!("overbank: a build with --features top has a screen here; see also --script");
            print(args, &mut world, &stop)?;
        }
    }
    let last = world.read();
    if args.format == Format::Text {
        writeln!(std::io::stdout(), "{}", last.totals())?;
    }
    if last.misrouted > 0 {
        bail!("internal error: {} packets were misrouted; please report it", last.misrouted);
    }
    if !last.closes {
        bail!("internal error: the accounts do not close; please report it");
    }
    Ok(())
}

/// Prints a line for each second and each command, in virtual time.
fn print(args: &Args, world: &mut World, stop: &AtomicBool) -> Result<()> {
    let script = args.script.clone().unwrap_or_default();
    let seconds = args.seconds.or_else(|| args.script.is_none().then_some(SECONDS));
    let mut out = std::io::stdout().lock();
    let mut before = world.read();
    if args.format == Format::Text {
        writeln!(out, "{}", Reading::HEAD)?;
    }
    let mut second = |world: &mut World, out: &mut dyn Write| -> Result<()> {
        let now = world.read();
        match args.format {
            Format::Text => writeln!(out, "{}", now.line(&before))?,
            Format::Json => writeln!(out, "{}", serde_json::to_string(&now.with_rates(&before))?)?,
        }
        before = now;
        Ok(())
    };
    let mut tick = |world: &mut World, out: &mut dyn Write| -> Result<bool> {
        world.tick();
        if world.is_whole_second() {
            second(world, out)?;
        }
        Ok(!stop.load(Ordering::Relaxed))
    };
    for command in script.commands() {
        let until = world.time_ms() + command.wait_ms();
        let done = world.perform(command).with_context(|| format!("--script: {command}"))?;
        if let (Some(done), Format::Text) = (done, args.format) {
            writeln!(out, "{:>6.2} s  {done}", world.time_ms() as f64 / 1e3)?;
        }
        while world.time_ms() < until && !(command.settles() && world.is_settled()) {
            if !tick(world, &mut out)? {
                return Ok(());
            }
        }
        if command.settles() && !world.is_settled() {
            bail!("--script: settle: the cluster has not settled within 60 s");
        }
    }
    while seconds.is_some_and(|seconds| world.time_ms() < u64::from(seconds) * 1000) {
        if !tick(world, &mut out)? {
            return Ok(());
        }
    }
    // What is left of a second.
    if !world.is_whole_second() {
        second(world, &mut out)?;
    }
    Ok(())
}
