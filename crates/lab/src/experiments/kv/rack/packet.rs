//! Messages on their way, as bytes.

use overbank_netcache::slots::PASS;
use overbank_wire::netcache::{HEADER_LEN, Message};

/// Where a packet comes from or goes to: a server by its number, or one of these.
pub(super) type Place = u16;
pub(super) const CLIENT: Place = 0xffff;
pub(super) const CONTROLLER: Place = 0xfffe;

const ROOM: usize = HEADER_LEN + PASS;

/// A message and its way.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    /// Nanoseconds of virtual time at which it arrives.
    pub(super) at: u64,
    pub(super) from: Place,
    pub(super) to: Place,
    len: u16,
    bytes: [u8; ROOM],
}

impl Packet {
    pub(super) fn new(at: u64, from: Place, to: Place, message: &Message<'_>) -> Packet {
        let mut packet = Packet { at, from, to, len: 0, bytes: [0; ROOM] };
        // Values are no longer than the room.
        packet.len = message.emit(&mut packet.bytes).unwrap_or(0) as u16;
        packet
    }

    pub(super) fn message(&self) -> Message<'_> {
        let message = Message::parse(&self.bytes[..usize::from(self.len)]);
        message.expect("what was written can be read")
    }
}
