//! What the control plane counts, for metrics, `overbank top` and the logs.
//!
//! Relaxed atomics beside each other: the control plane is no packet path, and each number is exact
//! by itself.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

overbank_declare::counters! {
    /// The counters at one moment.
    pub struct ControlCounts, shared SharedCounters: "overbank_openflow_" {
        connections: gauge connections "Open connections";
        connections_opened: counter connections "Connections that were accepted or made";
        connections_refused: counter connections
            "Connections closed at once because the limit was reached";
        connections_displaced: counter connections
            "Connections closed before their hello to admit a new one";
        connects_failed: counter attempts "Attempts to reach a controller that failed";
        hellos_missed: counter connections "Connections closed because no hello came in time";
        sessions_opened: counter sessions "Sessions that agreed on a version";
        sessions_broken: counter sessions
            "Connections that the switch ended: malformed messages, and those missed, stalled or displaced";
        echoes_missed: counter sessions "Sessions ended because an echo request was not answered";
        sessions_stalled: counter sessions
            "Sessions ended because the peer read nothing";
        sessions_held: counter times
            "Times a session stopped taking requests because its peer read too slowly";
        messages_in: counter messages "Messages received";
        messages_out: counter messages "Messages sent";
        errors_sent: counter messages "Error messages sent";
        errors_received: counter messages "Error messages received";
        flow_mods: counter messages "Flow-mods carried out";
        bundles_refused: counter bundles "Bundles refused because the session had too many open";
        bundle_messages_refused: counter messages
            "Messages refused because too many waited in the bundles of the session";
        packet_ins_sent: counter packets "Packet-ins sent";
        packet_ins_dropped: counter packets
            "Packet-ins dropped because the controller read too slowly";
        events_dropped: counter events
            "Flow-removed and port-status messages dropped because the controller read too slowly";
        packet_outs: counter packets "Packet-outs carried out";
        packet_outs_waited: counter packets
            "Packet-outs that waited because the queue to the workers was full";
        packet_outs_dropped: counter packets
            "Packet-outs dropped because the workers did not keep up";
        buffers_in_use: gauge frames "Frames in buffers now";
        buffers_full: counter frames "Packet-ins sent whole because no buffer was free";
        bytes_queued: gauge bytes "Bytes waiting to be sent to controllers now";
        bytes_queued_most: gauge bytes "Largest number of bytes that waited to be sent to controllers";
    }
}

/// The counters; one for the whole control plane, in
/// [`ControlOptions::counters`](super::ControlOptions::counters).
#[derive(Debug, Default)]
pub struct ControlCounters {
    counts: SharedCounters,
    listening: Mutex<Vec<SocketAddr>>,
}

impl Deref for ControlCounters {
    type Target = SharedCounters;

    fn deref(&self) -> &SharedCounters {
        &self.counts
    }
}

impl ControlCounters {
    /// Addresses on which TCP targets listen, in the order of the targets.
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn add_listening(&self, address: SocketAddr) {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Takes from a counter that goes up and down.
pub(super) fn uncount(counter: &AtomicU64, by: u64) {
    counter.fetch_sub(by, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_declare::counters::Counters;

    #[test]
    fn a_snapshot_names_every_number() {
        let counters = ControlCounters::default();
        count(&counters.messages_in, 3);
        count(&counters.connections, 2);
        uncount(&counters.connections, 1);
        let mut named = Vec::new();
        counters.snapshot().visit(|counter, _, n| {
            if n != 0 {
                named.push((counter.name, n));
            }
        });
        assert_eq!(named, [("connections", 1), ("messages_in", 3)]);
    }
}
