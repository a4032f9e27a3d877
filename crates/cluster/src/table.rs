//! The partition table behind a trait: `overbank::partition`, and a map of keys for models.
//!
//! Each RIB partition has a separate table, so that its owner builds it alone, and builds a larger
//! one when it is full: a table has no free room to copy with it. A new owner builds the table from
//! the keys under a generation that is its epoch, and logs the image with its first batch: 9 KB for
//! 16 Ki keys. So no member ever has bits of two solutions.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use overbank::memory::Pages;
use overbank::partition::{Config, Delta, InsertError, Reader, Replica, Writer};
use thiserror::Error;

use crate::{Epoch, NodeId, Settings};

/// A delta or an image does not fit this copy: it needs an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the copy of the partition table does not follow its log: it needs an image")]
pub struct Broken;

/// A table cannot take a key, or cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the partition table has no room: {0}")]
pub struct NoRoom(String);

/// A copy of the table of a partition.
pub trait Gpt: Sized + Send {
    /// The owner's table, with its keys.
    type Writer: fmt::Debug + Send;
    /// A change.
    type Delta: fmt::Debug + Eq + Hash + Send + Sync;
    /// A whole table.
    type Image: fmt::Debug + Clone + Eq + Hash + Send + Sync;

    /// Makes a table without keys.
    fn empty() -> Self;

    /// Takes an image over.
    ///
    /// # Errors
    /// There is no memory for it.
    fn load(&mut self, image: &Self::Image) -> Result<(), Broken>;

    /// Applies the next deltas.
    ///
    /// # Errors
    /// One is not the next one of this table.
    fn apply(&mut self, deltas: &[Self::Delta]) -> Result<(), Broken>;

    /// Returns the node of a key; any node for an unknown one.
    fn lookup(&self, hash: u64) -> NodeId;

    /// Returns a digest of a block of the copy; `None` if there is no such block.
    fn digest(&self, block: u32) -> Option<u64>;

    /// Returns the digest of a block of the owner's table, and the number of the block after it, 0
    /// after the last one; `None` if there is no such block.
    fn written(writer: &Self::Writer, block: u32) -> Option<(u64, u32)>;

    /// Returns a delta that makes a block of each copy as it is; `None` if there is no such block.
    fn republish(writer: &mut Self::Writer, block: u32) -> Option<Self::Delta>;

    /// Returns the bytes of a delta.
    fn bytes(delta: &Self::Delta) -> usize;

    /// Builds the owner's table.
    ///
    /// # Errors
    /// There is no room.
    fn build(
        settings: &Settings,
        epoch: Epoch,
        keys: impl Iterator<Item = (u64, NodeId)>,
    ) -> Result<Self::Writer, NoRoom>;

    /// Copies the owner's table.
    ///
    /// # Errors
    /// There is no memory.
    fn image(writer: &Self::Writer) -> Result<Self::Image, NoRoom>;

    /// Directs a key.
    ///
    /// # Errors
    /// There is no room.
    fn insert(
        writer: &mut Self::Writer,
        hash: u64,
        to: NodeId,
    ) -> Result<Option<Self::Delta>, NoRoom>;

    /// Removes a key: copies go on to answer something.
    fn remove(writer: &mut Self::Writer, hash: u64);
}

/// The table of the product.
#[derive(Default)]
pub struct Dense {
    copy: Option<(Replica, Reader)>,
    shift: u32,
}

/// The owner's side of [`Dense`].
pub struct DenseWriter {
    writer: Writer,
    shift: u32,
}

/// A delta of [`Dense`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseDelta(pub Delta);

/// An image of [`Dense`].
#[derive(Clone)]
pub struct DenseImage {
    /// The table. [`Replica::save`] has its bytes.
    pub table: Arc<Replica>,
    shift: u32,
}

/// The hash that a partition's table sees. The partition's bits are equal for all of its keys, so
/// they go; middle bits take their place, since the lowest ones choose the bucket.
#[inline]
const fn inner(hash: u64, shift: u32) -> u64 {
    hash << shift | (hash >> 28) & ((1 << shift) - 1)
}

/// Bits of a block's number within its partition of the table.
const BLOCK_BITS: u32 = 22;

/// Partition of the table and number there of a block.
const fn place(block: u32) -> (usize, usize) {
    ((block >> BLOCK_BITS) as usize, (block & ((1 << BLOCK_BITS) - 1)) as usize)
}

/// Reads a copy of [`Dense`] on another thread: sees its deltas at once, but no later image.
#[derive(Clone)]
pub struct DenseReader {
    reader: Reader,
    shift: u32,
}

impl Dense {
    /// Returns a reader; `None`: there is no image yet.
    pub fn reader(&self) -> Option<DenseReader> {
        let (_, reader) = self.copy.as_ref()?;
        Some(DenseReader { reader: reader.clone(), shift: self.shift })
    }
}

impl DenseReader {
    /// Asks for the first line of a lookup.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.reader.prefetch(inner(hash, self.shift));
    }

    /// Returns the node of a key; any node for an unknown one.
    #[inline]
    pub fn lookup(&self, hash: u64) -> NodeId {
        NodeId(self.reader.lookup(inner(hash, self.shift)))
    }

    /// Returns the bytes that lookups read.
    pub fn bytes(&self) -> usize {
        self.reader.bytes()
    }
}

impl Gpt for Dense {
    type Writer = DenseWriter;
    type Delta = DenseDelta;
    type Image = DenseImage;

    fn empty() -> Self {
        Self::default()
    }

    fn load(&mut self, image: &DenseImage) -> Result<(), Broken> {
        let replica = image.table.copy().map_err(|_| Broken)?;
        let reader = replica.reader();
        self.copy = Some((replica, reader));
        self.shift = image.shift;
        Ok(())
    }

    fn apply(&mut self, deltas: &[DenseDelta]) -> Result<(), Broken> {
        if deltas.is_empty() {
            return Ok(());
        }
        let (replica, _) = self.copy.as_mut().ok_or(Broken)?;
        replica.apply_all(deltas).map_err(|_| Broken)
    }

    #[inline]
    fn lookup(&self, hash: u64) -> NodeId {
        let reader = self.copy.as_ref().map(|copy| &copy.1);
        NodeId(reader.map_or(0, |reader| reader.lookup(inner(hash, self.shift))))
    }

    fn digest(&self, block: u32) -> Option<u64> {
        let (_, reader) = self.copy.as_ref()?;
        reader.digest(place(block).0, place(block).1)
    }

    fn written(writer: &DenseWriter, block: u32) -> Option<(u64, u32)> {
        let reader = writer.writer.reader();
        let digest = |block| reader.digest(place(block).0, place(block).1);
        let next = [block + 1, ((block >> BLOCK_BITS) + 1) << BLOCK_BITS];
        let next = next.into_iter().find(|&block| digest(block).is_some());
        Some((digest(block)?, next.unwrap_or(0)))
    }

    fn republish(writer: &mut DenseWriter, block: u32) -> Option<DenseDelta> {
        let (partition, nth) = place(block);
        writer.writer.republish(partition, nth).map(DenseDelta)
    }

    fn bytes(delta: &DenseDelta) -> usize {
        delta.0.bytes()
    }

    fn build(
        settings: &Settings,
        epoch: Epoch,
        keys: impl Iterator<Item = (u64, NodeId)>,
    ) -> Result<DenseWriter, NoRoom> {
        let shift = settings.partitions.trailing_zeros();
        let keys: Vec<(u64, u8)> = keys.map(|(hash, to)| (inner(hash, shift), to.0)).collect();
        let keys_max = settings.partition_keys.max(16).saturating_mul(16);
        if keys.len() > keys_max {
            return Err(NoRoom(format!("{} keys; it has room for {keys_max}", keys.len())));
        }
        let planned = settings.partition_keys.max(keys.len() + keys.len() / 4).max(16);
        let config = Config::new(planned, settings.node_bits.into())
            .generation(epoch as u32)
            .pages(Pages::Small);
        let built = Writer::build(&config, keys);
        let (writer, _) = built.map_err(|error| NoRoom(error.to_string()))?;
        Ok(DenseWriter { writer, shift })
    }

    fn image(writer: &DenseWriter) -> Result<DenseImage, NoRoom> {
        let table = writer.writer.replica().map_err(|error| NoRoom(error.to_string()))?;
        Ok(DenseImage { table: Arc::new(table), shift: writer.shift })
    }

    fn insert(
        writer: &mut DenseWriter,
        hash: u64,
        to: NodeId,
    ) -> Result<Option<DenseDelta>, NoRoom> {
        let delta = writer.writer.insert(inner(hash, writer.shift), to.0);
        let delta = delta.map_err(|error: InsertError| NoRoom(error.to_string()))?;
        Ok(delta.map(DenseDelta))
    }

    fn remove(writer: &mut DenseWriter, hash: u64) {
        writer.writer.remove(inner(hash, writer.shift));
    }
}

impl Borrow<Delta> for DenseDelta {
    fn borrow(&self) -> &Delta {
        &self.0
    }
}

impl DenseImage {
    /// Returns the image of the table of one of `partitions` partitions, as it came from its bytes.
    pub fn new(table: Replica, partitions: u16) -> Self {
        Self { table: Arc::new(table), shift: partitions.trailing_zeros() }
    }
}

impl fmt::Debug for DenseWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DenseWriter({} keys)", self.writer.len())
    }
}

impl fmt::Debug for DenseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DenseImage{:?}", self.name())
    }
}

impl DenseImage {
    fn name(&self) -> (u64, u32, u64) {
        (self.table.id(), self.table.generation(), self.table.sequence())
    }
}

impl PartialEq for DenseImage {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for DenseImage {}

impl Hash for DenseImage {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Hash for DenseDelta {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0.table, self.0.generation, self.0.sequence).hash(state);
    }
}

/// A map of keys in the place of the table, for models: its states are small, can be copied and
/// compared. A key that is not in it leads to node 0, as it may in the table.
pub type Map = BTreeMap<u64, NodeId>;

impl Gpt for Map {
    type Writer = Map;
    type Delta = (u64, NodeId);
    type Image = Map;

    fn empty() -> Self {
        Map::new()
    }

    fn load(&mut self, image: &Map) -> Result<(), Broken> {
        self.clone_from(image);
        Ok(())
    }

    fn apply(&mut self, deltas: &[(u64, NodeId)]) -> Result<(), Broken> {
        self.extend(deltas.iter().copied());
        Ok(())
    }

    fn lookup(&self, hash: u64) -> NodeId {
        self.get(&hash).copied().unwrap_or_default()
    }

    // Copies keep keys that the owner has removed: they are not compared.
    fn digest(&self, _: u32) -> Option<u64> {
        None
    }

    fn written(_: &Map, _: u32) -> Option<(u64, u32)> {
        None
    }

    fn republish(_: &mut Map, _: u32) -> Option<(u64, NodeId)> {
        None
    }

    fn bytes(_: &(u64, NodeId)) -> usize {
        size_of::<(u64, NodeId)>()
    }

    fn build(
        _: &Settings,
        _: Epoch,
        keys: impl Iterator<Item = (u64, NodeId)>,
    ) -> Result<Map, NoRoom> {
        Ok(keys.collect())
    }

    fn image(writer: &Map) -> Result<Map, NoRoom> {
        Ok(writer.clone())
    }

    fn insert(writer: &mut Map, hash: u64, to: NodeId) -> Result<Option<(u64, NodeId)>, NoRoom> {
        Ok((writer.insert(hash, to) != Some(to)).then_some((hash, to)))
    }

    fn remove(writer: &mut Map, hash: u64) {
        writer.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use overbank::hash::mix;

    use super::*;

    #[test]
    fn the_table_follows_a_map_from_image_and_deltas() {
        let settings = Settings { partition_keys: 1000, partitions: 64, ..Settings::default() };
        let key = |nth: u64| mix(nth) >> 6 | 5 << 58;
        let keys = (0..3000).map(|nth| (key(nth), NodeId((nth % 16) as u8)));
        let mut map: Map = keys.collect();
        let mut writer = Dense::build(&settings, 3, map.clone().into_iter()).unwrap();
        let mut copy = Dense::empty();
        assert_eq!(copy.apply(&[]), Ok(()));
        copy.load(&Dense::image(&writer).unwrap()).unwrap();
        let mut deltas = Vec::new();
        for nth in 0..3750 {
            let to = NodeId((nth / 7 % 16) as u8);
            deltas.extend(Dense::insert(&mut writer, key(nth), to).unwrap());
            map.insert(key(nth), to);
        }
        assert!(Dense::insert(&mut writer, key(3750), NodeId(1)).is_err(), "a quarter more");
        copy.apply(&deltas).unwrap();
        assert!(map.iter().all(|(&hash, &to)| copy.lookup(hash) == to));
        assert_eq!(copy.apply(&deltas[..1]), Err(Broken), "the same delta twice");
        let other = Dense::build(&settings, 4, map.into_iter()).unwrap();
        copy.load(&Dense::image(&other).unwrap()).unwrap();
        assert_eq!(copy.apply(&deltas), Err(Broken), "of another generation");
        let many = (0..16_001).map(|nth| (key(nth), NodeId(0)));
        assert!(Dense::build(&settings, 5, many).is_err(), "more than sixteen times the plan");
    }
}
