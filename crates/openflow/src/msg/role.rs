//! Roles of controllers (specification 7.3.9, 7.4.4).
//!
//! ```text
//!  8                               12              14              16
//!  +-------------------------------+---------------+---------------+
//!  |             role              | short id (1.5)|     zeros     |   request and reply
//!  +-------------------------------+---------------+---------------+
//!  |                        generation id                          |
//!  +---------------------------------------------------------------+
//!
//!  +-------------------------------+-------+-----------------------+
//!  |             role              |reason |         zeros         |   role-status (1.4)
//!  +-------------------------------+-------+-----------------------+
//!  |                        generation id                          |   then properties
//!  +---------------------------------------------------------------+
//! ```

use super::reasons;
use crate::bytes::{Put, Reader};
use crate::codes::RoleRequestFailed;
use crate::error::DecodeError;

/// Role of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Asks for the current role.
    NoChange,
    /// Full access, shared with others.
    Equal,
    /// Full access; at most one controller has it.
    Master,
    /// Read access only.
    Slave,
}

impl Role {
    const ALL: [Role; 4] = [Role::NoChange, Role::Equal, Role::Master, Role::Slave];

    fn decode(r: &mut Reader<'_>) -> Result<Role, DecodeError> {
        let start = r.clone();
        let role = usize::try_from(r.u32()?).ok().and_then(|number| Role::ALL.get(number));
        role.copied()
            .ok_or_else(|| start.fail("has an unknown role", RoleRequestFailed::BadRole.into()))
    }
}

/// A role requested or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoleState {
    pub role: Role,
    /// Number of the master election; detects stale requests.
    pub generation_id: u64,
}

impl RoleState {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<RoleState, DecodeError> {
        let role = Role::decode(r)?;
        r.skip(4)?;
        Ok(RoleState { role, generation_id: r.u64()? })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role as u32);
        out.zeros(4);
        out.put_u64(self.generation_id);
    }
}

reasons! {
    RoleStatusReason {
        /// Another controller became master.
        MasterRequest = 0,
        /// The switch's configuration changed.
        Config = 1,
        Experimenter = 2,
    }
}

/// Notification that a controller's role changed (1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoleStatus {
    /// Its role now.
    pub role: Role,
    pub reason: RoleStatusReason,
    pub generation_id: u64,
}

impl RoleStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<RoleStatus, DecodeError> {
        let (role, reason) = (Role::decode(r)?, RoleStatusReason::from_wire(r.u8()?));
        r.skip(3)?;
        let generation_id = r.u64()?;
        // Properties hold extensions only.
        r.rest();
        Ok(RoleStatus { role, reason, generation_id })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role as u32);
        out.put(&[self.reason.to_wire(), 0, 0, 0]);
        out.put_u64(self.generation_id);
    }
}
