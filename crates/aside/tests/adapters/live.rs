//! Indexes under the live rule.

use crate::{Choices, sizes};
use crossbeam_skiplist::SkipMap;
use overbank_aside::locked::Locked;
use overbank_aside::lookaside::Config;
use overbank_aside::{Aside, Index, Source, Timer, Update, Watched, congee};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Hash = hashbrown::HashMap<u64, u64>;
type Tree = BTreeMap<u64, u64>;

/// A step of a twin beside those that all indexes have.
type Step<I> = fn(&Aside<I, u64, u64>, &mut Tree, &mut Choices);

/// Runs random operations on an index with a table and on its twin.
fn twin<I: Index<u64, u64>>(index: impl Fn() -> I, steps: &[Step<I>]) {
    for (seed, config) in sizes().into_iter().enumerate() {
        let aside = Aside::new(index(), &config).expect("a table");
        let (mut twin, mut choices) = (Tree::new(), Choices::new(seed as u64));
        let (mut timer, mut hits) = (Timer::new(), 0);
        for _ in 0..30_000 {
            let (key, value) = (choices.key(), choices.value());
            match choices.below(16 + steps.len() as u32) {
                0 | 1 => {
                    aside.insert(key, value);
                    twin.insert(key, value);
                }
                2 | 3 => assert_eq!(aside.remove(key), twin.remove(&key)),
                4 => aside.table().clear(),
                5 => {
                    let keys: [u64; 70] = std::array::from_fn(|_| choices.key());
                    let mut values = [None; 70];
                    aside.get_batch(&keys, &mut values);
                    assert_eq!(values, keys.map(|key| twin.get(&key).copied()));
                    timer.get_batch(&aside, &keys[..40], &mut values).expect("infallible");
                    assert_eq!(values, keys.map(|key| twin.get(&key).copied()));
                }
                6 => {
                    let Ok(value) = timer.get(&aside, key);
                    assert_eq!(value, twin.get(&key).copied());
                }
                at @ 16.. => steps[at as usize - 16](&aside, &mut twin, &mut choices),
                _ => {
                    let Ok((value, hit)) = aside.look(key);
                    assert_eq!(value, twin.get(&key).copied());
                    hits += u32::from(hit);
                }
            }
        }
        assert!(hits > 400, "{hits} hits: the table does nothing");
    }
}

/// Changes a key by what it has, also to nothing.
fn update<I: Update<u64, u64>>(aside: &Aside<I, u64, u64>, twin: &mut Tree, choices: &mut Choices) {
    let (key, new) = (choices.key(), choices.value());
    let change = |old: Option<u64>| match old {
        Some(old) if old % 3 == 0 => None,
        Some(old) => Some(old / 2),
        None => (new % 2 == 0).then_some(new),
    };
    let expected = change(twin.get(&key).copied());
    assert_eq!(aside.update(key, change), expected);
    match expected {
        Some(value) => twin.insert(key, value),
        None => twin.remove(&key),
    };
}

/// A closure that panics before it has changed anything.
fn panics<I: Update<u64, u64>>(aside: &Aside<I, u64, u64>, _: &mut Tree, choices: &mut Choices) {
    if choices.below(50) > 0 {
        return;
    }
    let key = choices.key();
    let update = || aside.update(key, |_| std::panic::resume_unwind(Box::new(())));
    assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
    // Its bucket still takes answers, though not the first one if it is full of popular keys.
    let hits = || {
        let Ok((_, hit)) = aside.look(key);
        hit
    };
    assert!((0..100).any(|_| hits()));
}

/// Many keys in one step, and sometimes a panic half way.
fn many<I: Index<u64, u64>>(aside: &Aside<I, u64, u64>, twin: &mut Tree, choices: &mut Choices) {
    let (first, value, removed) = (choices.key(), choices.value(), choices.below(3));
    let panics = choices.below(8) == 0;
    let mut change = |index: &I| {
        for key in first..first + 8 {
            if panics && key == first + 4 {
                std::panic::resume_unwind(Box::new(()));
            }
            match key % 3 == u64::from(removed) {
                true => assert_eq!(index.remove(&key), twin.remove(&key)),
                false => {
                    index.insert(key, value + key);
                    twin.insert(key, value + key);
                }
            }
        }
    };
    let changed = catch_unwind(AssertUnwindSafe(|| aside.change(&mut change)));
    assert_eq!(changed.is_err(), panics);
}

#[test]
fn btreemap() {
    /// Changes a range, and sometimes panics half way.
    fn range(aside: &Aside<Locked<Tree>, u64, u64>, twin: &mut Tree, choices: &mut Choices) {
        let (first, panics) = (choices.key(), choices.below(4) == 0);
        let remove = |map: &mut Tree| map.retain(|key, _| !(first..first + 5).contains(key));
        let change = || {
            aside.write(|map| {
                remove(map);
                if panics {
                    std::panic::resume_unwind(Box::new(()));
                }
            });
        };
        assert_eq!(catch_unwind(AssertUnwindSafe(change)).is_err(), panics);
        remove(twin);
        assert!(aside.read(|map| map == twin));
    }
    twin(|| Locked::new(Tree::new()), &[update, panics, many, range]);
}

#[test]
fn hashmap() {
    twin(|| Locked::new(Hash::new()), &[update, panics, many]);
}

#[test]
fn skipmap() {
    fn range(aside: &Aside<SkipMap<u64, u64>, u64, u64>, twin: &mut Tree, choices: &mut Choices) {
        let first = choices.key();
        assert!(aside.range(first..).eq(twin.range(first..).map(|(key, value)| (*key, *value))));
        assert_eq!((aside.len(), aside.is_empty()), (twin.len(), twin.is_empty()));
    }
    twin(SkipMap::new, &[many, range]);
}

#[test]
fn congee() {
    fn range(aside: &Aside<congee::Tree, u64, u64>, twin: &mut Tree, choices: &mut Choices) {
        let (first, mut found) = (choices.key(), [(0, 0); 10]);
        let end = first + 20;
        let count = aside.range(first, end, &mut found);
        let expected = twin.range(first..end).take(10).map(|(key, value)| (*key, *value));
        assert!(found[..count].iter().copied().eq(expected), "{found:?}");
    }
    twin(congee::Tree::default, &[update, many, range]);
}

/// A gate without costs gets them from a timer, whatever they are.
#[test]
fn a_timer_tells_the_gate_what_lookups_cost() {
    let config = Config::entries(1000).gate(None);
    let index = Locked::new((0..1000).map(|key| (key, key)).collect::<Hash>());
    let aside = Aside::new(index, &config).expect("a table");
    let (mut timer, mut choices) = (Timer::new(), Choices::new(1));
    assert!(aside.table().gate().report().costs.is_none());
    for _ in 0..512 * 800 {
        let key = choices.value() % 1100;
        let Ok(value) = timer.get(&aside, key);
        assert_eq!(value, (key < 1000).then_some(key));
    }
    let report = aside.table().gate().report();
    let costs = report.costs.expect("measured");
    assert!(costs.index > 0.0 && costs.hit >= 0.0, "{report}");
}

#[test]
fn a_long_list_is_measured_as_many_short_ones() {
    let index = Locked::new((0..1000).map(|key| (key, key)).collect::<Hash>());
    let aside = Aside::new(index, &Config::entries(1000).gate(None)).expect("a table");
    let keys: Vec<u64> = (0..400_000).map(|number| number % 1000).collect();
    let (mut timer, mut values) = (Timer::new(), vec![None; keys.len()]);
    let Ok(()) = timer.get_batch(&aside, &keys, &mut values);
    assert!(values.iter().zip(&keys).all(|(value, key)| *value == Some(*key)));
    let Ok(()) = timer.get_batch(&aside, &keys[..1], &mut values);
    assert!(aside.table().gate().report().costs.is_some());
}
