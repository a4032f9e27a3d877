//! `overbank fdb`: where stations are.

use crate::options::Format;
use crate::top::ask_line;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_stations::listing::{Listing, MOST, SCHEMA};
use std::io::{BufReader, Write};
use std::path::PathBuf;

/// List the addresses that a running switch knows, and the ports that they are behind.
///
/// They are those of `--mode l2`, and those that `normal` in OpenFlow rules learnt.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank fdb --socket /run/overbank.sock                 a switch with --status-socket
  overbank fdb --socket /run/overbank.sock --port 3 --vlan 10
  overbank fdb --socket /run/overbank.sock --mac 02:00:00:00:00:01 --format json")]
pub struct Args {
    /// The status socket of the switch (`overbank switch --status-socket`)
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Only what is behind this port
    #[arg(long, value_name = "N")]
    port: Option<String>,
    /// Only this VLAN; 0: without a tag
    #[arg(long, value_name = "N")]
    vlan: Option<String>,
    /// Only this address
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Most addresses, up to 65536
    #[arg(long, value_name = "N", default_value_t = MOST)]
    most: usize,
    /// How to print them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The question on one line.
fn question(args: &Args) -> Result<String> {
    let mut line = format!("fdb most={}", args.most);
    let filters = [("port", &args.port), ("vlan", &args.vlan), ("mac", &args.mac)];
    for (name, value) in filters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        if value.is_empty() || value.contains(char::is_whitespace) {
            bail!("--{name}: {value:?} is one word too many or too few");
        }
        line.push_str(&format!(" {name}={value}"));
    }
    // Wrong here is wrong there.
    line.parse::<overbank_stations::listing::Query>().map_err(anyhow::Error::msg)?;
    line.push('\n');
    Ok(line)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let line = question(args)?;
    let mut stream = BufReader::new(crate::top::connect(&args.socket)?);
    let answer = ask_line(&mut stream, &line)?;
    let listing: Listing = serde_json::from_str(&answer).context("not a list of stations")?;
    if listing.schema != SCHEMA {
        bail!("the switch speaks {:?}, this program {SCHEMA:?}", listing.schema);
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
    let more = if listing.more { "; there are more, see --most" } else { "" };
    format!("{table}\n{shown} of {known} stations{more}")
}
