//! The key-value protocol that a cache on the path understands.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017, section 4.1 and figure 2b, which leave widths,
//! numbers and errors open. Writes use UDP, too: a switch cannot follow a value through TCP
//! segments.
//!
//! ```text
//!  0      2   3   4     5      6       8        16        24    40                 52
//!  |magic |ver|op |flags|status|length |client  |request  |key  |boot|install|writes| value
//! ```
//!
//! - Big endian. [`Message::parse`] reads a UDP payload, [`Message::emit`] writes one.
//! - `client` and `request` name a request; one that is repeated has the same.
//! - The stamp (boot, install, writes) orders what happened to a cached key; zeroes: none.
//! - Any bytes of any length give a message or a [`Refused`] reason. Nothing panics or allocates.
//! - A message is exactly as long as its datagram: `length` counts the value.
//! - Flags that are not defined are refused, so that a later version may define them.
//!
//! Cost of [`Message::parse`]: the lines of the header.

pub mod frame;
mod op;
mod rewrite;
#[cfg(test)]
mod tests;

pub use op::{Op, Status};
pub use rewrite::mark;

use crate::proto::{array, be16, be32, chunk};

/// UDP port of servers and of the device.
pub const PORT: u16 = 8779;
/// Length of the header.
pub const HEADER_LEN: usize = 52;
/// Most bytes of a value: eleven passes of 128 bytes (section 5).
pub const VALUE_MAX: usize = 1408;
/// Asks the server and not the device, which has the value of another key of the same hash: longer
/// keys than 16 bytes are hashed, and start their values (section 5).
pub const FLAG_BYPASS: u8 = 1;
/// The key has no value: it was deleted.
pub const FLAG_ABSENT: u8 = 2;

const MAGIC: u16 = 0x4e43;
const VERSION: u8 = 1;
const FLAGS: u8 = FLAG_BYPASS | FLAG_ABSENT;

/// Places in the header.
mod at {
    pub const OP: usize = 3;
    pub const STATUS: usize = 5;
    pub const LENGTH: usize = 6;
    pub const CLIENT: usize = 8;
    pub const REQUEST: usize = 16;
    pub const KEY: usize = 24;
    pub const STAMP: usize = 40;
}

overbank_reasons::reasons! {
    /// Why a UDP payload is no message.
    pub enum Refused {
        ShortHeader = "short_header", "message cut short within its header";
        Magic = "magic", "datagram that is no message of this protocol";
        Version = "version", "message of an unknown version";
        UnknownOp = "unknown_op", "message of an unknown operation";
        UnknownFlag = "unknown_flag", "message with a flag that is not defined";
        UnknownStatus = "unknown_status", "message with a status that is not defined";
        Length = "length", "value length that contradicts the datagram";
        ValueLength = "value_length", "value longer than 1,408 bytes";
        Value = "value", "message with a value whose operation has none";
    }
}

/// A key, or the hash of a longer one.
pub type Key = u128;

/// Where a cached key is in the order of what happened to it. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// Run of the device.
    pub boot: u32,
    /// Installation of the key, in that run.
    pub install: u32,
    /// Writes that have passed the device since.
    pub writes: u32,
}

impl Stamp {
    /// Of a message that no device has stamped.
    pub const NONE: Stamp = Stamp { boot: 0, install: 0, writes: 0 };

    fn bytes(self) -> [u8; 12] {
        let number =
            u128::from(self.boot) << 64 | u128::from(self.install) << 32 | u128::from(self.writes);
        array(&number.to_be_bytes(), 4)
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<'a> {
    pub op: Op,
    /// See [`FLAG_BYPASS`] and the others.
    pub flags: u8,
    pub status: Status,
    pub client: u64,
    pub request: u64,
    pub key: Key,
    pub stamp: Stamp,
    pub value: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns a request without a value.
    pub const fn new(op: Op, client: u64, request: u64, key: Key) -> Message<'a> {
        let (flags, status, stamp) = (0, Status::Ok, Stamp::NONE);
        Message { op, flags, status, client, request, key, stamp, value: &[] }
    }

    /// Reads a UDP payload.
    #[inline(always)]
    pub fn parse(payload: &'a [u8]) -> Result<Message<'a>, Refused> {
        let header = chunk::<HEADER_LEN>(payload, 0).ok_or(Refused::ShortHeader)?;
        if be16(header, 0) != MAGIC {
            return Err(Refused::Magic);
        }
        if header[2] != VERSION {
            return Err(Refused::Version);
        }
        let op = Op::of(header[at::OP]).ok_or(Refused::UnknownOp)?;
        let flags = header[at::OP + 1];
        if flags & !FLAGS != 0 {
            return Err(Refused::UnknownFlag);
        }
        let status = Status::of(header[at::STATUS]).ok_or(Refused::UnknownStatus)?;
        let (len, value) = (usize::from(be16(header, at::LENGTH)), &payload[HEADER_LEN..]);
        if len > VALUE_MAX {
            return Err(Refused::ValueLength);
        }
        if len != value.len() {
            return Err(Refused::Length);
        }
        if len > 0 && !op.has_value() {
            return Err(Refused::Value);
        }
        Ok(Message {
            op,
            flags,
            status,
            client: u64::from_be_bytes(array(header, at::CLIENT)),
            request: u64::from_be_bytes(array(header, at::REQUEST)),
            key: u128::from_be_bytes(array(header, at::KEY)),
            stamp: Stamp {
                boot: be32(header, at::STAMP),
                install: be32(header, at::STAMP + 4),
                writes: be32(header, at::STAMP + 8),
            },
            value,
        })
    }

    /// Returns the length of the written message.
    pub const fn emit_len(&self) -> usize {
        HEADER_LEN + self.value.len()
    }

    /// Writes the message at the start of `room` and returns its length. Returns `None`, without a
    /// change, if the room is too small or the value too long.
    #[inline]
    pub fn emit(&self, room: &mut [u8]) -> Option<usize> {
        let (header, value) = room.get_mut(..self.emit_len())?.split_first_chunk_mut()?;
        self.emit_header(header)?;
        value.copy_from_slice(self.value);
        Some(self.emit_len())
    }

    /// Returns the sum of the header's words without client, request and key, which a request and
    /// its answer share. It is of the values: written bytes that are read at once are waited for.
    #[inline(always)]
    fn varying_sum(&self) -> u64 {
        let Stamp { boot, install, writes } = self.stamp;
        let words = [
            MAGIC,
            u16::from_be_bytes([VERSION, self.op as u8]),
            u16::from_be_bytes([self.flags, self.status as u8]),
            self.value.len() as u16,
        ];
        let words: u64 = words.map(u64::from).iter().sum();
        words + [boot, install, writes].map(u64::from).iter().sum::<u64>()
    }

    /// Writes the header alone. Returns `None`, without a change, if the value is too long.
    #[inline]
    pub fn emit_header(&self, header: &mut [u8; HEADER_LEN]) -> Option<()> {
        let value_len = u16::try_from(self.value.len()).ok()?;
        if self.value.len() > VALUE_MAX {
            return None;
        }
        header[..2].copy_from_slice(&MAGIC.to_be_bytes());
        header[2..at::LENGTH].copy_from_slice(&[
            VERSION,
            self.op as u8,
            self.flags,
            self.status as u8,
        ]);
        header[at::LENGTH..at::CLIENT].copy_from_slice(&value_len.to_be_bytes());
        header[at::CLIENT..at::REQUEST].copy_from_slice(&self.client.to_be_bytes());
        header[at::REQUEST..at::KEY].copy_from_slice(&self.request.to_be_bytes());
        header[at::KEY..at::STAMP].copy_from_slice(&self.key.to_be_bytes());
        header[at::STAMP..].copy_from_slice(&self.stamp.bytes());
        Some(())
    }
}
