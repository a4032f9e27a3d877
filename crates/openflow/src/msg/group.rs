//! Changes of groups, decoded as far as needed to refuse them (specification 7.3.4.2).
//!
//! ```text
//!  8               10      11      12                              16
//!  +---------------+-------+-------+-------------------------------+
//!  |    command    | type  | zero  |             group             |
//!  +---------------+-------+-------+-------------------------------+
//!  | bucket length |     zeros     |         command bucket        |   1.5
//!  +---------------+---------------+-------------------------------+
//!  |  buckets; 1.5: properties
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::GroupModFailed;
use crate::error::{DecodeError, EncodeError};
use crate::version::Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupMod {
    /// 0 add, 1 modify, 2 delete, 3 insert bucket, 5 remove bucket.
    pub command: u16,
    /// 0 all, 1 select, 2 indirect, 3 fast failover.
    pub kind: u8,
    pub group: u32,
    /// Bucket to insert after or to remove (1.5).
    pub bucket: u32,
    /// Buckets, undecoded.
    pub buckets: Vec<u8>,
    /// Properties (1.5), undecoded.
    pub properties: Vec<u8>,
}

impl GroupMod {
    /// Adds a group.
    pub const ADD: u16 = 0;
    /// Changes an existing group.
    pub const MODIFY: u16 = 1;
    /// Removes groups.
    pub const DELETE: u16 = 2;

    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<GroupMod, DecodeError> {
        let start = r.clone();
        let (command, kind) = (r.u16()?, r.u8()?);
        let known = match command {
            0..=2 => true,
            3 | 5 => version >= Version::V15,
            _ => false,
        };
        if !known {
            let code = GroupModFailed::BadCommand.into();
            return Err(start.fail("has an unknown command", code));
        }
        r.skip(1)?;
        let group = r.u32()?;
        if version < Version::V15 {
            let (buckets, properties) = (r.rest().to_vec(), Vec::new());
            return Ok(GroupMod { command, kind, group, bucket: 0, buckets, properties });
        }
        let len = usize::from(r.u16()?);
        r.skip(2)?;
        let bucket = r.u32()?;
        let start = r.clone();
        let Ok(buckets) = r.take(len) else {
            return Err(start.fail("ends within a bucket", GroupModFailed::BadBucket.into()));
        };
        let (buckets, properties) = (buckets.to_vec(), r.rest().to_vec());
        Ok(GroupMod { command, kind, group, bucket, buckets, properties })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u16(self.command);
        out.put(&[self.kind, 0]);
        out.put_u32(self.group);
        if version < Version::V15 {
            out.put(&self.buckets);
            return Ok(());
        }
        let len = self.buckets.len();
        out.put_u16(u16::try_from(len).map_err(|_| EncodeError::TooLong { len })?);
        out.zeros(2);
        out.put_u32(self.bucket);
        out.put(&self.buckets);
        out.put(&self.properties);
        Ok(())
    }
}
