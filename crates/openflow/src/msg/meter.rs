//! Changes of meters, decoded as far as needed to refuse them (specification 7.3.4.4).
//!
//! ```text
//!  8               10              12                              16
//!  +---------------+---------------+-------------------------------+
//!  |    command    |     flags     |             meter             |   then bands
//!  +---------------+---------------+-------------------------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::MeterModFailed;
use crate::error::DecodeError;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeterMod {
    /// 0 add, 1 modify, 2 delete.
    pub command: u16,
    /// Units and counters.
    pub flags: u16,
    pub meter: u32,
    /// Bands, undecoded.
    pub bands: Vec<u8>,
}

impl MeterMod {
    /// Removes meters.
    pub const DELETE: u16 = 2;

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<MeterMod, DecodeError> {
        let start = r.clone();
        let command = r.u16()?;
        if command > MeterMod::DELETE {
            let code = MeterModFailed::BadCommand.into();
            return Err(start.fail("has an unknown command", code));
        }
        Ok(MeterMod { command, flags: r.u16()?, meter: r.u32()?, bands: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.command);
        out.put_u16(self.flags);
        out.put_u32(self.meter);
        out.put(&self.bands);
    }
}
