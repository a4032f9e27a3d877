/* Look-aside tables in front of a live index: beside an array; in the wrong order; threads. */
#include "copies.h"
#include "readers.h"

enum { KEYS = 40, LIST = 70, LATER = 8, ROUNDS = 40 };

/* Random operations beside an array of values, 0 for absent. Tickets are filled at once or later,
 * with what the array had after the lookup. */
static void twin(size_t key_words, size_t value_words)
{
	struct overbank_copies *copies = make(key_words, value_words, 12);
	struct overbank_copies_writer *writer = writer_of(copies);
	uint64_t index[KEYS] = {0}, state = 1, next = 0;
	struct overbank_aside_ticket later[LATER] = {0};
	uint64_t later_value[LATER] = {0};
	size_t hits = 0, nones = 0;
	struct overbank_aside_info info;
	OK(overbank_copies_info(copies, &info));
	CHECK(info.key_words == key_words && info.value_words == value_words);
	CHECK(info.slots >= 12 && info.bytes >= info.slots * 8 * (key_words + value_words));

	for (size_t operation = 0; operation < operations / 32; operation++) {
		uint64_t random = next_random(&state), k = random % KEYS;
		uint64_t value[8], key[4];
		words_of(key, key_words, k);
		switch (random >> 32 & 7) {
		case 0: /* A write that is kept, or not, or changes nothing. */
			OK(overbank_copies_writer_begin(writer, key));
			if (random >> 40 & 7)
				index[k] = random >> 43 & 3 ? ++next : 0;
			words_of(value, value_words, index[k]);
			if (random >> 45 & 1)
				OK(overbank_copies_writer_keep(writer, index[k] ? value : NULL));
			else
				OK(overbank_copies_writer_finish(writer));
			break;
		case 1: /* All at once, rarely. */
			if (random >> 40 & 15)
				break;
			OK(overbank_copies_writer_begin_all(writer));
			for (size_t i = random >> 44 & 1; i < KEYS; i += 2)
				index[i] = ++next;
			OK(overbank_copies_writer_finish(writer));
			if (random >> 45 & 1)
				OK(overbank_copies_clear(copies));
			break;
		case 2: { /* Now or never; a declined one changes nothing. */
			size_t i = random >> 40 & (LATER - 1);
			words_of(value, value_words, later_value[i]);
			enum overbank_status said = overbank_copies_fill(copies, &later[i],
					later_value[i] ? value : NULL);
			CHECK(said == OVERBANK_OK || said == OVERBANK_DECLINED);
			break;
		}
		default: {
			uint64_t keys[4 * LIST], values[8 * LIST];
			uint8_t found[LIST];
			struct overbank_aside_ticket tickets[LIST];
			size_t count = random >> 36 & 1 ? 1 : 1 + (random >> 40) % LIST;
			for (size_t i = 0; i < count; i++)
				words_of(keys + i * key_words, key_words, (k + i) % KEYS);
			memset(found, UNTOUCHED, sizeof found);
			OK(overbank_copies_lookup(copies, keys, count, values, found, tickets));
			for (size_t i = 0; i < count; i++) {
				uint64_t right = index[(k + i) % KEYS];
				uint64_t *got = values + i * value_words;
				words_of(value, value_words, right);
				if (found[i] == OVERBANK_ASIDE_HIT) {
					CHECK(right);
					CHECK(memcmp(got, value, 8 * value_words) == 0);
					hits++;
				} else if (found[i] == OVERBANK_ASIDE_ABSENT) {
					CHECK(!right);
					nones++;
				} else {
					CHECK(found[i] == OVERBANK_ASIDE_MISS);
					later[random >> 50 & (LATER - 1)] = tickets[i];
					later_value[random >> 50 & (LATER - 1)] = right;
					enum overbank_status said = overbank_copies_fill(copies,
							&tickets[i], right ? value : NULL);
					CHECK(said == OVERBANK_OK || said == OVERBANK_DECLINED);
				}
				if (found[i] != OVERBANK_ASIDE_HIT)
					for (size_t word = 0; word < value_words; word++)
						CHECK(got[word] == 0);
				/* The ticket of an answer is none. */
				if (found[i] != OVERBANK_ASIDE_MISS)
					STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies,
							&tickets[i], NULL));
			}
		}
		}
	}
	CHECK(hits && nones);
	overbank_copies_writer_destroy(writer);
	overbank_copies_destroy(copies);
}

/* One key after the other: what is said of tickets and of writes. */
static void rules(void)
{
	struct overbank_copies *copies = make(1, 1, 1000), *other = make(1, 1, 1000);
	struct overbank_copies *wide = make(2, 1, 1000);
	struct overbank_copies_writer *writer = writer_of(copies), *second = writer_of(copies);
	uint64_t ten = 10, eleven = 11, value = 0, key = 7;

	/* Values and absence are kept; a ticket may be used again as long as nothing changes. */
	struct overbank_aside_ticket ticket = miss(copies, 7), copy = ticket;
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(other, &ticket, &ten));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(wide, &ticket, &ten));
	OK(overbank_copies_fill(copies, &ticket, &ten));
	has(copies, 7, 10);
	OK(overbank_copies_fill(copies, &copy, &ten));
	has(copies, 7, 10);
	struct overbank_aside_ticket absent = miss(copies, 8);
	OK(overbank_copies_fill(copies, &absent, NULL));
	has_none(copies, 8);
	struct overbank_aside_ticket zero = {0};
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &zero, &ten));
	/* Of a table of wider keys, whose words would be a ticket of ours. */
	uint64_t two[2] = {1, 1};
	uint8_t found = UNTOUCHED;
	OK(overbank_copies_lookup(wide, two, 1, &value, &found, &ticket));
	CHECK(found == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	OK(overbank_copies_fill(wide, &ticket, &ten));

	/* Keys of the widest table, chosen by somebody to be a ticket of ours. */
	struct overbank_copies *widest = make(4, 1, 1000);
	struct overbank_aside_ticket of_thirty = miss(copies, 30);
	uint64_t forged[4];
	memcpy(forged, of_thirty.words, sizeof forged);
	forged[3] &= UINT64_MAX >> 16; /* Two bytes are nothing. */
	OK(overbank_copies_lookup(widest, forged, 1, &value, &found, &ticket));
	CHECK(found == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	(void)miss(copies, 30);
	overbank_copies_destroy(widest);

	/* Bits that are not the caller's: any of them changed is no fault, and perhaps a wrong entry.
	 * This table has one bucket, so that an entry of another key is found. */
	struct overbank_copies *broken = make(1, 1, 1);
	bool wrong = false;
	absent = miss(broken, 7);
	for (size_t bit = 0; bit < 8 * sizeof absent; bit++) {
		struct overbank_aside_ticket changed = absent;
		((unsigned char *)&changed)[bit / 8] ^= (unsigned char)(1 << bit % 8);
		enum overbank_status said = overbank_copies_fill(broken, &changed, &ten);
		CHECK(said == OVERBANK_OK || said == OVERBANK_DECLINED);
		if (look(broken, 6, &value, NULL) == OVERBANK_ASIDE_HIT) {
			CHECK(value == 10);
			wrong = true;
		}
	}
	CHECK(wrong);
	overbank_copies_destroy(broken);

	/* From begin to end: the entry is out, and nothing comes in. */
	OK(overbank_copies_writer_begin(writer, &key));
	ticket = miss(copies, 7);
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &copy, &ten));
	INVALID("keep or finish it first", overbank_copies_writer_begin(writer, &key));
	INVALID("keep or finish it first", overbank_copies_writer_begin_all(writer));
	INVALID("value is not aligned",
			overbank_copies_writer_keep(writer, ASKEW(uint64_t, two)));
	OK(overbank_copies_writer_keep(writer, &eleven));
	has(copies, 7, 11);
	/* Tickets from before, of inside and of after: only the last one is good. */
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &copy, &ten));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	has(copies, 7, 11);
	INVALID("begun no write", overbank_copies_writer_keep(writer, &ten));
	INVALID("begun no write", overbank_copies_writer_finish(writer));
	has(copies, 7, 11);
	/* Removed: said at once. Not said: a miss. */
	OK(overbank_copies_writer_begin(writer, &key));
	OK(overbank_copies_writer_keep(writer, NULL));
	has_none(copies, 7);
	OK(overbank_copies_writer_begin(writer, &key));
	OK(overbank_copies_writer_finish(writer));
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	/* A key that was not there is not brought in. */
	key = 9;
	OK(overbank_copies_writer_begin(writer, &key));
	OK(overbank_copies_writer_keep(writer, &ten));
	miss(copies, 9);
	/* Two writers of one key: neither is kept, whichever was first. */
	key = 7;
	OK(overbank_copies_writer_begin(writer, &key));
	OK(overbank_copies_writer_begin(second, &key));
	OK(overbank_copies_writer_keep(writer, &ten));
	OK(overbank_copies_writer_keep(second, &eleven));
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));

	/* A clear, and a write of all keys. */
	struct overbank_aside_ticket early = miss(copies, 20);
	OK(overbank_copies_clear(copies));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &early, &ten));
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	early = miss(copies, 20);
	OK(overbank_copies_writer_begin_all(writer));
	ticket = miss(copies, 7);
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &early, &ten));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	INVALID("has no value", overbank_copies_writer_keep(writer, &ten));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	OK(overbank_copies_writer_finish(writer));
	STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	has(copies, 7, 10);

	/* A writer that is destroyed has finished; one that outlives the table still works. */
	OK(overbank_copies_writer_begin(second, &key));
	overbank_copies_writer_destroy(second);
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	OK(overbank_copies_writer_begin(writer, &key));
	overbank_copies_destroy(copies);
	OK(overbank_copies_writer_keep(writer, &ten));
	OK(overbank_copies_writer_begin(writer, &key));
	overbank_copies_writer_destroy(writer);
	/* Another table at its place knows another table's tickets. */
	for (int i = 0; i < 4; i++) {
		copies = make(1, 1, 1000);
		STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
		overbank_copies_destroy(copies);
	}
	overbank_copies_destroy(other);
	overbank_copies_destroy(wide);
}

/* More writers in one bucket than it counts. The last one is one of the whole table; afterwards all
 * is as before. */
static void crowd(void)
{
	enum { INSIDE = 255 };
	struct overbank_copies *copies = make(1, 1, 1000);
	struct overbank_copies_writer *inside[INSIDE], *last = writer_of(copies);
	uint64_t ten = 10, eleven = 11, key = 7;
	size_t filled = 0;
	for (int i = 0; i < INSIDE; i++) {
		inside[i] = writer_of(copies);
		OK(overbank_copies_writer_begin(inside[i], &key));
	}
	for (uint64_t k = 100; k < 110; k++) {
		struct overbank_aside_ticket ticket = miss(copies, k);
		filled += overbank_copies_fill(copies, &ticket, &ten) == OVERBANK_OK;
	}
	CHECK(filled >= 5);
	OK(overbank_copies_writer_begin(last, &key));
	for (uint64_t k = 100; k < 110; k++) {
		struct overbank_aside_ticket ticket = miss(copies, k);
		STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
	}
	OK(overbank_copies_writer_keep(last, &eleven));
	miss(copies, 7);
	overbank_copies_writer_destroy(last);
	for (int i = 0; i < INSIDE; i++) {
		struct overbank_aside_ticket ticket = miss(copies, 7);
		STATUS(OVERBANK_DECLINED, overbank_copies_fill(copies, &ticket, &ten));
		OK(overbank_copies_writer_keep(inside[i], &eleven));
		overbank_copies_writer_destroy(inside[i]);
	}
	struct overbank_aside_ticket ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	has(copies, 7, 10);
	overbank_copies_destroy(copies);
}

/* A map of C behind a lock. Its values only grow; `floors` are those whose writes have ended. */
struct map {
	struct overbank_copies *copies;
	pthread_mutex_t lock;
	uint64_t values[KEYS];
	_Atomic uint64_t floors[KEYS];
	struct readers readers;
};

static uint64_t read_all(void *argument)
{
	struct map *map = argument;
	uint64_t keys[KEYS][2], values[KEYS][2], floors[KEYS], hits = 0;
	uint8_t found[KEYS];
	struct overbank_aside_ticket tickets[KEYS];
	for (uint64_t k = 0; k < KEYS; k++) {
		words_of(keys[k], 2, k);
		floors[k] = atomic_load(&map->floors[k]);
	}
	OK(overbank_copies_lookup(map->copies, keys[0], KEYS, values[0], found, tickets));
	for (size_t k = 0; k < KEYS; k++) {
		uint64_t value = values[k][0];
		if (found[k] == OVERBANK_ASIDE_MISS) {
			CHECK(pthread_mutex_lock(&map->lock) == 0);
			value = map->values[k];
			CHECK(pthread_mutex_unlock(&map->lock) == 0);
			uint64_t pair[2] = {value, ~value};
			enum overbank_status said = overbank_copies_fill(map->copies, &tickets[k],
					value ? pair : NULL);
			CHECK(said == OVERBANK_OK || said == OVERBANK_DECLINED);
		} else {
			CHECK(found[k] == OVERBANK_ASIDE_ABSENT || values[k][1] == ~value);
			hits++;
		}
		CHECK(value >= floors[k]);
	}
	return hits;
}

static void threads(void)
{
	static struct map map = {.lock = PTHREAD_MUTEX_INITIALIZER};
	uint64_t state = 5;
	map.copies = make(2, 2, 2 * KEYS);
	struct overbank_copies_writer *writer = writer_of(map.copies);
	map.readers.round = read_all;
	map.readers.of = &map;
	readers_start(&map.readers);
	for (uint64_t write = 1; write <= operations || !readers_met(&map.readers, ROUNDS); write++) {
		uint64_t random = next_random(&state), k = random % KEYS, key[2];
		uint64_t pair[2] = {write, ~write};
		unsigned kind = write % 64;
		words_of(key, 2, k);
		if (kind > 1)
			OK(overbank_copies_writer_begin(writer, key));
		else if (kind == 1)
			OK(overbank_copies_writer_begin_all(writer));
		CHECK(pthread_mutex_lock(&map.lock) == 0);
		map.values[k] = write;
		/* Past the writer: under the lock that readers take. */
		if (kind == 0)
			OK(overbank_copies_clear(map.copies));
		CHECK(pthread_mutex_unlock(&map.lock) == 0);
		if (kind > 1 && write % 3)
			OK(overbank_copies_writer_keep(writer, pair));
		else if (kind)
			OK(overbank_copies_writer_finish(writer));
		atomic_store(&map.floors[k], write);
		atomic_store(&map.readers.writes, write);
		/* Time to fill, and to hit. */
		if (write % 256 == 0)
			readers_pass(&map.readers, 2);
	}
	readers_end(&map.readers);
	/* All is quiet: two more rounds, and the second one hits. */
	(void)read_all(&map);
	CHECK(read_all(&map) > 0);
	overbank_copies_writer_destroy(writer);
	overbank_copies_destroy(map.copies);
}

void test_copies(void)
{
	for (size_t key_words = 1; key_words <= 4; key_words++)
		for (size_t value_words = 1; value_words <= 8; value_words++)
			twin(key_words, value_words);
	rules();
	crowd();
	threads();

	/* What is destroyed is given back: this would be 4 GiB. */
	long before = address_space();
	for (int i = 0; i < 64; i++)
		overbank_copies_destroy(make(1, 1, 3 << 20));
	CHECK(address_space() - before < 256 << 20);
}
