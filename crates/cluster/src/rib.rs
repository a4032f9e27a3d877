//! Sessions and keys of a partition, as its log makes them.
//!
//! The same function applies changes that an owner has just written and those that a new owner
//! replays. A change that does not fit the state, as a late duplicate, changes nothing.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{Index, Key, Member, Partition, Sequence, SessionId, Version};

/// What the gateway keeps with a session; the engine does not read it.
pub type Context = Arc<[u8]>;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Change {
    /// Reserves a key of a session whose home is another partition.
    Reserve { session: SessionId, key: Key },
    /// Frees a resting key, or ends a reservation: a key that rested before rests again.
    Release { hash: u64 },
    /// Places a session at a member: a new one, one that has moved, or one of a member that is
    /// gone. One that stays where it is has other keys, or another context.
    Place {
        session: SessionId,
        /// Where it was.
        from: Option<Member>,
        to: Member,
        keys: Arc<[Key]>,
        context: Context,
        /// Since when it has existed; 0: it begins.
        born: Version,
    },
    /// Begins a move: `to` installs the session, then `from` turns its entry into a stub.
    Move { session: SessionId, from: Member, to: Member, keys: Arc<[Key]>, context: Context },
    /// Removes a session.
    Remove { session: SessionId, at: Member },
    /// Directs a key, whose session's home is another partition, to a member; `None`: frees it.
    Route { session: SessionId, key: Key, version: Version, to: Option<Member> },
    /// The owner of another partition has freed a key that a session had up to this version.
    Freed { hash: u64, version: Version },
}

impl Change {
    /// Returns the session that it is about.
    pub fn session(&self) -> Option<SessionId> {
        match *self {
            Self::Reserve { session, .. }
            | Self::Place { session, .. }
            | Self::Move { session, .. }
            | Self::Remove { session, .. }
            | Self::Route { session, .. } => Some(session),
            Self::Release { .. } | Self::Freed { .. } => None,
        }
    }

    /// Returns how many bytes it has at most, however it is encoded.
    pub(crate) fn bytes_max(&self) -> usize {
        // A hash and a full key, in a form that grows by a seventh.
        let (fixed, key) = (128, 10 + 19);
        match self {
            Self::Place { keys, context, .. } | Self::Move { keys, context, .. } => {
                fixed + keys.len() * key + context.len()
            }
            _ => fixed,
        }
    }
}

/// A session in its home partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session {
    /// Its keys; the first one names it.
    pub keys: Arc<[Key]>,
    /// See [`Context`].
    pub context: Context,
    /// Where it is.
    pub at: Member,
    /// Since which batch.
    pub version: Version,
    /// The version that it began with.
    pub born: Version,
    /// Where it moves to, since which batch.
    pub moving: Option<(Member, Version)>,
}

/// A key in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// The key as a whole.
    pub full: u128,
    /// Its session.
    pub session: SessionId,
    /// How it is used.
    pub hold: Hold,
}

/// A key that a session no longer has, in another partition, whose owner may not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freeing {
    /// The key as a whole.
    pub full: u128,
    /// Its session.
    pub session: SessionId,
    /// The version that has it no longer.
    pub version: Version,
}

/// How a key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hold {
    /// Reserved by a batch; its session had given it up by this version, 0 if it never had it.
    Reserved(Sequence, Version),
    /// In use, since this version of its session.
    Routed(Version, Member),
    /// Freed by a batch, rests: its session has given it up by this version.
    Resting(Sequence, Version),
}

impl Held {
    /// Whether it rests and is this key of this session: no other session may have it before its
    /// rest is over, but this one may have it again.
    ///
    /// What a rest keeps away does no harm here. Late packets of the key are the session's. Late
    /// directions have versions up to the one that gave the key up, which [`Rib::refuses`] knows
    /// from the hold. Stubs and entries of the session follow one log, its home's, in which the
    /// key goes and comes back. A session that was *removed* is placed anew when all members have
    /// applied its removal: before, its last node may still serve it.
    pub(crate) fn rests_for(&self, session: SessionId, key: &Key) -> bool {
        matches!(self.hold, Hold::Resting(..)) && self.session == session && self.full == key.full
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rib {
    /// Sessions whose home is this partition.
    pub sessions: Index<SessionId, Session>,
    /// Keys of this partition.
    pub keys: Index<u64, Held>,
    /// Keys of other partitions that sessions of this one have given up.
    pub freeing: Index<u64, Freeing>,
}

impl Rib {
    /// Applies a change of the batch `sequence` of partition `own` of `partitions`. Returns the
    /// session as it was, if the change placed it elsewhere or removed it.
    pub fn apply(
        &mut self,
        sequence: Sequence,
        change: &Change,
        own: Partition,
        partitions: u16,
    ) -> Option<Session> {
        let mut old = None;
        match change {
            Change::Reserve { session, key } => {
                let freed = match self.keys.get(&key.hash) {
                    None => 0,
                    Some(Held { hold: Hold::Resting(_, freed), session: of, full })
                        if of == session && *full == key.full =>
                    {
                        *freed
                    }
                    Some(_) => return None,
                };
                let hold = Hold::Reserved(sequence, freed);
                self.keys.insert(key.hash, Held { full: key.full, session: *session, hold });
            }
            Change::Release { hash } => {
                let held = self.keys.get_mut(hash)?;
                match held.hold {
                    Hold::Routed(..) => {}
                    Hold::Reserved(_, freed) if freed > 0 => {
                        held.hold = Hold::Resting(sequence, freed);
                    }
                    Hold::Reserved(..) | Hold::Resting(..) => drop(self.keys.remove(hash)),
                }
            }
            Change::Place { session, to, keys, context, born, .. } => {
                let new = Session {
                    born: if *born == 0 { sequence } else { *born },
                    keys: Arc::clone(keys),
                    context: Arc::clone(context),
                    at: *to,
                    version: sequence,
                    moving: None,
                };
                old = self.sessions.insert(*session, new);
                self.hold(keys, *session, Hold::Routed(sequence, *to), own, partitions);
                if let Some(old) = old.as_ref().filter(|old| old.keys != *keys) {
                    let given_up = old.keys.iter().filter(|key| !keys.contains(key));
                    self.free(given_up, *session, sequence, own, partitions);
                }
            }
            Change::Move { session, to, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.moving = Some((*to, sequence));
                }
            }
            Change::Remove { session, .. } => {
                old = self.sessions.remove(session);
                if let Some(old) = &old {
                    self.free(old.keys.iter(), *session, sequence, own, partitions);
                }
            }
            Change::Route { session, key, version, to } => {
                if self.refuses(*session, *key, *version) {
                    return None;
                }
                let rests = Hold::Resting(sequence, *version);
                let hold = to.map_or(rests, |member| Hold::Routed(*version, member));
                self.keys.insert(key.hash, Held { full: key.full, session: *session, hold });
            }
            Change::Freed { hash, version } => {
                if self.freeing.get(hash).is_some_and(|freeing| freeing.version == *version) {
                    self.freeing.remove(hash);
                }
            }
        }
        old
    }

    /// Whether a route does not fit: another session has the key, or one as late is known. A key
    /// that is freed and that no session has rests all the same: directions may be late.
    pub fn refuses(&self, session: SessionId, key: Key, version: Version) -> bool {
        match self.keys.get(&key.hash) {
            None => false,
            Some(held) if held.session != session || held.full != key.full => true,
            Some(held) => match held.hold {
                Hold::Reserved(_, known) | Hold::Routed(known, _) | Hold::Resting(_, known) => {
                    known >= version
                }
            },
        }
    }

    /// A session gives keys up: those of this partition rest, others are left to their owners.
    fn free<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a Key>,
        session: SessionId,
        version: Version,
        own: Partition,
        partitions: u16,
    ) {
        for key in keys {
            let full = key.full;
            if Partition::of(key.hash, partitions) == own {
                let hold = Hold::Resting(version, version);
                self.keys.insert(key.hash, Held { full, session, hold });
            } else {
                self.freeing.insert(key.hash, Freeing { full, session, version });
            }
        }
    }

    fn hold(
        &mut self,
        keys: &[Key],
        session: SessionId,
        hold: Hold,
        own: Partition,
        partitions: u16,
    ) {
        for key in keys.iter().filter(|key| Partition::of(key.hash, partitions) == own) {
            self.keys.insert(key.hash, Held { full: key.full, session, hold });
        }
    }

    /// Returns the keys that the partition's table must have, with their members.
    pub fn routes(&self) -> impl Iterator<Item = (u64, Member)> + '_ {
        self.keys.iter().filter_map(|(&hash, held)| match held.hold {
            Hold::Routed(_, member) => Some((hash, member)),
            _ => None,
        })
    }
}
