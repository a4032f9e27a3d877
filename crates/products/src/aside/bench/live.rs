//! Indexes in memory.

use super::{
    Bench, Checked, Front, Part, Session, Turn, config, heap_bytes, read, read_bursts, turn, value,
};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op, SCAN_MAX};
use crossbeam_skiplist::SkipMap;
use overbank_aside::locked::Locked;
use overbank_aside::lookaside::Report;
use overbank_aside::{Aside, Index, Timer, Watched, congee};
use std::collections::BTreeMap;
use std::hint::black_box;

type Hash = hashbrown::HashMap<u64, u64>;

/// Reads this many keys from a key on.
type Scan<I> = fn(&I, u64, u32);

struct Live<I> {
    index: I,
    scan: Scan<I>,
    bytes: u64,
    version: u32,
}

/// The index of a [`Live`], lent to the table of a turn. Nothing else writes to it in the turn.
struct Lent<'a, I>(&'a I);

impl<I: Index<u64, u64>> Index<u64, u64> for Lent<'_, I> {
    #[inline(always)]
    fn get(&self, key: &u64) -> Option<u64> {
        self.0.get(key)
    }
    #[inline(always)]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }
    fn remove(&self, key: &u64) -> Option<u64> {
        self.0.remove(key)
    }
}

fn built<I: Index<u64, u64> + 'static>(
    keys: &[u64],
    index: impl FnOnce() -> I,
    scan: Scan<I>,
) -> Box<dyn Bench> {
    let before = heap_bytes();
    let index = index();
    keys.iter().for_each(|key| index.insert(*key, value(*key, 0)));
    let bytes = heap_bytes().saturating_sub(before);
    Box::new(Live { index, scan, bytes, version: 0 })
}

pub fn btreemap(keys: &[u64]) -> Box<dyn Bench> {
    let scan: Scan<Locked<BTreeMap<u64, u64>>> = |index, key, count| {
        index
            .read(|map| map.range(key..).take(count as usize).for_each(|pair| _ = black_box(pair)));
    };
    built(keys, Locked::default, scan)
}

pub fn hashmap(keys: &[u64]) -> Box<dyn Bench> {
    let scan: Scan<Locked<Hash>> = |_, _, _| {};
    built(keys, Locked::default, scan)
}

pub fn skipmap(keys: &[u64]) -> Box<dyn Bench> {
    let scan: Scan<SkipMap<u64, u64>> = |index, key, count| {
        index.range(key..).take(count as usize).for_each(|entry| _ = black_box(*entry.value()));
    };
    built(keys, SkipMap::new, scan)
}

pub fn congee(keys: &[u64]) -> Box<dyn Bench> {
    let scan: Scan<congee::Tree> = |index, key, count| {
        let mut found = [(0, 0); SCAN_MAX as usize];
        black_box(index.range(key, u64::MAX, &mut found[..count as usize]));
    };
    built(keys, congee::Tree::default, scan)
}

/// What a turn works on: the index, and the table in front if there is a timer.
struct State<'a, I> {
    live: &'a Live<I>,
    aside: Aside<Lent<'a, I>, u64, u64>,
    timer: Option<Timer>,
}

impl<I: Index<u64, u64>> State<'_, I> {
    fn write(&self, key: u64) {
        let value = value(key, self.live.version);
        match &self.timer {
            Some(_) => self.aside.insert(key, value),
            None => self.live.index.insert(key, value),
        }
    }
}

impl<I: Index<u64, u64>> Session for State<'_, I> {
    fn run(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        if let (Some(timer), true) = (&mut self.timer, part.bursts) {
            let Ok(()) = read_bursts(&self.aside, timer, part.ops, checked);
            return Ok(());
        }
        for op in part.ops {
            match op.kind {
                Kind::Read => {
                    let Ok(()) = read(&self.aside, &mut self.timer, op.key, checked);
                }
                Kind::Update | Kind::Insert => self.write(op.key),
                Kind::Modify => {
                    let Ok(()) = read(&self.aside, &mut self.timer, op.key, checked);
                    self.write(op.key);
                }
                Kind::Scan(count) => (self.live.scan)(&self.live.index, op.key, count),
            }
        }
        Ok(())
    }

    fn timer(&self) -> Option<&Timer> {
        self.timer.as_ref()
    }

    fn table(&self) -> (usize, usize, Report) {
        let table = self.aside.table();
        (table.slots(), table.bytes(), table.gate().report())
    }
}

impl<I: Index<u64, u64>> Bench for Live<I> {
    fn turn(&mut self, front: &Front, warm: &[Op], parts: &[Part<'_>]) -> Result<Turn, AsideError> {
        self.version += 1;
        let aside = Aside::new(Lent(&self.index), &config(front))?;
        let mut state = State { live: self, aside, timer: front.is_some().then(Timer::new) };
        turn(&mut state, front, warm, parts)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
