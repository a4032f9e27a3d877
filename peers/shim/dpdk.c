/* What the tables of DPDK look like to src/table/dpdk.rs.
 *
 * Keys are 16 bytes, values 1 to 32767, bursts at most 32. A lookup returns the mask of the keys that
 * were found with the value that belongs to them; whatever else the table says is a miss. Nothing here
 * is safe to call from two threads, or before peers_eal_init has returned 0.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>
#include <rte_member.h>

#define KEY_LEN 16
#define BURST 32
#define TRIES_MAX 8

/* One thread, no devices, no files: memory alone; vectors of at most simd_bits, unless 0. Returns 0 or a
 * negative error. */
int peers_eal_init(int huge_pages, unsigned mib, unsigned simd_bits)
{
	char size[16], simd[48];
	snprintf(size, sizeof size, "%u", mib);
	char *args[16] = {"peers", "--no-pci", "--no-telemetry", "--log-level", "error", "-m", size};
	int n = 7;
	char core[16];
	/* EAL pins the calling thread: to the core where it runs already. */
	snprintf(core, sizeof core, "0@%d", sched_getcpu());
	args[n++] = "--lcores";
	args[n++] = core;
	args[n++] = "--in-memory";
	if (!huge_pages)
		args[n++] = "--no-huge";
	if (simd_bits) {
		snprintf(simd, sizeof simd, "--force-max-simd-bitwidth=%u", simd_bits);
		args[n++] = simd;
	}
	return rte_eal_init(n, args) < 0 ? -rte_errno : 0;
}

/* Bytes that DPDK's heap has handed out. */
uint64_t peers_heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	uint64_t bytes = 0;

	for (int socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	return bytes;
}

/* ---- rte_member, hash table mode, as a cache: a full bucket gives up a random entry */

struct rte_member_setsum *peers_member_new(uint32_t entries)
{
	struct rte_member_parameters parameters = {
		.name = "member", .type = RTE_MEMBER_TYPE_HT, .is_cache = 1, .num_keys = entries,
		.key_len = KEY_LEN, .prim_hash_seed = 1, .sec_hash_seed = 11, .socket_id = SOCKET_ID_ANY,
	};
	return rte_member_create(&parameters);
}

uint32_t peers_member_lookup(const struct rte_member_setsum *table, const uint8_t *keys,
			     const uint16_t *values, uint32_t n)
{
	const void *pointers[BURST];
	member_set_t sets[BURST];
	uint32_t mask = 0;

	for (uint32_t i = 0; i < n; i++)
		pointers[i] = keys + i * KEY_LEN;
	if (rte_member_lookup_bulk(table, pointers, n, sets) < 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		mask |= (uint32_t)(sets[i] == values[i]) << i;
	return mask;
}

int peers_member_add(const struct rte_member_setsum *table, const uint8_t *key, uint16_t value)
{
	return rte_member_add(table, key, value);
}

/* ---- rte_hash, bounded: full, it gives up the key of a random position */

struct hash {
	struct rte_hash *table;
	uint16_t *values; /* by position, as the library's examples do it */
	uint32_t entries;
	uint64_t random;
};

struct hash *peers_hash_new(uint32_t entries)
{
	/* The extendable table takes every key that there is a position for; the plain one refuses
	 * some long before it is full. */
	struct rte_hash_parameters parameters = {
		.name = "hash", .entries = entries, .key_len = KEY_LEN, .hash_func = rte_hash_crc,
		.hash_func_init_val = 1, .socket_id = (int)rte_socket_id(),
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	struct hash *hash = calloc(1, sizeof *hash);
	if (!hash)
		return NULL;
	hash->table = rte_hash_create(&parameters);
	hash->values = rte_zmalloc("values", sizeof(uint16_t) * (entries + 1), 64);
	hash->entries = entries;
	hash->random = 1;
	if (!hash->table || !hash->values)
		return NULL; /* the process ends: nothing to give back */
	return hash;
}

uint32_t peers_hash_lookup(const struct hash *hash, const uint8_t *keys, const uint16_t *values, uint32_t n)
{
	const void *pointers[BURST];
	int32_t positions[BURST];
	uint32_t mask = 0;

	for (uint32_t i = 0; i < n; i++)
		pointers[i] = keys + i * KEY_LEN;
	if (rte_hash_lookup_bulk(hash->table, pointers, n, positions) < 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (positions[i] >= 0)
			mask |= (uint32_t)(hash->values[positions[i]] == values[i]) << i;
	return mask;
}

static void evict(struct hash *hash)
{
	for (int tries = 0; tries < 64; tries++) {
		void *key;
		hash->random = hash->random * 6364136223846793005u + 1442695040888963407u;
		int32_t position = (uint32_t)(((hash->random >> 32) * hash->entries) >> 32);
		if (rte_hash_get_key_with_position(hash->table, position, &key) == 0 &&
		    rte_hash_del_key(hash->table, key) >= 0)
			return;
	}
}

int peers_hash_add(struct hash *hash, const uint8_t *key, uint16_t value)
{
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		int32_t position = rte_hash_add_key(hash->table, key);
		if (position >= 0) {
			hash->values[position] = value;
			return 0;
		}
		if (position != -ENOSPC)
			return position;
		evict(hash);
	}
	return -ENOSPC;
}
