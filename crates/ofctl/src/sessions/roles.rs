//! Roles of the connected controllers: which of them may write (OpenFlow 1.3.5, 6.3.6).
//!
//! ```text
//!              EQUAL  ◀── start
//!              │   ▲              MASTER   at most one; becoming it makes the former one a slave
//!              ▼   │              SLAVE    may only read; gets only port-status by default
//!        MASTER ◀──▶ SLAVE        to and from MASTER and SLAVE needs a current generation
//! ```
//! *Guarantee:* there are never two masters. The generation never goes back (as the specification
//! compares: the difference is a signed number, so that it may wrap around).
//!
//! This module only keeps the book; sessions tell each other by [`Roles::set`]'s answer.
//! Panics: none.

use std::collections::BTreeMap;

use overbank_openflow::{Role, RoleRequestFailed};

/// Number of a session, never used twice.
pub type SessionId = u64;

/// The book of roles.
#[derive(Debug, Default)]
pub struct Roles {
    /// Of the last request for MASTER or SLAVE.
    generation: Option<u64>,
    members: BTreeMap<SessionId, Role>,
}

impl Roles {
    /// Begins a session, as EQUAL.
    pub fn join(&mut self, session: SessionId) {
        self.members.insert(session, Role::Equal);
    }

    /// Ends a session.
    pub fn leave(&mut self, session: SessionId) {
        self.members.remove(&session);
    }

    /// Returns the role of a session; a slave's for one that is not known.
    pub fn of(&self, session: SessionId) -> Role {
        self.members.get(&session).copied().unwrap_or(Role::Slave)
    }

    /// Returns the generation as a reply shows it: all ones before the first.
    pub fn generation(&self) -> u64 {
        self.generation.unwrap_or(u64::MAX)
    }

    /// Carries out a role request: `role` may be [`Role::NoChange`]. Gives the session that was
    /// made a slave by it, if there is one.
    ///
    /// # Errors
    /// `Stale` if the generation is older than one that was seen.
    pub fn set(
        &mut self,
        session: SessionId,
        role: Role,
        generation: u64,
    ) -> Result<Option<SessionId>, RoleRequestFailed> {
        if matches!(role, Role::Master | Role::Slave) {
            let stale = self.generation.is_some_and(|known| is_before(generation, known));
            if stale {
                return Err(RoleRequestFailed::Stale);
            }
            self.generation = Some(generation);
        }
        let mut demoted = None;
        if role == Role::Master {
            let former = self.members.iter_mut().find(|m| *m.0 != session && *m.1 == Role::Master);
            if let Some((&other, role)) = former {
                *role = Role::Slave;
                demoted = Some(other);
            }
        }
        if role != Role::NoChange
            && let Some(mine) = self.members.get_mut(&session)
        {
            *mine = role;
        }
        Ok(demoted)
    }
}

/// Whether `a` is older than `b`.
fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) > i64::MAX as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_master_makes_the_former_one_a_slave() {
        let mut roles = Roles::default();
        (1..4).for_each(|id| roles.join(id));
        assert_eq!(roles.generation(), u64::MAX);
        assert_eq!(roles.set(1, Role::Master, 5), Ok(None));
        assert_eq!(roles.set(2, Role::Master, 5), Ok(Some(1)));
        assert_eq!([1, 2, 3].map(|id| roles.of(id)), [Role::Slave, Role::Master, Role::Equal]);
        assert_eq!(roles.set(2, Role::Master, 6), Ok(None));
        roles.leave(2);
        assert_eq!(roles.set(3, Role::Master, 7), Ok(None));
        assert_eq!(roles.generation(), 7);
        assert_eq!(roles.of(2), Role::Slave);
    }

    #[test]
    fn a_stale_generation_changes_nothing() {
        let mut roles = Roles::default();
        (1..3).for_each(|id| roles.join(id));
        assert_eq!(roles.set(1, Role::Master, 10), Ok(None));
        assert_eq!(roles.set(2, Role::Master, 9), Err(RoleRequestFailed::Stale));
        assert_eq!(roles.set(2, Role::Slave, 9), Err(RoleRequestFailed::Stale));
        assert_eq!((roles.of(1), roles.of(2)), (Role::Master, Role::Equal));
        // EQUAL and NOCHANGE carry no generation.
        assert_eq!(roles.set(1, Role::NoChange, 0), Ok(None));
        assert_eq!(roles.of(1), Role::Master);
        assert_eq!(roles.set(1, Role::Equal, 0), Ok(None));
        assert_eq!((roles.of(1), roles.generation()), (Role::Equal, 10));
        // It may wrap around.
        assert_eq!(roles.set(1, Role::Master, i64::MAX as u64), Ok(None));
        assert_eq!(roles.set(1, Role::Master, u64::MAX - 1), Ok(None));
        assert_eq!(roles.set(1, Role::Master, 3), Ok(None));
    }

    proptest! {
        #[test]
        fn never_two_masters(steps in prop::collection::vec((0..5u64, 0..5u8, 0..6u64), 1..200)) {
            let mut roles = Roles::default();
            for (session, what, generation) in steps {
                let role = match what {
                    0 => { roles.join(session); continue }
                    1 => { roles.leave(session); continue }
                    2 => Role::Equal,
                    3 => Role::Master,
                    _ => Role::Slave,
                };
                let before = roles.generation;
                let known = roles.members.contains_key(&session);
                let done = roles.set(session, role, generation);
                if done.is_ok() && known {
                    prop_assert_eq!(roles.of(session), role);
                }
                prop_assert!(done.is_ok() || roles.generation == before);
                let masters = roles.members.values().filter(|r| **r == Role::Master).count();
                prop_assert!(masters <= 1);
            }
        }
    }
}
