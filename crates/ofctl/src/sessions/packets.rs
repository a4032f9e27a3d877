//! Packets to a controller and from it.
//!
//! A packet-in carries as much of the frame as the rule's action asked for, and the frame is kept
//! in a buffer, even if all of it was sent; if no buffer is free it is sent whole. Only an action
//! that asks for whole frames without a buffer (max_len 0xffff) uses none. With so much waiting to
//! be sent that requests are not taken any more, packet-ins are dropped and counted.

use std::sync::Arc;

use overbank_openflow::{
    BUFFER_NONE, BadMatch, BadRequest, ErrorCode, MAX_LEN_NO_BUFFER, Message, OxmField, OxmMatch,
    PacketIn as OfPacketIn, PacketInReason as OfReason, PacketOut as OfPacketOut, Version,
    consts::port,
};
use overbank_switch::rule::Action;
use overbank_switch::sink::PacketInReason;

use super::asynchronous::Kind;
use super::convert::actions::{self, ListKind};
use super::convert::instructions::wanted_len;
use super::counters::{count, uncount};
use super::session::Session;
use crate::engine::{PacketIn, PacketOut};
use crate::rules::ControllerHandle as _;

/// Most bytes of a frame in one message.
const DATA_MAX: usize = 65_000;
/// How often a packet-out waits for the workers to have room for it.
const PACKET_OUT_TRIES: u32 = 2;

impl Session {
    /// Sends a packet-in, if it is wanted and there is room.
    pub fn packet_in(&mut self, packet: &Arc<PacketIn>) {
        let reason = match packet.reason {
            PacketInReason::NoMatch => OfReason::TableMiss,
            PacketInReason::Action => OfReason::ApplyAction,
            PacketInReason::ActionSet => OfReason::ActionSet,
            PacketInReason::PacketOut => OfReason::PacketOut,
        };
        // 1.3 has two reasons only, as numbers and as bits of the mask.
        let bit = match self.version {
            Version::V13 => packet.reason.openflow13(),
            Version::V14 | Version::V15 => packet.reason.openflow14(),
        };
        if !self.wants(Kind::PacketIn, bit) {
            return;
        }
        let control = Arc::clone(self.control());
        let counters = &control.options.counters;
        if self.out.len() >= control.options.reply_bytes {
            count(&counters.packet_ins_dropped, 1);
            return;
        }
        let frame = &packet.frame;
        let mut buffer_id = BUFFER_NONE;
        let mut len = wanted_len(packet.max_len, frame.len());
        if packet.max_len != MAX_LEN_NO_BUFFER {
            let before = self.buffers.used();
            match self.buffers.keep(packet, control.switch.now_ms()) {
                Some(id) => {
                    buffer_id = id;
                    count(&counters.buffers_in_use, (self.buffers.used() - before) as u64);
                }
                None => {
                    len = frame.len();
                    count(&counters.buffers_full, 1);
                }
            }
        }
        let message = Message::PacketIn(OfPacketIn {
            buffer_id,
            total_len: frame.len().try_into().unwrap_or(u16::MAX),
            reason,
            table: packet.table,
            cookie: packet.cookie,
            matching: OxmMatch::of_port(packet.in_port),
            data: frame[..len.min(DATA_MAX)].to_vec(),
        });
        self.send(&message, 0);
        count(&counters.packet_ins_sent, 1);
    }

    /// Takes a frame out of its buffer.
    pub(super) fn buffered(&mut self, id: u32) -> Result<Arc<PacketIn>, ErrorCode> {
        let packet = self.buffers.take(id)?;
        uncount(&self.control().options.counters.buffers_in_use, 1);
        Ok(packet)
    }

    /// Carries out a packet-out.
    pub(super) async fn packet_out(&mut self, packet: OfPacketOut) -> Result<(), ErrorCode> {
        let in_port = match packet.in_port {
            number @ (..=port::MAX | port::LOCAL | port::CONTROLLER) => number,
            port::ANY => port::CONTROLLER,
            _ => return Err(BadRequest::BadPort.into()),
        };
        for oxm in &packet.pipeline.fields {
            // Every packet here is an Ethernet frame without metadata or tunnel.
            match oxm.field {
                OxmField::PacketType if oxm.value == 0 => {}
                OxmField::PacketType => return Err(BadRequest::BadPacket.into()),
                _ => return Err(BadMatch::BadField.into()),
            }
        }
        let actions = actions::from_list(&packet.actions, ListKind::PacketOut)?;
        let frame = match packet.buffer_id {
            BUFFER_NONE => packet.data,
            id => self.buffered(id)?.frame.clone(),
        };
        self.send_out(frame, in_port, actions).await;
        Ok(())
    }

    /// Hands a frame to the workers; waits a little for room.
    pub(super) async fn send_out(&mut self, frame: Vec<u8>, in_port: u32, actions: Vec<Action>) {
        let control = Arc::clone(self.control());
        let counters = &control.options.counters;
        // An empty list drops the packet.
        if actions.is_empty() || frame.is_empty() {
            count(&counters.packet_outs, 1);
            return;
        }
        let out = PacketOut { frame, in_port, actions };
        for tries in 0..PACKET_OUT_TRIES {
            if control.switch.packet_out(out.clone()).is_ok() {
                count(&counters.packet_outs, 1);
                return;
            }
            if tries == 0 {
                count(&counters.packet_outs_waited, 1);
            }
            control.switch.barrier().await;
        }
        count(&counters.packet_outs_dropped, 1);
    }
}
