/* Sketches: counts beside an array; epochs that turn; the two sides in two threads. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "test.h"

enum { KEYS = 500, THRESHOLD = 20 };

static struct overbank_hash128 hash_of(uint64_t k)
{
	return overbank_hash_128((const uint8_t *)&k, sizeof k, 3);
}

/* Counts in epochs; `OVERBANK_ABSENT` until the counter has begun the next. */
static void twin(void)
{
	struct overbank_sketch_options options = {.threshold = THRESHOLD, .seed = 2};
	struct overbank_counter *counter = NULL;
	struct overbank_keeper *keeper = NULL;
	struct overbank_counts counts;
	uint64_t state = 1, hot = 0;
	OK(overbank_sketch_create(&options, &counter, &keeper));
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		uint32_t array[KEYS] = {0}, reported[KEYS] = {0};
		uint64_t samples = 0;
		for (size_t operation = 0; operation < operations / 16; operation++) {
			struct overbank_hash128 hashes[OVERBANK_SKETCH_BURST];
			size_t keys[OVERBANK_SKETCH_BURST],
					count = next_random(&state) % (OVERBANK_SKETCH_BURST + 1);
			for (size_t i = 0; i < count; i++) {
				/* Small numbers are hot. */
				keys[i] = next_random(&state) % KEYS * (next_random(&state) % KEYS) / KEYS;
				hashes[i] = hash_of(keys[i]);
			}
			OK(overbank_counter_count(counter, hashes, count, &hot));
			CHECK(count == 64 || hot >> count == 0);
			for (size_t i = 0; i < count; i++) {
				array[keys[i]]++;
				reported[keys[i]] += hot >> i & 1;
			}
			samples += count;
		}
		for (size_t k = 0; k < KEYS; k++) {
			uint32_t estimate = 0;
			OK(overbank_keeper_estimate(keeper, 0, hash_of(k), &estimate));
			/* The arrays are so large that these keys do not meet in every row. */
			CHECK(estimate == array[k] && reported[k] == (array[k] >= THRESHOLD));
		}
		OK(overbank_keeper_counts(keeper, 0, &counts));
		CHECK(counts.samples == samples && counts.largest >= array[0] &&
				counts.epoch == epoch);
		OK(overbank_keeper_turn(keeper, THRESHOLD, 0));
		FAILS(OVERBANK_ABSENT, "has not begun", overbank_keeper_turn(keeper, THRESHOLD, 0));
		OK(overbank_counter_count(counter, NULL, 0, &hot));
		CHECK(hot == 0);
		OK(overbank_keeper_counts(keeper, 1, &counts));
		CHECK(counts.samples == samples);
		OK(overbank_keeper_counts(keeper, 0, &counts));
		CHECK(counts.samples == 0);
		for (size_t k = 0; k < KEYS; k++) {
			uint32_t estimate = 0;
			OK(overbank_keeper_estimate(keeper, 1, hash_of(k), &estimate));
			CHECK(estimate == array[k]);
		}
	}
	/* The sides go in any order. */
	overbank_keeper_destroy(keeper);
	OK(overbank_counter_count(counter, NULL, 0, &hot));
	overbank_counter_destroy(counter);
}

static void refuses(void)
{
	struct overbank_counter *counter = NULL;
	struct overbank_keeper *keeper = NULL;
	struct overbank_sketch_options options = {.counters_log2 = 17};
	struct overbank_counts counts;
	struct overbank_hash128 hashes[OVERBANK_SKETCH_BURST + 1] = {{1, 2}};
	uint64_t hot = 99;
	uint32_t estimate = 99;

	INVALID("", overbank_sketch_create(&options, &counter, &keeper));
	options.counters_log2 = 1;
	INVALID("", overbank_sketch_create(&options, &counter, &keeper));
	options.counters_log2 = 0;
	options.bloom_log2 = 19;
	INVALID("", overbank_sketch_create(&options, &counter, &keeper));
	options.bloom_log2 = 5;
	INVALID("", overbank_sketch_create(&options, &counter, &keeper));
	options.bloom_log2 = 6;
	options.threshold = 65536;
	INVALID("threshold: 65535 at most, not 65536", overbank_sketch_create(&options, &counter,
			&keeper));
	options.threshold = 1;
	options.sample_log2 = 33;
	INVALID("sample_log2: 32 at most, not 33", overbank_sketch_create(&options, &counter,
			&keeper));
	options.sample_log2 = 0;
	options.reserved[1] = 1;
	INVALID("reserved", overbank_sketch_create(&options, &counter, &keeper));
	INVALID("counter is NULL", overbank_sketch_create(NULL, NULL, &keeper));
	INVALID("keeper is NULL", overbank_sketch_create(NULL, &counter, NULL));
	CHECK(!counter && !keeper);
	OK(overbank_sketch_create(NULL, &counter, &keeper));

	INVALID("handle is NULL", overbank_counter_count(NULL, hashes, 1, &hot));
	INVALID("hashes is NULL", overbank_counter_count(counter, NULL, 1, &hot));
	INVALID("hashes is not aligned", overbank_counter_count(counter,
			ASKEW(struct overbank_hash128, hashes), 1, &hot));
	INVALID("hot is NULL", overbank_counter_count(counter, hashes, 1, NULL));
	INVALID("at most 64, not 65", overbank_counter_count(counter, hashes, 65, &hot));
	CHECK(hot == 99);
	INVALID("handle is NULL", overbank_keeper_turn(NULL, 1, 0));
	INVALID("threshold", overbank_keeper_turn(keeper, 65536, 0));
	INVALID("sample_log2", overbank_keeper_turn(keeper, 1, 33));
	FAILS(OVERBANK_ABSENT, "no epoch is finished", overbank_keeper_counts(keeper, 1, &counts));
	INVALID("finished: 0 or 1, not 2", overbank_keeper_counts(keeper, 2, &counts));
	INVALID("finished: 0 or 1, not -1", overbank_keeper_estimate(keeper, -1, hashes[0],
			&estimate));
	STATUS(OVERBANK_ABSENT, overbank_keeper_estimate(keeper, 1, hashes[0], &estimate));
	INVALID("handle is NULL", overbank_keeper_counts(NULL, 0, &counts));
	INVALID("out is NULL", overbank_keeper_counts(keeper, 0, NULL));
	INVALID("handle is NULL", overbank_keeper_estimate(NULL, 0, hashes[0], &estimate));
	INVALID("out is NULL", overbank_keeper_estimate(keeper, 0, hashes[0], NULL));
	CHECK(estimate == 99);
	/* Without a threshold, hot with the first count. */
	OK(overbank_counter_count(counter, hashes, 1, &hot));
	CHECK(hot == 1);
	overbank_counter_destroy(counter);
	/* The keeper turns once, and then waits for a counter that is gone. */
	OK(overbank_keeper_estimate(keeper, 0, hashes[0], &estimate));
	CHECK(estimate == 1);
	overbank_keeper_destroy(keeper);
	overbank_counter_destroy(NULL);
	overbank_keeper_destroy(NULL);
}

struct shared {
	struct overbank_counter *counter;
	atomic_int done;
	uint64_t counted;
};

static void *count_all(void *argument)
{
	struct shared *shared = argument;
	struct overbank_hash128 hashes[OVERBANK_SKETCH_BURST];
	uint64_t hot;
	for (size_t i = 0; i < OVERBANK_SKETCH_BURST; i++)
		hashes[i] = hash_of(i);
	while (!atomic_load(&shared->done)) {
		OK(overbank_counter_count(shared->counter, hashes, OVERBANK_SKETCH_BURST, &hot));
		shared->counted += OVERBANK_SKETCH_BURST;
	}
	return NULL;
}

/* The samples of all epochs are those that were counted. */
static void threads(void)
{
	struct overbank_keeper *keeper = NULL;
	struct overbank_sketch_options options = {.counters_log2 = 8, .bloom_log2 = 8,
			.threshold = 3};
	struct shared shared = {.done = 0};
	struct overbank_counts counts;
	pthread_t counting;
	uint64_t samples = 0;
	OK(overbank_sketch_create(&options, &shared.counter, &keeper));
	CHECK(pthread_create(&counting, NULL, count_all, &shared) == 0);
	for (int epoch = 0; epoch < 50; epoch++) {
		enum overbank_status said;
		while ((said = overbank_keeper_turn(keeper, 3, 0)) == OVERBANK_ABSENT)
			sched_yield();
		CHECK(said == OVERBANK_OK);
		/* Final once the counter has begun the next. */
		while ((said = overbank_keeper_counts(keeper, 1, &counts)) == OVERBANK_ABSENT)
			sched_yield();
		CHECK(said == OVERBANK_OK);
		samples += counts.samples;
	}
	atomic_store(&shared.done, 1);
	CHECK(pthread_join(counting, NULL) == 0);
	OK(overbank_keeper_counts(keeper, 0, &counts));
	CHECK(samples + counts.samples == shared.counted);
	overbank_counter_destroy(shared.counter);
	overbank_keeper_destroy(keeper);
}

void test_sketch(void)
{
	refuses();
	twin();
	threads();
}
