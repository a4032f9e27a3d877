/* Ordered maps: beside a sorted array; bounds and flags of ranges; what is refused. */
#include "copies.h"

enum { NUMBERS = 300, ROOM = 40, TOGETHER = 150 };

/* A sorted array of numbers of keys, each with the number of its value, 0 for absent. The keys
 * themselves are words_of(number), so their order is that of the words. */
struct twin {
	size_t key_words, order[NUMBERS];
	uint64_t keys[NUMBERS][4], values[NUMBERS];
};

static const struct twin *sorting;

static int by_key(const void *a, const void *b)
{
	const uint64_t *left = sorting->keys[*(const size_t *)a], *right = sorting->keys[*(const size_t *)b];
	for (size_t word = 0; word < sorting->key_words; word++)
		if (left[word] != right[word])
			return left[word] < right[word] ? -1 : 1;
	return 0;
}

static void sort(struct twin *twin)
{
	for (size_t i = 0; i < NUMBERS; i++) {
		words_of(twin->keys[i], twin->key_words, i);
		twin->order[i] = i;
		twin->values[i] = 0;
	}
	sorting = twin;
	qsort(twin->order, NUMBERS, sizeof *twin->order, by_key);
}

static struct overbank_tree *tree_of(size_t key_words, size_t value_words, size_t capacity,
				     size_t hints)
{
	struct overbank_tree_options options = {.hints = hints, .seed = 3};
	struct overbank_tree *tree = NULL;
	OK(overbank_tree_create(key_words, value_words, capacity, &options, &tree));
	CHECK(tree);
	return tree;
}

/* The entries from place `start` on and before `stop` are as in the twin, up or down. */
static void range(const struct overbank_tree *tree, const struct twin *twin, size_t value_words,
		  size_t start, size_t stop, uint32_t flags)
{
	uint64_t keys[4 * ROOM], values[8 * ROOM], value[8];
	size_t count = UNTOUCHED, expected = 0, first = start + !!(flags & OVERBANK_TREE_AFTER);
	const uint64_t *from = start < NUMBERS ? twin->keys[twin->order[start]] : NULL;
	const uint64_t *to = stop < NUMBERS ? twin->keys[twin->order[stop]] : NULL;
	if (!from)
		first = 0;
	if (!to)
		stop = NUMBERS;
	OK(overbank_tree_range(tree, from, to, flags, keys, values, ROOM, &count));
	for (size_t i = first; i < stop && expected < ROOM; i++) {
		size_t at = flags & OVERBANK_TREE_DOWN ? stop - 1 - (i - first) : i;
		size_t number = twin->order[at];
		if (!twin->values[number])
			continue;
		CHECK(expected < count);
		words_of(value, value_words, twin->values[number]);
		CHECK(!memcmp(keys + expected * twin->key_words, twin->keys[number],
			      8 * twin->key_words));
		CHECK(!memcmp(values + expected * value_words, value, 8 * value_words));
		expected++;
	}
	CHECK(count == expected);
}

static void beside_an_array(size_t key_words, size_t value_words, size_t hints)
{
	static struct twin twin;
	enum { CAPACITY = NUMBERS / 2 };
	struct overbank_tree *tree = tree_of(key_words, value_words, CAPACITY, hints);
	uint64_t state = 1, next = 0;
	size_t len = 0, full = 0, hits = 0;
	twin.key_words = key_words;
	sort(&twin);
	for (size_t operation = 0; operation < operations / 8; operation++) {
		uint64_t random = next_random(&state), value[8];
		size_t number = random % NUMBERS;
		const uint64_t *key = twin.keys[number];
		switch (random >> 32 & 7) {
		case 0:
		case 1:
		case 2:
			words_of(value, value_words, ++next);
			if (!twin.values[number] && len == CAPACITY) {
				FAILS(OVERBANK_FULL, "150 entries", overbank_tree_insert(tree, key, value));
				full++;
				break;
			}
			OK(overbank_tree_insert(tree, key, value));
			len += !twin.values[number];
			twin.values[number] = next;
			break;
		case 3: {
			uint64_t was[8] = {UNTOUCHED}, *out = random >> 40 & 1 ? was : NULL;
			if (!twin.values[number]) {
				FAILS(OVERBANK_ABSENT, "no entry", overbank_tree_remove(tree, key, out));
				CHECK(was[0] == UNTOUCHED);
				break;
			}
			OK(overbank_tree_remove(tree, key, out));
			words_of(value, value_words, twin.values[number]);
			CHECK(!out || !memcmp(out, value, 8 * value_words));
			twin.values[number] = 0;
			len--;
			break;
		}
		case 4:
			range(tree, &twin, value_words, (random >> 36) % (NUMBERS + 9),
			      (random >> 46) % (NUMBERS + 9), random >> 56 & 3);
			break;
		case 5:
			if (random >> 40 & 127)
				break;
			OK(overbank_tree_clear(tree));
			memset(twin.values, 0, sizeof twin.values);
			len = 0;
			break;
		default: {
			uint64_t keys[4 * TOGETHER], values[8 * TOGETHER];
			uint8_t found[TOGETHER];
			size_t count = random >> 36 & 1 ? 1 : (random >> 40) % (TOGETHER + 1);
			for (size_t i = 0; i < count; i++)
				words_of(keys + i * key_words, key_words, (number + i) % NUMBERS);
			memset(found, UNTOUCHED, sizeof found);
			if (random >> 60 & 1)
				OK(overbank_tree_peek(tree, keys, count, values, found));
			else
				OK(overbank_tree_lookup(tree, keys, count, values, found));
			for (size_t i = 0; i < count; i++) {
				uint64_t right = twin.values[(number + i) % NUMBERS], none[8] = {0};
				words_of(value, value_words, right);
				CHECK(found[i] == (right != 0));
				CHECK(!memcmp(values + i * value_words, right ? value : none,
					      8 * value_words));
				hits += right != 0;
			}
			CHECK(count == TOGETHER || found[count] == UNTOUCHED);
		}
		}
		struct overbank_tree_info info;
		OK(overbank_tree_info(tree, &info));
		CHECK(info.len == len && info.capacity == CAPACITY && info.hints >= hints);
		CHECK(info.key_words == key_words && info.value_words == value_words);
		CHECK(info.bytes >= CAPACITY * 8 * (key_words + value_words));
		CHECK(!hints == !info.hint_bytes);
	}
	struct overbank_cache_counters counters;
	OK(overbank_tree_counters(tree, &counters));
	CHECK(hits && !hints == !counters.hits && !hints == !counters.lookups);
	CHECK(full || operations < 20000);
	overbank_tree_destroy(tree);
}

/* All of a range in steps, up and down, as programs do it. */
static void in_steps(void)
{
	struct overbank_tree *tree = tree_of(1, 1, 1000, 0);
	uint64_t keys[7], values[7], expected = 0, last = 0;
	size_t count = 7;
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t key = i * 7 % 1000, value = ~key;
		OK(overbank_tree_insert(tree, &key, &value));
	}
	for (uint32_t flags = 0; count == 7; flags = OVERBANK_TREE_AFTER) {
		OK(overbank_tree_range(tree, &last, NULL, flags, keys, values, 7, &count));
		for (size_t i = 0; i < count; i++, expected++)
			CHECK(keys[i] == expected && values[i] == ~expected);
		last = keys[count ? count - 1 : 0];
	}
	CHECK(expected == 1000);
	const uint64_t *stop = NULL;
	for (count = 7; count == 7; stop = &last) {
		OK(overbank_tree_range(tree, NULL, stop, OVERBANK_TREE_DOWN, keys, values, 7, &count));
		for (size_t i = 0; i < count; i++)
			CHECK(keys[i] == --expected);
		last = keys[count ? count - 1 : 0];
	}
	CHECK(expected == 0);
	overbank_tree_destroy(tree);
}

static void refused(void)
{
	struct overbank_tree *tree = tree_of(2, 1, 10, 10), *none = NULL;
	struct overbank_tree_options options = {0}, later = {.reserved = {1}};
	uint64_t key[4] = {1, 2, 3, 4}, value[2] = {3, 4};
	uint8_t found[2];
	size_t count = UNTOUCHED;
	INVALID("out is NULL", overbank_tree_create(1, 1, 1, NULL, NULL));
	INVALID("keys have 1 to 4 words", overbank_tree_create(0, 1, 1, NULL, &none));
	INVALID("not 1 and 9", overbank_tree_create(1, 9, 1, NULL, &none));
	INVALID("at least one entry", overbank_tree_create(1, 1, 0, NULL, &none));
	INVALID("at most", overbank_tree_create(1, 1, SIZE_MAX, NULL, &none));
	INVALID("reserved", overbank_tree_create(1, 1, 1, &later, &none));
	options.hints = SIZE_MAX;
	INVALID("hints of the tree", overbank_tree_create(1, 1, 1, &options, &none));
	CHECK(!none);
	INVALID("handle is NULL", overbank_tree_lookup(none, key, 1, value, found));
	INVALID("keys is NULL", overbank_tree_lookup(tree, NULL, 1, value, found));
	INVALID("values is NULL", overbank_tree_peek(tree, key, 1, NULL, found));
	INVALID("not aligned", overbank_tree_peek(tree, ASKEW(uint64_t, key), 1, value, found));
	INVALID("found is NULL", overbank_tree_peek(tree, key, 1, value, NULL));
	INVALID("keys and values overlap", overbank_tree_lookup(tree, key, 2, key + 3, found));
	OK(overbank_tree_lookup(tree, NULL, 0, NULL, NULL));
	INVALID("key is NULL", overbank_tree_insert(tree, NULL, value));
	INVALID("value is NULL", overbank_tree_insert(tree, key, NULL));
	INVALID("key is NULL", overbank_tree_remove(tree, NULL, value));
	OK(overbank_tree_insert(tree, key, value));
	INVALID("not aligned", overbank_tree_remove(tree, key, ASKEW(uint64_t, value)));
	OK(overbank_tree_peek(tree, key, 1, value, found));
	CHECK(found[0] && value[0] == 3);
	INVALID("flags", overbank_tree_range(tree, NULL, NULL, 4, key, value, 1, &count));
	INVALID("keys and values overlap",
		overbank_tree_range(tree, NULL, NULL, 0, key, key + 1, 1, &count));
	INVALID("values and count overlap", overbank_tree_range(tree, NULL, NULL, 0, key, value, 1,
			(size_t *)(void *)value));
	INVALID("keys is NULL", overbank_tree_range(tree, NULL, NULL, 0, NULL, value, 1, &count));
	INVALID("count is NULL", overbank_tree_range(tree, NULL, NULL, 0, key, value, 1, NULL));
	CHECK(count == UNTOUCHED);
	OK(overbank_tree_range(tree, NULL, NULL, 0, NULL, NULL, 0, &count));
	CHECK(count == 0);
	/* Bounds may lie in the room: they are read first. */
	OK(overbank_tree_range(tree, key, NULL, 0, key, value, 1, &count));
	CHECK(count == 1 && key[0] == 1 && key[1] == 2);
	INVALID("out is NULL", overbank_tree_info(tree, NULL));
	INVALID("out is NULL", overbank_tree_counters(tree, NULL));
	INVALID("handle is NULL", overbank_tree_clear(NULL));
	overbank_tree_destroy(tree);
	overbank_tree_destroy(NULL);
}

void test_tree(void)
{
	for (size_t key_words = 1; key_words <= 4; key_words++)
		for (size_t value_words = 1; value_words <= 8; value_words += key_words == 1 ? 1 : 3)
			beside_an_array(key_words, value_words, value_words % 2 ? 40 : 0);
	in_steps();
	refused();
}
