//! What workers count, and how others read it.
//!
//! ```text
//!   worker: plain numbers, no atomics on the packet path
//!      │  every few milliseconds, when idle, at the end
//!      ▼
//!   Published: version │ words…     written by this worker alone, read by anyone
//! ```
//!
//! A reader gets all numbers of one worker as they were at one instant (sequence lock), so that in
//! every reading, not only the last one, the account of each port closes:
//!
//! - `received = forwarded + to_controller + Σ dropped`: what happened to the frames that came in.
//!   A frame that left by a port is `forwarded`, also if controllers got a copy.
//! - `outputs = sent + queued + Σ not_sent`: what happened to the frames that rules sent to a port.
//!
//! Panics: none.

use crate::l2;
use overbank_handover::publication::Publication;
use overbank_switch::drop::DropReason;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Reasons of this room, after those of the engine.
const DROPS_HERE: [&str; 3] = ["port_blocked", "no_controller", "port_no_packet_in"];
/// A frame came in on a port that shall not receive.
pub const DROP_PORT_BLOCKED: usize = DropReason::COUNT;
/// A frame was for the controllers and none is connected.
pub const DROP_NO_CONTROLLER: usize = DropReason::COUNT + 1;
/// A frame was for the controllers, who want none of its port.
pub const DROP_NO_PACKET_IN: usize = DropReason::COUNT + 2;
/// Where the reasons of the Ethernet switch begin, after the one that it shares.
const L2: usize = DropReason::COUNT + DROPS_HERE.len();
/// How many reasons there are.
pub const DROPS: usize = L2 + l2::DropReason::ALL.len() - 1;

/// The counter of a reason of the Ethernet switch.
pub const fn drop_l2(reason: l2::DropReason) -> usize {
    match reason {
        l2::DropReason::Truncated => DropReason::TruncatedEthernet.index(),
        other => L2 + other as usize - 1,
    }
}

/// The name of a reason.
pub fn drop_name(index: usize) -> &'static str {
    if let Some(reason) = DropReason::ALL.get(index) {
        return reason.name();
    }
    if let Some(name) = DROPS_HERE.get(index - DropReason::COUNT) {
        return name;
    }
    l2::DropReason::ALL.get(index - L2 + 1).map_or("unknown", |reason| reason.name())
}

/// The transmit queue was full.
pub const NOT_SENT_FULL: usize = 0;
/// The frame was longer than the MTU allows.
pub const NOT_SENT_TOO_LONG: usize = 1;
/// The port is down or gone.
pub const NOT_SENT_DOWN: usize = 2;
/// The port shall not forward.
pub const NOT_SENT_BLOCKED: usize = 3;
/// The outside refused what the queue had taken.
pub const NOT_SENT_LOST: usize = 4;
/// The names of the reasons.
pub const NOT_SENT_NAMES: [&str; 5] = ["queue_full", "too_long", "port_down", "blocked", "lost"];

/// What one worker counted at one port.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PortTotals {
    /// Frames that came in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Those that left by a port.
    pub forwarded: u64,
    /// Those that went to the controllers and by no port.
    pub to_controller: u64,
    /// Copies that controllers got of frames that also left by a port, or got once already.
    pub controller_copies: u64,
    /// Those that went nowhere, by reason; see [`drop_name`].
    pub dropped: [u64; DROPS],
    /// Frames that the kernel or the ring lost before we saw them.
    pub missed: u64,
    /// Frames that arrived unusable and were not handed over.
    pub errors: u64,
    /// Frames that were to leave by the port.
    pub outputs: u64,
    /// Those handed to the outside.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Those that wait in the transmit queue; none once it was drained.
    pub queued: u64,
    /// Those that were not sent, by reason; see [`NOT_SENT_NAMES`].
    pub not_sent: [u64; NOT_SENT_NAMES.len()],
}

/// Words of a [`PortTotals`].
const PORT_WORDS: usize = size_of::<PortTotals>() / 8;

impl PortTotals {
    /// Frames that went nowhere.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Frames that were to leave and did not.
    pub fn not_sent_total(&self) -> u64 {
        self.not_sent.iter().sum()
    }

    /// Adds the numbers of another worker.
    pub fn add(&mut self, other: &PortTotals) {
        let mut sum: [u64; PORT_WORDS] = zerocopy::transmute!(*self);
        let other: [u64; PORT_WORDS] = zerocopy::transmute!(*other);
        sum.iter_mut().zip(other).for_each(|(sum, n)| *sum += n);
        *self = zerocopy::transmute!(sum);
    }

    /// Whether both accounts close.
    pub fn closes(&self) -> bool {
        self.received == self.forwarded + self.to_controller + self.dropped_total()
            && self.outputs == self.sent + self.queued + self.not_sent_total()
    }
}

/// What one worker counted of itself.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WorkerTotals {
    /// Packets that went through the datapath.
    pub packets: u64,
    /// Tier 1: looked up.
    pub microflow_lookups: u64,
    /// Tier 1: found and verified.
    pub microflow_hits: u64,
    /// Tier 2: looked up.
    pub megaflow_lookups: u64,
    /// Tier 2: found.
    pub megaflow_hits: u64,
    /// Tier 2: subtables searched.
    pub megaflow_subtables: u64,
    /// Tier 2: megaflows that made room for new ones.
    pub megaflow_evictions: u64,
    /// Tier 2: megaflows removed because they were idle.
    pub megaflow_expirations: u64,
    /// Tier 2: megaflows there are.
    pub megaflows: u64,
    /// Tier 3: packets that went to the classifier.
    pub classifier_lookups: u64,
    /// Bursts processed.
    pub bursts: u64,
    /// Rounds over all ports.
    pub rounds: u64,
    /// Waits for frames.
    pub waits: u64,
    /// Frames that controllers sent.
    pub packet_outs: u64,
    /// Frames queued for the controllers, copies too.
    pub packet_ins: u64,
    /// Frames sent to all ports, as their destination was a group or not known: by the Ethernet
    /// switch and by NORMAL.
    pub flooded: u64,
    /// Stations that were not reported to the core: too many at a time behind their port.
    pub learn_limited: u64,
    /// Stations that were not reported to the core: the queue was full.
    pub learn_queue_full: u64,
    /// Snapshots of the rules taken over.
    pub snapshots: u64,
    /// Version of the snapshot in use.
    pub version: u64,
    /// Cycles of sampled bursts in `receive`.
    pub cycles_receive: u64,
    /// Cycles of sampled bursts in the datapath itself.
    pub cycles_datapath: u64,
    /// Cycles of sampled bursts in `send`, copying frames out.
    pub cycles_send: u64,
    /// Cycles of sampled rounds in `flush`.
    pub cycles_flush: u64,
    /// Frames of sampled bursts.
    pub sampled_packets: u64,
}

/// Words of a [`WorkerTotals`].
const WORKER_WORDS: usize = size_of::<WorkerTotals>() / 8;

impl WorkerTotals {
    /// Adds the numbers of another worker; the version is the older one.
    pub fn add(&mut self, other: &WorkerTotals) {
        let version = self.version.min(other.version);
        let mut sum: [u64; WORKER_WORDS] = zerocopy::transmute!(*self);
        let words: [u64; WORKER_WORDS] = zerocopy::transmute!(*other);
        sum.iter_mut().zip(words).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
        *self = zerocopy::transmute!(sum);
        self.version = version;
    }
}

/// The numbers of one worker for others to read; see the module.
pub struct Published(Publication);

impl Published {
    /// All zero, for so many ports.
    pub fn new(ports: usize) -> Published {
        Published(Publication::new(WORKER_WORDS + ports * PORT_WORDS))
    }

    /// Shows new numbers; one thread only.
    pub fn publish(&self, worker: &WorkerTotals, ports: &[PortTotals]) {
        let head: [u64; WORKER_WORDS] = zerocopy::transmute!(*worker);
        let ports =
            ports.iter().flat_map(|port| -> [u64; PORT_WORDS] { zerocopy::transmute!(*port) });
        self.0.publish(head.into_iter().chain(ports));
    }

    /// The numbers as they were at one instant.
    pub fn read(&self) -> (WorkerTotals, Vec<PortTotals>) {
        let words = self.0.read();
        let (head, ports) = words.split_at(WORKER_WORDS);
        let head = WorkerTotals::read_from_bytes(head.as_bytes()).unwrap_or_default();
        let ports = ports.chunks_exact(PORT_WORDS);
        let ports = ports.map(|w| PortTotals::read_from_bytes(w.as_bytes()).unwrap_or_default());
        (head, ports.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_reading_is_of_one_instant() {
        let published = Published::new(3);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200_000u64 {
                    let worker = WorkerTotals { packets: n, version: n, ..Default::default() };
                    let mut port = PortTotals {
                        received: 2 * n,
                        forwarded: n,
                        outputs: n,
                        ..Default::default()
                    };
                    port.dropped[DROP_PORT_BLOCKED] = n;
                    port.not_sent[NOT_SENT_LOST] = n;
                    published.publish(&worker, &[port; 3]);
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let mut last = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (worker, ports) = published.read();
                assert_eq!(worker.packets, worker.version);
                assert!(worker.packets >= last);
                last = worker.packets;
                assert_eq!(ports.len(), 3);
                for port in ports {
                    assert!(port.closes());
                    assert_eq!(port.forwarded, worker.packets);
                }
            }
        });
        assert_eq!(published.read().0.packets, 199_999);
    }

    #[test]
    fn sums_add_every_number_and_reasons_have_names() {
        let mut one = PortTotals { received: 3, forwarded: 2, ..Default::default() };
        one.dropped[0] = 1;
        one.not_sent = [1, 2, 3, 4, 5];
        let mut sum = one;
        sum.add(&one);
        assert_eq!((sum.received, sum.dropped_total(), sum.not_sent_total()), (6, 2, 30));
        assert!(!one.closes());
        let mut worker = WorkerTotals { version: 5, waits: 1, ..Default::default() };
        worker.add(&WorkerTotals { version: 4, waits: 2, ..Default::default() });
        assert_eq!((worker.version, worker.waits), (4, 3));
        let names: Vec<&str> = (0..DROPS).map(drop_name).collect();
        assert!(names.contains(&"rule_drop") && names.contains(&"no_controller"));
        for reason in l2::DropReason::ALL {
            assert_eq!(drop_name(drop_l2(reason)), reason.name());
        }
        assert!(!names.contains(&"unknown") && drop_name(DROPS) == "unknown");
    }
}
