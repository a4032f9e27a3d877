//! Both databases behind one face, for tests that are the same for both.

use ::redb::{StorageBackend, TableDefinition};
use overbank_aside::lookaside::Config;
use overbank_aside::{Source, Watched, heed, redb};
use std::path::Path;

pub const NUMBERS: TableDefinition<'static, u64, u64> = TableDefinition::new("numbers");

/// A database with one table of numbers behind a look-aside table, and a second one.
pub trait Store: Sync {
    type Read<'a>
    where
        Self: 'a;
    type Write<'a>
    where
        Self: 'a;
    fn aside(&self, table: usize) -> &impl Watched;
    fn latest(&self, table: usize, key: u64) -> Option<u64>;
    fn latest_batch(&self, table: usize, keys: &[u64], values: &mut [Option<u64>]);
    fn read(&self) -> Self::Read<'_>;
    fn get(&self, read: &Self::Read<'_>, table: usize, key: u64) -> Option<u64>;
    fn batch(&self, read: &Self::Read<'_>, table: usize, keys: &[u64], values: &mut [Option<u64>]);
    fn write(&self) -> Self::Write<'_>;
    fn put(&self, write: &mut Self::Write<'_>, table: usize, key: u64, value: u64);
    /// Removes a key; returns whether it was there.
    fn delete(&self, write: &mut Self::Write<'_>, table: usize, key: u64) -> bool;
    /// Removes all keys from this one on.
    fn delete_from(&self, write: &mut Self::Write<'_>, table: usize, first: u64);
    fn commit(&self, write: Self::Write<'_>);
    fn abort(&self, write: Self::Write<'_>);
}

pub struct Redb {
    pub db: redb::Db,
    pub tables: [redb::Table<u64, u64>; 2],
}

impl Redb {
    pub fn on(backend: impl StorageBackend, config: &Config) -> Self {
        let database = ::redb::Builder::new().create_with_backend(backend).expect("a database");
        let mut db = redb::Db::new(database);
        let tables = ["numbers", "others"]
            .map(|name| db.table(TableDefinition::new(name), config).expect("a table"));
        Redb { db, tables }
    }

    pub fn in_memory(config: &Config) -> Self {
        Redb::on(::redb::backends::InMemoryBackend::new(), config)
    }
}

impl Store for Redb {
    type Read<'a> = redb::Read<'a>;
    type Write<'a> = redb::Write<'a>;

    fn aside(&self, table: usize) -> &impl Watched {
        self.tables[table].aside()
    }
    fn latest(&self, table: usize, key: u64) -> Option<u64> {
        self.db.get_latest(&self.tables[table], key).expect("read")
    }
    fn latest_batch(&self, table: usize, keys: &[u64], values: &mut [Option<u64>]) {
        let latest = self.db.latest(&self.tables[table]).expect("its own");
        latest.look_batch(keys, values).expect("read");
    }
    fn read(&self) -> redb::Read<'_> {
        self.db.begin_read().expect("begun")
    }
    fn get(&self, read: &redb::Read<'_>, table: usize, key: u64) -> Option<u64> {
        read.open(&self.tables[table]).expect("open").get(key).expect("read")
    }
    fn batch(&self, read: &redb::Read<'_>, table: usize, keys: &[u64], values: &mut [Option<u64>]) {
        read.open(&self.tables[table]).expect("open").get_batch(keys, values).expect("read");
    }
    fn write(&self) -> redb::Write<'_> {
        let mut write = self.db.begin_write().expect("begun");
        write.set_durability(::redb::Durability::None).expect("set");
        write
    }
    fn put(&self, write: &mut redb::Write<'_>, table: usize, key: u64, value: u64) {
        write.open(&self.tables[table]).expect("open").insert(key, value).expect("written");
    }
    fn delete(&self, write: &mut redb::Write<'_>, table: usize, key: u64) -> bool {
        write.open(&self.tables[table]).expect("open").remove(key).expect("written").is_some()
    }
    fn delete_from(&self, write: &mut redb::Write<'_>, table: usize, first: u64) {
        let mut table = write.open(&self.tables[table]).expect("open");
        table.retain(|key, _| key < first).expect("written");
    }
    fn commit(&self, write: redb::Write<'_>) {
        write.commit().expect("committed");
    }
    fn abort(&self, write: redb::Write<'_>) {
        write.abort().expect("aborted");
    }
}

pub struct Lmdb {
    pub db: heed::Db,
    pub tables: [heed::Table<u64, u64>; 2],
}

impl Lmdb {
    /// `u64` in this machine's order sorts by its first byte here: fine for keys below 256.
    pub fn open(path: &Path, config: &Config) -> Self {
        Lmdb::of(1 << 30, path, config)
    }

    /// Opens one whose file takes this many bytes at most.
    #[allow(unsafe_code)] // Opening an environment.
    pub fn of(bytes: usize, path: &Path, config: &Config) -> Self {
        let mut options = ::heed::EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(bytes).max_dbs(4).max_readers(64);
        // SAFETY: only LMDB changes the file. Without syncing it may lose commits with the machine.
        let env = unsafe {
            options.flags(::heed::EnvFlags::NO_SYNC);
            options.open(path)
        };
        let mut db = heed::Db::new(env.expect("opened"));
        let tables = ["numbers", "others"].map(|name| db.create(name, config).expect("a table"));
        Lmdb { db, tables }
    }
}

impl Store for Lmdb {
    type Read<'a> = heed::Read<'a>;
    type Write<'a> = heed::Write<'a>;

    fn aside(&self, table: usize) -> &impl Watched {
        self.tables[table].aside()
    }
    fn latest(&self, table: usize, key: u64) -> Option<u64> {
        self.db.get_latest(&self.tables[table], key).expect("read")
    }
    fn latest_batch(&self, table: usize, keys: &[u64], values: &mut [Option<u64>]) {
        let latest = self.db.latest(&self.tables[table]).expect("its own");
        latest.look_batch(keys, values).expect("read");
    }
    fn read(&self) -> heed::Read<'_> {
        self.db.begin_read().expect("begun")
    }
    fn get(&self, read: &heed::Read<'_>, table: usize, key: u64) -> Option<u64> {
        read.open(&self.tables[table]).expect("open").get(key).expect("read")
    }
    fn batch(&self, read: &heed::Read<'_>, table: usize, keys: &[u64], values: &mut [Option<u64>]) {
        read.open(&self.tables[table]).expect("open").get_batch(keys, values).expect("read");
    }
    fn write(&self) -> heed::Write<'_> {
        self.db.begin_write().expect("begun")
    }
    fn put(&self, write: &mut heed::Write<'_>, table: usize, key: u64, value: u64) {
        write.put(&self.tables[table], key, value).expect("written");
    }
    fn delete(&self, write: &mut heed::Write<'_>, table: usize, key: u64) -> bool {
        write.delete(&self.tables[table], key).expect("written")
    }
    fn delete_from(&self, write: &mut heed::Write<'_>, table: usize, first: u64) {
        let table = &self.tables[table];
        if first == 0 {
            write.clear(table).expect("written");
        } else {
            write.delete_range(table, first..).expect("written");
        }
        let left = write.range::<u64, u64>(table, ..).expect("read");
        let left: Vec<u64> = left.map(|pair| pair.expect("read").0).collect();
        assert!(left.is_sorted() && left.iter().all(|&key| key < first), "{left:?}");
    }
    fn commit(&self, write: heed::Write<'_>) {
        write.commit().expect("committed");
    }
    fn abort(&self, write: heed::Write<'_>) {
        write.abort();
    }
}
