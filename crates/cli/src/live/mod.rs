//! Runs a live engine as a service: from a checked configuration to the final totals.
//!
//! ```text
//!   open ports ─▶ sockets ─▶ drop privileges ─▶ threads of the engine ─▶ sessions, metrics, …
//!                                                     │
//!        SIGHUP: the appliance reloads, all or none ◀─┤
//!        SIGTERM, SIGINT, --duration, end of captures ┴▶ drain, close ports, totals
//! ```
//!
//! Every error of the configuration is reported before the first packet. [`Appliance`] is what
//! differs between the rule switch, the Ethernet switch, the key-value cache and the gateway.

pub mod args;
pub mod document;

use crate::switch::status::Status;
use document::{Extra, Served};
use overbank_ofctl::sessions::ControlError;
use overbank_ports::queue::PortError;
use overbank_ports::select::Select;
use overbank_runtime::settings::PortSetting;
use overbank_runtime::{ConfiguredPort, Control, Engine, Handle, Running};
use overbank_service::endpoints::{Endpoints, Limits, ServeError};
use overbank_service::options::ServiceSettings;
use overbank_service::privileges::{self, PrivilegeError};
use overbank_service::process::{Asked, Signals, notify};
use serde::Serialize;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two checks of the threads for an end or a panic.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest time for control connections to close.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What the service of an engine is run by, beside the engine.
pub struct Plan<'a> {
    pub ports: &'a [PortSetting],
    pub workers: usize,
    pub service: &'a ServiceSettings,
    /// Whether a metrics address was given. Otherwise it runs without metrics if that is taken.
    pub metrics_required: bool,
}

/// A control side as a service: its sessions, its answers, its reload on SIGHUP.
pub trait Appliance: Control {
    /// The checked configuration.
    type Config;
    /// What its documents have beside the engine.
    type Extra: Extra;

    /// Logs that it forwards, on these cores.
    fn announce(config: &Self::Config, extra: &Self::Extra, cores: &[Option<usize>]);

    /// Answers a line of the status socket; `None`: with the status document.
    fn answer(_handle: &Handle<Self>, _line: &str) -> Option<serde_json::Result<Vec<u8>>> {
        None
    }

    /// Returns why traffic should not be sent here, if it should not.
    fn unready(_handle: &Handle<Self>) -> Option<String> {
        None
    }

    /// Returns the work of a reload, which may take a while and logs what it did. A reload with
    /// errors changes nothing. `None`: there is nothing to reload.
    fn reload(
        config: &Self::Config,
        handle: &Handle<Self>,
    ) -> Option<impl FnOnce() + Send + 'static>;

    /// What it does before it stops, while it forwards and serves as ever. Another signal cuts it
    /// short.
    fn before_stop(
        _config: &Self::Config,
        _handle: &Handle<Self>,
    ) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }

    /// Serves its sessions until `stop`, or until there is nothing left to do.
    fn serve(
        config: &Self::Config,
        served: Served<Self>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + 'static;
}

/// Returns a seed that attackers cannot predict.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Waits until `stop`: serves no sessions.
pub async fn until_stopped(mut stop: watch::Receiver<bool>) -> Result<(), RunError> {
    // An error means that the sender is gone: stop then, too.
    let _ = stop.wait_for(|stop| *stop).await;
    Ok(())
}

/// The service did not start, or ended early.
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
    /// The key-value cache does not start.
    #[error(transparent)]
    Device(#[from] overbank_device::StartError),
    /// The node's run is over for good.
    #[error("the node cannot go on in its cluster: {0}")]
    Cluster(#[from] overbank_stores::StoresError),
    /// The gateway does not start.
    #[error(transparent)]
    Gateway(#[from] overbank_gateway::StartError),
    /// The totals cannot be written as JSON.
    #[error("internal error: the status document: {0}; please report it")]
    Document(#[from] serde_json::Error),
    /// Privileges cannot be dropped.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// An address or a path cannot be bound.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The address of N4 cannot be bound.
    #[cfg(feature = "pfcp")]
    #[error("cannot serve PFCP at {address}: {error}; must be a free address of this machine")]
    Pfcp { address: std::net::SocketAddr, error: io::Error },
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
fn open_ports(plan: &Plan<'_>) -> Result<Vec<ConfiguredPort>, RunError> {
    let (mut ports, mut errors) = (Vec::new(), Vec::new());
    for setting in plan.ports {
        match ConfiguredPort::open(setting.number, setting.spec.clone(), plan.workers) {
            Ok(port) => ports.push(port),
            Err(error) => errors.push((setting.number, error)),
        }
    }
    if errors.is_empty() { Ok(ports) } else { Err(RunError::Ports(PortErrors(errors))) }
}

/// Final counts.
pub struct Totals {
    /// As JSON.
    pub json: String,
    /// As a structure.
    pub status: Status,
}

/// Runs an engine until it is asked to stop, and returns its totals.
///
/// # Errors
/// Fails if it does not start or a thread panicked. Either way it leaves nothing behind.
pub fn run<C: Appliance>(
    plan: &Plan<'_>,
    config: &C::Config,
    start: impl FnOnce(Vec<ConfiguredPort>) -> Result<Running<C>, RunError>,
    extra: impl FnOnce(&Handle<C>) -> C::Extra,
) -> Result<Totals, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    privileges::prepare();
    let ports = open_ports(plan)?;
    let endpoints = Endpoints::open(plan.service, plan.metrics_required)?;
    if plan.service.keep_privileges {
        tracing::info!("keeping all privileges");
    } else {
        let selects =
            |port: &PortSetting| port.spec.clone().select().is_some_and(|s| *s != Select::All);
        let selecting = plan.ports.iter().any(selects).then_some(privileges::SELECTING);
        let keep: Vec<_> = privileges::NETWORK.into_iter().chain(selecting).collect();
        let kept = privileges::drop_all_but(&keep)?;
        tracing::info!(kept = kept.join(" "), "dropped all other privileges");
    }
    let running = start(ports)?;
    let extra = extra(running.handle());
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
    C::announce(config, &extra, running.pinned());
    let served = Served::<C> {
        handle: running.handle().clone(),
        extra: extra.clone(),
        limits: Limits::new(plan.service),
    };
    let outcome = runtime.block_on(serve(plan, config, &running, served, signals, endpoints));
    runtime.shutdown_timeout(CLOSE_MAX);
    let status = running.stop();
    let document = outcome?.document(status);
    let json = serde_json::to_string_pretty(&document)?;
    let status = serde_json::from_str(&json)?;
    Ok(Totals { json, status })
}

/// Runs everything beside forwarding until it is time to stop. Returns the reason.
async fn serve<C: Appliance>(
    plan: &Plan<'_>,
    config: &C::Config,
    running: &Running<C>,
    served: Served<C>,
    mut signals: Signals,
    endpoints: Endpoints,
) -> Result<Served<C>, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    let (stop, stopped) = watch::channel(false);
    let handle = served.handle.clone();
    let documents = Arc::new(served.clone());
    let _socket_file = endpoints.serve(documents, &served.limits, stopped.clone())?;
    let mut control = tokio::spawn(C::serve(config, served.clone(), stopped));
    notify("READY=1");
    let end = plan.service.duration.map(|duration| Instant::now() + duration);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut is_over = false;
    let reason = loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Reload => reload(config, &handle).await,
                Asked::End(reason) => break reason,
            },
            ended = &mut control => match ended {
                Ok(Ok(())) => {
                    is_over = true;
                    break "it has left its cluster";
                }
                failed => {
                    // No receiver is left if all tasks have ended.
                    let _ = stop.send(true);
                    return failed.unwrap_or(Err(RunError::Broken)).map(|()| served);
                }
            },
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
    if !is_over {
        tokio::select! {
            () = C::before_stop(config, &handle) => {}
            again = asked_to_end(&mut signals) => tracing::warn!(again, "stopping at once"),
            ended = &mut control => {
                is_over = true;
                ended.unwrap_or(Err(RunError::Broken))?;
            }
        }
    }
    // Without receivers, all have stopped.
    let _ = stop.send(true);
    if is_over {
        return Ok(served);
    }
    match tokio::time::timeout(CLOSE_MAX, control).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "control connections ended with an error"),
        Ok(Err(_)) => return Err(RunError::Broken),
        Err(_) => tracing::warn!("control connections did not close in time"),
    }
    Ok(served)
}

/// Waits for a signal to end.
async fn asked_to_end(signals: &mut Signals) -> &'static str {
    loop {
        if let Asked::End(reason) = signals.next().await {
            return reason;
        }
    }
}

/// Reloads the appliance.
async fn reload<C: Appliance>(config: &C::Config, handle: &Handle<C>) {
    let Some(work) = C::reload(config, handle) else { return };
    notify("RELOADING=1");
    // A large file takes a while; sessions go on meanwhile.
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "internal error: the reload panicked; please report it");
    }
    notify("READY=1");
}
