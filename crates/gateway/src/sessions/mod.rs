//! All sessions of a gateway: written by one thread, read by every worker.
//!
//! ```text
//!   add, change, remove, import ─▶ Sessions ─┬─▶ tables: key ─▶ slot × 2 + copy    (overbank::fib)
//!                                            └─▶ slab: peer, TEID, gate, rates     (slab.rs)
//!   worker: SessionReader ── one batch a table and burst ──▶ entries, until the burst ends
//! ```
//!
//! - A key belongs to one session. A second owner is refused; the error names key and owner.
//! - A freed key rests for [`REST_MS`] before another session may have it: late packets of the old
//!   session reach no other. The session that had it may take it back at once.
//! - A change writes the slot's other copy, then turns the keys over to it one by one. A worker
//!   sees the session before or after the change, never a mixture in one packet.
//! - An error changes nothing.
//!
//! Bounds: `max` sessions and what a cluster gives beyond (`surplus`), a few more slots for those
//! in their grace period, and 4 × `max` + 1024 resting keys. Beyond that the oldest rests end
//! early, counted. Times are given in. Panics: none.

mod import;
pub(crate) mod keys;
mod list;
mod reader;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use import::refusals_within;
pub use import::{Import, Imported, Refusal};
pub use list::{Page, SLOTS_A_PAGE};
pub use reader::{Found, SessionReader};

use crate::fabric::Relay;
use crate::peers::{Path, Peers};
use crate::prefix::Prefixes;
use crate::session::{Invalid, Key, Session};
use crate::slab::{Counts, NoMemory, Slab, Tally};
use crate::teid::TeidCheck;
use hashbrown::HashMap;
use keys::Keys;
use overbank_handover::grace::{Grace, Visitor};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time before another session may have a freed key.
pub const REST_MS: u64 = 60_000;
/// Most resting keys: for each session that the gateway may have, and beside.
const RESTING_PER_SESSION: usize = 4;
const RESTING_MIN: usize = 1024;
/// Largest number of sessions.
pub const SESSIONS_MAX: usize = 1 << 24;
/// Most N3 addresses.
pub const N3_MAX: usize = 64;
/// Longest wait for workers that use what is about to change.
const GRACE_MAX: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 2000 });

/// Addresses that sessions may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Ours, where tunnels end; at most [`N3_MAX`].
    pub n3: Arc<[IpAddr]>,
    /// Those of terminals.
    pub pools: Prefixes,
    /// Makes and checks TEIDs.
    pub teids: TeidCheck,
}

impl Addresses {
    /// Returns the number of one of our N3 addresses.
    #[inline]
    pub fn n3_number(&self, address: IpAddr) -> Option<u16> {
        self.n3.iter().position(|n3| *n3 == address).map(|number| number as u16)
    }

    /// Fails if the ingress would drop the TEID.
    pub(crate) fn check_teid(&self, n3: u16, teid: u32) -> Result<(), SessionError> {
        if self.teids.admits(n3, teid) { Ok(()) } else { Err(SessionError::Unchecked(teid)) }
    }
}

/// Why a change is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("n3: {0} is not an N3 address of this gateway; it has {1}")]
    ForeignN3(IpAddr, String),
    #[error(
        "teid: {0:#x} does not carry the check of teid-secret; leave TEIDs to the gateway (PFCP \
         CHOOSE), or run it without teid-secret"
    )]
    Unchecked(u32),
    #[error("{0} is in no UE pool; pools: {1}")]
    OutsidePools(Key, String),
    #[error("{key} belongs to session {owner}; session {id} needs another")]
    Taken { key: Key, owner: u64, id: u64 },
    #[error(
        "{key} was freed by session {owner} and rests for {seconds} s more; session {id} can have \
         it then, or another now"
    )]
    Resting { key: Key, owner: u64, id: u64, seconds: u64 },
    #[error("session {0} exists already; change it, or use another id")]
    Exists(u64),
    #[error("there is no session {0}")]
    Unknown(u64),
    #[error("session {0} {by}", by = .1.changed_by())]
    Foreign(u64, Origin),
    #[error("{0} sessions exist, as many as max-sessions allows")]
    Full(usize),
    #[error("the table of keys has no room near {0}; try again, or increase max-sessions")]
    NoRoom(Key),
    #[error("a worker has not finished a burst for {} ms; try again", GRACE_MAX.as_millis())]
    Busy,
}

overbank_declare::counters! {
    /// Counts of changes of sessions.
    pub struct SessionTotals: "overbank_gateway_" {
        sessions: gauge sessions "Sessions" as "sessions";
        resting: gauge keys "Freed keys that no other session may have yet" as "resting_keys";
        added: counter sessions "Sessions added" as "sessions_added";
        changed: counter sessions "Sessions changed" as "sessions_changed";
        removed: counter sessions "Sessions removed" as "sessions_removed";
        refused: counter sessions "Additions and changes refused" as "sessions_refused";
        rests_cut: counter keys "Keys whose rest ended early because too many rested"
            as "rests_cut";
        taken_over: counter sessions "Sessions taken over from a node that is gone"
            as "sessions_taken_over";
        counts_lost: counter sessions "Sessions taken over whose counts are lost as a whole"
            as "sessions_counts_lost";
        table_differences: counter blocks "Blocks of the cluster's tables that differed here"
            as "table_differences";
    }
}

/// Source of a session, which alone changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The file of sessions, read again as a whole.
    File,
    /// Requests of an operator, one by one.
    Request,
    /// The cluster, which places and moves it.
    Cluster,
    /// A session management function, by PFCP.
    Pfcp,
}

impl Origin {
    pub const ALL: [Origin; 4] = [Origin::File, Origin::Request, Origin::Cluster, Origin::Pfcp];

    /// Returns its name, as it is serialized.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::File => "file",
            Origin::Request => "request",
            Origin::Cluster => "cluster",
            Origin::Pfcp => "pfcp",
        }
    }

    /// Returns where its sessions are changed.
    pub(crate) const fn changed_by(self) -> &'static str {
        match self {
            Origin::File => "is of the file of sessions: change the file, then send SIGHUP",
            Origin::Request => "is of a request: change or remove it by request",
            Origin::Cluster => "is of the cluster, which alone changes it",
            Origin::Pfcp => "is of PFCP: its SMF alone changes it",
        }
    }
}

/// A session as it is now.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Listed {
    #[serde(flatten)]
    pub session: Session,
    pub origin: Origin,
    #[serde(flatten)]
    pub counts: Counts,
}

#[derive(Debug)]
struct Record {
    session: Session,
    origin: Origin,
    slot: u32,
    /// Copy that the keys lead to, 0 or 1.
    copy: u32,
    /// Period after which no worker uses the other copy.
    other_free: u64,
    /// Counts of the slot when the session got it, and those that it had elsewhere before.
    start: Counts,
    before: Counts,
    /// Where packets go instead of being handled here.
    relay: Option<Relay>,
}

impl Record {
    fn value(&self) -> u32 {
        self.slot * 2 + self.copy
    }
}

/// The sessions; see the module.
pub struct Sessions {
    max: usize,
    addresses: Addresses,
    keys: Keys,
    slab: Arc<Slab>,
    tallies: Vec<Arc<Tally>>,
    grace: Grace,
    records: HashMap<u64, Record, foldhash::fast::RandomState>,
    /// Session of each slot; 0 = none.
    owners: Vec<u64>,
    free: Vec<u32>,
    /// Freed slots, with the period after which no worker uses them.
    leaving: VecDeque<(u64, u32)>,
    peers: Peers,
    resting: HashMap<Key, Rest, foldhash::fast::RandomState>,
    /// The same keys by the end of their rest; some have been taken back since.
    rests: VecDeque<(u64, Key)>,
    totals: SessionTotals,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    owner: u64,
    until_ms: u64,
}

/// Sessions beyond the limit that the owners of a cluster may give a node at a time: each of them
/// rounds its share of the room up.
const fn surplus(max: usize) -> usize {
    max / 16 + 32
}

impl Sessions {
    /// Returns no sessions, with room for `max` (1 to [`SESSIONS_MAX`]), and a reader for each
    /// worker. `seed` varies the hash function.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        max: usize,
        addresses: Addresses,
        workers: usize,
        seed: u64,
    ) -> Result<(Sessions, Vec<SessionReader>), NoMemory> {
        let max = max.clamp(1, SESSIONS_MAX);
        let slots = max + 2 * surplus(max);
        let keys = Keys::new(max, seed).map_err(|_| NoMemory { slots })?;
        let slab = Arc::new(Slab::new(slots)?);
        let tallies = (0..workers).map(|_| Tally::new(slots).map(Arc::new));
        let tallies: Vec<Arc<Tally>> = tallies.collect::<Result<_, _>>()?;
        let (grace, visitors) = Grace::new(workers);
        let reader = |(visitor, tally): (Visitor, &Arc<Tally>)| {
            SessionReader::new(keys.readers(), slab.clone(), tally.clone(), visitor)
        };
        let readers = visitors.into_iter().zip(&tallies).map(reader).collect();
        let sessions = Sessions {
            max,
            addresses,
            keys,
            slab,
            tallies,
            grace,
            records: HashMap::default(),
            owners: vec![0; slots],
            free: (0..slots as u32).rev().collect(),
            leaving: VecDeque::new(),
            peers: Peers::default(),
            resting: HashMap::default(),
            rests: VecDeque::new(),
            totals: SessionTotals::default(),
        };
        Ok((sessions, readers))
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the limit of sessions.
    pub fn max(&self) -> usize {
        self.max
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the peers of all sessions.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    pub fn peers_mut(&mut self) -> &mut Peers {
        &mut self.peers
    }

    /// Returns counts of changes.
    pub fn totals(&self) -> SessionTotals {
        SessionTotals {
            sessions: self.records.len() as u64,
            resting: self.resting.len() as u64,
            ..self.totals
        }
    }

    /// Returns a session.
    pub fn get(&self, id: u64) -> Option<Listed> {
        self.records.get(&id).map(|record| self.listed(record))
    }

    /// Iterates over all sessions, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Listed> {
        self.records.values().map(|record| self.listed(record))
    }

    /// Returns the session that a key leads to.
    pub fn owner_of(&self, key: Key) -> Option<u64> {
        let slot = self.keys.get(&self.addresses, key)? >> 1;
        self.owners.get(slot as usize).copied()
    }

    fn listed(&self, record: &Record) -> Listed {
        let counts = self.tallied(record.slot).since(record.start).plus(record.before);
        Listed { session: record.session, origin: record.origin, counts }
    }

    /// Returns the counts of a slot since the start.
    fn tallied(&self, slot: u32) -> Counts {
        let all = self.tallies.iter().map(|tally| tally.read(slot));
        all.fold(Counts::default(), Counts::plus)
    }

    /// Adds a session.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn add(
        &mut self,
        session: Session,
        origin: Origin,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let done = self.check(&session, now_ms);
        let done = done.and_then(|n3| self.insert(session, (origin, n3, None), self.max));
        self.count(done)
    }

    /// Checks whether a session can be added, or changed to this.
    ///
    /// # Errors
    /// The addition, or the change, would be refused.
    pub fn check_edit(
        &mut self,
        session: &Session,
        is_new: bool,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let done = match self.records.contains_key(&session.id) {
            true if is_new => Err(SessionError::Exists(session.id)),
            false if !is_new => Err(SessionError::Unknown(session.id)),
            false if self.records.len() >= self.max => Err(SessionError::Full(self.max)),
            _ => self.check(session, now_ms).map(drop),
        };
        self.count(done)
    }

    /// Adds a session that the cluster has placed or moved here. The cluster has seen to rests.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn install(
        &mut self,
        session: Session,
        origin: Origin,
        relay: Option<Relay>,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        self.wake(&session);
        let done = self.check(&session, now_ms);
        let max = self.max + surplus(self.max);
        let done = done.and_then(|n3| self.insert(session, (origin, n3, relay), max));
        self.count(done)
    }

    /// Whether the packets of a session are handled here.
    pub fn is_handled(&self, id: u64) -> bool {
        self.records.get(&id).is_some_and(|record| record.relay.is_none())
    }

    /// Has the packets of a session relayed, or handled here, from now on; returns what was done
    /// before.
    ///
    /// # Errors
    /// There is no such session.
    pub fn relay(&mut self, id: u64, relay: Option<Relay>) -> Result<Option<Relay>, SessionError> {
        let record = self.records.get_mut(&id).ok_or(SessionError::Unknown(id))?;
        let before = std::mem::replace(&mut record.relay, relay);
        self.slab.relay(record.value(), &record.session, relay);
        Ok(before)
    }

    /// Returns whether packets of a session are relayed; `None`: there is no such session.
    pub fn relayed(&self, id: u64) -> Option<Option<Relay>> {
        self.records.get(&id).map(|record| record.relay)
    }

    /// Sets the counts that a session of the cluster had before it came here. What it has counted
    /// here since then, it keeps.
    pub fn counted_before(&mut self, id: u64, before: Counts) {
        if let Some(record) = self.records.get_mut(&id) {
            record.before = before;
        }
    }

    /// Counts that a session of the cluster was taken over from a node that is gone, with its
    /// counts of the last checkpoint.
    pub fn taken_over(&mut self, id: u64, checkpoint: Option<Counts>) {
        self.totals.taken_over += 1;
        match checkpoint {
            Some(before) => self.counted_before(id, before),
            None => self.totals.counts_lost += 1,
        }
    }

    /// Counts blocks of the cluster's tables that were found to differ.
    pub const fn differed(&mut self, blocks: u64) {
        self.totals.table_differences += blocks;
    }

    /// Begins to count a session of the cluster anew: it comes back.
    pub fn count_anew(&mut self, id: u64) {
        let slot = self.records.get(&id).map(|record| record.slot);
        let start = slot.map(|slot| self.tallied(slot));
        if let (Some(record), Some(start)) = (self.records.get_mut(&id), start) {
            (record.start, record.before) = (start, Counts::default());
        }
    }

    /// Changes a session as the cluster has it. The cluster sees to rests.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn renew(
        &mut self,
        session: Session,
        origin: Origin,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        self.wake(&session);
        let before = self.records.get(&session.id).map(|record| record.session);
        let done = self.check(&session, now_ms);
        let done = done.and_then(|n3| self.turn(session, origin, n3, now_ms));
        if let (Some(before), Ok(())) = (before, &done) {
            self.wake(&before);
        }
        self.count(done)
    }

    /// Returns once no worker acts on what was there before.
    ///
    /// # Errors
    /// A worker has not finished a burst in time.
    pub fn settle(&mut self) -> Result<(), SessionError> {
        let period = self.grace.mark();
        self.wait(period)
    }

    /// Changes a session to what `session` says.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn change(
        &mut self,
        session: Session,
        origin: Origin,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let done = self.check(&session, now_ms);
        let done = done.and_then(|n3| self.turn(session, origin, n3, now_ms));
        self.count(done)
    }

    /// Removes a session; returns it with its last counts.
    ///
    /// # Errors
    /// There is no such session.
    pub fn remove(&mut self, id: u64, now_ms: u64) -> Result<Listed, SessionError> {
        let listed = self.uninstall(id)?;
        listed.session.keys().for_each(|key| self.rest(key, id, now_ms));
        Ok(listed)
    }

    /// Removes a session that the cluster has placed elsewhere or ended: its keys do not rest here.
    ///
    /// # Errors
    /// There is no such session.
    pub fn uninstall(&mut self, id: u64) -> Result<Listed, SessionError> {
        let record = self.records.remove(&id).ok_or(SessionError::Unknown(id))?;
        record.session.keys().for_each(|key| self.keys.remove(&self.addresses, key));
        let listed = self.listed(&record);
        if let Some(owner) = self.owners.get_mut(record.slot as usize) {
            *owner = 0;
        }
        self.leaving.push_back((self.grace.mark(), record.slot));
        self.peers.leave(path(&record.session));
        self.totals.removed += 1;
        Ok(listed)
    }

    /// Ends rests and grace periods that are over.
    pub fn tick(&mut self, now_ms: u64) {
        self.collect();
        let most = self.resting_max();
        while let Some(&(until_ms, key)) = self.rests.front() {
            let is_over = until_ms <= now_ms;
            if !is_over && self.rests.len() <= most {
                break;
            }
            self.rests.pop_front();
            let ends = self.resting.get(&key).is_some_and(|rest| rest.until_ms == until_ms);
            if ends {
                self.resting.remove(&key);
                self.totals.rests_cut += u64::from(!is_over);
            }
        }
    }

    fn count<T>(&mut self, done: Result<T, SessionError>) -> Result<T, SessionError> {
        self.totals.refused += u64::from(done.is_err());
        done
    }

    /// Checks a session against all others; returns the number of its N3 address.
    fn check(&self, session: &Session, now_ms: u64) -> Result<u16, SessionError> {
        session.check()?;
        let n3 = self.addresses.n3_number(session.n3);
        let foreign = || SessionError::ForeignN3(session.n3, keys::list(self.addresses.n3.iter()));
        let n3 = n3.ok_or_else(foreign)?;
        self.addresses.check_teid(n3, session.teid)?;
        check_pools(&self.addresses, session)?;
        for key in session.keys() {
            let id = session.id;
            match self.owner_of(key) {
                Some(owner) if owner != id => return Err(SessionError::Taken { key, owner, id }),
                _ => {}
            }
            if let Some(&Rest { owner, until_ms }) = self.resting.get(&key)
                && owner != id
                && until_ms > now_ms
            {
                let seconds = (until_ms - now_ms).div_ceil(1000);
                return Err(SessionError::Resting { key, owner, id, seconds });
            }
        }
        Ok(n3)
    }

    fn insert(
        &mut self,
        session: Session,
        (origin, n3, relay): (Origin, u16, Option<Relay>),
        max: usize,
    ) -> Result<(), SessionError> {
        if self.records.contains_key(&session.id) {
            return Err(SessionError::Exists(session.id));
        }
        if self.records.len() >= max {
            return Err(SessionError::Full(max));
        }
        let slot = self.take_slot()?;
        let start = self.tallied(slot);
        let before = Counts::default();
        let record = Record { session, origin, slot, copy: 0, other_free: 0, start, before, relay };
        self.slab.reset(slot);
        self.slab.write(record.value(), &session, n3, relay);
        if let Err(error) = self.lead(session.keys(), record.value()) {
            self.leaving.push_back((self.grace.mark(), slot));
            return Err(error);
        }
        self.owners[slot as usize] = session.id;
        self.records.insert(session.id, record);
        self.wake(&session);
        self.peers.join(path(&session));
        self.totals.added += 1;
        Ok(())
    }

    /// Turns a session over to its other copy.
    fn turn(
        &mut self,
        session: Session,
        origin: Origin,
        n3: u16,
        now_ms: u64,
    ) -> Result<(), SessionError> {
        let id = session.id;
        let unknown = SessionError::Unknown(id);
        let record = self.records.get(&id).ok_or(unknown.clone())?;
        let (before, value, other_free) = (record.session, record.value() ^ 1, record.other_free);
        let relay = record.relay;
        self.wait(other_free)?;
        self.slab.write(value, &session, n3, relay);
        let is_new = |key: &Key| !before.keys().any(|old| old == *key);
        self.lead(session.keys().filter(is_new), value)?;
        for key in before.keys() {
            if session.keys().any(|new| new == key) {
                self.keys.update(&self.addresses, key, value);
            } else {
                self.keys.remove(&self.addresses, key);
                self.rest(key, id, now_ms);
            }
        }
        self.wake(&session);
        if path(&before) != path(&session) {
            self.peers.join(path(&session));
            self.peers.leave(path(&before));
        }
        let other_free = self.grace.mark();
        let record = self.records.get_mut(&id).ok_or(unknown)?;
        (record.session, record.origin) = (session, origin);
        (record.copy, record.other_free) = (value & 1, other_free);
        self.totals.changed += 1;
        Ok(())
    }

    /// Inserts keys, or none of them.
    fn lead(
        &mut self,
        keys: impl Iterator<Item = Key> + Clone,
        value: u32,
    ) -> Result<(), SessionError> {
        for (done, key) in keys.clone().enumerate() {
            if !self.keys.insert(&self.addresses, key, value) {
                keys.take(done).for_each(|key| self.keys.remove(&self.addresses, key));
                return Err(SessionError::NoRoom(key));
            }
        }
        Ok(())
    }

    const fn resting_max(&self) -> usize {
        self.max * RESTING_PER_SESSION + RESTING_MIN
    }

    fn rest(&mut self, key: Key, owner: u64, now_ms: u64) {
        self.rest_until(key, owner, now_ms + REST_MS, now_ms);
    }

    fn rest_until(&mut self, key: Key, owner: u64, until_ms: u64, now_ms: u64) {
        self.resting.insert(key, Rest { owner, until_ms });
        self.rests.push_back((until_ms, key));
        if self.rests.len() > self.resting_max() {
            self.tick(now_ms);
        }
    }

    /// Ends the rest of a session's keys.
    fn wake(&mut self, session: &Session) {
        for key in session.keys() {
            self.resting.remove(&key);
        }
    }

    /// Moves slots that no worker uses any more to the free ones.
    fn collect(&mut self) {
        let reached = self.grace.reached();
        while let Some(&(period, slot)) = self.leaving.front()
            && period <= reached
        {
            self.leaving.pop_front();
            self.free.push(slot);
        }
    }

    fn take_slot(&mut self) -> Result<u32, SessionError> {
        if self.free.is_empty()
            && let Some(&(period, _)) = self.leaving.front()
        {
            self.wait(period)?;
            self.collect();
        }
        self.free.pop().ok_or(SessionError::Busy)
    }

    /// Waits until a period is over: until each worker has ended its burst.
    fn wait(&mut self, period: u64) -> Result<(), SessionError> {
        if self.grace.reached() >= period {
            return Ok(());
        }
        let end = Instant::now() + GRACE_MAX;
        while self.grace.reached() < period {
            if Instant::now() > end {
                return Err(SessionError::Busy);
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn path(session: &Session) -> Path {
    Path { n3: session.n3, peer: session.peer }
}

pub(crate) fn check_pools(addresses: &Addresses, session: &Session) -> Result<(), SessionError> {
    let of_terminal = |key| match key {
        Key::Tunnel(..) => None,
        Key::Ipv4(address) => Some(IpAddr::V4(address)),
        Key::Ipv6(prefix) => Some(IpAddr::V6(prefix.address())),
    };
    let outside = |key: &Key| of_terminal(*key).is_some_and(|a| !addresses.pools.contain(a));
    match session.keys().find(outside) {
        Some(key) => Err(SessionError::OutsidePools(key, keys::list(addresses.pools.iter()))),
        None => Ok(()),
    }
}
