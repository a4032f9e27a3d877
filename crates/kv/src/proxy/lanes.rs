//! Shared lanes: connections to the server on which many clients' commands go, in turn.
//!
//! ```text
//!   sessions ─▶ out ─▶ server        one lane for each version of RESP
//!            ◀─ owed ◀──┘            owed: (session, how many replies in a row), in order
//! ```
//!
//! A client begins here. Commands with one reply, known keys and no state of the connection share
//! a lane; at the first other command the client gets a connection to itself, for good. What
//! clients ask in one turn of the worker goes in one write: few system calls for clients that ask
//! little.
//!
//! Bounds: [`LANE_OUT_MAX`] bytes that the server does not take, [`CLIENT_OUT_MAX`] bytes of a
//! client that does not read. Beyond the first, clients of the lane are not read. Beyond the
//! second, the lane is not read for [`STALL_MAX`] in all, then that client is closed.

use super::buffer::Out;
use overbank_wire::resp::{self, Replies};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes that the server does not take before clients are not read any more.
const LANE_OUT_MAX: usize = 1 << 20;
/// Bytes that a client does not take before the lane is not read any more.
pub const CLIENT_OUT_MAX: usize = 64 << 20;
/// How long a lane waits for such a client.
pub const STALL_MAX: Duration = Duration::from_secs(5);

/// A session: its place, and its number, since places are used again.
pub type Of = (usize, u64);

/// See the module.
#[derive(Default)]
pub struct Lane {
    pub out: Out,
    owed: VecDeque<(Of, u64)>,
    replies: Replies,
    is_open: bool,
    /// The reply to the lane's own HELLO has not come.
    greets: bool,
    /// The client that does not read, and since when.
    pub stalled: Option<(Of, Instant)>,
    /// Places of sessions that wait for room.
    pub waiting: Vec<usize>,
}

/// Bytes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub of: Of,
    pub bytes: &'a [u8],
    /// The reply ends with them.
    pub ends: bool,
}

/// The server sent what nothing on the lane has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unasked;

impl Lane {
    /// Returns whether sessions have to wait for room.
    pub fn is_full(&self) -> bool {
        self.out.len() >= LANE_OUT_MAX
    }

    /// Begins a connection, unless that has been done: of RESP3 if that is asked for.
    pub fn open(&mut self, three: bool) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        self.replies = Replies::new();
        self.greets = false;
        if three {
            resp::command(&[&b"HELLO"[..], b"3"], self.out.end());
            self.greets = true;
        }
    }

    /// Adds commands of a session.
    pub fn send(&mut self, of: Of, commands: &[u8], replies: u64) {
        self.out.end().extend_from_slice(commands);
        match self.owed.back_mut() {
            _ if replies == 0 => {}
            Some((last, count)) if *last == of => *count += replies,
            _ => self.owed.push_back((of, replies)),
        }
    }

    /// Takes the next piece of a reply from the front of `bytes`.
    ///
    /// # Errors
    /// The bytes are no reply, or none that was asked for.
    pub fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Unasked> {
        while !bytes.is_empty() {
            let step = self.replies.scan(bytes).map_err(|_| Unasked)?;
            let (piece, rest) = bytes.split_at_checked(step.len).ok_or(Unasked)?;
            *bytes = rest;
            // Nothing on a lane asks for pushes.
            if self.replies.is_push() {
                return Err(Unasked);
            }
            if self.greets {
                self.greets = !step.end;
                if step.end && self.replies.kind() != Some(b'%') {
                    return Err(Unasked);
                }
                continue;
            }
            let (of, count) = self.owed.front_mut().ok_or(Unasked)?;
            let of = *of;
            if step.end {
                *count -= 1;
                if *count == 0 {
                    self.owed.pop_front();
                }
            }
            return Ok(Some(Piece { of, bytes: piece, ends: step.end }));
        }
        Ok(None)
    }

    /// Takes all sessions that wait for a reply: the connection is gone.
    pub fn lost(&mut self) -> Vec<Of> {
        (self.stalled, self.is_open) = (None, false);
        self.out.clear();
        std::mem::take(&mut self.owed).into_iter().map(|(of, _)| of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_to_the_sessions_that_asked() {
        let mut lane = Lane::default();
        lane.open(true);
        lane.send((1, 10), b"a", 2);
        lane.send((2, 20), b"b", 1);
        lane.send((1, 10), b"c", 1);
        assert_eq!(lane.out.len(), b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\nabc".len());
        let bytes = b"%1\r\n+proto\r\n:3\r\n+1\r\n$3\r\nfoo\r\n:2\r\n_\r\n";
        let mut got: Vec<(Of, Vec<u8>)> = Vec::new();
        // One byte at a time.
        let mut whole = true;
        for byte in bytes.chunks(1) {
            let mut rest = byte;
            while let Some(Piece { of, bytes, ends }) = lane.take(&mut rest).expect("replies") {
                if whole {
                    got.push((of, Vec::new()));
                }
                got.last_mut().expect("one").1.extend(bytes);
                whole = ends;
            }
        }
        let expected: [(Of, &[u8]); 4] = [
            ((1, 10), b"+1\r\n"),
            ((1, 10), b"$3\r\nfoo\r\n"),
            ((2, 20), b":2\r\n"),
            ((1, 10), b"_\r\n"),
        ];
        assert_eq!(got, expected.map(|(of, bytes)| (of, bytes.to_vec())));
        assert_eq!(lane.take(&mut &b"+1\r\n"[..]), Err(Unasked));
    }

    #[test]
    fn a_lost_lane_names_those_that_wait() {
        let mut lane = Lane::default();
        lane.send((1, 10), b"a", 1);
        lane.send((2, 20), b"b", 0);
        lane.send((3, 30), b"c", 1);
        assert_eq!(lane.lost(), [(1, 10), (3, 30)]);
        assert_eq!(lane.out.len(), 0);
        lane.open(true);
        assert_eq!(lane.take(&mut &b"-NOPROTO\r\n"[..]), Err(Unasked));
        lane.lost();
        lane.open(false);
        lane.send((1, 10), b"a", 1);
        assert_eq!(lane.take(&mut &b">1\r\n+push\r\n"[..]), Err(Unasked));
    }
}
