//! One thread and its clients: sockets, and which of them may be read and written now.
//!
//! ```text
//!   client ─▶ read ─▶ session ─▶ to_server ─┬▶ server       a connection of the client's own
//!   client ◀─ to_client ◀─ session ◀─ read ◀┴─ lane         or one that clients share (`lanes`)
//! ```
//!
//! `link` is a client and its bytes, `lane` the shared lanes' sockets.
//!
//! # Guarantees
//! - Bounded: clients, and for each of them what it may make wait. A client that does not read
//!   stops being read; the server then buffers for it as it would without us.
//! - A client that leaves with writes under way: the server's connection is drained, for
//!   [`DRAIN`] at most. What has not been answered then keeps its keys out for the longest
//!   staleness.
//! - No client starves another: each has [`ROUNDS`] reads of [`READ`] bytes a turn.

mod lane;
mod link;

use self::lane::has_more;
use self::link::{Link, Side, Then};
use super::Shared;
use super::lanes::Lane;
use super::protocol::Session;
use super::session::{Place, Turn};
use super::settings::Lanes;
use super::stream::{Stream, reason};
use super::totals::{Closed, ProxyTotals};
use super::upstream::Protocol;
use super::ways::Ways;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use overbank::sketch::Counter;
use slab::Slab;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
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
/// Time between two looks for handshakes that take too long.
const LOOK: Duration = Duration::from_secs(1);
const EVENTS: usize = 256;

const LISTENER: Token = Token(0);
/// What other threads wake a worker by.
pub const WAKE: Token = Token(1);
/// The first token of a connection; two for each.
const FIRST: usize = 4;
/// The tokens of the shared lanes, for RESP2 and RESP3.
const LANES: std::ops::Range<usize> = 2..FIRST;

/// See the module.
pub struct Worker {
    poll: Poll,
    listener: Option<TcpListener>,
    /// Clients may wait to be accepted.
    accepts: bool,
    /// Where the server was, and whether it let clients in without a password.
    address: Option<SocketAddr>,
    was_open: bool,
    shared: Arc<Shared>,
    ways: Ways,
    links: Slab<Box<Link>>,
    serials: u64,
    lanes: [(Lane, Option<Side>); 2],
    /// Links that have something to do.
    busy: Vec<usize>,
    /// Links with a time to end.
    ending: Vec<usize>,
    /// A side speaks TLS; when handshakes were looked at.
    has_tls: bool,
    looked: Instant,
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
            address: shared.upstream(),
            was_open: false,
            has_tls: shared.tls.load().is_any(),
            looked: Instant::now(),
            shared,
            ways,
            links: Slab::new(),
            serials: 0,
            lanes: Default::default(),
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
            let has_more = !self.busy.is_empty() || self.lanes.iter().any(has_more);
            let sleep = if has_more { Duration::ZERO } else { self.sleep() };
            match self.poll.poll(&mut events, Some(sleep)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.refresh();
            for event in &events {
                match event.token() {
                    LISTENER => self.accepts = true,
                    WAKE => {}
                    Token(token) if LANES.contains(&token) => {
                        let lane = self.lanes.get_mut(token - LANES.start);
                        if let Some(side) = lane.and_then(|(_, side)| side.as_mut()) {
                            side.happens(event);
                        }
                    }
                    Token(token) => {
                        let Some(at) = token.checked_sub(FIRST) else { continue };
                        let Some(link) = self.links.get_mut(at / 2) else { continue };
                        let side = match at % 2 {
                            0 => link.client.as_mut(),
                            _ => link.server.as_mut(),
                        };
                        let Some(side) = side else { continue };
                        side.happens(event);
                        link.list(at / 2, &mut self.busy);
                    }
                }
            }
            if self.accepts {
                self.accept();
            }
            for lane in 0..self.lanes.len() {
                self.read_lane(lane);
            }
            for at in std::mem::take(&mut self.busy) {
                self.drive(at);
            }
            for lane in 0..self.lanes.len() {
                self.write_lane(lane);
            }
            self.expire();
            if self.has_tls && self.looked.elapsed() >= LOOK {
                self.end_late();
            }
            self.publish();
        }
        let all: Vec<usize> = self.links.iter().map(|(at, _)| at).collect();
        for at in all {
            self.close(at, Closed::Stopped);
        }
        self.publish();
        Ok(())
    }

    /// Takes what is new. Clients leave an old address of the server. Those without a password
    /// leave that have come since the server last said that it asks for none.
    fn refresh(&mut self) {
        if !self.ways.refresh(&self.shared) {
            return;
        }
        let address = self.shared.upstream();
        let has_moved = std::mem::replace(&mut self.address, address) != address;
        if has_moved {
            for lane in 0..self.lanes.len() {
                self.lose_lane(lane, Closed::ByServer);
            }
        }
        let is_open = self.ways.is_open();
        let has_closed = std::mem::replace(&mut self.was_open, is_open) && !is_open;
        let open_at = self.ways.open_at();
        let leaves = |link: &Link| match link.server {
            Some(_) => has_moved,
            None => has_closed && link.accepted >= open_at,
        };
        let links = self.links.iter().filter(|(_, link)| leaves(link));
        let all: Vec<usize> = links.map(|(at, _)| at).collect();
        for at in all {
            self.close(at, Closed::Moved);
        }
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
    fn open(&mut self, socket: TcpStream) {
        self.totals.accepted += 1;
        let _ = socket.set_nodelay(true);
        let mut stream = match Stream::of_client(socket, &self.shared.tls.load()) {
            Ok(stream) => stream,
            Err(error) => {
                let why = reason(&error, Closed::ByClient);
                self.totals.closed[why.index()] += 1;
                return;
            }
        };
        if self.links.len() >= self.shared.clients_max {
            self.totals.closed[Closed::TooMany.index()] += 1;
            if let Stream::Plain(socket) = &mut stream {
                // Best effort, as the servers do it.
                let _ = socket.write(match self.shared.protocol {
                    Protocol::Redis => b"-ERR max number of clients reached\r\n",
                    Protocol::Memcached => b"ERROR Too many open connections\r\n",
                });
            }
            return;
        }
        let entry = self.links.vacant_entry();
        let token = Token(FIRST + 2 * entry.key());
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(stream.socket(), token, both).is_err() {
            self.totals.not_accepted += 1;
            return;
        }
        // While ACL SETUSER is on its way, the server alone knows.
        let shares = self.shared.lanes == Lanes::Shared
            && self.ways.is_open()
            && !self.ways.slots.is_closed();
        let place = if shares { Place::Shared } else { Place::Leaving };
        self.serials += 1;
        let at = entry.key();
        entry.insert(Box::new(Link {
            client: Some(Side::new(stream)),
            server: None,
            session: Session::new(self.shared.protocol, place),
            serial: self.serials,
            accepted: self.shared.now(),
            on_lane: 0,
            waits: false,
            stalled: Duration::ZERO,
            listed: false,
            told: false,
            ends: None,
        }));
        if !shares {
            self.give_own(at);
        }
    }

    /// Calls the server for one client.
    fn give_own(&mut self, at: usize) {
        let socket = self.shared.upstream().and_then(|address| TcpStream::connect(address).ok());
        let stream = socket.map(|socket| Stream::of_server(socket, &self.shared.tls.load()));
        let (Some(link), Some(Ok(mut stream))) = (self.links.get_mut(at), stream) else {
            return self.close(at, Closed::NoServer);
        };
        let token = Token(FIRST + 2 * at + 1);
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(stream.socket(), token, both).is_err() {
            self.totals.not_accepted += 1;
            return self.close(at, Closed::NoServer);
        }
        link.server = Some(Side::new(stream));
        link.session.own();
        link.list(at, &mut self.busy);
    }

    /// Does what a link can do now.
    fn drive(&mut self, at: usize) {
        // What users may, and where the server is, is looked at no later than what they ask.
        self.refresh();
        let Some(link) = self.links.get_mut(at) else { return };
        link.listed = false;
        let mut turn = Turn {
            ways: &mut self.ways,
            shared: &self.shared,
            counter: &mut self.counter,
            totals: &mut self.totals,
            now: self.shared.now(),
        };
        let lane = self.lanes.get(usize::from(link.session.is_three()));
        let has_room = link.server.is_some() || lane.is_none_or(|(lane, _)| !lane.is_full());
        let then = link.turn(&mut turn, &mut self.scratch, has_room);
        self.share(at);
        let Some(link) = self.links.get_mut(at) else { return };
        match then {
            Then::Waits => {
                if link.ends.is_some() && !self.ending.contains(&at) {
                    self.ending.push(at);
                }
            }
            Then::Goes => link.list(at, &mut self.busy),
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

    /// Ends connections whose handshake takes too long.
    fn end_late(&mut self) {
        self.looked = Instant::now();
        let is_late =
            |side: &Option<Side>| side.as_ref().is_some_and(|side| side.stream.in_time().is_err());
        for lane in 0..self.lanes.len() {
            if self.lanes.get(lane).is_some_and(|(_, side)| is_late(side)) {
                self.lose_lane(lane, Closed::Tls);
            }
        }
        let late = |link: &Link| is_late(&link.client) || is_late(&link.server);
        let links = self.links.iter().filter(|(_, link)| late(link));
        for at in links.map(|(at, _)| at).collect::<Vec<usize>>() {
            self.close(at, Closed::Tls);
        }
    }

    fn close(&mut self, at: usize, why: Closed) {
        let Some(mut link) = self.links.try_remove(at) else { return };
        self.totals.closed[why.index()] += 1;
        let mut turn = Turn {
            ways: &mut self.ways,
            shared: &self.shared,
            counter: &mut self.counter,
            totals: &mut self.totals,
            now: 0,
        };
        link.session.lost(&mut turn);
        let registry = self.poll.registry();
        for side in [&mut link.client, &mut link.server].into_iter().flatten() {
            side.stream.close();
            let _ = registry.deregister(side.stream.socket());
        }
    }
}
