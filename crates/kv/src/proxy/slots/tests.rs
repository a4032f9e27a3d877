//! The slots beside a naive twin, and under threads.

use super::*;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::{mem, thread};

/// Returns the hash of a key. Pairs of keys share a bucket.
fn hash(key: u8) -> u128 {
    u128::from(key) << 64 | u128::from(key / 2)
}

/// Returns replies with this value in each.
fn filled(key: u8, value: u64, expires_at: u64) -> Filled {
    let variant = |db| Variant {
        db,
        request: b"GET".as_slice().into(),
        resp3: value.to_be_bytes().into(),
        resp2: vec![0; key.into()].into(),
    };
    Filled::new(&[key], expires_at, vec![variant(0), variant(1)]).expect("two replies")
}

/// Returns the value of a hit.
fn hit(worker: &mut Worker, key: u8, now: u64) -> Result<u64, Miss> {
    let query = Query { hash: hash(key), key: &[key], db: 1, request: b"GET" };
    worker.hit(&query, now, |variant| {
        u64::from_be_bytes((*variant.resp3).try_into().expect("eight bytes"))
    })
}

fn cache(workers: usize, entries: usize, bytes: usize) -> (Core, Vec<Worker>) {
    let (mut core, workers) = build(Config { workers, entries, bytes }).expect("small");
    core.set_lease(u64::MAX);
    (core, workers)
}

fn fill(core: &mut Core, slot: SlotId, filled: Filled) -> Result<(), Refused> {
    let ticket = core.begin_fill(slot).expect("nothing in flight");
    core.accept(ticket, filled)
}

const KEYS: u8 = 8;
const WORKERS: usize = 2;
const SLOTS: usize = 4;
const BYTES: usize = 600;

/// What the twin knows of a key that has a slot.
struct Promoted {
    slot: SlotId,
    /// Workers not yet seen without a write in the key's bucket.
    unseen: HashSet<usize>,
    entry: Option<Filled>,
    /// Whether the entry may be served.
    is_valid: bool,
    hits: u32,
}

/// A write in flight.
struct Write {
    worker: usize,
    key: u8,
    mark: Mark,
    slot: Option<SlotId>,
}

#[derive(Default)]
struct Twin {
    keys: BTreeMap<u8, Promoted>,
    writes: Vec<Write>,
    /// Fills under way that nothing has passed.
    fills: Vec<(u8, Ticket, u64, bool)>,
    closings: Vec<Closing>,
    values: [u64; KEYS as usize],
    lease: u64,
    now: u64,
}

impl Twin {
    fn in_flight(&self, slot: SlotId) -> bool {
        self.writes.iter().any(|write| write.slot == Some(slot))
    }

    fn invalidate(&mut self, slot: SlotId) {
        for (key, promoted) in &mut self.keys {
            if promoted.slot == slot {
                promoted.is_valid = false;
                self.fills.iter_mut().filter(|fill| fill.0 == *key).for_each(|fill| fill.3 = false);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.keys.values().filter_map(|p| p.entry.as_ref()).map(Filled::bytes).sum()
    }

    fn hit(&mut self, key: u8) -> Result<u64, Miss> {
        if !self.closings.is_empty() {
            return Err(Miss::Closed);
        }
        if self.now >= self.lease {
            return Err(Miss::Lease);
        }
        let slot = self.keys.get(&key).ok_or(Miss::Absent)?.slot;
        if self.in_flight(slot) {
            return Err(Miss::InFlight);
        }
        let promoted = self.keys.get_mut(&key).ok_or(Miss::Absent)?;
        let entry = promoted.entry.as_ref().filter(|_| promoted.is_valid).ok_or(Miss::Stale)?;
        if self.now >= entry.expires_at() {
            return Err(Miss::Expired);
        }
        promoted.hits += 1;
        assert_eq!(*entry.variants()[0].resp3, self.values[usize::from(key)].to_be_bytes());
        Ok(self.values[usize::from(key)])
    }

    /// Updates which workers have been seen without a write in the key's bucket.
    fn is_quiet(&mut self, key: u8) -> bool {
        let Some(promoted) = self.keys.get_mut(&key) else { return false };
        let writes = &self.writes;
        promoted.unseen.retain(|&worker| {
            writes.iter().any(|write| write.worker == worker && write.key / 2 == key / 2)
        });
        promoted.unseen.is_empty()
    }
}

#[test]
fn the_slots_do_what_a_naive_twin_does() {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let (mut core, mut workers) = cache(WORKERS, SLOTS, BYTES);
    let mut twin = Twin { lease: u64::MAX, ..Twin::default() };
    let (mut served, mut refused) = (0, [0; 3]);
    for operation in 0..1_000_000u64 {
        let key = random.random_range(0..KEYS);
        let worker = random.random_range(0..WORKERS);
        match random.random_range(0..100) {
            0..40 => {
                let found = hit(&mut workers[worker], key, twin.now);
                served += u64::from(found.is_ok());
                assert_eq!(found, twin.hit(key), "operation {operation}");
            }
            40..48 if twin.writes.len() < 6 => {
                let mark = workers[worker].begin_write(hash(key));
                let slot = twin.keys.get(&key).map(|promoted| promoted.slot);
                assert_eq!(mark.is_cached(), slot.is_some());
                slot.into_iter().for_each(|slot| twin.invalidate(slot));
                twin.values[usize::from(key)] = operation;
                twin.writes.push(Write { worker, key, mark, slot });
            }
            40..58 if !twin.writes.is_empty() => {
                let write = twin.writes.swap_remove(random.random_range(0..twin.writes.len()));
                workers[write.worker].end_write(write.mark);
                write.slot.into_iter().for_each(|slot| twin.invalidate(slot));
            }
            58..64 => {
                let promoted = core.promote(hash(key), &[key]);
                let taken = |slot: SlotId| twin.keys.values().any(|p| p.slot == slot);
                if let Some(slot) = promoted {
                    assert!(!twin.keys.contains_key(&key) && !taken(slot) && !twin.in_flight(slot));
                    let unseen = (0..WORKERS).collect();
                    let new = Promoted { slot, unseen, entry: None, is_valid: false, hits: 0 };
                    twin.keys.insert(key, new);
                } else if !twin.keys.contains_key(&key) {
                    let marked: HashSet<_> = twin.writes.iter().filter_map(|w| w.slot).collect();
                    let free = SLOTS - twin.keys.len();
                    assert!(free <= marked.iter().filter(|slot| !taken(**slot)).count());
                }
            }
            64..76 => {
                let Some(slot) = core.slot(hash(key)) else { continue };
                let may = twin.is_quiet(key) && !twin.in_flight(slot);
                let ticket = core.begin_fill(slot);
                assert_eq!(ticket.is_some(), may);
                let Some(ticket) = ticket.filter(|_| twin.fills.len() < 6) else { continue };
                twin.fills.push((key, ticket, twin.values[usize::from(key)], true));
            }
            76..88 if !twin.fills.is_empty() => {
                let at = random.random_range(0..twin.fills.len());
                let (key, ticket, value, is_valid) = twin.fills.swap_remove(at);
                let expires_at = [u64::MAX, twin.now + 3].choose(&mut random).copied();
                let new = filled(key, value, expires_at.unwrap_or(u64::MAX));
                let old = twin.keys.get(&key).and_then(|promoted| promoted.entry.as_ref());
                let fits = twin.bytes() - old.map_or(0, Filled::bytes) + new.bytes() <= BYTES;
                let expected = match (is_valid, fits) {
                    (false, _) => Err(Refused::Changed),
                    (true, false) => Err(Refused::Full),
                    (true, true) => Ok(()),
                };
                assert_eq!(core.accept(ticket, new.clone()), expected, "operation {operation}");
                refused[usize::from(!is_valid) + usize::from(is_valid && !fits) * 2] += 1;
                if expected.is_ok() {
                    let promoted = twin.keys.get_mut(&key).expect("its fill was valid");
                    (promoted.entry, promoted.is_valid) = (Some(new), true);
                }
            }
            88..91 => {
                // A write of another proxy, and its push. Fills may read it.
                twin.values[usize::from(key)] = operation;
                let slot = core.push(hash(key));
                assert_eq!(slot, twin.keys.get(&key).map(|promoted| promoted.slot));
                let reads_it = random.random_bool(0.5);
                let valid: Vec<bool> = twin.fills.iter().map(|fill| fill.3).collect();
                slot.into_iter().for_each(|slot| twin.invalidate(slot));
                for (fill, was_valid) in twin.fills.iter_mut().zip(valid) {
                    if reads_it && Some(fill.1.slot()) == slot {
                        fill.1.sees_push();
                        (fill.2, fill.3) = (operation, was_valid);
                    }
                }
                twin.keys.entry(key).and_modify(|promoted| promoted.entry = None);
            }
            91..95 => {
                let Some(slot) = core.slot(hash(key)) else { continue };
                assert_eq!((core.key(slot), core.hash(slot)), (Some(&[key][..]), Some(hash(key))));
                twin.invalidate(slot);
                let promoted = twin.keys.remove(&key).expect("has a slot");
                assert_eq!(core.hits(slot), promoted.hits);
                assert!(core.evict(slot) && !core.evict(slot));
            }
            95 => twin.closings.push(workers[worker].close()),
            96..98 if !twin.closings.is_empty() => {
                twin.closings.drain(..).for_each(|closing| core.reopen(closing));
                assert!(core.is_open());
            }
            98 if random.random_ratio(1, 4) => {
                core.push_all();
                twin.fills.iter_mut().for_each(|fill| fill.3 = false);
                twin.keys.values_mut().for_each(|p| (p.entry, p.is_valid) = (None, false));
            }
            99 => {
                twin.now += 1;
                twin.lease = twin.now + random.random_range(0..9);
                core.set_lease(twin.lease);
            }
            _ => {}
        }
        assert_eq!((core.bytes(), core.len()), (twin.bytes(), twin.keys.len()));
        if let Some(promoted) = twin.keys.get(&key) {
            let is_fresh = promoted.is_valid && !twin.in_flight(promoted.slot);
            assert_eq!(core.is_fresh(promoted.slot), is_fresh);
        }
    }
    assert!(served > 20_000 && refused.iter().all(|&count| count > 1000), "{served} {refused:?}");
    // Nothing is leaked: all slots can be given to keys and filled.
    for write in mem::take(&mut twin.writes) {
        workers[write.worker].end_write(write.mark);
    }
    core.slots().collect::<Vec<_>>().into_iter().for_each(|slot| assert!(core.evict(slot)));
    assert_eq!((core.bytes(), core.len()), (0, 0));
    for key in 0..SLOTS as u8 {
        let slot = core.promote(hash(key), &[key]).expect("all are free");
        assert!(core.begin_fill(slot).is_some());
    }
    assert!(core.promote(hash(KEYS), b"").is_none());
}

#[test]
fn a_hash_is_a_hint() {
    let (mut core, mut workers) = cache(1, 2, 1 << 20);
    let slot = core.promote(hash(1), &[1]).expect("empty");
    assert_eq!(core.promote(hash(1), &[2]), None, "the hash has a slot");
    assert_eq!(fill(&mut core, slot, filled(2, 5, u64::MAX)), Err(Refused::OtherKey));
    assert_eq!(fill(&mut core, slot, filled(1, 5, 10)), Ok(()));
    assert_eq!(core.replies(slot).1, 10);
    let query = Query { hash: hash(1), key: &[1], db: 0, request: b"GET" };
    let others = [
        Query { key: &[2], ..query },
        Query { db: 2, ..query },
        Query { request: b"STRLEN", ..query },
    ];
    let worker = &mut workers[0];
    for other in others {
        assert_eq!(worker.hit(&other, 9, |_| ()), Err(Miss::Other), "{other:?}");
    }
    assert_eq!(worker.hit(&query, 9, |variant| variant.resp2.len()), Ok(1));
    assert_eq!(worker.hit(&query, 10, |_| ()), Err(Miss::Expired));
    assert_eq!((core.hits(slot), core.hits(slot)), (1, 0));
    // A slot that has no key, and one that does not exist.
    assert!(core.evict(slot) && core.begin_fill(slot).is_none() && !core.is_quiet(slot));
    assert_eq!((core.hits(slot), core.push(hash(1)), core.key(slot)), (0, None, None));
}

#[test]
fn sizes_are_checked() {
    let config = Config::default();
    let of = |config| build(config).err().map(|error| error.to_string());
    let workers = of(Config { workers: 65, ..config });
    assert_eq!(workers.as_deref(), Some("65 workers: must be between 1 and 64"));
    let entries = of(Config { entries: 0, ..config });
    assert_eq!(entries.as_deref(), Some("0 entries: must be between 1 and 16777216"));
    let (mut core, mut workers) =
        build(Config { workers: WORKERS_MAX, entries: 1, bytes: 0 }).expect("in range");
    let slot = core.promote(hash(1), &[1]).expect("empty");
    assert_eq!(fill(&mut core, slot, filled(1, 1, u64::MAX)), Err(Refused::Full));
    assert_eq!(hit(&mut workers[63], 1, 0), Err(Miss::Lease), "none is set");
    let many = [filled(1, 1, 1).variants(); 5].concat();
    assert!(Filled::new(b"", 0, many).is_none());
}

/// The origin: each key's value, the number of its writes; and the newest known to any client.
struct Origin {
    values: [Mutex<u64>; KEYS as usize],
    known: [AtomicU64; KEYS as usize],
}

impl Origin {
    fn read(&self, key: u8) -> u64 {
        *self.values[usize::from(key)].lock().expect("no panic")
    }

    fn write(&self, key: u8) -> u64 {
        let mut value = self.values[usize::from(key)].lock().expect("no panic");
        *value += 1;
        *value
    }

    /// A reply has reached its client.
    fn reply(&self, key: u8, value: u64) {
        self.known[usize::from(key)].fetch_max(value, Ordering::SeqCst);
    }

    fn known(&self, key: u8) -> u64 {
        self.known[usize::from(key)].load(Ordering::SeqCst)
    }
}

/// Hits of a client.
const HITS: u64 = 200_000;

/// Two clients of two workers; keys, one more than slots, move in and out all the time.
#[test]
fn no_read_is_older_than_a_reply_before_it() {
    let (mut core, workers) = cache(WORKERS, usize::from(KEYS) - 1, 1 << 20);
    let origin = &Origin {
        values: std::array::from_fn(|_| Mutex::new(0)),
        known: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let (sender, closings) = mpsc::channel();
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (1..)
            .zip(workers)
            .map(|(seed, worker)| {
                let sender = sender.clone();
                scope.spawn(move || client(worker, origin, seed, &sender))
            })
            .collect();
        scope.spawn(move || {
            let mut random = Pcg64Mcg::seed_from_u64(0);
            while !ended.load(Ordering::Relaxed) {
                serve(&mut core, origin, &mut random);
                for (key, closing) in closings.try_iter() {
                    if random.random() {
                        core.push(hash(key));
                    } else {
                        core.push_all();
                    }
                    core.reopen(closing);
                }
            }
        });
        let histories: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        // Before a failure is reported: the core waits for it.
        ended.store(true, Ordering::Relaxed);
        histories.into_iter().for_each(|history| assert_eq!(history.expect("no panic"), Ok(())));
    });
}

/// Reads, writes, and sends commands of unknown keys, until a read is too old.
fn client(
    mut worker: Worker,
    origin: &Origin,
    seed: u64,
    closings: &mpsc::Sender<(u8, Closing)>,
) -> Result<(), String> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut hits, mut writes, mut history) = (0, Vec::new(), Ok(()));
    while hits < HITS && history.is_ok() {
        let key = random.random_range(0..KEYS);
        match random.random_range(0..1000) {
            0..20 => {
                let mark = worker.begin_write(hash(key));
                writes.push((key, origin.write(key), mark));
            }
            20..50 => {
                for (key, value, mark) in writes.drain(..) {
                    // The reply is on its way before the worker ends the write.
                    origin.reply(key, value);
                    worker.end_write(mark);
                }
            }
            50 => {
                let closing = worker.close();
                let value = origin.write(key);
                origin.reply(key, value);
                // The core may have ended: then it panicked, and the test fails.
                let _ = closings.send((key, closing));
            }
            _ => {
                let floor = origin.known(key);
                let hit = hit(&mut worker, key, 0);
                let value = hit.unwrap_or_else(|_| origin.read(key));
                if value < floor {
                    history = Err(format!("key {key}: {value} after {floor}, {hit:?}"));
                }
                origin.reply(key, value);
                match hit {
                    Ok(_) => hits += 1,
                    // There may be fewer CPUs than threads, and the core is to go on.
                    Err(_) => thread::yield_now(),
                }
            }
        }
    }
    // The other client is to end, too.
    for (_, _, mark) in writes {
        worker.end_write(mark);
    }
    history
}

/// One round of the core.
fn serve(core: &mut Core, origin: &Origin, random: &mut Pcg64Mcg) {
    let key = random.random_range(0..KEYS);
    match core.slot(hash(key)) {
        Some(slot) if random.random_ratio(1, 50) => assert!(core.evict(slot)),
        Some(slot) if !core.is_fresh(slot) => {
            if let Some(ticket) = core.begin_fill(slot) {
                let value = origin.read(key);
                let _ = core.accept(ticket, filled(key, value, u64::MAX));
            }
        }
        Some(_) => {}
        None => drop(core.promote(hash(key), &[key])),
    }
}
