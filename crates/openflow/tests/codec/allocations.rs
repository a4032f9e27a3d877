//! What decoding allocates: bounded by the length of the message, for the messages that are made
//! of as many small parts as fit.
#![allow(unsafe_code)] // A global allocator that counts; it hands every call to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{decode, encode, samples};
use overbank_openflow::{HEADER_LEN, Header, Version};

/// Most bytes of memory that one byte of a message may cost.
const FACTOR_MAX: usize = 16;

struct Counting;

// Of each thread by itself: the test harness allocates beside the test.
thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    NOW.set(NOW.get() + change);
    PEAK.set(PEAK.get().max(NOW.get()));
}

// SAFETY: both calls go to the system's allocator unchanged; the counters are cells without a
// destructor, made at compile time, so touching them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those of `System::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A message of `kind`: `head`, then `part` as often as it fits, with the lengths at these places
/// of `head` set to what follows them there (`place`, `from`).
fn filled(
    version: Version,
    kind: u8,
    head: &[u8],
    lengths: &[(usize, usize)],
    part: &[u8],
) -> Vec<u8> {
    let mut body = head.to_vec();
    while HEADER_LEN + body.len() + part.len() <= 0xfff8 {
        body.extend_from_slice(part);
    }
    for &(place, from) in lengths {
        let length = (body.len() - from) as u16;
        body[place..place + 2].copy_from_slice(&length.to_be_bytes());
    }
    let length = (HEADER_LEN + body.len()) as u16;
    let header = Header { version: version.wire(), kind, length, xid: 1 };
    [&header.to_bytes()[..], &body].concat()
}

#[test]
fn memory_is_a_small_multiple_of_the_message() {
    const EMPTY_MATCH: [u8; 8] = [0, 1, 0, 4, 0, 0, 0, 0];
    let flow_mod = [&[0; 40][..], &EMPTY_MATCH].concat();
    let apply = [&flow_mod[..], &[0, 4, 0, 0, 0, 0, 0, 0]].concat();
    let flow_13 = [&[0, 56, 0, 0][..], &[0; 44], &EMPTY_MATCH].concat();
    let flow_15 = [&[0, 40, 0, 0][..], &[0; 20], &EMPTY_MATCH, &[0, 0, 0, 4, 0, 0, 0, 0]].concat();
    let short = [&[0, 24, 0, 0, 0, 0, 0, 0][..], &EMPTY_MATCH, &[0, 0, 0, 4, 0, 0, 0, 0]].concat();
    let table = [&[0, 64][..], &[0; 62]].concat();
    let monitor = [&[0; 16][..], &EMPTY_MATCH].concat();
    let multipart = |kind: u8| [0, kind, 0, 0, 0, 0, 0, 0];
    let features = [&multipart(12)[..], &table].concat();
    let (v13, v14, v15) = (Version::V13, Version::V14, Version::V15);
    let worst: Vec<(&str, Version, Vec<u8>)> = vec![
        ("actions", v13, filled(v13, 14, &apply, &[(50, 48)], &[0, 24, 0, 8, 0, 0, 0, 0])),
        ("other actions", v13, filled(v13, 14, &apply, &[(50, 48)], &[0, 11, 0, 8, 0, 0, 0, 0])),
        (
            "experimenter actions",
            v13,
            filled(
                v13,
                14,
                &apply,
                &[(50, 48)],
                &[255, 255, 0, 16, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8],
            ),
        ),
        (
            "experimenter instructions",
            v13,
            filled(v13, 14, &flow_mod, &[], &[255, 255, 0, 8, 0, 0, 0, 9]),
        ),
        (
            "packet-out",
            v13,
            filled(
                v13,
                13,
                &[255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
                &[(8, 16)],
                &[0, 18, 0, 8, 0, 0, 0, 0],
            ),
        ),
        ("flows of 1.3", v13, filled(v13, 19, &multipart(1), &[], &flow_13)),
        ("flows of 1.5", v15, filled(v15, 19, &multipart(1), &[], &flow_15)),
        ("counters of flows", v15, filled(v15, 19, &multipart(17), &[], &short)),
        ("tables", v13, filled(v13, 18, &multipart(12), &[], &table)),
        ("properties", v13, filled(v13, 18, &features, &[(8, 8)], &[0, 0, 0, 4, 0, 0, 0, 0])),
        (
            "other properties",
            v13,
            filled(v13, 18, &features, &[(8, 8)], &[0, 77, 0, 5, 1, 0, 0, 0]),
        ),
        ("monitors", v14, filled(v14, 18, &multipart(16), &[], &monitor)),
        ("table counters", v13, filled(v13, 19, &multipart(3), &[], &[0; 24])),
        ("echo", v13, filled(v13, 2, &[], &[], &[7; 8])),
    ];
    for (what, version, bytes) in worst {
        assert!(bytes.len() > 65_000, "{what}");
        let before = NOW.get();
        PEAK.set(before);
        let message = decode(version, &bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        let peak = (PEAK.get() - before) as usize;
        drop(message);
        assert_eq!(NOW.get(), before, "{what}: memory was lost");
        println!("{what}: {peak} bytes for {}", bytes.len());
        assert!(peak <= FACTOR_MAX * bytes.len(), "{what}: {peak} bytes for {}", bytes.len());
    }
}

#[test]
fn a_short_message_costs_little_whatever_it_says() {
    let mut corpus = Vec::new();
    for version in Version::ALL {
        corpus.extend(samples(version).into_iter().map(|s| (version, encode(&s.message, version))));
    }
    for (version, mut bytes) in corpus {
        // Each pair of bytes in turn says that something is very long, or empty.
        for at in HEADER_LEN..bytes.len() - 1 {
            let kept = [bytes[at], bytes[at + 1]];
            for lie in [[0xff, 0xf8], [0, 0], [0, 8]] {
                bytes[at..at + 2].copy_from_slice(&lie);
                let before = NOW.get();
                PEAK.set(before);
                drop(decode(version, &bytes));
                let peak = (PEAK.get() - before) as usize;
                assert!(peak <= FACTOR_MAX * bytes.len() + 512, "{peak} for {}", bytes.len());
            }
            bytes[at..at + 2].copy_from_slice(&kept);
        }
    }
}
