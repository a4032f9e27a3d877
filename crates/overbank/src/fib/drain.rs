//! The entries of a table, each removed as it is handed out.

use super::bucket::Bucket;
use super::key::{Key, Value};
use super::writer::Writer;

/// Removes all entries and iterates over them, in the order of the buckets; made by
/// [`Writer::drain`]. Those that were not asked for are removed when it is dropped.
pub struct Drain<'a, K: Key, V: Value> {
    writer: &'a mut Writer<K, V>,
    /// The buckets before it are empty.
    bucket: u32,
}

impl<'a, K: Key, V: Value> Drain<'a, K, V> {
    pub(super) fn new(writer: &'a mut Writer<K, V>) -> Self {
        Self { writer, bucket: 0 }
    }
}

impl<K: Key, V: Value> Iterator for Drain<'_, K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        while self.bucket < self.writer.table.buckets {
            let header = self.writer.table.header(self.bucket);
            if let Some(slot) = (0..Bucket::<K, V>::SLOTS).find(|&slot| header.has(slot)) {
                let key = self.writer.table.key(self.bucket, slot);
                return Some((key, self.writer.vacate(key, (self.bucket, slot))));
            }
            self.bucket += 1;
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.writer.len(), Some(self.writer.len()))
    }
}

impl<K: Key, V: Value> ExactSizeIterator for Drain<'_, K, V> {}

impl<K: Key, V: Value> Drop for Drain<'_, K, V> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
