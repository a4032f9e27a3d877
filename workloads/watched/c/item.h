// An item of a store, and what each index in C offers. An index maps a key to an item; items and
// indexes live until the process ends.
#pragma once
#include <stdint.h>

struct item {
    struct item *next; // Used by the hash table only, as memcached's items do.
    uint64_t key;
    uint64_t value[];
};

// `new` returns NULL if memory is missing. `insert` expects a new key and returns 0 or an error
// that `text` explains. `ready` ends the building phase. `depth`: levels, or the longest chain.
#define INDEX(name)                                                                                \
    void *name##_new(uint64_t size);                                                               \
    int name##_insert(void *index, uint64_t key, struct item *item);                               \
    int name##_ready(void *index);                                                                 \
    struct item *name##_find(void *index, uint64_t key);                                           \
    uint64_t name##_depth(void *index);                                                            \
    const char *name##_text(int error)
