//! Counts of workers, and how others read them.
//!
//! ```text
//!   worker: plain numbers, no atomics on the packet path
//!      │  every few milliseconds, when idle, at the end
//!      ▼
//!   Published: worker │ engine │ port 0, its drops │ port 1, its drops │ …     read by anyone
//! ```
//!
//! A reader gets all numbers of one worker as of one instant. So the account of each port closes in
//! every reading:
//!
//! - `received = forwarded + to_controller + Σ dropped`: fates of incoming frames. A frame that
//!   left by a port is `forwarded`, also if the control side got a copy.
//! - `outputs = sent + queued + Σ not_sent`: fates of frames to be sent.
//!
//! Panics: none.

use crate::engine::Engine;
use overbank_declare::counters::{Counter, Counters, Kind, Metric, Shown};
use overbank_handover::publication::Publication;
use overbank_reasons::Reasons;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

overbank_reasons::reasons! {
    /// Why an incoming frame reached no engine.
    pub enum PortDrop {
        PortBlocked = "port_blocked", "receiving is disabled on the port";
    }
}

overbank_reasons::reasons! {
    /// Why an outgoing frame was not sent.
    pub enum NotSent {
        QueueFull = "queue_full", "the transmit queue was full";
        TooLong = "too_long", "the frame is longer than the MTU";
        PortDown = "port_down", "the port is down or gone";
        Blocked = "blocked", "sending is disabled on the port";
        Lost = "lost", "the device refused frames of the queue";
    }
}

overbank_declare::counters! {
    /// Counts of one worker at one port, beside its [`DropCounts`].
    pub struct PortTotals: "overbank_port_" {
        received: counter packets "Frames received" as "received_packets" rate top "in/s";
        received_bytes: counter bytes "Bytes received" rate top "bit/s";
        forwarded: counter packets "Frames of this ingress port that left by a port"
            as "forwarded_packets" rate;
        to_controller: counter packets
            "Frames of this ingress port that went to the controllers only"
            as "to_controller_packets" rate;
        controller_copies: counter packets
            "Copies for the controllers of frames that also left by a port";
        missed: counter packets "Frames lost before the switch received them"
            as "missed_packets" rate top "missed/s";
        errors: counter packets "Frames received with errors" as "receive_errors";
        outputs: counter packets "Frames for this port to send" as "output_packets";
        sent: counter packets "Frames sent" as "sent_packets" rate top "out/s";
        sent_bytes: counter bytes "Bytes sent" rate top "bit/s";
        queued: gauge packets "Frames in the transmit queue" in status;
        not_sent[NotSent]: counter packets "Frames for this port that it did not send"
            as "not_sent_packets" rate top "unsent/s";
    }
}

overbank_declare::counters! {
    /// Counts of one worker.
    pub struct WorkerTotals: "overbank_" {
        version: oldest version "Version of the rules that the worker runs on"
            as "worker_version";
        packets: counter packets "Packets received" in status rate;
        bursts: counter bursts "Bursts of frames processed" as "worker_bursts";
        rounds: counter rounds "Rounds over all ports" in status;
        waits: counter waits "Times a worker waited for frames" as "worker_waits";
        snapshots: counter snapshots "Snapshots taken over" in status;
        cycles_receive: counter cycles "Cycles of sampled bursts in receive" in none;
        cycles_datapath: counter cycles "Cycles of sampled bursts in the engine itself" in none;
        cycles_send: counter cycles "Cycles of sampled bursts in send, copying frames out" in none;
        cycles_flush: counter cycles "Cycles of sampled rounds in flush" in none;
        sampled_packets: counter packets "Frames of sampled bursts" in none;
    }
}

/// Dropped frames of an ingress port, by reason: those of the runtime, then those of the engine
/// (`R`).
pub struct DropCounts<R> {
    counts: Box<[u64]>,
    of: PhantomData<fn() -> R>,
}

impl<R: Reasons> DropCounts<R> {
    /// Counts frames that reached no engine.
    #[inline]
    pub(crate) fn unprocessed(&mut self, reason: PortDrop, frames: u64) {
        self.counts[reason.index()] += frames;
    }

    /// Counts a frame that the engine dropped.
    #[inline]
    pub(crate) fn by_engine(&mut self, reason: R) {
        self.counts[PortDrop::COUNT + reason.index()] += 1;
    }

    /// Returns the number of dropped frames.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of frames dropped for the reason of this name.
    pub fn of(&self, name: &str) -> u64 {
        self.iter().filter(|(known, _)| *known == name).map(|(_, n)| n).sum()
    }

    /// Returns the reasons that have occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = self.counts.iter().enumerate().filter(|(_, n)| **n != 0);
        all.map(|(index, n)| (Self::name_at(index), *n))
    }

    fn name_at(index: usize) -> &'static str {
        match index.checked_sub(PortDrop::COUNT) {
            None => PortDrop::name_at(index),
            Some(index) => R::name_at(index),
        }
    }
}

impl<R: Reasons + 'static> Counters for DropCounts<R> {
    const TABLE: &'static [Counter] = &[Counter {
        name: "dropped",
        kind: Kind::Counter,
        unit: "packets",
        help: "Frames of this ingress port that were dropped",
        shown: Shown::Everywhere,
        metrics: &[Metric { name: "overbank_port_dropped_packets", label: None }],
        rate: Some("dropped"),
        column: Some("dropped/s"),
        len: Self::WORDS,
        reason: Some(Self::name_at),
    }];
    const WORDS: usize = PortDrop::COUNT + R::COUNT;

    fn put(&self, put: &mut impl FnMut(u64)) {
        self.counts.iter().for_each(|count| put(*count));
    }

    fn take(take: &mut impl FnMut() -> u64) -> Self {
        DropCounts { counts: (0..Self::WORDS).map(|_| take()).collect(), of: PhantomData }
    }
}

impl<R: Reasons> Default for DropCounts<R> {
    fn default() -> Self {
        DropCounts { counts: vec![0; PortDrop::COUNT + R::COUNT].into(), of: PhantomData }
    }
}

impl<R> Clone for DropCounts<R> {
    fn clone(&self) -> Self {
        DropCounts { counts: self.counts.clone(), of: PhantomData }
    }
}

impl<R: Reasons> fmt::Debug for DropCounts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<R: Reasons + 'static> Serialize for DropCounts<R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        overbank_declare::counters::serialize(self, to)
    }
}

impl<'de, R: Reasons + 'static> Deserialize<'de> for DropCounts<R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        overbank_declare::counters::deserialize(from)
    }
}

impl PortTotals {
    /// Returns the number of frames to be sent that were not.
    pub fn not_sent_total(&self) -> u64 {
        self.not_sent.iter().sum()
    }

    /// Returns whether both accounts close.
    pub fn closes<R: Reasons>(&self, dropped: &DropCounts<R>) -> bool {
        self.received == self.forwarded + self.to_controller + dropped.total()
            && self.outputs == self.sent + self.queued + self.not_sent_total()
    }
}

/// Counts of a worker at one port.
pub struct PortCounts<E: Engine> {
    /// By fate of the frames.
    pub totals: PortTotals,
    /// Dropped frames by reason.
    pub dropped: DropCounts<E::Drop>,
}

/// Counts of one worker.
pub struct Reading<E: Engine> {
    /// Its own.
    pub worker: WorkerTotals,
    /// Its engine's.
    pub engine: E::Totals,
    /// By port; the last entry is the control side's frames.
    pub ports: Vec<PortCounts<E>>,
}

/// The numbers of one worker, for readers; see the module.
pub struct Published<E: Engine> {
    words: Publication,
    of: PhantomData<fn() -> E>,
}

impl<E: Engine> Published<E> {
    /// Returns numbers for this many ports, all zero.
    pub fn new(ports: usize) -> Published<E> {
        let port = PortTotals::WORDS + DropCounts::<E::Drop>::WORDS;
        let words = WorkerTotals::WORDS + E::Totals::WORDS + ports * port;
        Published { words: Publication::new(words), of: PhantomData }
    }

    /// Publishes new numbers; one thread only. `words` is scratch memory.
    pub(crate) fn publish<'a>(
        &self,
        worker: &WorkerTotals,
        engine: &E::Totals,
        ports: impl Iterator<Item = (&'a PortTotals, &'a DropCounts<E::Drop>)>,
        words: &mut Vec<u64>,
    ) {
        words.clear();
        let mut put = |word| words.push(word);
        worker.put(&mut put);
        engine.put(&mut put);
        for (totals, dropped) in ports {
            totals.put(&mut put);
            dropped.put(&mut put);
        }
        assert_eq!(words.len(), self.words.len(), "each port and each counter has its word");
        self.words.publish(words.iter().copied());
    }

    /// Returns the numbers as of one instant.
    pub fn read(&self) -> Reading<E> {
        let words = self.words.read();
        let mut rest = words.into_iter();
        let mut next = || rest.next().expect("as many words as fields");
        let (worker, engine) = (WorkerTotals::take(&mut next), E::Totals::take(&mut next));
        let port = PortTotals::WORDS + DropCounts::<E::Drop>::WORDS;
        let ports = (self.words.len() - WorkerTotals::WORDS - E::Totals::WORDS) / port;
        let port = |_| PortCounts {
            totals: PortTotals::take(&mut next),
            dropped: DropCounts::take(&mut next),
        };
        Reading { worker, engine, ports: (0..ports).map(port).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    overbank_reasons::reasons! {
        enum Why {
            First = "first", "for the test";
            Second = "second", "for the test";
        }
    }

    #[test]
    fn an_account_has_the_reasons_of_both_rooms() {
        let mut totals =
            PortTotals { received: 6, forwarded: 2, outputs: 15, ..Default::default() };
        totals.not_sent = [1, 2, 3, 4, 5];
        let mut dropped = DropCounts::<Why>::default();
        dropped.unprocessed(PortDrop::PortBlocked, 3);
        assert!(!totals.closes(&dropped));
        dropped.by_engine(Why::Second);
        assert!(totals.closes(&dropped));
        totals.queued = 1;
        assert!(!totals.closes(&dropped));
        let all: Vec<_> = dropped.iter().collect();
        assert_eq!(all, [("port_blocked", 3), ("second", 1)]);
        assert_eq!((dropped.of("second"), dropped.of("first"), dropped.total()), (1, 0, 4));
        let mut sum = dropped.clone();
        sum.add(&dropped);
        assert_eq!(
            serde_json::to_value(&sum).expect("an object"),
            serde_json::json!({"dropped": {"port_blocked": 6, "second": 2}})
        );
    }
}
