//! Notification of a removed flow (specification 7.4.2).
//!
//! ```text
//!  8                                                               16
//!  +---------------------------------------------------------------+
//!  |                            cookie                             |   1.3 and 1.4
//!  +---------------+-------+-------+-------------------------------+
//!  |   priority    |reason | table |         duration, s           |
//!  +---------------+-------+-------+---------------+---------------+
//!  |         duration, ns          | idle timeout  | hard timeout  |
//!  +-------------------------------+---------------+---------------+
//!  |                            packets                            |
//!  +---------------------------------------------------------------+
//!  |                             bytes                             |
//!  +---------------------------------------------------------------+
//!  |  match
//!
//!  +-------+-------+---------------+---------------+---------------+
//!  | table |reason |   priority    | idle timeout  | hard timeout  |   1.5
//!  +-------+-------+---------------+---------------+---------------+
//!  |                            cookie                             |
//!  +---------------------------------------------------------------+
//!  |  match, stats
//! ```

use super::reasons;
use crate::bytes::{Put, Reader};
use crate::error::{DecodeError, EncodeError};
use crate::oxm::OxmMatch;
use crate::stats::{Elapsed, Stats, counter, wire};
use crate::version::Version;

reasons! {
    /// Why a flow was removed.
    FlowRemovedReason {
        /// No packet for `idle_timeout`.
        IdleTimeout = 0,
        /// `hard_timeout` passed.
        HardTimeout = 1,
        /// A flow-mod deleted it.
        Delete = 2,
        /// Its group was removed.
        GroupDelete = 3,
        /// Its meter was removed (1.4; written as `Delete` before).
        MeterDelete = 4,
        /// The table was full (1.4; written as `Delete` before).
        Eviction = 5,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowRemoved {
    /// Opaque number chosen by the controller.
    pub cookie: u64,
    pub priority: u16,
    pub reason: FlowRemovedReason,
    /// Table that it was in.
    pub table: u8,
    /// As in the flow-mod.
    pub idle_timeout: u16,
    /// As in the flow-mod.
    pub hard_timeout: u16,
    pub stats: Stats,
    pub matching: OxmMatch,
}

impl FlowRemoved {
    pub(crate) fn decode(r: &mut Reader<'_>, version: Version) -> Result<FlowRemoved, DecodeError> {
        if version >= Version::V15 {
            let (table, reason) = (r.u8()?, FlowRemovedReason::from_wire(r.u8()?));
            let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
            let (cookie, matching) = (r.u64()?, OxmMatch::decode_fields(r)?);
            let stats = Stats::decode(r)?;
            return Ok(FlowRemoved {
                cookie,
                priority,
                reason,
                table,
                idle_timeout,
                hard_timeout,
                stats,
                matching,
            });
        }
        let (cookie, priority) = (r.u64()?, r.u16()?);
        let (reason, table) = (r.u8()?, r.u8()?);
        let reason = match reason {
            // Undefined before 1.4.
            4.. if version < Version::V14 => FlowRemovedReason::Other(reason),
            _ => FlowRemovedReason::from_wire(reason),
        };
        let duration = Some(Elapsed::decode(r)?);
        let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
        let (packets, bytes) = (counter(r.u64()?), counter(r.u64()?));
        let stats = Stats { duration, packets, bytes, ..Stats::default() };
        let matching = OxmMatch::decode_fields(r)?;
        Ok(FlowRemoved {
            cookie,
            priority,
            reason,
            table,
            idle_timeout,
            hard_timeout,
            stats,
            matching,
        })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version >= Version::V15 {
            out.put(&[self.table, self.reason.to_wire()]);
            out.put_u16(self.priority);
            out.put_u16(self.idle_timeout);
            out.put_u16(self.hard_timeout);
            out.put_u64(self.cookie);
            self.matching.encode(version, out)?;
            return self.stats.encode(out);
        }
        let reason = match self.reason {
            FlowRemovedReason::MeterDelete | FlowRemovedReason::Eviction
                if version < Version::V14 =>
            {
                FlowRemovedReason::Delete
            }
            reason => reason,
        };
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put(&[reason.to_wire(), self.table]);
        self.stats.duration.unwrap_or_default().encode(out);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u64(wire(self.stats.packets));
        out.put_u64(wire(self.stats.bytes));
        self.matching.encode(version, out)
    }
}
