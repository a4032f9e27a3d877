//! Which keys have slots, and what their values are asked for by.
//!
//! A follower asks the server; this decides for which keys, and takes what has come. Bounded:
//! [`FILLS_MAX`] fills at a time.

use super::hot::{Decision, Hot, Hottest, Nanos, SECOND};
use crate::proxy::form::Form;
use crate::proxy::slots::{self, Filled, Refused, SlotId, Ticket, VARIANTS_MAX};
use crate::proxy::totals::{CoreTotals, Dropped, Unfilled};
use std::collections::HashMap;

/// Fills at a time.
pub const FILLS_MAX: usize = 1024;
/// Time in which a form is not asked for again that the server refuses, or whose value has no room;
/// twice as long after each further time.
const REFUSED: Nanos = SECOND;
const REFUSED_DOUBLINGS: u32 = 7;

/// What limits fills.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub staleness_max: Nanos,
    /// [`u64::MAX`]: values last until they change.
    pub max_age: Nanos,
    pub value_max: usize,
    pub bytes_max: usize,
    pub observe: bool,
}

/// A fill on its way.
#[derive(Debug)]
pub struct Fill {
    pub ticket: Ticket,
    pub form: Form,
    pub sent: Nanos,
}

/// How a form of a cached key is.
#[derive(Debug)]
struct Known {
    form: Form,
    is_filling: bool,
    /// Whether it was asked for since the key was last written.
    is_live: bool,
    /// The key's hits when it was last asked for.
    hits: u32,
    not_before: Nanos,
    /// Times in a row that its value could not be taken.
    refused: u32,
}

/// See the module.
pub struct Fills {
    pub slots: slots::Core,
    pub hot: Hot<Form>,
    pub limits: Limits,
    pub totals: CoreTotals,
    forms: HashMap<SlotId, Vec<Known>>,
    on_way: usize,
    /// The server answers, and since when it is known to have.
    is_ready: bool,
    lease_from: Nanos,
    /// Hot keys with a value, at the last look.
    filled: u64,
    decisions: Vec<Decision<Form>>,
}

impl Fills {
    pub fn new(slots: slots::Core, hot: Hot<Form>, limits: Limits) -> Fills {
        Fills {
            slots,
            hot,
            limits,
            totals: CoreTotals::default(),
            forms: HashMap::new(),
            on_way: 0,
            is_ready: false,
            lease_from: 0,
            filled: 0,
            decisions: Vec::new(),
        }
    }

    /// Returns what was counted, and how things are now.
    pub fn totals(&self, now: Nanos) -> CoreTotals {
        let hot = self.hot.totals();
        let age = now.saturating_sub(self.lease_from);
        let has_lease = age < self.limits.staleness_max;
        CoreTotals {
            cached: self.slots.len() as u64,
            filled: self.filled,
            cached_bytes: self.slots.bytes() as u64,
            promoted: hot.promoted,
            evicted: hot.evicted,
            lease_ms: age / 1_000_000,
            open: u64::from(self.is_ready && self.slots.is_open() && has_lease),
            ..self.totals
        }
    }

    /// Returns the hottest keys of an epoch, once it has ended.
    pub fn take_hottest(&mut self) -> Option<Vec<Hottest>> {
        self.hot.take_hottest()
    }

    /// Returns whether a fill may begin.
    pub fn has_room(&self) -> bool {
        self.on_way < FILLS_MAX
    }

    /// Returns whether the server answers.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The server has answered a sign of life that was sent then: hits are served for a while.
    pub fn beat(&mut self, sent: Nanos) {
        if !self.is_ready {
            self.is_ready = true;
            tracing::info!("follows the server");
        }
        self.lease_from = self.lease_from.max(sent);
        self.slots.set_lease(sent + self.limits.staleness_max);
    }

    /// The connection is gone: everything is dropped.
    pub fn lost(&mut self) {
        self.slots.set_lease(0);
        self.drop_all(Dropped::Lost);
        (self.is_ready, self.lease_from, self.on_way) = (false, 0, 0);
        self.forms.values_mut().flatten().for_each(|known| known.is_filling = false);
    }

    pub fn drop_all(&mut self, why: Dropped) {
        self.totals.dropped[why.index()] += 1;
        self.slots.push_all();
    }

    /// Counts the hot keys that have a value.
    pub fn look(&mut self) {
        let fresh = self.slots.slots().filter(|slot| self.slots.is_fresh(*slot));
        self.filled = fresh.count() as u64;
    }

    /// A read was reported as hot, or as not cached yet. Returns the slot if its value is to be
    /// asked for by this form. A form that is new to a cached key has to be hot by itself.
    pub fn want(
        &mut self,
        now: Nanos,
        (hash, key): (u128, &[u8]),
        form: &Form,
        is_hot: bool,
    ) -> Option<SlotId> {
        match self.slots.slot(hash) {
            Some(slot) if self.slots.key(slot) == Some(key) => {
                let forms = self.forms.get(&slot);
                let is_known = forms.is_none_or(|all| all.iter().any(|known| known.form == *form));
                // The value may have come since it was missed.
                let wants = (is_known || is_hot) && !self.has(now, slot, form);
                wants.then_some(slot)
            }
            // Two keys of one hash: one of them is cached.
            Some(_) => None,
            None => {
                self.hot.report(now, hash, key, form.clone());
                None
            }
        }
    }

    fn has(&self, now: Nanos, slot: SlotId, form: &Form) -> bool {
        self.slots.has(slot, (form.db, &form.normalised), now)
    }

    /// A key was written. Returns what is to be asked for at once: the form that was asked for
    /// since the write before, if there was one alone and it has been read since. What is asked in
    /// several forms, or not read, waits for a read.
    pub fn changed(&mut self, now: Nanos, slot: SlotId) -> Option<Form> {
        let Fills { slots, forms, .. } = self;
        let forms = forms.get_mut(&slot)?;
        let has = |form: &Form| slots.has(slot, (form.db, &form.normalised), now);
        let is_known = forms.iter().any(|known| known.is_filling || has(&known.form));
        // What is in flight says when it has ended.
        if is_known || !slots.is_idle(slot) {
            return None;
        }
        let mut live = forms
            .iter_mut()
            .filter_map(|known| std::mem::take(&mut known.is_live).then_some(&*known));
        let only = live.next();
        let is_alone = live.count() == 0;
        let known = only.filter(|known| is_alone && known.hits != slots.hits_so_far(slot))?;
        Some(known.form.clone())
    }

    /// Returns whether a value of a slot is on its way.
    pub fn is_filling(&self, slot: SlotId) -> bool {
        self.forms.get(&slot).is_some_and(|all| all.iter().any(|known| known.is_filling))
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

    /// Evicts a key for a while.
    pub fn leave_out(&mut self, now: Nanos, hash: u128) {
        if let Some(slot) = self.slots.slot(hash) {
            self.evict(slot);
        }
        self.hot.bar(now, hash);
    }

    fn evict(&mut self, slot: SlotId) {
        self.slots.evict(slot);
        self.hot.forget(slot);
        self.forms.remove(&slot);
    }

    /// Decides what is due; returns what is to be asked for.
    pub fn decide(&mut self, now: Nanos) -> Vec<(SlotId, Form)> {
        let (mut decisions, mut wanted) = (std::mem::take(&mut self.decisions), Vec::new());
        self.hot.decide(now, &mut self.slots, self.limits.observe, &mut decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Evicted(slot) => {
                    self.forms.remove(&slot);
                }
                Decision::Promoted(slot, forms) => {
                    self.forms.remove(&slot);
                    wanted.extend(forms.into_iter().map(|form| (slot, form)));
                }
            }
        }
        self.decisions = decisions;
        wanted
    }

    /// Returns the databases and the keys of slots that have been asked for.
    pub fn asked(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.forms
            .iter()
            .filter_map(|(slot, forms)| Some((forms.first()?.form.db, self.slots.key(*slot)?)))
    }

    /// Begins a fill, before its request is queued, unless it is on its way or waits.
    pub fn begin(&mut self, now: Nanos, slot: SlotId, form: &Form) -> Option<Fill> {
        let may = self.is_ready && self.has_room();
        let forms = self.forms.entry(slot).or_default();
        let known = match forms.iter().position(|known| known.form == *form) {
            Some(at) => forms.get_mut(at),
            None => {
                // The first is the least used of late, or not.
                if forms.len() >= VARIANTS_MAX
                    && forms.first().is_some_and(|known| !known.is_filling)
                {
                    forms.remove(0);
                }
                let is_room = forms.len() < VARIANTS_MAX;
                let known = Known {
                    form: form.clone(),
                    is_filling: false,
                    is_live: false,
                    hits: 0,
                    not_before: 0,
                    refused: 0,
                };
                is_room.then(|| forms.push(known));
                forms.last_mut().filter(|_| is_room)
            }
        };
        let known = known.filter(|known| !known.is_filling && now >= known.not_before)?;
        if !may {
            return None;
        }
        let ticket = self.slots.begin_fill(slot)?;
        (known.is_filling, known.is_live) = (true, true);
        known.hits = self.slots.hits_so_far(slot);
        self.on_way += 1;
        Some(Fill { ticket, form: form.clone(), sent: now })
    }

    /// Takes what a fill's replies are.
    pub fn end(&mut self, now: Nanos, fill: &Fill, filled: Result<Filled, Unfilled>) -> bool {
        self.on_way = self.on_way.saturating_sub(1);
        let slot = fill.ticket.slot();
        let result = filled.and_then(|filled| self.accept(fill.ticket, filled));
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
        result.is_ok()
    }

    fn accept(&mut self, ticket: Ticket, filled: Filled) -> Result<(), Unfilled> {
        if filled.bytes() > self.limits.bytes_max {
            return Err(Unfilled::Long);
        }
        match self.slots.accept(ticket, filled) {
            Ok(()) => Ok(()),
            Err(Refused::Changed | Refused::OtherKey) => Err(Unfilled::Changed),
            Err(Refused::Full) => {
                self.evict_for(ticket.slot());
                Err(Unfilled::Memory)
            }
        }
    }

    /// Evicts the coldest of some, for a value that has no room and is hotter.
    fn evict_for(&mut self, slot: SlotId) {
        let heat = self.hot.heat(slot, &mut self.slots);
        let coldest = self.hot.coldest(&mut self.slots).filter(|(_, cold)| *cold < heat);
        if let Some((coldest, _)) = coldest.filter(|(coldest, _)| *coldest != slot) {
            self.evict(coldest);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::proxy::slots::{Config, Query, Variant, Worker, build};
    use overbank_wire::resp;

    const HASH: u128 = 1 << 64;
    const KEY: &[u8] = b"k";

    /// A hot key with a slot.
    struct One {
        fills: Fills,
        worker: Worker,
        slot: SlotId,
    }

    impl One {
        fn new() -> One {
            let config = Config { workers: 1, entries: 4, bytes: 1 << 20 };
            let (mut slots, mut workers) = build(config).expect("small");
            let slot = slots.promote(HASH, KEY).expect("free");
            let limits = Limits {
                staleness_max: u64::MAX / 2,
                max_age: u64::MAX,
                value_max: 100,
                bytes_max: 1000,
                observe: false,
            };
            let mut fills = Fills::new(slots, Hot::new(Vec::new(), 1), limits);
            fills.beat(0);
            One { fills, worker: workers.remove(0), slot }
        }

        /// Asks for a form, and takes its value.
        fn fill(&mut self, form: &Form) {
            let fill = self.fills.begin(0, self.slot, form).expect("nothing in flight");
            let variant = Variant {
                db: form.db,
                request: form.normalised.clone(),
                resp3: Box::default(),
                resp2: Box::default(),
            };
            let filled = Filled::new(KEY, u64::MAX, vec![variant]).expect("one reply");
            assert!(self.fills.end(0, &fill, Ok(filled)));
        }

        fn read(&mut self, form: &Form) {
            let query = Query { hash: HASH, key: KEY, db: form.db, request: &form.normalised };
            self.worker.hit(&query, 0, |_| ()).expect("a hit");
        }

        /// Writes past the proxy; returns what is asked for at once.
        fn write(&mut self) -> Option<Form> {
            self.fills.slots.push(HASH);
            self.fills.changed(0, self.slot)
        }
    }

    fn form(name: &[u8]) -> Form {
        Form { db: 0, normalised: name.into(), request: name.into(), null: resp::Null::Bulk }
    }

    #[test]
    fn what_was_read_is_asked_for_when_the_last_write_has_ended() {
        let (mut one, get) = (One::new(), form(b"GET"));
        one.fill(&get);
        assert_eq!(one.write(), None, "it was not read");
        one.fill(&get);
        one.read(&get);
        // The server's word of it comes before its reply is seen here, and between two writes.
        let marks = [one.worker.begin_write(HASH), one.worker.begin_write(HASH)];
        assert_eq!(one.write(), None);
        for (mark, wanted) in marks.into_iter().zip([None, Some(get.clone())]) {
            let ended = one.worker.end_write(mark);
            assert_eq!(ended.and_then(|slot| one.fills.changed(0, slot)), wanted);
        }
        // It is on its way; what was heard twice asks for nothing more.
        let fill = one.fills.begin(0, one.slot, &get).expect("nothing in flight");
        assert_eq!(one.fills.changed(0, one.slot), None);
        assert!(!one.fills.end(0, &fill, Err(Unfilled::Changed)));
    }

    #[test]
    fn a_form_that_is_not_read_any_more_does_not_matter() {
        let (mut one, get, range) = (One::new(), form(b"GET"), form(b"GETRANGE"));
        one.fill(&get);
        one.fill(&range);
        one.read(&range);
        assert_eq!(one.write(), None, "each form waits for its readers");
        one.fill(&get);
        one.read(&get);
        assert_eq!(one.write(), Some(get));
    }
}
