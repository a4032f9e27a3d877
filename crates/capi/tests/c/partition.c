/* Partition tables: owner, copies and readers beside an array; changes as bytes; threads. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

enum { KEYS = 2000, BITS = 3, NOTHING = 0xff };

static uint64_t hash_of(uint64_t k)
{
	return overbank_partition_hash((const uint8_t *)&k, sizeof k, 11);
}

/* A table of `count` keys, key k with the value k % 8. */
static struct overbank_partition *make(size_t count, uint8_t *array)
{
	static uint64_t hashes[KEYS];
	struct overbank_partition_options options = {.seed = 11, .pages = 1, .generation = 4,
			.isa = isa};
	struct overbank_partition *table = NULL;
	for (size_t k = 0; k < count; k++) {
		hashes[k] = hash_of(k);
		array[k] = k % 8;
	}
	OK(overbank_partition_build(KEYS, BITS, hashes, array, count, &options, &table));
	return table;
}

/* Every key of the array, through a reader. */
static void same(const struct overbank_partition_reader *reader, const uint8_t *array)
{
	uint64_t hashes[KEYS];
	uint8_t values[KEYS];
	for (size_t k = 0; k < KEYS; k++)
		hashes[k] = hash_of(k);
	OK(overbank_partition_lookup(reader, hashes, KEYS, values));
	for (size_t k = 0; k < KEYS; k++)
		CHECK(array[k] == NOTHING || values[k] == array[k]);
}

static void same_copy(const struct overbank_replica *replica, const uint8_t *array)
{
	struct overbank_partition_reader *reader = NULL;
	OK(overbank_replica_reader(replica, &reader));
	same(reader, array);
	overbank_partition_reader_destroy(reader);
}

static void twin(void)
{
	uint8_t array[KEYS];
	memset(array, NOTHING, sizeof array);
	size_t len = KEYS / 2, found = 0;
	struct overbank_partition *table = make(len, array);
	struct overbank_replica *replica = NULL, *again = NULL;
	struct overbank_partition_reader *reader = NULL;
	OK(overbank_partition_replica(table, &replica));
	OK(overbank_partition_reader_create(table, &reader));
	uint64_t state = 9;
	for (size_t operation = 0; operation < operations / 4; operation++) {
		uint64_t random = next_random(&state), k = random % KEYS, hash = hash_of(k);
		uint8_t value = 77;
		if (random >> 32 & 1) {
			struct overbank_bytes delta = {NULL, 0};
			value = random >> 40 & 7;
			OK(overbank_partition_set(table, hash, value, &delta));
			CHECK((delta.len == 0) == (array[k] == value) || array[k] == NOTHING);
			OK(overbank_replica_apply(replica, delta.data, delta.len));
			overbank_bytes_free(&delta);
			CHECK(!delta.data && !delta.len);
			len += array[k] == NOTHING;
			array[k] = value;
		} else if (random >> 33 & 1) {
			STATUS(array[k] == NOTHING ? OVERBANK_ABSENT : OVERBANK_OK,
					overbank_partition_remove(table, hash, &value));
			CHECK(value == (array[k] == NOTHING ? 77 : array[k]));
			len -= array[k] != NOTHING;
			array[k] = NOTHING;
		} else {
			STATUS(array[k] == NOTHING ? OVERBANK_ABSENT : OVERBANK_OK,
					overbank_partition_get(table, hash, &value));
			CHECK(value == (array[k] == NOTHING ? 77 : array[k]));
		}
	}
	OK(overbank_partition_len(table, &found));
	CHECK(found == len);
	same(reader, array);
	same_copy(replica, array);

	/* Images, in memory and in a file. */
	struct overbank_partition_info info, of_again;
	struct overbank_bytes image = {NULL, 0};
	OK(overbank_replica_info(replica, &info));
	CHECK(info.value_bits == BITS && info.seed == 11 && info.generation == 4 &&
			info.unused == 0);
	CHECK(info.sequence > 0 && info.bytes > 0);
	OK(overbank_replica_encode(replica, &image));
	CHECK(image.data && image.len);
	OK(overbank_replica_decode(image.data, image.len, &again));
	OK(overbank_replica_info(again, &of_again));
	CHECK(of_again.id == info.id && of_again.sequence == info.sequence &&
			of_again.generation == 4);
	same_copy(again, array);
	overbank_replica_destroy(again);
	again = NULL;
	for (size_t at = 0; at < image.len; at += 1 + image.len / 64) {
		image.data[at] ^= 1;
		STATUS(OVERBANK_DAMAGED, overbank_replica_decode(image.data, image.len, &again));
		image.data[at] ^= 1;
	}
	STATUS(OVERBANK_DAMAGED, overbank_replica_decode(image.data, image.len - 1, &again));
	STATUS(OVERBANK_DAMAGED, overbank_replica_decode(NULL, 0, &again));
	overbank_bytes_free(&image);
	char path[512];
	path_of(path, "partition");
	OK(overbank_replica_save(replica, path));
	OK(overbank_replica_load(path, &again));
	same_copy(again, array);
	/* A loaded copy goes on with the owner's changes. */
	struct overbank_bytes delta = {NULL, 0};
	OK(overbank_partition_set(table, hash_of(1), array[1] == 5 ? 6 : 5, &delta));
	array[1] = array[1] == 5 ? 6 : 5;
	OK(overbank_replica_apply(again, delta.data, delta.len));
	same_copy(again, array);
	/* The same twice, and one before its turn, are refused, and change nothing. */
	STATUS(OVERBANK_DAMAGED, overbank_replica_apply(again, delta.data, delta.len));
	same_copy(again, array);
	struct overbank_bytes later = {NULL, 0};
	OK(overbank_partition_set(table, hash_of(2), array[2] == 5 ? 6 : 5, &later));
	STATUS(OVERBANK_DAMAGED, overbank_replica_apply(replica, later.data, later.len));
	OK(overbank_replica_apply(replica, delta.data, delta.len));
	OK(overbank_replica_apply(replica, later.data, later.len));
	array[2] = array[2] == 5 ? 6 : 5;
	same_copy(replica, array);
	for (size_t len = 0; len < later.len; len++)
		CHECK(overbank_replica_apply(again, later.data,
				len) == (len ? OVERBANK_DAMAGED : OVERBANK_OK));
	overbank_bytes_free(&delta);
	overbank_bytes_free(&later);
	damage(path, 20);
	struct overbank_replica *none = NULL;
	STATUS(OVERBANK_DAMAGED, overbank_replica_load(path, &none));
	CHECK(!none);

	/* Readers keep what they read. */
	overbank_partition_destroy(table);
	same(reader, array);
	overbank_partition_reader_destroy(reader);
	OK(overbank_replica_reader(replica, &reader));
	overbank_replica_destroy(replica);
	same(reader, array);
	overbank_partition_reader_destroy(reader);
	overbank_replica_destroy(again);
}

static void refuses(void)
{
	uint8_t array[KEYS], value = 0;
	struct overbank_partition *table = make(100, array), *none = NULL;
	struct overbank_replica *replica = NULL, *no_copy = NULL;
	struct overbank_partition_reader *reader = NULL;
	struct overbank_partition_options options = {.isa = isa};
	uint64_t hashes[2] = {5, 5};
	uint8_t values[2] = {1, 2};
	size_t len = 0;

	CHECK(overbank_partition_hash(NULL, 0, 1) == overbank_partition_hash(array, 0, 1));
	CHECK(overbank_partition_hash(NULL, 8, 1) == 0);
	CHECK(overbank_partition_hash(array, 8, 1) != overbank_partition_hash(array, 8, 2));
	INVALID("out is NULL", overbank_partition_build(100, 3, NULL, NULL, 0, NULL, NULL));
	INVALID("hashes is NULL", overbank_partition_build(100, 3, NULL, values, 2, NULL, &none));
	INVALID("values is NULL", overbank_partition_build(100, 3, hashes, NULL, 2, NULL, &none));
	INVALID("hashes is not aligned", overbank_partition_build(100, 3, ASKEW(uint64_t, hashes),
			values, 1, NULL, &none));
	INVALID("exceed", overbank_partition_build(100, 3, hashes, values, SIZE_MAX, NULL, &none));
	INVALID("", overbank_partition_build(100, 3, hashes, values, 2, NULL, &none));
	INVALID("", overbank_partition_build(100, 0, hashes, values, 1, NULL, &none));
	INVALID("", overbank_partition_build(100, 9, hashes, values, 1, NULL, &none));
	INVALID("", overbank_partition_build(100, 1, hashes, values + 1, 1, NULL, &none));
	INVALID("", overbank_partition_build(SIZE_MAX, 3, NULL, NULL, 0, NULL, &none));
	options.partitions = 3;
	INVALID("", overbank_partition_build(100, 3, NULL, NULL, 0, &options, &none));
	options.partitions = 0;
	options.pages = 7;
	INVALID("pages", overbank_partition_build(100, 3, NULL, NULL, 0, &options, &none));
	options.pages = 0;
	options.isa = "vfp";
	INVALID("vfp", overbank_partition_build(100, 3, NULL, NULL, 0, &options, &none));
	options.isa = isa;
	options.reserved[0] = 1;
	INVALID("reserved", overbank_partition_build(100, 3, NULL, NULL, 0, &options, &none));
	CHECK(!none);

	INVALID("handle is NULL", overbank_partition_set(NULL, 1, 1, NULL));
	INVALID("delta is not aligned", overbank_partition_set(table, 1, 1,
			ASKEW(struct overbank_bytes, hashes)));
	INVALID("", overbank_partition_set(table, 1, 8, NULL));
	INVALID("handle is NULL", overbank_partition_remove(NULL, 1, NULL));
	INVALID("handle is NULL", overbank_partition_get(NULL, 1, &value));
	STATUS(OVERBANK_ABSENT, overbank_partition_get(table, 1, NULL));
	OK(overbank_partition_get(table, hash_of(1), NULL));
	INVALID("handle is NULL", overbank_partition_len(NULL, &len));
	INVALID("out is NULL", overbank_partition_len(table, NULL));
	INVALID("handle is NULL", overbank_partition_reader_create(NULL, &reader));
	INVALID("out is NULL", overbank_partition_reader_create(table, NULL));
	INVALID("handle is NULL", overbank_partition_replica(NULL, &replica));
	INVALID("out is NULL", overbank_partition_replica(table, NULL));
	OK(overbank_partition_len(table, &len));
	CHECK(len == 100 && !reader && !replica);

	OK(overbank_partition_reader_create(table, &reader));
	INVALID("handle is NULL", overbank_partition_lookup(NULL, hashes, 2, values));
	INVALID("hashes is NULL", overbank_partition_lookup(reader, NULL, 2, values));
	INVALID("values is NULL", overbank_partition_lookup(reader, hashes, 2, NULL));
	INVALID("hashes is not aligned", overbank_partition_lookup(reader, ASKEW(uint64_t, hashes),
			1, values));
	INVALID("exceed", overbank_partition_lookup(reader, hashes, SIZE_MAX, values));
	OK(overbank_partition_lookup(reader, NULL, 0, NULL));
	overbank_partition_reader_destroy(reader);
	reader = NULL;

	/* Another table's change, a copy that is none. */
	OK(overbank_partition_replica(table, &replica));
	struct overbank_partition *other = NULL;
	struct overbank_bytes delta = {NULL, 0};
	options.reserved[0] = 0;
	options.generation = 5;
	OK(overbank_partition_build(500000, 2, NULL, NULL, 0, &options, &other));
	OK(overbank_partition_set(other, 1, 1, &delta));
	STATUS(OVERBANK_DAMAGED, overbank_replica_apply(replica, delta.data, delta.len));
	overbank_bytes_free(&delta);
	overbank_partition_destroy(other);
	INVALID("handle is NULL", overbank_replica_apply(NULL, NULL, 0));
	INVALID("data is NULL", overbank_replica_apply(replica, NULL, 1));
	OK(overbank_replica_apply(replica, NULL, 0));
	struct overbank_partition_info info;
	INVALID("handle is NULL", overbank_replica_reader(NULL, &reader));
	INVALID("out is NULL", overbank_replica_reader(replica, NULL));
	INVALID("handle is NULL", overbank_replica_info(NULL, &info));
	INVALID("out is NULL", overbank_replica_info(replica, NULL));
	INVALID("handle is NULL", overbank_replica_encode(NULL, &delta));
	INVALID("out is NULL", overbank_replica_encode(replica, NULL));
	INVALID("data is NULL", overbank_replica_decode(NULL, 8, &no_copy));
	INVALID("out is NULL", overbank_replica_decode(array, 8, NULL));
	INVALID("handle is NULL", overbank_replica_save(NULL, "/nowhere"));
	INVALID("path is NULL", overbank_replica_save(replica, NULL));
	FAILS(OVERBANK_IO, "/nowhere", overbank_replica_save(replica, "/nowhere/at/all"));
	INVALID("path is NULL", overbank_replica_load(NULL, &no_copy));
	INVALID("out is NULL", overbank_replica_load("/nowhere/at/all", NULL));
	FAILS(OVERBANK_IO, "/nowhere", overbank_replica_load("/nowhere/at/all", &no_copy));
	CHECK(!reader && !no_copy);
	overbank_replica_destroy(replica);
	overbank_partition_destroy(table);
	overbank_replica_destroy(NULL);
	overbank_partition_destroy(NULL);
	overbank_partition_reader_destroy(NULL);
}

/* The owner moves the odd keys between two values; even ones stay. Two threads share a reader. */
struct shared {
	struct overbank_partition_reader *owner, *copy;
	atomic_int done;
};

static void *read_all(void *argument)
{
	struct shared *shared = argument;
	uint64_t hashes[KEYS];
	uint8_t values[KEYS];
	for (size_t k = 0; k < KEYS; k++)
		hashes[k] = hash_of(k);
	for (int last = 0; !last;) {
		last = atomic_load(&shared->done);
		for (int copy = 0; copy < 2; copy++) {
			OK(overbank_partition_lookup(copy ? shared->copy : shared->owner, hashes,
					KEYS, values));
			for (size_t k = 0; k < KEYS; k++)
				CHECK(values[k] == k % 8 || (k % 2 && values[k] == 7 - k % 8));
		}
	}
	return NULL;
}

static void threads(void)
{
	uint8_t array[KEYS];
	struct overbank_partition *table = make(KEYS, array);
	struct overbank_replica *replica = NULL;
	struct shared shared = {.done = 0};
	pthread_t readers[2];
	uint64_t state = 5;
	OK(overbank_partition_replica(table, &replica));
	OK(overbank_partition_reader_create(table, &shared.owner));
	OK(overbank_replica_reader(replica, &shared.copy));
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&readers[i], NULL, read_all, &shared) == 0);
	for (size_t operation = 0; operation < operations / 4; operation++) {
		uint64_t k = next_random(&state) % KEYS | 1;
		struct overbank_bytes delta = {NULL, 0};
		OK(overbank_partition_set(table, hash_of(k), operation % 2 ? k % 8 : 7 - k % 8,
				&delta));
		OK(overbank_replica_apply(replica, delta.data, delta.len));
		overbank_bytes_free(&delta);
	}
	atomic_store(&shared.done, 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	overbank_partition_reader_destroy(shared.owner);
	overbank_partition_reader_destroy(shared.copy);
	overbank_replica_destroy(replica);
	overbank_partition_destroy(table);
}

void test_partition(void)
{
	refuses();
	twin();
	threads();
}
