//! Writes the status document of a running engine and its services, and its metrics.
//!
//! One JSON object (`schema` is [`SCHEMA`]). The status socket answers each line, whatever its
//! content, with the document on one line. Numbers only grow; a rate is the difference of two
//! documents over the difference of their `uptime_ms`. `docs/switch-status.md` describes the
//! fields.

use crate::switch::appliance::Appliance;
use crate::switch::status::SCHEMA;
use overbank_declare::counters::{Counters, Exposition};
use overbank_ofctl::sessions::{ControlCounters, ControlCounts};
use overbank_runtime::status::StatusOf;
use overbank_runtime::{Engine, Handle, Status};
use overbank_service::endpoints::{Documents, EndpointTotals, Limits};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts of sessions and endpoints, beside the engine.
#[derive(Clone, Debug)]
pub struct Served {
    /// Counts of the OpenFlow sessions; `None` without `--openflow`.
    pub openflow: Option<Arc<ControlCounters>>,
    /// Connection limits of the endpoints, with their counts.
    pub limits: Limits,
}

#[derive(Serialize)]
pub struct Document<S> {
    schema: &'static str,
    mode: &'static str,
    datapath_id: String,
    #[serde(flatten)]
    status: S,
    openflow: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    endpoints: EndpointTotals,
}

impl Served {
    fn openflow(&self) -> Option<ControlCounts> {
        self.openflow.as_ref().map(|counters| counters.snapshot())
    }

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
            endpoints: self.limits.totals(),
        }
    }
}

/// A running engine with its services.
pub struct ServedEngine<C: Appliance> {
    /// Access to its control side.
    pub handle: Handle<C>,
    pub datapath_id: u64,
    /// Counts beside the engine.
    pub served: Served,
}

impl<C: Appliance> Documents for ServedEngine<C>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    fn metrics(&self) -> Exposition {
        let status: StatusOf<C> = Status::new(&self.handle);
        let mut to = Exposition::new();
        status.expose(&mut to);
        to.add(&[], &self.served.limits.totals());
        if let Some(counted) = self.served.openflow() {
            to.add(&[], &counted);
        }
        to
    }

    fn status(&self) -> serde_json::Result<Vec<u8>> {
        let status: StatusOf<C> = Status::new(&self.handle);
        serde_json::to_vec(&self.served.document::<C>(self.datapath_id, status))
    }

    /// Answers a line that begins with `fdb` with a list of addresses, any other with the status.
    fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
        if line.starts_with("fdb") {
            return serde_json::to_vec(&C::listing(&self.handle, line));
        }
        self.status()
    }
}

#[cfg(test)]
mod tests;
