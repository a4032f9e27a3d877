//! What nodes tell each other, and what they are asked from outside.
//!
//! Any message may be lost, late or repeated: each is repeated by a beat until its purpose shows in
//! the log or in another message. Only a [`Refusal`] may be missing: then the request times out.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

use overbank_reasons::reasons;

use crate::rib::Context;
use crate::{Key, Member, Micros, NodeId, Partition, Revision, Sequence, SessionId, Version};

/// Counts of a session. The engine does not read them: drivers ask the data path for them.
pub type Counts = [u64; 6];

/// What a node says to all others at each beat.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Beat {
    /// The clock of the sender; later ones have higher ones.
    pub sent: Micros,
    /// The membership that the sender knows.
    pub membership: Revision,
    /// Batches applied, by partition.
    pub applied: Arc<[Sequence]>,
    /// Partitions that the sender owns, with the last batch that it knows.
    pub owned: Vec<(Partition, Sequence)>,
    /// Digests of blocks of their tables, as of these batches.
    pub digests: Vec<(Partition, Sequence, u32, u64)>,
    /// It has applied all that was there when every owner had counted it.
    pub caught_up: bool,
    /// It wants to leave.
    pub draining: bool,
    /// Sessions that it serves, or is about to.
    pub sessions: u32,
    /// Sessions that it has room for besides, stubs counted; `u32::MAX`: any number.
    pub room: u32,
}

/// A request from outside, with the key of its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// Creates a session.
    Establish {
        keys: Arc<[Key]>,
        context: Context,
        /// `None`: by rendezvous hashing of the session over live members with room.
        to: Option<NodeId>,
    },
    /// Moves a session.
    Move {
        session: SessionId,
        /// `None`: as for a new session, but elsewhere.
        to: Option<NodeId>,
    },
    /// Changes a session's keys or context where it is; its first key stays. With `before`, only if
    /// its context is still this one.
    Update { session: SessionId, keys: Arc<[Key]>, context: Context, before: Option<Context> },
    /// Asks for a session as it is.
    Read { session: SessionId },
    /// Asks for the sessions of a partition from a name on, at most 512, and fewer if they are
    /// long. Names of one partition follow those of the one before it: so pages go through all
    /// sessions, each of which is seen that is there from the first to the last.
    Page { from: SessionId },
    /// Removes a session.
    Remove { session: SessionId },
}

/// A session as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Found {
    /// Its name.
    pub session: SessionId,
    /// Where it is.
    pub at: Member,
    /// See [`Context`].
    pub context: Context,
    /// As the driver of the node that has it filled them in.
    pub counts: Counts,
}

/// What a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answered {
    /// It is done.
    Done,
    /// To [`Request::Read`].
    Found(Box<Found>),
    /// To [`Request::Page`]: sessions in their order, and where the next page begins.
    Page(Vec<(SessionId, Context)>, Option<SessionId>),
}

/// The answer to a request.
pub type Answer = Result<Answered, Refusal>;

impl Request {
    /// Returns the hash whose partition is the home of the request's session.
    pub fn home(&self) -> Option<u64> {
        match self {
            Self::Establish { keys, .. } => keys.first().map(|key| key.hash),
            Self::Move { session, .. }
            | Self::Update { session, .. }
            | Self::Read { session }
            | Self::Page { from: session }
            | Self::Remove { session } => Some(session.0),
        }
    }

    /// Returns the bytes of the context that it brings.
    pub(crate) fn context_bytes(&self) -> usize {
        match self {
            Self::Establish { context, .. } | Self::Update { context, .. } => context.len(),
            _ => 0,
        }
    }
}

/// A request's number, chosen by the node that it came to: never twice, in all its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId {
    /// The node that answers it.
    pub at: NodeId,
    /// Its number there.
    pub number: u64,
}

/// Number of requests that nothing waits for: what they ask for is asked for again.
pub(crate) const UNASKED: u64 = u64::MAX;

reasons! {
    /// Why a request was refused.
    pub enum Refusal {
        NoOwner = "no_owner", "the partition of the session has no owner: try again";
        NoMember = "no_member", "the node is not live";
        NoRoom = "no_room", "no node, or not the one asked for, has room: raise max-sessions or add a node";
        Keys = "keys", "a session has 1 to 16 keys, of different hashes";
        KeyInUse = "key_in_use", "a key belongs to another session";
        KeyResting = "key_resting", "a key was freed less than its rest ago";
        TableFull = "table_full", "the partition table is full";
        Unknown = "unknown", "there is no such session";
        Moving = "moving", "the session is being moved or changed";
        Overload = "overload", "the owner has as many requests as it takes";
        Timeout = "timeout", "the log or an owner did not answer in time";
        TooLong = "too_long", "what belongs to a session is too long: a batch must fit the log";
        Exists = "exists", "there is another session of this identity: change it, or use another";
        Changed = "changed", "the session was changed meanwhile: try again";
    }
}

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// See [`Beat`].
    Beat(Arc<Beat>),
    /// Answers a beat: the sender knows no newer membership, and takes nothing over for a lease.
    Confirm { sent: Micros, membership: Revision },
    /// A request, to the owner of its home.
    Ask { request: RequestId, body: Request },
    /// The answer to a request, to the node that it came to.
    Answer { request: RequestId, answer: Answer },
    /// The owner has found a session; its node adds the counts, and answers.
    Read { request: RequestId, found: Box<Found> },
    /// The source of a move has turned its entries; its driver adds their last counts, in the same
    /// order.
    Handover(Vec<(SessionId, Version)>, Vec<Counts>),
    /// The target of a move serves; to the owner of the session's home.
    Arrived(Vec<(SessionId, Version)>),
    /// A node has stubs; to the owner of the sessions' home.
    Stubs(Vec<(SessionId, Version)>),
    /// All members have applied the deltas: the stubs may go.
    Forget(Vec<(SessionId, Version)>),
    /// The sender serves these sessions, and the receiver would take them over: its driver adds
    /// their counts, in the same order.
    Checkpoint(Vec<(SessionId, Version)>, Vec<Counts>),
    /// A block of the sender's copy of a table has another digest than the owner's.
    Differs { partition: Partition, block: u32 },
    /// Asks all owners to move sessions to where rendezvous hashing has them.
    Rebalance,
    /// Asks the owner of a key to reserve it.
    Reserve { session: SessionId, key: Key },
    /// The key is reserved.
    Reserved { session: SessionId, hash: u64 },
    /// The key is not to be used by the session.
    Conflict { session: SessionId, hash: u64, cause: Refusal },
    /// Asks the owner of keys to direct them.
    Route(Vec<Route>),
    /// Keys are directed as asked, as of a batch of the partition.
    Routed { keys: Vec<(SessionId, u64, Version)>, sequence: Sequence },
    /// Asks whether a reservation is still needed.
    Check { session: SessionId, key: Key, reserved: Sequence },
    /// It is not.
    NotPlaced { hash: u64, reserved: Sequence },
    /// From gateway to gateway; the engine does not read it.
    Note(Arc<[u8]>),
}

impl Message {
    /// Fills in the counts of sessions that are at the sender. A driver calls it when all that the
    /// data path was told before is done, and before it sends the message.
    pub fn count(&mut self, me: Member, mut of: impl FnMut(SessionId) -> Counts) {
        match self {
            Self::Handover(sessions, counts) | Self::Checkpoint(sessions, counts) => {
                *counts = sessions.iter().map(|&(session, _)| of(session)).collect();
            }
            Self::Answer { answer: Ok(Answered::Found(found)), .. } if found.at == me => {
                found.counts = of(found.session);
            }
            _ => {}
        }
    }
}

/// A key's new direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Whose key.
    pub session: SessionId,
    /// The key.
    pub key: Key,
    /// The session's version.
    pub version: Version,
    /// `None`: the session is removed.
    pub to: Option<Member>,
}

// As a number: names are for people.
impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.index() as u8)
    }
}

impl<'de> Deserialize<'de> for Refusal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let index = u8::deserialize(from)?;
        let refusal = Self::ALL.get(usize::from(index)).copied();
        refusal.ok_or_else(|| D::Error::custom("no cause of a refusal has this number"))
    }
}
