//! Frames in memory: one arena, each frame on cache lines of its own.
//!
//! ```text
//! lines   │ frame 0 …····│ frame 1 …… │ ……····│ frame 2 …···│      64 bytes each
//! index   (first line, length, interface, time) per frame         24 bytes each
//! ```
//!
//! A frame starts on a cache line, as it does in the buffers of a network card, so that the headers
//! of a 64-byte frame cost one line to read. Cost: frame length rounded up to 64, plus 24 bytes.
//! Guarantees: memory stays within [`Limits`], what a growing vector reserves included; pushing
//! beyond that is an error, never a panic or an abort.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const LINE: usize = 64;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

#[derive(Clone, Copy)]
struct Entry {
    timestamp_ns: u64,
    /// 2³² lines are 256 GiB.
    line: u32,
    len: u32,
    interface: u32,
}

/// How much memory frames may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a [`FrameStore`], frames and index together.
    pub memory_bytes_max: usize,
}

impl Default for Limits {
    /// 4 GiB, or half of the address space of a 32-bit machine.
    fn default() -> Self {
        Limits { memory_bytes_max: usize::try_from(1u64 << 32).unwrap_or(usize::MAX / 2) }
    }
}

/// A frame does not fit into the limit of its [`FrameStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame does not fit into the {limit_bytes} bytes of memory allowed for frames")]
pub struct StoreFull {
    /// The limit.
    pub limit_bytes: usize,
}

/// One frame of a [`FrameStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The bytes, from the Ethernet destination on; starts on a cache line.
    pub data: &'a [u8],
    /// Index of the interface it came in on, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970, or 0.
    pub timestamp_ns: u64,
}

/// Many frames, in the order in which they came.
#[derive(Clone, Default)]
pub struct FrameStore {
    lines: Vec<Line>,
    index: Vec<Entry>,
    limits: Limits,
    skipped: u64,
    cut_short: u64,
}

impl FrameStore {
    /// No frames, and the default [`Limits`].
    pub fn new() -> FrameStore {
        FrameStore::default()
    }

    /// No frames, and limits of the caller's.
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
        let full = StoreFull { limit_bytes: self.limits.memory_bytes_max };
        let line = u32::try_from(self.lines.len()).map_err(|_| full)?;
        let len = u32::try_from(frame.len()).map_err(|_| full)?;
        let lines = frame.len().div_ceil(LINE);
        let limit = self.limits.memory_bytes_max;
        // Each vector may grow into what the other one leaves.
        let index_bytes = self.index.capacity() * size_of::<Entry>();
        grow(&mut self.lines, lines, limit.saturating_sub(index_bytes)).ok_or(full)?;
        let line_bytes = self.lines.capacity() * LINE;
        grow(&mut self.index, 1, limit.saturating_sub(line_bytes)).ok_or(full)?;

        let start = self.lines.len();
        self.lines.resize(start + lines, Line([0; LINE]));
        self.lines[start..].as_mut_bytes()[..frame.len()].copy_from_slice(frame);
        self.index.push(Entry { timestamp_ns, line, len, interface });
        Ok(())
    }

    /// Frame number `i`, from 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<Frame<'_>> {
        let entry = self.index.get(i)?;
        let data = &self.lines[entry.line as usize..].as_bytes()[..entry.len as usize];
        Some(Frame { data, interface: entry.interface, timestamp_ns: entry.timestamp_ns })
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All frames in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Frame<'_>> {
        (0..self.len()).map(|i| self.get(i).expect("the index is below the length"))
    }

    /// Bytes reserved for frames and index.
    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * LINE + self.index.capacity() * size_of::<Entry>()
    }

    /// Packets of the capture that were left out because they are not Ethernet.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Frames that the snap length of their capture cut.
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

/// Makes room for `more` elements: doubles, or takes less where doubling would pass the limit.
fn grow<T>(vec: &mut Vec<T>, more: usize, limit_bytes: usize) -> Option<()> {
    let need = vec.len().checked_add(more)?;
    if need <= vec.capacity() {
        return Some(());
    }
    let most = limit_bytes / size_of::<T>();
    if need > most {
        return None;
    }
    // Leave the other vector some room to grow: near the limit, in steps of an eighth.
    let step = if vec.capacity() > most / 4 { most / 16 } else { vec.capacity() };
    let capacity = (vec.capacity() + step).max(need).max(4).min(most);
    vec.try_reserve_exact(capacity - vec.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_is_given() {
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
        assert_eq!(store.get(200), None);
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
                let each = len.next_multiple_of(64) + 24;
                // Most of the room is used; the rest is what the vectors hold in reserve.
                assert!(pushed * each >= limit / 2 || limit < 16 * each, "{limit} {len} {pushed}");
            }
        }
    }
}
