//! Figure 7 with learning: what the live switch's `--mode l2` does with a frame.
//!
//! The paper's switch looks up destinations. The live switch looks up the source as well, to learn
//! it, and its keys are an address in a VLAN; so a burst of 32 frames is a lookup of 64 keys, in a
//! table of 13.5 bytes an entry. Here that is [`l2::Stations`](overbank_live::l2::Stations), which
//! learns all stations first, and [`l2::Forwarder`](overbank_live::l2::Forwarder) on it:
//!
//! ```text
//!  even numbers   behind the port that frames come in on     sources
//!  odd numbers    behind the eight others, in turn           destinations
//! ```
//!
//! Every source is known behind its port and was heard of in this epoch, as nearly all are in a
//! switch that has run for a while: looked up, and nothing to tell. Frames have no tag.

use std::time::Instant;

use super::bench::{Bench, Counts, Traffic};
use super::{INGRESS, PORTS, THETA, port_of};
use crate::experiments::fib::measure::{Draws, Plan, fill};
use crate::experiments::fib::{address, sizes};
use overbank::fib::MacVlan;
use overbank_kit::experiment::{Context, LabError};
use overbank_live::l2::{Forwarder, Limits, News, Role, Sighting, Stations};

/// Most stations: 1.6 GiB.
pub(super) const ENTRIES_MAX: u64 = 128_000_000;

/// Number of a station that frames come from, by its rank among those.
pub(super) fn sender(rank: u64) -> u64 {
    2 * rank
}

/// Number of a station that frames are for, by its rank among those.
pub(super) fn receiver(rank: u64) -> u64 {
    2 * rank + 1
}

/// Place of the port that a station is behind.
pub(super) fn port(number: u64) -> u16 {
    if number.is_multiple_of(2) { INGRESS } else { port_of(number / 2) }
}

/// Bounds that this many stations fill.
fn limits(entries: u64) -> Limits {
    Limits { entries_max: usize::try_from(entries).unwrap_or(usize::MAX), ..Limits::default() }
}

/// Why `entries` stations are not measured with learning, in one line; `None` if they can be.
pub(super) fn left_out(entries: u64) -> Option<String> {
    if entries > ENTRIES_MAX {
        let (name, most) = (sizes::name(entries), sizes::name(ENTRIES_MAX));
        return Some(format!("With learning, {name} entries left out: {most} are the most"));
    }
    let bytes = Stations::bytes_of(limits(entries), 0) as u64;
    sizes::does_not_fit(entries, bytes).map(|line| format!("With learning, {line}"))
}

/// A table that has learnt, and the seconds that it took.
pub(super) struct Learnt {
    stations: Stations,
    seconds: f64,
}

impl Learnt {
    /// Learns this many stations.
    pub(super) fn build(context: &mut Context<'_>, entries: u64) -> Result<Learnt, LabError> {
        let ports = 1 + usize::from(PORTS);
        let what = format!("{} entries, with learning", sizes::name(entries));
        context.step(&what, 0.0)?;
        let start = Instant::now();
        let new = Stations::new(limits(entries), ports, 0, context.seed);
        let mut stations = new.map_err(LabError::failed)?;
        fill(context, &what, 0..entries, |number, _| {
            let key = MacVlan::new(address(number).to_bytes(), 0);
            stations.learn(Sighting { key, port: port(number), news: News::Unknown });
            Ok(())
        })?;
        let counters = stations.counters();
        if (counters.learned, counters.evicted) != (entries, 0) {
            return Err(LabError::Failed(format!("{what}: {counters:?}")));
        }
        Ok(Learnt { stations, seconds: start.elapsed().as_secs_f64() })
    }

    /// The switch's forwarding by it, with sources looked up.
    pub(super) fn forwarder(&self) -> Forwarder {
        let roles = [Role::default(); 1 + PORTS as usize];
        Forwarder::new(self.stations.reader(), &roles).learning(self.stations.epoch())
    }
}

/// The lanes with learning, and what they took.
pub(super) struct Lanes<'a> {
    learnt: &'a Learnt,
    lanes: [(Bench<'a, MacVlan>, Draws); 2],
    /// Nanoseconds a frame by round: uniform, Zipf.
    ns: [Vec<f64>; 2],
}

impl<'a> Lanes<'a> {
    pub(super) fn new(
        learnt: &'a Learnt,
        forwarder: &'a Forwarder,
        seed: u64,
    ) -> Result<Lanes<'a>, LabError> {
        let ranks = learnt.stations.len() as u64 / 2;
        let lane = |draws| (Bench::new(Some(forwarder), Traffic::AmongStations), draws);
        let (uniform, zipf) = (Draws::uniform(ranks, seed)?, Draws::zipf(ranks, THETA, seed)?);
        let lanes = [uniform, zipf].map(lane);
        Ok(Lanes { learnt, lanes, ns: Default::default() })
    }

    /// A round of both.
    pub(super) fn round(&mut self, plan: &Plan) -> Result<(), LabError> {
        for ((bench, draws), ns) in self.lanes.iter_mut().zip(&mut self.ns) {
            ns.push(bench.round(draws, plan)?);
        }
        Ok(())
    }

    /// What was measured.
    pub(super) fn end(self) -> Learning {
        let reader = self.learnt.stations.reader();
        let [uniform, zipf] = self.ns;
        Learning {
            bytes: reader.bytes() as u64,
            pages: reader.huge_pages().to_string(),
            occupancy: reader.len() as f64 / reader.slots() as f64,
            seconds: self.learnt.seconds,
            uniform,
            zipf,
            counts: self
                .lanes
                .iter()
                .map(|(bench, _)| bench.counts())
                .fold(Counts::default(), |a, b| a + b),
        }
    }
}

/// What was measured with learning at one size.
pub(super) struct Learning {
    pub(super) bytes: u64,
    pub(super) pages: String,
    pub(super) occupancy: f64,
    /// Until all were learnt.
    pub(super) seconds: f64,
    /// Nanoseconds a frame by round.
    pub(super) uniform: Vec<f64>,
    pub(super) zipf: Vec<f64>,
    pub(super) counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::*;
    const ENTRIES: u64 = 2001;

    fn learnt() -> Learnt {
        let (stop, mut silent) = (Default::default(), |_: &str, _: f64| {});
        Learnt::build(&mut Context::smoke_run(&stop, &mut silent), ENTRIES).unwrap()
    }

    fn counts(learnt: &Learnt) -> Counts {
        let forwarder = learnt.forwarder();
        let mut lanes = Lanes::new(learnt, &forwarder, 1).unwrap();
        lanes.round(&Plan::of(true)).unwrap();
        lanes.end().counts
    }

    #[test]
    fn every_source_is_known_and_every_frame_arrives() {
        let counts = counts(&learnt());
        assert!(counts.frames > 0);
        assert_eq!((counts.right, counts.news), (counts.frames, 0));
    }

    #[test]
    fn a_source_that_is_not_known_is_noticed() {
        let told = |change: fn(&mut Learnt)| {
            let mut learnt = learnt();
            change(&mut learnt);
            counts(&learnt)
        };
        // Of another epoch: all are.
        let silent = told(|learnt| learnt.stations.epoch().set(1));
        assert_eq!((silent.right, silent.news), (silent.frames, silent.frames));
        // Half of the sources behind another port.
        let moved = told(|learnt| {
            for rank in 0..ENTRIES / 4 {
                let key = MacVlan::new(address(sender(rank)).to_bytes(), 0);
                learnt.stations.learn(Sighting { key, port: 1, news: News::Moved });
            }
        });
        assert!(moved.news > 0 && moved.news < moved.frames, "{moved:?}");
        assert_eq!(moved.right, moved.frames);
        // Receivers behind another port than theirs.
        let wrong = told(|learnt| {
            for rank in 0..ENTRIES / 4 {
                let (key, number) = (address(receiver(rank)).to_bytes(), receiver(rank));
                let (key, port) = (MacVlan::new(key, 0), 1 + port(number) % PORTS);
                learnt.stations.learn(Sighting { key, port, news: News::Moved });
            }
        });
        assert!(wrong.right < wrong.frames && wrong.news == 0, "{wrong:?}");
    }

    #[test]
    fn what_is_too_large_is_said_in_one_line() {
        assert_eq!(left_out(1000), None);
        let line = left_out(1_000_000_000).unwrap();
        assert_eq!(line, "With learning, 1 G entries left out: 128 M are the most");
    }
}
