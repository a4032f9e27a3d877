//! Shared lanes of a worker: their sockets, and which sessions are on them.

use super::link::Side;
use super::{LANES, ROUNDS, Worker};
use crate::proxy::lanes::{CLIENT_OUT_MAX, Lane, STALL_MAX, Unasked};
use crate::proxy::session::{Place, Turn};
use crate::proxy::stream::{Stream, reason};
use crate::proxy::totals::Closed;
use mio::net::TcpStream;
use mio::{Interest, Token};
use std::time::{Duration, Instant};

/// Returns whether more can be read of a lane at once: no event says so again.
pub fn has_more((lane, side): &(Lane, Option<Side>)) -> bool {
    lane.stalled.is_none() && side.as_ref().is_some_and(|side| side.readable)
}

impl Worker {
    /// Takes what has come on a shared lane to the sessions that asked for it.
    pub fn read_lane(&mut self, number: usize) {
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
                Err(error) => return self.lose_lane(number, reason(&error, Closed::ByServer)),
            };
            if side.ended {
                return self.lose_lane(number, Closed::ByServer);
            }
            self.totals.bytes_from_server += count as u64;
            let mut rest = self.scratch.get(..count).unwrap_or_default();
            let mut broken = Vec::new();
            loop {
                let piece = match lane.take(&mut rest) {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(Unasked) => return self.lose_lane(number, Closed::ByServer),
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
                if link.on_lane == 0 && link.session.for_client().len() == piece.bytes.len() {
                    link.stalled = Duration::ZERO;
                }
                if link.session.for_client().len() > CLIENT_OUT_MAX && lane.stalled.is_none() {
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
        let is_full = link.session.for_client().len() > CLIENT_OUT_MAX;
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
    pub fn write_lane(&mut self, number: usize) {
        let Some((lane, side)) = self.lanes.get_mut(number) else { return };
        if lane.out.is_empty() && !side.as_ref().is_some_and(|side| side.stream.holds()) {
            return;
        }
        if side.is_none() {
            let socket = self.shared.upstream().map(TcpStream::connect);
            let Some(Ok(socket)) = socket else {
                return self.lose_lane(number, Closed::ByServer);
            };
            let _ = socket.set_nodelay(true);
            let mut stream = match Stream::of_server(socket, &self.shared.tls.load()) {
                Ok(stream) => stream,
                Err(error) => return self.lose_lane(number, reason(&error, Closed::ByServer)),
            };
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = Token(LANES.start + number);
            if self.poll.registry().register(stream.socket(), token, both).is_err() {
                return self.lose_lane(number, Closed::ByServer);
            }
            *side = Some(Side::new(stream));
        }
        let Some(side) = side.as_mut().filter(|side| side.writable) else { return };
        match side.stream.write(&mut lane.out) {
            Ok(count) => self.totals.bytes_to_server += count as u64,
            Err(_) => return self.lose_lane(number, Closed::ByServer),
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
    pub fn lose_lane(&mut self, number: usize, why: Closed) {
        let Some((lane, side)) = self.lanes.get_mut(number) else { return };
        if let Some(mut side) = side.take() {
            side.stream.close();
            let _ = self.poll.registry().deregister(side.stream.socket());
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
                self.close(at, why);
            }
        }
    }

    /// Puts what a session has for the server on its shared lane.
    pub fn share(&mut self, at: usize) {
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
            lane.send((at, link.serial), link.session.for_server().bytes(), replies);
            link.on_lane += replies;
            link.session.for_server().clear();
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
}
