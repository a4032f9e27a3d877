/* A source of packets for Open vSwitch that needs no network card and no DPDK driver API.
 *
 *   net_nullN (makes empty buffers) ── receive callback of ours: writes the frame of the next flow
 *
 * Loaded into ovs-vswitchd by LD_PRELOAD. When a port `net_nullN` is started and the folder named by
 * OVERBANK_FLOWGEN holds `net_nullN.ids`, the port's first queue receives the flows of that file, in
 * order, again and again. A header of 16 bytes comes first:
 *
 *   0  "OBFLOWS1"     8  u32 classes (frame.h)     12  u32 log2 of the number of ids     16  u32 ids, in host order
 *
 * Without classes (0), ids are places in a list of frames that follows them:
 *
 *   0  u32 frames of others     4  u32 frames of an attack     8  the frames, 60 bytes each
 *
 * and the id 0xffffffff is the next frame of the attack, so that none comes again before all have
 * come. Frames are those of frame.h.
 *
 * With `net_nullN.sessions` instead, frames are those of a gateway's sessions:
 *
 *   0  "OBSESSN1"     8  u32 log2 of the ids of a sequence     12  u32 sequences
 *   16 struct sessions (frame.h)     296  u32 ids, one sequence after the other
 *
 * The third word of `net_nullN.stats` chooses the sequence; others may write it.
 *
 * With `net_nullN.out`, the frames that the port sends are written to it until it is full:
 *
 *   0  u64 frames     8  u64 room     16  frames, 256 bytes each: u16 length, bytes
 *
 * Only public headers of DPDK are used: a driver of our own would need internal ones, which Debian
 * does not package, and would have to match the very build of the library.
 *
 * What the callback costs is counted in TSC cycles and kept, with the packets, in `net_nullN.stats`
 * (u64 packets, u64 cycles), so that it can be subtracted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "frame.h"

#define HEADER_LEN 16

struct source {
	uint32_t classes;
	const uint32_t *ids;
	struct listed listed;
	uint64_t next, mask;
	volatile uint64_t *stats;
	const struct sessions *sessions;
	uint64_t sequences;
};

#define OUT_STRIDE 256

struct out {
	uint64_t frames, room;
	uint8_t bytes[];
};

static void *map(const char *name, const char *suffix, size_t *len, int write)
{
	char path[4096];
	const char *folder = getenv("OVERBANK_FLOWGEN");
	struct stat st;
	void *p = MAP_FAILED;

	if (!folder || snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix) >= (int)sizeof path)
		return NULL;
	int fd = open(path, write ? O_RDWR | O_CREAT : O_RDONLY, 0600);
	if (fd < 0)
		return NULL;
	if (write ? ftruncate(fd, *len) == 0 : fstat(fd, &st) == 0) {
		if (!write)
			*len = st.st_size;
		p = mmap(NULL, *len, write ? PROT_READ | PROT_WRITE : PROT_READ,
			 (write ? MAP_SHARED : MAP_SHARED | MAP_POPULATE), fd, 0);
	}
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static uint16_t fill(uint16_t port __rte_unused, uint16_t queue __rte_unused, struct rte_mbuf **bufs,
		     uint16_t n, uint16_t most __rte_unused, void *arg)
{
	struct source *s = arg;
	uint64_t start = rte_rdtsc();

	for (uint16_t i = 0; i < n; i++) {
		uint8_t *frame = rte_pktmbuf_mtod(bufs[i], uint8_t *);
		uint32_t id = s->ids[s->next++ & s->mask];

		if (s->classes)
			write_frame(frame, id, s->classes);
		else
			write_listed(&s->listed, frame, id);
		bufs[i]->data_len = bufs[i]->pkt_len = FRAME_LEN;
	}
	s->stats[0] += n;
	s->stats[1] += rte_rdtsc() - start;
	return n;
}

static uint16_t fill_sessions(uint16_t port __rte_unused, uint16_t queue __rte_unused,
			      struct rte_mbuf **bufs, uint16_t n, uint16_t most __rte_unused, void *arg)
{
	struct source *s = arg;
	uint64_t start = rte_rdtsc();
	const uint32_t *ids = s->ids + s->stats[2] % s->sequences * (s->mask + 1);

	for (uint16_t i = 0; i < n; i++) {
		write_session(s->sessions, rte_pktmbuf_mtod(bufs[i], uint8_t *), ids[s->next++ & s->mask]);
		bufs[i]->data_len = bufs[i]->pkt_len = s->sessions->len;
	}
	s->stats[0] += n;
	s->stats[1] += rte_rdtsc() - start;
	return n;
}

static uint16_t keep(uint16_t port __rte_unused, uint16_t queue __rte_unused, struct rte_mbuf **bufs,
		     uint16_t n, void *arg)
{
	struct out *out = arg;

	for (uint16_t i = 0; i < n && out->frames < out->room; i++) {
		uint16_t len = bufs[i]->data_len;
		uint8_t *to = out->bytes + out->frames * OUT_STRIDE;
		if (len <= OUT_STRIDE - 2) {
			memcpy(to, &len, 2);
			memcpy(to + 2, rte_pktmbuf_mtod(bufs[i], uint8_t *), len);
			out->frames++;
		}
	}
	return n;
}

/* Reads the list of frames behind the ids; 0 if it is not there. */
static int read_listed(struct source *s, const uint8_t *list, const uint8_t *end)
{
	if (end - list < 8)
		return 0;
	memcpy(&s->listed.others, list, 4);
	memcpy(&s->listed.attack, list + 4, 4);
	s->listed.frames = (const uint8_t (*)[FRAME_LEN])(list + 8);
	uint64_t frames = (uint64_t)s->listed.others + s->listed.attack;
	if ((uint64_t)(end - list - 8) < frames * FRAME_LEN)
		return 0;
	for (uint64_t i = 0; i <= s->mask; i++)
		if (s->ids[i] == NEXT_OF_ATTACK ? !s->listed.attack : s->ids[i] >= s->listed.others)
			return 0;
	return 1;
}

/* The source of a port with sessions, or NULL if there is no file for it. */
static struct source *open_sessions(struct source *s, const char *name)
{
	const size_t head = 16 + sizeof(struct sessions);
	size_t len = 0, stats_len = 4096;
	uint32_t log2, sequences;
	const uint8_t *file = map(name, "sessions", &len, 0);

	if (!file || len < head || memcmp(file, "OBSESSN1", 8) != 0)
		return NULL;
	memcpy(&log2, file + 8, 4);
	memcpy(&sequences, file + 12, 4);
	s->sessions = (const struct sessions *)(file + 16);
	s->stats = map(name, "stats", &stats_len, 1);
	if (!s->stats || log2 >= 40 || !sequences || len < head + ((4ull * sequences) << log2) ||
	    s->sessions->len > TEMPLATE_MAX)
		return NULL;
	s->mask = (1ull << log2) - 1;
	s->sequences = sequences;
	s->ids = (const uint32_t *)(file + head);
	return s;
}

/* The source of a port, or NULL if there is no file for it. */
static struct source *open_source(uint16_t port)
{
	static struct source sources[RTE_MAX_ETHPORTS];
	struct source *s = &sources[port];
	char name[RTE_ETH_NAME_MAX_LEN];
	size_t len = 0, stats_len = 4096;
	uint32_t log2;

	if (s->ids || rte_eth_dev_get_name_by_port(port, name) != 0)
		return NULL; /* fed already, when the port was started before */
	const uint8_t *file = map(name, "ids", &len, 0);
	if (!file)
		return open_sessions(s, name); /* or no port of ours */
	if (len >= HEADER_LEN && memcmp(file, "OBFLOWS1", 8) == 0) {
		memcpy(&s->classes, file + 8, 4);
		memcpy(&log2, file + 12, 4);
		s->stats = map(name, "stats", &stats_len, 1);
		if (s->stats && (s->classes & 0xff) <= 31 && s->classes >> 8 <= 31 && log2 < 40 && len >= HEADER_LEN + (4ull << log2)) {
			s->mask = (1ull << log2) - 1;
			s->ids = (const uint32_t *)(file + HEADER_LEN);
			if (s->classes || read_listed(s, file + HEADER_LEN + (4ull << log2), file + len))
				return s;
			s->ids = NULL;
		}
	}
	fprintf(stderr, "flowgen: %s.ids is not a file of flow ids\n", name);
	return NULL;
}

/* Writes what a port sends to its file, if it has one, on its first two queues. */
static void watch(uint16_t port)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	char path[4096];
	const char *folder = getenv("OVERBANK_FLOWGEN");
	struct stat st;

	if (!folder || rte_eth_dev_get_name_by_port(port, name) != 0 ||
	    snprintf(path, sizeof path, "%s/%s.out", folder, name) >= (int)sizeof path)
		return;
	int fd = open(path, O_RDWR);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size > (off_t)sizeof(struct out)) {
		struct out *out = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		for (uint16_t queue = 0; out != MAP_FAILED && queue < 2; queue++)
			rte_eth_add_tx_callback(port, queue, keep, out);
	}
	close(fd);
}

/* Stands before DPDK's function of this name: the queues of the port are there when it returns. */
int rte_eth_dev_start(uint16_t port)
{
	int (*start)(uint16_t) = (int (*)(uint16_t))dlsym(RTLD_NEXT, "rte_eth_dev_start");
	int error = start ? start(port) : -ENOSYS;

	if (error == 0) {
		struct source *s = open_source(port);
		if (s && !rte_eth_add_rx_callback(port, 0, s->sessions ? fill_sessions : fill, s))
			fprintf(stderr, "flowgen: no receive callback on port %u\n", port);
		watch(port);
	}
	return error;
}
