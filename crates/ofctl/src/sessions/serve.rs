//! Listeners, connectors, and what all sessions share.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use overbank_openflow::RoleState;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time;

use overbank_runtime::Handle;

use super::ControlOptions;
use super::admission::{Admission, Permit, Room};
use super::connection::{self, Ended};
use super::counters::{count, uncount};
use super::log_limit::Lines;
use super::roles::{Roles, SessionId};
use crate::rules::RuleControl;
use crate::target::Target;

/// Notices that wait for a session; it takes them at once unless it is stuck.
const NOTICES: usize = 16;

/// Why the control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A target to listen on cannot be had.
    #[error("cannot listen on {target}: {source}")]
    Listen {
        /// As it was configured.
        target: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What all sessions share.
pub(super) struct Hub {
    pub switch: Handle<RuleControl>,
    pub options: ControlOptions,
    pub lines: Lines,
    book: Mutex<Book>,
    next: AtomicU64,
    /// For connections that others made.
    limit: Arc<Admission>,
}

#[derive(Default)]
struct Book {
    roles: Roles,
    /// Where sessions hear that they were made a slave.
    notices: BTreeMap<SessionId, mpsc::Sender<RoleState>>,
}

/// A session's entry in the book; leaving it ends the entry.
pub(super) struct Member {
    pub id: SessionId,
    pub control: Arc<Hub>,
    pub notices: mpsc::Receiver<RoleState>,
}

impl Hub {
    pub(super) fn new(switch: Handle<RuleControl>, options: ControlOptions) -> Arc<Hub> {
        Arc::new(Hub {
            limit: Admission::new(options.connections),
            switch,
            options,
            lines: Lines::default(),
            book: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the roles; no lock of the switch is taken while they are held.
    pub(super) fn roles<T>(&self, work: impl FnOnce(&mut Roles) -> T) -> T {
        work(&mut self.book().roles)
    }

    /// Tells a session that it is a slave from now on.
    pub(super) fn notify(&self, session: SessionId, state: RoleState) {
        if let Some(notices) = self.book().notices.get(&session) {
            // A session that is so far behind asks for its role when it cares.
            let _ = notices.try_send(state);
        }
    }

    pub(super) fn join(self: &Arc<Hub>) -> Member {
        let id = self.next.fetch_add(1, Relaxed);
        let (sender, notices) = mpsc::channel(NOTICES);
        let mut book = self.book();
        book.roles.join(id);
        book.notices.insert(id, sender);
        Member { id, control: Arc::clone(self), notices }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut book = self.control.book();
        book.roles.leave(self.id);
        book.notices.remove(&self.id);
    }
}

/// Runs the control plane until `stop` becomes true (or its sender is gone).
///
/// # Errors
/// If a target to listen on cannot be had; nothing runs then. Controllers that cannot be reached
/// are tried again for as long as it runs.
pub async fn serve(
    targets: Vec<Target>,
    switch: Handle<RuleControl>,
    options: ControlOptions,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ControlError> {
    let control = Hub::new(switch, options);
    let mut listeners = Vec::new();
    for target in targets.iter().filter(|target| target.is_passive()) {
        let listener = Listener::bind(target, &control)
            .await
            .map_err(|source| ControlError::Listen { target: target.to_string(), source })?;
        listeners.push(listener);
    }
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(listen(listener, Arc::clone(&control), stop.clone()));
    }
    for target in targets.into_iter().filter(|target| !target.is_passive()) {
        tasks.spawn(keep_connected(target, Arc::clone(&control), stop.clone()));
    }
    stopped(&mut stop).await;
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection that a peer has made, until it ends or `stop` becomes true.
pub async fn serve_connection<S>(
    stream: S,
    switch: Handle<RuleControl>,
    options: ControlOptions,
    stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let control = Hub::new(switch, options);
    let permit = control.limit.take().map(|(permit, _)| permit);
    connection::run(stream, &control, stop, permit).await;
}

/// Returns when it is time to stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error: every sender is gone, and the server ends.
    let _ = stop.wait_for(|stop| *stop).await;
}

enum Listener {
    Tcp(TcpListener),
    Unix {
        socket: UnixListener,
        /// Removed together with it.
        _file: Remove,
    },
}

/// A socket's file, which goes with us.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        // A file that stays is removed as stale at the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    async fn bind(target: &Target, control: &Hub) -> io::Result<Listener> {
        match target {
            Target::Listen(address) => {
                let listener = TcpListener::bind(address).await?;
                control.options.counters.add_listening(listener.local_addr()?);
                Ok(Listener::Tcp(listener))
            }
            Target::UnixListen(path) => {
                remove_stale(path).await;
                let socket = UnixListener::bind(path)?;
                Ok(Listener::Unix { socket, _file: Remove(path.clone()) })
            }
            Target::Connect { .. } | Target::UnixConnect(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "not a place to listen on"))
            }
        }
    }

    async fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), peer.to_string()))
            }
            Listener::Unix { socket, .. } => {
                let (stream, _) = socket.accept().await?;
                Ok((Box::new(stream), "unix socket".to_owned()))
            }
        }
    }
}

/// Removes the socket of a switch that was killed: one without a listener.
async fn remove_stale(path: &Path) {
    if let Err(error) = UnixStream::connect(path).await {
        // If it cannot be removed, `bind` says so.
        let _ = overbank_service::sys::remove_stale_socket(path, &error);
    }
}

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
type Stream = Box<dyn Duplex>;

/// Accepts connections, each of which becomes a separate task.
async fn listen(listener: Listener, control: Arc<Hub>, mut stop: watch::Receiver<bool>) {
    let counters = Arc::clone(&control.options.counters);
    let mut sessions = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = sessions.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Mostly a lack of file descriptors: some will come free.
                if let Some(held_back) = control.lines.refused.now(control.switch.now_ms()) {
                    tracing::warn!(%error, held_back, "cannot accept a controller's connection");
                }
                time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((permit, room)) = control.limit.take() else {
            count(&counters.connections_refused, 1);
            if let Some(held_back) = control.lines.refused.now(control.switch.now_ms()) {
                let (most, why) =
                    (control.options.connections, "too many controllers: a connection is closed");
                tracing::warn!(%peer, most, held_back, why);
            }
            continue;
        };
        if room == Room::Made {
            count(&counters.connections_displaced, 1);
        }
        let (control, stop) = (Arc::clone(&control), stop.clone());
        sessions.spawn(async move {
            run(stream, &peer, &control, stop, Some(permit)).await;
        });
    }
    while sessions.join_next().await.is_some() {}
}

async fn run(
    stream: Stream,
    peer: &str,
    control: &Arc<Hub>,
    stop: watch::Receiver<bool>,
    permit: Option<Permit>,
) -> Ended {
    let counters = &control.options.counters;
    count(&counters.connections_opened, 1);
    count(&counters.connections, 1);
    let ended = connection::run(stream, control, stop, permit).await;
    uncount(&counters.connections, 1);
    match ended.broken {
        Some(why) => {
            count(&counters.sessions_broken, 1);
            if let Some(held_back) = control.lines.ended.now(control.switch.now_ms()) {
                tracing::warn!(peer, why, held_back, "OpenFlow session ended");
            }
        }
        None => tracing::debug!(peer, "OpenFlow session closed"),
    }
    ended
}

/// Connects to a controller, and again whenever that session ends.
async fn keep_connected(target: Target, control: Arc<Hub>, mut stop: watch::Receiver<bool>) {
    let counters = Arc::clone(&control.options.counters);
    let (shortest, longest) = control.options.backoff;
    let mut wait = shortest;
    loop {
        let connected = tokio::select! {
            () = stopped(&mut stop) => return,
            connected = connect(&target) => connected,
        };
        match connected {
            Ok(stream) => {
                let peer = target.to_string();
                if run(stream, &peer, &control, stop.clone(), None).await.greeted {
                    wait = shortest;
                }
            }
            Err(error) => {
                count(&counters.connects_failed, 1);
                tracing::debug!(%target, %error, "cannot reach the controller");
            }
        }
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = time::sleep(wait) => {}
        }
        wait = (wait * 2).min(longest);
    }
}

async fn connect(target: &Target) -> io::Result<Stream> {
    /// The system's own limit is minutes.
    const LONGEST: Duration = Duration::from_secs(10);
    let connecting = async {
        match target {
            Target::Connect { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Stream)
            }
            Target::UnixConnect(path) => Ok(Box::new(UnixStream::connect(path).await?) as Stream),
            Target::Listen(_) | Target::UnixListen(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "not a place to connect to"))
            }
        }
    };
    time::timeout(LONGEST, connecting).await?
}
