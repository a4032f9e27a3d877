//! Rates of the gateway: verdicts on its packets, sessions, N4.

use crate::switch::status::Status;
use overbank_declare::counters::Rates as Counted;
use overbank_gateway::cluster::ClusterTotals;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the rates of the gateway have beside those of ports and workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayRates {
    /// Packets of all workers a second, by what was done.
    #[serde(flatten)]
    pub rates: Counted,
    /// Frames dropped at all ports, by reason.
    pub dropped: BTreeMap<String, f64>,
    pub sessions: u64,
    pub sessions_max: u64,
    /// Freed keys that rest.
    pub resting: u64,
    /// Counts of N4; a name with `_s` is a rate. Empty without PFCP.
    pub n4: BTreeMap<String, f64>,
    /// The cluster as this node knows it.
    pub cluster: Option<ClusterNow>,
}

/// What is shown of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterNow {
    pub node: u8,
    /// Why the node takes no packets from outside, or its state.
    pub state: String,
    pub members: usize,
    #[serde(flatten, serialize_with = "overbank_declare::counters::serialize")]
    pub totals: ClusterTotals,
}

/// Counts of N4 that are shown as they are, and as rates.
const N4_GAUGES: [&str; 3] = ["associations", "sessions", "buffering"];
const N4_RATES: [&str; 4] = ["requests", "refused", "garbage", "reports"];

impl GatewayRates {
    /// Returns the rates from `old` to `new`.
    pub(super) fn between(old: &Status, new: &Status, interval_ms: u64) -> GatewayRates {
        let a_second = |before: u64, now: u64| {
            now.saturating_sub(before) as f64 * 1e3 / interval_ms.max(1) as f64
        };
        let reasons = |of: &Status| {
            let mut all: BTreeMap<String, u64> = BTreeMap::new();
            for (reason, n) in of.ports.iter().flat_map(|port| &port.dropped) {
                *all.entry(reason.clone()).or_default() += n;
            }
            all
        };
        let before = reasons(old);
        let dropped = reasons(new).into_iter().map(|(reason, n)| {
            let rate = a_second(before.get(&reason).copied().unwrap_or(0), n);
            (reason, rate)
        });
        let mut n4 = BTreeMap::new();
        if let Some(now) = &new.n4 {
            let of = |counts: &BTreeMap<String, u64>, name| counts.get(name).copied().unwrap_or(0);
            let gauges = N4_GAUGES.map(|name| (name.to_owned(), of(now, name) as f64));
            let rates = N4_RATES.map(|name| {
                let before = old.n4.as_ref().map_or(0, |before| of(before, name));
                (format!("{name}_s"), a_second(before, of(now, name)))
            });
            n4.extend(gauges.into_iter().chain(rates));
        }
        GatewayRates {
            rates: Counted::between(&old.total.gateway, &new.total.gateway, interval_ms),
            dropped: dropped.filter(|(_, rate)| *rate > 0.0).collect(),
            sessions: new.control.sessions.sessions,
            sessions_max: new.control.sessions_max,
            resting: new.control.sessions.resting,
            n4,
            cluster: new.control.cluster.as_ref().map(|cluster| ClusterNow {
                node: cluster.node,
                state: cluster.unready.clone().or(cluster.state.clone()).unwrap_or_default(),
                members: cluster.members.len(),
                totals: cluster.totals,
            }),
        }
    }
}
