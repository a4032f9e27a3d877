//! HELLO and the choice of a version (specification 6.3.1, 7.5.1).
//!
//! ```text
//!  8               10              12                              16
//!  +---------------+---------------+-------------------------------+
//!  |   type = 1    |  length = 8   |  bitmap: bit n is version n   |   version bitmap element
//!  +---------------+---------------+-------------------------------+
//! ```
//! A HELLO without that element offers every version up to that of its header. Unknown elements are
//! skipped, and so is everything after a wrong length: a HELLO of a future version must not end the
//! connection.

use crate::bytes::{Put, Reader};
use crate::codes::{BadRequest, ErrorCode, HelloFailed};
use crate::error::EncodeError;
use crate::header::{HEADER_LEN, Header};
use crate::msg::error::ErrorMessage;
use crate::version::{Version, VersionSet};

const VERSION_BITMAP: u16 = 1;

/// The versions that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub versions: VersionSet,
}

impl Hello {
    /// Reads a HELLO of any version.
    pub fn decode(header: &Header, body: &[u8]) -> Hello {
        let bad_len = ErrorCode::BadRequest(BadRequest::BadLen);
        let mut r = Reader::new(body, HEADER_LEN, "hello", bad_len);
        while let Ok((kind, mut element)) = r.tlv("hello element", bad_len) {
            if let (VERSION_BITMAP, Ok(first)) = (kind, element.u32()) {
                return Hello { versions: VersionSet(first) };
            }
        }
        Hello { versions: VersionSet::up_to(header.version) }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.tlv(VERSION_BITMAP, |out| {
            out.put_u32(self.versions.0);
            Ok(())
        })
    }
}

/// Returns the version to use, or the error to send before closing the connection.
pub fn negotiate(ours: VersionSet, theirs: &Hello) -> Result<Version, ErrorMessage> {
    ours.highest_common(theirs.versions).ok_or_else(|| ErrorMessage {
        code: ErrorCode::HelloFailed(HelloFailed::Incompatible),
        data: format!(
            "no version in common: wire versions {:#x} here, {:#x} there",
            ours.0, theirs.versions.0
        )
        .into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(version: u8, body: &[u8]) -> VersionSet {
        let length = (HEADER_LEN + body.len()) as u16;
        Hello::decode(&Header { version, kind: 0, length, xid: 1 }, body).versions
    }

    #[test]
    fn the_bitmap_counts_and_else_the_header() {
        let bitmap = [0, 1, 0, 8, 0, 0, 0, 0x70];
        assert_eq!(decode(4, &bitmap), VersionSet(0x70));
        let unknown = [0, 9, 0, 5, 1, 0, 0, 0];
        assert_eq!(decode(4, &[unknown, bitmap].concat()), VersionSet(0x70));
        assert_eq!(decode(4, &unknown), VersionSet(0b11110));
        assert_eq!(decode(4, &[]), VersionSet(0b11110));
        for broken in [&[0, 1, 0, 3, 0, 0][..], &[0, 1, 0, 9, 0], &[0, 1, 0, 4], &[7]] {
            assert_eq!(decode(5, broken), VersionSet(0b111110), "{broken:?}");
        }
    }

    #[test]
    fn without_a_common_version_the_answer_is_hello_failed() {
        let old = Hello { versions: VersionSet::up_to(3) };
        let error = negotiate(VersionSet::ours(), &old).unwrap_err();
        assert_eq!(error.code.to_wire(), (0, 0));
        assert!(error.data.is_ascii() && !error.data.is_empty());
        let new = Hello { versions: VersionSet::up_to(9) };
        assert_eq!(negotiate(VersionSet::ours(), &new), Ok(Version::V15));
    }
}
