//! Changes of meters, as far as is needed to refuse them (specification 7.3.4.4).
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

/// A change of a meter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MeterMod {
    /// What to do: 0 add, 1 modify, 2 delete.
    pub command: u16,
    /// Units and what to count.
    pub flags: u16,
    /// The meter.
    pub meter: u32,
    /// Bands, as they came.
    pub bands: Vec<u8>,
}

impl MeterMod {
    /// Remove meters.
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
