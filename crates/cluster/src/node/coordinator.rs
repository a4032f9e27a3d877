//! The coordinator: changes the membership and names the owners of partitions.
//!
//! Each change is a transaction on the revisions that it was decided on, so a coordinator that was
//! deposed changes nothing. A membership is only ever changed by a member of it.

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
            Some(_) => {}
        }
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
        if members != self.view.members {
            out.push(self.members_txn(members.into_values().collect(), None));
        }
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
