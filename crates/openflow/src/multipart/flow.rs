//! Flows and their counters (specification 7.3.5.2 to 7.3.5.4).
//!
//! ```text
//!  0       1                       4                               8
//!  +-------+-----------------------+-------------------------------+
//!  | table |         zeros         |           out port            |   request
//!  +-------+-----------------------+-------------------------------+
//!  |           out group           |             zeros             |
//!  +-------------------------------+-------------------------------+
//!  |                     cookie, cookie mask                       |
//!  +---------------------------------------------------------------+
//!  |  match
//!
//!  +---------------+-------+-------+-------------------------------+
//!  |    length     | table | zero  |         duration, s           |   flow, 1.3 and 1.4
//!  +---------------+-------+-------+---------------+---------------+
//!  |         duration, ns          |   priority    | idle timeout  |
//!  +---------------+---------------+---------------+---------------+
//!  | hard timeout  |     flags     |  importance   |     zeros     |
//!  +---------------+---------------+---------------+---------------+
//!  |                    cookie, packets, bytes                     |
//!  +---------------------------------------------------------------+
//!  |  match, instructions
//!
//!  +---------------+---------------+-------+-------+---------------+
//!  |    length     |     zeros     | table | zero  |   priority    |   flow, 1.5
//!  +---------------+---------------+-------+-------+---------------+
//!  | idle timeout  | hard timeout  |     flags     |  importance   |
//!  +---------------+---------------+---------------+---------------+
//!  |                            cookie                             |
//!  +---------------------------------------------------------------+
//!  |  match, stats, instructions
//!
//!  +---------------+---------------+-------+-------+---------------+
//!  |    length     |     zeros     | table |reason |   priority    |   counters of a flow, 1.5
//!  +---------------+---------------+-------+-------+---------------+
//!  |  match, stats
//! ```

use crate::bytes::{Put, Reader};
use crate::codes::{BadInstruction, BadRequest};
use crate::error::{DecodeError, EncodeError};
use crate::instruction::Instruction;
use crate::msg::flow_mod::FlowFlags;
use crate::msg::reasons;
use crate::oxm::OxmMatch;
use crate::stats::{Elapsed, Stats, counter, wire};
use crate::version::Version;

/// Selects flows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowRequest {
    /// Their table, or [`table::ALL`](crate::consts::table::ALL).
    pub table: u8,
    /// An output that they have, or [`port::ANY`](crate::consts::port::ANY).
    pub out_port: u32,
    /// A group that they use, or [`group::ANY`](crate::consts::group::ANY).
    pub out_group: u32,
    pub cookie: u64,
    /// Bits of the cookie that must agree.
    pub cookie_mask: u64,
    /// Selects flows at least as specific as this.
    pub matching: OxmMatch,
}

impl FlowRequest {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<FlowRequest, DecodeError> {
        let table = r.u8()?;
        r.skip(3)?;
        let (out_port, out_group) = (r.u32()?, r.u32()?);
        r.skip(4)?;
        let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
        let matching = OxmMatch::decode(r)?;
        Ok(FlowRequest { table, out_port, out_group, cookie, cookie_mask, matching })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.put(&[self.table, 0, 0, 0]);
        out.put_u32(self.out_port);
        out.put_u32(self.out_group);
        out.zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        self.matching.encode(version, out)
    }
}

/// Takes an entry that begins with its length; returns the rest of it.
fn entry<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<Reader<'a>, DecodeError> {
    let start = r.clone();
    let length = usize::from(r.clone().u16()?);
    if length < 2 {
        return Err(start.bad_len("has an entry without a length"));
    }
    let mut entry = r.part(length, what, BadRequest::BadLen.into())?;
    entry.skip(2)?;
    Ok(entry)
}

/// A flow with its counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowStats {
    pub table: u8,
    pub priority: u16,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub flags: FlowFlags,
    /// Importance (1.4).
    pub importance: u16,
    /// Opaque number chosen by the controller.
    pub cookie: u64,
    pub stats: Stats,
    pub matching: OxmMatch,
    pub instructions: Vec<Instruction>,
}

impl FlowStats {
    pub(super) fn decode(r: &mut Reader<'_>, version: Version) -> Result<FlowStats, DecodeError> {
        let mut r = entry(r, "flow")?;
        let (table, priority, idle_timeout, hard_timeout, flags, importance, cookie);
        let (mut stats, matching);
        if version >= Version::V15 {
            r.skip(2)?;
            table = r.u8()?;
            r.skip(1)?;
            (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
            (flags, importance, cookie) = (r.u16()?, r.u16()?, r.u64()?);
            matching = OxmMatch::decode(&mut r)?;
            stats = Stats::decode(&mut r)?;
        } else {
            table = r.u8()?;
            r.skip(1)?;
            stats = Stats { duration: Some(Elapsed::decode(&mut r)?), ..Stats::default() };
            (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
            flags = r.u16()?;
            let wire = r.u16()?;
            importance = if version < Version::V14 { 0 } else { wire };
            r.skip(2)?;
            cookie = r.u64()?;
            (stats.packets, stats.bytes) = (counter(r.u64()?), counter(r.u64()?));
            matching = OxmMatch::decode(&mut r)?;
        }
        let mut list = r.part(r.left(), "instructions", BadInstruction::BadLen.into())?;
        let instructions = Instruction::decode_list(&mut list, version)?;
        Ok(FlowStats {
            table,
            priority,
            idle_timeout,
            hard_timeout,
            flags: FlowFlags(flags),
            importance,
            cookie,
            stats,
            matching,
            instructions,
        })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        if version >= Version::V15 {
            out.zeros(4);
            out.put(&[self.table, 0]);
            out.put_u16(self.priority);
            out.put_u16(self.idle_timeout);
            out.put_u16(self.hard_timeout);
            out.put_u16(self.flags.0);
            out.put_u16(self.importance);
            out.put_u64(self.cookie);
            self.matching.encode(version, out)?;
            self.stats.encode(out)?;
        } else {
            out.zeros(2);
            out.put(&[self.table, 0]);
            self.stats.duration.unwrap_or_default().encode(out);
            out.put_u16(self.priority);
            out.put_u16(self.idle_timeout);
            out.put_u16(self.hard_timeout);
            out.put_u16(self.flags.0);
            out.put_u16(if version < Version::V14 { 0 } else { self.importance });
            out.zeros(2);
            out.put_u64(self.cookie);
            out.put_u64(wire(self.stats.packets));
            out.put_u64(wire(self.stats.bytes));
            self.matching.encode(version, out)?;
        }
        Instruction::encode_list(&self.instructions, version, out)?;
        out.close(start, start)
    }
}

reasons! {
    /// Why the counters of a flow were sent.
    StatsReason {
        /// A request asked for them.
        Request = 0,
        /// A stat_trigger instruction fired.
        Trigger = 1,
    }
}

/// Counters of a flow (1.5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowStatsShort {
    pub table: u8,
    pub reason: StatsReason,
    pub priority: u16,
    pub matching: OxmMatch,
    pub stats: Stats,
}

impl FlowStatsShort {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<FlowStatsShort, DecodeError> {
        let mut r = entry(r, "flow counters")?;
        r.skip(2)?;
        let (table, reason) = (r.u8()?, StatsReason::from_wire(r.u8()?));
        let (priority, matching) = (r.u16()?, OxmMatch::decode(&mut r)?);
        let stats = Stats::decode(&mut r)?;
        r.end()?;
        Ok(FlowStatsShort { table, reason, priority, matching, stats })
    }

    pub(super) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.zeros(4);
        out.put(&[self.table, self.reason.to_wire()]);
        out.put_u16(self.priority);
        self.matching.encode(version, out)?;
        self.stats.encode(out)?;
        out.close(start, start)
    }
}
