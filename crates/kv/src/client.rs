//! The client library: requests of one process to several servers, each key to one of them.
//!
//! ```
//! use overbank_kv::client::{Client, Error};
//!
//! fn visits(client: &mut Client) -> Result<usize, Error> {
//!     client.put(b"page", b"42")?;
//!     Ok(client.get(b"page")?.map_or(0, |value| value.len()))
//! }
//! ```
//!
//! [`Client::get`], [`Client::put`] and [`Client::delete`] wait for the answer. [`Client::begin`]
//! does not: up to 1,024 requests to each server are in flight, and [`Client::poll`] returns what
//! has ended, in any order. Both may be mixed.
//!
//! # Guarantees
//! - Each key belongs to one server (`netcache::client::server_of`), the same for all clients with
//!   the same list of servers in the same order.
//! - A write is applied at most once, however often it is sent. After [`Error::GaveUp`] or
//!   [`Error::Refused`] it may have been applied; later writes of the key do not undo that order.
//! - Requests of one key that are in flight together may be done in any order.
//! - Only answers count that come from the request's server, with its client and its number.
//!   Others are counted ([`Totals`]).
//! - A request ends at most 3 s after it began (`netcache::client`), if the client is called.
//! - Memory: the requests in flight.
//!
//! Panics: none.

use crate::key::{self, Encoded, Hash, KEY_MAX, VALUE_MAX_V6};
use crate::udp::{DATAGRAM_MAX, Udp, canonical};
use overbank_netcache::Micros;
use overbank_netcache::client::{End, Ended, Requests, Totals as Begun, Unmatched, server_of};
use overbank_wire::netcache::{FLAG_BYPASS, Message, Op, Refused, Stamp, Status, VALUE_MAX};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Datagrams that are read before requests are repeated.
const BURST: usize = 64;
/// Bytes that the kernel keeps of what was not read yet.
const RECEIVE_BYTES: usize = 4 << 20;

/// A request has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no server; give at least one")]
    NoServer,
    /// Its answers could not be told from those of others.
    #[error("{server}: must be the address and port of one server, and given once")]
    Address { server: SocketAddr },
    #[error("a key of {len} bytes: must have at most {KEY_MAX}")]
    KeyTooLong { len: usize },
    #[error("a value of {len} bytes: must have at most {max} under this key")]
    ValueTooLong { len: usize, max: usize },
    /// As many requests are in flight as may be: [`Client::poll`] first.
    #[error("{server}: as many requests are in flight as a server remembers")]
    Full { server: SocketAddr },
    /// A write may have been applied, or not.
    #[error("{server}: no answer")]
    GaveUp { server: SocketAddr },
    #[error("{server}: {}", of(*.status))]
    Refused { server: SocketAddr, status: Status },
    /// The server has the value of another key with the same hash, or one that another program has
    /// written.
    #[error("{server}: the value is of another key with the same hash")]
    Collision { server: SocketAddr },
    #[error("{server}: cannot send: {source}")]
    NotSent { server: SocketAddr, source: io::Error },
    #[error("the socket: {0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// Returns its name in counts.
    pub const fn name(&self) -> &'static str {
        match self {
            Error::NoServer | Error::Address { .. } => "address",
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => "too_long",
            Error::Full { .. } => "full",
            Error::GaveUp { .. } => "gave_up",
            Error::Refused { status: Status::Busy, .. } => "busy",
            Error::Refused { .. } => "refused",
            Error::Collision { .. } => "collision",
            Error::NotSent { .. } => "not_sent",
            Error::Io(_) => "io",
        }
    }
}

fn of(status: Status) -> &'static str {
    match status {
        Status::TooLong => "the value is longer than the server takes",
        Status::TooOld => "the server remembers later requests of this client",
        Status::Busy => "the server has as many requests as it takes; try again later",
        Status::Refused => "the store has failed or is full; a write may have been applied or not",
        Status::Ok | Status::Stale | Status::Absent => "refused",
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Get(&'a [u8]),
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// What a request has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key's value; `None`: it has none.
    Read(Option<Vec<u8>>),
    Written,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// What [`Client::begin`] has returned.
    pub ticket: u64,
    pub result: Result<Outcome, Error>,
    /// Whether a device on the path has answered.
    pub from_device: bool,
    pub took: Duration,
}

overbank_declare::counters! {
    /// What a client has counted.
    pub struct Totals: "overbank_kv_client_" {
        begun: counter requests "Requests that began";
        repeated: counter requests "Requests that were sent again";
        busy: counter answers "Answers that the server is busy";
        gave_up: counter requests "Requests that were given up";
        received: counter datagrams "Datagrams received";
        answers: counter answers "Answers that ended a request, or said that the server is busy";
        malformed[Refused]: counter datagrams "Datagrams that are no message";
        strangers: counter datagrams "Datagrams from an address of no server";
        unmatched[Unmatched]: counter answers "Answers that end no request";
        collisions: counter answers "Values of another key with the same hash";
        not_sent: counter datagrams "Datagrams that the kernel did not send";
    }
}

/// What is known of a request in flight.
#[derive(Debug)]
struct Asked {
    ticket: u64,
    /// The key, where values have it in front of them.
    hashed: Option<Arc<[u8]>>,
    /// When it began, if it goes around the device.
    bypasses: Option<Micros>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    requests: Requests,
    asked: HashMap<u64, Asked>,
    /// Why the last datagram was not sent.
    not_sent: Option<io::Error>,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    udp: Udp,
    servers: Vec<Server>,
    by_address: HashMap<SocketAddr, usize>,
    hash: Hash,
    start: Instant,
    ticket: u64,
    ended: VecDeque<Completion>,
    totals: Totals,
    room: Vec<u8>,
}

/// Returns a number that strangers cannot guess.
pub(crate) fn unguessable() -> io::Result<u64> {
    getrandom::u64().map_err(io::Error::other)
}

impl Client {
    /// Returns a client of these servers. It sends nothing yet.
    ///
    /// # Errors
    /// Fails without servers, or if the system has no socket or no random number.
    pub fn new(servers: &[SocketAddr]) -> Result<Client, Error> {
        Client::with_hash(servers, key::hash)
    }

    /// Returns a client whose long keys are hashed in another way: for tests.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_hash(servers: &[SocketAddr], hash: Hash) -> Result<Client, Error> {
        let is_v6 = servers.iter().any(SocketAddr::is_ipv6);
        let any = if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let udp = Udp::bind(SocketAddr::new(any, 0), RECEIVE_BYTES)?;
        let server = |address: &SocketAddr| {
            let requests = Requests::new(unguessable()?);
            let address = canonical(*address);
            Ok(Server { address, requests, asked: HashMap::new(), not_sent: None })
        };
        let servers = servers.iter().map(server).collect::<Result<Vec<Server>, Error>>()?;
        if servers.is_empty() {
            return Err(Error::NoServer);
        }
        let mut by_address = HashMap::new();
        for (at, &Server { address, .. }) in servers.iter().enumerate() {
            let is_one = !address.ip().is_unspecified() && !address.ip().is_multicast();
            if !is_one || address.port() == 0 || by_address.insert(address, at).is_some() {
                return Err(Error::Address { server: address });
            }
        }
        Ok(Client {
            udp,
            servers,
            by_address,
            hash,
            start: Instant::now(),
            ticket: 0,
            ended: VecDeque::new(),
            totals: Totals::default(),
            room: vec![0; DATAGRAM_MAX],
        })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails without an answer, or if the answer is no value of this key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.ask(Request::Get(key))? {
            Outcome::Read(value) => Ok(value),
            Outcome::Written => Ok(None),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Fails if key or value are too long, or without the answer that it is done.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.ask(Request::Put(key, value)).map(drop)
    }

    /// Removes the value of a key, if it has one.
    ///
    /// # Errors
    /// Fails without the answer that it is done.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.ask(Request::Delete(key)).map(drop)
    }

    fn ask(&mut self, request: Request<'_>) -> Result<Outcome, Error> {
        let ticket = loop {
            match self.begin(request) {
                Err(Error::Full { .. }) => self.step(Duration::MAX)?,
                begun => break begun?,
            }
        };
        loop {
            if let Some(at) = self.ended.iter().position(|ended| ended.ticket == ticket)
                && let Some(ended) = self.ended.remove(at)
            {
                return ended.result;
            }
            self.step(Duration::MAX)?;
        }
    }

    /// Begins a request and returns its ticket.
    ///
    /// # Errors
    /// Fails if key or value are too long, or as many requests are in flight as may be.
    pub fn begin(&mut self, request: Request<'_>) -> Result<u64, Error> {
        let (op, key, value) = match request {
            Request::Get(key) => (Op::Get, key, &[][..]),
            Request::Put(key, value) => (Op::Put, key, value),
            Request::Delete(key) => (Op::Delete, key, &[][..]),
        };
        if key.len() > KEY_MAX {
            return Err(Error::KeyTooLong { len: key.len() });
        }
        let encoded = Encoded::new(key, self.hash);
        let at = server_of(encoded.key, self.servers.len());
        let server = self.servers[at].address;
        let most = if server.is_ipv6() { VALUE_MAX_V6 } else { VALUE_MAX };
        let max = most.saturating_sub(encoded.overhead(key));
        if value.len() > max {
            return Err(Error::ValueTooLong { len: value.len(), max });
        }
        let hashed: Option<Arc<[u8]>> = encoded.is_hashed.then(|| key.into());
        let value: Arc<[u8]> = match &hashed {
            Some(key) if op == Op::Put => key::wrap(key, value).into(),
            _ => value.into(),
        };
        let asked = Asked { ticket: self.ticket + 1, hashed, bypasses: None };
        let now = self.now();
        if !self.send_new(at, now, (op, 0), encoded.key, value, asked) {
            return Err(Error::Full { server });
        }
        self.ticket += 1;
        Ok(self.ticket)
    }

    /// Returns a request that has ended; waits for one for `wait` at most. `None`: none has, or
    /// none is in flight.
    ///
    /// # Errors
    /// Fails if the socket does.
    pub fn poll(&mut self, wait: Duration) -> Result<Option<Completion>, Error> {
        let until = Instant::now().checked_add(wait);
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Ok(Some(ended));
            }
            let left = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            self.step(left)?;
            if self.ended.is_empty() && (left.is_zero() || self.in_flight() == 0) {
                return Ok(None);
            }
        }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.servers.iter().map(|server| server.requests.open()).sum()
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        let begun = self.servers.iter().map(|server| server.requests.totals());
        let sum = |of: fn(&Begun) -> u64| begun.clone().map(|totals| of(&totals)).sum();
        Totals {
            begun: sum(|t| t.begun),
            repeated: sum(|t| t.repeated),
            busy: sum(|t| t.busy),
            gave_up: sum(|t| t.gave_up),
            ..self.totals
        }
    }

    fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Takes what has come and repeats what is due; if nothing has ended, waits for `wait` at most.
    fn step(&mut self, wait: Duration) -> Result<(), Error> {
        let due = self.turn()?;
        if !self.ended.is_empty() || self.in_flight() == 0 {
            return Ok(());
        }
        let due = due.map_or(wait, |due| wait.min(Duration::from_micros(due)));
        if !due.is_zero() {
            self.udp.wait(None, due)?;
            self.turn()?;
        }
        Ok(())
    }

    /// Returns the microseconds until something is due.
    fn turn(&mut self) -> Result<Option<Micros>, Error> {
        let mut room = std::mem::take(&mut self.room);
        let received = self.receive(&mut room);
        self.room = room;
        received?;
        let (now, mut due) = (self.now(), None::<Micros>);
        for at in 0..self.servers.len() {
            let (mut again, mut ended) = (Vec::new(), Vec::new());
            let next = self.servers[at].requests.tick(now, &mut again, &mut ended);
            again.into_iter().for_each(|request| self.send(at, request));
            ended.into_iter().for_each(|end| self.end(at, end));
            due = due.into_iter().chain(next).min();
        }
        Ok(due.map(|due| due.saturating_sub(now)))
    }

    fn receive(&mut self, room: &mut [u8]) -> io::Result<()> {
        for _ in 0..BURST {
            let Some((len, from)) = self.udp.receive(room)? else { break };
            self.totals.received += 1;
            self.take(&room[..len], from);
        }
        Ok(())
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        let message = match Message::parse(datagram) {
            Ok(message) => message,
            Err(why) => {
                self.totals.malformed[why.index()] += 1;
                return;
            }
        };
        let Some(&at) = self.by_address.get(&from) else {
            self.totals.strangers += 1;
            return;
        };
        let now = self.now();
        let answered = self.servers[at].requests.answer(now, &message);
        match answered {
            Err(why) => self.totals.unmatched[why.index()] += 1,
            Ok(end) => {
                self.totals.answers += 1;
                end.into_iter().for_each(|end| self.end(at, end));
            }
        }
    }

    fn end(&mut self, at: usize, end: End) {
        let server = &mut self.servers[at];
        let Some(asked) = server.asked.remove(&end.request) else { return };
        let address = server.address;
        let now = self.start.elapsed().as_micros() as Micros;
        let took = asked.bypasses.map_or(end.took_us, |begun| now.saturating_sub(begun));
        let (mut from_device, key) = (false, asked.hashed.clone());
        let result = match end.ended {
            Ended::GaveUp(Status::Busy) => {
                Err(Error::Refused { server: address, status: Status::Busy })
            }
            Ended::GaveUp(_) => Err(match server.not_sent.take() {
                Some(source) => Error::NotSent { server: address, source },
                None => Error::GaveUp { server: address },
            }),
            Ended::Answer(letter) => {
                from_device = letter.head.stamp != Stamp::NONE;
                match (letter.head.op, &key) {
                    (Op::GetOk, None) => Ok(Outcome::Read(Some(letter.value.to_vec()))),
                    (Op::GetOk, Some(key)) => match key::unwrap(key, &letter.value) {
                        Some(value) => Ok(Outcome::Read(Some(value.to_vec()))),
                        None => {
                            self.totals.collisions += 1;
                            let asked = Asked { bypasses: Some(now - took), ..asked };
                            let get = (Op::Get, FLAG_BYPASS);
                            let wire = letter.head.key;
                            if from_device
                                && self.send_new(at, now, get, wire, Arc::default(), asked)
                            {
                                return;
                            }
                            Err(Error::Collision { server: address })
                        }
                    },
                    (Op::NotFound, _) => Ok(Outcome::Read(None)),
                    (Op::Error, _) => {
                        Err(Error::Refused { server: address, status: letter.head.status })
                    }
                    _ => Ok(Outcome::Written),
                }
            }
        };
        let took = Duration::from_micros(took);
        self.ended.push_back(Completion { ticket: asked.ticket, result, from_device, took });
    }

    /// Sends a new request, if there is room for it.
    fn send_new(
        &mut self,
        at: usize,
        now: Micros,
        op: (Op, u8),
        key: u128,
        value: Arc<[u8]>,
        asked: Asked,
    ) -> bool {
        let server = &mut self.servers[at];
        let Some(request) = server.requests.begin(now, op, key, value) else { return false };
        server.asked.insert(request, asked);
        self.send(at, request);
        true
    }

    fn send(&mut self, at: usize, request: u64) {
        let server = &mut self.servers[at];
        let Some(message) = server.requests.message(request) else { return };
        let mut room = [0; DATAGRAM_MAX];
        let Some(len) = message.emit(&mut room) else { return };
        // What is not sent is repeated as if it had been lost.
        server.not_sent = self.udp.send(&room[..len], server.address).err();
        self.totals.not_sent += u64::from(server.not_sent.is_some());
    }
}
