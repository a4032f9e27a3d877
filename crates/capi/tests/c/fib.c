/* Forwarding tables: beside an array, for all sizes of keys and values; readers in threads. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

enum { KEYS = 512 };

static const size_t key_sizes[] = {4, 6, 8, 13, 16}, value_sizes[] = {2, 4, 8};

static struct overbank_fib *make(size_t key_bytes, size_t value_bytes, size_t entries)
{
	/* Small pages: valgrind sees them, and small tables need no large ones. */
	struct overbank_fib_options options = {.seed = 5, .pages = 1, .isa = isa};
	struct overbank_fib *fib = NULL;
	OK(overbank_fib_create(key_bytes, value_bytes, entries, &options, &fib));
	return fib;
}

/* Bytes of key `k`. */
static void key_of(uint64_t k, size_t key_bytes, uint8_t *key)
{
	uint64_t words[2] = {overbank_mix(k), k};
	memset(words, 0, key_bytes < 8 ? sizeof words : 0);
	memcpy(words, &k, key_bytes < 8 ? 4 : 0);
	memcpy(key, words, key_bytes);
}

static uint64_t value_at(const void *values, size_t i, size_t value_bytes)
{
	uint64_t value = 0;
	memcpy(&value, (const char *)values + i * value_bytes, value_bytes);
	return value;
}

/* The table has what the array has: 0 is nothing there. */
static void same(const struct overbank_fib_reader *reader, const uint64_t *array, size_t key_bytes,
		 size_t value_bytes)
{
	uint8_t keys[KEYS * 16 + 1];
	uint64_t values[KEYS], hits[KEYS / 64];
	/* Keys have no alignment. */
	for (size_t k = 0; k < KEYS; k++)
		key_of(k, key_bytes, keys + 1 + k * key_bytes);
	OK(overbank_fib_lookup(reader, keys + 1, KEYS, values, hits));
	for (size_t k = 0; k < KEYS; k++) {
		CHECK((hits[k / 64] >> k % 64 & 1) == (array[k] != 0));
		CHECK(value_at(values, k, value_bytes) == array[k]);
	}
}

static void twin(size_t key_bytes, size_t value_bytes)
{
	struct overbank_fib *fib = make(key_bytes, value_bytes, KEYS);
	struct overbank_fib_reader *reader = NULL;
	OK(overbank_fib_reader_create(fib, &reader));
	uint64_t array[KEYS] = {0}, state = key_bytes * 16 + value_bytes;
	uint64_t bits = value_bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * value_bytes) - 1;
	size_t len = 0;

	for (size_t operation = 0; operation < operations / 4; operation++) {
		uint64_t random = next_random(&state), k = random % KEYS, value = 77;
		uint8_t key[16];
		key_of(k, key_bytes, key);
		switch (random >> 32 & 3) {
		case 0:
			value = next_random(&state) & bits;
			value += value == 0;
			OK(overbank_fib_insert(fib, key, value));
			len += array[k] == 0;
			array[k] = value;
			break;
		case 1:
			STATUS(array[k] ? OVERBANK_OK : OVERBANK_ABSENT, overbank_fib_remove(fib,
					key, &value));
			CHECK(value == (array[k] ? array[k] : 77));
			len -= array[k] != 0;
			array[k] = 0;
			break;
		case 2:
			STATUS(array[k] ? OVERBANK_OK : OVERBANK_ABSENT, overbank_fib_get(fib, key,
					&value));
			CHECK(value == (array[k] ? array[k] : 77));
			break;
		default: {
			/* A burst, or several, or none. */
			size_t count = next_random(&state) % 150;
			uint8_t keys[150 * 16];
			uint64_t ks[150], values[151], hits[4] = {0, 0, 0, 0};
			memset(values, 0xa5, sizeof values);
			for (size_t i = 0; i < count; i++) {
				ks[i] = next_random(&state) % KEYS;
				key_of(ks[i], key_bytes, keys + i * key_bytes);
			}
			OK(overbank_fib_lookup(reader, keys, count, values, hits));
			for (size_t i = 0; i < count; i++) {
				CHECK((hits[i / 64] >> i % 64 & 1) == (array[ks[i]] != 0));
				CHECK(value_at(values, i, value_bytes) == array[ks[i]]);
			}
			/* Nothing behind the last is written. */
			CHECK(((uint8_t *)values)[count * value_bytes] == 0xa5);
			CHECK(count % 64 == 0 || hits[count / 64] >> count % 64 == 0);
		}
		}
	}
	same(reader, array, key_bytes, value_bytes);
	struct overbank_fib_info info;
	OK(overbank_fib_info(fib, &info));
	CHECK(info.len == len && info.slots >= KEYS && info.key_bytes == key_bytes);
	CHECK(info.value_bytes == value_bytes &&
			info.bytes >= info.slots * (key_bytes + value_bytes));

	/* A file has the same entries. */
	char path[512];
	path_of(path, "fib");
	struct overbank_fib_options options = {.pages = 1, .isa = isa};
	struct overbank_fib *loaded = NULL;
	struct overbank_fib_reader *of_loaded = NULL;
	OK(overbank_fib_save(fib, path));
	OK(overbank_fib_load(path, key_bytes, value_bytes, &options, &loaded));
	OK(overbank_fib_reader_create(loaded, &of_loaded));
	same(of_loaded, array, key_bytes, value_bytes);
	/* They are two tables. */
	OK(overbank_fib_clear(loaded));
	OK(overbank_fib_info(loaded, &info));
	CHECK(info.len == 0);
	same(reader, array, key_bytes, value_bytes);
	memset(array, 0, sizeof array);
	same(of_loaded, array, key_bytes, value_bytes);
	overbank_fib_destroy(loaded);

	OK(overbank_fib_clear(fib));
	same(reader, array, key_bytes, value_bytes);
	uint8_t key[16];
	key_of(3, key_bytes, key);
	array[3] = bits;
	OK(overbank_fib_insert(fib, key, array[3]));
	if (value_bytes < 8)
		INVALID("bits", overbank_fib_insert(fib, key, bits + 1));
	/* Readers keep the table: the writer goes first. */
	overbank_fib_destroy(fib);
	same(reader, array, key_bytes, value_bytes);
	overbank_fib_reader_destroy(reader);
	overbank_fib_reader_destroy(of_loaded);
}

static void full(void)
{
	struct overbank_fib *fib = make(4, 4, 64);
	uint32_t k = 0;
	while (overbank_fib_insert(fib, &k, k) == OVERBANK_OK)
		CHECK(++k < 1 << 20);
	CHECK(k >= 64);
	FAILS(OVERBANK_FULL, "", overbank_fib_insert(fib, &k, k));
	for (uint32_t i = 0; i <= k; i++) {
		uint64_t value = 0;
		STATUS(i < k ? OVERBANK_OK : OVERBANK_ABSENT, overbank_fib_get(fib, &i, &value));
		CHECK(i == k || value == i);
	}
	struct overbank_fib_info info;
	OK(overbank_fib_info(fib, &info));
	CHECK(info.len == k && info.len <= info.slots);
	overbank_fib_destroy(fib);
}

static void refuses(void)
{
	struct overbank_fib *fib = make(8, 4, 64), *none = NULL;
	struct overbank_fib_reader *reader = NULL;
	struct overbank_fib_options options = {.isa = isa};
	char path[512];
	path_of(path, "fib");

	for (size_t bytes = 0; bytes < 40; bytes++) {
		if (bytes != 4 && bytes != 6 && bytes != 8 && bytes != 13 && bytes != 16)
			INVALID("4, 6, 8, 13 or 16 bytes", overbank_fib_create(bytes, 4, 64, NULL,
					&none));
		if (bytes != 2 && bytes != 4 && bytes != 8)
			INVALID("2, 4 or 8", overbank_fib_create(8, bytes, 64, NULL, &none));
	}
	INVALID("", overbank_fib_create(8, 4, SIZE_MAX, NULL, &none));
	INVALID("out is NULL", overbank_fib_create(8, 4, 64, NULL, NULL));
	INVALID("out is not aligned", overbank_fib_create(8, 4, 64, NULL,
			ASKEW(struct overbank_fib *, &none)));
	INVALID("options is not aligned", overbank_fib_create(8, 4, 64,
			ASKEW(struct overbank_fib_options, &options), &none));
	options.pages = 3;
	INVALID("pages: 0, 1 or 2, not 3", overbank_fib_create(8, 4, 64, &options, &none));
	options.pages = 0;
	options.isa = "sse9";
	INVALID("sse9", overbank_fib_create(8, 4, 64, &options, &none));
	options.isa = isa;
	options.unused = 1;
	INVALID("reserved", overbank_fib_create(8, 4, 64, &options, &none));
	options.unused = 0;
	options.reserved[3] = 1;
	INVALID("reserved", overbank_fib_create(8, 4, 64, &options, &none));
	CHECK(!none);

	INVALID("handle is NULL", overbank_fib_reader_create(NULL, &reader));
	INVALID("out is NULL", overbank_fib_reader_create(fib, NULL));
	INVALID("not one of overbank's", overbank_fib_reader_create(ASKEW(struct overbank_fib, fib),
			&reader));
	CHECK(!reader);
	OK(overbank_fib_reader_create(fib, &reader));

	uint64_t keys[4] = {1, 2, 3, 4}, value = 7, hits[1] = {99};
	uint32_t values[4] = {5, 5, 5, 5};
	INVALID("handle is NULL", overbank_fib_insert(NULL, keys, 1));
	INVALID("key is NULL", overbank_fib_insert(fib, NULL, 1));
	INVALID("32 bits", overbank_fib_insert(fib, keys, UINT64_C(1) << 32));
	INVALID("handle is NULL", overbank_fib_remove(NULL, keys, NULL));
	INVALID("key is NULL", overbank_fib_remove(fib, NULL, NULL));
	INVALID("handle is NULL", overbank_fib_get(NULL, keys, &value));
	INVALID("key is NULL", overbank_fib_get(fib, NULL, &value));
	STATUS(OVERBANK_ABSENT, overbank_fib_get(fib, keys, NULL));
	OK(overbank_fib_insert(fib, keys, 1));
	OK(overbank_fib_get(fib, keys, NULL));
	INVALID("value is not aligned", overbank_fib_get(fib, keys, ASKEW(uint64_t, keys)));
	INVALID("handle is NULL", overbank_fib_lookup(NULL, keys, 4, values, hits));
	INVALID("keys is NULL", overbank_fib_lookup(reader, NULL, 4, values, hits));
	INVALID("values is NULL", overbank_fib_lookup(reader, keys, 4, NULL, hits));
	INVALID("hits is NULL", overbank_fib_lookup(reader, keys, 4, values, NULL));
	INVALID("values is not aligned", overbank_fib_lookup(reader, keys, 1, ASKEW(uint32_t,
			values), hits));
	INVALID("hits is not aligned", overbank_fib_lookup(reader, keys, 1, values, ASKEW(uint64_t,
			keys)));
	INVALID("exceed", overbank_fib_lookup(reader, keys, SIZE_MAX, values, hits));
	CHECK(values[0] == 5 && hits[0] == 99 && value == 7);
	OK(overbank_fib_lookup(reader, NULL, 0, NULL, NULL));
	INVALID("handle is NULL", overbank_fib_clear(NULL));
	struct overbank_fib_info info;
	INVALID("handle is NULL", overbank_fib_info(NULL, &info));
	INVALID("out is NULL", overbank_fib_info(fib, NULL));

	INVALID("handle is NULL", overbank_fib_save(NULL, path));
	INVALID("path is NULL", overbank_fib_save(fib, NULL));
	FAILS(OVERBANK_IO, "/nowhere", overbank_fib_save(fib, "/nowhere/at/all"));
	FAILS(OVERBANK_IO, "/nowhere", overbank_fib_load("/nowhere/at/all", 8, 4, NULL, &none));
	INVALID("path is NULL", overbank_fib_load(NULL, 8, 4, NULL, &none));
	OK(overbank_fib_save(fib, path));
	INVALID("out is NULL", overbank_fib_load(path, 8, 4, NULL, NULL));
	INVALID("4, 6, 8, 13 or 16 bytes", overbank_fib_load(path, 9, 4, NULL, &none));
	STATUS(OVERBANK_DAMAGED, overbank_fib_load(path, 8, 2, NULL, &none));
	STATUS(OVERBANK_DAMAGED, overbank_fib_load(path, 4, 4, NULL, &none));
	damage(path, 40);
	STATUS(OVERBANK_DAMAGED, overbank_fib_load(path, 8, 4, NULL, &none));
	CHECK(!none);
	overbank_fib_reader_destroy(reader);
	overbank_fib_destroy(fib);
	overbank_fib_destroy(NULL);
	overbank_fib_reader_destroy(NULL);
}

/* One writer, two readers: key k's value is k in the upper half, and a version that grows. */
struct shared {
	struct overbank_fib *fib;
	atomic_int done;
};

static void *read_all(void *argument)
{
	struct shared *shared = argument;
	struct overbank_fib_reader *reader = NULL;
	uint64_t keys[KEYS], values[KEYS], hits[KEYS / 64], seen[KEYS] = {0};
	OK(overbank_fib_reader_create(shared->fib, &reader));
	for (uint64_t k = 0; k < KEYS; k++)
		keys[k] = overbank_mix(k);
	for (int last = 0; !last;) {
		last = atomic_load(&shared->done);
		OK(overbank_fib_lookup(reader, keys, KEYS, values, hits));
		for (uint64_t k = 0; k < KEYS; k++) {
			int hit = hits[k / 64] >> k % 64 & 1;
			/* A quarter of the keys comes and goes. */
			CHECK(hit || k % 4 == 3);
			if (hit) {
				CHECK(values[k] >> 32 == k && (uint32_t)values[k] >= seen[k]);
				seen[k] = (uint32_t)values[k];
			}
		}
	}
	overbank_fib_reader_destroy(reader);
	return NULL;
}

static void threads(void)
{
	struct shared shared = {.fib = make(8, 8, KEYS), .done = 0};
	pthread_t readers[2];
	uint64_t state = 3;
	for (uint64_t k = 0; k < KEYS; k++) {
		uint64_t key = overbank_mix(k);
		OK(overbank_fib_insert(shared.fib, &key, k << 32));
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&readers[i], NULL, read_all, &shared) == 0);
	for (uint32_t version = 1; version < operations; version++) {
		uint64_t k = next_random(&state) % KEYS, key = overbank_mix(k);
		OK(overbank_fib_insert(shared.fib, &key, k << 32 | version));
		if (k % 4 == 3 && version % 2)
			OK(overbank_fib_remove(shared.fib, &key, NULL));
	}
	atomic_store(&shared.done, 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	overbank_fib_destroy(shared.fib);
}

void test_fib(void)
{
	refuses();
	full();
	for (size_t k = 0; k < 5; k++)
		for (size_t v = 0; v < 3; v++)
			twin(key_sizes[k], value_sizes[v]);
	threads();
	/* This would be 1 GiB and more. */
	long before = address_space();
	for (int i = 0; i < 64; i++)
		overbank_fib_destroy(make(8, 8, 1 << 20));
	CHECK(address_space() - before < 256 << 20);
}
