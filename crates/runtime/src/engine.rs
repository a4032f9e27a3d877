//! What decides about frames: the trait that workers run.
//!
//! A worker is generic over its engine, so nothing is dispatched per burst. The engine owns its
//! caches and its counters; what it shares with the control side it got when it was made (queues,
//! tables whose readers never wait) or gets as a [`Engine::Snapshot`].
//!
//! **The account.** For each frame of a burst an engine calls [`Out::output`] (once or more),
//! [`Out::to_control`] (once or more), or [`Out::drop`] (once). So the account of the ingress port
//! closes whatever the engine is.

use crate::worker::Out;
use overbank_declare::counters::Counters;
use overbank_reasons::Reasons;

/// Where a burst came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Position in all arrays by port.
    pub index: u16,
    /// Number that people and controllers call it by.
    pub number: u32,
}

/// What a worker runs; see the module.
pub trait Engine: Sized + Send + 'static {
    /// What the control side publishes to all workers; cheap to clone. A worker takes it over between
    /// two bursts.
    type Snapshot: Clone + Send + Sync + 'static;
    /// What the control side hands to one worker at a time, in order: a frame to send, say.
    type Order: Send + 'static;
    /// What the engine counts.
    type Totals: Counters;
    /// Why it drops frames.
    type Drop: Reasons + 'static;

    /// Decides about the frames of a burst, which came in on one port: at most
    /// [`BURST`](overbank_ports::queue::BURST).
    fn process(
        &mut self,
        burst: &[&[u8]],
        ingress: Ingress,
        now_ms: u64,
        out: &mut Out<Self::Drop>,
    );

    /// Carries out an order. A frame that it brings is announced by [`Out::injected`] and is frame 0.
    fn carry_out(&mut self, order: Self::Order, now_ms: u64, out: &mut Out<Self::Drop>);

    /// Moves on from one snapshot to the next. Afterwards the old one is no longer in use. What was
    /// counted so far belongs to the old one.
    fn take_over(&mut self, old: &Self::Snapshot, new: &Self::Snapshot, now_ms: u64);

    /// Shows readers what was counted so far, where the engine shares counters of its own with the
    /// control side. A barrier returns after it.
    fn settle(&mut self, now_ms: u64) {
        let _ = now_ms;
    }

    /// Does what need not be done for each burst; called every ten milliseconds.
    fn turn(&mut self, now_ms: u64) {
        self.settle(now_ms);
    }

    /// Returns what it counted.
    fn totals(&self) -> Self::Totals;
}
