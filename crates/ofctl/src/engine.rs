//! What decides where the frames of a worker go: rules, or the table of stations.

use super::outlet::Outlet;
use crate::l2::{Forwarder, Role};
use crate::snapshot::{PortView, Snapshot};
use crate::totals::WorkerTotals;
use arrayvec::ArrayVec;
use overbank_ports::queue::{BURST, Received};
use overbank_switch::Datapath;
use overbank_switch::datapath::Frame;
use overbank_switch::drop::DropReason;
use overbank_switch::rule::Action;
use overbank_switch::sink::Sink as _;
use std::sync::Arc;

/// What decides where frames go.
pub enum Engine {
    /// Rules: `--mode openflow`.
    Rules(Box<Datapath>),
    /// Where stations are: `--mode l2`.
    Ethernet(Forwarder),
}

/// The ports as the Ethernet switch sees them.
pub fn roles(ports: &[PortView]) -> Vec<Role> {
    let role = |port: &PortView| Role { isolated: port.isolated, flood: !port.config.no_flood };
    ports.iter().map(role).collect()
}

impl Engine {
    /// Sends on the frames that came in on the port at `place`, whose number is `in_port`.
    #[inline]
    pub(super) fn process(
        &mut self,
        received: &Received<'_>,
        place: usize,
        in_port: u32,
        now_ms: u64,
        outlet: &mut Outlet,
    ) {
        match self {
            Engine::Rules(datapath) => {
                let frames: ArrayVec<Frame<'_>, BURST> =
                    received.iter().map(|bytes| Frame { bytes, in_port }).collect();
                datapath.process(&frames, now_ms, outlet);
            }
            // Ports have 16 bits in every table of them.
            Engine::Ethernet(forwarder) => forwarder.forward(place as u16, received, outlet),
        }
    }

    /// Runs the actions of a controller on its frame. The Ethernet switch has no controllers.
    pub(super) fn packet_out(
        &mut self,
        frame: Frame<'_>,
        actions: &[Action],
        now_ms: u64,
        outlet: &mut Outlet,
    ) {
        match self {
            Engine::Rules(datapath) => datapath.packet_out(frame, actions, now_ms, outlet),
            Engine::Ethernet(_) => outlet.drop(0, DropReason::NoOutput),
        }
    }

    /// What was counted so far belongs to the rules that stand.
    pub(super) fn flush_stats(&mut self, now_ms: u64) {
        if let Engine::Rules(datapath) = self {
            datapath.flush_stats(now_ms);
        }
    }

    /// Takes the rules of a new snapshot, and its ports if they changed.
    pub(super) fn take_over(&mut self, old: &Snapshot, new: &Snapshot) {
        let changed = !Arc::ptr_eq(&old.ports, &new.ports);
        match self {
            Engine::Rules(datapath) => {
                let given_back = datapath.set_tables(new.tables.clone());
                debug_assert!(Arc::ptr_eq(&given_back, &old.tables), "those of the old snapshot");
                if changed {
                    let ports: Vec<_> = new.ports.iter().map(|port| port.switch_port()).collect();
                    datapath.set_ports(&ports);
                }
            }
            Engine::Ethernet(forwarder) if changed => forwarder.set_roles(&roles(&new.ports)),
            Engine::Ethernet(_) => {}
        }
    }

    /// Looks at a part of the megaflows, so that all were looked at after `turns` turns.
    pub(super) fn sweep(&mut self, now_ms: u64, idle_ms: u32, turns: usize) {
        if let Engine::Rules(datapath) = self {
            let budget = datapath.megaflows().capacity().div_ceil(turns);
            datapath.sweep(now_ms, idle_ms, budget);
        }
    }

    /// Adds what the engine counts by itself.
    pub(super) fn count(&self, totals: &mut WorkerTotals) {
        let Engine::Rules(datapath) = self else { return };
        let counters = datapath.counters();
        totals.packets = counters.packets;
        totals.microflow_lookups = counters.microflow.lookups;
        totals.microflow_hits = counters.microflow.hits;
        totals.megaflow_lookups = counters.megaflow.lookups;
        totals.megaflow_hits = counters.megaflow.hits;
        totals.megaflow_subtables = counters.megaflow.subtables_searched;
        totals.megaflow_evictions = counters.megaflow.evictions;
        totals.megaflow_expirations = counters.megaflow.expirations;
        totals.megaflows = datapath.megaflows().len() as u64;
        totals.classifier_lookups = counters.classifier_lookups;
    }
}
