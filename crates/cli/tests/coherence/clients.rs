//! Clients that read and write hot keys by the library, and record what they see.
//!
//! Each thread has the keys of one server, so that a killed one keeps others from nothing. It keeps
//! some requests in flight; each is an operation that is concurrent with the others. A call is
//! recorded before the request is sent, a reply after it was received.

use crate::scene::{AGENTS, CLIENTS, Scene, server};
use overbank_kit::histories::{Kind, Operation};
use overbank_kv::client::{Client, Completion, Error, Outcome, Request};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads for each server, and the requests that each has in flight.
const THREADS: usize = 2;
const IN_FLIGHT: usize = 12;
/// Keys of each server. Of each fourth, values are deleted, too.
const KEYS: u8 = 8;
/// One operation in ten is a write. With more, the controller leaves the key out.
const WRITES: u32 = 10;
/// A client is gone after as many operations, on average.
const LIFE: u32 = 3000;
/// Operations of a thread at most, however long it is asked to go on.
const OPERATIONS_MAX: usize = 1_000_000;
/// A value that no client has written.
const TORN: u64 = u64::MAX;

/// A key: its server, and its number there.
pub type Name = (usize, u8);

pub struct Recorded {
    pub name: Name,
    pub operation: Operation,
}

/// What became of the operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    /// Those that the device has answered.
    pub hits: u64,
    pub writes: u64,
    pub unanswered: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// Clients that were gone.
    pub gone: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.hits += other.hits;
        self.writes += other.writes;
        self.unanswered += other.unanswered;
        self.repeated += other.repeated;
        self.gone += other.gone;
    }
}

/// Returns the bytes of a value, up to the 128 that the device takes.
fn bytes(value: u64) -> Vec<u8> {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.resize(8 + (value % 121) as usize, value as u8);
    bytes
}

fn value(read: &[u8]) -> u64 {
    let first = read.first_chunk().map(|first| u64::from_be_bytes(*first));
    first.filter(|value| bytes(*value) == read).unwrap_or(TORN)
}

type Recording = JoinHandle<(Vec<Recorded>, Counts)>;

/// Starts clients that do some operations in all, and more until it is `enough` and each server has
/// answered a write since.
pub fn start(
    scene: &Scene,
    (start, round, seed): (Instant, u64, u64),
    operations: usize,
    enough: Arc<AtomicBool>,
) -> Vec<Recording> {
    let threads = AGENTS * THREADS;
    let thread = |nth: usize| {
        let enough = enough.clone();
        scene.net.inside(CLIENTS, move || {
            let thread = Thread {
                server: nth % AGENTS,
                start,
                random: Pcg64::seed_from_u64(seed + nth as u64),
                next: round << 40 | (nth as u64) << 32,
                recorded: Vec::new(),
                open: HashMap::new(),
                counts: Counts::default(),
                enough: None,
                has_written: false,
            };
            thread.run(operations / threads, &enough)
        })
    };
    (0..threads).map(thread).collect()
}

struct Thread {
    server: usize,
    start: Instant,
    random: Pcg64,
    /// The last value that was written.
    next: u64,
    recorded: Vec<Recorded>,
    /// Requests in flight, by their ticket: which operation.
    open: HashMap<u64, usize>,
    counts: Counts,
    /// Since when it is enough; and whether the server has answered a write that began later.
    enough: Option<u64>,
    has_written: bool,
}

impl Thread {
    fn run(mut self, operations: usize, enough: &AtomicBool) -> (Vec<Recorded>, Counts) {
        let mut client = self.client();
        loop {
            if self.enough.is_none() && enough.load(Ordering::Relaxed) {
                self.enough = Some(self.now());
            }
            let most = if self.has_written { operations } else { OPERATIONS_MAX };
            while self.open.len() < IN_FLIGHT.min(most.saturating_sub(self.recorded.len()))
                && self.begin(&mut client)
            {}
            if self.open.is_empty() {
                break;
            }
            let ended = client.poll(Duration::MAX).expect("a socket");
            self.end(ended.expect("each request ends"));
            if self.random.random_ratio(1, LIFE) {
                // As if its process had been killed.
                self.counts.gone += 1;
                self.counts.repeated += client.totals().repeated;
                self.counts.unanswered += self.open.len() as u64;
                self.open.clear();
                client = self.client();
            }
        }
        self.counts.repeated += client.totals().repeated;
        (self.recorded, self.counts)
    }

    fn client(&self) -> Client {
        Client::new(&[server(self.server)]).expect("a socket")
    }

    /// Nanoseconds since the start, above 0.
    fn now(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64
    }

    /// Returns whether there was room: not while 1,024 requests have followed an open one.
    fn begin(&mut self, client: &mut Client) -> bool {
        let key = self.random.random_range(0..KEYS);
        let is_write = self.random.random_ratio(1, WRITES);
        let deletes = is_write && key.is_multiple_of(4) && self.random.random_ratio(1, 3);
        // The device knows keys alone: each belongs to one server.
        let name = [self.server as u8, key];
        let call = self.now();
        let (kind, ticket) = if deletes {
            (Kind::Delete, client.begin(Request::Delete(&name)))
        } else if is_write {
            self.next += 1;
            (Kind::Put(self.next), client.begin(Request::Put(&name, &bytes(self.next))))
        } else {
            (Kind::Read(None), client.begin(Request::Get(&name)))
        };
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(Error::Full { .. }) => return false,
            Err(error) => panic!("{error}"),
        };
        self.open.insert(ticket, self.recorded.len());
        let operation = Operation { kind, call, reply: None };
        self.recorded.push(Recorded { name: (self.server, key), operation });
        true
    }

    fn end(&mut self, Completion { ticket, result, from_device, .. }: Completion) {
        let now = self.now();
        let Some(at) = self.open.remove(&ticket) else { return };
        let operation = &mut self.recorded[at].operation;
        match result {
            Ok(Outcome::Read(read)) => {
                self.counts.reads += 1;
                self.counts.hits += u64::from(from_device);
                operation.kind = Kind::Read(read.map(|read| value(&read)));
                operation.reply = Some(now);
            }
            Ok(Outcome::Written) => {
                self.counts.writes += 1;
                self.has_written |= self.enough.is_some_and(|enough| enough < operation.call);
                operation.reply = Some(now);
            }
            // Given up, or refused: a write may have been applied, or may yet be.
            Err(_) => self.counts.unanswered += 1,
        }
    }
}
