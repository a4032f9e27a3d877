//! `overbank switch`: reads its settings from flags and a file, prints its totals.

mod appliance;
mod document;
pub mod rates;
pub mod settings;
pub mod setup;
pub mod status;

use crate::live::args::{self, LiveCommand, counted, report};
use crate::options::Format;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use overbank_declare::settings::Section;
use overbank_service::process::start_log;
use settings::{SECTIONS, prepare};
use status::Status;
use std::io::Write;

/// `overbank switch`.
pub struct Switch;

impl LiveCommand for Switch {
    const SECTIONS: &'static [Section] = &SECTIONS;
    const ABOUT: &'static str = "Forward packets between real ports, steered by rules and OpenFlow";
    const LONG_ABOUT: &'static str = "\
A TOML file may hold every setting by the same name; options override the file. Everything is
checked before anything starts. Ctrl-C or SIGTERM ends the switch and prints the totals; SIGHUP
reloads the rules, all or none.";
    const EXAMPLES: &'static str = "Examples:
  overbank switch --port 1=afpacket:veth1 --port 2=tap:tap0 --rules rules.txt
  overbank switch --port 1=afxdp:eth1 --port 2=afxdp:eth2 --workers 2 --openflow ptcp:6653
  overbank switch --port 1=afpacket:eth1 --port 2=afpacket:eth2 --fail-mode standalone
  overbank switch --port 1=pcap:in=a.pcap --port 2=pcap:out=b.pcap --rules rules.txt
  overbank switch --mode l2 --port 1=afpacket:eth1 --port 2=afpacket:eth2 --isolated 2
  overbank switch --mode netcache --kv-address 02:00:00:00:00:fe,10.0.0.254 --port 1=afpacket:eth1 \
    --port 2=afpacket:eth2
  overbank switch --config switch.toml --check

Kinds of ports: afpacket, afxdp and tap with the name of an interface; pcap and memory.
With --openflow ptcp:6653, `ovs-ofctl -O OpenFlow13 add-flow tcp:127.0.0.1:6653 …` adds rules.";
}

pub type Args = args::Args<Switch>;

pub fn run(args: &Args) -> Result<()> {
    let (config, rules) = prepare(args.source()).map_err(|problems| report(&problems))?;
    if args.options.check {
        let (ports, rules) = (counted(config.ports.len(), "port"), counted(rules.len(), "rule"));
        writeln!(std::io::stdout(), "configuration is valid: {ports}, {rules}")?;
        return Ok(());
    }
    start_log(&config.service);
    let ended = setup::run(&config, rules)?;
    let printed = match args.options.format {
        Format::Text => totals(&ended.status, &summary(&ended.status)),
        Format::Json => ended.json,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
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
    let cache = if status.mode == rates::NETCACHE {
        let (engine, kv) = (&t.device, &c.kv);
        format!(
            "; {} hits, {} misses, {} writes of cached keys; {} keys cached, {} installed, {} evicted",
            engine.kv_hits, engine.kv_misses, engine.kv_writes, kv.cached, kv.installed, kv.evicted,
        )
    } else {
        String::new()
    };
    if matches!(status.mode.as_str(), "l2" | rates::NETCACHE) {
        let macs = &c.stations.macs;
        return format!(
            "{head}, {} flooded; {} addresses: {} learned, {} moved, {} aged, {} flushed, {} evicted, \
             {} refused; not reported: {} rate-limited, {} queue full{cache}",
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

/// Returns the totals of an engine as a table, with `summary` below it.
pub fn totals(status: &Status, summary: &str) -> String {
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
    text.push_str(summary);
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
