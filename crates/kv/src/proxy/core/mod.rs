//! The thread of the tracking connection: it alone changes which keys are cached, and by what.
//!
//! ```text
//!   notes of workers ─┐                         ┌─▶ slots
//!   socket ───────────┼─▶ follow ─▶ hot ────────┤
//!   clock ────────────┘                         └─▶ commands and users, for workers
//! ```

mod fills;
mod follow;
mod hot;

pub use self::fills::{Fill, Fills};
pub use self::follow::{BEAT, Follower, Lost, SILENT};
pub use self::hot::{COUNTING, Heat, Hottest, Nanos, SECOND};

/// What decides which keys are hot, in figures.
pub mod heat {
    pub use super::hot::{
        BARRED, CANDIDATES, COUNTING, EPOCH, HOTTER_LEAST, HOTTER_PERCENT, REPORTS, STAYS,
        WAITING_MAX, WRITES_EPOCHS, WRITES_PERCENT,
    };
}

use self::fills::Limits;
use self::follow::Setup;
use self::hot::Hot;
use super::form::Form;
use super::memcached;
use super::protocol;
use super::session::Rules;
use super::settings::{Mode, ProxySettings};
use super::slots::{self, Closing, SlotId};
use super::stream::{Failed, Stream};
use super::upstream::Protocol;
use super::{Shared, locked};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use overbank::sketch::Keeper;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

const STREAM: Token = Token(0);
const WAKE: Token = Token(1);
/// Time between two looks at what is due.
const TICK: Duration = Duration::from_millis(10);
/// Time between two attempts to connect.
const RETRY: Nanos = BEAT;
/// Notes that are taken in a turn.
const NOTES: usize = 4096;
const READ: usize = 64 << 10;

/// What workers tell the core.
pub enum Note {
    /// A read of this key is hot, or could not be answered yet.
    /// `is_hot`: by this form.
    Want { hash: u128, key: Box<[u8]>, form: Form, is_hot: bool },
    /// Writes of this slot's key have been answered, and none is in flight.
    Written(SlotId),
    /// What closed the cache has been answered.
    Replied(Closing),
    /// A user that is not known.
    User(Box<[u8]>),
    /// A key that is not to be cached for a while.
    LeaveOut(u128),
}

/// See the module.
pub struct Core {
    poll: Poll,
    shared: Arc<Shared>,
    notes: Receiver<Note>,
    follower: protocol::Follower,
    rules: Arc<Rules>,
    /// Keys read until the last epoch ended.
    read_keys: u64,
    stream: Option<(Stream, SocketAddr, bool)>,
    next_connect: Nanos,
    next_publish: Nanos,
    /// What was logged last of a failure.
    said: Option<String>,
    scratch: Box<[u8]>,
}

impl Core {
    /// Returns the core, and what wakes it.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn new(
        shared: Arc<Shared>,
        settings: &ProxySettings,
        (slots, keepers): (slots::Core, Vec<Keeper>),
        notes: Receiver<Note>,
    ) -> io::Result<(Core, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let limits = Limits {
            staleness_max: nanos(settings.staleness_max),
            max_age: nanos(settings.age_max()),
            value_max: settings.value_max,
            bytes_max: settings.memory << 20,
            observe: settings.mode == Mode::Observe,
        };
        let fills = Fills::new(slots, Hot::new(keepers, shared.seed), limits);
        let setup = Setup {
            user: settings.upstream.user.clone(),
            password: settings.upstream.password.clone(),
            seed: shared.seed,
        };
        let follower = match settings.upstream.protocol {
            Protocol::Redis => protocol::Follower::Redis(Follower::new(setup, fills)),
            Protocol::Memcached => protocol::Follower::Memcached(memcached::Follower::new(
                shared.flushes.clone(),
                fills,
            )),
        };
        let core = Core {
            poll,
            notes,
            follower,
            rules: shared.rules.load_full(),
            read_keys: 0,
            stream: None,
            next_connect: 0,
            next_publish: 0,
            said: None,
            shared,
            scratch: vec![0; READ].into_boxed_slice(),
        };
        Ok((core, waker))
    }

    /// Follows the server until the proxy stops.
    ///
    /// # Errors
    /// The system's poll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(16);
        while !self.shared.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now = self.shared.now();
            let is_ready = events.iter().any(|event| event.token() == STREAM);
            let result = self.turn(now, is_ready);
            if let Err(why) = result {
                self.lost(&why);
            }
            self.publish(now);
        }
        *locked(&self.shared.core_totals) = self.follower.fills().totals(self.shared.now());
        self.follower.lost();
        Ok(())
    }

    fn turn(&mut self, now: Nanos, is_ready: bool) -> Result<(), Why> {
        self.look_at_name()?;
        if self.stream.is_none() {
            self.connect(now);
        }
        if is_ready {
            self.read(now)?;
        }
        if self.follower.fills().is_ready() {
            self.said = None;
        }
        let rules = self.shared.rules.load_full();
        if !Arc::ptr_eq(&rules, &self.rules) {
            self.follower.fills().retain(|key| rules.may_cache(key));
            self.rules = rules;
        }
        for note in self.notes.try_iter().take(NOTES) {
            match note {
                // A worker may not know the rules of this moment yet.
                Note::Want { key, .. } if !self.rules.may_cache(&key) => {}
                Note::Want { hash, key, form, is_hot } => {
                    self.follower.want(now, (hash, &key), &form, is_hot);
                }
                Note::Written(slot) => self.follower.changed(now, slot),
                Note::Replied(closing) => self.follower.replied(closing),
                Note::User(name) => {
                    if let protocol::Follower::Redis(redis) = &mut self.follower {
                        redis.user(now, &name);
                    }
                }
                Note::LeaveOut(hash) => self.follower.fills().leave_out(now, hash),
            }
        }
        self.follower.tick(now).map_err(io::Error::other)?;
        match &mut self.stream {
            Some((stream, _, true)) => _ = stream.write(self.follower.out())?,
            Some((stream, ..)) => stream.in_time().map_err(io::Error::from)?,
            None => {}
        }
        Ok(())
    }

    /// Looks whether the server's name still stands for its address.
    fn look_at_name(&mut self) -> io::Result<()> {
        let Some(address) = self.shared.upstream() else { return Ok(()) };
        let first = {
            let names = locked(&self.shared.names);
            if names.contains(&address) {
                return Ok(());
            }
            names.first().copied()
        };
        self.go_to(first);
        let gone =
            first.map_or("its name has no address".to_owned(), |at| format!("it is at {at} now"));
        Err(io::Error::other(gone))
    }

    /// The server is at another address: workers leave the old one.
    fn go_to(&self, address: Option<SocketAddr>) {
        self.shared.address.store(address.map(Arc::new));
        // Pairs with `Ways::refresh`.
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Tries the next address of the name, if it has more than one.
    fn try_next(&self, refused: SocketAddr) {
        let names = locked(&self.shared.names).clone();
        let at = names.iter().position(|name| *name == refused).unwrap_or(0);
        let next = names.get(at + 1).or(names.first()).copied();
        if next != Some(refused) {
            self.go_to(next);
        }
    }

    fn connect(&mut self, now: Nanos) {
        let Some(address) = self.shared.upstream().filter(|_| now >= self.next_connect) else {
            return;
        };
        self.next_connect = now + RETRY;
        let opened = TcpStream::connect(address).and_then(|mut socket| {
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, STREAM, both)?;
            Stream::of_server(socket, &self.shared.tls.load())
        });
        match opened {
            Ok(stream) => self.stream = Some((stream, address, false)),
            Err(error) => self.lost(&error.into()),
        }
    }

    /// Reads what has come; the first event says whether the connection stands.
    fn read(&mut self, now: Nanos) -> io::Result<()> {
        let Some((stream, _, stands)) = &mut self.stream else { return Ok(()) };
        if !*stands {
            if !stream.stands()? {
                return Ok(());
            }
            *stands = true;
            stream.socket().set_nodelay(true)?;
            self.follower.connected(now);
        }
        loop {
            let Some((stream, ..)) = &mut self.stream else { return Ok(()) };
            match stream.read(&mut self.scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let bytes = self.scratch.get(..count).unwrap_or_default();
                    self.follower.bytes(now, bytes).map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection is lost. Logs the reason, the same one once.
    fn lost(&mut self, Why { why, remedy }: &Why) {
        if self.said.as_ref() != Some(why) {
            tracing::warn!(%why, "the server is not followed: nothing is cached; {remedy}");
            self.said = Some(why.clone());
        }
        if let Some((mut stream, address, stood)) = self.stream.take() {
            if !stood {
                self.try_next(address);
            }
            stream.close();
            // It is closed with the stream in any case.
            let _ = self.poll.registry().deregister(stream.socket());
        }
        self.follower.lost();
    }

    fn publish(&mut self, now: Nanos) {
        if let protocol::Follower::Redis(redis) = &mut self.follower {
            self.shared.is_cluster.store(redis.is_cluster(), Ordering::Relaxed);
            if let Some((commands, users, greeting)) = redis.news() {
                self.shared.greeting.store(greeting.map(Arc::new));
                self.shared.commands.store(commands);
                self.shared.users.store(Arc::new(users));
                // Pairs with `Ways::refresh`.
                self.shared.version.fetch_add(1, Ordering::Release);
            }
            redis.published();
        }
        if let Some(keys) = self.follower.fills().take_hottest() {
            let all = self.shared.totals.iter().map(|totals| locked(totals).read_keys).sum::<u64>();
            let reads = all - std::mem::replace(&mut self.read_keys, all);
            *locked(&self.shared.hottest) = Heat { keys, reads };
        }
        if now >= self.next_publish {
            self.next_publish = now + BEAT;
            *locked(&self.shared.core_totals) = self.follower.fills().totals(now);
        }
    }
}

/// Why the server is not followed, and what may help.
struct Why {
    why: String,
    remedy: &'static str,
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Why {
        let remedy = match Failed::of(&error) {
            Some(failed) => failed.remedy(),
            None => {
                "upstream must name it, with user and password if it asks for them, and be \
                rediss:// if it speaks TLS"
            }
        };
        Why { why: error.to_string(), remedy }
    }
}
