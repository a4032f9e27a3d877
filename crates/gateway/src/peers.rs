//! Peers of the sessions here, and whether they answer: path management (TS 29.281, 7.2.1).
//!
//! ```text
//!   interval (60 s) ─▶ Echo Request ─┬─ answered ────────────────────────▶ up
//!                        ▲           └─ 3 s without an answer, 5 requests ─▶ down
//!                        └──────────────┘
//! ```
//!
//! A path is an N3 address and a peer's address. It exists while sessions have it, and is asked in
//! the order in which it is due, first an interval after its first session: at most
//! [`REQUESTS_A_TICK`] requests leave at a time. Of more paths than [`ASKED_MAX`], the others are
//! never asked.
//!
//! No session is changed by what is found: that is for the control plane to decide.
//!
//! In a cluster, a node asks the peers of the sessions that it has. The answer may come in at any
//! node, so the sequence number says whose it is, and most invented ones fail its check:
//!
//! ```text
//!   5 bits: node │ 4 bits: round │ 7 bits: check of path, node, round; by the cluster's secret
//! ```
//!
//! Pure: time and answers come in, requests and events go out. Panics: none.

use crate::fabric::Seed;
use overbank::hash::mix;
use overbank_cluster::NodeId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};

/// Most paths that are asked.
pub const ASKED_MAX: usize = 65_536;
/// Requests of a tick: 6,400 a second.
pub const REQUESTS_A_TICK: usize = 128;
/// Time for an answer (T3-RESPONSE), and requests before a peer is down (N3-REQUESTS).
pub const T3_MS: u64 = 3000;
pub const N3_REQUESTS: u8 = 5;
/// Time of paths that no tick has seen yet.
const NEW: u64 = 0;
/// Events that wait to be read; further ones are counted alone.
const EVENTS_MAX: usize = 16;

/// An N3 address and the address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Path {
    pub n3: IpAddr,
    pub peer: IpAddr,
}

/// Makes and checks sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub seed: Seed,
    pub me: NodeId,
}

const ROUNDS: u8 = 16;

impl Asker {
    /// Returns the sequence number of a request.
    fn sequence(self, path: Path, round: u8) -> u16 {
        let word = |address: IpAddr| match address {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                mix((bits >> 64) as u64) ^ bits as u64
            }
        };
        let own = u16::from(self.me.0 & 31) << 4 | u16::from(round % ROUNDS);
        let tied = mix(self.seed.0 ^ word(path.n3)).wrapping_add(word(path.peer));
        own << 7 | (mix(mix(tied) ^ u64::from(own)) >> 57) as u16
    }

    /// Returns the node that asked for a response; `None`: none did.
    pub fn of(self, path: Path, sequence: u16) -> Option<NodeId> {
        let node = NodeId((sequence >> 11) as u8);
        let round = (sequence >> 7) as u8 % ROUNDS;
        let asker = Asker { me: node, ..self };
        (asker.sequence(path, round) == sequence).then_some(node)
    }
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has not been asked, or not often enough.
    #[default]
    Unknown,
    Up,
    Down,
}

/// Something that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Down(Path),
    /// It answers again.
    Up(Path),
    /// Its restart counter has changed.
    Restarted(Path),
}

/// A peer as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub path: Path,
    pub state: State,
    /// Sessions here.
    pub sessions: u32,
    /// Changes of its restart counter.
    pub restarts: u32,
    /// Time since its last answer.
    pub answered_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    sessions: u32,
    state: State,
    recovery: Option<u8>,
    restarts: u32,
    answered_ms: Option<u64>,
    /// Round of requests: its number, its requests that wait for an answer, and the last of them.
    round: u8,
    requests: u8,
    asked_ms: u64,
    /// When it is asked next; `None`: never.
    due_ms: Option<u64>,
}

overbank_declare::counters! {
    /// Counts of peers.
    pub struct PeerTotals: "overbank_gateway_" {
        paths: gauge paths "Pairs of an N3 address and a peer that sessions here have" as "paths";
        peers_up: gauge paths "Paths whose peer answers" as "paths_up";
        peers_down: gauge paths "Paths whose peer has not answered five Echo Requests"
            as "paths_down";
        peers_unasked: gauge paths "Paths beyond 65,536, which are not asked" as "paths_unasked";
        restarts: counter events "Restart counters of peers that changed" as "peer_restarts";
        went_down: counter events "Peers that no longer answered" as "peer_failures";
        responses: counter packets "Echo Responses to requests of the gateway"
            as "echo_responses" rate;
        stray_responses: counter packets "Echo Responses that nothing waited for"
            as "echo_responses_stray";
    }
}

/// The peers; see the module.
#[derive(Debug, Default)]
pub struct Peers {
    paths: BTreeMap<Path, Peer>,
    /// Paths that are asked, by the time.
    due: BTreeSet<(u64, Path)>,
    /// 0: none is asked.
    interval_ms: u64,
    events: Vec<Event>,
    /// Events that there was no room for.
    missed: u64,
    totals: PeerTotals,
}

impl Peers {
    /// Counts a session of a path in.
    pub fn join(&mut self, path: Path) {
        let asked = self.due.len();
        let peer = self.paths.entry(path).or_default();
        peer.sessions += 1;
        if peer.due_ms.is_none() && asked < ASKED_MAX {
            peer.due_ms = Some(NEW);
            self.due.insert((NEW, path));
        }
    }

    /// Counts a session of a path out.
    pub fn leave(&mut self, path: Path) {
        let Some(peer) = self.paths.get_mut(&path) else { return };
        peer.sessions = peer.sessions.saturating_sub(1);
        if peer.sessions == 0 {
            if let Some(due_ms) = peer.due_ms {
                self.due.remove(&(due_ms, path));
            }
            let state = peer.state;
            self.paths.remove(&path);
            self.count(state, State::Unknown);
        }
    }

    fn count(&mut self, before: State, after: State) {
        let PeerTotals { peers_up: up, peers_down: down, .. } = &mut self.totals;
        *up = *up + u64::from(after == State::Up) - u64::from(before == State::Up);
        *down = *down + u64::from(after == State::Down) - u64::from(before == State::Down);
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        } else {
            self.missed += 1;
        }
    }

    /// Returns what has changed since the last call, and how much more than that.
    pub fn events(&mut self) -> (Vec<Event>, u64) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.missed))
    }

    /// Sets the time between two rounds of requests; 0 asks none, and forgets what was known.
    pub fn set_interval(&mut self, interval_ms: u64) {
        let was_on = std::mem::replace(&mut self.interval_ms, interval_ms) > 0;
        if was_on && interval_ms == 0 {
            for peer in self.paths.values_mut() {
                let due_ms = peer.due_ms.map(|_| NEW);
                *peer = Peer { sessions: peer.sessions, due_ms, ..Peer::default() };
            }
            self.due =
                std::mem::take(&mut self.due).into_iter().map(|(_, path)| (NEW, path)).collect();
            (self.totals.peers_up, self.totals.peers_down) = (0, 0);
        }
    }

    /// Sends requests that are due; `send` returns false if it has no room for more.
    pub fn tick(&mut self, asker: Asker, now_ms: u64, mut send: impl FnMut(Path, u16) -> bool) {
        if self.interval_ms == 0 {
            return;
        }
        for _ in 0..REQUESTS_A_TICK {
            let Some(&(due_ms, path)) = self.due.first() else { return };
            let Some(peer) = self.paths.get_mut(&path).filter(|_| due_ms <= now_ms) else { return };
            let mut peer = *peer;
            let before = peer.state;
            let next_ms = if due_ms == NEW {
                now_ms + self.interval_ms
            } else if peer.requests == N3_REQUESTS {
                (peer.requests, peer.state) = (0, State::Down);
                (peer.asked_ms + self.interval_ms).max(now_ms)
            } else {
                if peer.requests == 0 {
                    peer.round = (peer.round + 1) % ROUNDS;
                }
                if !send(path, asker.sequence(path, peer.round)) {
                    return;
                }
                peer.requests += 1;
                peer.asked_ms = now_ms;
                now_ms + T3_MS
            };
            peer.due_ms = Some(next_ms);
            self.due.remove(&(due_ms, path));
            self.due.insert((next_ms, path));
            self.paths.insert(path, peer);
            self.count(before, peer.state);
            if before != State::Down && peer.state == State::Down {
                self.totals.went_down += 1;
                self.tell(Event::Down(path));
            }
        }
    }

    /// Takes an Echo Response to this node.
    pub fn answer(
        &mut self,
        asker: Asker,
        path: Path,
        sequence: u16,
        recovery: Option<u8>,
        now_ms: u64,
    ) {
        let interval_ms = self.interval_ms;
        let awaited = self
            .paths
            .get_mut(&path)
            .filter(|peer| peer.requests > 0 && sequence == asker.sequence(path, peer.round));
        let Some(peer) = awaited else {
            self.totals.stray_responses += 1;
            return;
        };
        let (before, due_ms) = (peer.state, peer.due_ms);
        let next_ms = peer.asked_ms + interval_ms;
        let restarted = matches!((peer.recovery, recovery), (Some(a), Some(b)) if a != b);
        (peer.state, peer.requests, peer.answered_ms) = (State::Up, 0, Some(now_ms));
        (peer.recovery, peer.due_ms) = (recovery.or(peer.recovery), Some(next_ms));
        peer.restarts += u32::from(restarted);
        if let Some(due_ms) = due_ms {
            self.due.remove(&(due_ms, path));
        }
        self.due.insert((next_ms, path));
        self.totals.responses += 1;
        self.count(before, State::Up);
        if before == State::Down {
            self.tell(Event::Up(path));
        }
        if restarted {
            self.totals.restarts += 1;
            self.tell(Event::Restarted(path));
        }
    }

    pub fn totals(&self) -> PeerTotals {
        let (paths, asked) = (self.paths.len() as u64, self.due.len() as u64);
        PeerTotals { paths, peers_unasked: paths - asked, ..self.totals }
    }

    /// Returns the peers after a path, in order: at most `most`.
    pub fn page(&self, after: Option<Path>, most: usize, now_ms: u64) -> Vec<Shown> {
        let from = after.map_or(Unbounded, Excluded);
        let shown = |(path, peer): (&Path, &Peer)| Shown {
            path: *path,
            state: peer.state,
            sessions: peer.sessions,
            restarts: peer.restarts,
            answered_s: peer.answered_ms.map(|at_ms| now_ms.saturating_sub(at_ms) / 1000),
        };
        self.paths.range((from, Unbounded)).take(most).map(shown).collect()
    }
}

#[cfg(test)]
mod tests;
