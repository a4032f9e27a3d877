//! Instructions: what a rule does with a matching packet (specification 7.2.5).
//!
//! ```text
//!  0               2               4                               8
//!  +---------------+---------------+-------------------------------+
//!  |     type      |    length     |  arguments                    |   length is a multiple of 8
//!  +---------------+---------------+-------------------------------+
//!  goto_table (1):     table 1, zeros 3
//!  write_metadata (2): zeros 4, metadata 8, mask 8
//!  write (3), apply (4), clear actions (5): zeros 4, actions
//!  meter (6):          meter 4 (1.3 and 1.4)
//!  stat_trigger (7):   flags 4, thresholds (1.5)
//!  experimenter:       experimenter 4, then its own
//! ```

use crate::action::Action;
use crate::bytes::{Put, Reader};
use crate::codes::{BadAction, BadInstruction, ErrorCode};
use crate::error::{DecodeError, EncodeError};
use crate::version::Version;

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
const STAT_TRIGGER: u16 = 7;
const EXPERIMENTER: u16 = 0xffff;

/// One instruction. A rule has each kind at most once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Continue in a later table.
    GotoTable(u8),
    WriteMetadata {
        metadata: u64,
        /// Bits to write.
        mask: u64,
    },
    /// Merge actions into the action set.
    WriteActions(Vec<Action>),
    /// Run actions at once.
    ApplyActions(Vec<Action>),
    /// Empty the action set.
    ClearActions,
    /// Send through a meter (1.3 and 1.4; an action in 1.5).
    Meter(u32),
    /// An instruction of the specification without a variant here (stat_trigger).
    Other {
        kind: u16,
        /// The bytes after type and length.
        body: Vec<u8>,
    },
    Experimenter {
        experimenter: u32,
        /// The bytes after the experimenter.
        data: Vec<u8>,
    },
}

impl Instruction {
    fn kind(&self) -> u16 {
        match *self {
            Instruction::GotoTable(_) => GOTO_TABLE,
            Instruction::WriteMetadata { .. } => WRITE_METADATA,
            Instruction::WriteActions(_) => WRITE_ACTIONS,
            Instruction::ApplyActions(_) => APPLY_ACTIONS,
            Instruction::ClearActions => CLEAR_ACTIONS,
            Instruction::Meter(_) => METER,
            Instruction::Other { kind, .. } => kind,
            Instruction::Experimenter { .. } => EXPERIMENTER,
        }
    }

    /// Reads instructions until `r` ends.
    pub(crate) fn decode_list(
        r: &mut Reader<'_>,
        version: Version,
    ) -> Result<Vec<Instruction>, DecodeError> {
        let mut list: Vec<Instruction> = Vec::with_capacity(r.count());
        let mut seen = 0u8;
        while r.left() > 0 {
            let start = r.clone();
            let instruction = Instruction::decode(r, version)?;
            // Valid types are at most 7, except for experimenters.
            let bit = 1u8.checked_shl(instruction.kind().into()).unwrap_or(0);
            if seen & bit != 0 {
                // 1.4 introduced an error code for duplicates.
                let code = match version {
                    Version::V13 => BadInstruction::UnsupInst,
                    _ => BadInstruction::DupInst,
                };
                return Err(start.fail("has an instruction twice", code.into()));
            }
            seen |= bit;
            list.push(instruction);
        }
        Ok(list)
    }

    fn decode(r: &mut Reader<'_>, version: Version) -> Result<Instruction, DecodeError> {
        let start = r.clone();
        let bad_len = ErrorCode::BadInstruction(BadInstruction::BadLen);
        let mut head = r.clone().part(4.min(r.left()), "instruction", bad_len)?;
        let (kind, len) = (head.u16()?, usize::from(head.u16()?));
        if len < 8 || len % 8 != 0 {
            let why = "has an instruction whose length is no multiple of 8";
            return Err(start.fail(why, bad_len));
        }
        let mut body = r.part(len, "instruction", bad_len)?;
        body.skip(4)?;
        let actions = |body: &mut Reader<'_>| {
            body.skip(4)?;
            let bad_len = BadAction::BadLen.into();
            let mut list = body.part(body.left(), "actions", bad_len)?;
            Action::decode_list(&mut list, version)
        };
        let instruction = match kind {
            GOTO_TABLE => {
                let table = body.u8()?;
                body.skip(3)?;
                Instruction::GotoTable(table)
            }
            WRITE_METADATA => {
                body.skip(4)?;
                Instruction::WriteMetadata { metadata: body.u64()?, mask: body.u64()? }
            }
            WRITE_ACTIONS => Instruction::WriteActions(actions(&mut body)?),
            APPLY_ACTIONS => Instruction::ApplyActions(actions(&mut body)?),
            CLEAR_ACTIONS => {
                body.skip(4)?;
                Instruction::ClearActions
            }
            METER if version < Version::V15 => Instruction::Meter(body.u32()?),
            STAT_TRIGGER if version >= Version::V15 => {
                Instruction::Other { kind, body: body.rest().to_vec() }
            }
            EXPERIMENTER => {
                Instruction::Experimenter { experimenter: body.u32()?, data: body.rest().to_vec() }
            }
            _ => {
                let unknown = BadInstruction::UnknownInst.into();
                return Err(start.fail("has an instruction of unknown type", unknown));
            }
        };
        body.end()?;
        Ok(instruction)
    }

    pub(crate) fn encode_list(
        list: &[Instruction],
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        list.iter().try_for_each(|instruction| instruction.encode(version, out))
    }

    fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.put_u16(self.kind());
        out.put_u16(0);
        match *self {
            Instruction::GotoTable(table) => out.put_u8(table),
            Instruction::WriteMetadata { metadata, mask } => {
                out.zeros(4);
                out.put_u64(metadata);
                out.put_u64(mask);
            }
            Instruction::WriteActions(ref actions) | Instruction::ApplyActions(ref actions) => {
                out.zeros(4);
                Action::encode_list(actions, version, out)?;
            }
            Instruction::ClearActions => out.zeros(4),
            Instruction::Meter(_) if version >= Version::V15 => {
                return Err(EncodeError::NotInVersion { what: "meter instruction", version });
            }
            Instruction::Meter(meter) => out.put_u32(meter),
            Instruction::Other { ref body, .. } => out.put(body),
            Instruction::Experimenter { experimenter, ref data } => {
                out.put_u32(experimenter);
                out.put(data);
            }
        }
        out.pad8(start);
        out.close(start, start + 2)
    }
}
