//! `TPACKET_V2`: one slot for each frame, see [`super::ring`].
//!
//! A slot holds a frame of the interface's MTU. A longer one, such as a super-frame, is cut in its
//! slot. The whole frame waits in the socket's queue (`PACKET_COPY_THRESH`), in the order of the
//! slots.

#![allow(unsafe_code)] // Reads and writes memory that is shared with the kernel.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ring::{Raw, vnet_before};
use crate::offload::{TAG_LEN, VnetHeader};
use crate::sys::memory::Mapping;
use crate::sys::socket::{PacketSocket, tag_of};

/// Bytes for the ring's headers, free room, the Ethernet header and a tag.
const OVERHEAD: usize = 192;
const SLOT_MIN: usize = 2048;
const SLOT_MAX: usize = 16 << 10;
/// Size of the ring's blocks, which slots do not straddle.
const BLOCK_BYTES: usize = 64 << 10;

pub(super) struct Slots {
    pub(super) memory: Mapping,
    /// Bytes of a slot, a power of two.
    slot: usize,
    slots: usize,
    /// The slot to be read next.
    next: usize,
    /// Slots before it that are not yet returned.
    held: usize,
}

impl Slots {
    pub fn new(socket: &PacketSocket, bytes: usize, mtu: usize) -> io::Result<Slots> {
        let slot = (mtu + OVERHEAD).next_power_of_two().clamp(SLOT_MIN, SLOT_MAX);
        let blocks = (bytes / BLOCK_BYTES).max(1);
        let slots = blocks * BLOCK_BYTES / slot;
        socket.set_packet(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        socket.set_packet(libc::PACKET_COPY_THRESH, 1)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Mapping::new(socket, 0, blocks * BLOCK_BYTES)?;
        Ok(Slots { memory, slot, slots, next: 0, held: 0 })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        debug_assert!(slot < self.slots);
        // SAFETY: the first word of a slot, aligned, inside of the mapping; both sides only touch
        // it atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(slot * self.slot).cast()) }
    }

    pub fn next_frame(&mut self) -> Option<Raw> {
        if self.held == self.slots {
            return None;
        }
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let start = self.next * self.slot;
        // SAFETY: the slot is ours since the load above, and begins with a header.
        let head = unsafe { self.memory.as_ptr().add(start).cast::<libc::tpacket2_hdr>().read() };
        self.held += 1;
        self.next = (self.next + 1) % self.slots;
        let (mac, len) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        let copied = status & libc::TP_STATUS_COPY != 0;
        let wire_len = head.tp_len as usize;
        if mac < VnetHeader::LEN + TAG_LEN || mac + len > self.slot {
            // A slot that contradicts itself: an empty frame, which the caller counts as an error.
            let vnet = VnetHeader::default();
            return Some(Raw { at: start, len: 0, wire_len, vnet, tag: None, copied });
        }
        // SAFETY: `mac` bytes of the slot lie before the frame.
        let vnet = unsafe { vnet_before(&self.memory, start + mac) };
        let tag = tag_of(status, head.tp_vlan_tci, head.tp_vlan_tpid);
        Some(Raw { at: start + mac, len, wire_len, vnet, tag, copied })
    }

    pub fn release(&mut self) {
        while self.held > 0 {
            let slot = (self.next + self.slots - self.held) % self.slots;
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.held -= 1;
        }
    }
}
