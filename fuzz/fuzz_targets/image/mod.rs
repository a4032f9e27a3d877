//! Files of tables, for the targets of images: their checksums, and where they lie.

use std::path::PathBuf;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub const HEADER: usize = 64;
pub const BLOCK_HEADER: usize = 12;

/// Begins a block; [`seal`] makes its checksum.
pub fn block(content: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut block = vec![0; BLOCK_HEADER];
    block.extend(content);
    let len = (block.len() - BLOCK_HEADER) as u32;
    block[..4].copy_from_slice(&len.to_le_bytes());
    block
}

/// Makes the checksums, as far as the lengths of the blocks lead.
pub fn seal(file: &mut [u8]) {
    let (header, mut blocks) = file.split_at_mut(HEADER);
    let sum = xxh3_64(&header[..56]);
    header[56..].copy_from_slice(&sum.to_le_bytes());
    for block in 0u64.. {
        let Some((head, rest)) = blocks.split_at_mut_checked(BLOCK_HEADER) else { return };
        let (len, place) = head.split_at_mut(4);
        let len = u32::from_le_bytes((&*len).try_into().expect("4 bytes"));
        let Some((content, rest)) = rest.split_at_mut_checked(len as usize) else { return };
        place.copy_from_slice(&xxh3_64_with_seed(content, sum ^ block).to_le_bytes());
        blocks = rest;
    }
}

/// A file of this process, in memory where that is possible: saving waits until all is on disk.
pub fn path() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("overbank-fuzz-{}", std::process::id()))
}
