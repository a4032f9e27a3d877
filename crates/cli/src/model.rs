//! `overbank lab model`: calculates hit rates of any geometry, and simulates them to compare.

use crate::options::Format;
use crate::setup::{progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::Result;
use clap::Args as ClapArgs;
use overbank_kit::geometry::AnyGeometry;
use overbank_kit::models::ALPHA_MAX;
use overbank_products::model::{ENTRIES_MAX, Simulation, calculate};
use std::io::Write;

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank lab model blp-2-4 blp-3-5 set-8 --alpha 0.95,2
  overbank lab model blp-8-2 --simulate 65536
  overbank lab model cuckoo-2-12 --format json | jq '.rows[].hit_rate'

The models are those of the paper's appendices A and B, for any number of buckets H and slots m.
They give the final hit rate for uniform keys and random eviction. For cuckoo-lite it is an upper
bound, nearly reached except around α = 1. --simulate also runs a plain table; near α = 1 it takes
hundreds of lookups per key to converge.")]
pub struct Args {
    /// set-M, blp-H-M or cuckoo-H-M: H buckets of M slots a key, at most 1024 slots in all
    #[arg(required = true, value_name = "GEOMETRY")]
    geometries: Vec<AnyGeometry>,
    /// Keys per slot of the table, α
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.95",
          value_parser = parse_alpha)]
    alpha: Vec<f64>,
    /// Also simulate tables with this many slots
    #[arg(long, value_name = "ENTRIES",
          value_parser = clap::value_parser!(u64).range(1..=ENTRIES_MAX as u64))]
    simulate: Option<u64>,
    /// Lookups per key of a simulation
    #[arg(long, value_name = "N", default_value_t = 100, requires = "simulate",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    lookups: u32,
    /// Seed of the simulation's keys, hash functions and evictions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

fn parse_alpha(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // Less than one key in a million slots is none.
        Ok(alpha) if (1e-6..=ALPHA_MAX).contains(&alpha) => Ok(alpha),
        _ => Err(format!("must be between 0.000001 and {ALPHA_MAX} keys per slot")),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.quiet);
    bar.set_length(1000);
    let simulation = args.simulate.map(|entries| Simulation {
        entries: entries as usize,
        lookups_per_key: args.lookups,
        seed: args.seed,
    });
    let mut progress = |what: &str, done: f64| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_message(what.to_owned());
    };
    let found = calculate(&args.geometries, &args.alpha, simulation, &stop, &mut progress)?;
    bar.finish_and_clear();
    let printed = match args.format {
        Format::Text => text::lab::calculation(&found),
        Format::Json => serde_json::to_string_pretty(&found)?,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}
