//! The keys of a block by bucket, as its owner keeps them: tables have none.
//!
//! ```text
//!   spans   start, length, room of each bucket
//!   slab    ┌ bucket 7 ┐┌ bucket 0 ─── ┐      ┌ bucket 3 ┐
//!           │k k k · · ││k k k k k k · │ gone │k k k k   │
//! ```
//!
//! A bucket that outgrows its room moves to the end; when half of the slab is gone or room, it is
//! written anew. 9 bytes a key, and room for half as many again.

use alloc::vec;
use alloc::vec::Vec;

use super::block::Entry;
use super::shape::{BUCKETS, bucket_of};

#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    len: u32,
    room: u32,
}

pub(super) struct Keys {
    spans: Vec<Span>,
    hashes: Vec<u64>,
    values: Vec<u8>,
    len: usize,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            spans: vec![Span::default(); BUCKETS],
            hashes: Vec::new(),
            values: Vec::new(),
            len: 0,
        }
    }

    /// Buckets to come, by [`Keys::push_bucket`], with this many keys.
    pub(super) fn with_capacity(keys: usize) -> Self {
        Self {
            spans: Vec::with_capacity(BUCKETS),
            hashes: Vec::with_capacity(keys),
            values: Vec::with_capacity(keys),
            len: 0,
        }
    }

    /// Adds the keys of the next bucket, without room for more.
    pub(super) fn push_bucket(&mut self, entries: &[Entry]) {
        let len = entries.len() as u32;
        self.spans.push(Span { start: self.hashes.len() as u32, len, room: len });
        self.hashes.extend(entries.iter().map(|entry| entry.0));
        self.values.extend(entries.iter().map(|entry| entry.1));
        self.len += entries.len();
    }

    /// Keys of each bucket.
    pub(super) fn sizes(&self) -> Vec<u32> {
        self.spans.iter().map(|span| span.len).collect()
    }

    /// Keys of the block.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the key is, if it is there.
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        let Span { start, len, .. } = self.spans[bucket_of(hash)];
        let at = start as usize;
        let hashes = &self.hashes[at..at + len as usize];
        hashes.iter().position(|&other| other == hash).map(|nth| at + nth)
    }

    /// The value of the key at `at`.
    pub(super) fn value(&self, at: usize) -> u8 {
        self.values[at]
    }

    /// Gives the key at `at` another value.
    pub(super) fn set(&mut self, at: usize, value: u8) {
        self.values[at] = value;
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, hash: u64, value: u8) {
        let bucket = bucket_of(hash);
        let Span { start, len, room } = self.spans[bucket];
        if len == room {
            if self.hashes.len() > 64 + 4 * self.len {
                self.rewrite();
                return self.insert(hash, value);
            }
            let grown = Span { start: self.hashes.len() as u32, len, room: room + room / 2 + 4 };
            let end = self.hashes.len() + grown.room as usize;
            let old = start as usize..(start + len) as usize;
            self.hashes.extend_from_within(old.clone());
            self.values.extend_from_within(old);
            self.hashes.resize(end, 0);
            self.values.resize(end, 0);
            self.spans[bucket] = grown;
        }
        let span = &mut self.spans[bucket];
        let at = (span.start + span.len) as usize;
        (self.hashes[at], self.values[at]) = (hash, value);
        span.len += 1;
        self.len += 1;
    }

    /// Removes the key at `at`, which is in its bucket.
    pub(super) fn remove(&mut self, at: usize) {
        let span = &mut self.spans[bucket_of(self.hashes[at])];
        span.len -= 1;
        let last = (span.start + span.len) as usize;
        self.hashes[at] = self.hashes[last];
        self.values[at] = self.values[last];
        self.len -= 1;
    }

    /// Keys of a bucket.
    pub(super) fn bucket(&self, bucket: usize) -> impl Iterator<Item = Entry> + '_ {
        let Span { start, len, .. } = self.spans[bucket];
        let range = start as usize..(start + len) as usize;
        self.hashes[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }

    /// All keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..BUCKETS).flat_map(|bucket| self.bucket(bucket))
    }

    /// Writes the slab anew, every bucket with room for half as many again.
    fn rewrite(&mut self) {
        let mut new = Self::new();
        for (bucket, span) in new.spans.iter_mut().enumerate() {
            let len = self.spans[bucket].len;
            *span = Span { start: new.hashes.len() as u32, len, room: len + len / 2 + 2 };
            new.hashes.extend(self.bucket(bucket).map(|entry| entry.0));
            new.values.extend(self.bucket(bucket).map(|entry| entry.1));
            let end = (span.start + span.room) as usize;
            new.hashes.resize(end, 0);
            new.values.resize(end, 0);
        }
        *self = Self { len: self.len, ..new };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Pcg32;
    use std::collections::BTreeMap;

    #[test]
    fn keys_come_and_go_as_in_a_map() {
        let mut pcg = Pcg32::new(3, 3);
        let (mut keys, mut map) = (Keys::new(), BTreeMap::new());
        for _ in 0..60_000 {
            let hash = u64::from(pcg.below(9000)) * 0x1001;
            match (keys.find(hash), pcg.below(3)) {
                (Some(at), 0) => {
                    assert_eq!(map.remove(&hash), Some(keys.value(at)));
                    keys.remove(at);
                }
                (Some(at), _) => {
                    let value = pcg.below(256) as u8;
                    keys.set(at, value);
                    map.insert(hash, value);
                }
                (None, _) => {
                    assert!(!map.contains_key(&hash));
                    keys.insert(hash, pcg.below(256) as u8);
                    map.insert(hash, keys.value(keys.find(hash).unwrap()));
                }
            }
            assert_eq!(keys.len(), map.len());
        }
        let all: BTreeMap<u64, u8> = keys.iter().collect();
        assert_eq!(all, map);
        assert!(keys.hashes.len() < 8 * keys.len() + 8 * BUCKETS, "{}", keys.hashes.len());
    }
}
