/* Hints: where in an index a key was found last. The key that lies there now is the proof, so the
 * index may change as it likes. Twice: in a tree of the library, and in front of a sorted array of
 * this program, whose positions shift with each insertion. Both must give the same answers. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <overbank.h>

enum { KEYS = 100000, BURSTS = 20000, HINTS = KEYS * 3 / 10 };

/* The index: numbers in order, each with its value. */
static struct entry {
	uint64_t key, value;
} *sorted;
static size_t len;

static void must(enum overbank_status status)
{
	if (status != OVERBANK_OK) {
		fprintf(stderr, "%s: %s\n", overbank_strerror(status), overbank_last_error());
		exit(1);
	}
}

/* The search that hints save: the place of a key, or where it would be. */
static size_t lower(uint64_t key)
{
	size_t low = 0, high = len;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (sorted[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int by_key(const void *a, const void *b)
{
	uint64_t left = ((const struct entry *)a)->key, right = ((const struct entry *)b)->key;
	return (left > right) - (left < right);
}

static bool holds(size_t at, uint64_t key)
{
	return at < len && sorted[at].key == key;
}

/* Inserts a key: those behind it move, and their hints are stale. */
static void insert(uint64_t key, uint64_t value)
{
	size_t at = lower(key);
	memmove(sorted + at + 1, sorted + at, (len - at) * sizeof *sorted);
	sorted[at] = (struct entry){key, value};
	len++;
}

/* Some keys come often, and some are not there. */
static uint64_t draw(uint64_t time)
{
	uint64_t random = overbank_mix(time);
	return overbank_mix((random >> 16) % ((KEYS + KEYS / 50) >> (random & 7)));
}

/* Looks up a burst by hints and returns how many keys are there; their values are in `values`. */
static size_t look(struct overbank_burst *burst, struct overbank_cache *hints,
		   const uint64_t *keys, uint64_t *values, uint8_t *found)
{
	uint64_t hashes[OVERBANK_BURST];
	size_t there = 0;
	for (size_t i = 0; i < OVERBANK_BURST; i++)
		hashes[i] = overbank_mix(keys[i]);
	must(overbank_burst_probe(burst, hints, hashes, OVERBANK_BURST, NULL, 0));
	for (size_t i = 0; i < OVERBANK_BURST; i++)
		if (burst->matched >> i & 1)
			__builtin_prefetch(sorted + burst->values[i]);
	for (size_t i = 0; i < OVERBANK_BURST; i++) {
		while (burst->matched >> i & 1) {
			if (holds(burst->values[i], keys[i])) {
				burst->hits |= UINT32_C(1) << i;
				break;
			}
			if (overbank_burst_next(burst, hints, hashes[i], i) != OVERBANK_OK)
				break;
		}
	}
	must(overbank_burst_commit(burst, hints, hashes, OVERBANK_BURST));
	for (size_t i = 0; i < OVERBANK_BURST; i++) {
		bool hit = burst->hits >> i & 1;
		size_t at = hit ? burst->values[i] : lower(keys[i]);
		found[i] = holds(at, keys[i]);
		values[i] = found[i] ? sorted[at].value : 0;
		if (found[i] && !hit)
			must(overbank_cache_insert(hints, hashes[i], (uint32_t)at));
		there += found[i];
	}
	return there;
}

int main(void)
{
	struct overbank_cache *hints = NULL;
	struct overbank_cache_options wide = {.value_bits = 32};
	struct overbank_burst *burst = NULL;
	struct overbank_tree *tree = NULL;
	struct overbank_tree_options options = {.hints = HINTS};
	uint64_t time = 0, there = 0;

	sorted = calloc(KEYS + BURSTS, sizeof *sorted);
	if (!sorted)
		return 1;
	must(overbank_cache_create("set-8+pblru", HINTS, &wide, &hints));
	must(overbank_burst_create(&burst));
	must(overbank_tree_create(1, 1, KEYS + BURSTS, &options, &tree));
	for (uint64_t i = 0; i < KEYS; i++) {
		sorted[len++] = (struct entry){overbank_mix(i), i};
		must(overbank_tree_insert(tree, &sorted[i].key, &i));
	}
	qsort(sorted, len, sizeof *sorted, by_key);
	for (uint64_t round = 0; round < BURSTS; round++) {
		uint64_t keys[OVERBANK_BURST], ours[OVERBANK_BURST], theirs[OVERBANK_BURST];
		uint8_t found[OVERBANK_BURST], found_there[OVERBANK_BURST];
		for (size_t i = 0; i < OVERBANK_BURST; i++)
			keys[i] = draw(time++);
		there += look(burst, hints, keys, ours, found);
		must(overbank_tree_lookup(tree, keys, OVERBANK_BURST, theirs, found_there));
		if (memcmp(found, found_there, sizeof found) || memcmp(ours, theirs, sizeof ours)) {
			fprintf(stderr, "burst %llu: the answers differ\n", (unsigned long long)round);
			return 1;
		}
		if (round % 1000 == 0) {         /* Places shift. */
			uint64_t key = overbank_mix(KEYS + KEYS / 50 + round);
			insert(key, round);
			must(overbank_tree_insert(tree, &key, &round));
		}
	}

	struct overbank_cache_counters of_array, of_tree;
	must(overbank_cache_counters(hints, &of_array));
	must(overbank_tree_counters(tree, &of_tree));
	printf("%llu of %llu keys are there; by hints: %.1f %% in the array, %.1f %% in the tree\n",
	       (unsigned long long)there, (unsigned long long)time,
	       100. * (double)of_array.hits / (double)of_array.lookups,
	       100. * (double)of_tree.hits / (double)of_tree.lookups);
	overbank_tree_destroy(tree);
	overbank_burst_destroy(burst);
	overbank_cache_destroy(hints);
	free(sorted);
	return 0;
}
