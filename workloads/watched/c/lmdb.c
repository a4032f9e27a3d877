// LMDB with pages of 512 bytes: a B+ tree of about 20 children a node, as the paper's. The database
// lies in memory (memfd), and a lookup is an mdb_get in one read transaction.
#include "item.h"
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

INDEX(lmdb);

enum { PAGE = 512, BATCH = 20000 };

// Where the map lies: above the arena (workloads/src/arena.rs).
#define MAP ((void *)(UINT64_C(48) << 30))

// LMDB's mmap (build.rs): at a fixed address if that is free.
void *watched_map(void *address, size_t bytes, int access, int flags, int file, off_t from) {
    return mmap(address == NULL ? MAP : address, bytes, access, flags, file, from);
}

struct lmdb {
    MDB_env *env;
    MDB_txn *write; // NULL between transactions.
    MDB_txn *read;  // NULL while the index is built.
    MDB_dbi dbi;
    unsigned pending;
    int error; // Of `lmdb_new`, for `ready`.
};

// `size`: bytes that the map may grow to.
void *lmdb_new(uint64_t size) {
    struct lmdb *db = calloc(1, sizeof *db);
    char path[64];
    int file = memfd_create("lmdb", 0), error;
    if (db == NULL || file < 0) return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_WRITEMAP | MDB_NOSYNC | MDB_NOTLS;
    (void)((error = mdb_env_create(&db->env)) || (error = mdb_env_set_pagesize(db->env, PAGE)) ||
           (error = mdb_env_set_mapsize(db->env, size)) ||
           (error = mdb_env_open(db->env, path, flags, 0600)) ||
           (error = mdb_txn_begin(db->env, NULL, 0, &db->write)) ||
           (error = mdb_dbi_open(db->write, NULL, MDB_INTEGERKEY, &db->dbi)));
    db->error = error;
    return db;
}

static int commit(struct lmdb *db) {
    MDB_txn *write = db->write;
    db->write = NULL;
    db->pending = 0;
    return write == NULL ? 0 : mdb_txn_commit(write);
}

int lmdb_insert(void *index, uint64_t key, struct item *item) {
    struct lmdb *db = index;
    MDB_val k = {sizeof key, &key}, v = {sizeof item, &item};
    int error = db->error;
    if (error) return error;
    if (db->read != NULL) mdb_txn_reset(db->read);
    if (db->write == NULL && (error = mdb_txn_begin(db->env, NULL, 0, &db->write))) return error;
    if ((error = mdb_put(db->write, db->dbi, &k, &v, MDB_NOOVERWRITE))) return error;
    // One insert is one transaction, except while the index is built.
    if (db->read == NULL && ++db->pending < BATCH) return 0;
    if ((error = commit(db))) return error;
    return db->read == NULL ? 0 : mdb_txn_renew(db->read);
}

int lmdb_ready(void *index) {
    struct lmdb *db = index;
    if (db->error) return db->error;
    int error = commit(db);
    return error ? error : mdb_txn_begin(db->env, NULL, MDB_RDONLY, &db->read);
}

struct item *lmdb_find(void *index, uint64_t key) {
    struct lmdb *db = index;
    MDB_val k = {sizeof key, &key}, v;
    if (mdb_get(db->read, db->dbi, &k, &v)) return NULL;
    struct item *item;
    memcpy(&item, v.mv_data, sizeof item);
    return item;
}

uint64_t lmdb_depth(void *index) {
    struct lmdb *db = index;
    MDB_stat stat;
    return mdb_stat(db->read, db->dbi, &stat) ? 0 : stat.ms_depth;
}

void lmdb_nodes(void *index, visit *visit, void *visitor) {
    (void)index, (void)visit, (void)visitor;
}

const char *lmdb_text(int error) { return mdb_strerror(error); }
