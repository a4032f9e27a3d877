//! Runs the live switch as a service: from a checked configuration to the final totals.
//!
//! ```text
//!   open ports ─▶ sockets ─▶ drop privileges ─▶ threads of the switch ─▶ OpenFlow, metrics, …
//!                                                     │
//!        SIGHUP: rules reloaded, all or none ◀──────┤
//!        SIGTERM, SIGINT, --duration, end of captures ┴▶ drain, close ports, totals
//! ```
//!
//! Every error of the configuration is reported before the first packet.

use crate::switch::appliance::Appliance;
use crate::switch::document::{Served, ServedEngine};
use crate::switch::settings::{Config, Mode};
use crate::switch::setup;
use crate::switch::status::Status;
use overbank_ofctl::sessions::ControlError;
use overbank_ports::queue::PortError;
use overbank_runtime::{ConfiguredPort, Engine, Handle, Running};
use overbank_service::endpoints::{Endpoints, Limits, ServeError};
use overbank_service::privileges::{self, PrivilegeError};
use overbank_service::process::{Asked, Signals, notify};
use overbank_switch::rule::Rule;
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two checks of the threads for an end or a panic.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time for control connections to close.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The switch did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Ports cannot be opened.
    #[error("{0}")]
    Ports(PortErrors),
    /// The rule switch does not start.
    #[error(transparent)]
    Rules(#[from] overbank_ofctl::StartError),
    /// The Ethernet switch does not start.
    #[error(transparent)]
    Bridge(#[from] overbank_bridge::StartError),
    /// The totals cannot be written as JSON.
    #[error("internal error: the status document: {0}; please report it")]
    Document(#[from] serde_json::Error),
    /// Privileges cannot be dropped.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// An address or a path cannot be bound.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// OpenFlow cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Threads or signal handlers are unavailable.
    #[error("cannot start threads or handle signals: {0}")]
    System(#[from] io::Error),
    /// A thread panicked.
    #[error("internal error: a worker thread panicked; please report it")]
    Broken,
}

#[derive(Debug)]
pub struct PortErrors(Vec<(u32, PortError)>);

impl fmt::Display for PortErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (number, error)) in self.0.iter().enumerate() {
            write!(f, "{}port {number}: {error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Opens all ports, or reports all that fail.
fn open_ports(config: &Config) -> Result<Vec<ConfiguredPort>, RunError> {
    let (mut ports, mut errors) = (Vec::new(), Vec::new());
    for setting in &config.ports {
        match ConfiguredPort::open(setting.number, setting.spec.clone(), config.run.workers) {
            Ok(port) => ports.push(port),
            Err(error) => errors.push((setting.number, error)),
        }
    }
    if errors.is_empty() { Ok(ports) } else { Err(RunError::Ports(PortErrors(errors))) }
}

/// Final counts of a switch.
pub struct Totals {
    /// As JSON.
    pub json: String,
    /// As a structure.
    pub status: Status,
}

/// Runs a switch until it is asked to stop, and returns its totals.
///
/// # Errors
/// Fails if it does not start or a thread panicked. Either way it leaves nothing behind.
pub fn run(config: &Config, rules: Vec<Rule>) -> Result<Totals, RunError> {
    let rule_count = rules.len();
    match config.switch.mode {
        Mode::OpenFlow => run_engine(config, Some(rule_count), |ports| {
            Ok(overbank_ofctl::start(setup::rules(config, rules), ports)?)
        }),
        Mode::L2 => run_engine(config, None, |ports| {
            Ok(overbank_bridge::start(&setup::bridge(config), ports)?)
        }),
    }
}

/// Does as [`run`], for any engine.
fn run_engine<C: Appliance>(
    config: &Config,
    rules: Option<usize>,
    start: impl FnOnce(Vec<ConfiguredPort>) -> Result<Running<C>, RunError>,
) -> Result<Totals, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    privileges::prepare();
    let ports = open_ports(config)?;
    let endpoints = Endpoints::open(&config.service, config.metrics_required)?;
    if config.service.keep_privileges {
        tracing::info!("keeping all privileges");
    } else {
        let kept = privileges::drop_all_but(&privileges::NETWORK)?;
        tracing::info!(kept = kept.join(" "), "dropped all other privileges");
    }
    let running = start(ports)?;
    let datapath_id = config.switch.datapath_id.map(|id| id.0);
    let datapath_id = datapath_id.unwrap_or_else(|| {
        overbank_ofctl::datapath_id(running.handle().lock().publisher().ports())
    });
    // One thread: sessions share a lock, and with two, each request woke the one that slept.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("serve")
        .enable_all()
        .build()?;
    // Before anything reports that it runs: an unhandled signal would kill it.
    let signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    tracing::info!(
        mode = C::MODE,
        ports = config.ports.len(),
        rules,
        workers = config.run.workers,
        cores = ?running.pinned(),
        datapath_id = format!("{datapath_id:016x}"),
        "forwarding"
    );
    let served = Served { openflow: None, limits: Limits::new(&config.service) };
    let engine = ServedEngine { handle: running.handle().clone(), datapath_id, served };
    let outcome = runtime.block_on(serve(config, &running, engine, signals, endpoints));
    runtime.shutdown_timeout(CLOSE_MAX);
    let status = running.stop();
    let document = outcome?.document::<C>(datapath_id, status);
    let json = serde_json::to_string_pretty(&document)?;
    let status = serde_json::from_str(&json)?;
    Ok(Totals { json, status })
}

/// Runs everything beside forwarding until it is time to stop. Returns the reason.
async fn serve<C: Appliance>(
    config: &Config,
    running: &Running<C>,
    mut engine: ServedEngine<C>,
    mut signals: Signals,
    endpoints: Endpoints,
) -> Result<Served, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    let (stop, stopped) = watch::channel(false);
    let options = config.controllers.options();
    engine.served.openflow = (!config.targets.is_empty()).then(|| options.counters.clone());
    let (handle, served) = (engine.handle.clone(), engine.served.clone());
    let _socket_file = endpoints.serve(Arc::new(engine), &served.limits, stopped.clone())?;
    let mut control = tokio::spawn(C::serve(config, handle.clone(), options, stopped));
    notify("READY=1");
    let end = config.service.duration.map(|duration| Instant::now() + duration);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let reason = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Reload => reload(config.rules.rules.as_deref(), &handle).await,
                Asked::End(reason) => break reason,
            },
            ended = &mut control => {
                    // No receiver is left if all tasks have ended.
                let _ = stop.send(true);
                return match ended {
                    Ok(Err(error)) => Err(error.into()),
                    Ok(Ok(())) | Err(_) => Err(RunError::Broken),
                };
            }
            _ = look.tick() => {
                if running.is_broken() {
                    return Err(RunError::Broken);
                }
                if running.is_finished() {
                    break "all captures are done";
                }
                if end.is_some_and(|end| Instant::now() >= end) {
                    break "the duration is over";
                }
            }
        }
    };
    tracing::info!(reason, "stopping");
    notify("STOPPING=1");
    // Without receivers, all have stopped.
    let _ = stop.send(true);
    match tokio::time::timeout(CLOSE_MAX, control).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "control connections ended with an error"),
        Ok(Err(_)) => return Err(RunError::Broken),
        Err(_) => tracing::warn!("control connections did not close in time"),
    }
    Ok(served)
}

/// Reloads the rules; a file with errors changes nothing.
async fn reload<C: Appliance>(path: Option<&Path>, handle: &Handle<C>) {
    let Some(path) = path.map(Path::to_owned) else {
        tracing::warn!("SIGHUP ignored: no file of rules is configured (--rules)");
        return;
    };
    notify("RELOADING=1");
    let handle = handle.clone();
    // A large file takes a while; sessions go on meanwhile.
    let work = move || {
        if let Err(problems) = C::reload(&handle, &path) {
            for problem in &problems.0 {
                tracing::error!(%problem, "rules not reloaded");
            }
            tracing::error!(errors = problems.0.len(), "rules unchanged");
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "internal error: the reload panicked; please report it");
    }
    notify("READY=1");
}
