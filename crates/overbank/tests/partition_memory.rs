//! Partition tables whose memory is refused: each large allocation in turn. The error says so, and
//! the table that stood before is whole.

#![allow(unsafe_code)] // A global allocator is an unsafe trait; this one refuses or passes on.

use overbank::hash::mix;
use overbank::isa::Isa;
use overbank::memory::Pages;
use overbank::partition::{Config, Reader, Replica, RowBits, Writer, setsep};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Display;

/// Allocations up to this size are granted: buffers of files, and what a group or a bucket needs.
const SMALL_MAX: usize = 64 << 10;

thread_local! {
    /// Large allocations that are granted before the next one is refused.
    static GRANTED: Cell<usize> = const { Cell::new(usize::MAX) };
}

struct Refusing;

fn granted(size: usize) -> bool {
    let left = GRANTED.get();
    if size <= SMALL_MAX || left == usize::MAX {
        return true;
    }
    GRANTED.set(left.saturating_sub(1));
    left > 0
}

// SAFETY: every call goes to the system allocator with the arguments that came in, or is refused,
// which a null pointer says.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        if granted(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Grants one large allocation more each time until `attempt` succeeds; `whole` looks
/// after each failure. Returns how often it failed, and the result.
fn refuse<T, E: Display>(
    mut attempt: impl FnMut() -> Result<T, E>,
    mut whole: impl FnMut(),
) -> (usize, T) {
    for failures in 0.. {
        GRANTED.set(failures);
        let result = attempt();
        GRANTED.set(usize::MAX);
        match result {
            Ok(done) => return (failures, done),
            Err(error) => assert!(error.to_string().contains("memory"), "{error}"),
        }
        whole();
    }
    unreachable!("a program has fewer allocations than numbers");
}

fn value(i: u64) -> u8 {
    (mix(!i) & 15) as u8
}

fn entries(keys: u64) -> impl Iterator<Item = (u64, u8)> + Clone {
    (0..keys).map(|i| (mix(i), value(i)))
}

fn check(reader: &Reader, keys: u64) {
    let (hashes, wanted): (Vec<u64>, Vec<u8>) = entries(keys).unzip();
    let mut found = vec![0; hashes.len()];
    reader.lookup_all(&hashes, &mut found);
    assert!(found == wanted);
}

#[test]
fn a_build_without_memory_says_so() {
    for row in [RowBits::R64, RowBits::R128] {
        let config = Config::new(200_000, 4).row(row).pages(Pages::Small);
        let (failures, (writer, _)) = refuse(|| Writer::build(&config, entries(200_000)), || ());
        check(&writer.reader(), 200_000);
        assert!(failures > 9, "{failures}");
        let (failures, (copy, _)) = refuse(|| Replica::build(&config, entries(200_000)), || ());
        check(&copy.reader(), 200_000);
        assert!(failures > 9, "{failures}");
        let (failures, copy) = refuse(|| writer.replica(), || check(&writer.reader(), 200_000));
        check(&copy.reader(), 200_000);
        assert!(failures > 0);
    }
}

#[test]
fn a_table_that_cannot_grow_stays_and_grows_later() {
    let config = Config::new(30_000, 4).growing(120_000, 1).pages(Pages::Small);
    let (mut writer, _) = Writer::build(&config, entries(30_000)).expect("memory");
    let (reader, mut copy) = (writer.reader(), writer.replica().expect("memory"));
    let (mut refused, mut grown) = (0, 0);
    for i in 30_000..80_000 {
        let (sequence, len) = (writer.sequence(), writer.len());
        let writer = &mut writer;
        let mut look = || {
            check(&reader, i);
            check(&copy.reader(), i);
        };
        let (failures, delta) = refuse(
            || {
                let inserted = writer.insert(mix(i), value(i));
                let granted = GRANTED.replace(usize::MAX);
                if inserted.is_err() {
                    assert_eq!((writer.sequence(), writer.len()), (sequence, len));
                    assert_eq!(writer.get(mix(i)), None);
                }
                GRANTED.set(granted);
                inserted
            },
            &mut look,
        );
        let delta = delta.expect("a new key");
        refused += failures;
        grown += usize::from(delta.is_growth());
        copy.apply(&delta).expect("the next one");
    }
    assert!(grown > 2 && refused > 10 * grown, "{refused} refused, grown {grown} times");
    check(&reader, 80_000);
    check(&copy.reader(), 80_000);
}

#[test]
fn an_image_that_does_not_fit_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("image");
    let config = Config::new(400_000, 4).pages(Pages::Small);
    let (writer, _) = Writer::build(&config, entries(400_000)).expect("memory");
    refuse(|| writer.save(&path), || check(&writer.reader(), 400_000));
    let isa = Some(Isa::Portable);
    let (failures, copy) =
        refuse(|| Replica::load(&path, isa, Pages::Small), || check(&writer.reader(), 400_000));
    check(&copy.reader(), 400_000);
    assert!(failures > 0);
}

#[test]
fn setsep_says_it_too() {
    let config = setsep::Config::new(4_000_000, 4);
    let build = || setsep::SetSep::build(&config, entries(2_000).chain(entries(2_000)));
    let (failures, _) = refuse(build, || ());
    assert!(failures > 1, "{failures}");
}
