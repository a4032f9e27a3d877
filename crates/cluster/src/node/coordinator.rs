//! The coordinator: changes the membership and names the owners of partitions.
//!
//! Each change is a transaction on the revisions that it was decided on, so a coordinator that was
//! deposed changes nothing. A membership is only ever changed by a member of it. While one is asked
//! for that has new members, this node confirms the present one no more, and no confirmation counts
//! for it: a new member that alone reaches etcd then removes those that do not know it, and a lease
//! time after it has joined none of them goes on.

use overbank::hash::mix;

use super::{Action, Actions, Node};
use crate::etcd::{Key, Request, State, Value};
use crate::table::Gpt;
use crate::{Member, Micros, Partition, log, rendezvous};

impl<T: Gpt> Node<T> {
    pub(super) fn coordinate(&mut self, now: Micros, out: &mut Actions<T>) {
        if self.ended || !self.view.is_alive(self.me) {
            return;
        }
        if self.view.state(self.me).is_none() {
            return self.found(out);
        }
        match self.view.coordinator {
            None => {
                let lease = self.view.alive.get(&self.me.node).map(|alive| alive.0);
                let (key, value) = (Key::Coordinator, Value::Coordinator(self.me));
                let compare = vec![(key, 0), (Key::Members, self.view.membership)];
                out.push(Action::Etcd(Request::Txn { compare, key, value, lease }));
            }
            Some(coordinator) if coordinator == self.me => {
                self.change_members(now, out);
                self.name_owners(out);
                self.name_speaker(out);
            }
            Some(_) => self.end_asking(out),
        }
    }

    /// Writes the membership that stands once more if another that was asked for may still come:
    /// after this, it cannot.
    fn end_asking(&self, out: &mut Actions<T>) {
        if self.is_asking() {
            let members = self.view.members.values().copied().collect();
            out.push(self.members_txn(members, None));
        }
    }

    /// Whether a membership with new members has been asked for, on the one that stands.
    pub(super) fn is_asking(&self) -> bool {
        self.asking == Some(self.view.membership)
    }

    fn members_txn(&self, members: Vec<(Member, State)>, with: Option<Key>) -> Action<T> {
        let mut compare = vec![(Key::Members, self.view.membership)];
        if let Some(key @ Key::Alive(node)) = with {
            compare.push((key, self.view.alive.get(&node).map_or(0, |alive| alive.1)));
        }
        let value = Value::Members(members);
        Action::Etcd(Request::Txn { compare, key: Key::Members, value, lease: None })
    }

    /// Makes the first membership, or takes the place of an earlier run of this node if no member
    /// shows a sign of life. That run is over, and the others wait for its confirmation in vain.
    fn found(&mut self, out: &mut Actions<T>) {
        let members = &self.view.members;
        if members.is_empty() {
            return out.push(self.members_txn(vec![(self.me, State::Live)], None));
        }
        let alone = !members.values().any(|m| self.view.is_alive(m.0));
        if alone && members.contains_key(&self.me.node) {
            let mut members = members.clone();
            members.insert(self.me.node, (self.me, State::Catching));
            out.push(self.members_txn(members.into_values().collect(), None));
        }
    }

    fn change_members(&mut self, now: Micros, out: &mut Actions<T>) {
        let mut members = self.view.members.clone();
        let gone = |m: &&(Member, State)| {
            m.0 != self.me && !self.view.is_alive(m.0) && self.may_remove(now, m.0)
        };
        if let Some(&(gone, _)) = self.view.members.values().find(gone) {
            members.remove(&gone.node);
            let alive = Some(Key::Alive(gone.node));
            return out.push(self.members_txn(members.into_values().collect(), alive));
        }
        for (lease, _) in self.view.alive.values() {
            let member = lease.member;
            members.entry(member.node).or_insert((member, State::Catching));
        }
        let suspend_us = self.settings.suspend_us;
        self.ask_log(now, out);
        let live = members.values().filter(|m| m.1 == State::Live).count();
        for (member, state) in members.values_mut() {
            let heard = self.heard.get(&member.node).filter(|heard| heard.member == *member);
            let Some(heard) = heard else { continue };
            let current = heard.beat.membership == self.view.membership;
            // Without the log, none can catch up, and none need be waited for.
            let lag_us = heard.lag.as_ref().map_or(0, |lag| now - lag.0.max(self.log_since));
            let lag_us = if now < self.log_heard + suspend_us / 2 { lag_us } else { 0 };
            let lags = lag_us >= suspend_us;
            *state = match *state {
                State::Live if heard.beat.draining => State::Draining,
                State::Live | State::Catching if lags && live > 1 => State::Suspended,
                State::Catching if heard.beat.caught_up && current => State::Live,
                State::Suspended if lag_us < suspend_us / 2 => State::Catching,
                same => same,
            };
        }
        if members == self.view.members {
            return self.end_asking(out);
        }
        if members.len() > self.view.members.len() {
            self.asking = Some(self.view.membership);
        }
        out.push(self.members_txn(members.into_values().collect(), None));
    }

    /// Has the log give a sign of life while a member lags.
    fn ask_log(&mut self, now: Micros, out: &mut Actions<T>) {
        let late = |lag: &(Micros, _)| now >= lag.0 + self.settings.suspend_us / 4;
        let lags = self.heard.values().any(|heard| heard.lag.as_ref().is_some_and(late));
        if lags && now >= self.log_asked + self.settings.retry_us {
            self.log_asked = now;
            let (partition, from) = (Partition(0), self.replicas[0].applied + 1);
            out.push(Action::Log(log::Request::Fetch { partition, from }));
        }
    }

    fn name_owners(&mut self, out: &mut Actions<T>) {
        let members = self.view.members.values();
        let rank = |state| match state {
            State::Live => 0,
            State::Catching => 1,
            State::Draining => 2,
            State::Suspended => 3,
        };
        let Some(best) = members.clone().map(|m| rank(m.1)).min() else { return };
        let able: Vec<Member> = members.filter(|m| rank(m.1) == best).map(|m| m.0).collect();
        for partition in (0..self.settings.partitions).map(Partition) {
            let named = self.view.owners.get(&partition).copied();
            let chosen = rendezvous(mix(u64::from(partition.0)), able.iter().copied());
            let Some(chosen) = chosen else { return };
            let stays = named.is_some_and(|(_, owner, _)| {
                owner == chosen || best > 0 && self.view.state(owner).is_some()
            });
            if stays {
                continue;
            }
            let (epoch, revision) = named.map_or((0, 0), |(epoch, _, revision)| (epoch, revision));
            let key = Key::Owner(partition);
            let value = Value::Owner(epoch + 1, chosen);
            let compare = vec![(key, revision), (Key::Members, self.view.membership)];
            out.push(Action::Etcd(Request::Txn { compare, key, value, lease: None }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::etcd::{Lease, Reply};
    use crate::message::{Beat, Message};
    use crate::table::Map;
    use crate::{NodeId, Settings};

    fn member(node: u8) -> Member {
        Member { node: NodeId(node), incarnation: 1 }
    }

    /// etcd goes away for all members while a new one is asked for, which alone sees itself join:
    /// a lease time later it may remove them all.
    #[test]
    fn nobody_goes_on_without_etcd_while_a_member_may_join() {
        let live = State::Live;
        let mut node = Node::<Map>::new(Settings::default(), member(0), Arc::default(), 0);
        let now = 20_000_000;
        let watch = |node: &mut Node<Map>, revision, key, value| {
            let mut out = Vec::new();
            node.etcd(now, Reply::Watch { revision, key, value: Some(value) }, &mut out);
            out
        };
        let two = vec![(member(0), live), (member(1), live)];
        watch(&mut node, 1, Key::Members, Value::Members(two.clone()));
        for id in [0, 1] {
            let lease = Lease { member: member(id), nth: 0 };
            watch(&mut node, 2, Key::Alive(NodeId(id)), Value::Alive(lease, Arc::default()));
        }
        watch(&mut node, 3, Key::Coordinator, Value::Coordinator(member(0)));
        node.confirmed(member(1), now, 1);
        let confirmed = node.valid_until();
        assert!(confirmed > now);
        let mut sent = 0;
        let mut confirms = |node: &mut Node<Map>| {
            let mut out = Vec::new();
            sent += 1;
            let applied = node.replicas.iter().map(|_| 0).collect();
            let beat = Beat {
                sent,
                membership: node.view.membership,
                applied,
                owned: Vec::new(),
                digests: Vec::new(),
                caught_up: true,
                draining: false,
                sessions: 0,
                room: 0,
            };
            node.heard(now, member(1), Arc::new(beat), &mut out);
            out.iter().any(|a| matches!(a, Action::Send(_, Message::Confirm { .. })))
        };
        assert!(confirms(&mut node));

        let lease = Lease { member: member(2), nth: 1 };
        let alive = Value::Alive(lease, Arc::default());
        let asked = |out: Vec<Action<Map>>| {
            out.into_iter().find_map(|action| match action {
                Action::Etcd(Request::Txn { value: Value::Members(members), .. }) => Some(members),
                _ => None,
            })
        };
        let three = [&two[..], &[(member(2), State::Catching)]].concat();
        assert_eq!(asked(watch(&mut node, 4, Key::Alive(NodeId(2)), alive)), Some(three));
        assert_eq!((node.valid_until(), confirms(&mut node)), (0, false));

        // The new member is gone before it was one: the present membership is written again.
        let reply = Reply::Watch { revision: 5, key: Key::Alive(NodeId(2)), value: None };
        let mut out = Vec::new();
        node.etcd(now, reply, &mut out);
        assert_eq!(asked(out).as_ref(), Some(&two));
        watch(&mut node, 6, Key::Members, Value::Members(two));
        assert_eq!((node.valid_until(), confirms(&mut node)), (confirmed, true));
    }
}
