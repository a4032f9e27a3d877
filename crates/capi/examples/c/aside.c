/* A look-aside table in front of a slow index: a binary tree behind a lock, which two threads read
 * and one writes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <overbank.h>

enum { KEYS = 200000, ENTRIES = 30000, WRITES = 100000, BURST = 32 };

static struct overbank_copies *copies;
static atomic_int done;

/* The index: an unbalanced tree of keys in random order. Its values only grow. */
struct node {
	uint64_t key, value;
	struct node *below[2];
};
static struct node *root;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

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

/* Some keys come often. Even ones are in the index, odd ones never. */
static uint64_t draw(uint64_t time)
{
	uint64_t random = overbank_mix(time), most = KEYS >> (random & 7);
	uint64_t even = overbank_mix((random >> 8) % most) & ~UINT64_C(1);
	return even | ((random >> 3 & 31) == 0);
}

/* Writes the index. The table hears of it before and after. */
static void put(struct overbank_copies_writer *writer, uint64_t key, uint64_t value)
{
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
}

static void *read_often(void *argument)
{
	uint64_t hits = 0, lookups = 0;
	(void)argument;
	for (; !atomic_load(&done); lookups += BURST) {
		uint64_t keys[BURST], values[BURST];
		uint8_t found[BURST];
		struct overbank_aside_ticket tickets[BURST];
		for (size_t i = 0; i < BURST; i++)
			keys[i] = draw(lookups + i);
		must(overbank_copies_lookup(copies, keys, BURST, values, found, tickets));
		for (size_t i = 0; i < BURST; i++) {
			int there = found[i] == OVERBANK_ASIDE_HIT;
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
			if (there != (keys[i] % 2 == 0)) {
				fprintf(stderr, "key %llu: wrong answer\n",
						(unsigned long long)keys[i]);
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
	for (uint64_t i = 0; i < KEYS; i++)
		put(writer, overbank_mix(i) & ~UINT64_C(1), 1);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, read_often, NULL) != 0)
			return 1;
	for (uint64_t write = 0; write < WRITES; write++)
		put(writer, draw(~write) & ~UINT64_C(1), write);
	atomic_store(&done, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);

	must(overbank_copies_info(copies, &info));
	printf("%d keys, %zu entries of %.1f bytes; %d writes; answers are right\n", KEYS, info.slots,
	       (double)info.bytes / (double)info.slots, WRITES);
	overbank_copies_writer_destroy(writer);
	overbank_copies_destroy(copies);
	return 0;
}
