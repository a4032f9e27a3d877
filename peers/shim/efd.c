/* rte_efd as a partition table: what src/partition/efd.rs calls.
 *
 * Compiled once for each build of the library; PEERS_EFD names the table of calls. With
 * RTE_EFD_VALUE_NUM_BITS, the library's source is compiled in under other names; else Debian's library
 * is linked. Keys are 8 bytes, values at most 8 bits. The library has been started (peers_eal_init).
 */
/* The library's own strlcpy: nothing else here needs libbsd. */
#undef RTE_USE_LIBBSD

#include <stdint.h>
#include <stdio.h>

#include <rte_debug.h>
#include <rte_lcore.h>
#include <rte_tailq.h>

#ifdef RTE_EFD_VALUE_NUM_BITS
#define PASTE_(prefix, name) prefix##_##name
#define PASTE(prefix, name) PASTE_(prefix, name)
#define rte_efd_create PASTE(PEERS_EFD, create)
#define rte_efd_free PASTE(PEERS_EFD, free)
#define rte_efd_find_existing PASTE(PEERS_EFD, find_existing)
#define rte_efd_update PASTE(PEERS_EFD, update)
#define rte_efd_delete PASTE(PEERS_EFD, delete)
#define rte_efd_lookup PASTE(PEERS_EFD, lookup)
#define rte_efd_lookup_bulk PASTE(PEERS_EFD, lookup_bulk)
#define efd_bin_to_group PASTE(PEERS_EFD, bin_to_group)
/* The list's name is taken by Debian's library, which is linked too. */
#undef EAL_REGISTER_TAILQ
#define EAL_REGISTER_TAILQ(t) \
	RTE_INIT(tailqinitfn_##t) \
	{ \
		snprintf(t.name, sizeof t.name, "PEERS_EFD_%d", RTE_EFD_VALUE_NUM_BITS); \
		if (rte_eal_tailq_register(&t) < 0) \
			rte_panic("Cannot initialize tailq: %s\n", t.name); \
	}
#include "rte_efd.c"
#else
#include <rte_efd.h>
#endif

static struct rte_efd_table *create(uint32_t keys)
{
	unsigned socket = rte_socket_id();
	return rte_efd_create("peers", keys, sizeof(uint64_t), 1ULL << socket, (uint8_t)socket);
}

/* Returns the keys inserted: fewer than n if one found no group. */
static uint64_t insert(struct rte_efd_table *table, const uint64_t *keys, const uint8_t *values, uint64_t n)
{
	unsigned socket = rte_socket_id();
	for (uint64_t i = 0; i < n; i++) {
		int status = rte_efd_update(table, socket, &keys[i], values[i]);
		if (status != 0 && status != RTE_EFD_UPDATE_WARN_GROUP_FULL)
			return i;
	}
	return n;
}

/* pointers[i] points to a key; 1 <= burst <= RTE_EFD_BURST_MAX. */
static void look_up(const struct rte_efd_table *table, const void **pointers, uint64_t n, uint64_t burst,
		    uint8_t *values)
{
	unsigned socket = rte_socket_id();
	for (uint64_t at = 0; at < n; at += burst) {
		uint64_t now = n - at < burst ? n - at : burst;
		rte_efd_lookup_bulk(table, socket, (int)now, &pointers[at], &values[at]);
	}
}

const struct {
	struct rte_efd_table *(*create)(uint32_t keys);
	uint64_t (*insert)(struct rte_efd_table *, const uint64_t *, const uint8_t *, uint64_t);
	void (*look_up)(const struct rte_efd_table *, const void **, uint64_t, uint64_t, uint8_t *);
	void (*free)(struct rte_efd_table *);
} PEERS_EFD = {create, insert, look_up, rte_efd_free};
