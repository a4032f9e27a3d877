//! Runs the program of a megaflow on a frame.
//!
//! The frame itself is never written: the first edit copies it into a scratch buffer, and outputs
//! before that send the original bytes. Cost: the copy, and what each edit costs
//! ([`overbank_wire::edit`]). No allocation unless the frame is longer than any before it. Panics:
//! none, whatever the program and the frame.

use overbank_wire::edit::FRAME_MAX;
use overbank_wire::extract::Network;
use overbank_wire::{Field, FrameBuf, Offsets};

use crate::drop::DropReason;
use crate::translate::Op;

/// Where the TTL is in an IPv4 header.
const IP4_TTL: usize = 8;
/// Where the hop limit is in an IPv6 header.
const IP6_HOP_LIMIT: usize = 7;

/// Runs `program` on `frame`, whose headers are where `offsets` say. `out` gets the port, the bytes
/// and whether they were edited. Returns why nothing was sent, if nothing was: `drop` is the reason
/// of a program that sends nothing. A frame beyond [`FRAME_MAX`] is refused as a whole.
pub fn run(
    program: &[Op],
    drop: Option<DropReason>,
    frame: &[u8],
    offsets: Offsets,
    scratch: &mut FrameBuf,
    out: &mut impl FnMut(u32, &[u8], bool),
) -> Option<DropReason> {
    if frame.len() > FRAME_MAX {
        return Some(DropReason::FrameTooLong);
    }
    let (mut edited, mut sent) = (false, false);
    let mut ttl = key_ttl(frame, offsets);
    for op in program {
        if let Op::Output(port) = *op {
            out(port, if edited { scratch.as_slice() } else { frame }, edited);
            sent = true;
            continue;
        }
        if !edited {
            if let Err(reason) = scratch.load(frame, offsets) {
                return if sent { None } else { Some(reason.into()) };
            }
            edited = true;
        }
        match *op {
            Op::Output(_) => {}
            Op::Set { field, value, mask } => {
                if field == Field::NwTtl {
                    // The field is eight bits wide.
                    ttl = ttl & !(mask as u8) | (value & mask) as u8;
                }
                scratch.set_field(field, value, mask);
            }
            Op::PushVlan(tpid) => {
                scratch.push_vlan(tpid);
            }
            Op::PopVlan => {
                scratch.pop_vlan();
            }
            Op::DecTtl if ttl <= 1 => {
                return if sent { None } else { Some(DropReason::TtlExpired) };
            }
            Op::DecTtl => {
                ttl -= 1;
                // A broken header has no TTL to write; what its key says is what counts.
                let _ = scratch.dec_ttl();
            }
        }
    }
    if sent { None } else { drop }
}

/// `nw_ttl` of the frame's key.
fn key_ttl(frame: &[u8], offsets: Offsets) -> u8 {
    let at = match offsets.network {
        Network::Ip4 => IP4_TTL,
        Network::Ip6 => IP6_HOP_LIMIT,
        Network::None | Network::Arp | Network::BrokenIp => return 0,
    };
    frame.get(usize::from(offsets.l3) + at).copied().unwrap_or(0)
}
