//! One client's connection as a pure machine: bytes of both sides in, bytes for both sides out.
//!
//! ```text
//!   client ─▶ requests ─┬─ cached ────────────▶ owed: local bytes ───────────┐
//!                       ├─ answered ──────────▶ owed: a reply                │
//!                       └─ quiet … [mn] ──────▶ owed: replies up to MN       │
//!   server ─▶ replies ─▶ marks end ─────────────────────────────────────────┴▶ to_client
//! ```
//!
//! # Guarantees
//! - Bytes pass as they are, but for the no-ops by which the end of quiet requests is known: the
//!   client's own where it sends one behind them, or else one from here, whose reply is not passed.
//! - Each request is parsed, so no write escapes: the keys that it writes are marked before its
//!   first byte is queued for the server.
//! - Replies come in the order of requests. A hit is served only while no request on the same key
//!   is on its way.
//! - A list of keys in which one is too long goes on once all before is answered: memcached drops
//!   replies that it has not sent yet, and then they could not be counted.
//! - `watch` ends it: there are no hits behind one, and once it is accepted bytes pass unread, as
//!   memcached reads no more of them.
//! - Bounded: about [`OUT_MAX`] bytes towards each side, [`OWED_MAX`] entries of what is owed,
//!   [`BUFFER_MIN`] bytes of a request that has not come whole. Longer ones are passed on in parts.
//!
//! Panics: none, on any bytes of either side.

use super::flush::Flush;
use super::item::{Item, MetaGet};
use crate::proxy::buffer::Out;
use crate::proxy::form::Form;
use crate::proxy::hash_of;
use crate::proxy::session::{End, Marks, OUT_MAX, OWED_MAX, Queue, Turn, bit, reason};
use crate::proxy::settings::Order;
use crate::proxy::slots::{Closing, Mark, Miss, Query};
use crate::proxy::totals::Missed;
use overbank_wire::memcached::{
    Expect, KEY_MAX, Protocol, Replies, RequestError, Requests, Verb, decode_key,
};
use overbank_wire::scan::{BUFFER_MIN, Scan};
use std::ops::Range;

/// Flags of `mg` that change nothing.
const READS: &[u8] = b"vfckqObsthl";
/// The no-op of each protocol.
pub const NOOP: &[u8] = b"mn\r\n";
pub const BINARY_NOOP: &[u8; 24] = b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// What a reply ends.
#[derive(Debug, Default)]
pub struct Ends {
    pub marks: Vec<Mark>,
    pub closings: Vec<(Closing, Option<Flush>)>,
}

/// What a reply changes.
#[derive(Debug)]
pub enum Effect {
    Written(Mark),
    Ends(Box<Ends>),
    /// Replies up to that of a no-op belong to quiet requests.
    Quiet {
        ends: Box<Ends>,
        /// The client does not get that reply.
        is_own: bool,
    },
    Watch,
}

/// How requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Counted,
    /// This many `watch` are not answered.
    Watching(u32),
    /// Lines without an end come.
    Watches,
    /// The server reads no more.
    Quits,
}

/// See the module.
pub struct Session {
    pub to_client: Out,
    pub to_server: Out,
    pub end: Option<End>,
    pub(super) replies: Replies,
    pub owed: Queue<Effect>,
    pub(super) state: State,
    /// Bits of the keys of requests on their way; all bits: any key.
    pub(super) under_way: u64,
    /// Bytes of a reply that may be that of a no-op from here, and whether it is known not to be.
    pub(super) held: Vec<u8>,
    pub(super) passes: bool,
    /// The client's error, written at the end.
    pub(super) refusal: Vec<u8>,
    requests: Requests,
    /// Bytes of the client that are no whole request, or wait for room.
    input: Vec<u8>,
    /// They wait for room, or for all replies.
    blocked: bool,
    awaits: bool,
    /// What a request ends of which a part has been passed on.
    pub(super) large: Option<Ends>,
    /// The last thing owed is quiet requests without a no-op behind them.
    is_open: bool,
}

impl Session {
    /// Returns the session of a new client.
    pub fn new() -> Session {
        Session {
            to_client: Out::default(),
            to_server: Out::default(),
            end: None,
            replies: Replies::new(),
            owed: Queue::default(),
            state: State::Counted,
            under_way: 0,
            held: Vec::new(),
            passes: false,
            refusal: Vec::new(),
            requests: Requests::new(),
            input: Vec::new(),
            blocked: false,
            awaits: false,
            large: None,
            is_open: false,
        }
    }

    /// Returns whether bytes of the client are taken now.
    pub fn takes_client(&self) -> bool {
        self.end.is_none() && !self.blocked
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
            && self.refusal.is_empty()
    }

    /// Returns whether the client waits for what may never come, and the server has all of its
    /// bytes.
    pub fn blocks(&self) -> bool {
        self.state == State::Watches && self.to_server.is_empty()
    }

    /// Returns the replies that the server owes.
    pub fn owed(&self) -> u64 {
        self.owed.replies()
    }

    /// Takes bytes of the client.
    pub fn client(&mut self, bytes: &[u8], turn: &mut Turn<'_>) {
        if self.input.is_empty() {
            let used = self.scan(bytes, turn);
            self.input.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            self.input.extend_from_slice(bytes);
            self.again(turn);
        }
    }

    /// Goes on with what waited for room; returns whether it could.
    pub fn resume(&mut self, turn: &mut Turn<'_>) -> bool {
        let goes = self.blocked && !self.is_full() && !(self.awaits && self.owed.replies() > 0);
        if goes {
            (self.blocked, self.awaits) = (false, false);
            self.again(turn);
        }
        goes
    }

    fn again(&mut self, turn: &mut Turn<'_>) {
        let mut input = std::mem::take(&mut self.input);
        let used = self.scan(&input, turn);
        input.drain(..used.min(input.len()));
        // An idle client keeps nothing.
        if !input.is_empty() {
            self.input = input;
        }
    }

    fn is_full(&self) -> bool {
        self.to_server.len() >= OUT_MAX || self.owed.len() >= OWED_MAX
    }

    /// Takes all requests that are whole; returns how many bytes they took.
    fn scan(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> usize {
        let mut used = 0;
        // The session's other parts change while a request is looked at.
        let mut requests = std::mem::take(&mut self.requests);
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if self.end.is_some() || self.state == State::Quits {
                used = bytes.len();
                break;
            }
            if rest.is_empty() {
                break;
            }
            if self.is_full() {
                self.blocked = true;
                break;
            }
            if self.state == State::Watches {
                self.to_server.end().extend_from_slice(rest);
                used = bytes.len();
                break;
            }
            let scan = requests.scan(rest);
            let waits = matches!(scan, Ok(Scan::Partial)) && rest.len() < BUFFER_MIN;
            if !waits && self.owed.replies() > 0 && self.may_drop(&requests, scan) {
                (self.blocked, self.awaits) = (true, true);
                break;
            }
            match scan {
                Ok(Scan::Whole { len }) => {
                    self.request(&requests, rest.get(..len).unwrap_or_default(), turn);
                    used += len;
                }
                Ok(_) => {
                    if waits && self.large.is_none() {
                        break;
                    }
                    let len = requests.take(rest).len;
                    if len == 0 {
                        break;
                    }
                    self.part(&requests, rest.get(..len).unwrap_or_default(), turn);
                    used += len;
                }
                Err(error) => {
                    turn.totals.commands += 1;
                    turn.totals.refused += 1;
                    self.end = Some(End::Refused);
                    if requests.protocol() != Some(Protocol::Binary) {
                        self.refusal = format!("CLIENT_ERROR {error}\r\n").into_bytes();
                    }
                }
            }
        }
        // Not within a request.
        if self.large.is_none() {
            self.end_quiet(&requests);
        }
        self.requests = requests;
        self.write_refusal();
        used
    }

    /// Returns whether the server may drop replies to earlier requests when it reads this one: a
    /// list of keys, of which one is too long or not known yet.
    fn may_drop(&self, requests: &Requests, scan: Result<Scan, RequestError>) -> bool {
        let is_list = requests.protocol() == Some(Protocol::Text)
            && matches!(requests.verb(), Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats);
        let is_part = matches!(scan, Ok(Scan::Partial | Scan::Full));
        let is_long = requests.keys().iter().any(|key| key.len() > KEY_MAX);
        is_list && self.large.is_none() && (is_long || is_part)
    }

    /// Sends a no-op behind quiet requests, if there are any without one.
    fn end_quiet(&mut self, requests: &Requests) {
        if std::mem::take(&mut self.is_open) {
            let noop: &[u8] = match requests.protocol() {
                Some(Protocol::Binary) => BINARY_NOOP,
                _ => NOOP,
            };
            self.to_server.end().extend_from_slice(noop);
        }
    }

    /// Writes the error once all before it is answered.
    pub(super) fn write_refusal(&mut self) {
        if self.owed.replies() == 0 && self.replies.is_idle() && !self.refusal.is_empty() {
            self.to_client.end().append(&mut self.refusal);
        }
    }

    /// Takes a request.
    fn request(&mut self, requests: &Requests, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.commands += 1;
        let is_text = requests.protocol() == Some(Protocol::Text);
        if is_text && self.large.is_none() && self.answer_cached(requests, raw, turn) {
            return;
        }
        let is_whole = self.large.is_none();
        let mut ends = self.begin(requests, is_whole && requests.verb() == Verb::MetaNoop);
        self.mark(requests, raw, &mut ends, turn);
        self.pass(requests, raw, (ends, is_whole), turn);
    }

    /// Takes a part of a request, which ends elsewhere.
    fn part(&mut self, requests: &Requests, part: &[u8], turn: &mut Turn<'_>) {
        let mut ends = self.begin(requests, false);
        self.mark(requests, part, &mut ends, turn);
        self.to_server.end().extend_from_slice(part);
        self.large = Some(ends);
    }

    /// Returns what the request ends so far; before its first bytes, quiet requests end.
    fn begin(&mut self, requests: &Requests, is_noop: bool) -> Ends {
        if let Some(large) = self.large.take() {
            return large;
        }
        if requests.expect() != Expect::Maybe && !is_noop {
            self.end_quiet(requests);
        }
        Ends::default()
    }

    /// Marks the keys that a request writes, of those in these bytes, before they are queued.
    fn mark(&mut self, requests: &Requests, bytes: &[u8], ends: &mut Ends, turn: &mut Turn<'_>) {
        let (verb, flags) = (requests.verb(), requests.flags(bytes));
        let is_text = requests.protocol() == Some(Protocol::Text);
        let writes = verb.writes_key()
            || verb == Verb::MetaGet && flags.clone().any(|(flag, _)| !READS.contains(&flag));
        // Such an item makes one of its readers, by `mg`, store it again: not the proxy.
        let is_stale =
            matches!(verb, Verb::MetaDelete | Verb::MetaSet) && is_text && flags.has(b'I');
        let is_base64 = verb.is_meta() && is_text && flags.has(b'b');
        for key in requests.keys() {
            let mut room = [0; KEY_MAX];
            let key = key_of(bytes, key, is_base64, &mut room);
            let hash = hash_of(turn.shared.seed, key);
            self.under_way |= bit(hash);
            if writes {
                turn.totals.writes += 1;
                ends.marks.push(turn.ways.slots.begin_write(hash));
            }
            if is_stale {
                turn.leave_out(hash);
            }
        }
    }

    /// Passes a request on whose keys are marked, or its end, and expects what it gets.
    fn pass(
        &mut self,
        requests: &Requests,
        raw: &[u8],
        (mut ends, is_whole): (Ends, bool),
        turn: &mut Turn<'_>,
    ) {
        turn.totals.forwarded += 1;
        let verb = requests.verb();
        // What this does not know may write any key.
        if matches!(verb, Verb::FlushAll | Verb::Other) {
            let flush = match verb {
                // The server refuses one that is so long.
                Verb::FlushAll if !is_whole => None,
                Verb::FlushAll if requests.opcode().is_some() => Flush::of_binary(turn.now, raw),
                Verb::FlushAll => Flush::of_text(turn.now, raw),
                _ => None,
            };
            self.under_way = u64::MAX;
            turn.totals.closings += 1;
            ends.closings.push((turn.ways.slots.close(), flush));
        }
        self.to_server.end().extend_from_slice(raw);
        match requests.expect() {
            Expect::Maybe => self.quiet(ends),
            Expect::Never => self.state = State::Quits,
            Expect::Endless => {
                self.owed.effect(Effect::Watch);
                self.state = State::Watching(match self.state {
                    State::Watching(count) => count.saturating_add(1),
                    _ => 1,
                });
            }
            // The client's own no-op ends them.
            Expect::One if is_whole && verb == Verb::MetaNoop && self.is_open => {
                self.is_open = false;
                if let Some(Effect::Quiet { is_own, .. }) = self.owed.back() {
                    *is_own = false;
                }
            }
            Expect::One => {
                if verb == Verb::Quit {
                    self.state = State::Quits;
                }
                match (ends.marks.as_slice(), ends.closings.is_empty()) {
                    ([], true) => self.owed.plain(),
                    ([mark], true) => self.owed.effect(Effect::Written(*mark)),
                    _ => self.owed.effect(Effect::Ends(Box::new(ends))),
                }
            }
        }
    }

    /// Expects the replies of a quiet request: some, or none.
    fn quiet(&mut self, mut more: Ends) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.owed.effect(Effect::Quiet { ends: Box::new(more), is_own: true });
        } else if let Some(Effect::Quiet { ends, .. }) = self.owed.back() {
            ends.marks.append(&mut more.marks);
            ends.closings.append(&mut more.closings);
        }
    }

    /// Answers a read from the cache, if that has the reply.
    fn answer_cached(&mut self, requests: &Requests, raw: &[u8], turn: &mut Turn<'_>) -> bool {
        let meta = match requests.verb() {
            _ if requests.keys().is_empty() => return false,
            Verb::Get | Verb::Gets => None,
            Verb::MetaGet => match MetaGet::new(requests.flags(raw)) {
                Some(meta) => Some(meta),
                None => return false,
            },
            _ => return false,
        };
        turn.totals.reads += 1;
        // Lent while the rest of the turn is used.
        let mut reply = std::mem::take(&mut turn.ways.reply);
        reply.clear();
        let found = match self.no_hits(turn) {
            Some(why) => Err(why),
            None => self.collect(requests, meta, raw, &mut reply, turn),
        };
        match found {
            Ok(()) => {
                self.end_quiet(requests);
                self.owed.local(&reply, self.to_client.end());
                turn.totals.hits += 1;
            }
            Err(why) => turn.totals.missed[why.index()] += 1,
        }
        turn.ways.reply = reply;
        found.is_ok()
    }

    /// Returns why there are no hits now, whatever the key.
    fn no_hits(&self, turn: &Turn<'_>) -> Option<Missed> {
        if self.to_client.len() >= OUT_MAX || self.owed.held() >= OUT_MAX {
            return Some(Missed::Room);
        }
        if self.state != State::Counted {
            return Some(Missed::Connection);
        }
        let waits = turn.ways.rules.order == Order::Connection && self.owed.replies() > 0;
        waits.then_some(Missed::Order)
    }

    /// Collects what is known of a read's keys: the cache has all of them, or the server answers
    /// for all.
    fn collect(
        &self,
        requests: &Requests,
        meta: Option<MetaGet>,
        raw: &[u8],
        reply: &mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Missed> {
        let with_cas = requests.verb() == Verb::Gets;
        let is_base64 = meta.is_some() && requests.flags(raw).has(b'b');
        let mut result = Ok(());
        for key in requests.keys() {
            let mut room = [0; KEY_MAX];
            let key = key_of(raw, key, is_base64, &mut room);
            let hash = hash_of(turn.shared.seed, key);
            turn.totals.read_keys += 1;
            let query = Query { hash, key, db: 0, request: &[] };
            let waits = self.under_way & bit(hash) != 0;
            let found = match waits {
                false => turn.ways.slots.hit(&query, turn.now, |variant| {
                    let item = Item::of(variant);
                    match meta {
                        Some(meta) => meta.reply(item, key, requests.flags(raw), reply),
                        None => {
                            item.into_iter().for_each(|item| item.get(key, with_cas, reply));
                            true
                        }
                    }
                }),
                true => Err(Miss::Absent),
            };
            match found {
                Ok(true) if reply.len() > OUT_MAX => return Err(Missed::Room),
                Ok(true) => {}
                Ok(false) => return Err(Missed::Form),
                Err(miss) => {
                    result = Err(if waits { Missed::Order } else { reason(miss) });
                    turn.missed((hash, key), !hash, miss, Form::item);
                }
            }
        }
        if meta.is_none() {
            reply.extend_from_slice(b"END\r\n");
        }
        result
    }
}

/// Returns a key as it is stored. The server refuses what is no base64, so that is no key.
fn key_of<'a>(
    bytes: &'a [u8],
    key: &Range<usize>,
    is_base64: bool,
    room: &'a mut [u8; KEY_MAX],
) -> &'a [u8] {
    let key = bytes.get(key.clone()).unwrap_or_default();
    match is_base64 {
        true => decode_key(key, room).unwrap_or(key),
        false => key,
    }
}

impl Ends {
    /// All of it has been answered.
    pub fn done(self, turn: &mut Turn<'_>) {
        turn.ways.end(Marks::Many(self.marks.into()));
        for (closing, flush) in self.closings {
            let now = turn.shared.now();
            flush.into_iter().for_each(|flush| turn.shared.flushes.add(flush, now));
            turn.ways.reopen(closing);
        }
    }

    /// It may still be done: its keys stay out for a while.
    pub fn lost(self, turn: &mut Turn<'_>) {
        turn.ways.end_late(Some(Marks::Many(self.marks.into())), turn.totals);
        for (closing, flush) in self.closings {
            let until = turn.shared.now().saturating_add(turn.ways.staleness());
            flush.into_iter().for_each(|flush| turn.shared.flushes.add(flush, until));
            turn.ways.reopen_late(closing);
        }
    }
}
