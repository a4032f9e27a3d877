//! What all nodes of a cluster agree on, and the mechanisms that tests switch off.

use crate::Micros;

/// Settings of a cluster. Equal on all nodes but for `sessions_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// RIB partitions: a power of two up to 256.
    pub partitions: u16,
    /// Bits of a node number, 1 to 8.
    pub node_bits: u8,
    /// Keys that the table of a partition is planned for; larger ones take its place, up to sixteen
    /// times as many.
    pub partition_keys: usize,
    /// Lease in etcd.
    pub lease_us: Micros,
    /// By how much two clocks may differ over a lease.
    pub margin_us: Micros,
    /// Interval of beats, retries and checks.
    pub beat_us: Micros,
    /// Time after which an unanswered request to etcd or to the log is repeated.
    pub retry_us: Micros,
    /// Time after which a node that lags is suspended as ingress.
    pub suspend_us: Micros,
    /// Time for which a freed key rests.
    pub rest_us: Micros,
    /// Time for which a key stays reserved, and for which a request waits.
    pub reserve_us: Micros,
    /// Time in which the counts of each session go to the node that would take it over; 0: never.
    pub checkpoint_us: Micros,
    /// Changes of a batch at most.
    pub batch_max: usize,
    /// Bytes of a batch's changes from which on no more are added. With the last one, and with as
    /// many bytes of deltas or an image, a batch stays below the log's limit (1 MiB).
    pub batch_bytes: usize,
    /// Bytes of a session's context at most.
    pub context_max: usize,
    /// Requests that an owner, and the node that they come to, keeps at most; others are refused.
    pub queue_max: usize,
    /// Changes of keys in a batch from which on an owner builds the table anew, if they are a
    /// 32nd of its keys: it costs less than the single changes.
    pub rebuild_from: usize,
    /// Batches between two snapshots of a partition, if they are a 16th of its sessions: a node
    /// that joins goes through all batches since the last one.
    pub snapshot_every: u64,
    /// Changes between two snapshots of a partition, if they are as many as its sessions.
    pub snapshot_changes: usize,
    /// Time after which a partition gets a snapshot in any case, so that the log does not keep old
    /// changes.
    pub snapshot_us: Micros,
    /// Whether a request is answered once its change is in the log, and not only when all members
    /// that take packets have applied it.
    pub answers_early: bool,
    /// Sessions that this node has room for, with those that are moving away.
    pub sessions_max: u32,
    /// Sessions that a draining node moves in a second, and an owner to even them out.
    pub drain_rate: u64,
    /// Whether one of the nodes is the speaker.
    pub speaker: bool,
    /// What is switched on.
    pub mechanisms: Mechanisms,
}

impl Settings {
    /// Sessions that a node moves away in a beat, by itself.
    pub(crate) const fn moves_a_beat(&self) -> usize {
        let moves = self.drain_rate * self.beat_us / 1_000_000;
        if moves == 0 { 1 } else { moves as usize }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            partitions: 64,
            node_bits: 4,
            partition_keys: 16 << 10,
            lease_us: 3_000_000,
            margin_us: 300_000,
            beat_us: 50_000,
            retry_us: 500_000,
            suspend_us: 5_000_000,
            rest_us: 60_000_000,
            reserve_us: 10_000_000,
            checkpoint_us: 5_000_000,
            batch_max: 1024,
            batch_bytes: 512 << 10,
            context_max: 16 << 10,
            queue_max: 1 << 16,
            rebuild_from: 256,
            snapshot_every: 128,
            snapshot_changes: 1 << 15,
            snapshot_us: 300_000_000,
            answers_early: false,
            sessions_max: u32::MAX,
            drain_rate: 100_000,
            speaker: false,
            mechanisms: Mechanisms::default(),
        }
    }
}

/// What the guarantees rest on. All are on; tests switch one off to see its guarantee fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mechanisms {
    /// Owners append under an expected last sequence number, and replicas refuse older epochs.
    pub epochs: bool,
    /// The source of a move forwards until all members have applied its delta.
    pub stubs: bool,
    /// A node stops by its own clock before its lease ends.
    pub fencing: bool,
    /// A replica applies the next batch only, and fetches those that it lacks.
    pub gaps: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self { epochs: true, stubs: true, fencing: true, gaps: true }
    }
}
