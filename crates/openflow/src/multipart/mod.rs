//! Multipart messages: requests about the switch and their replies (specification 7.3.5).
//!
//! ```text
//!  8               10              12                              16
//!  +---------------+---------------+-------------------------------+
//!  |     type      | flags, 1 more |             zeros             |   then the body
//!  +---------------+---------------+-------------------------------+
//! ```
//! A reply longer than a message is sent as several, all but the last with the flag "more".
//! [`Message::encode`](crate::Message::encode) splits every list between its entries;
//! [`FlowReplies`] does so while the caller is still finding entries.

mod desc;
mod flow;
mod limits;
mod monitor;
mod parts;
mod port;
mod table;
#[cfg(test)]
mod tests;

pub use desc::Desc;
pub use flow::{FlowRequest, FlowStats, FlowStatsShort, StatsReason};
pub use limits::{GroupFeatures, MeterFeatures};
pub use monitor::FlowMonitor;
pub use parts::FlowReplies;
pub use port::PortStats;
pub use table::{TableDesc, TableFeatures, TableProperty, TableStats};

use crate::bytes::{Put, Reader};
use crate::codes::BadRequest;
use crate::error::{DecodeError, EncodeError};
use crate::header::kind;
use crate::msg::experimenter::Experimenter;
use crate::msg::port::Port;
use crate::stats::{Stats, counter, wire};
use crate::version::Version;
use parts::Parts;

const DESC: u16 = 0;
const FLOW: u16 = 1;
const AGGREGATE: u16 = 2;
const TABLE: u16 = 3;
const PORT: u16 = 4;
const QUEUE: u16 = 5;
const GROUP: u16 = 6;
const GROUP_DESC: u16 = 7;
const GROUP_FEATURES: u16 = 8;
const METER: u16 = 9;
const METER_CONFIG: u16 = 10;
const METER_FEATURES: u16 = 11;
const TABLE_FEATURES: u16 = 12;
const PORT_DESC: u16 = 13;
const TABLE_DESC: u16 = 14;
const QUEUE_DESC: u16 = 15;
const FLOW_MONITOR: u16 = 16;
const FLOW_STATS: u16 = 17;
const EXPERIMENTER: u16 = 0xffff;

const MORE: u16 = 1;

/// A request, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartRequest {
    /// Whether more parts follow.
    pub more: bool,
    pub body: Request,
}

/// Body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Description of the switch.
    Desc,
    /// Flows and their counters. (The specification omits counters in 1.5; Open vSwitch sends
    /// them.)
    Flow(FlowRequest),
    /// Sums of the counters of flows.
    Aggregate(FlowRequest),
    /// Counters of all tables.
    Table,
    /// Counters of one port, or of all.
    Port {
        /// The port, or [`port::ANY`](crate::consts::port::ANY).
        port: u32,
    },
    /// Counters of queues.
    Queue {
        /// The port, or [`port::ANY`](crate::consts::port::ANY).
        port: u32,
        /// The queue; all ones is every queue.
        queue: u32,
    },
    /// Counters of groups.
    Group {
        /// The group, or [`group::ALL`](crate::consts::group::ALL).
        group: u32,
    },
    /// Descriptions of groups.
    GroupDesc {
        /// The group (1.5), or [`group::ALL`](crate::consts::group::ALL).
        group: u32,
    },
    /// Limits of groups.
    GroupFeatures,
    /// Counters of meters.
    Meter {
        /// The meter, or [`meter::ALL`](crate::consts::meter::ALL).
        meter: u32,
    },
    /// Descriptions of meters.
    MeterConfig {
        /// The meter, or [`meter::ALL`](crate::consts::meter::ALL).
        meter: u32,
    },
    /// Limits of meters.
    MeterFeatures,
    /// Features of tables; entries change them.
    TableFeatures(Vec<TableFeatures>),
    /// Descriptions of ports.
    PortDesc {
        /// The port (1.5), or [`port::ANY`](crate::consts::port::ANY).
        port: u32,
    },
    /// Configuration of tables (1.4).
    TableDesc,
    /// Descriptions of queues (1.4).
    QueueDesc {
        /// The port, or [`port::ANY`](crate::consts::port::ANY).
        port: u32,
        /// The queue; all ones is every queue.
        queue: u32,
    },
    /// Subscriptions to changes of flows (1.4).
    FlowMonitor(Vec<FlowMonitor>),
    /// Counters of flows (1.5).
    FlowStats(FlowRequest),
    Experimenter(Experimenter),
}

/// Reads the number and skips the padding of a request about one element.
fn number(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let number = r.u32()?;
    r.skip(4)?;
    Ok(number)
}

/// Reads entries until `r` ends.
fn list<T>(
    r: &mut Reader<'_>,
    decode: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut entries = Vec::new();
    while r.left() > 0 {
        entries.push(decode(r)?);
    }
    Ok(entries)
}

fn unknown(at: &Reader<'_>) -> DecodeError {
    at.fail("has an unknown multipart type", BadRequest::BadMultipart.into())
}

/// Returns the first version that has a type.
fn since(kind: u16) -> Version {
    match kind {
        TABLE_DESC | QUEUE_DESC | FLOW_MONITOR => Version::V14,
        FLOW_STATS => Version::V15,
        _ => Version::V13,
    }
}

impl MultipartRequest {
    pub(crate) fn decode(
        r: &mut Reader<'_>,
        version: Version,
    ) -> Result<MultipartRequest, DecodeError> {
        let start = r.clone();
        let (kind, more) = (r.u16()?, r.u16()? & MORE != 0);
        r.skip(4)?;
        let one = version >= Version::V15;
        let body = match kind {
            _ if version < since(kind) => return Err(unknown(&start)),
            DESC => Request::Desc,
            FLOW => Request::Flow(FlowRequest::decode(r)?),
            AGGREGATE => Request::Aggregate(FlowRequest::decode(r)?),
            TABLE => Request::Table,
            PORT => Request::Port { port: number(r)? },
            QUEUE => Request::Queue { port: r.u32()?, queue: r.u32()? },
            GROUP => Request::Group { group: number(r)? },
            GROUP_DESC if one => Request::GroupDesc { group: number(r)? },
            GROUP_DESC => Request::GroupDesc { group: crate::consts::group::ALL },
            GROUP_FEATURES => Request::GroupFeatures,
            METER => Request::Meter { meter: number(r)? },
            METER_CONFIG => Request::MeterConfig { meter: number(r)? },
            METER_FEATURES => Request::MeterFeatures,
            TABLE_FEATURES => {
                Request::TableFeatures(list(r, |r| TableFeatures::decode(r, version))?)
            }
            PORT_DESC if one => Request::PortDesc { port: number(r)? },
            PORT_DESC => Request::PortDesc { port: crate::consts::port::ANY },
            TABLE_DESC => Request::TableDesc,
            QUEUE_DESC => Request::QueueDesc { port: r.u32()?, queue: r.u32()? },
            FLOW_MONITOR => Request::FlowMonitor(list(r, FlowMonitor::decode)?),
            FLOW_STATS => Request::FlowStats(FlowRequest::decode(r)?),
            EXPERIMENTER => Request::Experimenter(Experimenter::decode(r)?),
            _ => return Err(unknown(&start)),
        };
        Ok(MultipartRequest { more, body })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let kind = self.body.kind();
        if version < since(kind) {
            return Err(EncodeError::NotInVersion { what: "this multipart type", version });
        }
        out.put_u16(kind);
        out.put_u16(self.more.into());
        out.zeros(4);
        let one = version >= Version::V15;
        match self.body {
            Request::Desc
            | Request::Table
            | Request::GroupFeatures
            | Request::MeterFeatures
            | Request::TableDesc => {}
            Request::Flow(ref request)
            | Request::Aggregate(ref request)
            | Request::FlowStats(ref request) => request.encode(version, out)?,
            Request::GroupDesc { .. } | Request::PortDesc { .. } if !one => {}
            Request::Port { port: number }
            | Request::PortDesc { port: number }
            | Request::Group { group: number }
            | Request::GroupDesc { group: number }
            | Request::Meter { meter: number }
            | Request::MeterConfig { meter: number } => {
                out.put_u32(number);
                out.zeros(4);
            }
            Request::Queue { port, queue } | Request::QueueDesc { port, queue } => {
                out.put_u32(port);
                out.put_u32(queue);
            }
            Request::TableFeatures(ref tables) => {
                tables.iter().try_for_each(|table| table.encode(version, out))?;
            }
            Request::FlowMonitor(ref monitors) => {
                monitors.iter().try_for_each(|monitor| monitor.encode(version, out))?;
            }
            Request::Experimenter(ref experimenter) => experimenter.encode(out),
        }
        Ok(())
    }
}

impl Request {
    fn kind(&self) -> u16 {
        match self {
            Request::Desc => DESC,
            Request::Flow(_) => FLOW,
            Request::Aggregate(_) => AGGREGATE,
            Request::Table => TABLE,
            Request::Port { .. } => PORT,
            Request::Queue { .. } => QUEUE,
            Request::Group { .. } => GROUP,
            Request::GroupDesc { .. } => GROUP_DESC,
            Request::GroupFeatures => GROUP_FEATURES,
            Request::Meter { .. } => METER,
            Request::MeterConfig { .. } => METER_CONFIG,
            Request::MeterFeatures => METER_FEATURES,
            Request::TableFeatures(_) => TABLE_FEATURES,
            Request::PortDesc { .. } => PORT_DESC,
            Request::TableDesc => TABLE_DESC,
            Request::QueueDesc { .. } => QUEUE_DESC,
            Request::FlowMonitor(_) => FLOW_MONITOR,
            Request::FlowStats(_) => FLOW_STATS,
            Request::Experimenter(_) => EXPERIMENTER,
        }
    }
}

/// A reply, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// Whether more parts follow.
    pub more: bool,
    pub body: Reply,
}

/// Body of a reply. Queues, groups and meters are not supported: their lists are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Desc(Box<Desc>),
    Flow(Vec<FlowStats>),
    /// Sums of the counters of flows: flows, packets and bytes.
    Aggregate(Stats),
    Table(Vec<TableStats>),
    Port(Vec<PortStats>),
    /// No queues.
    Queue,
    /// No groups.
    Group,
    /// No groups.
    GroupDesc,
    GroupFeatures(GroupFeatures),
    /// No meters.
    Meter,
    /// No meters.
    MeterConfig,
    MeterFeatures(MeterFeatures),
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Vec<Port>),
    /// Configuration of tables (1.4).
    TableDesc(Vec<TableDesc>),
    /// No queues (1.4).
    QueueDesc,
    /// No flow monitors (1.4).
    FlowMonitor,
    /// Counters of flows (1.5).
    FlowStats(Vec<FlowStatsShort>),
    Experimenter(Experimenter),
}

impl Reply {
    fn kind(&self) -> u16 {
        match self {
            Reply::Desc(_) => DESC,
            Reply::Flow(_) => FLOW,
            Reply::Aggregate(_) => AGGREGATE,
            Reply::Table(_) => TABLE,
            Reply::Port(_) => PORT,
            Reply::Queue => QUEUE,
            Reply::Group => GROUP,
            Reply::GroupDesc => GROUP_DESC,
            Reply::GroupFeatures(_) => GROUP_FEATURES,
            Reply::Meter => METER,
            Reply::MeterConfig => METER_CONFIG,
            Reply::MeterFeatures(_) => METER_FEATURES,
            Reply::TableFeatures(_) => TABLE_FEATURES,
            Reply::PortDesc(_) => PORT_DESC,
            Reply::TableDesc(_) => TABLE_DESC,
            Reply::QueueDesc => QUEUE_DESC,
            Reply::FlowMonitor => FLOW_MONITOR,
            Reply::FlowStats(_) => FLOW_STATS,
            Reply::Experimenter(_) => EXPERIMENTER,
        }
    }
}

impl MultipartReply {
    /// Returns a reply in one part.
    pub fn whole(body: Reply) -> MultipartReply {
        MultipartReply { more: false, body }
    }

    pub(crate) fn decode(
        r: &mut Reader<'_>,
        version: Version,
    ) -> Result<MultipartReply, DecodeError> {
        let start = r.clone();
        let (kind, more) = (r.u16()?, r.u16()? & MORE != 0);
        r.skip(4)?;
        let body = match kind {
            _ if version < since(kind) => return Err(unknown(&start)),
            DESC => Reply::Desc(Box::new(Desc::decode(r)?)),
            FLOW => Reply::Flow(list(r, |r| FlowStats::decode(r, version))?),
            AGGREGATE if version >= Version::V15 => Reply::Aggregate(Stats::decode(r)?),
            AGGREGATE => {
                let (packets, bytes) = (counter(r.u64()?), counter(r.u64()?));
                let flows = Some(number(r)?);
                Reply::Aggregate(Stats { flows, packets, bytes, ..Stats::default() })
            }
            TABLE => Reply::Table(list(r, TableStats::decode)?),
            PORT => Reply::Port(list(r, |r| PortStats::decode(r, version))?),
            QUEUE => Reply::Queue,
            GROUP => Reply::Group,
            GROUP_DESC => Reply::GroupDesc,
            GROUP_FEATURES => Reply::GroupFeatures(GroupFeatures::decode(r)?),
            METER => Reply::Meter,
            METER_CONFIG => Reply::MeterConfig,
            METER_FEATURES => Reply::MeterFeatures(MeterFeatures::decode(r)?),
            TABLE_FEATURES => Reply::TableFeatures(list(r, |r| TableFeatures::decode(r, version))?),
            PORT_DESC => Reply::PortDesc(list(r, |r| Port::decode(r, version))?),
            TABLE_DESC => Reply::TableDesc(list(r, TableDesc::decode)?),
            QUEUE_DESC => Reply::QueueDesc,
            FLOW_MONITOR => Reply::FlowMonitor,
            FLOW_STATS => Reply::FlowStats(list(r, FlowStatsShort::decode)?),
            EXPERIMENTER => Reply::Experimenter(Experimenter::decode(r)?),
            _ => return Err(unknown(&start)),
        };
        Ok(MultipartReply { more, body })
    }

    /// Writes one or more whole messages.
    pub(crate) fn encode_parts(
        &self,
        version: Version,
        xid: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let kind = self.body.kind();
        if version < since(kind) {
            return Err(EncodeError::NotInVersion { what: "this multipart type", version });
        }
        let mut parts = Parts::begin(version, xid, kind, out);
        match &self.body {
            Reply::Desc(desc) => parts.entry(|out| desc.encode(out))?,
            Reply::Flow(flows) => {
                flows.iter().try_for_each(|flow| parts.entry(|out| flow.encode(version, out)))?;
            }
            Reply::Aggregate(stats) if version >= Version::V15 => {
                parts.entry(|out| stats.encode(out))?;
            }
            Reply::Aggregate(stats) => parts.entry(|out| {
                out.put_u64(wire(stats.packets));
                out.put_u64(wire(stats.bytes));
                out.put_u32(stats.flows.unwrap_or(0));
                out.zeros(4);
                Ok(())
            })?,
            Reply::Table(tables) => tables.iter().try_for_each(|t| parts.entry(|o| t.encode(o)))?,
            Reply::Port(ports) => {
                ports.iter().try_for_each(|port| parts.entry(|out| port.encode(version, out)))?;
            }
            Reply::Queue
            | Reply::Group
            | Reply::GroupDesc
            | Reply::Meter
            | Reply::MeterConfig
            | Reply::QueueDesc
            | Reply::FlowMonitor => {}
            Reply::GroupFeatures(features) => parts.entry(|out| features.encode(out))?,
            Reply::MeterFeatures(features) => parts.entry(|out| features.encode(out))?,
            Reply::TableFeatures(tables) => {
                tables.iter().try_for_each(|t| parts.entry(|out| t.encode(version, out)))?;
            }
            Reply::PortDesc(ports) => {
                ports.iter().try_for_each(|port| parts.entry(|out| port.encode(version, out)))?;
            }
            Reply::TableDesc(tables) => {
                tables.iter().try_for_each(|t| parts.entry(|out| t.encode(out)))?;
            }
            Reply::FlowStats(flows) => {
                flows.iter().try_for_each(|flow| parts.entry(|out| flow.encode(version, out)))?;
            }
            Reply::Experimenter(experimenter) => parts.entry(|out| {
                experimenter.encode(out);
                Ok(())
            })?,
        }
        parts.finish(self.more)
    }
}

/// Type of a reply's message.
const REPLY: u8 = kind::MULTIPART_REPLY;
