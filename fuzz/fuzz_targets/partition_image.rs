//! Any bytes as the image of a partition table: an error of one line, or a table that saves the
//! same file and whose lookups stay inside it.
//!
//! Bytes at random fail at a checksum, so half of the inputs become a file that is right in all but
//! its contents: header, lengths and checksums are made here.
//!
//! Input: what it is (1 byte: instruction set, whether a file is to be made of the rest). A file as
//! it is, or row and value bits (1 byte), groups (1), partitions and blocks (1), keys in the
//! fallback (1), number of changes (1), changes (3 bytes each: where, what), contents.
#![no_main]

mod image;

use std::fs;

use image::{HEADER, block, path, seal};
use libfuzzer_sys::fuzz_target;
use overbank::file::FileError;
use overbank::hash::mix;
use overbank::isa::Isa;
use overbank::memory::Pages;
use overbank::partition::{PartitionImageError, Replica};

const CHANGES_MAX: u8 = 4;
const CHOICES: usize = 256;

fuzz_target!(|data: &[u8]| {
    let [what, rest @ ..] = data else { return };
    let file = if what & 0x80 == 0 { rest.to_vec() } else { made(rest) };
    let path = path();
    fs::write(&path, &file).expect("there is room for a small file");
    let sets: Vec<Isa> = Isa::available().collect();
    let isa = sets[usize::from(what & 7) % sets.len()];
    match Replica::load(&path, Some(isa), Pages::Small) {
        Ok(replica) => {
            replica.save(&path).expect("there is room for a small file");
            assert!(fs::read(&path).expect("just written") == file, "it saves another file");
            check(&replica);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
            match error {
                PartitionImageError::File(FileError::Damaged { at, .. }) => {
                    assert!(at <= file.len() as u64, "{message}");
                }
                error => panic!("the file can be read: {error}"),
            }
        }
    }
    fs::remove_file(&path).expect("just written");
});

/// Values have no more bits than the table, alone and in bursts.
fn check(replica: &Replica) {
    let reader = replica.reader();
    let hashes: Vec<u64> = (0..64).map(mix).chain([0, u64::MAX]).collect();
    let mut values = vec![0; hashes.len()];
    reader.lookup_all(&hashes, &mut values);
    for (&hash, &value) in hashes.iter().zip(&values) {
        assert_eq!(reader.lookup(hash), value);
        assert!(u32::from(value) >> reader.value_bits() == 0);
    }
    let groups: usize = reader.seeds().iter().sum();
    assert!(groups >= 2 * reader.blocks() && reader.digest(0, 0).is_some());
}

/// A file with these contents, changed here and there before the checksums are made.
fn made(rest: &[u8]) -> Vec<u8> {
    let mut input = rest.iter().copied();
    let mut next = || input.next().unwrap_or(0);
    let form = next();
    let (row, planes) = (64 << (form >> 3 & 1), usize::from(1 + form % 8));
    let groups = 2 + usize::from(next() % 6);
    let sizes = next();
    let partitions = 1u16 << (sizes & 1);
    let blocks: Vec<u32> =
        (0..partitions).map(|partition| 1 + u32::from(sizes >> (1 + partition) & 1)).collect();
    let entries = usize::from(next() % 8);
    let changes: Vec<[u8; 3]> =
        (0..next() % (CHANGES_MAX + 1)).map(|_| [next(), next(), next()]).collect();
    let all: u32 = blocks.iter().sum();

    let mut file = vec![0; HEADER];
    let mut directory: Vec<u8> = (0..16).map(|_| next()).collect();
    blocks.iter().for_each(|blocks| directory.extend(blocks.to_le_bytes()));
    file.extend(block(directory));
    for _ in 0..all {
        file.extend(block((0..CHOICES + groups * planes * row / 8).map(|_| next())));
    }
    let mut keys: Vec<[u8; 9]> = (0..entries).map(|_| [(); 9].map(|()| next())).collect();
    keys.iter_mut().for_each(|key| key[8] &= (0xff >> (8 - planes)) as u8);
    keys.sort_by_key(|key| u64::from_le_bytes(key[..8].try_into().expect("8 bytes")));
    file.extend(block(keys.into_iter().flatten()));

    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"OVBKGPT\n");
    put(8, &1u32.to_le_bytes());
    put(12, &[row as u8, planes as u8]);
    put(14, &(groups as u16).to_le_bytes());
    put(16, &partitions.to_le_bytes());
    put(20, &(all + 2).to_le_bytes());
    put(24, &8u32.to_le_bytes());
    put(28, &all.to_le_bytes());
    put(32, &(entries as u32).to_le_bytes());
    for [low, high, byte] in changes {
        let at = usize::from(u16::from_le_bytes([low, high])) % file.len();
        file[at] ^= byte;
    }
    seal(&mut file);
    file
}
