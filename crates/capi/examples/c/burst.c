/* A flow cache in the loop of a switch: packets come in bursts, the cache says which rule is
 * perhaps theirs, the rule is compared, and what the cache did not know it is told. */
#include <stdio.h>
#include <stdlib.h>

#include <overbank.h>

enum { RULES = 20000, BURSTS = 50000 };

/* A rule of the slow path: the key that it is for, and what to do. */
struct rule {
	uint64_t key;
	uint16_t port;
};

static struct rule rules[RULES];

static void must(enum overbank_status status)
{
	if (status != OVERBANK_OK) {
		fprintf(stderr, "%s: %s\n", overbank_strerror(status), overbank_last_error());
		exit(1);
	}
}

/* The slow path: which rule is for this key. (Here keys are numbers, so it is not slow.) */
static uint32_t look_for(uint64_t key)
{
	return (uint32_t)(key % RULES);
}

/* Receives packets: here, keys of flows of which some come often. */
static size_t receive(uint64_t *keys)
{
	static uint64_t time;
	for (size_t i = 0; i < OVERBANK_BURST; i++) {
		uint64_t random = overbank_mix(time++);
		keys[i] = (random >> 32) % RULES * (random & 0xffff) >> 16;
	}
	return OVERBANK_BURST;
}

int main(void)
{
	struct overbank_cache *cache = NULL;
	struct overbank_burst *burst = NULL;
	uint64_t sent[4] = {0};

	must(overbank_cache_create("blp-2-16+pblru", 8192, NULL, &cache));
	must(overbank_burst_create(&burst));
	for (uint64_t k = 0; k < RULES; k++)
		rules[k] = (struct rule){.key = k, .port = (uint16_t)(k % 4)};

	for (int round = 0; round < BURSTS; round++) {
		uint64_t keys[OVERBANK_BURST], hashes[OVERBANK_BURST];
		size_t count = receive(keys);

		for (size_t i = 0; i < count; i++)
			hashes[i] = overbank_mix(keys[i]);
		must(overbank_burst_probe(burst, cache, hashes, count, NULL, 0));
		for (size_t i = 0; i < count; i++) {
			/* A match is a hint: only the rule's key decides. */
			while (burst->matched >> i & 1) {
				if (rules[burst->values[i]].key == keys[i]) {
					burst->hits |= UINT32_C(1) << i;
					break;
				}
				if (overbank_burst_next(burst, cache, hashes[i], i) != OVERBANK_OK)
					break;
			}
		}
		must(overbank_burst_commit(burst, cache, hashes, count));
		for (size_t i = 0; i < count; i++) {
			uint32_t rule = burst->values[i];
			if (!(burst->hits >> i & 1)) {
				rule = look_for(keys[i]);
				must(overbank_cache_insert(cache, hashes[i], rule));
			}
			sent[rules[rule].port]++;
		}
	}

	struct overbank_cache_counters counters;
	struct overbank_cache_info info;
	must(overbank_cache_counters(cache, &counters));
	must(overbank_cache_info(cache, &info));
	printf("%zu of %zu slots, %zu bytes\n", info.len, info.capacity, info.bytes);
	printf("%.1f %% of %llu packets found, %llu wrong matches\n",
	       100. * (double)counters.hits / (double)counters.lookups,
	       (unsigned long long)counters.lookups, (unsigned long long)counters.false_positives);
	printf("ports: %llu %llu %llu %llu\n", (unsigned long long)sent[0],
	       (unsigned long long)sent[1], (unsigned long long)sent[2],
			(unsigned long long)sent[3]);
	overbank_burst_destroy(burst);
	overbank_cache_destroy(cache);
	return 0;
}
