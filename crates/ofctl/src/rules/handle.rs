//! What sessions and tests ask of a running rule switch.

use super::{RuleControl, Subscription, SubscriptionLimits};
use crate::engine::PacketOut;
use overbank_runtime::{Control, Handle};
use overbank_stations::listing::Listing;
use overbank_switch::ports::PORT_TABLE;
use overbank_switch::rule::Action;

/// Too many frames of controllers wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of packet-outs is full")]
pub struct PacketOutFull;

/// While it lives, a controller counts as connected.
pub struct Connected(Handle<RuleControl>);

/// What controllers do with a [`Handle`].
pub trait ControllerHandle {
    /// Opens a subscription.
    fn subscribe(&self, limits: SubscriptionLimits) -> Subscription;

    /// Counts a controller as connected for as long as the guard lives. For those that we connect
    /// to, not for tools that come and go.
    fn connected(&self) -> Connected;

    /// Has a frame of a controller sent. Frames leave in the order in which they are handed over.
    /// Where its actions lead through the tables, the rules are published first.
    ///
    /// # Errors
    /// Too many wait already.
    fn packet_out(&self, packet_out: PacketOut) -> Result<(), PacketOutFull>;
}

impl ControllerHandle for Handle<RuleControl> {
    fn subscribe(&self, limits: SubscriptionLimits) -> Subscription {
        self.lock().subscribe(limits)
    }

    fn connected(&self) -> Connected {
        self.lock().controller_connected(true);
        Connected(self.clone())
    }

    fn packet_out(&self, packet_out: PacketOut) -> Result<(), PacketOutFull> {
        let through_tables = |action: &Action| match *action {
            Action::Output(port) => port == PORT_TABLE,
            Action::Resubmit { .. } => true,
            _ => false,
        };
        if packet_out.actions.iter().any(through_tables) {
            self.publish_changes();
        }
        self.order(packet_out).map_err(|_| PacketOutFull)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.lock().controller_connected(false);
    }
}

/// Returns the answer to a line that asks for stations; see [`overbank_stations::listing`].
pub fn listing(handle: &Handle<RuleControl>, line: &str) -> Listing {
    let ports: Vec<u32> = handle.lock().publisher().ports().iter().map(|p| p.number).collect();
    Listing::answer(line, &ports, &|look| look(handle.lock().stations()))
}
