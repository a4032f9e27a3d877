//! Messages of extensions (specification 7.5.5). None is supported: a switch answers with
//! [`BadRequest::BadExperimenter`](crate::BadRequest::BadExperimenter), or with
//! [`BadExpType`](crate::BadRequest::BadExpType) if it knows the experimenter.
//!
//! ```text
//!  8                               12                              16
//!  +-------------------------------+-------------------------------+------
//!  |          experimenter         |             type              | data
//!  +-------------------------------+-------------------------------+------
//! ```

use crate::bytes::{Put, Reader};
use crate::error::DecodeError;

/// A message, or a multipart body, of an extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Experimenter {
    pub experimenter: u32,
    /// Type, assigned by the experimenter.
    pub exp_type: u32,
    pub data: Vec<u8>,
}

impl Experimenter {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Experimenter, DecodeError> {
        Ok(Experimenter { experimenter: r.u32()?, exp_type: r.u32()?, data: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.experimenter);
        out.put_u32(self.exp_type);
        out.put(&self.data);
    }
}
