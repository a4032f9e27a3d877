//! The asynchronous messages that a controller wants (specification 7.3.10).
//!
//! ```text
//!  8                               12                              16
//!  +-------------------------------+-------------------------------+
//!  |  packet-in, master and equal  |       packet-in, slave        |   1.3
//!  +-------------------------------+-------------------------------+
//!  |          port-status, master and slave                        |
//!  +---------------------------------------------------------------+
//!  |          flow-removed, master and slave                       |
//!  +---------------------------------------------------------------+
//!
//!  +---------------+---------------+-------------------------------+
//!  |     type      |  length = 8   |        bits of reasons        |   1.4: a list of these
//!  +---------------+---------------+-------------------------------+
//! ```
//! Even types apply to the slave role, odd ones to master and equal. A list changes the entries
//! that it names and no others.

use crate::bytes::{Put, Reader};
use crate::codes::BadProperty;
use crate::error::{DecodeError, EncodeError};
use crate::version::Version;

/// Bits of reasons for one kind of message: bit `n` is reason `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoleMasks {
    /// For the roles master and equal; `None` if the list does not name it.
    pub master: Option<u32>,
    /// For the role slave.
    pub slave: Option<u32>,
}

/// The asynchronous messages that a controller wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsyncConfig {
    pub packet_in: RoleMasks,
    pub port_status: RoleMasks,
    pub flow_removed: RoleMasks,
    /// Role-status (1.4).
    pub role_status: RoleMasks,
    /// Table-status (1.4).
    pub table_status: RoleMasks,
    /// Forwarded group-mods and meter-mods (1.4).
    pub requestforward: RoleMasks,
    /// Controller-status (1.5).
    pub controller_status: RoleMasks,
}

impl AsyncConfig {
    /// Iterates over the masks that a version has, in the order of their property types.
    fn masks(&mut self, version: Version) -> impl Iterator<Item = &mut RoleMasks> {
        let kinds = match version {
            Version::V13 => 3,
            Version::V14 => 6,
            Version::V15 => 7,
        };
        let all = [
            &mut self.packet_in,
            &mut self.port_status,
            &mut self.flow_removed,
            &mut self.role_status,
            &mut self.table_status,
            &mut self.requestforward,
            &mut self.controller_status,
        ];
        all.into_iter().take(kinds)
    }

    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<AsyncConfig, DecodeError> {
        let mut config = AsyncConfig::default();
        if version < Version::V14 {
            for masks in config.masks(version) {
                *masks = RoleMasks { master: Some(r.u32()?), slave: Some(r.u32()?) };
            }
            return Ok(config);
        }
        while r.left() > 0 {
            let start = r.clone();
            let (kind, mut property) = r.tlv("async property", BadProperty::BadLen.into())?;
            let Some(masks) = config.masks(version).nth((kind / 2).into()) else {
                let code = match kind {
                    0xfffe | 0xffff => BadProperty::BadExperimenter,
                    _ => BadProperty::BadType,
                };
                return Err(start.fail("has an unknown property", code.into()));
            };
            let mask = if kind % 2 == 1 { &mut masks.master } else { &mut masks.slave };
            if mask.replace(property.u32()?).is_some() {
                return Err(start.fail("has a property twice", BadProperty::DupType.into()));
            }
            property.end()?;
        }
        Ok(config)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut config = *self;
        for (kind, masks) in (0u16..).zip(config.masks(version)) {
            if version < Version::V14 {
                out.put_u32(masks.master.unwrap_or(0));
                out.put_u32(masks.slave.unwrap_or(0));
                continue;
            }
            for (kind, mask) in [(2 * kind, masks.slave), (2 * kind + 1, masks.master)] {
                let Some(mask) = mask else { continue };
                out.tlv(kind, |out| {
                    out.put_u32(mask);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}
