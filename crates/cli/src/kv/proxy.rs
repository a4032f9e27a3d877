//! `overbank kv proxy`: runs a proxy as a service, from a checked configuration to the totals.

use super::hot_keys;
use super::service::{Program, drop_privileges};
use crate::live::args::{self, LiveCommand, report};
use crate::options::Format;
use anyhow::Result;
use overbank_declare::counters::{Counters, Exposition, Gauge};
use overbank_declare::settings::{Check, Problems, Section, Source, Table as _};
use overbank_kv::proxy::settings::{Mode, ProxySettings};
use overbank_kv::proxy::tls::Tls;
use overbank_kv::proxy::totals::{CoreTotals, ProxyTotals};
use overbank_kv::proxy::{Handle, Running};
use overbank_service::endpoints::{Documents, EndpointTotals, Endpoints, Limits};
use overbank_service::options::ServiceSettings;
use overbank_service::process::start_log;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name and version of the status document.
const SCHEMA: &str = "overbank.kv-proxy.v1";
/// `overbank kv proxy`.
pub struct Proxy;

/// Every section, in the order of help and documents.
const SECTIONS: [Section; 2] = [ProxySettings::SECTION, ServiceSettings::SECTION];

impl LiveCommand for Proxy {
    const SECTIONS: &'static [Section] = &SECTIONS;
    const ABOUT: &'static str =
        "Cache the hot keys of a Redis or memcached in front of it, for any client";
    const LONG_ABOUT: &'static str = "\
Passes every command of unmodified clients to an unmodified Redis or memcached, and answers reads of
the hottest keys itself. Writes through the proxy are seen at once; others within --staleness-max,
with memcached within --max-age. A TOML file may hold every setting by the same name; options
override the file. Ctrl-C or SIGTERM ends the proxy and prints the totals; SIGHUP reads prefix,
deny, cacheable, order, scripts and the files of TLS again.";
    const EXAMPLES: &'static str = "Examples:
  overbank kv proxy --listen 127.0.0.1:6380 --upstream redis://127.0.0.1:6379
  overbank kv proxy --listen 127.0.0.1:11212 --upstream memcached://127.0.0.1:11211
  overbank kv proxy --mode observe --status-socket /run/kv.sock
  overbank kv hot --socket /run/kv.sock                   what a cache would save
  overbank kv proxy --deny lock:,session: --staleness-max 0.5
  overbank kv proxy --upstream rediss://redis.example.com --upstream-ca ca.crt
  overbank kv proxy --tls-cert proxy.crt --tls-key proxy.key --tls-client-ca ca.crt
  overbank kv proxy --config proxy.toml --check";
}

pub type Args = args::Args<Proxy>;

/// The checked configuration.
struct Config {
    proxy: ProxySettings,
    tls: Tls,
    service: ServiceSettings,
    metrics_required: bool,
}

/// What a reload cannot change.
const FIXED: &str =
    "only prefix, deny, cacheable, order, scripts and files of TLS change without a restart";

impl Config {
    fn new(source: Source) -> Result<Config, Problems> {
        let mut check = source.check();
        let config = Config::read(&mut check);
        check.finish(config)
    }

    fn read(check: &mut Check) -> Option<Config> {
        let metrics_required = check.given("metrics").is_some();
        let (proxy, service) = (ProxySettings::read(check), ServiceSettings::read(check));
        // Both tables have been read, so all problems are known.
        let (proxy, service) = (proxy?, service?);
        let tls = proxy.check(check);
        Some(Config { proxy, tls, service, metrics_required })
    }

    /// Returns whether both have the same settings, but for those that a reload changes.
    fn is_fixed_as(&self, other: &Config) -> bool {
        let rest = |config: &Config| {
            // What files of TLS have may change.
            let Config { proxy, service, metrics_required, .. } = config;
            let (order, scripts) = (other.proxy.order, other.proxy.scripts);
            let proxy = ProxySettings {
                prefix: None,
                deny: None,
                cacheable: None,
                order,
                scripts,
                ..proxy.clone()
            };
            // Not printed; a password shows in its upstream alone.
            (format!("{proxy:?}{service:?}{metrics_required}"), proxy.upstream)
        };
        rest(self) == rest(other)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let config = Config::new(args.source()).map_err(|problems| report(&problems))?;
    let Config { proxy, service, .. } = &config;
    let upstream = proxy.upstream.to_string();
    if args.options.check {
        writeln!(std::io::stdout(), "configuration is valid: {}, {upstream}", proxy.listen)?;
        return Ok(());
    }
    start_log(service);
    let endpoints = Endpoints::open(service, config.metrics_required)?;
    // Before its threads, which inherit what this one has.
    drop_privileges(service, proxy.listen.port())?;
    let running = Running::start(proxy, config.tls.clone())?;
    let handle = running.handle().clone();
    let documents = Arc::new(Served {
        handle,
        limits: Limits::new(service),
        started: Instant::now(),
        upstream,
        mode: proxy.mode,
    });
    let program = Program {
        service,
        limits: &documents.limits,
        started: documents.started,
        announce: &|| {
            let (address, upstream) = (documents.handle.address(), &documents.upstream);
            tracing::info!(%address, upstream, "listening");
        },
        reload: &|| reload(args, &config, running.handle()),
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

/// Reads the settings again, all or none.
fn reload(args: &Args, before: &Config, handle: &Handle) {
    match Config::new(args.source()) {
        Ok(config) if config.is_fixed_as(before) => {
            handle.reload(&config.proxy);
            handle.reload_tls(config.tls);
            tracing::info!("prefix, deny, cacheable, order, scripts and files of TLS read again");
        }
        Ok(_) => tracing::error!("settings unchanged: {FIXED}"),
        Err(problems) => {
            for problem in &problems.0 {
                tracing::error!(%problem, "settings unchanged");
            }
        }
    }
}

/// What documents are made of.
struct Served {
    handle: Handle,
    limits: Limits,
    started: Instant,
    upstream: String,
    mode: Mode,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uptime_ms: u64,
    address: String,
    upstream: &'a str,
    mode: &'static str,
    #[serde(flatten)]
    totals: ProxyTotals,
    #[serde(flatten)]
    core: CoreTotals,
    #[serde(flatten)]
    endpoints: EndpointTotals,
}

/// Metrics beside the counters, for the documents.
#[cfg(test)]
const GAUGES: [Gauge; 1] = [UPTIME];
const UPTIME: Gauge =
    Gauge { name: "overbank_kv_proxy_uptime_seconds", help: "Time since the start", labels: &[] };

impl Served {
    fn document(&self, (totals, core): (ProxyTotals, CoreTotals)) -> Document<'_> {
        Document {
            schema: SCHEMA,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            address: self.handle.address().to_string(),
            upstream: &self.upstream,
            mode: self.mode.name(),
            totals,
            core,
            endpoints: self.limits.totals(),
        }
    }
}

impl Documents for Served {
    fn metrics(&self) -> Exposition {
        let (totals, core) = self.handle.totals();
        let mut to = Exposition::new();
        to.gauge(&UPTIME, &[], self.started.elapsed().as_secs_f64());
        to.add(&[], &totals);
        to.add(&[], &core);
        to.add(&[], &self.limits.totals());
        to
    }

    fn status(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.document(self.handle.totals()))
    }

    fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
        if line.starts_with("hot") {
            return serde_json::to_vec(&hot_keys::Hot::answer(&self.handle, self.mode, line));
        }
        self.status()
    }

    /// A proxy serves, by passing all, without a server that it follows.
    fn unready(&self) -> Option<String> {
        None
    }
}

/// Summarises the totals.
fn summary(time: Duration, (totals, core): &(ProxyTotals, CoreTotals)) -> String {
    let share = |part: u64, all: u64| 100.0 * part as f64 / (all.max(1)) as f64;
    let mut text = format!(
        "{:.1} s, {} connections, {} commands: {} hits ({:.1} %), {} passed on, {} of clients' \
         starts answered here, {} refused; {} fills, {} invalidations",
        time.as_secs_f64(),
        totals.accepted,
        totals.commands,
        totals.hits,
        share(totals.hits, totals.commands),
        totals.forwarded,
        totals.answered,
        totals.refused,
        core.fills,
        core.pushes,
    );
    let mut add = |name: &str, reason: Option<&str>, count: u64| {
        if let Some(reason) = reason.filter(|_| count > 0) {
            text.push_str(&format!("\n{name}, {reason}: {count}"));
        }
    };
    totals.visit(|counter, reason, count| add(counter.name, reason, count));
    core.visit(|counter, reason, count| add(counter.name, reason, count));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_declare::counters::{Labelled, gauges_reference, reference};
    use overbank_declare::document;
    use overbank_declare::settings::text;
    use overbank_kv::proxy::totals::{Closed, Dropped, Missed, Unfilled};

    fn problems(flags: &[(&str, &str)]) -> String {
        let mut source = Source::new(&SECTIONS);
        flags.iter().for_each(|(name, value)| source.flag(name, [value]));
        Config::new(source).err().map_or(String::new(), |problems| problems.to_string())
    }

    #[test]
    fn settings_are_checked_with_their_remedy() {
        for (name, value, what) in [
            ("upstream", "http://host", "--upstream: must be redis://[USER:PASSWORD@]HOST[:PORT]"),
            ("upstream-ca", "ca.crt", "--upstream-ca: is for TLS: upstream must be rediss://"),
            (
                "upstream-name",
                "a b",
                "--upstream-name: \"a b\": must be a DNS name or an IP address",
            ),
            ("tls-cert", "a.crt", "--tls-cert: must come with tls-key"),
            ("tls-key", "a.key", "--tls-key: must come with tls-cert"),
            ("tls-client-ca", "a.crt", "--tls-client-ca: must come with tls-cert and tls-key"),
            ("staleness-max", "0.1", "--staleness-max: 100ms: must be at least 0.3 seconds"),
            ("max-age", "0.5", "--max-age: 500ms: must be at least staleness-max"),
            ("max-age", "none", "--max-age: none: must be seconds; none is for memcached"),
            ("cacheable", "get,set", "--cacheable: \"get,set\": must be one or more of get,mget,"),
            ("max-age", "x", "--max-age: \"x\": must be a number of seconds"),
            ("prefix", "a,,b", "--prefix: \"a,,b\": must be beginnings of keys"),
            ("entries", "0", "--entries: \"0\": must be a number from 1 to 1000000"),
        ] {
            let problem = problems(&[(name, value)]);
            assert!(problem.starts_with(what), "{problem}");
        }
        assert_eq!(problems(&[]), "");
        let memcached = ("upstream", "memcached://127.0.0.1");
        assert_eq!(problems(&[memcached, ("max-age", "none")]), "");
        assert_eq!(problems(&[memcached, ("max-age", "0.5")]), "");
        let problem = problems(&[memcached, ("max-age", "0.01")]);
        assert!(problem.starts_with("--max-age: 10ms: must be at least 0.1 seconds"), "{problem}");
    }

    #[test]
    fn a_reload_changes_rules_alone() {
        let config = |flags: &[(&str, &str)]| {
            let mut source = Source::new(&SECTIONS);
            flags.iter().for_each(|(name, value)| source.flag(name, [value]));
            Config::new(source).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let before = config(&[("order", "key")]);
        for rule in [
            ("prefix", "a"),
            ("deny", "b"),
            ("cacheable", "get"),
            ("order", "connection"),
            ("scripts", "close"),
        ] {
            assert!(config(&[rule]).is_fixed_as(&before), "{rule:?}");
        }
        for other in [
            ("entries", "7"),
            ("mode", "observe"),
            ("upstream", "redis://:secret@127.0.0.1:6379"),
            ("log", "debug"),
        ] {
            assert!(!config(&[other]).is_fixed_as(&before), "{other:?}");
        }
    }

    /// Settings that are not commented out in `packaging/proxy.toml`.
    const ACTIVE: [&str; 2] = ["listen", "upstream"];

    #[test]
    fn the_packaged_configuration_is_right() {
        let text = text::example("kv proxy", &SECTIONS, &ACTIVE);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/proxy.toml");
        document::whole(path, &text).unwrap_or_else(|error| panic!("{error}"));
        let mut source = Source::new(&SECTIONS);
        source.text(&"proxy.toml".into(), &text);
        let config = Config::new(source).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(config.proxy.listen.port(), 6380);
    }

    #[test]
    fn the_documents_are_made_of_the_tables() {
        let path = format!("{}/../../docs/kv-proxy.md", env!("CARGO_MANIFEST_DIR"));
        let current = |name: &str, text: &str| {
            document::part(&path, name, text).unwrap_or_else(|error| panic!("{error}"));
        };
        current("settings", &text::reference(&ProxySettings::SECTION));
        let head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
        let labelled = Labelled::of::<ProxyTotals>(&[]);
        let of_core = Labelled::of::<CoreTotals>(&[]);
        let counted = format!("{}{}", reference(labelled), reference(of_core));
        current("metrics", &format!("{head}{}{counted}", gauges_reference(&GAUGES)));
        current("missed", &overbank_reasons::reference::<Missed>());
        current("closed", &overbank_reasons::reference::<Closed>());
        current("dropped", &overbank_reasons::reference::<Dropped>());
        current("unfilled", &overbank_reasons::reference::<Unfilled>());
    }
}
