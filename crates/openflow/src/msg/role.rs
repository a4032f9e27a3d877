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

/// What a controller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A question: leave it as it is.
    NoChange,
    /// Everything, as any other.
    Equal,
    /// Everything; there is one at most.
    Master,
    /// Only read.
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

/// A role that is asked for, or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoleState {
    /// The role.
    pub role: Role,
    /// Counts elections of a master, to know stale requests.
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
    /// Why a controller's role changed.
    RoleStatusReason {
        /// Another controller became master.
        MasterRequest = 0,
        /// The switch was set so.
        Config = 1,
        /// An extension.
        Experimenter = 2,
    }
}

/// News to a controller that its role changed (1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoleStatus {
    /// Its role now.
    pub role: Role,
    /// Why.
    pub reason: RoleStatusReason,
    /// Of the election.
    pub generation_id: u64,
}

impl RoleStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<RoleStatus, DecodeError> {
        let (role, reason) = (Role::decode(r)?, RoleStatusReason::from_wire(r.u8()?));
        r.skip(3)?;
        let generation_id = r.u64()?;
        // Properties: extensions alone.
        r.rest();
        Ok(RoleStatus { role, reason, generation_id })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role as u32);
        out.put(&[self.reason.to_wire(), 0, 0, 0]);
        out.put_u64(self.generation_id);
    }
}
