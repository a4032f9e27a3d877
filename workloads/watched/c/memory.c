// Word by word, as libc's functions do at least. -fno-builtin keeps the compiler from turning the
// loops into calls of those.
#include "memory.h"
#include <stdint.h>

typedef uint64_t word __attribute__((may_alias, aligned(1)));
enum { WORD = sizeof(word) };

void *watched_copy(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    for (; bytes >= WORD; bytes -= WORD, t += WORD, f += WORD) *(word *)t = *(const word *)f;
    while (bytes-- > 0) *t++ = *f++;
    return to;
}

void *watched_move(void *to, const void *from, size_t bytes) {
    char *t = to;
    const char *f = from;
    if ((uintptr_t)to - (uintptr_t)from >= bytes) return watched_copy(to, from, bytes);
    for (; bytes >= WORD; bytes -= WORD)
        *(word *)(t + bytes - WORD) = *(const word *)(f + bytes - WORD);
    while (bytes-- > 0) t[bytes] = f[bytes];
    return to;
}

void *watched_set(void *to, int byte, size_t bytes) {
    char *t = to;
    const word all = (unsigned char)byte * UINT64_C(0x0101010101010101);
    for (; bytes >= WORD; bytes -= WORD, t += WORD) *(word *)t = all;
    while (bytes-- > 0) *t++ = (char)byte;
    return to;
}

int watched_compare(const void *a, const void *b, size_t bytes) {
    const unsigned char *x = a, *y = b;
    for (; bytes >= WORD; bytes -= WORD, x += WORD, y += WORD) {
        word p = *(const word *)x, q = *(const word *)y;
        if (p == q) continue;
        // Memory order is big-endian.
        return __builtin_bswap64(p) < __builtin_bswap64(q) ? -1 : 1;
    }
    for (; bytes-- > 0; x++, y++)
        if (*x != *y) return *x < *y ? -1 : 1;
    return 0;
}
