//! What the replies of the server change.

use super::super::slots::{Closing, Mark};

/// Marks of one request: nearly always one.
#[derive(Debug)]
pub enum Marks {
    One(Mark),
    Many(Box<[Mark]>),
}

/// Which confirmations a command of the subscribe family gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirms {
    /// This many.
    Left(usize),
    /// One for each channel of the kind at the time, but at least one.
    All,
}

/// What confirmations are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Channels,
    Patterns,
    Shards,
}

/// What a reply changes.
#[derive(Debug)]
pub enum Effect {
    /// Writes are done.
    Written(Marks),
    /// What closed the cache is done.
    Closed(Closing),
    /// Both.
    Both(Marks, Closing),
    /// Something of the connection.
    Change(Box<Change>),
}

/// What changes of a connection.
#[derive(Debug)]
pub enum Change {
    /// A database, or what is no number.
    Select(Option<u32>),
    /// The user, if the request names one.
    Hello(Option<Box<[u8]>>),
    Auth(Box<[u8]>),
    /// The transaction with this number ends, and the WATCH with that one. What it writes, and what
    /// it closes.
    Exec((u64, u64), Option<Marks>, Option<Closing>),
    Discard((u64, u64)),
    Unwatch(u64),
    /// The server follows the client's reads, or does not any more.
    Tracking(bool),
    /// Replies come again; what was written and closed while none came.
    Replies(Vec<Mark>, Option<Closing>),
    Confirm(Topic, Confirms),
    Monitor,
    /// What comes next is no reply.
    Loose,
    /// The client does not get it.
    Swallow,
    /// The numbers of the MULTI and the WATCH that it ends.
    Reset((u64, u64)),
    /// A command that blocks.
    Blocks(Option<Marks>),
}
