//! The chain of extension headers (TS 29.281, 5.2).
//!
//! ```text
//!  0     1                       4n-1   4n
//!  | n   | content               | type |     type: that of the next header, 0 = none follows
//! ```
//!
//! The type of the first one is in the message's header. The upper two bits of a type say what a
//! receiver that does not know it must do (5.2.1): below 0x80 an endpoint skips the header; from
//! 0x80 on it discards the message, and can answer with the list of types that it knows.

use super::{Container, Refused};
use crate::proto::chunk;

/// Most extension headers of a message; each has at most 1020 bytes.
pub const EXTENSIONS_MAX: usize = 8;

/// Types of extension headers.
pub mod kind {
    pub const NONE: u8 = 0;
    /// Source port of the G-PDU that an Error Indication answers.
    pub const UDP_PORT: u8 = 0x40;
    pub const PDU_SESSION: u8 = 0x85;
    /// Bit of the types whose comprehension an endpoint needs.
    pub const REQUIRED: u8 = 0x80;
}

/// A checked chain of extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions<'a> {
    first: u8,
    bytes: &'a [u8],
    /// Content of the PDU Session Container, checked.
    session: Option<&'a [u8]>,
    udp_port: Option<u16>,
}

/// One extension header. A content of other than 4n - 2 bytes is written with zeros behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    pub kind: u8,
    pub content: &'a [u8],
}

impl Extension<'_> {
    /// Returns the length of the header, a multiple of four; `None` if it exceeds 1020 bytes.
    fn len(&self) -> Option<usize> {
        let len = (self.content.len() + 2).next_multiple_of(4);
        (len <= 255 * 4).then_some(len.max(4))
    }
}

impl<'a> Extensions<'a> {
    /// No extension headers.
    pub const NONE: Extensions<'static> =
        Extensions { first: kind::NONE, bytes: &[], session: None, udp_port: None };

    /// Reads the chain at the start of `bytes`, the first header of which has type `first`. Returns
    /// it and the bytes after it.
    #[inline(always)]
    pub(super) fn parse(first: u8, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Refused> {
        // One PDU Session Container of four bytes: nearly every packet.
        if let Some((header @ [1, content @ .., kind::NONE], rest)) = bytes.split_first_chunk::<4>()
            && first == kind::PDU_SESSION
            && Container::is_valid(content)
        {
            let session = Some(&content[..]);
            return Ok((Extensions { bytes: header, session, first, udp_port: None }, rest));
        }
        Extensions::walk(first, bytes)
    }

    /// Reads any chain.
    #[cold]
    pub(super) fn walk(first: u8, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Refused> {
        let mut chain = Extensions { first, ..Extensions::NONE };
        let (mut next, mut at) = (first, 0);
        for _ in 0..EXTENSIONS_MAX {
            if next == kind::NONE {
                break;
            }
            let header = header_at(bytes, at)?;
            let [_, content @ .., following] = header else { return Err(Refused::ShortExtension) };
            match next {
                kind::PDU_SESSION if chain.session.is_some() => {
                    return Err(Refused::RepeatedContainer);
                }
                kind::PDU_SESSION => {
                    if !Container::is_valid(content) {
                        return Err(Refused::BrokenContainer);
                    }
                    chain.session = Some(content);
                }
                kind::UDP_PORT => {
                    let port = chunk::<2>(content, 0).map(|port| u16::from_be_bytes(*port));
                    chain.udp_port = chain.udp_port.or(port);
                }
                other if other & kind::REQUIRED != 0 => return Err(Refused::UnknownExtension),
                _ => {}
            }
            (next, at) = (*following, at + header.len());
        }
        if next != kind::NONE {
            return Err(Refused::TooManyExtensions);
        }
        let (whole, rest) = bytes.split_at_checked(at).ok_or(Refused::ShortExtension)?;
        chain.bytes = whole;
        Ok((chain, rest))
    }

    /// Writes headers into `room`. Fails if they do not fit, or could not be read again.
    pub fn write(headers: &[Extension<'_>], room: &'a mut [u8]) -> Result<Extensions<'a>, Refused> {
        let mut at = 0;
        for (i, header) in headers.iter().enumerate() {
            let len = header.len().ok_or(Refused::TooLong)?;
            let out = room.get_mut(at..at + len).ok_or(Refused::TooLong)?;
            out.fill(0);
            out[0] = (len / 4) as u8;
            out[1..1 + header.content.len()].copy_from_slice(header.content);
            out[len - 1] = headers.get(i + 1).map_or(kind::NONE, |next| next.kind);
            at += len;
        }
        let first = headers.first().map_or(kind::NONE, |header| header.kind);
        Ok(Extensions::parse(first, room.get(..at).unwrap_or_default())?.0)
    }

    /// Returns the chain of a container alone, given its written header.
    pub(super) fn of_session(header: &'a [u8]) -> Extensions<'a> {
        let session = header.get(1..header.len().saturating_sub(1));
        Extensions { first: kind::PDU_SESSION, bytes: header, session, udp_port: None }
    }

    pub const fn is_empty(&self) -> bool {
        self.first == kind::NONE
    }

    /// Returns the type of the first header; [`kind::NONE`] if the chain is empty.
    pub const fn first(&self) -> u8 {
        self.first
    }

    /// Returns all headers as they are on the wire.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the PDU Session Container.
    pub fn session(&self) -> Option<Container> {
        self.session.and_then(Container::parse)
    }

    /// Returns the QoS flow of the PDU Session Container, without reading the rest of it.
    #[inline]
    pub fn qfi(&self) -> Option<u8> {
        Container::qfi_of(self.session?)
    }

    /// Returns the UDP port, which Error Indications may carry.
    pub const fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// Iterates over the headers in order.
    pub fn iter(&self) -> impl Iterator<Item = Extension<'a>> + use<'a> {
        let (mut next, mut at, bytes) = (self.first, 0, self.bytes);
        std::iter::from_fn(move || {
            if next == kind::NONE {
                return None;
            }
            let header = header_at(bytes, at).ok()?;
            let [_, content @ .., following] = header else { return None };
            let extension = Extension { kind: next, content };
            (next, at) = (*following, at + header.len());
            Some(extension)
        })
    }
}

/// Returns the whole extension header at `at`, at least four bytes.
#[inline]
fn header_at(bytes: &[u8], at: usize) -> Result<&[u8], Refused> {
    match *bytes.get(at).ok_or(Refused::ShortExtension)? {
        0 => Err(Refused::EmptyExtension),
        n => bytes.get(at..at + usize::from(n) * 4).ok_or(Refused::ShortExtension),
    }
}
