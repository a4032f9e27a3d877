//! The protocol under loom: small caches, the core and one or two workers, and every order in which
//! their accesses may happen or be seen, up to a bound of preemptions.
//!
//!     cargo test -p overbank-kv --lib --features loom ::model::
//!
//! The origin is a register that each access changes, so that they are in one order. A value is the
//! number of writes before it. A read may return no value older than a write that was acknowledged,
//! or whose value another read returned, before it began. Each scene runs as it is, and must fail
//! with each of its flaws.

use super::sync::{FLAW, Flaw};
use super::{Closing, Config, Core, Filled, Miss, Query, SlotId, Ticket, Variant, Worker, build};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

/// Runs a scene in every order with at most three preemptions, or `LOOM_MAX_PREEMPTIONS` and one:
/// a write in flight, a fill and a read in its middle take three.
fn explore(flaw: Option<Flaw>, scene: fn()) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(model.preemption_bound.unwrap_or(2) + 1);
    FLAW.set(flaw);
    model.check(scene);
}

/// Tests of a scene: as it is, and with each flaw.
macro_rules! scene {
    ($scene:ident: $($test:ident = $flaw:ident),*) => {
        mod $scene {
            #[test]
            fn holds() {
                super::explore(None, super::$scene);
            }
            $(
                #[test]
                #[should_panic(expected = "stale")]
                fn $test() {
                    super::explore(Some(super::Flaw::$flaw), super::$scene);
                }
            )*
        }
    };
}

const HASH: u128 = 7 << 64 | 9;
const OTHER: u128 = 8 << 64 | 9;

/// The origin's value, and the newest that clients know of.
#[derive(Clone)]
struct Origin(Arc<[AtomicUsize; 2]>);

impl Origin {
    fn new() -> Origin {
        Origin(Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]))
    }

    fn read(&self) -> usize {
        self.0[0].fetch_add(0, Ordering::AcqRel)
    }

    fn write(&self) {
        let before = self.0[0].fetch_add(1, Ordering::AcqRel);
        self.0[1].store(before + 1, Ordering::Release);
    }

    fn known(&self) -> usize {
        self.0[1].load(Ordering::Acquire)
    }
}

fn filled(key: &[u8], value: usize) -> Filled {
    let reply = || Box::from([value as u8]);
    let variant = Variant { db: 0, request: Box::default(), resp3: reply(), resp2: reply() };
    Filled::new(key, u64::MAX, vec![variant]).expect("one reply")
}

/// Returns the value of a hit.
fn hit(worker: &mut Worker, hash: u128, key: &[u8]) -> Result<usize, Miss> {
    let query = Query { hash, key, db: 0, request: &[] };
    worker.hit(&query, 0, |variant| variant.resp3[0].into())
}

/// Reads as a client that knows what has been acknowledged.
fn read(worker: &mut Worker, origin: &Origin) {
    let floor = origin.known();
    if let Ok(value) = hit(worker, HASH, b"k") {
        assert!(value >= floor, "stale: {value} after {floor}");
    }
}

fn write(worker: &mut Worker, origin: &Origin) {
    let mark = worker.begin_write(HASH);
    origin.write();
    worker.end_write(mark);
}

/// Fills a slot if that may be begun; returns whether it is accepted.
fn fill(core: &mut Core, slot: SlotId, origin: &Origin) -> bool {
    let ticket = core.begin_fill(slot);
    ticket.is_some_and(|ticket| accept(core, ticket, origin.read()))
}

fn accept(core: &mut Core, ticket: Ticket, value: usize) -> bool {
    core.accept(ticket, filled(b"k", value)).is_ok()
}

fn cache<const WORKERS: usize>() -> (Core, [Worker; WORKERS], Origin) {
    let config = Config { workers: WORKERS, entries: 1, bytes: 1 << 20 };
    let (mut core, workers) = build(config).expect("small");
    core.set_lease(1);
    (core, workers.try_into().ok().expect("as many"), Origin::new())
}

/// Returns a cache that has the key's first value.
fn cached<const WORKERS: usize>() -> (Core, [Worker; WORKERS], Origin, SlotId) {
    let (mut core, workers, origin) = cache();
    let slot = core.promote(HASH, b"k").expect("empty");
    assert!(fill(&mut core, slot, &origin));
    (core, workers, origin, slot)
}

/// A write, a fill, and a client that reads past the cache first.
fn write_and_fill() {
    let (mut core, [mut a, mut b], origin, slot) = cached();
    let own = origin.clone();
    let writer = thread::spawn(move || write(&mut a, &own));
    let own = origin.clone();
    let filler = thread::spawn(move || {
        fill(&mut core, slot, &own);
        core
    });
    let floor = origin.read();
    if let Ok(value) = hit(&mut b, HASH, b"k") {
        assert!(value >= floor, "stale: {value} after {floor}");
    }
    let mut core = filler.join().expect("ends");
    writer.join().expect("ends");
    read(&mut b, &origin);
    assert!(core.is_fresh(slot) || fill(&mut core, slot, &origin), "nothing is left in flight");
    assert_eq!(hit(&mut b, HASH, b"k"), Ok(1), "stale");
}

scene!(write_and_fill: in_flight_ignored = CountIgnored, epoch_ignored = EpochIgnored,
    late_fill_accepted = LateFill);

/// A write beside this proxy: no later read of a client that knows of its push is older.
fn push_and_fill() {
    let (mut core, [mut a], origin, slot) = cached();
    let own = origin.clone();
    let other = thread::spawn(move || {
        own.0[0].fetch_add(1, Ordering::AcqRel);
    });
    let own = origin.clone();
    let reader = thread::spawn(move || read(&mut a, &own));
    let ticket = core.begin_fill(slot).expect("nothing in flight");
    let value = origin.read();
    other.join().expect("ends");
    core.push(HASH);
    origin.0[1].store(1, Ordering::Release);
    accept(&mut core, ticket, value);
    reader.join().expect("ends");
}

scene!(push_and_fill: late_fill_accepted = LateFill);

/// A write beside this proxy whose push comes before the fill reads, and one through the proxy.
fn push_before_fill() {
    let (mut core, [mut a, mut b], origin, slot) = cached();
    let own = origin.clone();
    let writer = thread::spawn(move || write(&mut a, &own));
    if let Some(mut ticket) = core.begin_fill(slot) {
        origin.0[0].fetch_add(1, Ordering::AcqRel);
        core.push(HASH);
        origin.0[1].fetch_max(1, Ordering::AcqRel);
        ticket.sees_push();
        accept(&mut core, ticket, origin.read());
        let floor = origin.known();
        let found = hit(&mut b, HASH, b"k");
        writer.join().expect("ends");
        assert!(
            found.is_ok_and(|value| value >= floor) || found.is_err(),
            "stale: {found:?} after {floor}"
        );
    } else {
        writer.join().expect("ends");
    }
    read(&mut b, &origin);
}

scene!(push_before_fill: late_fill_accepted = LateFill);

/// A fill that has read before what the push says.
#[test]
#[should_panic(expected = "stale")]
fn a_push_is_not_of_a_read_before_it() {
    explore(None, || {
        let (mut core, [mut a], origin, slot) = cached();
        let mut ticket = core.begin_fill(slot).expect("nothing in flight");
        let early = origin.read();
        origin.write();
        core.push(HASH);
        ticket.sees_push();
        accept(&mut core, ticket, early);
        read(&mut a, &origin);
    });
}

/// A write that may look the key up before it is in the table.
fn promotion() {
    let (mut core, [mut a, mut b], origin) = cache();
    let own = origin.clone();
    let writer = thread::spawn(move || write(&mut a, &own));
    let slot = core.promote(HASH, b"k").expect("empty");
    if fill(&mut core, slot, &origin) {
        let floor = origin.read();
        if let Ok(value) = hit(&mut b, HASH, b"k") {
            assert!(value >= floor, "stale: {value} after {floor}");
        }
    }
    writer.join().expect("ends");
    read(&mut b, &origin);
    assert!(core.is_fresh(slot) || fill(&mut core, slot, &origin), "nothing is left in flight");
    assert_eq!(hit(&mut b, HASH, b"k"), Ok(1), "stale");
}

scene!(promotion: bucket_ignored = BucketIgnored, poll_loads = PollLoads);

/// A command of unknown keys, which changes this one.
fn closing() {
    let (mut core, [mut a, mut b], origin, slot) = cached();
    let own = origin.clone();
    let closer = thread::spawn(move || -> Closing {
        let closing = a.close();
        own.write();
        closing
    });
    let own = origin.clone();
    let reader = thread::spawn(move || {
        read(&mut b, &own);
        read(&mut b, &own);
        b
    });
    // One before the push, which may read either value.
    fill(&mut core, slot, &origin);
    let closing = closer.join().expect("ends");
    core.push(HASH);
    core.reopen(closing);
    let mut b = reader.join().expect("ends");
    assert_eq!(hit(&mut b, HASH, b"k"), Err(Miss::Stale));
    assert!(fill(&mut core, slot, &origin));
    assert_eq!(hit(&mut b, HASH, b"k"), Ok(1));
}

scene!(closing: gate_ignored = GateIgnored, gate_last = GateLast);

/// A flush: all is dropped before it ends, also what is being filled.
fn flush() {
    let (mut core, [mut a, mut b], origin, slot) = cached();
    let own = origin.clone();
    let ticket = core.begin_fill(slot).expect("nothing in flight");
    let value = origin.read();
    let closer = thread::spawn(move || -> Closing {
        let closing = a.close();
        own.write();
        closing
    });
    let own = origin.clone();
    let reader = thread::spawn(move || read(&mut b, &own));
    let closing = closer.join().expect("ends");
    core.push_all();
    core.reopen(closing);
    assert!(!accept(&mut core, ticket, value), "stale");
    reader.join().expect("ends");
}

scene!(flush: gate_ignored = GateIgnored);

/// The only slot goes to another key while a write of its first key may be about to mark it.
fn reuse() {
    let (mut core, [mut a], origin, slot) = cached();
    let own = origin.clone();
    let writer = thread::spawn(move || {
        write(&mut a, &own);
        a
    });
    assert!(core.evict(slot));
    let promoted = core.promote(OTHER, b"o");
    let ticket = promoted.and_then(|slot| core.begin_fill(slot));
    let is_filled = ticket.is_some_and(|ticket| core.accept(ticket, filled(b"o", 5)).is_ok());
    let mut a = writer.join().expect("ends");
    assert_eq!(hit(&mut a, HASH, b"k"), Err(Miss::Absent));
    // Marked late, it is not served; else it is, and nothing else.
    let found = hit(&mut a, OTHER, b"o");
    assert!(matches!(found, Ok(5) | Err(Miss::Stale)) && is_filled || found.is_err(), "{found:?}");
    // The counts are balanced: the slot can be given to a key and filled.
    promoted.map(|slot| core.evict(slot));
    let slot = core.promote(HASH, b"k").expect("nothing is left in flight");
    assert!(fill(&mut core, slot, &origin));
    assert_eq!(hit(&mut a, HASH, b"k"), Ok(1), "stale");
}

scene!(reuse: );

/// The key leaves the only slot and comes back, while a write of it may have marked the slot and a
/// fill from before is under way.
fn comeback() {
    let (mut core, [mut a, mut b], origin, slot) = cached();
    let ticket = core.begin_fill(slot).expect("nothing in flight");
    let value = origin.read();
    let own = origin.clone();
    let writer = thread::spawn(move || write(&mut a, &own));
    assert!(core.evict(slot));
    if let Some(slot) = core.promote(HASH, b"k") {
        accept(&mut core, ticket, value);
        read(&mut b, &origin);
        fill(&mut core, slot, &origin);
    }
    writer.join().expect("ends");
    read(&mut b, &origin);
}

scene!(comeback: silent_eviction = SilentEviction, bucket_ignored = BucketIgnored);
