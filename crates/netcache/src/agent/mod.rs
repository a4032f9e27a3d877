//! The server's side of the protocol: a store's reads and writes, and the device kept right about
//! the keys that it caches (section 4.3, and what the paper's protocol lacks).
//!
//! ```text
//!                ┌─ stamped ───────────────────────────┐
//!   PUT, DELETE ─┤                  ┌─ not cached ──────┼─▶ store, in the key's order ─▶ WRITE_OK
//!                └─ without stamp ──┤                   │             │
//!                                   └─ cached ─▶ FENCE ─┘             └─▶ UPDATE, if cached
//! ```
//!
//! # Rules
//! 1. The device stamps each write of a cached key that passes, and makes the key invalid. An
//!    UPDATE counts there only with the last stamp.
//! 2. A stamp that is not above the key's last one belongs to a write that others have overtaken:
//!    it is dropped, as if it had been lost. The client repeats it, and the device stamps it anew.
//! 3. A write without a stamp passed before the key was cached, or by another way. If the key is
//!    cached, the write waits for a FENCE: it makes the key invalid, and its answer is the write's
//!    stamp.
//! 4. When a key has no write left, its value goes to the device under the last stamp. No write
//!    waits for that.
//! 5. A request is applied once, however often it comes: see `Windows`.
//! 6. After a start, an agent serves nothing until the controller has said that the device caches
//!    none of its keys (HELLO, RESUME). One without a device serves at once ([`Agent::alone`]).
//! 7. An agent over a store that outlives it serves nothing, besides, until no request can come
//!    that the run before has applied ([`Settings::quiet_us`], [`crate::client::QUIET_US`]).
//!
//! **Why a reader never sees an old value.** The device hands out the value of an UPDATE whose
//! stamp is the last one. The agent sent it when all writes were in the store that it had accepted
//! under that stamp or an earlier one, and nothing had been accepted since. A write that the agent
//! has not accepted then is stamped later, or has none: if it is stamped later, the UPDATE counts
//! no more; if it has none, it is fenced before the store has it, and the UPDATE counts no more
//! either. So what the device hands out is what the store has, until the next write passes the
//! device.
//!
//! A stamp is taken for the device's. So the ways around the device must be free of strangers that
//! send stamped messages: a stamp that is too high makes later writes of its key be dropped.
//!
//! Answers of the device name the run and the number of what they answer. An answer to what is no
//! longer asked changes nothing. Without the run, a late answer to the run before, which had the
//! same numbers, could say that a key is not cached which is.

mod line;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod window;

use crate::Micros;
use line::{Line, Write};
use overbank_wire::netcache::{FLAG_ABSENT, Key, Message, Op, Stamp, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use window::WINDOW;
use window::{Known, Windows};

/// A value; `None`: the key has none.
pub type Value = Option<Arc<[u8]>>;

/// A message that has its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Letter {
    pub head: Message<'static>,
    pub value: Arc<[u8]>,
}

impl Letter {
    /// Returns the message.
    pub fn message(&self) -> Message<'_> {
        Message { value: &self.value, ..self.head }
    }
}

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    Read,
    /// Sets the value, or removes it.
    Write(Value),
}

/// What the store has answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    Read(Value),
    Written,
    /// It has refused, or may have done it or not.
    Failed,
}

/// What an agent does. `P` is where an answer goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<P> {
    /// Answers a client.
    Reply(P, Letter),
    /// Says something to the device, or to its controller: one address for both.
    Device(Letter),
    /// Asks the store. The answer comes with this number.
    Store { number: u64, key: Key, ask: Ask },
}

/// Bounds and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Time after which what is not answered is repeated.
    pub retry_us: Micros,
    /// How often it is sent before the controller is asked for help.
    pub tries_max: u32,
    /// Requests of all clients that wait for the store or the device at most.
    pub waiting_max: usize,
    /// Clients whose requests are remembered at most (up to 1,024 each: some 40 KB), and how long
    /// after their last one.
    pub clients_max: usize,
    pub client_idle_us: Micros,
    /// Bytes of a value that the device takes at most.
    pub value_max: usize,
    /// Nothing is served before this time, on a clock that starts at 0 with the agent.
    pub quiet_us: Micros,
}

impl Settings {
    /// The settings of an agent that nothing else is said of.
    pub const DEFAULT: Settings = Settings {
        retry_us: 2_000,
        tries_max: 10,
        waiting_max: 1 << 16,
        clients_max: 1 << 16,
        client_idle_us: 60_000_000,
        value_max: crate::slots::VALUE_MAX,
        quiet_us: 0,
    };

    /// Repeating takes twice as long each time, so often at most.
    const DOUBLINGS_MAX: u32 = 6;

    /// Longest time between two HELLOs: it doubles from [`Settings::retry_us`] on.
    pub const HELLO_MAX_US: Micros = 500_000;
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What an agent has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Totals {
    /// Requests before the controller said that the device caches nothing, or in the quiet time.
    pub early: u64,
    /// Writes that were dropped because a later one had been accepted.
    pub overtaken: u64,
    /// Writes that came again.
    pub repeated: u64,
    /// Writes that waited for a fence.
    pub held: u64,
    /// Requests that were refused because too many wait, or too many clients are remembered.
    pub busy: u64,
    /// Requests that were refused because later ones of their client are remembered.
    pub too_old: u64,
    /// Writes and reads that the store has not done.
    pub failed: u64,
    /// Keys that the controller was asked to install anew or to leave out.
    pub refreshed: u64,
}

/// What an answer of the store is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum For<P> {
    /// A client's GET.
    Get(P, Message<'static>),
    /// The write at the head of the key's line.
    Write,
    /// The value for an UPDATE.
    Update,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent<P> {
    settings: Settings,
    /// Number of this run, which the controller answers.
    epoch: u64,
    serves: bool,
    /// When HELLO is repeated, and how long after that again.
    hello_due: Micros,
    hello_us: Micros,
    /// Keys that are cached or have writes.
    lines: BTreeMap<Key, Line<P>>,
    windows: Windows,
    asked: BTreeMap<u64, (Key, For<P>)>,
    /// The last number of what was asked of the store or the device.
    number: u64,
    /// When what was said for a key is repeated.
    due: BTreeSet<(Micros, Key)>,
    waiting: usize,
    totals: Totals,
}

impl<P: Clone> Agent<P> {
    /// Returns an agent in its run `epoch`, a number that no run before had and that strangers
    /// cannot guess. It serves nothing yet.
    pub fn new(settings: Settings, epoch: u64) -> Agent<P> {
        Agent {
            settings,
            epoch,
            serves: false,
            hello_due: 0,
            hello_us: settings.retry_us,
            lines: BTreeMap::new(),
            windows: Windows::new(settings.clients_max, settings.client_idle_us),
            asked: BTreeMap::new(),
            number: 0,
            due: BTreeSet::new(),
            waiting: 0,
            totals: Totals::default(),
        }
    }

    /// Returns an agent without a device on the path to it. It asks for no RESUME, and must get no
    /// message that only a device sends.
    pub fn alone(settings: Settings, epoch: u64) -> Agent<P> {
        Agent { serves: true, ..Agent::new(settings, epoch) }
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns an agent in another run, whose store has remembered what it has applied.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn again(&self, epoch: u64) -> Agent<P> {
        let mut windows = self.windows.clone();
        windows.forget_waiting();
        Agent { windows, ..Agent::new(self.settings, epoch) }
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn forget_windows(&mut self) {
        let Settings { clients_max, client_idle_us, .. } = self.settings;
        self.windows = Windows::new(clients_max, client_idle_us);
    }

    /// Makes states equal that differ in how often something was said, or in numbers above the
    /// last one that was.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn forget_tries(&mut self, last: u64) {
        self.lines.values_mut().for_each(Line::forget_tries);
        self.totals = Totals::default();
        self.number = last;
    }

    /// Gives what the device is asked for the numbers from 1 on; returns those before.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn renumber(&mut self) -> Vec<u64> {
        let asked = self.lines.values_mut().filter_map(Line::number);
        asked.zip(1..).map(|(number, nth)| std::mem::replace(number, nth)).collect()
    }

    /// Client and request of this key's write that is at the store.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn writing(&self, key: Key) -> Option<(u64, u64)> {
        self.lines.get(&key)?.first()
    }

    /// Takes the writes of a key that wait for a fence, without one, if they are as many.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn release(&mut self, key: Key, at_least: usize, out: &mut Vec<Action<P>>) {
        if self.lines.get(&key).is_some_and(|line| line.held() >= at_least) {
            self.with(0, key, out, |line, doing| line.release(doing));
        }
    }

    /// Whether it serves and no write waits.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn rests(&self) -> bool {
        self.serves && self.waiting == 0
    }

    /// Whether it would do something after some time that it has not done yet.
    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn is_due(&self) -> bool {
        self.lines.values().any(Line::is_patient)
    }

    /// Returns whether requests are served.
    pub fn serves(&self, now: Micros) -> bool {
        self.serves && now >= self.settings.quiet_us
    }

    /// Takes a message that has come in from there.
    pub fn message(&mut self, now: Micros, from: P, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        match said.op {
            Op::Resume => self.serves |= said.request == self.epoch,
            Op::Get | Op::Put | Op::PutCached | Op::Delete | Op::DeleteCached
                if !self.serves(now) =>
            {
                self.totals.early += 1;
            }
            Op::Get => self.get(from, said, out),
            Op::Put | Op::PutCached | Op::Delete | Op::DeleteCached => {
                self.write(now, from, said, out);
            }
            Op::FenceOk | Op::UpdateOk => self.device(now, said, out),
            Op::Adopt => self.adopt(now, said, out),
            Op::Evicted => self.evicted(now, said, out),
            _ => {}
        }
    }

    /// Repeats what was not answered. To be called now and then; returns when next.
    pub fn tick(&mut self, now: Micros, out: &mut Vec<Action<P>>) -> Micros {
        if !self.serves && now >= self.hello_due {
            self.hello_due = now + self.hello_us;
            self.hello_us = (2 * self.hello_us).min(Settings::HELLO_MAX_US);
            let hello = Message::new(Op::Hello, 0, self.epoch, 0);
            out.push(Action::Device(Letter { head: hello, value: Arc::default() }));
        }
        let later = self.due.split_off(&(now + 1, 0));
        for (_, key) in std::mem::replace(&mut self.due, later) {
            self.with(now, key, out, |line, doing| line.again(doing));
        }
        self.windows.forget(now);
        let hello = (!self.serves).then_some(self.hello_due);
        let due = self.due.first().map(|due| due.0);
        due.into_iter().chain(hello).min().unwrap_or(now + self.settings.client_idle_us)
    }

    /// Takes what the store has answered.
    pub fn stored(&mut self, now: Micros, number: u64, answer: Answer, out: &mut Vec<Action<P>>) {
        let Some((key, asked)) = self.asked.remove(&number) else { return };
        self.totals.failed += u64::from(answer == Answer::Failed);
        match asked {
            For::Get(from, head) => {
                self.waiting -= 1;
                let (op, value) = match answer {
                    Answer::Read(Some(value)) => (Op::GetOk, value),
                    Answer::Read(None) => (Op::NotFound, Arc::default()),
                    _ => return out.push(refusal(from, &head, Status::Refused)),
                };
                let head = Message { stamp: Stamp::NONE, ..head.answer(op, Status::Ok) };
                out.push(Action::Reply(from, Letter { head, value }));
            }
            For::Write => {
                let written = answer == Answer::Written;
                let write = self.with(now, key, out, |line, doing| line.written(written, doing));
                let Some(write) = write else { return };
                self.waiting -= 1;
                let status = if written { Status::Ok } else { Status::Refused };
                self.windows.done(write.name(), status);
                out.push(reply(write.from, &write.head, status));
            }
            For::Update => {
                let value = if let Answer::Read(value) = answer { Some(value) } else { None };
                self.with(now, key, out, |line, doing| line.read(number, value, doing));
            }
        }
    }

    fn get(&mut self, from: P, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        let head = Message { value: &[], ..*said };
        if self.waiting >= self.settings.waiting_max {
            self.totals.busy += 1;
            return out.push(refusal(from, &head, Status::Busy));
        }
        self.waiting += 1;
        self.number += 1;
        self.asked.insert(self.number, (said.key, For::Get(from, head)));
        out.push(Action::Store { number: self.number, key: said.key, ask: Ask::Read });
    }

    fn write(&mut self, now: Micros, from: P, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        let head = Message { value: &[], ..*said };
        let is_stamped = matches!(said.op, Op::PutCached | Op::DeleteCached);
        // What comes by no device has no stamp, whatever it says.
        let stamp = is_stamped.then_some(said.stamp);
        let line = self.lines.get(&said.key);
        if let Some(stamp) = stamp
            && line.is_some_and(|line| line.has_accepted(stamp))
        {
            self.totals.overtaken += 1;
            return;
        }
        let name = (said.client, said.request);
        let known = match self.windows.known(name) {
            Known::New if self.waiting >= self.settings.waiting_max => Known::Full,
            Known::New => self.windows.begin(now, name),
            known => known,
        };
        let refused = match known {
            Known::New => None,
            Known::Full => {
                self.totals.busy += 1;
                Some(Status::Busy)
            }
            Known::TooOld => {
                self.totals.too_old += 1;
                Some(Status::TooOld)
            }
            Known::Waits => {
                self.totals.repeated += 1;
                None
            }
            Known::Done(status) => {
                self.totals.repeated += 1;
                out.push(reply(from.clone(), &head, status));
                None
            }
        };
        if let Some(status) = refused {
            out.push(refusal(from.clone(), &head, status));
        }
        let write = (known == Known::New).then(|| {
            self.waiting += 1;
            let is_put = matches!(said.op, Op::Put | Op::PutCached);
            Write { from, head, value: is_put.then(|| said.value.into()) }
        });
        // Without a write left, the stamp has made the key invalid all the same.
        let held = self.with(now, said.key, out, |line, doing| line.take(stamp, write, doing));
        self.totals.held += u64::from(held);
    }

    fn device(&mut self, now: Micros, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        if said.client == self.epoch && self.lines.contains_key(&said.key) {
            self.with(now, said.key, out, |line, doing| line.answered(said, doing));
        }
    }

    fn adopt(&mut self, now: Micros, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        if !self.serves(now) {
            return;
        }
        let head = said.answer(Op::Adopted, Status::Ok);
        out.push(Action::Device(Letter { head, value: Arc::default() }));
        self.with(now, said.key, out, |line, doing| line.adopt(said.stamp, doing));
    }

    fn evicted(&mut self, now: Micros, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        let head = said.answer(Op::Adopted, Status::Absent);
        out.push(Action::Device(Letter { head, value: Arc::default() }));
        if self.lines.contains_key(&said.key) {
            self.with(now, said.key, out, |line, doing| line.evicted(said.stamp, doing));
        }
    }

    /// Has a key's line do something, and keeps it while it has anything.
    fn with<R>(
        &mut self,
        now: Micros,
        key: Key,
        out: &mut Vec<Action<P>>,
        act: impl FnOnce(&mut Line<P>, &mut Doing<'_, P>) -> R,
    ) -> R {
        let line = self.lines.entry(key).or_default();
        let before = line.due();
        let mut doing = Doing {
            now,
            key,
            settings: &self.settings,
            epoch: self.epoch,
            number: &mut self.number,
            asked: &mut self.asked,
            totals: &mut self.totals,
            out,
        };
        let result = act(line, &mut doing);
        let after = line.due();
        before.map(|at| self.due.remove(&(at, key)));
        after.map(|at| self.due.insert((at, key)));
        if line.is_empty() {
            self.lines.remove(&key);
        }
        result
    }
}

/// What a line needs to act.
struct Doing<'a, P> {
    now: Micros,
    key: Key,
    settings: &'a Settings,
    epoch: u64,
    number: &'a mut u64,
    asked: &'a mut BTreeMap<u64, (Key, For<P>)>,
    totals: &'a mut Totals,
    out: &'a mut Vec<Action<P>>,
}

impl<P> Doing<'_, P> {
    fn number(&mut self) -> u64 {
        *self.number += 1;
        *self.number
    }

    fn store(&mut self, ask: Ask, of: For<P>) -> u64 {
        let (number, key) = (self.number(), self.key);
        self.asked.insert(number, (key, of));
        self.out.push(Action::Store { number, key, ask });
        number
    }

    fn say(&mut self, op: Op, number: u64, (status, stamp): (Status, Stamp), value: &Value) {
        let flags = if op == Op::Update && value.is_none() { FLAG_ABSENT } else { 0 };
        let head =
            Message { flags, status, stamp, ..Message::new(op, self.epoch, number, self.key) };
        let value = value.clone().unwrap_or_default();
        self.out.push(Action::Device(Letter { head, value }));
    }
}

fn reply<P>(to: P, head: &Message<'_>, status: Status) -> Action<P> {
    if status != Status::Ok {
        return refusal(to, head, status);
    }
    let head = Message { stamp: Stamp::NONE, ..head.answer(Op::WriteOk, status) };
    Action::Reply(to, Letter { head, value: Arc::default() })
}

fn refusal<P>(to: P, head: &Message<'_>, status: Status) -> Action<P> {
    let head = Message { stamp: Stamp::NONE, ..head.answer(Op::Error, status) };
    Action::Reply(to, Letter { head, value: Arc::default() })
}
