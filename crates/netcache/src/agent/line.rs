//! One key at its server: the writes that wait, in their order, and what the device knows of it.

use super::{Action, Ask, Doing, For, Letter, Settings, Value};
use crate::Micros;
use overbank_wire::netcache::{Message, Op, Stamp, Status};
use std::collections::VecDeque;
use std::sync::Arc;

/// A write of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write<P> {
    pub from: P,
    pub head: Message<'static>,
    /// What the key has after it.
    pub value: Value,
}

impl<P> Write<P> {
    pub fn name(&self) -> (u64, u64) {
        (self.head.client, self.head.request)
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line<P> {
    cached: Option<Cached>,
    /// Writes for the store; the first one is there.
    queue: VecDeque<Write<P>>,
    /// Writes without a stamp, which wait for that of a fence.
    held: Vec<Write<P>>,
    /// What the store is asked for the value with, wanted or not any more: one read at a time.
    reading: Option<u64>,
}

impl<P> Default for Line<P> {
    fn default() -> Self {
        Self { cached: None, queue: VecDeque::new(), held: Vec::new(), reading: None }
    }
}

/// What is known of a key that the device caches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cached {
    /// The highest stamp that was accepted.
    last: Stamp,
    wants: Wants,
    /// When that is repeated, and how often it was sent.
    due: Micros,
    tries: u32,
    /// Fences that were sent again since the last update that counted. Each of them counts a write
    /// at the device, so that the update which follows does not count: if the device takes longer
    /// than the time of repeating, that time has to grow until it does not.
    again: u32,
}

/// What has to happen next, so that the device may hand out the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wants {
    /// Nothing, or what comes after the writes that wait.
    Nothing,
    /// The answer to the fence with this number.
    Fence(u64),
    /// A fence, unless another write comes before: one has passed the device.
    Patience,
    /// The value, which the store is asked for with this number.
    Read(u64),
    /// The answer to the update with this number.
    Update(u64, Value),
    /// That the controller installs the key anew (its value is [`Status::TooLong`] for its place),
    /// leaves it out ([`Status::Refused`]: too long for the device), or finds out why the device is
    /// silent ([`Status::Busy`]); and the length of the value.
    Refresh(Status, u64),
}

impl Cached {
    fn new(last: Stamp) -> Cached {
        Cached { last, wants: Wants::Nothing, due: 0, tries: 0, again: 0 }
    }

    fn want<P>(&mut self, wants: Wants, doing: &mut Doing<'_, P>) {
        (self.wants, self.tries) = (wants, 0);
        self.say(doing);
    }

    fn fence<P>(&mut self, doing: &mut Doing<'_, P>) {
        let number = doing.number();
        self.want(Wants::Fence(number), doing);
    }

    fn update<P>(&mut self, value: Value, doing: &mut Doing<'_, P>) {
        let wants = match &value {
            Some(long) if long.len() > doing.settings.value_max => {
                return self.refresh(Status::Refused, long.len() as u64, doing);
            }
            _ => Wants::Update(doing.number(), value),
        };
        self.want(wants, doing);
    }

    fn refresh<P>(&mut self, why: Status, len: u64, doing: &mut Doing<'_, P>) {
        doing.totals.refreshed += 1;
        self.want(Wants::Refresh(why, len), doing);
    }

    /// Says what is wanted, for the first time or again.
    fn say<P>(&mut self, doing: &mut Doing<'_, P>) {
        let doublings = (self.tries + self.again).min(Settings::DOUBLINGS_MAX);
        self.due = doing.now + (doing.settings.retry_us << doublings);
        let stamp = (Status::Ok, self.last);
        match &self.wants {
            Wants::Fence(number) => doing.say(Op::Fence, *number, stamp, &None),
            Wants::Update(number, value) => doing.say(Op::Update, *number, stamp, value),
            Wants::Refresh(status, len) => {
                let number = doing.number();
                let head = Message::new(Op::Refresh, *len, number, doing.key);
                let head = Message { status: *status, stamp: self.last, ..head };
                doing.out.push(Action::Device(Letter { head, value: Arc::default() }));
            }
            Wants::Nothing | Wants::Patience | Wants::Read(_) => {}
        }
    }
}

impl<P> Line<P> {
    pub fn is_empty(&self) -> bool {
        let waits = !self.queue.is_empty() || !self.held.is_empty() || self.reading.is_some();
        self.cached.is_none() && !waits
    }

    /// Returns when [`Line::again`] is to be called.
    pub fn due(&self) -> Option<Micros> {
        let cached = self.cached.as_ref()?;
        (!matches!(cached.wants, Wants::Nothing | Wants::Read(_))).then_some(cached.due)
    }

    /// Returns the name of the write that is at the store.
    #[cfg(all(test, not(feature = "loom")))]
    pub fn first(&self) -> Option<(u64, u64)> {
        self.queue.front().map(Write::name)
    }

    /// Returns how many writes wait for a fence.
    #[cfg(all(test, not(feature = "loom")))]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub fn is_patient(&self) -> bool {
        self.cached.as_ref().is_some_and(|cached| cached.wants == Wants::Patience)
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub fn forget_tries(&mut self) {
        self.cached.iter_mut().for_each(|cached| (cached.tries, cached.again) = (0, 0));
    }

    /// The number of what the device is asked for.
    #[cfg(all(test, not(feature = "loom")))]
    pub fn number(&mut self) -> Option<&mut u64> {
        match &mut self.cached.as_mut()?.wants {
            Wants::Fence(number) | Wants::Update(number, _) => Some(number),
            _ => None,
        }
    }

    /// Whether this stamp or a later one was accepted.
    pub fn has_accepted(&self, stamp: Stamp) -> bool {
        self.cached.as_ref().is_some_and(|cached| stamp <= cached.last)
    }

    /// Takes a write, if it is new, and the stamp that it came with; returns whether it is held.
    pub fn take(
        &mut self,
        stamp: Option<Stamp>,
        write: Option<Write<P>>,
        doing: &mut Doing<'_, P>,
    ) -> bool {
        match (stamp, &mut self.cached, write) {
            (Some(stamp), _, write) => {
                self.accept(stamp, doing);
                write.into_iter().for_each(|write| self.enqueue(write, doing));
                self.settle(doing);
                false
            }
            (None, Some(cached), Some(write)) => {
                if !matches!(cached.wants, Wants::Fence(_) | Wants::Refresh(..)) {
                    cached.fence(doing);
                }
                self.held.push(write);
                true
            }
            (None, _, write) => {
                write.into_iter().for_each(|write| self.enqueue(write, doing));
                false
            }
        }
    }

    /// The store has done the first write, or not; returns it.
    pub fn written(&mut self, done: bool, doing: &mut Doing<'_, P>) -> Option<Write<P>> {
        let write = self.queue.pop_front()?;
        if !self.queue.is_empty() {
            self.begin(doing);
        } else if let Some(cached) = self.cached.as_mut().filter(|_| done)
            && cached.wants == Wants::Nothing
        {
            cached.update(write.value.clone(), doing);
        } else {
            self.settle(doing);
        }
        Some(write)
    }

    /// The store has this value, if it could say.
    pub fn read(&mut self, number: u64, value: Option<Value>, doing: &mut Doing<'_, P>) {
        self.reading = None;
        let Some(cached) = self.cached.as_mut() else { return };
        if cached.wants == Wants::Read(number) {
            match value {
                Some(value) => cached.update(value, doing),
                None => cached.want(Wants::Patience, doing),
            }
        }
        // A stamp was accepted meanwhile.
        self.settle(doing);
    }

    /// The device has answered a fence or an update.
    pub fn answered(&mut self, said: &Message<'_>, doing: &mut Doing<'_, P>) {
        let Some(cached) = self.cached.as_mut() else { return };
        match (said.op, &cached.wants) {
            (Op::FenceOk, Wants::Fence(number)) if *number == said.request => {}
            (Op::UpdateOk, Wants::Update(number, _)) if *number == said.request => {}
            _ => return,
        }
        match (said.op, said.status) {
            (_, Status::Absent) => self.forget(doing),
            (Op::FenceOk, Status::Ok) if said.stamp > cached.last => {
                (cached.last, cached.wants) = (said.stamp, Wants::Nothing);
                cached.again = (cached.again + cached.tries).min(Settings::DOUBLINGS_MAX);
                self.release(doing);
                self.settle(doing);
            }
            (Op::FenceOk, _) => cached.fence(doing),
            (_, Status::Ok) => (cached.wants, cached.again) = (Wants::Nothing, 0),
            (_, Status::TooLong) => {
                let len = match &cached.wants {
                    Wants::Update(_, Some(value)) => value.len() as u64,
                    _ => 0,
                };
                cached.refresh(Status::TooLong, len, doing);
            }
            _ => cached.want(Wants::Patience, doing),
        }
    }

    /// The controller has installed the key, with this stamp; or wants it to be valid again.
    pub fn adopt(&mut self, stamp: Stamp, doing: &mut Doing<'_, P>) {
        let cached = self.cached.get_or_insert_with(|| Cached::new(Stamp::NONE));
        let is_new = install(stamp) > install(cached.last);
        let rests = cached.wants == Wants::Nothing && self.queue.is_empty();
        if is_new {
            cached.last = stamp;
        }
        if is_new || install(stamp) == install(cached.last) && rests {
            cached.fence(doing);
        }
    }

    /// The controller has removed the key that had this stamp.
    pub fn evicted(&mut self, stamp: Stamp, doing: &mut Doing<'_, P>) {
        if self.cached.as_ref().is_some_and(|cached| install(cached.last) <= install(stamp)) {
            self.forget(doing);
        }
    }

    /// Says again what was not answered.
    pub fn again(&mut self, doing: &mut Doing<'_, P>) {
        let Some(cached) = self.cached.as_mut() else { return };
        cached.tries += 1;
        match cached.wants {
            Wants::Patience => cached.fence(doing),
            Wants::Fence(_) | Wants::Update(..) if cached.tries >= doing.settings.tries_max => {
                cached.refresh(Status::Busy, 0, doing);
            }
            _ => cached.say(doing),
        }
    }

    fn accept(&mut self, stamp: Stamp, doing: &mut Doing<'_, P>) {
        let cached = self.cached.get_or_insert_with(|| Cached::new(Stamp::NONE));
        let is_new = install(stamp) > install(cached.last);
        cached.last = stamp;
        if self.held.is_empty() {
            cached.wants = Wants::Nothing;
        } else if is_new {
            cached.fence(doing);
        }
    }

    /// Reads the value for the device, if nothing else has to happen before.
    fn settle(&mut self, doing: &mut Doing<'_, P>) {
        if let Some(cached) = self.cached.as_mut()
            && cached.wants == Wants::Nothing
            && self.queue.is_empty()
            && self.reading.is_none()
        {
            let number = doing.store(Ask::Read, For::Update);
            (self.reading, cached.wants) = (Some(number), Wants::Read(number));
        }
    }

    fn enqueue(&mut self, write: Write<P>, doing: &mut Doing<'_, P>) {
        self.queue.push_back(write);
        if self.queue.len() == 1 {
            self.begin(doing);
        }
    }

    /// Has the store do the first write.
    fn begin(&self, doing: &mut Doing<'_, P>) {
        if let Some(write) = self.queue.front() {
            doing.store(Ask::Write(write.value.clone()), For::Write);
        }
    }

    /// What was held goes to the store.
    pub fn release(&mut self, doing: &mut Doing<'_, P>) {
        for write in std::mem::take(&mut self.held) {
            self.enqueue(write, doing);
        }
    }

    /// The device does not cache the key.
    fn forget(&mut self, doing: &mut Doing<'_, P>) {
        self.cached = None;
        self.release(doing);
    }
}

/// Run of the device and installation.
const fn install(stamp: Stamp) -> (u32, u32) {
    (stamp.boot, stamp.install)
}
