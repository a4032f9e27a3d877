//! A server's side of the protocol as the paper has it (section 4.3), to be compared and caught.
//!
//! - A write of a cached key is applied and answered. Its value then goes to the device until it is
//!   acknowledged; later writes of the key wait for that.
//! - While a key is being cached, its writes wait until the device has its value.
//! - No request is remembered: a write that is repeated is applied again.
//!
//! **What is wrong with it.** Nothing orders an UPDATE and the writes that pass the device after
//! its value was read. A write makes the key invalid, passes, and waits at the server; the UPDATE
//! of the write before it arrives, and the key is valid again. The server acknowledges the second
//! write, and readers get the value of the first. No loss is needed.

use crate::Micros;
use crate::agent::{Action, Answer, Ask, Letter, Settings, Totals, Value};
use overbank_wire::netcache::{FLAG_ABSENT, Key, Message, Op, Stamp, Status};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A write that waits.
struct Write<P> {
    from: P,
    head: Message<'static>,
    value: Value,
}

/// What is done for a key.
enum Step<P> {
    Idle,
    /// The store applies a write.
    Storing(Write<P>),
    /// The store is asked for the value of a key that is being cached.
    Reading(Stamp),
    /// The device is to take a value; when it is sent again, and how often it was.
    Updating {
        number: u64,
        stamp: Stamp,
        value: Value,
        due: Micros,
        tries: u32,
    },
}

struct Line<P> {
    step: Step<P>,
    queue: VecDeque<Write<P>>,
    /// The key is to be cached once the step is done.
    adopt: Option<Stamp>,
}

/// What the store is asked for.
enum For<P> {
    Get(P, Message<'static>),
    Line,
}

/// See the module. `P` is where an answer goes.
pub struct Agent<P> {
    settings: Settings,
    lines: BTreeMap<Key, Line<P>>,
    asked: BTreeMap<u64, (Key, For<P>)>,
    due: BTreeSet<(Micros, Key)>,
    number: u64,
    waiting: usize,
    totals: Totals,
}

impl<P: Clone> Agent<P> {
    /// Returns an agent. It serves at once: the paper says nothing of a server that starts.
    pub fn new(settings: Settings) -> Agent<P> {
        Agent {
            settings,
            lines: BTreeMap::new(),
            asked: BTreeMap::new(),
            due: BTreeSet::new(),
            number: 0,
            waiting: 0,
            totals: Totals::default(),
        }
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Takes a message that has come in from there.
    pub fn message(&mut self, now: Micros, from: P, said: &Message<'_>, out: &mut Vec<Action<P>>) {
        let head = Message { value: &[], ..*said };
        match said.op {
            Op::Get | Op::Put | Op::PutCached | Op::Delete | Op::DeleteCached
                if self.waiting >= self.settings.waiting_max =>
            {
                self.totals.busy += 1;
                let head = head.answer(Op::Error, Status::Busy);
                out.push(Action::Reply(from, Letter { head, value: Arc::default() }));
            }
            Op::Get => {
                self.waiting += 1;
                self.ask(said.key, For::Get(from, head), Ask::Read, out);
            }
            Op::Put | Op::PutCached | Op::Delete | Op::DeleteCached => {
                self.waiting += 1;
                let is_put = matches!(said.op, Op::Put | Op::PutCached);
                let value = is_put.then(|| said.value.into());
                self.line(said.key).queue.push_back(Write { from, head, value });
                self.go_on(now, said.key, out);
            }
            Op::Adopt => {
                let head = said.answer(Op::Adopted, Status::Ok);
                out.push(Action::Device(Letter { head, value: Arc::default() }));
                self.line(said.key).adopt = Some(said.stamp);
                self.go_on(now, said.key, out);
            }
            Op::Evicted => {
                let head = said.answer(Op::Adopted, Status::Absent);
                out.push(Action::Device(Letter { head, value: Arc::default() }));
                self.updated(now, said.key, None, out);
            }
            Op::UpdateOk => self.updated(now, said.key, Some(said.request), out),
            _ => {}
        }
    }

    /// Takes what the store has answered.
    pub fn stored(&mut self, now: Micros, number: u64, answer: Answer, out: &mut Vec<Action<P>>) {
        let Some((key, asked)) = self.asked.remove(&number) else { return };
        self.totals.failed += u64::from(answer == Answer::Failed);
        if let For::Get(from, head) = asked {
            self.waiting -= 1;
            let (op, status, value) = match answer {
                Answer::Read(Some(value)) => (Op::GetOk, Status::Ok, value),
                Answer::Read(None) => (Op::NotFound, Status::Ok, Arc::default()),
                _ => (Op::Error, Status::Refused, Arc::default()),
            };
            let head = Message { stamp: Stamp::NONE, ..head.answer(op, status) };
            return out.push(Action::Reply(from, Letter { head, value }));
        }
        let Some(line) = self.lines.get_mut(&key) else { return };
        match std::mem::replace(&mut line.step, Step::Idle) {
            Step::Storing(write) => {
                self.waiting -= 1;
                let written = answer == Answer::Written;
                let (op, status) = match written {
                    true => (Op::WriteOk, Status::Ok),
                    false => (Op::Error, Status::Refused),
                };
                let head = write.head.answer(op, status);
                out.push(Action::Reply(write.from, Letter { head, value: Arc::default() }));
                if written && matches!(write.head.op, Op::PutCached | Op::DeleteCached) {
                    return self.update(now, key, write.head.stamp, write.value, out);
                }
            }
            Step::Reading(stamp) => {
                if let Answer::Read(value) = answer {
                    return self.update(now, key, stamp, value, out);
                }
            }
            step => line.step = step,
        }
        self.go_on(now, key, out);
    }

    /// Repeats what was not answered; returns when to call it again.
    pub fn tick(&mut self, now: Micros, out: &mut Vec<Action<P>>) -> Micros {
        let later = self.due.split_off(&(now + 1, 0));
        for (_, key) in std::mem::replace(&mut self.due, later) {
            let Some(Line { step, .. }) = self.lines.get_mut(&key) else { continue };
            let Step::Updating { number, stamp, value, due, tries } = step else { continue };
            if *due <= now {
                *tries = (*tries + 1).min(6);
                *due = now + (self.settings.retry_us << *tries);
                self.due.insert((*due, key));
                out.push(Action::Device(letter(key, *number, *stamp, value)));
            }
        }
        self.due.first().map_or(now + self.settings.client_idle_us, |due| due.0)
    }

    fn line(&mut self, key: Key) -> &mut Line<P> {
        let new = || Line { step: Step::Idle, queue: VecDeque::new(), adopt: None };
        self.lines.entry(key).or_insert_with(new)
    }

    fn ask(&mut self, key: Key, what: For<P>, ask: Ask, out: &mut Vec<Action<P>>) {
        self.number += 1;
        self.asked.insert(self.number, (key, what));
        out.push(Action::Store { number: self.number, key, ask });
    }

    /// Begins what comes next for a key; forgets it if that is nothing.
    fn go_on(&mut self, now: Micros, key: Key, out: &mut Vec<Action<P>>) {
        let _ = now;
        let Some(line) = self.lines.get_mut(&key) else { return };
        if !matches!(line.step, Step::Idle) {
            return;
        }
        let ask = if let Some(stamp) = line.adopt.take() {
            line.step = Step::Reading(stamp);
            Ask::Read
        } else if let Some(write) = line.queue.pop_front() {
            let value = write.value.clone();
            line.step = Step::Storing(write);
            Ask::Write(value)
        } else {
            self.lines.remove(&key);
            return;
        };
        self.ask(key, For::Line, ask, out);
    }

    fn update(
        &mut self,
        now: Micros,
        key: Key,
        stamp: Stamp,
        value: Value,
        out: &mut Vec<Action<P>>,
    ) {
        self.number += 1;
        let (number, due) = (self.number, now + self.settings.retry_us);
        out.push(Action::Device(letter(key, number, stamp, &value)));
        self.due.insert((due, key));
        self.line(key).step = Step::Updating { number, stamp, value, due, tries: 0 };
    }

    /// The device has acknowledged an update, or the key is not cached any more (`None`).
    fn updated(&mut self, now: Micros, key: Key, said: Option<u64>, out: &mut Vec<Action<P>>) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        if let Step::Updating { number, .. } = line.step
            && said.is_none_or(|said| said == number)
        {
            line.step = Step::Idle;
            self.go_on(now, key, out);
        }
    }
}

fn letter(key: Key, number: u64, stamp: Stamp, value: &Value) -> Letter {
    let flags = if value.is_some() { 0 } else { FLAG_ABSENT };
    let head = Message { flags, stamp, ..Message::new(Op::Update, 0, number, key) };
    Letter { head, value: value.clone().unwrap_or_default() }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::pipeline::{Config, Packet, Pipeline, Table, Verdict};
    use crate::slots::VALUE_MAX;

    const KEY: Key = 7;

    /// A device, and what it makes of a message from a port; 0 is the client's, 1 the server's.
    fn passes(device: &mut Pipeline, message: Message<'_>, port: u16) -> (Verdict, u8) {
        let (mut verdict, mut room) = ([Verdict::Forward], [[0; VALUE_MAX]]);
        device.burst(&[Packet { message, port }], &mut verdict, &mut room);
        (verdict[0], room[0][0])
    }

    fn update_of(out: &[Action<u8>]) -> Letter {
        let update = out.iter().find_map(|action| match action {
            Action::Device(letter) if letter.head.op == Op::Update => Some(letter.clone()),
            _ => None,
        });
        update.expect("an update")
    }

    /// Carries out what the store is asked for.
    fn store(agent: &mut Agent<u8>, out: &mut Vec<Action<u8>>) {
        while let Some(at) = out.iter().position(|action| matches!(action, Action::Store { .. })) {
            let Action::Store { number, ask, .. } = out.remove(at) else { return };
            let answer = match ask {
                Ask::Read => Answer::Read(Some(Arc::from([0]))),
                Ask::Write(_) => Answer::Written,
            };
            agent.stored(0, number, answer, out);
        }
    }

    /// H1: a late update brings the value back that an acknowledged write has replaced. With
    /// stamps, the same messages do nothing.
    #[test]
    fn a_late_update_brings_an_old_value_back() {
        for protocol in [Protocol::Paper, Protocol::Stamps] {
            let config = Config { items: 1, indexes_log2: 1, passes: 1 };
            let mut table = Table::new(config, 1).unwrap();
            let mut device = Pipeline::of_one_item(&table).following(protocol);
            let installed = table.install(KEY, 1, 1).unwrap();
            let (mut agent, mut out) = (Agent::new(Settings::default()), Vec::new());
            let stamp = Stamp { boot: 1, install: installed.install, writes: 0 };
            let adopt = Message { stamp, ..Message::new(Op::Adopt, 0, 0, KEY) };
            agent.message(0, 9, &adopt, &mut out);
            store(&mut agent, &mut out);
            let first = update_of(&out);
            let answered = passes(&mut device, first.message(), 1).0;
            assert!(matches!(answered, Verdict::Answer { status: Status::Ok, .. }));
            agent.message(0, 9, &first.head.answer(Op::UpdateOk, Status::Ok), &mut out);
            out.clear();
            // Two writes pass the device, one after the other; the second one waits at the server.
            let mut write = |number: u64, value: &[u8], out: &mut Vec<Action<u8>>| {
                let put = Message { value, ..Message::new(Op::Put, 1, number, KEY) };
                let (Verdict::Mark(op, stamp), _) = passes(&mut device, put, 0) else { panic!() };
                agent.message(0, 0, &Message { op, stamp, ..put }, out);
                store(&mut agent, out);
            };
            write(1, &[1], &mut out);
            let late = update_of(&out);
            write(2, &[2], &mut out);
            out.clear();
            let (answered, _) = passes(&mut device, late.message(), 1);
            let Verdict::Answer { status, .. } = answered else { panic!("{answered:?}") };
            agent.message(0, 9, &late.head.answer(Op::UpdateOk, status), &mut out);
            store(&mut agent, &mut out);
            let is_answered = |action: &Action<u8>| matches!(action, Action::Reply(_, letter) if letter.head.op == Op::WriteOk);
            assert!(out.iter().any(is_answered), "the second write is acknowledged");
            let found = passes(&mut device, Message::new(Op::Get, 2, 3, KEY), 0);
            let old = matches!(found, (Verdict::Answer { op: Op::GetOk, .. }, 1));
            assert_eq!(old, protocol == Protocol::Paper, "{found:?}");
            // The update of the second write ends that.
            passes(&mut device, update_of(&out).message(), 1);
            let found = passes(&mut device, Message::new(Op::Get, 2, 4, KEY), 0);
            assert!(matches!(found, (Verdict::Answer { op: Op::GetOk, .. }, 2)), "{found:?}");
        }
    }
}
