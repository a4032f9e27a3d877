// An item of a store, and what each index in C offers. An index maps a key to an item; items and
// indexes live until the process ends.
#pragma once
#include <stdint.h>

struct item {
    struct item *next; // Used by the hash table only, as memcached's items do.
    uint64_t key;
    uint64_t value[];
};

// Takes the address of a node, its bytes and its level: 0 for leaves.
typedef void visit(void *visitor, uint64_t address, uint64_t bytes, uint32_t level);

// `new` returns NULL if memory is missing. `insert` expects a new key and returns 0 or an error
// that `text` explains. `ready` ends the building phase. `depth`: levels, or the longest chain.
// `nodes` visits all nodes, where the index knows them.
#define INDEX(name)                                                                                \
    void *name##_new(uint64_t size);                                                               \
    int name##_insert(void *index, uint64_t key, struct item *item);                               \
    int name##_ready(void *index);                                                                 \
    struct item *name##_find(void *index, uint64_t key);                                           \
    uint64_t name##_depth(void *index);                                                            \
    void name##_nodes(void *index, visit *visit, void *visitor);                                   \
    const char *name##_text(int error)
