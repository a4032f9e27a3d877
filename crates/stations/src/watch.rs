//! What a worker knows of stations: the table, its time, and what it reports.

use super::{Epoch, Learner, Limits, Reports, Sighting, Station, Stations};
use overbank::fib::{MacVlan, Reader};
use std::sync::Arc;

/// Declares the counters of a worker that learns stations: its lines as in
/// [`overbank_declare::counters!`], then those that every such worker has.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Totals:ident: $prefix:literal { $($lines:tt)* }
    ) => {
        $crate::overbank_declare::counters! {
            $(#[$meta])*
            $vis struct $Totals: $prefix {
                $($lines)*
                flooded: counter packets
                    "Frames flooded: their destination was a group or unknown"
                    as "flooded_packets" rate;
                learn_limited: counter reports
                    "Frames whose source was not reported: their port exceeds `mac-rate`"
                    rate "not_learned";
                learn_queue_full: counter reports
                    "Frames whose source was not reported: `mac-queue` reports waited"
                    rate "not_learned";
            }
        }
    };
}

/// A worker's view of the table of stations.
pub struct Watch {
    reader: Reader<MacVlan, u16>,
    epoch: Epoch,
    learner: Learner,
}

impl Watch {
    /// Returns a view for a worker with this many ports, and the queues of what it reports.
    pub fn new(stations: &Stations, ports: usize, limits: &Limits) -> (Watch, Arc<Reports>) {
        let (learner, reports) = Learner::new(ports, limits);
        (Watch { reader: stations.reader(), epoch: stations.epoch(), learner }, reports)
    }

    /// Looks up an address in a VLAN.
    #[inline]
    pub fn lookup(&self, mac: [u8; 6], vlan: u16) -> Option<Station> {
        self.reader.lookup(MacVlan::new(mac, vlan)).map(Station::from_bits)
    }

    /// Returns the epoch that it is.
    #[inline]
    pub fn epoch(&self) -> u16 {
        self.epoch.now()
    }

    /// Reports a station to the writer, or does not. Returns whether the writer has something new.
    /// Only the low half of the clock counts.
    #[cold]
    pub fn report(&mut self, sighting: Sighting, now_ms: u64) -> bool {
        self.learner.report(sighting, now_ms as u32)
    }

    /// Returns the learner, for its counters.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }
}
