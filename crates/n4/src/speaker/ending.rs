//! Deletions that go on: begun, refused with cause 77, and not undone.
//!
//! ```text
//!   open ─ deletion begins ─▶ ending: gates closed ─▶ gone, with its last usage
//!                               ▲    │ no answer: again after AGAIN_MS,
//!                               └────┘ and at the speaker after this one
//! ```
//!
//! Each step of a deletion may be done although its answer is lost. Nothing opens the gates again:
//! a session that is ending only ever ends, so late and repeated steps do no harm. It takes no
//! changes. Its last usage goes to the next deletion that its control plane asks for: that one
//! waits for the end, or comes within [`ENDED_MAX`] other such ends.

use super::{Asked, Kept, Speaker};
use crate::message::Refusal;
use crate::speaker::Out;
use crate::store::{Failure, Store};
use overbank_gateway::slab::Counts;
use rs_pfcp::ie::Ie;
use std::net::SocketAddr;

/// Time until a deletion is tried again.
const AGAIN_MS: u64 = 1_000;
/// Sessions whose usage is kept for a deletion that may be asked for again.
const ENDED_MAX: usize = 4096;

/// A session that has ended after its deletion was refused.
pub(super) struct Ended {
    id: u64,
    kept: Kept,
    reports: Vec<Ie>,
}

impl Speaker {
    /// A deletion was not done; returns its refusal. It goes on if it has begun.
    pub(super) fn not_deleted(&mut self, id: u64, failure: &Failure, now_ms: u64) -> Refusal {
        if let Some(record) = self.sessions.get_mut(&id) {
            if let Failure::Unfinished(_, counts) = failure {
                record.kept.ending = true;
                record.last_counts = counts.or(record.last_counts);
            }
            if record.kept.ending {
                self.end_later(id, now_ms);
            }
        }
        failure.because(None)
    }

    pub(super) fn end_later(&mut self, id: u64, now_ms: u64) {
        if let Some(record) = self.sessions.get_mut(&id)
            && !record.awaits_end
        {
            record.awaits_end = true;
            self.ending.push_back((now_ms + AGAIN_MS, id));
        }
    }

    /// Goes on with deletions that are due.
    pub(super) fn end_again(&mut self, now_ms: u64, store: &mut dyn Store, out: &mut Vec<Out>) {
        while let Some(&(due_ms, id)) = self.ending.front()
            && due_ms <= now_ms
        {
            self.ending.pop_front();
            let Some(record) = self.sessions.get_mut(&id) else { continue };
            record.awaits_end = false;
            if self.busy.contains(&id) {
                self.end_later(id, now_ms);
            } else {
                let step = self.deletion(id);
                self.go(None, step, now_ms, store, out);
            }
        }
    }

    /// A session was deleted, with these counts, or those that were read before; returns its last
    /// reports. If no request waits for them, they are kept for the next one.
    pub(super) fn ended(&mut self, id: u64, counts: Option<Counts>, is_asked: bool) -> Vec<Ie> {
        let last_counts = self.sessions.get(&id).and_then(|record| record.last_counts);
        let Some((kept, reports)) = self.deleted(id, counts.or(last_counts).unwrap_or_default())
        else {
            return Vec::new();
        };
        if is_asked {
            return reports;
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { id, kept, reports });
        Vec::new()
    }

    /// Returns the reports of a session whose deletion has gone on to its end.
    pub(super) fn reports_of(
        &mut self,
        seid: Option<u64>,
        from: SocketAddr,
        asked: &mut Asked,
    ) -> Option<Vec<Ie>> {
        let at = self.ended.iter().position(|ended| Some(ended.id) == seid)?;
        if !self.owns(&self.ended[at].kept, from) {
            return None;
        }
        let Ended { kept, reports, .. } = self.ended.remove(at)?;
        asked.seid = Some(kept.cp_seid);
        Some(reports)
    }
}
