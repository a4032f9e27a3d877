//! Runs the program of a megaflow on a frame.
//!
//! The frame is never written: the first edit copies it into a scratch buffer, and earlier outputs
//! send the original bytes. Cost: the copy and the edits ([`overbank_wire::edit`]). Allocates only
//! for a frame longer than any before it. No program and no frame makes it panic.

use overbank_wire::edit::FRAME_MAX;
use overbank_wire::{FrameBuf, Offsets};

use crate::drop::DropReason;
use crate::ports::Ports;
use crate::program::Op;
use crate::sink::{ControllerPacket, Normal, NormalPacket, Sink};

/// Offset of the outer tag's TCI: two addresses and the TPID precede it.
const TCI: usize = 14;

#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its place among the frames of the call, for the sink.
    pub index: usize,
    pub frame: &'a [u8],
    /// Offsets of its headers.
    pub offsets: Offsets,
    pub in_port: u32,
    pub ports: &'a Ports,
}

/// Runs `program` on a frame. `drop` is the reason of a program that sends nothing. Returns why the
/// frame was not sent anywhere, if so; does not call [`Sink::drop`]. Refuses a frame beyond
/// [`FRAME_MAX`] as a whole.
// Not inlined, so that the shortcuts beside it keep their registers.
#[inline(never)]
pub fn run<S: Sink>(
    program: &[Op],
    drop: Option<DropReason>,
    subject: &Subject<'_>,
    scratch: &mut FrameBuf,
    sink: &mut S,
) -> Option<DropReason> {
    let mut run = Run { subject, scratch, sink, edited: false, sent: false, reason: drop };
    run.steps(program);
    if run.sent { None } else { run.reason }
}

struct Run<'a, S> {
    subject: &'a Subject<'a>,
    scratch: &'a mut FrameBuf,
    sink: &'a mut S,
    edited: bool,
    sent: bool,
    /// Why nothing is sent, if nothing is.
    reason: Option<DropReason>,
}

impl<S: Sink> Run<'_, S> {
    fn steps(&mut self, program: &[Op]) {
        let Subject { frame, offsets, .. } = *self.subject;
        if frame.len() > FRAME_MAX {
            self.reason = Some(DropReason::FrameTooLong);
            return;
        }
        for op in program {
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
                    return;
                }
                self.edited = true;
            }
            match *op {
                Op::Output(_) | Op::Normal | Op::Controller { .. } => {}
                Op::Set { field, value, mask } => {
                    self.scratch.set_field(field, value, mask);
                }
                Op::PushVlan(tpid) => {
                    self.scratch.push_vlan(tpid);
                }
                Op::PopVlan => {
                    self.scratch.pop_vlan();
                }
                Op::DecTtl => {
                    // A broken header has no TTL to write: the key alone decides.
                    let _ = self.scratch.dec_ttl();
                }
            }
        }
    }

    #[inline]
    fn output(&mut self, port: u32) {
        let Subject { index, frame, .. } = *self.subject;
        let bytes = if self.edited { self.scratch.as_slice() } else { frame };
        self.sink.output(index, port, bytes, self.edited);
        self.sent = true;
    }

    /// Notes another reason; the first in the list of reasons is reported.
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

/// Returns the headers that a learning switch reads.
fn normal_packet(frame: &[u8], offsets: Offsets, in_port: u32) -> NormalPacket {
    debug_assert!(frame.len() >= TCI - 2, "a frame with a key has an Ethernet header");
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
