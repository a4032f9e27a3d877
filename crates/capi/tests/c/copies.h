/* What the tests of overbank_copies share. */
#ifndef COPIES_H
#define COPIES_H

#include "test.h"

/* What no lookup writes. */
enum { UNTOUCHED = 9 };

static inline struct overbank_copies *make(size_t key_words, size_t value_words, size_t entries)
{
	struct overbank_aside_options options = {.seed = 3, .pages = 1};
	struct overbank_copies *copies = NULL;
	OK(overbank_copies_create(key_words, value_words, entries, &options, &copies));
	CHECK(copies);
	return copies;
}

static inline struct overbank_copies_writer *writer_of(const struct overbank_copies *copies)
{
	struct overbank_copies_writer *writer = NULL;
	OK(overbank_copies_writer_create(copies, &writer));
	CHECK(writer);
	return writer;
}

/* Words that differ between any two of `number`, by the last word alone for every other one. */
static inline void words_of(uint64_t *words, size_t count, uint64_t number)
{
	for (size_t i = 0; i < count; i++)
		words[i] = number % 2 ? 5 : overbank_mix(number + i);
	words[count - 1] = overbank_mix(~number);
}

/* Looks up one key of one word with a value of one; returns what was found. */
static inline uint8_t look(const struct overbank_copies *copies, uint64_t key, uint64_t *value,
		    struct overbank_aside_ticket *ticket)
{
	uint8_t found = UNTOUCHED;
	OK(overbank_copies_lookup(copies, &key, 1, value, &found, ticket));
	return found;
}

static inline struct overbank_aside_ticket miss(const struct overbank_copies *copies, uint64_t key)
{
	uint64_t value = UNTOUCHED;
	struct overbank_aside_ticket ticket;
	CHECK(look(copies, key, &value, &ticket) == OVERBANK_ASIDE_MISS && value == 0);
	return ticket;
}

static inline void has(const struct overbank_copies *copies, uint64_t key, uint64_t expected)
{
	uint64_t value = UNTOUCHED;
	CHECK(look(copies, key, &value, NULL) == OVERBANK_ASIDE_HIT && value == expected);
}

static inline void has_none(const struct overbank_copies *copies, uint64_t key)
{
	uint64_t value = UNTOUCHED;
	CHECK(look(copies, key, &value, NULL) == OVERBANK_ASIDE_ABSENT && value == 0);
}

#endif
