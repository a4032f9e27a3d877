//! The live switch as a service: from a checked configuration to the totals at the end.
//!
//! ```text
//!   open ports ─▶ sockets ─▶ give up rights ─▶ threads of the switch ─▶ OpenFlow, metrics, status
//!                                                     │
//!        SIGHUP: rules read again, all or nothing ◀───┤
//!        SIGTERM, SIGINT, --duration, end of captures ┴▶ drain, close ports, totals
//! ```
//!
//! Everything that can fail for reasons of the configuration fails before the first packet.

use crate::switch::appliance::Appliance;
use crate::switch::config::{Config, Mode};
use crate::switch::document::{Live, Served, Source};
use crate::switch::guests;
use crate::switch::metrics;
use crate::switch::privileges::{self, PrivilegeError};
use crate::switch::setup;
use crate::switch::status::Status;
use overbank_ofctl::sessions::ControlError;
use overbank_ofctl::socket;
use overbank_ports::queue::PortError;
use overbank_runtime::{ConfiguredPort, Engine, Handle, Running};
use overbank_switch::rule::Rule;
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

/// Longest line that the status socket reads.
const STATUS_LINE_MAX: u64 = 256;
/// How often it is looked whether the switch is through, or broken.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long control connections may take to close.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Why the switch does not start, or ends.
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
    /// The totals cannot be written as a document.
    #[error("internal error: the status document: {0}; please report it")]
    Document(#[from] serde_json::Error),
    /// The rights cannot be given up.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// An address or path to serve on cannot be had.
    #[error("{setting} {at}: {source}")]
    Serve {
        /// Name of the setting.
        setting: &'static str,
        /// Its value.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// OpenFlow cannot be served.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system refuses something.
    #[error("the system refuses threads or signals: {0}")]
    System(#[from] io::Error),
    /// A thread ended that should not.
    #[error("internal error: a worker thread panicked; please report it")]
    Broken,
}

/// All ports that cannot be opened.
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

/// Opens all ports, or tells of all that cannot be.
fn open_ports(config: &Config) -> Result<Vec<ConfiguredPort>, RunError> {
    let (mut ports, mut errors) = (Vec::new(), Vec::new());
    for setting in &config.ports {
        match ConfiguredPort::open(setting.number, setting.spec.clone(), config.workers) {
            Ok(port) => ports.push(port),
            Err(error) => errors.push((setting.number, error)),
        }
    }
    if errors.is_empty() { Ok(ports) } else { Err(RunError::Ports(PortErrors(errors))) }
}

/// A socket for `overbank top`. One that a dead switch left behind is replaced.
fn listen_status(path: &Path) -> Result<std::os::unix::net::UnixListener, RunError> {
    let failed = |source| RunError::Serve {
        setting: "status-socket",
        at: path.display().to_string(),
        source,
    };
    if let Err(error) = BlockingUnixStream::connect(path) {
        socket::remove_stale_socket(path, &error).map_err(failed)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Removes the status socket in the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn listen_metrics(config: &Config) -> Result<Option<std::net::TcpListener>, RunError> {
    let Some(address) = config.metrics else { return Ok(None) };
    let listen = |address: SocketAddr| {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    match listen(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if config.metrics_named => {
            Err(RunError::Serve { setting: "metrics", at: address.to_string(), source })
        }
        Err(error) => {
            tracing::warn!(%address, %error, "no metrics: name another address with --metrics");
            Ok(None)
        }
    }
}

/// Tells the service manager, if there is one, how it goes (`sd_notify`).
fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let text = path.to_string_lossy();
    let address = match text.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// What a switch counted in all.
pub struct Totals {
    /// The document.
    pub json: String,
    /// The same, read.
    pub status: Status,
}

/// Runs a switch until it is told to stop, and returns its totals.
///
/// # Errors
/// It does not start, or a thread panicked. Nothing is left behind in either case.
pub fn run(config: &Config, rules: Vec<Rule>) -> Result<Totals, RunError> {
    let rule_count = rules.len();
    match config.mode {
        Mode::OpenFlow => run_engine(config, rule_count, |ports| {
            Ok(overbank_ofctl::start(setup::rules(config, rules), ports)?)
        }),
        Mode::L2 => run_engine(config, rule_count, |ports| {
            Ok(overbank_bridge::start(&setup::bridge(config), ports)?)
        }),
    }
}

/// [`run`] for any engine.
fn run_engine<C: Appliance>(
    config: &Config,
    rules: usize,
    start: impl FnOnce(Vec<ConfiguredPort>) -> Result<Running<C>, RunError>,
) -> Result<Totals, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    privileges::prepare();
    let ports = open_ports(config)?;
    let status_socket = config.status_socket.as_deref().map(listen_status).transpose()?;
    let _socket_file = config.status_socket.clone().map(SocketFile);
    let metrics = listen_metrics(config)?;
    if config.keep_privileges {
        tracing::info!("all rights are kept");
    } else {
        let kept = privileges::drop_all_but_network()?;
        tracing::info!(kept = kept.join(" "), "rights given up");
    }
    let running = start(ports)?;
    let datapath_id = config.datapath_id.unwrap_or_else(|| {
        overbank_ofctl::datapath_id(running.handle().lock().publisher().ports())
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("serve")
        .enable_all()
        .build()?;
    // Before anybody is told that it runs: a signal that nobody waits for would kill it.
    let signals = {
        let _inside = runtime.enter();
        Signals::new()?
    };
    tracing::info!(
        mode = C::MODE,
        ports = config.ports.len(),
        rules,
        workers = config.workers,
        cores = ?running.pinned(),
        datapath_id = format!("{datapath_id:016x}"),
        "forwarding"
    );
    let served = Served::default();
    let live = Live { handle: running.handle().clone(), datapath_id, served };
    let outcome = runtime.block_on(serve(config, &running, live, signals, status_socket, metrics));
    runtime.shutdown_timeout(CLOSE_MAX);
    let status = running.stop();
    let document = outcome?.document::<C>(datapath_id, status);
    let json = serde_json::to_string_pretty(&document)?;
    let status = serde_json::from_str(&json)?;
    Ok(Totals { json, status })
}

/// The signals that the switch heeds.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on they do not end the process. To be called within the runtime.
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// All that goes on beside forwarding, until it is time to stop. Returns what it counted.
async fn serve<C: Appliance>(
    config: &Config,
    running: &Running<C>,
    mut live: Live<C>,
    mut signals: Signals,
    status_socket: Option<std::os::unix::net::UnixListener>,
    metrics: Option<std::net::TcpListener>,
) -> Result<Served, RunError>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    let (stop, stopped) = watch::channel(false);
    let options = config.controllers.options();
    live.served.openflow = (!config.openflow.is_empty()).then(|| options.counters.clone());
    let (handle, served) = (live.handle.clone(), live.served.clone());
    let source: Arc<dyn Source> = Arc::new(live);
    if let Some(listener) = metrics {
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (most, waited) = (config.metrics_connections, served.metrics_waited.clone());
        tokio::spawn(metrics::serve(listener, most, waited, source.clone(), stopped.clone()));
        tracing::info!(%address, "metrics");
    }
    if let Some(listener) = status_socket {
        let listener = UnixListener::from_std(listener)?;
        let (most, waited) = (config.status_connections, served.status_waited.clone());
        tokio::spawn(answer_status(listener, most, waited, answer(handle.clone(), source.clone())));
    }
    let mut control = tokio::spawn(C::serve(config, handle.clone(), options, stopped));
    notify("READY=1");
    let end = config.duration.map(|duration| Instant::now() + duration);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let reason = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break "SIGTERM",
            _ = signals.interrupt.recv() => break "SIGINT",
            _ = signals.hangup.recv() => reload(config.rules.as_deref(), &handle).await,
            ended = &mut control => {
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
                    break "all captures are through";
                }
                if end.is_some_and(|end| Instant::now() >= end) {
                    break "the duration is over";
                }
            }
        }
    };
    tracing::info!(reason, "stopping");
    notify("STOPPING=1");
    let _ = stop.send(true);
    if tokio::time::timeout(CLOSE_MAX, control).await.is_err() {
        tracing::warn!("control connections did not close in time");
    }
    Ok(served)
}

/// Reads the rules again; a file with errors changes nothing.
async fn reload<C: Appliance>(path: Option<&Path>, handle: &Handle<C>) {
    let Some(path) = path.map(Path::to_owned) else {
        tracing::warn!("SIGHUP: there is no file of rules to read again");
        return;
    };
    notify("RELOADING=1");
    let handle = handle.clone();
    // A large file takes a while; sessions go on meanwhile.
    let work = move || {
        if let Err(problems) = C::reload(&handle, &path) {
            for problem in &problems.0 {
                tracing::error!(%problem, "rules not read again");
            }
            tracing::error!(errors = problems.0.len(), "the rules stay as they were");
        }
    };
    let _ = tokio::task::spawn_blocking(work).await;
    notify("READY=1");
}

/// The answer to a line of the status socket.
type Answer = Arc<dyn Fn(&str) -> serde_json::Result<Vec<u8>> + Send + Sync>;

/// A listing of stations for a line that begins with `fdb`, the status for any other.
fn answer<C: Appliance>(handle: Handle<C>, source: Arc<dyn Source>) -> Answer {
    Arc::new(move |line| {
        if line.starts_with("fdb") {
            serde_json::to_vec(&C::listing(&handle, line.trim_end()))
        } else {
            source.json().map(String::into_bytes)
        }
    })
}

/// One document for each line that comes in, to so many connections at one time; `waited` counts
/// those that found no seat when their turn came.
async fn answer_status(
    listener: UnixListener,
    connections: usize,
    waited: Arc<AtomicU64>,
    answer: Answer,
) {
    let seats = Arc::new(Semaphore::new(connections));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptors left, perhaps; there may be later.
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        let Some(seat) = guests::seat(&seats, &waited).await else { return };
        let answer = answer.clone();
        tokio::spawn(async move {
            let _ = answer_lines(stream, answer).await;
            drop(seat);
        });
    }
}

async fn answer_lines(stream: UnixStream, answer: Answer) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = (&mut read).take(STATUS_LINE_MAX).read_until(b'\n', &mut line).await?;
        if n == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        // A large table takes a while.
        let (answer, line) = (answer.clone(), String::from_utf8_lossy(&line).into_owned());
        let text = tokio::task::spawn_blocking(move || answer(&line)).await?;
        let mut text = text.map_err(io::Error::other)?;
        text.push(b'\n');
        write.write_all(&text).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    async fn ask(stream: &mut UnixStream) -> String {
        stream.write_all(b"\n").await.expect("it reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await.expect("it answers");
        line
    }

    #[tokio::test]
    async fn who_finds_no_seat_at_the_status_socket_waits_and_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status");
        let listener = UnixListener::bind(&path).expect("a socket");
        let waited = Arc::new(AtomicU64::new(0));
        let answer: Answer = Arc::new(|_| serde_json::to_vec(&Status::default()));
        let served = tokio::spawn(answer_status(listener, 1, waited.clone(), answer));
        let mut first = UnixStream::connect(&path).await.expect("it listens");
        assert!(ask(&mut first).await.starts_with('{'));
        let mut second = UnixStream::connect(&path).await.expect("it listens");
        while waited.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(ask(&mut first).await.ends_with("}\n"), "it keeps its seat");
        drop(first);
        assert!(ask(&mut second).await.starts_with('{'));
        assert_eq!(waited.load(Relaxed), 1);
        served.abort();
    }
}
