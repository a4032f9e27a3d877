//! Multipart requests: what the switch is, has and has counted.
//!
//! Dumps of flows are written in pieces, as the peer reads them: the list of rules is taken at once
//! (a pointer each), so a dump shows the rules of one moment, and each is written with its counters
//! as they are then. There are no queues, groups or meters: their lists are empty.

use std::sync::Arc;

use overbank_openflow::{
    BadRequest, ErrorCode, Message, MeterModFailed, MultipartReply, MultipartRequest, Name,
    QueueOpFailed, Stats, TableFeaturesFailed,
    consts::{meter, port, table},
    multipart::{
        Desc, FlowRequest, FlowStatsShort, GroupFeatures, MeterFeatures, Reply, Request,
        StatsReason, TableDesc, TableStats,
    },
};
use overbank_switch::tables::RuleEntry;

use super::convert::{self, flow};
use super::session::{Session, TABLES};
use super::tables;

/// Flows of a message, where they fit into one: a peer pays for each message that it reads.
const FLOWS_AT_ONCE: usize = 256;
/// Limit of rules that are looked through on the spot; a separate thread looks through more.
const RULES_AT_ONCE: usize = 4096;
/// All queues.
const QUEUE_ALL: u32 = u32::MAX;

/// A dump that is being written.
pub(super) struct Dump {
    xid: u32,
    /// In the short form of 1.5.
    short: bool,
    rest: std::vec::IntoIter<Arc<RuleEntry>>,
}

impl Session {
    pub(super) async fn multipart(
        &mut self,
        request: MultipartRequest,
        xid: u32,
    ) -> Result<(), ErrorCode> {
        if request.more {
            // No request that is answered here is so long.
            return Err(BadRequest::MultipartBufferOverflow.into());
        }
        let body = match request.body {
            Request::Desc => Reply::Desc(Box::new(self.desc())),
            Request::Flow(request) => return self.dump(&request, xid, false).await,
            Request::FlowStats(request) => return self.dump(&request, xid, true).await,
            Request::Aggregate(request) => Reply::Aggregate(self.aggregate(&request).await?),
            Request::Table => Reply::Table(self.table_stats()),
            Request::Port { port } => Reply::Port(self.port_stats(port)?),
            Request::PortDesc { port } => Reply::PortDesc(self.port_descs(port)?),
            Request::Queue { port, queue } => {
                self.check_queue(port, queue)?;
                Reply::Queue
            }
            Request::QueueDesc { port, queue } => {
                self.check_queue(port, queue)?;
                Reply::QueueDesc
            }
            Request::Group { .. } => Reply::Group,
            Request::GroupDesc { .. } => Reply::GroupDesc,
            Request::GroupFeatures => Reply::GroupFeatures(GroupFeatures::default()),
            Request::Meter { meter } | Request::MeterConfig { meter } if meter != meter::ALL => {
                return Err(MeterModFailed::UnknownMeter.into());
            }
            Request::Meter { .. } => Reply::Meter,
            Request::MeterConfig { .. } => Reply::MeterConfig,
            Request::MeterFeatures => Reply::MeterFeatures(MeterFeatures::default()),
            Request::TableFeatures(wanted) if wanted.is_empty() => {
                let entries_max = self.control().switch.lock().rules_max();
                Reply::TableFeatures(tables::features(self.version, entries_max))
            }
            // The tables are as they are.
            Request::TableFeatures(_) => return Err(TableFeaturesFailed::Eperm.into()),
            Request::TableDesc => {
                Reply::TableDesc((0..TABLES).map(|table| TableDesc { table, config: 0 }).collect())
            }
            Request::FlowMonitor(_) => return Err(BadRequest::BadMultipart.into()),
            Request::Experimenter(_) => return Err(BadRequest::BadExperimenter.into()),
        };
        self.send(&Message::MultipartReply(MultipartReply::whole(body)), xid);
        Ok(())
    }

    fn desc(&self) -> Desc {
        Desc {
            manufacturer: Name::new("Overbank"),
            hardware: Name::new("software switch"),
            software: Name::new(concat!("overbank ", env!("CARGO_PKG_VERSION"))),
            serial: Name::new("none"),
            datapath: Name::new(&self.control().options.description),
        }
    }

    /// Returns the rules that a request asks for, by table and from the highest priority down.
    async fn selected(&self, request: &FlowRequest) -> Result<Vec<Arc<RuleEntry>>, ErrorCode> {
        let Some(filter) = flow::to_filter(request)? else { return Ok(Vec::new()) };
        // A copy of the tables costs little, and looking through it needs no lock.
        let tables = self.control().switch.lock().tables().clone();
        let few = tables.len() <= RULES_AT_ONCE;
        let look = move || {
            let mut entries = tables.select(&filter);
            // Stable, and those of a table come in the order of insertion.
            entries.sort_by_cached_key(|entry| (entry.rule.table, !entry.rule.priority));
            entries
        };
        if few {
            return Ok(look());
        }
        // Hundreds of milliseconds for a million rules: other sessions go on meanwhile.
        tokio::task::spawn_blocking(look).await.map_err(|_| BadRequest::Eperm.into())
    }

    async fn dump(
        &mut self,
        request: &FlowRequest,
        xid: u32,
        short: bool,
    ) -> Result<(), ErrorCode> {
        let rest = self.selected(request).await?.into_iter();
        self.dump = Some(Dump { xid, short, rest });
        Ok(())
    }

    /// Writes on at a dump, if one is there and the peer has read.
    pub fn go_on(&mut self) {
        while self.out.len() < self.control().options.reply_bytes {
            let Some(dump) = &mut self.dump else { return };
            let (xid, short) = (dump.xid, dump.short);
            let some: Vec<Arc<RuleEntry>> = dump.rest.by_ref().take(FLOWS_AT_ONCE).collect();
            let more = dump.rest.len() > 0;
            if !more {
                self.dump = None;
            }
            let now_ms = self.control().switch.now_ms();
            self.some_flows(&some, xid, short, more, now_ms);
        }
    }

    /// Sends these rules in as few messages as they fit into. One that cannot be written in this
    /// version is left out.
    fn some_flows(
        &mut self,
        some: &[Arc<RuleEntry>],
        xid: u32,
        short: bool,
        more: bool,
        now_ms: u64,
    ) {
        if self.flows(some, xid, short, more, now_ms) {
            return;
        }
        if let [entry] = some {
            if let Some(held_back) = self.control().lines.unwritten.now(now_ms) {
                let rule = &entry.rule;
                tracing::warn!(%rule, held_back, "a rule cannot be written for a controller");
            }
            self.flows(&[], xid, short, more, now_ms);
            return;
        }
        let (first, second) = some.split_at(some.len() / 2);
        self.some_flows(first, xid, short, true, now_ms);
        self.some_flows(second, xid, short, more, now_ms);
    }

    /// Sends these rules; false, and nothing, if one of them cannot be written.
    fn flows(
        &mut self,
        some: &[Arc<RuleEntry>],
        xid: u32,
        short: bool,
        more: bool,
        now_ms: u64,
    ) -> bool {
        let full = some.iter().map(|entry| flow::stats(entry, now_ms));
        let body = if short {
            let of = |full: overbank_openflow::multipart::FlowStats| FlowStatsShort {
                table: full.table,
                reason: StatsReason::Request,
                priority: full.priority,
                matching: full.matching,
                stats: full.stats,
            };
            Reply::FlowStats(full.map(of).collect())
        } else {
            Reply::Flow(full.collect())
        };
        let reply = Message::MultipartReply(MultipartReply { more, body });
        self.out.push(&reply, self.version, xid).is_ok()
    }

    async fn aggregate(&self, request: &FlowRequest) -> Result<Stats, ErrorCode> {
        let entries = self.selected(request).await?;
        let sum = |of: &dyn Fn(&RuleEntry) -> u64| {
            entries.iter().fold(0u64, |sum, entry| sum.saturating_add(of(entry)))
        };
        Ok(Stats {
            flows: Some(u32::try_from(entries.len()).unwrap_or(u32::MAX)),
            packets: Some(sum(&|entry| entry.stats.packets())),
            bytes: Some(sum(&|entry| entry.stats.bytes())),
            ..Stats::default()
        })
    }

    fn table_stats(&self) -> Vec<TableStats> {
        let tables = self.control().switch.lock().tables().clone();
        (0..=table::MAX)
            .map(|table| {
                let counted = tables.table_stats(table);
                TableStats {
                    table,
                    active: u32::try_from(tables.table_len(table)).unwrap_or(u32::MAX),
                    lookups: counted.map_or(0, |stats| stats.lookups()),
                    matched: counted.map_or(0, |stats| stats.matched()),
                }
            })
            .collect()
    }

    fn port_stats(
        &self,
        number: u32,
    ) -> Result<Vec<overbank_openflow::multipart::PortStats>, ErrorCode> {
        let stats = self.control().switch.lock().port_stats();
        let wanted = stats.iter().filter(|port| number == port::ANY || port.number == number);
        let found: Vec<_> = wanted.map(convert::port::stats).collect();
        if found.is_empty() && number != port::ANY {
            return Err(BadRequest::BadPort.into());
        }
        Ok(found)
    }

    fn port_descs(&self, number: u32) -> Result<Vec<overbank_openflow::Port>, ErrorCode> {
        let control = self.control().switch.lock();
        if number == port::ANY {
            return Ok(control.ports().iter().map(convert::port::desc).collect());
        }
        let port = control.port(number).ok_or(BadRequest::BadPort)?;
        Ok(vec![convert::port::desc(&port)])
    }

    /// Refuses a request for a port or a queue that is not there; there are no queues.
    fn check_queue(&self, port: u32, queue: u32) -> Result<(), ErrorCode> {
        self.port_for_queues(port)?;
        if queue == QUEUE_ALL { Ok(()) } else { Err(QueueOpFailed::BadQueue.into()) }
    }
}
