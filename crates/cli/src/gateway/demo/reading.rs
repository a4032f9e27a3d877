//! What is read of the cluster at a time: a document, a line, the totals.

use crate::live::args::counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A node; counts of packets are totals of all of its runs.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReading {
    pub node: u8,
    pub state: &'static str,
    /// whole, lagging or cut.
    pub links: &'static str,
    /// It takes packets from outside.
    pub ready: bool,
    pub serving: usize,
    pub moving: usize,
    pub partitions: usize,
    pub table_bytes: usize,
    pub received: u64,
    pub handled: u64,
    pub forwarded: u64,
    pub dropped: u64,
}

/// Counts of packets are totals.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    pub schema: &'static str,
    pub time_s: f64,
    pub received: u64,
    pub uplink: u64,
    pub downlink: u64,
    pub forwarded: u64,
    /// Forwarded to a node that does not run, or by a cut link.
    pub lost: u64,
    /// By reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// No node was ready.
    pub turned_away: u64,
    pub right: u64,
    pub misrouted: u64,
    pub closes: bool,
    pub sessions: u32,
    pub serving: usize,
    pub moves_asked: u64,
    pub moves_done: u64,
    pub moves_refused: u64,
    pub coordinator: Option<u8>,
    pub members: usize,
    /// The sum over all partitions.
    pub epochs: u64,
    pub nodes: Vec<NodeReading>,
    /// Packets a second since the reading before, by verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<BTreeMap<&'static str, f64>>,
}

impl Reading {
    pub const SCHEMA: &str = "overbank.gateway-demo.v1";
    pub const HEAD: &str = "    time       up/s     down/s  forwarded/s  lost/s  dropped/s  \
                            misrouted  sessions  moved  nodes";

    /// Returns the number of packets by verdict.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("uplink", self.uplink),
            ("downlink", self.downlink),
            ("forwarded", self.forwarded),
            ("lost", self.lost),
            ("misrouted", self.misrouted),
            ("turned_away", self.turned_away),
        ];
        own.into_iter().chain(self.dropped.iter().map(|(reason, count)| (*reason, *count)))
    }

    /// Returns packets a second by verdict since an earlier reading.
    pub fn rates(&self, before: &Reading) -> BTreeMap<&'static str, f64> {
        let seconds = (self.time_s - before.time_s).max(1e-3);
        let earlier: BTreeMap<_, _> = before.verdicts().collect();
        let rate = |(name, count)| {
            let more = count - earlier.get(name).copied().unwrap_or(0);
            (name, more as f64 / seconds)
        };
        self.verdicts().map(rate).collect()
    }

    pub fn with_rates(&self, before: &Reading) -> Reading {
        Reading { rates: Some(self.rates(before)), ..self.clone() }
    }

    /// Returns the sum of all reasons.
    pub fn drops(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns a line under [`Reading::HEAD`].
    pub fn line(&self, before: &Reading) -> String {
        let rates = self.rates(before);
        let rate = |name| rates.get(name).copied().unwrap_or(0.0);
        let seconds = (self.time_s - before.time_s).max(1e-3);
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| match (node.state, node.links) {
                (state, "whole") => format!("{} {state}", node.node),
                (state, links) => format!("{} {state}, {links}", node.node),
            })
            .collect();
        format!(
            "{:>6.2} s {:>10.0} {:>10.0} {:>12.0} {:>7.0} {:>10.0} {:>10} {:>9} {:>6}  {}",
            self.time_s,
            rate("uplink"),
            rate("downlink"),
            rate("forwarded"),
            rate("lost"),
            (self.drops() - before.drops()) as f64 / seconds,
            self.misrouted,
            self.serving,
            self.moves_done,
            nodes.join("; "),
        )
    }

    /// Returns what became of all packets, in a line.
    pub fn totals(&self) -> String {
        let mut text = format!(
            "{:.2} s, {} packets: {} uplink, {} downlink, {} lost, {} dropped",
            self.time_s,
            self.received,
            self.uplink,
            self.downlink,
            self.lost,
            self.drops(),
        );
        let reasons = self.dropped.iter().map(|(reason, count)| format!("{reason} {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        // Writing to a string does not fail.
        if !reasons.is_empty() {
            let _ = write!(text, " ({reasons})");
        }
        if self.turned_away > 0 {
            let _ = write!(text, ", {} more found no node", self.turned_away);
        }
        let _ = write!(
            text,
            "; {} misrouted; {} handled; accounts {}",
            self.misrouted,
            counted(self.serving, "session"),
            if self.closes { "close" } else { "DO NOT CLOSE" },
        );
        text
    }
}
