//! `overbank switch`.

mod appliance;
pub mod config;
mod document;
mod guests;
mod metrics;
mod privileges;
pub mod rates;
mod run;
mod setup;
pub mod status;
mod sys;

use crate::options::Format;
use anyhow::{Result, anyhow};
use clap::Args as ClapArgs;
use comfy_table::{CellAlignment, Table, presets};
use config::{CACHE_DEFAULT, Config, LogFormat, METRICS_DEFAULT, Problems, Settings, prepare};
use status::Status;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use tracing_subscriber::filter::LevelFilter;

/// Forward packets between real ports, steered by rules and OpenFlow.
///
/// Every option can also stand in a TOML file, by the same name; options given here replace those of
/// the file. All of it is checked before anything starts. Ctrl-C or SIGTERM ends the switch and
/// prints what was counted; SIGHUP reads the rules again, all of them or none.
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
pub struct Args {
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check settings and rules, and start nothing
    #[arg(long)]
    check: bool,
    /// A port: its number and what it is; once for each
    #[arg(long, value_name = "N=KIND:…")]
    port: Vec<String>,
    /// What decides where frames go: openflow (rules and controllers) or l2 (an Ethernet switch that
    /// learns addresses) [default: openflow]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Rules to begin with, in the syntax of ovs-ofctl; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,
    /// OpenFlow: ptcp:PORT[:ADDRESS] or punix:PATH to listen, tcp:HOST[:PORT] or unix:PATH to
    /// connect; once for each
    #[arg(long, value_name = "TARGET")]
    openflow: Vec<String>,
    /// Worker threads, each with its own queues and caches [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Cores of the workers, one for each [default: those that there are]
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
    #[doc = "Design of the flow cache of each worker, or none"]
    #[arg(long, value_name = "DESIGN", help = format!(
        "Design of the flow cache of each worker, or none [default: {CACHE_DEFAULT}]"))]
    cache: Option<String>,
    /// Entries of the flow cache [default: 262144]
    #[arg(long, value_name = "N")]
    entries: Option<String>,
    /// Most megaflows of each worker [default: 65536]
    #[arg(long, value_name = "N")]
    megaflows: Option<String>,
    /// Seconds after which an unused megaflow goes [default: 10]
    #[arg(long, value_name = "S")]
    megaflow_idle: Option<String>,
    /// Most rules [default: 1000000]
    #[arg(long, value_name = "N")]
    max_rules: Option<String>,
    /// Most learnt addresses [default: 8192]
    #[arg(long, value_name = "N")]
    mac_entries: Option<String>,
    /// Pages that their table lies on: huge (2 MiB where the system gives them), 1g (of the pool of
    /// 1 GiB pages, or nothing starts) or small [default: huge]
    #[arg(long, value_name = "PAGES")]
    mac_pages: Option<String>,
    /// Seconds after which a silent address is forgotten [default: 300]
    #[arg(long, value_name = "S")]
    mac_age: Option<String>,
    /// Most addresses that a worker learns in a second behind each port [default: 4096]
    #[arg(long, value_name = "N")]
    mac_rate: Option<String>,
    /// Most reports of addresses that wait, for each worker [default: 1024]
    #[arg(long, value_name = "N")]
    mac_queue: Option<String>,
    /// An address that is behind a port for good; once for each
    #[arg(long, value_name = "MAC[@VLAN]=PORT")]
    mac_static: Vec<String>,
    /// Ports that do not talk to each other, only to the rest (mode l2)
    #[arg(long, value_name = "LIST")]
    isolated: Option<String>,
    /// Most packets for controllers that wait, for each worker [default: 256]
    #[arg(long, value_name = "N")]
    controller_queue: Option<String>,
    /// Most OpenFlow connections made to the switch, at one time [default: 16]
    #[arg(long, value_name = "N")]
    controller_connections: Option<String>,
    /// Seconds in which an OpenFlow connection has to say hello [default: 10]
    #[arg(long, value_name = "S")]
    controller_hello: Option<String>,
    /// Seconds of silence after which a controller is asked for an echo, and as many to answer; or
    /// off [default: 5]
    #[arg(long, value_name = "S")]
    controller_probe: Option<String>,
    /// Seconds after which a controller that reads nothing of what waits for it loses its session
    /// [default: 30]
    #[arg(long, value_name = "S")]
    controller_stall: Option<String>,
    /// Bytes waiting for a controller with which its session takes no more requests [default: 262144]
    #[arg(long, value_name = "N")]
    controller_bytes: Option<String>,
    /// Most packets that wait for each OpenFlow session [default: 256]
    #[arg(long, value_name = "N")]
    controller_packets: Option<String>,
    /// Most packets of controllers that wait to be sent [default: 256]
    #[arg(long, value_name = "N")]
    controller_packet_outs: Option<String>,
    /// Most frames kept for each OpenFlow session; 0: all are sent whole [default: 256]
    #[arg(long, value_name = "N")]
    controller_buffers: Option<String>,
    /// Most port and rule events that wait for each OpenFlow session [default: 4096]
    #[arg(long, value_name = "N")]
    controller_events: Option<String>,
    /// Most open bundles of each OpenFlow session [default: 8]
    #[arg(long, value_name = "N")]
    controller_bundles: Option<String>,
    /// Most messages in all bundles of each OpenFlow session [default: 65536]
    #[arg(long, value_name = "N")]
    controller_bundle_messages: Option<String>,
    /// While no controller is connected: secure (the rules stand) or standalone (a learning switch)
    /// [default: secure]
    #[arg(long, value_name = "MODE")]
    fail_mode: Option<String>,
    #[doc = "Where metrics and status are served over HTTP, or off"]
    #[arg(long, value_name = "ADDRESS:PORT", help = format!(
        "Where metrics and status are served over HTTP, or off [default: {METRICS_DEFAULT}]"))]
    metrics: Option<String>,
    /// Most connections for metrics and status at one time; others wait [default: 64]
    #[arg(long, value_name = "N")]
    metrics_connections: Option<String>,
    /// A socket that answers each line with the status, for `overbank top`
    #[arg(long, value_name = "PATH")]
    status_socket: Option<String>,
    /// Most connections to that socket at one time; others wait [default: 16]
    #[arg(long, value_name = "N")]
    status_connections: Option<String>,
    /// What is logged: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// How it is logged: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Identity towards controllers, up to 16 hexadecimal digits [default: the first port's address]
    #[arg(long, value_name = "HEX")]
    datapath_id: Option<String>,
    /// End after so many seconds
    #[arg(long, value_name = "S")]
    duration: Option<String>,
    /// What workers do when there is nothing: wait (idle) or go on asking (busy) [default: idle]
    #[arg(long, value_name = "HOW")]
    poll: Option<String>,
    /// Keep rights that are not needed any more once the ports are open
    #[arg(long)]
    keep_privileges: bool,
    /// How to print the totals
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Args {
    fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        if let Some(path) = &self.config {
            settings.file(path);
        }
        settings.flag("port", &self.port);
        settings.flag("openflow", &self.openflow);
        settings.flag("mac-static", &self.mac_static);
        for (name, value) in [
            ("mode", &self.mode),
            ("rules", &self.rules),
            ("workers", &self.workers),
            ("cores", &self.cores),
            ("cache", &self.cache),
            ("entries", &self.entries),
            ("megaflows", &self.megaflows),
            ("megaflow-idle", &self.megaflow_idle),
            ("max-rules", &self.max_rules),
            ("mac-entries", &self.mac_entries),
            ("mac-pages", &self.mac_pages),
            ("mac-age", &self.mac_age),
            ("mac-rate", &self.mac_rate),
            ("mac-queue", &self.mac_queue),
            ("isolated", &self.isolated),
            ("controller-queue", &self.controller_queue),
            ("controller-connections", &self.controller_connections),
            ("controller-hello", &self.controller_hello),
            ("controller-probe", &self.controller_probe),
            ("controller-stall", &self.controller_stall),
            ("controller-bytes", &self.controller_bytes),
            ("controller-packets", &self.controller_packets),
            ("controller-packet-outs", &self.controller_packet_outs),
            ("controller-buffers", &self.controller_buffers),
            ("controller-events", &self.controller_events),
            ("controller-bundles", &self.controller_bundles),
            ("controller-bundle-messages", &self.controller_bundle_messages),
            ("fail-mode", &self.fail_mode),
            ("metrics", &self.metrics),
            ("metrics-connections", &self.metrics_connections),
            ("status-socket", &self.status_socket),
            ("status-connections", &self.status_connections),
            ("log", &self.log),
            ("log-format", &self.log_format),
            ("datapath-id", &self.datapath_id),
            ("duration", &self.duration),
            ("poll", &self.poll),
        ] {
            settings.flag(name, value);
        }
        settings.flag("keep-privileges", self.keep_privileges.then_some("true"));
        settings
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (config, rules) = prepare(args.settings()).map_err(|problems| told(&problems))?;
    if args.check {
        let (ports, rules) = (config.ports.len(), rules.len());
        writeln!(std::io::stdout(), "ports: {ports}, rules: {rules}, nothing is wrong")?;
        return Ok(());
    }
    start_log(&config);
    let counted = run::run(&config, rules)?;
    let printed = match args.format {
        Format::Text => totals(&counted.status),
        Format::Json => counted.json,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

/// Everything that is wrong, one line each.
fn told(problems: &Problems) -> anyhow::Error {
    match problems.0.len() {
        1 => anyhow!("{problems}"),
        n => anyhow!("{n} things are wrong\n{problems}"),
    }
}

/// Logs go to standard error, so that standard output has the totals alone.
fn start_log(config: &Config) {
    let level = match config.log.as_str() {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => LevelFilter::INFO,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal()).with_target(false);
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// An empty table with these heads; all columns but the first two are numbers.
pub fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Reasons with their numbers.
fn reasons(of: &std::collections::BTreeMap<String, u64>) -> String {
    of.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

/// What the packets met, in a line.
fn summary(status: &Status) -> String {
    let (t, c) = (&status.total, &status.control);
    let head = format!("{:.1} s, {} packets", status.uptime_ms as f64 / 1e3, t.packets);
    if status.mode == "l2" {
        let macs = &c.macs;
        return format!(
            "{head}, {} flooded; {} stations: {} learned, {} moved, {} aged, {} flushed, {} evicted, \
             {} refused; not reported: {} too many, {} queue full",
            t.flooded,
            c.stations,
            macs.learned,
            macs.moved,
            macs.aged,
            macs.flushed,
            macs.evicted,
            macs.refused,
            t.learn_limited,
            t.learn_queue_full,
        );
    }
    format!(
        "{head}: {} in tier 1, {} in tier 2, {} in tier 3; {} rules, {} stations",
        t.microflow_hits, t.megaflow_hits, t.classifier_lookups, c.rules, c.stations,
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
        let (dropped, not_sent): (u64, u64) =
            (port.dropped.values().sum(), port.not_sent.values().sum());
        if port.received == 0 && port.outputs == 0 && port.name == "controllers" {
            continue;
        }
        let number = if port.name == "controllers" { "-".into() } else { port.number.to_string() };
        ports.add_row([
            number.clone(),
            port.name.clone(),
            port.received.to_string(),
            port.forwarded.to_string(),
            port.to_controller.to_string(),
            dropped.to_string(),
            (port.missed + port.errors).to_string(),
            port.sent.to_string(),
            not_sent.to_string(),
        ]);
        for (what, of) in [("dropped", &port.dropped), ("not sent", &port.not_sent)] {
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
        text.push_str(&format!("\nthe datapath's own share of the time: {:.0} %", share * 100.0));
    }
    if !status.closes {
        text.push_str("\nTHE ACCOUNTS DO NOT CLOSE: this is an error of the program");
    }
    text
}
