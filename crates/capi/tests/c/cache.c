/* Flow caches: every hint beside an array of what was inserted. */
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

/* Verifies a burst's hints as a switch would: returns how many keys were found. */
static size_t verify(const struct overbank_cache *cache, const uint32_t *keys,
		const uint64_t *hashes,
		     size_t count, struct overbank_hint *hints, const uint8_t *inserted)
{
	size_t found = 0;
	for (size_t i = 0; i < count; i++) {
		while (hints[i].slot != OVERBANK_MISS) {
			/* A value that was never inserted, or that was erased, is nowhere. */
			CHECK(hints[i].value < KEYS && inserted[hints[i].value]);
			if (hints[i].value == keys[i]) {
				found++;
				break;
			}
			OK(overbank_cache_next(cache, hashes[i], &hints[i]));
		}
	}
	return found;
}

/* Probes, verifies and commits a burst in place; writes what the loop with hints would say. */
static size_t in_place(struct overbank_burst *burst, struct overbank_cache *cache,
		       const uint32_t *keys, const uint64_t *hashes, size_t count,
		       const uint64_t *next, size_t next_count, struct overbank_hint *hints,
		       const uint8_t *inserted)
{
	struct overbank_hint expected[OVERBANK_BURST];
	size_t found = 0;
	OK(overbank_cache_probe(cache, hashes, count, expected));
	OK(overbank_burst_probe(burst, cache, hashes, count, next, next_count));
	CHECK(burst->refused == 0 && (burst->matched >> (count % 32) == 0 || count == 32));
	for (size_t i = 0; i < count; i++) {
		CHECK(burst->slots[i] == OVERBANK_NO_SLOT);
		CHECK((burst->masks[i] != 0) == (burst->matched >> i & 1));
		hints[i] = (struct overbank_hint){.slot = OVERBANK_MISS};
		if (burst->masks[i]) {
			hints[i].slot = (uint16_t)__builtin_ctz(burst->masks[i]);
			hints[i].value = burst->values[i];
			CHECK(hints[i].value == expected[i].value);
		}
		CHECK(hints[i].slot == expected[i].slot);
		found += verify(cache, &keys[i], &hashes[i], 1, &hints[i], inserted);
		burst->refused += hints[i].refused;
		if (hints[i].slot != OVERBANK_MISS)
			burst->slots[i] = (uint8_t)hints[i].slot;
	}
	OK(overbank_burst_commit(burst, cache, hashes, count));
	return found;
}

/* How many of all keys the cache has. */
static size_t found_of_all(const struct overbank_cache *cache, const uint8_t *inserted)
{
	size_t found = 0;
	for (uint32_t k = 0; k < KEYS; k++) {
		uint64_t hash = hash_of(k);
		struct overbank_hint hint;
		OK(overbank_cache_probe(cache, &hash, 1, &hint));
		found += verify(cache, &k, &hash, 1, &hint, inserted);
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
		struct overbank_hint hints[OVERBANK_BURST];
		size_t count = ahead_count;
		memcpy(keys, ahead, sizeof keys);
		memcpy(hashes, ahead_hashes, sizeof hashes);
		ahead_count = next_random(&state) % (OVERBANK_BURST + 1);
		for (size_t i = 0; i < ahead_count; i++) {
			ahead[i] = next_random(&state) % KEYS;
			ahead_hashes[i] = hash_of(ahead[i]);
		}
		size_t way = next_random(&state) % 4;
		if (way == 0)
			OK(overbank_cache_probe(cache, hashes, count, hints));
		else if (way == 1)
			OK(overbank_cache_probe_ahead(cache, hashes, count, ahead_hashes,
					ahead_count, hints));
		if (way < 2)
			expected.hits += verify(cache, keys, hashes, count, hints, inserted);
		else
			expected.hits += in_place(burst, cache, keys, hashes, count,
						  way == 2 ? NULL : ahead_hashes,
						  way == 2 ? 0 : ahead_count, hints, inserted);
		expected.lookups += count;
		for (size_t i = 0; i < count; i++)
			expected.false_positives += hints[i].refused;
		if (way < 2)
			OK(overbank_cache_commit(cache, hashes, count, hints));
		for (size_t i = 0; i < count; i++) {
			if (hints[i].slot == OVERBANK_MISS) {
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
	CHECK(info.len == found_of_all(cache, inserted));
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
	CHECK(info.len == 0 && found_of_all(cache, inserted) == 0);
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
	struct overbank_hint hints[OVERBANK_BURST + 1], before[OVERBANK_BURST + 1];
	memset(hints, 0x5a, sizeof hints);
	memcpy(before, hints, sizeof hints);
	INVALID("handle is NULL", overbank_cache_probe(NULL, hashes, 1, hints));
	INVALID("not one of overbank's", overbank_cache_probe(ASKEW(struct overbank_cache, cache),
			hashes, 1, hints));
	INVALID("hashes is NULL", overbank_cache_probe(cache, NULL, 1, hints));
	INVALID("hints is NULL", overbank_cache_probe(cache, hashes, 1, NULL));
	INVALID("hashes is not aligned", overbank_cache_probe(cache, ASKEW(uint64_t, hashes), 1,
			hints));
	INVALID("hints is not aligned", overbank_cache_probe(cache, hashes, 1,
			ASKEW(struct overbank_hint, hints)));
	INVALID("at most 32, not 33", overbank_cache_probe(cache, hashes, 33, hints));
	INVALID("", overbank_cache_probe(cache, hashes, SIZE_MAX, hints));
	INVALID("next_count: at most 32, not 33", overbank_cache_probe_ahead(cache, hashes, 1,
			hashes, 33, hints));
	INVALID("next is NULL", overbank_cache_probe_ahead(cache, hashes, 1, NULL, 1, hints));
	INVALID("hashes is NULL", overbank_cache_probe_ahead(cache, NULL, 1, NULL, 0, hints));
	INVALID("handle is NULL", overbank_cache_probe_ahead(NULL, NULL, 0, hashes, 1, NULL));
	CHECK(memcmp(before, hints, sizeof hints) == 0);
	OK(overbank_cache_probe(cache, NULL, 0, NULL));
	OK(overbank_cache_probe_ahead(cache, NULL, 0, NULL, 0, NULL));

	struct overbank_hint miss = {.slot = OVERBANK_MISS};
	INVALID("handle is NULL", overbank_cache_next(NULL, 1, &miss));
	INVALID("hint is NULL", overbank_cache_next(cache, 1, NULL));
	INVALID("hint is not aligned", overbank_cache_next(cache, 1, ASKEW(struct overbank_hint,
			hints)));
	/* next on a miss changes and counts nothing; on a slot that cannot be, it is a miss. */
	OK(overbank_cache_next(cache, 1, &miss));
	CHECK(miss.slot == OVERBANK_MISS && miss.refused == 0);
	struct overbank_hint wild = {.slot = OVERBANK_MISS - 1, .refused = UINT16_MAX};
	OK(overbank_cache_next(cache, 1, &wild));
	CHECK(wild.slot == OVERBANK_MISS && wild.refused == UINT16_MAX);

	/* commit before any probe, of slots that nothing gave out. */
	struct overbank_cache_counters counters;
	INVALID("handle is NULL", overbank_cache_commit(NULL, hashes, 1, hints));
	INVALID("hashes is NULL", overbank_cache_commit(cache, NULL, 1, hints));
	INVALID("hints is NULL", overbank_cache_commit(cache, hashes, 1, NULL));
	INVALID("hints is not aligned", overbank_cache_commit(cache, hashes, 1,
			ASKEW(struct overbank_hint, hints)));
	INVALID("at most 32, not 33", overbank_cache_commit(cache, hashes, 33, hints));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == 0);
	OK(overbank_cache_commit(cache, NULL, 0, NULL));
	OK(overbank_cache_insert(cache, hashes[0], 9));
	for (uint32_t slot = 0; slot <= UINT16_MAX; slot++) {
		hints[0] = (struct overbank_hint){.slot = slot};
		OK(overbank_cache_commit(cache, hashes, 1, hints));
	}
	OK(overbank_cache_probe(cache, hashes, 1, hints));
	CHECK(hints[0].slot != OVERBANK_MISS && hints[0].value == 9 && hints[0].refused == 0);

	/* A wrong match: the hash is there, the value is another key's. */
	OK(overbank_cache_counters_reset(cache));
	OK(overbank_cache_next(cache, hashes[0], &hints[0]));
	CHECK(hints[0].slot == OVERBANK_MISS && hints[0].refused == 1);
	OK(overbank_cache_next(cache, hashes[0], &hints[0]));
	CHECK(hints[0].refused == 1);
	OK(overbank_cache_commit(cache, hashes, 1, hints));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == 1 && counters.hits == 0 && counters.false_positives == 1);

	struct overbank_burst *burst = NULL;
	INVALID("out is NULL", overbank_burst_create(NULL));
	OK(overbank_burst_create(&burst));
	INVALID("burst is NULL", overbank_burst_probe(NULL, cache, hashes, 1, NULL, 0));
	INVALID("burst is not aligned", overbank_burst_probe(ASKEW(struct overbank_burst, burst),
			cache, hashes, 1, NULL, 0));
	INVALID("handle is NULL", overbank_burst_probe(burst, NULL, hashes, 1, NULL, 0));
	INVALID("hashes is NULL", overbank_burst_probe(burst, cache, NULL, 1, NULL, 0));
	INVALID("count: at most 32, not 33", overbank_burst_probe(burst, cache, hashes, 33, NULL, 0));
	INVALID("next is NULL", overbank_burst_probe(burst, cache, hashes, 1, NULL, 1));
	INVALID("next_count: at most 32, not 33", overbank_burst_probe(burst, cache, hashes, 1,
			hashes, 33));
	/* commit before any probe, and of slots that are none. */
	OK(overbank_burst_commit(burst, cache, hashes, 1));
	memset(burst->slots, 200, OVERBANK_BURST);
	OK(overbank_burst_commit(burst, cache, hashes, OVERBANK_BURST));
	INVALID("burst is NULL", overbank_burst_commit(NULL, cache, hashes, 1));
	INVALID("handle is NULL", overbank_burst_commit(burst, NULL, hashes, 1));
	INVALID("hashes is NULL", overbank_burst_commit(burst, cache, NULL, 1));
	INVALID("count: at most 32, not 33", overbank_burst_commit(burst, cache, hashes, 33));
	OK(overbank_cache_counters(cache, &counters));
	CHECK(counters.lookups == 34 && counters.hits == 0);
	OK(overbank_burst_probe(burst, cache, hashes, 1, NULL, 0));
	CHECK(burst->matched == 1 && burst->values[0] == 9 && burst->slots[0] == OVERBANK_NO_SLOT);
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
	struct overbank_hint hint;
	OK(overbank_cache_insert(cache, hash, UINT32_MAX));
	OK(overbank_cache_probe(cache, &hash, 1, &hint));
	CHECK(hint.slot != OVERBANK_MISS && hint.value == UINT32_MAX);
	overbank_cache_destroy(cache);

	/* What is destroyed is given back: this would be 1 GiB. */
	long before = address_space();
	for (int i = 0; i < 64; i++)
		overbank_cache_destroy(make("set-16", 4 << 20, 16));
	CHECK(address_space() - before < 256 << 20);
}
