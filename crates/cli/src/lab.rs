//! `overbank lab`: runs the experiments, keeps their records and reports them.

use crate::files::{Pending, keep_apart};
use crate::model;
use crate::options::Format;
use crate::setup::{command_line, pin, progress_bar, stop_on_ctrl_c};
use crate::text;
use crate::version::VERSION;
use anyhow::{Context as _, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use indicatif::ProgressBar;
use overbank_kit::experiment::{Context, Experiment, LabError, Size};
use overbank_kit::machine::Machine;
use overbank_kit::micro::PENALTY_CYCLES;
use overbank_kit::report;
use overbank_kit::results::Outcome;
use overbank_lab::experiments::fib::ENTRIES;
use overbank_lab::experiments::{self, Servers};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of an experiment on the progress bar.
const BAR_STEPS: u64 = 1000;
/// The page beside the records.
const PAGE: &str = "report.html";
/// Experiments that use `--penalty` and `--entries`.
const WITH_PENALTY: &[&str] = &["fig8", "fig9", "questions", "grid"];
const WITH_ENTRIES: &[&str] = &["fib5", "fib6", "fib7", "fibwriter"];

#[derive(Subcommand)]
pub enum Command {
    /// List the experiments, with their titles and sources
    #[command(after_help = "Example:
  overbank lab list | grep -i figure")]
    List,
    /// Run experiments; write one NAME.json each, and report.html over all records
    Run(RunArgs),
    /// Write the page from records, single ones or directories of them
    Report(ReportArgs),
    /// Calculate the hit rate of any geometry, and simulate it
    Model(model::Args),
    /// Serve the partitions of an experiment that starts this process
    #[command(hide = true)]
    Servers(ServersArgs),
}

#[derive(ClapArgs)]
pub struct ServersArgs {
    /// Address of the first one; the others follow it
    #[arg(long, value_name = "ADDRESS")]
    first: Ipv4Addr,
    #[arg(long, value_name = "N")]
    count: u16,
    #[arg(long, value_name = "ADDRESS")]
    device: Option<Ipv4Addr>,
    /// Requests a second of each
    #[arg(long, value_name = "N")]
    rate: u32,
    /// Bytes of a value
    #[arg(long, value_name = "N")]
    value: usize,
}

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank lab run table1 appendix-d
  overbank lab run all --smoke
  overbank lab run fig8 --penalty 300 --out out/lab-300
  overbank lab run fib5 fib6 fib7 --entries 1M,16M,100M
  overbank lab run fig8 --format json | jq '.[].checks'

Ctrl-C ends the running experiment and keeps the finished records. If an experiment fails or its
record cannot be written, the others go on, and the exit status is 1. A result that differs from the
paper's is not a failure.")]
pub struct RunArgs {
    /// Experiments of `overbank lab list`, or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Use small sizes: seconds instead of minutes; orderings hold, figures mean little
    #[arg(long)]
    smoke: bool,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Cycles that an emulated miss costs: fig8, fig9, questions, grid [default:
    /// 1000]
    #[arg(long, value_name = "CYCLES", value_parser = parse_penalty)]
    penalty: Option<f64>,
    /// Entries of the forwarding tables of fib5, fib6, fib7, fibwriter, such as 10k,16M,1G
    /// [default: each experiment's own sizes]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_entries)]
    entries: Vec<u64>,
    /// Core to run on [default: the last]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Directory of the records and the page [default: out/lab, with --smoke out/lab-smoke]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

fn parse_penalty(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(cycles) if (0.0..=1e9).contains(&cycles) => Ok(cycles),
        _ => Err("must be between 0 and 1e9 cycles".to_owned()),
    }
}

/// Reads a number of entries; k, M and G mean a thousand, a million and a billion.
fn parse_entries(text: &str) -> Result<u64, String> {
    let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let with = |(letter, unit)| Some((text.strip_suffix::<char>(letter)?, unit));
    let (digits, unit) = units.into_iter().find_map(with).unwrap_or((text, 1));
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(entries) if ENTRIES.contains(&entries) => Ok(entries),
        _ => Err(format!(
            "must be between {} and {} entries, such as 16000000 or 16M",
            ENTRIES.start(),
            ENTRIES.end()
        )),
    }
}

#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank lab report out/lab
  overbank lab report docs/records/epyc --out lab.html
  overbank lab report out/lab/grid.json out/lab/floor.json --out near.html --markdown near.md")]
pub struct ReportArgs {
    /// Records and directories of records, with one record for each experiment
    #[arg(required = true)]
    records: Vec<PathBuf>,
    /// Page to write [default: report.html in the first directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the tables and checks as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::List => list(),
        Command::Run(args) => measure(args),
        Command::Report(args) => report(args),
        Command::Model(args) => model::run(args),
        Command::Servers(args) => serve(args),
    }
}

fn serve(args: &ServersArgs) -> Result<()> {
    let ServersArgs { first, count, device, rate, value: value_len, .. } = *args;
    let servers = Servers { first, count, device, rate, value_len };
    Ok(servers.serve(std::io::stdin().lock(), std::io::stdout().lock())?)
}

fn list() -> Result<()> {
    let here = experiments::ALL.iter().map(|e| [e.name, e.title, e.source].map(str::to_owned));
    let rows = here.chain(experiments::MOVED.iter().map(|moved| moved.map(str::to_owned)));
    writeln!(std::io::stdout(), "{}", text::lab::columns(["name", "title", "source"], rows))?;
    Ok(())
}

fn measure(args: &RunArgs) -> Result<()> {
    let chosen = choose(&args.names)?;
    check_used(args, &chosen)?;
    let default = if args.smoke { "out/lab-smoke" } else { "out/lab" };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(default));
    std::fs::create_dir_all(&out)
        .with_context(|| format!("{}: cannot be created", out.display()))?;
    // Claim the page first: a place that cannot be written fails before the work.
    let page = Pending::claim(&out.join(PAGE))?;
    let path = |experiment: &Experiment| out.join(format!("{}.json", experiment.name));
    for experiment in &chosen {
        Pending::claim(&path(experiment))?;
    }
    read(&out)?;
    let machine = Machine::here(pin(args.core)?);
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.quiet);
    bar.set_length(BAR_STEPS * chosen.len() as u64);

    let (mut outcomes, mut without_record) = (Vec::new(), Vec::new());
    let mut ended = "";
    // A record that fails does not stop the others: report errors at the end.
    let mut printed = Ok(());
    for (number, experiment) in chosen.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            ended = "Ended early: ";
            break;
        }
        let mut fails = |why: &str| {
            bar.suspend(|| eprintln!("overbank: {}: {why}", experiment.name));
            without_record.push(experiment.name);
        };
        match one(experiment, args, &stop, &bar, number) {
            Ok(record) => {
                let mut outcome = Outcome::new(record, machine.clone(), command_line());
                outcome.version = VERSION.to_owned();
                let claimed = Pending::claim(&path(experiment));
                if let Err(error) = claimed.and_then(|file| file.finish(&outcome.json())) {
                    fails(&format!("{error:#}"));
                }
                if args.format == Format::Text {
                    let text = text::lab::outcome(&outcome);
                    printed = printed.and(bar.suspend(|| print(&text)));
                }
                outcomes.push(outcome);
            }
            Err(LabError::Stopped) => ended = "Ended early: ",
            Err(LabError::Failed(why)) => fails(&why),
        }
    }
    bar.finish_and_clear();

    let placed = finish(page, &out, &outcomes, &without_record);
    let text = match args.format {
        Format::Json => serde_json::to_string_pretty(&outcomes)?,
        Format::Text => {
            let (done, of, dir) = (outcomes.len(), chosen.len(), out.display());
            format!("{ended}{done} of {of} experiments done; {dir}/{PAGE}")
        }
    };
    let told = placed.and(printed.and(print(&text)).context("standard output"));
    if without_record.is_empty() {
        return told;
    }
    if let Err(error) = told {
        eprintln!("overbank: {error:#}");
    }
    bail!("no record written: {}", without_record.join(", "));
}

fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}

/// Writes the page from all records, including new outcomes whose record could not be written.
fn finish(page: Pending, out: &Path, now: &[Outcome], without_record: &[&str]) -> Result<()> {
    let (mut all, readable) = match read(out) {
        Ok(all) => (all, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    for outcome in now {
        let same = all.iter().position(|o| o.record.name == outcome.record.name);
        match same {
            // The record on disk is older.
            Some(at) if without_record.contains(&&*outcome.record.name) => {
                all[at] = outcome.clone();
            }
            Some(_) => {}
            None => all.push(outcome.clone()),
        }
    }
    experiments::sort(&mut all);
    if !all.is_empty() {
        page.finish(&report::outcomes::page(&all))?;
    }
    readable
}

/// Refuses an option that none of the experiments uses.
fn check_used(args: &RunArgs, chosen: &[&Experiment]) -> Result<()> {
    let given = [
        ("--penalty", args.penalty.is_some(), WITH_PENALTY),
        ("--entries", !args.entries.is_empty(), WITH_ENTRIES),
    ];
    for (option, given, names) in given {
        if given && !chosen.iter().any(|e| names.contains(&e.name)) {
            bail!("{option}: used only by {}, and none of them was chosen", names.join(", "));
        }
    }
    Ok(())
}

fn one(
    experiment: &Experiment,
    args: &RunArgs,
    stop: &AtomicBool,
    bar: &ProgressBar,
    number: usize,
) -> Result<overbank_kit::experiment::Record, LabError> {
    let mut progress = |what: &str, done: f64| {
        let part = (done.clamp(0.0, 1.0) * BAR_STEPS as f64) as u64;
        bar.set_position(number as u64 * BAR_STEPS + part);
        bar.set_message(format!("{:<13} {what}", experiment.name));
    };
    progress("starts", 0.0);
    // Unknown on some systems: an experiment that needs it says so.
    let program = std::env::current_exe().ok();
    experiment.measure(&mut Context {
        size: if args.smoke { Size::Smoke } else { Size::Full },
        seed: args.seed,
        penalty_cycles: args.penalty.unwrap_or(PENALTY_CYCLES),
        entries: &args.entries,
        program: program.as_deref(),
        stop,
        progress: &mut progress,
    })
}

/// Returns each experiment once; `all` in the order of the list, others as typed.
fn choose(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let mut chosen: Vec<&Experiment> = Vec::new();
    for name in names {
        let found = match name.as_str() {
            "all" => experiments::ALL.iter().collect(),
            name => experiments::by_name(name).into_iter().collect::<Vec<_>>(),
        };
        if let Some([_, title, _]) = experiments::MOVED.iter().find(|moved| moved[0] == name) {
            bail!("{name}: {title}");
        }
        if found.is_empty() {
            let known: Vec<&str> = experiments::ALL.iter().map(|e| e.name).collect();
            bail!("unknown experiment {name:?}; known: {} and all", known.join(", "));
        }
        for experiment in found {
            if !chosen.iter().any(|c| c.name == experiment.name) {
                chosen.push(experiment);
            }
        }
    }
    Ok(chosen)
}

fn report(args: &ReportArgs) -> Result<()> {
    let mut inputs = Vec::new();
    for path in &args.records {
        if path.is_dir() { inputs.append(&mut records(path)?) } else { inputs.push(path.clone()) }
    }
    let outcomes = outcomes(&inputs)?;
    if outcomes.is_empty() {
        let named = args.records.iter().map(|path| path.display().to_string());
        bail!("{}: no records of experiments", named.collect::<Vec<_>>().join(", "));
    }
    let page = match (&args.out, args.records.iter().find(|path| path.is_dir())) {
        (Some(page), _) => page.clone(),
        (None, Some(dir)) => dir.join(PAGE),
        (None, None) => bail!("--out FILE: required if no directory of records is given"),
    };
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    keep_apart(&page, &inputs)?;
    if let Some(markdown) = &args.markdown {
        keep_apart(markdown, &inputs)?;
        // The page need not exist yet.
        let folder = |file: &Path| {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder.unwrap_or(Path::new(".")).canonicalize().ok()
        };
        if markdown.file_name() == page.file_name() && folder(markdown) == folder(&page) {
            bail!("{}: is the page; choose another name", markdown.display());
        }
    }
    let page = Pending::claim(&page)?;
    let markdown = args.markdown.as_deref().map(Pending::claim).transpose()?;
    page.finish(&report::outcomes::page(&outcomes))?;
    if let Some(markdown) = markdown {
        markdown.finish(&report::markdown::page(&outcomes))?;
    }
    Ok(())
}

/// Returns the files of a directory that are named like records.
fn records(dir: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("{}: cannot be read", dir.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        // A pipe of that name would block.
        if path.extension().is_some_and(|e| e == "json") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the records of a directory, in the order of the list.
fn read(dir: &Path) -> Result<Vec<Outcome>> {
    outcomes(&records(dir)?)
}

/// Returns the outcomes of these records, in the order of the list.
fn outcomes(paths: &[PathBuf]) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let json =
            std::fs::read_to_string(path).with_context(|| format!("{name}: cannot be read"))?;
        let outcome = Outcome::parse(&json).context(name.clone())?;
        if outcomes.iter().any(|other| other.record.name == outcome.record.name) {
            bail!("{name}: second record of {}; remove one", outcome.record.name);
        }
        outcomes.push(outcome);
    }
    experiments::sort(&mut outcomes);
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: RunArgs,
    }

    fn sources(path: &Path) -> String {
        if path.is_file() {
            return std::fs::read_to_string(path).expect("a source file");
        }
        let entries = std::fs::read_dir(path).expect("a folder of sources");
        entries.map(|entry| sources(&entry.expect("an entry").path())).collect()
    }

    /// The list and the help name exactly the experiments whose module reads the option.
    #[test]
    fn the_experiments_that_use_an_option_are_listed() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/src/experiments");
        let command = Typed::command();
        let options =
            [("penalty", "penalty_cycles", WITH_PENALTY), ("entries", "entries", WITH_ENTRIES)];
        for (option, field, names) in options {
            let mut used = BTreeSet::new();
            for entry in std::fs::read_dir(&lab).expect("the experiments") {
                let path = entry.expect("an entry").path();
                let text = sources(&path);
                if text.contains(&format!("context.{field}")) {
                    let named =
                        |e: &&Experiment| text.contains(&format!("    name: \"{}\",", e.name));
                    used.extend(experiments::ALL.iter().filter(named).map(|e| e.name));
                }
            }
            assert_eq!(used, names.iter().copied().collect(), "--{option}");
            let help = command.get_arguments().find(|a| a.get_id() == option).expect("an option");
            let help = help.get_help().expect("its help").to_string();
            assert!(help.contains(&names.join(", ")), "{help}");
        }
        let help = command.get_arguments().find(|a| a.get_id() == "penalty").expect("an option");
        let default = format!("[default: {PENALTY_CYCLES}]");
        assert!(help.get_help().expect("its help").to_string().contains(&default));
    }
}
