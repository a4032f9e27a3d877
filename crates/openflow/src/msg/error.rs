//! Error messages (specification 7.5.4).
//!
//! ```text
//!  8               10              12
//!  +---------------+---------------+-------------------------------+
//!  |     type      |     code      |  start of the request, or text|
//!  +---------------+---------------+-------------------------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::ErrorCode;
use crate::error::DecodeError;

/// Bytes of a refused request that an error quotes: the specification's minimum.
pub const ERROR_DATA_LEN: usize = 64;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ErrorMessage {
    pub code: ErrorCode,
    /// The start of the request; a text after [`HelloFailed`](crate::HelloFailed).
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// Returns the answer to `request`, a whole message with its header.
    pub fn new(code: impl Into<ErrorCode>, request: &[u8]) -> ErrorMessage {
        let data = request[..request.len().min(ERROR_DATA_LEN)].to_vec();
        ErrorMessage { code: code.into(), data }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<ErrorMessage, DecodeError> {
        let code = ErrorCode::from_wire(r.u16()?, r.u16()?);
        Ok(ErrorMessage { code, data: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, code) = self.code.to_wire();
        out.put_u16(kind);
        out.put_u16(code);
        out.put(&self.data);
    }
}
