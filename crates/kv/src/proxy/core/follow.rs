//! The tracking connection as a pure machine: the one connection by which the proxy itself reads,
//! so that the server says when what was read has changed (CLIENT TRACKING).
//!
//! ```text
//!   HELLO 3 · CLIENT TRACKING ON · COMMAND · ACL …      once, then
//!   PING                      every 100 ms: its answer proves that all pushes before have come
//!   [SELECT] PTTL · request   a fill: the reply is taken if nothing changed meanwhile
//!                             when a key becomes hot, and when the value that clients read changes
//!   ◀─ push: invalidate
//! ```
//!
//! # Guarantees
//! - The lease lasts from the *sending* of the last answered PING: what was written before that has
//!   been pushed before its answer.
//! - A value's deadline is reckoned from the sending of its fill: it is never served past its
//!   expiry at the server. PTTL comes first: a value that expires between the
//!   two is read as absent.
//! - A push of a fill's key that comes before the answer to PTTL is of a write before the fill's
//!   read: it ends the value from before, and not the fill.
//! - A lost connection, a flush, another role: everything is dropped at once.
//! - Bounded: as many fills as `fills` allows, replies by the longest cached one.

use super::fills::{FILLS_MAX, Fill, Fills};
use super::hot::{Nanos, SECOND};
use crate::proxy::buffer::{Gathered, Out};
use crate::proxy::commands::Commands;
use crate::proxy::form::Form;
use crate::proxy::session::Greeting;
use crate::proxy::slots::{Closing, Filled, SlotId, VARIANTS_MAX, Variant};
use crate::proxy::totals::{Dropped, Unfilled};
use crate::proxy::users::Users;
use overbank_wire::resp::{self, Replies, ReplyError, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Time between two signs of life.
pub const BEAT: Nanos = SECOND / 10;
/// Time after which a server that is silent is given up.
pub const SILENT: Nanos = 5 * SECOND;
/// Time between two looks at users and at the role, and at the commands.
const LOOK: Nanos = SECOND;
const LOOK_COMMANDS: Nanos = 30 * SECOND;
/// Longest reply that is no fill's, in bytes.
const REPLY_MAX: usize = 16 << 20;
/// Users that are known at a time.
const USERS_MAX: usize = 1024;

/// What the proxy follows the server by.
#[derive(Clone, Debug)]
pub struct Setup {
    pub user: Option<String>,
    pub password: Option<String>,
    pub seed: u64,
}

/// What a reply answers.
#[derive(Debug)]
enum Asked {
    /// Of the setup; an error ends it.
    Setup(&'static str),
    /// An answer that does not matter.
    Any,
    Select(u32),
    Commands,
    Whoami,
    /// What this user may, and when that was asked.
    User(Arc<[u8]>, Nanos),
    Policy,
    Role,
    Beat(Nanos),
    Hello,
    Ttl,
    Value(Box<Fill>),
    Reopen(Vec<Closing>),
}

/// The connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the server's reply is malformed: {0}")]
    Reply(#[from] ReplyError),
    #[error("the server's reply is malformed: {0}")]
    Memcached(#[from] overbank_wire::memcached::ReplyError),
    #[error("{0}: {1}")]
    Refused(&'static str, String),
    #[error("the server is silent")]
    Silent,
    #[error("its role has changed")]
    Role,
}

/// See the module.
pub struct Follower {
    pub out: Out,
    pub fills: Fills,
    setup: Setup,
    replies: Replies,
    input: Gathered,
    asked: VecDeque<Asked>,
    /// The reply of a fill's PTTL, until that of its read.
    ttl: Option<i64>,
    /// The database of what is asked next, and of what is answered now: a SELECT may be refused.
    db: u32,
    db_now: u32,
    commands: Arc<Commands>,
    commands_seen: u64,
    users: Users,
    greeting: Option<Greeting>,
    is_new: bool,
    role: Option<Vec<u8>>,
    touches: bool,
    /// The server is a node of a cluster.
    is_cluster: bool,
    /// Closings whose commands have been answered, while the server could not be asked; and those
    /// that end once workers know what they have changed.
    closings: Vec<Closing>,
    ending: Vec<Closing>,
    next_beat: Nanos,
    next_look: Nanos,
    next_commands: Nanos,
    last_answer: Nanos,
    /// Digest of what the proxy's own user may.
    own: u64,
}

impl Follower {
    pub fn new(setup: Setup, fills: Fills) -> Follower {
        let open = setup.user.is_none() && setup.password.is_none();
        Follower {
            out: Out::default(),
            users: Users::new(open),
            setup,
            fills,
            replies: Replies::new(),
            input: Gathered::default(),
            asked: VecDeque::new(),
            ttl: None,
            db: 0,
            db_now: 0,
            own: 0,
            commands: Commands::builtin(),
            commands_seen: 0,
            greeting: None,
            is_new: true,
            role: None,
            touches: false,
            is_cluster: false,
            closings: Vec::new(),
            ending: Vec::new(),
            next_beat: 0,
            next_look: 0,
            next_commands: 0,
            last_answer: 0,
        }
    }

    /// Returns what workers are to know, if that has changed since the last call.
    pub fn news(&mut self) -> Option<(Arc<Commands>, Users, Option<Greeting>)> {
        let of_users = self.users.take_news();
        let is_new = std::mem::take(&mut self.is_new) || of_users;
        is_new.then(|| (self.commands.clone(), self.users.clone(), self.greeting.clone()))
    }

    /// Returns whether the server is a node of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Workers know the last news: hits are served again.
    pub fn published(&mut self) {
        self.ending.drain(..).for_each(|closing| self.fills.slots.reopen(closing));
    }

    fn ask(&mut self, asked: Asked, words: &[&[u8]]) {
        resp::command(words, self.out.end());
        self.asked.push_back(asked);
    }

    /// A connection stands.
    pub fn connected(&mut self, now: Nanos) {
        self.fills.totals.connects += 1;
        (self.last_answer, self.db, self.db_now) = (now, 0, 0);
        let Setup { user, password, .. } = self.setup.clone();
        let user = user.unwrap_or_else(|| "default".to_owned());
        match &password {
            Some(password) => {
                let words: [&[u8]; 5] =
                    [b"HELLO", b"3", b"AUTH", user.as_bytes(), password.as_bytes()];
                self.ask(Asked::Hello, &words);
            }
            None => self.ask(Asked::Hello, &[b"HELLO", b"3"]),
        }
        self.ask(Asked::Any, &[b"CLIENT", b"SETNAME", b"overbank-kv-proxy"]);
        self.ask(Asked::Setup("CLIENT TRACKING ON"), &[b"CLIENT", b"TRACKING", b"ON"]);
        self.ask(Asked::Policy, &[b"CONFIG", b"GET", b"maxmemory-policy"]);
        self.ask(Asked::Whoami, &[b"ACL", b"WHOAMI"]);
        self.look(now);
        self.next_look = now + LOOK;
        self.next_commands = now + LOOK_COMMANDS;
        self.ask(Asked::Commands, &[b"COMMAND"]);
        self.beat(now);
    }

    /// Asks what users may, and for the role.
    fn look(&mut self, now: Nanos) {
        self.ask(Asked::Role, &[b"ROLE"]);
        for name in self.users.names() {
            self.ask(Asked::User(name.clone(), now), &[b"ACL", b"GETUSER", &name]);
        }
    }

    /// Chooses the database of what is asked next.
    fn select(&mut self, db: u32) {
        if self.db != db {
            self.db = db;
            self.ask(Asked::Select(db), &[b"SELECT", db.to_string().as_bytes()]);
        }
    }

    fn beat(&mut self, now: Nanos) {
        self.next_beat = now + BEAT;
        self.ask(Asked::Beat(now), &[b"PING"]);
    }

    /// The connection is gone: everything is dropped.
    pub fn lost(&mut self) {
        self.fills.lost();
        self.out.clear();
        self.replies = Replies::new();
        self.input = Gathered::default();
        self.ttl = None;
        for asked in std::mem::take(&mut self.asked) {
            if let Asked::Reopen(closings) = asked {
                self.closings.extend(closings);
            }
        }
    }

    /// The commands of these closings have been answered: hits are served again once all that they
    /// changed has been dropped.
    pub fn replied(&mut self, closing: Closing) {
        match self.fills.is_ready() {
            true => self.closings.push(closing),
            // Nothing is cached, and what is filled later has been asked for later.
            false => self.fills.slots.reopen(closing),
        }
    }

    /// A user is not known yet.
    pub fn user(&mut self, now: Nanos, name: &[u8]) {
        if self.users.len() < USERS_MAX && self.users.add(name) && self.fills.is_ready() {
            self.ask(Asked::User(name.into(), now), &[b"ACL", b"GETUSER", name]);
        }
    }

    /// A read was reported as hot, or as not cached yet.
    pub fn want(&mut self, now: Nanos, key: (u128, &[u8]), form: &Form, is_hot: bool) {
        if let Some(slot) = self.fills.want(now, key, form, is_hot) {
            self.fill(now, slot, form);
        }
    }

    /// Its key was written: what clients read of it is asked for at once.
    pub fn changed(&mut self, now: Nanos, slot: SlotId) {
        if let Some(form) = self.fills.changed(now, slot) {
            self.fill(now, slot, &form);
        }
    }

    /// Asks for a value, unless that is on its way.
    fn fill(&mut self, now: Nanos, slot: SlotId, form: &Form) {
        let Some(fill) = self.fills.begin(now, slot, form) else { return };
        self.select(form.db);
        let key = self.fills.slots.key(slot).unwrap_or_default().to_vec();
        self.ask(Asked::Ttl, &[b"PTTL", &key]);
        self.out.end().extend_from_slice(&form.request);
        self.asked.push_back(Asked::Value(Box::new(fill)));
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The server is silent.
    pub fn tick(&mut self, now: Nanos) -> Result<(), Lost> {
        let waits = !self.asked.is_empty();
        if waits && now.saturating_sub(self.last_answer) > SILENT {
            return Err(Lost::Silent);
        }
        if self.fills.is_ready() {
            if !self.closings.is_empty() {
                let closings = std::mem::take(&mut self.closings);
                // They may have changed users, too.
                self.look(now);
                self.ask(Asked::Reopen(closings), &[b"PING"]);
            }
            if now >= self.next_beat {
                self.beat(now);
            }
            if now >= self.next_look {
                self.next_look = now + LOOK;
                self.look(now);
                self.touch();
                self.fills.look();
            }
            if now >= self.next_commands {
                self.next_commands = now + LOOK_COMMANDS;
                self.ask(Asked::Commands, &[b"COMMAND"]);
            }
        }
        for (slot, form) in self.fills.decide(now) {
            self.fill(now, slot, &form);
        }
        Ok(())
    }

    /// The server evicts by last use, and does not see hits.
    fn touch(&mut self) {
        if !self.touches {
            return;
        }
        let mut keys: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
        for (db, key) in self.fills.asked() {
            keys.entry(db).or_default().push(key.to_vec());
        }
        for (db, keys) in keys {
            self.select(db);
            for keys in keys.chunks(FILLS_MAX) {
                let words: Vec<&[u8]> =
                    std::iter::once(&b"TOUCH"[..]).chain(keys.iter().map(Vec::as_slice)).collect();
                self.ask(Asked::Any, &words);
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
            let is_push = self.replies.is_push();
            let max = match self.asked.front() {
                Some(Asked::Value(_)) if !is_push => self.fills.limits.value_max,
                _ => REPLY_MAX,
            };
            self.input.add(of_reply, max);
            if step.end {
                let (reply, is_long) = self.input.take();
                self.last_answer = now;
                match is_push {
                    true => self.push(now, &reply)?,
                    false => self.answer(now, &reply, is_long)?,
                }
            }
        }
        Ok(())
    }

    /// The server says that keys have changed.
    fn push(&mut self, now: Nanos, push: &[u8]) -> Result<(), Lost> {
        let (push, _) = resp::tree(push)?;
        let Some([kind, keys, ..]) = push.elements() else { return Ok(()) };
        if kind.text() != Some(b"invalidate") {
            return Ok(());
        }
        match keys.elements() {
            None => self.fills.drop_all(Dropped::Flush),
            Some(keys) => {
                for key in keys {
                    self.fills.totals.pushes += 1;
                    let hash =
                        crate::proxy::hash_of(self.setup.seed, key.text().unwrap_or_default());
                    if let Some(slot) = self.fills.slots.push(hash) {
                        self.fills.hot.written(slot);
                        self.pushed(slot);
                        self.changed(now, slot);
                    }
                }
            }
        }
        Ok(())
    }

    /// What the server has pushed was done before what it answers next: fills of which no reply
    /// has come yet read it.
    fn pushed(&mut self, slot: SlotId) {
        if !self.fills.is_filling(slot) {
            return;
        }
        // The first may be one whose PTTL has been answered.
        for asked in self.asked.iter_mut().skip(1) {
            if let Asked::Value(fill) = asked
                && fill.ticket.slot() == slot
            {
                fill.ticket.sees_push();
            }
        }
    }

    fn answer(&mut self, now: Nanos, reply: &[u8], is_long: bool) -> Result<(), Lost> {
        let Some(asked) = self.asked.pop_front() else { return Err(ReplyError::Place.into()) };
        let is_error = matches!(reply.first(), Some(b'-' | b'!'));
        match asked {
            Asked::Setup(what) if is_error || is_long => return Err(Lost::refused(what, reply)),
            Asked::Hello if is_error || is_long => return Err(Lost::refused("HELLO 3", reply)),
            Asked::Hello => {
                let (hello, _) = resp::tree(reply)?;
                let mode = hello.get(b"mode").and_then(Value::text);
                self.is_cluster = mode == Some(b"cluster");
                (self.greeting, self.is_new) = (Greeting::new(reply), true);
            }
            Asked::Setup(_) | Asked::Any => {}
            Asked::Select(db) if !is_error => self.db_now = db,
            Asked::Select(db) if self.db == db => self.db = self.db_now,
            Asked::Select(_) => {}
            Asked::Policy => {
                let text = String::from_utf8_lossy(reply);
                self.touches = text.contains("lru") || text.contains("lfu");
            }
            Asked::Whoami => {
                if let Ok((Value::Bulk(name), _)) = resp::tree(reply) {
                    self.users.own(&name);
                }
            }
            Asked::User(name, sent) => {
                let (user, _) = resp::tree(reply)?;
                self.users.said(&name, &user, sent);
                // What it may not read any more would be served to others until it changes.
                let digest = xxhash_rust::xxh3::xxh3_64(reply);
                if self.users.is_own(&name) && std::mem::replace(&mut self.own, digest) != digest {
                    self.fills.drop_all(Dropped::Changed);
                }
            }
            Asked::Commands => self.commands(reply),
            Asked::Role => {
                let role = resp::tree(reply)?.0;
                let role = role.elements().and_then(|all| all.first()?.text().map(<[u8]>::to_vec));
                if self.role.is_some() && role.is_some() && role != self.role {
                    self.role = role;
                    self.fills.drop_all(Dropped::Changed);
                    return Err(Lost::Role);
                }
                self.role = role.or(self.role.take());
            }
            Asked::Beat(sent) => self.fills.beat(sent),
            Asked::Ttl => self.ttl = resp::tree(reply).ok().and_then(|(ttl, _)| ttl.integer()),
            Asked::Value(fill) => {
                let value = match (is_long, is_error || fill.form.db != self.db_now) {
                    (true, _) => Err(Unfilled::Long),
                    (_, true) => Err(Unfilled::Error),
                    _ => Ok(reply.into()),
                };
                self.filled(now, &fill, value);
            }
            Asked::Reopen(closings) => {
                self.fills.drop_all(Dropped::Command);
                self.ending.extend(closings);
            }
        }
        Ok(())
    }

    fn commands(&mut self, reply: &[u8]) {
        let digest = xxhash_rust::xxh3::xxh3_64(reply);
        if digest == self.commands_seen {
            return;
        }
        match Commands::of_reply(reply) {
            Ok(commands) => {
                if self.commands_seen != 0 {
                    self.fills.drop_all(Dropped::Changed);
                }
                self.commands = Arc::new(commands);
                (self.commands_seen, self.is_new) = (digest, true);
            }
            Err(error) => tracing::warn!(%error, "COMMAND: the built-in table is used"),
        }
    }

    /// Both replies of a fill have come.
    fn filled(&mut self, now: Nanos, fill: &Fill, value: Result<Box<[u8]>, Unfilled>) {
        let ttl = self.ttl.take().ok_or(Unfilled::Error);
        let filled = value.and_then(|reply| self.take(now, fill, reply, ttl?));
        self.fills.end(now, fill, filled);
    }

    fn take(
        &self,
        now: Nanos,
        fill: &Fill,
        reply: Box<[u8]>,
        ttl: i64,
    ) -> Result<Filled, Unfilled> {
        let slot = fill.ticket.slot();
        // A cluster does not say that an absent key's slot has moved.
        let age_max = match self.is_cluster {
            true => self.fills.limits.max_age.min(self.fills.limits.staleness_max),
            false => self.fills.limits.max_age,
        };
        let age = match ttl {
            // Without a value, or without expiry.
            -2 | -1 => age_max,
            ms => u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000).min(age_max),
        };
        let mut expires_at = fill.sent.saturating_add(age);
        if expires_at <= now {
            return Err(Unfilled::Expired);
        }
        let resp2 = resp::to_resp2(&reply, fill.form.null).ok_or(Unfilled::Error)?;
        let (mut variants, before) = self.fills.slots.replies(slot);
        if before <= now {
            variants.clear();
        } else {
            expires_at = expires_at.min(before);
        }
        variants.retain(|variant| {
            variant.db != fill.form.db || *variant.request != *fill.form.normalised
        });
        if variants.len() >= VARIANTS_MAX {
            variants.remove(0);
        }
        variants.push(Variant {
            db: fill.form.db,
            request: fill.form.normalised.clone(),
            resp3: reply,
            resp2: resp2.into(),
        });
        let key = self.fills.slots.key(slot).ok_or(Unfilled::Changed)?;
        Filled::new(key, expires_at, variants).ok_or(Unfilled::Memory)
    }
}

impl Lost {
    /// The server has answered what it should not.
    pub fn refused(what: &'static str, reply: &[u8]) -> Lost {
        let text = String::from_utf8_lossy(reply);
        Lost::Refused(what, text.trim().trim_start_matches('-').to_owned())
    }
}
