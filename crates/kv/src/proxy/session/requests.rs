//! What a client asks: answered from the cache, or marked and passed on.

use super::{
    Change, Confirms, Effect, End, Large, Marks, OUT_MAX, OWED_MAX, QUEUED_MAX, REQUEST_MAX,
    SILENT_MAX, SKELETON_MAX, Session, Topic, Turn,
};
use crate::proxy::commands::{Access, Class, Keys, Known};
use crate::proxy::settings::{Mode, Order, Scripts};
use crate::proxy::slots::{Closing, Mark};
use crate::proxy::totals::Missed;
use crate::proxy::{Want, hash_of};
use overbank_wire::resp::{Request, Scan};

/// What a request may do to keys.
#[derive(Debug, Default)]
struct Touches {
    /// Hashes of the keys that it writes.
    writes: Vec<u128>,
    /// Bits of all its keys; all bits: any key.
    bits: u64,
}

impl Session {
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
        let goes = self.blocked && !self.is_full();
        if goes {
            self.blocked = false;
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
            if self.end.is_some() {
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
            match requests.scan(rest) {
                Ok(Scan::Whole { len }) => {
                    let raw = rest.get(..len).unwrap_or_default();
                    match self.large.take() {
                        None => self.request(requests.request(rest), raw, turn),
                        Some(mut large) => {
                            large.add(requests.request(rest), None);
                            self.large_request(&large, raw, turn);
                        }
                    }
                    used += len;
                }
                Ok(scan) => {
                    let waits = scan == Scan::Partial
                        && rest.len() < BUFFER_MIN
                        && self.large.is_none();
                    if waits {
                        break;
                    }
                    let part = requests.take(rest);
                    let large = self.large.get_or_insert_default();
                    large.add(requests.request(rest), part.long);
                    // All but the end of it may be known to the server before its keys are marked.
                    self.to_server.end().extend_from_slice(rest.get(..part.len).unwrap_or_default());
                    used += part.len;
                    if part.len == 0 {
                        break;
                    }
                }
                Err(error) => {
                    turn.totals.refused += 1;
                    self.end = Some(End::Refused);
                    error.reply(&mut self.refusal);
                    self.write_refusal();
                }
            }
        }
        self.requests = requests;
        used
    }

    /// Writes the error once all before it is answered.
    pub(super) fn write_refusal(&mut self) {
        if self.owed.replies() == 0 && !self.refusal.is_empty() {
            self.to_client.end().append(&mut self.refusal);
        }
    }

    /// A long request, of which all but `raw` has been passed on.
    fn large_request(&mut self, large: &Large, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.commands += 1;
        let request = Request::new(&large.bytes, &large.args);
        if large.overflown {
            // Its keys are not known.
            let closing = self.close(turn);
            self.under_way = u64::MAX;
            self.forward(raw, None, Some(closing), turn);
        } else {
            self.pass(request, raw, turn);
        }
    }

    fn request(&mut self, request: Request<'_>, raw: &[u8], turn: &mut Turn<'_>) {
        // An empty line is no command, and has no reply.
        if request.is_empty() {
            return;
        }
        turn.totals.commands += 1;
        if !self.from_cache(request, raw, turn) {
            self.pass(request, raw, turn);
        }
    }

    /// Answers a read from the cache, if that has the reply.
    fn from_cache(&mut self, request: Request<'_>, raw: &[u8], turn: &mut Turn<'_>) -> bool {
        let Some(read) = turn.ways.commands.cached_read(request) else { return false };
        turn.totals.reads += 1;
        match self.look_up(read, request, raw, turn) {
            Ok(()) => {
                turn.totals.hits += 1;
                true
            }
            Err(why) => {
                turn.totals.missed[why.index()] += 1;
                false
            }
        }
    }
}

impl Session {
    /// Returns why there are no hits now, whatever the key.
    fn no_hits(&self, turn: &Turn<'_>) -> Option<Missed> {
        if self.to_client.len() >= OUT_MAX || self.owed.held() >= OUT_MAX {
            return Some(Missed::Room);
        }
        if !self.state.is_plain() || self.state.db.is_none() {
            return Some(Missed::Connection);
        }
        if turn.shared.rules.order == Order::Connection && self.owed.replies() > 0 {
            return Some(Missed::Order);
        }
        let may = turn.ways.may_read(self.state.user.as_deref());
        (!may).then_some(Missed::User)
    }

    /// Writes the reply of a read, or returns why there is none.
    fn look_up(
        &mut self,
        read: CachedRead,
        request: Request<'_>,
        raw: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), Missed> {
        if let Some(why) = self.no_hits(turn) {
            return Err(why);
        }
        let db = self.state.db.ok_or(Missed::Connection)?;
        let three = self.state.version == Version::Three;
        let Turn { ways, counter, shared, totals, now } = turn;
        let (many, keys) = match read {
            // All of MGET's keys, or none: then the server answers for all of them.
            CachedRead::Mget => (true, 1..request.len()),
            CachedRead::One(_) => (false, 1..2),
        };
        let form = Form::of(read, request, raw).ok_or(Missed::Form)?;
        let reply = &mut ways.reply;
        reply.clear();
        if many {
            resp::array(keys.len(), reply);
        }
        let mut result = Ok(());
        for index in keys {
            let key = request.arg(index).ok_or(Missed::Form)?;
            let hash = hash_of(shared.seed, key);
            if self.under_way & bit(hash) != 0 {
                return Err(Missed::Order);
            }
            let query = Query { hash, key, db, request: form.normalised() };
            let found = ways.slots.hit(&query, *now, |variant| {
                reply.extend_from_slice(if three { &variant.resp3 } else { &variant.resp2 });
            });
            let Err(miss) = found else { continue };
            let hot = counter.count_batch(&[hash]) != 0;
            if let Some(reason) = wanted(miss, hot, shared.rules.may_cache(key)) {
                let want = || Want::new(hash, key, (db, form), raw);
                report(&mut ways.to_core, &mut ways.recent, (hash, *now), want, totals);
                let _ = reason;
            }
            result = result.and(Err(Missed::from(miss)));
        }
        result?;
        self.owed.local(&ways.reply, self.to_client.end());
        Ok(())
    }
}

impl Session {
    /// Passes a request on: what it may write is marked before.
    fn pass(&mut self, request: Request<'_>, raw: &[u8], turn: &mut Turn<'_>) {
        let commands = turn.ways.commands.clone();
        let class = commands.class(request);
        let seed = turn.shared.seed;
        let mut writes = std::mem::take(&mut turn.ways.writes);
        writes.clear();
        let mut bits = 0;
        let keys = commands.keys(request, &mut |index, access: Access| {
            let hash = hash_of(seed, request.arg(index).unwrap_or_default());
            bits |= bit(hash);
            if access.writes() {
                writes.push(hash);
            }
        });
        let by_script = turn.shared.rules.scripts == Scripts::Close && class == Class::Script;
        let any_key = keys == Keys::Unknown || by_script;
        self.under_way |= if any_key { u64::MAX } else { bits };
        let closes = any_key && commands.writes(request) || matches!(class, Class::Close { .. });
        turn.totals.writes += writes.len() as u64;
        if self.state.multi.1 && !(writes.is_empty() && !closes) {
            // Done by EXEC, or at once if MULTI was refused: marked for both.
            self.queued_closes |= closes || self.queued.len() + writes.len() > QUEUED_MAX;
            if !self.queued_closes {
                self.queued.extend_from_slice(&writes);
            }
        }
        let marks = mark(&writes, &mut turn.ways.slots);
        turn.ways.writes = writes;
        let closing = closes.then(|| self.close(turn));
        self.classed(class, request, raw, (marks, closing), turn);
    }

    fn close(&mut self, turn: &mut Turn<'_>) -> Closing {
        turn.totals.closings += 1;
        turn.ways.slots.close()
    }

    /// Passes a request on whose keys are marked, and expects what its class gets.
    fn classed(
        &mut self,
        class: Class,
        request: Request<'_>,
        raw: &[u8],
        (marks, closing): (Option<Marks>, Option<Closing>),
        turn: &mut Turn<'_>,
    ) {
        let alone = request.len() == 1;
        let change = match class {
            Class::Select(db) => Some(Change::Select(db)),
            Class::Hello { user } => Some(Change::Hello(user.map(Box::from))),
            Class::Auth { user } => Some(Change::Auth(user.into())),
            Class::Multi => {
                self.state.multi = (self.state.multi.0 + 1, true);
                None
            }
            Class::Exec if alone => {
                let (closes, queued) =
                    (std::mem::take(&mut self.queued_closes), std::mem::take(&mut self.queued));
                let closing = closes.then(|| self.close(turn));
                let marks = mark(&queued, &mut turn.ways.slots);
                let ends = self.ends();
                self.send(raw, Effect::Change(Box::new(Change::Exec(ends, marks, closing))), turn);
                return;
            }
            Class::Discard if alone => Some(Change::Discard(self.ends())),
            Class::Watch => {
                self.state.watch = (self.state.watch.0 + 1, true);
                None
            }
            Class::Unwatch => Some(Change::Unwatch(self.state.watch.0)),
            Class::Tracking { on } => {
                self.state.tracking = true;
                Some(Change::Tracking(on))
            }
            Class::Reset => Some(Change::Reset),
            Class::Monitor => Some(Change::Monitor),
            Class::Subscribe { topic } => self.confirms_of(topic, request, false),
            Class::Unsubscribe { topic } => self.confirms_of(topic, request, true),
            Class::Blocking => {
                self.state.blocking += 1;
                let effect = Effect::Change(Box::new(Change::Blocks(marks)));
                debug_assert!(closing.is_none());
                self.state.changing += 1;
                self.send(raw, effect, turn);
                return;
            }
            Class::Reply(mode) => return self.reply_mode(mode, raw, turn),
            // The server sends what is no reply from here on.
            Class::Sync => {
                self.to_server.end().extend_from_slice(raw);
                turn.totals.forwarded += 1;
                self.loosen(turn.ways);
                return;
            }
            _ => None,
        };
        match (change, marks, closing) {
            (Some(change), marks, closing) => {
                // None of them has keys.
                self.silence(marks, closing, turn.ways);
                self.state.changing += 1;
                self.send(raw, Effect::Change(Box::new(change)), turn);
            }
            (None, Some(marks), None) => self.send(raw, Effect::Written(marks), turn),
            (None, None, Some(closing)) => self.send(raw, Effect::Closed(closing), turn),
            (None, Some(marks), Some(closing)) => {
                self.send(raw, Effect::Both(marks, closing), turn);
            }
            (None, None, None) => self.send_plain(raw, turn),
        }
    }

    /// Returns the numbers of the transaction and the WATCH that EXEC and DISCARD end.
    fn ends(&self) -> (u64, u64) {
        (self.state.multi.0, self.state.watch.0)
    }

    fn confirms_of(&self, topic: Topic, request: Request<'_>, ends: bool) -> Option<Change> {
        let confirms = match request.len() - 1 {
            0 if ends => Confirms::All,
            // Refused.
            0 => return None,
            count => Confirms::Left(count),
        };
        Some(Change::Confirm(topic, confirms))
    }

    fn reply_mode(&mut self, mode: ReplyMode, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.forwarded += 1;
        self.to_server.end().extend_from_slice(raw);
        match mode {
            // What is queued in a transaction is not known to be done.
            _ if self.state.multi.1 || self.state.skip => self.loosen(turn.ways),
            ReplyMode::On => {
                self.state.silent = false;
                let marks = std::mem::take(&mut self.silent_marks);
                self.state.changing += 1;
                self.owed.effect(Effect::Change(Box::new(Change::Replies(marks))));
            }
            ReplyMode::Off => self.state.silent = true,
            ReplyMode::Skip if !self.state.silent => self.state.skip = true,
            ReplyMode::Skip => {}
        }
    }

    fn send_plain(&mut self, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.forwarded += 1;
        self.to_server.end().extend_from_slice(raw);
        match self.is_silent() {
            true => {}
            // What was written without a reply is done once this one is answered.
            false if self.silent_marks.is_empty() || self.state.loose => self.owed.plain(),
            false => {
                let marks = std::mem::take(&mut self.silent_marks);
                self.owed.effect(Effect::Written(Marks::Many(marks.into())));
            }
        }
    }

    fn send(&mut self, raw: &[u8], effect: Effect, turn: &mut Turn<'_>) {
        turn.totals.forwarded += 1;
        self.to_server.end().extend_from_slice(raw);
        if !self.is_silent() {
            self.owed.effect(effect);
            return;
        }
        let changes = matches!(effect, Effect::Change(_));
        let (marks, closing) = effect.into_parts();
        self.silence(marks, closing, turn.ways);
        if changes {
            self.loosen(turn.ways);
        }
    }

    /// Returns whether the next command has no reply that is counted.
    fn is_silent(&mut self) -> bool {
        let skipped = std::mem::take(&mut self.state.skip);
        self.state.loose || self.state.silent || skipped
    }

    /// Keeps what no reply will end.
    pub(super) fn silence(
        &mut self,
        marks: Option<Marks>,
        closing: Option<Closing>,
        ways: &mut Ways,
    ) {
        match marks {
            Some(Marks::One(mark)) => self.silent_marks.push(mark),
            Some(Marks::Many(marks)) => self.silent_marks.extend(marks),
            None => {}
        }
        let many = self.silent_marks.len() > SILENT_MAX && self.silent_closing.is_none();
        match closing {
            Some(closing) if self.silent_closing.is_some() => ways.reopen(closing),
            Some(closing) => self.silent_closing = Some(closing),
            None if many => self.silent_closing = Some(ways.slots.close()),
            None => {}
        }
        if self.silent_closing.is_some() {
            // Closed anyway.
            self.silent_marks.drain(..).for_each(|mark| ways.slots.end_write(mark));
        }
    }
}

/// Marks keys before their bytes are queued.
fn mark(writes: &[u128], slots: &mut slots::Worker) -> Option<Marks> {
    match writes {
        [] => None,
        [hash] => Some(Marks::One(slots.begin_write(*hash))),
        many => Some(Marks::Many(many.iter().map(|hash| slots.begin_write(*hash)).collect())),
    }
}

/// Returns the bit of a key in the filter of those under way.
const fn bit(hash: u128) -> u64 {
    1 << ((hash >> 64) as u32 & 63)
}

impl Large {
    /// Adds arguments that are here, and one whose content is too long to keep.
    fn add(&mut self, request: Request<'_>, long: Option<usize>) {
        for arg in request.args() {
            let start = self.bytes.len();
            self.overflown |= start + arg.len() > SKELETON_MAX || self.args.len() >= ARGS_MAX;
            if self.overflown {
                (self.bytes, self.args) = (Vec::new(), Vec::new());
                return;
            }
            self.bytes.extend_from_slice(arg);
            self.args.push(start..self.bytes.len());
        }
        if long.is_some() && !self.overflown {
            let at = self.bytes.len();
            self.args.push(at..at);
        }
    }
}
