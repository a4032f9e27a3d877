/* Look-aside tables in front of a database with snapshots: beside its history; in the wrong order;
 * threads. */
#include "readers.h"

enum { KEYS = 40, VIEWS = 4, VERSIONS = 1000, ROUNDS = 40, UNTOUCHED = 9 };

static struct overbank_versioned *make(size_t key_words, size_t value_words, size_t entries)
{
	struct overbank_aside_options options = {.seed = 3, .pages = 1};
	struct overbank_versioned *versioned = NULL;
	OK(overbank_versioned_create(key_words, value_words, entries, &options, &versioned));
	CHECK(versioned);
	return versioned;
}

static struct overbank_versioned_view *view_of(const struct overbank_versioned *versioned)
{
	struct overbank_versioned_view *view = NULL;
	OK(overbank_versioned_view_create(versioned, &view));
	CHECK(view);
	return view;
}

static struct overbank_versioned_commit *commit_of(const struct overbank_versioned *versioned)
{
	struct overbank_versioned_commit *commit = NULL;
	OK(overbank_versioned_commit_create(versioned, &commit));
	CHECK(commit);
	return commit;
}

static uint64_t published(const struct overbank_versioned *versioned)
{
	uint64_t version = UINT64_MAX;
	OK(overbank_versioned_published(versioned, &version));
	return version;
}

static void words_of(uint64_t *words, size_t count, uint64_t number)
{
	for (size_t i = 0; i < count; i++)
		words[i] = overbank_mix(number + 1000 * i);
}

/* Looks up all keys through a view, checks them beside a snapshot, and fills what is missing.
 * Returns how many were there. */
static size_t read_all(const struct overbank_versioned_view *view, size_t key_words,
		       size_t value_words, const uint32_t *snapshot)
{
	uint64_t keys[4 * KEYS], values[8 * KEYS], value[8];
	uint8_t found[KEYS];
	struct overbank_aside_ticket tickets[KEYS];
	size_t hits = 0;
	for (size_t k = 0; k < KEYS; k++)
		words_of(keys + k * key_words, key_words, k);
	memset(found, UNTOUCHED, sizeof found);
	OK(overbank_versioned_view_lookup(view, keys, KEYS, values, found, tickets));
	for (size_t k = 0; k < KEYS; k++) {
		words_of(value, value_words, snapshot[k]);
		if (found[k] == OVERBANK_ASIDE_MISS) {
			enum overbank_status said = overbank_versioned_view_fill(view, &tickets[k],
					snapshot[k] ? value : NULL);
			CHECK(said == OVERBANK_OK || said == OVERBANK_DECLINED);
			continue;
		}
		hits++;
		CHECK(found[k] == (snapshot[k] ? OVERBANK_ASIDE_HIT : OVERBANK_ASIDE_ABSENT));
		if (snapshot[k])
			CHECK(memcmp(values + k * value_words, value, 8 * value_words) == 0);
	}
	return hits;
}

/* The state of a database after each commit; 0 is absent. */
static uint32_t history[VERSIONS][KEYS];

/* Random commits, aborts and readers. */
static void twin(size_t key_words, size_t value_words)
{
	struct overbank_versioned *versioned = make(key_words, value_words, 20);
	struct overbank_versioned_commit *commit = commit_of(versioned);
	struct overbank_versioned_view *views[VIEWS];
	size_t at[VIEWS] = {0}, newest = 0, hits = 0;
	uint64_t state = 1;
	uint32_t next = 0;
	struct overbank_aside_info info;
	OK(overbank_versioned_info(versioned, &info));
	CHECK(info.key_words == key_words && info.value_words == value_words);
	CHECK(info.slots >= 20 && info.bytes >= info.slots * 8 * (key_words + value_words));
	memset(history, 0, sizeof history);
	for (int i = 0; i < VIEWS; i++)
		views[i] = view_of(versioned);
	for (size_t operation = 0; operation < operations / 128; operation++) {
		uint64_t random = next_random(&state), value[8], key[4];
		size_t i = random % VIEWS;
		switch (random >> 32 & 3) {
		case 0: /* A commit, whose number comes again if it is aborted. */
			if (newest + 1 == VERSIONS)
				break;
			OK(overbank_versioned_commit_begin(commit, newest + 1));
			memcpy(history[newest + 1], history[newest], sizeof history[0]);
			for (uint64_t changes = random >> 36 & 7; changes--;) {
				uint64_t more = next_random(&state), k = more % KEYS;
				history[newest + 1][k] = more >> 32 & 3 ? ++next : 0;
				words_of(key, key_words, k);
				words_of(value, value_words, history[newest + 1][k]);
				if (more >> 40 & 3)
					OK(overbank_versioned_commit_change(commit, key,
							history[newest + 1][k] ? value : NULL));
				else
					OK(overbank_versioned_commit_touch(commit, key));
			}
			if ((random >> 40 & 15) == 0) {
				for (size_t k = 0; k < KEYS; k += 2)
					history[newest + 1][k] = ++next;
				OK(overbank_versioned_commit_clear(commit));
			}
			if (random >> 44 & 3) {
				OK(overbank_versioned_commit_publish(commit));
				newest++;
			} else {
				OK(overbank_versioned_commit_abort(commit));
			}
			CHECK(published(versioned) == newest);
			break;
		case 1:
			at[i] = random >> 40 & 7 ? newest : at[i];
			OK(overbank_versioned_view_at(views[i], at[i]));
			break;
		case 2: {
			uint64_t version = UINT64_MAX;
			OK(overbank_versioned_view_latest(views[i], &version));
			CHECK(version == newest);
			at[i] = newest;
			if ((random >> 40 & 15) == 0)
				OK(overbank_versioned_clear(versioned));
			break;
		}
		default:
			hits += read_all(views[i], key_words, value_words, history[at[i]]);
		}
	}
	/* An aborted clear lasts until its number is committed. */
	OK(overbank_versioned_commit_begin(commit, newest + 1));
	OK(overbank_versioned_commit_publish(commit));
	OK(overbank_versioned_view_latest(views[0], NULL));
	(void)read_all(views[0], key_words, value_words, history[newest]);
	hits += read_all(views[0], key_words, value_words, history[newest]);
	CHECK(hits);
	for (int i = 0; i < VIEWS; i++)
		overbank_versioned_view_destroy(views[i]);
	overbank_versioned_commit_destroy(commit);
	overbank_versioned_destroy(versioned);
}

/* Looks up one key of one word with a value of one. */
static uint8_t look(const struct overbank_versioned_view *view, uint64_t key, uint64_t *value,
		    struct overbank_aside_ticket *ticket)
{
	uint8_t found = UNTOUCHED;
	*value = UNTOUCHED;
	OK(overbank_versioned_view_lookup(view, &key, 1, value, &found, ticket));
	return found;
}

static void rules(void)
{
	struct overbank_versioned *versioned = make(1, 1, 1000), *other = make(1, 1, 1000);
	struct overbank_versioned_view *old = view_of(versioned), *now = view_of(versioned);
	struct overbank_versioned_view *foreign = view_of(other);
	struct overbank_versioned_commit *commit = commit_of(versioned), *second;
	struct overbank_aside_ticket ticket, of_old;
	uint64_t key = 7, ten = 10, eleven = 11, value, version = 0;
	second = commit_of(versioned);

	/* Absence is kept; tickets are of one table and one snapshot. */
	CHECK(look(old, 7, &value, &of_old) == OVERBANK_ASIDE_MISS && value == 0);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(foreign, &of_old, NULL));
	OK(overbank_versioned_view_fill(old, &of_old, NULL));
	CHECK(look(old, 7, &value, NULL) == OVERBANK_ASIDE_ABSENT && value == 0);
	struct overbank_aside_ticket zero = {0};
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(old, &zero, &ten));

	/* Nothing of a commit is seen before it is published. */
	OK(overbank_versioned_commit_begin(commit, 1));
	INVALID("publish or abort it first", overbank_versioned_commit_begin(commit, 2));
	OK(overbank_versioned_commit_change(commit, &key, &ten));
	CHECK(look(old, 7, &value, NULL) == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(old, &of_old, NULL));
	OK(overbank_versioned_view_at(now, 1));
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(now, &ticket, &ten));
	CHECK(published(versioned) == 0);
	OK(overbank_versioned_commit_publish(commit));
	CHECK(published(versioned) == 1);
	/* The view that asked too early stays as it was; the old one misses. */
	CHECK(look(now, 7, &value, NULL) == OVERBANK_ASIDE_MISS);
	CHECK(look(old, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(old, &ticket, NULL));
	OK(overbank_versioned_view_at(now, 1));
	CHECK(look(now, 7, &value, NULL) == OVERBANK_ASIDE_HIT && value == 10);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(now, &of_old, &ten));

	/* What is over cannot go on. */
	INVALID("no commit has begun", overbank_versioned_commit_publish(commit));
	INVALID("no commit has begun", overbank_versioned_commit_abort(commit));
	INVALID("no commit has begun", overbank_versioned_commit_change(commit, &key, &ten));
	INVALID("no commit has begun", overbank_versioned_commit_touch(commit, &key));
	INVALID("no commit has begun", overbank_versioned_commit_clear(commit));
	INVALID("must be above 1", overbank_versioned_commit_begin(commit, 1));
	INVALID("must be above 1", overbank_versioned_commit_begin(commit, UINT64_MAX));
	INVALID("no commit has begun", overbank_versioned_commit_publish(commit));

	/* Aborted: its value never shows, though its number comes again. */
	OK(overbank_versioned_commit_begin(commit, 2));
	OK(overbank_versioned_commit_change(commit, &key, &eleven));
	OK(overbank_versioned_commit_abort(commit));
	OK(overbank_versioned_commit_begin(commit, 2));
	OK(overbank_versioned_commit_publish(commit));
	OK(overbank_versioned_view_latest(now, &version));
	CHECK(version == 2);
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	OK(overbank_versioned_view_fill(now, &ticket, &ten));
	OK(overbank_versioned_view_fill(now, &ticket, &ten));
	CHECK(look(now, 7, &value, NULL) == OVERBANK_ASIDE_HIT && value == 10);

	/* The second commit ends the first: what it then publishes is not believed. */
	OK(overbank_versioned_commit_begin(commit, 3));
	OK(overbank_versioned_commit_change(commit, &key, &eleven));
	OK(overbank_versioned_commit_begin(second, 3));
	OK(overbank_versioned_commit_publish(commit));
	OK(overbank_versioned_view_latest(now, NULL));
	CHECK(look(now, 7, &value, NULL) == OVERBANK_ASIDE_MISS);
	OK(overbank_versioned_commit_publish(second));
	/* One that is destroyed is aborted. */
	OK(overbank_versioned_commit_begin(second, 4));
	overbank_versioned_commit_destroy(second);
	OK(overbank_versioned_view_at(now, 4)); /* Of another process, then. */
	CHECK(published(versioned) == 4);

	/* A clear ends views and tickets; one by a commit ends older snapshots. */
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	OK(overbank_versioned_clear(versioned));
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(now, &ticket, &ten));
	OK(overbank_versioned_view_at(now, 4));
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	OK(overbank_versioned_view_fill(now, &ticket, &ten));
	OK(overbank_versioned_commit_begin(commit, 5));
	OK(overbank_versioned_commit_clear(commit));
	OK(overbank_versioned_commit_publish(commit));
	OK(overbank_versioned_view_at(now, 4));
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(now, &ticket, &ten));

	/* More than 48 bits answer nothing. */
	OK(overbank_versioned_view_at(now, UINT64_MAX));
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	STATUS(OVERBANK_DECLINED, overbank_versioned_view_fill(now, &ticket, &ten));
	CHECK(published(versioned) == 5);

	/* Views and commits outlive the table. */
	OK(overbank_versioned_commit_begin(commit, 6));
	overbank_versioned_destroy(versioned);
	OK(overbank_versioned_commit_change(commit, &key, &ten));
	OK(overbank_versioned_commit_publish(commit));
	OK(overbank_versioned_view_latest(now, &version));
	CHECK(version == 6);
	CHECK(look(now, 7, &value, &ticket) == OVERBANK_ASIDE_MISS);
	OK(overbank_versioned_view_fill(now, &ticket, &ten));
	OK(overbank_versioned_commit_begin(commit, 7));
	overbank_versioned_commit_destroy(commit);
	CHECK(look(now, 7, &value, NULL) == OVERBANK_ASIDE_HIT && value == 10);
	overbank_versioned_view_destroy(old);
	overbank_versioned_view_destroy(now);
	overbank_versioned_view_destroy(foreign);
	overbank_versioned_destroy(other);
}

static void refuses(void)
{
	struct overbank_versioned *versioned = make(2, 3, 100), *none = NULL;
	struct overbank_versioned_view *view = view_of(versioned), *no_view = NULL;
	struct overbank_versioned_commit *commit = commit_of(versioned), *no_commit = NULL;
	struct overbank_aside_options options = {.gate = 1, .costs = {1, 2, 3}};
	struct overbank_aside_costs costs = {.hit = 1, .index = 2};
	struct overbank_aside_gate gate;
	struct overbank_aside_counters counters;
	struct overbank_aside_info info;
	struct overbank_aside_ticket tickets[2];
	uint64_t keys[5] = {1, 2, 3, 4, 5}, values[7] = {0}, version = 77;
	uint8_t found[2] = {UNTOUCHED, UNTOUCHED};

	INVALID("out is NULL", overbank_versioned_create(1, 1, 1, NULL, NULL));
	INVALID("not 0 and 1", overbank_versioned_create(0, 1, 1, NULL, &none));
	INVALID("not 1 and 9", overbank_versioned_create(1, 9, 1, NULL, &none));
	INVALID("at least one entry", overbank_versioned_create(1, 1, 0, NULL, &none));
	options.reserved[1] = 1;
	INVALID("reserved", overbank_versioned_create(1, 1, 1, &options, &none));
	options.reserved[1] = 0;
	CHECK(!none);
	OK(overbank_versioned_create(1, 1, 1, &options, &none));
	OK(overbank_versioned_gate(none, &gate));
	CHECK(gate.swings && gate.open && gate.costs.miss == 2);
	overbank_versioned_destroy(none);

	INVALID("handle is NULL", overbank_versioned_published(NULL, &version));
	INVALID("out is NULL", overbank_versioned_published(versioned, NULL));
	INVALID("handle is NULL", overbank_versioned_clear(NULL));
	INVALID("handle is NULL", overbank_versioned_set_costs(NULL, &costs));
	INVALID("costs is NULL", overbank_versioned_set_costs(versioned, NULL));
	OK(overbank_versioned_set_costs(versioned, &costs));
	costs = (struct overbank_aside_costs){0};
	INVALID("unknown costs", overbank_versioned_set_costs(versioned, &costs));
	costs.index = -1;
	INVALID("costs: index", overbank_versioned_set_costs(versioned, &costs));
	INVALID("handle is NULL", overbank_versioned_gate(NULL, &gate));
	INVALID("out is NULL", overbank_versioned_gate(versioned, NULL));
	OK(overbank_versioned_gate(versioned, &gate));
	CHECK(gate.costs.index == 2 && !gate.swings);
	INVALID("handle is NULL", overbank_versioned_counters(NULL, &counters));
	INVALID("out is NULL", overbank_versioned_counters(versioned, NULL));
	OK(overbank_versioned_counters(versioned, &counters));
	CHECK(counters.hits == 0 && counters.misses == 0);
	INVALID("handle is NULL", overbank_versioned_info(NULL, &info));
	INVALID("out is NULL", overbank_versioned_info(versioned, NULL));

	INVALID("handle is NULL", overbank_versioned_view_create(NULL, &no_view));
	INVALID("out is NULL", overbank_versioned_view_create(versioned, NULL));
	CHECK(!no_view);
	INVALID("handle is NULL", overbank_versioned_view_at(NULL, 0));
	INVALID("handle is NULL", overbank_versioned_view_latest(NULL, &version));
	INVALID("version is not aligned", overbank_versioned_view_latest(view,
			ASKEW(uint64_t, keys)));
	CHECK(version == 77);
	INVALID("handle is NULL", overbank_versioned_view_lookup(NULL, keys, 2, values, found,
			NULL));
	INVALID("keys is NULL", overbank_versioned_view_lookup(view, NULL, 2, values, found, NULL));
	INVALID("values is NULL", overbank_versioned_view_lookup(view, keys, 2, NULL, found, NULL));
	INVALID("found is NULL", overbank_versioned_view_lookup(view, keys, 2, values, NULL, NULL));
	INVALID("tickets is not aligned", overbank_versioned_view_lookup(view, keys, 1, values,
			found, ASKEW(struct overbank_aside_ticket, tickets)));
	INVALID("exceed", overbank_versioned_view_lookup(view, keys, SIZE_MAX, values, found,
			NULL));
	INVALID("keys and values overlap", overbank_versioned_view_lookup(view, keys, 1, keys + 1,
			found, NULL));
	CHECK(found[0] == UNTOUCHED && found[1] == UNTOUCHED);
	OK(overbank_versioned_view_lookup(view, NULL, 0, NULL, NULL, NULL));
	OK(overbank_versioned_view_lookup(view, keys, 2, values, found, tickets));
	INVALID("handle is NULL", overbank_versioned_view_fill(NULL, tickets, values));
	INVALID("ticket is NULL", overbank_versioned_view_fill(view, NULL, values));
	INVALID("value is not aligned", overbank_versioned_view_fill(view, tickets,
			ASKEW(uint64_t, values)));

	INVALID("handle is NULL", overbank_versioned_commit_create(NULL, &no_commit));
	INVALID("out is NULL", overbank_versioned_commit_create(versioned, NULL));
	CHECK(!no_commit);
	INVALID("handle is NULL", overbank_versioned_commit_begin(NULL, 1));
	OK(overbank_versioned_commit_begin(commit, 1));
	INVALID("handle is NULL", overbank_versioned_commit_change(NULL, keys, values));
	INVALID("key is NULL", overbank_versioned_commit_change(commit, NULL, values));
	INVALID("value is not aligned", overbank_versioned_commit_change(commit, keys,
			ASKEW(uint64_t, values)));
	INVALID("handle is NULL", overbank_versioned_commit_touch(NULL, keys));
	INVALID("key is not aligned", overbank_versioned_commit_touch(commit,
			ASKEW(uint64_t, keys)));
	INVALID("handle is NULL", overbank_versioned_commit_clear(NULL));
	INVALID("handle is NULL", overbank_versioned_commit_publish(NULL));
	INVALID("handle is NULL", overbank_versioned_commit_abort(NULL));
	OK(overbank_versioned_commit_abort(commit));
	overbank_versioned_commit_destroy(commit);
	overbank_versioned_commit_destroy(NULL);
	overbank_versioned_view_destroy(view);
	overbank_versioned_view_destroy(NULL);
	overbank_versioned_destroy(versioned);
	overbank_versioned_destroy(NULL);
}

/* One thread commits, two read the newest snapshot, and the first one through one view that both
 * have. What was committed stays as it is. Rows of the history are used again: no reader is that far
 * behind. */
struct shared {
	struct overbank_versioned *versioned;
	struct overbank_versioned_view *first;
	struct readers readers;
};

static uint64_t read_newest(void *argument)
{
	static const uint32_t absent[KEYS];
	struct shared *shared = argument;
	struct overbank_versioned_view *view = view_of(shared->versioned);
	uint64_t hits = 0, version;
	OK(overbank_versioned_view_latest(view, &version));
	hits += read_all(view, 1, 2, history[version % VERSIONS]);
	if (version % 8 == 0) {
		OK(overbank_versioned_view_at(view, version));
		hits += read_all(view, 1, 2, history[version % VERSIONS]);
	}
	overbank_versioned_view_destroy(view);
	(void)read_all(shared->first, 1, 2, absent);
	return hits;
}

/* A new meter begins with lookups through the table, and then goes around it for a while. */
static void meter(void)
{
	struct overbank_versioned *versioned = make(1, 1, 9);
	struct overbank_aside_meter *meter = NULL;
	uint8_t around = UNTOUCHED;
	size_t ways[2] = {0, 0};
	OK(overbank_aside_meter_create(&meter));
	for (size_t i = 0; i < 1000; i++) {
		OK(overbank_versioned_way(versioned, meter, 512, &around));
		CHECK(around <= 1);
		ways[around]++;
	}
	/* A window goes on while a coarse clock stands still. */
	CHECK(ways[0] >= 256 && ways[1] > 0 && ways[1] <= 512);
	INVALID("around is NULL", overbank_versioned_way(versioned, meter, 1, NULL));
	INVALID("handle is NULL", overbank_versioned_way(versioned, NULL, 1, &around));
	INVALID("handle is NULL", overbank_versioned_way(NULL, meter, 1, &around));
	overbank_aside_meter_destroy(meter);
	overbank_versioned_destroy(versioned);
}

static void threads(void)
{
	static struct shared shared;
	uint64_t state = 5;
	uint32_t next = 0;
	memset(history, 0, sizeof history);
	shared.versioned = make(1, 2, 2 * KEYS);
	shared.first = view_of(shared.versioned);
	struct overbank_versioned_commit *commit = commit_of(shared.versioned);
	shared.readers.round = read_newest;
	shared.readers.of = &shared;
	readers_start(&shared.readers);
	for (size_t version = 1;
	     version < operations / 8 || !readers_met(&shared.readers, ROUNDS);) {
		uint64_t key, value[2];
		uint32_t *row = history[version % VERSIONS];
		OK(overbank_versioned_commit_begin(commit, version));
		memcpy(row, history[(version - 1) % VERSIONS], sizeof history[0]);
		for (int changes = 0; changes < 4; changes++) {
			uint64_t random = next_random(&state), k = random % KEYS;
			words_of(&key, 1, k);
			words_of(value, 2, ++next);
			row[k] = next;
			OK(overbank_versioned_commit_change(commit, &key, value));
		}
		if (next_random(&state) % 4) {
			OK(overbank_versioned_commit_publish(commit));
			/* Time to fill, and to hit. */
			if (version++ % 16 == 0)
				readers_pass(&shared.readers, 2);
		} else {
			OK(overbank_versioned_commit_abort(commit));
		}
		atomic_fetch_add(&shared.readers.writes, 1);
	}
	readers_end(&shared.readers);
	(void)read_newest(&shared);
	CHECK(read_newest(&shared) > 0);
	overbank_versioned_commit_destroy(commit);
	overbank_versioned_view_destroy(shared.first);
	overbank_versioned_destroy(shared.versioned);
}

void test_versioned(void)
{
	refuses();
	for (size_t key_words = 1; key_words <= 4; key_words++)
		for (size_t value_words = 1; value_words <= 8; value_words++)
			twin(key_words, value_words);
	rules();
	meter();
	threads();
}
