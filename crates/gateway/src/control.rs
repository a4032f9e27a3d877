//! The control side: the one writer of the sessions, and of what engines run on.

use crate::cluster::{Asks, ClusterStatus, Clustered, Seat};
use crate::engine::{
    AnswerLimits, Answers, EchoResponse, Echoes, From, Gateway, Mtu, Order, Roles, View,
};
use crate::fabric::Seed;
use crate::journal::{Counts, JournalTotals, Kept, unix_ms};
use crate::next_hops::{Mac, NextHops, PortHops, Wanted};
use crate::peers::{Event, Path, PeerTotals};
use crate::prefix::{Prefix, Prefixes};
use crate::session::Session;
use crate::sessions::{
    Addresses, Import, Imported, Refusal, SessionError, SessionTotals, Sessions,
};
use crate::settings::Role;
use crate::slab::NoMemory;
use crate::teid::{Secret, TeidCheck};
use overbank_cluster::message::Counts as Travelled;
use overbank_cluster::node::Change;
use overbank_cluster::table::Dense;
use overbank_cluster::{Node, SessionId};
use overbank_declare::counters::{Exposition, Gauge};
use overbank_neighbours::{WatchError, Watcher};
use overbank_runtime::{
    ConfiguredPort, Control, ControlStatus, Options, Parts, PortDesc, Publisher, Running,
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Routes of a port: later ones of equal prefixes count, and `None` leads nowhere.
pub type Routes = Vec<(Prefix, Option<Mac>)>;

/// What can change while the gateway runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tunable {
    pub pools: Prefixes,
    pub peers: Prefixes,
    pub protected: Prefixes,
    /// Longest IP packets of N3 and N6; `None`: the port's MTU.
    pub mtu: [Option<usize>; 2],
    pub from: From,
    /// Configured routes of N3 and N6.
    pub routes: [Routes; 2],
    /// Share of the fabric that packets of no session may take.
    pub unknown_percent: u32,
    /// Time between two Echo Requests to a peer; 0: none.
    pub echo_interval_s: u32,
    /// Answers sent a second.
    pub limits: AnswerLimits,
}

/// A gateway, besides its ports.
#[derive(Clone, Debug)]
pub struct Setup {
    pub tunable: Tunable,
    /// How it is run.
    pub run: Options,
    /// Addresses where tunnels end.
    pub n3: Arc<[IpAddr]>,
    /// Secret of the TEIDs; `None`: they carry no check.
    pub teid_secret: Option<Secret>,
    pub max_sessions: usize,
    /// Varies the hash functions.
    pub seed: u64,
    /// Sessions and rests of the journal.
    pub kept: Kept,
    /// Counts of the journal, if there is one.
    pub journal: Option<Counts>,
    /// Sessions of the file, by line.
    pub sessions: Vec<(usize, Session)>,
    /// Interfaces of N3 and N6, whose routes the kernel has; `None`: the port has none.
    pub interfaces: [Option<String>; 2],
    /// The gateway is a node of a cluster.
    pub cluster: Option<Seat>,
}

impl Setup {
    fn addresses(&self) -> Addresses {
        Addresses {
            n3: self.n3.clone(),
            pools: self.tunable.pools.clone(),
            teids: TeidCheck::new(self.teid_secret, &self.n3),
        }
    }
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// Sessions of the file do not fit.
    #[error("{} sessions of the file are refused", .0.len())]
    Sessions(Vec<Refusal>),
    /// Sessions of the journal do not fit.
    #[error("{} sessions of the journal are refused", .0.len())]
    Kept(Vec<Refusal>),
    /// The kernel's routes cannot be followed.
    #[error("the kernel's routes: {0}")]
    Watch(#[from] WatchError),
    #[error("port {0} is missing: a gateway has the ports n3 and n6")]
    Port(&'static str),
    /// The system has no threads or descriptors left.
    #[error("cannot start a thread or open a descriptor: {0}")]
    System(#[from] io::Error),
}

/// The control side.
pub struct GatewayControl {
    publisher: Publisher<Gateway>,
    sessions: Sessions,
    tunable: Tunable,
    /// Routes that were learnt; a port with configured ones uses those alone.
    learnt: [Routes; 2],
    /// Destinations without a next hop, by role.
    wanted: [Arc<Wanted>; 2],
    /// Follows the kernel's routes and neighbours of the interfaces.
    watcher: Option<Watcher>,
    /// Interface of the watcher's hops, by role.
    watched: [Option<usize>; 2],
    /// Whether the watcher's last call failed.
    blind: bool,
    roles: Roles,
    view: Arc<View>,
    cluster: Option<Clustered>,
    /// Sources that were throttled at the last look.
    throttled: usize,
    journal: Option<Counts>,
}

/// Starts a gateway between these ports.
///
/// # Errors
/// Nothing runs then.
pub fn start(
    setup: &Setup,
    ports: Vec<ConfiguredPort>,
) -> Result<Running<GatewayControl>, StartError> {
    overbank_runtime::start(&setup.run, ports, |publisher| GatewayControl::new(setup, publisher))
}

/// Checks the sessions of a setup without starting anything.
///
/// # Errors
/// Returns every error, by line.
pub fn check(setup: &Setup) -> Result<(), StartError> {
    let (mut sessions, _) = Sessions::new(setup.max_sessions, setup.addresses(), 1, setup.seed)?;
    fill(&mut sessions, setup)?;
    Ok(())
}

/// Adds the sessions of the journal, then those of the file.
fn fill(sessions: &mut Sessions, setup: &Setup) -> Result<(), StartError> {
    sessions.restore(&setup.kept, 0, unix_ms()).map_err(StartError::Kept)?;
    sessions.import(&setup.sessions, Import::FILE, 0).map_err(StartError::Sessions)?;
    Ok(())
}

impl GatewayControl {
    /// Returns the control side, and an engine for each worker.
    ///
    /// # Errors
    /// There is not enough memory, a port is missing, or the sessions do not fit.
    pub fn new(
        setup: &Setup,
        publisher: Publisher<Gateway>,
    ) -> Result<Parts<GatewayControl>, StartError> {
        let index = |role: Role| {
            let index = publisher.index_of(role.number()).and_then(|i| u16::try_from(i).ok());
            index.ok_or(StartError::Port(role.name()))
        };
        let roles = Roles { n3: index(Role::N3)?, n6: index(Role::N6)? };
        let workers = setup.run.workers.max(1);
        let (mut sessions, readers) =
            Sessions::new(setup.max_sessions, setup.addresses(), workers, setup.seed)?;
        fill(&mut sessions, setup)?;
        let cluster = match setup.cluster {
            Some(seat) => Some(Clustered::new(seat, index(Role::Fabric)?)),
            None => None,
        };
        let mut control = GatewayControl {
            publisher,
            sessions,
            tunable: setup.tunable.clone(),
            learnt: Default::default(),
            wanted: Default::default(),
            watcher: None,
            watched: [None; 2],
            blind: false,
            roles,
            view: Arc::new(View {
                echoes: Arc::new(Echoes::new(Seed(setup.seed))),
                ..View::default()
            }),
            cluster,
            throttled: 0,
            journal: setup.journal.clone(),
        };
        control.watch(&setup.interfaces)?;
        control.show();
        control.check_mtu();
        let (view, answers) = (control.view.clone(), Arc::new(Answers::new(setup.seed)));
        let engine = |reader| Gateway::new(reader, view.clone(), roles, answers.clone());
        let engines = readers.into_iter().map(engine).collect();
        Ok(Parts { control, first: view, engines })
    }

    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns counts of the journal, if there is one.
    pub fn journal(&self) -> Option<JournalTotals> {
        self.journal.as_ref().map(Counts::read)
    }

    /// Returns a tunnel that its peer does not know, by the peer's address and TEID, each once.
    pub fn lost_tunnel(&mut self) -> Option<(IpAddr, u32)> {
        self.view.lost.take().or_else(|| self.cluster.as_mut()?.lost_tunnel())
    }

    /// Hears what another node of the cluster has noted.
    pub fn cluster_note(&mut self, note: &[u8]) {
        if let Some(cluster) = &mut self.cluster {
            cluster.note(note);
        }
    }

    pub fn now_ms(&self) -> u64 {
        self.publisher.now_ms()
    }

    /// Returns the sessions to change, and the time.
    pub fn sessions_mut(&mut self) -> (&mut Sessions, u64) {
        (&mut self.sessions, self.publisher.now_ms())
    }

    /// Performs a change that the cluster's node has decided on.
    pub fn cluster_change(&mut self, change: &Change) {
        let now_ms = self.publisher.now_ms();
        if let Some(cluster) = &mut self.cluster {
            cluster.change(&mut self.sessions, change, now_ms);
        }
    }

    /// Returns the counts of a session that the cluster has installed here.
    pub fn cluster_counts(&self, session: SessionId) -> Travelled {
        let cluster = self.cluster.as_ref();
        cluster.map_or(Travelled::default(), |cluster| cluster.counts(&self.sessions, session))
    }

    /// Returns once no worker acts on what was there before the last changes: then other nodes may
    /// be told.
    ///
    /// # Errors
    /// A worker has not finished a burst in time: ask again.
    pub fn cluster_settle(&mut self) -> Result<(), SessionError> {
        self.sessions.settle()
    }

    /// Shows workers what the cluster's node knows. Its clock is [`Publisher::now_ms`].
    ///
    /// Returns whether workers may run on what was there before, until a barrier.
    pub fn cluster_view(&mut self, node: &Node<Dense>) -> bool {
        let now_ms = self.publisher.now_ms();
        let Some(cluster) = &mut self.cluster else { return false };
        let changed = cluster.look(node, now_ms);
        self.sessions.differed(cluster.differed(node));
        if changed {
            self.show();
            self.publisher.touch();
        }
        changed
    }

    /// Forgets what a run of the cluster's node has installed.
    pub fn cluster_end(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.end(&mut self.sessions);
            self.show();
            self.publisher.touch();
        }
    }

    /// Returns the address of the port to the fabric.
    pub fn cluster_mac(&self) -> Option<Mac> {
        let port = self.cluster.as_ref()?.port();
        self.publisher.ports().get(usize::from(port)).map(|desc| desc.mac)
    }

    /// Has requests go to the cluster.
    pub fn cluster_begin(&mut self, asks: Arc<dyn Asks>) {
        if let Some(cluster) = &mut self.cluster {
            cluster.set_asks(asks);
        }
    }

    /// Returns the cluster's part.
    pub fn cluster(&self) -> Option<&Clustered> {
        self.cluster.as_ref()
    }

    /// Takes other settings, and the file's sessions if there is one.
    ///
    /// # Errors
    /// Returns every error, by line; line 0 is none of the file. Nothing has changed then.
    pub fn reload(
        &mut self,
        tunable: Tunable,
        list: Option<&[(usize, Session)]>,
    ) -> Result<Imported, Vec<Refusal>> {
        let now_ms = self.publisher.now_ms();
        let done = self.sessions.reload(tunable.pools.clone(), list, now_ms)?;
        self.tunable = tunable;
        self.show();
        self.publisher.touch();
        Ok(done)
    }

    /// Looks which sources of packets of no session are throttled.
    fn look_at_share(&mut self, now_ms: u64) {
        let Some(cluster) = &self.cluster else { return };
        let mut throttled = cluster.share().throttled(now_ms).peekable();
        let first = throttled.peek().copied();
        let before = std::mem::replace(&mut self.throttled, throttled.count());
        if let (Some(source), 0) = (first, before) {
            tracing::warn!(%source, "packets of no session exceed their share: throttled");
        } else if before > 0 && first.is_none() {
            tracing::info!("no source is throttled any more");
        }
    }

    /// Takes what peers have answered, and asks those that are due.
    fn look_at_peers(&mut self, now_ms: u64) {
        let GatewayControl { publisher, sessions, view, tunable, .. } = self;
        let (asker, peers) = (view.asker(), sessions.peers_mut());
        peers.set_interval(u64::from(tunable.echo_interval_s) * 1000);
        while let Some(EchoResponse { path, sequence, recovery }) = view.echoes.take() {
            peers.answer(asker, path, sequence, recovery, now_ms);
        }
        peers.tick(asker, now_ms, |path, sequence| publisher.order(Order::Echo { path, sequence }));
        let (events, more) = peers.events();
        for event in events {
            match event {
                Event::Down(Path { n3, peer }) => {
                    tracing::warn!(%peer, %n3, "the peer does not answer five Echo Requests");
                }
                Event::Up(Path { n3, peer }) => {
                    tracing::info!(%peer, %n3, "the peer answers again")
                }
                Event::Restarted(Path { n3, peer }) => {
                    tracing::warn!(%peer, %n3, "the peer has restarted: its counter has changed");
                }
            }
        }
        if more > 0 {
            tracing::warn!(more, "more peers have changed");
        }
    }

    /// Begins to follow the kernel's routes of these interfaces.
    fn watch(&mut self, interfaces: &[Option<String>; 2]) -> Result<(), WatchError> {
        let mut names = Vec::new();
        for (watched, name) in self.watched.iter_mut().zip(interfaces) {
            *watched = name.as_ref().map(|_| names.len());
            names.extend(name.clone());
        }
        if !names.is_empty() {
            self.watcher = Some(Watcher::new(names)?);
            self.take_hops();
        }
        Ok(())
    }

    /// Takes what the watcher learnt.
    fn take_hops(&mut self) {
        let Some(watcher) = &self.watcher else { return };
        for (learnt, watched) in self.learnt.iter_mut().zip(self.watched) {
            let Some(nth) = watched else { continue };
            let routes = watcher.hops(nth).routes.iter();
            *learnt = routes.map(|(to, len, mac)| (Prefix::of(*to, *len), *mac)).collect();
        }
    }

    /// Asks the kernel for changes, and has it resolve what packets were sent to on a link.
    fn look(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let now = Instant::now();
        for (wanted, watched) in self.wanted.iter().zip(self.watched) {
            let addresses: BTreeSet<IpAddr> = std::iter::from_fn(|| wanted.take()).collect();
            for address in addresses {
                // Packets come again, and with them the request.
                let _ = watched.map(|nth| watcher.resolve(nth, address, now));
            }
        }
        let looked = watcher.refresh(now);
        if let (Err(error), false) = (&looked, self.blind) {
            tracing::warn!(%error, "the kernel's routes are not followed; those known stay");
        }
        self.blind = looked.is_err();
        if looked.as_ref().is_ok_and(|changed| *changed) && watcher.unread() > 0 {
            let unread = watcher.unread();
            tracing::warn!(unread, "routes or neighbours of the kernel cannot be read: left out");
        }
        if looked.is_ok_and(|changed| changed) {
            self.take_hops();
            self.show();
            self.publisher.touch();
        }
    }

    /// Warns if packets of other nodes may be longer than the fabric takes: they go there as they
    /// came in.
    fn check_mtu(&self) {
        let Some(cluster) = &self.cluster else { return };
        let mtu = |index| self.publisher.ports().get(usize::from(index)).map_or(0, |port| port.mtu);
        let (fabric, needed) = (mtu(cluster.port()), mtu(self.roles.n3).max(mtu(self.roles.n6)));
        if fabric < needed {
            tracing::warn!(
                fabric,
                needed,
                "the fabric's MTU is less than that of N3 or N6: longer packets of sessions at other \
                 nodes are dropped (too_big); raise it at all nodes"
            );
        }
    }

    /// Makes the view that engines run on.
    fn show(&mut self) {
        let (Roles { n3, n6 }, t) = (self.roles, &self.tunable);
        let desc = |index: u16| self.publisher.ports().get(usize::from(index));
        let hops = |index: u16, role: Role| {
            let mac = desc(index).map_or([0; 6], |desc| desc.mac);
            let configured = &t.routes[role as usize];
            let learnt = &self.learnt[role as usize];
            let routes = if configured.is_empty() { learnt } else { configured };
            PortHops::new(mac, routes.iter().copied()).reporting(self.wanted[role as usize].clone())
        };
        let mtu = |index: u16, set: Option<usize>| {
            set.or_else(|| desc(index).map(|desc| desc.mtu as usize)).unwrap_or(1500)
        };
        self.view = Arc::new(View {
            addresses: self.sessions.addresses().clone(),
            hops: NextHops { n3: hops(n3, Role::N3), n6: hops(n6, Role::N6) },
            peers: t.peers.clone(),
            protected: t.protected.clone(),
            mtu: Mtu { n3: mtu(n3, t.mtu[0]), n6: mtu(n6, t.mtu[1]) },
            from: t.from,
            limits: t.limits,
            lost: self.view.lost.clone(),
            echoes: self.view.echoes.clone(),
            fabric: self.cluster.as_ref().map(|cluster| {
                let desc = desc(cluster.port());
                let mac = desc.map_or([0; 6], |desc| desc.mac);
                cluster.fabric(mac, mtu(cluster.port(), None), t.unknown_percent)
            }),
        });
    }
}

/// What the control side shows of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GatewayStatus {
    #[serde(flatten)]
    pub sessions: SessionTotals,
    /// Limit of sessions.
    pub sessions_max: usize,
    pub peers: PeerTotals,
    /// Routes of N3 and N6.
    pub next_hops: [usize; 2],
    /// Sources that send too many packets of no session, if the gateway is a node of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_sources: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalTotals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
}

const MAX: Gauge =
    Gauge { name: "overbank_gateway_sessions_limit", help: "Limit of sessions", labels: &[] };
const HOPS: Gauge =
    Gauge { name: "overbank_gateway_next_hops", help: "Known next hops", labels: &["port"] };

const THROTTLED: Gauge = Gauge {
    name: "overbank_gateway_throttled_sources",
    help: "Sources that send too many packets of no session (nodes of a cluster)",
    labels: &[],
};

/// Metrics of the gateway that are computed and not counted.
pub const GAUGES: [Gauge; 3] = [MAX, HOPS, THROTTLED];

impl ControlStatus for GatewayStatus {
    fn expose(&self, to: &mut Exposition) {
        to.add(&[], &self.sessions);
        to.add(&[], &self.peers);
        to.gauge(&MAX, &[], self.sessions_max as f64);
        for (role, hops) in [Role::N3, Role::N6].iter().zip(self.next_hops) {
            to.gauge(&HOPS, &[role.name()], hops as f64);
        }
        if let Some(throttled) = self.throttled_sources {
            to.gauge(&THROTTLED, &[], throttled as f64);
        }
        if let Some(journal) = &self.journal {
            to.add(&[], journal);
        }
        if let Some(cluster) = &self.cluster {
            cluster.expose(to);
        }
    }
}

impl Control for GatewayControl {
    type Engine = Gateway;
    type Status = GatewayStatus;

    fn publisher(&self) -> &Publisher<Gateway> {
        &self.publisher
    }

    fn publisher_mut(&mut self) -> &mut Publisher<Gateway> {
        &mut self.publisher
    }

    fn snapshot(&self) -> Arc<View> {
        self.view.clone()
    }

    fn tick(&mut self, now_ms: u64) -> Option<u64> {
        self.sessions.tick(now_ms);
        self.look();
        self.look_at_share(now_ms);
        self.look_at_peers(now_ms);
        None
    }

    fn port_changed(&mut self, index: usize, before: &PortDesc) {
        let now = &self.publisher.ports()[index];
        if (now.mac, now.mtu) != (before.mac, before.mtu) {
            self.show();
            self.check_mtu();
            self.publisher.touch();
        }
    }

    fn status(&self) -> GatewayStatus {
        GatewayStatus {
            sessions: self.sessions.totals(),
            sessions_max: self.sessions.max(),
            peers: self.sessions.peers().totals(),
            throttled_sources: self.cluster.as_ref().map(|_| self.throttled),
            next_hops: [self.view.hops.n3.len(), self.view.hops.n6.len()],
            journal: self.journal(),
            cluster: self.cluster.as_ref().map(|cluster| cluster.status(self.now_ms())),
        }
    }
}
