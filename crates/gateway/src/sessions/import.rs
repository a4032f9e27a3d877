//! Takes a whole list of sessions, or nothing of it.

use super::{Origin, REST_MS, Record, SessionError, Sessions, check_pools};
use crate::journal::{Edit, Kept, Rest};
use crate::prefix::Prefixes;
use crate::session::{Key, Session};
use hashbrown::{HashMap, HashSet};
use serde::Serialize;

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    pub kept: usize,
}

/// Why a list is refused, by line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub line: usize,
    pub what: String,
}

/// How a list is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// Source of the sessions: those of another one are neither changed nor removed.
    pub origin: Origin,
    /// Whether its sessions that are not in the list are removed.
    pub replace: bool,
}

impl Import {
    /// The file of sessions, as a whole.
    pub const FILE: Import = Import { origin: Origin::File, replace: true };
}

impl Sessions {
    /// Adds and changes the sessions of a list, which has the line of each.
    ///
    /// # Errors
    /// Returns every error, by line; nothing has changed then. A key that moves from one session to
    /// another is one: it rests first. The exceptions are a table of keys without room and a worker
    /// that is stuck, which are found too late: the errors then name the sessions left out.
    pub fn import(
        &mut self,
        list: &[(usize, Session)],
        how: Import,
        now_ms: u64,
    ) -> Result<Imported, Vec<Refusal>> {
        if let Err(refusals) = self.check_import(list, how, now_ms) {
            self.totals.refused += refusals.len() as u64;
            return Err(refusals);
        }
        let gone = self.left_out(list, how);
        let mut done = Imported { removed: gone.len(), ..Imported::default() };
        for id in gone {
            // It was there a moment ago.
            let _ = self.remove(id, now_ms);
        }
        let mut refusals = Vec::new();
        for (line, session) in list {
            let before = self.records.get(&session.id).map(|record| record.session);
            let (applied, count) = match before {
                Some(before) if before == *session => (Ok(()), &mut done.kept),
                Some(_) => (self.change(*session, how.origin, now_ms), &mut done.changed),
                None => (self.add(*session, how.origin, now_ms), &mut done.added),
            };
            *count += usize::from(applied.is_ok());
            refusals.extend(applied.err().map(|e| Refusal { line: *line, what: e.to_string() }));
        }
        if refusals.is_empty() { Ok(done) } else { Err(refusals) }
    }

    /// Takes what a journal has kept: its sessions, and the keys that rest still. Nothing is there
    /// before.
    ///
    /// # Errors
    /// Returns a refusal for each session that does not fit the settings, all with line 0.
    pub fn restore(&mut self, kept: &Kept, now_ms: u64, unix_ms: u64) -> Result<(), Vec<Refusal>> {
        let how = Import { origin: Origin::Request, replace: false };
        let list: Vec<(usize, Session)> = kept.sessions.values().copied().enumerate().collect();
        self.import(&list, how, now_ms).map_err(|mut refusals| {
            for Refusal { line, what } in &mut refusals {
                let id = list.get(*line).map_or(0, |(_, session)| session.id);
                (*line, *what) = (0, format!("session {id}: {what}"));
            }
            refusals
        })?;
        // A clock that was set back lengthens no rest.
        let left = |rest: &Rest| rest.until_unix_ms.saturating_sub(unix_ms).min(REST_MS);
        let mut rests: Vec<(u64, Key, u64)> =
            kept.rests.iter().map(|(key, rest)| (left(rest), *key, rest.owner)).collect();
        rests.retain(|(left_ms, key, _)| *left_ms > 0 && self.owner_of(*key).is_none());
        // The queue of rests is in the order of their ends.
        rests.sort_unstable_by_key(|(left_ms, ..)| *left_ms);
        for (left_ms, key, owner) in rests {
            self.rest_until(key, owner, now_ms + left_ms, now_ms);
        }
        Ok(())
    }

    /// Returns the edits of an import that was checked.
    pub fn edits_of<'a>(
        &self,
        list: &'a [(usize, Session)],
        how: Import,
    ) -> impl Iterator<Item = Edit> + use<'_, 'a> {
        let before = |id: u64| self.records.get(&id).map(|record| &record.session);
        let gone = self.left_out(list, how).into_iter();
        let gone = gone.map(move |id| Edit::new(id, before(id), None));
        gone.chain(list.iter().filter_map(move |(_, session)| {
            let before = before(session.id);
            let changes = before != Some(session);
            changes.then(|| Edit::new(session.id, before, Some(*session)))
        }))
    }

    /// Returns what an import would do.
    ///
    /// # Errors
    /// Returns those of the import.
    pub fn check_import(
        &self,
        list: &[(usize, Session)],
        how: Import,
        now_ms: u64,
    ) -> Result<Imported, Vec<Refusal>> {
        let refusals = self.refusals(list, how, now_ms);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let mut done = Imported { removed: self.left_out(list, how).len(), ..Imported::default() };
        for (_, session) in list {
            *match self.records.get(&session.id) {
                Some(record) if record.session == *session => &mut done.kept,
                Some(_) => &mut done.changed,
                None => &mut done.added,
            } += 1;
        }
        Ok(done)
    }

    /// Returns the sessions that an import removes.
    pub(crate) fn left_out(&self, list: &[(usize, Session)], how: Import) -> Vec<u64> {
        if !how.replace {
            return Vec::new();
        }
        let wanted: HashSet<u64> = list.iter().map(|(_, session)| session.id).collect();
        let gone = self
            .records
            .values()
            .filter(|record| record.origin == how.origin && !wanted.contains(&record.session.id));
        gone.map(|record| record.session.id).collect()
    }

    /// Takes other pools, and the sessions of the file if there is a list.
    ///
    /// # Errors
    /// Returns every error, by line; those of sessions outside the list have line 0. Nothing has
    /// changed then, with the exceptions of [`Sessions::import`].
    pub fn reload(
        &mut self,
        pools: Prefixes,
        list: Option<&[(usize, Session)]>,
        now_ms: u64,
    ) -> Result<Imported, Vec<Refusal>> {
        let before = std::mem::replace(&mut self.addresses.pools, pools);
        let stay = |record: &&Record| list.is_none() || record.origin != Origin::File;
        let outside = self.records.values().filter(stay).filter_map(|record| {
            let error = check_pools(&self.addresses, &record.session).err()?;
            Some((record.session.id, error))
        });
        let mut outside: Vec<(u64, SessionError)> = outside.collect();
        outside.sort_by_key(|(id, _)| *id);
        let refusal = |(id, error)| Refusal { line: 0, what: format!("session {id}: {error}") };
        let refusals: Vec<Refusal> = outside.into_iter().map(refusal).collect();
        let done = match list {
            _ if !refusals.is_empty() => Err(refusals),
            Some(list) => self.import(list, Import::FILE, now_ms),
            None => Ok(Imported { kept: self.len(), ..Imported::default() }),
        };
        if done.is_err() {
            self.addresses.pools = before;
        }
        done
    }

    /// Returns everything that is wrong with a list.
    fn refusals(&self, list: &[(usize, Session)], how: Import, now_ms: u64) -> Vec<Refusal> {
        let origin = |id: u64| self.records.get(&id).map(|record| record.origin);
        let mut refusals = refusals_within(list, |session| {
            match origin(session.id).filter(|origin| *origin != how.origin) {
                Some(other) => Err(SessionError::Foreign(session.id, other)),
                None => self.check(session, now_ms).map(drop),
            }
        });
        if !refusals.is_empty() {
            return refusals;
        }
        let added = list.iter().filter(|(_, session)| origin(session.id).is_none()).count();
        let sum = self.records.len() + added - self.left_out(list, how).len();
        if sum > self.max {
            let line = list.last().map_or(0, |(line, _)| *line);
            let what = format!("{sum} sessions exceed max-sessions {}", self.max);
            refusals.push(Refusal { line, what });
        }
        refusals
    }
}

/// Returns what is wrong within a list, and what `check` finds wrong with its sessions.
pub(crate) fn refusals_within(
    list: &[(usize, Session)],
    check: impl Fn(&Session) -> Result<(), SessionError>,
) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |line, what| refusals.push(Refusal { line, what });
    let mut ids: HashMap<u64, usize> = HashMap::new();
    let mut keys: HashMap<Key, (u64, usize)> = HashMap::new();
    for &(line, session) in list {
        let id = session.id;
        if let Some(first) = ids.insert(id, line) {
            refuse(line, format!("id {id} is also that of line {first}"));
            continue;
        }
        let checked = check(&session);
        if let Err(error @ SessionError::Foreign(..)) = checked {
            refuse(line, error.to_string());
            continue;
        }
        for key in session.keys() {
            if let Some((owner, first)) = keys.insert(key, (id, line))
                && checked.is_ok()
            {
                let taken = SessionError::Taken { key, owner, id };
                refuse(line, format!("{taken} (line {first})"));
            }
        }
        if let Err(error) = checked {
            refuse(line, error.to_string());
        }
    }
    refusals
}
