//! A client, and where its bytes go.

use super::{DRAIN, ROUNDS};
use crate::proxy::protocol::Session;
use crate::proxy::session::{End, Turn};
use crate::proxy::stream::{Stream, reason};
use crate::proxy::totals::Closed;
use mio::event::Event;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

/// One side of a link.
pub struct Side {
    pub stream: Stream,
    pub readable: bool,
    pub writable: bool,
    /// The system has said that nothing more comes behind what can be read now.
    pub last: bool,
    /// It sends nothing more.
    pub ended: bool,
}

impl Side {
    pub fn new(stream: Stream) -> Side {
        Side { stream, readable: false, writable: false, last: false, ended: false }
    }

    /// Something has happened to it.
    pub fn happens(&mut self, event: &Event) {
        self.last |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || self.last;
        self.writable |= event.is_writable() || event.is_write_closed();
    }

    /// Reads some bytes; 0 if there are none now, or none any more.
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Ok(0) => {
                    (self.ended, self.readable) = (true, false);
                    return Ok(0);
                }
                Ok(count) => {
                    // A short read has emptied the socket; what comes later is an event, but for
                    // an end that has been one. TLS has more until it says that it has not.
                    self.readable = count == bytes.len() || self.last || !self.stream.is_plain();
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
pub struct Link {
    pub client: Option<Side>,
    /// Its separate connection to the server.
    pub server: Option<Side>,
    pub session: Session,
    /// Its number: places are used again.
    pub serial: u64,
    /// When it came, in monotonic nanoseconds.
    pub accepted: u64,
    /// Replies that it is owed on a shared lane.
    pub on_lane: u64,
    /// It is in the list of those that wait for room on the lane.
    pub waits: bool,
    /// How long the lane has waited for it since it last read all.
    pub stalled: Duration,
    /// It is in the list of those that have something to do.
    pub listed: bool,
    /// The server knows that the client sends nothing more.
    pub told: bool,
    /// When it is given up, once one side has ended: later with each byte that moves.
    pub ends: Option<Instant>,
}

/// Whether a link goes on.
pub enum Then {
    /// It waits for an event.
    Waits,
    /// It has more to do.
    Goes,
    Ends(Closed),
}

impl Link {
    /// Lists it among those that have something to do.
    pub fn list(&mut self, at: usize, busy: &mut Vec<usize>) {
        if !self.listed {
            self.listed = true;
            busy.push(at);
        }
    }

    pub fn turn(&mut self, turn: &mut Turn<'_>, scratch: &mut [u8], has_room: bool) -> Then {
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
                    Err(error) => match reason(&error, Closed::ByServer) {
                        Closed::Tls => return Then::Ends(Closed::Tls),
                        _ => (server.ended, server.readable) = (true, false),
                    },
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
                    Err(error) => match reason(&error, Closed::ByClient) {
                        Closed::Tls => return Then::Ends(Closed::Tls),
                        _ => self.client = None,
                    },
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
        let out = self.session.for_server();
        if let Some(server) = &mut self.server
            && server.writable
            && (!out.is_empty() || server.stream.holds())
        {
            match server.stream.write(out) {
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
        let out = self.session.for_client();
        match &mut self.client {
            Some(client) if client.writable && (!out.is_empty() || client.stream.holds()) => {
                match client.stream.write(out) {
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
        let holds = self.client.as_ref().is_some_and(|client| client.stream.holds());
        let unsent = !self.session.for_client().is_empty() || holds;
        if self.server.as_ref().is_some_and(|server| server.ended) {
            // What it has said still goes to the client.
            if self.client.is_none() || !unsent {
                return Some(Then::Ends(Closed::ByServer));
            }
        } else if let Some(end) = self.session.end() {
            if self.client.is_none() || !unsent && self.session.owes_nothing() {
                return Some(Then::Ends(match end {
                    End::Refused => Closed::ClientProtocol,
                    End::Unasked => Closed::ServerProtocol,
                }));
            }
        } else if self.client.as_ref().is_none_or(|client| client.ended) {
            if self.session.owes_nothing() && !unsent && !self.session.blocks() {
                return Some(Then::Ends(Closed::ByClient));
            }
            // Redis forgets a client that waits once it leaves. Until then it may be answered.
            if self.session.blocks() && !self.told {
                self.told = true;
                let server = self.server.as_mut();
                if server.is_none_or(|server| server.stream.end().is_err()) {
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
