//! What happens to a datapath between bursts: new rules and ports, counters, idle megaflows,
//! controllers' packets.
//!
//! All are cheap enough to run between two bursts, except [`Datapath::change_rules`],
//! [`Datapath::expire`] and [`Datapath::flush`], which walk over everything.

use super::{Counters, Datapath, Frame};
use crate::drop::DropReason;
use crate::exec::{self, Subject};
use crate::megaflow::MegaflowCache;
use crate::ports::{Ports, SwitchPort};
use crate::rule::Action;
use crate::sink::Sink;
use crate::tables::Tables;
use crate::translate;
use crate::verdict::credit;
use overbank::cache::DynCache;
use overbank_wire::FlowKey;
use overbank_wire::edit::FRAME_MAX;
use overbank_wire::extract::extract_within;
use std::sync::Arc;

impl Datapath {
    /// Applies these rules from the next packet on. Returns the old ones, so that another thread
    /// can free them. Counts so far are still credited to them.
    pub fn set_tables(&mut self, tables: Arc<Tables>) -> Arc<Tables> {
        let old = std::mem::replace(&mut self.tables, tables);
        self.next_epoch();
        old
    }

    /// Applies these ports from the next packet on.
    pub fn set_ports(&mut self, ports: &[SwitchPort]) {
        self.ports = Ports::new(ports);
        self.next_epoch();
    }

    fn next_epoch(&mut self) {
        let released = &mut self.released;
        self.megaflows.next_epoch(|number| released.push(number));
        self.release();
    }

    /// Changes the rules, revalidates every megaflow at once, and removes those whose verdict or
    /// mask no longer holds. Returns the result of `change` and the number of megaflows removed.
    pub fn change_rules<T>(&mut self, change: impl FnOnce(&mut Tables) -> T) -> (T, usize) {
        let out = change(Arc::make_mut(&mut self.tables));
        let (tables, ports, verdicts) = (&*self.tables, &self.ports, &self.verdicts);
        let released = &mut self.released;
        let gone = self.megaflows.revalidate(
            |key, mask, number| {
                let now = translate::translate(tables, key, ports);
                now.mask.and_not(mask).is_zero() && verdicts.get(number).is(&now, tables.stats())
            },
            |number| released.push(number),
        );
        self.forget();
        (out, gone)
    }

    /// Removes megaflows that no packet has used for longer than `idle_ms`, all at once. Returns
    /// their number.
    pub fn expire(&mut self, now_ms: u64, idle_ms: u32) -> usize {
        self.now_ms = now_ms;
        let released = &mut self.released;
        // Megaflows store the low half of the clock.
        let gone = self.megaflows.expire(now_ms as u32, idle_ms, |number| released.push(number));
        self.forget();
        gone
    }

    /// Looks at the next `budget` megaflows in turn. Removes those that no packet has used for
    /// longer than `idle_ms`, and stale ones older than [`STALE_MS`]. Returns the number removed.
    /// Their signatures stay until overwritten and are harmless.
    ///
    /// [`STALE_MS`]: crate::megaflow::STALE_MS
    pub fn sweep(&mut self, now_ms: u64, idle_ms: u32, budget: usize) -> usize {
        self.now_ms = now_ms;
        let released = &mut self.released;
        let remove = |number| released.push(number);
        // Megaflows store the low half of the clock.
        let gone = self.megaflows.sweep(now_ms as u32, idle_ms, budget, remove);
        self.release();
        gone
    }

    /// Adds what was counted since the last call to the counters of rules and tables. Costs a few
    /// atomic additions for each verdict used since then.
    pub fn flush_stats(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.verdicts.flush(now_ms);
    }

    /// Flushes counters of at most `budget` verdicts, so that no burst waits long. Returns true if
    /// nothing is left to add.
    pub fn flush_stats_some(&mut self, now_ms: u64, budget: usize) -> bool {
        self.now_ms = now_ms;
        self.verdicts.flush_some(now_ms, budget)
    }

    /// Empties tiers 1 and 2; the next packets ask the classifier again.
    pub fn flush(&mut self) {
        let released = &mut self.released;
        self.megaflows.revalidate(|_, _, _| false, |number| released.push(number));
        self.release();
        if let Some(cache) = &mut self.cache {
            cache.clear();
        }
    }

    /// Releases the verdicts of removed megaflows and removes their signatures.
    fn forget(&mut self) {
        if self.released.is_empty() {
            return;
        }
        self.release();
        let megaflows = &self.megaflows;
        if let Some(cache) = &mut self.cache {
            cache.retain(&mut |_, id| megaflows.is_live(id));
        }
    }

    /// Runs a controller's list of actions on a packet that it sent, which enters at
    /// `frame.in_port`: a port or [`PORT_CONTROLLER`]. An output to [`PORT_TABLE`] sends it through
    /// the tables. The sink sees it as frame 0.
    ///
    /// [`PORT_CONTROLLER`]: crate::ports::PORT_CONTROLLER
    /// [`PORT_TABLE`]: crate::ports::PORT_TABLE
    pub fn packet_out<S: Sink>(
        &mut self,
        frame: Frame<'_>,
        actions: &[Action],
        now_ms: u64,
        sink: &mut S,
    ) {
        self.now_ms = now_ms;
        self.packet_outs += 1;
        if let Err(reason) = self.run_packet_out(frame, actions, sink) {
            sink.drop(0, reason);
        }
    }

    fn run_packet_out<S: Sink>(
        &mut self,
        frame: Frame<'_>,
        actions: &[Action],
        sink: &mut S,
    ) -> Result<(), DropReason> {
        if frame.bytes.len() > FRAME_MAX {
            return Err(DropReason::FrameTooLong);
        }
        let mut key = FlowKey::default();
        let vlan_limit = self.tables.view().vlan_limit;
        let offsets = extract_within(frame.bytes, frame.in_port, vlan_limit, &mut key)?;
        let answer = translate::translate_list(&self.tables, &key, &self.ports, actions);
        let subject = Subject {
            index: 0,
            frame: frame.bytes,
            offsets,
            in_port: frame.in_port,
            ports: &self.ports,
        };
        let dropped = exec::run(&answer.program, answer.drop, &subject, &mut self.scratch, sink);
        let (stats, bytes) = (self.tables.stats(), frame.bytes.len() as u64);
        credit(&answer.lookups, stats, 1, bytes, self.now_ms);
        dropped.map_or(Ok(()), Err)
    }

    pub fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }

    /// Returns tier 1, if the datapath has one.
    pub fn cache(&self) -> Option<&dyn DynCache> {
        self.cache.as_deref()
    }

    /// Returns tier 2.
    pub fn megaflows(&self) -> &MegaflowCache {
        &self.megaflows
    }

    /// Returns the number of distinct action programs: at most one for each megaflow.
    pub fn programs(&self) -> usize {
        self.verdicts.len()
    }

    pub fn counters(&self) -> Counters {
        Counters {
            packets: self.packets,
            microflow: self.cache.as_ref().map(|c| *c.counters()).unwrap_or_default(),
            megaflow: *self.megaflows.counters(),
            classifier_lookups: self.classifier_lookups,
            stale_signatures: self.stale_signatures,
            packet_outs: self.packet_outs,
            drops: self.drops,
        }
    }

    /// Sets all counters to zero; the caches keep their entries.
    pub fn reset_counters(&mut self) {
        self.packets = 0;
        self.packet_outs = 0;
        self.classifier_lookups = 0;
        self.stale_signatures = 0;
        self.drops = [0; DropReason::COUNT];
        self.megaflows.reset_counters();
        if let Some(cache) = &mut self.cache {
            cache.reset_counters();
        }
    }
}
