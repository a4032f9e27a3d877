//! One thread and its clients: sockets, and which of them may be read and written now.
//!
//! ```text
//!   client ─▶ read ─▶ session ─▶ to_server ─┬▶ server       a connection of the client's own
//!   client ◀─ to_client ◀─ session ◀─ read ◀┴─ lane         or one that clients share (`lanes`)
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
use super::lanes::{CLIENT_OUT_MAX, Lane, STALL_MAX, Unasked};
use super::session::{End, Place, Session, Turn};
use super::settings::Lanes;
use super::totals::{Closed, ProxyTotals};
use super::ways::Ways;
use mio::event::Event;
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
const FIRST: usize = 4;
/// The tokens of the shared lanes, for RESP2 and RESP3.
const LANES: std::ops::Range<usize> = 2..FIRST;

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

    /// Something has happened to it.
    fn happens(&mut self, event: &Event) {
        self.last |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || self.last;
        self.writable |= event.is_writable() || event.is_write_closed();
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
    /// Its separate connection to the server.
    server: Option<Side>,
    session: Session,
    /// Its number: places are used again.
    serial: u64,
    /// Replies that it is owed on a shared lane.
    on_lane: u64,
    /// It is in the list of those that wait for room on the lane.
    waits: bool,
    /// How long the lane has waited for it since it last read all.
    stalled: Duration,
    /// It is in the list of those that have something to do.
    listed: bool,
    /// The server knows that the client sends nothing more.
    told: bool,
    /// When it is given up, once one side has ended: later with each byte that moves.
    ends: Option<Instant>,
}

/// Returns whether more can be read of a lane at once: no event says so again.
fn has_more((lane, side): &(Lane, Option<Side>)) -> bool {
    lane.stalled.is_none() && side.as_ref().is_some_and(|side| side.readable)
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
    serials: u64,
    lanes: [(Lane, Option<Side>); 2],
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
            self.ways.refresh(&self.shared);
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
        let entry = self.links.vacant_entry();
        let token = Token(FIRST + 2 * entry.key());
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, token, both).is_err() {
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
            session: Session::new(place),
            serial: self.serials,
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
        let stream = self.shared.upstream().and_then(|address| TcpStream::connect(address).ok());
        let (Some(link), Some(mut stream)) = (self.links.get_mut(at), stream) else {
            return self.close(at, Closed::NoServer);
        };
        let token = Token(FIRST + 2 * at + 1);
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut stream, token, both).is_err() {
            self.totals.not_accepted += 1;
            return self.close(at, Closed::NoServer);
        }
        link.server = Some(Side::new(stream));
        link.session.own();
        link.list(at, &mut self.busy);
    }

    /// Takes what has come on a shared lane to the sessions that asked for it.
    fn read_lane(&mut self, number: usize) {
        if self.waits_for_client(number) {
            return;
        }
        for _ in 0..ROUNDS {
            let Some((lane, Some(side))) = self.lanes.get_mut(number) else { return };
            if !side.readable {
                break;
            }
            let count = match side.read(&mut self.scratch) {
                Ok(count) => count,
                Err(_) => return self.lose_lane(number),
            };
            if side.ended {
                return self.lose_lane(number);
            }
            self.totals.bytes_from_server += count as u64;
            let mut rest = self.scratch.get(..count).unwrap_or_default();
            let mut broken = Vec::new();
            loop {
                let piece = match lane.take(&mut rest) {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(Unasked) => return self.lose_lane(number),
                };
                let (at, serial) = piece.of;
                // Without the client, its replies are dropped.
                let link = self.links.get_mut(at).filter(|link| link.serial == serial);
                let Some(link) = link else { continue };
                let mut turn = Turn {
                    ways: &mut self.ways,
                    shared: &self.shared,
                    counter: &mut self.counter,
                    totals: &mut self.totals,
                    now: 0,
                };
                if link.session.server(piece.bytes, &mut turn).is_err() {
                    broken.push(at);
                    continue;
                }
                link.on_lane -= u64::from(piece.ends);
                link.list(at, &mut self.busy);
                if link.on_lane == 0 && link.session.to_client.len() == piece.bytes.len() {
                    link.stalled = Duration::ZERO;
                }
                if link.session.to_client.len() > CLIENT_OUT_MAX && lane.stalled.is_none() {
                    lane.stalled = Some((piece.of, Instant::now()));
                }
            }
            let stalls = lane.stalled.is_some();
            for at in broken {
                self.close(at, Closed::ServerProtocol);
            }
            if stalls {
                return;
            }
        }
    }

    /// Returns whether a lane is not read since a client does not take what it has asked for.
    fn waits_for_client(&mut self, number: usize) -> bool {
        let Some((lane, _)) = self.lanes.get_mut(number) else { return false };
        let Some(((at, serial), since)) = lane.stalled else { return false };
        let link = self.links.get_mut(at).filter(|link| link.serial == serial);
        lane.stalled = None;
        let Some(link) = link else { return false };
        let is_full = link.session.to_client.len() > CLIENT_OUT_MAX;
        let stalled = link.stalled + since.elapsed();
        if !is_full {
            // One that takes a little now and then does not begin anew each time.
            link.stalled = stalled;
        } else if stalled < STALL_MAX {
            lane.stalled = Some(((at, serial), since));
        } else {
            self.close(at, Closed::Slow);
            return false;
        }
        is_full
    }

    /// Writes what sessions have put on a lane; calls the server if it has to.
    fn write_lane(&mut self, number: usize) {
        let Some((lane, side)) = self.lanes.get_mut(number) else { return };
        if lane.out.is_empty() {
            return;
        }
        if side.is_none() {
            let stream = self.shared.upstream().map(TcpStream::connect);
            let Some(Ok(mut stream)) = stream else { return self.lose_lane(number) };
            let _ = stream.set_nodelay(true);
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = Token(LANES.start + number);
            if self.poll.registry().register(&mut stream, token, both).is_err() {
                return self.lose_lane(number);
            }
            *side = Some(Side::new(stream));
        }
        let Some(side) = side.as_mut().filter(|side| side.writable) else { return };
        match lane.out.write(&mut side.stream) {
            Ok(count) => self.totals.bytes_to_server += count as u64,
            Err(_) => return self.lose_lane(number),
        }
        if !lane.is_full() {
            for at in std::mem::take(&mut lane.waiting) {
                if let Some(link) = self.links.get_mut(at) {
                    link.waits = false;
                    link.list(at, &mut self.busy);
                }
            }
        }
    }

    /// A lane's connection is gone, and with it those that wait for its replies.
    fn lose_lane(&mut self, number: usize) {
        let Some((lane, side)) = self.lanes.get_mut(number) else { return };
        if let Some(mut side) = side.take() {
            let _ = self.poll.registry().deregister(&mut side.stream);
        }
        let (lost, waiting) = (lane.lost(), std::mem::take(&mut lane.waiting));
        for at in waiting {
            if let Some(link) = self.links.get_mut(at) {
                link.waits = false;
                link.list(at, &mut self.busy);
            }
        }
        for (at, serial) in lost {
            if self.links.get(at).is_some_and(|link| link.serial == serial) {
                self.close(at, Closed::ByServer);
            }
        }
    }

    /// Puts what a session has for the server on its shared lane.
    fn share(&mut self, at: usize) {
        let Some(link) = self.links.get_mut(at) else { return };
        if link.server.is_some() {
            return;
        }
        let Some((lane, _)) = self.lanes.get_mut(usize::from(link.session.is_three())) else {
            return;
        };
        let replies = link.session.owed().saturating_sub(link.on_lane);
        if replies > 0 {
            lane.open(link.session.is_three());
            lane.send((at, link.serial), link.session.to_server.bytes(), replies);
            link.on_lane += replies;
            link.session.to_server.clear();
        }
        if lane.is_full()
            && link.session.place() == Place::Shared
            && !std::mem::replace(&mut link.waits, true)
        {
            lane.waiting.push(at);
        }
        if link.session.place() == Place::Leaving && link.on_lane == 0 {
            self.totals.left_lanes += 1;
            self.give_own(at);
        }
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

    fn close(&mut self, at: usize, why: Closed) {
        let Some(mut link) = self.links.try_remove(at) else { return };
        self.totals.closed[why.index()] += 1;
        link.session.lost(&mut self.ways, &mut self.totals);
        let registry = self.poll.registry();
        if let Some(client) = &mut link.client {
            let _ = registry.deregister(&mut client.stream);
        }
        if let Some(server) = &mut link.server {
            let _ = registry.deregister(&mut server.stream);
        }
    }
}

impl Link {
    /// Lists it among those that have something to do.
    fn list(&mut self, at: usize, busy: &mut Vec<usize>) {
        if !self.listed {
            self.listed = true;
            busy.push(at);
        }
    }

    fn turn(&mut self, turn: &mut Turn<'_>, scratch: &mut [u8], has_room: bool) -> Then {
        for _ in 0..ROUNDS {
            let mut moved = false;
            if let Some(server) = &mut self.server
                && server.readable
                && self.session.takes_server()
            {
                match server.read(scratch) {
                    Ok(0) => moved |= server.ended,
                    Ok(count) => {
                        moved = true;
                        turn.totals.bytes_from_server += count as u64;
                        if self.session.server(&scratch[..count], turn).is_err() {
                            return Then::Ends(Closed::ServerProtocol);
                        }
                    }
                    Err(_) => (server.ended, server.readable) = (true, false),
                }
            }
            turn.now = turn.shared.now();
            moved |= has_room && self.session.resume(turn);
            if let Some(client) = self.client.as_mut()
                && client.readable
                && has_room
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
        if let Some(server) = &mut self.server
            && server.writable
            && !out.is_empty()
        {
            match out.write(&mut server.stream) {
                Ok(count) => {
                    moved |= count > 0;
                    turn.totals.bytes_to_server += count as u64;
                }
                // What it has answered before is still to be read.
                Err(_) => {
                    out.clear();
                    server.writable = false;
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
        if self.server.as_ref().is_some_and(|server| server.ended) {
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
                let server = self.server.as_ref();
                if server.is_none_or(|server| server.stream.shutdown(Shutdown::Write).is_err()) {
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
