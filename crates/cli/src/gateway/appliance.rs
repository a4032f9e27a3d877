//! The gateway as a service.

#[cfg(feature = "pfcp")]
use super::pfcp;
use super::{Args, Config, Purpose, problem};
use super::{client, cluster};
use crate::live::document::{Extra, Served};
use crate::live::{Appliance, RunError, until_stopped};
use crate::switch::status::GATEWAY_SCHEMA;
use overbank_declare::settings::{Location, Problem, Problems};
use overbank_gateway::journal::Keeper;
use overbank_gateway::prefix::Prefixes;
use overbank_gateway::teid::Secret;
use overbank_gateway::{GatewayControl, file, http};
use overbank_ports::PortSpec;
use overbank_ports::select::{Select, SelectError};
use overbank_runtime::Handle;
use overbank_runtime::settings::{PortSetting, WorkerSettings};
use overbank_service::connections::{ConnectionLimit, IDLE_MAX};
use serde::Serialize;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What the documents of the gateway have beside its engine.
#[derive(Clone, Default)]
pub struct GatewayExtra {
    /// Counts of N4.
    #[cfg(feature = "pfcp")]
    pub n4: Option<pfcp::Counts>,
}

#[derive(Serialize)]
pub struct Head {
    schema: &'static str,
    mode: &'static str,
    #[cfg(feature = "pfcp")]
    #[serde(skip_serializing_if = "Option::is_none")]
    n4: Option<overbank_n4::N4Totals>,
}

impl Extra for GatewayExtra {
    type Head = Head;

    fn head(&self) -> Head {
        Head {
            schema: GATEWAY_SCHEMA,
            mode: "gateway",
            #[cfg(feature = "pfcp")]
            n4: self.n4.as_ref().map(pfcp::Counts::read),
        }
    }

    #[cfg(feature = "pfcp")]
    fn expose(&self, to: &mut overbank_declare::counters::Exposition) {
        if let Some(n4) = &self.n4 {
            to.add(&[], &n4.read());
        }
    }
}

/// What a reload cannot change, and pools, which it can without a cluster.
struct Fixed {
    pools: Prefixes,
    /// But for what AF_XDP ports take.
    ports: Vec<(u32, PortSpec)>,
    n3: Vec<std::net::IpAddr>,
    teid_secret: Option<Secret>,
    workers: usize,
    max_sessions: usize,
    journal: Option<PathBuf>,
}

impl Fixed {
    fn of(config: &Config) -> Fixed {
        let Config { ports, setup, journal, .. } = config;
        Fixed {
            pools: setup.tunable.pools.clone(),
            ports: ports.iter().map(stripped).collect(),
            journal: journal.clone(),
            n3: setup.n3.to_vec(),
            teid_secret: setup.teid_secret,
            workers: setup.run.workers,
            max_sessions: setup.max_sessions,
        }
    }
}

impl PartialEq for Fixed {
    fn eq(&self, other: &Fixed) -> bool {
        let Fixed { pools: _, ports, n3, teid_secret, workers, max_sessions, journal } = self;
        (ports, n3, teid_secret) == (&other.ports, &other.n3, &other.teid_secret)
            && (workers, max_sessions) == (&other.workers, &other.max_sessions)
            && *journal == other.journal
    }
}

/// Returns a port without what it takes.
fn stripped(port: &PortSetting) -> (u32, PortSpec) {
    let mut spec = port.spec.clone();
    if let Some(select) = spec.select() {
        *select = Select::All;
    }
    (port.number, spec)
}

/// What AF_XDP ports take, by number.
type Taken = Vec<(u32, Select)>;

/// Returns what the AF_XDP ports of a configuration take.
pub fn taken(ports: &[PortSetting]) -> Taken {
    let of = |port: &PortSetting| Some((port.number, port.spec.clone().select()?.clone()));
    ports.iter().filter_map(of).collect()
}

/// Has ports take these frames.
fn select(handle: &Handle<GatewayControl>, taken: Taken) -> Result<(), Problems> {
    let all = taken.into_iter();
    let failed = all.filter_map(|(number, select)| handle.select(number, select).err());
    let failed =
        failed.map(|error| Problem { location: Location::InText, what: error.to_string() });
    let failed: Vec<Problem> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(Problems(failed)) }
}

/// Reads settings and sessions again; errors change nothing.
///
/// Ports take what belongs to the pools before and after, until the sessions are those of the new
/// pools.
fn reload(
    args: &Args,
    fixed: &Fixed,
    now_taken: &Mutex<Taken>,
    handle: &Handle<GatewayControl>,
) -> Result<(), Problems> {
    let config = Config::new(args.source(), &WorkerSettings::available_cores(), Purpose::Reload)?;
    if *fixed != Fixed::of(&config) {
        let what = "ports, N3 addresses, workers, max-sessions, teid-secret and journal change with \
                    a restart alone";
        let what = what.to_owned();
        return Err(Problems(vec![Problem { location: Location::InText, what }]));
    }
    let Config { setup, sessions, ports, .. } = config;
    if handle.lock().cluster().is_some_and(|_| setup.tunable.pools != fixed.pools) {
        return Err(problem(
            "ue-pool: all nodes of a cluster need the same, so it does not change while one runs; \
             docs/cluster.md says how it does",
        ));
    }
    let mut now_taken = now_taken.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, after) = (now_taken.clone(), taken(&ports));
    if before != after {
        let both = before
            .iter()
            .zip(&after)
            .map(|((number, before), (_, after))| before.and(after).map(|both| (*number, both)));
        let both: Result<Taken, SelectError> = both.collect();
        let both = both.map_err(|error| {
            problem(format!("pools before and after, for a moment together: {error}"))
        })?;
        if let Err(problems) = select(handle, both) {
            let _ = select(handle, before);
            return Err(problems);
        }
    }
    let list = sessions.as_ref().map(|_| &setup.sessions[..]);
    let done = handle.lock().reload(setup.tunable, list).map_err(|refusals| {
        let name = sessions.map_or("sessions".to_owned(), |path| path.display().to_string());
        file::problems(&name, &refusals)
    });
    let is_done = done.is_ok();
    if before != after {
        let narrowed = select(handle, if is_done { after.clone() } else { before });
        for problem in narrowed.err().into_iter().flat_map(|problems| problems.0) {
            // They are dropped by name.
            tracing::warn!(%problem, "a port takes the packets of the former pools, too");
        }
    }
    if is_done {
        *now_taken = after;
    }
    let done = done?;
    tracing::info!(
        added = done.added,
        changed = done.changed,
        removed = done.removed,
        kept = done.kept,
        "settings and sessions read again"
    );
    Ok(())
}

/// Serves N4, if there is one, until `ended` gives what it returns. Fails if N4 cannot be served.
#[cfg(feature = "pfcp")]
async fn beside(
    n4: Option<pfcp::Service>,
    ended: impl Future<Output = Result<(), RunError>>,
) -> Result<(), RunError> {
    let Some(n4) = n4 else { return ended.await };
    let (quit, stop) = watch::channel(false);
    let runtime = tokio::runtime::Handle::current();
    // It waits for workers now and then.
    let mut served = tokio::task::spawn_blocking(move || runtime.block_on(n4.run(stop)));
    tokio::select! {
        ended = ended => {
            // It must not see the end of the runtime.
            let _ = quit.send(true);
            let _ = served.await;
            ended
        }
        served = &mut served => served.unwrap_or(Err(RunError::Broken)),
    }
}

impl Appliance for GatewayControl {
    type Config = Config;
    type Extra = GatewayExtra;

    fn announce(config: &Config, _: &GatewayExtra, cores: &[Option<usize>]) {
        tracing::info!(
            mode = "gateway",
            sessions = config.setup.sessions.len(),
            workers = config.setup.run.workers,
            ?cores,
            "forwarding"
        );
    }

    fn unready(handle: &Handle<Self>) -> Option<String> {
        let control = handle.lock();
        control.cluster()?.unready(control.now_ms())
    }

    fn reload(config: &Config, handle: &Handle<Self>) -> Option<impl FnOnce() + Send + 'static> {
        let (args, fixed) = (config.args.clone()?, Fixed::of(config));
        let (handle, taken) = (handle.clone(), config.taken.clone());
        Some(move || {
            if let Err(problems) = reload(&args, &fixed, &taken, &handle) {
                for problem in &problems.0 {
                    tracing::error!(%problem, "not reloaded");
                }
                tracing::error!(errors = problems.0.len(), "settings and sessions unchanged");
            }
        })
    }

    fn before_stop(
        config: &Config,
        handle: &Handle<Self>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let most = config.cluster.as_ref().map(|cluster| cluster.drain_timeout);
        cluster::give_away(handle.clone(), most.unwrap_or_default(), config.kept.clone())
    }

    fn serve(
        config: &Config,
        served: Served<Self>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + 'static {
        #[cfg(feature = "pfcp")]
        let n4 = config.pfcp.clone().map(|n4| {
            let (handle, counts) = (served.handle.clone(), served.extra.n4.clone());
            pfcp::Service { n4, handle, counts }
        });
        let (node, kept) = (cluster::start(config, &served.handle), config.kept.clone());
        let control = config.socket.as_ref().map_or(Ok(()), |socket| {
            let handle = served.handle.clone();
            let journal = config.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
            let keeper = journal.map(|journal| Keeper::start(journal, handle.clone()));
            let router = http::router(handle, keeper.transpose()?, Arc::new(served), stop.clone());
            // An import to a cluster is answered when it is done.
            let idle = if config.cluster.is_some() { client::IMPORT_MAX } else { IDLE_MAX };
            socket.serve(router, ConnectionLimit::new(config.control.1), idle, stop.clone())
        });
        async move {
            control?;
            let ended = async {
                if let Some(node) = node {
                    return cluster::run(node, stop, kept).await;
                }
                until_stopped(stop).await
            };
            #[cfg(feature = "pfcp")]
            let ended = beside(n4, ended);
            ended.await
        }
    }
}
