//! Checkpoints: the counts of a session at the node that would take it over.
//!
//! Once in [`Settings::checkpoint_us`](crate::Settings::checkpoint_us) a node sends the counts of
//! each session that it serves to the session's *heir*: the live member with room that its owner
//! would place it at if this node were gone, by the same rendezvous hashing. Counts that have come
//! from another node go on to the heir at once. So a death loses what was counted since the last
//! checkpoint: also soon after a move, unless the heir has changed less than a round ago or dies
//! too.
//!
//! The heir keeps the counts until the session moves on or is removed, or the membership makes
//! another member the heir; at most [`KEPT_MAX`]. A version tells a session from one that had its
//! name before: versions from the session's birth on are its own, and of these the last one counts.

use std::collections::BTreeMap;

use super::{Action, Actions, Change, Entry, Node};
use crate::etcd::State;
use crate::message::{Counts, Message};
use crate::rib::Rib;
use crate::table::Gpt;
use crate::{Index, Member, Micros, NodeId, Partition, SessionId, Version, rendezvous};

/// Sessions whose counts a node keeps for others: some 100 MB.
const KEPT_MAX: usize = 1 << 20;
/// Rounds after which counts that were not sent again are dropped, and those of a sender that is
/// gone: its sessions are taken over once the log answers.
const ROUNDS_MAX: u64 = 3;
const ROUNDS_GONE_MAX: u64 = 120;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Checkpoints {
    kept: Index<SessionId, Kept>,
    /// The slot from which on sessions are sent next.
    next: u32,
    round: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    from: Member,
    version: Version,
    counts: Counts,
    round: u64,
}

impl<T: Gpt> Node<T> {
    fn heir(&self, session: SessionId, of: Member) -> Option<Member> {
        let others = self.view.in_state(State::Live).filter(|&member| member != of);
        rendezvous(session.0, others.filter(|&member| self.has_room(member)))
    }

    /// Sends checkpoints of some of the sessions: of all of them in a round.
    pub(super) fn checkpoint(&mut self, now: Micros, out: &mut Actions<T>) {
        let (round_us, slots) = (self.settings.checkpoint_us, self.slots.sessions.len() as u64);
        if round_us == 0 {
            return;
        }
        if now / round_us != self.checkpoints.round {
            self.checkpoints.round = now / round_us;
            self.drop_checkpoints();
        }
        let some = (slots * self.settings.beat_us).div_ceil(round_us).min(slots);
        let mut sessions = Vec::new();
        for _ in 0..some {
            let slot = self.checkpoints.next as usize;
            let session = self.slots.sessions.get(slot).copied().flatten();
            let local = session.and_then(|session| Some((session, self.sessions.get(&session)?)));
            let local = local.filter(|(_, local)| local.entry == Entry::Serving);
            sessions.extend(local.map(|(session, local)| (session, local.version)));
            self.checkpoints.next = if slot + 1 < slots as usize { slot as u32 + 1 } else { 0 };
        }
        self.send_checkpoints(sessions, out);
    }

    /// Sends the counts of sessions that are served here to their heirs. The driver adds them.
    pub(super) fn send_checkpoints(
        &self,
        sessions: Vec<(SessionId, Version)>,
        out: &mut Actions<T>,
    ) {
        let mut by_heir = BTreeMap::<NodeId, Vec<_>>::new();
        for session in sessions {
            if let Some(heir) = self.heir(session.0, self.me) {
                by_heir.entry(heir.node).or_default().push(session);
            }
        }
        let message = |list| Message::Checkpoint(list, Vec::new());
        out.extend(by_heir.into_iter().map(|(heir, list)| Action::Send(heir, message(list))));
    }

    pub(super) fn checkpointed(
        &mut self,
        from: Member,
        sessions: &[(SessionId, Version)],
        counts: &[Counts],
    ) {
        let Checkpoints { kept, round, .. } = &mut self.checkpoints;
        for (&(session, version), &counts) in sessions.iter().zip(counts) {
            let serves = |local: &super::Local| local.entry == Entry::Serving;
            if self.view.state(from).is_none() || self.sessions.get(&session).is_some_and(serves) {
                continue;
            }
            let new = Kept { from, version, counts, round: *round };
            let is_full = kept.len() >= KEPT_MAX;
            match kept.get_mut(&session) {
                Some(known) if known.version > version => {}
                Some(known) if known.version == version && known.from == from => {
                    // A late one has lower counts.
                    let highest = std::array::from_fn(|at| known.counts[at].max(counts[at]));
                    *known = Kept { counts: highest, ..new };
                }
                Some(known) => *known = new,
                None if is_full => {}
                None => drop(kept.insert(session, new)),
            }
        }
    }

    /// A session is placed at this node, or has moved on to another, or is removed.
    pub(super) fn take_checkpoint(&mut self, session: SessionId, at: Option<Member>) {
        let kept = &mut self.checkpoints.kept;
        if kept.get(&session).is_some_and(|kept| Some(kept.from) != at) {
            kept.remove(&session);
        }
    }

    /// This node has taken a session over from a member that is gone.
    pub(super) fn taken_over(&mut self, session: SessionId, born: Version, out: &mut Actions<T>) {
        let kept = self.checkpoints.kept.remove(&session).filter(|kept| kept.version >= born);
        let Some(local) = self.sessions.get(&session) else { return };
        let (slot, version, counts) = (local.slot, local.version, kept.map(|kept| kept.counts));
        out.push(Action::Session(Change::TakenOver { slot, counts }));
        if counts.is_some() {
            self.send_checkpoints(vec![(session, version)], out);
        }
    }

    /// A snapshot has taken the place of changes: drops what these would have dropped.
    pub(super) fn image_checkpoints(&mut self, partition: Partition, rib: &Rib) {
        let count = self.settings.partitions;
        self.checkpoints.kept.retain(|session, kept| {
            Partition::of(session.0, count) != partition
                || rib.sessions.get(session).is_some_and(|known| {
                    let target = known.moving.is_some_and(|moving| moving.0 == kept.from);
                    kept.version >= known.born && (known.at == kept.from || target)
                })
        });
    }

    /// Returns whether counts are kept for a session from its birth on.
    pub(super) fn has_checkpoint(&self, session: SessionId, born: Version) -> bool {
        self.checkpoints.kept.get(&session).is_some_and(|kept| kept.version >= born)
    }

    /// Drops what this node is no heir of any more; what was a member's that is gone is waited for.
    pub(super) fn drop_checkpoints(&mut self) {
        let mut all = std::mem::take(&mut self.checkpoints.kept);
        let round = self.checkpoints.round;
        all.retain(|session, kept| {
            let age = round.saturating_sub(kept.round);
            match self.view.state(kept.from) {
                Some(_) => age < ROUNDS_MAX && self.heir(*session, kept.from) == Some(self.me),
                None => age < ROUNDS_GONE_MAX,
            }
        });
        self.checkpoints.kept = all;
    }
}
