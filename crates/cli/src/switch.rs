//! `overbank switch`: reads its settings from flags and a file, prints its totals.

mod appliance;
mod document;
pub mod rates;
pub mod settings;
pub mod setup;
pub mod status;

use crate::options::Format;
use anyhow::{Result, anyhow};
use clap::{ArgMatches, Args as ClapArgs, Command, FromArgMatches};
use comfy_table::{CellAlignment, Table, presets};
use overbank_declare::settings::{Problems, Source, flags};
use overbank_service::process::start_log;
use settings::{SECTIONS, prepare};
use status::Status;
use std::io::Write;
use std::path::PathBuf;

/// Forward packets between real ports, steered by rules and OpenFlow.
///
/// A TOML file may hold every setting by the same name; options override the file. Everything is
/// checked before anything starts. Ctrl-C or SIGTERM ends the switch and prints the totals; SIGHUP
/// reloads the rules, all or none.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank switch --port 1=afpacket:veth1 --port 2=tap:tap0 --rules rules.txt
  overbank switch --port 1=afxdp:eth1 --port 2=afxdp:eth2 --workers 2 --openflow ptcp:6653
  overbank switch --port 1=afpacket:eth1 --port 2=afpacket:eth2 --fail-mode standalone
  overbank switch --port 1=pcap:in=a.pcap --port 2=pcap:out=b.pcap --rules rules.txt
  overbank switch --mode l2 --port 1=afpacket:eth1 --port 2=afpacket:eth2 --isolated 2
  overbank switch --config switch.toml --check

Kinds of ports: afpacket, afxdp and tap with the name of an interface; pcap and memory.
With --openflow ptcp:6653, `ovs-ofctl -O OpenFlow13 add-flow tcp:127.0.0.1:6653 …` adds rules.")]
struct Options {
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check settings and rules without starting
    #[arg(long)]
    check: bool,
    /// Output format of the totals
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Options of the command, and settings of the file and the flags.
pub struct Args {
    options: Options,
    source: Source,
}

impl ClapArgs for Args {
    fn augment_args(command: Command) -> Command {
        flags::add(Options::augment_args(command), &SECTIONS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Args::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let mut source = Source::new(&SECTIONS);
        if let Some(path) = &options.config {
            source.file(path);
        }
        flags::take(matches, &SECTIONS, &mut source);
        Ok(Args { options, source })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<()> {
    let (config, rules) = prepare(args.source.clone()).map_err(|problems| report(&problems))?;
    if args.options.check {
        let counted = |n: usize, what| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (ports, rules) = (counted(config.ports.len(), "port"), counted(rules.len(), "rule"));
        writeln!(std::io::stdout(), "configuration is valid: {ports}, {rules}")?;
        return Ok(());
    }
    start_log(&config.service);
    let counted = setup::run(&config, rules)?;
    let printed = match args.options.format {
        Format::Text => totals(&counted.status),
        Format::Json => counted.json,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

/// Lists all problems, one a line.
fn report(problems: &Problems) -> anyhow::Error {
    match problems.0.len() {
        1 => anyhow!("{problems}"),
        n => anyhow!("{n} problems\n{problems}"),
    }
}

/// Returns an empty table with these heads; all columns but the first two are numbers.
pub fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Lists reasons with their numbers.
fn reasons(of: &std::collections::BTreeMap<String, u64>) -> String {
    of.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

/// Summarises the fate of the packets in a line.
fn summary(status: &Status) -> String {
    let (t, c) = (&status.total, &status.control);
    let head = format!("{:.1} s, {} packets", status.uptime_ms as f64 / 1e3, t.worker.packets);
    if status.mode == "l2" {
        let macs = &c.stations.macs;
        return format!(
            "{head}, {} flooded; {} addresses: {} learned, {} moved, {} aged, {} flushed, {} evicted, \
             {} refused; not reported: {} rate-limited, {} queue full",
            t.engine.flooded,
            c.stations.totals.stations,
            macs.learned,
            macs.moved,
            macs.aged,
            macs.flushed,
            macs.evicted,
            macs.refused,
            t.engine.learn_limited,
            t.engine.learn_queue_full,
        );
    }
    format!(
        "{head}: {} in tier 1, {} in tier 2, {} in tier 3; {} rules, {} addresses",
        t.engine.microflow_hits,
        t.engine.megaflow_hits,
        t.engine.classifier_lookups,
        c.totals.rules,
        c.stations.totals.stations,
    )
}

fn totals(status: &Status) -> String {
    let mut ports = table(&[
        "port",
        "name",
        "received",
        "forwarded",
        "controller",
        "dropped",
        "missed",
        "sent",
        "not sent",
    ]);
    let mut notes = Vec::new();
    for port in &status.ports {
        let (t, not_sent) = (&port.totals, port.not_sent());
        let dropped: u64 = port.dropped.values().sum();
        if t.received == 0 && t.outputs == 0 && port.name == "controllers" {
            continue;
        }
        let number = if port.name == "controllers" { "-".into() } else { port.number.to_string() };
        ports.add_row([
            number.clone(),
            port.name.clone(),
            t.received.to_string(),
            t.forwarded.to_string(),
            t.to_controller.to_string(),
            dropped.to_string(),
            (t.missed + t.errors).to_string(),
            t.sent.to_string(),
            t.not_sent_total().to_string(),
        ]);
        for (what, of) in [("dropped", &port.dropped), ("not sent", &not_sent)] {
            if !of.is_empty() {
                notes.push(format!("port {number} {what}: {}", reasons(of)));
            }
        }
    }
    let t = &status.total;
    let mut text = format!("{ports}\n");
    for note in notes {
        text.push_str(&note);
        text.push('\n');
    }
    text.push_str(&summary(status));
    if let Some(share) = t.datapath_share {
        text.push_str(&format!(
            "\ndatapath share of packet processing time: {:.0} %",
            share * 100.0
        ));
    }
    if !status.closes {
        text.push_str("\nTHE ACCOUNTS DO NOT CLOSE: internal error; please report it");
    }
    text
}
