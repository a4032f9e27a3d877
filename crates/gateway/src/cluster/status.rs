//! What a node shows of its cluster: status, metrics, and why it takes no packets.

use super::Clustered;
use crate::fabric::Relay;
use overbank_cluster::etcd::State;
use overbank_cluster::table::Dense;
use overbank_cluster::{Node, NodeId};
use overbank_declare::counters::{Exposition, Gauge};
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;

/// Time between two looks at what changes all the time.
const LOOK_EVERY_MS: u64 = 200;
/// Time after which the log says why a node does not join: longer than a lease is by default.
const WARN_AFTER_MS: u64 = 10_000;

overbank_declare::counters! {
    /// A node of a cluster.
    pub struct ClusterTotals: "overbank_gateway_cluster_" {
        live: gauge nodes "Members of the cluster that take packets and sessions" as "live";
        partitions: gauge partitions "Partitions whose sessions this node keeps the log of"
            as "partitions";
        serving: gauge sessions "Sessions of the cluster at this node, by what it does for them"
            as "sessions" {state = "serving"};
        arriving: gauge sessions "Sessions that move to this node"
            as "sessions" {state = "arriving"};
        moved: gauge sessions "Sessions that have moved on, whose packets are forwarded"
            as "sessions" {state = "moved"};
        refused: counter sessions "Sessions of the cluster that do not fit this node"
            as "sessions_refused";
        to_drain: gauge sessions "Sessions at this node when it began to give them away"
            as "to_drain";
        homeless: gauge sessions "Sessions of its partitions whose node is gone, and no node has room"
            as "homeless";
        lag: gauge batches "Batches of the log that are known here and not applied"
            as "lag_batches";
        valid_ms: gauge ms "Milliseconds until this node is fenced, if it hears nothing more"
            as "valid_milliseconds";
    }
}

/// A member as a node knows it.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    pub node: u8,
    /// Number of its run.
    pub run: u64,
    pub state: &'static str,
    /// Whether its lease stands.
    pub alive: bool,
    /// Address of its port to the fabric.
    pub mac: Option<String>,
    /// Sessions at it, by its last word.
    pub sessions: Option<u32>,
    /// Sessions that it has room for besides.
    pub room: Option<u32>,
}

/// The cluster as a node knows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterStatus {
    pub node: u8,
    pub run: u64,
    /// Absent: it is no member.
    pub state: Option<&'static str>,
    /// Why it takes no packets from outside.
    pub unready: Option<String>,
    pub coordinator: Option<u8>,
    /// The node that answers the control plane.
    pub speaker: Option<u8>,
    #[serde(flatten, serialize_with = "overbank_declare::counters::serialize")]
    pub totals: ClusterTotals,
    pub members: Vec<MemberStatus>,
}

const MEMBER: Gauge = Gauge {
    name: "overbank_gateway_cluster_member_sessions",
    help: "Sessions at each member of the cluster, by its last word",
    labels: &["node", "state"],
};
const ROOM: Gauge = Gauge {
    name: "overbank_gateway_cluster_member_room",
    help: "Sessions that each member of the cluster has room for besides, by its last word",
    labels: &["node", "state"],
};
const COORDINATOR: Gauge = Gauge {
    name: "overbank_gateway_cluster_coordinator",
    help: "Node that changes the membership",
    labels: &[],
};
const SPEAKER: Gauge = Gauge {
    name: "overbank_gateway_cluster_speaker",
    help: "Node that answers the control plane",
    labels: &[],
};

/// Metrics of a cluster that are computed and not counted.
pub const CLUSTER_GAUGES: [Gauge; 4] = [MEMBER, ROOM, COORDINATOR, SPEAKER];

impl ClusterStatus {
    pub(crate) fn expose(&self, to: &mut Exposition) {
        to.add(&[], &self.totals);
        for member in &self.members {
            let node = member.node.to_string();
            let labels: [&str; 2] = [&node, member.state];
            to.gauge(&MEMBER, &labels, member.sessions.unwrap_or(0).into());
            to.gauge(&ROOM, &labels, member.room.unwrap_or(0).into());
        }
        for (gauge, node) in [(&COORDINATOR, self.coordinator), (&SPEAKER, self.speaker)] {
            if let Some(node) = node {
                to.gauge(gauge, &[], node.into());
            }
        }
    }
}

/// State of a member that gives its sessions away.
pub const DRAINING: &str = "draining";

const fn name(state: State) -> &'static str {
    match state {
        State::Suspended => "suspended",
        State::Catching => "catching up",
        State::Live => "live",
        State::Draining => DRAINING,
    }
}

/// What [`Clustered`] keeps for its status.
#[derive(Default)]
pub(super) struct Seen {
    status: ClusterStatus,
    looked_ms: Option<u64>,
    /// Why it cannot join, since when, and whether the log says so.
    waits: Option<(String, u64, bool)>,
}

impl Seen {
    /// Notes that a session is here, or no longer, or what is done for it.
    pub(super) fn count(&mut self, relay: Option<Relay>, is_here: bool) {
        let totals = &mut self.status.totals;
        let count = match relay {
            None => &mut totals.serving,
            Some(relay) if relay.standby => &mut totals.arriving,
            Some(_) => &mut totals.moved,
        };
        *count = if is_here { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Notes that a session does not fit.
    pub(super) fn refuse(&mut self) {
        self.status.totals.refused += 1;
    }

    /// A run is over.
    pub(super) fn end(&mut self) {
        let refused = self.status.totals.refused;
        *self = Seen::default();
        self.status.totals.refused = refused;
    }

    /// Looks at the node, now and then.
    pub(super) fn look(&mut self, node: &Node<Dense>, now_ms: u64) {
        if self.looked_ms.is_some_and(|last| now_ms < last + LOOK_EVERY_MS) {
            return;
        }
        self.looked_ms = Some(now_ms);
        let (view, me, status) = (node.view(), node.me(), &mut self.status);
        (status.node, status.run) = (me.node.0, me.incarnation);
        status.state = node.state().map(name);
        status.coordinator = view.coordinator.map(|member| member.node.0);
        status.speaker = view.speaker.map(|speaker| speaker.0.node.0);
        let members = view.members.values().map(|&(member, state)| MemberStatus {
            node: member.node.0,
            run: member.incarnation,
            state: name(state),
            alive: view.is_alive(member),
            mac: view.info(member).and_then(|info| info.as_ref().try_into().ok()).map(text),
            sessions: node.beat_of(member).map(|beat| beat.sessions),
            room: node.beat_of(member).map(|beat| beat.room),
        });
        status.members = members.collect();
        let totals = &mut status.totals;
        totals.live = view.in_state(State::Live).count() as u64;
        totals.partitions = node.reigns().count() as u64;
        totals.homeless = node.homeless() as u64;
        totals.lag = node.lag();
        let drains = node.state() == Some(State::Draining);
        totals.to_drain = match totals.to_drain {
            _ if !drains => 0,
            0 => totals.serving + totals.arriving,
            begun => begun,
        };
        self.wait(waits_for(node), now_ms);
    }

    fn wait(&mut self, waits: Option<String>, now_ms: u64) {
        let Some(why) = waits else {
            self.waits = None;
            return;
        };
        match &mut self.waits {
            Some((known, since, told)) if *known == why => {
                if !*told && now_ms >= *since + WARN_AFTER_MS {
                    *told = true;
                    tracing::warn!(why, "the node cannot join its cluster");
                }
            }
            other => *other = Some((why, now_ms, false)),
        }
    }
}

/// Returns what a node waits for that is no member, and that does not come by itself.
fn waits_for(node: &Node<Dense>) -> Option<String> {
    let (view, me) = (node.view(), node.me());
    if node.state().is_some() {
        return None;
    }
    let rival = view.alive.get(&me.node).filter(|alive| alive.0.member != me);
    if rival.is_some() {
        return Some(format!(
            "another process is node {} of the cluster: end it, or wait until its lease is over",
            me.node.0
        ));
    }
    let lives = view.members.values().any(|member| view.is_alive(member.0));
    if view.members.is_empty() || lives || view.members.contains_key(&me.node) {
        return None;
    }
    let gone: Vec<String> = view.members.keys().map(|node| node.0.to_string()).collect();
    let gone = gone.join(", ");
    Some(format!("no member of the cluster lives ({gone}): start a node with one of these numbers"))
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Clustered {
    /// Returns what is shown of the cluster.
    pub fn status(&self, now_ms: u64) -> ClusterStatus {
        let mut status = self.seen_status.status.clone();
        status.node = self.seat().me.0;
        status.unready = self.unready(now_ms);
        status.totals.valid_ms = self.valid_until_ms.load(Relaxed).saturating_sub(now_ms);
        status
    }

    /// Returns why this node takes no packets from outside, if it does not.
    pub fn unready(&self, now_ms: u64) -> Option<String> {
        if let Some((why, ..)) = &self.seen_status.waits {
            return Some(why.clone());
        }
        let why = if now_ms >= self.valid_until_ms.load(Relaxed) {
            "the node has not joined its cluster, or has lost it"
        } else if !self.ingress {
            "the node joins its cluster, or is suspended"
        } else if self.draining {
            "the node gives its sessions away"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Whether this node takes packets from outside.
    pub fn is_ready(&self, now_ms: u64) -> bool {
        now_ms < self.valid_until_ms.load(Relaxed) && self.ingress && !self.draining
    }

    /// Returns how many sessions of the cluster did not fit this gateway.
    pub const fn refused(&self) -> u64 {
        self.seen_status.status.totals.refused
    }

    /// Returns the number of sessions that this node handles.
    #[cfg(test)]
    pub(crate) const fn serving(&self) -> u64 {
        self.seen_status.status.totals.serving
    }

    /// Returns the number of sessions of the cluster, by the last words of its members.
    pub fn total(&self) -> u64 {
        let members = self.seen_status.status.members.iter();
        members.map(|member| u64::from(member.sessions.unwrap_or(0))).sum()
    }

    /// Returns how many sessions the live members have room for, by their last words; one that has
    /// said nothing yet is taken to have that of this node.
    pub fn capacity(&self, own: usize) -> usize {
        let live = |member: &&MemberStatus| member.state == name(State::Live);
        let members = self.seen_status.status.members.iter().filter(live);
        let of = |member: &MemberStatus| Some((member.sessions? + member.room?) as usize);
        members.map(|member| of(member).unwrap_or(own)).sum::<usize>().max(own)
    }

    /// Returns the state of a member; `None`: it is none.
    pub fn member(&self, node: NodeId) -> Option<&MemberStatus> {
        self.seen_status.status.members.iter().find(|member| member.node == node.0)
    }
}
