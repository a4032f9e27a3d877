//! Requests in TCP streams, as a capture shows them.
//!
//! ```text
//!   segment ─▶ in order? ── yes ──▶ scanner of RESP ─▶ requests
//!                 └ no: held, up to a second and HELD_MAX; then a gap
//!   gap, no start seen, no RESP ─▶ skipped, until a segment begins like a request
//! ```
//!
//! Guarantees: nothing panics on any bytes, and nothing is lost without a count. Memory: at most
//! [`STREAMS_MAX`] streams and [`HELD_ALL_MAX`] bytes in all of them.

use super::frames::Segment;
use overbank_wire::resp::{Limits, Request, Requests};
use overbank_wire::scan::{BUFFER_MIN, Scan};
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;

/// Streams that are followed at a time.
pub const STREAMS_MAX: usize = 1 << 16;
/// Bytes and segments of a stream that wait for one before them, and how long.
const HELD_MAX: usize = 1 << 20;
const HELD_SEGMENTS_MAX: usize = 256;
const HELD_NS: u64 = 1_000_000_000;
/// Bytes that all streams hold.
pub const HELD_ALL_MAX: usize = 256 << 20;
/// Time without a segment after which a stream makes room for another.
const IDLE_NS: u64 = 60_000_000_000;
/// Sequence numbers farther away belong to another connection of the same ends.
const WINDOW: u32 = 1 << 24;
/// Bytes and arguments of a long request that are kept.
const LARGE_MAX: usize = 1 << 20;
const LARGE_ARGS_MAX: usize = 1 << 16;

/// What happened to streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamCounts {
    /// Streams that were followed, and those whose start the capture lacks.
    pub streams: u64,
    pub joined: u64,
    /// Streams that were not followed, as there were too many.
    pub refused: u64,
    /// Segments that came before an earlier one, and those that came again.
    pub reordered: u64,
    pub repeated: u64,
    /// Places where bytes are missing, and how many bytes.
    pub gaps: u64,
    pub missing_bytes: u64,
    /// Bytes after a gap, or without a start, up to the next request that could be found.
    pub skipped_bytes: u64,
    /// Times that a stream was no RESP, and those of them that began like TLS.
    pub not_resp: u64,
    pub tls: u64,
    /// Requests of which not all arguments were looked at.
    pub long_requests: u64,
    /// Times that a stream was given up, as all held too much.
    pub overfull: u64,
}

#[derive(Debug)]
struct Held {
    seq: u32,
    payload: Box<[u8]>,
    missing: usize,
}

/// The start of a request that is longer than a buffer.
#[derive(Debug, Default)]
struct Large {
    bytes: Vec<u8>,
    args: Vec<Range<usize>>,
    is_cut: bool,
}

impl Large {
    fn add(&mut self, request: Request<'_>, long: Option<usize>) {
        for arg in request.args() {
            let start = self.bytes.len();
            let fits = start + arg.len() <= LARGE_MAX;
            self.is_cut |= !fits || self.args.len() >= LARGE_ARGS_MAX;
            if self.args.len() < LARGE_ARGS_MAX {
                self.bytes.extend_from_slice(if fits { arg } else { b"" });
                self.args.push(start..self.bytes.len());
            }
        }
        if long.is_some() && self.args.len() < LARGE_ARGS_MAX {
            // A value: a key is not that long.
            self.args.push(0..0);
        }
    }
}

#[derive(Debug)]
struct Stream {
    /// The next sequence number; nothing before the first segment.
    next: Option<u32>,
    held: Vec<Held>,
    held_bytes: usize,
    held_since: u64,
    seen: u64,
    /// Whether the buffer begins where the scanner is.
    is_synced: bool,
    /// Whether it begins with a request.
    is_start: bool,
    buffer: Vec<u8>,
    requests: Requests,
    large: Option<Large>,
}

/// Follows streams.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<u64, Stream>,
    /// Bytes that all hold.
    bytes: usize,
    swept: u64,
    pub counts: StreamCounts,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            next: None,
            held: Vec::new(),
            held_bytes: 0,
            held_since: 0,
            seen: 0,
            is_synced: false,
            is_start: true,
            buffer: Vec::new(),
            requests: Requests::new(Limits::default()),
            large: None,
        }
    }

    /// Returns the bytes that it holds.
    fn bytes(&self) -> usize {
        let large =
            self.large.as_ref().map_or(0, |large| large.bytes.len() + 16 * large.args.len());
        self.held_bytes + self.buffer.len() + large
    }

    fn begin(&mut self, next: u32, is_synced: bool) {
        let seen = self.seen;
        *self = Stream { next: Some(next), seen, is_synced, ..Stream::new() };
    }

    fn lose(&mut self) {
        self.is_synced = false;
        self.buffer = Vec::new();
        self.large = None;
    }

    fn segment(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        counts: &mut StreamCounts,
        report: &mut dyn FnMut(Request<'_>),
    ) {
        self.seen = now;
        if segment.syn {
            let next = segment.seq.wrapping_add(1);
            if self.next != Some(next) {
                self.begin(next, true);
            }
            return;
        }
        let len = segment.payload.len() + segment.missing;
        if len == 0 {
            return;
        }
        let next = match self.next {
            Some(next) => next,
            None => {
                counts.joined += 1;
                self.begin(segment.seq, false);
                segment.seq
            }
        };
        let ahead = segment.seq.wrapping_sub(next) as i32;
        if ahead.unsigned_abs() > WINDOW {
            counts.gaps += 1;
            self.begin(segment.seq, false);
        } else if ahead > 0 {
            counts.reordered += 1;
            self.hold(now, segment);
        } else if ahead.unsigned_abs() as usize >= len {
            counts.repeated += 1;
        }
        if self.next == Some(segment.seq) || ahead <= 0 {
            self.deliver(segment.seq, segment.payload, segment.missing, counts, report);
        }
        let is_late = |stream: &Stream| {
            !stream.held.is_empty()
                && (stream.held_bytes > HELD_MAX
                    || stream.held.len() > HELD_SEGMENTS_MAX
                    || now.saturating_sub(stream.held_since) > HELD_NS)
        };
        self.go_on(counts, report);
        while is_late(self) {
            self.gap(counts);
            self.held_since = now;
            self.go_on(counts, report);
        }
    }

    fn hold(&mut self, now: u64, segment: &Segment<'_>) {
        let Segment { seq, payload, missing, .. } = *segment;
        let next = self.next.unwrap_or(seq);
        let place = |held: &Held| held.seq.wrapping_sub(next);
        let at = self.held.partition_point(|held| place(held) < seq.wrapping_sub(next));
        if self.held.get(at).is_some_and(|held| {
            held.seq == seq && held.payload.len() + held.missing >= payload.len() + missing
        }) {
            return;
        }
        if self.held.is_empty() {
            self.held_since = now;
        }
        self.held_bytes += payload.len();
        self.held.insert(at, Held { seq, payload: payload.into(), missing });
    }

    /// Delivers the held segments that are next.
    fn go_on(&mut self, counts: &mut StreamCounts, report: &mut dyn FnMut(Request<'_>)) {
        while let (Some(first), Some(next)) = (self.held.first(), self.next) {
            if first.seq.wrapping_sub(next) as i32 > 0 {
                break;
            }
            let Held { seq, payload, missing } = self.held.remove(0);
            self.held_bytes -= payload.len();
            self.deliver(seq, &payload, missing, counts, report);
        }
    }

    /// Goes on at the first held segment without what is before it.
    fn gap(&mut self, counts: &mut StreamCounts) {
        if let (Some(first), Some(next)) = (self.held.first(), self.next) {
            counts.gaps += 1;
            counts.missing_bytes += u64::from(first.seq.wrapping_sub(next));
            self.next = Some(first.seq);
            self.lose();
        }
    }

    /// Takes a segment that begins at the next byte, or before it.
    fn deliver(
        &mut self,
        seq: u32,
        payload: &[u8],
        missing: usize,
        counts: &mut StreamCounts,
        report: &mut dyn FnMut(Request<'_>),
    ) {
        let next = self.next.unwrap_or(seq);
        let known = next.wrapping_sub(seq) as usize;
        let len = payload.len() + missing;
        if known >= len {
            return;
        }
        self.next = Some(seq.wrapping_add(len as u32));
        self.take(payload.get(known..).unwrap_or_default(), counts, report);
        if missing > 0 {
            counts.gaps += 1;
            counts.missing_bytes += missing.min(len - known) as u64;
            self.lose();
        }
    }

    /// Takes the next bytes of the stream.
    fn take(
        &mut self,
        bytes: &[u8],
        counts: &mut StreamCounts,
        report: &mut dyn FnMut(Request<'_>),
    ) {
        if !self.is_synced {
            if !is_request(bytes) {
                counts.skipped_bytes += bytes.len() as u64;
                return;
            }
            self.is_synced = true;
            self.is_start = true;
            self.buffer.clear();
            self.requests = Requests::new(Limits::default());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(bytes);
        match self.scan(&buffer, counts, report) {
            Some(used) => {
                buffer.drain(..used.min(buffer.len()));
                // An idle client keeps nothing.
                if !buffer.is_empty() {
                    self.buffer = buffer;
                }
            }
            None => {
                counts.not_resp += 1;
                counts.skipped_bytes += bytes.len() as u64;
                self.lose();
            }
        }
    }

    /// Reports all requests that are whole; returns how many bytes they took, or nothing if this is
    /// no RESP.
    fn scan(
        &mut self,
        bytes: &[u8],
        counts: &mut StreamCounts,
        report: &mut dyn FnMut(Request<'_>),
    ) -> Option<usize> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some(&first) = rest.first() else { return Some(used) };
            if self.is_start && !matches!(first, b'*' | b'\r' | b'\n' | b'A'..=b'Z' | b'a'..=b'z') {
                counts.tls += u64::from(first == 0x16 && matches!(rest.get(1), None | Some(3)));
                return None;
            }
            self.is_start = false;
            match self.requests.scan(rest).ok()? {
                Scan::Whole { len } => {
                    let request = self.requests.request(rest);
                    match self.large.take() {
                        None => report(request),
                        Some(mut large) => {
                            large.add(request, None);
                            counts.long_requests += u64::from(large.is_cut);
                            report(Request::new(&large.bytes, &large.args));
                        }
                    }
                    self.is_start = true;
                    used += len;
                }
                scan => {
                    let is_short = rest.len() < BUFFER_MIN && self.large.is_none();
                    if scan == Scan::Partial && is_short {
                        return Some(used);
                    }
                    let part = self.requests.take(rest);
                    let large = self.large.get_or_insert_default();
                    large.add(self.requests.request(rest), part.long);
                    used += part.len;
                    if part.len == 0 {
                        return Some(used);
                    }
                }
            }
        }
    }
}

/// Returns whether bytes begin like a request of several arguments.
fn is_request(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"*") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_count = (1..=7).contains(&digits) && rest.first() != Some(&b'0');
    is_count && rest.get(digits..).is_some_and(|rest| rest.starts_with(b"\r\n$"))
}

impl Streams {
    /// Takes a segment; reports the requests that it ends. `now` is in nanoseconds.
    pub fn segment(
        &mut self,
        now: u64,
        segment: &Segment<'_>,
        report: &mut dyn FnMut(Request<'_>),
    ) {
        let is_empty = segment.payload.is_empty() && segment.missing == 0;
        if !self.streams.contains_key(&segment.stream) {
            if is_empty && !segment.syn {
                return;
            }
            if self.streams.len() >= STREAMS_MAX {
                self.sweep(now);
            }
            if self.streams.len() >= STREAMS_MAX {
                self.counts.refused += u64::from(segment.syn);
                return;
            }
            self.counts.streams += 1;
        }
        let stream = self.streams.entry(segment.stream).or_insert_with(Stream::new);
        let before = stream.bytes();
        stream.segment(now, segment, &mut self.counts, report);
        self.bytes = self.bytes + stream.bytes() - before;
        if self.bytes > HELD_ALL_MAX {
            self.counts.overfull += 1;
            self.bytes -= stream.bytes();
            let next = stream.next.unwrap_or(0);
            stream.begin(next, false);
        }
        if segment.ends && stream.held.is_empty() {
            self.bytes -= stream.bytes();
            self.streams.remove(&segment.stream);
        }
    }

    /// Removes streams that are idle.
    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < HELD_NS {
            return;
        }
        self.swept = now;
        self.streams.retain(|_, stream| now.saturating_sub(stream.seen) < IDLE_NS);
        self.bytes = self.streams.values().map(Stream::bytes).sum();
    }

    /// Ends a capture: what waits for missing bytes is taken without them.
    pub fn end(&mut self, report: &mut dyn FnMut(u64, Request<'_>)) {
        let mut all: Vec<(u64, Stream)> = self.streams.drain().collect();
        all.sort_unstable_by_key(|(id, stream)| (stream.seen, *id));
        for (id, mut stream) in all {
            while !stream.held.is_empty() {
                stream.gap(&mut self.counts);
                stream.go_on(&mut self.counts, &mut |request| report(id, request));
            }
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn segment(seq: u32, payload: &[u8]) -> Segment<'_> {
        Segment { stream: 1, seq, syn: false, ends: false, payload, missing: 0 }
    }

    fn words(request: &Request<'_>) -> String {
        let args: Vec<_> = request.args().map(|arg| arg.escape_ascii().to_string()).collect();
        args.join(" ")
    }

    /// Takes segments, each a second part of a millisecond after the last; returns requests.
    fn taken(segments: &[Segment<'_>]) -> (Vec<String>, StreamCounts) {
        let (mut streams, mut all) = (Streams::default(), Vec::new());
        for (nth, segment) in segments.iter().enumerate() {
            let now = nth as u64 * 500_000;
            streams.segment(now, segment, &mut |request| all.push(words(&request)));
        }
        streams.end(&mut |_, request| all.push(words(&request)));
        (all, streams.counts)
    }

    const SYN: Segment<'_> =
        Segment { stream: 1, seq: u32::MAX - 20, syn: true, ends: false, payload: b"", missing: 0 };
    const START: u32 = u32::MAX - 19;
    const TWO: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n";

    #[test]
    fn cut_reordered_and_repeated_segments_give_the_same_requests() {
        // The sequence numbers wrap within.
        for cut in 1..TWO.len() {
            let (a, b) = TWO.split_at(cut);
            let (first, second) = (segment(START, a), segment(START.wrapping_add(cut as u32), b));
            let whole = segment(START, TWO);
            for order in [
                vec![first, second],
                vec![second, first],
                vec![first, first, second, second],
                vec![second, whole],
                vec![first, whole, second],
            ] {
                let (requests, counts) = taken(&[&[SYN], &order[..]].concat());
                assert_eq!(requests, ["GET a", "GET b"], "{cut}");
                assert_eq!((counts.gaps, counts.joined, counts.not_resp), (0, 0, 0));
            }
        }
    }

    #[test]
    fn after_a_gap_it_goes_on_at_a_segment_that_begins_with_a_request() {
        let at = |offset: u32| START.wrapping_add(offset);
        let half = TWO.len() as u32 / 2;
        let (a, b) = TWO.split_at(half as usize);
        let parts =
            [SYN, segment(START, a), segment(at(half + 100), b"k\r\n"), segment(at(half + 103), b)];
        let (requests, counts) = taken(&parts);
        assert_eq!(requests, ["GET a", "GET b"]);
        assert_eq!((counts.gaps, counts.missing_bytes, counts.skipped_bytes), (1, 100, 3));
        assert_eq!(counts.reordered, 2);
    }

    #[test]
    fn a_gap_is_given_up_after_a_second() {
        let (mut streams, mut all) = (Streams::default(), Vec::new());
        let mut take = |now, segment: &Segment<'_>| {
            streams.segment(now, segment, &mut |request| all.push(words(&request)));
            all.len()
        };
        take(0, &SYN);
        let behind = START.wrapping_add(50);
        assert_eq!(take(0, &segment(behind, TWO)), 0);
        assert_eq!(take(SECOND, &segment(behind, TWO)), 0);
        let next = behind.wrapping_add(TWO.len() as u32);
        assert_eq!(take(SECOND + 1, &segment(next, TWO)), 4);
    }

    #[test]
    fn a_stream_without_its_start_is_joined_at_a_request() {
        let (requests, counts) = taken(&[segment(5, b"lue\r\n"), segment(10, TWO)]);
        assert_eq!(requests, ["GET a", "GET b"]);
        assert_eq!((counts.joined, counts.skipped_bytes, counts.gaps), (1, 5, 0));
    }

    #[test]
    fn a_cut_packet_is_a_gap() {
        let mut cut = segment(START, &TWO[..25]);
        cut.missing = TWO.len() - 25;
        let next = segment(START.wrapping_add(TWO.len() as u32), TWO);
        let (requests, counts) = taken(&[SYN, cut, next]);
        assert_eq!(requests, ["GET a", "GET a", "GET b"]);
        assert_eq!((counts.gaps, counts.missing_bytes), (1, cut.missing as u64));
    }

    #[test]
    fn what_is_no_resp_is_counted() {
        let (requests, counts) = taken(&[SYN, segment(START, b"\x16\x03\x01\x02\x00\x01\x00")]);
        assert!(requests.is_empty());
        assert_eq!((counts.not_resp, counts.tls), (1, 1));
        let (requests, counts) = taken(&[SYN, segment(START, b"PING\r\n*x\r\n")]);
        assert_eq!((requests, counts.not_resp, counts.tls), (vec!["PING".to_owned()], 1, 0));
    }

    #[test]
    fn long_values_are_not_held() {
        let mut bytes = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$3000000\r\n".to_vec();
        bytes.resize(bytes.len() + 3_000_000, b'v');
        bytes.extend(b"\r\n$2\r\nEX\r\n$1\r\n9\r\n");
        bytes.extend(TWO);
        let (mut streams, mut all, mut seq) = (Streams::default(), Vec::new(), START);
        streams.segment(0, &SYN, &mut |_| ());
        for part in bytes.chunks(1400) {
            streams.segment(0, &segment(seq, part), &mut |request| all.push(words(&request)));
            assert!(streams.bytes < 2 * BUFFER_MIN);
            seq = seq.wrapping_add(part.len() as u32);
        }
        assert_eq!(all, ["SET k  EX 9", "GET a", "GET b"]);
        assert_eq!(streams.bytes, 0);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_bytes_are_counted(
            parts in prop::collection::vec((0..3u64, 0..5000u32, 0..6u8, any::<Vec<u8>>(), 0..99usize), 0..60),
        ) {
            let mut streams = Streams::default();
            for (nth, (stream, seq, kind, mut payload, missing)) in parts.into_iter().enumerate() {
                if kind > 2 {
                    payload.splice(0..0, TWO[..missing.min(TWO.len())].iter().copied());
                }
                let missing = if kind == 3 { missing } else { 0 };
                let (syn, ends) = (kind == 0, kind == 1);
                let segment = Segment { stream, seq, syn, ends, payload: &payload, missing };
                streams.segment(nth as u64 * SECOND / 4, &segment, &mut |_| ());
                let held: usize = streams.streams.values().map(Stream::bytes).sum();
                prop_assert_eq!(held, streams.bytes);
            }
            streams.end(&mut |_, _| ());
        }

        /// Any cut and any order within the window gives the requests of the stream.
        #[test]
        fn any_order_gives_the_same_requests(
            cuts in prop::collection::vec(1..30usize, 1..12), order in any::<u64>(), start: u32,
        ) {
            let bytes = [TWO, b"PING\r\n", TWO, TWO].concat();
            let mut parts = Vec::new();
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(bytes.len());
                parts.push(segment(start.wrapping_add(at as u32), &bytes[at..end]));
                at = end;
                if at == bytes.len() {
                    break;
                }
            }
            let mut random = overbank::random::Pcg32::new(order, 1);
            for last in (1..parts.len()).rev() {
                parts.swap(last, random.below(last as u32 + 1) as usize);
            }
            let syn = Segment { seq: start.wrapping_sub(1), ..SYN };
            parts.insert(0, syn);
            let (requests, counts) = taken(&parts);
            prop_assert_eq!(requests.len(), 7);
            prop_assert_eq!(counts.gaps, 0);
        }
    }
}
