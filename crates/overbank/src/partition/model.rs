//! The protocol of [`table`](super::table) under loom: one writer that applies a change, a reader
//! of two keys, and every order in which their accesses may happen or be seen, up to a bound of
//! preemptions.
//!
//!     cargo test -p overbank --lib --features loom partition::model
//!
//! In each scene one key stays as it is, whatever happens to the words around it; the other one has
//! the old value or the new one, and no mixture of their bits.

use alloc::vec;
use alloc::vec::Vec;

use loom::thread;

use super::block::{Entry, Image, Workshop};
use super::delta::{Change, Delta};
use super::shape::{Place, RowBits, Shape, bucket_of};
use super::table::{Room, Shared, Table};
use crate::hash::mix;
use crate::isa::Isa;
use crate::memory::Pages;

const PLANES: usize = 2;
const GROUPS: usize = 2;
/// A value whose bits all change in a move, and what it becomes.
const MOVE: [u8; 2] = [0b01, 0b10];
const STAYS: u8 = 0b11;

fn shape() -> Shape {
    Shape::new(RowBits::R64, PLANES, GROUPS)
}

/// A hash whose bucket is in group 0, or group 1, of an empty block's first choice.
fn hash_in(group: u16, from: u64) -> u64 {
    let shape = shape();
    let in_group = |hash: &u64| shape.candidates()[bucket_of(*hash)][0] == group;
    (from..).map(mix).find(in_group).expect("half of the buckets are")
}

/// An image of these keys in which every bucket takes its first candidate, but for `turned`; groups
/// are solved from seed `seed` on.
fn image(keys: &[Entry], turned: Option<u16>, seed: usize) -> Image {
    let shape = shape();
    let mut workshop = Workshop::<u64>::new(Isa::Portable);
    let mut choices = [0; super::shape::CHOICE_WORDS];
    if let Some(bucket) = turned {
        choices[usize::from(bucket >> 6)] |= 1 << (bucket & 63);
    }
    let mut words = vec![0; GROUPS * shape.group_words()];
    for (group, words) in words.chunks_exact_mut(shape.group_words()).enumerate() {
        let of_group = |key: &&Entry| {
            let bucket = bucket_of(key.0);
            let choice = choices[bucket / 64] >> (bucket % 64) & 1;
            usize::from(shape.candidates()[bucket][choice as usize]) == group
        };
        let keys: Vec<Entry> = keys.iter().filter(of_group).copied().collect();
        assert!(workshop.group(&shape, &keys, seed, words) < super::row::SEEDS);
    }
    Image { choices, words, fallback: Vec::new() }
}

fn groups(image: &Image) -> Vec<(u16, Vec<u64>)> {
    let words = image.words.chunks_exact(shape().group_words());
    words.enumerate().map(|(group, words)| (group as u16, words.to_vec())).collect()
}

/// Keys that a reader looks up in one burst, each with the values that it may have and at last has.
type Reads = Vec<(u64, &'static [u8])>;

/// A key that changes as `values` say, and one that stays.
fn both(keys: [Entry; 2], values: &'static [u8]) -> Reads {
    vec![(keys[0].0, values), (keys[1].0, &[STAYS])]
}

/// Runs `change` beside a reader; a thread is preempted `LOOM_MAX_PREEMPTIONS` times at most, or
/// twice.
fn explore(reads: Reads, before: Image, change: impl Fn(&Table) + Send + Sync + Clone + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(move || {
        let room = Room { partition_bits: 0, blocks: 2, fallback: 1 };
        let table = Table::new(shape(), room, &[1], Isa::Portable, Pages::Small).expect("small");
        table.set_block(0, &before).expect("no fallback");
        let table = Shared::new(table);
        let reader = thread::spawn({
            let (table, reads) = (table.clone(), reads.clone());
            move || {
                for (read, found) in reads.iter().zip(lookup(&table, &reads)) {
                    assert!(read.1.contains(&found), "{found:#04b} of {read:?}");
                }
            }
        });
        change(&table);
        reader.join().expect("no panic");
        let at_last = reads.iter().map(|read| read.1.last().copied());
        assert!(at_last.eq(lookup(&table, &reads).into_iter().map(Some)));
    });
}

fn lookup(table: &Table, reads: &Reads) -> Vec<u8> {
    let hashes: Vec<u64> = reads.iter().map(|read| read.0).collect();
    let mut found = vec![0; hashes.len()];
    table.lookup_batch(&hashes, &mut found);
    found
}

fn delta(change: Change) -> Delta {
    let (form, place) = (shape().form(), Place::new(0, 0));
    Delta { table: 0, generation: 0, sequence: 1, form, place, change }
}

#[test]
fn model_a_moving_key_has_its_old_value_or_its_new_one() {
    let (moves, stays) = (hash_in(0, 1), hash_in(0, 1000));
    let keys = [(moves, MOVE[0]), (stays, STAYS)];
    let before = image(&keys, None, 0);
    let shape = shape();
    let seed = super::shape::seed_of(PLANES, |plane| before.words[plane]);
    let correction = Workshop::<u64>::new(Isa::Portable)
        .correction(&shape, &keys.map(|key| key.0), 0, seed)
        .expect("full rank");
    let change = Change::Move { group: 0, planes: MOVE[0] ^ MOVE[1], correction };
    let delta = delta(change);
    explore(both(keys, &MOVE), before, move |table| delta.apply(table).expect("no fallback"));
}

#[test]
fn model_another_seed_disturbs_no_key() {
    let keys = [(hash_in(0, 1), MOVE[0]), (hash_in(0, 1000), STAYS)];
    let (before, after) = (image(&keys, None, 0), image(&keys, None, 5));
    let change = Change::Groups { turns: Vec::new(), groups: groups(&after), fallback: Vec::new() };
    let delta = delta(change);
    explore(both(keys, &MOVE[..1]), before, move |table| delta.apply(table).expect("no fallback"));
}

#[test]
fn model_a_bucket_takes_its_other_group() {
    let keys = [(hash_in(0, 1), MOVE[0]), (hash_in(1, 1000), STAYS)];
    let bucket = bucket_of(keys[0].0) as u16;
    let (before, after) = (image(&keys, None, 0), image(&keys, Some(bucket), 3));
    let change =
        Change::Groups { turns: vec![bucket], groups: groups(&after), fallback: Vec::new() };
    let delta = delta(change);
    explore(both(keys, &MOVE[..1]), before, move |table| delta.apply(table).expect("no fallback"));
}

#[test]
fn model_a_block_is_replaced_whole() {
    let keys = [(hash_in(0, 1), MOVE[0]), (hash_in(1, 1000), STAYS)];
    let moved = [(keys[0].0, MOVE[1]), keys[1]];
    let bucket = bucket_of(keys[1].0) as u16;
    let (before, after) = (image(&keys, None, 0), image(&moved, Some(bucket), 9));
    explore(both(keys, &MOVE), before, move |table| {
        table.set_block(0, &after).expect("no fallback")
    });
}

/// The partition takes other blocks, and then a key moves there: a reader that stays with the old
/// blocks is late. A burst of both keys would multiply their orders, so each is looked up alone.
#[test]
fn model_a_partition_goes_to_other_blocks() {
    let keys = [(hash_in(0, 1), MOVE[0]), (hash_in(1, 1000), STAYS)];
    let (before, after) = (image(&keys, None, 0), image(&keys, None, 3));
    let shape = shape();
    let correction = Workshop::<u64>::new(Isa::Portable)
        .correction(&shape, &[keys[0].0], 0, 3)
        .expect("full rank");
    let planes = MOVE[0] ^ MOVE[1];
    let delta = delta(Change::Move { group: 0, planes, correction });
    for read in both(keys, &MOVE) {
        let (after, delta) = (after.clone(), delta.clone());
        explore(vec![read], before.clone(), move |table| {
            table.set_partition(0, core::slice::from_ref(&after)).expect("a block is free");
            delta.apply(table).expect("no fallback");
        });
    }
}
