/* A loop as DPDK's l2fwd: frames of a port are looked up by destination address and sent, here
 * through a ring (`net_ring`), so that it runs without a card. The forwarding table is Overbank's
 * and DPDK's rte_hash in turns, and each says the same port for each frame.
 *
 *   ./l2fwd [ADDRESSES [ROUNDS]]
 *
 * A round sends the frames of a list through the port many times: receive a burst, look up, write
 * the port into the frame, send. The rate is that of the whole loop; `lookup` is the lookups of a
 * round alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_mbuf.h>

#include <overbank.h>

enum { BURST = 32, FRAMES = 4096, LOOPS = 200, PORTS = 16, ROUNDS_MAX = 1000 };

static void must(enum overbank_status status)
{
	if (status != OVERBANK_OK)
		rte_exit(EXIT_FAILURE, "%s: %s\n", overbank_strerror(status),
				overbank_last_error());
}

/* Address `i`: 8 bytes, whose upper two are zero, so that both tables have keys of one size. */
static uint64_t address_of(uint64_t i)
{
	return overbank_mix(i) & 0xfffffffffffe;
}

struct tables {
	struct overbank_fib_reader *overbank;
	struct rte_hash *hash;
};

/* Writes the port of each address; 0 for one that is unknown. */
typedef void lookup(const struct tables *tables, const uint64_t *addresses, uint16_t count,
		    uint16_t *ports);

static void by_overbank(const struct tables *tables, const uint64_t *addresses, uint16_t count,
			uint16_t *ports)
{
	uint64_t hits;
	must(overbank_fib_lookup(tables->overbank, addresses, count, ports, &hits));
}

static void by_rte_hash(const struct tables *tables, const uint64_t *addresses, uint16_t count,
			uint16_t *ports)
{
	const void *keys[BURST];
	void *data[BURST];
	uint64_t hits = 0;
	for (uint16_t i = 0; i < count; i++)
		keys[i] = &addresses[i];
	rte_hash_lookup_bulk_data(tables->hash, keys, count, &hits, data);
	for (uint16_t i = 0; i < count; i++)
		ports[i] = hits >> i & 1 ? (uint16_t)(uintptr_t)data[i] : 0;
}

/* Sends the frames that are in the ring through the loop. Returns the sum of all ports, and the
 * seconds of it. */
static uint64_t forward(uint16_t port, const struct tables *tables, lookup *look, size_t frames,
			double *seconds)
{
	uint64_t sum = 0, start = rte_rdtsc();
	for (size_t done = 0; done < frames;) {
		struct rte_mbuf *burst[BURST];
		uint64_t addresses[BURST] = {0};
		uint16_t ports[BURST];
		uint16_t count = rte_eth_rx_burst(port, 0, burst, BURST);
		for (uint16_t i = 0; i < count; i++)
			memcpy(&addresses[i], rte_pktmbuf_mtod(burst[i], void *),
					RTE_ETHER_ADDR_LEN);
		look(tables, addresses, count, ports);
		for (uint16_t i = 0; i < count; i++) {
			/* As l2fwd writes the source address. */
			rte_pktmbuf_mtod(burst[i],
					uint8_t *)[RTE_ETHER_ADDR_LEN] = (uint8_t)ports[i];
			sum += ports[i];
		}
		if (rte_eth_tx_burst(port, 0, burst, count) != count)
			rte_exit(EXIT_FAILURE, "the ring is full\n");
		done += count;
	}
	*seconds = (double)(rte_rdtsc() - start) / (double)rte_get_tsc_hz();
	return sum;
}

/* The lookups of a round alone, of the same addresses. */
static uint64_t look_up(const struct tables *tables, lookup *look, const uint64_t *addresses,
			size_t frames, double *seconds)
{
	uint64_t sum = 0, start = rte_rdtsc();
	for (size_t done = 0; done < frames; done += BURST) {
		uint16_t ports[BURST];
		look(tables, addresses + done % FRAMES, BURST, ports);
		sum += ports[0];
	}
	*seconds = (double)(rte_rdtsc() - start) / (double)rte_get_tsc_hz();
	return sum;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int count, char **arguments)
{
	size_t known = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 20;
	size_t rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : 11;
	if (known < BURST || known > 1 << 24 || rounds < 1 || rounds > ROUNDS_MAX)
		rte_exit(EXIT_FAILURE,
				"usage: l2fwd [ADDRESSES, 32 to 2^24 [ROUNDS, 1 to 1000]]\n");

	/* Neither card nor huge page nor a second process. */
	char *eal[] = {arguments[0], "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
		       "--log-level", "error", "-l", "0", "-m", "2048"};
	if (rte_eal_init(sizeof eal / sizeof *eal, eal) < 0)
		rte_exit(EXIT_FAILURE, "DPDK does not start\n");
	/* What is sent comes in again. */
	struct rte_ring *ring = rte_ring_create("loop", 2 * FRAMES, SOCKET_ID_ANY,
			RING_F_SP_ENQ | RING_F_SC_DEQ);
	struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", 2 * FRAMES - 1, 0, 0, 256,
			SOCKET_ID_ANY);
	if (!ring || !pool)
		rte_exit(EXIT_FAILURE, "no memory for frames\n");
	int port = rte_eth_from_rings("net_ring0", &ring, 1, &ring, 1, 0);
	const struct rte_eth_conf config = {0};
	if (port < 0 || rte_eth_dev_configure((uint16_t)port, 1, 1, &config) < 0 ||
	    rte_eth_rx_queue_setup((uint16_t)port, 0, FRAMES, 0, NULL, pool) < 0 ||
	    rte_eth_tx_queue_setup((uint16_t)port, 0, FRAMES, 0, NULL) < 0 ||
	    rte_eth_dev_start((uint16_t)port) < 0)
		rte_exit(EXIT_FAILURE, "net_ring does not start\n");

	/* Both tables have the same addresses. Both lie on pages of 4 KiB: so has DPDK's memory. */
	struct tables tables = {NULL, NULL};
	struct overbank_fib *fib = NULL;
	struct overbank_fib_options options = {.pages = 1};
	struct rte_hash_parameters parameters = {
		.name = "addresses", .entries = (uint32_t)(known + known / 8),
				.key_len = sizeof(uint64_t),
		.hash_func = rte_hash_crc, .socket_id = SOCKET_ID_ANY,
	};
	must(overbank_fib_create(sizeof(uint64_t), sizeof(uint16_t), known, &options, &fib));
	must(overbank_fib_reader_create(fib, &tables.overbank));
	tables.hash = rte_hash_create(&parameters);
	if (!tables.hash)
		rte_exit(EXIT_FAILURE, "no memory for rte_hash\n");
	for (uint64_t i = 0; i < known; i++) {
		uint64_t address = address_of(i), to = 1 + i % PORTS;
		must(overbank_fib_insert(fib, &address, to));
		if (rte_hash_add_key_data(tables.hash, &address, (void *)(uintptr_t)to) < 0)
			rte_exit(EXIT_FAILURE,
					"rte_hash takes no more than %" PRIu64 " addresses\n", i);
	}

	static uint64_t addresses[FRAMES];
	for (size_t i = 0; i < FRAMES; i++) {
		struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
		if (!frame || !rte_pktmbuf_append(frame, 64))
			rte_exit(EXIT_FAILURE, "no frame\n");
		/* One in 16 goes to an address that nothing knows. */
		addresses[i] = address_of(i % 16 ? overbank_mix(~i) % known : known + i);
		memset(rte_pktmbuf_mtod(frame, void *), 0, 64);
		memcpy(rte_pktmbuf_mtod(frame, void *), &addresses[i], RTE_ETHER_ADDR_LEN);
		if (rte_eth_tx_burst((uint16_t)port, 0, &frame, 1) != 1)
			rte_exit(EXIT_FAILURE, "the ring takes no frame\n");
	}

	static lookup *const lookups[] = {by_overbank, by_rte_hash};
	static const char *const names[] = {"overbank", "rte_hash"};
	static double rates[2][2][ROUNDS_MAX];
	size_t frames = (size_t)FRAMES * LOOPS;
	for (size_t round = 0; round < rounds; round++) {
		uint64_t sums[2][2];
		for (size_t turn = 0; turn < 2; turn++) {
			/* The first of a round is another one each time. */
			size_t which = (round + turn) % 2;
			double seconds;
			sums[which][0] = forward((uint16_t)port, &tables, lookups[which], frames,
					&seconds);
			rates[which][0][round] = (double)frames / seconds / 1e6;
			sums[which][1] = look_up(&tables, lookups[which], addresses, frames,
					&seconds);
			rates[which][1][round] = (double)frames / seconds / 1e6;
		}
		if (sums[0][0] != sums[1][0] || sums[0][1] != sums[1][1] || !sums[0][0])
			rte_exit(EXIT_FAILURE, "the tables do not agree\n");
	}
	printf("%zu addresses, %zu rounds of %zu frames in turns, bursts of %d; the tables agree\n",
			known, rounds,
	       frames, BURST);
	printf("%-10s %28s %28s\n", "10^6/s", "forwarded (median, range)",
			"looked up (median, range)");
	for (size_t which = 0; which < 2; which++) {
		printf("%-10s", names[which]);
		for (size_t what = 0; what < 2; what++) {
			double *sorted = rates[which][what];
			qsort(sorted, rounds, sizeof *sorted, ascending);
			printf("   %9.1f (%.1f to %.1f)", sorted[rounds / 2], sorted[0],
					sorted[rounds - 1]);
		}
		printf("\n");
	}
	overbank_fib_reader_destroy(tables.overbank);
	overbank_fib_destroy(fib);
	rte_hash_free(tables.hash);
	return 0;
}
