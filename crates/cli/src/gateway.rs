//! `overbank gateway`: reads its settings and sessions, prints its totals.

mod access;
mod appliance;
mod ask;
mod client;
mod cluster;
mod demo;
mod members;
#[cfg(feature = "pfcp")]
mod pfcp;
mod place;
#[cfg(test)]
mod tests;

use crate::live::args::{self, LiveCommand, counted, report};
use crate::live::{self, Plan, seed};
use crate::options::Format;
use crate::switch::totals;
use anyhow::{Result, bail};
use appliance::GatewayExtra;
use overbank_declare::settings::{Check, Location, Problem, Problems, Section, Source, Table as _};
use overbank_gateway::journal::{self, Found, Journal};
use overbank_gateway::prefix::{Prefix, Prefixes};
use overbank_gateway::settings::{Ack, GatewaySettings, Role};
use overbank_gateway::teid::Secret;
use overbank_gateway::{Setup, StartError, fabric, file};
use overbank_ports::select::{Rule, Rules, Select};
use overbank_ports::spec::PortKind;
use overbank_runtime::settings::{PortSetting, WorkerSettings};
use overbank_service::options::ServiceSettings;
use overbank_service::process::start_log;
use overbank_service::sockets::LocalSocket;
use place::Place;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// `overbank gateway`.
pub struct Gateway;

/// Every section, in the order of help and documents.
const SECTIONS: [Section; 3] =
    [GatewaySettings::SECTION, WorkerSettings::SECTION, ServiceSettings::SECTION];

impl LiveCommand for Gateway {
    const SECTIONS: &'static [Section] = &SECTIONS;
    const ABOUT: &'static str = "Terminate GTP-U tunnels of a mobile network: N3 to N6 and back";
    const LONG_ABOUT: &'static str = "\
Forwards the packets of sessions between tunnels (port n3) and the data network (port n6). A TOML
file may hold every setting by the same name; options override the file. Everything is checked
before anything starts. A port without a configured next hop sends by the kernel's routes and
neighbours. Ctrl-C or SIGTERM ends the gateway and prints the totals; SIGHUP reads sessions, pools,
routes and limits again, all or none. A node of a cluster gives its sessions to the others before it
ends; a second signal ends it at once.";
    const EXAMPLES: &'static str = "Examples:
  overbank gateway --port n3=afpacket:eth1 --port n6=afpacket:eth2 --n3-address 192.0.2.1 \\
      --ue-pool 10.45.0.0/16 --sessions sessions.csv
  overbank gateway --port n3=afpacket:eth1 --port n6=afpacket:eth2 --n3-address 192.0.2.1 \\
      --ue-pool 10.45.0.0/16 --pfcp 10.0.0.5:8805
  overbank gateway --config gateway.toml --check
  overbank gateway sessions list --address 10.45.0.2      of a gateway with --control
  overbank gateway demo --nodes 4                         a cluster in one process, to try

The file of sessions is CSV with a header line:
  id,n3,teid,peer,peer_teid,qfi,ipv4,ipv6,gate,rate_up,rate_down
  1,192.0.2.1,0x101,198.51.100.7,0x2001,9,10.45.0.2,2001:db8:45:1::/64,open,50M,200M";
}

pub type Args = args::Args<Gateway>;

/// The checked configuration.
pub struct Config {
    /// To read it again.
    args: Option<Args>,
    pub setup: Setup,
    /// By number.
    pub ports: Vec<PortSetting>,
    /// What AF_XDP ports take now.
    taken: Arc<Mutex<Vec<(u32, Select)>>>,
    /// File of sessions.
    pub sessions: Option<PathBuf>,
    /// Directory of the journal.
    pub journal: Option<PathBuf>,
    /// The journal, until its thread runs.
    opened: Mutex<Option<Journal>>,
    /// Bytes of the journal that were cut off.
    cut: u64,
    /// File of the secret of TEIDs.
    teid_secret: Option<PathBuf>,
    /// Address of N4, and the peers that may use it (empty: all).
    pub pfcp: Option<N4>,
    /// The cluster that it is to join.
    pub cluster: Option<ClusterSettings>,
    /// The cluster that it has joined, until its node runs.
    pub joined: Mutex<Option<cluster::Joining>>,
    pub kept: cluster::Kept,
    /// Path of the control socket, and its limit of connections.
    pub control: (Option<PathBuf>, usize),
    /// The control socket, bound when the gateway starts.
    pub socket: Option<LocalSocket>,
    pub service: ServiceSettings,
    pub metrics_required: bool,
}

/// What is done with the journal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is read.
    Check,
    /// It is opened.
    Start,
    /// Nothing: the gateway has it open.
    Reload,
}

fn problem(what: impl ToString) -> Problems {
    Problems(vec![Problem { location: Location::InText, what: what.to_string() }])
}

impl Config {
    /// Checks settings and sessions on a machine with these cores (empty: unknown).
    ///
    /// # Errors
    /// Returns all problems.
    fn new(source: Source, available_cores: &[usize], to: Purpose) -> Result<Config, Problems> {
        let mut check = source.check();
        let config = Config::read(&mut check, available_cores);
        let mut config = check.finish(config)?;
        if let Some(path) = &config.teid_secret {
            config.setup.teid_secret = Some(Secret::read(path).map_err(problem)?);
        }
        if let Some(cluster) = config.cluster.as_mut().filter(|_| to != Purpose::Reload) {
            cluster.access.read().map_err(problem)?;
        }
        if let Some(directory) = config.journal.clone() {
            config.keep(&directory, to)?;
        }
        if let Some(path) = &config.sessions {
            config.setup.sessions = file::read(path)?;
        }
        if config.sessions.is_some() || config.journal.is_some() {
            config.check_sessions()?;
        }
        Ok(config)
    }

    /// Takes what the journal has kept.
    fn keep(&mut self, directory: &Path, to: Purpose) -> Result<(), Problems> {
        match to {
            Purpose::Reload => {}
            Purpose::Check => {
                self.setup.kept = journal::read(directory).map_err(problem)?.unwrap_or_default();
            }
            Purpose::Start => {
                let (journal, Found { kept, cut }) = Journal::open(directory).map_err(problem)?;
                self.cut = cut;
                self.setup.journal = Some(journal.counts());
                self.setup.kept = kept;
                self.opened = Mutex::new(Some(journal));
            }
        }
        Ok(())
    }

    /// Checks the sessions of journal and file together.
    fn check_sessions(&self) -> Result<(), Problems> {
        let name = |path: &Option<PathBuf>| path.iter().map(|p| p.display().to_string()).collect();
        let (file, kept): (String, String) = (name(&self.sessions), name(&self.journal));
        overbank_gateway::check(&self.setup).map_err(|error| match error {
            StartError::Sessions(refusals) => {
                let mut problems = file::problems(&file, &refusals);
                if !self.setup.kept.is_empty() {
                    let what = format!(
                        "the sessions of {file} were checked beside those of the journal {kept}, \
                         which are of requests: start without the file to remove some, or change \
                         the file"
                    );
                    problems.0.extend(problem(what).0);
                }
                problems
            }
            StartError::Kept(refusals) => {
                let what = refusals.iter().take(file::ERRORS_MAX).map(|refusal| {
                    let what = format!("{kept}: {}", refusal.what);
                    Problem { location: Location::InText, what }
                });
                let mut problems = Problems(what.collect());
                let remedy = format!(
                    "{kept}: {} of its sessions do not fit the settings; start with those that \
                     they were added with, remove them, and change the settings then",
                    refusals.len()
                );
                problems.0.extend(problem(remedy).0);
                problems
            }
            other => problem(other),
        })
    }

    fn read(check: &mut Check, available_cores: &[usize]) -> Option<Config> {
        let metrics_required = check.given("metrics").is_some();
        let gateway = GatewaySettings::read(check);
        let workers = WorkerSettings::read(check);
        let service = ServiceSettings::read(check);
        // Every table has been read, so all problems are known.
        let (gateway, workers) = (gateway?, workers?);
        let mut ports = gateway.ports(check);
        let run = workers.options(check, available_cores);
        let mut setup = Setup { seed: seed(), ..gateway.setup(check, run) };
        let pfcp = check_pfcp(check, &gateway);
        select(check, &mut ports, &setup);
        let cluster = check_cluster(check, &gateway);
        let control = (gateway.control.0, gateway.control_connections);
        let (sessions, service) = (gateway.sessions, service?);
        // Terminals do not reach them.
        let own = [pfcp.as_ref().map(|n4| n4.address), service.metrics.0];
        let own = own.into_iter().flatten().map(|own| own.ip());
        let cluster_of = cluster.iter().flat_map(|cluster| cluster.place.addresses());
        let protected = own.chain(cluster_of).map(|address| Prefix::of(address, u8::MAX));
        setup.tunable.protected =
            setup.tunable.protected.iter().copied().chain(protected).collect();
        let teid_secret = gateway.teid_secret;
        let journal = gateway.journal;
        let args = None;
        Some(Config {
            args,
            setup,
            taken: Arc::new(Mutex::new(appliance::taken(&ports))),
            ports,
            sessions,
            journal,
            opened: Mutex::default(),
            cut: 0,
            teid_secret,
            pfcp,
            cluster,
            joined: Mutex::default(),
            kept: cluster::Kept::default(),
            control,
            socket: None,
            service,
            metrics_required,
        })
    }
}

/// Has AF_XDP ports take the gateway's own frames alone: tunnels to its N3 addresses, packets to
/// terminals, and those of other nodes. The kernel keeps the others.
fn select(check: &mut Check, ports: &mut [PortSetting], setup: &Setup) {
    let tunnels = setup.n3.iter().map(|&dst| Rule::Udp { dst, port: overbank_wire::gtpu::PORT });
    let pools = setup.tunable.pools.iter();
    let terminals = pools.map(|pool| Rule::To { prefix: pool.address(), len: pool.len() });
    let nodes = vec![Rule::From { src: fabric::PREFIX }];
    let of_role =
        [(Role::N3, tunnels.collect()), (Role::N6, terminals.collect()), (Role::Fabric, nodes)];
    for (role, rules) in of_role {
        let port = ports.iter_mut().find(|port| port.number == role.number());
        let Some(PortKind::AfXdp { options, .. }) = port.map(|port| &mut port.spec.kind) else {
            continue;
        };
        match Rules::new(rules) {
            Ok(rules) => options.select = Select::Rules(rules),
            Err(error) => {
                let location = check.given("ue-pool").unwrap_or(Location::InText);
                check.problem(location, format!("{error} on an AF_XDP port"));
            }
        }
    }
}

/// Where N4 is.
#[derive(Clone)]
#[cfg_attr(not(feature = "pfcp"), expect(dead_code, reason = "refused when it is given"))]
pub struct N4 {
    pub address: SocketAddr,
    /// Prefixes of SMFs; empty: all.
    pub peers: Prefixes,
    /// Interface that has the address on the speaker of a cluster.
    pub interface: Option<String>,
}

/// Returns the address of N4 and its peers; reports what does not fit.
fn check_pfcp(check: &mut Check, gateway: &GatewaySettings) -> Option<N4> {
    let address = gateway.pfcp?;
    let location = check.given("pfcp").unwrap_or(Location::InText);
    if !cfg!(feature = "pfcp") {
        let what = "this program was built without PFCP; build it with --features pfcp";
        check.problem(location, what);
    } else if address.ip().is_unspecified() || address.ip().is_multicast() {
        let what = format!("{address}: must be an address of this machine, which SMFs know it by");
        check.problem(location, what);
    }
    let interface = gateway.pfcp_interface.clone().map(|name| name.0);
    if interface.is_some() && gateway.node.is_none() {
        let location = check.given("pfcp-interface").unwrap_or(Location::InText);
        check.problem(location, "a gateway by itself has the address already; give it --node, too");
    }
    let peers = gateway.pfcp_peer.iter().map(|peer| peer.value).collect();
    Some(N4 { address, peers, interface })
}

/// Where a node's cluster is.
pub struct ClusterSettings {
    pub node: u8,
    pub name: String,
    pub place: Place,
    pub access: access::Access,
    pub drain_timeout: Duration,
    pub max_nodes: usize,
    pub lease_seconds: usize,
    pub answers_early: bool,
}

/// Returns the cluster to join; reports what does not fit together.
fn check_cluster(check: &mut Check, gateway: &GatewaySettings) -> Option<ClusterSettings> {
    let Some(node) = gateway.node else {
        for given in place::SERVICES.into_iter().chain(["peers"]) {
            if let Some(location) = check.given(given) {
                check.problem(location, "it is of a cluster: give the node's number, too");
            }
        }
        return None;
    };
    if node >= gateway.max_nodes {
        let most = gateway.max_nodes;
        let location = check.given("node").unwrap_or(Location::InText);
        check.problem(location, format!("{node}: must be below max-nodes ({most})"));
    }
    let place = Place::check(check, gateway, node as u8);
    let own = [("sessions", gateway.sessions.is_some()), ("journal", gateway.journal.is_some())];
    for (name, _) in own.into_iter().filter(|(_, is_given)| *is_given) {
        let location = check.given(name).unwrap_or(Location::InText);
        let what = "a cluster has its sessions in its log: add them by the control socket";
        check.problem(location, what);
    }
    Some(ClusterSettings {
        node: node as u8,
        name: gateway.cluster.clone().unwrap_or_default().0,
        place: place?,
        access: access::Access::of(check, gateway),
        drain_timeout: Duration::from_secs(gateway.drain_timeout as u64),
        max_nodes: gateway.max_nodes,
        lease_seconds: gateway.lease_seconds,
        answers_early: gateway.ack == Ack::Replicated,
    })
}

/// Arguments: those of a gateway to run, or of a question to a running one.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    #[command(flatten)]
    run: Args,
    #[command(subcommand)]
    ask: Option<ask::Ask>,
}

pub fn run(command: &Command) -> Result<()> {
    match &command.ask {
        Some(ask) => ask::run(ask),
        None => serve(&command.run),
    }
}

fn serve(args: &Args) -> Result<()> {
    let to = if args.options.check { Purpose::Check } else { Purpose::Start };
    let config = Config::new(args.source(), &WorkerSettings::available_cores(), to);
    let mut config = config.map_err(|problems| report(&problems))?;
    if args.options.check {
        let sessions = config.setup.sessions.len() + config.setup.kept.sessions.len();
        let sessions = counted(sessions, "session");
        writeln!(std::io::stdout(), "configuration is valid: {sessions}")?;
        return Ok(());
    }
    config.args = Some(args.clone());
    start_log(&config.service);
    if let (Some(journal), 1..) = (&config.journal, config.cut) {
        let (journal, bytes) = (journal.display(), config.cut);
        tracing::warn!(%journal, bytes, "cut the last frame off: it was not whole when it was left");
    }
    cluster::join(&mut config)?;
    let bind = |path: &PathBuf| LocalSocket::bind(path, "control", Some(0o600));
    config.socket = config.control.0.as_ref().map(bind).transpose()?;
    let plan = Plan {
        ports: &config.ports,
        workers: config.setup.run.workers,
        service: &config.service,
        metrics_required: config.metrics_required,
    };
    let start = |ports| Ok(overbank_gateway::start(&config.setup, ports)?);
    let extra = GatewayExtra {
        #[cfg(feature = "pfcp")]
        n4: config.pfcp.as_ref().map(|_| pfcp::Counts::new()),
    };
    let ended = live::run(&plan, &config, start, |_| extra)?;
    let printed = match args.options.format {
        Format::Text => totals(&ended.status, &summary(&serde_json::from_str(&ended.json)?)),
        Format::Json => ended.json,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    if config.kept.load(std::sync::atomic::Ordering::Relaxed) {
        bail!("sessions were not all given away: other nodes take them over after the lease");
    }
    Ok(())
}

/// Summarises the fate of the packets in a line.
fn summary(document: &Value) -> String {
    let total = |name: &str| document["total"][name].as_u64().unwrap_or(0);
    let control = |name: &str| document["control"][name].as_u64().unwrap_or(0);
    format!(
        "{:.1} s, {} packets: {} uplink, {} downlink; {} echoes answered, {} Error Indications, {} \
         ICMP errors; {}",
        document["uptime_ms"].as_f64().unwrap_or(0.0) / 1e3,
        total("packets"),
        total("uplink"),
        total("downlink"),
        total("echo_answered"),
        total("error_indications"),
        total("icmp_errors"),
        counted(control("sessions") as usize, "session"),
    )
}
