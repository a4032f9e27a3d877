//! Description of the switch (specification 7.3.5.1).
//!
//! ```text
//!  16        272       528       784              816           1072
//!  +---------+---------+---------+----------------+---------------+
//!  | maker   | hardware| software| serial number  | datapath      |
//!  +---------+---------+---------+----------------+---------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::error::{DecodeError, EncodeError};
use crate::name::Name;

/// Description of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    pub manufacturer: Name<256>,
    pub hardware: Name<256>,
    pub software: Name<256>,
    pub serial: Name<32>,
    /// Description of the datapath, for people.
    pub datapath: Name<256>,
}

impl Desc {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Desc, DecodeError> {
        Ok(Desc {
            manufacturer: Name::from_field(r.take(256)?),
            hardware: Name::from_field(r.take(256)?),
            software: Name::from_field(r.take(256)?),
            serial: Name::from_field(r.take(32)?),
            datapath: Name::from_field(r.take(256)?),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put(self.manufacturer.as_bytes());
        out.put(self.hardware.as_bytes());
        out.put(self.software.as_bytes());
        out.put(self.serial.as_bytes());
        out.put(self.datapath.as_bytes());
        Ok(())
    }
}
