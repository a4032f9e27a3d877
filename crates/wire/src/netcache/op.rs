//! What messages say: operations and results.

use super::Message;
use zerocopy::TryFromBytes;

/// Operations. Those of clients are the first three; a device turns a write of a cached key into
/// its cached variant and stamps it (algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, TryFromBytes)]
#[repr(u8)]
pub enum Op {
    /// Asks for a value.
    Get = 1,
    /// Sets a value.
    Put = 2,
    /// Removes a value.
    Delete = 3,
    /// A [`Op::Put`] that a device has stamped.
    PutCached = 4,
    /// A [`Op::Delete`] that a device has stamped.
    DeleteCached = 5,
    /// Answers a [`Op::Get`] with a value.
    GetOk = 6,
    /// Answers a [`Op::Get`]: there is no value.
    NotFound = 7,
    /// Answers a write.
    WriteOk = 8,
    /// A server's value of a cached key, to the device.
    Update = 9,
    /// Answers an [`Op::Update`]: its status says what became of it.
    UpdateOk = 10,
    /// Asks the device for a new stamp of a key.
    Fence = 11,
    /// Answers an [`Op::Fence`] with that stamp, or that the key is not cached.
    FenceOk = 12,
    /// The controller has installed a key; to its server.
    Adopt = 13,
    /// Answers an [`Op::Adopt`], or, with [`Status::Absent`], an [`Op::Evicted`].
    Adopted = 14,
    /// The controller has removed a key; to its server.
    Evicted = 15,
    /// A server has started.
    Hello = 16,
    /// Answers an [`Op::Hello`]: no key of the server is cached.
    Resume = 17,
    /// A server asks the controller to install a key anew, or to leave it out; `client` is the
    /// length of its value.
    Refresh = 18,
    /// Answers a request that is refused: its status says why.
    Error = 19,
}

impl Op {
    #[inline(always)]
    pub(super) fn of(byte: u8) -> Option<Op> {
        Op::try_read_from_bytes(&[byte]).ok()
    }

    /// Whether its messages may have a value.
    pub const fn has_value(self) -> bool {
        matches!(self, Op::Put | Op::PutCached | Op::GetOk | Op::Update)
    }

    /// Whether it changes a value.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Put | Op::Delete | Op::PutCached | Op::DeleteCached)
    }

    /// Returns what a device makes of it that stamps it; `None`: it is not stamped.
    #[inline]
    pub const fn cached(self) -> Option<Op> {
        match self {
            Op::Put => Some(Op::PutCached),
            Op::Delete => Some(Op::DeleteCached),
            Op::Fence => Some(Op::FenceOk),
            _ => None,
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, TryFromBytes)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// The device has stamped a later write.
    Stale = 1,
    /// The key is not in the device's table.
    Absent = 2,
    /// The value is longer than the server or the device takes.
    TooLong = 3,
    /// The server remembers as many later requests of the client as it can.
    TooOld = 4,
    /// The server has as many requests as it takes: try again later.
    Busy = 5,
    /// The server's store has refused it.
    Refused = 6,
}

impl Status {
    #[inline(always)]
    pub(super) fn of(byte: u8) -> Option<Status> {
        Status::try_read_from_bytes(&[byte]).ok()
    }
}

impl<'a> Message<'a> {
    /// Returns the answer to a message, for the same request and key.
    pub const fn answer(&self, op: Op, status: Status) -> Message<'static> {
        let Message { client, request, key, stamp, .. } = *self;
        Message { op, flags: 0, status, client, request, key, stamp, value: &[] }
    }
}
