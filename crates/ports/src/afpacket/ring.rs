//! Receive rings: memory that the kernel writes frames to and the port reads.
//!
//! ```text
//! V3   block │ descriptor: status, frames │ frame │ frame │ … │    frames of any length
//! V2   slot  │ header: status │ frame │  slot │ header │ frame │    slots of the same length
//!
//! frame  │ header, address │ 16 free │ virtio_net_hdr │ Ethernet … │
//!                                                     ^ a VLAN tag moves this 4 bytes forward
//! ```
//!
//! The status word names the owner of a block or slot. The kernel's store of "user" is a release,
//! paired with our acquire load. Our release store of "kernel" returns it after the last read.

#![allow(unsafe_code)] // Reads and writes memory that is shared with the kernel.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

use super::RingKind;
use super::slots::Slots;
use crate::offload::{TAG_LEN, Tag, VnetHeader};
use crate::sys::memory::Mapping;
use crate::sys::socket::{PacketSocket, tag_of};

/// Longest time that a frame waits in a V3 block that is not full.
const RETIRE_MS: u32 = 1;
/// Room for more than four of Linux's default super-frames.
const BLOCK_BYTES: usize = 256 << 10;

/// A frame in the ring, valid until the next `release`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    /// Offset in the ring; [`TAG_LEN`] bytes before it are free.
    pub at: usize,
    /// Bytes present.
    pub len: usize,
    /// Bytes of the whole frame; more than `len` if it did not fit.
    pub wire_len: usize,
    /// The kernel's offload header.
    pub vnet: VnetHeader,
    /// The tag that the kernel removed.
    pub tag: Option<Tag>,
    /// The whole frame can be read from the socket.
    pub copied: bool,
}

pub(super) enum Ring {
    V3(Blocks),
    V2(Slots),
}

impl Ring {
    pub fn new(
        socket: &PacketSocket,
        kind: RingKind,
        bytes: usize,
        mtu: usize,
    ) -> io::Result<Ring> {
        match kind {
            RingKind::V3 => Blocks::new(socket, bytes).map(Ring::V3),
            RingKind::V2 => Slots::new(socket, bytes, mtu).map(Ring::V2),
        }
    }

    /// Returns the next frame.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Raw> {
        match self {
            Ring::V3(blocks) => blocks.next_frame(),
            Ring::V2(slots) => slots.next_frame(),
        }
    }

    /// Returns everything that was read to the kernel.
    #[inline]
    pub fn release(&mut self) {
        match self {
            Ring::V3(blocks) => blocks.release(),
            Ring::V2(slots) => slots.release(),
        }
    }

    fn memory(&self) -> &Mapping {
        match self {
            Ring::V3(blocks) => &blocks.memory,
            Ring::V2(slots) => &slots.memory,
        }
    }

    /// Returns the `len` bytes at `at`.
    ///
    /// # Safety
    /// They belong to a [`Raw`] returned since the last `release`, with up to [`TAG_LEN`] bytes
    /// before it. No other reference to them is used while this one is.
    #[inline]
    pub unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.memory().len());
        // SAFETY: inside of the mapping (checked when the `Raw` was made), which lives as long as
        // `self`; the kernel leaves what it gave to us alone.
        unsafe { std::slice::from_raw_parts(self.memory().as_ptr().add(at), len) }
    }

    /// Returns the bytes of [`Ring::bytes`] for writing.
    ///
    /// # Safety
    /// As for [`Ring::bytes`].
    #[inline]
    pub unsafe fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        debug_assert!(at + len <= self.memory().len());
        // SAFETY: as in `bytes`; `&mut self` keeps other references away.
        unsafe { std::slice::from_raw_parts_mut(self.memory().as_ptr().add(at), len) }
    }
}

pub(super) struct Blocks {
    memory: Mapping,
    blocks: usize,
    /// The block being read, or to be read next.
    current: usize,
    /// Whether we own `current`; `at` and `left` are then its next frame and the frames left.
    open: bool,
    next: usize,
    left: u32,
    /// Blocks before `current` that are read and not yet returned.
    held: usize,
}

impl Blocks {
    fn new(socket: &PacketSocket, bytes: usize) -> io::Result<Blocks> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        socket.set_packet(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            // Unused in V3, but the kernel checks that it divides the block.
            tp_frame_size: 2048,
            tp_frame_nr: (blocks * BLOCK_BYTES / 2048) as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory = Mapping::new(socket, 0, blocks * BLOCK_BYTES)?;
        Ok(Blocks { memory, blocks, current: 0, open: false, next: 0, left: 0, held: 0 })
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        let at = offset_of!(libc::tpacket_block_desc, hdr)
            + offset_of!(libc::tpacket_hdr_v1, block_status);
        debug_assert!(block < self.blocks);
        // SAFETY: a word of block `block`, aligned as the kernel's structure is, inside of the
        // mapping; both sides only touch it atomically.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(block * BLOCK_BYTES + at).cast()) }
    }

    fn next_frame(&mut self) -> Option<Raw> {
        loop {
            if self.left == 0 {
                self.pass();
                if self.held == self.blocks {
                    return None;
                }
                if self.status(self.current).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                    return None;
                }
                let at = offset_of!(libc::tpacket_block_desc, hdr);
                // SAFETY: the block is ours since the load above, and begins with a descriptor.
                let head = unsafe {
                    let block = self.memory.as_ptr().add(self.current * BLOCK_BYTES);
                    block.add(at).cast::<libc::tpacket_hdr_v1>().read()
                };
                self.open = true;
                self.left = head.num_pkts;
                self.next = head.offset_to_first_pkt as usize;
                continue;
            }
            self.left -= 1;
            match self.read(self.next) {
                Some((raw, step)) => {
                    self.next += step;
                    return Some(raw);
                }
                // A block that contradicts itself has no more frames.
                None => self.left = 0,
            }
        }
    }

    /// Returns the frame whose header is `at` bytes into the current block, and the distance to the
    /// next.
    fn read(&self, at: usize) -> Option<(Raw, usize)> {
        if !at.is_multiple_of(8) || at + size_of::<libc::tpacket3_hdr>() > BLOCK_BYTES {
            return None;
        }
        let start = self.current * BLOCK_BYTES + at;
        // SAFETY: the header is aligned and lies inside of the block, which is ours.
        let head = unsafe { self.memory.as_ptr().add(start).cast::<libc::tpacket3_hdr>().read() };
        let (mac, len) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        if mac < VnetHeader::LEN + TAG_LEN || at + mac + len > BLOCK_BYTES {
            return None;
        }
        let raw = Raw {
            at: start + mac,
            len,
            wire_len: head.tp_len as usize,
            // SAFETY: `mac` bytes of the block lie before the frame.
            vnet: unsafe { vnet_before(&self.memory, start + mac) },
            tag: tag_of(head.tp_status, head.hv1.tp_vlan_tci as u16, head.hv1.tp_vlan_tpid),
            copied: false,
        };
        Some((raw, head.tp_next_offset as usize))
    }

    /// Moves on to the next block if the current one is read.
    fn pass(&mut self) {
        if self.open && self.left == 0 {
            self.open = false;
            self.held += 1;
            self.current = (self.current + 1) % self.blocks;
        }
    }

    fn release(&mut self) {
        self.pass();
        while self.held > 0 {
            let block = (self.current + self.blocks - self.held) % self.blocks;
            self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.held -= 1;
        }
    }
}

/// Returns the header directly before the frame at `at`.
///
/// # Safety
/// [`VnetHeader::LEN`] bytes before `at` are inside the mapping and ours.
pub(super) unsafe fn vnet_before(memory: &Mapping, at: usize) -> VnetHeader {
    // SAFETY: as the caller says; any bytes are a header.
    unsafe { memory.as_ptr().add(at - VnetHeader::LEN).cast::<VnetHeader>().read_unaligned() }
}
