//! What an operator may ask of the control side: sessions of [`Origin::Request`].

use crate::control::GatewayControl;
use crate::journal::{Edit, Edits};
use crate::session::Session;
use crate::sessions::{Import, Imported, Listed, Origin, Refusal, SessionError};

/// How sessions of requests are imported.
const fn requests(replace: bool) -> Import {
    Import { origin: Origin::Request, replace }
}

impl GatewayControl {
    /// Adds a session.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn add(&mut self, session: Session) -> Result<(), SessionError> {
        let (sessions, now_ms) = self.sessions_mut();
        sessions.add(session, Origin::Request, now_ms)
    }

    /// Changes a session to what `change` makes of it.
    ///
    /// # Errors
    /// There is no such session, it has another origin, or the change is refused. Nothing has
    /// changed then.
    pub fn change<E: From<SessionError>>(
        &mut self,
        id: u64,
        change: impl FnOnce(&Session) -> Result<Session, E>,
    ) -> Result<Session, E> {
        let session = change(&self.requested(id)?.session)?;
        let (sessions, now_ms) = self.sessions_mut();
        sessions.change(session, Origin::Request, now_ms)?;
        Ok(session)
    }

    /// Removes a session; returns it with its last counts.
    ///
    /// # Errors
    /// There is no such session, or it has another origin.
    pub fn remove(&mut self, id: u64) -> Result<Listed, SessionError> {
        self.requested(id)?;
        let (sessions, now_ms) = self.sessions_mut();
        sessions.remove(id, now_ms)
    }

    /// Adds and changes the sessions of a list; with `replace`, removes the others.
    ///
    /// # Errors
    /// Those of [`Sessions::import`](crate::sessions::Sessions::import).
    pub fn import(
        &mut self,
        list: &[(usize, Session)],
        replace: bool,
    ) -> Result<Imported, Vec<Refusal>> {
        let (sessions, now_ms) = self.sessions_mut();
        sessions.import(list, requests(replace), now_ms)
    }

    /// Returns what an import would do.
    ///
    /// # Errors
    /// Those of the import.
    pub fn check_import(
        &self,
        list: &[(usize, Session)],
        replace: bool,
    ) -> Result<Imported, Vec<Refusal>> {
        self.sessions().check_import(list, requests(replace), self.now_ms())
    }

    /// Checks the addition of a session, and says what it changes.
    ///
    /// # Errors
    /// It would be refused.
    pub fn plan_add(&mut self, session: &Session, edits: Edits<'_>) -> Result<(), SessionError> {
        let (sessions, now_ms) = self.sessions_mut();
        sessions.check_edit(session, true, now_ms)?;
        edits(Edit::new(session.id, None, Some(*session)));
        Ok(())
    }

    /// Checks a change, and says what it changes.
    ///
    /// # Errors
    /// It would be refused.
    pub fn plan_change<E: From<SessionError>>(
        &mut self,
        id: u64,
        change: impl FnOnce(&Session) -> Result<Session, E>,
        edits: Edits<'_>,
    ) -> Result<(), E> {
        let before = self.requested(id)?.session;
        let after = change(&before)?;
        let (sessions, now_ms) = self.sessions_mut();
        sessions.check_edit(&after, false, now_ms)?;
        edits(Edit::new(id, Some(&before), Some(after)));
        Ok(())
    }

    /// Checks the removal of a session, and says what it changes.
    ///
    /// # Errors
    /// It would be refused.
    pub fn plan_remove(&self, id: u64, edits: Edits<'_>) -> Result<(), SessionError> {
        edits(Edit::new(id, Some(&self.requested(id)?.session), None));
        Ok(())
    }

    /// Checks an import, and says what it changes.
    ///
    /// # Errors
    /// It would be refused.
    pub fn plan_import(
        &self,
        list: &[(usize, Session)],
        replace: bool,
        edits: Edits<'_>,
    ) -> Result<(), Vec<Refusal>> {
        self.check_import(list, replace)?;
        self.sessions().edits_of(list, requests(replace)).for_each(edits);
        Ok(())
    }

    /// Returns a session that requests may change.
    fn requested(&self, id: u64) -> Result<Listed, SessionError> {
        let listed = self.sessions().get(id).ok_or(SessionError::Unknown(id))?;
        match listed.origin {
            Origin::Request => Ok(listed),
            other => Err(SessionError::Foreign(id, other)),
        }
    }
}
