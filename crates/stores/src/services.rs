//! What a driver needs of the services of its cluster: etcd with NATS, or the first of some peers.

use std::pin::Pin;
use std::time::Duration;

use overbank_cluster::etcd::Info;
use overbank_cluster::message::Message;
use overbank_cluster::table::Dense;
use overbank_cluster::{Member, NodeId, Settings, etcd, log};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::driver::Inbox;

/// Longest wait for a service at the start.
pub(crate) const START_MAX: Duration = Duration::from_secs(10);
/// Longest wait for all of them, with tries that fail, and the pause between two.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PAUSE: Duration = Duration::from_millis(500);
/// Longest name of a cluster.
const NAME_MAX: usize = 32;

/// A result that comes later.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The services of a node.
pub(crate) trait Services: Send {
    /// Returns the member that the next run of this node is: no two runs have the same number.
    fn next_member(&mut self) -> Later<'_, Result<Member, StoresError>>;

    /// Begins a run: `tasks` hand over what comes in, from all of etcd's keys on, and end with it.
    fn begin(
        &mut self,
        me: Member,
        to: &Inbox,
        tasks: &mut JoinSet<()>,
        on: &Handle,
    ) -> Box<dyn Ways>;
}

/// Ways out of a run. None waits: what finds no room is dropped, and the engine repeats it.
pub(crate) trait Ways: Send {
    fn etcd(&self, request: etcd::Request);

    fn log(&self, request: log::Request<Dense>);

    /// Sends a message to a node, or to all others.
    fn send(&self, to: Option<NodeId>, message: Message);

    /// Waits until the requests to etcd are on their way.
    fn last(&self) -> Later<'_, ()>;
}

/// A node before its first step.
pub struct Joined {
    pub(crate) services: Box<dyn Services>,
    pub(crate) settings: Settings,
    /// What others need to reach this node.
    pub(crate) info: Info,
    pub(crate) seed: u64,
}

impl Joined {
    /// Has the node publish what others need to reach it.
    pub fn publish(&mut self, info: Info) {
        self.info = info;
    }

    /// Returns the secret of the cluster.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// Why a node cannot join.
#[derive(Debug, thiserror::Error)]
pub enum StoresError {
    #[error("{0:?}: a cluster's name has 1 to 32 letters, digits, - and _")]
    Name(String),
    #[cfg(feature = "services")]
    #[error("etcd at {at}: {error}")]
    Etcd { at: String, error: etcd_client::Error },
    #[error("etcd at {at}: {what}; see etcd-user, etcd-ca, etcd-cert and etcd-key")]
    EtcdRefuses { at: String, what: String },
    #[error("etcd at {0} does not answer within 10 s")]
    EtcdSilent(String),
    #[error("NATS at {at}: {error}")]
    Nats { at: String, error: Box<dyn std::error::Error + Send + Sync> },
    #[error("NATS at {at}: {what}; see nats-user, nats-credentials and nats-ca")]
    NatsRefuses { at: String, what: String },
    #[error("NATS at {0} does not answer within 10 s")]
    NatsSilent(String),
    #[error("the cluster's settings in etcd cannot be read: {0}")]
    Unreadable(String),
    #[error("{name} is {theirs} in the cluster and {ours} here; all nodes need the same")]
    Differs { name: String, theirs: String, ours: String },
    #[error("etcd refused a change again and again: too many nodes start at a time; try again")]
    Busy,
    #[error("cannot listen on {at}, the first address of the peers: {error}")]
    Listen { at: std::net::SocketAddr, error: std::io::Error },
    #[error("cannot connect from {from}, this node's address in the peers: {error}")]
    From { from: std::net::IpAddr, error: std::io::Error },
    #[error("the first of the peers, at {at}: {error}")]
    First { at: std::net::SocketAddr, error: String },
    #[error("the first of the peers refuses this node: {0}")]
    Refused(String),
    #[error("node {0} is not one of the peers")]
    NoPeer(u8),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl StoresError {
    /// Whether it may pass by itself: a service that starts, has no leader, or has lost a server.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            #[cfg(feature = "services")]
            Self::Etcd { .. } => true,
            Self::EtcdSilent(_) | Self::NatsSilent(_) => true,
            Self::Nats { .. } | Self::First { .. } | Self::Busy => true,
            _ => false,
        }
    }
}

/// Checks a cluster's name.
pub(crate) fn check_name(name: &str) -> Result<(), StoresError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_name = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits);
    is_name.then_some(()).ok_or_else(|| StoresError::Name(name.to_owned()))
}

/// Returns all that must be equal at all nodes, by name: what a person has set, first.
pub(crate) fn equal(settings: &Settings, others: &[(String, String)]) -> Vec<(String, String)> {
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
    others.iter().cloned().chain(own).collect()
}

/// Compares a node's settings with those of its cluster.
///
/// # Errors
/// The first that differs.
pub(crate) fn compare(
    ours: &[(String, String)],
    theirs: &[(String, String)],
) -> Result<(), StoresError> {
    for (name, ours) in ours {
        let theirs = theirs.iter().find(|known| known.0 == *name);
        let theirs = theirs.map_or("absent", |known| &known.1);
        if theirs != ours {
            let (name, theirs, ours) = (name.clone(), theirs.to_owned(), ours.clone());
            return Err(StoresError::Differs { name, theirs, ours });
        }
    }
    Ok(())
}
