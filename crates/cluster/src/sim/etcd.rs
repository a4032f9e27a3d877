//! etcd as a linearizable register with leases and a history for watches.

use std::collections::{BTreeMap, VecDeque};

use crate::etcd::{Key, Lease, Reply, Request, Value};
use crate::{Micros, Revision};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Etcd {
    keys: BTreeMap<Key, (Value, Revision, Option<Lease>)>,
    leases: BTreeMap<Lease, Micros>,
    /// Each change; the one of revision r is at r − 1 − forgotten.
    history: VecDeque<(Key, Option<Value>)>,
    /// Changes that the history no longer has.
    forgotten: Revision,
}

impl Etcd {
    fn write(&mut self, key: Key, value: Option<Value>, lease: Option<Lease>) {
        self.history.push_back((key, value.clone()));
        let revision = self.revision();
        match value {
            Some(value) => drop(self.keys.insert(key, (value, revision, lease))),
            None => drop(self.keys.remove(&key)),
        }
    }

    /// Takes a request at a time of etcd's clock; returns its reply.
    pub fn request(&mut self, now: Micros, ttl: Micros, request: Request) -> Option<Reply> {
        self.expire(now);
        match request {
            Request::Grant { lease, sent } => {
                self.leases.insert(lease, now + ttl);
                Some(Reply::Alive { lease, sent })
            }
            Request::KeepAlive { lease, sent } => match self.leases.get_mut(&lease) {
                Some(until) => {
                    *until = now + ttl;
                    Some(Reply::Alive { lease, sent })
                }
                None => Some(Reply::Expired { lease }),
            },
            Request::Revoke { lease } => {
                self.leases.insert(lease, now);
                self.expire(now);
                None
            }
            Request::Txn { compare, key, value, lease } => {
                let revision = |key| self.keys.get(&key).map_or(0, |known| known.1);
                let holds = compare.iter().all(|&(key, expected)| revision(key) == expected);
                if holds && lease.is_none_or(|lease| self.leases.contains_key(&lease)) {
                    self.write(key, Some(value), lease);
                }
                None
            }
        }
    }

    /// Ends the leases whose time is over.
    pub fn expire(&mut self, now: Micros) {
        let over: Vec<Lease> = self.leases.iter().filter(|l| *l.1 <= now).map(|l| *l.0).collect();
        for lease in over {
            self.leases.remove(&lease);
            let keys: Vec<Key> =
                self.keys.iter().filter(|k| k.1.2 == Some(lease)).map(|k| *k.0).collect();
            keys.into_iter().for_each(|key| self.write(key, None, None));
        }
    }

    /// Returns the number of the last change.
    pub fn revision(&self) -> Revision {
        self.forgotten + self.history.len() as Revision
    }

    /// Returns a change, as a watch shows it; `None`: it is forgotten, or has not happened yet.
    pub fn change(&self, revision: Revision) -> Option<Reply> {
        let at = revision.checked_sub(self.forgotten)?.checked_sub(1)?;
        let (key, value) = self.history.get(at as usize)?;
        Some(Reply::Watch { revision, key: *key, value: value.clone() })
    }

    /// Returns all keys as they are, in the order of their changes: where a watch begins.
    pub fn all(&self) -> Vec<Reply> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(_, (_, revision, _))| *revision);
        let shown = |(key, (value, revision, _)): (&Key, &(Value, Revision, Option<Lease>))| {
            Reply::Watch { revision: *revision, key: *key, value: Some(value.clone()) }
        };
        keys.into_iter().map(shown).collect()
    }

    /// Forgets all changes but the last `keep`.
    pub fn compact(&mut self, keep: usize) {
        let over = self.history.len().saturating_sub(keep);
        self.history.drain(..over);
        self.forgotten += over as Revision;
    }

    /// Returns how many leases there are.
    pub fn leases(&self) -> usize {
        self.leases.len()
    }
}
