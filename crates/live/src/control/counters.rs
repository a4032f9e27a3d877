//! What the control plane counts, for metrics, `overbank top` and the logs.
//!
//! Relaxed atomics beside each other: the control plane is no packet path, and each number is exact
//! by itself.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident ),+ $(,)?) => {
        /// The counters; one for the whole control plane, in
        /// [`ControlOptions::counters`](super::ControlOptions::counters).
        #[derive(Debug, Default)]
        pub struct ControlCounters {
            $( pub(super) $name: AtomicU64, )+
            listening: Mutex<Vec<SocketAddr>>,
        }

        /// The counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct ControlSnapshot {
            $( $(#[$doc])* pub $name: u64, )+
        }

        impl ControlCounters {
            /// All numbers as they are now.
            pub fn snapshot(&self) -> ControlSnapshot {
                ControlSnapshot { $( $name: self.$name.load(Relaxed), )+ }
            }
        }

        impl ControlSnapshot {
            /// Names and numbers, in the order of the fields.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [ $( (stringify!($name), self.$name) ),+ ].into_iter()
            }
        }
    };
}

counters! {
    /// Connections that stand now; goes up and down.
    connections,
    /// Connections that were accepted or made.
    connections_total,
    /// Connections that were closed at once because there were too many.
    connections_refused,
    /// Attempts to reach a controller that failed.
    connects_failed,
    /// Sessions that got past the choice of a version.
    sessions_total,
    /// Sessions that we ended: no answer to an echo, nothing read for too long, a broken stream.
    sessions_broken,
    /// Messages received.
    messages_in,
    /// Messages sent.
    messages_out,
    /// Error messages sent.
    errors_sent,
    /// Error messages received.
    errors_received,
    /// Flow-mods carried out.
    flow_mods,
    /// Packet-ins sent.
    packet_ins_sent,
    /// Packet-ins that a session did not get because it reads too slowly.
    packet_ins_dropped,
    /// Flow-removed and port-status messages that a session did not get for the same reason.
    events_dropped,
    /// Packet-outs carried out.
    packet_outs,
    /// Packet-outs dropped because the workers did not keep up.
    packet_outs_dropped,
    /// Frames in buffers now; goes up and down.
    buffers_in_use,
    /// Packet-ins sent whole because no buffer was free.
    buffers_full,
    /// Bytes waiting to be sent to controllers now; goes up and down.
    bytes_queued,
    /// The most bytes that ever waited.
    bytes_queued_most,
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

    #[test]
    fn a_snapshot_names_every_number() {
        let counters = ControlCounters::default();
        count(&counters.messages_in, 3);
        count(&counters.connections, 2);
        uncount(&counters.connections, 1);
        let snapshot = counters.snapshot();
        assert_eq!((snapshot.messages_in, snapshot.connections), (3, 1));
        let named: Vec<_> = snapshot.named().filter(|(_, number)| *number != 0).collect();
        assert_eq!(named, [("connections", 1), ("messages_in", 3)]);
    }
}
