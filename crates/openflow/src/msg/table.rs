//! Changes of a table's configuration (specification 7.3.3).
//!
//! ```text
//!  8       9                       12                              16
//!  +-------+-----------------------+-------------------------------+
//!  | table |         zeros         |            config             |   1.4: then properties
//!  +-------+-----------------------+-------------------------------+
//! ```

use crate::bytes::{Put, Reader};
use crate::error::{DecodeError, EncodeError};
use crate::version::Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableMod {
    /// The table, or [`table::ALL`](crate::consts::table::ALL).
    pub table: u8,
    /// Bits: 0x4 eviction, 0x8 vacancy events (1.4); 0x3 is obsolete.
    pub config: u32,
    /// Properties (1.4), undecoded.
    pub properties: Vec<u8>,
}

impl TableMod {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<TableMod, DecodeError> {
        let table = r.u8()?;
        r.skip(3)?;
        let config = r.u32()?;
        let properties = if version < Version::V14 { &[] } else { r.rest() };
        Ok(TableMod { table, config, properties: properties.to_vec() })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put(&[self.table, 0, 0, 0]);
        out.put_u32(self.config);
        if version < Version::V14 && !self.properties.is_empty() {
            return Err(EncodeError::NotInVersion { what: "properties of a table-mod", version });
        }
        out.put(&self.properties);
        Ok(())
    }
}
