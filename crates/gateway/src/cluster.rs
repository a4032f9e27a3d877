//! The gateway as a node of a cluster: what the cluster engine decides becomes what workers read.
//!
//! ```text
//!   Node::step ─▶ Install, Show, Free ─▶ Clustered ─▶ Sessions ─▶ workers
//!              └▶ view, tables, lease ─▶ Clustered ─▶ Fabric ───┘
//! ```
//!
//! The driver of the node performs changes in their order, and tells other nodes only after
//! [`GatewayControl::cluster_settle`](crate::GatewayControl::cluster_settle): a worker in the
//! middle of a burst may still handle what has just been turned.
//!
//! A session's keys in the cluster are its identity, its tunnel and its addresses. The identity is
//! the first one: it names the session, and its partition is the session's home. So identities are
//! unique, and requests by identity go to their owner at once.
//!
//! All nodes have the same N3 addresses in the same order, and the same pools.

pub mod import;
mod status;

use crate::fabric::{Fabric, Relay, Seed, kind};
use crate::next_hops::Mac;
use crate::session::{Gate, Key, Prefix64, Session};
use crate::sessions::{Addresses, Listed, Origin, SessionError, Sessions, check_pools, keys};
use crate::share::UnknownShare;
use crate::slab::{Counts, Traffic};
use hashbrown::HashMap;
use overbank_cluster::etcd::{Info, State};
use overbank_cluster::message::{Answer, Counts as Travelled, Request};
use overbank_cluster::node::{Change, Entry};
use overbank_cluster::rib::Context;
use overbank_cluster::table::{Dense, DenseReader};
use overbank_cluster::{Key as ClusterKey, Node, NodeId, Partition, Revision, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};

pub use status::{CLUSTER_GAUGES, ClusterStatus, ClusterTotals, DRAINING, MemberStatus};

/// Most lost tunnels that wait.
const LOST_MAX: usize = 1024;

/// A gateway's place in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub me: NodeId,
    /// The secret of the cluster.
    pub seed: Seed,
}

/// Takes requests to the cluster.
pub trait Asks: Send + Sync {
    /// Asks for a change, and hands over its answer; that of a node that ends is a refusal. Returns
    /// false if too many wait.
    fn ask_with(&self, request: Request, answer: Box<dyn FnOnce(Answer) + Send>) -> bool;

    /// Asks for a change; `None`: too many wait. The answer comes later.
    fn ask(&self, request: Request) -> Option<Receiver<Answer>> {
        let (to, answers) = channel();
        // The caller may have given up.
        let answer = Box::new(move |answer| drop(to.send(answer)));
        self.ask_with(request, answer).then_some(answers)
    }

    /// Leaves something to later speakers; returns false if too many wait.
    fn share(&self, shared: Info) -> bool;

    /// Tells the gateway of a node something. It may be lost.
    fn note(&self, to: NodeId, note: Note);

    /// Lets the node give everything away, this many sessions a second; returns false if too many
    /// requests wait.
    fn drain(&self, rate: Option<u64>) -> bool;

    /// Lets sessions be moved to where rendezvous hashing has them; returns false likewise.
    fn rebalance(&self) -> bool;
}

/// The control side's part of a cluster.
pub struct Clustered {
    seat: Seat,
    port: u16,
    /// Identities of sessions, by the number that the node gave them.
    slots: HashMap<u32, u64, foldhash::fast::RandomState>,
    /// The same by their name in the cluster.
    names: HashMap<SessionId, u64, foldhash::fast::RandomState>,
    /// Blocks of tables that this run of the node has found to differ.
    differences: u64,
    seen_status: status::Seen,
    /// Changes of etcd, and images of tables, when the node was last looked at.
    seen: (u64, u64),
    ingress: bool,
    draining: bool,
    /// Live nodes besides this one.
    others: usize,
    membership: Revision,
    /// Whether this node speaks while it may act; the speaker; what speakers have left.
    speaks: bool,
    speaker: Option<NodeId>,
    shared: Option<Info>,
    /// Lost tunnels that other nodes have heard of.
    lost: VecDeque<(IpAddr, u32)>,
    /// See [`Fabric::unsure_until_ms`].
    unsure_until_ms: u64,
    tables: Arc<[Option<DenseReader>]>,
    macs: Arc<[Option<Mac>]>,
    /// See [`Fabric::were`].
    were: [u64; 4],
    valid_until_ms: Arc<AtomicU64>,
    share: Arc<UnknownShare>,
    asks: Option<Arc<dyn Asks>>,
}

/// What gateways tell each other. It may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// To the speaker: a peer has no tunnel of this TEID.
    LostTunnel(IpAddr, u32),
    /// Give your sessions away, this many a second, and leave.
    Drain(Option<u64>),
}

impl Note {
    /// Returns its bytes.
    pub fn bytes(self) -> Arc<[u8]> {
        // Plain data has no error.
        postcard::to_allocvec(&self).unwrap_or_default().into()
    }
}

/// A session as it travels.
#[derive(Serialize, Deserialize)]
struct Packed {
    id: u64,
    n3: IpAddr,
    teid: u32,
    peer: IpAddr,
    peer_teid: u32,
    qfi: Option<u8>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<u64>,
    uplink: bool,
    downlink: bool,
    rate_up: Option<u64>,
    rate_down: Option<u64>,
}

/// Returns the bytes of a session, and what its control plane keeps with it.
pub fn pack(session: &Session, kept: &[u8]) -> Context {
    let packed = Packed {
        id: session.id,
        n3: session.n3,
        teid: session.teid,
        peer: session.peer,
        peer_teid: session.peer_teid,
        qfi: session.qfi,
        ipv4: session.ipv4,
        ipv6: session.ipv6.map(|prefix| prefix.0),
        uplink: session.gate.uplink(),
        downlink: session.gate.downlink(),
        rate_up: session.rate_up,
        rate_down: session.rate_down,
    };
    // Plain data has no error.
    let mut bytes = postcard::to_allocvec(&packed).unwrap_or_default();
    bytes.extend_from_slice(kept);
    bytes.into()
}

/// Returns counts as they travel.
pub fn to_travelled(Counts { uplink: up, downlink: down }: Counts) -> Travelled {
    [up.packets, up.bytes, up.dropped, down.packets, down.bytes, down.dropped]
}

/// Returns counts that have travelled.
pub fn from_travelled(
    [up, up_bytes, up_dropped, down, down_bytes, down_dropped]: Travelled,
) -> Counts {
    let uplink = Traffic { packets: up, bytes: up_bytes, dropped: up_dropped };
    let downlink = Traffic { packets: down, bytes: down_bytes, dropped: down_dropped };
    Counts { uplink, downlink }
}

/// Returns the session of bytes, and what its control plane keeps with it; `None`: they are of
/// none. It may be invalid.
pub fn unpack(bytes: &[u8]) -> Option<(Session, &[u8])> {
    let (packed, kept) = postcard::take_from_bytes::<Packed>(bytes).ok()?;
    let session = Session {
        id: packed.id,
        n3: packed.n3,
        teid: packed.teid,
        peer: packed.peer,
        peer_teid: packed.peer_teid,
        qfi: packed.qfi,
        ipv4: packed.ipv4,
        ipv6: packed.ipv6.map(Prefix64),
        gate: Gate::of(packed.uplink, packed.downlink),
        rate_up: packed.rate_up,
        rate_down: packed.rate_down,
    };
    Some((session, kept))
}

/// Does what the cluster has decided once no worker is in its way.
fn patiently(mut act: impl FnMut() -> Result<(), SessionError>) -> Result<(), SessionError> {
    loop {
        match act() {
            Err(SessionError::Busy) => tracing::warn!("the cluster waits for a worker"),
            done => return done,
        }
    }
}

/// Returns the origin of a session of the cluster, by what its control plane keeps with it.
pub(crate) const fn origin_of(kept: &[u8]) -> Origin {
    if kept.is_empty() { Origin::Cluster } else { Origin::Pfcp }
}

impl Seed {
    fn key(self, kind: u64, key: u64) -> ClusterKey {
        let full = u128::from(kind) << 64 | u128::from(key);
        ClusterKey { hash: self.hash(kind, key), full }
    }

    /// Returns a session's name in the cluster.
    pub fn session(self, id: u64) -> SessionId {
        SessionId(self.hash(kind::ID, id))
    }

    /// Returns what packets are looked up by; `None`: a tunnel at a foreign N3 address.
    pub fn of_key(self, addresses: &Addresses, key: Key) -> Option<ClusterKey> {
        Some(match key {
            Key::Tunnel(n3, teid) => {
                self.key(kind::WIDE, keys::of_tunnel(addresses.n3_number(n3)?, teid))
            }
            Key::Ipv4(address) => self.key(kind::WIDE, keys::of_ipv4(address)),
            Key::Ipv6(prefix) => self.key(kind::SIX, prefix.0),
        })
    }

    /// Returns the keys of a session in the cluster; the first one names it.
    fn keys(
        self,
        addresses: &Addresses,
        session: &Session,
    ) -> Result<Arc<[ClusterKey]>, SessionError> {
        session.check()?;
        if let Some(n3) = addresses.n3_number(session.n3) {
            addresses.check_teid(n3, session.teid)?;
        }
        check_pools(addresses, session)?;
        let id = std::iter::once(Some(self.key(kind::ID, session.id)));
        let keys = id.chain(session.keys().map(|key| self.of_key(addresses, key)));
        let keys: Option<Arc<[ClusterKey]>> = keys.collect();
        let foreign = || SessionError::ForeignN3(session.n3, keys::list(addresses.n3.iter()));
        keys.ok_or_else(foreign)
    }

    /// Returns a request that changes a session to this.
    ///
    /// # Errors
    /// The session is invalid, or its tunnel ends elsewhere.
    pub fn update(
        self,
        addresses: &Addresses,
        session: &Session,
        kept: &[u8],
    ) -> Result<Request, SessionError> {
        let (keys, context) = (self.keys(addresses, session)?, pack(session, kept));
        Ok(Request::Update { session: self.session(session.id), keys, context, before: None })
    }

    /// Returns a request for a new session.
    ///
    /// # Errors
    /// The session is invalid, or its tunnel ends elsewhere.
    pub fn establish(
        self,
        addresses: &Addresses,
        session: &Session,
        kept: &[u8],
        to: Option<NodeId>,
    ) -> Result<Request, SessionError> {
        let keys = self.keys(addresses, session)?;
        Ok(Request::Establish { keys, context: pack(session, kept), to })
    }
}

impl Clustered {
    pub(crate) fn new(seat: Seat, port: u16) -> Clustered {
        Clustered {
            seat,
            port,
            slots: HashMap::default(),
            names: HashMap::default(),
            differences: 0,
            seen_status: status::Seen::default(),
            seen: (u64::MAX, u64::MAX),
            ingress: false,
            draining: false,
            others: 0,
            membership: 0,
            speaks: false,
            speaker: None,
            shared: None,
            lost: VecDeque::new(),
            unsure_until_ms: 0,
            tables: Arc::new([None]),
            macs: Arc::default(),
            were: [0; 4],
            valid_until_ms: Arc::default(),
            share: Arc::new(UnknownShare::new(seat.seed.0)),
            asks: None,
        }
    }

    /// Returns what is known of packets of no session.
    pub(crate) const fn share(&self) -> &Arc<UnknownShare> {
        &self.share
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the gateway's place.
    pub const fn seat(&self) -> Seat {
        self.seat
    }

    /// Whether another node is live, as far as this one knows.
    pub const fn has_others(&self) -> bool {
        self.others > 0
    }

    /// Returns those of these sessions that are handled here and whose keys do not lead here by the
    /// cluster's table. For a moment that is so after a change: look again.
    pub fn astray(&self, sessions: &Sessions, listed: &[Listed]) -> Vec<(u64, Key)> {
        let (seed, count) = (self.seat.seed, self.tables.len() as u16);
        let leads_here = |key: &Key| {
            let Some(key) = seed.of_key(sessions.addresses(), *key) else { return false };
            let table = self.tables[Partition::of(key.hash, count).index()].as_ref();
            table.is_some_and(|table| table.lookup(key.hash) == self.seat.me)
        };
        let handled = listed.iter().filter(|listed| sessions.is_handled(listed.session.id));
        let astray = handled.filter_map(|listed| {
            let key = listed.session.keys().find(|key| !leads_here(key));
            key.map(|key| (listed.session.id, key))
        });
        astray.collect()
    }

    /// Whether this node answers the control plane for all nodes.
    pub fn speaks(&self, now_ms: u64) -> bool {
        self.speaks && now_ms < self.valid_until_ms.load(Relaxed)
    }

    /// Returns the node that answers the control plane, as far as this one knows.
    pub const fn speaker(&self) -> Option<NodeId> {
        self.speaker
    }

    /// Returns what speakers have left.
    pub fn shared(&self) -> Option<&Info> {
        self.shared.as_ref()
    }

    /// Hears a note of another node. A full queue drops it: its cause comes again.
    pub(crate) fn note(&mut self, note: &[u8]) {
        match postcard::from_bytes(note) {
            Ok(Note::LostTunnel(peer, teid)) if self.lost.len() < LOST_MAX => {
                self.lost.push_back((peer, teid));
            }
            Ok(Note::Drain(rate)) => {
                tracing::info!("another node asks this one to leave");
                // A full queue: it is asked again.
                let _ = self.asks.as_ref().map(|asks| asks.drain(rate));
            }
            _ => {}
        }
    }

    /// Returns a lost tunnel that another node has heard of.
    pub(crate) fn lost_tunnel(&mut self) -> Option<(IpAddr, u32)> {
        self.lost.pop_front()
    }

    /// Returns what takes requests; `None`: not yet.
    pub fn asks(&self) -> Option<Arc<dyn Asks>> {
        self.asks.clone()
    }

    pub(crate) fn set_asks(&mut self, asks: Arc<dyn Asks>) {
        self.asks = Some(asks);
    }

    /// Forgets a run of the node: nothing is installed any more.
    pub(crate) fn end(&mut self, sessions: &mut Sessions) {
        self.valid_until_ms.store(0, Relaxed);
        self.slots.drain().for_each(|(_, id)| drop(sessions.uninstall(id)));
        self.names.clear();
        self.differences = 0;
        self.ingress = false;
        self.speaks = false;
        self.tables = Arc::new([None]);
        self.seen = (u64::MAX, u64::MAX);
        self.seen_status.end();
    }

    /// Returns the counts of a session that is installed here.
    pub(crate) fn counts(&self, sessions: &Sessions, session: SessionId) -> Travelled {
        let listed = self.names.get(&session).and_then(|&id| sessions.get(id));
        listed.map_or(Travelled::default(), |listed| to_travelled(listed.counts))
    }

    /// Performs a change of the node.
    pub(crate) fn change(&mut self, sessions: &mut Sessions, change: &Change, now_ms: u64) {
        match change {
            Change::Install { slot, session, context, shown, .. } => {
                let relay = Relay::of(*shown);
                let done = unpack(context).ok_or(None).and_then(|(session, kept)| {
                    let origin = origin_of(kept);
                    let done = patiently(|| sessions.install(session, origin, relay, now_ms));
                    done.map_err(Some).map(|()| session.id)
                });
                match done {
                    Ok(id) => {
                        self.slots.insert(*slot, id);
                        self.names.insert(*session, id);
                        self.seen_status.count(relay, true);
                    }
                    Err(error) => {
                        self.seen_status.refuse();
                        let error = error.map_or("unreadable".to_owned(), |e| e.to_string());
                        tracing::error!(error, "a session of the cluster does not fit this node");
                    }
                }
            }
            Change::Renew { slot, context, .. } => {
                // One that did not fit has no slot.
                let is_here = self.slots.contains_key(slot);
                let renewed = unpack(context).map(|(session, kept)| {
                    patiently(|| sessions.renew(session, origin_of(kept), now_ms))
                });
                if is_here && !matches!(renewed, Some(Ok(()))) {
                    self.seen_status.refuse();
                    let error = renewed.and_then(Result::err);
                    let error = error.map_or("unreadable".to_owned(), |e| e.to_string());
                    tracing::error!(error, "a change of the cluster does not fit this node");
                }
            }
            Change::Counts { slot, counts } => {
                if let Some(&id) = self.slots.get(slot) {
                    sessions.counted_before(id, from_travelled(*counts));
                }
            }
            Change::TakenOver { slot, counts } => {
                if let Some(&id) = self.slots.get(slot) {
                    sessions.taken_over(id, counts.map(from_travelled));
                }
            }
            Change::Show { slot, shown } => {
                if let Some(&id) = self.slots.get(slot) {
                    if matches!(shown.entry, Entry::Standby { .. }) {
                        sessions.count_anew(id);
                    }
                    let relay = Relay::of(*shown);
                    if let Ok(before) = sessions.relay(id, relay) {
                        self.seen_status.count(before, false);
                        self.seen_status.count(relay, true);
                    }
                }
            }
            Change::Free { slot } => {
                if let Some(id) = self.slots.remove(slot) {
                    self.names.remove(&self.seat.seed.session(id));
                    if let Some(relay) = sessions.relayed(id) {
                        self.seen_status.count(relay, false);
                    }
                    let _ = sessions.uninstall(id);
                }
            }
        }
    }

    /// Returns how many more blocks of tables the node has found to differ.
    pub(crate) fn differed(&mut self, node: &Node<Dense>) -> u64 {
        let before = std::mem::replace(&mut self.differences, node.differences());
        self.differences - before
    }

    /// Looks at the node; returns whether workers need another view.
    pub(crate) fn look(&mut self, node: &Node<Dense>, now_ms: u64) -> bool {
        self.seen_status.look(node, now_ms);
        self.valid_until_ms.store(node.valid_until() / 1000, Relaxed);
        // For as long as it may act; only its own drain changes it otherwise.
        self.speaks = node.speaks(0);
        let now = (node.watched(), node.images());
        if now == self.seen {
            return false;
        }
        self.seen = now;
        self.ingress = matches!(node.state(), Some(State::Live | State::Draining));
        self.draining = node.state() == Some(State::Draining);
        self.tables = node.tables().map(Dense::reader).collect();
        let view = node.view();
        let me = self.seat.me;
        self.speaker = view.speaker.map(|speaker| speaker.0.node);
        self.shared = view.shared.as_ref().map(|shared| shared.0.clone());
        self.others = view.in_state(State::Live).filter(|member| member.node != me).count();
        if view.membership != self.membership {
            // About a lease from now.
            self.membership = view.membership;
            self.unsure_until_ms = node.valid_until() / 1000;
        }
        for member in view.members.keys() {
            self.were[usize::from(member.0 >> 6)] |= 1 << (member.0 & 63);
        }
        self.macs = (0..=u8::MAX)
            .map(|node| view.info(view.member(NodeId(node))?)?.as_ref().try_into().ok())
            .collect();
        true
    }

    /// Returns what workers read, for a port with this address.
    pub(crate) fn fabric(&self, mac: Mac, mtu: usize, unknown_percent: u32) -> Fabric {
        Fabric {
            port: self.port,
            mac,
            mtu,
            me: self.seat.me,
            seed: self.seat.seed,
            ingress: self.ingress,
            tables: self.tables.clone(),
            macs: self.macs.clone(),
            were: self.were,
            valid_until_ms: self.valid_until_ms.clone(),
            unsure_until_ms: self.unsure_until_ms,
            share: self.share.clone(),
            unknown_percent,
        }
    }
}
