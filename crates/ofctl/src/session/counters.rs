//! What the control plane counts, for metrics, `overbank top` and the logs.
//!
//! Relaxed atomics beside each other: the control plane is no packet path, and each number is exact
//! by itself.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What is known of a number beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFamily {
    /// As in the status document.
    pub name: &'static str,
    /// As in the metrics, without the ending of a counter.
    pub metric: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Whether it goes down as well.
    pub gauge: bool,
}

/// Whether the kind of a number is the one that goes down as well.
macro_rules! is_gauge {
    (gauge) => {
        true
    };
    (counter) => {
        false
    };
}

macro_rules! counters {
    ($( #[doc = $help:literal] $name:ident: $kind:tt ),+ $(,)?) => {
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
            $( #[doc = $help] pub $name: u64, )+
        }

        impl ControlCounters {
            /// All numbers as they are now.
            pub fn snapshot(&self) -> ControlSnapshot {
                ControlSnapshot { $( $name: self.$name.load(Relaxed), )+ }
            }
        }

        impl ControlSnapshot {
            /// All numbers there are, in the order of the fields.
            pub const FAMILIES: &[ControlFamily] = &[
                $( ControlFamily {
                    name: stringify!($name),
                    metric: concat!("overbank_openflow_", stringify!($name)),
                    help: $help,
                    gauge: is_gauge!($kind),
                }, )+
            ];

            /// Names and numbers, in the order of the fields.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [ $( (stringify!($name), self.$name) ),+ ].into_iter()
            }
        }
    };
}

counters! {
    /// Connections that stand now
    connections: gauge,
    /// Connections that were accepted or made
    connections_opened: counter,
    /// Connections closed at once because there were too many
    connections_refused: counter,
    /// Connections that had not said hello and gave way to a new one
    connections_displaced: counter,
    /// Attempts to reach a controller that failed
    connects_failed: counter,
    /// Connections closed because no hello came in time
    hellos_missed: counter,
    /// Sessions that got past the choice of a version
    sessions_opened: counter,
    /// Connections that we ended: nonsense, and all that is counted as missed, stalled or displaced
    sessions_broken: counter,
    /// Sessions ended because an echo request was not answered
    echoes_missed: counter,
    /// Sessions ended because the peer read nothing of what waited for it
    sessions_stalled: counter,
    /// Times a session took no more requests because too much waited for its peer
    sessions_held: counter,
    /// Messages received
    messages_in: counter,
    /// Messages sent
    messages_out: counter,
    /// Error messages sent
    errors_sent: counter,
    /// Error messages received
    errors_received: counter,
    /// Flow-mods carried out
    flow_mods: counter,
    /// Bundles refused because the session had too many open
    bundles_refused: counter,
    /// Messages refused because too many waited in the bundles of the session
    bundle_messages_refused: counter,
    /// Packet-ins sent
    packet_ins_sent: counter,
    /// Packet-ins that a session did not get because it reads too slowly
    packet_ins_dropped: counter,
    /// Flow-removed and port-status messages that a session did not get for the same reason
    events_dropped: counter,
    /// Packet-outs carried out
    packet_outs: counter,
    /// Packet-outs that found the queue to the workers full and waited
    packet_outs_waited: counter,
    /// Packet-outs dropped because the workers did not keep up
    packet_outs_dropped: counter,
    /// Frames in buffers now
    buffers_in_use: gauge,
    /// Packet-ins sent whole because no buffer was free
    buffers_full: counter,
    /// Bytes waiting to be sent to controllers now
    bytes_queued: gauge,
    /// The most bytes that ever waited
    bytes_queued_most: gauge,
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
