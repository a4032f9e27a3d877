/* A forwarding table with one writer and a reader in each of two threads, without a lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <overbank.h>

enum { ENTRIES = 100000, MOVES = 1000000, BURST = 32 };

static atomic_int done;

static void must(enum overbank_status status)
{
	if (status != OVERBANK_OK) {
		fprintf(stderr, "%s: %s\n", overbank_strerror(status), overbank_last_error());
		exit(1);
	}
}

/* A forwarding thread: each has its own reader. Returns how many keys it has found. */
static void *forward(void *argument)
{
	struct overbank_fib_reader *reader = argument;
	uint64_t found = 0;

	for (uint64_t time = 0; !atomic_load(&done); time += BURST) {
		uint64_t keys[BURST], hits;
		uint32_t ports[BURST];
		for (size_t i = 0; i < BURST; i++)
			keys[i] = overbank_mix(time + i) % (2 * ENTRIES);
		must(overbank_fib_lookup(reader, keys, BURST, ports, &hits));
		for (size_t i = 0; i < BURST; i++) {
			int hit = hits >> i & 1;
			/* Even numbers have an entry at any time, odd ones never. */
			if (hit != (keys[i] % 2 == 0) || (hit && ports[i] >= 4)) {
				fprintf(stderr, "key %llu: wrong answer\n",
						(unsigned long long)keys[i]);
				exit(1);
			}
			found += (uint64_t)hit;
		}
	}
	overbank_fib_reader_destroy(reader);
	return (void *)(uintptr_t)found;
}

int main(void)
{
	struct overbank_fib *fib = NULL;
	pthread_t threads[2];
	uint64_t found = 0;

	/* Keys of 8 bytes, values of 4. */
	must(overbank_fib_create(sizeof(uint64_t), sizeof(uint32_t), ENTRIES, NULL, &fib));
	for (uint64_t key = 0; key < 2 * ENTRIES; key += 2)
		must(overbank_fib_insert(fib, &key, 0));
	for (int i = 0; i < 2; i++) {
		struct overbank_fib_reader *reader = NULL;
		must(overbank_fib_reader_create(fib, &reader));
		if (pthread_create(&threads[i], NULL, forward, reader) != 0)
			return 1;
	}
	/* This thread is the writer: stations move between ports. */
	for (uint64_t move = 0; move < MOVES; move++) {
		uint64_t key = overbank_mix(move) % ENTRIES * 2;
		must(overbank_fib_insert(fib, &key, move % 4));
	}
	atomic_store(&done, 1);
	for (int i = 0; i < 2; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		found += (uintptr_t)result;
	}

	struct overbank_fib_info info;
	must(overbank_fib_info(fib, &info));
	printf("%zu entries, %.1f bytes each; %d moves; readers are right\n", info.len,
	       (double)info.bytes / (double)info.len, MOVES);
	fprintf(stderr, "%llu keys found meanwhile\n", (unsigned long long)found);
	overbank_fib_destroy(fib);
	return 0;
}
