/* rte_hash as a forwarding table: what src/fib/dpdk.rs calls.
 *
 * Keys are 8 bytes, of which 6 are in use: an entry of the key store takes 16 bytes for either. They
 * are hashed by one CRC32 instruction and compared as one word, which is faster than what the library
 * does by default with keys of this length (a loop over the bytes, and memcmp). Values are kept in
 * the table's own pointers (..._data). The library has been started (peers_eal_init). One thread
 * writes, any number may look up.
 */
#include <stdint.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>

#define BURST RTE_HASH_LOOKUP_BULK_MAX
#define INIT 1

struct tally {
	uint64_t hits;
	uint64_t sum;
};

static uint32_t crc(const void *key, uint32_t len, uint32_t init)
{
	(void)len;
	return rte_hash_crc_8byte(*(const uint64_t *)key, init);
}

static int differ(const void *a, const void *b, size_t len)
{
	(void)len;
	return *(const uint64_t *)a != *(const uint64_t *)b;
}

struct rte_hash *peers_fib_new(uint32_t entries, int extendable)
{
	struct rte_hash_parameters parameters = {
		.name = "fib", .entries = entries, .key_len = sizeof(uint64_t), .hash_func = crc,
		.hash_func_init_val = INIT, .socket_id = (int)rte_socket_id(),
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF |
			      (extendable ? RTE_HASH_EXTRA_FLAGS_EXT_TABLE : 0),
	};
	struct rte_hash *table = rte_hash_create(&parameters);
	if (table)
		rte_hash_set_cmp_func(table, differ);
	return table;
}

/* Inserts keys, or replaces their values. Returns 0 or a negative error. */
int peers_fib_write(struct rte_hash *table, const uint64_t *keys, const uint16_t *values, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		int error = rte_hash_add_key_data(table, &keys[i], (void *)(uintptr_t)values[i]);
		if (error < 0)
			return error;
	}
	return 0;
}

int32_t peers_fib_count(const struct rte_hash *table)
{
	return rte_hash_count(table);
}

static inline void add(struct tally *tally, uint64_t mask, void *const *data, uint64_t n)
{
	tally->hits += (unsigned)__builtin_popcountll(mask);
	/* The library leaves the places of absent keys as they were. */
	for (uint64_t i = 0; i < n; i++)
		tally->sum += (uintptr_t)data[i] & -(mask >> i & 1);
}

/* pointers[i] points to keys[i]; 1 <= burst <= 64. The tally of a call that fails stays behind, which
 * the caller sees. */
void peers_fib_lookup(const struct rte_hash *table, const uint64_t *keys, const void **pointers, uint64_t n,
		      uint64_t burst, int hashed, struct tally *tally)
{
	void *data[BURST] = {0};
	hash_sig_t hashes[BURST];

	for (uint64_t at = 0; at < n; at += burst) {
		uint64_t now = n - at < burst ? n - at : burst, mask = 0;
		int found;
		if (hashed) {
			for (uint64_t i = 0; i < now; i++)
				hashes[i] = rte_hash_crc_8byte(keys[at + i], INIT);
			found = rte_hash_lookup_with_hash_bulk_data(table, &pointers[at], hashes, now, &mask, data);
		} else {
			found = rte_hash_lookup_bulk_data(table, &pointers[at], now, &mask, data);
		}
		if (found > 0)
			add(tally, mask, data, now);
	}
}
