//! Flow monitors, decoded as far as needed to refuse them (1.4; specification 1.4.1, 7.3.5.19).
//!
//! ```text
//!  0                               4                               8
//!  +-------------------------------+-------------------------------+
//!  |            monitor            |           out port            |
//!  +-------------------------------+---------------+-------+-------+
//!  |           out group           |     flags     | table |command|
//!  +-------------------------------+---------------+-------+-------+
//!  |  match
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::FlowMonitorFailed;
use crate::error::{DecodeError, EncodeError};
use crate::oxm::OxmMatch;
use crate::version::Version;

/// A subscription to changes of flows, or its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowMonitor {
    /// Number chosen by the controller.
    pub monitor: u32,
    /// An output that the flows have.
    pub out_port: u32,
    /// A group that the flows use.
    pub out_group: u32,
    /// Which changes to report, and in what detail.
    pub flags: u16,
    pub table: u8,
    /// 0 add, 1 modify, 2 delete.
    pub command: u8,
    /// Selects flows at least as specific as this.
    pub matching: OxmMatch,
}

impl FlowMonitor {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<FlowMonitor, DecodeError> {
        let (monitor, out_port, out_group) = (r.u32()?, r.u32()?, r.u32()?);
        let (flags, table) = (r.u16()?, r.u8()?);
        let start = r.clone();
        let command = r.u8()?;
        if command > 2 {
            let code = FlowMonitorFailed::BadCommand.into();
            return Err(start.fail("has an unknown command", code));
        }
        let matching = OxmMatch::decode(r)?;
        Ok(FlowMonitor { monitor, out_port, out_group, flags, table, command, matching })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put_u32(self.monitor);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.put_u16(self.flags);
        out.put(&[self.table, self.command]);
        self.matching.encode(version, out)
    }
}
