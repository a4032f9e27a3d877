// libcuckoo as a forwarding table: what src/fib/cuckoo.rs calls.
//
// An entry takes 8 bytes, 6 for the key and 2 for the value, and 10 with the table's own bookkeeping.
// Any thread may call anything; no exception leaves this file.
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include <libcuckoo/cuckoohash_map.hh>

namespace {

struct Mac {
	uint16_t parts[3];

	explicit Mac(uint64_t number)
	    : parts{uint16_t(number), uint16_t(number >> 16), uint16_t(number >> 32)} {}

	uint64_t word() const
	{
		uint64_t word = 0;
		std::memcpy(&word, parts, sizeof parts);
		return word;
	}
};

struct Equal {
	bool operator()(const Mac &a, const Mac &b) const { return a.word() == b.word(); }
};

struct Hash {
	size_t operator()(const Mac &key) const
	{
		unsigned __int128 product =
			(unsigned __int128)(key.word() ^ 0x9e3779b97f4a7c15) * 0xd6e8feb86659fd93;
		return uint64_t(product) ^ uint64_t(product >> 64);
	}
};

using Map = libcuckoo::cuckoohash_map<Mac, uint16_t, Hash, Equal>;
static_assert(sizeof(std::pair<const Mac, uint16_t>) == 8, "an entry");

struct Tally {
	uint64_t hits;
	uint64_t sum;
};

} // namespace

extern "C" {

// Null if there is no memory.
Map *peers_cuckoo_new(uint64_t entries)
{
	try {
		return new Map(entries);
	} catch (...) {
		return nullptr;
	}
}

// Inserts keys, or replaces their values. Returns 0, or -1 if it cannot.
int peers_cuckoo_write(Map *map, const uint64_t *keys, const uint16_t *values, uint64_t n)
{
	try {
		for (uint64_t i = 0; i < n; i++)
			map->insert_or_assign(Mac(keys[i]), values[i]);
		return 0;
	} catch (...) {
		return -1;
	}
}

// Entries over slots.
double peers_cuckoo_load(const Map *map)
{
	return map->load_factor();
}

void peers_cuckoo_lookup(const Map *map, const uint64_t *keys, uint64_t n, Tally *tally)
{
	uint16_t value;
	for (uint64_t i = 0; i < n; i++) {
		if (map->find(Mac(keys[i]), value)) {
			tally->hits++;
			tally->sum += value;
		}
	}
}

void peers_cuckoo_free(Map *map)
{
	delete map;
}
}
