//! Indexes in memory.

use super::{Bench, Checked, Front, Keys, Part, Session, State, Turn, Work, read_bursts, turn};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, SCAN_MAX};
use crossbeam_skiplist::SkipMap;
use overbank_aside::locked::Locked;
use overbank_aside::lookaside::Config;
use overbank_aside::{Aside, Index, Source, Timer, congee};
use overbank_kit::machine::heap_bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
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

/// What a turn works on: the index, and the table in front if there is a timer.
struct Turning<'a, I> {
    index: &'a I,
    scan: Scan<I>,
    checked: &'a mut Checked,
    aside: Aside<Lent<'a, I>, u64, u64>,
    timer: Option<&'a mut Timer>,
}

impl<I: Index<u64, u64>> Turning<'_, I> {
    #[inline(always)]
    fn read(&mut self, key: u64) {
        let Ok(found): Result<_, Infallible> = match &mut self.timer {
            Some(timer) => timer.get(&self.aside, key),
            None => self.aside.around(key),
        };
        self.checked.see(key, found);
    }

    fn write(&mut self, key: u64) {
        let value = self.checked.write(key);
        match &self.timer {
            Some(_) => self.aside.insert(key, value),
            None => self.index.insert(key, value),
        }
    }
}

impl<I: Index<u64, u64>> Session for Turning<'_, I> {
    fn run(&mut self, part: Part<'_>) -> Result<(), AsideError> {
        if let (Some(timer), true) = (&mut self.timer, part.bursts) {
            let Ok(()) = read_bursts(&self.aside, timer, part.ops, self.checked);
        } else {
            for op in part.ops {
                match op.kind {
                    Kind::Read => self.read(op.key),
                    Kind::Update | Kind::Insert => self.write(op.key),
                    Kind::Modify => {
                        self.read(op.key);
                        self.write(op.key);
                    }
                    Kind::Scan(count) => (self.scan)(self.index, op.key, count),
                }
            }
        }
        // Each operation is a group.
        self.checked.close(&[]);
        Ok(())
    }

    fn checked(&mut self) -> &mut Checked {
        self.checked
    }

    fn state(&self) -> Option<State> {
        let timer = self.timer.as_ref()?;
        Some(State::of(self.aside.table(), timer))
    }
}

impl<I: Index<u64, u64>> Bench for Live<I> {
    fn turn(&mut self, front: Front<'_>, work: &mut Work<'_>) -> Result<Turn, AsideError> {
        let Live { index, scan, checked, .. } = self;
        let (config, timer) = front.unzip();
        let aside = Aside::new(Lent(index), config.unwrap_or(&Config::entries(1)))?;
        turn(&mut Turning { index, scan: *scan, checked, aside, timer }, work)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
