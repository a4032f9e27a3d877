//! What is known of a node and of the cluster: states, sizes, accounts.

use crate::engine::GatewayTotals;
use crate::reason::DropReason;
use overbank_declare::counters::Counters as _;
use overbank_reasons::Reasons;

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It does not run.
    Down,
    /// It applies what it lacks.
    Joining,
    Live,
    /// It lags too long.
    Suspended,
    /// It gives its sessions away.
    Draining,
    /// It has given all away. It runs on, without sessions.
    Left,
}

impl NodeState {
    pub const fn name(self) -> &'static str {
        match self {
            NodeState::Down => "down",
            NodeState::Joining => "joining",
            NodeState::Live => "live",
            NodeState::Suspended => "suspended",
            NodeState::Draining => "draining",
            NodeState::Left => "left",
        }
    }
}

/// What a node is and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub state: NodeState,
    /// It takes packets from outside.
    pub ready: bool,
    /// Sessions that it handles.
    pub serving: usize,
    /// Sessions on their way here, and those that have gone and whose packets it forwards.
    pub moving: usize,
    /// Partitions of the RIB that it owns.
    pub partitions: usize,
    /// Bytes that lookups of the partition table read, for all sessions of the cluster.
    pub table_bytes: usize,
}

/// What became of packets at a node, over all of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Packets from outside.
    pub received: u64,
    pub totals: GatewayTotals,
    pub dropped: [u64; DropReason::COUNT],
}

impl Default for Account {
    fn default() -> Account {
        let (received, totals) = (0, GatewayTotals::default());
        Account { received, totals, dropped: [0; DropReason::COUNT] }
    }
}

impl Account {
    /// Returns the packets that left by N3 and N6.
    pub const fn handled(&self) -> u64 {
        self.totals.uplink + self.totals.downlink
    }

    pub fn dropped(&self) -> u64 {
        // Notes are counted there, too, and are no packets.
        self.dropped.iter().sum::<u64>() - self.totals.notes_received
    }

    pub fn add(&mut self, other: &Account) {
        self.received += other.received;
        self.totals.add(&other.totals);
        self.dropped.iter_mut().zip(other.dropped).for_each(|(to, more)| *to += more);
    }

    /// Whether each packet had one fate.
    pub fn closes(&self) -> bool {
        let GatewayTotals { fabric_sent, fabric_received, echo_answered, .. } = self.totals;
        let fates = self.handled() + fabric_sent + echo_answered + self.dropped();
        self.received + fabric_received == fates
    }
}

/// Answers to moves that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    pub asked: u64,
    pub done: u64,
    pub refused: u64,
}

/// What the cluster has agreed on, as the node with the newest membership knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    pub coordinator: Option<u8>,
    /// Nodes of the membership.
    pub members: usize,
    /// Times that a partition of the RIB changed its owner: the sum of all epochs.
    pub epochs: u64,
}

/// Packets that left by N3 and N6, as [`Local::watch`](super::Local::watch) has them checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// The node handles the terminal's session, and no other ready node does; tunnel and addresses
    /// are those of the terminal that the payload names.
    pub right: u64,
    pub misrouted: u64,
}
