//! Limits of groups and meters (specification 7.3.5.11, 7.3.5.14). All zeros: not supported.
//!
//! ```text
//!  0                               4                               8
//!  +-------------------------------+-------------------------------+
//!  |        types of groups        |         capabilities          |   groups
//!  +-------------------------------+-------------------------------+
//!  |     most groups of a type, four; actions of a type, four      |
//!  +---------------------------------------------------------------+
//!
//!  +-------------------------------+-------------------------------+
//!  |          most meters          |         types of bands        |   meters
//!  +-------------------------------+-------+-------+---------------+
//!  |         capabilities          | bands | colors|     zeros     |
//!  +-------------------------------+-------+-------+---------------+
//! ```
//! 1.5.1 adds eight bytes to the second. Open vSwitch neither sends nor reads them; they are
//! skipped and not written.

use crate::bytes::{Put, Reader};
use crate::error::{DecodeError, EncodeError};

/// Limits of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupFeatures {
    /// Bits of group types.
    pub types: u32,
    /// Bits of capabilities.
    pub capabilities: u32,
    /// Most groups of each type.
    pub groups_max: [u32; 4],
    /// Bits of actions for each type.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<GroupFeatures, DecodeError> {
        let mut features =
            GroupFeatures { types: r.u32()?, capabilities: r.u32()?, ..GroupFeatures::default() };
        for number in features.groups_max.iter_mut().chain(&mut features.actions) {
            *number = r.u32()?;
        }
        Ok(features)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let head = [self.types, self.capabilities];
        for &number in head.iter().chain(&self.groups_max).chain(&self.actions) {
            out.put_u32(number);
        }
        Ok(())
    }
}

/// Limits of meters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MeterFeatures {
    pub meters_max: u32,
    /// Bits of band types.
    pub band_types: u32,
    /// Bits of capabilities.
    pub capabilities: u32,
    /// Most bands of a meter.
    pub bands_max: u8,
    /// Largest colour value.
    pub colors_max: u8,
}

impl MeterFeatures {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<MeterFeatures, DecodeError> {
        let features = MeterFeatures {
            meters_max: r.u32()?,
            band_types: r.u32()?,
            capabilities: r.u32()?,
            bands_max: r.u8()?,
            colors_max: r.u8()?,
        };
        r.skip(2)?;
        r.skip_up_to(8);
        Ok(features)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u32(self.meters_max);
        out.put_u32(self.band_types);
        out.put_u32(self.capabilities);
        out.put(&[self.bands_max, self.colors_max, 0, 0]);
        Ok(())
    }
}
