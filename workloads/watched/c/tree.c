// A B+ tree, each node a separate block. Compiled once for each width:
//
//   bplus     WIDTH 19: a fanout of 20, as the paper's figure 1
//   masstree  WIDTH 15, VERSIONED: one layer of Masstree. A reader reads a node's version before
//             and after its keys, and searches the node again if it has changed. Keys are kept in
//             order in place; Masstree orders them by a permutation beside the version.
//
//   node: [version] │ count, level │ key × WIDTH │ down × (WIDTH + 1)
#include "item.h"
#include <stdlib.h>

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define CALL(what) JOIN(TREE, what)

INDEX(TREE);

struct node {
#ifdef VERSIONED
    uint64_t version;
#endif
    uint32_t count; // Keys.
    uint32_t level; // 0: a leaf, and `down` are items.
    uint64_t key[WIDTH];
    void *down[WIDTH + 1];
};

struct tree {
    struct node *root;
};

static struct node *node_new(uint32_t level) {
    struct node *node = calloc(1, sizeof *node);
    if (node != NULL) node->level = level;
    return node;
}

void *CALL(_new)(uint64_t size) {
    (void)size;
    struct tree *tree = malloc(sizeof *tree);
    if (tree == NULL) return NULL;
    tree->root = node_new(0);
    return tree->root == NULL ? NULL : tree;
}

// The number of keys that are less than `key`, or equal if `equal`.
static inline uint32_t below(const struct node *node, uint64_t key, int equal) {
    uint32_t low = 0, high = node->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint64_t there = node->key[middle];
        if (there < key || (equal && there == key)) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Puts `key` in at `at`, and `down` at `under`.
static void put(struct node *node, uint32_t at, uint64_t key, uint32_t under, void *down) {
    uint32_t downs = node->count + (node->level > 0);
    for (uint32_t i = node->count; i > at; i--) node->key[i] = node->key[i - 1];
    for (uint32_t i = downs; i > under; i--) node->down[i] = node->down[i - 1];
    node->key[at] = key;
    node->down[under] = down;
    node->count++;
#ifdef VERSIONED
    node->version += 2;
#endif
}

// Moves the upper half of a full node to a new one on its right, which it returns; NULL without
// memory. `key` is the first key that the new node covers.
static struct node *halve(struct node *node, uint64_t *key) {
    struct node *right = node_new(node->level);
    if (right == NULL) return NULL;
    uint32_t inner = node->level > 0, kept = (WIDTH + 1) / 2;
    *key = node->key[kept];
    for (uint32_t i = kept + inner; i < WIDTH; i++) right->key[right->count++] = node->key[i];
    uint32_t downs = right->count + inner;
    for (uint32_t i = 0; i < downs; i++) right->down[i] = node->down[kept + inner + i];
    node->count = kept;
    return right;
}

// Inserts below `node`. If that was split, `*right` and `*key` are the new node and its first key.
static int insert(struct node *node, uint64_t *key, void *item, struct node **right) {
    uint64_t up = *key;
    void *down = item;
    uint32_t at = below(node, *key, 1), inner = node->level > 0;
    *right = NULL;
    if (inner) {
        struct node *split;
        int error = insert(node->down[at], &up, item, &split);
        if (error || split == NULL) return error;
        down = split;
    }
    if (node->count < WIDTH) {
        put(node, at, up, at + inner, down);
        return 0;
    }
    *right = halve(node, key);
    if (*right == NULL) return 1;
    struct node *half = up < *key ? node : *right;
    at = below(half, up, 1);
    put(half, at, up, at + inner, down);
    return 0;
}

int CALL(_insert)(void *index, uint64_t key, struct item *item) {
    struct tree *tree = index;
    struct node *right;
    int error = insert(tree->root, &key, item, &right);
    if (error || right == NULL) return error;
    struct node *root = node_new(tree->root->level + 1);
    if (root == NULL) return 1;
    root->down[0] = tree->root;
    put(root, 0, key, 1, right);
    tree->root = root;
    return 0;
}

int CALL(_ready)(void *index) {
    (void)index;
    return 0;
}

// The place of `key` in a node.
static inline uint32_t search(const struct node *node, uint64_t key) {
    int equal = node->level > 0;
#ifdef VERSIONED
    for (;;) {
        uint64_t version = __atomic_load_n(&node->version, __ATOMIC_ACQUIRE);
        uint32_t at = below(node, key, equal);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&node->version, __ATOMIC_RELAXED) == version) return at;
    }
#else
    return below(node, key, equal);
#endif
}

struct item *CALL(_find)(void *index, uint64_t key) {
    struct tree *tree = index;
    const struct node *node = tree->root;
    while (node->level > 0) node = node->down[search(node, key)];
    uint32_t at = search(node, key);
    return at < node->count && node->key[at] == key ? node->down[at] : NULL;
}

uint64_t CALL(_depth)(void *index) {
    struct tree *tree = index;
    return (uint64_t)tree->root->level + 1;
}

static void below_and_at(const struct node *node, visit *visit, void *visitor) {
    visit(visitor, (uintptr_t)node, sizeof *node, node->level);
    if (node->level == 0) return;
    for (uint32_t i = 0; i <= node->count; i++) below_and_at(node->down[i], visit, visitor);
}

void CALL(_nodes)(void *index, visit *visit, void *visitor) {
    struct tree *tree = index;
    below_and_at(tree->root, visit, visitor);
}

const char *CALL(_text)(int error) {
    (void)error;
    return "no memory";
}
