// A chained hash table as memcached's: 2^n buckets, items linked through themselves.
//
//   buckets: pointer │ pointer │ …          one line a lookup
//               └─▶ item: next │ key │ value    one line an item of the chain, then the value
#include "item.h"
#include <stdlib.h>

INDEX(hash);

struct hash {
    uint64_t mask;
    struct item **bucket;
};

// The finaliser of splitmix64: every bit of the key changes half of the hash.
static inline uint64_t mixed(uint64_t key) {
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return key ^ (key >> 31);
}

// `size` buckets, a power of two.
void *hash_new(uint64_t size) {
    struct hash *hash = malloc(sizeof *hash);
    if (hash == NULL) return NULL;
    hash->mask = size - 1;
    hash->bucket = calloc(size, sizeof *hash->bucket);
    return hash->bucket == NULL ? NULL : hash;
}

int hash_insert(void *index, uint64_t key, struct item *item) {
    struct hash *hash = index;
    struct item **bucket = &hash->bucket[mixed(key) & hash->mask];
    item->next = *bucket;
    *bucket = item;
    return 0;
}

int hash_ready(void *index) {
    (void)index;
    return 0;
}

struct item *hash_find(void *index, uint64_t key) {
    struct hash *hash = index;
    struct item *item = hash->bucket[mixed(key) & hash->mask];
    while (item != NULL && item->key != key) item = item->next;
    return item;
}

uint64_t hash_depth(void *index) {
    struct hash *hash = index;
    uint64_t longest = 0;
    for (uint64_t i = 0; i <= hash->mask; i++) {
        uint64_t length = 0;
        for (struct item *item = hash->bucket[i]; item != NULL; item = item->next) length++;
        if (length > longest) longest = length;
    }
    return longest;
}

// The buckets.
void hash_nodes(void *index, visit *visit, void *visitor) {
    struct hash *hash = index;
    visit(visitor, (uintptr_t)hash->bucket, (hash->mask + 1) * sizeof *hash->bucket, 0);
}

const char *hash_text(int error) {
    (void)error;
    return "no memory";
}
