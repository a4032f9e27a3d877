//! `overbank fdb`: lists learned MAC addresses.

use crate::options::Format;
use crate::top::ask_line;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_stations::listing::{Listing, MOST, SCHEMA};
use std::io::{BufReader, Write};
use std::path::PathBuf;

/// List the MAC addresses that a running switch has learned, with their ports
///
/// Works in `--mode l2`, and with OpenFlow rules that output to `normal`.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank fdb --socket /run/overbank.sock                 a switch with --status-socket
  overbank fdb --socket /run/overbank.sock --port 3 --vlan 10
  overbank fdb --socket /run/overbank.sock --mac 02:00:00:00:00:01 --format json")]
pub struct Args {
    /// Status socket of the switch (`overbank switch --status-socket`)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Only addresses behind this port
    #[arg(long, value_name = "N")]
    port: Option<String>,
    /// Only this VLAN; 0: untagged
    #[arg(long, value_name = "N")]
    vlan: Option<String>,
    /// Only this MAC address
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Limit of listed addresses, up to 65536
    #[arg(long, value_name = "N", default_value_t = MOST)]
    most: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Returns the query as one line.
fn question(args: &Args) -> Result<String> {
    let mut line = format!("fdb most={}", args.most);
    let filters = [("port", &args.port), ("vlan", &args.vlan), ("mac", &args.mac)];
    for (name, value) in filters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        if value.is_empty() || value.contains(char::is_whitespace) {
            bail!("--{name}: {value:?}: must be one word");
        }
        line.push_str(&format!(" {name}={value}"));
    }
    // Refuse here what the switch would refuse.
    line.parse::<overbank_stations::listing::Query>().map_err(anyhow::Error::msg)?;
    line.push('\n');
    Ok(line)
}

pub fn run(args: &Args) -> Result<()> {
    let line = question(args)?;
    let mut stream = BufReader::new(crate::top::connect(&args.socket)?);
    let answer = ask_line(&mut stream, &line)?;
    let listing: Listing =
        serde_json::from_str(&answer).context("the answer is not a list of addresses")?;
    if listing.schema != SCHEMA {
        bail!("the switch answers with {:?}, this program reads {SCHEMA:?}", listing.schema);
    }
    if !listing.error.is_empty() {
        bail!("{}", listing.error);
    }
    let printed = match args.format {
        Format::Text => render(&listing),
        Format::Json => answer.trim_end().to_owned(),
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

fn render(listing: &Listing) -> String {
    let mut table = crate::switch::table(&["address", "vlan", "port", "silent"]);
    for station in &listing.stations {
        let silent = match station.is_static {
            true => "static".to_owned(),
            false => format!("{} s", station.silent_s),
        };
        table.add_row([
            station.mac.clone(),
            station.vlan.to_string(),
            station.port.to_string(),
            silent,
        ]);
    }
    let (shown, known) = (listing.stations.len(), listing.known);
    let more = if listing.more { "; raise --most for more" } else { "" };
    format!("{table}\n{shown} of {known} addresses{more}")
}
