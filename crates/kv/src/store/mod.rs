//! What an agent asks: values by key, in memory or in another program.
//!
//! ```text
//!   agent ─ ask ─▶ Memory: answers at once
//!           ask ─▶ Behind: a queue ─▶ a thread: all that waits in one batch ─▶ Redis, memcached
//!         ◀─ answers ── a queue ◀────────────────────┘ one connection, in order
//! ```
//!
//! # Guarantees
//! - What is asked for is done in the order of asking, so also for each key. The agent has at most
//!   one write of a key at its store.
//! - Each question gets one answer, [`Answer::Failed`] if the store cannot be reached, refuses, or
//!   does not answer in time: `store-timeout` for a batch.
//! - **A write whose outcome is unknown** ([`Answer::Failed`] after it was sent) may have been done
//!   or not. The client gets that as an answer, and a repetition gets the same one. For a key that
//!   the device caches, the agent reads the value afterwards, and the device gets what the store
//!   has. That is right only if the write is not done later still, by a server that finds it in the
//!   buffer of a connection that we have given up. So a store ends the old
//!   connection at the server before it asks by a new one: Redis does that on request. memcached
//!   cannot; see `memcached.rs` for what is left there.
//! - Bounded: the agent's `waiting` requests, and as many reads as keys are cached.

mod memcached;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(test)]
mod tests;

pub use memory::Memory;
use overbank_netcache::agent::{Answer, Ask};
use overbank_wire::netcache::Key;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most questions of a batch.
const BATCH: usize = 512;
/// Time between two attempts to connect; what is asked for in between fails.
const RETRY: Duration = Duration::from_millis(100);

/// What is wrong with Redis as a store of a program that was built without.
#[cfg(not(feature = "redis"))]
pub const WITHOUT_REDIS: &str =
    "this program was built without Redis; build it with --features kv-stores";

/// Answers by the number of their question.
pub type Answers = Vec<(u64, Answer)>;

/// What holds the values.
pub trait Store: Send {
    /// Takes a question. The answer comes into `answers`, now or by a later call.
    fn ask(&mut self, number: u64, key: Key, ask: Ask, answers: &mut Answers);

    /// Takes the answers that have come.
    fn answers(&mut self, answers: &mut Answers);

    /// Returns the values and the bytes that they take, if it knows.
    fn held(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Where the values are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the agent's memory: gone with it.
    Memory,
    /// In Redis, by its URL.
    Redis(String),
    /// In memcached.
    Memcached(String),
}

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{place}: {what}")]
    Address { place: String, what: String },
    #[error("cannot start a thread or wake it: {0}")]
    System(#[from] io::Error),
}

impl Place {
    /// Returns the address without a password.
    pub fn shown(&self) -> String {
        match self {
            Place::Memory => "memory".to_owned(),
            Place::Memcached(place) => format!("memcached://{place}"),
            Place::Redis(url) => {
                let place =
                    url.rsplit_once('@').map_or(url.trim_start_matches("redis://"), |(_, at)| at);
                format!("redis://{place}")
            }
        }
    }

    /// Returns whether values outlive the agent.
    pub fn outlives(&self) -> bool {
        *self != Place::Memory
    }

    /// Opens the store. Programs need not answer yet: what is asked for fails until they do. `name`
    /// is that of the agent there; `wake` gets a byte when answers have come.
    ///
    /// # Errors
    /// Fails if the address is wrong.
    pub fn open(
        &self,
        name: &str,
        memory_bytes: u64,
        timeout: Duration,
        wake: UnixStream,
    ) -> Result<Box<dyn Store>, StoreError> {
        let wrong = |place: &str, what: String| {
            let place = place.to_owned();
            StoreError::Address { place, what }
        };
        Ok(match self {
            Place::Memory => Box::new(Memory::new(memory_bytes)),
            Place::Memcached(place) => {
                let backend = memcached::Memcached::new(place, timeout);
                Box::new(Behind::start(backend.map_err(|what| wrong(place, what))?, wake)?)
            }
            #[cfg(feature = "redis")]
            Place::Redis(url) => {
                let backend = redis::Redis::new(url, name, timeout);
                Box::new(Behind::start(backend.map_err(|what| wrong(&self.shown(), what))?, wake)?)
            }
            #[cfg(not(feature = "redis"))]
            Place::Redis(_) => return Err(wrong(name, WITHOUT_REDIS.to_owned())),
        })
    }
}

/// A program that holds values, over one connection.
trait Backend: Send + 'static {
    /// Connects, and has the server end the connection that was there before.
    ///
    /// # Errors
    /// Fails with the reason.
    fn connect(&mut self) -> Result<(), String>;

    /// Asks for all of `batch` and adds an answer for each, in its order.
    ///
    /// # Errors
    /// Fails with the reason if the connection is of no use any more. The questions that have no
    /// answer then have failed, or an unknown outcome.
    fn batch(&mut self, batch: &[(Key, Ask)], answers: &mut Vec<Answer>) -> Result<(), String>;
}

type Question = (u64, Key, Ask);

/// A store behind a thread of its connection.
struct Behind {
    ask: Option<Sender<Question>>,
    answers: Receiver<Answers>,
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    fn start(backend: impl Backend, wake: UnixStream) -> io::Result<Behind> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let serve = move || {
            Serving { backend, connected: false, tried: None, said: None }
                .serve(&asked, &answer, &wake)
        };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(serve)?;
        Ok(Behind { ask: Some(ask), answers, thread: Some(thread) })
    }
}

impl Store for Behind {
    fn ask(&mut self, number: u64, key: Key, ask: Ask, answers: &mut Answers) {
        let sent = self.ask.as_ref().is_some_and(|to| to.send((number, key, ask)).is_ok());
        if !sent {
            answers.push((number, Answer::Failed));
        }
    }

    fn answers(&mut self, answers: &mut Answers) {
        answers.extend(self.answers.try_iter().flatten());
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // The thread ends with the queue, after what is in it.
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the thread.
            let _ = thread.join();
        }
    }
}

/// The thread of a connection.
struct Serving<B> {
    backend: B,
    connected: bool,
    /// The last attempt to connect.
    tried: Option<Instant>,
    /// What was logged last of a failure.
    said: Option<String>,
}

impl<B: Backend> Serving<B> {
    fn serve(mut self, asked: &Receiver<Question>, answer: &Sender<Answers>, wake: &UnixStream) {
        self.connect();
        while let Ok(first) = asked.recv() {
            let more = asked.try_iter().take(BATCH - 1);
            let (numbers, batch): (Vec<u64>, Vec<(Key, Ask)>) =
                std::iter::once(first).chain(more).map(|(n, key, ask)| (n, (key, ask))).unzip();
            let mut answers = Vec::with_capacity(batch.len());
            if self.connect() {
                let done = self.backend.batch(&batch, &mut answers);
                done.unwrap_or_else(|why| self.failed(why));
            }
            answers.resize(batch.len(), Answer::Failed);
            if answer.send(numbers.into_iter().zip(answers).collect()).is_err() {
                return;
            }
            // A full pipe wakes as well.
            let _ = (&mut &*wake).write(&[0]);
        }
    }

    fn connect(&mut self) -> bool {
        let is_early = self.tried.is_some_and(|tried| tried.elapsed() < RETRY);
        if self.connected || is_early {
            return self.connected;
        }
        match self.backend.connect() {
            Ok(()) => {
                tracing::info!("connected to the store");
                (self.connected, self.said) = (true, None);
            }
            Err(why) => self.failed(why),
        }
        self.tried = Some(Instant::now());
        self.connected
    }

    /// Logs a failure, the same one once.
    fn failed(&mut self, why: String) {
        self.connected = false;
        if self.said.as_ref() != Some(&why) {
            tracing::warn!(%why, "the store is unavailable: requests are refused until it answers");
        }
        self.said = Some(why);
    }
}

/// Resolves `host:port`.
fn resolve(place: &str) -> Result<Vec<SocketAddr>, String> {
    use std::net::ToSocketAddrs;
    let found = place.to_socket_addrs().map_err(|error| error.to_string())?;
    Ok(found.collect())
}
