//! Leases, beats, and when a node must stop.
//!
//! A node is *valid*, that is, it handles and forwards, while one of two holds by its own clock:
//! - its lease: from the sending of the last renewal that was answered, less the margin;
//! - *every* other member has confirmed within that time to know no newer membership. A member that
//!   has confirmed removes the node a lease time later at the earliest, and only members remove. So
//!   this outlives a change of the membership, but for members that are new in it.

use std::sync::Arc;

use super::{Action, Actions, Heard, Node};
use crate::etcd::{self, Lease, State};
use crate::message::{Beat, Message};
use crate::table::Gpt;
use crate::{Member, Micros, Revision, Sequence};

impl<T: Gpt> Node<T> {
    fn lease(&self) -> Lease {
        Lease { member: self.me, nth: self.leases }
    }

    /// Whether etcd shows the sign of life of this run under the lease in use.
    fn is_held(&self) -> bool {
        self.view.alive.get(&self.me.node).is_some_and(|alive| alive.0 == self.lease())
    }

    /// The time for which a request that was sent and answered is good.
    fn good_us(&self) -> Micros {
        self.settings.lease_us - self.settings.margin_us
    }

    /// Returns until when this node handles and forwards packets, unless it hears more.
    pub fn valid_until(&self) -> Micros {
        if !self.settings.mechanisms.fencing {
            return Micros::MAX;
        }
        if self.view.state(self.me).is_none() {
            return 0;
        }
        let lease = if self.is_held() { self.lease_until } else { 0 };
        if self.is_asking() {
            return lease;
        }
        let others = self.view.members.values().filter(|of| of.0 != self.me);
        let confirmed =
            others.map(|of| self.confirmed.get(&of.0).map_or(0, |sent| sent + self.good_us()));
        lease.max(confirmed.min().unwrap_or(Micros::MAX))
    }

    pub(super) fn hold_lease(&mut self, now: Micros, out: &mut Actions<T>) {
        if self.lease_asked.is_some() && self.leases > 0 {
            let (lease, sent) = (self.lease(), now);
            let due = self.lease_asked.is_none_or(|at| now >= at + self.settings.lease_us / 6);
            if due {
                self.lease_asked = Some(now);
                // A grant that was lost is found out by the renewal, which expires.
                out.push(Action::Etcd(etcd::Request::KeepAlive { lease, sent }));
            }
        } else {
            self.leases += 1;
            self.lease_asked = Some(now);
            let (lease, sent) = (self.lease(), now);
            out.push(Action::Etcd(etcd::Request::Grant { lease, sent }));
        }
        self.show_life(now, out);
    }

    /// Writes the sign of life. A member whose sign of life had gone writes it only if the
    /// membership that has it as a member still stands.
    fn show_life(&mut self, now: Micros, out: &mut Actions<T>) {
        if self.is_held() || now >= self.lease_until {
            return;
        }
        let key = etcd::Key::Alive(self.me.node);
        let mut compare = vec![(key, 0)];
        if self.view.state(self.me).is_some() {
            compare.push((etcd::Key::Members, self.view.membership));
        }
        let lease = self.lease();
        let value = etcd::Value::Alive(lease, Arc::clone(&self.info));
        out.push(Action::Etcd(etcd::Request::Txn { compare, key, value, lease: Some(lease) }));
    }

    pub(super) fn etcd(&mut self, now: Micros, reply: etcd::Reply, out: &mut Actions<T>) {
        match reply {
            etcd::Reply::Alive { lease, sent } if lease == self.lease() => {
                self.lease_until = self.lease_until.max(sent + self.good_us());
                self.show_life(now, out);
            }
            etcd::Reply::Expired { lease } if lease == self.lease() => {
                self.lease_asked = None;
                self.lease_until = 0;
                self.hold_lease(now, out);
            }
            etcd::Reply::Alive { .. } | etcd::Reply::Expired { .. } => {}
            etcd::Reply::Watch { revision, key, value } => {
                let was_member = self.view.state(self.me).is_some();
                self.watched += 1;
                self.view.watch(revision, key, value);
                match key {
                    etcd::Key::Members => self.membership_changed(now, was_member, out),
                    etcd::Key::Owner(partition) => self.owner_changed(now, partition, out),
                    etcd::Key::Alive(_) | etcd::Key::Coordinator => self.coordinate(now, out),
                    etcd::Key::Speaker | etcd::Key::Shared => {}
                }
            }
        }
    }

    fn membership_changed(&mut self, now: Micros, was_member: bool, out: &mut Actions<T>) {
        if was_member && self.view.state(self.me).is_none() {
            self.ended = true;
            return out.push(Action::End { again: self.drain.is_none() });
        }
        let view = &self.view;
        self.heard.retain(|_, heard| view.state(heard.member).is_some());
        // What members have promised holds under the next membership, too; new ones have promised
        // nothing, and wait for a lease time.
        self.confirmed.retain(|&member, _| view.state(member).is_some());
        if !was_member && view.state(self.me).is_some() {
            self.joined = now;
        }
        self.members_changed_sessions(now, out);
        self.members_changed_owners();
        self.coordinate(now, out);
    }

    /// Tells all nodes what this one has.
    pub(super) fn report(&mut self, now: Micros, out: &mut Actions<T>) {
        if self.state().is_none() {
            return;
        }
        let digests = self.announce();
        let applied: Arc<[Sequence]> = self.replicas.iter().map(|r| r.applied).collect();
        let caught_up = self.is_caught_up() && !self.has_orphans();
        let owned = self.owners.iter().filter(|(_, owner)| owner.reigns());
        let beat = Arc::new(Beat {
            sent: now,
            membership: self.view.membership,
            applied,
            owned: owned.map(|(&p, owner)| (p, owner.last())).collect(),
            digests,
            caught_up,
            draining: self.drain.is_some(),
            sessions: self.sessions.len().saturating_sub(self.stubs.len()) as u32,
            room: self.room_here(),
        });
        out.push(Action::Broadcast(Arc::clone(&beat)));
        self.heard(now, self.me, beat, out);
    }

    /// Whether sessions of its partitions are still to be taken from members that are gone, such as
    /// its earlier run if it starts again alone. Asked while this node is catching.
    fn has_orphans(&mut self) -> bool {
        self.state() == Some(State::Catching) && self.find_orphans()
    }

    /// Whether it has applied all that was there when the owners had counted it as a member: what
    /// comes later, they keep stubs for until this node has applied it.
    fn is_caught_up(&self) -> bool {
        self.replicas.iter().enumerate().all(|(at, replica)| {
            let partition = crate::Partition(at as u16);
            let owner = self.view.owner(partition);
            let heard = owner.and_then(|owner| {
                let own = self.heard.get(&owner.node).filter(|heard| heard.member == owner)?;
                let last = own.beat.owned.iter().find(|owned| owned.0 == partition)?.1;
                (own.beat.membership >= self.view.membership).then_some(last)
            });
            heard.is_some_and(|last| replica.applied >= last)
        })
    }

    pub(super) fn heard(
        &mut self,
        now: Micros,
        from: Member,
        beat: Arc<Beat>,
        out: &mut Actions<T>,
    ) {
        if self.view.state(from).is_none() {
            return;
        }
        let before = self.heard.get(&from.node);
        if before.is_some_and(|heard| heard.beat.sent >= beat.sent) {
            return;
        }
        let behind = |of: &[Sequence]| beat.applied.iter().zip(of).any(|(theirs, of)| theirs < of);
        let lag = before.and_then(|heard| heard.lag.clone()).filter(|lag| behind(&lag.1));
        let mine = self.heard.get(&self.me.node).map(|heard| &heard.beat.applied);
        let lag = lag.or_else(|| Some((now, Arc::clone(mine.filter(|mine| behind(mine))?))));
        for &(partition, last) in &beat.owned {
            if let Some(replica) = self.replicas.get_mut(partition.index()) {
                replica.known = replica.known.max(last);
            }
        }
        if beat.applied.len() != self.replicas.len() {
            return; // Of another cluster.
        }
        let (sent, membership) = (beat.sent, beat.membership);
        self.compare(now, &beat.digests, out);
        self.took(from.node, &beat.applied);
        self.heard.insert(from.node, Heard { member: from, beat, lag });
        let is_current = membership == self.view.membership && !self.is_asking();
        if from != self.me && is_current && self.view.is_alive(from) {
            self.promised.insert(from.node, now);
            let confirm = Message::Confirm { sent, membership };
            out.push(Action::Send(from.node, confirm));
        }
        self.turn_ready(now, from, out);
    }

    pub(super) fn confirmed(&mut self, from: Member, sent: Micros, membership: Revision) {
        if membership == self.view.membership && self.view.state(from).is_some() {
            let last = self.confirmed.entry(from).or_default();
            *last = sent.max(*last);
        }
    }

    /// The lowest sequence number of a partition that all members have applied; without the
    /// suspended ones if `ingress`.
    pub(super) fn floor(&self, partition: crate::Partition, ingress: bool) -> Sequence {
        let counted = self.view.members.values().filter(|m| !ingress || m.1 != State::Suspended);
        let applied = counted.map(|(member, _)| {
            let heard = self.heard.get(&member.node).filter(|heard| heard.member == *member);
            heard.map_or(0, |heard| heard.beat.applied[partition.index()])
        });
        applied.min().unwrap_or(Sequence::MAX)
    }

    /// Whether this node may take a member's things: a lease time has passed since it confirmed,
    /// and since it became a member itself.
    pub(super) fn may_remove(&self, now: Micros, member: Member) -> bool {
        let promised = self.promised.get(&member.node).copied().unwrap_or(0).max(self.joined);
        now >= promised + self.settings.lease_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Map;
    use crate::{NodeId, Settings};

    fn member(node: u8) -> Member {
        Member { node: NodeId(node), incarnation: 1 }
    }

    fn members(node: &mut Node<Map>, now: Micros, members: &[(u8, State)]) {
        let members = members.iter().map(|&(node, state)| (member(node), state)).collect();
        let value = Some(etcd::Value::Members(members));
        let revision = node.view.membership + 1;
        let reply = etcd::Reply::Watch { revision, key: etcd::Key::Members, value };
        node.etcd(now, reply, &mut Vec::new());
    }

    /// etcd comes back after longer than a lease, with a change of the membership before the
    /// lease is renewed: packets go on. A member that has promised nothing counts as none.
    #[test]
    fn confirmations_outlive_a_change_of_the_membership() {
        let live = State::Live;
        let settings = Settings::default();
        let mut node = Node::<Map>::new(settings, member(0), Arc::default(), 0);
        members(&mut node, 10, &[(0, live), (1, live), (2, live)]);
        let (now, good_us) = (20_000_000, node.good_us());
        assert_eq!(node.valid_until(), 0);
        for other in [1, 2] {
            node.confirmed(member(other), now, node.view.membership);
        }
        assert_eq!(node.valid_until(), now + good_us);
        members(&mut node, now, &[(0, live), (1, live), (2, State::Draining)]);
        assert_eq!(node.valid_until(), now + good_us);
        members(&mut node, now, &[(0, live), (1, live)]);
        assert_eq!(node.valid_until(), now + good_us);
        members(&mut node, now, &[(0, live), (1, live), (3, live)]);
        assert_eq!(node.valid_until(), 0);
    }

    #[test]
    fn a_new_member_takes_nothing_for_a_lease_time() {
        let (settings, live) = (Settings::default(), State::Live);
        let mut node = Node::<Map>::new(settings, member(0), Arc::default(), 0);
        let joined = 50_000_000;
        members(&mut node, joined, &[(0, State::Catching), (1, live), (2, live)]);
        assert!(!node.may_remove(joined + settings.lease_us - 1, member(1)));
        assert!(node.may_remove(joined + settings.lease_us, member(1)));
    }
}
