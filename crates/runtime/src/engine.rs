//! The trait that workers run: decides about frames.
//!
//! A worker is generic over its engine, so nothing is dispatched per burst. The engine owns its
//! caches and its counters. State shared with the control side comes at construction (queues,
//! tables whose readers never wait) or as an [`Engine::Snapshot`].
//!
//! **The account.** For each frame of a burst an engine calls [`Out::output`] (once or more),
//! [`Out::to_control`] (once or more), or [`Out::drop`] (once). So the account of the ingress port
//! closes for every engine.
//! closes whatever the engine is.

use crate::worker::Out;
use overbank_declare::counters::Counters;
use overbank_reasons::Reasons;

/// Ingress port of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Position in all arrays by port.
    pub index: u16,
    /// Number in configuration and OpenFlow.
    pub number: u32,
}

/// Decides about frames; see the module.
pub trait Engine: Sized + Send + 'static {
    /// Published by the control side to all workers; cheap to clone. A worker takes it over between
    /// two bursts.
    type Snapshot: Clone + Send + Sync + 'static;
    /// Handed by the control side to one worker, in order: a frame to send, for example.
    type Order: Send + 'static;
    type Totals: Counters;
    type Drop: Reasons + 'static;

    /// Decides about the frames of a burst from one port, at most
    /// [`BURST`](overbank_ports::queue::BURST).
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<Self::Drop>,
    );

    /// Carries out an order. [`Out::injected`] announces a frame that it brings, which is frame 0.
    fn carry_out(&mut self, order: Self::Order, now_ms: u64, out: &mut Out<Self::Drop>);

    /// Moves from one snapshot to the next; the old one is then unused. Counts so far belong to the
    /// old one.
    fn take_over(&mut self, old: &Self::Snapshot, new: &Self::Snapshot, now_ms: u64);

    /// Shows readers the counts so far, where the engine shares counters with the control side. A
    /// barrier returns after it.
    fn settle(&mut self, now_ms: u64) {
        let _ = now_ms;
    }

    /// Does periodic work; called every ten milliseconds.
    fn turn(&mut self, now_ms: u64) {
        self.settle(now_ms);
    }

    fn totals(&self) -> Self::Totals;
}
