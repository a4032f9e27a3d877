//! Indexes in memory.

use super::{Bench, Checked, Front, Keys, Match, Part, Session, Side, Sides, State, read_bursts};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op, SCAN_MAX};
use crossbeam_skiplist::SkipMap;
use overbank_aside::locked::Locked;
use overbank_aside::{Aside, Index, Timer, congee};
use overbank_kit::machine::heap_bytes;
use std::collections::BTreeMap;
use std::hint::black_box;

type Hash = hashbrown::HashMap<u64, u64>;

/// Reads this many keys from a key on.
type Scan<I> = fn(&I, u64, u32);

struct Live<I> {
    index: I,
    scan: Scan<I>,
    bytes: u64,
    checked: Checked,
}

/// The index of a [`Live`], lent to a table. Nothing else writes to it meanwhile.
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

type Built = Result<Box<dyn Bench>, AsideError>;

fn built<I: Index<u64, u64> + 'static>(
    keys: Keys<'_>,
    index: impl FnOnce() -> I,
    scan: Scan<I>,
) -> Built {
    let before = heap_bytes();
    let index = index();
    keys.each(|key, value| {
        index.insert(key, value);
        Ok::<_, AsideError>(())
    })?;
    let bytes = heap_bytes().saturating_sub(before);
    Ok(Box::new(Live { index, scan, bytes, checked: Checked::default() }))
}

pub fn btreemap(keys: Keys<'_>) -> Built {
    let scan: Scan<Locked<BTreeMap<u64, u64>>> = |index, key, count| {
        index
            .read(|map| map.range(key..).take(count as usize).for_each(|pair| _ = black_box(pair)));
    };
    built(keys, Locked::default, scan)
}

pub fn hashmap(keys: Keys<'_>) -> Built {
    let scan: Scan<Locked<Hash>> = |_, _, _| {};
    built(keys, Locked::default, scan)
}

pub fn skipmap(keys: Keys<'_>) -> Built {
    let scan: Scan<SkipMap<u64, u64>> = |index, key, count| {
        index.range(key..).take(count as usize).for_each(|entry| _ = black_box(*entry.value()));
    };
    built(keys, SkipMap::new, scan)
}

pub fn congee(keys: Keys<'_>) -> Built {
    let scan: Scan<congee::Tree> = |index, key, count| {
        let mut found = [(0, 0); SCAN_MAX as usize];
        black_box(index.range(key, u64::MAX, &mut found[..count as usize]));
    };
    built(keys, congee::Tree::default, scan)
}

/// Runs operations of an index alone.
struct Alone<'a, I> {
    index: &'a I,
    scan: Scan<I>,
    checked: &'a mut Checked,
}

/// Runs them with the table in front.
struct Through<'a, I> {
    aside: Aside<Lent<'a, I>, u64, u64>,
    alone: Alone<'a, I>,
    timer: &'a mut Timer,
}

/// How either side does what a mix asks for.
trait Does {
    fn read(&mut self, key: u64);
    fn write(&mut self, key: u64);
    fn scan(&mut self, key: u64, count: u32);

    #[inline(always)]
    fn each(&mut self, ops: &[Op]) {
        for op in ops {
            match op.kind {
                Kind::Read => self.read(op.key),
                Kind::Update | Kind::Insert => self.write(op.key),
                Kind::Modify => {
                    self.read(op.key);
                    self.write(op.key);
                }
                Kind::Scan(count) => self.scan(op.key, count),
            }
        }
    }
}

impl<I: Index<u64, u64>> Does for Alone<'_, I> {
    #[inline(always)]
    fn read(&mut self, key: u64) {
        self.checked.see(key, self.index.get(&key));
    }

    fn write(&mut self, key: u64) {
        self.index.insert(key, self.checked.write(key));
    }

    fn scan(&mut self, key: u64, count: u32) {
        (self.scan)(self.index, key, count);
    }
}

impl<I: Index<u64, u64>> Does for Through<'_, I> {
    #[inline(always)]
    fn read(&mut self, key: u64) {
        let Ok(found) = self.timer.get(&self.aside, key);
        self.alone.checked.see(key, found);
    }

    fn write(&mut self, key: u64) {
        self.aside.insert(key, self.alone.checked.write(key));
    }

    fn scan(&mut self, key: u64, count: u32) {
        self.alone.scan(key, count);
    }
}

impl<I: Index<u64, u64>> Session for Alone<'_, I> {
    fn run(&mut self, part: Part<'_>) -> Result<(), AsideError> {
        self.each(part.ops);
        // Each operation is a group.
        self.checked.close(&[]);
        Ok(())
    }

    fn checked(&mut self) -> &mut Checked {
        self.checked
    }
}

impl<I: Index<u64, u64>> Session for Through<'_, I> {
    fn run(&mut self, part: Part<'_>) -> Result<(), AsideError> {
        if part.bursts {
            let Through { aside, alone, timer } = self;
            let Ok(()) = read_bursts(aside, timer, part.ops, alone.checked);
        } else {
            self.each(part.ops);
        }
        self.alone.checked.close(&[]);
        Ok(())
    }

    fn checked(&mut self) -> &mut Checked {
        self.alone.checked
    }

    fn state(&self) -> Option<State> {
        Some(State::of(self.aside.table(), self.timer))
    }
}

impl<I: Index<u64, u64>> Bench for Live<I> {
    fn lend(&mut self, front: Front<'_>, to: Match<'_>) -> Result<(), AsideError> {
        let Live { index, scan, checked, .. } = self;
        let (index, scan) = (&*index, *scan);
        let Some((config, timer)) = front else {
            let mut alone = Alone { index, scan, checked };
            return to(Sides { alone: Side(&mut alone), aside: None });
        };
        let mut unwritten = checked.clone();
        let aside = Aside::new(Lent(index), config)?;
        let mut through = Through { aside, alone: Alone { index, scan, checked }, timer };
        let mut alone = Alone { index, scan, checked: &mut unwritten };
        to(Sides { alone: Side(&mut alone), aside: Some(Side(&mut through)) })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
