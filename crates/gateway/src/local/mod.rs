//! A cluster of gateways in one process: real engines, ports in memory, a switch as the fabric.
//!
//! ```text
//!   send ─▶ engine of a node ─┬─ N3, N6: handled
//!                             └─ fabric ─▶ switch ─▶ engine of the address ─▶ …
//!   advance ─▶ cluster engine (memory driver) ─▶ changes of a node ─▶ its sessions, its view
//! ```
//!
//! One thread does all of it, and the caller says what time it is: the same calls have the same
//! outcome. Packets come in between two steps of the cluster engine, so no burst runs while a
//! session changes.
//!
//! Account of a node: received from outside + from the fabric = handled + forwarded + answered +
//! dropped by reason. Account of the cluster: forwarded = received from the fabric + lost at nodes
//! that do not run or are cut off.

mod burst;
mod packets;
mod population;
mod site;
mod status;
#[cfg(test)]
mod tests;

pub use burst::Burst;
pub use population::{NotPlaced, POPULATION_MAX, Population};
pub(crate) use site::{Site, mac_of};
pub use status::{Account, ClusterStatus, Exits, Moves, NodeState, NodeStatus};

use crate::engine::{GatewayTotals, View};
use crate::fabric::Seed;
use crate::settings::Role;
use crate::slab::NoMemory;
pub use overbank_cluster::Links;
use overbank_cluster::etcd::State;
use overbank_cluster::message::{Message, Refusal, Request};
use overbank_cluster::node::Entry;
use overbank_cluster::table::Dense;
use overbank_cluster::{Heard, Hears, Member, Memory, NodeId, Settings};
use overbank_declare::counters::Counters as _;
use std::sync::Arc;

/// Most nodes.
pub const NODES_MAX: u8 = 32;
const NODE_BITS: u8 = 5;
/// Frames that an engine gets at a time.
const FRAMES: usize = 32;
/// Interval at which nodes do what is due.
const BEAT_US: u64 = 50_000;
/// Numbers of moves begin here.
const MOVES_FROM: u64 = 1 << 32;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// 1 to [`NODES_MAX`].
    pub nodes: u8,
    /// Nodes that run at first, from number 0.
    pub running: u8,
    /// Most sessions of a node.
    pub sessions_max: usize,
    /// Varies hash functions.
    pub seed: u64,
    /// What all gateways run on, but for the cluster.
    pub view: View,
    /// Share of the fabric that packets of no session may take.
    pub unknown_percent: u32,
}

/// A cluster; see the module.
pub struct Local {
    plan: Plan,
    memory: Memory<Dense>,
    sites: Vec<Option<Site>>,
    /// Of ended runs, and what the engines do not count.
    accounts: Vec<Account>,
    now_us: u64,
    /// Frames under way, by node.
    wires: Vec<Burst>,
    spare: Burst,
    links: Vec<Links>,
    lost: u64,
    /// Packets that left and are to be checked, if they are watched: node and terminal.
    left: Option<Vec<(u8, Option<u32>)>>,
    exits: Exits,
    /// Number of the next request.
    next: u64,
    moves: Moves,
    /// Requests of [`Local::ask`] that were answered, and those of them that were refused.
    answered: (u64, Vec<(u64, Refusal)>),
}

/// Brings what the nodes do to their data paths.
struct Ears<'a> {
    sites: &'a mut [Option<Site>],
    moves: &'a mut Moves,
    answered: &'a mut (u64, Vec<(u64, Refusal)>),
    now_ms: u64,
}

impl Ears<'_> {
    fn site(&mut self, node: NodeId) -> Option<&mut Site> {
        self.sites.get_mut(usize::from(node.0))?.as_mut()
    }
}

impl Hears for Ears<'_> {
    fn hear(&mut self, heard: Heard) {
        let now_ms = self.now_ms;
        match heard {
            Heard::Session(node, change) => {
                if let Some(site) = self.site(node) {
                    site.change(&change, now_ms);
                }
            }
            Heard::Answer(number, answer) if number < MOVES_FROM => {
                self.answered.0 += 1;
                self.answered.1.extend(answer.err().map(|why| (number, why)));
            }
            Heard::Answer(_, Ok(_)) => self.moves.done += 1,
            Heard::Answer(_, Err(_)) => self.moves.refused += 1,
            Heard::Note(..) => {}
            Heard::Ended(node) => {
                if let Some(site) = self.site(node) {
                    site.end();
                }
            }
        }
    }

    fn count(&mut self, from: Member, message: &mut Message) {
        if let Some(site) = self.site(from.node) {
            site.count(from, message);
        }
    }
}

/// Returns the index of a port.
pub(crate) const fn index_of(role: Role) -> u16 {
    role as u16
}

impl Local {
    /// Returns a cluster whose running nodes have joined, at a time of a second.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(plan: Plan) -> Result<Local, NoMemory> {
        let nodes = plan.nodes.clamp(1, NODES_MAX);
        let plan = Plan { nodes, running: plan.running.clamp(1, nodes), ..plan };
        let partitions = Settings::default().partitions;
        // A session has up to four keys.
        let partition_keys = (4 * plan.sessions_max / usize::from(partitions)).max(64);
        let settings = Settings {
            node_bits: NODE_BITS,
            beat_us: BEAT_US,
            partition_keys,
            sessions_max: plan.sessions_max as u32,
            ..Settings::default()
        };
        let info = |node: NodeId| Arc::from(mac_of(node));
        let site = |node| Site::of(&plan, NodeId(node));
        let sites = (0..nodes).map(|node| (node < plan.running).then(|| site(node)).transpose());
        let mut local = Local {
            memory: Memory::with_info(settings, nodes, info),
            sites: sites.collect::<Result<_, _>>()?,
            accounts: vec![Account::default(); usize::from(nodes)],
            now_us: 0,
            wires: vec![Burst::default(); usize::from(nodes)],
            spare: Burst::default(),
            links: vec![Links::Whole; usize::from(nodes)],
            lost: 0,
            left: None,
            exits: Exits::default(),
            next: MOVES_FROM,
            moves: Moves::default(),
            answered: Default::default(),
            plan,
        };
        (local.plan.running..nodes).for_each(|node| local.memory.kill(NodeId(node)));
        (1..=20).for_each(|beat| local.advance(beat * BEAT_US));
        Ok(local)
    }

    pub const fn nodes(&self) -> u8 {
        self.plan.nodes
    }

    /// Returns the time: the latest one that [`Local::advance`] had.
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(crate) const fn seed(&self) -> Seed {
        Seed(self.plan.seed)
    }

    /// Advances the time, and does all that follows.
    pub fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        let (memory, mut ears) = self.ears();
        memory.advance(now_us, &mut ears);
        self.look();
    }

    /// Begins to advance the time: what follows is done by [`Local::step`], which packets may come
    /// in between.
    pub fn begin(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.memory.begin(self.now_us);
    }

    /// Lets a node take its next step; returns false if there is nothing left to do.
    pub fn step(&mut self) -> bool {
        let (memory, mut ears) = self.ears();
        let more = memory.step(&mut ears);
        self.look();
        more
    }

    fn ears(&mut self) -> (&mut Memory<Dense>, Ears<'_>) {
        let Local { memory, sites, moves, answered, now_us, .. } = self;
        (memory, Ears { sites, moves, answered, now_ms: *now_us / 1000 })
    }

    /// Shows data paths what their nodes know.
    fn look(&mut self) {
        for (id, site) in (0..).map(NodeId).zip(&mut self.sites) {
            if let (Some(site), Some(node)) = (site, self.memory.node(id)) {
                site.look(node, self.now_us / 1000);
            }
        }
    }

    /// Asks a node for something.
    pub(crate) fn ask(&mut self, node: u8, number: u32, request: Request) {
        self.memory.request(NodeId(node), number.into(), request);
    }

    /// Returns how many requests were answered since the last call, and the refused ones of them.
    pub(crate) fn answered(&mut self) -> (u64, Vec<(u64, Refusal)>) {
        std::mem::take(&mut self.answered)
    }

    /// Ends a node at once, as by a crash. Returns false if it does not run.
    pub fn kill(&mut self, node: u8) -> bool {
        let site = self.sites.get_mut(usize::from(node)).and_then(Option::take);
        let Some(site) = site else { return false };
        self.memory.kill(NodeId(node));
        self.accounts[usize::from(node)].totals.add(&site.totals());
        true
    }

    /// Starts a node that does not run, or has left. Returns false if it is there already.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn start(&mut self, node: u8) -> Result<bool, NoMemory> {
        if node >= self.nodes() || self.memory.node(NodeId(node)).is_some() {
            return Ok(false);
        }
        let site = Site::of(&self.plan, NodeId(node))?;
        self.kill(node);
        self.memory.start(NodeId(node));
        self.sites[usize::from(node)] = Some(site);
        Ok(true)
    }

    /// Sets how a node is connected to the others and to what the cluster rests on. Packets from
    /// outside come in at a node that is cut off, and leave.
    pub fn connect(&mut self, node: u8, links: Links) {
        if let Some(known) = self.links.get_mut(usize::from(node)) {
            *known = links;
            self.memory.connect(NodeId(node), links);
        }
    }

    /// Lets a node give everything away and leave. Returns false if it is no member.
    pub fn drain(&mut self, node: u8) -> bool {
        let runs = self.memory.node(NodeId(node)).is_some();
        self.memory.drain(NodeId(node));
        runs
    }

    /// Moves up to `count` sessions to a node, from all others alike. Returns how many it asks for.
    pub fn move_to(&mut self, node: u8, count: usize) -> usize {
        let others = (0..self.nodes()).filter(|other| *other != node);
        let mut from: Vec<_> = others
            .filter_map(|other| {
                let sessions = self.memory.node(NodeId(other))?.sessions();
                let mut serving = sessions.sorted();
                serving.retain(|id| sessions.get(id).is_some_and(|l| l.entry == Entry::Serving));
                Some((other, serving.into_iter()))
            })
            .collect();
        let (mut asked, mut found) = (0, true);
        while found && asked < count {
            found = false;
            for (at, sessions) in &mut from {
                let Some(session) = sessions.next().filter(|_| asked < count) else { continue };
                let request = Request::Move { session, to: Some(NodeId(node)) };
                self.memory.request(NodeId(*at), self.next, request);
                self.next += 1;
                (asked, found) = (asked + 1, true);
            }
        }
        self.moves.asked += asked as u64;
        asked
    }

    /// Returns what became of moves that [`Local::move_to`] asked for.
    pub const fn moves(&self) -> Moves {
        self.moves
    }

    /// Returns what a node is and has.
    pub fn status(&self, node: u8) -> NodeStatus {
        let site = self.sites.get(usize::from(node)).and_then(Option::as_ref);
        let running = self.memory.node(NodeId(node));
        let state = match (site, running) {
            (None, _) => NodeState::Down,
            (Some(_), None) => NodeState::Left,
            (Some(_), Some(running)) => match running.state() {
                None | Some(State::Catching) => NodeState::Joining,
                Some(State::Live) => NodeState::Live,
                Some(State::Suspended) => NodeState::Suspended,
                Some(State::Draining) => NodeState::Draining,
            },
        };
        let readers = running.into_iter().flat_map(|node| node.tables()).flat_map(Dense::reader);
        NodeStatus {
            state,
            ready: self.is_ready(node),
            serving: site.map_or(0, Site::serving),
            moving: site.map_or(0, |site| site.len() - site.serving()),
            partitions: running.map_or(0, |node| node.reigns().count()),
            table_bytes: readers.map(|reader| reader.bytes()).sum(),
        }
    }

    /// Returns how a node is connected.
    pub fn links(&self, node: u8) -> Links {
        self.links.get(usize::from(node)).copied().unwrap_or(Links::Whole)
    }

    /// Returns what the cluster has agreed on.
    pub fn cluster(&self) -> ClusterStatus {
        let nodes = (0..self.nodes()).filter_map(|node| self.memory.node(NodeId(node)));
        let newest = nodes.max_by_key(|node| node.view().membership);
        newest.map_or_else(ClusterStatus::default, |node| {
            let view = node.view();
            ClusterStatus {
                coordinator: view.coordinator.map(|member| member.node.0),
                members: view.members.len(),
                epochs: view.owners.values().map(|(epoch, ..)| epoch).sum(),
            }
        })
    }

    /// Returns the sessions that a node handles, of all nodes.
    pub fn serving(&self) -> usize {
        self.sites.iter().flatten().map(Site::serving).sum()
    }

    /// Returns whether a node takes packets from outside.
    pub fn is_ready(&self, node: u8) -> bool {
        let site = self.sites.get(usize::from(node)).and_then(Option::as_ref);
        site.is_some_and(|site| site.is_ready(self.now_us / 1000))
    }

    /// Returns whether another node sees the lease of a node.
    pub fn has_lease(&self, node: u8) -> bool {
        let others = (0..self.nodes()).filter(|&other| other != node);
        let mut others = others.filter_map(|other| self.memory.node(NodeId(other)));
        others.any(|other| other.view().alive.contains_key(&NodeId(node)))
    }

    /// Returns the account of a node.
    pub fn account(&self, node: u8) -> Account {
        let at = usize::from(node);
        let mut account = self.accounts.get(at).copied().unwrap_or_default();
        if let Some(Some(site)) = self.sites.get(at) {
            account.totals.add(&site.totals());
        }
        account
    }

    /// Returns the sum of all accounts.
    pub fn total(&self) -> Account {
        let mut total = Account::default();
        (0..self.nodes()).for_each(|node| total.add(&self.account(node)));
        total
    }

    /// Returns the packets that were forwarded to a node that does not run, or by a cut link.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the accounts of all nodes close, and that of the cluster.
    pub fn closes(&self) -> bool {
        let GatewayTotals { fabric_sent, fabric_received, .. } = self.total().totals;
        let nodes = (0..self.nodes()).all(|node| self.account(node).closes());
        nodes && fabric_sent == fabric_received + self.lost
    }
}
