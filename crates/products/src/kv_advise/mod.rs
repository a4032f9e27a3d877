//! `overbank kv advise`: is a cache of hot keys worth it in front of this Redis?
//!
//! ```text
//!   MONITOR lines ─▶ monitor ──────────────┐                    ┌─ tally     accesses by key
//!   packets ─▶ frames ─▶ streams ─ RESP ───┴─▶ traffic: class ──┼─ simulate  proxies of each size
//!                                                               └─ skew, rule ─▶ record
//! ```
//!
//! Commands are classified, and their keys found, by the proxy's own table. A key is its name, as
//! in the proxy: forms of requests distinguish databases.
//!
//! Guarantees: one pass; memory is bounded whatever the input ([`Question::keys_max`], and the
//! bounds of each module); nothing panics on any bytes.

pub mod frames;
pub mod monitor;
pub mod record;
mod rule;
pub mod simulate;
mod skew;
pub mod streams;
pub mod tally;
mod traffic;

use frames::Frames;
use monitor::{Line, Read as Found, next_line};
use overbank_ports::capture::{Capture, CaptureError};
pub use record::{Advice, SCHEMA};
use record::{BadLine, Input, Kind};
use std::io::{self, BufReader, Cursor, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use streams::Streams;
pub use tally::Secret;
use traffic::{From, Traffic};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Sizes that are simulated by default.
pub const ENTRIES: [usize; 5] = [10, 100, 1000, 10_000, 100_000];
/// Lines or packets between two looks at `stop`.
const LOOK_EVERY: u64 = 1024;
/// Bytes of a bad line that are shown.
const SHOWN: usize = 60;
const BUFFER: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct Question {
    /// Port of Redis in captures.
    pub port: u16,
    /// Distinct keys that are counted exactly.
    pub keys_max: usize,
    /// Hot keys that are listed.
    pub top: usize,
    pub entries: Vec<usize>,
    /// What names are hashed with.
    pub secret: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    #[error("{name}: cannot read it: {reason}")]
    Read { name: String, reason: io::Error },
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(
        "{name}: no command in {lines} lines{}; must be the output of `redis-cli MONITOR`, or a \
         capture",
        first_bad.as_ref().map_or(String::new(), |bad| format!(", line {}: {}", bad.line, bad.text))
    )]
    NoLine { name: String, lines: u64, first_bad: Option<BadLine> },
    #[error("{name}: no command to TCP port {port} in {packets} packets{why}; see --port")]
    NoPacket { name: String, port: u16, packets: u64, why: String },
    #[error("stopped before there was an answer")]
    Stopped,
}

/// Reads inputs one after another, and advises.
pub struct Advisor {
    question: Question,
    traffic: Traffic,
    inputs: Vec<Input>,
    interrupted: bool,
}

impl Advisor {
    pub fn new(question: Question) -> Advisor {
        let traffic = Traffic::new(&question);
        Advisor { question, traffic, inputs: Vec::new(), interrupted: false }
    }

    /// Reads an input to its end, or until `stop`.
    ///
    /// # Errors
    /// It cannot be read, or has no command. A capture that breaks off counts as far as it goes.
    pub fn read(
        &mut self,
        name: &str,
        mut input: impl Read + Send + 'static,
        stop: &AtomicBool,
    ) -> Result<(), AdviseError> {
        let failed = |reason| AdviseError::Read { name: name.to_owned(), reason };
        let mut head = Vec::new();
        input.by_ref().take(4).read_to_end(&mut head).map_err(failed)?;
        let is_capture = is_capture(&head);
        let input = Cursor::new(head).chain(input);
        self.traffic.begin();
        let before = self.traffic.commands;
        let mut read = match is_capture {
            true => self.capture(name, input, stop)?,
            false => self.monitor(name, input, stop)?,
        };
        read.commands = self.traffic.commands - before;
        read.seconds = self.traffic.input_seconds();
        let is_empty = read.commands == 0 && self.traffic.script_calls == 0;
        self.interrupted |= stop.load(Ordering::Relaxed);
        if is_empty && !self.interrupted {
            return Err(self.nothing(read));
        }
        self.inputs.push(read);
        Ok(())
    }

    fn nothing(&self, input: Input) -> AdviseError {
        let name = input.file;
        let Some(packets) = input.packets else {
            let (lines, first_bad) = (input.lines, input.first_bad);
            return AdviseError::NoLine { name, lines, first_bad };
        };
        let streams = input.streams.unwrap_or_default();
        let why = match (input.error, streams) {
            (Some(error), _) => format!(" ({error})"),
            (_, streams) if streams.tls > 0 => ", which are TLS".to_owned(),
            (_, streams) if streams.not_resp > 0 => ", which are no RESP".to_owned(),
            _ if packets.packets > 0 && packets.other_links == packets.packets => {
                " of link types that are not read".to_owned()
            }
            _ => String::new(),
        };
        AdviseError::NoPacket { name, port: self.question.port, packets: packets.packets, why }
    }

    fn monitor(
        &mut self,
        name: &str,
        input: impl Read,
        stop: &AtomicBool,
    ) -> Result<Input, AdviseError> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let mut read = Input::new(name, Kind::Monitor);
        let (mut bytes, mut line) = (Vec::new(), Line::default());
        loop {
            if read.lines.is_multiple_of(LOOK_EVERY) && stop.load(Ordering::Relaxed) {
                return Ok(read);
            }
            let (len, is_cut) = match next_line(&mut input, &mut bytes) {
                Ok((0, _)) => return Ok(read),
                Ok(next) => next,
                Err(reason) => return Err(AdviseError::Read { name: name.to_owned(), reason }),
            };
            debug_assert!(len > 0);
            read.lines += 1;
            match line.read(&bytes, is_cut) {
                Found::Nothing => {}
                Found::Bad => {
                    read.bad_lines += 1;
                    read.first_bad.get_or_insert_with(|| bad_line(read.lines, &bytes));
                }
                Found::Command => {
                    read.cut_lines += u64::from(is_cut);
                    let client = xxh3_64_with_seed(&line.client, self.inputs.len() as u64);
                    let (db, is_script) = (Some(line.db), line.is_script());
                    let from = From { client, db, is_script };
                    self.traffic.command(line.time_ns, from, &line.request());
                }
            }
        }
    }

    fn capture(
        &mut self,
        name: &str,
        input: impl Read + Send + 'static,
        stop: &AtomicBool,
    ) -> Result<Input, AdviseError> {
        let mut capture = Capture::from_reader(input, name)?;
        let mut read = Input::new(name, Kind::Capture);
        let (mut frames, mut streams) = (Frames::new(self.question.port), Streams::default());
        let traffic = &mut self.traffic;
        let nth = self.inputs.len() as u64;
        let from = |stream: u64| {
            let client = xxh3_64_with_seed(&stream.to_le_bytes(), nth);
            From { client, db: None, is_script: false }
        };
        let mut time = 0;
        loop {
            let packets = frames.packets.packets;
            if packets.is_multiple_of(LOOK_EVERY) && stop.load(Ordering::Relaxed) {
                break;
            }
            let packet = match capture.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(error) => {
                    read.error = Some(error.to_string());
                    break;
                }
            };
            // Some formats have no times.
            time = time.max(packet.timestamp_ns);
            let found = frames.segment(packet.link_type, packet.data, packet.orig_len);
            let Some(segment) = found else { continue };
            let from = from(segment.stream);
            if segment.syn {
                traffic.connected(from.client);
            }
            streams.segment(time, &segment, &mut |request| traffic.command(time, from, &request));
        }
        streams.end(&mut |stream, request| traffic.command(time, from(stream), &request));
        (read.packets, read.streams) = (Some(frames.packets), Some(streams.counts));
        Ok(read)
    }

    /// Advises.
    ///
    /// # Errors
    /// There was no command.
    pub fn advice(self) -> Result<Advice, AdviseError> {
        if self.inputs.is_empty() || self.traffic.commands == 0 && self.interrupted {
            return Err(AdviseError::Stopped);
        }
        Ok(self.traffic.advice(self.inputs, self.interrupted, &self.question))
    }
}

impl Input {
    fn new(name: &str, kind: Kind) -> Input {
        Input {
            file: name.to_owned(),
            kind,
            commands: 0,
            seconds: 0.0,
            lines: 0,
            bad_lines: 0,
            cut_lines: 0,
            first_bad: None,
            packets: None,
            streams: None,
            error: None,
        }
    }
}

/// Returns whether the first bytes are those of pcap, pcapng or gzip.
fn is_capture(head: &[u8]) -> bool {
    let word = head.try_into().map_or(0, u32::from_be_bytes);
    let known = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xd4c3_b2a1, 0x4d3c_b2a1, 0x0a0d_0d0a];
    known.contains(&word) || head.starts_with(&[0x1f, 0x8b])
}

fn bad_line(line: u64, bytes: &[u8]) -> BadLine {
    let shown = bytes.get(..SHOWN).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    BadLine { line, text: format!("{}{more}", shown.escape_ascii()) }
}

#[cfg(test)]
mod tests;
