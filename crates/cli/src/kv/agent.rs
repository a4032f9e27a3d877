//! `overbank kv agent`: runs an agent as a service, from a checked configuration to the totals.

use super::service::{Program, drop_privileges};
use crate::live::args::{self, LiveCommand, report};
use crate::options::Format;
use anyhow::Result;
use overbank_declare::counters::{Counters, Exposition, Gauge};
use overbank_declare::settings::{Check, Problems, Section, Source, Table as _};
use overbank_kv::agent::settings::AgentSettings;
use overbank_kv::agent::{AgentTotals, Handle, Running, Setup};
use overbank_service::endpoints::{Documents, EndpointTotals, Endpoints, Limits};
use overbank_service::options::ServiceSettings;
use overbank_service::process::start_log;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name and version of the status document.
const SCHEMA: &str = "overbank.kv-agent.v1";

/// `overbank kv agent`.
pub struct Agent;

/// Every section, in the order of help and documents.
const SECTIONS: [Section; 2] = [AgentSettings::SECTION, ServiceSettings::SECTION];

impl LiveCommand for Agent {
    const SECTIONS: &'static [Section] = &SECTIONS;
    const ABOUT: &'static str = "Serve keys and values over UDP, also behind a device that caches";
    const LONG_ABOUT: &'static str = "\
Answers GET, PUT and DELETE of the key-value protocol from memory, Redis or memcached. With
--device, keeps the values right that a device on the path (`overbank switch --mode netcache`)
caches, and serves once that has answered. A TOML file may hold every setting by the same name;
options override the file. Ctrl-C or SIGTERM ends the agent and prints the totals.";
    const EXAMPLES: &'static str = "Examples:
  overbank kv agent                                       values in memory, for this machine
  overbank kv agent --listen 192.0.2.1 --device 192.0.2.9
  overbank kv agent --listen 192.0.2.1 --store redis://127.0.0.1:6379/0
  overbank kv agent --listen 192.0.2.1 --rate 20000       a store that takes no more
  overbank kv agent --config agent.toml --check";
}

pub type Args = args::Args<Agent>;

/// The checked configuration.
struct Config {
    agent: AgentSettings,
    setup: Setup,
    service: ServiceSettings,
    metrics_required: bool,
}

impl Config {
    fn new(source: Source) -> Result<Config, Problems> {
        let mut check = source.check();
        let config = Config::read(&mut check);
        check.finish(config)
    }

    fn read(check: &mut Check) -> Option<Config> {
        let metrics_required = check.given("metrics").is_some();
        let (agent, service) = (AgentSettings::read(check), ServiceSettings::read(check));
        // Both tables have been read, so all problems are known.
        let (agent, service) = (agent?, service?);
        let setup = Setup {
            listen: agent.listen.0,
            device: agent.device.map(|device| device.0),
            receive_bytes: agent.receive_buffer << 10,
            machine: agent.machine(check),
            protocol: agent.protocol.into(),
            // No more than the setting's range.
            rate: agent.rate.map(|rate| rate as u32),
        };
        Some(Config { agent, setup, service, metrics_required })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let config = Config::new(args.source()).map_err(|problems| report(&problems))?;
    let store = config.agent.store.shown();
    if args.options.check {
        let listen = config.setup.listen;
        writeln!(std::io::stdout(), "configuration is valid: {listen}, {store}")?;
        return Ok(());
    }
    start_log(&config.service);
    let endpoints = Endpoints::open(&config.service, config.metrics_required)?;
    drop_privileges(&config.service, config.setup.listen.port())?;
    let running = start(&config)?;
    let handle = running.handle().clone();
    let documents = Served {
        handle,
        limits: Limits::new(&config.service),
        started: Instant::now(),
        device: config.setup.device.map(|device| device.to_string()),
        store,
    };
    let documents = Arc::new(documents);
    let quiet_s = config.setup.machine.quiet_us as f64 / 1e6;
    let program = Program {
        service: &config.service,
        limits: &documents.limits,
        started: documents.started,
        announce: &|| {
            let (address, store) = (documents.handle.address(), &documents.store);
            tracing::info!(%address, store, quiet_s, "listening");
        },
        reload: &|| tracing::info!("SIGHUP: there is nothing to reload"),
        is_broken: &|| running.is_broken(),
    };
    let ended = program.serve(documents.clone(), endpoints);
    let totals = running.stop();
    ended?;
    let printed = match args.options.format {
        Format::Text => summary(documents.started.elapsed(), &totals),
        Format::Json => serde_json::to_string_pretty(&documents.document(totals))?,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

fn start(config: &Config) -> Result<Running> {
    let settings = &config.agent;
    let listen = settings.listen.0.to_string();
    let name = settings.store_name.as_ref().map_or(listen, |name| name.0.clone());
    let bytes = (settings.memory as u64) << 20;
    let open = |wake| settings.store.open(&name, bytes, settings.store_timeout, wake);
    Ok(Running::start(&config.setup, open)?)
}

/// What documents are made of.
struct Served {
    handle: Handle,
    limits: Limits,
    started: Instant,
    device: Option<String>,
    store: String,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uptime_ms: u64,
    address: String,
    device: Option<&'a str>,
    store: &'a str,
    #[serde(flatten)]
    totals: AgentTotals,
    #[serde(flatten)]
    endpoints: EndpointTotals,
}

/// Metrics beside the counters, for the documents.
#[cfg(test)]
const GAUGES: [Gauge; 1] = [UPTIME];
const UPTIME: Gauge =
    Gauge { name: "overbank_kv_agent_uptime_seconds", help: "Time since the start", labels: &[] };

impl Served {
    fn document(&self, totals: AgentTotals) -> Document<'_> {
        Document {
            schema: SCHEMA,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            address: self.handle.address().to_string(),
            device: self.device.as_deref(),
            store: &self.store,
            totals,
            endpoints: self.limits.totals(),
        }
    }
}

impl Documents for Served {
    fn metrics(&self) -> Exposition {
        let mut to = Exposition::new();
        to.gauge(&UPTIME, &[], self.started.elapsed().as_secs_f64());
        to.add(&[], &self.handle.totals());
        to.add(&[], &self.limits.totals());
        to
    }

    fn status(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.document(self.handle.totals()))
    }

    fn unready(&self) -> Option<String> {
        let waits = self.handle.totals().serving == 0;
        waits.then(|| "waits for the device, or for the end of the quiet time".to_owned())
    }
}

/// Summarises the totals.
fn summary(time: Duration, totals: &AgentTotals) -> String {
    let mut text = format!(
        "{:.1} s, {} datagrams: {} handled; {} answers, {} messages to the device, {} not sent; \
         store: {} questions, {} failed",
        time.as_secs_f64(),
        totals.received,
        totals.handled,
        totals.replies,
        totals.to_device,
        totals.not_sent,
        totals.asked,
        totals.failed,
    );
    totals.visit(|counter, reason, count| {
        if let Some(reason) = reason.filter(|_| count > 0) {
            text.push_str(&format!("\n{}, {reason}: {count}", counter.name));
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_declare::counters::{Labelled, gauges_reference, reference};
    use overbank_declare::document;
    use overbank_declare::settings::text;
    use overbank_kv::agent::Dropped;
    use overbank_wire::netcache::Refused;

    fn problems(flags: &[(&str, &str)]) -> String {
        let mut source = Source::new(&SECTIONS);
        flags.iter().for_each(|(name, value)| source.flag(name, [value]));
        Config::new(source).err().map_or(String::new(), |problems| problems.to_string())
    }

    #[test]
    fn settings_are_checked_with_their_remedy() {
        for (name, value, what) in [
            ("listen", "host", "--listen: \"host\": must be ADDRESS or ADDRESS:PORT, such as"),
            ("device", "0.0.0.0", "--device: 0.0.0.0:8779: must be the address of one device"),
            (
                "device",
                "::1",
                "--device: [::1]:8779: cannot be reached from 127.0.0.1:8779, of IPv4",
            ),
            ("store", "disk", "--store: \"disk\": must be one of `memory`, `redis://HOST:PORT/DB`"),
            ("store-name", "a b", "--store-name: \"a b\": must be 1 to 64 printable"),
            ("client-idle", "3", "--client-idle: 3s: must be at least 4 seconds"),
            ("rate", "0", "--rate: \"0\": must be a number from 1 to 10000000"),
            ("device-value", "1409", "--device-value: \"1409\": must be a number from 1 to 1408"),
        ] {
            let problem = problems(&[(name, value)]);
            assert!(problem.starts_with(what), "{problem}");
        }
        assert_eq!(problems(&[("listen", "::"), ("device", "2001:db8::9")]), "");
    }

    #[test]
    fn an_agent_whose_store_outlives_it_is_quiet_at_first() {
        let quiet = |flags: &[(&str, &str)]| {
            let mut source = Source::new(&SECTIONS);
            flags.iter().for_each(|(name, value)| source.flag(name, [value]));
            Config::new(source).expect("right").setup.machine.quiet_us
        };
        assert_eq!(quiet(&[]), 0);
        #[cfg(feature = "kv-stores")]
        assert_eq!(quiet(&[("store", "redis://host:1/0")]), 4_000_000);
        assert_eq!(quiet(&[("store", "memcached://host:1")]), 4_000_000);
        assert_eq!(quiet(&[("store", "memcached://host:1"), ("quiet", "0.5")]), 500_000);
    }

    #[test]
    fn the_documents_are_made_of_the_tables() {
        let path = format!("{}/../../docs/kv.md", env!("CARGO_MANIFEST_DIR"));
        let current = |name: &str, text: &str| {
            document::part(&path, name, text).unwrap_or_else(|error| panic!("{error}"));
        };
        current("settings", &text::reference(&AgentSettings::SECTION));
        let head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
        let counted = reference(Labelled::of::<AgentTotals>(&[]));
        current("metrics", &format!("{head}{}{counted}", gauges_reference(&GAUGES)));
        current("malformed", &overbank_reasons::reference::<Refused>());
        current("dropped", &overbank_reasons::reference::<Dropped>());
    }
}
