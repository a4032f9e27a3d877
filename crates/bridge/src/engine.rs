//! A worker's engine of the Ethernet switch: a [`Forwarder`] that learns.

use crate::{DropReason, Forwarder, Sink};
use overbank_runtime::link::Common;
use overbank_runtime::{Engine, Ingress, Out};
use overbank_stations::{Sighting, Watch};
use std::sync::Arc;

overbank_stations::counters! {
    /// What a worker of the Ethernet switch counts.
    pub struct BridgeTotals: "overbank_" {}
}

/// The engine.
pub struct Bridge {
    forwarder: Forwarder,
    watch: Watch,
    common: Arc<Common>,
    flooded: u64,
}

impl Bridge {
    /// Returns an engine over a table of stations.
    pub fn new(forwarder: Forwarder, watch: Watch, common: Arc<Common>) -> Bridge {
        Bridge { forwarder, watch, common, flooded: 0 }
    }
}

/// Where the frames of one burst go.
struct Burst<'a> {
    out: &'a mut Out<DropReason>,
    watch: &'a mut Watch,
    common: &'a Common,
    flooded: &'a mut u64,
    now_ms: u64,
}

impl Sink for Burst<'_> {
    #[inline]
    fn output(&mut self, index: usize, port: u16, frame: &[u8]) {
        self.out.output(index, port, frame);
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        self.out.drop(index, reason);
    }

    fn saw(&mut self, sighting: Sighting) {
        if self.watch.report(sighting, self.now_ms) {
            self.common.bell.ring();
        }
    }

    fn flooded(&mut self, _index: usize) {
        *self.flooded += 1;
    }
}

impl Engine for Bridge {
    /// The ports stay as they are configured.
    type Snapshot = ();
    /// There are no orders.
    type Order = ();
    type Totals = BridgeTotals;
    type Drop = DropReason;

    #[inline]
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<DropReason>,
    ) {
        let Bridge { forwarder, watch, common, flooded } = self;
        let mut sink = Burst { out, watch, common, flooded, now_ms };
        forwarder.forward(ingress.index, burst, &mut sink);
    }

    fn carry_out(&mut self, (): (), _now_ms: u64, _out: &mut Out<DropReason>) {}

    fn take_over(&mut self, (): &(), (): &(), _now_ms: u64) {}

    fn totals(&self) -> BridgeTotals {
        BridgeTotals {
            flooded: self.flooded,
            learn_limited: self.watch.learner().limited(),
            learn_queue_full: self.watch.learner().queue_full(),
        }
    }
}
