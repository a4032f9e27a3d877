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
use crate::ports::Ports;
use crate::program::Op;
use crate::sink::{ControllerPacket, Normal, NormalPacket, Sink};

/// Where the TTL is in an IPv4 header.
const IP4_TTL: usize = 8;
/// Where the hop limit is in an IPv6 header.
const IP6_HOP_LIMIT: usize = 7;
/// Ethernet addresses and the tag's identifier before the tag's TCI.
const TCI: usize = 14;

/// A frame to run a program on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its place among the frames of its call, for the sink.
    pub index: usize,
    /// Its bytes.
    pub frame: &'a [u8],
    /// Where its headers are.
    pub offsets: Offsets,
    /// Port that it came in on.
    pub in_port: u32,
    /// The ports that exist.
    pub ports: &'a Ports,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was not sent anywhere, if it was not. The sink was not told.
    pub drop: Option<DropReason>,
    /// The step at which its TTL expired, if it did.
    pub stopped_at: Option<usize>,
}

/// Runs `program` on a frame. `drop` is the reason of a program that sends nothing. A frame beyond
/// [`FRAME_MAX`] is refused as a whole.
// Not inlined: the shortcuts beside it keep their registers.
#[inline(never)]
pub fn run<S: Sink>(
    program: &[Op],
    drop: Option<DropReason>,
    subject: &Subject<'_>,
    scratch: &mut FrameBuf,
    sink: &mut S,
) -> Outcome {
    let mut run = Run { subject, scratch, sink, edited: false, sent: false, reason: drop };
    let stopped_at = run.steps(program);
    Outcome { drop: if run.sent { None } else { run.reason }, stopped_at }
}

struct Run<'a, S> {
    subject: &'a Subject<'a>,
    scratch: &'a mut FrameBuf,
    sink: &'a mut S,
    edited: bool,
    sent: bool,
    /// Why nothing is sent, should nothing be.
    reason: Option<DropReason>,
}

impl<S: Sink> Run<'_, S> {
    /// Returns the step at which the TTL expired.
    fn steps(&mut self, program: &[Op]) -> Option<usize> {
        let Subject { frame, offsets, .. } = *self.subject;
        if frame.len() > FRAME_MAX {
            self.reason = Some(DropReason::FrameTooLong);
            return None;
        }
        let mut ttl = key_ttl(frame, offsets);
        for (at, op) in program.iter().enumerate() {
            match *op {
                Op::Output(port) => {
                    self.output(port);
                    continue;
                }
                Op::Normal => {
                    self.normal();
                    continue;
                }
                Op::Controller { max_len, reason, table, cookie } => {
                    let Subject { index, in_port, .. } = *self.subject;
                    let frame = if self.edited { self.scratch.as_slice() } else { frame };
                    let packet =
                        ControllerPacket { reason, max_len, table, cookie, in_port, frame };
                    match self.sink.controller(index, &packet) {
                        Ok(()) => self.sent = true,
                        Err(refusal) => self.weigh(refusal),
                    }
                    continue;
                }
                _ => {}
            }
            if !self.edited {
                if let Err(reason) = self.scratch.load(frame, offsets) {
                    self.reason = Some(reason.into());
                    return None;
                }
                self.edited = true;
            }
            match *op {
                Op::Output(_) | Op::Normal | Op::Controller { .. } => {}
                Op::Set { field, value, mask } => {
                    if field == Field::NwTtl {
                        // The field is eight bits wide.
                        ttl = ttl & !(mask as u8) | (value & mask) as u8;
                    }
                    self.scratch.set_field(field, value, mask);
                }
                Op::PushVlan(tpid) => {
                    self.scratch.push_vlan(tpid);
                }
                Op::PopVlan => {
                    self.scratch.pop_vlan();
                }
                Op::DecTtl if ttl <= 1 => {
                    self.reason = self.reason.filter(|reason| reason.is_refusal());
                    self.weigh(DropReason::TtlExpired);
                    return Some(at);
                }
                Op::DecTtl => {
                    ttl -= 1;
                    // A broken header has no TTL to write; what its key says is what counts.
                    let _ = self.scratch.dec_ttl();
                }
            }
        }
        None
    }

    #[inline]
    fn output(&mut self, port: u32) {
        let Subject { index, frame, .. } = *self.subject;
        let bytes = if self.edited { self.scratch.as_slice() } else { frame };
        self.sink.output(index, port, bytes, self.edited);
        self.sent = true;
    }

    /// Notes one more reason why nothing is sent; the first in their list is the one to tell.
    fn weigh(&mut self, reason: DropReason) {
        self.reason = Some(self.reason.map_or(reason, |other| other.min(reason)));
    }

    fn normal(&mut self) {
        let Subject { index, frame, offsets, in_port, ports } = *self.subject;
        let (bytes, offsets) = match self.edited {
            true => (self.scratch.as_slice(), self.scratch.offsets()),
            false => (frame, offsets),
        };
        let packet = normal_packet(bytes, offsets, in_port);
        match self.sink.normal(index, &packet) {
            Normal::Port(port) if port != in_port && ports.contains(port) => self.output(port),
            Normal::Port(_) => self.weigh(DropReason::NoOutput),
            Normal::Flood => {
                self.weigh(DropReason::NoOutput);
                for &port in ports.flood().iter().filter(|port| **port != in_port) {
                    self.output(port);
                }
            }
            Normal::Drop => self.weigh(DropReason::NormalDrop),
        }
    }
}

/// What a learning switch looks at. Zeros where the frame is too short, which no frame with a key
/// is.
fn normal_packet(frame: &[u8], offsets: Offsets, in_port: u32) -> NormalPacket {
    let address = |at: usize| {
        let bytes = frame.get(at..at + 6).and_then(|bytes| bytes.try_into().ok());
        bytes.unwrap_or_default()
    };
    let tci = match offsets.tags {
        0 => None,
        _ => frame.get(TCI..TCI + 2).map(|tci| u16::from_be_bytes([tci[0], tci[1]])),
    };
    NormalPacket { in_port, dst: address(0), src: address(6), vlan: tci.map(|tci| tci & 0x0fff) }
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
