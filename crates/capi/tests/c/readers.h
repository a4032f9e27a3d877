/* Two threads that read in rounds while the thread of the test writes. The writer waits for rounds,
 * never for time, so that both run at once and what the readers meet does not depend on luck. */
#ifndef READERS_H
#define READERS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "test.h"

enum { READERS = 2 };

struct reader {
	pthread_t thread;
	/* Rounds that have ended, and those of them in which the writer wrote. */
	_Atomic size_t rounds, met;
	/* Answers of the table in them. */
	uint64_t hits;
	void *of;
};

/* All of them, and what they share with the writer. */
struct readers {
	struct reader each[READERS];
	/* Writes that have ended. */
	_Atomic uint64_t writes;
	atomic_int done;
	/* Reads all once; returns the hits. */
	uint64_t (*round)(void *of);
	void *of;
};

static inline void *reader_main(void *argument)
{
	struct reader *reader = argument;
	struct readers *readers = reader->of;
	while (!atomic_load(&readers->done)) {
		uint64_t before = atomic_load(&readers->writes);
		reader->hits += readers->round(readers->of);
		atomic_fetch_add(&reader->met, before != atomic_load(&readers->writes));
		atomic_fetch_add(&reader->rounds, 1);
	}
	return NULL;
}

/* Waits until each reader has begun and ended `count` rounds more. */
static inline void readers_pass(struct readers *readers, size_t count)
{
	size_t goals[READERS];
	/* One more: that of now has begun already. */
	for (int i = 0; i < READERS; i++)
		goals[i] = atomic_load(&readers->each[i].rounds) + count + 1;
	for (int i = 0; i < READERS; i++)
		while (atomic_load(&readers->each[i].rounds) < goals[i])
			sched_yield();
}

/* Whether each reader has met the writer in this number of rounds. */
static inline bool readers_met(struct readers *readers, size_t count)
{
	bool all = true;
	for (int i = 0; i < READERS; i++)
		all &= atomic_load(&readers->each[i].met) >= count;
	return all;
}

/* Returns once both read. */
static inline void readers_start(struct readers *readers)
{
	for (int i = 0; i < READERS; i++) {
		readers->each[i].of = readers;
		CHECK(pthread_create(&readers->each[i].thread, NULL, reader_main,
				&readers->each[i]) == 0);
	}
	readers_pass(readers, 1);
}

/* Ends them. Each had answers from the table while the writer wrote. */
static inline void readers_end(struct readers *readers)
{
	atomic_store(&readers->done, 1);
	for (int i = 0; i < READERS; i++) {
		CHECK(pthread_join(readers->each[i].thread, NULL) == 0);
		CHECK(readers->each[i].hits > 0);
	}
}

#endif
