//! Reads any bytes as the image of a forwarding table: an error of one line, or a table that holds
//! exactly what the file says.
//!
//! Random bytes fail at a checksum. So half of the inputs become a file with valid header, lengths
//! and checksums around their contents.
//!
//! Input: what it is (1 byte: types, instruction set, whether a file is to be made of the rest). A
//! file as it is, or buckets (2 bytes), seed (1), number of changes (1), changes (3 bytes each:
//! where, what), contents.
#![no_main]

mod image;

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;

use image::{HEADER, block, path, seal};
use libfuzzer_sys::fuzz_target;
use overbank::fib::{Config, FibImageError, Key, MacAddr, MacVlan, Value, Writer};
use overbank::file::FileError;
use overbank::isa::Isa;

const BLOCK_BUCKETS: usize = 4096;
const BUCKETS_USUAL: usize = 64;
const CHANGES_MAX: u8 = 4;

fuzz_target!(|data: &[u8]| {
    let [what, rest @ ..] = data else { return };
    match what % 8 {
        0 | 1 => check::<MacAddr, u16>(*what, rest, 6),
        2 => check::<MacVlan, u16>(*what, rest, 8),
        3 => check::<u64, u32>(*what, rest, 8),
        4 => check::<u64, u64>(*what, rest, 8),
        5 => check::<u128, u16>(*what, rest, 16),
        _ => check::<u128, u64>(*what, rest, 16),
    }
});

fn check<K: Key, V: Value>(what: u8, rest: &[u8], key_len: usize) {
    let file = if what & 0x80 == 0 { rest.to_vec() } else { made::<K, V>(rest, key_len) };
    let path = path();
    fs::write(&path, &file).expect("there is room for a small file");
    let sets: Vec<Isa> = Isa::available().collect();
    let isa = sets[usize::from(what >> 3 & 7) % sets.len()];
    match Writer::<K, V>::load(&path, &Config::buckets(2).isa(Some(isa))) {
        Ok(writer) => {
            writer.save(&path).expect("there is room for a small file");
            assert!(fs::read(&path).expect("just written") == file, "it saves another file");
            check_table(writer);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
            match error {
                FibImageError::File(FileError::Damaged { at, .. })
                | FibImageError::Misplaced { at, .. } => {
                    assert!(at <= file.len() as u64, "{message}");
                }
                FibImageError::File(FileError::Io { .. }) => {
                    panic!("the file can be read: {message}")
                }
                _ => {}
            }
        }
    }
    fs::remove_file(&path).expect("just written");
}

/// Checks that keys are unique, that readers find them, and that they can be removed.
fn check_table<K: Key, V: Value>(mut writer: Writer<K, V>) {
    let reader = writer.reader();
    let entries: HashMap<K, V> = writer.iter().collect();
    assert_eq!((writer.iter().count(), entries.len()), (writer.len(), writer.len()));
    assert_eq!(reader.len(), entries.len());
    for (&key, &value) in &entries {
        let mut values = [V::default()];
        assert_eq!((writer.get(key), reader.lookup(key)), (Some(value), Some(value)));
        assert_eq!((reader.lookup_batch(&[key], &mut values), values), (1, [value]));
    }
    for (&key, &value) in &entries {
        assert_eq!((writer.remove(key), reader.lookup(key)), (Some(value), None));
    }
    assert_eq!((writer.len(), writer.stats().second), (0, 0));
}

/// Returns a file with these contents, changed in places before the checksums are computed.
fn made<K: Key, V: Value>(rest: &[u8], key_len: usize) -> Vec<u8> {
    let mut input = rest.iter().copied();
    let mut next = || input.next().unwrap_or(0);
    // Few buckets, since they take most of the time; sometimes more than a block of them.
    let buckets = u16::from_le_bytes([next(), next()]);
    let blocks = if buckets >> 8 == 0xff { 2 * BLOCK_BUCKETS } else { BUCKETS_USUAL };
    let buckets = 2 + usize::from(buckets) % blocks;
    let seed = u64::from(next());
    let changes: Vec<[u8; 3]> =
        (0..next() % (CHANGES_MAX + 1)).map(|_| [next(), next(), next()]).collect();
    let slots = slots::<K, V>();
    let entry_len = key_len + size_of::<V>();

    let mut file = vec![0; HEADER];
    let mut entries = 0u64;
    for first in (0..buckets).step_by(BLOCK_BUCKETS) {
        let mut content = Vec::new();
        for _ in first..buckets.min(first + BLOCK_BUCKETS) {
            let occupied = next() & ((1 << slots) - 1) as u8;
            content.push(occupied);
            let count = occupied.count_ones() as usize;
            content.extend((0..count * entry_len).map(|_| next()));
            entries += count as u64;
        }
        file.extend(block(content));
    }
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"OVBKFIB\n");
    put(8, &1u32.to_le_bytes());
    put(12, &(key_len as u16).to_le_bytes());
    put(14, &(size_of::<V>() as u16).to_le_bytes());
    put(16, &(buckets as u64).to_le_bytes());
    put(24, &(slots as u64).to_le_bytes());
    put(32, &entries.to_le_bytes());
    put(40, &seed.to_le_bytes());
    for [low, high, byte] in changes {
        let at = usize::from(u16::from_le_bytes([low, high])) % file.len();
        file[at] ^= byte;
    }
    seal(&mut file);
    file
}

/// Returns the slots of a bucket; made once, since a table costs more than the rest.
fn slots<K: Key, V: Value>() -> usize {
    thread_local! {
        static SLOTS: RefCell<HashMap<TypeId, usize>> = RefCell::default();
    }
    let made = || Writer::<K, V>::new(&Config::buckets(2)).expect("small").slots() / 2;
    SLOTS.with_borrow_mut(|slots| *slots.entry(TypeId::of::<(K, V)>()).or_insert_with(made))
}
