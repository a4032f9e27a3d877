//! GTP-U, the tunnels of mobile networks (3GPP TS 29.281), over IPv4 and IPv6.
//!
//! ```text
//!  0     1     2           4           8           10    11    12
//!  |flags| type| length    | TEID      | sequence  |N-PDU| next| extension headers | body
//!  flags: version 1 (3 bits), PT 1, spare, E, S, PN     └ present if E, S or PN is set
//! ```
//!
//! [`datagram`] finds the UDP payload in a frame, [`Message::parse`] reads it, and
//! [`ip::Packet::parse`](crate::ip::Packet::parse) reads the packet inside a G-PDU.
//! [`Plain::of`] reads nearly every G-PDU at once. [`Message::emit`] writes a message, and
//! [`Encap`] the headers in front of a packet.
//!
//! - Any bytes of any length give a message or a [`Refused`] reason. Nothing panics or allocates.
//! - `length` counts what follows the first eight bytes. A message longer than its datagram is
//!   refused. Bytes after the message are ignored, as the standard names no error for them.
//! - Spare bits, and fields whose flag is 0, are not evaluated.
//! - At most [`EXTENSIONS_MAX`] extension headers are read. An unknown one is skipped or refused by
//!   the upper bits of its type (5.2.1).
//! - Unknown information elements with a length are skipped, private extensions among them. Of a
//!   repeated element, the first one counts.
//! - A missing sequence number is accepted: the receiver can answer without it.
//!
//! Cost of [`Message::parse`] for a G-PDU: one cache line, and one step for each extension header.

mod elements;
mod encap;
mod extensions;
mod plain;
mod session;
#[cfg(test)]
mod tests;

pub use encap::{Encap, Link, Outer};
pub use extensions::{EXTENSIONS_MAX, Extension, Extensions, kind};
pub use plain::Plain;
pub use session::{Container, Downlink, Uplink};

use crate::proto::{be16, be32, chunk};
use crate::udp::{self, Datagram};
use elements::element;
use std::net::IpAddr;

/// UDP port of the receiver of every message but a response.
pub const PORT: u16 = 2152;
/// Type of the messages with a user's packet.
pub const G_PDU: u8 = 255;
/// Length of the header without its optional part.
pub const HEADER_LEN: usize = 8;
/// Length of the header with sequence number, N-PDU number and type of the next extension header.
pub const LONG_HEADER_LEN: usize = 12;
/// Extension headers that need no refusal, as a notification lists them.
pub const SUPPORTED: [u8; 2] = [kind::UDP_PORT, kind::PDU_SESSION];

/// Version 1, protocol type GTP.
const VERSION: u8 = 0x30;
const VERSION_MASK: u8 = 0xf0;
const E: u8 = 4;
const S: u8 = 2;
const PN: u8 = 1;

/// Message types.
mod message_type {
    pub const ECHO_REQUEST: u8 = 1;
    pub const ECHO_RESPONSE: u8 = 2;
    pub const ERROR_INDICATION: u8 = 26;
    pub const SUPPORTED_EXTENSIONS: u8 = 31;
    pub const END_MARKER: u8 = 254;
    pub use super::G_PDU;
}

overbank_reasons::reasons! {
    /// Why a frame, a GTP-U message or the packet inside is refused.
    pub enum Refused {
        NotIp = "not_ip", "frame without an IPv4 or IPv6 packet";
        BrokenIp = "broken_ip", "outer IP header with a wrong version, length or checksum";
        Routed = "routed", "outer IPv6 routing header with segments left";
        Fragment = "fragment", "fragment of an outer packet";
        NotUdp = "not_udp", "outer packet without a UDP header";
        OtherPort = "other_port", "UDP datagram to another port than 2152";
        UdpLength = "udp_length", "UDP length that contradicts the outer packet";
        ShortHeader = "short_header", "GTP-U header cut short";
        Version = "version", "GTP version other than 1, or GTP'";
        Length = "length", "GTP-U message longer than its datagram or shorter than its header";
        ShortExtension = "short_extension", "extension header cut short";
        EmptyExtension = "empty_extension", "extension header of length 0";
        TooManyExtensions = "too_many_extensions", "more than 8 extension headers";
        UnknownExtension = "unknown_extension",
            "unknown extension header whose comprehension is required";
        RepeatedContainer = "repeated_container", "two PDU Session Containers";
        BrokenContainer = "broken_container", "PDU Session Container of unknown type or cut short";
        UnknownMessage = "unknown_message", "GTP-U message of unknown type";
        BrokenElement = "broken_element", "information element cut short or of unknown length";
        MissingElement = "missing_element", "mandatory information element missing";
        InnerVersion = "inner_version", "G-PDU without an IPv4 or IPv6 packet";
        InnerLength = "inner_length", "inner packet longer than the G-PDU or shorter than its header";
        InnerEmpty = "inner_empty", "inner IPv6 payload length 0 with a next header";
        TooLong = "too_long", "packet too long for a tunnel or its buffer";
    }
}

impl From<udp::Refused> for Refused {
    fn from(refused: udp::Refused) -> Refused {
        match refused {
            udp::Refused::NotIp => Refused::NotIp,
            udp::Refused::BrokenIp => Refused::BrokenIp,
            udp::Refused::Routed => Refused::Routed,
            udp::Refused::Fragment => Refused::Fragment,
            udp::Refused::NotUdp => Refused::NotUdp,
            udp::Refused::OtherPort => Refused::OtherPort,
            udp::Refused::UdpLength => Refused::UdpLength,
        }
    }
}

/// Finds the UDP datagram to [`PORT`] in a frame: see [`Datagram::of`].
#[inline(always)]
pub fn datagram(frame: &[u8]) -> Result<Datagram<'_>, Refused> {
    Datagram::of(frame, PORT).map_err(Refused::from)
}

/// A GTP-U message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Tunnel of the receiver; 0 for messages about a path.
    pub teid: u32,
    pub sequence: Option<u16>,
    pub n_pdu: Option<u8>,
    pub extensions: Extensions<'a>,
    pub body: Body<'a>,
}

/// What follows the headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A packet of a user.
    GPdu(&'a [u8]),
    EchoRequest,
    /// The restart counter is 0 and ignored in GTP-U; GTP' and old versions use it.
    EchoResponse {
        recovery: Option<u8>,
    },
    /// A G-PDU to this tunnel of this peer arrived there and has no session.
    ErrorIndication {
        teid: u32,
        peer: IpAddr,
    },
    /// No more G-PDUs follow in this tunnel.
    EndMarker,
    /// Types of the extension headers that the sender understands.
    SupportedExtensions(&'a [u8]),
}

impl<'a> Message<'a> {
    const fn new(teid: u32, sequence: Option<u16>, body: Body<'a>) -> Message<'a> {
        Message { teid, sequence, n_pdu: None, extensions: Extensions::NONE, body }
    }

    /// Returns a G-PDU without optional fields.
    pub const fn g_pdu(teid: u32, packet: &'a [u8]) -> Message<'a> {
        Message::new(teid, None, Body::GPdu(packet))
    }

    pub const fn echo_request(sequence: u16) -> Message<'a> {
        Message::new(0, Some(sequence), Body::EchoRequest)
    }

    /// Returns the response to an Echo Request with this sequence number.
    pub const fn echo_response(sequence: u16) -> Message<'a> {
        Message::new(0, Some(sequence), Body::EchoResponse { recovery: Some(0) })
    }

    /// Returns the answer to a G-PDU to `peer`, an address of the sender, with an unknown `teid`.
    pub const fn error_indication(teid: u32, peer: IpAddr) -> Message<'a> {
        Message::new(0, Some(0), Body::ErrorIndication { teid, peer })
    }

    pub const fn end_marker(teid: u32) -> Message<'a> {
        Message::new(teid, None, Body::EndMarker)
    }

    /// Returns the answer to [`Refused::UnknownExtension`].
    pub const fn supported_extensions(sequence: u16) -> Message<'a> {
        Message::new(0, Some(sequence), Body::SupportedExtensions(&SUPPORTED))
    }

    /// Reads the message at the start of a UDP payload.
    #[inline(always)]
    pub fn parse(payload: &'a [u8]) -> Result<Message<'a>, Refused> {
        let header = chunk::<HEADER_LEN>(payload, 0).ok_or(Refused::ShortHeader)?;
        let flags = header[0];
        if flags & VERSION_MASK != VERSION {
            return Err(Refused::Version);
        }
        let end = HEADER_LEN + usize::from(be16(header, 2));
        let message = payload.get(..end).ok_or(Refused::Length)?;
        let (mut sequence, mut n_pdu, mut extensions) = (None, None, Extensions::NONE);
        let mut rest = message.get(HEADER_LEN..).ok_or(Refused::Length)?;
        if flags & (E | S | PN) != 0 {
            let long = chunk::<LONG_HEADER_LEN>(message, 0).ok_or(Refused::Length)?;
            sequence = (flags & S != 0).then(|| be16(long, 8));
            n_pdu = (flags & PN != 0).then_some(long[10]);
            rest = message.get(LONG_HEADER_LEN..).ok_or(Refused::Length)?;
            if flags & E != 0 {
                (extensions, rest) = Extensions::parse(long[11], rest)?;
            }
        }
        let body = match header[1] {
            message_type::G_PDU => Body::GPdu(rest),
            other => control(other, rest)?,
        };
        Ok(Message { teid: be32(header, 4), sequence, n_pdu, extensions, body })
    }

    /// Returns the length of the written message.
    pub fn emit_len(&self) -> usize {
        self.header_len() + self.body.len()
    }

    /// Returns the length of the header and its extensions.
    fn header_len(&self) -> usize {
        if self.flags() == VERSION {
            HEADER_LEN
        } else {
            LONG_HEADER_LEN + self.extensions.bytes().len()
        }
    }

    fn flags(&self) -> u8 {
        let e = if self.extensions.is_empty() { 0 } else { E };
        let s = if self.sequence.is_some() { S } else { 0 };
        let pn = if self.n_pdu.is_some() { PN } else { 0 };
        VERSION | e | s | pn
    }

    /// Writes the message at the start of `room` and returns its length. Returns `None`, without a
    /// change, if the room or the length field is too small.
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let (head, len) = (self.header_len(), self.emit_len());
        self.body.is_encodable().then_some(())?;
        let (header, body) = room.get_mut(..len)?.split_at_mut_checked(head)?;
        self.emit_header(header, self.body.len())?;
        self.body.emit(body);
        Some(len)
    }

    /// Writes the header of a message whose body has `body_len` bytes; `header` is as long as it.
    fn emit_header(&self, header: &mut [u8], body_len: usize) -> Option<()> {
        let length = u16::try_from(header.len().checked_sub(HEADER_LEN)? + body_len).ok()?;
        let (short, long) = header.split_first_chunk_mut::<HEADER_LEN>()?;
        let flags = self.flags();
        short[..2].copy_from_slice(&[flags, self.body.message_type()]);
        short[2..4].copy_from_slice(&length.to_be_bytes());
        short[4..].copy_from_slice(&self.teid.to_be_bytes());
        if let Some((optional, extensions)) = long.split_first_chunk_mut::<4>() {
            optional[..2].copy_from_slice(&self.sequence.unwrap_or(0).to_be_bytes());
            optional[2..].copy_from_slice(&[self.n_pdu.unwrap_or(0), self.extensions.first()]);
            extensions.copy_from_slice(self.extensions.bytes());
        }
        Some(())
    }
}

impl Body<'_> {
    const fn message_type(&self) -> u8 {
        match self {
            Body::GPdu(_) => message_type::G_PDU,
            Body::EchoRequest => message_type::ECHO_REQUEST,
            Body::EchoResponse { .. } => message_type::ECHO_RESPONSE,
            Body::ErrorIndication { .. } => message_type::ERROR_INDICATION,
            Body::EndMarker => message_type::END_MARKER,
            Body::SupportedExtensions(_) => message_type::SUPPORTED_EXTENSIONS,
        }
    }

    fn len(&self) -> usize {
        match self {
            Body::GPdu(packet) => packet.len(),
            Body::EchoRequest | Body::EndMarker | Body::EchoResponse { recovery: None } => 0,
            Body::EchoResponse { recovery: Some(_) } => 2,
            Body::ErrorIndication { peer: IpAddr::V4(_), .. } => 5 + 3 + 4,
            Body::ErrorIndication { peer: IpAddr::V6(_), .. } => 5 + 3 + 16,
            Body::SupportedExtensions(kinds) => 2 + kinds.len(),
        }
    }

    /// Returns whether the length fields inside the body suffice.
    fn is_encodable(&self) -> bool {
        !matches!(self, Body::SupportedExtensions(kinds) if kinds.len() > 255)
    }

    /// Writes the body; `out` is as long as it.
    fn emit(&self, out: &mut [u8]) {
        match *self {
            Body::GPdu(packet) => out.copy_from_slice(packet),
            Body::EchoRequest | Body::EndMarker | Body::EchoResponse { recovery: None } => {}
            Body::EchoResponse { recovery: Some(counter) } => {
                out.copy_from_slice(&[element::RECOVERY, counter]);
            }
            Body::ErrorIndication { teid, peer } => {
                let (tunnel, address) = out.split_at_mut(5);
                tunnel[0] = element::TEID;
                tunnel[1..].copy_from_slice(&teid.to_be_bytes());
                let (head, value) = address.split_at_mut(3);
                head.copy_from_slice(&[element::PEER_ADDRESS, 0, value.len() as u8]);
                match peer {
                    IpAddr::V4(peer) => value.copy_from_slice(&peer.octets()),
                    IpAddr::V6(peer) => value.copy_from_slice(&peer.octets()),
                }
            }
            Body::SupportedExtensions(kinds) => {
                let (head, list) = out.split_at_mut(2);
                head.copy_from_slice(&[element::EXTENSION_TYPES, kinds.len() as u8]);
                list.copy_from_slice(kinds);
            }
        }
    }
}

/// Reads the body of a message other than a G-PDU.
#[cold]
fn control(message_type: u8, bytes: &[u8]) -> Result<Body<'_>, Refused> {
    use message_type::{
        ECHO_REQUEST, ECHO_RESPONSE, END_MARKER, ERROR_INDICATION, SUPPORTED_EXTENSIONS,
    };
    if !matches!(
        message_type,
        ECHO_REQUEST | ECHO_RESPONSE | END_MARKER | ERROR_INDICATION | SUPPORTED_EXTENSIONS
    ) {
        return Err(Refused::UnknownMessage);
    }
    let found = elements::Elements::parse(bytes)?;
    Ok(match message_type {
        ECHO_REQUEST => Body::EchoRequest,
        ECHO_RESPONSE => Body::EchoResponse { recovery: found.recovery },
        END_MARKER => Body::EndMarker,
        ERROR_INDICATION => Body::ErrorIndication {
            teid: found.teid.ok_or(Refused::MissingElement)?,
            peer: found.peer.ok_or(Refused::MissingElement)?,
        },
        _ => Body::SupportedExtensions(found.extension_types.ok_or(Refused::MissingElement)?),
    })
}
