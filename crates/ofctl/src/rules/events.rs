//! Events of the control side for its subscribers: control connections, and tests.
//!
//! Each subscriber has two bounded queues, so that a flood of packets for the controllers never
//! costs it an event. What does not fit is lost for that subscriber, and counted.

use super::OfPort;
use crate::engine::PacketIn;
use overbank_switch::tables::RuleEntry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReason {
    /// It is new.
    Add,
    /// It is no more.
    Delete,
    /// Its state or settings changed.
    Modify,
}

/// Why a rule went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedReason {
    /// No packet for its idle timeout.
    Idle,
    /// Its hard timeout passed.
    Hard,
    /// Somebody deleted it.
    Delete,
}

/// A rule that went and whose flags ask to tell.
#[derive(Clone, Debug)]
pub struct FlowRemoved {
    /// The rule.
    pub entry: Arc<RuleEntry>,
    /// Why it went.
    pub reason: RemovedReason,
    /// Packets that it was used for.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long it stood.
    pub age_ms: u64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A port came, went or changed.
    PortStatus {
        /// Which of them.
        reason: PortReason,
        /// The port as it is now.
        port: OfPort,
    },
    /// A rule went.
    FlowRemoved(FlowRemoved),
}

/// How much may wait for a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionLimits {
    /// Most events.
    pub events: usize,
    /// Most packets.
    pub packets: usize,
}

impl Default for SubscriptionLimits {
    /// Returns 4096 events, 256 packets.
    fn default() -> Self {
        SubscriptionLimits { events: 4096, packets: 256 }
    }
}

#[derive(Debug, Default)]
struct Lost {
    events: AtomicU64,
    packets: AtomicU64,
}

/// The receiving side. While one exists, workers queue packets for the controllers.
pub struct Subscription {
    /// What happened.
    pub events: mpsc::Receiver<Arc<Event>>,
    /// Packets for the controllers.
    pub packets: mpsc::Receiver<Arc<PacketIn>>,
    lost: Arc<Lost>,
    /// Subscribers that take packets.
    controllers: Arc<AtomicUsize>,
}

impl Subscription {
    /// Events that did not fit.
    pub fn lost_events(&self) -> u64 {
        self.lost.events.load(Ordering::Relaxed)
    }

    /// Packets that did not fit.
    pub fn lost_packets(&self) -> u64 {
        self.lost.packets.load(Ordering::Relaxed)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.controllers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sending side.
struct Subscriber {
    events: mpsc::Sender<Arc<Event>>,
    packets: mpsc::Sender<Arc<PacketIn>>,
    lost: Arc<Lost>,
}

/// All subscribers.
#[derive(Default)]
pub(super) struct Subscribers {
    list: Vec<Subscriber>,
    /// Packets that no subscriber had room for, or that there was no subscriber for any more.
    pub(super) packets_lost: u64,
    /// Events that a subscriber had no room for.
    pub(super) events_lost: u64,
}

impl Subscribers {
    pub(super) fn add(
        &mut self,
        limits: SubscriptionLimits,
        controllers: Arc<AtomicUsize>,
    ) -> Subscription {
        let (events, events_out) = mpsc::channel(limits.events.max(1));
        let (packets, packets_out) = mpsc::channel(limits.packets.max(1));
        let lost = Arc::new(Lost::default());
        // Thousands of tools connect briefly, and the next event may be long after.
        self.forget_gone();
        self.list.push(Subscriber { events, packets, lost: lost.clone() });
        controllers.fetch_add(1, Ordering::Relaxed);
        Subscription { events: events_out, packets: packets_out, lost, controllers }
    }

    fn forget_gone(&mut self) {
        self.list.retain(|subscriber| !subscriber.events.is_closed());
    }

    pub(super) fn event(&mut self, event: &Arc<Event>) {
        self.forget_gone();
        for subscriber in &self.list {
            if subscriber.events.try_send(event.clone()).is_err() {
                subscriber.lost.events.fetch_add(1, Ordering::Relaxed);
                self.events_lost += 1;
            }
        }
    }

    pub(super) fn packet(&mut self, packet: PacketIn) {
        let packet = Arc::new(packet);
        let mut taken = false;
        for subscriber in &self.list {
            match subscriber.packets.try_send(packet.clone()) {
                Ok(()) => taken = true,
                Err(_) => {
                    subscriber.lost.packets.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.packets_lost += u64::from(!taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_went_leave_nothing_behind() {
        let controllers = Arc::new(AtomicUsize::new(0));
        let mut subscribers = Subscribers::default();
        let stays = subscribers.add(SubscriptionLimits::default(), controllers.clone());
        for _ in 0..100 {
            drop(subscribers.add(SubscriptionLimits::default(), controllers.clone()));
        }
        assert!(subscribers.list.len() <= 2, "{}", subscribers.list.len());
        assert_eq!(controllers.load(Ordering::Relaxed), 1);
        drop(stays);
    }
}
