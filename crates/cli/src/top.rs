//! `overbank top`: shows the live rates of a running switch, gateway or proxy.

mod gateway;
#[cfg(feature = "kv-proxy")]
mod proxy;
#[cfg(feature = "top")]
mod screen;

use crate::switch::rates::{Column, NETCACHE, PortRates, Rates, columns};
use crate::switch::status::{GATEWAY_SCHEMA, SCHEMA, Status};
use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, ValueEnum};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Cap of an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Show the live rates of a running switch or gateway, by fate of the packets and by port, or of a
/// proxy before Redis
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank top                                  the switch of this machine; q ends it
  overbank top --socket /run/overbank.sock      a switch with --status-socket
  overbank top --socket /run/overbank/gw.sock   a gateway with --status-socket
  overbank top --socket /run/kv.sock            a proxy with --status-socket (overbank kv proxy)
  overbank top --once --format json             one reading, for scripts
  overbank top --format json --interval 1       one document a line, until Ctrl-C")]
pub struct Args {
    /// Read this status socket instead of the address (`overbank switch --status-socket`)
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Metrics address of the switch, gateway or proxy
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket",
          default_value = overbank_service::options::METRICS_DEFAULT)]
    address: SocketAddr,
    /// Seconds between two readings
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print one reading over one interval, then end
    #[arg(long)]
    once: bool,
    /// Output format; text on a terminal is a screen that refreshes
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON document a line (schema in docs/switch-status.md)
    Json,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be between 0.05 and 3600 seconds".to_owned()),
    }
}

/// Connects to the status socket of a service.
pub fn connect(path: &Path) -> Result<UnixStream> {
    let name = path.display();
    let stream = UnixStream::connect(path)
        .with_context(|| format!("{name}: no switch, gateway or proxy answers"))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Sends a line and returns the answer.
pub fn ask_line(stream: &mut BufReader<UnixStream>, line: &str) -> Result<String> {
    stream.get_mut().write_all(line.as_bytes()).context("the service closed the connection")?;
    let mut answer = String::new();
    stream.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    if answer.is_empty() {
        bail!("the service closed the connection");
    }
    Ok(answer)
}

/// Source of the status.
enum Source {
    Socket(Box<BufReader<UnixStream>>),
    Http(SocketAddr),
}

impl Source {
    fn open(args: &Args) -> Result<Source> {
        let Some(path) = &args.socket else { return Ok(Source::Http(args.address)) };
        Ok(Source::Socket(Box::new(BufReader::new(connect(path)?))))
    }

    fn ask(&mut self) -> Result<Document> {
        let text = match self {
            Source::Socket(stream) => ask_line(stream, "status\n")?,
            Source::Http(address) => get(*address)?,
        };
        let none = "the answer is not a status document of `overbank switch`";
        let Head { schema } = serde_json::from_str(&text).context(none)?;
        match &*schema {
            SCHEMA | GATEWAY_SCHEMA => {
                Ok(Document::Switch(Box::new(serde_json::from_str(&text).context(none)?)))
            }
            #[cfg(feature = "kv-proxy")]
            proxy::SCHEMA => {
                Ok(Document::Proxy(Box::new(serde_json::from_str(&text).context(none)?)))
            }
            _ => bail!("the service answers with {schema:?}, this program reads {SCHEMA:?}"),
        }
    }
}

/// What all status documents have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    schema: String,
}

/// A status document.
enum Document {
    Switch(Box<Status>),
    #[cfg(feature = "kv-proxy")]
    Proxy(Box<proxy::Status>),
}

impl Document {
    /// Returns the rates from `self` to `new`; `None` if they are of different runs or the same
    /// moment.
    fn until(&self, new: &Document) -> Option<Reading> {
        match (self, new) {
            (Document::Switch(old), Document::Switch(new)) => {
                Some(Reading::Switch(Box::new(Rates::between(old, new)?)))
            }
            #[cfg(feature = "kv-proxy")]
            (Document::Proxy(old), Document::Proxy(new)) => {
                Some(Reading::Proxy(Box::new(proxy::Rates::between(old, new)?)))
            }
            #[cfg(feature = "kv-proxy")]
            _ => None,
        }
    }
}

/// The rates of an interval.
#[derive(Serialize)]
#[serde(untagged)]
enum Reading {
    Switch(Box<Rates>),
    #[cfg(feature = "kv-proxy")]
    Proxy(Box<proxy::Rates>),
}

impl Reading {
    fn render(&self) -> String {
        match self {
            Reading::Switch(rates) => render(rates),
            #[cfg(feature = "kv-proxy")]
            Reading::Proxy(rates) => rates.render(),
        }
    }
}

/// Reads the status over HTTP.
fn get(address: SocketAddr) -> Result<String> {
    let none =
        || format!("{address}: no switch, gateway or proxy answers; see --address and --socket");
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).with_context(none)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    // HTTP/1.0: the answer is one piece and ends with the connection.
    write!(stream, "GET /status HTTP/1.0\r\nHost: {address}\r\n\r\n").with_context(none)?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).with_context(none)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => bail!("{address}: the answer is not from `overbank switch`"),
    }
}

struct Readings {
    source: Source,
    last: Document,
    interval: Duration,
}

impl Readings {
    fn next(&mut self) -> Result<Reading> {
        loop {
            std::thread::sleep(self.interval);
            let now = self.source.ask()?;
            let rates = self.last.until(&now);
            self.last = now;
            // The service restarted in between: wait one more interval.
            if let Some(rates) = rates {
                return Ok(rates);
            }
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut source = Source::open(args)?;
    let last = source.ask()?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut readings = Readings { source, last, interval };
    #[cfg(feature = "top")]
    if args.format == Format::Text && !args.once && std::io::stdout().is_terminal() {
        return screen::run(&mut readings);
    }
    let renew = args.format == Format::Text && !args.once && std::io::stdout().is_terminal();
    loop {
        let rates = readings.next()?;
        let text = match args.format {
            Format::Text => rates.render(),
            Format::Json => serde_json::to_string(&rates)?,
        };
        let mut out = std::io::stdout().lock();
        if renew {
            write!(out, "\x1b[H\x1b[2J")?;
        }
        writeln!(out, "{text}")?;
        out.flush()?;
        if args.once {
            return Ok(());
        }
    }
}

/// Formats a rate with three significant digits.
pub fn short(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e3 => format!("{:.2} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Formats a count, whole while short.
fn count(n: u64) -> String {
    if n < 10_000_000 { n.to_string() } else { short(n as f64) }
}

/// Returns the lines above the table. Writing to a string does not fail.
fn summary(rates: &Rates) -> String {
    let t = &rates.total;
    let of = |name| t.rates.get(name);
    let packets = of("packets");
    let share = |name| if packets > 0.0 { of(name) / packets * 100.0 } else { 0.0 };
    let cache = rates.mode == NETCACHE;
    let ethernet = cache || rates.mode == "l2";
    let mut text = format!("{} packets/s   ", short(packets));
    if let Some(of) = &rates.gateway {
        text += &gateway::verdicts(of);
    } else if ethernet {
        let _ = write!(text, "Ethernet   flooded {:.1} %", share("flooded"));
        if cache {
            let _ = write!(
                text,
                "   cache hits {}/s   misses {}/s",
                short(of("kv_hits")),
                short(of("kv_misses")),
            );
        }
    } else {
        let _ = write!(
            text,
            "tier 1 {:.1} %   tier 2 {:.1} %   tier 3 {:.1} %",
            share("microflow"),
            share("megaflow"),
            share("classifier"),
        );
    }
    let _ = write!(text, "\n{:.1} a burst", t.burst);
    if let Some(own) = t.datapath_share {
        let _ = write!(text, "   datapath {:.0} % of the work on packets", own * 100.0);
    }
    if let Some(of) = &rates.gateway {
        text += &gateway::rest(rates, of);
        text += if rates.closes { "" } else { "   ACCOUNTS DO NOT CLOSE" };
        return text;
    }
    if ethernet {
        let _ = write!(
            text,
            "\n{} addresses   {} learned/s   {} not learned/s",
            count(rates.stations),
            short(rates.learned),
            short(of("not_learned")),
        );
    } else {
        let _ = write!(
            text,
            "\n{} rules   {} megaflows   {} addresses   {} controllers",
            rates.rules,
            of("megaflows"),
            count(rates.stations),
            rates.controllers,
        );
    }
    let _ = write!(
        text,
        "   up {:.0} s{}",
        rates.uptime_ms as f64 / 1e3,
        if rates.closes { "" } else { "   ACCOUNTS DO NOT CLOSE" },
    );
    text
}

/// Returns the heads of the table of ports.
fn heads(columns: &[Column]) -> Vec<&'static str> {
    ["port", "name"].into_iter().chain(columns.iter().map(|column| column.head)).collect()
}

/// Returns the rows of the table of ports.
fn rows(rates: &Rates, columns: &[Column]) -> Vec<Vec<String>> {
    let is_shown = |p: &&PortRates| {
        p.name != "controllers" || p.rates.get("received") + p.rates.get("sent") > 0.0
    };
    let rows = rates.ports.iter().filter(is_shown).map(|p| {
        let up = if p.link_up || p.name == "controllers" { "" } else { " (down)" };
        let number = if p.name == "controllers" { "-".to_owned() } else { p.number.to_string() };
        let rates = columns.iter().map(|c| short(p.rates.get(c.rate) * c.scale));
        [number, format!("{}{up}", p.name)].into_iter().chain(rates).collect()
    });
    rows.collect()
}

fn render(rates: &Rates) -> String {
    let columns = columns();
    let mut table = crate::switch::table(&heads(&columns));
    table.add_rows(rows(rates, &columns));
    format!("{}\n\n{table}", summary(rates))
}
