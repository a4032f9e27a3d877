/* overbank.h: lookup and cache tables for software data planes.
 *
 * Generated from crates/capi/src. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * - Every function that can fail returns a status; overbank_last_error() has the words.
 * - A function that fails changes nothing that its comment does not name.
 * - Unless its comment says more, a handle is used by one thread at a time.
 * - Options are zeroed and then set: zero is the default of each field, NULL that of all.
 */

#ifndef OVERBANK_H
#define OVERBANK_H



#include <stddef.h>
#include <stdint.h>

/**
 * Spreads a hash that is good in fewer than 64 bits over all of them: a NIC's RSS hash, a CRC.
 * (Hash64::mix of the crate.)
 */
static inline uint64_t overbank_mix(uint64_t hash) {
  hash += 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}


/**
 * Most hashes of one probe.
 */
#define OVERBANK_BURST 32

/**
 * Most keys of one count.
 */
#define OVERBANK_SKETCH_BURST 64

/**
 * What a lookup found: nothing. Ask the index, then fill with the ticket.
 */
#define OVERBANK_ASIDE_MISS 0

/**
 * What a lookup found: the value.
 */
#define OVERBANK_ASIDE_HIT 1

/**
 * What a lookup found: that the index has no entry for the key.
 */
#define OVERBANK_ASIDE_ABSENT 2

/**
 * Flag of overbank_tree_range: without the entry of `start` itself, to go on behind it.
 */
#define OVERBANK_TREE_AFTER 1

/**
 * Flag of overbank_tree_range: from the greatest key down.
 */
#define OVERBANK_TREE_DOWN 2

/**
 * What a function says of its outcome.
 */
enum overbank_status {
  /**
   * Done.
   */
  OVERBANK_OK = 0,
  /**
   * An argument is NULL, not aligned, out of range, or a name that is none.
   */
  OVERBANK_INVALID = 1,
  /**
   * The system gives no memory.
   */
  OVERBANK_MEMORY = 2,
  /**
   * The table has no place for the key.
   */
  OVERBANK_FULL = 3,
  /**
   * The table does not have the key, or nothing to hand out yet. Not a fault.
   */
  OVERBANK_ABSENT = 4,
  /**
   * A file cannot be read or written.
   */
  OVERBANK_IO = 5,
  /**
   * An image or a delta is damaged, of another format, or of another table.
   */
  OVERBANK_DAMAGED = 6,
  /**
   * The library has a fault. The handle that was changed is poisoned; please report it.
   */
  OVERBANK_PANIC = 7,
  /**
   * An earlier call on this handle ended with OVERBANK_PANIC. It can only be destroyed.
   */
  OVERBANK_POISONED = 8,
  /**
   * A look-aside table did not take an answer in. Not a fault.
   */
  OVERBANK_DECLINED = 9,
};

/**
 * Measures lookups of a thread, so that the gate of a table knows what they cost: one for each
 * thread and table. Before lookups ask overbank_copies_way or overbank_versioned_way which way
 * they go, and after those through the table say overbank_aside_meter_hits.
 *
 * It reads the clock once in 512 lookups, and lets one lookup in 64 go around the table, in turns
 * of 262,144; while the gate is closed, 15 in 16 go around.
 */
struct overbank_aside_meter;

/**
 * A flow cache: a bounded table from 64-bit hashes to values of 16 or 32 bits, which evicts what
 * it cannot hold. It keeps 16 bits of each hash and no key, so a match is a hint.
 *
 * One thread at a time uses it; nothing in it locks.
 */
struct overbank_cache;

/**
 * A look-aside table in front of an index that is read in its newest state: a map behind a lock, a
 * concurrent map. It keeps copies of keys and values and answers most lookups in their place.
 *
 * Reads through it are as right as those of the index, provided that each write of the index
 * happens between `_begin` and `_keep` or `_finish` of an overbank_copies_writer. Whether an
 * answer is kept never changes what it is.
 *
 * Any number of threads use it at the same time. Lookups and fills wait for nothing.
 */
struct overbank_copies;

/**
 * Announces writes of the index, one after another: `_begin`, the write, then `_keep` or
 * `_finish`.
 *
 * One thread at a time uses it; each thread that writes needs one. It keeps the table alive after
 * overbank_copies_destroy.
 */
struct overbank_copies_writer;

/**
 * The side of a sketch that counts. Belongs to one thread.
 */
struct overbank_counter;

/**
 * The writing side of a forwarding table: an exact map of up to billions of entries, from keys of
 * 4, 6, 8, 13 or 16 bytes to values of 2, 4 or 8.
 *
 * One thread at a time uses it, while others look up through their readers.
 */
struct overbank_fib;

/**
 * A thread's side of a forwarding table: looks up while the writer writes, and never waits.
 *
 * One thread at a time uses it. It keeps the table alive after overbank_fib_destroy.
 */
struct overbank_fib_reader;

/**
 * The side of a sketch that starts epochs and reads counts. Belongs to one thread.
 */
struct overbank_keeper;

/**
 * The owner of a partition table: knows the keys' hashes, changes the table and says each change
 * in bytes for the copies. One thread at a time uses it, while others look up.
 */
struct overbank_partition;

/**
 * A thread's side of a partition table or of a copy. It keeps the table alive. Threads may share
 * one.
 */
struct overbank_partition_reader;

/**
 * A copy of a partition table, without keys: 1.2 to 4.4 bits each. One thread at a time changes
 * it, while others look up.
 */
struct overbank_replica;

/**
 * An ordered map of bounded size from keys of 1 to 4 words to values of 1 to 8, with or without
 * hints: a B+ tree whose memory is allocated when it is made.
 *
 * Keys are in the order of their first words, then of their second ones, and so on, each a number
 * without a sign.
 *
 * One thread at a time uses it; several may use overbank_tree_peek, _range, _counters and _info
 * while none uses another function.
 */
struct overbank_tree;

/**
 * A look-aside table in front of a database whose commits have increasing numbers, one writer at a
 * time, and whose readers each see a snapshot. It keeps copies of keys and values and answers most
 * lookups in their place. The numbers should follow one another: each gap takes everything out.
 *
 * Reads through a view see what its snapshot has, provided that each transaction that writes says
 * its changes by an overbank_versioned_commit. Whether an answer is kept never changes what it is.
 *
 * Any number of threads use it at the same time. Lookups and fills wait for nothing.
 */
struct overbank_versioned;

/**
 * Says what a transaction changes, one after another: `_begin`, the changes, then the database
 * commits, then `_publish`; or `_abort`.
 *
 * One thread at a time uses it. It keeps the table alive after overbank_versioned_destroy.
 */
struct overbank_versioned_commit;

/**
 * A table as of one snapshot, and then of the next: a reader's side.
 *
 * Any number of threads look up and fill through it, while no call moves it. Each snapshot that is
 * open at a time needs one. It keeps the table alive after overbank_versioned_destroy.
 */
struct overbank_versioned_view;

/**
 * Bytes that the library allocated: to be freed by overbank_bytes_free.
 */
struct overbank_bytes {
  /**
   * The first byte; NULL if there are none.
   */
  uint8_t *data;
  /**
   * How many.
   */
  size_t len;
};

/**
 * A hash of 128 bits, for sketches.
 */
struct overbank_hash128 {
  /**
   * Bits 0 to 63.
   */
  uint64_t low;
  /**
   * Bits 64 to 127.
   */
  uint64_t high;
};

/**
 * How a cache is made. All zeroes are the defaults.
 */
struct overbank_cache_options {
  /**
   * Seed of random evictions and promotions.
   */
  uint64_t seed;
  /**
   * Bits of a value: 16 (0 is 16 too) or 32.
   */
  uint32_t value_bits;
  /**
   * Zero.
   */
  uint32_t unused;
  /**
   * "portable", "avx2", "avx512" or "neon"; NULL: the best that the CPU has.
   */
  const char *isa;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * What a cache has counted since it was made or last reset.
 */
struct overbank_cache_counters {
  /**
   * Keys reported by overbank_burst_commit.
   */
  uint64_t lookups;
  /**
   * Those that had a slot.
   */
  uint64_t hits;
  /**
   * Matches that were wrong.
   */
  uint64_t false_positives;
  /**
   * Insertions.
   */
  uint64_t inserts;
  /**
   * Those that went over an entry of the same fingerprint.
   */
  uint64_t replacements;
  /**
   * Those that evicted another entry.
   */
  uint64_t evictions;
  /**
   * Entries removed, by overbank_cache_erase and overbank_cache_clear.
   */
  uint64_t removals;
};

/**
 * What a cache is and holds.
 */
struct overbank_cache_info {
  /**
   * Entries.
   */
  size_t len;
  /**
   * Slots.
   */
  size_t capacity;
  /**
   * Buckets, without buffer buckets.
   */
  size_t buckets;
  /**
   * Candidate slots of a key.
   */
  size_t candidates;
  /**
   * Bytes of the table.
   */
  size_t bytes;
};

/**
 * A burst in work: what a probe found and what the caller verified. Made by overbank_burst_create;
 * the pointers stay the same until overbank_burst_destroy.
 *
 * One thread at a time uses it, with any caches.
 */
struct overbank_burst {
  /**
   * For each key the value of its first match; without a match it means nothing.
   */
  const uint32_t *values;
  /**
   * For each key its matches: bit `s` for candidate slot `s`. The lowest is the first; after
   * overbank_burst_next it is the only one.
   */
  const uint32_t *masks;
  /**
   * Keys with a match: bit `i` for key `i`.
   */
  uint32_t matched;
  /**
   * Keys whose first match is right. The probe sets it to 0, the caller sets bits.
   */
  uint32_t hits;
};

/**
 * How a forwarding table is made. All zeroes are the defaults.
 */
struct overbank_fib_options {
  /**
   * Seed of the hash function, which strangers should not know.
   */
  uint64_t seed;
  /**
   * Pages of the table's memory: 0: 2 MiB where the system gives them; 1: the smallest;
   * 2: 1 GiB where the system has them.
   */
  uint32_t pages;
  /**
   * Zero.
   */
  uint32_t unused;
  /**
   * "portable", "avx2", "avx512" or "neon"; NULL: the best that the CPU has.
   */
  const char *isa;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * What a forwarding table is and holds.
 */
struct overbank_fib_info {
  /**
   * Entries.
   */
  size_t len;
  /**
   * Slots. A table takes entries up to 95 % of them and often more.
   */
  size_t slots;
  /**
   * Bytes of the table.
   */
  size_t bytes;
  /**
   * Bytes of a key.
   */
  size_t key_bytes;
  /**
   * Bytes of a value.
   */
  size_t value_bytes;
};

/**
 * How a partition table is made. All zeroes are the defaults.
 */
struct overbank_partition_options {
  /**
   * Keys that the table may grow to; 0: those that it is planned for.
   */
  size_t keys_max;
  /**
   * Parts of the table that grow each by itself, a power of two; 0 is 1.
   */
  size_t partitions;
  /**
   * Tells apart the tables of one name that were built anew.
   */
  uint32_t generation;
  /**
   * Pages of memory, as in overbank_fib_options.
   */
  uint32_t pages;
  /**
   * The seed that keys are hashed with. Images keep it; the table does not use it.
   */
  uint64_t seed;
  /**
   * As in overbank_fib_options.
   */
  const char *isa;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * What a copy of a partition table is.
 */
struct overbank_partition_info {
  /**
   * Name of the table, the same in all its copies.
   */
  uint64_t id;
  /**
   * Number of the last change.
   */
  uint64_t sequence;
  /**
   * The seed that keys are hashed with.
   */
  uint64_t seed;
  /**
   * Keys.
   */
  size_t keys;
  /**
   * Bytes of the table.
   */
  size_t bytes;
  /**
   * Bits of a value.
   */
  size_t value_bits;
  /**
   * Its generation.
   */
  uint32_t generation;
  /**
   * Zero.
   */
  uint32_t unused;
};

/**
 * The size of a sketch, and how its first epoch counts. All zeroes are the sizes of NetCache,
 * every key counted, and hot with its first count.
 */
struct overbank_sketch_options {
  /**
   * Logarithm of the counters in a row: 2 to 16; 0 is 16.
   */
  uint32_t counters_log2;
  /**
   * Logarithm of the bits in a row of the Bloom filter: 6 to 18; 0 is 18.
   */
  uint32_t bloom_log2;
  /**
   * Samples from which a key is hot, 65535 at most; 0 is 1.
   */
  uint32_t threshold;
  /**
   * Logarithm of the keys for each sample, 32 at most.
   */
  uint32_t sample_log2;
  /**
   * Decides which keys are sampled.
   */
  uint64_t seed;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * What a sketch has counted in an epoch.
 */
struct overbank_counts {
  /**
   * Samples.
   */
  uint64_t samples;
  /**
   * The largest counter.
   */
  uint32_t largest;
  /**
   * Number of the epoch whose counts grow.
   */
  uint32_t epoch;
};

/**
 * What lookups cost, in nanoseconds.
 */
struct overbank_aside_costs {
  /**
   * A lookup that the table answers.
   */
  float hit;
  /**
   * What a lookup that it does not answer, and the fill, add to the search of the index.
   */
  float miss;
  /**
   * A search of the index alone.
   */
  float index;
};

/**
 * How a look-aside table is made. All zeroes are the defaults.
 */
struct overbank_aside_options {
  /**
   * Seed of the hash function. Use a random one if strangers choose the keys.
   */
  uint64_t seed;
  /**
   * Pages of the table's memory, as in overbank_fib_options.
   */
  uint32_t pages;
  /**
   * 0: the table always works. 1: it steps aside where it does not pay, by `costs`; with those
   * all zero, which is "unknown", it works until `_set_costs` or a meter gives some.
   */
  uint32_t gate;
  /**
   * What lookups cost, for the gate.
   */
  struct overbank_aside_costs costs;
  /**
   * Zero.
   */
  uint32_t unused;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * The right to put in what the index answers to a lookup that missed: it has the key, the table
 * and the moment. A plain value: copy it, drop it, hand it to another thread, use it again.
 *
 * All bits are the library's. Zeroes fill nothing, as does a ticket of another table. Changed bits
 * never lead outside the table's memory, but may put in a wrong entry: the answer for another key,
 * or one from before a write.
 */
struct overbank_aside_ticket {
  /**
   * The library's.
   */
  uint64_t table;
  /**
   * The library's.
   */
  uint64_t words[7];
};

/**
 * Whether a look-aside table works or steps aside, and why: a gate closes if what hits save is
 * less than what misses cost.
 */
struct overbank_aside_gate {
  /**
   * Decisions so far.
   */
  uint64_t decisions;
  /**
   * Answered share of the lookups before the last decision, 0 to 1; 0 before the first.
   */
  double hit_rate;
  /**
   * What lookups cost; zeroes if that is not known.
   */
  struct overbank_aside_costs costs;
  /**
   * 1 if the table works. Otherwise one bucket in 32 does, to see when the others should.
   */
  uint8_t open;
  /**
   * 1 if it may step aside, by its options.
   */
  uint8_t swings;
  /**
   * Zero.
   */
  uint8_t unused[2];
};

/**
 * What a look-aside table has counted in one of its buckets in 32: a sample, whose hit rate may be
 * ten points beside the table's.
 */
struct overbank_aside_counters {
  /**
   * Lookups that the table answered, absent keys included.
   */
  uint64_t hits;
  /**
   * Lookups that it did not answer.
   */
  uint64_t misses;
  /**
   * Answers that were put in.
   */
  uint64_t fills;
  /**
   * Answers that were not, since a writer may have changed them since the lookup.
   */
  uint64_t declined;
  /**
   * Answers that were not, since the bucket's entries are asked for more often.
   */
  uint64_t outdone;
  /**
   * Lookups that missed because a writer changed the bucket meanwhile.
   */
  uint64_t raced;
  /**
   * Lookups and fills that met a writer in the bucket.
   */
  uint64_t busy;
};

/**
 * What a look-aside table is.
 */
struct overbank_aside_info {
  /**
   * Entries that fit.
   */
  size_t slots;
  /**
   * Bytes of the table.
   */
  size_t bytes;
  /**
   * Words of a key.
   */
  size_t key_words;
  /**
   * Words of a value.
   */
  size_t value_words;
};

/**
 * How a tree is made. All zeroes are the defaults.
 */
struct overbank_tree_options {
  /**
   * Hints to have at least, 6 bytes each; 0: none. 3 for 10 entries are a start where some keys
   * are asked for more often than others.
   */
  size_t hints;
  /**
   * Seed of the hints' hash function. Use a random one if strangers choose the keys.
   */
  uint64_t seed;
  /**
   * Zero.
   */
  uint64_t reserved[4];
};

/**
 * What a tree is and holds.
 */
struct overbank_tree_info {
  /**
   * Entries.
   */
  size_t len;
  /**
   * Entries that fit, always.
   */
  size_t capacity;
  /**
   * Bytes of the tree.
   */
  size_t bytes;
  /**
   * Hints that fit.
   */
  size_t hints;
  /**
   * Bytes of the hints.
   */
  size_t hint_bytes;
  /**
   * Words of a key.
   */
  size_t key_words;
  /**
   * Words of a value.
   */
  size_t value_words;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a status in words. Never NULL; the text lives as long as the program.
 *
 * Any thread. `status` may be any number.
 */
const char *overbank_strerror(int32_t status);

/**
 * Returns what the last failed call of this thread had to say: one line, which names the argument,
 * the file or the limit. Empty before the first failure; never NULL.
 *
 * Any thread. The text is the library's and lives until the next failed call of the thread.
 */
const char *overbank_last_error(void);

/**
 * Returns the version of the library, "MAJOR.MINOR.PATCH". Any thread; the text lives as long as
 * the program.
 */
const char *overbank_version(void);

/**
 * Frees bytes of the library and empties `bytes`. NULL, and empty bytes, are right.
 *
 * Any thread, once for each time that they were handed out.
 *
 * Requires:
 * `bytes` is NULL, or holds what a function of the library wrote there.
 */
void overbank_bytes_free(struct overbank_bytes *bytes);

/**
 * Hashes a key of `len` bytes, good in all 64 bits. The same seed and bytes give the same hash on
 * every machine. A sender that does not know the seed cannot choose keys that meet. 0 for a NULL
 * that should have bytes.
 *
 * Any thread.
 *
 * Requires:
 * `key` is valid for reads of `len` bytes.
 */
uint64_t overbank_hash(const uint8_t *key, size_t len, uint64_t seed);

/**
 * Hashes a key of `len` bytes to 128 bits (XXH3). Zeroes for a NULL that should have bytes.
 *
 * Any thread.
 *
 * Requires:
 * `key` is valid for reads of `len` bytes.
 */
struct overbank_hash128 overbank_hash_128(const uint8_t *key, size_t len, uint64_t seed);

/**
 * Makes a cache of at least `entries` slots and sets `*out`.
 *
 * `design` is a name as "blp-2-16+pblru", "blp-2-4" or "cuckoo-2-16+half-bubble": geometry and
 * policy, or the geometry alone for random eviction; "blp-2-4+pblru/8" promotes one hit in
 * 8. `options` may be NULL. Fails with
 * OVERBANK_INVALID for a name, a size or an option that cannot be, and with OVERBANK_MEMORY.
 *
 * Any thread. The caller owns the cache: overbank_cache_destroy.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_cache_create(const char *design,
                                           size_t entries,
                                           const struct overbank_cache_options *options,
                                           struct overbank_cache **out);

/**
 * Frees a cache. NULL is none.
 *
 * Requires:
 * The cache is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_cache_destroy(struct overbank_cache *cache);

/**
 * Inserts an entry: over one of the same fingerprint, else into an empty slot, else over the one
 * that the policy evicts. Fails with OVERBANK_INVALID if the value has more bits than the cache.
 *
 * Requires:
 * The cache is NULL or live, and in no other call.
 */
enum overbank_status overbank_cache_insert(struct overbank_cache *cache,
                                           uint64_t hash,
                                           uint32_t value);

/**
 * Removes the entry of this hash that has this value. OVERBANK_ABSENT if there is none.
 *
 * Requires:
 * The cache is NULL or live, and in no other call.
 */
enum overbank_status overbank_cache_erase(struct overbank_cache *cache,
                                          uint64_t hash,
                                          uint32_t value);

/**
 * Removes all entries. Takes time for the whole table.
 *
 * Requires:
 * The cache is NULL or live, and in no other call.
 */
enum overbank_status overbank_cache_clear(struct overbank_cache *cache);

/**
 * Writes what the cache has counted.
 *
 * Requires:
 * The cache is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_cache_counters(const struct overbank_cache *cache,
                                             struct overbank_cache_counters *out);

/**
 * Sets what the cache has counted to zero; entries stay.
 *
 * Requires:
 * The cache is NULL or live, and in no other call.
 */
enum overbank_status overbank_cache_counters_reset(struct overbank_cache *cache);

/**
 * Writes what the cache is and holds.
 *
 * Requires:
 * The cache is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_cache_info(const struct overbank_cache *cache,
                                         struct overbank_cache_info *out);

/**
 * Makes a burst and sets `*out`. Any thread. The caller owns it: overbank_burst_destroy.
 *
 * Requires:
 * `out` is NULL or valid.
 */
enum overbank_status overbank_burst_create(struct overbank_burst **out);

/**
 * Frees a burst. NULL is none.
 *
 * Requires:
 * The burst is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_burst_destroy(struct overbank_burst *burst);

/**
 * Looks for up to OVERBANK_BURST hashes and writes into the burst what it found.
 *
 * Asks for all cache lines before it reads the first. Changes and counts nothing. Hashes need 64
 * good bits (overbank_hash, overbank_mix).
 *
 * With `next` not NULL, asks meanwhile for the lines of those hashes, which the next call is
 * expected to have as `hashes`, and not for those of this call: a burst then waits for no memory.
 * Begin with `count` 0.
 *
 * Threads may probe at the same time, each with its burst, while none changes the cache.
 *
 * Requires:
 * Cache and burst are NULL or live; `hashes` has `count` elements, `next` is NULL or has
 * `next_count`.
 */
enum overbank_status overbank_burst_probe(struct overbank_burst *burst,
                                          const struct overbank_cache *cache,
                                          const uint64_t *hashes,
                                          size_t count,
                                          const uint64_t *next,
                                          size_t next_count);

/**
 * Says that the first match of key `i` was wrong, and makes the next one the first: its value is
 * then in `values[i]`. OVERBANK_ABSENT if the key has no other match; its bit in `matched` is then
 * 0, as it is in `hits`.
 *
 * `hash` is the key's of the probe. Rarely needed: of the lookups, about candidates / 65536 meet a
 * wrong match, one in 2048 with 32 candidates.
 *
 * Threads: as overbank_burst_probe.
 *
 * Requires:
 * Cache and burst are NULL or live.
 */
enum overbank_status overbank_burst_next(struct overbank_burst *burst,
                                         const struct overbank_cache *cache,
                                         uint64_t hash,
                                         size_t i);

/**
 * Reports a burst whose matches were verified, once: counts lookups, hits and wrong matches, and
 * lets the policy promote the hits.
 *
 * The hashes are those of the probe. A hit of a key without a match counts as none. Between probe
 * and commit the cache may change; a promotion looks first.
 *
 * Requires:
 * As overbank_burst_probe; no other call uses the cache.
 */
enum overbank_status overbank_burst_commit(const struct overbank_burst *burst,
                                           struct overbank_cache *cache,
                                           const uint64_t *hashes,
                                           size_t count);

/**
 * Makes a table for `entries` entries, and sets `*out`.
 *
 * Keys have `key_bytes` bytes: 4, 6, 8, 13 or 16, of no alignment; two are the same if their bytes
 * are. Values have `value_bytes` bytes: 2, 4 or 8. `options` may be NULL.
 *
 * Any thread. The caller owns the table: overbank_fib_destroy.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_fib_create(size_t key_bytes,
                                         size_t value_bytes,
                                         size_t entries,
                                         const struct overbank_fib_options *options,
                                         struct overbank_fib **out);

/**
 * Frees the writing side; the table goes with its last reader. NULL is none.
 *
 * Requires:
 * The table is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_fib_destroy(struct overbank_fib *fib);

/**
 * Makes a reader and sets `*out`. Each thread needs one.
 *
 * The caller owns it: overbank_fib_reader_destroy.
 *
 * Requires:
 * The table is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_fib_reader_create(const struct overbank_fib *fib,
                                                struct overbank_fib_reader **out);

/**
 * Frees a reader. NULL is none.
 *
 * Requires:
 * The reader is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_fib_reader_destroy(struct overbank_fib_reader *reader);

/**
 * Inserts an entry or replaces its value. OVERBANK_FULL if the table has no place for it: it is as
 * before.
 *
 * Readers see the entry at once or not yet, never half.
 *
 * Requires:
 * The table is NULL or live, and in no other call of its writer; `key` has `key_bytes` bytes.
 */
enum overbank_status overbank_fib_insert(struct overbank_fib *fib, const void *key, uint64_t value);

/**
 * Removes an entry. OVERBANK_ABSENT if the key has none. `value` gets what it was; NULL if that is
 * of no interest.
 *
 * Requires:
 * As overbank_fib_insert; `value` is NULL or valid.
 */
enum overbank_status overbank_fib_remove(struct overbank_fib *fib,
                                         const void *key,
                                         uint64_t *value);

/**
 * Reads the value of one key, on the writer's side. OVERBANK_ABSENT if it has none.
 *
 * Requires:
 * As overbank_fib_remove.
 */
enum overbank_status overbank_fib_get(const struct overbank_fib *fib,
                                      const void *key,
                                      uint64_t *value);

/**
 * Looks up any number of keys: sets bit `i % 64` of `hits[i / 64]` if key `i` has an entry, and
 * then `values[i]`, else both to zero. Up to 64 keys are one burst; of more, bursts overlap.
 *
 * `keys` are `count` keys of `key_bytes` bytes, one after another. `values` are `count` integers
 * of `value_bytes` bytes, `hits` are `(count + 63) / 64` words. Each key is looked up by itself: a
 * list is no snapshot. Takes no lock and waits for nothing.
 *
 * Requires:
 * The reader is NULL or live, and in no other call; the arrays are so long.
 */
enum overbank_status overbank_fib_lookup(const struct overbank_fib_reader *reader,
                                         const void *keys,
                                         size_t count,
                                         void *values,
                                         uint64_t *hits);

/**
 * Removes all entries. Readers see them go one by one.
 *
 * Requires:
 * The table is NULL or live, and in no other call of its writer.
 */
enum overbank_status overbank_fib_clear(struct overbank_fib *fib);

/**
 * Writes what the table is and holds.
 *
 * Requires:
 * The table is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_fib_info(const struct overbank_fib *fib,
                                       struct overbank_fib_info *out);

/**
 * Writes all entries to a file, which is replaced once the new one is on disk. Readers go on.
 *
 * Requires:
 * The table is NULL or live, and no other call changes it; `path` is NULL or a text.
 */
enum overbank_status overbank_fib_save(const struct overbank_fib *fib, const char *path);

/**
 * Makes a table from a file of overbank_fib_save, and sets `*out`. Size and seed are the file's;
 * sizes of keys and values must be. Any changed byte is OVERBANK_DAMAGED.
 *
 * Requires:
 * As overbank_fib_create; `path` is NULL or a text.
 */
enum overbank_status overbank_fib_load(const char *path,
                                       size_t key_bytes,
                                       size_t value_bytes,
                                       const struct overbank_fib_options *options,
                                       struct overbank_fib **out);

/**
 * Hashes a key of `len` bytes as the tables of a cluster do. Any thread. 0 for a NULL that should
 * have bytes.
 *
 * Requires:
 * `key` is valid for reads of `len` bytes.
 */
uint64_t overbank_partition_hash(const uint8_t *key, size_t len, uint64_t seed);

/**
 * Builds a table for `keys` keys with values of `value_bits` bits, 1 to 8, which has the `count`
 * keys of these hashes with these values, and sets `*out`.
 *
 * Two keys of one hash are one key: with different values, OVERBANK_INVALID names the hash.
 * `count` may be 0. `options` may be NULL.
 *
 * Any thread. The caller owns the table: overbank_partition_destroy.
 *
 * Requires:
 * The pointers are NULL or valid; `hashes` and `values` have `count` elements.
 */
enum overbank_status overbank_partition_build(size_t keys,
                                              size_t value_bits,
                                              const uint64_t *hashes,
                                              const uint8_t *values,
                                              size_t count,
                                              const struct overbank_partition_options *options,
                                              struct overbank_partition **out);

/**
 * Frees the owner's side. NULL is none.
 *
 * Requires:
 * The table is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_partition_destroy(struct overbank_partition *table);

/**
 * Gives a key a value: a new key, or a move of one. `delta` gets the change for the copies, which
 * is empty if nothing changed; NULL if there are none. OVERBANK_FULL if no key fits any more.
 *
 * Requires:
 * The table is NULL or live, and in no other call of its owner; `delta` is NULL or valid.
 */
enum overbank_status overbank_partition_set(struct overbank_partition *table,
                                            uint64_t hash,
                                            uint8_t value,
                                            struct overbank_bytes *delta);

/**
 * Removes a key; `value` gets its value, NULL if that is of no interest. OVERBANK_ABSENT if it is
 * not there. Copies need not hear of it: they answer anything for a key that is not there.
 *
 * Requires:
 * The table is NULL or live, and in no other call of its owner; `value` is NULL or valid.
 */
enum overbank_status overbank_partition_remove(struct overbank_partition *table,
                                               uint64_t hash,
                                               uint8_t *value);

/**
 * Reads the value of a key, exactly. OVERBANK_ABSENT if it is not there.
 *
 * Requires:
 * As overbank_partition_remove.
 */
enum overbank_status overbank_partition_get(const struct overbank_partition *table,
                                            uint64_t hash,
                                            uint8_t *value);

/**
 * Writes the number of keys.
 *
 * Requires:
 * The table is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_partition_len(const struct overbank_partition *table, size_t *out);

/**
 * Makes a reader of the owner's table, and sets `*out`. overbank_partition_reader_destroy.
 *
 * Requires:
 * The table is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_partition_reader_create(const struct overbank_partition *table,
                                                      struct overbank_partition_reader **out);

/**
 * Makes a copy of the owner's table as it is now, and sets `*out`. overbank_replica_destroy.
 *
 * Requires:
 * As overbank_partition_reader_create.
 */
enum overbank_status overbank_partition_replica(const struct overbank_partition *table,
                                                struct overbank_replica **out);

/**
 * Frees a reader. NULL is none.
 *
 * Requires:
 * The reader is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_partition_reader_destroy(struct overbank_partition_reader *reader);

/**
 * Looks up any number of keys by their hashes: `values[i]` is that of `hashes[i]`. A key that was
 * never in the table gets any value. Takes no lock; while a change is made, reads again.
 *
 * Requires:
 * The reader is NULL or live; the arrays have `count` elements.
 */
enum overbank_status overbank_partition_lookup(const struct overbank_partition_reader *reader,
                                               const uint64_t *hashes,
                                               size_t count,
                                               uint8_t *values);

/**
 * Applies a change of overbank_partition_set. Changes come in order and once each:
 * OVERBANK_DAMAGED, with the copy as it was, for one that does not follow, or is of another table.
 * An empty one changes nothing.
 *
 * Requires:
 * The copy is NULL or live, and in no other call but lookups; `data` has `len` bytes.
 */
enum overbank_status overbank_replica_apply(struct overbank_replica *replica,
                                            const uint8_t *data,
                                            size_t len);

/**
 * Makes a reader of a copy, and sets `*out`. overbank_partition_reader_destroy.
 *
 * Requires:
 * The copy is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_replica_reader(const struct overbank_replica *replica,
                                             struct overbank_partition_reader **out);

/**
 * Writes what a copy is.
 *
 * Requires:
 * As overbank_replica_reader.
 */
enum overbank_status overbank_replica_info(const struct overbank_replica *replica,
                                           struct overbank_partition_info *out);

/**
 * Writes an image of a copy to `*out`: overbank_bytes_free.
 *
 * Requires:
 * As overbank_replica_reader.
 */
enum overbank_status overbank_replica_encode(const struct overbank_replica *replica,
                                             struct overbank_bytes *out);

/**
 * Makes a copy from an image, and sets `*out`. Any changed byte is OVERBANK_DAMAGED.
 *
 * Requires:
 * `data` has `len` bytes; `out` is NULL or valid.
 */
enum overbank_status overbank_replica_decode(const uint8_t *data,
                                             size_t len,
                                             struct overbank_replica **out);

/**
 * Writes an image of a copy to a file, which is replaced once the new one is on disk.
 *
 * Requires:
 * As overbank_replica_reader; `path` is NULL or a text.
 */
enum overbank_status overbank_replica_save(const struct overbank_replica *replica,
                                           const char *path);

/**
 * Makes a copy from a file of overbank_replica_save, and sets `*out`.
 *
 * Requires:
 * `path` is NULL or a text; `out` is NULL or valid.
 */
enum overbank_status overbank_replica_load(const char *path, struct overbank_replica **out);

/**
 * Frees a copy. NULL is none.
 *
 * Requires:
 * The copy is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_replica_destroy(struct overbank_replica *replica);

/**
 * Makes a sketch and sets `*counter` and `*keeper`. `options` may be NULL.
 *
 * Any thread. The caller owns both sides: overbank_counter_destroy, overbank_keeper_destroy, in
 * any order.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_sketch_create(const struct overbank_sketch_options *options,
                                            struct overbank_counter **counter,
                                            struct overbank_keeper **keeper);

/**
 * Frees the side that counts. NULL is none.
 *
 * Requires:
 * The counter is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_counter_destroy(struct overbank_counter *counter);

/**
 * Frees the side that reads. NULL is none.
 *
 * Requires:
 * The keeper is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_keeper_destroy(struct overbank_keeper *keeper);

/**
 * Counts up to OVERBANK_SKETCH_BURST keys. Bit `i` of `*hot` says that key `i` became hot in this
 * epoch: each is reported once an epoch. A thread without keys calls it with `count` 0 now and
 * then, or the keeper cannot go on.
 *
 * Requires:
 * The counter is NULL or live, and in no other call; `hashes` has `count` elements; `hot` is NULL
 * or valid.
 */
enum overbank_status overbank_counter_count(struct overbank_counter *counter,
                                            const struct overbank_hash128 *hashes,
                                            size_t count,
                                            uint64_t *hot);

/**
 * Starts an epoch that counts so, and clears the counts of the one before the last.
 * OVERBANK_ABSENT, with nothing changed, while the counter has not begun the current one.
 *
 * Requires:
 * The keeper is NULL or live, and in no other call.
 */
enum overbank_status overbank_keeper_turn(struct overbank_keeper *keeper,
                                          uint32_t threshold,
                                          uint32_t sample_log2);

/**
 * Reads the counts of an epoch: those that grow (`finished` 0), or the final ones of the epoch
 * before (1): OVERBANK_ABSENT if there are none yet.
 *
 * Requires:
 * The keeper is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_keeper_counts(const struct overbank_keeper *keeper,
                                            int32_t finished,
                                            struct overbank_counts *out);

/**
 * Estimates the samples of a key in an epoch (see overbank_keeper_counts): never too few, up to
 * 65535.
 *
 * Requires:
 * As overbank_keeper_counts.
 */
enum overbank_status overbank_keeper_estimate(const struct overbank_keeper *keeper,
                                              int32_t finished,
                                              struct overbank_hash128 hash,
                                              uint32_t *out);

/**
 * Makes a meter and sets `*meter`: destroy it with overbank_aside_meter_destroy. Any thread.
 *
 * Requires:
 * `meter` is NULL or valid.
 */
enum overbank_status overbank_aside_meter_create(struct overbank_aside_meter **meter);

/**
 * Frees the meter. NULL is none.
 *
 * Requires:
 * The meter is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_aside_meter_destroy(struct overbank_aside_meter *meter);

/**
 * Notes how many of the lookups that went through the table found an entry, `OVERBANK_ASIDE_HIT`
 * or `_ABSENT`.
 *
 * Requires:
 * The meter is NULL or live, and in no other call.
 */
enum overbank_status overbank_aside_meter_hits(struct overbank_aside_meter *meter, uint32_t hits);

/**
 * Makes a table for `entries` entries, and sets `*out`.
 *
 * Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8; two keys are
 * the same if their words are. Fill up what is shorter with zeroes. `options` may be NULL.
 *
 * Any thread. The caller owns the table: overbank_copies_destroy.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_copies_create(size_t key_words,
                                            size_t value_words,
                                            size_t entries,
                                            const struct overbank_aside_options *options,
                                            struct overbank_copies **out);

/**
 * Frees the table's handle; the table goes with its last writer. NULL is none.
 *
 * Requires:
 * The table is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_copies_destroy(struct overbank_copies *copies);

/**
 * Looks up any number of keys, in bursts of 32 whose waits for memory overlap. Sets `found[i]` to
 * OVERBANK_ASIDE_HIT, _ABSENT or _MISS, and the value at `values + i * value_words`: the key's of
 * a hit, else zeroes.
 *
 * Of a miss, sets `tickets[i]`: the right to put in what the index answers *afterwards*. Read the
 * index only after this call. `tickets` may be NULL. Other tickets fill nothing.
 *
 * `keys` are `count` keys of `key_words` words, one after another. Each key is looked up by
 * itself: a list is no snapshot. Takes no lock and waits for nothing. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; the arrays are so long, and no two share memory: OVERBANK_INVALID if
 * they do.
 */
enum overbank_status overbank_copies_lookup(const struct overbank_copies *copies,
                                            const uint64_t *keys,
                                            size_t count,
                                            uint64_t *values,
                                            uint8_t *found,
                                            struct overbank_aside_ticket *tickets);

/**
 * Puts in what the index answered after the lookup that gave this ticket: `value`, or NULL if it
 * has no entry for the key.
 *
 * OVERBANK_DECLINED, which is no fault: if a key of the bucket was written meanwhile, after a
 * clear, with a ticket of another table, or if the entries there are asked for more often. Waits
 * for nothing: declines if another thread is in the bucket. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `ticket` is NULL, zeroed, or as the library wrote it; `value` is NULL
 * or has `value_words` words.
 */
enum overbank_status overbank_copies_fill(const struct overbank_copies *copies,
                                          const struct overbank_aside_ticket *ticket,
                                          const uint64_t *value);

/**
 * Takes everything out, in the time of one bucket in 32,768, and voids all tickets. Changes no
 * answer by itself.
 *
 * After a change of the index outside a writer, call it while readers of the index are still
 * excluded: under the lock that the change took. Where nothing excludes them, a reader may fill an
 * old answer after this call: use overbank_copies_writer_begin_all. Waits for writers' handfuls of
 * stores and other clears. Any number of threads.
 *
 * Requires:
 * The table is NULL or live.
 */
enum overbank_status overbank_copies_clear(struct overbank_copies *copies);

/**
 * Sets what lookups cost, from the gate's next decision on. Of a table without a gate it changes
 * nothing else. OVERBANK_INVALID if all are zero, which stands for unknown costs. Any number of
 * threads.
 *
 * Requires:
 * The table is NULL or live; `costs` is NULL or valid.
 */
enum overbank_status overbank_copies_set_costs(struct overbank_copies *copies,
                                               const struct overbank_aside_costs *costs);

/**
 * Writes to `*around` which way the next `count` lookups of this thread go: 1 if they leave the
 * table alone and ask the index, 0 if through it. `count` is 1, or the length of a list; a list of
 * more than 512 should be cut, since all of it goes one way.
 *
 * Requires:
 * The table is NULL or live; the meter is NULL or live, and in no other call; `around` is NULL or
 * valid.
 */
enum overbank_status overbank_copies_way(const struct overbank_copies *copies,
                                         struct overbank_aside_meter *meter,
                                         size_t count,
                                         uint8_t *around);

/**
 * Writes whether the table works, and why. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_copies_gate(const struct overbank_copies *copies,
                                          struct overbank_aside_gate *out);

/**
 * Writes what the table has counted. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_copies_counters(const struct overbank_copies *copies,
                                              struct overbank_aside_counters *out);

/**
 * Writes what the table is. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_copies_info(const struct overbank_copies *copies,
                                          struct overbank_aside_info *out);

/**
 * Makes a writer and sets `*out`.
 *
 * Any thread. The caller owns it: overbank_copies_writer_destroy.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_copies_writer_create(const struct overbank_copies *copies,
                                                   struct overbank_copies_writer **out);

/**
 * Frees a writer. A write that it has begun is finished, so the index must have changed by then.
 * NULL is none.
 *
 * A writer that is never destroyed keeps the table's memory, and what it had begun takes no
 * answers in any more: the key's bucket, or the whole table after `_begin_all`.
 *
 * Requires:
 * The writer is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_copies_writer_destroy(struct overbank_copies_writer *writer);

/**
 * Begins a write of one key: call it *before* the index changes. Takes the key's entry out; until
 * the end of the write, its bucket takes no answers in.
 *
 * OVERBANK_INVALID if this writer has begun a write already. Waits for a handful of stores of each
 * other thread in the bucket, rarely for a clear. Hold writes briefly: while 255 are in one
 * bucket, another one there takes the whole table out until it ends.
 *
 * Requires:
 * The writer is NULL or live, and in no other call; `key` is NULL or has `key_words` words.
 */
enum overbank_status overbank_copies_writer_begin(struct overbank_copies_writer *writer,
                                                  const uint64_t *key);

/**
 * Begins a write of any number of keys, a range or all: as overbank_copies_writer_begin. Takes
 * everything out, in the time of one bucket in 32,768; until overbank_copies_writer_finish, the
 * table takes no answers in.
 *
 * Requires:
 * The writer is NULL or live, and in no other call.
 */
enum overbank_status overbank_copies_writer_begin_all(struct overbank_copies_writer *writer);

/**
 * Ends the write after the index took this value for the key, or removed it (NULL): an entry that
 * was there at `_begin` now says so. Not if another writer was in the bucket since: it may have
 * reached the index in the other order.
 *
 * OVERBANK_INVALID if no write has begun, or one of all keys: that goes on.
 *
 * Requires:
 * The writer is NULL or live, and in no other call; `value` is NULL or has `value_words` words.
 */
enum overbank_status overbank_copies_writer_keep(struct overbank_copies_writer *writer,
                                                 const uint64_t *value);

/**
 * Ends the write, whatever the index now has: call it *after* the index has changed, or has not.
 * OVERBANK_INVALID if no write has begun.
 *
 * Requires:
 * The writer is NULL or live, and in no other call.
 */
enum overbank_status overbank_copies_writer_finish(struct overbank_copies_writer *writer);

/**
 * Makes a table for `entries` entries, and sets `*out`: before the database's first commit or
 * after any.
 *
 * Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8; two keys are
 * the same if their words are. Fill up what is shorter with zeroes. `options` may be NULL.
 *
 * Any thread. The caller owns the table: overbank_versioned_destroy.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_versioned_create(size_t key_words,
                                               size_t value_words,
                                               size_t entries,
                                               const struct overbank_aside_options *options,
                                               struct overbank_versioned **out);

/**
 * Frees the table's handle; the table goes with its last view or commit. NULL is none.
 *
 * Requires:
 * The table is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_versioned_destroy(struct overbank_versioned *versioned);

/**
 * Writes the number of the newest published commit, 0 before the first. A reader that takes it
 * *before* it begins its transaction may use it for its snapshot. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_published(const struct overbank_versioned *versioned,
                                                  uint64_t *out);

/**
 * Takes everything out, in the time of one bucket in 32,768; views answer nothing until they are
 * moved. For changes by a transaction see overbank_versioned_commit_clear. Waits for handfuls of
 * stores of other threads, and their clears. Any number of threads.
 *
 * Requires:
 * The table is NULL or live.
 */
enum overbank_status overbank_versioned_clear(struct overbank_versioned *versioned);

/**
 * Sets what lookups cost, as overbank_copies_set_costs. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `costs` is NULL or valid.
 */
enum overbank_status overbank_versioned_set_costs(struct overbank_versioned *versioned,
                                                  const struct overbank_aside_costs *costs);

/**
 * Writes to `*around` which way the next `count` lookups of this thread go: 1 if they leave the
 * table alone and ask the index, 0 if through it. `count` is 1, or the length of a list; a list of
 * more than 512 should be cut, since all of it goes one way.
 *
 * Requires:
 * The table is NULL or live; the meter is NULL or live, and in no other call; `around` is NULL or
 * valid.
 */
enum overbank_status overbank_versioned_way(const struct overbank_versioned *versioned,
                                            struct overbank_aside_meter *meter,
                                            size_t count,
                                            uint8_t *around);

/**
 * Writes whether the table works, and why. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_gate(const struct overbank_versioned *versioned,
                                             struct overbank_aside_gate *out);

/**
 * Writes what the table has counted. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_counters(const struct overbank_versioned *versioned,
                                                 struct overbank_aside_counters *out);

/**
 * Writes what the table is. Any number of threads.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_info(const struct overbank_versioned *versioned,
                                             struct overbank_aside_info *out);

/**
 * Makes a view of the newest published commit, and sets `*out`.
 *
 * Any thread. The caller owns it: overbank_versioned_view_destroy.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_view_create(const struct overbank_versioned *versioned,
                                                    struct overbank_versioned_view **out);

/**
 * Frees a view. NULL is none.
 *
 * Requires:
 * The view is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_versioned_view_destroy(struct overbank_versioned_view *view);

/**
 * Moves the view to a snapshot: the number of its newest commit, or a lower one that was published
 * before the transaction began. Takes a few loads, unless everything is taken out: then the time
 * of one bucket in 32,768, and it waits for handfuls of stores of other threads.
 *
 * A number above the newest published one is that of a commit that did not pass by this table
 * (another process): everything is taken out, and the number counts as published from then on, so
 * that no commit can have it or a lower one. Ask with numbers of the database alone.
 *
 * With the number of a commit that has begun, or one of more than 48 bits, the view answers
 * nothing and takes nothing in.
 *
 * Requires:
 * The view is NULL or live, and in no other call.
 */
enum overbank_status overbank_versioned_view_at(struct overbank_versioned_view *view,
                                                uint64_t version);

/**
 * Moves the view to the newest published commit, and writes its number to `version`; NULL if that
 * is of no interest. For reads that need no transaction unless they miss: then begin one and fill
 * through this view. Where commits may pass by this table, first move it to the transaction's own
 * number, and look up again.
 *
 * Requires:
 * The view is NULL or live, and in no other call; `version` is NULL or valid.
 */
enum overbank_status overbank_versioned_view_latest(struct overbank_versioned_view *view,
                                                    uint64_t *version);

/**
 * Looks up any number of keys as of the view's snapshot; the arguments are those of
 * overbank_copies_lookup. After a miss, ask the snapshot, then fill with the ticket.
 *
 * Takes no lock and waits for nothing. Any number of threads, while no call moves the view.
 *
 * Requires:
 * The view is NULL or live, and no other call moves it; the arrays are so long, and no two share
 * memory: OVERBANK_INVALID if they do.
 */
enum overbank_status overbank_versioned_view_lookup(const struct overbank_versioned_view *view,
                                                    const uint64_t *keys,
                                                    size_t count,
                                                    uint64_t *values,
                                                    uint8_t *found,
                                                    struct overbank_aside_ticket *tickets);

/**
 * Puts in what the snapshot has for the ticket's key: `value`, or NULL if it has no entry.
 *
 * OVERBANK_DECLINED, which is no fault: if a later commit changed a key of the bucket, after a
 * clear, with a ticket of another table or snapshot, or if the entries there are asked for more
 * often. Waits for nothing. Any number of threads, while no call moves the view.
 *
 * Requires:
 * The view is NULL or live, and no other call moves it; `ticket` is NULL, zeroed, or as the
 * library wrote it; `value` is NULL or has `value_words` words.
 */
enum overbank_status overbank_versioned_view_fill(const struct overbank_versioned_view *view,
                                                  const struct overbank_aside_ticket *ticket,
                                                  const uint64_t *value);

/**
 * Makes what says commits, and sets `*out`.
 *
 * Any thread. The caller owns it: overbank_versioned_commit_destroy.
 *
 * Requires:
 * The table is NULL or live; `out` is NULL or valid.
 */
enum overbank_status overbank_versioned_commit_create(const struct overbank_versioned *versioned,
                                                      struct overbank_versioned_commit **out);

/**
 * Frees it. A commit that it has begun is aborted. NULL is none.
 *
 * If it is never destroyed, it keeps the table's memory; the commit that it had begun ends with
 * the next one of the table.
 *
 * Requires:
 * The commit is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_versioned_commit_destroy(struct overbank_versioned_commit *commit);

/**
 * Begins the commit of the transaction that is about to get this number, before the database
 * commits. One that another object has begun is taken to be aborted.
 *
 * Numbers should follow one another. All below this one count as published from now on, whatever
 * becomes of it; with a gap, commits did not pass by this table, and everything is taken out.
 *
 * OVERBANK_INVALID if the number is not above the newest published one or has more than 48 bits:
 * the database numbers anew, or a wrong number came before. This table cannot hear of the change.
 * So do not commit beside it: destroy it with its views, and create another one first.
 * OVERBANK_INVALID, too, if this object has begun a commit already.
 *
 * Requires:
 * The commit is NULL or live, and in no other call.
 */
enum overbank_status overbank_versioned_commit_begin(struct overbank_versioned_commit *commit,
                                                     uint64_t version);

/**
 * Says that the transaction gives the key this value, or removes it (NULL): before the database
 * commits. A key that the table had has its new value there once published (of 65,536 keys at
 * most). OVERBANK_INVALID if no commit has begun.
 *
 * Allocates for a key that the table had: if the system then has no memory, the process is
 * aborted. Waits for a handful of stores of each other thread in the bucket.
 *
 * Requires:
 * The commit is NULL or live, and in no other call; `key` is NULL or has `key_words` words;
 * `value` is NULL or has `value_words`.
 */
enum overbank_status overbank_versioned_commit_change(struct overbank_versioned_commit *commit,
                                                      const uint64_t *key,
                                                      const uint64_t *value);

/**
 * Says that the transaction changes the key, to a value that the caller does not know.
 * OVERBANK_INVALID if no commit has begun.
 *
 * Requires:
 * The commit is NULL or live, and in no other call; `key` is NULL or has `key_words` words.
 */
enum overbank_status overbank_versioned_commit_touch(struct overbank_versioned_commit *commit,
                                                     const uint64_t *key);

/**
 * Says that the transaction changes any number of keys: a range, a drop, a restore. Takes
 * everything out, in the time of one bucket in 32,768; no snapshot before this commit has answers
 * any more.
 * OVERBANK_INVALID if no commit has begun.
 *
 * Requires:
 * The commit is NULL or live, and in no other call.
 */
enum overbank_status overbank_versioned_commit_clear(struct overbank_versioned_commit *commit);

/**
 * Ends the commit *after* the database has committed: readers of its number get answers.
 * OVERBANK_INVALID if no commit has begun.
 *
 * Requires:
 * The commit is NULL or live, and in no other call.
 */
enum overbank_status overbank_versioned_commit_publish(struct overbank_versioned_commit *commit);

/**
 * Ends the commit after the database has not committed. Its number may come again. Call it before
 * another transaction can begin, where another process may write. OVERBANK_INVALID if no commit
 * has begun.
 *
 * Requires:
 * The commit is NULL or live, and in no other call.
 */
enum overbank_status overbank_versioned_commit_abort(struct overbank_versioned_commit *commit);

/**
 * Makes a tree for `capacity` entries, 1 to 2^31, and sets `*out`. All its memory is taken now,
 * about 16 * `capacity` * (`key_words` + `value_words`) bytes: inserts never wait for the system.
 *
 * Keys have `key_words` words of 64 bits, 1 to 4, and values `value_words`, 1 to 8. `options` may
 * be NULL.
 *
 * Any thread. The caller owns the tree: overbank_tree_destroy.
 *
 * Requires:
 * The pointers are NULL or valid.
 */
enum overbank_status overbank_tree_create(size_t key_words,
                                          size_t value_words,
                                          size_t capacity,
                                          const struct overbank_tree_options *options,
                                          struct overbank_tree **out);

/**
 * Frees a tree. NULL is none.
 *
 * Requires:
 * The tree is NULL, or was made and not destroyed, and is in no other call.
 */
void overbank_tree_destroy(struct overbank_tree *tree);

/**
 * Looks up any number of keys, in bursts whose waits for memory overlap, by their hints or by
 * searches, which leave hints. Sets `found[i]` to 1 and the value at `values + i * value_words` if
 * key `i` has an entry, else both to zero.
 *
 * `keys` are `count` keys of `key_words` words, one after another.
 *
 * Requires:
 * The tree is NULL or live, and in no other call; the arrays are so long, and no two share memory:
 * OVERBANK_INVALID if they do.
 */
enum overbank_status overbank_tree_lookup(struct overbank_tree *tree,
                                          const uint64_t *keys,
                                          size_t count,
                                          uint64_t *values,
                                          uint8_t *found);

/**
 * Looks up keys as overbank_tree_lookup, one after another, by searches alone: it uses no hints,
 * leaves none and counts nothing. So several threads may, while none changes the tree.
 *
 * Requires:
 * As overbank_tree_lookup, but calls of _peek, _range, _counters and _info may go on.
 */
enum overbank_status overbank_tree_peek(const struct overbank_tree *tree,
                                        const uint64_t *keys,
                                        size_t count,
                                        uint64_t *values,
                                        uint8_t *found);

/**
 * Inserts an entry or replaces its value. OVERBANK_FULL if the key is new and the tree has as many
 * entries as its capacity: it is as before.
 *
 * Requires:
 * The tree is NULL or live, and in no other call; `key` and `value` are NULL or have `key_words`
 * and `value_words` words.
 */
enum overbank_status overbank_tree_insert(struct overbank_tree *tree,
                                          const uint64_t *key,
                                          const uint64_t *value);

/**
 * Removes an entry. OVERBANK_ABSENT if the key has none: `value` stays as it is. Else it gets what
 * was removed; NULL if that is of no interest.
 *
 * Requires:
 * As overbank_tree_insert.
 */
enum overbank_status overbank_tree_remove(struct overbank_tree *tree,
                                          const uint64_t *key,
                                          uint64_t *value);

/**
 * Writes the entries from `start` on and before `stop`, `room` at most, in the order of their
 * keys, and their number to `*count`. Either key may be NULL: no bound. A start above the stop has
 * none.
 *
 * `flags` are 0 or of OVERBANK_TREE_AFTER (without the entry of `start`) and OVERBANK_TREE_DOWN
 * (from the greatest key down). If `*count` is `room`, go on: with the last key as `start` and
 * OVERBANK_TREE_AFTER, or on the way down as `stop`.
 *
 * Requires:
 * The tree is NULL or live, and no other call changes it; the keys are NULL or valid; the arrays
 * have `room` keys and values; no two share memory: OVERBANK_INVALID if they do. `start` and
 * `stop` may lie in `keys`.
 */
enum overbank_status overbank_tree_range(const struct overbank_tree *tree,
                                         const uint64_t *start,
                                         const uint64_t *stop,
                                         uint32_t flags,
                                         uint64_t *keys,
                                         uint64_t *values,
                                         size_t room,
                                         size_t *count);

/**
 * Removes all entries, at once. Hints that are left cost a look each.
 *
 * Requires:
 * The tree is NULL or live, and in no other call.
 */
enum overbank_status overbank_tree_clear(struct overbank_tree *tree);

/**
 * Writes what the hints have counted: `hits` are keys that lay where their hint said,
 * `false_positives` hints that were wrong. All zero without hints.
 *
 * Requires:
 * The tree is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_tree_counters(const struct overbank_tree *tree,
                                            struct overbank_cache_counters *out);

/**
 * Writes what the tree is and holds.
 *
 * Requires:
 * The tree is NULL or live, and no other call changes it; `out` is NULL or valid.
 */
enum overbank_status overbank_tree_info(const struct overbank_tree *tree,
                                        struct overbank_tree_info *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OVERBANK_H */
