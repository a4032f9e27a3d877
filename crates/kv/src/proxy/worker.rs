//! One thread and its clients: sockets, and which of them may be read and written now.
//!
//! ```text
//!   client ─▶ read ─▶ session ─▶ to_server ─▶ server          one connection to the server for
//!   client ◀─ to_client ◀─ session ◀─ read ◀─ server          each client: a dedicated lane
//! ```
//!
//! # Guarantees
//! - Bounded: clients, and for each of them what it may make wait. A client that does not read
//!   stops being read; the server then buffers for it as it would without us.
//! - A client that leaves with writes under way: the server's connection is drained, for
//!   [`DRAIN`] at most. What has not been answered then keeps its keys out for the longest
//!   staleness.
//! - No client starves another: each has [`ROUNDS`] reads of [`READ`] bytes a turn.

use super::Shared;
use super::session::{End, Session, Turn};
use super::totals::{Closed, ProxyTotals};
use super::ways::Ways;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use overbank::sketch::Counter;
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a read.
const READ: usize = 64 << 10;
/// Reads of a connection in a turn.
const ROUNDS: usize = 16;
/// How long the server's outstanding replies are waited for after the client has left.
const DRAIN: Duration = Duration::from_secs(5);
/// Longest sleep: totals are published, and the end is noticed.
const SLEEP: Duration = Duration::from_millis(100);
const EVENTS: usize = 256;

const LISTENER: Token = Token(0);
/// What other threads wake a worker by.
pub const WAKE: Token = Token(1);
/// The first token of a connection; two for each.
const FIRST: usize = 2;

/// One side of a link.
struct Side {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The system has said that nothing more comes behind what can be read now.
    last: bool,
    /// It sends nothing more.
    ended: bool,
}

impl Side {
    fn new(stream: TcpStream) -> Side {
        Side { stream, readable: false, writable: false, last: false, ended: false }
    }

    /// Reads some bytes; 0 if there are none now, or none any more.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Ok(0) => {
                    (self.ended, self.readable) = (true, false);
                    return Ok(0);
                }
                Ok(count) => {
                    // A short read has emptied the socket; what comes later is an event, but for
                    // an end that has been one.
                    self.readable = count == bytes.len() || self.last;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A client and its connection to the server.
struct Link {
    client: Option<Side>,
    server: Side,
    session: Session,
    /// It is in the list of those that have something to do.
    listed: bool,
    /// The server knows that the client sends nothing more.
    told: bool,
    /// When it is given up, once one side has ended: later with each byte that moves.
    ends: Option<Instant>,
}

/// Whether a link goes on.
enum Then {
    /// It waits for an event.
    Waits,
    /// It has more to do.
    Goes,
    Ends(Closed),
}

/// See the module.
pub struct Worker {
    poll: Poll,
    listener: Option<TcpListener>,
    /// Clients may wait to be accepted.
    accepts: bool,
    shared: Arc<Shared>,
    ways: Ways,
    links: Slab<Box<Link>>,
    /// Links that have something to do.
    busy: Vec<usize>,
    /// Links with a time to end.
    ending: Vec<usize>,
    counter: Counter,
    totals: ProxyTotals,
    at: usize,
    scratch: Box<[u8]>,
}

impl Worker {
    /// Returns the worker number `at`, whose listener is bound, and what wakes it.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn new(
        (shared, at): (Arc<Shared>, usize),
        ways: Ways,
        counter: Counter,
        listener: std::net::TcpListener,
    ) -> io::Result<(Worker, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let worker = Worker {
            poll,
            listener: Some(listener),
            accepts: false,
            shared,
            ways,
            links: Slab::new(),
            busy: Vec::new(),
            ending: Vec::new(),
            counter,
            totals: ProxyTotals::default(),
            at,
            scratch: vec![0; READ].into_boxed_slice(),
        };
        Ok((worker, waker))
    }

    /// Serves until the proxy stops.
    ///
    /// # Errors
    /// The system's poll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        while !self.shared.stop.load(Ordering::Acquire) {
            let sleep = if self.busy.is_empty() { self.sleep() } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(sleep)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.ways.refresh(&self.shared);
            for event in &events {
                match event.token() {
                    LISTENER => self.accepts = true,
                    WAKE => {}
                    Token(token) => {
                        let Some(at) = token.checked_sub(FIRST) else { continue };
                        let Some(link) = self.links.get_mut(at / 2) else { continue };
                        let side = match at % 2 {
                            0 => link.client.as_mut(),
                            _ => Some(&mut link.server),
                        };
                        let Some(side) = side else { continue };
                        side.last |= event.is_read_closed() || event.is_error();
                        side.readable |= event.is_readable() || side.last;
                        side.writable |= event.is_writable() || event.is_write_closed();
                        if !link.listed {
                            link.listed = true;
                            self.busy.push(at / 2);
                        }
                    }
                }
            }
            if self.accepts {
                self.accept();
            }
            for at in std::mem::take(&mut self.busy) {
                self.drive(at);
            }
            self.expire();
            self.publish();
        }
        let all: Vec<usize> = self.links.iter().map(|(at, _)| at).collect();
        for at in all {
            self.close(at, Closed::Stopped);
        }
        self.publish();
        Ok(())
    }

    fn sleep(&self) -> Duration {
        let ends = self.ending.iter().filter_map(|at| self.links.get(*at)?.ends);
        let next = ends.chain(self.ways.late_until()).min();
        next.map_or(SLEEP, |next| next.saturating_duration_since(Instant::now()).min(SLEEP))
    }

    fn publish(&mut self) {
        self.totals.clients = self.links.len() as u64;
        let Some(published) = self.shared.totals.get(self.at) else { return };
        *published.lock().unwrap_or_else(PoisonError::into_inner) = self.totals;
    }

    fn accept(&mut self) {
        loop {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, _)) => self.open(stream),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.accepts = false;
                    return;
                }
                // A client that has left, or no descriptor: the next turn tries again.
                Err(_) => {
                    self.totals.not_accepted += 1;
                    return;
                }
            }
        }
    }

    /// A client has come: the server is called for it.
    fn open(&mut self, mut stream: TcpStream) {
        self.totals.accepted += 1;
        if self.links.len() >= self.shared.clients_max {
            self.totals.closed[Closed::TooMany.index()] += 1;
            // Best effort, as Redis does it.
            let _ = stream.write(b"-ERR max number of clients reached\r\n");
            return;
        }
        let _ = stream.set_nodelay(true);
        let server = self.shared.upstream().and_then(|address| TcpStream::connect(address).ok());
        let Some(mut server) = server else {
            self.totals.closed[Closed::NoServer.index()] += 1;
            return;
        };
        let entry = self.links.vacant_entry();
        let tokens = [0, 1].map(|side| Token(FIRST + 2 * entry.key() + side));
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered = registry
            .register(&mut stream, tokens[0], both)
            .and_then(|()| registry.register(&mut server, tokens[1], both));
        if registered.is_err() {
            self.totals.not_accepted += 1;
            return;
        }
        entry.insert(Box::new(Link {
            client: Some(Side::new(stream)),
            server: Side::new(server),
            session: Session::new(),
            listed: false,
            told: false,
            ends: None,
        }));
    }

    /// Does what a link can do now.
    fn drive(&mut self, at: usize) {
        let Some(link) = self.links.get_mut(at) else { return };
        link.listed = false;
        // What users may is looked at no later than what they ask.
        self.ways.refresh(&self.shared);
        let mut turn = Turn {
            ways: &mut self.ways,
            shared: &self.shared,
            counter: &mut self.counter,
            totals: &mut self.totals,
            now: self.shared.now(),
        };
        match link.turn(&mut turn, &mut self.scratch) {
            Then::Waits => {
                if link.ends.is_some() && !self.ending.contains(&at) {
                    self.ending.push(at);
                }
            }
            Then::Goes => {
                link.listed = true;
                self.busy.push(at);
            }
            Then::Ends(why) => self.close(at, why),
        }
    }

    /// Ends links whose time is up, and marks that waited for one.
    fn expire(&mut self) {
        let now = Instant::now();
        let due = |link: Option<&Box<Link>>| {
            link.is_some_and(|link| link.ends.is_some_and(|ends| ends <= now))
        };
        let (late, waiting): (Vec<usize>, Vec<usize>) =
            self.ending.iter().partition(|at| due(self.links.get(**at)));
        self.ending = waiting;
        self.ending.retain(|at| self.links.get(*at).is_some_and(|link| link.ends.is_some()));
        for at in late {
            self.close(at, Closed::Drained);
        }
        self.ways.release_late(now);
    }

    fn close(&mut self, at: usize, why: Closed) {
        let Some(mut link) = self.links.try_remove(at) else { return };
        self.totals.closed[why.index()] += 1;
        link.session.lost(&mut self.ways, &mut self.totals);
        let registry = self.poll.registry();
        if let Some(client) = &mut link.client {
            let _ = registry.deregister(&mut client.stream);
        }
        let _ = registry.deregister(&mut link.server.stream);
    }
}

impl Link {
    fn turn(&mut self, turn: &mut Turn<'_>, scratch: &mut [u8]) -> Then {
        for _ in 0..ROUNDS {
            let mut moved = false;
            if self.server.readable && self.session.takes_server() {
                match self.server.read(scratch) {
                    Ok(0) => moved |= self.server.ended,
                    Ok(count) => {
                        moved = true;
                        turn.totals.bytes_from_server += count as u64;
                        if self.session.server(&scratch[..count], turn).is_err() {
                            return Then::Ends(Closed::ServerProtocol);
                        }
                    }
                    Err(_) => (self.server.ended, self.server.readable) = (true, false),
                }
            }
            turn.now = turn.shared.now();
            moved |= self.session.resume(turn);
            if let Some(client) = self.client.as_mut()
                && client.readable
                && self.session.takes_client()
            {
                match client.read(scratch) {
                    Ok(0) => moved |= client.ended,
                    Ok(count) => {
                        moved = true;
                        turn.totals.bytes_from_clients += count as u64;
                        // What has expired before it was asked for is not served.
                        turn.now = turn.shared.now();
                        self.session.client(&scratch[..count], turn);
                    }
                    Err(_) => self.client = None,
                }
            }
            match self.write(turn) {
                Ok(written) => moved |= written,
                Err(why) => return Then::Ends(why),
            }
            if moved {
                self.ends = None;
            }
            if let Some(then) = self.over() {
                return then;
            }
            if !moved {
                return Then::Waits;
            }
        }
        Then::Goes
    }

    /// Writes what both sides take.
    fn write(&mut self, turn: &mut Turn<'_>) -> Result<bool, Closed> {
        let mut moved = false;
        let out = &mut self.session.to_server;
        if self.server.writable && !out.is_empty() {
            match out.write(&mut self.server.stream) {
                Ok(count) => {
                    moved |= count > 0;
                    turn.totals.bytes_to_server += count as u64;
                }
                // What it has answered before is still to be read.
                Err(_) => {
                    out.clear();
                    self.server.writable = false;
                }
            }
        }
        let out = &mut self.session.to_client;
        match &mut self.client {
            Some(client) if client.writable && !out.is_empty() => {
                match out.write(&mut client.stream) {
                    Ok(count) => {
                        moved |= count > 0;
                        turn.totals.bytes_to_clients += count as u64;
                    }
                    Err(_) => self.client = None,
                }
            }
            Some(_) => {}
            None => out.clear(),
        }
        Ok(moved)
    }

    /// Returns how it goes on once a side has ended.
    fn over(&mut self) -> Option<Then> {
        let unsent = !self.session.to_client.is_empty();
        if self.server.ended {
            // What it has said still goes to the client.
            if self.client.is_none() || !unsent {
                return Some(Then::Ends(Closed::ByServer));
            }
        } else if self.session.end == Some(End::Refused) {
            if self.client.is_none() || !unsent && self.session.owes_nothing() {
                return Some(Then::Ends(Closed::ClientProtocol));
            }
        } else if self.client.as_ref().is_none_or(|client| client.ended) {
            if self.session.owes_nothing() && !unsent && !self.session.blocks() {
                return Some(Then::Ends(Closed::ByClient));
            }
            // Redis forgets a client that waits once it leaves. Until then it may be answered.
            if self.session.blocks() && !self.told {
                self.told = true;
                if self.server.stream.shutdown(Shutdown::Write).is_err() {
                    return Some(Then::Ends(Closed::ByClient));
                }
            }
        } else {
            return None;
        }
        self.ends.get_or_insert_with(|| Instant::now() + DRAIN);
        None
    }
}
