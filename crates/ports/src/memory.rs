//! Frames in memory: one arena, each frame on separate cache lines.
//!
//! ```text
//! block   │ frame 0 …····│ frame 1 …… │ ……····│ frame 2 …···│ free     lines of 64 bytes
//! block   │ frame 3 …                                       │ free     1 MiB, or one large frame
//! index   (block, line, length, interface, time) per frame             24 bytes each, 256 a block
//! ```
//!
//! A frame starts on a cache line, as in the buffers of a network card, so that the headers of a
//! 64-byte frame cost one line to read. Frames never move: a growing vector would briefly hold all
//! of them twice. Cost: frame length rounded up to 64, plus 24 bytes. Guarantees: memory always
//! stays within [`Limits`]; pushing more is an error, never a panic or an abort.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const LINE: usize = 64;
/// Lines of a block, unless a frame needs more or the limit leaves fewer.
const BLOCK_LINES: usize = 1 << 14;
/// Lines of the first block.
const BLOCK_LINES_MIN: usize = 16;
/// Frames of a block of the index.
const INDEX_FRAMES: usize = 256;
/// Overhead of a block: its entry in the list of blocks, growth included, and the allocator's
/// header.
const BLOCK_BYTES: usize = 96;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

#[derive(Clone, Copy)]
struct Entry {
    timestamp_ns: u64,
    block: u32,
    line: u32,
    len: u32,
    interface: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a [`FrameStore`], frames and index together.
    pub memory_bytes_max: usize,
}

impl Default for Limits {
    /// Returns 4 GiB, or half of the address space of a 32-bit machine.
    fn default() -> Self {
        Limits { memory_bytes_max: usize::try_from(1u64 << 32).unwrap_or(usize::MAX / 2) }
    }
}

/// The frame does not fit into the limit of its [`FrameStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame does not fit into the {limit_bytes} bytes of memory allowed for frames")]
pub struct StoreFull {
    pub limit_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes from the Ethernet destination on; they start on a cache line.
    pub data: &'a [u8],
    /// Index of the ingress interface, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970, or 0.
    pub timestamp_ns: u64,
}

/// Many frames in order of arrival.
#[derive(Clone, Default)]
pub struct FrameStore {
    blocks: Vec<Vec<Line>>,
    /// All blocks but the last are full.
    index: Vec<Vec<Entry>>,
    len: usize,
    memory_bytes: usize,
    limits: Limits,
    skipped: u64,
    cut_short: u64,
}

impl FrameStore {
    /// Returns an empty store with the default [`Limits`].
    pub fn new() -> FrameStore {
        FrameStore::default()
    }

    /// Returns an empty store with these limits.
    pub fn with_limits(limits: Limits) -> FrameStore {
        FrameStore { limits, ..FrameStore::default() }
    }

    /// Appends a frame.
    pub fn push(
        &mut self,
        frame: &[u8],
        interface: u32,
        timestamp_ns: u64,
    ) -> Result<(), StoreFull> {
        self.append(frame, interface, timestamp_ns)
            .ok_or(StoreFull { limit_bytes: self.limits.memory_bytes_max })
    }

    fn append(&mut self, frame: &[u8], interface: u32, timestamp_ns: u64) -> Option<()> {
        let len = u32::try_from(frame.len()).ok()?;
        let lines = frame.len().div_ceil(LINE);
        self.make_room_for_entry()?;
        self.make_room_for_lines(lines)?;
        let entries = self.index.last_mut()?;
        let block = u32::try_from(self.blocks.len().checked_sub(1)?).ok()?;
        let target = self.blocks.last_mut()?;
        let start = target.len();
        let line = u32::try_from(start).ok()?;
        target.resize(start + lines, Line([0; LINE]));
        target[start..].as_mut_bytes()[..frame.len()].copy_from_slice(frame);
        entries.push(Entry { timestamp_ns, block, line, len, interface });
        self.len += 1;
        Some(())
    }

    fn make_room_for_entry(&mut self) -> Option<()> {
        if self.index.last().is_some_and(|block| block.len() < block.capacity()) {
            return Some(());
        }
        // Only the last block may be short: lookups assume full ones before it.
        if self.index.last().is_some_and(|block| block.len() < INDEX_FRAMES) {
            return None;
        }
        let room = self.room();
        let most = room.checked_sub(BLOCK_BYTES)? / size_of::<Entry>();
        // Near the limit, leave most of the room to the frames.
        let wanted = (room / 4 / size_of::<Entry>()).clamp(1, INDEX_FRAMES).min(most);
        let block = reserved(wanted)?;
        self.memory_bytes += BLOCK_BYTES + wanted * size_of::<Entry>();
        self.index.push(block);
        Some(())
    }

    fn make_room_for_lines(&mut self, need: usize) -> Option<()> {
        if self.blocks.last().is_some_and(|block| block.capacity() - block.len() >= need) {
            return Some(());
        }
        let room = self.room();
        let most = room.checked_sub(BLOCK_BYTES)? / LINE;
        let usual = (self.memory_bytes / LINE / 8).clamp(BLOCK_LINES_MIN, BLOCK_LINES);
        // Near the limit, leave some of the room to the index.
        let wanted = usual.min(room / 2 / LINE).max(need);
        if wanted > most {
            return None;
        }
        let block = reserved(wanted)?;
        self.memory_bytes += BLOCK_BYTES + wanted * LINE;
        self.blocks.push(block);
        Some(())
    }

    fn room(&self) -> usize {
        self.limits.memory_bytes_max.saturating_sub(self.memory_bytes)
    }

    /// Returns frame number `i`, from 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Frame<'_>> {
        let entry = self.index.get(i / INDEX_FRAMES)?.get(i % INDEX_FRAMES)?;
        let lines = &self.blocks[entry.block as usize][entry.line as usize..];
        let data = &lines.as_bytes()[..entry.len as usize];
        Some(Frame { data, interface: entry.interface, timestamp_ns: entry.timestamp_ns })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over all frames in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        (0..self.len()).map(|i| self.get(i).expect("the index is below the length"))
    }

    /// Returns the bytes reserved for frames and index.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns the number of packets left out because they are not Ethernet.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns the number of frames cut by the snap length of their capture.
    pub fn cut_short(&self) -> u64 {
        self.cut_short
    }

    pub(crate) fn count_skipped(&mut self) {
        self.skipped += 1;
    }

    pub(crate) fn count_cut_short(&mut self) {
        self.cut_short += 1;
    }
}

/// Returns an empty block of exactly this capacity; `None` if the system is out of memory.
fn reserved<T>(capacity: usize) -> Option<Vec<T>> {
    let mut block = Vec::new();
    block.try_reserve_exact(capacity).ok()?;
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_all_items() {
        let mut store = FrameStore::new();
        let frames: Vec<Vec<u8>> =
            (0..200).map(|i| (0..i).map(|b| (b ^ i) as u8).collect()).collect();
        for (i, frame) in frames.iter().enumerate() {
            store.push(frame, i as u32, i as u64 * 10).unwrap();
        }
        assert_eq!(store.len(), 200);
        for (i, frame) in store.iter().enumerate() {
            assert_eq!(frame.data, frames[i]);
            assert_eq!((frame.interface, frame.timestamp_ns), (i as u32, i as u64 * 10));
            assert_eq!(frame.data.as_ptr() as usize % 64, 0);
        }
        let large = vec![9; 3 << 20];
        store.push(&large, 0, 0).unwrap();
        store.push(&[8; 65], 0, 0).unwrap();
        assert_eq!(store.get(200).unwrap().data, large);
        assert_eq!(store.get(201).unwrap().data, [8; 65]);
        assert_eq!(store.get(202), None);
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn stays_within_its_limit() {
        for limit in [0, 1, 87, 88, 1000, 4096, 100_000, 1 << 20] {
            for len in [0, 1, 60, 64, 65, 1500] {
                let mut store = FrameStore::with_limits(Limits { memory_bytes_max: limit });
                let frame = vec![7; len];
                let mut pushed = 0;
                while store.push(&frame, 0, 0).is_ok() {
                    pushed += 1;
                    assert!(store.memory_bytes() <= limit);
                }
                assert_eq!(store.len(), pushed);
                assert!(store.memory_bytes() <= limit);
                // Most of the room is used; the rest is what the last blocks hold in reserve. The
                // share of the index is that of frames of one line at least.
                let each = len.next_multiple_of(64).max(64) + 24;
                assert!(pushed * each >= limit / 2 || limit < 16 * each, "{limit} {len} {pushed}");
            }
        }
    }
}
