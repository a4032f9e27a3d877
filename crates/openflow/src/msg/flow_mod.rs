//! Changes of flow tables (specification 7.3.4.1).
//!
//! ```text
//!  8                                                               16
//!  +---------------------------------------------------------------+
//!  |                            cookie                             |
//!  +---------------------------------------------------------------+
//!  |                          cookie mask                          |
//!  +-------+-------+---------------+---------------+---------------+
//!  | table |command| idle timeout  | hard timeout  |   priority    |
//!  +-------+-------+---------------+---------------+---------------+
//!  |           buffer id           |           out port            |
//!  +-------------------------------+---------------+---------------+
//!  |           out group           |     flags     |  importance   |   importance: 0 in 1.3
//!  +-------------------------------+---------------+---------------+
//!  |  match, instructions
//! ```

use super::flags;
use crate::bytes::{Put, Reader};
use crate::codes::{BadInstruction, FlowModFailed};
use crate::error::{DecodeError, EncodeError};
use crate::instruction::Instruction;
use crate::oxm::OxmMatch;
use crate::version::Version;

flags! {
    /// How a flow is added and counted.
    FlowFlags: u16 {
        /// Report the removal to the controller.
        SEND_FLOW_REM = 1,
        /// Refuse the flow if one of the same priority overlaps.
        CHECK_OVERLAP = 1 << 1,
        /// A modification resets the counters.
        RESET_COUNTS = 1 << 2,
        /// Packets need not be counted.
        NO_PKT_COUNTS = 1 << 3,
        /// Bytes need not be counted.
        NO_BYT_COUNTS = 1 << 4,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCommand {
    /// Add a flow; replaces one with the same match and priority.
    Add,
    /// Change the instructions of all flows that match.
    Modify,
    /// Change the one with the same match and priority.
    ModifyStrict,
    /// Remove all flows that match.
    Delete,
    /// Remove the one with the same match and priority.
    DeleteStrict,
}

impl FlowCommand {
    const ALL: [FlowCommand; 5] = [
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowMod {
    /// Opaque number chosen by the controller.
    pub cookie: u64,
    /// Modify and delete: bits of the cookie that must agree; 0 is no restriction.
    pub cookie_mask: u64,
    /// Table; [`table::ALL`](crate::consts::table::ALL) to delete from all.
    pub table: u8,
    pub command: FlowCommand,
    /// Seconds without a packet until removal; 0 is never.
    pub idle_timeout: u16,
    /// Seconds until removal; 0 is never.
    pub hard_timeout: u16,
    /// Higher wins.
    pub priority: u16,
    /// A packet to run through the tables afterwards, or [`BUFFER_NONE`](crate::BUFFER_NONE).
    pub buffer_id: u32,
    /// Delete: only flows with this output; [`port::ANY`](crate::consts::port::ANY) is all.
    pub out_port: u32,
    /// Delete: only flows with this group; [`group::ANY`](crate::consts::group::ANY) is all.
    pub out_group: u32,
    pub flags: FlowFlags,
    /// Flows of less importance are evicted first (1.4).
    pub importance: u16,
    pub matching: OxmMatch,
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<FlowMod, DecodeError> {
        let (cookie, cookie_mask, table) = (r.u64()?, r.u64()?, r.u8()?);
        let start = r.clone();
        let command = FlowCommand::ALL.get(usize::from(r.u8()?)).copied().ok_or_else(|| {
            start.fail("has an unknown command", FlowModFailed::BadCommand.into())
        })?;
        let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
        let (buffer_id, out_port, out_group) = (r.u32()?, r.u32()?, r.u32()?);
        let start = r.clone();
        let flags = FlowFlags(r.u16()?);
        if !FlowFlags::KNOWN.contains(flags) {
            return Err(start.fail("has unknown flags", FlowModFailed::BadFlags.into()));
        }
        let importance = r.u16()?;
        let importance = if version < Version::V14 { 0 } else { importance };
        let matching = OxmMatch::decode(r)?;
        let mut list = r.part(r.left(), "instructions", BadInstruction::BadLen.into())?;
        let instructions = Instruction::decode_list(&mut list, version)?;
        Ok(FlowMod {
            cookie,
            cookie_mask,
            table,
            command,
            idle_timeout,
            hard_timeout,
            priority,
            buffer_id,
            out_port,
            out_group,
            flags,
            importance,
            matching,
            instructions,
        })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        out.put(&[self.table, self.command as u8]);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u16(self.priority);
        out.put_u32(self.buffer_id);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.put_u16(self.flags.0);
        out.put_u16(if version < Version::V14 { 0 } else { self.importance });
        self.matching.encode(version, out)?;
        Instruction::encode_list(&self.instructions, version, out)
    }
}
