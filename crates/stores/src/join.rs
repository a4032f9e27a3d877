//! What all nodes agree on before they start, and the number of a run.
//!
//! The first node writes the cluster's settings to etcd; every other one compares its own with
//! them. The secret seed of keys is drawn by the first node. A run's number comes from a counter of
//! its node, so that no two runs have the same one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use overbank_cluster::etcd::Info;
use overbank_cluster::message::Message;
use overbank_cluster::table::Dense;
use overbank_cluster::{Event, Member, NodeId, Settings};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::access::{EtcdAccess, NatsAccess};
use crate::bus::{self, Outgoing};
use crate::driver::Inbox;
use crate::etcd::{self, Names};
use crate::log::Log;
use crate::services::{
    Joined, Later, PATIENCE, PAUSE, START_MAX, Services, StoresError, Ways, check_name, compare,
    equal,
};

/// How often NATS is asked for a sign of life.
const PING: Duration = Duration::from_secs(2);
/// Messages that wait in a subscription; further ones are dropped and fetched later.
const WAITING_MAX: usize = 1 << 14;
/// Messages that wait to be sent.
const OUTGOING_MAX: usize = 1 << 12;
/// Requests under way to a service at a time.
const REQUESTS_MAX: usize = 1 << 10;
/// Tries of a change that others make at the same time.
const TRIES: usize = 64;

/// A node's place, and where the services are.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster: letters, digits, `-` and `_`.
    pub cluster: String,
    pub node: NodeId,
    /// URLs of etcd's members.
    pub etcd: Vec<String>,
    pub etcd_access: EtcdAccess,
    /// URLs of NATS servers; `tls://` for TLS.
    pub nats: Vec<String>,
    pub nats_access: NatsAccess,
    /// Copies of log and snapshots.
    pub replicas: usize,
    pub settings: Settings,
    /// What must be equal at all nodes besides, by name.
    pub equal: Vec<(String, String)>,
    /// What others need to reach this node.
    pub info: Info,
    /// Secret for a new cluster.
    pub seed: u64,
}

/// The clients of a node.
struct Clients {
    node: NodeId,
    cluster: String,
    /// For messages.
    etcd: String,
    lease_s: i64,
    client: Client,
    nats: async_nats::Client,
    log: Log,
    names: Names,
}

/// The settings of a cluster as etcd has them.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    seed: u64,
    equal: Vec<(String, String)>,
}

const FORMAT: u32 = 3;

async fn in_time<T, E>(
    future: impl Future<Output = Result<T, E>>,
    failed: impl FnOnce(E) -> StoresError,
    silent: StoresError,
) -> Result<T, StoresError> {
    match timeout(START_MAX, future).await {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(silent),
    }
}

/// Connects a node to the services of its cluster. Waits 30 s for services that start, or
/// that have no leader yet.
///
/// # Errors
/// A service cannot be reached, or the cluster has other settings.
pub async fn join(options: Options) -> Result<Joined, StoresError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match try_join(options.clone()).await {
            Err(error) if error.may_pass() && Instant::now() < end => {
                tracing::warn!(%error, "waiting for the cluster's services");
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn try_join(options: Options) -> Result<Joined, StoresError> {
    let name = &options.cluster;
    check_name(name)?;
    let at = options.etcd.join(",");
    let failed = |error| of_etcd(&at, error);
    let silent = || StoresError::EtcdSilent(at.clone());
    let connected = options.etcd_access.connect(&options.etcd);
    let mut client = in_time(connected, failed, silent()).await?;
    let names = Names::new(name);
    let agreed = in_time(agree(&mut client, &names, &options), |error| error, silent());
    let seed = agreed.await?;
    let at = options.nats.join(",");
    let failed = |error| of_nats(&at, error);
    let silent = || StoresError::NatsSilent(at.clone());
    let nats = in_time(connect_nats(&options), failed, silent()).await?;
    let (partitions, replicas) = (options.settings.partitions, options.replicas);
    let opened = Log::open(nats.clone(), name, partitions, replicas);
    let log = in_time(opened, failed, silent()).await?;
    let Options { node, cluster, etcd, settings, info, .. } = options;
    let lease_s = settings.lease_us.div_ceil(1_000_000) as i64;
    let etcd = etcd.join(",");
    let clients = Clients { node, cluster, etcd, lease_s, client, nats, log, names };
    Ok(Joined { services: Box::new(clients), settings, info, seed })
}

async fn connect_nats(
    options: &Options,
) -> Result<async_nats::Client, Box<dyn std::error::Error + Send + Sync>> {
    let connect = async_nats::ConnectOptions::new()
        .name(format!("overbank gateway, node {}", options.node.0))
        .ping_interval(PING)
        .subscription_capacity(WAITING_MAX)
        .reconnect_delay_callback(|tries| Duration::from_millis(50 * (tries as u64).min(10)));
    let connect = options.nats_access.add_to(connect).await?;
    let servers = options.nats.iter().map(|url| url.parse());
    let servers: Vec<async_nats::ServerAddr> = servers.collect::<Result<_, _>>()?;
    Ok(connect.connect(servers).await?)
}

/// Returns why etcd failed; a refusal, which waiting does not mend, is a separate error.
fn of_etcd(at: &str, error: etcd_client::Error) -> StoresError {
    const REFUSED: [&str; 3] = ["authentication failed", "user name is empty", "permission denied"];
    let refused = match &error {
        etcd_client::Error::GRpcStatus(status) => {
            let what = status.message();
            REFUSED.iter().any(|refused| what.contains(refused)).then(|| what.to_owned())
        }
        _ => None,
    };
    let at = at.to_owned();
    match refused.or_else(|| of_tls(&error)) {
        Some(what) => StoresError::EtcdRefuses { at, what },
        None => StoresError::Etcd { at, error },
    }
}

/// Returns why NATS failed, likewise.
fn of_nats(at: &str, error: Box<dyn std::error::Error + Send + Sync>) -> StoresError {
    use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation};
    let kind = error.downcast_ref::<async_nats::ConnectError>().map(|error| error.kind());
    let refused = matches!(kind, Some(Authentication | AuthorizationViolation));
    let at = at.to_owned();
    match refused.then(|| error.to_string()).or_else(|| of_tls(&error)) {
        Some(what) => StoresError::NatsRefuses { at, what },
        None => StoresError::Nats { at, error },
    }
}

/// Finds why certificates were refused, here or there: below layers that do not show it.
fn of_tls(error: &impl std::fmt::Debug) -> Option<String> {
    let text = format!("{error:?}");
    let found = ["InvalidCertificate(", "received fatal alert: "].into_iter();
    let what = found.filter_map(|name| text.get(text.find(name)?..)).next()?;
    let end = what.find(['"', ')']).unwrap_or(what.len());
    Some(format!("TLS: {}", what[..end].replace('(', ": ")))
}

/// Agrees on the settings; returns the secret.
async fn agree(client: &mut Client, names: &Names, options: &Options) -> Result<u64, StoresError> {
    let failed = |error| of_etcd(&options.etcd.join(","), error);
    let key = names.of("settings");
    let ours = equal(&options.settings, &options.equal);
    let document = Document { format: FORMAT, seed: options.seed, equal: ours.clone() };
    let unreadable = |error: serde_json::Error| StoresError::Unreadable(error.to_string());
    let value = serde_json::to_vec(&document).map_err(unreadable)?;
    let absent = Compare::mod_revision(key.clone(), CompareOp::Equal, 0);
    let put = TxnOp::put(key.clone(), value, None::<PutOptions>);
    client.txn(Txn::new().when([absent]).and_then([put])).await.map_err(failed)?;
    let known = client.get(key, None).await.map_err(failed)?;
    let known = known.kvs().first().map_or(&b""[..], |pair| pair.value());
    let known: Document = serde_json::from_slice(known).map_err(unreadable)?;
    if known.format != FORMAT {
        let what = format!("format {}; this program knows {FORMAT}", known.format);
        return Err(StoresError::Unreadable(what));
    }
    compare(&ours, &known.equal)?;
    Ok(known.seed)
}

impl Clients {
    async fn next(&mut self) -> Result<Member, StoresError> {
        let at = self.etcd.clone();
        let failed = |error| of_etcd(&at, error);
        let node = self.node;
        let key = self.names.of(&format!("incarnation/{}", node.0));
        for _ in 0..TRIES {
            let known = self.client.get(key.clone(), None).await.map_err(failed)?;
            let known = known.kvs().first();
            let (value, revision) =
                known.map_or((0, 0), |pair| (number(pair.value()), pair.mod_revision()));
            let incarnation = value + 1;
            let unchanged = Compare::mod_revision(key.clone(), CompareOp::Equal, revision);
            let put = TxnOp::put(key.clone(), incarnation.to_string(), None::<PutOptions>);
            let txn = Txn::new().when([unchanged]).and_then([put]);
            if self.client.txn(txn).await.map_err(failed)?.succeeded() {
                return Ok(Member { node, incarnation });
            }
        }
        Err(StoresError::Busy)
    }
}

impl Services for Clients {
    fn next_member(&mut self) -> Later<'_, Result<Member, StoresError>> {
        Box::pin(self.next())
    }

    fn begin(
        &mut self,
        me: Member,
        to: &Inbox,
        tasks: &mut JoinSet<()>,
        on: &Handle,
    ) -> Box<dyn Ways> {
        let (outgoing, sends) = mpsc::channel(OUTGOING_MAX);
        let cluster = self.cluster.clone();
        tasks.spawn_on(bus::send(self.nats.clone(), cluster.clone(), me, sends), on);
        let (bus, inbox) = (self.nats.clone(), to.clone());
        tasks.spawn_on(
            async move {
                let take = |from, message| inbox.offer(Event::Message(from, message));
                if let Err(error) = bus::receive(bus, cluster, me, take).await {
                    tracing::error!(%error, "no messages of other nodes");
                }
            },
            on,
        );
        let (hears, from, inbox) = (self.log.clone(), self.nats.clone(), to.clone());
        tasks.spawn_on(
            async move {
                // One that a full queue drops is fetched later.
                let take = |reply| std::future::ready(inbox.offer(Event::Log(reply)));
                if let Err(error) = hears.hear(from, take).await {
                    tracing::error!(%error, "the log is not heard, only fetched");
                }
            },
            on,
        );
        let (client, names, inbox) = (self.client.clone(), self.names.clone(), to.clone());
        tasks.spawn_on(
            async move {
                let show = |reply| {
                    let inbox = inbox.clone();
                    async move { inbox.put(Event::Etcd(reply)).await }
                };
                if etcd::watch(client, names, show).await.is_err() {
                    inbox.lose().await;
                }
            },
            on,
        );
        Box::new(Out {
            on: on.clone(),
            to: to.clone(),
            client: self.client.clone(),
            names: self.names.clone(),
            lease_s: self.lease_s,
            log: self.log.clone(),
            etcd_requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            log_requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            outgoing,
        })
    }
}

/// Ways out of a run: requests run as tasks, so that none waits for another.
struct Out {
    on: Handle,
    to: Inbox,
    client: Client,
    names: Names,
    lease_s: i64,
    log: Log,
    etcd_requests: Arc<Semaphore>,
    log_requests: Arc<Semaphore>,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Ways for Out {
    fn etcd(&self, request: overbank_cluster::etcd::Request) {
        let Ok(permit) = self.etcd_requests.clone().try_acquire_owned() else { return };
        let (client, names, to) = (self.client.clone(), self.names.clone(), self.to.clone());
        let lease_s = self.lease_s;
        self.on.spawn(async move {
            if let Some(done) = etcd::request(&client, &names, lease_s, request).await {
                to.put(Event::Etcd(done)).await;
            }
            drop(permit);
        });
    }

    fn log(&self, request: overbank_cluster::log::Request<Dense>) {
        let Ok(permit) = self.log_requests.clone().try_acquire_owned() else { return };
        let (log, to) = (self.log.clone(), self.to.clone());
        self.on.spawn(async move {
            if let Some(done) = log.request(request).await {
                to.put(Event::Log(done)).await;
            }
            drop(permit);
        });
    }

    fn send(&self, to: Option<NodeId>, message: Message) {
        let _ = self.outgoing.try_send((to, message));
    }

    fn last(&self) -> Later<'_, ()> {
        Box::pin(async {
            let _ = self.etcd_requests.acquire_many(REQUESTS_MAX as u32).await;
        })
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
