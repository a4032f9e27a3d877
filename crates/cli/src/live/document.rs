//! Writes the status document of a running engine and its services, and its metrics.
//!
//! One JSON object. The status socket answers each line with the document on one line, unless the
//! appliance has another answer to it. Numbers only grow; a rate is the difference of two documents
//! over the difference of their `uptime_ms`. `docs/switch-status.md` describes the fields.

use super::Appliance;
use overbank_declare::counters::Exposition;
use overbank_runtime::status::StatusOf;
use overbank_runtime::{Engine, Handle, Status};
use overbank_service::endpoints::{Documents, EndpointTotals, Limits};
use serde::Serialize;

/// What documents have beside the engine: schema, mode, counts of sessions.
pub trait Extra: Clone + Send + Sync + 'static {
    type Head: Serialize;

    /// Returns the fields in front of the status.
    fn head(&self) -> Self::Head;

    /// Adds its numbers to the metrics.
    fn expose(&self, _to: &mut Exposition) {}
}

#[derive(Serialize)]
pub struct Document<H, S> {
    #[serde(flatten)]
    head: H,
    #[serde(flatten)]
    status: S,
    #[serde(flatten)]
    endpoints: EndpointTotals,
}

/// A running engine with its services.
pub struct Served<C: Appliance> {
    /// Access to its control side.
    pub handle: Handle<C>,
    /// Beside the engine.
    pub extra: C::Extra,
    /// Connection limits of the endpoints, with their counts.
    pub limits: Limits,
}

impl<C: Appliance> Clone for Served<C> {
    fn clone(&self) -> Served<C> {
        let Served { handle, extra, limits } = self;
        Served { handle: handle.clone(), extra: extra.clone(), limits: limits.clone() }
    }
}

impl<C: Appliance> Served<C> {
    pub fn document(
        &self,
        status: StatusOf<C>,
    ) -> Document<<C::Extra as Extra>::Head, StatusOf<C>> {
        Document { head: self.extra.head(), status, endpoints: self.limits.totals() }
    }
}

impl<C: Appliance> Documents for Served<C>
where
    <C::Engine as Engine>::Totals: Serialize,
{
    fn metrics(&self) -> Exposition {
        let status: StatusOf<C> = Status::new(&self.handle);
        let mut to = Exposition::new();
        status.expose(&mut to);
        to.add(&[], &self.limits.totals());
        self.extra.expose(&mut to);
        to
    }

    fn status(&self) -> serde_json::Result<Vec<u8>> {
        let status: StatusOf<C> = Status::new(&self.handle);
        serde_json::to_vec(&self.document(status))
    }

    fn unready(&self) -> Option<String> {
        C::unready(&self.handle)
    }

    fn answer(&self, line: &str) -> serde_json::Result<Vec<u8>> {
        C::answer(&self.handle, line).unwrap_or_else(|| self.status())
    }
}
