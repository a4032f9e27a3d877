//! `overbank sdc`.

use crate::files::Pending;
use crate::options::{Format, parse_theta};
use crate::setup::{command_line, progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args as ClapArgs, Subcommand};
use overbank_products::sdc::program::Program;
use overbank_products::sdc::{self, INDEXES, Plan, SYSTEMS, page};
use std::io::Write;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    Run(Box<Args>),
}

/// Run a real index on a simulated machine with SDC, beside the regular machine
///
/// Builds an index, serves lookups of it as compiled code on a simulated core with caches, TLB,
/// DRAM and a software defined cache (SDC) in its last level, and counts what they cost. Prints
/// lookups a second, the gain over the regular machine, hits and false hits, accesses by level,
/// what became of SDC's values, and SDC's cost in bits.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  overbank sdc run
  overbank sdc run --index lmdb --system sdc --llc 3MB --ratio 0.5 --report sdc.html
  overbank sdc run --index hash --family 2 --sub-tag-bits 4 --keys fresh
  overbank sdc run --index masstree --ycsb B --value 64 --machine modern
  overbank sdc run --system sdc-values --ratio 0.5
  overbank sdc run --index bplus --system copies --set tlb.walk_levels=0
  overbank sdc run --index bplus --heat --items 8000 --value 8 --report heat.html
  overbank sdc run --items 100000 --subset 20000 --format json | jq .gain.blocking

The program that runs the index, overbank-workloads, is compiled so that each of its loads and stores
is seen; `cargo xtask workloads` builds it. It is found in target/workloads of this folder or of one
above, or in OVERBANK_WORKLOADS.

Both machines are simulated: figures do not depend on this machine, nor on what else runs on it. A
million items need 600 MB, twice with the regular machine beside it. Ctrl-C ends the run without
output.

docs/sdc.md explains the machine and the page.")]
pub struct Args {
    /// Index that every miss walks
    #[arg(long, value_name = "INDEX", default_value = "lmdb", value_parser = named(&INDEXES))]
    index: String,
    /// What stands in front of it
    #[arg(long, value_name = "SYSTEM", default_value = "sdc", value_parser = named(&SYSTEMS))]
    system: String,
    /// The paper's machine, or one of today
    #[arg(long, value_name = "MACHINE", default_value = "paper",
          value_parser = PossibleValuesParser::new(["paper", "modern"]))]
    machine: String,
    /// Size of the last-level cache: 64 bytes × its ways × a power of two [default: the machine's]
    #[arg(long, value_name = "BYTES")]
    llc: Option<String>,
    /// Most lines of a family of SDC: 1, 2, 4 or 8 [default: 4]
    #[arg(long, value_name = "LINES")]
    family: Option<u32>,
    /// Bits of a slot's sub-tag, 0 to 8 [default: 5]
    #[arg(long, value_name = "BITS")]
    sub_tag_bits: Option<u32>,
    /// Slots of a line of SDC: 8, or 1 where each value takes a whole line [default: 8]
    #[arg(long, value_name = "SLOTS")]
    slots: Option<u32>,
    /// Any field of the machine, as `.point.shape` of the JSON names it; repeatable
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Items in the index [default: 1500000]
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Items that are asked for [default: with --items all of them; else those of --ratio 1]
    #[arg(long, value_name = "N", conflicts_with = "ratio")]
    subset: Option<u64>,
    /// The same by the size of their data set, in last-level caches: of each item a lookup touches
    /// its key and what it reads
    #[arg(long, value_name = "RATIO")]
    ratio: Option<f64>,
    /// Where they lie in memory
    #[arg(long, value_name = "PLACEMENT", default_value = "together",
          value_parser = PossibleValuesParser::new(["together", "scattered"]))]
    placement: String,
    /// Size of a value, a multiple of 8 bytes
    #[arg(long, value_name = "BYTES", default_value = "512")]
    value: String,
    /// First bytes of a value that a lookup reads [default: 64; 56 with --system sdc-values; with
    /// --ycsb, 8 of each 64]
    #[arg(long, value_name = "BYTES", conflicts_with = "ycsb")]
    read: Option<String>,
    /// Requests that are counted
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    lookups: u64,
    /// Requests before [default: three times --lookups; with --ycsb a third of it]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Whether the counted requests are those of the warm-up, as in the paper, or others of the
    /// same law [default: replayed]
    #[arg(long, value_name = "KEYS", conflicts_with = "ycsb",
          value_parser = PossibleValuesParser::new(["replayed", "fresh"]))]
    keys: Option<String>,
    /// Mix of YCSB; its keys are fresh
    #[arg(long, value_name = "MIX", ignore_case = true,
          value_parser = PossibleValuesParser::new(["A", "B", "C", "D"]))]
    ycsb: Option<String>,
    /// Zipf skew θ of the keys; 0 is uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.99, value_parser = parse_theta)]
    theta: f64,
    /// Seed of keys, orders and tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Size of slb, copies or hints [default: the last-level cache's]
    #[arg(long, value_name = "BYTES")]
    table: Option<String>,
    /// What a hit of SDC with another key does: it goes on through the index, or ends, as in the
    /// paper's figure 3
    #[arg(long, value_name = "WHAT", default_value = "through",
          value_parser = PossibleValuesParser::new(["through", "dropped"]))]
    false_hit: String,
    /// Count accesses to each slot of one 32 KB 8-way cache, without other levels, and draw them
    #[arg(long)]
    heat: bool,
    /// Sets of the last-level cache to show [default: the four with the most values of SDC]
    #[arg(long, value_name = "SETS", default_value = "fullest", hide_default_value = true)]
    view: String,
    /// Leave the regular machine out
    #[arg(long)]
    alone: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write a page with tables, plots and the sets of the cache, readable offline
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Accepts the names of a list.
fn named(list: &'static [(&str, &str)]) -> PossibleValuesParser {
    list.iter().map(|(name, what)| PossibleValue::new(name).help(what)).into()
}

pub fn run(command: &Command) -> Result<()> {
    let Command::Run(args) = command;
    let plan = plan(args)?;
    // Claim the output first: a bad name fails before the work.
    let stop = stop_on_ctrl_c()?;
    let report = args.report.as_deref().map(Pending::claim).transpose()?;
    let program = Program::find()?;
    let bar = progress_bar(args.quiet);
    let mut progress = |what: &str, done: f64| {
        if !bar.is_hidden() {
            bar.set_length(1000);
            bar.set_position((done * 1000.0) as u64);
            bar.set_message(what.to_owned());
        }
    };
    let comparison = sdc::run(&program, &plan, &stop, &mut progress);
    bar.finish_and_clear();
    let comparison = comparison?;
    let printed = match args.format {
        Format::Text => text::sdc::render(&comparison),
        Format::Json => serde_json::to_string_pretty(&comparison)?,
    };
    if let Some(report) = report {
        report.finish(&page::page(&comparison, &command_line()))?;
    }
    writeln!(std::io::stdout(), "{printed}").context("standard output")
}

/// Returns what a lookup reads, for both machines: by default, the regular one would read 64 bytes
/// beside values of 56 in SDC.
fn read(args: &Args) -> Option<String> {
    let inside = || {
        let value: Option<u64> = args.value.parse().ok();
        let fits = |bytes: &u64| value.is_none_or(|value| *bytes <= value);
        Some([56, 24, 8].into_iter().find(fits)?.to_string())
    };
    let by_default = args.system == "sdc-values" && args.ycsb.is_none();
    args.read.clone().or_else(|| if by_default { inside() } else { None })
}

/// Returns the arguments of the program. It judges their values, and its error is ours.
fn plan(args: &Args) -> Result<Plan> {
    let of_sdc = |name: &str, field: &str, value: Option<u32>| match value {
        Some(_) if !args.system.starts_with("sdc") => bail!("{name}: must come with --system sdc"),
        Some(value) => Ok(Some(format!("--set=sdc.{field}={value}"))),
        None => Ok(None),
    };
    let mut further: Vec<String> = [
        of_sdc("--family", "family", args.family)?,
        of_sdc("--sub-tag-bits", "sub_tag_bits", args.sub_tag_bits)?,
        of_sdc("--slots", "slots", args.slots)?,
        args.table.as_ref().map(|table| format!("--table={table}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    further.push(format!("--false-hit={}", args.false_hit));
    further.push(format!("--view={}", args.view));
    let mut common = vec![
        format!("--machine={}", args.machine),
        format!("--placement={}", args.placement),
        format!("--value={}", args.value),
        format!("--lookups={}", args.lookups),
        format!("--theta={}", args.theta),
        format!("--seed={}", args.seed),
    ];
    let asked = match (args.subset, args.ratio, args.items) {
        (Some(subset), _, _) => Some(format!("--subset={subset}")),
        (None, Some(ratio), _) => Some(format!("--ratio={ratio}")),
        (None, None, Some(_)) => None,
        (None, None, None) => Some("--ratio=1".to_owned()),
    };
    let optional = [
        args.llc.as_ref().map(|llc| format!("--llc={llc}")),
        args.items.map(|items| format!("--items={items}")),
        asked,
        read(args).map(|read| format!("--read={read}")),
        args.warmup.map(|warmup| format!("--warmup={warmup}")),
        args.keys.as_ref().map(|keys| format!("--keys={keys}")),
        args.ycsb.as_ref().map(|mix| format!("--ycsb={mix}")),
        args.heat.then(|| "--heat".to_owned()),
    ];
    common.extend(optional.into_iter().flatten());
    for set in &args.set {
        // The regular machine has no SDC of which a field could be set.
        let to = if set.starts_with("sdc") { &mut further } else { &mut common };
        to.push(format!("--set={set}"));
    }
    let Args { index, system, alone, .. } = args;
    Ok(Plan { index: index.clone(), system: system.clone(), common, further, alone: *alone })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn both_machines_read_what_fits_into_sdc() {
        let read = |line: &str| {
            let Line { args } = Line::parse_from([&["sdc"], &*split(line)].concat());
            let plan = plan(&args).expect("a plan");
            plan.common.into_iter().find(|argument| argument.starts_with("--read"))
        };
        let is = |line: &str, bytes: u64| assert_eq!(read(line), Some(format!("--read={bytes}")));
        is("--system sdc-values", 56);
        is("--system sdc-values --value 1KB", 56);
        is("--system sdc-values --value 24", 24);
        is("--system sdc-values --value 16", 8);
        is("--system sdc-values --read 64", 64);
        assert_eq!(read("--system sdc-values --ycsb C --value 64"), None);
        assert_eq!(read("--system sdc"), None);
    }

    fn split(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }
}
