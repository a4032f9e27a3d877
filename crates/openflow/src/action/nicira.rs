//! Nicira's actions that `ovs-ofctl` writes under OpenFlow 1.3 and later (ovs-actions(7)).
//!
//! ```text
//!  0               2               4                               8               10
//!  +---------------+---------------+-------------------------------+---------------+
//!  | type = 0xffff |    length     |       0x00002320              |    subtype    |
//!  +---------------+---------------+-------------------------------+---------------+
//!  resubmit (1):        in_port 2, zeros 4
//!  resubmit_table (14): in_port 2, table 1, zeros 3
//!  reg_load (7):        offset 10 bits and (width - 1) 6 bits, field 4, value 8
//!  dec_ttl (18):        zeros 6
//!  controller (20):     max_len 2, controller 2, reason 1, zero 1
//!  reg_load2 (33):      one OXM field, zeros up to a multiple of 8
//! ```
//! Ports have 16 bits there: 0xff00 and above stand for the reserved ports with the same last byte.
//! All other subtypes stay [`Action::Experimenter`].

use super::{Action, EXPERIMENTER, put, settable};
use crate::bytes::{Put, Reader};
use crate::codes::{BadAction, ErrorCode};
use crate::consts::experimenter::NICIRA;
use crate::error::{DecodeError, EncodeError};
use crate::msg::packet_in::PacketInReason;
use crate::oxm::{Oxm, OxmField, Place};
use crate::version::Version;

const RESUBMIT: u16 = 1;
const REG_LOAD: u16 = 7;
const RESUBMIT_TABLE: u16 = 14;
const DEC_TTL: u16 = 18;
const CONTROLLER: u16 = 20;
const REG_LOAD2: u16 = 33;

/// "The ingress port" and "this table".
const IN_PORT: u16 = 0xfff8;
const TABLE_HERE: u8 = 255;

/// First reserved port of 16 bits, and the difference to its 32-bit number.
const RESERVED: u16 = 0xff00;
const RESERVED_UPPER: u32 = 0xffff_0000;

/// Reads the bytes after the experimenter.
pub(super) fn decode(body: &mut Reader<'_>) -> Result<Action, DecodeError> {
    let whole = body.clone();
    Ok(match body.u16()? {
        RESUBMIT => {
            let in_port = port(body.u16()?);
            body.skip(4)?;
            Action::Resubmit { in_port, table: None }
        }
        RESUBMIT_TABLE => {
            let (in_port, table) = (port(body.u16()?), body.u8()?);
            body.skip(3)?;
            Action::Resubmit { in_port, table: (table != TABLE_HERE).then_some(table) }
        }
        REG_LOAD => Action::SetField(decode_reg_load(body)?),
        DEC_TTL => {
            body.skip(6)?;
            Action::DecNwTtl
        }
        CONTROLLER => {
            let (max_len, controller_id) = (body.u16()?, body.u16()?);
            let reason = PacketInReason::from_wire(body.u8()?);
            body.skip(1)?;
            Action::NxController { max_len, controller_id, reason }
        }
        REG_LOAD2 => {
            let field = body.clone();
            let oxm = Oxm::decode(body, Place::SetField)?;
            settable(&oxm, &field)?;
            body.skip_up_to(7);
            Action::SetField(oxm)
        }
        _ => {
            body.rest();
            Action::Experimenter { experimenter: NICIRA, data: whole.clone().rest().to_vec() }
        }
    })
}

fn port(short: u16) -> Option<u32> {
    match short {
        IN_PORT => None,
        RESERVED.. => Some(RESERVED_UPPER | u32::from(short)),
        _ => Some(short.into()),
    }
}

fn decode_reg_load(body: &mut Reader<'_>) -> Result<Oxm, DecodeError> {
    let start = body.clone();
    let (place, header, value) = (body.u16()?, body.u32()?, body.u64()?);
    let (offset, width) = (u32::from(place >> 6), u32::from(place & 0x3f) + 1);
    let fail = |why, code: BadAction| Err(start.fail(why, ErrorCode::from(code)));
    let (class, number, masked) = ((header >> 16) as u16, header >> 9 & 0x7f, header >> 8 & 1);
    let Some(field) = OxmField::at(class, number as u8).filter(|_| masked == 0) else {
        return fail("loads an unknown field", BadAction::BadSetType);
    };
    if header as usize & 0xff != field.bytes() || offset + width > field.bits() {
        return fail("loads bits that the field does not have", BadAction::BadSetLen);
    }
    let ones = u128::MAX >> (128 - width);
    if u128::from(value) & !ones != 0 {
        return fail("loads a value that is too wide", BadAction::BadSetArgument);
    }
    let oxm = Oxm::masked(field, u128::from(value) << offset, ones << offset);
    settable(&oxm, &start)?;
    Ok(oxm)
}

/// Writes some bits of a field.
pub(super) fn set_bits(oxm: &Oxm, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !oxm.field.maskable() {
        return reg_loads(oxm, out);
    }
    put(out, EXPERIMENTER, |out| {
        out.put_u32(NICIRA);
        out.put_u16(REG_LOAD2);
        oxm.encode(version, out);
    })
}

/// Writes a `reg_load` for each run of bits of a field that takes no mask. None is wider than 32.
fn reg_loads(oxm: &Oxm, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let (class, number) = oxm.field.nxm_place().unwrap_or(oxm.field.place());
    let header = u32::from(class) << 16 | u32::from(number) << 9 | oxm.field.bytes() as u32;
    let mut left = oxm.mask;
    while left != 0 {
        let offset = left.trailing_zeros();
        let width = (left >> offset).trailing_ones();
        let ones = u128::MAX >> (128 - width);
        left &= !(ones << offset);
        put(out, EXPERIMENTER, |out| {
            out.put_u32(NICIRA);
            out.put_u16(REG_LOAD);
            out.put_u16((offset << 6 | (width - 1)) as u16);
            out.put_u32(header);
            out.put_u64((oxm.value >> offset & ones) as u64);
        })?;
    }
    Ok(())
}

pub(super) fn resubmit(
    in_port: Option<u32>,
    table: Option<u8>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let short = match in_port {
        None => IN_PORT,
        Some(port) if port < RESERVED.into() || port >= RESERVED_UPPER | u32::from(RESERVED) => {
            port as u16
        }
        Some(port) => {
            return Err(EncodeError::OutOfRange { what: "port of resubmit", value: port.into() });
        }
    };
    put(out, EXPERIMENTER, |out| {
        out.put_u32(NICIRA);
        out.put_u16(RESUBMIT_TABLE);
        out.put_u16(short);
        out.put(&[table.unwrap_or(TABLE_HERE), 0, 0, 0]);
    })
}

pub(super) fn controller(
    max_len: u16,
    controller_id: u16,
    reason: PacketInReason,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    put(out, EXPERIMENTER, |out| {
        out.put_u32(NICIRA);
        out.put_u16(CONTROLLER);
        out.put_u16(max_len);
        out.put_u16(controller_id);
        out.put(&[reason.to_wire(), 0]);
    })
}
