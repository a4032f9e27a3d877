//! Load on servers that speak RESP: many connections, one thread.
//!
//! ```text
//!   closed   a number of batches is under way at all times: as many replies as requests
//!   open     a batch is due every so often, whether replies come or not
//!
//!   batch ─▶ a free connection of its target ─▶ its replies
//!       └──▶ waits for one; its time counts from when it was due
//! ```
//!
//! A batch is one request or a pipeline of them. A connection has one batch at a time, so a slow
//! reply holds up nothing else. Cost: a system call to write and one to read for each batch, and 24
//! bytes of memory for its times.

mod poll;

pub use poll::Poll;

use overbank_wire::resp::{self, Replies, ReplyError};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const READ: usize = 256 << 10;

/// When batches begin.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As soon as one of this number has ended.
    Closed(usize),
    /// At this rate, in batches a second.
    Open(f64),
}

#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub targets: &'a [SocketAddr],
    /// Connections to each target.
    pub connections: usize,
    pub pace: Pace,
    pub time: Duration,
    /// Ends it early.
    pub stop: &'a AtomicBool,
}

/// Requests that go out together.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub target: usize,
    /// Requests, each of which gets a reply.
    pub requests: u32,
    /// A number of the caller.
    pub kind: u32,
}

/// A batch whose replies have all come.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub kind: u32,
    pub requests: u32,
    /// Nanoseconds from the start until it was due, and from then to its last reply.
    pub due: u64,
    pub took: u64,
}

impl Done {
    /// Returns when it ended.
    pub fn end(&self) -> u64 {
        self.due + self.took
    }
}

/// What a load has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By their ends.
    pub done: Vec<Done>,
    /// Batches that had not ended.
    pub unanswered: usize,
    pub time: Duration,
}

impl Seen {
    /// Returns requests answered a second, from this time on.
    pub fn rate(&self, from: Duration) -> f64 {
        let requests = self.after(from).map(|done| u64::from(done.requests)).sum::<u64>();
        requests as f64 / self.time.saturating_sub(from).as_secs_f64()
    }

    /// Returns the batches that ended after this time.
    pub fn after(&self, from: Duration) -> impl Iterator<Item = &Done> {
        let from = from.as_nanos() as u64;
        self.done.iter().filter(move |done| done.end() >= from)
    }
}

/// Returns the time in microseconds which this share of some batches do not exceed; 0 of none.
pub fn quantile<'a>(done: impl Iterator<Item = &'a Done>, share: f64) -> f64 {
    let mut times: Vec<u64> = done.map(|done| done.took).collect();
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    if times.is_empty() {
        return 0.0;
    }
    *times.select_nth_unstable(at).1 as f64 / 1e3
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("{0}: closed the connection")]
    Ended(SocketAddr),
    #[error("{address}: replied {text}")]
    Refused { address: SocketAddr, text: String },
    #[error("a reply: {0}")]
    Reply(#[from] ReplyError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Appends a GET of `key:` and twelve digits, the keys of `redis-benchmark -r`.
pub fn get(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    key(number, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a SET of such a key.
pub fn set(number: u64, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    key(number, out);
    out.extend_from_slice(b"\r\n");
    resp::bulk(value, out);
}

/// Appends such a key. Of longer numbers, it has the last twelve digits.
fn key(number: u64, out: &mut Vec<u8>) {
    let mut text = *b"key:000000000000";
    let mut rest = number;
    for digit in text[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&text);
}

/// A batch and its bytes, before its replies have come.
struct Pending {
    batch: Batch,
    due: u64,
    bytes: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    replies: Replies,
    target: usize,
    pending: Option<Pending>,
    /// Replies to come, and bytes that were written.
    left: u32,
    written: usize,
    waits_for_room: bool,
}

#[derive(Default)]
struct Target {
    free: Vec<usize>,
    waiting: VecDeque<Pending>,
}

struct Load<'a, F> {
    plan: &'a Plan<'a>,
    next: F,
    poll: Poll,
    start: Instant,
    connections: Vec<Connection>,
    targets: Vec<Target>,
    /// Bytes of batches that have ended, to be used again.
    spare: Vec<Vec<u8>>,
    under_way: usize,
    issued: u64,
    /// Whether `next` has no more.
    is_over: bool,
    scratch: Vec<u8>,
    done: Vec<Done>,
}

/// Runs a load. `next` appends a batch and says what it is; without one, the run ends when all
/// replies have come.
///
/// # Errors
/// A target is unreachable, closes a connection, or replies with an error.
pub fn run(
    plan: &Plan<'_>,
    next: impl FnMut(&mut Vec<u8>) -> Option<Batch>,
) -> Result<Seen, LoadError> {
    let mut load = Load {
        plan,
        next,
        poll: Poll::new()?,
        start: Instant::now(),
        connections: Vec::new(),
        targets: plan.targets.iter().map(|_| Target::default()).collect(),
        spare: Vec::new(),
        under_way: 0,
        issued: 0,
        is_over: false,
        scratch: vec![0; READ],
        done: Vec::new(),
    };
    load.connect()?;
    load.run()?;
    let time = load.start.elapsed();
    Ok(Seen { done: load.done, unanswered: load.under_way, time })
}

impl<F: FnMut(&mut Vec<u8>) -> Option<Batch>> Load<'_, F> {
    fn connect(&mut self) -> Result<(), LoadError> {
        for (target, &address) in self.plan.targets.iter().enumerate() {
            let open = |source| LoadError::Connect { address, source };
            for _ in 0..self.plan.connections {
                let stream = TcpStream::connect(address).map_err(open)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                self.poll.add(&stream, self.connections.len() as u64)?;
                self.targets[target].free.push(self.connections.len());
                self.connections.push(Connection {
                    stream,
                    replies: Replies::new(),
                    target,
                    pending: None,
                    left: 0,
                    written: 0,
                    waits_for_room: false,
                });
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), LoadError> {
        self.start = Instant::now();
        let end = self.start + self.plan.time;
        let mut ready = Vec::new();
        loop {
            self.issue()?;
            let is_over = self.is_over && self.under_way == 0;
            if is_over || Instant::now() >= end || self.plan.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let due = match self.plan.pace {
                Pace::Open(rate) if !self.is_over => Some(self.due(rate).min(end)),
                _ => None,
            };
            self.poll.wait(due, &mut ready)?;
            for number in ready.drain(..) {
                let number = number as usize;
                if self.connections[number].waits_for_room {
                    self.write(number)?;
                }
                self.read(number)?;
                if let Pace::Closed(_) = self.plan.pace {
                    self.issue()?;
                }
            }
        }
    }

    /// Returns when the next batch of an open loop is due.
    fn due(&self, rate: f64) -> Instant {
        self.start + Duration::from_secs_f64(self.issued as f64 / rate)
    }

    fn since_start(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Begins all batches that are due.
    fn issue(&mut self) -> Result<(), LoadError> {
        while !self.is_over {
            let due = match self.plan.pace {
                Pace::Closed(most) if self.under_way >= most => return Ok(()),
                Pace::Closed(_) => Instant::now(),
                Pace::Open(rate) => self.due(rate),
            };
            if due > Instant::now() {
                return Ok(());
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            let Some(batch) = (self.next)(&mut bytes) else {
                self.is_over = true;
                return Ok(());
            };
            self.under_way += 1;
            self.issued += 1;
            let pending = Pending { batch, due: self.since_start(due), bytes };
            match self.targets[batch.target].free.pop() {
                Some(number) => self.begin(number, pending)?,
                None => self.targets[batch.target].waiting.push_back(pending),
            }
        }
        Ok(())
    }

    fn begin(&mut self, number: usize, pending: Pending) -> Result<(), LoadError> {
        let connection = &mut self.connections[number];
        (connection.left, connection.written) = (pending.batch.requests, 0);
        connection.pending = Some(pending);
        self.write(number)
    }

    fn write(&mut self, number: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[number];
        let Some(pending) = &connection.pending else { return Ok(()) };
        let mut is_full = false;
        while !is_full && connection.written < pending.bytes.len() {
            match connection.stream.write(&pending.bytes[connection.written..]) {
                Ok(count) => connection.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => is_full = true,
                Err(error) => return Err(error.into()),
            }
        }
        if is_full != connection.waits_for_room {
            connection.waits_for_room = is_full;
            self.poll.room(&connection.stream, number as u64, is_full)?;
        }
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[number];
        let address = self.plan.targets[connection.target];
        let count = match connection.stream.read(&mut self.scratch) {
            Ok(0) => return Err(LoadError::Ended(address)),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut rest = &self.scratch[..count];
        while !rest.is_empty() {
            let step = connection.replies.scan(rest)?;
            rest = &rest[step.len..];
            if step.end && connection.replies.kind() == Some(b'-') {
                let text = String::from_utf8_lossy(connection.replies.head()).into_owned();
                return Err(LoadError::Refused { address, text });
            }
            connection.left = connection.left.saturating_sub(u32::from(step.end));
        }
        if connection.left > 0 {
            return Ok(());
        }
        let Some(Pending { batch, due, bytes }) = connection.pending.take() else { return Ok(()) };
        let target = &mut self.targets[connection.target];
        let next = target.waiting.pop_front();
        if next.is_none() {
            target.free.push(number);
        }
        self.spare.push(bytes);
        self.under_way -= 1;
        let took = self.since_start(Instant::now()).saturating_sub(due);
        self.done.push(Done { kind: batch.kind, requests: batch.requests, due, took });
        next.map_or(Ok(()), |next| self.begin(number, next))
    }
}

#[cfg(test)]
mod tests;
