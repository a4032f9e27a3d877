//! A packet for the controller (specification 7.4.1).
//!
//! ```text
//!  8                               12              14      15      16
//!  +-------------------------------+---------------+-------+-------+
//!  |           buffer id           |  total length |reason | table |
//!  +-------------------------------+---------------+-------+-------+
//!  |                            cookie                             |
//!  +---------------------------------------------------------------+
//!  |  match: ingress port and the like; zeros 2; start of the packet
//! ```
//! The three versions differ only in their reasons.

use super::reasons;
use crate::bytes::{Put, Reader};
use crate::error::{DecodeError, EncodeError};
use crate::oxm::OxmMatch;
use crate::version::Version;

reasons! {
    /// Why a packet went to the controller.
    PacketInReason {
        /// Only the table-miss rule matched.
        TableMiss = 0,
        /// An output of an action list.
        ApplyAction = 1,
        /// TTL or hop limit expired.
        InvalidTtl = 2,
        /// An output of the action set (1.4; written as `ApplyAction` before).
        ActionSet = 3,
        /// An output of a group's bucket (1.4; written as `ApplyAction` before).
        Group = 4,
        /// An output of a packet-out (1.4; written as `ApplyAction` before).
        PacketOut = 5,
    }
}

/// A packet, or its first bytes, for the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PacketIn {
    /// Number of the buffered packet, or [`BUFFER_NONE`](crate::BUFFER_NONE).
    pub buffer_id: u32,
    /// Length of the whole packet.
    pub total_len: u16,
    pub reason: PacketInReason,
    /// Table of the rule that sent it.
    pub table: u8,
    /// Cookie of that rule; all ones if there is none.
    pub cookie: u64,
    /// Ingress port, and fields that are not part of the packet.
    pub matching: OxmMatch,
    /// The first bytes of the packet, as many as asked for.
    pub data: Vec<u8>,
}

impl PacketIn {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<PacketIn, DecodeError> {
        let (buffer_id, total_len) = (r.u32()?, r.u16()?);
        let (reason, table, cookie) = (r.u8()?, r.u8()?, r.u64()?);
        let reason = match reason {
            // Undefined before 1.4.
            3.. if version < Version::V14 => PacketInReason::Other(reason),
            _ => PacketInReason::from_wire(reason),
        };
        let matching = OxmMatch::decode_fields(r)?;
        r.skip(2)?;
        let data = r.rest().to_vec();
        Ok(PacketIn { buffer_id, total_len, reason, table, cookie, matching, data })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let reason = match self.reason {
            PacketInReason::ActionSet | PacketInReason::Group | PacketInReason::PacketOut
                if version < Version::V14 =>
            {
                PacketInReason::ApplyAction
            }
            reason => reason,
        };
        out.put_u32(self.buffer_id);
        out.put_u16(self.total_len);
        out.put(&[reason.to_wire(), self.table]);
        out.put_u64(self.cookie);
        self.matching.encode(version, out)?;
        out.zeros(2);
        out.put(&self.data);
        Ok(())
    }
}
