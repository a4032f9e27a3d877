/* The loops of border.rs as a program in C has them. Calls go through pointers, as into a shared
 * library. */
#include <overbank.h>
#include <stdbool.h>

struct calls {
	enum overbank_status (*probe)(struct overbank_burst *, const struct overbank_cache *,
				      const uint64_t *, size_t, const uint64_t *, size_t);
	enum overbank_status (*next)(struct overbank_burst *, const struct overbank_cache *,
				     uint64_t, size_t);
	enum overbank_status (*commit)(const struct overbank_burst *, struct overbank_cache *,
				       const uint64_t *, size_t);
	enum overbank_status (*lookup)(const struct overbank_fib_reader *, const void *, size_t,
				       void *, uint64_t *);
	enum overbank_status (*aside)(const struct overbank_copies *, const uint64_t *, size_t,
				      uint64_t *, uint8_t *, struct overbank_aside_ticket *);
};

/* Looks for `count` hashes, 32 at a time, whose values are `expected`; returns how many are there. */
uint64_t bursts(const struct calls *calls, struct overbank_burst *burst,
		struct overbank_cache *cache, const uint64_t *hashes, const uint32_t *expected,
		size_t count)
{
	uint64_t found = 0;
	for (size_t at = 0; at + OVERBANK_BURST <= count; at += OVERBANK_BURST) {
		if (calls->probe(burst, cache, hashes + at, OVERBANK_BURST, NULL, 0) != OVERBANK_OK)
			return 0;
		const uint32_t *values = burst->values, *masks = burst->masks;
		uint32_t hits = 0;
		for (uint32_t i = 0; i < OVERBANK_BURST; i++) {
			if (!masks[i])
				continue;
			bool right = values[i] == expected[at + i];
			while (__builtin_expect(!right, 0) &&
			       calls->next(burst, cache, hashes[at + i], i) == OVERBANK_OK)
				right = values[i] == expected[at + i];
			hits |= (uint32_t)right << i;
		}
		burst->hits = hits;
		found += (uint64_t)__builtin_popcount(hits);
		if (calls->commit(burst, cache, hashes + at, OVERBANK_BURST) != OVERBANK_OK)
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

/* Looks up `count` keys of a word, 32 at a time; returns the sum of the values found and how many
 * are not. */
uint64_t asides(const struct calls *calls, const struct overbank_copies *copies,
		const uint64_t *keys, size_t count)
{
	uint64_t sum = 0, values[32];
	uint8_t found[32];
	struct overbank_aside_ticket tickets[32];
	for (size_t at = 0; at + 32 <= count; at += 32) {
		if (calls->aside(copies, keys + at, 32, values, found, tickets) != OVERBANK_OK)
			return 0;
		for (size_t i = 0; i < 32; i++)
			sum += found[i] == OVERBANK_ASIDE_HIT ? values[i] : 1;
	}
	return sum;
}
