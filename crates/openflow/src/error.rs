//! Why bytes could not be read, or a value could not be written.

use crate::codes::ErrorCode;
use crate::msg::error::ErrorMessage;
use crate::version::Version;

/// Bytes that are not the message that they claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {why}, at byte {offset} ({code})")]
pub struct DecodeError {
    /// The structure that was being read.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
    /// Where, from the first byte of the message's header.
    pub offset: usize,
    /// What a switch answers.
    pub code: ErrorCode,
}

impl DecodeError {
    /// The answer to `request`, the whole message with its header.
    pub fn reply(&self, request: &[u8]) -> ErrorMessage {
        ErrorMessage::new(self.code, request)
    }
}

/// A value that cannot be written in the version that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A length field is too small for it.
    #[error("{len} bytes do not fit into a 16-bit length")]
    TooLong {
        /// The length it would have.
        len: usize,
    },
    /// This version of OpenFlow does not have it.
    #[error("OpenFlow {version} has no {what}")]
    NotInVersion {
        /// What is missing.
        what: &'static str,
        /// The version that was asked for.
        version: Version,
    },
    /// A number that has fewer bits on the wire.
    #[error("{value} is out of range for {what}")]
    OutOfRange {
        /// The field.
        what: &'static str,
        /// What it should have been.
        value: u64,
    },
}
