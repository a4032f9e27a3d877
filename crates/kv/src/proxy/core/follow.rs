//! The tracking connection as a pure machine: the one connection by which the proxy itself reads,
//! so that the server says when what was read has changed (CLIENT TRACKING).
//!
//! ```text
//!   HELLO 3 · CLIENT TRACKING ON · COMMAND · ACL …      once, then
//!   PING                      every 100 ms: its answer proves that all pushes before have come
//!   [SELECT] PTTL · request   a fill: the reply is taken if nothing changed meanwhile
//!   ◀─ push: invalidate
//! ```
//!
//! # Guarantees
//! - The lease lasts from the *sending* of the last answered PING: what was written before that has
//!   been pushed before its answer.
//! - A value's deadline is reckoned from the sending of its fill: it is never served past its
//!   expiry at the server. PTTL comes first: a value that expires between the
//!   two is read as absent.
//! - A lost connection, a flush, another role: everything is dropped at once.
//! - Bounded: [`FILLS_MAX`] fills at a time, replies by the longest cached one.

use super::hot::{Decision, Hot, Nanos, SECOND};
use crate::proxy::buffer::Out;
use crate::proxy::commands::Commands;
use crate::proxy::form::Form;
use crate::proxy::session::Greeting;
use crate::proxy::slots::{self, Closing, Filled, Refused, SlotId, Ticket, VARIANTS_MAX, Variant};
use crate::proxy::totals::{CoreTotals, Dropped, Unfilled};
use crate::proxy::users::Users;
use overbank_wire::resp::{self, Replies, ReplyError, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Time between two signs of life.
pub const BEAT: Nanos = SECOND / 10;
/// Time after which a server that is silent is given up.
const SILENT: Nanos = 5 * SECOND;
/// Time between two looks at users and at the role, and at the commands.
const LOOK: Nanos = SECOND;
const LOOK_COMMANDS: Nanos = 30 * SECOND;
/// Fills at a time.
const FILLS_MAX: usize = 1024;
/// Longest reply that is no fill's, in bytes.
const REPLY_MAX: usize = 16 << 20;
/// Time in which a form is not asked for again that the server refuses, or whose value has no room;
/// twice as long after each further time.
const REFUSED: Nanos = SECOND;
const REFUSED_DOUBLINGS: u32 = 7;
/// Users that are known at a time.
const USERS_MAX: usize = 1024;

/// What the proxy follows the server by.
#[derive(Clone, Debug)]
pub struct Setup {
    pub user: Option<String>,
    pub password: Option<String>,
    pub staleness_max: Nanos,
    pub max_age: Nanos,
    pub value_max: usize,
    pub bytes_max: usize,
    pub observe: bool,
    pub seed: u64,
}

/// A fill on its way.
#[derive(Debug)]
struct Fill {
    ticket: Ticket,
    form: Form,
    sent: Nanos,
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

/// How a form of a cached key is.
#[derive(Debug)]
struct Known {
    form: Form,
    is_filling: bool,
    not_before: Nanos,
    /// Times in a row that its value could not be taken.
    refused: u32,
}

/// The connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the server's reply is malformed: {0}")]
    Reply(#[from] ReplyError),
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
    setup: Setup,
    slots: slots::Core,
    hot: Hot<Form>,
    replies: Replies,
    /// The reply that comes, and whether there was no room for it.
    input: Vec<u8>,
    is_long: bool,
    asked: VecDeque<Asked>,
    /// The reply of a fill's PTTL, until that of its read.
    ttl: Option<i64>,
    fills: usize,
    /// The database of what is asked next, and of what is answered now: a SELECT may be refused.
    db: u32,
    db_now: u32,
    forms: HashMap<SlotId, Vec<Known>>,
    is_ready: bool,
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
    lease_from: Nanos,
    totals: CoreTotals,
    /// Hot keys with a value, at the last look.
    filled: u64,
    /// Digest of what the proxy's own user may.
    own: u64,
    decisions: Vec<Decision<Form>>,
}

impl Follower {
    pub fn new(setup: Setup, slots: slots::Core, hot: Hot<Form>) -> Follower {
        let open = setup.user.is_none() && setup.password.is_none();
        Follower {
            out: Out::default(),
            users: Users::new(open),
            setup,
            slots,
            hot,
            replies: Replies::new(),
            input: Vec::new(),
            is_long: false,
            asked: VecDeque::new(),
            ttl: None,
            fills: 0,
            db: 0,
            db_now: 0,
            filled: 0,
            own: 0,
            forms: HashMap::new(),
            is_ready: false,
            commands: Arc::new(Commands::builtin()),
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
            lease_from: 0,
            totals: CoreTotals::default(),
            decisions: Vec::new(),
        }
    }

    /// Returns what workers are to know, if that has changed since the last call.
    pub fn news(&mut self) -> Option<(Arc<Commands>, Users, Option<Greeting>)> {
        let of_users = self.users.take_news();
        let is_new = std::mem::take(&mut self.is_new) || of_users;
        is_new.then(|| (self.commands.clone(), self.users.clone(), self.greeting.clone()))
    }

    /// Returns whether the server has answered a sign of life.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns whether the server is a node of a cluster.
    pub fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Workers know the last news: hits are served again.
    pub fn published(&mut self) {
        self.ending.drain(..).for_each(|closing| self.slots.reopen(closing));
    }

    /// Returns what was counted, and how things are now.
    pub fn totals(&self, now: Nanos) -> CoreTotals {
        let hot = self.hot.totals();
        CoreTotals {
            cached: self.slots.len() as u64,
            filled: self.filled,
            cached_bytes: self.slots.bytes() as u64,
            promoted: hot.promoted,
            evicted: hot.evicted,
            lease_ms: now.saturating_sub(self.lease_from) / 1_000_000,
            open: u64::from(self.is_ready && self.slots.is_open() && self.has_lease(now)),
            ..self.totals
        }
    }

    fn has_lease(&self, now: Nanos) -> bool {
        now.saturating_sub(self.lease_from) < self.setup.staleness_max
    }

    /// Returns the hottest keys of an epoch, once it has ended.
    pub fn take_hottest(&mut self) -> Option<Vec<super::hot::Hottest>> {
        self.hot.take_hottest()
    }

    fn ask(&mut self, asked: Asked, words: &[&[u8]]) {
        resp::command(words, self.out.end());
        self.asked.push_back(asked);
    }

    /// A connection stands.
    pub fn connected(&mut self, now: Nanos) {
        self.totals.connects += 1;
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
        self.slots.set_lease(0);
        self.drop_all(Dropped::Lost);
        (self.is_ready, self.lease_from) = (false, 0);
        self.out.clear();
        self.replies = Replies::new();
        self.input = Vec::new();
        self.is_long = false;
        self.ttl = None;
        self.fills = 0;
        for asked in std::mem::take(&mut self.asked) {
            if let Asked::Reopen(closings) = asked {
                self.closings.extend(closings);
            }
        }
        self.forms.values_mut().flatten().for_each(|known| known.is_filling = false);
    }

    fn drop_all(&mut self, why: Dropped) {
        self.totals.dropped[why.index()] += 1;
        self.slots.push_all();
    }

    /// The commands of these closings have been answered: hits are served again once all that they
    /// changed has been dropped.
    pub fn replied(&mut self, closing: Closing) {
        match self.is_ready {
            true => self.closings.push(closing),
            // Nothing is cached, and what is filled later has been asked for later.
            false => self.slots.reopen(closing),
        }
    }

    /// A user is not known yet.
    pub fn user(&mut self, now: Nanos, name: &[u8]) {
        if self.users.len() < USERS_MAX && self.users.add(name) && self.is_ready {
            self.ask(Asked::User(name.into(), now), &[b"ACL", b"GETUSER", name]);
        }
    }

    /// A read was reported as hot, or as not cached yet. A form that is new to a cached key has to
    /// be hot by itself.
    pub fn want(&mut self, now: Nanos, (hash, key): (u128, &[u8]), form: Form, is_hot: bool) {
        match self.slots.slot(hash) {
            Some(slot) if self.slots.key(slot) == Some(key) => {
                let forms = self.forms.get(&slot);
                let is_known = forms.is_none_or(|all| all.iter().any(|known| known.form == form));
                if is_known || is_hot {
                    self.fill(now, slot, form);
                }
            }
            // Two keys of one hash: one of them is cached.
            Some(_) => {}
            None => self.hot.report(now, hash, key, form),
        }
    }

    /// Drops the keys that may not be cached any more.
    pub fn retain(&mut self, may: impl Fn(&[u8]) -> bool) {
        let mut evicted = Vec::new();
        self.hot.retain(&mut self.slots, may, &mut evicted);
        for decision in evicted {
            if let Decision::Evicted(slot) = decision {
                self.forms.remove(&slot);
            }
        }
    }

    /// Asks for a value, unless that is on its way.
    fn fill(&mut self, now: Nanos, slot: SlotId, form: Form) {
        let forms = self.forms.entry(slot).or_default();
        let known = match forms.iter().position(|known| known.form == form) {
            Some(at) => forms.get_mut(at),
            None => {
                // The first is the least used of late, or not.
                if forms.len() >= VARIANTS_MAX
                    && forms.first().is_some_and(|known| !known.is_filling)
                {
                    forms.remove(0);
                }
                let is_room = forms.len() < VARIANTS_MAX;
                let known =
                    Known { form: form.clone(), is_filling: false, not_before: 0, refused: 0 };
                is_room.then(|| forms.push(known));
                forms.last_mut().filter(|_| is_room)
            }
        };
        let Some(known) = known.filter(|known| !known.is_filling && now >= known.not_before) else {
            return;
        };
        if !self.is_ready || self.fills >= FILLS_MAX {
            return;
        }
        let Some(ticket) = self.slots.begin_fill(slot) else { return };
        known.is_filling = true;
        self.fills += 1;
        self.select(form.db);
        let key = self.slots.key(slot).unwrap_or_default().to_vec();
        self.ask(Asked::Ttl, &[b"PTTL", &key]);
        self.out.end().extend_from_slice(&form.request);
        self.asked.push_back(Asked::Value(Box::new(Fill { ticket, form, sent: now })));
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
        if self.is_ready {
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
                let fresh = self.slots.slots().filter(|slot| self.slots.is_fresh(*slot));
                self.filled = fresh.count() as u64;
            }
            if now >= self.next_commands {
                self.next_commands = now + LOOK_COMMANDS;
                self.ask(Asked::Commands, &[b"COMMAND"]);
            }
        }
        self.decide(now);
        Ok(())
    }

    fn decide(&mut self, now: Nanos) {
        let mut decisions = std::mem::take(&mut self.decisions);
        self.hot.decide(now, &mut self.slots, self.setup.observe, &mut decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Evicted(slot) => {
                    self.forms.remove(&slot);
                }
                Decision::Promoted(slot, forms) => {
                    self.forms.remove(&slot);
                    forms.into_iter().for_each(|form| self.fill(now, slot, form));
                }
            }
        }
        self.decisions = decisions;
    }

    /// The server evicts by last use, and does not see hits.
    fn touch(&mut self) {
        if !self.touches {
            return;
        }
        let mut keys: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
        for (slot, forms) in &self.forms {
            let (Some(key), Some(known)) = (self.slots.key(*slot), forms.first()) else { continue };
            keys.entry(known.form.db).or_default().push(key.to_vec());
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
                Some(Asked::Value(_)) if !is_push => self.setup.value_max,
                _ => REPLY_MAX,
            };
            if self.input.len() + of_reply.len() > max {
                self.is_long = true;
                self.input = Vec::new();
            }
            if !self.is_long {
                self.input.extend_from_slice(of_reply);
            }
            if step.end {
                let reply = std::mem::take(&mut self.input);
                let is_long = std::mem::take(&mut self.is_long);
                self.last_answer = now;
                match is_push {
                    true => self.push(&reply)?,
                    false => self.answer(now, &reply, is_long)?,
                }
            }
        }
        Ok(())
    }

    /// The server says that keys have changed.
    fn push(&mut self, push: &[u8]) -> Result<(), Lost> {
        let (push, _) = resp::tree(push)?;
        let Some([kind, keys, ..]) = push.elements() else { return Ok(()) };
        if kind.text() != Some(b"invalidate") {
            return Ok(());
        }
        match keys.elements() {
            None => self.drop_all(Dropped::Flush),
            Some(keys) => {
                for key in keys {
                    self.totals.pushes += 1;
                    let hash =
                        crate::proxy::hash_of(self.setup.seed, key.text().unwrap_or_default());
                    if let Some(slot) = self.slots.push(hash) {
                        self.hot.written(slot);
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, now: Nanos, reply: &[u8], is_long: bool) -> Result<(), Lost> {
        let Some(asked) = self.asked.pop_front() else { return Err(ReplyError::Place.into()) };
        let is_error = matches!(reply.first(), Some(b'-' | b'!'));
        match asked {
            Asked::Setup(what) if is_error || is_long => return Err(refused(what, reply)),
            Asked::Hello if is_error || is_long => return Err(refused("HELLO 3", reply)),
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
                    self.drop_all(Dropped::Changed);
                }
            }
            Asked::Commands => self.commands(reply),
            Asked::Role => {
                let role = resp::tree(reply)?.0;
                let role = role.elements().and_then(|all| all.first()?.text().map(<[u8]>::to_vec));
                if self.role.is_some() && role.is_some() && role != self.role {
                    self.role = role;
                    self.drop_all(Dropped::Changed);
                    return Err(Lost::Role);
                }
                self.role = role.or(self.role.take());
            }
            Asked::Beat(sent) => {
                if !self.is_ready {
                    self.is_ready = true;
                    tracing::info!("follows the server");
                }
                self.lease_from = self.lease_from.max(sent);
                self.slots.set_lease(sent + self.setup.staleness_max);
            }
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
                self.drop_all(Dropped::Command);
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
                    self.drop_all(Dropped::Changed);
                }
                self.commands = Arc::new(commands);
                (self.commands_seen, self.is_new) = (digest, true);
            }
            Err(error) => tracing::warn!(%error, "COMMAND: the built-in table is used"),
        }
    }

    /// Both replies of a fill have come.
    fn filled(&mut self, now: Nanos, fill: &Fill, value: Result<Box<[u8]>, Unfilled>) {
        self.fills = self.fills.saturating_sub(1);
        let slot = fill.ticket.slot();
        let ttl = self.ttl.take().ok_or(Unfilled::Error);
        let result = value.and_then(|reply| self.take(now, fill, reply, ttl?));
        let known = self.forms.get_mut(&slot);
        let known = known.and_then(|forms| forms.iter_mut().find(|known| known.form == fill.form));
        if let Some(known) = known {
            known.is_filling = false;
            known.refused = match result {
                Err(Unfilled::Error | Unfilled::Long | Unfilled::Memory) => known.refused + 1,
                _ => 0,
            };
            // Twice as long after each: a long value costs the server as much each time.
            let doublings = known.refused.min(REFUSED_DOUBLINGS);
            known.not_before = if doublings == 0 { 0 } else { now + (REFUSED << (doublings - 1)) };
        }
        match result {
            Ok(()) => self.totals.fills += 1,
            Err(why) => self.totals.unfilled[why.index()] += 1,
        }
    }

    fn take(
        &mut self,
        now: Nanos,
        fill: &Fill,
        reply: Box<[u8]>,
        ttl: i64,
    ) -> Result<(), Unfilled> {
        let slot = fill.ticket.slot();
        // A cluster does not say that an absent key's slot has moved.
        let age_max = match self.is_cluster {
            true => self.setup.max_age.min(self.setup.staleness_max),
            false => self.setup.max_age,
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
        let (mut variants, before) = self.slots.replies(slot);
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
        let key = self.slots.key(slot).ok_or(Unfilled::Changed)?.to_vec();
        let filled = Filled::new(&key, expires_at, variants).ok_or(Unfilled::Memory)?;
        if filled.bytes() > self.setup.bytes_max {
            return Err(Unfilled::Long);
        }
        match self.slots.accept(fill.ticket, filled) {
            Ok(()) => Ok(()),
            Err(Refused::Changed | Refused::OtherKey) => Err(Unfilled::Changed),
            Err(Refused::Full) => {
                self.evict_for(slot);
                Err(Unfilled::Memory)
            }
        }
    }

    /// Evicts the coldest of some, for a value that has no room and is hotter.
    fn evict_for(&mut self, slot: SlotId) {
        let heat = self.hot.heat(slot, &mut self.slots);
        let coldest = self.hot.coldest(&mut self.slots).filter(|(_, cold)| *cold < heat);
        if let Some((coldest, _)) = coldest.filter(|(coldest, _)| *coldest != slot) {
            self.slots.evict(coldest);
            self.hot.forget(coldest);
            self.forms.remove(&coldest);
        }
    }
}

fn refused(what: &'static str, reply: &[u8]) -> Lost {
    let text = String::from_utf8_lossy(reply);
    Lost::Refused(what, text.trim().trim_start_matches('-').to_owned())
}
