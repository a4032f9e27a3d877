//! The first of the peers: register, log and messages of its cluster, over TCP.
//!
//! ```text
//!   connection ─▶ frames ─▶ Store ─▶ replies ─────────────▶ its queue ─▶ connection
//!                   │         ├───▶ what was appended ────▶ all queues
//!                   │         └───▶ changes, in order ────▶ all connections
//!                   └───▶ messages ───────────────────────▶ queues of those that they are to
//! ```
//!
//! A connection is a run of a node. Queues are bounded in frames and in bytes: a full one drops,
//! and the engine repeats or fetches. Changes of the register are never dropped: a connection that
//! is too far behind ends, and the node's run with it.
//!
//! **A new start.** Everything is gone then. Runs of before may go on for as long as their leases;
//! no node is welcome until those are over.
//!
//! Only addresses of the peers may connect, one connection for a node. Any bytes are read or end
//! their connection.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use overbank_cluster::{Member, Micros, NodeId, Revision};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::SILENT_MAX;
use super::file::Peers;
use super::store::{Appended, Fetched, Store};
use super::wire::{self, Blob, FRAME_MAX, SHORT_MAX, ToFirst, ToNode};
use crate::services::compare;

/// Connections that have not named their node.
const STRANGERS_MAX: usize = 64;
/// Longest wait until they have.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// Frames and bytes that wait for a node.
const WAITING_MAX: usize = 1 << 13;
const WAITING_BYTES_MAX: usize = 2 * FRAME_MAX;
/// Time between two looks at the leases.
const LOOK: Duration = Duration::from_millis(50);

/// What the server must know.
pub(crate) struct Rules {
    pub cluster: String,
    pub peers: Peers,
    pub equal: Vec<(String, String)>,
    pub partitions: u16,
    pub lease_us: Micros,
}

/// A server; it ends when it is dropped.
pub(crate) struct Server(tokio::task::AbortHandle);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Shared {
    rules: Rules,
    began: Instant,
    store: Mutex<Store>,
    /// The last change of the register.
    revision: watch::Sender<Revision>,
    nodes: Mutex<BTreeMap<NodeId, Queue>>,
    /// Number of the last run of any node. Rises over new starts with the clock of the machine.
    runs: AtomicU64,
}

/// Frames for a node.
#[derive(Clone)]
struct Queue {
    frames: mpsc::Sender<(Arc<[u8]>, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

impl Queue {
    /// Queues a frame, if there is room.
    fn offer(&self, frame: Arc<[u8]>) {
        let room = self.room.clone().try_acquire_many_owned(frame.len() as u32);
        if let Ok(room) = room {
            let _ = self.frames.try_send((frame, room));
        }
    }
}

/// The place of a node that is connected.
struct Place {
    shared: Arc<Shared>,
    node: NodeId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.nodes().remove(&self.node);
    }
}

impl Server {
    /// Serves the peers from now on.
    pub(crate) fn start(listener: TcpListener, rules: Rules) -> Server {
        let store = Store::new(rules.partitions, rules.lease_us);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Arc::new(Shared {
            rules,
            began: Instant::now(),
            store: Mutex::new(store),
            revision: watch::Sender::new(0),
            nodes: Mutex::default(),
            runs: AtomicU64::new(unix.as_micros() as u64),
        });
        Server(tokio::spawn(serve(listener, shared)).abort_handle())
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let mut looks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                shared.store().expire(shared.now());
                shared.show();
                while connections.try_join_next().is_some() {}
            }
            accepted = listener.accept() => {
                let (stream, from) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a node");
                        tokio::time::sleep(LOOK).await;
                        continue;
                    }
                };
                let (from, shared) = (from.ip().to_canonical(), shared.clone());
                let stranger = strangers.clone().try_acquire_owned();
                let is_peer = shared.rules.peers.addresses().any(|known| known == from);
                let Some(stranger) = stranger.ok().filter(|_| is_peer) else {
                    tracing::debug!(%from, "a connection that is not of the peers");
                    continue;
                };
                connections.spawn(async move {
                    if let Err(error) = connection(shared, stream, from, stranger).await {
                        tracing::info!(%from, %error, "the connection of a node has ended");
                    }
                });
            }
        }
    }
}

/// Serves a connection until it ends.
async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    from: IpAddr,
    stranger: OwnedSemaphorePermit,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut read, write) = stream.into_split();
    let mut write = BufWriter::new(write);
    let hello = timeout(HELLO_MAX, wire::read(&mut read, SHORT_MAX)).await??.0;
    let (frames, waiting) = mpsc::channel(WAITING_MAX);
    let queue = Queue { frames, room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) };
    let place = match shared.place(hello, from, queue.clone()) {
        Ok(place) => place,
        Err(why) => {
            timeout(HELLO_MAX, refuse(&mut write, &why)).await??;
            return Err(Error::new(ErrorKind::PermissionDenied, why));
        }
    };
    drop(stranger);
    sleep_until(shared.began + Duration::from_micros(shared.rules.lease_us)).await;
    let incarnation = shared.runs.fetch_add(1, Relaxed) + 1;
    let member = Member { node: place.node, incarnation };
    tracing::info!(%from, node = member.node.0, "a node is connected");
    wire::write(&mut write, &ToNode::Welcome(member)).await?;
    tokio::select! {
        ended = requests(&shared, member, &mut read, &queue) => ended,
        ended = replies(&shared, &mut write, waiting) => ended,
    }
}

async fn refuse(to: &mut (impl AsyncWrite + Unpin), why: &str) -> Result<()> {
    wire::write(to, &ToNode::Refused(why.to_owned())).await?;
    to.flush().await
}

/// Takes what a node asks for.
async fn requests(
    shared: &Shared,
    me: Member,
    from: &mut (impl AsyncRead + Unpin),
    own: &Queue,
) -> Result<()> {
    loop {
        let (asked, len) = timeout(SILENT_MAX, wire::read(from, FRAME_MAX)).await??;
        if let Some(reply) = shared.take(me, asked, len)? {
            own.offer(wire::frame(&reply)?.into());
        }
    }
}

/// Writes what waits, and all changes of the register.
async fn replies(
    shared: &Shared,
    to: &mut (impl AsyncWrite + Unpin),
    mut waiting: mpsc::Receiver<(Arc<[u8]>, OwnedSemaphorePermit)>,
) -> Result<()> {
    let mut revisions = shared.revision.subscribe();
    let (mut changes, mut shown) = {
        let store = shared.store();
        (store.all(), store.revision())
    };
    loop {
        for change in changes.drain(..) {
            timeout(SILENT_MAX, wire::write(to, &ToNode::Etcd(change))).await??;
        }
        if waiting.is_empty() {
            timeout(SILENT_MAX, to.flush()).await??;
        }
        tokio::select! {
            biased;
            _ = revisions.changed() => {
                let store = shared.store();
                let behind = |_| Error::other("it is too far behind");
                changes = store.changes(shown).map_err(behind)?;
                shown = store.revision();
            }
            frame = waiting.recv() => {
                let Some((frame, _room)) = frame else { return Ok(()) };
                timeout(SILENT_MAX, to.write_all(&frame)).await??;
            }
        }
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Queue>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    /// Has connections look for changes of the register, if there are any.
    fn show(&self) {
        let revision = self.store().revision();
        self.revision.send_if_modified(|shown| std::mem::replace(shown, revision) != revision);
    }

    /// Gives a node its place, or says why not.
    fn place(
        self: &Arc<Self>,
        hello: ToFirst,
        from: IpAddr,
        queue: Queue,
    ) -> std::result::Result<Place, String> {
        let ToFirst::Hello { cluster, node, equal } = hello else {
            return Err("a node must name itself first".to_owned());
        };
        let rules = &self.rules;
        if cluster != rules.cluster {
            return Err(format!("the cluster is {:?}, not {cluster:?}", rules.cluster));
        }
        if rules.peers.address(node) != Some(from) {
            let (node, known) = (node.0, rules.peers.address(node));
            let known = known.map_or("not one of the peers".to_owned(), |at| format!("at {at}"));
            return Err(format!("node {node} is {known}; the connection is from {from}"));
        }
        compare(&equal, &rules.equal).map_err(|error| error.to_string())?;
        let mut nodes = self.nodes();
        if nodes.contains_key(&node) {
            return Err(format!("node {} is connected already: does it run twice?", node.0));
        }
        nodes.insert(node, queue);
        Ok(Place { shared: self.clone(), node })
    }

    /// Takes what a member asks for; returns the reply to it alone.
    fn take(&self, me: Member, asked: ToFirst, len: usize) -> Result<Option<ToNode>> {
        let others = |to: Option<NodeId>, frame: Arc<[u8]>| {
            let nodes = self.nodes();
            let them = nodes.iter().filter(|(id, _)| to.map_or(**id != me.node, |to| **id == to));
            them.for_each(|(_, queue)| queue.offer(frame.clone()));
        };
        Ok(match asked {
            ToFirst::Hello { .. } => return Err(Error::other("it names itself twice")),
            ToFirst::Etcd(_) if len > SHORT_MAX => {
                return Err(Error::other(format!("a request of {len} bytes to the register")));
            }
            ToFirst::Etcd(request) => {
                let reply = self.store().request(self.now(), request);
                self.show();
                reply.map(ToNode::Etcd)
            }
            ToFirst::Append { partition, expected, batch } => {
                let bytes: Arc<[u8]> = batch.0.into();
                let appended = self.store().append(partition, expected, bytes.clone());
                match appended {
                    Appended::As(sequence) => {
                        let batch = Blob(bytes.to_vec());
                        let heard = ToNode::Batch { partition, sequence, batch };
                        let frame: Arc<[u8]> = wire::frame(&heard)?.into();
                        self.nodes().values().for_each(|queue| queue.offer(frame.clone()));
                        None
                    }
                    Appended::Not(last) => Some(ToNode::NotAppended { partition, last }),
                    Appended::NoRoom => None,
                }
            }
            ToFirst::Fetch { partition, from } => {
                let fetched = self.store().fetch(partition, from);
                fetched.map(|fetched| match fetched {
                    Fetched::Purged(first) => ToNode::Purged { partition, first },
                    Fetched::Batches(batches, last) => {
                        let batches = batches.iter().map(|(at, batch)| (*at, Blob(batch.to_vec())));
                        ToNode::Fetched { partition, batches: batches.collect(), last }
                    }
                })
            }
            ToFirst::Put { partition, sequence, snapshot } => {
                self.store().put(partition, sequence, snapshot.0.into());
                None
            }
            ToFirst::Get { partition } => {
                let snapshot = self.store().get(partition).map(|known| Blob(known.to_vec()));
                Some(ToNode::Snapshot { partition, snapshot })
            }
            ToFirst::Send { to, message } => {
                others(to, wire::frame(&ToNode::Message(message))?.into());
                None
            }
        })
    }
}
