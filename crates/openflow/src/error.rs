//! Errors of decoding and encoding.

use crate::codes::ErrorCode;
use crate::msg::error::ErrorMessage;
use crate::version::Version;

/// Bytes that are no valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {why}, at byte {offset} ({code})")]
pub struct DecodeError {
    /// The structure that was being read.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
    /// Offset from the first byte of the message's header.
    pub offset: usize,
    /// The error code to answer with.
    pub code: ErrorCode,
}

impl DecodeError {
    /// Returns the answer to `request`, the whole message with its header.
    pub fn reply(&self, request: &[u8]) -> ErrorMessage {
        ErrorMessage::new(self.code, request)
    }
}

/// A value that the requested version cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The structure exceeds its length field.
    #[error("{len} bytes do not fit into a 16-bit length")]
    TooLong { len: usize },
    /// This version of OpenFlow lacks the element.
    #[error("OpenFlow {version} has no {what}")]
    NotInVersion {
        /// The missing element.
        what: &'static str,
        version: Version,
    },
    /// The number exceeds its field.
    #[error("{value} is out of range for {what}")]
    OutOfRange { what: &'static str, value: u64 },
}
