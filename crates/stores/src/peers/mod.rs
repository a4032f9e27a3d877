//! A cluster for labs: no etcd and no NATS, the first node has their place.
//!
//! ```text
//!   node 0: Driver ─▶ TCP ─┐                 ┌─ TCP ◀─ Driver: node 1
//!                          ▼                 ▼
//!             ┌─ register, log and messages, in memory ─┐
//!             └──────── process of the first node ──────┘◀─ TCP ◀─ Driver: node 2
//! ```
//!
//! A file names all nodes and their addresses ([`Peers`]); node numbers, addresses and the first
//! node are fixed. Nodes come and go among them as in any cluster: one that dies is taken over
//! after its lease. The first node alone may not: all sessions are gone with it, the others stop
//! when their leases end, and begin anew, without sessions, once it is back.
//!
//! - **A run is a connection.** When it ends, the run ends, as by a crash; the next run connects
//!   again. So nothing needs to be resumed, and a first node that started anew is never taken for
//!   the one of before.
//! - **No secret.** The seed of keys' hashes follows from the file, and connections are neither
//!   encrypted nor authenticated but by address: for networks without strangers.
//! - Batches are kept in memory by one process: what was answered survives the loss of every node
//!   but the first.

mod file;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use overbank_cluster::etcd::{self, Info};
use overbank_cluster::message::Message;
use overbank_cluster::table::Dense;
use overbank_cluster::{Event, Member, NodeId, Partition, Settings, log};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use file::{BYTES_MAX, NODE_MAX, Peers, PeersError};

use crate::bytes::{self, BytesError};
use crate::driver::Inbox;
use crate::services::{
    Joined, Later, PATIENCE, PAUSE, START_MAX, Services, StoresError, Ways, check_name, equal,
};
use server::{Rules, Server};
use wire::{Blob, FRAME_MAX, SHORT_MAX, ToFirst, ToNode};

/// Time after which a connection is over on which nothing comes: nodes send at each beat, and the
/// first one answers.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Requests and messages that wait to be sent.
const OUTGOING_MAX: usize = 1 << 12;

/// A node's place in a cluster of peers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster: letters, digits, `-` and `_`.
    pub cluster: String,
    pub node: NodeId,
    pub peers: Peers,
    pub settings: Settings,
    /// What must be equal at all nodes besides, by name.
    pub equal: Vec<(String, String)>,
    /// What others need to reach this node.
    pub info: Info,
}

/// Connects a node to its cluster; the first node serves it from now on, too. Waits half a minute
/// for a first node that starts.
///
/// # Errors
/// The first node cannot be reached or refuses this one, or an address is not this machine's.
pub async fn join(options: Options) -> Result<Joined, StoresError> {
    check_name(&options.cluster)?;
    let Options { cluster, node, peers, settings, equal: others, info } = options;
    let from = peers.address(node).ok_or(StoresError::NoPeer(node.0))?;
    let mut equal = equal(&settings, &others);
    equal.push(("peers".to_owned(), peers.to_string()));
    let (first, at) = peers.first();
    let seed = peers.seed(&cluster);
    let server = match first == node {
        true => {
            let listen = |error| StoresError::Listen { at, error };
            let listener = TcpListener::bind(at).await.map_err(listen)?;
            let (cluster, equal) = (cluster.clone(), equal.clone());
            let (partitions, lease_us) = (settings.partitions, settings.lease_us);
            Some(Server::start(listener, Rules { cluster, peers, equal, partitions, lease_us }))
        }
        false => None,
    };
    let hello = ToFirst::Hello { cluster, node, equal };
    let partitions = settings.partitions;
    let mut client = Client { from, at, hello, partitions, connected: None, _server: server };
    let end = Instant::now() + PATIENCE;
    loop {
        match client.connect().await {
            Ok(connected) => {
                client.connected = Some(connected);
                return Ok(Joined { services: Box::new(client), settings, info, seed });
            }
            Err(error @ (StoresError::First { .. } | StoresError::Refused(_)))
                if Instant::now() < end =>
            {
                tracing::warn!(%error, "waiting for the cluster");
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A run that has not begun.
type Connected = (Member, OwnedReadHalf, OwnedWriteHalf);

/// A node's side.
struct Client {
    /// This node's address.
    from: IpAddr,
    /// The first node.
    at: SocketAddr,
    hello: ToFirst,
    partitions: u16,
    connected: Option<Connected>,
    /// At the first node.
    _server: Option<Server>,
}

impl Client {
    async fn connect(&self) -> Result<Connected, StoresError> {
        let first = |error: String| StoresError::First { at: self.at, error };
        let stream = timeout(START_MAX, self.stream());
        let stream =
            stream.await.map_err(|_| first("does not answer within 10 s".to_owned()))??;
        let (mut read, mut write) = stream.into_split();
        let hello = async {
            wire::write(&mut write, &self.hello).await?;
            wire::read(&mut read, SHORT_MAX).await
        };
        let answer = timeout(START_MAX, hello).await;
        let answer = answer.map_err(|_| first("does not answer within 10 s".to_owned()))?;
        match answer.map_err(|error| first(error.to_string()))?.0 {
            ToNode::Welcome(member) => Ok((member, read, write)),
            ToNode::Refused(why) => Err(StoresError::Refused(why)),
            _ => Err(first("answers with something else: is it another program?".to_owned())),
        }
    }

    async fn stream(&self) -> Result<TcpStream, StoresError> {
        let from = |error| StoresError::From { from: self.from, error };
        let socket = match self.at {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.map_err(from)?;
        socket.bind(SocketAddr::new(self.from, 0)).map_err(from)?;
        socket.set_nodelay(true).map_err(from)?;
        let first = |error: std::io::Error| {
            let error = error.to_string();
            StoresError::First { at: self.at, error }
        };
        socket.connect(self.at).await.map_err(first)
    }
}

impl Services for Client {
    fn next_member(&mut self) -> Later<'_, Result<Member, StoresError>> {
        Box::pin(async {
            if self.connected.is_none() {
                self.connected = Some(self.connect().await?);
            }
            let member = self.connected.as_ref().map(|(member, ..)| *member);
            Ok(member.unwrap_or_default())
        })
    }

    fn begin(
        &mut self,
        me: Member,
        to: &Inbox,
        tasks: &mut JoinSet<()>,
        on: &Handle,
    ) -> Box<dyn Ways> {
        let (outgoing, waiting) = mpsc::channel(OUTGOING_MAX);
        if let Some((_, read, write)) = self.connected.take() {
            let (partitions, inbox) = (self.partitions, to.clone());
            tasks.spawn_on(
                async move {
                    if let Err(error) = hear(me, read, partitions, &inbox).await {
                        tracing::warn!(%error, "the connection to the first of the peers ends");
                    }
                    inbox.lose().await;
                },
                on,
            );
            tasks.spawn_on(send(me, write, waiting), on);
        }
        Box::new(Out(outgoing))
    }
}

/// What a node sends.
enum Outgoing {
    Etcd(etcd::Request),
    Log(log::Request<Dense>),
    Message(Option<NodeId>, Message),
    /// All before it has been written.
    Last(oneshot::Sender<()>),
}

struct Out(mpsc::Sender<Outgoing>);

impl Ways for Out {
    fn etcd(&self, request: etcd::Request) {
        let _ = self.0.try_send(Outgoing::Etcd(request));
    }

    fn log(&self, request: log::Request<Dense>) {
        let _ = self.0.try_send(Outgoing::Log(request));
    }

    fn send(&self, to: Option<NodeId>, message: Message) {
        let _ = self.0.try_send(Outgoing::Message(to, message));
    }

    fn last(&self) -> Later<'_, ()> {
        Box::pin(async {
            let (tell, told) = oneshot::channel();
            if self.0.send(Outgoing::Last(tell)).await.is_ok() {
                let _ = told.await;
            }
        })
    }
}

/// Returns an action as the first node takes it; `None`: no product has it.
fn to_first(me: Member, outgoing: Outgoing) -> Result<Option<ToFirst>, BytesError> {
    use log::Request::{Append, Fetch, Get, Put};
    Ok(Some(match outgoing {
        Outgoing::Etcd(request) => ToFirst::Etcd(request),
        Outgoing::Log(Append { partition, expected: Some(expected), batch }) => {
            let batch = Blob(bytes::of_batch(expected + 1, &batch)?);
            ToFirst::Append { partition, expected, batch }
        }
        Outgoing::Log(Fetch { partition, from }) => ToFirst::Fetch { partition, from },
        Outgoing::Log(Put { partition, snapshot }) => {
            let (sequence, snapshot) = (snapshot.sequence, bytes::of_snapshot(&snapshot, 0)?);
            ToFirst::Put { partition, sequence, snapshot: Blob(snapshot) }
        }
        Outgoing::Log(Get { partition }) => ToFirst::Get { partition },
        Outgoing::Message(to, message) => {
            ToFirst::Send { to, message: Blob(bytes::of_message(me, &message)?) }
        }
        // Without an expectation nothing is fenced.
        Outgoing::Log(Append { expected: None, .. }) | Outgoing::Last(_) => return Ok(None),
    }))
}

/// Sends what comes until there is no sender left, or the connection ends.
async fn send(me: Member, write: OwnedWriteHalf, mut waiting: mpsc::Receiver<Outgoing>) {
    let mut write = BufWriter::new(write);
    while let Some(outgoing) = waiting.recv().await {
        let done = match outgoing {
            Outgoing::Last(tell) => {
                let done = write.flush().await;
                // The run may have waited long enough.
                let _ = tell.send(());
                done
            }
            outgoing => match to_first(me, outgoing) {
                Ok(Some(frame)) => match wire::frame(&frame) {
                    Ok(frame) => write.write_all(&frame).await,
                    Err(error) => {
                        tracing::error!(%error, "too long for the first of the peers");
                        Ok(())
                    }
                },
                Ok(None) => Ok(()),
                Err(error) => {
                    tracing::error!(%error, "it has no bytes");
                    Ok(())
                }
            },
        };
        let done = match done {
            Ok(()) if waiting.is_empty() => write.flush().await,
            done => done,
        };
        if let Err(error) = done {
            // The other half sees the end of the connection, too.
            tracing::debug!(%error, "cannot write to the first of the peers");
            return;
        }
    }
}

/// Hands over what comes until the connection or the run ends.
async fn hear(
    me: Member,
    mut read: OwnedReadHalf,
    partitions: u16,
    to: &Inbox,
) -> std::io::Result<()> {
    loop {
        let (heard, _) = timeout(SILENT_MAX, wire::read(&mut read, FRAME_MAX)).await??;
        let is_open = match event(me, heard, partitions) {
            // A change has its place in the order of all: it waits for room.
            Ok(Some(event @ Event::Etcd(_))) => to.put(event).await,
            Ok(Some(event)) => to.offer(event),
            Ok(None) => true,
            Err(error) => {
                tracing::error!(%error, "a batch, snapshot or message cannot be read");
                true
            }
        };
        if !is_open {
            return Ok(());
        }
    }
}

/// Returns what a node takes of what it heard; `None`: nothing.
fn event(me: Member, heard: ToNode, partitions: u16) -> Result<Option<Event<Dense>>, BytesError> {
    let batch = |sequence, bytes: &[u8]| {
        let (written, batch) = bytes::to_batch(bytes, partitions)?;
        Ok::<_, BytesError>((written == sequence).then_some((sequence, Arc::new(batch))))
    };
    let is_known = |partition: &Partition| partition.0 < partitions;
    Ok(match heard {
        ToNode::Welcome(_) | ToNode::Refused(_) => None,
        ToNode::Etcd(reply) => Some(Event::Etcd(reply)),
        ToNode::Batch { partition, sequence, batch: bytes } if is_known(&partition) => {
            batch(sequence, &bytes.0)?.map(|(sequence, batch)| {
                Event::Log(log::Reply::Batch { partition, sequence, batch })
            })
        }
        ToNode::NotAppended { partition, last } if is_known(&partition) => {
            Some(Event::Log(log::Reply::Refused { partition, last }))
        }
        ToNode::Fetched { partition, batches, last } if is_known(&partition) => {
            let read = batches.iter().map(|(sequence, bytes)| batch(*sequence, &bytes.0));
            let read: Option<Vec<_>> = read.collect::<Result<_, _>>()?;
            read.map(|batches| Event::Log(log::Reply::Fetched { partition, batches, last }))
        }
        ToNode::Purged { partition, first } if is_known(&partition) => {
            Some(Event::Log(log::Reply::Purged { partition, first }))
        }
        ToNode::Snapshot { partition, snapshot } if is_known(&partition) => {
            let read =
                snapshot.map(|bytes| bytes::to_snapshot(&bytes.0, partitions)).transpose()?;
            let snapshot = read.map(|(snapshot, _)| Arc::new(snapshot));
            Some(Event::Log(log::Reply::Snapshot { partition, snapshot }))
        }
        ToNode::Message(bytes) => {
            let (from, message) = bytes::to_message(&bytes.0)?;
            (from != me).then_some(Event::Message(from, message))
        }
        _ => None,
    })
}
