//! One client's connection as a pure machine: bytes of both sides in, bytes for both sides out.
//!
//! ```text
//!   client ─▶ requests ─┬─ cached ──────────────────────────────▶ owed: local bytes ─┐
//!                       └─ marks of writes ─▶ to_server           owed: a reply      │
//!   server ─▶ replies ─▶ effect: marks end, SELECT, EXEC … ──────────────────────────┴▶ to_client
//! ```
//!
//! # Guarantees
//! - Bytes pass as they are, but for what a client on a shared lane says at its start (`sharing`).
//!   What the server would refuse as no request gets the server's error
//!   from here, after what is owed before it, and the connection ends.
//! - Each command is parsed, on every connection for its whole life, so no write escapes: the keys
//!   that a command writes are marked before its last byte is queued for the server.
//! - Replies come in the order of requests. A hit is served only when the state of the connection
//!   is known and plain, and no command on the same key is on its way.
//! - Where replies cannot be counted (MONITOR, CLIENT REPLY OFF) there are no hits, and what is
//!   written stays marked.
//! - Bounded: about [`OUT_MAX`] bytes towards each side, [`OWED_MAX`] entries of what is owed,
//!   [`BUFFER_MIN`](overbank_wire::scan::BUFFER_MIN) bytes of a request that has not come whole.
//!   Longer ones are passed on in pieces, and of those only short arguments are kept,
//!   [`SKELETON_MAX`] bytes in all.
//!
//! Panics: none, on any bytes of either side.

mod change;
mod owed;
mod replies;
mod requests;
#[cfg(any(test, feature = "fuzz"))]
pub mod rig;
mod sharing;
#[cfg(test)]
mod tests;

pub use change::{Change, Confirms, Effect, Marks, Topic};
pub use owed::{Front, Queue};
pub use sharing::{Greeting, Place};

use super::Shared;
use super::buffer::Out;
use super::core::Note;
use super::form::Form;
use super::settings::{Cacheable, Order, Prefixes, Scripts};
use super::slots::{Mark, Miss};
use super::totals::{Missed, ProxyTotals};
use super::ways::Ways;
use overbank::sketch::Counter;
use overbank_wire::resp;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that may wait for a side before the other is not read any more.
pub const OUT_MAX: usize = 256 << 10;
/// Entries of what a client is owed before it is not read any more.
pub const OWED_MAX: usize = 1 << 20;
/// Bytes of short arguments of a longer request.
pub const SKELETON_MAX: usize = 1 << 20;
/// Number of its arguments.
pub const SKELETON_ARGS: usize = 1 << 16;
/// Hashes of keys that a transaction writes; one that writes more closes the cache.
pub const QUEUED_MAX: usize = 1 << 14;
/// Marks that wait where replies do not come; more close the cache.
pub const SILENT_MAX: usize = 1 << 12;

/// Why a session reads no more of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client sent what is no request; the error is written once all before it is answered.
    Refused,
    /// The server sent what nothing had asked for; the client gets it.
    Unasked,
}

/// The server sent what is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReply;

/// What sessions have in common.
#[derive(Clone, Debug)]
pub struct Rules {
    pub order: Order,
    pub scripts: Scripts,
    pub prefix: Option<Prefixes>,
    pub deny: Option<Prefixes>,
    pub cacheable: Cacheable,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            order: Order::Key,
            scripts: Scripts::Keys,
            prefix: None,
            deny: None,
            cacheable: Cacheable::ALL,
        }
    }
}

/// What a worker lends a session for a turn.
pub struct Turn<'a> {
    pub ways: &'a mut Ways,
    pub shared: &'a Shared,
    pub counter: &'a mut Counter,
    pub totals: &'a mut ProxyTotals,
    /// Monotonic nanoseconds.
    pub now: u64,
}

impl Turn<'_> {
    /// A key is not to be cached for a while.
    pub fn leave_out(&mut self, hash: u128) {
        let sent = self.ways.tell(Note::LeaveOut(hash), true);
        self.totals.not_reported += u64::from(!sent);
    }

    /// A key had no hit: reports it to the core if it is hot, or if its value is over. `of_form`
    /// stands for the form of the request.
    pub fn missed(
        &mut self,
        (hash, key): (u128, &[u8]),
        of_form: u128,
        miss: Miss,
        form: impl FnOnce() -> Form,
    ) {
        let Turn { ways, counter, totals, now, .. } = self;
        // Reads behind an earlier command count, too: in a deep pipeline, they are most reads
        // of a hot key.
        let is_hot = counter.count_batch(&[hash]) != 0;
        let (wants, at_once) = match miss {
            Miss::Absent => (is_hot, false),
            Miss::Stale | Miss::Expired | Miss::Other => (true, true),
            Miss::Closed | Miss::Lease | Miss::InFlight => (false, false),
        };
        if wants && ways.rules.may_cache(key) && ways.is_due(of_form, *now) {
            // A new form of a hot key has to be hot by itself.
            let is_hot = is_hot || counter.count_batch(&[of_form]) != 0;
            totals.wanted += 1;
            let note = Note::Want { hash, key: key.into(), form: form(), is_hot };
            totals.not_reported += u64::from(!ways.tell(note, at_once));
        }
    }
}

/// Returns the reason of a miss as it is counted.
pub const fn reason(miss: Miss) -> Missed {
    match miss {
        Miss::Absent => Missed::NotCached,
        Miss::Stale => Missed::NotFilled,
        Miss::Other => Missed::Form,
        Miss::InFlight => Missed::Writing,
        Miss::Expired => Missed::Expired,
        Miss::Closed | Miss::Lease => Missed::Closed,
    }
}

/// Returns the bit of a key in the filter of those under way.
pub const fn bit(hash: u128) -> u64 {
    1 << ((hash >> 64) as u32 & 63)
}

/// Versions of RESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    Two,
    Three,
}

/// What the connection is at the server, as far as its replies have told.
#[derive(Debug)]
struct State {
    version: Version,
    /// The database; `None` once that cannot be known.
    db: Option<u32>,
    /// The user, if the connection has said one, and whether that is in doubt.
    user: Option<Arc<[u8]>>,
    is_doubtful: bool,
    /// Commands whose replies may change this, on their way.
    changing: u32,
    /// Commands that block, on their way.
    blocking: u32,
    /// Numbers of the last MULTI and WATCH, and whether they stand.
    multi: (u64, bool),
    watch: (u64, bool),
    tracking: bool,
    /// Channels, patterns and shard channels that are subscribed to.
    subscribed: [u64; 3],
    /// Replies to what comes from now on are not counted, and those that come now.
    loose: bool,
    raw: bool,
    /// QUIT is on its way: the server answers nothing behind it.
    quits: bool,
    /// ASKING is for the next command.
    asking: bool,
    /// CLIENT REPLY OFF, and SKIP for the next command.
    silent: bool,
    skip: bool,
}

impl State {
    fn new() -> State {
        State {
            version: Version::Two,
            db: Some(0),
            user: None,
            is_doubtful: false,
            changing: 0,
            blocking: 0,
            multi: (0, false),
            watch: (0, false),
            tracking: false,
            subscribed: [0; 3],
            loose: false,
            raw: false,
            quits: false,
            asking: false,
            silent: false,
            skip: false,
        }
    }

    /// Returns whether the state is known, and one in which a hit equals the server's reply.
    fn is_plain(&self) -> bool {
        let subscribed = self.version == Version::Two && self.subscribed != [0; 3];
        let odd = self.multi.1
            || self.watch.1
            || self.tracking
            || self.loose
            || self.silent
            || self.quits
            || self.asking
            || self.is_doubtful;
        self.changing == 0 && !odd && !self.skip && !subscribed
    }
}

/// A request too long to be held.
#[derive(Debug, Default)]
struct Large {
    /// Its short arguments, and where they lie; long ones are empty.
    bytes: Vec<u8>,
    args: Vec<std::ops::Range<usize>>,
    /// There was no room for all of them.
    overflown: bool,
}

/// See the module.
pub struct Session {
    pub to_client: Out,
    pub to_server: Out,
    pub end: Option<End>,
    requests: resp::Requests,
    replies: resp::Replies,
    /// Bytes of the client that are no whole request, or wait for room.
    input: Vec<u8>,
    /// They wait for room.
    blocked: bool,
    large: Option<Large>,
    owed: Queue<Effect>,
    state: State,
    /// Bits of the keys of commands on their way; all bits: any key.
    under_way: u64,
    /// Hashes of the keys that commands of a transaction write, and whether one closes the cache.
    queued: Vec<u128>,
    queued_closes: bool,
    /// Marks of commands without replies.
    silent_marks: HashSet<Mark>,
    /// There were too many of those: the cache is closed until this ends.
    silent_closing: Option<super::slots::Closing>,
    /// The first and the last bytes of the reply that comes.
    seen: replies::Seen,
    /// The client's error, written at the end.
    refusal: Vec<u8>,
    place: Place,
    /// The client's name, on a shared lane.
    name: Option<Box<[u8]>>,
    /// Name and version of its library, on a shared lane.
    library: [Option<Box<[u8]>>; 2],
    /// It leaves the lane for a WAIT.
    awaits_replicas: bool,
}

impl Session {
    /// Returns the session of a new client.
    pub fn new(place: Place) -> Session {
        Session {
            to_client: Out::default(),
            to_server: Out::default(),
            end: None,
            requests: resp::Requests::new(resp::Limits::default()),
            replies: resp::Replies::new(),
            input: Vec::new(),
            blocked: false,
            large: None,
            owed: Queue::default(),
            state: State::new(),
            under_way: 0,
            queued: Vec::new(),
            queued_closes: false,
            silent_marks: HashSet::new(),
            silent_closing: None,
            seen: replies::Seen::default(),
            refusal: Vec::new(),
            place,
            name: None,
            library: [None, None],
            awaits_replicas: false,
        }
    }

    /// Returns whether bytes of the client are taken now.
    pub fn takes_client(&self) -> bool {
        self.end.is_none() && !self.blocked && self.place != Place::Leaving
    }

    /// Returns whether bytes of the server are taken now.
    pub fn takes_server(&self) -> bool {
        self.to_client.len() < OUT_MAX
    }

    /// Returns whether all that came from the client has been answered.
    pub fn owes_nothing(&self) -> bool {
        self.owed.replies() == 0
            && self.to_server.is_empty()
            && !self.blocked
            && self.place != Place::Leaving
            && self.refusal.is_empty()
    }

    /// Returns whether the client waits for what may never come, and the server has all of its
    /// bytes.
    pub fn blocks(&self) -> bool {
        let waits = self.state.blocking > 0 || self.state.raw;
        waits && self.to_server.is_empty() && !self.blocked
    }

    /// The connection is over. What has not been answered may still be done by the server: its keys
    /// stay out for a while.
    pub fn lost(&mut self, turn: &mut Turn<'_>) {
        let Turn { ways, totals, .. } = turn;
        let effects: Vec<Effect> = self.owed.abandon().collect();
        for effect in effects {
            let (marks, closing) = effect.into_parts();
            ways.end_late(marks, totals);
            closing.into_iter().for_each(|closing| ways.reopen_late(closing));
        }
        let silent: Vec<Mark> = std::mem::take(&mut self.silent_marks).into_iter().collect();
        ways.end_late(Some(Marks::Many(silent.into())), totals);
        self.silent_closing.take().into_iter().for_each(|closing| ways.reopen_late(closing));
    }
}
