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

use alloc::vec::Vec;

use super::block::Entry;
use super::shape::{BUCKETS, bucket_of};
use crate::memory::{MemoryError, reserve};
use crate::prefetch::prefetch_at;

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
    /// Buckets to come, by [`Keys::push_bucket`], with this many keys.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn with_capacity(keys: usize) -> Result<Self, MemoryError> {
        let (spans, hashes, values) = (Vec::with_capacity(BUCKETS), Vec::new(), Vec::new());
        let mut new = Self { spans, hashes, values, len: 0 };
        reserve(&mut new.hashes, keys)?;
        reserve(&mut new.values, keys)?;
        Ok(new)
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
    ///
    /// # Errors
    /// There is no memory; nothing changes.
    pub(super) fn insert(&mut self, hash: u64, value: u8) -> Result<(), MemoryError> {
        let bucket = bucket_of(hash);
        if self.spans[bucket].len == self.spans[bucket].room {
            if self.hashes.len() > 64 + 4 * self.len {
                self.rewrite()?;
            }
            self.make_room(bucket)?;
        }
        let span = &mut self.spans[bucket];
        let at = (span.start + span.len) as usize;
        (self.hashes[at], self.values[at]) = (hash, value);
        span.len += 1;
        self.len += 1;
        Ok(())
    }

    /// Moves a bucket without room to the end.
    fn make_room(&mut self, bucket: usize) -> Result<(), MemoryError> {
        let Span { start, len, room } = self.spans[bucket];
        if len < room {
            return Ok(());
        }
        let more = room + room / 2 + 4;
        reserve(&mut self.hashes, more as usize)?;
        reserve(&mut self.values, more as usize)?;
        let grown = Span { start: self.hashes.len() as u32, len, room: more };
        let end = self.hashes.len() + more as usize;
        let old = start as usize..(start + len) as usize;
        self.hashes.extend_from_within(old.clone());
        self.values.extend_from_within(old);
        self.hashes.resize(end, 0);
        self.values.resize(end, 0);
        self.spans[bucket] = grown;
        Ok(())
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

    /// Asks for the span of a bucket.
    #[inline]
    pub(super) fn prefetch_span(&self, bucket: usize) {
        prefetch_at::<false>(self.spans.as_ptr().wrapping_add(bucket).cast());
    }

    /// Asks for the keys of a bucket, and with `values` for those; reads its span.
    #[inline]
    pub(super) fn prefetch_keys(&self, bucket: usize, values: bool) {
        let Span { start, len, .. } = self.spans[bucket];
        let (first, last) = (start as usize, (start + len).saturating_sub(1) as usize);
        for at in [first, last] {
            prefetch_at::<false>(self.hashes.as_ptr().wrapping_add(at).cast());
            if values {
                prefetch_at::<false>(self.values.as_ptr().wrapping_add(at));
            }
        }
    }

    /// Hashes of a bucket's keys.
    pub(super) fn hashes(&self, bucket: usize) -> &[u64] {
        let Span { start, len, .. } = self.spans[bucket];
        &self.hashes[start as usize..(start + len) as usize]
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
    fn rewrite(&mut self) -> Result<(), MemoryError> {
        let mut new = Self::with_capacity(self.len + self.len / 2 + 2 * BUCKETS)?;
        new.spans.resize(BUCKETS, Span::default());
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
        Ok(())
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
        let (mut keys, mut map) = (Keys::with_capacity(0).unwrap(), BTreeMap::new());
        (0..BUCKETS).for_each(|_| keys.push_bucket(&[]));
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
                    keys.insert(hash, pcg.below(256) as u8).unwrap();
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
