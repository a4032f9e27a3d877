//! Liveness: from each state, if no message is lost from there on and nothing else happens, all
//! comes to rest within [`ROUNDS`] times of repeating. No write waits, and the item is a value that
//! may be handed out, or no key's.
//!
//! What was under way is lost. Clients say nothing; the agent repeats what was not answered; the
//! controller adopts again what stays invalid, and evicts a key whose count is full.

use super::{Broken, Protocol, Step, To, World};
use crate::pipeline::WRITES_MAX;
use overbank_wire::netcache::{Message, Op, Stamp};
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;

/// One for HELLO, one for the fence, one more if a write has passed the device before its update.
const ROUNDS: usize = 3;

/// Messages of a round at most.
const MESSAGES: usize = 100;

/// Hashes of the states without messages that come to rest.
pub type Rested = Mutex<HashSet<u64>>;

impl Protocol {
    pub fn comes_to_rest(&self, world: &World) -> bool {
        let mut world = World { network: BTreeSet::new(), ..world.clone() };
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(&world);
        if self.rested.lock().expect("no panic").contains(&hash) {
            return true;
        }
        if world.slow.is_some() && self.step(&mut world, Step::Ends).is_none() {
            return false;
        }
        let rests = (0..ROUNDS).any(|_| self.round(&mut world));
        if rests {
            self.rested.lock().expect("no panic").insert(hash);
        }
        rests
    }

    /// What the controller and the agent repeat arrives, and all that comes of it; returns whether
    /// all rests.
    fn round(&self, world: &mut World) -> bool {
        let status = world.device.status;
        if status.writes() == WRITES_MAX && self.broken != Broken::Counts {
            self.evict(world);
        }
        let invalid = world.device.key().filter(|_| world.device.value().is_none());
        if let Some(key) = invalid.filter(|_| self.broken != Broken::Adopts) {
            let stamp = Stamp { writes: 0, ..status.stamp(world.device.boot()) };
            let adopt = Message { stamp, ..Message::new(Op::Adopt, 0, 0, key) };
            world.send(To::Agent, &adopt);
        }
        if self.broken != Broken::Repeats {
            self.tick(world);
        }
        for _ in 0..MESSAGES {
            let Some((to, letter)) = world.network.pop_first() else { break };
            self.step(world, Step::Arrives(to, letter)).expect("it always arrives");
        }
        let is_over = world.network.is_empty() && world.agent.rests();
        is_over && (world.device.key().is_none() || world.device.value().is_some())
    }
}
