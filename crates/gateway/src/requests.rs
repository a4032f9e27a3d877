//! What an operator may ask of the control side: sessions of [`Origin::Request`].

use crate::control::GatewayControl;
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

    /// Returns a session that requests may change.
    fn requested(&self, id: u64) -> Result<Listed, SessionError> {
        let listed = self.sessions().get(id).ok_or(SessionError::Unknown(id))?;
        match listed.origin {
            Origin::Request => Ok(listed),
            other => Err(SessionError::Foreign(id, other)),
        }
    }
}
