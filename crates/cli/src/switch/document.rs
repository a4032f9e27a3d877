//! The status document of a running engine, with what is served beside it; and its metrics.
//!
//! One JSON object (`schema` is [`SCHEMA`]). Over the status socket it comes as one line each time
//! that a line, of whatever content, is sent. The numbers only grow; rates are differences of two
//! documents over the difference of their `uptime_ms`. The fields are described in
//! `docs/switch-status.md`.

use crate::switch::appliance::Appliance;
use crate::switch::status::SCHEMA;
use overbank_ofctl::sessions::{ControlCounters, ControlSnapshot};
use overbank_runtime::status::StatusOf;
use overbank_runtime::{Engine, Handle, Status};
use overbank_service::counters::{Counters, Exposition};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is served of a running engine.
pub trait Source: Send + Sync {
    /// Returns the status document.
    fn json(&self) -> serde_json::Result<String>;

    /// Adds every number to the metrics.
    fn expose(&self, to: &mut Exposition);
}

/// What sessions and servers count, beside the engine.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// What the OpenFlow sessions counted; `None` without `--openflow`.
    pub openflow: Option<Arc<ControlCounters>>,
    /// Connections for metrics that waited.
    pub metrics_waited: Arc<AtomicU64>,
    /// Connections to the status socket that waited.
    pub status_waited: Arc<AtomicU64>,
}

overbank_service::counters! {
    /// Connections that waited, in the status document.
    pub struct Waited: "overbank_" {
        metrics_waited: counter connections
            "Connections for metrics that found all seats taken"
            as "metrics_connections_waited";
        status_waited: counter connections
            "Connections to the status socket that found all seats taken"
            as "status_connections_waited";
    }
}

/// The document.
#[derive(Serialize)]
pub struct Document<S> {
    schema: &'static str,
    mode: &'static str,
    datapath_id: String,
    #[serde(flatten)]
    status: S,
    openflow: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    waited: Waited,
}

impl Served {
    fn waited(&self) -> Waited {
        Waited {
            metrics_waited: self.metrics_waited.load(Relaxed),
            status_waited: self.status_waited.load(Relaxed),
        }
    }

    fn openflow(&self) -> Option<ControlSnapshot> {
        self.openflow.as_ref().map(|counters| counters.snapshot())
    }

    /// Returns the document of this status.
    pub fn document<C: Appliance>(
        &self,
        datapath_id: u64,
        status: StatusOf<C>,
    ) -> Document<StatusOf<C>> {
        let mut openflow = BTreeMap::new();
        if let Some(counted) = self.openflow() {
            counted.visit(|counter, _, number| {
                openflow.insert(counter.name, number);
            });
        }
        Document {
            schema: SCHEMA,
            mode: C::MODE,
            datapath_id: format!("{datapath_id:016x}"),
            status,
            openflow,
            waited: self.waited(),
        }
    }
}

/// A running engine and what is served of it.
pub struct Live<C: Appliance> {
    /// The way to its control side.
    pub handle: Handle<C>,
    /// Identity of the switch.
    pub datapath_id: u64,
    /// What is counted beside it.
    pub served: Served,
}

impl<C: Appliance> Source for Live<C>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    fn json(&self) -> serde_json::Result<String> {
        let status: StatusOf<C> = Status::new(&self.handle);
        serde_json::to_string(&self.served.document::<C>(self.datapath_id, status))
    }

    fn expose(&self, to: &mut Exposition) {
        let status: StatusOf<C> = Status::new(&self.handle);
        status.expose(to);
        to.add(&[], &self.served.waited());
        if let Some(counted) = self.served.openflow() {
            to.add(&[], &counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_ofctl::RuleTotals;
    use overbank_ofctl::rules::ControlTotals;
    use overbank_runtime::status::PublisherTotals;
    use overbank_runtime::{PortTotals, WorkerTotals};
    use overbank_service::counters::{Counter, Shown};
    use overbank_stations::{MacTotals, StationTotals};

    /// Families that are computed and not counted, and the one of reasons.
    const OTHERS: [&str; 4] = [
        "overbank_uptime_seconds",
        "overbank_port_up",
        "overbank_worker_datapath_share",
        "overbank_port_dropped_packets",
    ];

    /// Every family stands in the documentation, and the other way round.
    #[test]
    fn the_documentation_has_them_all() {
        let documented = include_str!("../../../../docs/metrics.md");
        let tables: [&[Counter]; 8] = [
            PortTotals::TABLE,
            WorkerTotals::TABLE,
            RuleTotals::TABLE,
            ControlTotals::TABLE,
            PublisherTotals::TABLE,
            StationTotals::TABLE,
            MacTotals::TABLE,
            ControlSnapshot::TABLE,
        ];
        let all = tables.into_iter().flatten().chain(Waited::TABLE);
        let counted = all.filter(|counter| counter.shown == Shown::Everywhere);
        let names = counted.flat_map(|counter| counter.metrics).map(|metric| metric.name);
        let names: Vec<&str> = names.chain(OTHERS).collect();
        for name in &names {
            assert!(documented.contains(&format!("`{name}")), "{name}");
        }
        for name in documented.split('`').filter(|word| word.starts_with("overbank_")) {
            let name = name.trim_end_matches("_total");
            assert!(names.contains(&name), "{name}");
        }
    }
}
