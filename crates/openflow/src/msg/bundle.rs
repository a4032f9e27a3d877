//! Bundles: messages that take effect together (1.4; specification 1.4.1, 7.3.9).
//!
//! ```text
//!  8                               12              14              16
//!  +-------------------------------+---------------+---------------+
//!  |            bundle             |     type      |     flags     |   control; then properties
//!  +-------------------------------+---------------+---------------+
//!  |            bundle             |     zeros     |     flags     |   add; then a whole message
//!  +-------------------------------+---------------+---------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::BundleFailed;
use crate::error::DecodeError;
use crate::header::{HEADER_LEN, Header};

/// Opens, closes, commits or discards a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BundleControl {
    /// Number of the bundle, chosen by the controller.
    pub bundle: u32,
    /// 0 open, 2 close, 4 commit, 6 discard; the reply is one more.
    pub kind: u16,
    /// 1 atomic, 2 ordered.
    pub flags: u16,
}

impl BundleControl {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<BundleControl, DecodeError> {
        let control = BundleControl { bundle: r.u32()?, kind: r.u16()?, flags: r.u16()? };
        // Properties hold extensions and commit times, which are not supported.
        r.rest();
        Ok(control)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.bundle);
        out.put_u16(self.kind);
        out.put_u16(self.flags);
    }
}

/// Adds a message to a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BundleAdd {
    pub bundle: u32,
    /// The flags that it was opened with.
    pub flags: u16,
    /// The message, with its header.
    pub message: Vec<u8>,
}

impl BundleAdd {
    pub(crate) fn decode(r: &mut Reader<'_>, xid: u32) -> Result<BundleAdd, DecodeError> {
        let bundle = r.u32()?;
        r.skip(2)?;
        let flags = r.u16()?;
        let start = r.clone();
        let rest = r.rest();
        let header = Header::parse(rest).filter(|inner| usize::from(inner.length) >= HEADER_LEN);
        let message = header.and_then(|inner| Some((inner, rest.get(..inner.length.into())?)));
        let Some((inner, message)) = message else {
            let code = BundleFailed::MsgBadLen.into();
            return Err(start.fail("has no whole message in it", code));
        };
        if inner.xid != xid {
            return Err(start.fail("has a message of another xid", BundleFailed::MsgBadXid.into()));
        }
        Ok(BundleAdd { bundle, flags, message: message.to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.bundle);
        out.zeros(2);
        out.put_u16(self.flags);
        out.put(&self.message);
    }
}
