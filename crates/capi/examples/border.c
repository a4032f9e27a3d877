/* The loops of border.rs as a program in C has them. Calls go through pointers, as into a shared
 * library. */
#include <overbank.h>

struct calls {
	enum overbank_status (*probe)(const struct overbank_cache *, const uint64_t *, size_t,
				      struct overbank_hint *);
	enum overbank_status (*next)(const struct overbank_cache *, uint64_t, struct overbank_hint *);
	enum overbank_status (*commit)(struct overbank_cache *, const uint64_t *, size_t,
				       const struct overbank_hint *);
	enum overbank_status (*burst_probe)(struct overbank_burst *, const struct overbank_cache *,
					    const uint64_t *, size_t, const uint64_t *, size_t);
	enum overbank_status (*burst_commit)(const struct overbank_burst *, struct overbank_cache *,
					     const uint64_t *, size_t);
	enum overbank_status (*lookup)(const struct overbank_fib_reader *, const void *, size_t,
				       void *, uint64_t *);
};

/* Looks for `count` hashes, 32 at a time, whose values are `expected`; returns how many are there. */
uint64_t bursts(const struct calls *calls, struct overbank_cache *cache, const uint64_t *hashes,
		const uint32_t *expected, size_t count)
{
	struct overbank_hint hints[OVERBANK_BURST];
	uint64_t found = 0;
	for (size_t at = 0; at + OVERBANK_BURST <= count; at += OVERBANK_BURST) {
		if (calls->probe(cache, hashes + at, OVERBANK_BURST, hints) != OVERBANK_OK)
			return 0;
		for (size_t i = 0; i < OVERBANK_BURST; i++) {
			while (hints[i].slot != OVERBANK_MISS && hints[i].value != expected[at + i])
				calls->next(cache, hashes[at + i], &hints[i]);
		}
		for (size_t i = 0; i < OVERBANK_BURST; i++)
			found += hints[i].slot != OVERBANK_MISS;
		if (calls->commit(cache, hashes + at, OVERBANK_BURST, hints) != OVERBANK_OK)
			return 0;
	}
	return found;
}

/* The same in place. */
uint64_t in_place(const struct calls *calls, struct overbank_burst *burst,
		  struct overbank_cache *cache, const uint64_t *hashes, const uint32_t *expected,
		  size_t count)
{
	uint64_t found = 0;
	for (size_t at = 0; at + OVERBANK_BURST <= count; at += OVERBANK_BURST) {
		if (calls->burst_probe(burst, cache, hashes + at, OVERBANK_BURST, NULL, 0) !=
		    OVERBANK_OK)
			return 0;
		const uint32_t *values = burst->values, *masks = burst->masks;
		uint8_t *slots = burst->slots;
		for (uint32_t left = burst->matched; left; left &= left - 1) {
			int i = __builtin_ctz(left);
			int slot = __builtin_ctz(masks[i]);
			if (__builtin_expect(values[i] != expected[at + i], 0)) {
				struct overbank_hint hint = {.value = values[i],
							     .slot = (uint16_t)slot};
				while (hint.slot != OVERBANK_MISS && hint.value != expected[at + i])
					calls->next(cache, hashes[at + i], &hint);
				burst->refused += hint.refused;
				slot = hint.slot;
			}
			slots[i] = (uint8_t)slot;
			found += slots[i] != OVERBANK_NO_SLOT;
		}
		if (calls->burst_commit(burst, cache, hashes + at, OVERBANK_BURST) != OVERBANK_OK)
			return 0;
	}
	return found;
}

/* Looks up `count` keys of 8 bytes, `burst` at a time; returns the sum of the values found. */
uint64_t lookups(const struct calls *calls, const struct overbank_fib_reader *reader,
		 const uint64_t *keys, size_t count, size_t burst, uint32_t *values, uint64_t *hits)
{
	uint64_t sum = 0;
	for (size_t at = 0; at + burst <= count; at += burst) {
		if (calls->lookup(reader, keys + at, burst, values, hits) != OVERBANK_OK)
			return 0;
		sum += values[0] + hits[0];
	}
	return sum;
}
