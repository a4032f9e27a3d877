//! Figure 7 with learning: what the live switch's `--mode l2` does with a frame.
//!
//! It looks up the source as well, to learn it, and its keys are an address in a VLAN; so a burst
//! of 32 frames is a lookup of 64 keys, in a table of 13.5 bytes an entry. [`Stations`] learns all
//! stations first: even numbers behind the port that frames come in on, which send, and odd ones
//! behind the eight others in turn, which receive. Every source was heard of in this epoch: nothing
//! is reported.

use std::time::Instant;

use super::bench::Counts;
use super::{Facts, INGRESS, ROLES, port_of};
use crate::experiments::fib::measure::fill;
use crate::experiments::fib::{address, sizes};
use crate::prelude::*;
use overbank::fib::MacVlan;
use overbank_stations::forward::Forwarder;
use overbank_stations::{Limits, News, Sighting, Stations};

/// Most stations: 1.6 GiB.
pub(super) const ENTRIES_MAX: u64 = 128_000_000;

pub(super) fn sender(rank: u64) -> u64 {
    2 * rank
}

pub(super) fn receiver(rank: u64) -> u64 {
    2 * rank + 1
}

/// Returns the place of the port that a station is behind.
pub(super) fn port(number: u64) -> u16 {
    if number.is_multiple_of(2) { INGRESS } else { port_of(number / 2) }
}

/// Returns the bounds that this many stations fill.
fn limits(entries: u64) -> Limits {
    Limits { entries_max: usize::try_from(entries).unwrap_or(usize::MAX), ..Limits::default() }
}

/// Returns why `entries` stations are not measured with learning, in one line; `None` if they can
/// be.
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
    pub(super) fn build(context: &mut Context<'_>, entries: u64) -> Result<Learnt, LabError> {
        let what = format!("{}, with learning", sizes::name_of(entries));
        context.step(&what, 0.0)?;
        let start = Instant::now();
        let new = Stations::new(limits(entries), ROLES.len(), 0, context.seed);
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

    /// Returns the switch's forwarder, which looks up sources.
    pub(super) fn forwarder(&self) -> Forwarder {
        Forwarder::new(self.stations.reader(), &ROLES).learning(self.stations.epoch())
    }

    /// Returns the results, with the counts of frames.
    pub(super) fn found(&self, counts: Counts) -> Learning {
        Learning { facts: Facts::of(&self.stations.reader()), seconds: self.seconds, counts }
    }
}

/// What was found with learning at one size, but for the times.
pub(super) struct Learning {
    pub(super) facts: Facts,
    /// Until all were learnt.
    pub(super) seconds: f64,
    pub(super) counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::super::PORTS;
    use super::super::bench::{Lane, among_stations, through};
    use super::*;
    use crate::experiments::fib::measure::{Draws, Plan};
    const ENTRIES: u64 = 2001;

    /// Counts of a round after a change of the table.
    fn counts(change: impl FnOnce(&mut Learnt)) -> Counts {
        let mut learnt = smoke(|context| Learnt::build(context, ENTRIES)).unwrap();
        change(&mut learnt);
        let forwarder = learnt.forwarder();
        let draws = Draws::uniform(ENTRIES / 2, 1).unwrap();
        let mut lane = Lane::new(through(&forwarder), among_stations, draws);
        lane.round(&Plan::of(true)).unwrap();
        Lane::counts(&[lane])
    }

    #[test]
    fn sources_that_are_not_known_and_wrong_ports_are_noticed() {
        let known = counts(|_| {});
        assert_eq!((known.right, known.news), (known.frames, 0));
        // Of another epoch: all are.
        let silent = counts(|learnt| learnt.stations.epoch().set(1));
        assert_eq!((silent.right, silent.news), (silent.frames, silent.frames));
        // Half of the sources, and then of the receivers, behind another port.
        let moved = |of: fn(u64) -> u64| {
            counts(|learnt| {
                for number in (0..ENTRIES / 4).map(of) {
                    let key = MacVlan::new(address(number).to_bytes(), 0);
                    let port = 1 + port(number) % PORTS;
                    learnt.stations.learn(Sighting { key, port, news: News::Moved });
                }
            })
        };
        let senders = moved(sender);
        assert!(senders.news > 0 && senders.news < senders.frames, "{senders:?}");
        assert_eq!(senders.right, senders.frames);
        let receivers = moved(receiver);
        assert!(receivers.right < receivers.frames && receivers.news == 0, "{receivers:?}");
    }

    #[test]
    fn oversized_input_is_one_clear_line() {
        assert_eq!(left_out(1000), None);
        let line = left_out(1_000_000_000).unwrap();
        assert_eq!(line, "With learning, 1 G entries left out: 128 M are the most");
    }
}
