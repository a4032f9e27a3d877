//! redb, in memory. LMDB is in C.

use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition,
    WriteTransaction,
};

use super::Index;
use crate::Failed;
use crate::item::Item;

const TABLE: TableDefinition<u64, u64> = TableDefinition::new("items");
/// Of redb's pages. Larger than the tables here, so that all stay in it.
const CACHE_BYTES: usize = 4 << 30;
/// Inserts a transaction while the index is built.
const BATCH: u64 = 100_000;

/// A table in one read transaction, which each insert after the building phase renews.
pub struct Redb {
    database: Database,
    read: Option<ReadOnlyTable<u64, u64>>,
    write: Option<WriteTransaction>,
    pending: u64,
}

impl Redb {
    /// Creates an empty database in memory.
    ///
    /// # Errors
    /// redb fails.
    pub fn new() -> Result<Self, Failed> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_with_backend(InMemoryBackend::new()).map_err(failed)?;
        Ok(Self { database, read: None, write: None, pending: 0 })
    }

    fn renew(&mut self) -> Result<(), Failed> {
        let transaction = self.database.begin_read().map_err(failed)?;
        self.read = Some(transaction.open_table(TABLE).map_err(failed)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failed> {
        self.pending = 0;
        self.write.take().map_or(Ok(()), WriteTransaction::commit).map_err(failed)
    }
}

impl Index for Redb {
    fn insert(&mut self, key: u64, item: Item) -> Result<(), Failed> {
        let building = self.read.is_none();
        if self.write.is_none() {
            let mut write = self.database.begin_write().map_err(failed)?;
            write.set_durability(Durability::None).map_err(failed)?;
            self.write = Some(write);
        }
        if let Some(write) = &self.write {
            let mut table = write.open_table(TABLE).map_err(failed)?;
            table.insert(key, item.address()).map_err(failed)?;
        }
        self.pending += 1;
        if building && self.pending < BATCH {
            return Ok(());
        }
        self.commit()?;
        if building { Ok(()) } else { self.renew() }
    }

    #[inline]
    fn find(&mut self, key: u64) -> Option<Item> {
        let found = self.read.as_ref()?.get(key).ok()??;
        Item::at(found.value())
    }

    fn ready(&mut self) -> Result<(), Failed> {
        self.commit()?;
        self.renew()
    }
}

fn failed(error: impl std::fmt::Display) -> Failed {
    Failed::new("redb", error)
}
