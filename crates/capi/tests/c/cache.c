/* Flow caches: every match beside an array of what was inserted. */
#include "test.h"

enum { KEYS = 1000, ENTRIES = 256 };

static struct overbank_cache *make(const char *design, size_t entries, uint32_t value_bits)
{
	struct overbank_cache_options options = {.seed = 7, .value_bits = value_bits, .isa = isa};
	struct overbank_cache *cache = NULL;
	OK(overbank_cache_create(design, entries, &options, &cache));
	CHECK(cache);
	return cache;
}

/* Hash of key `k`, whose value is `k`. */
static uint64_t hash_of(uint32_t k)
{
	return overbank_hash((const uint8_t *)&k, sizeof k, 1);
}

/* Verifies a burst as a switch would; returns how many keys were found, and counts wrong matches. */
static size_t verify(struct overbank_burst *burst, const struct overbank_cache *cache,
		     const uint32_t *keys, const uint64_t *hashes, size_t count,
		     const uint8_t *inserted, uint64_t *wrong)
{
	size_t found = 0;
	CHECK(burst->hits == 0 && (burst->matched >> (count % 32) == 0 || count == 32));
	for (size_t i = 0; i < count; i++) {
		CHECK((burst->masks[i] != 0) == (burst->matched >> i & 1));
		while (burst->matched >> i & 1) {
			uint32_t mask = burst->masks[i], value = burst->values[i];
			/* A value that was never inserted, or that was erased, is nowhere. */
			CHECK(value < KEYS && inserted[value]);
			if (value == keys[i]) {
				burst->hits |= UINT32_C(1) << i;
				found++;
				break;
			}
			enum overbank_status said = overbank_burst_next(burst, cache, hashes[i], i);
			CHECK(said == (burst->matched >> i & 1 ? OVERBANK_OK : OVERBANK_ABSENT));
			CHECK(said == (burst->masks[i] ? OVERBANK_OK : OVERBANK_ABSENT));
			CHECK(!burst->masks[i] || (burst->masks[i] & -burst->masks[i]) > (mask & -mask));
			++*wrong;
		}
	}
	return found;
}

/* How many of all keys the cache has. */
static size_t found_of_all(struct overbank_burst *burst, const struct overbank_cache *cache,
			   const uint8_t *inserted)
{
	size_t found = 0;
	uint64_t wrong = 0;
	for (uint32_t k = 0; k < KEYS; k++) {
		uint64_t hash = hash_of(k);
		OK(overbank_burst_probe(burst, cache, &hash, 1, NULL, 0));
		found += verify(burst, cache, &k, &hash, 1, inserted, &wrong);
	}
	return found;
}

static void twin(const char *design, uint32_t value_bits)
{
	struct overbank_cache *cache = make(design, ENTRIES, value_bits);
	struct overbank_burst *burst = NULL;
	OK(overbank_burst_create(&burst));
	uint8_t inserted[KEYS] = {0};
	uint64_t state = 1;
	struct overbank_cache_counters expected = {0}, counters;
	uint32_t ahead[OVERBANK_BURST] = {0};
	uint64_t ahead_hashes[OVERBANK_BURST] = {0};
	size_t ahead_count = 0;

	for (size_t operation = 0; operation < operations; operation += OVERBANK_BURST) {
		uint32_t keys[OVERBANK_BURST];
		uint64_t hashes[OVERBANK_BURST];
		size_t count = ahead_count;
		memcpy(keys, ahead, sizeof keys);
		memcpy(hashes, ahead_hashes, sizeof hashes);
		ahead_count = next_random(&state) % (OVERBANK_BURST + 1);
		for (size_t i = 0; i < ahead_count; i++) {
			ahead[i] = next_random(&state) % KEYS;
			ahead_hashes[i] = hash_of(ahead[i]);
		}
		bool looks_ahead = next_random(&state) % 2;
		OK(overbank_burst_probe(burst, cache, hashes, count,
					looks_ahead ? ahead_hashes : NULL,
					looks_ahead ? ahead_count : 0));
		expected.hits += verify(burst, cache, keys, hashes, count, inserted,
					&expected.false_positives);
		expected.lookups += count;
		OK(overbank_burst_commit(burst, cache, hashes, count));
		for (size_t i = 0; i < count; i++) {
			if (!(burst->hits >> i & 1)) {
				OK(overbank_cache_insert(cache, hashes[i], keys[i]));
				inserted[keys[i]] = 1;
				expected.inserts++;
			} else if (next_random(&state) % 16 == 0) {
				/* Twice of one key in a burst: the second time it is gone. */
				enum overbank_status said = overbank_cache_erase(cache, hashes[i],
						keys[i]);
				CHECK(said == OVERBANK_OK || said == OVERBANK_ABSENT);
				expected.removals += said == OVERBANK_OK;
				/* A key that missed twice in a burst is inserted once: the second replaces. */
				STATUS(OVERBANK_ABSENT, overbank_cache_erase(cache, hashes[i],
						keys[i]));
				inserted[keys[i]] = 0;
			}
		}
	}
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == expected.lookups && counters.hits == expected.hits);
	CHECK(counters.false_positives == expected.false_positives);
	CHECK(counters.inserts == expected.inserts && counters.removals == expected.removals);
	CHECK(counters.evictions > 0 && counters.hits > 0);
	struct overbank_cache_info info;
	OK(overbank_cache_info(cache, &info));
	CHECK(info.len == counters.inserts - counters.replacements - counters.evictions - counters.removals);
	CHECK(info.len == found_of_all(burst, cache, inserted));
	CHECK(info.len <= info.capacity && info.capacity >= ENTRIES &&
			info.buckets <= info.capacity);
	CHECK(info.bytes >= info.capacity * (2 + value_bits / 8) && info.candidates >= 4);

	OK(overbank_cache_clear(cache));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.removals == expected.removals + info.len);
	OK(overbank_cache_counters_reset(cache));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups + counters.hits + counters.inserts + counters.removals == 0);
	OK(overbank_cache_info(cache, &info));
	CHECK(info.len == 0 && found_of_all(burst, cache, inserted) == 0);
	overbank_burst_destroy(burst);
	overbank_cache_destroy(cache);
}

static void refuses(void)
{
	struct overbank_cache *cache = make("blp-2-16+pblru", 1024, 16), *none = NULL;
	struct overbank_cache_options options = {.isa = isa};

	INVALID("design is NULL", overbank_cache_create(NULL, 1024, NULL, &none));
	INVALID("out is NULL", overbank_cache_create("set-4", 1024, NULL, NULL));
	INVALID("out is not aligned", overbank_cache_create("set-4", 1024, NULL,
			ASKEW(struct overbank_cache *, &none)));
	INVALID("set-5", overbank_cache_create("set-5", 1024, NULL, &none));
	INVALID("", overbank_cache_create("", 1024, NULL, &none));
	INVALID("UTF-8", overbank_cache_create("set-4\xff", 1024, NULL, &none));
	INVALID("", overbank_cache_create("set-4", 0, NULL, &none));
	INVALID("", overbank_cache_create("set-4", SIZE_MAX, NULL, &none));
	INVALID("options is not aligned", overbank_cache_create("set-4", 1024,
			ASKEW(struct overbank_cache_options, &options), &none));
	options.value_bits = 17;
	INVALID("16 or 32, not 17", overbank_cache_create("set-4", 1024, &options, &none));
	options.value_bits = 0;
	options.isa = "mmx";
	INVALID("mmx", overbank_cache_create("set-4", 1024, &options, &none));
	options.isa = isa;
	options.unused = 1;
	INVALID("reserved", overbank_cache_create("set-4", 1024, &options, &none));
	options.unused = 0;
	for (int i = 0; i < 4; i++) {
		options.reserved[i] = 1;
		INVALID("reserved", overbank_cache_create("set-4", 1024, &options, &none));
		options.reserved[i] = 0;
	}
	CHECK(!none);

	uint64_t hashes[OVERBANK_BURST + 1] = {1};
	struct overbank_burst *burst = NULL;
	INVALID("out is NULL", overbank_burst_create(NULL));
	OK(overbank_burst_create(&burst));
	const uint32_t *values = burst->values, *masks = burst->masks;
	INVALID("burst is NULL", overbank_burst_probe(NULL, cache, hashes, 1, NULL, 0));
	INVALID("burst is not aligned", overbank_burst_probe(ASKEW(struct overbank_burst, burst),
			cache, hashes, 1, NULL, 0));
	INVALID("handle is NULL", overbank_burst_probe(burst, NULL, hashes, 1, NULL, 0));
	INVALID("not one of overbank's", overbank_burst_probe(burst,
			ASKEW(struct overbank_cache, cache), hashes, 1, NULL, 0));
	INVALID("hashes is NULL", overbank_burst_probe(burst, cache, NULL, 1, NULL, 0));
	INVALID("hashes is not aligned", overbank_burst_probe(burst, cache, ASKEW(uint64_t, hashes),
			1, NULL, 0));
	INVALID("count: at most 32, not 33", overbank_burst_probe(burst, cache, hashes, 33, NULL, 0));
	INVALID("", overbank_burst_probe(burst, cache, hashes, SIZE_MAX, NULL, 0));
	INVALID("next is NULL", overbank_burst_probe(burst, cache, hashes, 1, NULL, 1));
	INVALID("next_count: at most 32, not 33", overbank_burst_probe(burst, cache, hashes, 1,
			hashes, 33));
	CHECK(burst->matched == 0 && burst->hits == 0 && burst->masks[0] == 0);
	OK(overbank_burst_probe(burst, cache, NULL, 0, NULL, 0));
	OK(overbank_burst_probe(burst, cache, NULL, 0, hashes, 0));

	/* commit and next before any probe, and hits that nothing gave out. */
	struct overbank_cache_counters counters;
	INVALID("the burst has 0 keys, not 0", overbank_burst_next(burst, cache, hashes[0], 0));
	burst->hits = UINT32_MAX;
	OK(overbank_burst_commit(burst, cache, hashes, 0));
	OK(overbank_burst_commit(burst, cache, hashes, OVERBANK_BURST));
	INVALID("burst is NULL", overbank_burst_commit(NULL, cache, hashes, 1));
	INVALID("handle is NULL", overbank_burst_commit(burst, NULL, hashes, 1));
	INVALID("hashes is NULL", overbank_burst_commit(burst, cache, NULL, 1));
	INVALID("count: at most 32, not 33", overbank_burst_commit(burst, cache, hashes, 33));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == 0 && counters.hits == 0);
	OK(overbank_burst_probe(burst, cache, hashes, OVERBANK_BURST, NULL, 0));
	burst->hits = UINT32_MAX;
	OK(overbank_burst_commit(burst, cache, hashes, OVERBANK_BURST));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == OVERBANK_BURST && counters.hits == 0);

	/* Of a burst, those count that were probed. */
	OK(overbank_burst_probe(burst, cache, hashes, 3, NULL, 0));
	OK(overbank_burst_commit(burst, cache, hashes, OVERBANK_BURST));
	OK(overbank_burst_commit(burst, cache, hashes, 2));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == OVERBANK_BURST + 5);

	/* A wrong match: the hash is there, the value is another key's. */
	OK(overbank_cache_insert(cache, hashes[0], 9));
	OK(overbank_cache_counters_reset(cache));
	OK(overbank_burst_probe(burst, cache, hashes, 1, NULL, 0));
	CHECK(burst->matched == 1 && burst->values[0] == 9 && burst->hits == 0);
	INVALID("burst is NULL", overbank_burst_next(NULL, cache, hashes[0], 0));
	INVALID("handle is NULL", overbank_burst_next(burst, NULL, hashes[0], 0));
	INVALID("i: the burst has 1 keys, not 1", overbank_burst_next(burst, cache, hashes[0], 1));
	INVALID("not 18446744073709551615", overbank_burst_next(burst, cache, 1, SIZE_MAX));
	burst->hits = 1;
	STATUS(OVERBANK_ABSENT, overbank_burst_next(burst, cache, hashes[0], 0));
	CHECK(burst->matched == 0 && burst->masks[0] == 0 && burst->hits == 0);
	/* Of a miss it changes and counts nothing. */
	STATUS(OVERBANK_ABSENT, overbank_burst_next(burst, cache, hashes[0], 0));
	OK(overbank_burst_commit(burst, cache, hashes, 1));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == 1 && counters.hits == 0 && counters.false_positives == 1);

	/* What it was right about in the probe before is forgotten. */
	OK(overbank_burst_probe(burst, cache, hashes, 1, NULL, 0));
	CHECK(burst->matched == 1 && burst->hits == 0);
	burst->hits = 1;
	OK(overbank_burst_commit(burst, cache, hashes, 1));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.hits == 1 && counters.false_positives == 1);
	CHECK(burst->values == values && burst->masks == masks);

	/* Two keys of one fingerprint, in buckets side by side of 256: the first's second match. */
	struct overbank_cache *beside = make("blp-2-4", 1024, 16);
	uint64_t first = UINT64_C(5) << 56 | 7, second = UINT64_C(6) << 56 | 7;
	OK(overbank_cache_insert(beside, first, 1));
	OK(overbank_cache_insert(beside, second, 2));
	OK(overbank_burst_probe(burst, beside, &first, 1, NULL, 0));
	CHECK(burst->masks[0] == (1 | 1 << 4) && burst->values[0] == 1);
	OK(overbank_burst_next(burst, beside, first, 0));
	CHECK(burst->masks[0] == 1 << 4 && burst->values[0] == 2 && burst->matched == 1);
	/* Committed to a cache that it is not of: nothing there moves. */
	burst->hits = 1;
	OK(overbank_burst_commit(burst, cache, hashes, 1));
	STATUS(OVERBANK_ABSENT, overbank_burst_next(burst, beside, first, 0));
	CHECK(burst->matched == 0 && burst->hits == 0);
	overbank_cache_destroy(beside);
	overbank_burst_destroy(burst);
	overbank_burst_destroy(NULL);

	INVALID("", overbank_cache_insert(cache, 1, UINT16_MAX + 1));
	INVALID("handle is NULL", overbank_cache_insert(NULL, 1, 1));
	INVALID("handle is NULL", overbank_cache_erase(NULL, 1, 1));
	STATUS(OVERBANK_ABSENT, overbank_cache_erase(cache, hashes[0], 8));
	OK(overbank_cache_erase(cache, hashes[0], 9));
	STATUS(OVERBANK_ABSENT, overbank_cache_erase(cache, hashes[0], 9));

	struct overbank_cache_info info;
	INVALID("handle is NULL", overbank_cache_clear(NULL));
	INVALID("handle is NULL", overbank_cache_counters(NULL, &counters));
	INVALID("out is NULL", overbank_cache_counters(cache, NULL));
	INVALID("out is not aligned", overbank_cache_counters(cache,
			ASKEW(struct overbank_cache_counters, &counters)));
	INVALID("handle is NULL", overbank_cache_counters_reset(NULL));
	INVALID("handle is NULL", overbank_cache_info(NULL, &info));
	INVALID("out is NULL", overbank_cache_info(cache, NULL));
	overbank_cache_destroy(cache);
	overbank_cache_destroy(NULL);
	overbank_cache_destroy(NULL);
}

void test_cache(void)
{
	static const char *const designs[] = {
		"set-4", "set-8", "cuckoo-2-4", "cuckoo-2-16+half-bubble", "blp-2-4",
				"blp-2-4+pblru/8", "blp-2-16+pblru",
	};
	refuses();
	for (size_t i = 0; i < sizeof designs / sizeof *designs; i++)
		for (uint32_t bits = 16; bits <= 32; bits += 16)
			twin(designs[i], bits);

	/* 32-bit values keep all bits. */
	struct overbank_cache *cache = make("blp-2-4", 1024, 32);
	uint64_t hash = hash_of(1);
	struct overbank_burst *burst = NULL;
	OK(overbank_burst_create(&burst));
	OK(overbank_cache_insert(cache, hash, UINT32_MAX));
	OK(overbank_burst_probe(burst, cache, &hash, 1, NULL, 0));
	CHECK(burst->matched == 1 && burst->values[0] == UINT32_MAX);
	overbank_burst_destroy(burst);
	overbank_cache_destroy(cache);

	/* What is destroyed is given back: this would be 1 GiB. */
	long before = address_space();
	for (int i = 0; i < 64; i++)
		overbank_cache_destroy(make("set-16", 4 << 20, 16));
	CHECK(address_space() - before < 256 << 20);
}
