//! What all nodes agree on before they start, and the number of a run.
//!
//! The first node writes the cluster's settings to etcd; every other one compares its own with
//! them. The secret seed of keys is drawn by the first node. A run's number comes from a counter of
//! its node, so that no two runs have the same one.

use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, ConnectOptions, PutOptions, Txn, TxnOp};
use overbank_cluster::etcd::Info;
use overbank_cluster::{Member, NodeId, Settings};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::etcd::Names;
use crate::log::Log;

/// Longest wait for a service at the start.
const START_MAX: Duration = Duration::from_secs(10);
/// Longest wait for all of them, with tries that fail, and the pause between two.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);
/// How often NATS is asked for a sign of life.
const PING: Duration = Duration::from_secs(2);
/// Messages that wait in a subscription; further ones are dropped and fetched later.
const WAITING_MAX: usize = 1 << 14;
/// Longest name of a cluster.
const NAME_MAX: usize = 32;
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
    /// User and password of etcd.
    pub etcd_user: Option<(String, String)>,
    /// URLs of NATS servers; `tls://` for TLS.
    pub nats: Vec<String>,
    /// A file with NATS credentials.
    pub nats_credentials: Option<std::path::PathBuf>,
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

/// Why a node cannot join.
#[derive(Debug, thiserror::Error)]
pub enum StoresError {
    #[error("{0:?}: a cluster's name has 1 to 32 letters, digits, - and _")]
    Name(String),
    #[error("etcd at {at}: {error}")]
    Etcd { at: String, error: etcd_client::Error },
    #[error("etcd at {0} does not answer within 10 s")]
    EtcdSilent(String),
    #[error("NATS at {at}: {error}")]
    Nats { at: String, error: Box<dyn std::error::Error + Send + Sync> },
    #[error("NATS at {0} does not answer within 10 s")]
    NatsSilent(String),
    #[error("the cluster's settings in etcd cannot be read: {0}")]
    Unreadable(String),
    #[error("{name} is {theirs} in the cluster and {ours} here; all nodes need the same")]
    Differs { name: String, theirs: String, ours: String },
    #[error("etcd refused a change again and again: too many nodes start at a time; try again")]
    Busy,
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// A node before its first step.
pub struct Joined {
    pub(crate) options: Options,
    pub(crate) client: Client,
    pub(crate) nats: async_nats::Client,
    pub(crate) log: Log,
    pub(crate) names: Names,
    seed: u64,
}

impl Joined {
    /// Has the node publish what others need to reach it.
    pub fn publish(&mut self, info: Info) {
        self.options.info = info;
    }

    /// Returns the secret of the cluster.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// The settings of a cluster as etcd has them.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    seed: u64,
    equal: Vec<(String, String)>,
}

const FORMAT: u32 = 1;

fn equal(options: &Options) -> Vec<(String, String)> {
    let settings = &options.settings;
    let own = [
        ("partitions", u64::from(settings.partitions)),
        ("node_bits", settings.node_bits.into()),
        ("partition_keys", settings.partition_keys as u64),
        ("lease_us", settings.lease_us),
        ("margin_us", settings.margin_us),
        ("rest_us", settings.rest_us),
        ("reserve_us", settings.reserve_us),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value.to_string()));
    own.chain(options.equal.iter().cloned()).collect()
}

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

/// Connects a node to the services of its cluster. Waits [`PATIENCE`] for services that start, or
/// that have no leader yet.
///
/// # Errors
/// A service cannot be reached, or the cluster has other settings.
pub async fn join(options: Options) -> Result<Joined, StoresError> {
    use StoresError::{Etcd, EtcdSilent, Nats, NatsSilent};
    let end = Instant::now() + PATIENCE;
    loop {
        match try_join(options.clone()).await {
            Err(error @ (Etcd { .. } | EtcdSilent(_) | Nats { .. } | NatsSilent(_)))
                if Instant::now() < end =>
            {
                tracing::warn!(%error, "waiting for the cluster's services");
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn try_join(options: Options) -> Result<Joined, StoresError> {
    let name = &options.cluster;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        return Err(StoresError::Name(name.clone()));
    }
    let at = options.etcd.join(",");
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(Duration::from_secs(1))
        .with_keep_alive(Duration::from_secs(1), Duration::from_secs(1))
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if let Some((user, password)) = &options.etcd_user {
        connect = connect.with_user(user, password);
    }
    let failed = |error| StoresError::Etcd { at: at.clone(), error };
    let silent = || StoresError::EtcdSilent(at.clone());
    let connected = Client::connect(&options.etcd, Some(connect));
    let mut client = in_time(connected, failed, silent()).await?;
    let names = Names::new(name);
    let agreed = in_time(agree(&mut client, &names, &options), |error| error, silent());
    let seed = agreed.await?;
    let at = options.nats.join(",");
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| StoresError::Nats {
        at: at.clone(),
        error,
    };
    let silent = || StoresError::NatsSilent(at.clone());
    let nats = in_time(connect_nats(&options), failed, silent()).await?;
    let (partitions, replicas) = (options.settings.partitions, options.replicas);
    let opened = Log::open(nats.clone(), name, partitions, replicas);
    let log = in_time(opened, failed, silent()).await?;
    Ok(Joined { client, nats, log, names, seed, options })
}

async fn connect_nats(
    options: &Options,
) -> Result<async_nats::Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut connect = async_nats::ConnectOptions::new()
        .name(format!("overbank gateway, node {}", options.node.0))
        .ping_interval(PING)
        .subscription_capacity(WAITING_MAX)
        .reconnect_delay_callback(|tries| Duration::from_millis(50 * (tries as u64).min(10)));
    if let Some(path) = &options.nats_credentials {
        connect = connect.credentials_file(path).await?;
    }
    let servers = options.nats.iter().map(|url| url.parse());
    let servers: Vec<async_nats::ServerAddr> = servers.collect::<Result<_, _>>()?;
    Ok(connect.connect(servers).await?)
}

/// Agrees on the settings; returns the secret.
async fn agree(client: &mut Client, names: &Names, options: &Options) -> Result<u64, StoresError> {
    let at = || options.etcd.join(",");
    let failed = |error| StoresError::Etcd { at: at(), error };
    let key = names.of("settings");
    let ours = equal(options);
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
    let absent = || "absent".to_owned();
    for (name, ours) in &ours {
        let theirs = known.equal.iter().find(|known| known.0 == *name);
        let theirs = theirs.map_or_else(absent, |known| known.1.clone());
        if theirs != *ours {
            let (name, ours) = (name.clone(), ours.clone());
            return Err(StoresError::Differs { name, theirs, ours });
        }
    }
    Ok(known.seed)
}

impl Joined {
    /// Returns the member that the next run of this node is.
    pub(crate) async fn next_member(&mut self) -> Result<Member, StoresError> {
        let at = self.options.etcd.join(",");
        let failed = |error| StoresError::Etcd { at: at.clone(), error };
        let node = self.options.node;
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

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
