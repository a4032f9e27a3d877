//! Twins: bytes become operations on a table of one to three buckets and on a naive index beside
//! it. Each answer of the table has to be the index's. For tests and the fuzz target.
//!
//! Everything that threads could interleave is taken apart into operations: a lookup, the read of
//! the index for its ticket, the fill; a guard, the index's change, its end. And *chaos* takes
//! entries out between them, which may change no answer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt::Debug;

use super::super::config::Config;
use super::super::plain::Plain;
use super::bucket::VERSION;
use super::live::{Clearing, Copies, Writing};
use super::table::Table;
use super::ticket::{Found, Ticket};
use super::versioned::{At, Commit, Versioned};

impl<K: Plain, V: Plain> Table<K, V> {
    /// Takes out the entry in one slot, if it has one.
    fn lose(&self, pick: u8) {
        let pick = usize::from(pick) % self.slots();
        let ways = super::Shape::<K, V>::WAYS;
        self.lock((pick / ways) as u32).remove(pick % ways);
    }

    /// Goes on from another epoch and floor, while the table is empty.
    pub(super) fn start_at(&self, epoch: u16, floor: u64) {
        let era = u64::from(epoch) << 48 | floor;
        self.era.store(era, crate::sync::Ordering::Release);
    }
}

/// The bytes, one operation after the other.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Returns a number below `bound`, or `None` if that is zero or the bytes are at their end.
    fn below(&mut self, bound: usize) -> Option<usize> {
        (bound > 0).then_some(())?;
        Some(usize::from(self.next()?) % bound)
    }
}

/// How a twin's numbers become keys and values.
pub struct Types<K, V> {
    /// Returns a key.
    pub key: fn(u8) -> K,
    /// Returns a value.
    pub value: fn(u16) -> V,
}

/// Keys of a twin.
const KEYS: u8 = 12;

/// A naive index.
type Index = BTreeMap<u8, u16>;

/// A guard, its key, and what it is to keep.
type Guard<'t, K, V> = (Writing<'t, K, V>, u8, Option<Option<u16>>);

fn check<K: Plain, V: Plain + PartialEq + Debug>(
    types: &Types<K, V>,
    found: &Found<K, V>,
    index: &Index,
    key: u8,
) {
    let right = index.get(&key).map(|&value| (types.value)(value));
    match found {
        Found::Hit(value) => assert_eq!(Some(*value), right, "key {key}"),
        Found::Absent => assert_eq!(None, right, "key {key}"),
        Found::Miss(ticket) => assert!(ticket.key().to_words() == (types.key)(key).to_words()),
    }
}

/// A lookup that missed; then what the index had.
struct Open<K> {
    ticket: Ticket<K>,
    key: u8,
    read: Option<Option<u16>>,
}

/// Runs the bytes on a [`Copies`]. Returns its hits.
///
/// # Panics
/// The table has an answer that is not the index's.
pub fn live<K: Plain, V: Plain + PartialEq + Debug>(types: &Types<K, V>, bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let Some(size) = bytes.next() else { return 0 };
    let config = Config::entries(usize::from(size % 9) + 1).seed(u64::from(size));
    let (table, other) =
        (Copies::new(&config).expect("small"), Copies::new(&config).expect("small"));
    // Epochs that wrap soon, and versions at their end.
    let start = [(0, 0), (u16::MAX - 2, 0), (7, VERSION - 520), (u16::MAX, VERSION - 540)];
    let (epoch, floor) = start[usize::from(size / 9) % 4];
    table.table.start_at(epoch, floor);
    let mut index = Index::new();
    let mut tickets: Vec<Open<K>> = Vec::new();
    let mut guards: Vec<Guard<'_, K, V>> = Vec::new();
    let mut all: Vec<Clearing<'_, K, V>> = Vec::new();
    let (mut hits, mut next) = (0, 0u16);
    while let (Some(what), Some(pick)) = (bytes.next(), bytes.next()) {
        let key = pick % KEYS;
        match what % 24 {
            0..=3 => {
                let found = table.get((types.key)(key));
                check(types, &found, &index, key);
                match found {
                    Found::Miss(ticket) => tickets.push(Open { ticket, key, read: None }),
                    _ => hits += 1,
                }
            }
            4 | 5 => {
                let Some(at) = bytes.below(tickets.len()) else { continue };
                tickets[at].read = Some(index.get(&tickets[at].key).copied());
            }
            6 | 7 => {
                let Some(at) = bytes.below(tickets.len()) else { continue };
                let Open { ticket, read, .. } = tickets.swap_remove(at);
                let Some(read) = read else { continue };
                if pick == 0 {
                    assert!(!other.fill(ticket, read.map(types.value)), "another table's");
                } else {
                    table.fill(ticket, read.map(types.value));
                }
            }
            8..=11 => {
                let right = index.get(&key).map(|&value| (types.value)(value));
                let mut asked = false;
                let found = table.get_or((types.key)(key), |_| {
                    asked = true;
                    right
                });
                assert_eq!(found, right, "key {key}");
                hits += u64::from(!asked);
            }
            12 | 13 if guards.len() < 3 => {
                guards.push((table.write((types.key)(key)), key, None));
            }
            14 | 15 => {
                let Some(at) = bytes.below(guards.len()) else { continue };
                let (_, key, changed) = &mut guards[at];
                next = next.wrapping_add(1);
                let value = (pick & 1 == 0).then_some(next);
                match value {
                    None => _ = index.remove(key),
                    Some(value) => _ = index.insert(*key, value),
                }
                *changed = Some(value);
            }
            16 | 17 => {
                let Some(at) = bytes.below(guards.len()) else { continue };
                match guards.swap_remove(at) {
                    (guard, _, Some(Some(value))) if pick & 1 == 0 => {
                        guard.keep((types.value)(value))
                    }
                    (guard, _, Some(None)) if pick & 1 == 0 => guard.keep_absent(),
                    (guard, ..) => drop(guard),
                }
            }
            18 if pick < 16 => table.clear(),
            18 if pick > 239 => all.push(table.clearing()),
            19 if !all.is_empty() => {
                index.retain(|key, _| key % 3 != pick % 3);
                if pick & 3 > 0 {
                    all.pop();
                }
            }
            20..=22 => {
                let keys: Vec<u8> = (0..pick % 40).map(|i| (key + i) % KEYS).collect();
                let words: Vec<K> = keys.iter().map(|&key| (types.key)(key)).collect();
                let mut looked_up = Vec::new();
                table.get_batch(&words, |at, found| {
                    looked_up.push(at);
                    check(types, &found, &index, keys[at]);
                });
                assert!(looked_up.into_iter().eq(0..keys.len()));
            }
            23 => table.table.lose(pick),
            _ => {}
        }
        tickets.drain(..tickets.len().saturating_sub(16));
    }
    drop((guards, all));
    for key in 0..KEYS {
        check(types, &table.get((types.key)(key)), &index, key);
    }
    hits
}

/// A reader: its view, and its snapshot's place in the history.
struct Reader<'t, K, V> {
    at: At<'t, K, V>,
    snapshot: usize,
    tickets: Vec<(Ticket<K>, u8)>,
}

/// What a writer has done so far.
struct Writer<'t, K: Plain, V: Plain> {
    commit: Commit<'t, K, V>,
    state: Index,
    /// Whether the database has committed.
    done: bool,
}

/// Runs the bytes on a [`Versioned`] before a database with snapshots. Returns its hits.
///
/// Readers use either their snapshot's number, and then commits may pass by the table, or the
/// newest published one, read before they begin.
///
/// # Panics
/// The table has an answer that is not the snapshot's.
pub fn versioned<K: Plain, V: Plain + PartialEq + Debug>(types: &Types<K, V>, bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let Some(size) = bytes.next() else { return 0 };
    let config = Config::entries(usize::from(size % 9) + 1).seed(u64::from(size));
    let table = Versioned::new(&config).expect("small");
    let numbered = size & 64 == 0;
    // Numbers near their end, epochs that wrap soon.
    let first = if size & 32 == 0 { 0 } else { VERSION - 60 };
    table.start_at(if size & 16 == 0 { 0 } else { u16::MAX - 2 }, if numbered { 0 } else { first });
    // The state after each commit, from `first` on.
    let mut history = alloc::vec![Index::new()];
    let number = |snapshot: usize| first + snapshot as u64;
    let mut readers: Vec<Reader<'_, K, V>> = Vec::new();
    let mut writer: Option<Writer<'_, K, V>> = None;
    let (mut early, mut hits, mut next) = (None, 0, 0u16);
    while let (Some(what), Some(pick)) = (bytes.next(), bytes.next()) {
        let key = pick % KEYS;
        let newest = history.len() - 1;
        match what % 24 {
            0 | 1 if readers.len() < 6 => {
                let at = if numbered {
                    table.at(number(newest))
                } else {
                    table.at(early.take().unwrap_or_else(|| table.published()))
                };
                readers.push(Reader { at, snapshot: newest, tickets: Vec::new() });
            }
            2 => early = early.or(Some(table.published())),
            3 => {
                let Some(at) = bytes.below(readers.len()) else { continue };
                readers.swap_remove(at);
            }
            4..=6 => {
                let Some(at) = bytes.below(readers.len()) else { continue };
                let Reader { at, snapshot, .. } = &readers[at];
                let right = history[*snapshot].get(&key).map(|&value| (types.value)(value));
                let mut asked = false;
                let found = at.get_or((types.key)(key), |_| {
                    asked = true;
                    right
                });
                assert_eq!(found, right, "key {key}");
                hits += u64::from(!asked);
            }
            7..=9 => {
                let Some(at) = bytes.below(readers.len()) else { continue };
                let Reader { at, snapshot, tickets } = &mut readers[at];
                let found = at.get((types.key)(key));
                check(types, &found, &history[*snapshot], key);
                match found {
                    Found::Miss(ticket) => tickets.push((ticket, key)),
                    _ => hits += 1,
                }
                tickets.drain(..tickets.len().saturating_sub(8));
            }
            10..=12 => {
                let Some(at) = bytes.below(readers.len()) else { continue };
                let Reader { at, snapshot, tickets } = &mut readers[at];
                let Some(picked) = bytes.below(tickets.len()) else { continue };
                let (ticket, key) = tickets.swap_remove(picked);
                at.fill(ticket, history[*snapshot].get(&key).map(|&value| (types.value)(value)));
            }
            // A ticket of one view through another: declined, unless both are of one snapshot.
            13 => {
                let (Some(one), Some(other)) =
                    (bytes.below(readers.len()), bytes.below(readers.len()))
                else {
                    continue;
                };
                let Some((ticket, _)) = readers[one].tickets.pop() else { continue };
                if readers[one].at.version() != readers[other].at.version() {
                    assert!(!readers[other].at.fill(ticket, None));
                }
            }
            14 | 15 if writer.is_none() => match table.commit(number(newest + 1)) {
                Ok(commit) => {
                    writer = Some(Writer { commit, state: history[newest].clone(), done: false });
                }
                Err(_) => assert!(number(newest + 1) > VERSION),
            },
            16..=18 => {
                let Some(Writer { commit, state, done: false }) = &mut writer else { continue };
                next = next.wrapping_add(1);
                let value = (pick & 3 != 0).then_some(next);
                match value {
                    None => _ = state.remove(&key),
                    Some(value) => _ = state.insert(key, value),
                }
                match pick >> 6 {
                    0 => commit.touch((types.key)(key)),
                    _ => commit.change((types.key)(key), value.map(types.value)),
                }
                if pick == 255 {
                    state.retain(|key, _| key & 1 == 0);
                    commit.clear();
                }
            }
            19 => match writer.take() {
                Some(Writer { commit, state, done: false }) if pick & 3 != 0 => {
                    history.push(state.clone());
                    writer = Some(Writer { commit, state, done: true });
                }
                // An aborted one gives its number to the next.
                Some(Writer { done: false, .. }) | None => {}
                Some(Writer { commit, .. }) => commit.publish(),
            },
            // A commit past this table.
            20 if numbered && writer.is_none() && pick < 16 && number(newest + 1) <= VERSION => {
                let mut state = history[newest].clone();
                next = next.wrapping_add(1);
                state.insert(key, next);
                history.push(state);
            }
            21 if pick < 8 => table.clear(),
            22 => table.lose(pick),
            _ => {}
        }
    }
    hits
}

impl<K: Plain, V: Plain> Versioned<K, V> {
    fn start_at(&self, epoch: u16, floor: u64) {
        self.shared().start_at(epoch, floor);
        self.assume_published(floor);
    }

    fn lose(&self, pick: u8) {
        self.shared().lose(pick);
    }
}
