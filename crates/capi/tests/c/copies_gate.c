/* Look-aside tables in front of a live index: the gate, and wrong arguments. */
#include "copies.h"

/* Looks up one key of a table whose only bucket is sampled, `count` times. */
static void look_often(const struct overbank_copies *copies, size_t count)
{
	for (size_t i = 0; i < count; i++)
		has(copies, 7, 10);
}

static void gate(void)
{
	struct overbank_copies *copies = NULL, *large = NULL;
	struct overbank_aside_options options = {.pages = 1, .gate = 1};
	struct overbank_aside_gate gate;
	struct overbank_aside_counters counters;
	uint64_t ten = 10;

	OK(overbank_copies_create(1, 1, 1, &options, &copies));
	struct overbank_aside_ticket ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	OK(overbank_copies_gate(copies, &gate));
	CHECK(gate.open && gate.swings && gate.decisions == 0 && gate.hit_rate == 0);
	CHECK(gate.costs.hit == 0 && gate.costs.miss == 0 && gate.costs.index == 0);
	/* Hits that save nothing, then much. */
	struct overbank_aside_costs costs = {.hit = 40, .miss = 40, .index = 20};
	OK(overbank_copies_set_costs(copies, &costs));
	look_often(copies, 5000);
	OK(overbank_copies_gate(copies, &gate));
	CHECK(!gate.open && gate.decisions > 0 && gate.hit_rate > 0.9 && gate.hit_rate <= 1);
	CHECK(gate.costs.hit == 40 && gate.costs.index == 20);
	costs.index = 400;
	OK(overbank_copies_set_costs(copies, &costs));
	look_often(copies, 5000);
	OK(overbank_copies_gate(copies, &gate));
	CHECK(gate.open);
	OK(overbank_copies_counters(copies, &counters));
	CHECK(counters.hits == 10000 && counters.misses == 1 && counters.fills == 1);
	overbank_copies_destroy(copies);

	/* Costs from the start. Once closed, most buckets give tickets that fill nothing. */
	options.costs = (struct overbank_aside_costs){.hit = 40, .miss = 40, .index = 20};
	OK(overbank_copies_create(1, 1, 99, &options, &large));
	size_t open = 0, filled = 0;
	for (uint64_t k = 0; k < 60000; k++)
		(void)miss(large, k);
	OK(overbank_copies_gate(large, &gate));
	CHECK(!gate.open);
	for (uint64_t k = 0; k < 1650; k++) {
		ticket = miss(large, k);
		filled += overbank_copies_fill(large, &ticket, &ten) == OVERBANK_OK;
		open += ticket.table != 0;
	}
	CHECK(filled > 0 && filled <= open && open < 400);
	overbank_copies_destroy(large);

	/* All zero is unknown, here as in the options: nothing is set. */
	options.costs = (struct overbank_aside_costs){0};
	OK(overbank_copies_create(1, 1, 1, &options, &copies));
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	INVALID("unknown costs", overbank_copies_set_costs(copies, &options.costs));
	look_often(copies, 5000);
	OK(overbank_copies_gate(copies, &gate));
	CHECK(gate.open && gate.costs.hit == 0 && gate.costs.miss == 0 && gate.costs.index == 0);
	overbank_copies_destroy(copies);

	/* Without a gate it never closes. */
	copies = make(1, 1, 1);
	ticket = miss(copies, 7);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	costs.index = 1;
	OK(overbank_copies_set_costs(copies, &costs));
	look_often(copies, 5000);
	OK(overbank_copies_gate(copies, &gate));
	CHECK(gate.open && !gate.swings);
	overbank_copies_destroy(copies);
}

/* A meter sends lookups both ways until the gate has their costs; a fast index closes it. */
static void meter(void)
{
	struct overbank_copies *copies = NULL;
	struct overbank_aside_options options = {.pages = 1, .gate = 1};
	struct overbank_aside_meter *meter = NULL;
	struct overbank_aside_gate gate;
	uint64_t seven = 7, ten = 10, value;
	uint8_t around, found;
	size_t ways[2] = {0, 0};

	OK(overbank_copies_create(1, 1, 1, &options, &copies));
	struct overbank_aside_ticket ticket = miss(copies, seven);
	OK(overbank_copies_fill(copies, &ticket, &ten));
	OK(overbank_aside_meter_create(&meter));
	for (size_t i = 0; i < 1000000; i++) {
		OK(overbank_copies_way(copies, meter, 1, &around));
		CHECK(around <= 1);
		ways[around]++;
		if (around)
			continue;               /* the index: no time at all */
		OK(overbank_copies_lookup(copies, &seven, 1, &value, &found, NULL));
		OK(overbank_aside_meter_hits(meter, found == OVERBANK_ASIDE_HIT));
	}
	OK(overbank_copies_gate(copies, &gate));
	CHECK(!gate.open && gate.decisions > 0 && gate.costs.hit > gate.costs.index);
	/* Of 64 windows four go through the closed table. */
	ways[0] = ways[1] = 0;
	for (size_t i = 0; i < 64 * 512; i++) {
		OK(overbank_copies_way(copies, meter, 1, &around));
		ways[around]++;
	}
	CHECK(ways[0] > 0 && ways[0] <= 5 * 512);
	/* More hits than lookups are as many. */
	OK(overbank_aside_meter_hits(meter, UINT32_MAX));
	OK(overbank_aside_meter_hits(meter, UINT32_MAX));
	INVALID("around is NULL", overbank_copies_way(copies, meter, 1, NULL));
	INVALID("handle is NULL", overbank_copies_way(copies, NULL, 1, &around));
	INVALID("handle is NULL", overbank_copies_way(NULL, meter, 1, &around));
	INVALID("handle is NULL", overbank_aside_meter_hits(NULL, 1));
	INVALID("meter is NULL", overbank_aside_meter_create(NULL));
	overbank_aside_meter_destroy(meter);
	overbank_aside_meter_destroy(NULL);
	overbank_copies_destroy(copies);
}

/* Every two arrays of a lookup, one of which ends a byte or a word into the other. What only touches
 * is right, and so are tickets that are not asked for. */
static void overlaps(void)
{
	struct overbank_copies *copies = make(2, 3, 100);
	/* In words: 4 of keys, 6 of values, 2 bytes found, 16 of tickets. */
	uint64_t words[64] = {0};
	struct overbank_aside_ticket *tickets = (void *)&words[32];
	uint8_t *found = (void *)&words[20], *bytes = (void *)words;
	/* Nothing is written by a call that is refused. */
	memset(found, UNTOUCHED, 2);

	INVALID("keys and values overlap", overbank_copies_lookup(copies, words, 2, words + 3,
			found, tickets));
	INVALID("keys and values overlap", overbank_copies_lookup(copies, words + 5, 2, words,
			found, tickets));
	INVALID("keys and values overlap", overbank_copies_lookup(copies, words, 1, words,
			found, tickets));
	INVALID("keys and found overlap", overbank_copies_lookup(copies, words, 2, words + 8,
			bytes + 31, tickets));
	INVALID("keys and found overlap", overbank_copies_lookup(copies, words + 1, 2, words + 8,
			bytes + 7, tickets));
	INVALID("keys and tickets overlap", overbank_copies_lookup(copies, words + 47, 2, words,
			found, tickets));
	INVALID("keys and tickets overlap", overbank_copies_lookup(copies, words + 29, 2, words,
			found, tickets));
	INVALID("values and found overlap", overbank_copies_lookup(copies, words + 8, 2, words,
			bytes + 47, tickets));
	INVALID("values and found overlap", overbank_copies_lookup(copies, words + 8, 2, words + 1,
			bytes + 7, tickets));
	INVALID("values and tickets overlap", overbank_copies_lookup(copies, words, 2, words + 47,
			found, tickets));
	INVALID("values and tickets overlap", overbank_copies_lookup(copies, words, 2, words + 27,
			found, tickets));
	INVALID("found and tickets overlap", overbank_copies_lookup(copies, words, 2, words + 4,
			bytes + 8 * 48 - 1, tickets));
	INVALID("found and tickets overlap", overbank_copies_lookup(copies, words, 2, words + 4,
			bytes + 8 * 32 - 1, tickets));
	CHECK(found[0] == UNTOUCHED && found[1] == UNTOUCHED);
	for (size_t i = 0; i < 64; i++)
		CHECK(words[i] == 0 || i == 20);

	OK(overbank_copies_lookup(copies, words, 2, words + 4, bytes + 80, NULL));
	OK(overbank_copies_lookup(copies, words + 6, 2, words, bytes + 80, (void *)&words[11]));
	/* Of no keys there are no arrays. */
	OK(overbank_copies_lookup(copies, words, 0, words, bytes, (void *)words));
	overbank_copies_destroy(copies);
}

static void refuses(void)
{
	struct overbank_copies *copies = make(2, 3, 100), *none = NULL;
	struct overbank_copies_writer *writer = writer_of(copies), *no_writer = NULL;
	struct overbank_aside_options options = {0};
	struct overbank_aside_costs costs = {.hit = -1};
	struct overbank_aside_gate gate;
	struct overbank_aside_counters counters;
	struct overbank_aside_info info;
	struct overbank_aside_ticket tickets[2];
	uint64_t keys[5] = {1, 2, 3, 4, 5}, values[7] = {0};
	uint8_t found[2] = {UNTOUCHED, UNTOUCHED};

	INVALID("out is NULL", overbank_copies_create(1, 1, 1, NULL, NULL));
	INVALID("not 0 and 1", overbank_copies_create(0, 1, 1, NULL, &none));
	INVALID("not 5 and 1", overbank_copies_create(5, 1, 1, NULL, &none));
	INVALID("not 1 and 0", overbank_copies_create(1, 0, 1, NULL, &none));
	INVALID("not 4 and 9", overbank_copies_create(4, 9, 1, NULL, &none));
	INVALID("at least one entry", overbank_copies_create(1, 1, 0, NULL, &none));
	INVALID("at most 2147483648 buckets", overbank_copies_create(1, 1, SIZE_MAX, NULL, &none));
	options.gate = 2;
	INVALID("gate: 0 or 1", overbank_copies_create(1, 1, 1, &options, &none));
	options.gate = 0;
	options.costs.hit = 1;
	INVALID("without a gate", overbank_copies_create(1, 1, 1, &options, &none));
	options.gate = 1;
	options.costs.hit = -1;
	INVALID("costs: hit", overbank_copies_create(1, 1, 1, &options, &none));
	options = (struct overbank_aside_options){.pages = 7};
	INVALID("pages", overbank_copies_create(1, 1, 1, &options, &none));
	options = (struct overbank_aside_options){.reserved = {0, 0, 0, 1}};
	INVALID("reserved", overbank_copies_create(1, 1, 1, &options, &none));
	options = (struct overbank_aside_options){.unused = 1};
	INVALID("reserved", overbank_copies_create(1, 1, 1, &options, &none));
	INVALID("options is not aligned", overbank_copies_create(1, 1, 1,
			ASKEW(struct overbank_aside_options, &options), &none));
	CHECK(!none);

	INVALID("handle is NULL", overbank_copies_lookup(NULL, keys, 2, values, found, NULL));
	INVALID("keys is NULL", overbank_copies_lookup(copies, NULL, 2, values, found, NULL));
	INVALID("values is NULL", overbank_copies_lookup(copies, keys, 2, NULL, found, NULL));
	INVALID("found is NULL", overbank_copies_lookup(copies, keys, 2, values, NULL, NULL));
	INVALID("keys is not aligned", overbank_copies_lookup(copies, ASKEW(uint64_t, keys), 1,
			values, found, NULL));
	INVALID("values is not aligned", overbank_copies_lookup(copies, keys, 1,
			ASKEW(uint64_t, values), found, NULL));
	INVALID("tickets is not aligned", overbank_copies_lookup(copies, keys, 1, values, found,
			ASKEW(struct overbank_aside_ticket, tickets)));
	INVALID("exceed", overbank_copies_lookup(copies, keys, SIZE_MAX, values, found, NULL));
	INVALID("exceed", overbank_copies_lookup(copies, keys, SIZE_MAX / 32, values, found,
			NULL));
	CHECK(found[0] == UNTOUCHED && found[1] == UNTOUCHED);
	OK(overbank_copies_lookup(copies, NULL, 0, NULL, NULL, NULL));
	OK(overbank_copies_lookup(copies, keys, 2, values, found, tickets));
	CHECK(found[0] == OVERBANK_ASIDE_MISS && found[1] == OVERBANK_ASIDE_MISS);
	INVALID("handle is NULL", overbank_copies_fill(NULL, tickets, values));
	INVALID("ticket is NULL", overbank_copies_fill(copies, NULL, values));
	INVALID("ticket is not aligned", overbank_copies_fill(copies,
			ASKEW(struct overbank_aside_ticket, tickets), values));
	INVALID("value is not aligned", overbank_copies_fill(copies, tickets,
			ASKEW(uint64_t, values)));

	INVALID("handle is NULL", overbank_copies_clear(NULL));
	INVALID("handle is NULL", overbank_copies_set_costs(NULL, &costs));
	INVALID("costs is NULL", overbank_copies_set_costs(copies, NULL));
	INVALID("costs: hit", overbank_copies_set_costs(copies, &costs));
	costs = (struct overbank_aside_costs){0};
	INVALID("unknown costs", overbank_copies_set_costs(copies, &costs));
	INVALID("handle is NULL", overbank_copies_gate(NULL, &gate));
	INVALID("out is NULL", overbank_copies_gate(copies, NULL));
	INVALID("handle is NULL", overbank_copies_counters(NULL, &counters));
	INVALID("out is NULL", overbank_copies_counters(copies, NULL));
	INVALID("handle is NULL", overbank_copies_info(NULL, &info));
	INVALID("out is NULL", overbank_copies_info(copies, NULL));

	INVALID("handle is NULL", overbank_copies_writer_create(NULL, &no_writer));
	INVALID("out is NULL", overbank_copies_writer_create(copies, NULL));
	CHECK(!no_writer);
	INVALID("handle is NULL", overbank_copies_writer_begin(NULL, keys));
	INVALID("handle is not aligned", overbank_copies_writer_begin(
			ASKEW(struct overbank_copies_writer, writer), keys));
	INVALID("key is NULL", overbank_copies_writer_begin(writer, NULL));
	INVALID("key is not aligned", overbank_copies_writer_begin(writer, ASKEW(uint64_t, keys)));
	INVALID("handle is NULL", overbank_copies_writer_begin_all(NULL));
	INVALID("handle is NULL", overbank_copies_writer_keep(NULL, values));
	INVALID("handle is NULL", overbank_copies_writer_finish(NULL));
	/* Nothing of this has begun a write. */
	INVALID("begun no write", overbank_copies_writer_finish(writer));
	overbank_copies_writer_destroy(writer);
	overbank_copies_writer_destroy(NULL);
	overbank_copies_destroy(copies);
	overbank_copies_destroy(NULL);
}

void test_copies_gate(void)
{
	refuses();
	overlaps();
	gate();
	meter();
}
