//! The status document of a running engine, with what is served beside it; and its metrics.
//!
//! One JSON object (`schema` is [`SCHEMA`]). Over the status socket it comes as one line each time
//! that a line, of whatever content, is sent. The numbers only grow; rates are differences of two
//! documents over the difference of their `uptime_ms`. The fields are described in
//! `docs/switch-status.md`.

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

/// What sessions and endpoints count, beside the engine.
#[derive(Clone, Debug)]
pub struct Served {
    /// What the OpenFlow sessions counted; `None` without `--openflow`.
    pub openflow: Option<Arc<ControlCounters>>,
    /// Limits of the endpoints, which count what they kept waiting.
    pub limits: Limits,
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
    endpoints: EndpointTotals,
}

impl Served {
    fn openflow(&self) -> Option<ControlCounts> {
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
            endpoints: self.limits.totals(),
        }
    }
}

/// A running engine and what is served of it.
pub struct ServedEngine<C: Appliance> {
    /// The way to its control side.
    pub handle: Handle<C>,
    /// Identity of the switch.
    pub datapath_id: u64,
    /// What is counted beside it.
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

    /// A listing of stations for a line that begins with `fdb`, the status for any other.
    fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
        if line.starts_with("fdb") {
            return serde_json::to_vec(&C::listing(&self.handle, line));
        }
        self.status()
    }
}

#[cfg(test)]
mod tests;
