//! The proxy's own connection to memcached as a pure machine.
//!
//! ```text
//!   mn                        every 100 ms: the server lives, and the connection stands
//!   mg key k f c t v          a fill: value, flags, CAS id and time to live at once
//! ```
//!
//! # Guarantees
//! - The lease lasts from the *sending* of the last answered `mn`.
//! - A value is served up to its longest age, its time to live less a second (the server counts in
//!   seconds), and the next delayed flush; all from the sending of its `mg`.
//! - An item that is stale, or whose win has been given to a client, is not cached: what `mg` says
//!   of it changes with each reading.
//! - A value that has been read since it came is asked for again at 0.8 of its longest age: readers
//!   do not wait. At least once a minute, so that the server sees that it is used.
//! - A lost connection: everything is dropped at once.

use super::flush::Flushes;
use super::item::Item;
use crate::proxy::buffer::{Gathered, Out};
use crate::proxy::core::{BEAT, Fill, Fills, Lost, Nanos, SECOND, SILENT};
use crate::proxy::form::Form;
use crate::proxy::slots::{Closing, Filled, SlotId};
use crate::proxy::totals::{Dropped, Unfilled};
use overbank_wire::memcached::{Flags, KEY_MAX, Replies, encode_key};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of a reply beside its value.
const LINE_MAX: usize = 1024;
/// Longest time in which the server does not see that a value is used.
const UNSEEN: Nanos = 60 * SECOND;

/// What a reply answers.
#[derive(Debug)]
enum Asked {
    Beat(Nanos),
    Value(Box<Fill>),
}

/// See the module.
pub struct Follower {
    pub out: Out,
    pub fills: Fills,
    flushes: Arc<Flushes>,
    form: Form,
    replies: Replies,
    input: Gathered,
    asked: VecDeque<Asked>,
    /// When values are asked for again; by slot that, and the hits when the value came.
    refresh: BTreeSet<(Nanos, SlotId)>,
    came: HashMap<SlotId, (Nanos, u32)>,
    next_beat: Nanos,
    next_look: Nanos,
    last_answer: Nanos,
}

impl Follower {
    pub fn new(flushes: Arc<Flushes>, fills: Fills) -> Follower {
        Follower {
            out: Out::default(),
            fills,
            flushes,
            form: Form::item(),
            replies: Replies::new(),
            input: Gathered::default(),
            asked: VecDeque::new(),
            refresh: BTreeSet::new(),
            came: HashMap::new(),
            next_beat: 0,
            next_look: 0,
            last_answer: 0,
        }
    }

    /// A connection stands.
    pub fn connected(&mut self, now: Nanos) {
        self.fills.totals.connects += 1;
        (self.last_answer, self.next_look) = (now, now + SECOND);
        self.beat(now);
    }

    fn beat(&mut self, now: Nanos) {
        self.next_beat = now + BEAT;
        self.out.end().extend_from_slice(super::session::NOOP);
        self.asked.push_back(Asked::Beat(now));
    }

    /// The connection is gone: everything is dropped.
    pub fn lost(&mut self) {
        self.fills.lost();
        self.out.clear();
        self.replies = Replies::new();
        self.input = Gathered::default();
        self.asked.clear();
        self.refresh.clear();
        self.came.clear();
    }

    /// What closed the cache has been answered, and so has been done: what was asked for before is
    /// not taken.
    pub fn replied(&mut self, closing: Closing) {
        self.fills.drop_all(Dropped::Command);
        self.fills.slots.reopen(closing);
    }

    /// A read was reported as hot, or as not cached yet.
    pub fn want(&mut self, now: Nanos, key: (u128, &[u8]), form: &Form, is_hot: bool) {
        if let Some(slot) = self.fills.want(now, key, form, is_hot) {
            self.fill(now, slot);
        }
    }

    /// Its key was written: what clients read of it is asked for at once.
    pub fn changed(&mut self, now: Nanos, slot: SlotId) {
        if self.fills.changed(now, slot).is_some() {
            self.fill(now, slot);
        }
    }

    /// Asks for a value, unless that is on its way.
    fn fill(&mut self, now: Nanos, slot: SlotId) {
        let Some(fill) = self.fills.begin(now, slot, &self.form) else { return };
        let key = self.fills.slots.key(slot).unwrap_or_default();
        let is_text = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
        let mut text = Vec::new();
        match is_text {
            true => text.extend_from_slice(key),
            false => encode_key(key, &mut text),
        }
        if text.is_empty() || text.len() > KEY_MAX {
            self.fills.end(now, &fill, Err(Unfilled::Error));
            return;
        }
        let flags: &[u8] = if is_text { b" k f c t v\r\n" } else { b" b k f c t v\r\n" };
        self.out.end().extend_from_slice(&[b"mg ", &text[..], flags].concat());
        self.asked.push_back(Asked::Value(Box::new(fill)));
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The server is silent.
    pub fn tick(&mut self, now: Nanos) -> Result<(), Lost> {
        if !self.asked.is_empty() && now.saturating_sub(self.last_answer) > SILENT {
            return Err(Lost::Silent);
        }
        if self.fills.is_ready() {
            if now >= self.next_beat {
                self.beat(now);
            }
            if now >= self.next_look {
                self.next_look = now + SECOND;
                self.count_writes();
                self.fills.look();
            }
            self.refresh(now);
        }
        for (slot, _) in self.fills.decide(now) {
            self.fill(now, slot);
        }
        Ok(())
    }

    /// The server does not say what is written; the slots know of what passed.
    fn count_writes(&mut self) {
        let slots: Vec<SlotId> = self.fills.slots.slots().collect();
        for slot in slots {
            let writes = self.fills.slots.writes(slot);
            (0..writes).for_each(|_| self.fills.hot.written(slot));
        }
    }

    /// Asks again for values that are nearly over and have been read.
    fn refresh(&mut self, now: Nanos) {
        while let Some((_, slot)) = self.refresh.first().copied().filter(|(due, _)| *due <= now) {
            if !self.fills.has_room() {
                return;
            }
            self.refresh.pop_first();
            let before = self.came.remove(&slot).map(|(_, hits)| hits);
            let hits = self.fills.slots.hits_so_far(slot);
            if !self.fills.slots.is_fresh(slot) {
                continue;
            }
            // What lasts longer may be read again.
            if self.fills.limits.max_age > UNSEEN {
                self.refresh_at(now + UNSEEN / 10 * 8, slot);
            }
            if before != Some(hits) {
                self.fill(now, slot);
            }
        }
    }

    /// Takes bytes of the server.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn bytes(&mut self, now: Nanos, bytes: &[u8]) -> Result<(), Lost> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = self.replies.scan(rest)?;
            let (of_reply, behind) = rest.split_at_checked(step.len).ok_or(Lost::Silent)?;
            rest = behind;
            let max = self.fills.limits.value_max.saturating_add(LINE_MAX);
            self.input.add(of_reply, max);
            if step.end {
                let (reply, is_long) = self.input.take();
                self.last_answer = now;
                self.answer(now, &reply, is_long)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, now: Nanos, reply: &[u8], is_long: bool) -> Result<(), Lost> {
        match self.asked.pop_front() {
            Some(Asked::Beat(sent)) if reply == b"MN\r\n" => self.fills.beat(sent),
            Some(Asked::Beat(_)) => return Err(Lost::refused("mn", reply)),
            Some(Asked::Value(fill)) => {
                let filled = match is_long {
                    true => Err(Unfilled::Long),
                    false => self.take(now, &fill, reply),
                };
                if self.fills.end(now, &fill, filled) {
                    let life = self.fills.limits.max_age.min(UNSEEN) / 10 * 8;
                    self.refresh_at(fill.sent + life, fill.ticket.slot());
                }
            }
            None => return Err(Lost::refused("nothing asked", reply)),
        }
        Ok(())
    }

    /// Looks at a value again then, and whether it has been read by then.
    fn refresh_at(&mut self, due: Nanos, slot: SlotId) {
        let hits = self.fills.slots.hits_so_far(slot);
        if let Some((before, _)) = self.came.insert(slot, (due, hits)) {
            self.refresh.remove(&(before, slot));
        }
        self.refresh.insert((due, slot));
    }

    fn take(&self, now: Nanos, fill: &Fill, reply: &[u8]) -> Result<Filled, Unfilled> {
        let key = self.fills.slots.key(fill.ticket.slot()).ok_or(Unfilled::Changed)?;
        let flush = self.flushes.limit(fill.sent).ok_or(Unfilled::Changed)?;
        let mut expires_at = flush.min(fill.sent.saturating_add(self.fills.limits.max_age));
        let variant = match reply.starts_with(b"EN") {
            true => Item::variant(None),
            false => {
                let Answer { words, is_base64, value, ttl } =
                    Answer::read(reply, key).ok_or(Unfilled::Error)?;
                if value.len().saturating_sub(2) > self.fills.limits.value_max {
                    return Err(Unfilled::Long);
                }
                if let Some(seconds) = ttl {
                    // The server's second has begun some time ago.
                    let life = seconds.saturating_sub(1).saturating_mul(SECOND);
                    expires_at = expires_at.min(fill.sent.saturating_add(life));
                }
                Item::variant(Some(Item { words: &words, is_base64, value }))
            }
        };
        if expires_at <= now {
            return Err(Unfilled::Expired);
        }
        Filled::new(key, expires_at, vec![variant]).ok_or(Unfilled::Memory)
    }
}

/// What a fill's reply says.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'a> {
    words: Vec<u8>,
    is_base64: bool,
    /// With the line end behind it.
    value: &'a [u8],
    /// Seconds to live; `None` without expiry.
    ttl: Option<u64>,
}

impl<'a> Answer<'a> {
    /// Reads `VA len kkey [b] fflags ccas tttl`; `None` of anything else, or of an item that is
    /// stale or that a client is to store.
    fn read(reply: &'a [u8], key: &[u8]) -> Option<Answer<'a>> {
        let line = reply.iter().position(|byte| *byte == b'\n')?;
        let (line, value) = reply.split_at(line + 1);
        let (len, flags) = split(line.strip_prefix(b"VA ")?.strip_suffix(b"\r\n")?);
        let length: usize = std::str::from_utf8(len).ok()?.parse().ok()?;
        if value.len() != length.checked_add(2)? {
            return None;
        }
        let (mut shown, mut client, mut cas, mut ttl) = (None, None, None, None);
        let mut is_base64 = false;
        for (flag, token) in Flags::new(flags) {
            match flag {
                b'k' => shown = Some(token),
                b'b' => is_base64 = true,
                b'f' => client = Some(token),
                b'c' => cas = Some(token),
                b't' => ttl = Some(token),
                _ => return None,
            }
        }
        let mut text = Vec::new();
        if is_base64 {
            encode_key(key, &mut text);
        }
        let is_its = shown == Some(if is_base64 { &text } else { key });
        let ttl = match ttl? {
            b"-1" => None,
            seconds => Some(std::str::from_utf8(seconds).ok()?.parse().ok()?),
        };
        let words = [client?, len, cas?].join(&b' ');
        is_its.then_some(Answer { words, is_base64, value, ttl })
    }
}

/// Splits a line behind its first word.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_a_whole_or_not_at_all() {
        let read = |reply: &str| {
            let answer = Answer::read(reply.as_bytes(), b"foo")?;
            let words = String::from_utf8(answer.words).expect("text");
            Some((words, answer.is_base64, answer.value.len(), answer.ttl))
        };
        let words = "5 2 17".to_owned();
        for (reply, expected) in [
            ("VA 2 kfoo f5 c17 t-1\r\nhi\r\n", Some((words.clone(), false, 4, None))),
            ("VA 2 kfoo f5 c17 t9\r\nhi\r\n", Some((words.clone(), false, 4, Some(9)))),
            ("VA 2 kZm9v b f5 c17 t9\r\nhi\r\n", Some((words, true, 4, Some(9)))),
            // Of another key.
            ("VA 2 kbar f5 c17 t9\r\nhi\r\n", None),
            // Stale, won by a client, won by this.
            ("VA 2 kfoo f5 c17 t9 X\r\nhi\r\n", None),
            ("VA 2 kfoo f5 c17 t9 Z\r\nhi\r\n", None),
            ("VA 2 kfoo f5 c17 t9 W\r\nhi\r\n", None),
            ("VA 3 kfoo f5 c17 t9\r\nhi\r\n", None),
            ("VA 2 kfoo f5 t9\r\nhi\r\n", None),
            ("HD kfoo f5 c17 t9\r\n", None),
            ("SERVER_ERROR out of memory\r\n", None),
            ("", None),
        ] {
            assert_eq!(read(reply), expected, "{reply:?}");
        }
    }
}
