//! What a client asks: answered from the cache, or marked and passed on.

use super::sharing::{Place, Share};
use super::{
    Change, Confirms, Effect, End, Large, Marks, OUT_MAX, OWED_MAX, QUEUED_MAX, SILENT_MAX,
    SKELETON_ARGS, SKELETON_MAX, Session, State, Topic, Turn, Version, bit, reason,
};
use crate::proxy::commands::{Access, Class, Command, GET, Keys, Null, ReplyMode};
use crate::proxy::form::{Form, normalise};
use crate::proxy::hash_of;
use crate::proxy::settings::{Order, Scripts};
use crate::proxy::slots::{self, Closing, Mark, Miss, Query};
use crate::proxy::totals::Missed;
use crate::proxy::ways::Ways;
use overbank_wire::resp::{self, Request};
use overbank_wire::scan::{BUFFER_MIN, Scan};
use std::sync::atomic::Ordering;

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
        let lent = resp::Requests::new(resp::Limits::default());
        let mut requests = std::mem::replace(&mut self.requests, lent);
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
            if self.place == Place::Leaving {
                break;
            }
            match requests.scan(rest) {
                Ok(Scan::Whole { len }) => {
                    let raw = rest.get(..len).unwrap_or_default();
                    match self.large.take() {
                        None => {
                            if !self.request(requests.request(rest), raw, turn) {
                                break;
                            }
                        }
                        Some(mut large) => {
                            large.add(requests.request(rest), None);
                            self.large_request(&large, raw, turn);
                        }
                    }
                    used += len;
                }
                Ok(scan) => {
                    let waits =
                        scan == Scan::Partial && rest.len() < BUFFER_MIN && self.large.is_none();
                    if waits {
                        break;
                    }
                    if self.place == Place::Shared {
                        // Others would wait for the rest of it.
                        self.place = Place::Leaving;
                        break;
                    }
                    let part = requests.take(rest);
                    let large = self.large.get_or_insert_default();
                    large.add(requests.request(rest), part.long);
                    // All but the end of it may be known to the server before its keys are marked.
                    self.to_server
                        .end()
                        .extend_from_slice(rest.get(..part.len).unwrap_or_default());
                    used += part.len;
                    if part.len == 0 {
                        break;
                    }
                }
                Err(error) => {
                    turn.totals.commands += 1;
                    turn.totals.refused += 1;
                    self.end = Some(End::Refused);
                    // Where replies do not come, this one does not.
                    if !self.state.loose && !self.state.silent {
                        error.reply(&mut self.refusal);
                    }
                    self.write_refusal();
                }
            }
        }
        self.requests = requests;
        used
    }

    /// Writes the error once all before it is answered.
    pub(super) fn write_refusal(&mut self) {
        // Not in the middle of a push.
        if self.owed.replies() == 0 && self.replies.is_idle() && !self.refusal.is_empty() {
            self.to_client.end().append(&mut self.refusal);
        }
    }

    /// A long request, of which all but `raw` has been passed on.
    fn large_request(&mut self, large: &Large, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.commands += 1;
        let request = Request::new(&large.bytes, &large.args);
        let commands = turn.ways.commands.clone();
        let command = commands.find(&request);
        let class = command.class(&request);
        if large.overflown {
            // Its keys are not known, nor how many replies come of a subscription.
            self.under_way = u64::MAX;
            self.queued_closes |= self.state.multi.1;
            let closing = self.close(turn);
            self.send(raw, Effect::Closed(closing), turn);
            let is_counted = matches!(
                class,
                Class::Cacheable(_)
                    | Class::Read
                    | Class::Write
                    | Class::Script { .. }
                    | Class::Blocking
                    | Class::Close
                    | Class::Other
            );
            if !is_counted {
                self.loosen_behind(turn.ways);
            }
            return;
        }
        self.pass((command, class), request, raw, turn);
    }

    /// Takes a request; returns whether it could: not if it has to wait for a connection of the
    /// client's own.
    fn request(&mut self, request: Request<'_>, raw: &[u8], turn: &mut Turn<'_>) -> bool {
        // An empty line is no command, and has no reply, but Redis skips that.
        if request.is_empty() {
            if self.place != Place::Shared {
                self.to_server.end().extend_from_slice(raw);
                self.state.skip = false;
            }
            return true;
        }
        let commands = turn.ways.commands.clone();
        let command = commands.find(&request);
        let class = command.class(&request);
        if self.place == Place::Shared {
            match self.share((command, class), request, turn) {
                Share::Passes => {}
                Share::Answered => return true,
                Share::Leaves => {
                    self.place = Place::Leaving;
                    return false;
                }
            }
        }
        turn.totals.commands += 1;
        if let Class::Cacheable(null) = class
            && turn.ways.rules.cacheable.has(command)
            && self.answer_cached((command, null), request, turn)
        {
            return true;
        }
        self.state.asking = class == Class::Other && command.name() == "asking";
        self.pass((command, class), request, raw, turn);
        true
    }

    /// Answers a read from the cache, if that has the reply.
    fn answer_cached(
        &mut self,
        command: (&Command, Null),
        request: Request<'_>,
        turn: &mut Turn<'_>,
    ) -> bool {
        turn.totals.reads += 1;
        match self.look_up(command, request, turn) {
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
    fn no_hits(&self, turn: &mut Turn<'_>) -> Option<Missed> {
        if self.to_client.len() >= OUT_MAX || self.owed.held() >= OUT_MAX {
            return Some(Missed::Room);
        }
        if !self.state.is_plain() || self.state.db.is_none() {
            return Some(Missed::Connection);
        }
        // A push of which a part has gone to the client.
        if self.owed.replies() == 0 && !self.replies.is_idle() {
            return Some(Missed::Order);
        }
        if turn.ways.rules.order == Order::Connection && self.owed.replies() > 0 {
            return Some(Missed::Order);
        }
        let may = turn.ways.may_read(self.state.user.as_deref());
        (!may).then_some(Missed::User)
    }

    /// Writes the reply of a read, or returns why there is none.
    fn look_up(
        &mut self,
        command: (&Command, Null),
        request: Request<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Missed> {
        if let Some(why) = self.no_hits(turn) {
            return Err(why);
        }
        // Lent while the rest of the turn is used.
        let mut reply = std::mem::take(&mut turn.ways.reply);
        let mut form = std::mem::take(&mut turn.ways.form);
        reply.clear();
        let result = self.collect(command, request, (&mut reply, &mut form), turn);
        if result.is_ok() {
            self.owed.local(&reply, self.to_client.end());
        }
        (turn.ways.reply, turn.ways.form) = (reply, form);
        result
    }

    /// Collects the replies of a read's keys. MGET is a GET of each: the cache has all of them, or
    /// the server answers for all.
    fn collect(
        &self,
        (command, null): (&Command, Null),
        request: Request<'_>,
        (reply, form): (&mut Vec<u8>, &mut Vec<u8>),
        turn: &mut Turn<'_>,
    ) -> Result<(), Missed> {
        let db = self.state.db.ok_or(Missed::Connection)?;
        let is_mget = command.name() == "mget";
        let normalised = match is_mget {
            true => std::slice::from_ref(&GET),
            false => normalise(command, &request, form).ok_or(Missed::Form)?,
        };
        let keys = 1..if is_mget { request.len() } else { 2 };
        if is_mget {
            // A cluster refuses keys of different slots.
            if keys.len() > 1 && turn.shared.is_cluster.load(Ordering::Relaxed) {
                return Err(Missed::Form);
            }
            resp::array(keys.len(), reply);
        }
        let mut result = Ok(());
        for index in keys {
            let key = request.arg(index).unwrap_or_default();
            let hash = hash_of(turn.shared.seed, key);
            turn.totals.read_keys += 1;
            let query = Query { hash, key, db, request: normalised };
            let three = self.state.version == Version::Three;
            let found = match self.under_way & bit(hash) {
                0 => turn.ways.slots.hit(&query, turn.now, |variant| {
                    reply.extend_from_slice(if three { &variant.resp3 } else { &variant.resp2 });
                }),
                _ => Err(Miss::Absent),
            };
            let Err(miss) = found else {
                if is_mget && reply.len() > OUT_MAX {
                    return Err(Missed::Room);
                }
                continue;
            };
            let waits = self.under_way & bit(hash) != 0;
            result = Err(if waits { Missed::Order } else { reason(miss) });
            let of_form = hash ^ hash_of(turn.shared.seed, normalised);
            turn.missed((hash, key), of_form, miss, || match is_mget {
                true => Form::new(db, normalised, null, [&b"GET"[..], key].into_iter()),
                false => Form::new(db, normalised, null, request.args()),
            });
        }
        result
    }
}

impl Session {
    /// Passes a request on: what it may write is marked before.
    fn pass(
        &mut self,
        (command, class): (&Command, Class<'_>),
        request: Request<'_>,
        raw: &[u8],
        turn: &mut Turn<'_>,
    ) {
        let seed = turn.shared.seed;
        let mut writes = std::mem::take(&mut turn.ways.writes);
        writes.clear();
        let mut bits = 0;
        let keys = command.keys(&request, |index, access: Access| {
            let hash = hash_of(seed, request.arg(index).unwrap_or_default());
            bits |= bit(hash);
            if access.writes() {
                writes.push(hash);
            }
        });
        self.under_way |= if keys == Keys::Known { bits } else { u64::MAX };
        let closes = match class {
            Class::Close | Class::Acl => true,
            Class::Script { is_read_only } => {
                !is_read_only && turn.ways.rules.scripts == Scripts::Close
            }
            _ => false,
        };
        turn.totals.writes += writes.len() as u64;
        if self.state.multi.1 && (closes || !writes.is_empty()) {
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
        class: Class<'_>,
        request: Request<'_>,
        raw: &[u8],
        (marks, closing): (Option<Marks>, Option<Closing>),
        turn: &mut Turn<'_>,
    ) {
        let alone = request.len() == 1;
        let change = match class {
            Class::Select(db) => Some(Change::Select(db)),
            Class::Hello(hello) => Some(Change::Hello(hello.auth.map(|(user, _)| user.into()))),
            Class::Auth => Some(Change::Auth(match request.len() {
                2 => b"default"[..].into(),
                _ => request.arg(1).unwrap_or_default().into(),
            })),
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
                self.send_change(raw, Change::Exec(ends, marks, closing), turn);
                return;
            }
            Class::Discard if alone => Some(Change::Discard(self.ends())),
            Class::Watch => {
                self.state.watch = (self.state.watch.0 + 1, true);
                None
            }
            Class::Unwatch => Some(Change::Unwatch(self.state.watch.0)),
            Class::ClientTracking(on) => Some(Change::Tracking(on)),
            Class::Reset => Some(Change::Reset(self.ends())),
            Class::Quit => {
                self.state.quits = true;
                None
            }
            Class::Monitor => Some(Change::Monitor),
            Class::Subscribe => confirms_of(request, false),
            Class::Unsubscribe => confirms_of(request, true),
            Class::Blocking => {
                self.state.blocking = self.state.blocking.saturating_add(1);
                // None closes: their keys are known.
                self.silence(None, closing, turn.ways);
                self.send_change(raw, Change::Blocks(marks), turn);
                return;
            }
            Class::ClientReply(mode) => return self.reply_mode(mode, raw, turn),
            Class::Sync => {
                self.loosen_behind(turn.ways);
                None
            }
            _ => None,
        };
        match (change, marks, closing) {
            (Some(change), marks, closing) => {
                // None of them has keys.
                self.silence(marks, closing, turn.ways);
                self.send_change(raw, change, turn);
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
    const fn ends(&self) -> (u64, u64) {
        (self.state.multi.0, self.state.watch.0)
    }

    fn reply_mode(&mut self, mode: ReplyMode, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.forwarded += 1;
        self.to_server.end().extend_from_slice(raw);
        if self.state.loose {
            return;
        }
        let is_odd = self.state.multi.1 || self.state.skip;
        match mode {
            // What is queued in a transaction is not known to be done.
            _ if is_odd => self.loosen_behind(turn.ways),
            ReplyMode::On => {
                self.state.silent = false;
                let marks = std::mem::take(&mut self.silent_marks).into_iter().collect();
                let change = Change::Replies(marks, self.silent_closing.take());
                self.state.changing = self.state.changing.saturating_add(1);
                self.owed.effect(Effect::Change(Box::new(change)));
            }
            // An error instead would be a reply.
            _ if self.may_refuse_modes(turn) => self.loosen_behind(turn.ways),
            ReplyMode::Off => self.state.silent = true,
            ReplyMode::Skip if !self.state.silent => self.state.skip = true,
            ReplyMode::Skip => {}
        }
    }

    /// Returns whether the server may answer CLIENT REPLY OFF or SKIP with an error: not to a
    /// user with all privileges, unless subscriptions or another user are on their way.
    fn may_refuse_modes(&self, turn: &mut Turn<'_>) -> bool {
        let State { changing, is_doubtful, version, subscribed, user, .. } = &self.state;
        let subscribes = *version == Version::Two && *subscribed != [0; 3];
        *changing > 0 || *is_doubtful || subscribes || !turn.ways.may_read(user.as_deref())
    }

    fn send_change(&mut self, raw: &[u8], change: Change, turn: &mut Turn<'_>) {
        self.state.changing = self.state.changing.saturating_add(1);
        self.send(raw, Effect::Change(Box::new(change)), turn);
    }

    fn send_plain(&mut self, raw: &[u8], turn: &mut Turn<'_>) {
        turn.totals.forwarded += 1;
        self.to_server.end().extend_from_slice(raw);
        match self.is_silent() {
            true => {}
            // What was written without a reply is done once this one is answered.
            false if self.silent_marks.is_empty() || self.state.loose => self.owed.plain(),
            false => {
                let marks: Vec<Mark> = std::mem::take(&mut self.silent_marks).into_iter().collect();
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
            self.loosen_behind(turn.ways);
        }
    }

    /// Returns whether the next command has no reply that is counted.
    fn is_silent(&mut self) -> bool {
        let skipped = std::mem::take(&mut self.state.skip);
        self.state.loose || self.state.silent || skipped
    }

    /// A key that is written again is out anyway.
    fn silence_one(&mut self, mark: Mark, ways: &mut Ways) {
        if !self.silent_marks.insert(mark) {
            ways.end(Marks::One(mark));
        }
    }

    /// Keeps what no reply will end.
    pub(super) fn silence(
        &mut self,
        marks: Option<Marks>,
        closing: Option<Closing>,
        ways: &mut Ways,
    ) {
        match marks {
            Some(Marks::One(mark)) => self.silence_one(mark, ways),
            Some(Marks::Many(marks)) => {
                marks.into_iter().for_each(|mark| self.silence_one(mark, ways));
            }
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
            self.silent_marks.drain().for_each(|mark| ways.end(Marks::One(mark)));
        }
    }
}

/// Returns which confirmations a command of the subscribe family gets; none if it is refused.
fn confirms_of(request: Request<'_>, ends: bool) -> Option<Change> {
    let name = request.arg(0).and_then(|name| name.first()).map(u8::to_ascii_lowercase);
    let topic = match name {
        Some(b'p') => Topic::Patterns,
        // SSUBSCRIBE and SUNSUBSCRIBE, and SUBSCRIBE.
        Some(b's') if is_shards(request) => Topic::Shards,
        _ => Topic::Channels,
    };
    let confirms = match request.len() - 1 {
        0 if ends => Confirms::All,
        0 => return None,
        count => Confirms::Left(count),
    };
    Some(Change::Confirm(topic, confirms))
}

fn is_shards(request: Request<'_>) -> bool {
    let second = request.arg(0).and_then(|name| name.get(1)).map(u8::to_ascii_lowercase);
    let third = request.arg(0).and_then(|name| name.get(2)).map(u8::to_ascii_lowercase);
    second == Some(b's') || (second, third) == (Some(b'u'), Some(b'n'))
}

/// Marks keys before their bytes are queued.
fn mark(writes: &[u128], slots: &mut slots::Worker) -> Option<Marks> {
    match writes {
        [] => None,
        [hash] => Some(Marks::One(slots.begin_write(*hash))),
        many => Some(Marks::Many(many.iter().map(|hash| slots.begin_write(*hash)).collect())),
    }
}

impl Large {
    /// Adds arguments that are here, and one whose content is too long to keep.
    fn add(&mut self, request: Request<'_>, long: Option<usize>) {
        for arg in request.args() {
            let start = self.bytes.len();
            self.overflown |= start + arg.len() > SKELETON_MAX || self.args.len() >= SKELETON_ARGS;
            if self.overflown {
                // The command's name and that of a subcommand, to know how it is answered.
                self.args.truncate(2);
                self.bytes.truncate(self.args.last().map_or(0, |last| last.end));
                self.args.shrink_to_fit();
                self.bytes.shrink_to_fit();
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
