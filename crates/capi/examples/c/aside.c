/* A look-aside table in front of a slow index: a binary tree behind a lock, which two threads read
 * and one writes. Each answer is checked: it must not be older than what was written before. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <overbank.h>

enum { KEYS = 200000, ENTRIES = 30000, WRITES = 100000, BURST = 32 };

static struct overbank_copies *copies;
static atomic_int done;

/* The index: an unbalanced tree of keys in random order. Values only grow: each is the number of its
 * write. */
struct node {
	uint64_t key, value;
	struct node *below[2];
};
static struct node *root;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
/* The values whose writes have ended, by a key's number; a lookup that begins later sees no less. */
static _Atomic uint64_t floors[KEYS];

static void must(enum overbank_status status)
{
	if (status != OVERBANK_OK) {
		fprintf(stderr, "%s: %s\n", overbank_strerror(status), overbank_last_error());
		exit(1);
	}
}

static struct node **find(uint64_t key)
{
	struct node **at = &root;
	while (*at && (*at)->key != key)
		at = &(*at)->below[key > (*at)->key];
	return at;
}

/* Even keys are in the index, odd ones never. */
static uint64_t key_of(uint64_t number, bool absent)
{
	return (overbank_mix(number) & ~UINT64_C(1)) | absent;
}

/* The number of a key. Some come often. */
static uint64_t draw(uint64_t time)
{
	uint64_t random = overbank_mix(time);
	return (random >> 8) % (KEYS >> (random & 7));
}

/* Writes the index. The table hears of it before and after. */
static void put(struct overbank_copies_writer *writer, uint64_t number, uint64_t value)
{
	uint64_t key = key_of(number, false);
	must(overbank_copies_writer_begin(writer, &key));
	pthread_rwlock_wrlock(&lock);
	struct node **at = find(key);
	if (!*at) {
		*at = calloc(1, sizeof **at);
		if (!*at)
			exit(1);
		(*at)->key = key;
	}
	(*at)->value = value;
	pthread_rwlock_unlock(&lock);
	must(overbank_copies_writer_keep(writer, &value));
	atomic_store(&floors[number], value);
}

static void *read_often(void *argument)
{
	uint64_t hits = 0, lookups = 0;
	(void)argument;
	for (; !atomic_load(&done); lookups += BURST) {
		uint64_t keys[BURST], values[BURST], least[BURST];
		uint8_t found[BURST];
		struct overbank_aside_ticket tickets[BURST];
		for (size_t i = 0; i < BURST; i++) {
			uint64_t number = draw(lookups + i);
			bool absent = (lookups + i) % 32 == 0;
			keys[i] = key_of(number, absent);
			least[i] = absent ? 0 : atomic_load(&floors[number]);
		}
		must(overbank_copies_lookup(copies, keys, BURST, values, found, tickets));
		for (size_t i = 0; i < BURST; i++) {
			bool there = found[i] == OVERBANK_ASIDE_HIT;
			if (found[i] == OVERBANK_ASIDE_MISS) {
				/* After the lookup, which gave the ticket. */
				pthread_rwlock_rdlock(&lock);
				const struct node *node = *find(keys[i]);
				there = node != NULL;
				values[i] = there ? node->value : 0;
				pthread_rwlock_unlock(&lock);
				/* OVERBANK_DECLINED is right, too. */
				overbank_copies_fill(copies, &tickets[i], there ? &values[i] : NULL);
			} else {
				hits++;
			}
			if (there != (keys[i] % 2 == 0) || (there && values[i] < least[i])) {
				fprintf(stderr, "key %llu: %llu is stale; at least %llu\n",
						(unsigned long long)keys[i],
						(unsigned long long)values[i],
						(unsigned long long)least[i]);
				exit(1);
			}
		}
	}
	fprintf(stderr, "%.1f %% of %llu lookups answered by the table\n",
			100.0 * (double)hits / (double)(lookups ? lookups : 1),
			(unsigned long long)lookups);
	return NULL;
}

int main(void)
{
	struct overbank_copies_writer *writer = NULL;
	struct overbank_aside_info info;
	pthread_t threads[2];

	/* Keys and values of one word. */
	must(overbank_copies_create(1, 1, ENTRIES, NULL, &copies));
	must(overbank_copies_writer_create(copies, &writer));
	for (uint64_t number = 0; number < KEYS; number++)
		put(writer, number, 1);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, read_often, NULL) != 0)
			return 1;
	for (uint64_t write = 0; write < WRITES; write++)
		put(writer, draw(~write), write + 2);
	atomic_store(&done, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);

	must(overbank_copies_info(copies, &info));
	printf("%d keys, %zu entries of %.1f bytes; %d writes; answers are right, none stale\n", KEYS, info.slots,
	       (double)info.bytes / (double)info.slots, WRITES);
	overbank_copies_writer_destroy(writer);
	overbank_copies_destroy(copies);
	return 0;
}
