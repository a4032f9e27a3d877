//! A gateway as a node of a cluster, over etcd and NATS or over the first of some peers.
//!
//! The node joins before its ports open: the cluster's secret is part of the set-up. Its thread
//! starts with the services of the gateway, and ends with them.

use super::place::Place;
use super::{ClusterSettings, Config};
use crate::live::RunError;
use anyhow::Result;
use overbank_cluster::etcd::Info;
use overbank_cluster::message::{Answer, Counts, Refusal, Request};
use overbank_cluster::node::Change;
use overbank_cluster::table::Dense;
use overbank_cluster::{Member, Micros, Node, NodeId, SessionId, Settings};
use overbank_gateway::GatewayControl;
use overbank_gateway::cluster::{Asks, Clustered, Note, Seat};
use overbank_gateway::engine::Order;
use overbank_gateway::fabric::Seed;
use overbank_gateway::teid::Secret;
use overbank_runtime::Handle;
use overbank_stores::{Driver, End, Host, Joined, StoresError, peers};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
#[cfg(feature = "cluster")]
use {
    overbank_gateway::settings::Url,
    overbank_stores::{EtcdAccess, NatsAccess},
};

/// Requests that wait for an answer.
const ASKED_MAX: usize = 1 << 14;
/// Longest wait for workers at a time.
const SETTLE: Duration = Duration::from_secs(2);

/// Time between two frames that show switches where the port of the fabric is: shorter than the
/// least time for which any keeps an address.
const ANNOUNCE_MS: u64 = 5000;

/// Time between two looks at a node that gives its sessions away.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A node that has joined and does not run yet.
pub struct Joining {
    joined: Joined,
    runtime: Runtime,
}

/// Joins the cluster, if there is one to join.
///
/// # Errors
/// A service cannot be reached, or the cluster has other settings.
pub fn join(config: &mut Config) -> Result<()> {
    let Some(cluster) = &config.cluster else { return Ok(()) };
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cluster")
        .enable_all()
        .build()?;
    let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
    let (pools, secret) = (&config.setup.tunable.pools, config.setup.teid_secret);
    let equal = vec![
        ("n3-address".to_owned(), list(&mut config.setup.n3.iter().map(|a| a.to_string()))),
        ("ue-pool".to_owned(), list(&mut pools.iter().map(|pool| pool.to_string()))),
        ("teid-secret".to_owned(), secret.map_or("none".to_owned(), Secret::mark)),
        ("pfcp".to_owned(), list(&mut config.pfcp.iter().map(|n4| n4.address.to_string()))),
        ("max-nodes".to_owned(), cluster.max_nodes.to_string()),
        ("lease-seconds".to_owned(), cluster.lease_seconds.to_string()),
    ];
    let lease_us = cluster.lease_seconds as u64 * 1_000_000;
    let settings = Settings {
        node_bits: cluster.max_nodes.next_power_of_two().trailing_zeros() as u8,
        lease_us,
        margin_us: lease_us / 10,
        answers_early: cluster.answers_early,
        speaker: config.pfcp.is_some(),
        sessions_max: config.setup.max_sessions as u32,
        ..Settings::default()
    };
    let joined = runtime.block_on(join_at(cluster, settings, equal))?;
    let (me, seed) = (NodeId(cluster.node), Seed(joined.seed()));
    config.setup.cluster = Some(Seat { me, seed });
    config.joined = Mutex::new(Some(Joining { joined, runtime }));
    Ok(())
}

/// Joins where the cluster is; `equal` must be equal at all nodes.
async fn join_at(
    cluster: &ClusterSettings,
    settings: Settings,
    equal: Vec<(String, String)>,
) -> Result<Joined, StoresError> {
    let (name, node) = (cluster.name.clone(), NodeId(cluster.node));
    let info = Arc::default();
    match &cluster.place {
        Place::Peers(peers) => {
            let peers = peers.clone();
            let options = peers::Options { cluster: name, node, peers, settings, equal, info };
            peers::join(options).await
        }
        #[cfg(feature = "cluster")]
        Place::Services { etcd, nats, replicas } => {
            let access = &cluster.access;
            let text = |urls: &[Url]| urls.iter().map(|url| url.0.clone()).collect();
            let options = overbank_stores::Options {
                cluster: name,
                node,
                etcd: text(etcd),
                etcd_access: EtcdAccess {
                    user: access.user.clone(),
                    ca: access.ca.clone(),
                    identity: access.identity.clone(),
                },
                nats: text(nats),
                nats_access: NatsAccess {
                    user: access.nats_user.clone(),
                    credentials: access.nats_credentials.clone(),
                    ca: access.nats_ca.clone(),
                },
                replicas: *replicas,
                settings,
                equal,
                info,
                seed: crate::live::seed(),
            };
            overbank_stores::join(options).await
        }
        #[cfg(not(feature = "cluster"))]
        Place::Services { .. } => unreachable!("refused when it is given"),
    }
}

type Waits = Box<dyn FnOnce(Answer) + Send>;

/// Where answers go, by request.
#[derive(Default)]
struct Waiting(Mutex<HashMap<u64, Waits>>);

impl Waiting {
    /// Has a request answered by `answer`, if `send` takes it over. Then an answer comes, if only
    /// by a timeout or by the end of the run: no entry stays.
    fn ask(&self, number: u64, answer: Waits, send: impl FnOnce() -> bool) -> bool {
        let Ok(mut waiting) = self.0.lock() else { return false };
        // The answer waits for the lock.
        let asked = waiting.len() < ASKED_MAX && send();
        if asked {
            waiting.insert(number, answer);
        }
        asked
    }
}

/// Asks the running node.
struct Asking {
    node: overbank_stores::Handle,
    waiting: Arc<Waiting>,
    next: AtomicU64,
}

impl Asks for Asking {
    fn ask_with(&self, request: Request, answer: Waits) -> bool {
        let number = self.next.fetch_add(1, Relaxed);
        self.waiting.ask(number, answer, || self.node.request(number, request))
    }

    fn share(&self, shared: Info) -> bool {
        self.node.share(shared)
    }

    fn note(&self, to: NodeId, note: Note) {
        self.node.note(to, note.bytes());
    }

    fn drain(&self, rate: Option<u64>) -> bool {
        self.node.drain(rate)
    }

    fn rebalance(&self) -> bool {
        self.node.rebalance()
    }
}

/// The gateway as its node's data path.
struct Gateway {
    handle: Handle<GatewayControl>,
    waiting: Arc<Waiting>,
    /// Workers may run on an earlier view.
    view_changed: bool,
    /// When switches are shown next where the port of the fabric is.
    announce_ms: u64,
}

impl Host for Gateway {
    fn now(&mut self) -> Micros {
        self.handle.now_ms() * 1000
    }

    fn change(&mut self, change: &Change) {
        self.handle.lock().cluster_change(change);
    }

    fn look(&mut self, node: &Node<Dense>) -> bool {
        let now_ms = self.handle.now_ms();
        if now_ms >= self.announce_ms {
            self.announce_ms = now_ms + ANNOUNCE_MS;
            // A full queue has the next one.
            let _ = self.handle.order(Order::Announce);
        }
        self.view_changed |= self.handle.lock().cluster_view(node);
        self.view_changed
    }

    fn settle(&mut self) {
        while let Err(error) = self.handle.lock().cluster_settle() {
            tracing::warn!(%error, "the cluster waits for a worker");
        }
        while std::mem::take(&mut self.view_changed) {
            self.view_changed = !self.handle.barrier_blocking(SETTLE);
        }
    }

    fn counts(&mut self, session: SessionId) -> Counts {
        self.handle.lock().cluster_counts(session)
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        let waiting = self.waiting.0.lock().map(|mut waiting| waiting.remove(&number));
        if let Ok(Some(waits)) = waiting {
            waits(answer);
        }
    }

    fn note(&mut self, _: Member, note: &[u8]) {
        self.handle.lock().cluster_note(note);
    }

    fn ended(&mut self) {
        self.handle.lock().cluster_end();
        if let Ok(mut waiting) = self.waiting.0.lock() {
            // It may be done, or not.
            waiting.drain().for_each(|(_, waits)| waits(Err(Refusal::Timeout)));
        }
    }
}

/// A running node: its handle, and its end.
pub struct Running {
    node: overbank_stores::Handle,
    end: oneshot::Receiver<Result<End, StoresError>>,
}

/// Starts the node, if there is one.
pub fn start(config: &Config, handle: &Handle<GatewayControl>) -> Option<Running> {
    let Joining { mut joined, runtime } = config.joined.lock().ok()?.take()?;
    let waiting = Arc::new(Waiting::default());
    let host = Gateway {
        handle: handle.clone(),
        waiting: waiting.clone(),
        view_changed: false,
        announce_ms: 0,
    };
    let mac = handle.lock().cluster_mac()?;
    joined.publish(Arc::from(mac));
    let (driver, node) = Driver::new(joined, runtime, host);
    let asking = Asking { node: node.clone(), waiting, next: AtomicU64::new(1) };
    handle.lock().cluster_begin(Arc::new(asking));
    let (tell, end) = oneshot::channel();
    let run = move || drop(tell.send(driver.run()));
    std::thread::Builder::new().name("node".to_owned()).spawn(run).ok()?;
    Some(Running { node, end })
}

/// Whether a node that was to give its sessions away has kept some.
pub type Kept = Arc<AtomicBool>;

/// Gives the sessions of a node to the others, if there are any, for as long at most. [`run`]
/// reports the end of the node.
pub async fn give_away(handle: Handle<GatewayControl>, most: Duration, kept: Kept) {
    let has_others = || handle.lock().cluster().is_some_and(Clustered::has_others);
    let asks = handle.lock().cluster().and_then(Clustered::asks);
    if most.is_zero() || !has_others() || !asks.is_some_and(|asks| asks.drain(None)) {
        return;
    }
    kept.store(true, Relaxed);
    tracing::info!(most_s = most.as_secs(), "gives its sessions to other nodes first");
    let end = Instant::now() + most;
    while Instant::now() < end && has_others() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Without others, it keeps what it has, as when all stop.
    kept.store(has_others(), Relaxed);
}

/// Runs until `stop`, or until the node has left its cluster or cannot go on.
pub async fn run(
    running: Running,
    stop: watch::Receiver<bool>,
    kept: Kept,
) -> Result<(), RunError> {
    let Running { node, end } = running;
    tokio::select! {
        _ = crate::live::until_stopped(stop) => {
            let _ = tokio::task::spawn_blocking(move || node.stop()).await;
            Ok(())
        }
        ended = end => match ended {
            Ok(Ok(end)) => {
                kept.store(end == End::Lost, Relaxed);
                Ok(())
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(RunError::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_not_taken_leaves_nothing() {
        let waiting = Waiting::default();
        let ask = |number, taken| waiting.ask(number, Box::new(|_| {}), || taken);
        assert!((0..=ASKED_MAX as u64).all(|number| !ask(number, false)));
        assert!(waiting.0.lock().expect("whole").is_empty());
        assert!((0..ASKED_MAX as u64).all(|number| ask(number, true)));
        let full = waiting.ask(u64::MAX, Box::new(|_| {}), || unreachable!("too many wait"));
        assert!(!full);
    }
}
