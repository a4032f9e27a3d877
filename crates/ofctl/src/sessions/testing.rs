//! What tests of the control plane share.

use overbank_switch::sink::PacketInReason;

use crate::engine::PacketIn;

/// Returns a packet for the controllers.
pub fn packet(in_port: u32, frame: &[u8]) -> PacketIn {
    PacketIn {
        reason: PacketInReason::Action,
        max_len: 128,
        table: 0,
        cookie: 7,
        in_port,
        frame: frame.to_vec(),
    }
}
