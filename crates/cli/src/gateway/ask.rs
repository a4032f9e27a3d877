//! `overbank gateway status`, `sessions`, `peers` and `check`: questions to a running gateway.

use super::client::Client;
use super::members;
use crate::live::args::counted;
use crate::options::Format;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use overbank_gateway::file::COLUMNS;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use std::io::Write;
use std::path::PathBuf;

/// Most sessions that one request lists.
const PAGE: usize = 1000;

#[derive(Args)]
pub struct Options {
    /// Control socket of the gateway (`overbank gateway --control`)
    #[arg(long, value_name = "PATH", default_value = "/run/overbank/gateway.sock")]
    control: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Subcommand)]
pub enum Ask {
    /// Show the status of a running gateway
    #[command(after_help = "Examples:
  overbank gateway status
  overbank gateway status --control /run/gw1.sock --format json")]
    Status(Options),
    /// List, add, change and remove sessions of a running gateway
    #[command(after_help = "Examples:
  overbank gateway sessions list --origin request
  overbank gateway sessions add id=7 n3=192.0.2.1 teid=0x101 peer=198.51.100.7 \\
      peer_teid=0x2001 ipv4=10.45.0.2
  overbank gateway sessions import sessions.csv --dry-run")]
    Sessions {
        #[command(subcommand)]
        command: Sessions,
    },
    /// List the peers of sessions, and whether they answer Echo Requests
    #[command(after_help = "Examples:
  overbank gateway peers
  overbank gateway peers --down --format json")]
    Peers {
        /// Only peers that do not answer
        #[arg(long)]
        down: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Have a node of a cluster give its sessions away and leave
    #[command(after_help = "Examples:
  overbank gateway drain                      the node that is asked
  overbank gateway drain 2 --rate 10k         another one, 10,000 sessions a second")]
    Drain {
        /// Node that leaves [default: the one that is asked]
        #[arg(value_name = "NODE")]
        node: Option<u8>,
        /// Sessions moved a second, at least 20, such as 10k [default: 100k]
        #[arg(long, value_name = "N", value_parser = a_second)]
        rate: Option<u64>,
        #[command(flatten)]
        options: Options,
    },
    /// Have the sessions of a cluster moved until nodes have alike: after a node has joined
    #[command(after_help = "Example:
  overbank gateway rebalance --control /run/gw1.sock")]
    Rebalance(Options),
    /// Check a running gateway: it is ready, and each session is found by its keys
    #[command(after_help = "Examples:
  overbank gateway check
  overbank gateway check --control /run/gw1.sock || echo unwell")]
    Check(Options),
    Demo(super::demo::Args),
}

#[derive(Args)]
pub struct Wanted {
    /// Only this TEID, at any N3 address
    #[arg(long, value_name = "TEID")]
    teid: Option<String>,
    /// Only the session of this address of a terminal
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Only this origin: file, request, cluster or pfcp
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// Of a cluster, only those at the node that is asked, with their counts
    #[arg(long)]
    local: bool,
    /// Limit of listed sessions
    #[arg(long, value_name = "N", default_value_t = PAGE)]
    most: usize,
}

#[derive(Subcommand)]
pub enum Sessions {
    /// List sessions, with their counts
    #[command(after_help = "Examples:
  overbank gateway sessions list
  overbank gateway sessions list --address 10.45.0.2 --format json")]
    List {
        #[command(flatten)]
        wanted: Wanted,
        #[command(flatten)]
        options: Options,
    },
    /// Show a session
    #[command(after_help = "Example:
  overbank gateway sessions show 7")]
    Show {
        #[arg(value_name = "ID")]
        id: u64,
        #[command(flatten)]
        options: Options,
    },
    /// Add a session: fields as in the file of sessions
    #[command(after_help = "Example:
  overbank gateway sessions add id=7 n3=192.0.2.1 teid=0x101 peer=198.51.100.7 \\
      peer_teid=0x2001 qfi=9 ipv4=10.45.0.2 gate=open rate_up=50M rate_down=200M")]
    Add {
        #[arg(value_name = "FIELD=VALUE", required = true)]
        fields: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Change fields of a session that was added by request; an empty value clears one
    #[command(after_help = "Examples:
  overbank gateway sessions change 7 gate=closed
  overbank gateway sessions change 7 rate_up=10M qfi=")]
    Change {
        #[arg(value_name = "ID")]
        id: u64,
        #[arg(value_name = "FIELD=VALUE", required = true)]
        fields: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Remove a session that was added by request; prints its last counts
    #[command(after_help = "Example:
  overbank gateway sessions remove 7")]
    Remove {
        #[arg(value_name = "ID")]
        id: u64,
        #[command(flatten)]
        options: Options,
    },
    /// Move a session to another node of the cluster
    #[command(after_help = "Examples:
  overbank gateway sessions move 7 --to 2
  overbank gateway sessions move 7")]
    Move {
        #[arg(value_name = "ID")]
        id: u64,
        /// Node that gets it [default: one that the session's name chooses]
        #[arg(long, value_name = "NODE")]
        to: Option<u8>,
        #[command(flatten)]
        options: Options,
    },
    /// Add and change the sessions of a CSV file: all or none
    #[command(after_help = "Examples:
  overbank gateway sessions import sessions.csv --dry-run
  overbank gateway sessions import sessions.csv --replace")]
    Import {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Check only
        #[arg(long)]
        dry_run: bool,
        /// Remove the sessions added by request that the file does not have
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        options: Options,
    },
    /// Print sessions as CSV
    #[command(after_help = "Examples:
  overbank gateway sessions export > sessions.csv
  overbank gateway sessions export --origin request > requests.csv")]
    Export {
        /// Only this origin: file, request, cluster or pfcp
        #[arg(long, value_name = "ORIGIN")]
        origin: Option<String>,
        /// Control socket of the gateway (`overbank gateway --control`)
        #[arg(long, value_name = "PATH", default_value = "/run/overbank/gateway.sock")]
        control: PathBuf,
    },
}

/// Returns a query of those parameters that are given.
fn query(parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let escaped = |value| utf8_percent_encode(value, NON_ALPHANUMERIC);
    let parts: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// Reads sessions a second, such as 10k.
fn a_second(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let rate = digits.parse().ok().and_then(|n: u64| n.checked_mul(unit));
    rate.filter(|rate| *rate > 0).ok_or_else(|| "must be a number, such as 500 or 10k".to_owned())
}

/// Reads `FIELD=VALUE`s as an object.
fn object(fields: &[String]) -> Result<String> {
    let mut object = Map::new();
    for field in fields {
        let must = || format!("{field:?}: must be FIELD=VALUE, such as gate=open");
        let (name, value) = field.split_once('=').with_context(must)?;
        if object.insert(name.to_owned(), value.into()).is_some() {
            bail!("field {name} comes twice");
        }
    }
    Ok(Value::Object(object).to_string())
}

pub fn run(ask: &Ask) -> Result<()> {
    match ask {
        Ask::Status(options) => {
            let status = Client::new(&options.control)?.ask("GET", "/status", "")?;
            let cluster = members::text(&status).map_or(String::new(), |text| format!("\n{text}"));
            print(options.format, &status, || super::summary(&status) + &cluster)
        }
        Ask::Check(options) => check(options),
        Ask::Peers { down, options } => peers(*down, options),
        Ask::Demo(args) => super::demo::run(args),
        Ask::Drain { node, rate, options } => {
            let (node, rate) = (node.map(|n| n.to_string()), rate.map(|n| n.to_string()));
            let query = query(&[("node", node.as_deref()), ("rate", rate.as_deref())]);
            let done = Client::new(&options.control)?.ask("POST", &format!("/drain{query}"), "")?;
            print(options.format, &done, || {
                format!("node {} gives its sessions away", done["node"])
            })
        }
        Ask::Rebalance(options) => {
            let done = Client::new(&options.control)?.ask("POST", "/rebalance", "")?;
            print(options.format, &done, || "sessions are moved until nodes have alike".to_owned())
        }
        Ask::Sessions { command } => sessions(command),
    }
}

fn print(format: Format, document: &Value, text: impl FnOnce() -> String) -> Result<()> {
    let text = match format {
        Format::Text => text(),
        Format::Json => serde_json::to_string_pretty(document)?,
    };
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn check(options: &Options) -> Result<()> {
    let client = Client::new(&options.control)?;
    client.ask("GET", "/ready", "").context("not ready")?;
    let checked = client.ask("GET", "/check", "")?;
    if checked["ok"] != true {
        bail!("{}", checked["error"].as_str().unwrap_or("the answer has no error"));
    }
    let sessions = checked["sessions"].as_u64().unwrap_or(0) as usize;
    print(options.format, &checked, || format!("ready; {} checked", counted(sessions, "session")))
}

fn sessions(command: &Sessions) -> Result<()> {
    let one = |options: &Options, method: &str, path: &str, body: String| {
        let document = Client::new(&options.control)?.ask(method, path, body)?;
        print(options.format, &document, || table(std::slice::from_ref(&document)))
    };
    match command {
        Sessions::List { wanted, options } => list(wanted, options),
        Sessions::Show { id, options } => {
            one(options, "GET", &format!("/sessions/{id}"), String::new())
        }
        Sessions::Add { fields, options } => one(options, "POST", "/sessions", object(fields)?),
        Sessions::Change { id, fields, options } => {
            one(options, "PATCH", &format!("/sessions/{id}"), object(fields)?)
        }
        Sessions::Remove { id, options } => {
            one(options, "DELETE", &format!("/sessions/{id}"), String::new())
        }
        Sessions::Move { id, to, options } => {
            let to = to.map(|to| to.to_string());
            let path = format!("/sessions/{id}/move{}", query(&[("to", to.as_deref())]));
            let done = Client::new(&options.control)?.ask("POST", &path, "")?;
            print(options.format, &done, || format!("session {id} has moved"))
        }
        Sessions::Import { file, dry_run, replace, options } => {
            let text = std::fs::read(file);
            let text = text.with_context(|| format!("{}: cannot read it", file.display()))?;
            let path = format!("/import?dry-run={dry_run}&replace={replace}");
            let client = Client::new(&options.control)?.for_import();
            let done = client.ask("POST", &path, text);
            let done = done.with_context(|| file.display().to_string())?;
            print(options.format, &done, || {
                let n = |name: &str| done[name].as_u64().unwrap_or(0);
                let would = if *dry_run { "would be " } else { "" };
                let [added, changed, removed, kept] =
                    ["added", "changed", "removed", "kept"].map(n);
                format!("{would}added {added}, changed {changed}, removed {removed}, kept {kept}")
            })
        }
        Sessions::Export { origin, control } => {
            let path = format!("/export{}", query(&[("origin", origin.as_deref())]));
            Client::new(control)?.stream(&path, &mut std::io::stdout().lock())
        }
    }
}

/// Lists all peers, page by page.
fn peers(down: bool, options: &Options) -> Result<()> {
    let client = Client::new(&options.control)?;
    let (mut all, mut after) = (Vec::new(), None);
    let document = loop {
        let most = PAGE.to_string();
        let parameters = query(&[("after", after.as_deref()), ("most", Some(&most))]);
        let mut document = client.ask("GET", &format!("/peers{parameters}"), "")?;
        after = document["next"].as_str().map(str::to_owned);
        if let Value::Array(peers) = document["peers"].take() {
            all.extend(peers.into_iter().filter(|peer| !down || peer["state"] == "down"));
        }
        if after.is_none() {
            document["peers"] = all.into();
            break document;
        }
    };
    print(options.format, &document, || {
        let heads = ["peer", "n3", "state", "sessions", "restarts", "answered"];
        let mut table = crate::switch::table(&heads);
        let peers = document["peers"].as_array().map_or(&[][..], Vec::as_slice);
        for peer in peers {
            let text = |name: &str| peer[name].as_str().unwrap_or_default().to_owned();
            let count = |name: &str| peer[name].as_u64().unwrap_or(0).to_string();
            let answered =
                peer["answered_s"].as_u64().map_or(String::new(), |s| format!("{s} s ago"));
            let [at, n3, state] = ["peer", "n3", "state"].map(text);
            table.add_row([at, n3, state, count("sessions"), count("restarts"), answered]);
        }
        let total = document["total"].as_u64().unwrap_or(0) as usize;
        format!("{table}\n{} of {}", peers.len(), counted(total, "peer"))
    })
}

/// Lists page by page.
fn list(filter: &Wanted, options: &Options) -> Result<()> {
    let client = Client::new(&options.control)?;
    let (mut all, mut after) = (Vec::new(), Some("0".to_owned()));
    let mut document = Value::Null;
    while all.len() < filter.most
        && let Some(from) = after.clone()
    {
        let most = (filter.most - all.len()).min(PAGE).to_string();
        let parameters = query(&[
            ("after", Some(&from)),
            ("most", Some(&most)),
            ("teid", filter.teid.as_deref()),
            ("address", filter.address.as_deref()),
            ("origin", filter.origin.as_deref()),
            ("local", filter.local.then_some("true")),
        ]);
        document = client.ask("GET", &format!("/sessions{parameters}"), "")?;
        // In a cluster, it is text.
        after = match &document["next"] {
            Value::Null => None,
            Value::String(next) => Some(next.clone()),
            next => Some(next.to_string()),
        };
        if let Value::Array(sessions) = document["sessions"].take() {
            all.extend(sessions);
        }
    }
    let (shown, more) = (all.len(), after.is_some());
    let text = || {
        let total = document["total"].as_u64().unwrap_or(0);
        let more = if more { "; raise --most for more" } else { "" };
        format!("{}\n{shown} of {total} sessions{more}", table(&all))
    };
    if options.format == Format::Text {
        return print(options.format, &Value::Null, text);
    }
    document["sessions"] = all.into();
    print(options.format, &document, String::new)
}

/// Lists sessions, with their counts where they are known.
fn table(sessions: &[Value]) -> String {
    let known = |name: &str| sessions.iter().any(|session| !session[name].is_null());
    let heads: Vec<&str> = COLUMNS.into_iter().chain(["origin", "uplink", "downlink"]).collect();
    let heads: Vec<&str> = heads.into_iter().filter(|name| known(name)).collect();
    let mut table = crate::switch::table(&heads);
    let cell = |value: &Value, name: &str| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(n) if name.ends_with("teid") => format!("{:#x}", n.as_u64().unwrap_or(0)),
        Value::Object(counts) => format!("{} packets", counts["packets"]),
        other => other.to_string(),
    };
    for session in sessions {
        table.add_row(heads.iter().map(|name| cell(&session[*name], name)));
    }
    table.to_string()
}
