//! The header of every message (specification 7.1).
//!
//! ```text
//!  0       1       2               4                               8
//!  +-------+-------+---------------+-------------------------------+
//!  |version| type  |    length     |              xid              |
//!  +-------+-------+---------------+-------------------------------+
//! ```
//! `length` counts the header.

pub const HEADER_LEN: usize = 8;

/// Longest message, header included: its length field has 16 bits.
pub const MESSAGE_LEN_MAX: usize = 0xffff;

/// The header of a message, as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wire version; any number is possible.
    pub version: u8,
    pub kind: u8,
    /// Length of the message including this header; below 8 it is invalid.
    pub length: u16,
    /// Transaction number that ties an answer to its request.
    pub xid: u32,
}

impl Header {
    /// Parses the header at the start of `bytes`, if they are long enough.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let &[version, kind, l0, l1, x0, x1, x2, x3] = bytes.first_chunk::<HEADER_LEN>()?;
        let (length, xid) = (u16::from_be_bytes([l0, l1]), u32::from_be_bytes([x0, x1, x2, x3]));
        Some(Header { version, kind, length, xid })
    }

    /// Returns the bytes on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let ([l0, l1], [x0, x1, x2, x3]) = (self.length.to_be_bytes(), self.xid.to_be_bytes());
        [self.version, self.kind, l0, l1, x0, x1, x2, x3]
    }
}

/// Message types, by the names of the specification.
pub(crate) mod kind {
    pub const HELLO: u8 = 0;
    pub const ERROR: u8 = 1;
    pub const ECHO_REQUEST: u8 = 2;
    pub const ECHO_REPLY: u8 = 3;
    pub const EXPERIMENTER: u8 = 4;
    pub const FEATURES_REQUEST: u8 = 5;
    pub const FEATURES_REPLY: u8 = 6;
    pub const GET_CONFIG_REQUEST: u8 = 7;
    pub const GET_CONFIG_REPLY: u8 = 8;
    pub const SET_CONFIG: u8 = 9;
    pub const PACKET_IN: u8 = 10;
    pub const FLOW_REMOVED: u8 = 11;
    pub const PORT_STATUS: u8 = 12;
    pub const PACKET_OUT: u8 = 13;
    pub const FLOW_MOD: u8 = 14;
    pub const GROUP_MOD: u8 = 15;
    pub const PORT_MOD: u8 = 16;
    pub const TABLE_MOD: u8 = 17;
    pub const MULTIPART_REQUEST: u8 = 18;
    pub const MULTIPART_REPLY: u8 = 19;
    pub const BARRIER_REQUEST: u8 = 20;
    pub const BARRIER_REPLY: u8 = 21;
    pub const QUEUE_GET_CONFIG_REQUEST: u8 = 22;
    pub const QUEUE_GET_CONFIG_REPLY: u8 = 23;
    pub const ROLE_REQUEST: u8 = 24;
    pub const ROLE_REPLY: u8 = 25;
    pub const GET_ASYNC_REQUEST: u8 = 26;
    pub const GET_ASYNC_REPLY: u8 = 27;
    pub const SET_ASYNC: u8 = 28;
    pub const METER_MOD: u8 = 29;
    pub const ROLE_STATUS: u8 = 30;
    pub const BUNDLE_CONTROL: u8 = 33;
    pub const BUNDLE_ADD_MESSAGE: u8 = 34;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let header = Header { version: 4, kind: 14, length: 0x1234, xid: 0x5678_9abc };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [4, 14, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(Header::parse(&bytes[..7]), None);
    }
}
