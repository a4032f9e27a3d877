//! Any bytes as a batch of deltas of a partition table: an error of one line, or deltas that encode
//! to the same bytes, which a copy applies or refuses, and lookups stay inside the table.
//!
//! Bytes at random fail at the checksum, so half of the inputs become a batch whose header is that
//! of the copy: deltas are the rest.
//!
//! Input: what it is (1 byte: row, instruction set, whether a batch is to be made of the rest). A
//! batch as it is, or number of deltas (1 byte), number of changes (1), changes (3 bytes each:
//! where, what), deltas.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use overbank::hash::mix;
use overbank::isa::Isa;
use overbank::memory::Pages;
use overbank::partition::{Config, Delta, DeltaError, RowBits, Writer};
use xxhash_rust::xxh3::xxh3_64;

const KEYS: u64 = 40;
const CHANGES_MAX: u8 = 3;

fuzz_target!(|data: &[u8]| {
    let [what, rest @ ..] = data else { return };
    let sets: Vec<Isa> = Isa::available().collect();
    let isa = sets[usize::from(what & 7) % sets.len()];
    let row = if what >> 3 & 1 == 0 { RowBits::R64 } else { RowBits::R128 };
    let mut copy = MADE.with_borrow_mut(|made| {
        made.entry(what & 0xf).or_insert_with(|| small(isa, row)).0.replica().expect("small")
    });
    let bytes = if what & 0x80 == 0 {
        rest.to_vec()
    } else {
        MADE.with_borrow(|all| made(rest, all[&(what & 0xf)].1.clone()))
    };
    match Delta::decode(&bytes) {
        Ok(deltas) => {
            assert!(Delta::encode(&deltas).expect("as before") == bytes, "other bytes");
            for delta in &deltas {
                let before = copy.sequence();
                match copy.apply(delta) {
                    Ok(()) => assert_eq!(copy.sequence(), before + 1),
                    Err(error) => {
                        one_line(&error.to_string());
                        assert_eq!(copy.sequence(), before);
                        if let DeltaError::Sequence { found, expected } = error {
                            assert!(found == delta.sequence && expected == before + 1);
                        }
                    }
                }
            }
        }
        Err(error) => one_line(&error.to_string()),
    }
    let reader = copy.reader();
    let hashes: Vec<u64> = (0..64).map(mix).collect();
    let mut values = [0; 64];
    reader.lookup_batch(&hashes, &mut values);
    assert!(values.iter().all(|value| value >> 2 == 0));
});

thread_local! {
    /// A table for each row and instruction set, and a batch of its next delta.
    static MADE: RefCell<HashMap<u8, (Writer, Vec<u8>)>> = RefCell::default();
}

fn small(isa: Isa, row: RowBits) -> (Writer, Vec<u8>) {
    let config = Config::new(KEYS as usize, 2).growing(4 * KEYS as usize, 2).row(row);
    let config = config.isa(Some(isa)).pages(Pages::Small).generation(3);
    let entries = (0..KEYS).map(|key| (mix(key), (key % 4) as u8));
    let (mut writer, _) = Writer::build(&config, entries).expect("small");
    let delta = writer.insert(mix(0), 3).expect("known").expect("another value");
    let mut batch = Delta::encode(&[delta]).expect("one");
    // The writer has made the first one; copies of it wait for the second.
    batch[32] = 2;
    (writer, batch)
}

fn one_line(message: &str) {
    assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
}

/// A batch with this one's header and other deltas, changed here and there before the checksum.
fn made(rest: &[u8], mut batch: Vec<u8>) -> Vec<u8> {
    let mut input = rest.iter().copied();
    let mut next = || input.next().unwrap_or(0);
    let count = u32::from(next() % 4);
    let changes: Vec<[u8; 3]> =
        (0..next() % (CHANGES_MAX + 1)).map(|_| [next(), next(), next()]).collect();
    batch.truncate(48);
    batch[40..44].copy_from_slice(&count.to_le_bytes());
    batch.extend(input);
    let bytes = (batch.len() - 48) as u32;
    batch[44..48].copy_from_slice(&bytes.to_le_bytes());
    for [low, high, byte] in changes {
        let at = usize::from(u16::from_le_bytes([low, high])) % batch.len();
        batch[at] ^= byte;
    }
    let sum = xxh3_64(&batch);
    batch.extend(sum.to_le_bytes());
    batch
}
