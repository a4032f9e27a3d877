//! Frames kept for a controller, whole, whether it was sent all of them or their beginning.
//!
//! ```text
//!   buffer id    turn, 20 bits                            slot, 12 bits
//!              +----------------------------------------+-----------------+
//!              |        1 to 0xffffe, goes round        |   0 to 4095     |
//!              +----------------------------------------+-----------------+
//! ```
//! A pool belongs to one session, so that no controller can use up or guess the buffers of another;
//! the frames themselves are shared with the other sessions. A slot is taken again only after its
//! frame was used or has become older than [`AGE_MS`]; until then new frames go to the controller
//! whole, without a buffer. The turn tells a slot's former frames from its present one.
//!
//! Limits: a number of slots and of bytes. Cost: the next slot in turn, no search. Panics: none.
//! Source: OpenFlow 1.3.5, 6.1.2 and 7.4.1; Open vSwitch's pktbuf.

use std::sync::Arc;

use overbank_openflow::{BadRequest, ErrorCode};

use crate::engine::PacketIn;

/// Age after which a frame that no controller fetched makes room for another.
pub const AGE_MS: u64 = 5_000;
/// Most buffers of a session.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 12;
const TURN_MAX: u32 = 0xffffe;

/// One place for a frame.
#[derive(Default)]
struct Slot {
    /// Of the last frame that was put here; 0 before the first.
    turn: u32,
    kept: Option<Kept>,
}

struct Kept {
    packet: Arc<PacketIn>,
    since_ms: u64,
}

/// The frames of one session.
pub struct Buffers {
    slots: Vec<Slot>,
    next: usize,
    bytes: usize,
    bytes_max: usize,
    used: usize,
}

impl Buffers {
    /// Makes room for `slots` frames (at most [`SLOTS_MAX`]) with a limit on their bytes in all.
    pub fn new(slots: usize, bytes_max: usize) -> Buffers {
        let slots = slots.min(SLOTS_MAX);
        let slots = (0..slots).map(|_| Slot::default()).collect();
        Buffers { slots, next: 0, bytes: 0, bytes_max, used: 0 }
    }

    /// Keeps a frame and gives its buffer id, if there is room.
    pub fn keep(&mut self, packet: &Arc<PacketIn>, now_ms: u64) -> Option<u32> {
        let len = packet.frame.len();
        let (at, slots) = (self.next, self.slots.len());
        let slot = self.slots.get_mut(at)?;
        let old = match &slot.kept {
            Some(kept) if now_ms.saturating_sub(kept.since_ms) < AGE_MS => return None,
            Some(kept) => kept.packet.frame.len(),
            None => 0,
        };
        if self.bytes - old + len > self.bytes_max {
            return None;
        }
        self.bytes = self.bytes - old + len;
        self.used += usize::from(slot.kept.is_none());
        slot.turn = slot.turn % TURN_MAX + 1;
        slot.kept = Some(Kept { packet: Arc::clone(packet), since_ms: now_ms });
        self.next = (at + 1) % slots;
        // A slot is below SLOTS_MAX.
        Some(slot.turn << SLOT_BITS | at as u32)
    }

    /// Takes the frame of a buffer out.
    ///
    /// # Errors
    /// `BufferUnknown` for an id that was never given or whose slot has been taken again,
    /// `BufferEmpty` for one whose frame has been taken out.
    pub fn take(&mut self, id: u32) -> Result<Arc<PacketIn>, ErrorCode> {
        let at = (id & (SLOTS_MAX as u32 - 1)) as usize;
        let turn = id >> SLOT_BITS;
        let slot = self
            .slots
            .get_mut(at)
            .filter(|slot| slot.turn == turn && turn != 0)
            .ok_or(BadRequest::BufferUnknown)?;
        let kept = slot.kept.take().ok_or(BadRequest::BufferEmpty)?;
        self.bytes -= kept.packet.frame.len();
        self.used -= 1;
        Ok(kept.packet)
    }

    /// Returns how many frames can be kept.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many frames are kept.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sessions::testing::packet;

    fn of(len: usize) -> Arc<PacketIn> {
        Arc::new(packet(1, &vec![0xab; len]))
    }

    #[test]
    fn a_buffer_serves_once() {
        let mut buffers = Buffers::new(4, 1000);
        let id = buffers.keep(&of(60), 0).expect("there is room");
        assert_eq!(buffers.used(), 1);
        assert_eq!(buffers.take(id).expect("kept").frame.len(), 60);
        assert_eq!(buffers.take(id).err(), Some(BadRequest::BufferEmpty.into()));
        assert_eq!(buffers.take(id + 1).err(), Some(BadRequest::BufferUnknown.into()));
        assert_eq!(buffers.take(0).err(), Some(BadRequest::BufferUnknown.into()));
        assert_eq!(buffers.take(u32::MAX).err(), Some(BadRequest::BufferUnknown.into()));
        assert_eq!(buffers.used(), 0);
    }

    #[test]
    fn an_old_frame_makes_room_and_a_young_one_does_not() {
        let mut buffers = Buffers::new(2, 1000);
        let first = buffers.keep(&of(60), 100).expect("room");
        let second = buffers.keep(&of(60), 200).expect("room");
        assert_eq!(buffers.keep(&of(60), 99 + AGE_MS), None);
        let third = buffers.keep(&of(60), 100 + AGE_MS).expect("the first has aged");
        assert_eq!(buffers.take(first).err(), Some(BadRequest::BufferUnknown.into()));
        assert!(buffers.take(second).is_ok() && buffers.take(third).is_ok());
    }

    #[test]
    fn without_slots_or_bytes_nothing_is_kept() {
        assert_eq!(Buffers::new(0, 1000).keep(&of(60), 0), None);
        let mut buffers = Buffers::new(usize::MAX, 100);
        assert_eq!(buffers.slots.len(), SLOTS_MAX);
        assert!(buffers.keep(&of(60), 0).is_some());
        assert_eq!(buffers.keep(&of(60), 0), None);
        assert!(buffers.keep(&of(40), 0).is_some());
    }

    proptest! {
        /// Beside a list that remembers every id that was ever given out.
        #[test]
        fn taken_frames_are_the_kept_ones(
            slots in 1..6usize,
            steps in prop::collection::vec((any::<bool>(), 0..40usize, 0..3000u64), 1..200),
        ) {
            let mut buffers = Buffers::new(slots, 10_000);
            let mut given: Vec<(u32, usize, bool)> = Vec::new();
            let (mut now, mut live) = (0, 0usize);
            for (keep, number, later) in steps {
                now += later;
                if keep {
                    let len = 60 + given.len();
                    if let Some(id) = buffers.keep(&of(len), now) {
                        prop_assert!(given.iter().all(|g| g.0 != id));
                        given.push((id, len, false));
                    }
                } else if !given.is_empty() {
                    let at = number % given.len();
                    let (id, len, used) = given[at];
                    match buffers.take(id) {
                        Ok(packet) => {
                            prop_assert!(!used);
                            prop_assert_eq!(packet.frame.len(), len);
                            given[at].2 = true;
                        }
                        Err(ErrorCode::BadRequest(BadRequest::BufferEmpty)) => prop_assert!(used),
                        Err(code) => {
                            prop_assert_eq!(code, BadRequest::BufferUnknown.into());
                            // Its slot has a later frame.
                            let slot = |id: u32| id & 0xfff;
                            prop_assert!(given[at + 1..].iter().any(|g| slot(g.0) == slot(id)));
                        }
                    }
                }
                live = buffers.slots.iter().filter(|slot| slot.kept.is_some()).count();
                prop_assert_eq!(buffers.used(), live);
            }
            prop_assert!(live <= slots);
        }
    }
}
