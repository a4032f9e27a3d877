//! OpenFlow sessions of the rule switch.
//!
//! ```text
//!  ptcp, punix ── listener ──┐                      ┌─ roles (write access), one book for all
//!  tcp, unix ──── connector ─┴─▶ connection ──▶ session ─▶ convert ─▶ Handle ─▶ workers
//!                     hello, echo, bounds    one message     types     rules, ports, packet-outs
//!                                            after the other
//! ```
//! One task for each connection; it reads a message, carries it out, queues the reply. Nothing here
//! is on the way of a packet: workers hand packet-ins over through bounded queues, and rules reach
//! them as snapshots. A peer that sends nonsense, floods or does not read costs itself its session
//! and no other session loses anything.
//!
//! # Bounds
//! All in [`ControlOptions`], each counted in [`ControlCounters`] when it is hit. A session holds
//! at most: `reply_bytes` and one reply more to be sent, one message of 64 KiB to be read,
//! `buffers` and `buffer_bytes` of frames, `packet_ins` and `events` waiting, `bundles` of
//! `bundle_messages`. Large dumps are written piece by piece as the peer reads them. A session
//! whose peer does not read stops taking requests; if the peer takes no byte for `stall`, it ends.
//!
//! What differs from Open vSwitch is in `docs/openflow.md`. Source: OpenFlow Switch Specification
//! 1.3.5, 1.4.1, 1.5.1.

mod admission;
mod asynchronous;
mod buffers;
mod bundles;
mod connection;
pub mod convert;
mod counters;
mod flows;
mod linger;
mod log_limit;
mod outbox;
mod packets;
mod roles;
mod serve;
mod session;
mod statistics;
mod tables;
#[cfg(test)]
mod testing;

use crate::settings::ControllerSettings;
use overbank_declare::settings::Table as _;
use std::sync::Arc;
use std::time::Duration;

pub use buffers::{AGE_MS as BUFFER_AGE_MS, SLOTS_MAX as BUFFERS_MAX};
pub use counters::{ControlCounters, ControlCounts, SharedCounters};
pub use serve::{ControlError, serve, serve_connection};

/// Bounds and times of the control plane.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// Connections that others may have made to us, at one time. For a further one the oldest that
    /// has not said hello gives way; if all have, it is closed at once.
    pub connections: usize,
    /// After so long without a message the peer is asked for an echo; after as long again without
    /// any the session ends. Zero: never.
    pub probe: Duration,
    /// A session whose peer takes no byte of what waits for it for so long ends.
    pub stall: Duration,
    /// A connection that has not said hello after so long ends.
    pub handshake: Duration,
    /// Shortest and longest wait before a controller that was lost is tried again.
    pub backoff: (Duration, Duration),
    /// Limit of bytes waiting to be sent: at it, a session takes no more requests or events, and
    /// packet-ins are dropped.
    pub reply_bytes: usize,
    /// Messages carried out for a session before others have their turn.
    pub messages_per_turn: usize,
    /// Frames kept for each session (at most [`BUFFERS_MAX`]).
    pub buffers: usize,
    /// Bytes of those frames.
    pub buffer_bytes: usize,
    /// Packet-ins that wait for each session.
    pub packet_ins: usize,
    /// Port-status and flow-removed messages that wait for each session.
    pub events: usize,
    /// Open bundles of each session.
    pub bundles: usize,
    /// Messages in all bundles of a session.
    pub bundle_messages: usize,
    /// What a description says about this switch (`dp_desc`).
    pub description: String,
    /// Where it is all counted.
    pub counters: Arc<ControlCounters>,
}

impl Default for ControlOptions {
    /// Returns the defaults of the settings.
    fn default() -> ControlOptions {
        let settings = ControllerSettings::defaults();
        settings.expect("every setting of the table has a default that is right").options()
    }
}
