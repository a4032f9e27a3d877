//! What a replay is fed: the frames of a capture, or built-in traffic, chunk by chunk.
//!
//! A chunk is made ready before the clock starts. Built-in frames are written into a ring that a
//! network card would fill; the frames of a capture are used where they lie. A *loop* is the
//! capture once, or as many packets as there are flows.

use overbank_kit::traffic::{FRAME_LEN, Traffic};
use overbank_kit::workload::FlowStream;
use overbank_ports::memory::FrameStore;
use overbank_switch::datapath::Frame;
use overbank_switch::megaflow::BURST;

pub const CHUNK: usize = 4096;

/// Longest time that one chunk of a capture spans, unless a burst takes longer: megaflows age by
/// the capture's own clock.
const CHUNK_NS: u64 = 1_000_000_000;
/// Most bytes of a chunk of a capture, unless a burst has more: every design logs what it edited.
const CHUNK_BYTES: usize = 4 << 20;
/// Time between two built-in packets, by their own clock.
const BUILT_IN_GAP_NS: u64 = 100;

/// A built-in frame on a separate cache line, as in the buffers of a network card.
#[derive(Clone)]
#[repr(align(64))]
struct Slot([u8; FRAME_LEN]);

#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The frames of a capture; those of interface `i` come in on port `i + 1`.
    Capture(&'a FrameStore),
    /// Built-in traffic (the paper's section 7.2); all of it comes in on port 1.
    BuiltIn { stream: &'a FlowStream, traffic: Traffic },
}

impl Source<'_> {
    pub fn loop_packets(&self) -> u64 {
        match self {
            Source::Capture(store) => store.len() as u64,
            Source::BuiltIn { stream, .. } => u64::from(stream.flows()),
        }
    }

    /// Returns the ports that frames come in on, ascending.
    pub fn in_ports(&self) -> Vec<u32> {
        let mut ports = match self {
            Source::Capture(store) => store.iter().map(|f| in_port(f.interface)).collect(),
            Source::BuiltIn { .. } => vec![1],
        };
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn in_port(interface: u32) -> u32 {
    interface.saturating_add(1)
}

pub struct Chunk<'a> {
    pub frames: Vec<Frame<'a>>,
    pub first: u64,
    pub now_ms: u32,
    /// The capture that the frames are from, and where in it.
    from: Option<(&'a FrameStore, usize)>,
}

impl Chunk<'_> {
    /// Returns when frame `index` came.
    pub fn timestamp_ns(&self, index: usize) -> u64 {
        match self.from {
            Some((store, at)) => store.get(at + index).map_or(0, |f| f.timestamp_ns),
            None => (self.first + index as u64) * BUILT_IN_GAP_NS,
        }
    }
}

/// A place in the traffic. Every design has its own, so all see the same sequence.
pub struct Feed<'a> {
    next: u64,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Capture { store: &'a FrameStore, at: usize, loop_start_ns: u64, now_ns: u64 },
    BuiltIn { stream: FlowStream, traffic: Traffic, ids: Vec<u32>, ring: Vec<Slot> },
}

impl<'a> Feed<'a> {
    pub fn new(source: &Source<'a>) -> Feed<'a> {
        let kind = match *source {
            Source::Capture(store) => Kind::Capture { store, at: 0, loop_start_ns: 0, now_ns: 0 },
            Source::BuiltIn { stream, traffic } => Kind::BuiltIn {
                stream: stream.clone(),
                traffic,
                ids: vec![0; CHUNK],
                ring: vec![Slot([0; FRAME_LEN]); CHUNK],
            },
        };
        Feed { next: 0, kind }
    }

    /// Returns the next chunk, of at most `most` frames and within one loop. Empty only if `most`
    /// is 0 or the capture is empty.
    pub fn chunk(&mut self, most: usize) -> Chunk<'_> {
        let first = self.next;
        let most = most.min(CHUNK);
        let (frames, now_ns, from): (Vec<Frame<'_>>, u64, _) = match &mut self.kind {
            Kind::Capture { store, at, loop_start_ns, now_ns } => {
                let frames = capture_chunk(store, *at, most);
                let from = Some((*store, *at));
                let start = store.get(0).map_or(0, |f| f.timestamp_ns);
                let stamp = store.get(*at).map_or(0, |f| f.timestamp_ns.saturating_sub(start));
                *now_ns = (*now_ns).max(loop_start_ns.saturating_add(stamp));
                *at += frames.len();
                if *at >= store.len() {
                    *at = 0;
                    let last = store.get(store.len().saturating_sub(1));
                    let end = last.map_or(0, |f| f.timestamp_ns.saturating_sub(start));
                    *loop_start_ns = loop_start_ns.saturating_add(end).max(*now_ns);
                }
                (frames, *now_ns, from)
            }
            Kind::BuiltIn { stream, traffic, ids, ring } => {
                let ids = &mut ids[..most];
                stream.fill(ids);
                for (slot, &id) in ring.iter_mut().zip(ids.iter()) {
                    traffic.write_frame(id, &mut slot.0);
                }
                let frames = ring[..most].iter();
                let frames = frames.map(|slot| Frame { bytes: &slot.0, in_port: 1 });
                (frames.collect(), first * BUILT_IN_GAP_NS, None)
            }
        };
        self.next += frames.len() as u64;
        Chunk { frames, first, now_ms: (now_ns / 1_000_000) as u32, from }
    }
}

/// Returns the frames from `at` on, until the chunk is full or the capture ends, or, after a burst,
/// a second has passed or the bytes are too many.
fn capture_chunk(store: &FrameStore, at: usize, most: usize) -> Vec<Frame<'_>> {
    let start = store.get(at).map_or(0, |f| f.timestamp_ns);
    let mut bytes = 0;
    (at..store.len().min(at + most))
        .map_while(|i| Some((i, store.get(i)?)))
        .take_while(|(i, f)| {
            bytes += f.data.len();
            let short = f.timestamp_ns.saturating_sub(start) < CHUNK_NS;
            i - at < BURST || (short && bytes <= CHUNK_BYTES)
        })
        .map(|(_, f)| Frame { bytes: f.data, in_port: in_port(f.interface) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes of the chunks of one loop over `frames` of `len` bytes, `gap_ns` from each
    /// other.
    fn chunks(frames: usize, len: usize, gap_ns: u64) -> Vec<usize> {
        let mut store = FrameStore::new();
        for i in 0..frames as u64 {
            store.push(&vec![0; len], 0, i * gap_ns).expect("room");
        }
        let mut feed = Feed::new(&Source::Capture(&store));
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < frames {
            sizes.push(feed.chunk(CHUNK).frames.len());
        }
        sizes
    }

    #[test]
    fn a_chunk_is_a_burst_at_least_and_bounded_in_frames_time_and_bytes() {
        assert_eq!(chunks(5000, 60, 1), [4096, 904]);
        assert_eq!(chunks(2500, 60, 1_000_000), [1000, 1000, 500]);
        assert_eq!(chunks(70, 60, 60_000_000_000), [32, 32, 6]);
        assert_eq!(chunks(200, 65_536, 1), [64, 64, 64, 8]);
        assert_eq!(chunks(70, 262_144, 1), [32, 32, 6]);
    }

    /// Returns the clock, in seconds, at each of the first `chunks` chunks of one frame.
    fn clock(stamps_s: &[u64], chunks: usize) -> Vec<u32> {
        let mut store = FrameStore::new();
        for stamp_s in stamps_s {
            store.push(&[0; 60], 0, (1000 + stamp_s) * 1_000_000_000).expect("room");
        }
        let mut feed = Feed::new(&Source::Capture(&store));
        (0..chunks).map(|_| feed.chunk(1).now_ms / 1000).collect()
    }

    #[test]
    fn the_clock_of_a_capture_goes_on_over_loops_and_never_back() {
        assert_eq!(clock(&[0, 5, 12], 7), [0, 5, 12, 12, 17, 24, 24]);
        // Frames out of order: the clock waits.
        assert_eq!(clock(&[0, 30, 10], 7), [0, 30, 30, 30, 60, 60, 60]);
        assert_eq!(clock(&[10, 0, 15], 6), [0, 0, 5, 5, 5, 10]);
    }

    #[test]
    fn the_clock_of_built_in_traffic_is_a_packet_each_hundred_nanoseconds() {
        let stream = FlowStream::uniform(100, 1).expect("flows");
        let source = Source::BuiltIn { stream: &stream, traffic: Traffic::default() };
        let mut feed = Feed::new(&source);
        for nth in 0..100u64 {
            let chunk = feed.chunk(CHUNK);
            assert_eq!((chunk.first, chunk.frames.len()), (nth * 4096, 4096));
            assert_eq!(u64::from(chunk.now_ms), nth * 4096 / 10_000);
            assert_eq!(chunk.timestamp_ns(7), (nth * 4096 + 7) * 100);
        }
    }
}
