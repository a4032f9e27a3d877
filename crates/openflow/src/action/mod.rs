//! Actions (specification 7.2.6).
//!
//! ```text
//!  0               2               4
//!  +---------------+---------------+-------------------------------+
//!  |     type      |    length     |  arguments, padded            |   length is a multiple of 8
//!  +---------------+---------------+-------------------------------+
//!  output:         port 4, max_len 2, zeros 6
//!  set_field:      one OXM field, zeros up to a multiple of 8
//!  group, queue:   number 4
//!  push:           Ethernet type 2, zeros 2
//!  set_nw_ttl:     TTL 1, zeros 3
//!  experimenter:   experimenter 4, then its own
//! ```
//! OpenFlow 1.5 introduced a masked `set_field`. Earlier versions use Open vSwitch's `reg_load` and
//! `reg_load2`: both decode to [`Action::SetField`], and a masked one is written as `reg_load2`.
//! Single bits of a field that takes no mask are written as `reg_load` in every version.

mod nicira;
#[cfg(test)]
mod tests;

use crate::bytes::{Put, Reader};
use crate::codes::{BadAction, ErrorCode};
use crate::consts::experimenter::NICIRA;
use crate::error::{DecodeError, EncodeError};
use crate::msg::packet_in::PacketInReason;
use crate::oxm::{Oxm, Place};
use crate::version::Version;

const OUTPUT: u16 = 0;
const PUSH_VLAN: u16 = 17;
const POP_VLAN: u16 = 18;
const SET_QUEUE: u16 = 21;
const GROUP: u16 = 22;
const SET_NW_TTL: u16 = 23;
const DEC_NW_TTL: u16 = 24;
const SET_FIELD: u16 = 25;
const METER: u16 = 29;
const EXPERIMENTER: u16 = 0xffff;

/// One action of a list or of the action set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send out of a port, which may be a reserved one.
    Output {
        port: u32,
        /// For [`port::CONTROLLER`](crate::consts::port::CONTROLLER): bytes to send of a buffered
        /// packet, or [`MAX_LEN_NO_BUFFER`](crate::MAX_LEN_NO_BUFFER).
        max_len: u16,
    },
    /// Write a field, or the bits of it under the mask.
    SetField(Oxm),
    /// Push a VLAN tag with this Ethernet type.
    PushVlan(u16),
    /// Remove the outer VLAN tag.
    PopVlan,
    /// Decrement TTL or hop limit.
    DecNwTtl,
    /// Set TTL or hop limit.
    SetNwTtl(u8),
    Group(u32),
    /// Choose the queue of later outputs.
    SetQueue(u32),
    /// Send through a meter (1.5; an instruction before).
    Meter(u32),
    /// Look up again (Nicira): in `table` (default: this one), with `in_port` (default: the real
    /// one) as ingress port.
    Resubmit {
        in_port: Option<u32>,
        table: Option<u8>,
    },
    /// Send to one controller (Nicira).
    NxController {
        /// As in [`Action::Output`].
        max_len: u16,
        /// The controller's identifier; 0 is every controller that did not choose one.
        controller_id: u16,
        reason: PacketInReason,
    },
    /// An action of the specification without a variant here (MPLS, PBB, copies of TTLs and
    /// fields).
    Other {
        kind: u16,
        /// The bytes after type and length.
        body: Vec<u8>,
    },
    /// Any other extension.
    Experimenter {
        experimenter: u32,
        /// The bytes after the experimenter.
        data: Vec<u8>,
    },
}

impl Action {
    /// Returns the subtype of a Nicira action that has no variant here.
    pub fn nx_subtype(&self) -> Option<u16> {
        match self {
            Action::Experimenter { experimenter: NICIRA, data } => {
                data.first_chunk().map(|&subtype| u16::from_be_bytes(subtype))
            }
            _ => None,
        }
    }

    /// Reads actions until `r` ends.
    pub(crate) fn decode_list(
        r: &mut Reader<'_>,
        version: Version,
    ) -> Result<Vec<Action>, DecodeError> {
        let mut actions = Vec::with_capacity(r.count());
        while r.left() > 0 {
            actions.push(Action::decode(r, version)?);
        }
        Ok(actions)
    }

    fn decode(r: &mut Reader<'_>, version: Version) -> Result<Action, DecodeError> {
        let start = r.clone();
        let bad_len = ErrorCode::BadAction(BadAction::BadLen);
        let mut whole = r.clone().part(4.min(r.left()), "action", bad_len)?;
        let (kind, len) = (whole.u16()?, usize::from(whole.u16()?));
        if len < 8 || len % 8 != 0 {
            return Err(start.fail("has an action whose length is no multiple of 8", bad_len));
        }
        let mut body = r.part(len, "action", bad_len)?;
        body.skip(4)?;
        let action = match kind {
            OUTPUT => {
                let (port, max_len) = (body.u32()?, body.u16()?);
                body.skip(6)?;
                Action::Output { port, max_len }
            }
            SET_FIELD => {
                let field = body.clone();
                let oxm = Oxm::decode(&mut body, Place::SetField)?;
                settable(&oxm, &field)?;
                if oxm.is_masked() && version < Version::V15 {
                    // 1.5 introduced the mask and an error code for it.
                    return Err(field.fail("has a mask", BadAction::BadSetArgument.into()));
                }
                let padding = body.left().min(7);
                body.skip(padding)?;
                Action::SetField(oxm)
            }
            PUSH_VLAN => {
                let ether_type = body.u16()?;
                body.skip(2)?;
                Action::PushVlan(ether_type)
            }
            POP_VLAN | DEC_NW_TTL => {
                body.skip(4)?;
                if kind == POP_VLAN { Action::PopVlan } else { Action::DecNwTtl }
            }
            SET_NW_TTL => {
                let ttl = body.u8()?;
                body.skip(3)?;
                Action::SetNwTtl(ttl)
            }
            GROUP => Action::Group(body.u32()?),
            SET_QUEUE => Action::SetQueue(body.u32()?),
            METER if version >= Version::V15 => Action::Meter(body.u32()?),
            EXPERIMENTER => match body.u32()? {
                NICIRA => nicira::decode(&mut body)?,
                experimenter => Action::Experimenter { experimenter, data: body.rest().to_vec() },
            },
            _ if is_known(kind, version) => Action::Other { kind, body: body.rest().to_vec() },
            _ => {
                let unknown = BadAction::BadType.into();
                return Err(start.fail("has an action of unknown type", unknown));
            }
        };
        body.end()?;
        Ok(action)
    }

    pub(crate) fn encode_list(
        actions: &[Action],
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        actions.iter().try_for_each(|action| action.encode(version, out))
    }

    fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match *self {
            Action::Output { port, max_len } => put(out, OUTPUT, |out| {
                out.put_u32(port);
                out.put_u16(max_len);
                out.zeros(6);
            }),
            Action::SetField(oxm)
                if oxm.is_masked() && (version < Version::V15 || !oxm.field.maskable()) =>
            {
                nicira::set_bits(&oxm, version, out)
            }
            Action::SetField(oxm) => put(out, SET_FIELD, |out| oxm.encode(version, out)),
            Action::PushVlan(ether_type) => put(out, PUSH_VLAN, |out| out.put_u16(ether_type)),
            Action::PopVlan => put(out, POP_VLAN, |out| out.zeros(4)),
            Action::DecNwTtl => put(out, DEC_NW_TTL, |out| out.zeros(4)),
            Action::SetNwTtl(ttl) => put(out, SET_NW_TTL, |out| out.put_u8(ttl)),
            Action::Group(group) => put(out, GROUP, |out| out.put_u32(group)),
            Action::SetQueue(queue) => put(out, SET_QUEUE, |out| out.put_u32(queue)),
            Action::Meter(meter) if version >= Version::V15 => {
                put(out, METER, |out| out.put_u32(meter))
            }
            Action::Meter(_) => Err(EncodeError::NotInVersion { what: "meter action", version }),
            Action::Resubmit { in_port, table } => nicira::resubmit(in_port, table, out),
            Action::NxController { max_len, controller_id, reason } => {
                nicira::controller(max_len, controller_id, reason, out)
            }
            Action::Other { kind, ref body } => put(out, kind, |out| out.put(body)),
            Action::Experimenter { experimenter, ref data } => put(out, EXPERIMENTER, |out| {
                out.put_u32(experimenter);
                out.put(data);
            }),
        }
    }
}

/// Checks that a field may be written.
fn settable(oxm: &Oxm, at: &Reader<'_>) -> Result<(), DecodeError> {
    if oxm.field.settable() {
        Ok(())
    } else {
        Err(at.fail("has a field that is read-only", BadAction::BadSetArgument.into()))
    }
}

/// Returns whether the specification has the type, which stays [`Action::Other`]: copy_ttl_out,
/// copy_ttl_in, set_mpls_ttl, dec_mpls_ttl, push_mpls, pop_mpls, push_pbb, pop_pbb, and copy_field
/// of 1.5.
fn is_known(kind: u16, version: Version) -> bool {
    matches!(kind, 11 | 12 | 15 | 16 | 19 | 20 | 26 | 27) || (kind == 28 && version >= Version::V15)
}

/// Writes one action; its length includes the padding.
fn put(
    out: &mut Vec<u8>,
    kind: u16,
    arguments: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EncodeError> {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    arguments(out);
    out.pad8(start);
    out.close(start, start + 2)
}
