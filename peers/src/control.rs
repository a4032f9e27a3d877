//! `control`: how long rules take to get into a switch and out of it over OpenFlow, Open vSwitch
//! beside Overbank.
//!
//! ```text
//!   round   Overbank: add-flows, bundle, flow-mods, dump … │ Open vSwitch: the same … │ …
//!                     └ ovs-ofctl ─────┘ └ a client here, one barrier or one request at the end
//! ```
//!
//! Both switches run on all cores, are idle but for this, and listen on a UNIX socket. Open vSwitch
//! uses the userspace datapath. Each insertion starts from an empty table. A time ends when the
//! switch has answered a barrier after the last rule; `ovs-ofctl` ends later, when it has exited.

mod client;
mod switches;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;
use overbank_kit::spread::Spread;
use serde::Serialize;
use serde_json::json;

use crate::folder::Folder;
use crate::machine;
use crate::output::{Block, Report, target};
use client::Client;
use switches::Switches;

/// Arguments of `control`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    smoke: bool,
    /// Numbers of rules of all operations
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10000,100000",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "1000"),
          value_parser = clap::builder::RangedU64ValueParser::<u32>::new().range(1..=200_000))]
    rules: Vec<u32>,
    /// Numbers of rules of flow-mods and dumps alone, besides those of --rules
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1000000",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2000"),
          value_parser = clap::builder::RangedU64ValueParser::<u32>::new().range(1..=1_000_000))]
    many: Vec<u32>,
    /// Rounds; the switches take turns in each
    #[arg(long, value_name = "N", default_value_t = 3,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "1"),
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    out: PathBuf,
}

/// What is timed.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    AddFlows,
    Bundle,
    FlowMods,
    Dump,
    DumpFlows,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::AddFlows,
        Operation::Bundle,
        Operation::FlowMods,
        Operation::Dump,
        Operation::DumpFlows,
    ];
    /// Those that are quick enough for a million rules.
    const OF_MANY: [Operation; 3] = [Operation::FlowMods, Operation::Dump, Operation::DumpFlows];

    fn name(self) -> &'static str {
        match self {
            Operation::AddFlows => "ovs-ofctl add-flows",
            Operation::Bundle => "ovs-ofctl --bundle add-flows",
            Operation::FlowMods => "flow-mods, one barrier at the end",
            Operation::Dump => "flow statistics of all rules",
            Operation::DumpFlows => "ovs-ofctl dump-flows",
        }
    }

    /// Returns whether it starts from an empty table.
    fn inserts(self) -> bool {
        !matches!(self, Operation::Dump | Operation::DumpFlows)
    }
}

/// Seconds of an operation, by round.
#[derive(Serialize)]
struct Row {
    operation: Operation,
    rules: u32,
    overbank: Vec<f64>,
    ovs: Vec<f64>,
}

/// Measures and writes the results.
pub fn run(options: &Options) -> Result<()> {
    if !machine::is_root() {
        bail!("Open vSwitch needs root: a network namespace");
    }
    let stop = machine::stop_on_ctrl_c()?;
    let folder = Folder::new("control")?;
    let switches = Switches::start(&folder)?;
    let sizes = options.rules.iter().map(|&rules| (rules, &Operation::ALL[..]));
    let many = options.many.iter().map(|&rules| (rules, &Operation::OF_MANY[..]));
    let mut rows = Vec::new();
    for (rules, operations) in sizes.chain(many) {
        let file = folder.path().join("rules.txt");
        std::fs::write(&file, client::text(rules)).context("rules.txt")?;
        let row = |&operation: &Operation| Row { operation, rules, overbank: vec![], ovs: vec![] };
        let mut these: Vec<Row> = operations.iter().map(row).collect();
        for round in 1..=options.rounds {
            for (name, socket) in switches.sockets() {
                for row in &mut these {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        bail!("stopped");
                    }
                    eprintln!("{rules} rules, round {round}, {name}: {}", row.operation.name());
                    let seconds = time(row.operation, rules, socket, &file)
                        .with_context(|| format!("{name}: {}", row.operation.name()))?;
                    let of =
                        if name == switches::OVERBANK { &mut row.overbank } else { &mut row.ovs };
                    of.push(seconds);
                }
            }
        }
        rows.extend(these);
    }
    write(options, &rows)
}

/// Runs an operation and returns its seconds. The table holds these rules afterwards.
fn time(
    operation: Operation,
    rules: u32,
    socket: &std::path::Path,
    file: &std::path::Path,
) -> Result<f64> {
    let mut client = Client::connect(socket)?;
    if operation.inserts() {
        client.clear()?;
    }
    let flow_mods =
        if operation == Operation::FlowMods { client.flow_mods(rules)? } else { vec![] };
    let start = Instant::now();
    match operation {
        Operation::AddFlows => switches::ofctl(&["-OOpenFlow13", "add-flows"], socket, Some(file))?,
        Operation::Bundle => {
            switches::ofctl(&["-OOpenFlow14", "--bundle", "add-flows"], socket, Some(file))?;
        }
        Operation::FlowMods => client.send_and_wait(&flow_mods)?,
        Operation::Dump => drop(client.dump()?),
        Operation::DumpFlows => switches::ofctl(&["-OOpenFlow13", "dump-flows"], socket, None)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    // Outside the time: the switch holds what it says.
    let held = if operation == Operation::DumpFlows { rules } else { client.count()? };
    if held != rules {
        bail!("{held} rules are there; expected {rules}");
    }
    Ok(seconds)
}

/// Writes `control.json`, `control.txt`, `control.md` and the record.
fn write(options: &Options, rows: &[Row]) -> Result<()> {
    let mut record = machine::describe(0.0);
    // No cycles are counted here.
    record.as_object_mut().map(|fields| fields.remove("tsc_ghz"));
    record["rounds"] = json!(options.rounds);
    record["rows"] = json!(rows);
    record["open_vswitch"] = json!(switches::version()?);
    let faster =
        |row: &Row| Spread::of_ratios(row.ovs.iter().copied(), row.overbank.iter().copied());
    let claim = |row: &Row| {
        let what = format!(
            "{}, {} rules: Open vSwitch's time to Overbank's",
            row.operation.name(),
            row.rules
        );
        target(what, 1.0, faster(row))
    };
    let cells = |row: &Row| {
        let seconds = |of: &[f64]| Spread::of(of.iter().copied()).cell(3);
        vec![
            row.operation.name().to_owned(),
            row.rules.to_string(),
            seconds(&row.overbank),
            seconds(&row.ovs),
            faster(row).cell(2),
        ]
    };
    let header = ["operation", "rules", "Overbank, s", "Open vSwitch, s", "ratio"];
    Report {
        name: "control",
        title: "Rules over OpenFlow, Open vSwitch beside Overbank",
        record: &record,
        intro: format!(
            "Rules with an exact match on addresses, protocol and port, sent to an idle switch over \
             a UNIX socket and read back. Median [range] of {} rounds in turns; ratio above 1: \
             Overbank takes less time.",
            options.rounds
        ),
        claims: rows.iter().map(claim).collect(),
        blocks: vec![Block {
            title: "Seconds".into(),
            header: header.map(str::to_owned).into(),
            rows: rows.iter().map(cells).collect(),
        }],
        core: 0,
    }
    .write(&options.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation on a running switch of ours.
    #[test]
    fn each_operation_leaves_as_many_rules_as_asked() {
        let folder = Folder::new("control-test").expect("a folder");
        let socket = folder.path().join("switch.sock");
        let _switch = switches::Overbank::start(&socket).expect("it starts");
        for operation in [Operation::FlowMods, Operation::Dump] {
            time(operation, 500, &socket, &folder.path().join("none")).expect("it works");
        }
        let mut client = Client::connect(&socket).expect("it listens");
        assert_eq!(client.count().expect("counted"), 500);
        let replies = client.dump().expect("dumped");
        assert!(replies.len() > 500 * 56, "{} bytes of flow statistics", replies.len());
        client.clear().expect("cleared");
        assert_eq!(client.count().expect("counted"), 0);
    }

    #[test]
    fn the_text_and_the_messages_are_the_same_rules() {
        let rules = overbank_switch::parse::parse_rules(&client::text(300)).expect("rules");
        assert_eq!(rules.len(), 300);
        let all: std::collections::BTreeSet<String> =
            rules.iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 300, "no two are the same");
    }
}
