//! Heartbeats to control planes: whether they answer, and whether they have restarted.
//!
//! One to each address that has associations, once a minute. A control plane without an answer
//! keeps its associations and sessions: it may be back before anything is lost. It is counted.
//!
//! A heartbeat has a Recovery Time Stamp and no Node ID, so it may come from any node at its
//! address. It ends the sessions of a node only if
//!
//! - the setup of that node's association came from the same address and port, and that of no other
//!   association did, and
//! - the stamp is later than that of the setup: an earlier one is late on its way.
//!
//! Else it ends nothing: the node has to set up its association anew before it goes on, and that
//! request has a Node ID.

use super::report::{N1, T1_MS};
use super::step::Then;
use super::{Out, PORT, Speaker};
use crate::message::{Received, emit};
use crate::store::Store;
use rs_pfcp::message::MsgType;
use std::net::SocketAddr;

/// Time between an answer and the next heartbeat.
const EVERY_MS: u64 = 60_000;

/// The heartbeats of an address.
pub(super) struct Beat {
    /// Of the one without an answer.
    sequence: Option<u32>,
    /// When it is sent again, or the next one is.
    due_ms: u64,
    /// How often it is sent again.
    left: u32,
    /// Whether the last one has found no answer.
    pub(super) silent: bool,
}

impl Beat {
    fn new(now_ms: u64, silent: bool) -> Beat {
        Beat { sequence: None, due_ms: now_ms + EVERY_MS, left: N1, silent }
    }
}

impl Speaker {
    /// Sends heartbeats that are due.
    pub(super) fn beat(&mut self, now_ms: u64, out: &mut Vec<Out>) {
        let Speaker { associations, beats, .. } = self;
        beats.retain(|peer, _| associations.values().any(|of| of.from.ip() == *peer));
        for of in associations.values() {
            beats.entry(of.from.ip()).or_insert_with(|| Beat::new(now_ms, false));
        }
        let due = beats.iter().filter(|(_, beat)| now_ms >= beat.due_ms);
        let due: Vec<_> = due.map(|(peer, _)| *peer).collect();
        for peer in due {
            let (next, recovery) = (self.next_sequence(), self.recovery());
            let Some(beat) = self.beats.get_mut(&peer) else { continue };
            let sequence = match beat.sequence {
                Some(_) if beat.left == 0 => {
                    *beat = Beat::new(now_ms, true);
                    continue;
                }
                Some(sequence) => {
                    beat.left -= 1;
                    sequence
                }
                None => next,
            };
            (beat.sequence, beat.due_ms) = (Some(sequence), now_ms + T1_MS);
            let bytes = emit(MsgType::HeartbeatRequest, None, sequence, &[recovery]);
            out.push(Out::Send { to: SocketAddr::new(peer, PORT), bytes });
        }
    }

    /// Takes the answer to a heartbeat.
    pub(super) fn answered_beat(
        &mut self,
        answer: &Received,
        from: SocketAddr,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let beat = self.beats.get_mut(&from.ip());
        let Some(beat) = beat.filter(|beat| beat.sequence == Some(answer.sequence)) else {
            self.totals.garbage += 1;
            return;
        };
        *beat = Beat::new(now_ms, false);
        let ies = answer.ies.as_ref().ok();
        if let Some(node) = ies.and_then(|ies| self.restarted(from, ies)) {
            self.forget(None, &node, Then::Release, now_ms, store, out);
        }
    }
}
