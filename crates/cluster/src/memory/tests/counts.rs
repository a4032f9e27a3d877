//! Counts of sessions whose node dies.

use super::*;
use crate::message::Message;

/// What data paths would count, by node and slot, and what was lost at takeovers.
#[derive(Default)]
struct Paths {
    slots: BTreeMap<(NodeId, SessionId), u32>,
    counts: BTreeMap<(NodeId, u32), u64>,
    with: usize,
    without: usize,
}

impl Hears for Paths {
    fn hear(&mut self, heard: Heard) {
        let Heard::Session(node, change) = heard else { return };
        match change {
            Change::Install { slot, session, .. } => {
                self.slots.insert((node, session), slot);
                self.counts.insert((node, slot), 0);
            }
            Change::Counts { slot, counts } => _ = self.counts.insert((node, slot), counts[0]),
            Change::TakenOver { slot, counts } => {
                self.with += usize::from(counts.is_some());
                self.without += usize::from(counts.is_none());
                self.counts.insert((node, slot), counts.unwrap_or_default()[0]);
            }
            _ => {}
        }
    }

    fn count(&mut self, from: Member, message: &mut Message) {
        message.count(from, |session| [self.of((from.node, session)), 0, 0, 0, 0, 0]);
    }
}

impl Paths {
    fn of(&self, at: (NodeId, SessionId)) -> u64 {
        self.slots.get(&at).and_then(|slot| self.counts.get(&(at.0, *slot))).map_or(0, |of| *of)
    }
}

/// Counts survive the death of a node as of the last checkpoint, those of sessions that have
/// just moved there too; not those of a session that had a name before.
#[test]
fn a_death_loses_the_counts_since_the_last_checkpoint() {
    let settings = Settings { partitions: 8, node_bits: 3, ..Settings::default() };
    let mut memory = Memory::<Dense>::new(settings, 4);
    let (mut paths, mut now) = (Paths::default(), 0);
    let mut beats = |memory: &mut Memory<Dense>, paths: &mut Paths, count: u64| {
        (0..count).for_each(|_| {
            now += BEAT;
            memory.advance(now, paths);
        });
    };
    beats(&mut memory, &mut paths, 20);
    let keys = |nth: u64| Arc::new([Key { hash: mix(nth), full: nth.into() }]);
    let establish = |nth| Request::Establish { keys: keys(nth), context: Arc::new([]), to: None };
    (0..400).for_each(|nth| memory.request(NodeId(0), nth, establish(nth)));
    beats(&mut memory, &mut paths, 20);
    paths.counts.values_mut().for_each(|count| *count = 100);
    beats(&mut memory, &mut paths, settings.checkpoint_us / BEAT + 2);
    // Some come to node 1 just now; some of its sessions leave and begin again there.
    let dead = NodeId(1);
    for nth in 0..400 {
        let at = paths.slots.keys().find(|of| of.1 == SessionId(mix(nth))).expect("placed").0;
        let session = SessionId(mix(nth));
        match at == dead {
            true if nth % 4 == 0 => memory.request(dead, nth, Request::Remove { session }),
            true => {}
            false if nth % 4 == 0 => {
                memory.request(dead, nth, Request::Move { session, to: Some(dead) });
            }
            false => {}
        }
    }
    beats(&mut memory, &mut paths, 6);
    let here = |memory: &Memory<Dense>| memory.node(dead).map_or(0, |n| n.sessions().len());
    let moved = here(&memory);
    for nth in (0..400)
        .step_by(4)
        .filter(|&nth| {
            (0..4).all(|at| {
                let node = memory.node(NodeId(at)).expect("it runs");
                !node.sessions().contains_key(&SessionId(mix(nth)))
            })
        })
        .collect::<Vec<_>>()
    {
        let Request::Establish { keys, context, .. } = establish(nth) else { continue };
        memory.request(dead, nth, Request::Establish { keys, context, to: Some(dead) });
    }
    beats(&mut memory, &mut paths, 6);
    let again = here(&memory) - moved;
    assert!(moved > 100 && again > 10, "{moved} {again}");
    // A late message of a session that was removed counts for none that has its name.
    let from = Member { node: dead, incarnation: 1 };
    let stale: Vec<_> = (0..400).map(|nth| (SessionId(mix(nth)), 1)).collect();
    for node in [0, 2, 3].map(NodeId) {
        let stale = Message::Checkpoint(stale.clone(), vec![[500; 6]; 400]);
        memory.deliver(node, Event::Message(from, stale));
    }
    // These are lost.
    paths.counts.iter_mut().filter(|of| of.0.0 == dead).for_each(|of| *of.1 += 7);
    memory.kill(dead);
    beats(&mut memory, &mut paths, settings.lease_us / BEAT + 10);
    assert_eq!((paths.with, paths.without), (moved, again));
    for node in [0, 2, 3].map(NodeId) {
        let local = memory.node(node).expect("it runs").sessions();
        for session in local.sorted() {
            let count = paths.of((node, session));
            assert!(count == 100 || count == 0 && again > 0, "{count} of {session:?}");
        }
    }
}

/// The counts are where the session goes: not at a node without room.
#[test]
fn a_full_node_is_no_heir() {
    let settings =
        Settings { partitions: 8, node_bits: 3, sessions_max: 100, ..Settings::default() };
    let mut memory = Memory::<Dense>::new(settings, 3);
    let (mut paths, mut now) = (Paths::default(), 0);
    let mut beats = |memory: &mut Memory<Dense>, paths: &mut Paths, count: u64| {
        (0..count).for_each(|_| {
            now += BEAT;
            memory.advance(now, paths);
        });
    };
    beats(&mut memory, &mut paths, 20);
    for nth in 0..160 {
        let keys = Arc::new([Key { hash: mix(nth), full: nth.into() }]);
        let to = Some(NodeId(u8::from(nth >= 100)));
        memory.request(NodeId(2), nth, Request::Establish { keys, context: Arc::new([]), to });
    }
    beats(&mut memory, &mut paths, settings.checkpoint_us / BEAT + 40);
    let held = |memory: &Memory<Dense>, id| memory.node(NodeId(id)).map(|n| n.sessions().len());
    assert_eq!([0, 1, 2].map(|id| held(&memory, id)), [Some(100), Some(60), Some(0)]);
    memory.kill(NodeId(1));
    beats(&mut memory, &mut paths, settings.lease_us / BEAT + 10);
    assert_eq!([0, 2].map(|id| held(&memory, id)), [Some(100), Some(60)]);
    assert_eq!((paths.with, paths.without), (60, 0));
}
