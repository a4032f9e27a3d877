//! What the server answers: passed on, and what it changes.

use super::owed::Front;
use super::{Change, Confirms, Effect, Marks, NoReply, Session, State, Topic, Turn, Version};
use crate::proxy::ways::Ways;
use overbank_wire::resp::ReplyError;
use std::sync::Arc;

/// Bytes of a reply that are looked at, of its begin and of its end.
const SEEN: usize = 64;

/// The first and the last bytes of a reply.
#[derive(Debug)]
pub struct Seen {
    head: [u8; SEEN],
    heads: usize,
    tail: [u8; SEEN],
    tails: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Seen { head: [0; SEEN], heads: 0, tail: [0; SEEN], tails: 0 }
    }
}

impl Seen {
    fn add(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(SEEN - self.heads);
        self.head[self.heads..self.heads + count].copy_from_slice(&bytes[..count]);
        self.heads += count;
        let last = &bytes[bytes.len().saturating_sub(SEEN)..];
        let kept = self.tails.min(SEEN - last.len());
        self.tail.copy_within(self.tails - kept..self.tails, 0);
        self.tail[kept..kept + last.len()].copy_from_slice(last);
        self.tails = kept + last.len();
    }

    fn clear(&mut self) {
        (self.heads, self.tails) = (0, 0);
    }

    /// Returns the first bytes.
    fn head(&self) -> &[u8] {
        &self.head[..self.heads]
    }

    fn is_error(&self) -> bool {
        matches!(self.head().first(), Some(b'-' | b'!'))
    }

    /// Returns whether it is an error of a server that would not speak RESP3.
    fn refuses_hello(&self) -> bool {
        self.head().starts_with(b"-NOAUTH") || self.head().starts_with(b"-NOPROTO")
    }

    /// Returns whether it says that EXEC or DISCARD had no transaction to end.
    fn is_without_multi(&self) -> bool {
        let head = self.head();
        head.starts_with(b"-ERR") && head.ends_with(b" without MULTI\r\n")
    }

    fn is_queued(&self) -> bool {
        self.head() == b"+QUEUED\r\n"
    }

    /// Returns the first element of an array or a push of strings, lower or upper case as it is.
    fn word(&self) -> Option<&[u8]> {
        let head = self.head();
        let first = head.first().filter(|kind| matches!(kind, b'*' | b'>'))?;
        debug_assert!(matches!(first, b'*' | b'>'));
        let mut lines = head.split(|byte| *byte == b'\n');
        let length = lines.nth(1)?;
        let word = lines.next()?.strip_suffix(b"\r")?;
        (length.first() == Some(&b'$')).then_some(word)
    }

    /// Returns the number at the end.
    fn number(&self) -> Option<u64> {
        let line = self.tail[..self.tails].strip_suffix(b"\r\n")?;
        let at = line.iter().rposition(|byte| *byte == b'\n')?;
        let number = line.get(at + 1..)?.strip_prefix(b":")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

/// Confirmations by their first element: of what, and whether of a subscription's begin.
const CONFIRMATIONS: [(&[u8], Topic); 6] = [
    (b"subscribe", Topic::Channels),
    (b"unsubscribe", Topic::Channels),
    (b"psubscribe", Topic::Patterns),
    (b"punsubscribe", Topic::Patterns),
    (b"ssubscribe", Topic::Shards),
    (b"sunsubscribe", Topic::Shards),
];

/// What comes without having been asked for, in RESP2.
const MESSAGES: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];

impl Effect {
    /// Returns the marks and the closing of what ends without a reply.
    pub fn into_parts(self) -> (Option<Marks>, Option<crate::proxy::slots::Closing>) {
        match self {
            Effect::Written(marks) => (Some(marks), None),
            Effect::Closed(closing) => (None, Some(closing)),
            Effect::Both(marks, closing) => (Some(marks), Some(closing)),
            Effect::Change(change) => match *change {
                Change::Exec(_, marks, closing) => (marks, closing),
                Change::Blocks(marks) => (marks, None),
                Change::Replies(marks, closing) => (Some(Marks::Many(marks.into())), closing),
                _ => (None, None),
            },
        }
    }
}

impl Session {
    /// Takes bytes of the server.
    ///
    /// # Errors
    /// They are no reply.
    pub fn server(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), NoReply> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state.raw {
                self.to_client.end().extend_from_slice(rest);
                return Ok(());
            }
            let step = match self.replies.scan(rest) {
                Ok(step) => step,
                // Redis 7.0 writes a push into the reply of EXEC whose PUBLISH has caused it.
                Err(ReplyError::Place) => {
                    self.loosen(turn.ways);
                    continue;
                }
                Err(_) => return Err(NoReply),
            };
            let (of_reply, behind) = rest.split_at_checked(step.len).ok_or(NoReply)?;
            let swallows = !self.replies.is_push()
                && matches!(self.owed.front(), Some(Effect::Change(change)) if matches!(**change, Change::Swallow));
            if !swallows {
                self.to_client.end().extend_from_slice(of_reply);
            }
            self.seen.add(of_reply);
            rest = behind;
            if step.end {
                // The connection is not of the version that the client has been told.
                if swallows && self.state.version == Version::Three && self.seen.refuses_hello() {
                    return Err(NoReply);
                }
                self.reply(self.replies.is_push(), turn);
                self.seen.clear();
            }
        }
        Ok(())
    }

    /// A reply has come to its end.
    fn reply(&mut self, is_push: bool, turn: &mut Turn<'_>) {
        if self.confirms(is_push) {
            self.answered(turn.ways);
            return;
        }
        let subscribed = self.state.subscribed != [0; 3];
        let is_message = |seen: &Seen| seen.word().is_some_and(|word| MESSAGES.contains(&word));
        if is_push || subscribed && self.state.version == Version::Two && is_message(&self.seen) {
            // What waited for the end of a push.
            self.write_refusal();
            return;
        }
        match self.owed.take() {
            Front::Plain => {}
            Front::Effect(effect) => self.apply(effect, turn),
            // Replies that nothing has asked for cannot be counted.
            Front::Nothing => self.loosen(turn.ways),
        }
        self.answered(turn.ways);
    }

    /// What follows once a reply has been taken.
    fn answered(&mut self, ways: &mut Ways) {
        self.owed.release(self.to_client.end());
        let front = self.owed.front();
        if matches!(front, Some(Effect::Change(change)) if matches!(**change, Change::Loose)) {
            self.loosen(ways);
        }
        if self.owed.replies() == 0 {
            self.under_way = 0;
            self.write_refusal();
            if !self.state.multi.1 {
                self.queued.clear();
                self.queued_closes = false;
            }
        }
    }

    /// Takes a confirmation of a subscription, if it is one; returns whether it was.
    fn confirms(&mut self, is_push: bool) -> bool {
        let seen = &self.seen;
        let expected = match self.owed.front() {
            Some(Effect::Change(change)) => match change.as_mut() {
                Change::Confirm(topic, confirms) => Some((*topic, confirms)),
                _ => None,
            },
            _ => None,
        };
        let word = seen.word();
        let found = CONFIRMATIONS.iter().find(|(name, _)| word == Some(*name));
        let (Some(&(_, topic)), Some(count)) = (found, seen.number()) else { return false };
        let Some((_, left)) = expected.filter(|(of, _)| *of == topic) else {
            // A shard that moves ends subscriptions by itself.
            let subscribed = self.state.version == Version::Two && self.state.subscribed != [0; 3];
            if is_push || subscribed {
                self.state.confirmed(topic, count);
            }
            return is_push || subscribed;
        };
        // How many there are of the kind is known once all before has been confirmed.
        if *left == Confirms::All {
            let all = self.state.subscribed[topic as usize].max(1);
            *left = Confirms::Left(usize::try_from(all).unwrap_or(usize::MAX));
        }
        let Confirms::Left(count_left) = left else { return false };
        *count_left = count_left.saturating_sub(1);
        let is_over = *count_left == 0;
        self.state.confirmed(topic, count);
        if is_over {
            self.owed.take();
            self.state.changing = self.state.changing.saturating_sub(1);
        }
        true
    }

    fn apply(&mut self, effect: Effect, turn: &mut Turn<'_>) {
        match effect {
            Effect::Written(marks) => turn.ways.end(marks),
            Effect::Closed(closing) => turn.ways.reopen(closing),
            Effect::Both(marks, closing) => {
                turn.ways.end(marks);
                turn.ways.reopen(closing);
            }
            Effect::Change(change) => self.change(*change, turn.ways),
        }
    }

    fn change(&mut self, change: Change, ways: &mut Ways) {
        let (is_error, is_queued) = (self.seen.is_error(), self.seen.is_queued());
        let state = &mut self.state;
        state.changing = state.changing.saturating_sub(1);
        let is_done = !is_error && !is_queued;
        match change {
            Change::Select(db) if is_done => state.db = db,
            // When it is done, and whether, the reply of EXEC does not show.
            Change::Select(_) if is_queued => state.db = None,
            Change::Hello(user) if is_done => {
                state.version = match self.seen.head().first() {
                    Some(b'%') => Version::Three,
                    _ => Version::Two,
                };
                if let Some(user) = user {
                    (state.user, state.is_doubtful) = (Some(Arc::from(user)), false);
                }
            }
            // Redis applies options one by one: the user may be another one in spite of the error.
            Change::Hello(Some(_)) if is_error => state.is_doubtful = true,
            Change::Auth(user) if is_done => {
                (state.user, state.is_doubtful) = (Some(Arc::from(user)), false);
            }
            Change::Exec(number, marks, closing) => {
                // Whatever is wrong with EXEC ends the transaction; without one, WATCH goes on.
                state.end_transaction(number, !self.seen.is_without_multi());
                marks.into_iter().for_each(|marks| ways.end(marks));
                closing.into_iter().for_each(|closing| ways.reopen(closing));
            }
            Change::Discard(number) if is_done => state.end_transaction(number, true),
            Change::Discard(number) if self.seen.is_without_multi() => {
                state.end_transaction(number, false);
            }
            Change::Unwatch(number) if is_done && state.watch.0 == number => state.watch.1 = false,
            Change::Tracking(on) if is_done => state.tracking = on,
            Change::Blocks(marks) => {
                state.blocking = state.blocking.saturating_sub(1);
                marks.into_iter().for_each(|marks| ways.end(marks));
            }
            Change::Replies(marks, closing) => {
                ways.end(Marks::Many(marks.into()));
                closing.into_iter().for_each(|closing| ways.reopen(closing));
            }
            Change::Monitor if is_done => self.loosen(ways),
            Change::Reset(numbers) if is_done => {
                state.end_transaction(numbers, true);
                // What has been sent behind it stands.
                *state = State {
                    changing: state.changing,
                    blocking: state.blocking,
                    multi: state.multi,
                    watch: state.watch,
                    loose: state.loose,
                    quits: state.quits,
                    asking: state.asking,
                    silent: state.silent,
                    skip: state.skip,
                    ..State::new()
                };
            }
            // Done by a later EXEC, or never.
            Change::Hello(_)
            | Change::Auth(_)
            | Change::Tracking(_)
            | Change::Confirm(..)
            | Change::Monitor
            | Change::Reset(_)
                if is_queued =>
            {
                self.loosen(ways);
            }
            _ => {}
        }
    }

    /// Replies to what comes from here on are not counted: what is written stays marked.
    pub(super) fn loosen_behind(&mut self, ways: &mut Ways) {
        if self.state.loose {
            return;
        }
        if self.owed.replies() == 0 {
            self.loosen(ways);
            return;
        }
        (self.state.loose, self.under_way) = (true, u64::MAX);
        self.owed.effect(Effect::Change(Box::new(Change::Loose)));
    }

    /// Replies are not counted from here on, those to earlier requests neither.
    fn loosen(&mut self, ways: &mut Ways) {
        (self.state.loose, self.state.raw) = (true, true);
        let effects: Vec<Effect> = self.owed.abandon().collect();
        for effect in effects {
            let (marks, closing) = effect.into_parts();
            self.silence(marks, closing, ways);
        }
        // What has been seen of a reply passes; the rest does without the scanner.
        self.under_way = u64::MAX;
    }
}

impl State {
    /// A transaction ends, and what is watched, unless another one has begun since.
    fn end_transaction(&mut self, (multi, watch): (u64, u64), unwatches: bool) {
        self.multi.1 &= self.multi.0 != multi;
        self.watch.1 &= self.watch.0 != watch || !unwatches;
    }

    /// The server has confirmed the number of channels and patterns, or shard channels, left.
    fn confirmed(&mut self, topic: Topic, count: u64) {
        let other = match topic {
            Topic::Channels => self.subscribed[Topic::Patterns as usize],
            Topic::Patterns => self.subscribed[Topic::Channels as usize],
            Topic::Shards => 0,
        };
        self.subscribed[topic as usize] = count.saturating_sub(other);
    }
}
